"""A node process with the pipes to its supervisor."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from typing import IO, TYPE_CHECKING, Final

from engine.supervisor.link import LEASE_FD, RUN_DIR, SUPERVISOR_FD
from engine.supervisor.processes import identify

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Mapping

    from engine.supervisor.launch import Launch
    from engine.supervisor.processes import ProcessIdentity

_READ_BYTES: Final = 65536


class NodeProcess:
    """One run of a node.

    The node leads its own process group, so that Ctrl-C in a terminal reaches only the supervisor, which then
    stops the node in order.

    Args:
        launch: the node to start.
        environ: its environment.
        directory: its OSPLTOOL_RUN_DIR.
        output: target of its standard streams; None for those of this process.

    Raises:
        OSError: the node cannot be started.
    """

    def __init__(
        self,
        launch: Launch,
        environ: Mapping[str, str],
        directory: pathlib.Path,
        output: IO[bytes] | None,
    ) -> None:
        self.has_closed_lease = False
        self.lease, lease_of_node = os.pipe()
        supervisor_of_node, self._alive = os.pipe()
        os.set_blocking(self.lease, False)
        try:
            self._process = subprocess.Popen(
                launch.command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=launch.working_directory,
                env={
                    **environ,
                    RUN_DIR: str(directory),
                    LEASE_FD: str(lease_of_node),
                    SUPERVISOR_FD: str(supervisor_of_node),
                },
                pass_fds=(lease_of_node, supervisor_of_node),
                process_group=0,
            )
        except BaseException:
            self._close(self.lease, self._alive)
            raise
        finally:
            self._close(lease_of_node, supervisor_of_node)
        self.handle = os.pidfd_open(self._process.pid)  # becomes readable when the node has ended
        self.identity: ProcessIdentity | None = identify(self._process.pid)

    def renewals(self) -> str | None:
        """Return the state of the last renewal since the last call; None if there was none."""
        try:
            data = os.read(self.lease, _READ_BYTES)
        except BlockingIOError:
            return None
        self.has_closed_lease = not data
        lines = data.decode("ascii", "replace").split("\n")[:-1]
        return lines[-1] if lines else None

    def terminate(self) -> None:
        """Tell the node to stop."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the node and its process group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def ended(self) -> int | None:
        """Return the exit code, negative for a signal; None while the node runs."""
        return self._process.poll()

    def close(self) -> None:
        """Close the pipes of a node that has ended."""
        self._close(self.lease, self._alive, self.handle)

    def _send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    @staticmethod
    def _close(*descriptors: int) -> None:
        for descriptor in descriptors:
            os.close(descriptor)
