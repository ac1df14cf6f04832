"""Starting and stopping nodes from outside: what `ospltool start` and `ospltool stop` do."""

from __future__ import annotations

import dataclasses
import enum
import json
import os
import selectors
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Any, Final

from engine.core import plain
from engine.supervisor.launch import module_command, module_environ
from engine.supervisor.policy import FINAL, Phase
from engine.supervisor.rundir import Record

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from engine.supervisor.launch import Launch
    from engine.supervisor.processes import ProcessIdentity
    from engine.supervisor.rundir import NodeDirectory

STOP_MARGIN_S: Final = 5.0
"""How much longer than the ServiceTerminatePeriod a stop may take: the supervisor has to end as well."""

_READ_BYTES: Final = 65536
_MAX_PROGRESS_BYTES: Final = 1 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class Start:
    """How a start went.

    Attributes:
        record: what the supervisor said last; None when it has said nothing.
        refusal: why there is no supervisor, empty when there is one.
        is_running: the node has left the state INIT.
    """

    record: Record | None
    refusal: str = ""

    @property
    def is_running(self) -> bool:
        """Whether the node has left the state INIT."""
        return self.record is not None and self.record.phase is Phase.RUNNING

    @property
    def has_failed(self) -> bool:
        """Whether there is no node, and none will come."""
        return bool(self.refusal) or (self.record is not None and self.record.phase in FINAL)


def start(launch: Launch, environ: Mapping[str, str], timeout_s: float) -> Start:
    """Start a supervisor of its own session, and wait until its node runs, has failed, or time is over.

    A start that is still going on when time is over goes on.
    """
    process = subprocess.Popen(
        module_command("engine.supervisor"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=module_environ(environ),
        start_new_session=True,
    )
    with process:  # it ends as soon as it has made the supervisor, a process of no parent
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(launch.to_json().encode())
            process.stdin.close()
        except BrokenPipeError:  # it says why on stderr
            return Start(None, "the supervisor could not be started")
        record: Record | None = None
        try:
            for message in _messages(process.stdout.fileno(), time.monotonic() + timeout_s):
                if "refused" in message:
                    return Start(None, str(message["refused"]))
                record = plain.from_plain(Record, message)
                if record is not None and record.phase in FINAL | {Phase.RUNNING}:
                    return Start(record)
        except TimeoutError:
            return Start(record)
    return Start(record, "" if record is not None else "the supervisor ended without a word")


def _messages(descriptor: int, deadline: float) -> Iterator[dict[str, Any]]:
    """The supervisor's messages until it closes the pipe.

    Raises:
        TimeoutError: the time has come.
    """
    os.set_blocking(descriptor, False)
    buffer = b""
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while len(buffer) <= _MAX_PROGRESS_BYTES:
            if not selector.select(max(deadline - time.monotonic(), 0)):
                raise TimeoutError
            data = os.read(descriptor, _READ_BYTES)
            if not data:
                return
            *lines, buffer = (buffer + data).split(b"\n")
            for line in lines:
                yield json.loads(line)


class Stop(enum.Enum):
    """How a stop went."""

    STOPPED = "stopped"
    WAS_NOT_RUNNING = "was not running"
    STILL_STOPPING = "still stopping"


def stop(directory: NodeDirectory, timeout_s: float | None = None) -> Stop:
    """Stop one node; see `stop_all`."""
    return stop_all([directory], timeout_s)[0]


def stop_all(directories: Sequence[NodeDirectory], timeout_s: float | None = None) -> list[Stop]:
    """Stop nodes in order, side by side, and wait for them.

    The record of a node that had died is forgotten with this.

    Args:
        directories: the nodes' directories.
        timeout_s: how long to wait; by default each node's ServiceTerminatePeriod and `STOP_MARGIN_S`.

    Returns:
        How each stop went. `STILL_STOPPING` when time is over; such a node goes on stopping, and its
        supervisor ends it by force after its ServiceTerminatePeriod.
    """
    began = time.monotonic()
    stopping = [_Stopping(directory) for directory in directories]
    return [each.wait(began, timeout_s) for each in stopping]


class _Stopping:
    """One node that has been told to stop: by its supervisor, or directly when that is gone."""

    def __init__(self, directory: NodeDirectory) -> None:
        self._directory = directory
        self._record = record = directory.record()
        self._by_supervisor = record is not None and record.supervisor.send(signal.SIGTERM)
        self._orphan: ProcessIdentity | None = None
        if record is not None and not self._by_supervisor and record.node is not None:
            self._orphan = record.node if record.node.send(signal.SIGTERM) else None

    def wait(self, began: float, timeout_s: float | None) -> Stop:
        """Wait for the end of the node."""
        record = self._record
        if record is None:
            return Stop.WAS_NOT_RUNNING
        period_s = record.terminate_period_s
        deadline = began + (period_s + STOP_MARGIN_S if timeout_s is None else timeout_s)
        if self._by_supervisor:
            is_over = record.supervisor.wait(deadline - time.monotonic())
            return Stop.STOPPED if is_over else Stop.STILL_STOPPING
        outcome = Stop.WAS_NOT_RUNNING
        if self._orphan is not None:
            outcome = self._wait_for_orphan(self._orphan, min(deadline, began + period_s), began + period_s)
        if outcome is not Stop.STILL_STOPPING and record.phase is not Phase.ENDED:
            self._directory.forget()
        return outcome

    @staticmethod
    def _wait_for_orphan(node: ProcessIdentity, deadline: float, force_at: float) -> Stop:
        """Nobody but us ends a node by force that has outlived its supervisor."""
        if node.wait(deadline - time.monotonic()):
            return Stop.STOPPED
        if time.monotonic() < force_at:
            return Stop.STILL_STOPPING
        node.send(signal.SIGKILL)
        return Stop.STOPPED if node.wait(STOP_MARGIN_S) else Stop.STILL_STOPPING
