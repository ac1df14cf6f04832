"""The node's side of its supervisor.

The supervisor starts the node with these variables:

- OSPLTOOL_RUN_DIR: the node's directory, where it puts `state.json`.
- OSPLTOOL_LEASE_FD: a pipe to write to. Each line renews the lease and says the service state; a node that
  writes nothing for ExpiryTime is taken for dead.
- OSPLTOOL_SUPERVISOR_FD: a pipe that never has data. Its end of file says that the supervisor is gone, and
  the node then ends in order.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import select
import threading
import time
from typing import TYPE_CHECKING, Final

from engine.supervisor.policy import INITIAL_STATE
from engine.supervisor.rundir import write_json

if TYPE_CHECKING:
    from collections.abc import Mapping

RUN_DIR: Final = "OSPLTOOL_RUN_DIR"
LEASE_FD: Final = "OSPLTOOL_LEASE_FD"
SUPERVISOR_FD: Final = "OSPLTOOL_SUPERVISOR_FD"


class LinkError(ValueError):
    """The variables of the supervisor are there but cannot be used."""


class SupervisorLink:
    """What a supervised node does for its supervisor. Safe to call from any thread."""

    def __init__(self, directory: pathlib.Path, lease: int, supervisor: int) -> None:
        self._directory = directory
        self._lease = lease
        self._supervisor = supervisor
        self._state = INITIAL_STATE
        self._since_ns = 0
        self._writing = threading.Lock()
        for descriptor in (lease, supervisor):  # processes that the node starts must not keep them open
            os.set_inheritable(descriptor, False)
        os.set_blocking(lease, False)

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> SupervisorLink | None:
        """The link of this process; None when it was started without a supervisor.

        Raises:
            LinkError: only a part of the variables is there, or a descriptor is not open.
        """
        values = [environ.get(name) for name in (RUN_DIR, LEASE_FD, SUPERVISOR_FD)]
        if values == [None, None, None]:
            return None
        directory, lease, supervisor = values
        if directory is None or lease is None or supervisor is None:
            raise LinkError(f"{RUN_DIR}, {LEASE_FD} and {SUPERVISOR_FD} belong together")
        try:
            return cls(pathlib.Path(directory), int(lease), int(supervisor))
        except (OSError, ValueError) as error:
            raise LinkError(f"{LEASE_FD}={lease}, {SUPERVISOR_FD}={supervisor}: {error}") from error

    def renew(self) -> None:
        """Say that the node is alive. Never blocks: a supervisor that stands still reads it later."""
        try:
            os.write(self._lease, f"{self._state}\n".encode("ascii", "replace"))
        except (BlockingIOError, BrokenPipeError):
            return  # a full pipe holds renewals enough; a closed one shows as `is_lost`

    def report(self, state: str, **details: object) -> None:
        """Say in which service state the node is, or other details of it, which must be JSON values.

        This renews the lease too. A directory that cannot be written to stops nothing: the supervisor
        learns the state from the lease.
        """
        with self._writing, contextlib.suppress(OSError):
            if state != self._state or not self._since_ns:
                self._state, self._since_ns = state, time.time_ns()
            document = {"state": state, "time_ns": self._since_ns, "pid": os.getpid(), **details}
            write_json(self._directory / "state.json", document)
        self.renew()

    def end(self, cause: str) -> None:
        """Say why the node is about to end by itself: the supervisor and `status` show it."""
        self.report(self._state, fault=cause)

    def fileno(self) -> int:
        """The descriptor that becomes readable when the supervisor is gone."""
        return self._supervisor

    def is_lost(self, timeout_s: float = 0) -> bool:
        """Whether the supervisor is gone, waiting for that up to `timeout_s`."""
        poll = select.poll()
        poll.register(self._supervisor, select.POLLIN)
        return bool(poll.poll(timeout_s * 1000))
