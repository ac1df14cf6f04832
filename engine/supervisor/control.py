"""Starting and stopping nodes, for `ospltool start` and `ospltool stop`."""

from __future__ import annotations

import enum
import json
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from engine.supervisor.launch import Launch, module_command, module_environ
from engine.supervisor.node_status import OPERATIONAL_STATE
from engine.supervisor.policy import FINAL, NodePhase
from engine.supervisor.process_identity import ProcessIdentity
from engine.supervisor.rundir import NodeDirectory, RunRecord

# Some heartbeats of others. Longer makes each `start` take longer.
SETTLE_S: Final = 3.0
"""Time for which a node that has just begun to run is looked at, since it may end at once."""
# The supervisor kills the node, writes its report and ends; seconds only on a loaded machine.
STOP_MARGIN_S: Final = 5.0
"""Time beyond the ServiceTerminatePeriod in which a stopped node's supervisor must end."""

# A person who presses Ctrl-C does not notice it.
_INTERRUPT_S: Final = 0.1
"""How often a wait looks whether it was interrupted."""
_READ_BYTES: Final = 65536
# A message has some hundred bytes.
_MAX_PROGRESS_BYTES: Final = 1 << 20
"""Of a message without an end: the other side is not a supervisor."""


class Start(msgspec.Struct, frozen=True):
    """Result of a start.

    Attributes:
        record: the supervisor's last record, or None.
        refusal: reason why there is no supervisor; empty if there is one.
    """

    record: RunRecord | None
    refusal: str = ""

    @property
    def is_running(self) -> bool:
        """Whether the node has left the state INIT."""
        return self.record is not None and self.record.phase is NodePhase.RUNNING

    @property
    def has_failed(self) -> bool:
        """Whether the start ended without a running node."""
        return bool(self.refusal) or (self.record is not None and self.record.phase in FINAL)


def start(
    launch: Launch,
    environ: Mapping[str, str],
    timeout_s: float,
    is_interrupted: Callable[[], bool] = lambda: False,
) -> Start:
    """Start a supervisor in its own session; wait for up to `timeout_s` until its node runs or has failed.

    After that time, or when `is_interrupted` says so, the start continues in the background. A node that runs
    may find out from the first heartbeats of others that it cannot stay, so it is looked at for `SETTLE_S`
    more, or until it is complete.
    """
    process = subprocess.Popen(
        module_command("engine.supervisor"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=module_environ(environ),
        start_new_session=True,
    )
    with process:  # it ends as soon as it has forked the supervisor
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(launch.to_json().encode())
            process.stdin.close()
        except BrokenPipeError:  # its stderr has the reason
            return Start(None, "the supervisor could not be started")
        record: RunRecord | None = None
        try:
            until = time.monotonic() + timeout_s
            for message in _messages(process.stdout.fileno(), until, is_interrupted):
                if "refused" in message:
                    return Start(None, str(message["refused"]))
                record = msgspec.convert(message, RunRecord)
                if record.phase in FINAL:
                    return Start(record)
                if record.phase is NodePhase.RUNNING:
                    return Start(_settled(NodeDirectory(Path(launch.directory)), record))
        except TimeoutError:  # the start goes on in the background
            return Start(record)
    return Start(record, "" if record is not None else "the supervisor ended without a message")


def _settled(directory: NodeDirectory, record: RunRecord) -> RunRecord:
    """Return the last record of a node that runs, once it stays."""
    deadline = time.monotonic() + SETTLE_S
    while record.phase is NodePhase.RUNNING and time.monotonic() < deadline:
        if directory.state().get("state") == OPERATIONAL_STATE:
            break
        # A file in a directory of another process: there is nothing to wait on. Twenty looks, so that a
        # start that succeeds returns early.
        time.sleep(SETTLE_S / 20)
        record = directory.record() or record
    return record


def _messages(
    descriptor: int, deadline: float, is_interrupted: Callable[[], bool]
) -> Iterator[dict[str, Any]]:
    """Read the supervisor's messages until it closes the pipe.

    Raises:
        TimeoutError: the deadline has passed, or the wait was interrupted.
    """
    os.set_blocking(descriptor, False)
    buffer = b""
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while len(buffer) <= _MAX_PROGRESS_BYTES:
            left_s = max(deadline - time.monotonic(), 0)
            if is_interrupted():
                raise TimeoutError
            if not selector.select(min(left_s, _INTERRUPT_S)):
                if left_s > _INTERRUPT_S:
                    continue
                raise TimeoutError
            data = os.read(descriptor, _READ_BYTES)
            if not data:
                return
            *lines, buffer = (buffer + data).split(b"\n")
            for line in lines:
                yield json.loads(line)


class Stop(enum.Enum):
    """Result of a stop."""

    STOPPED = "stopped"
    WAS_NOT_RUNNING = "was not running"
    STILL_STOPPING = "still stopping"


def stop(directory: NodeDirectory, timeout_s: float | None = None) -> Stop:
    """Stop one node; see `stop_all`."""
    return stop_all([directory], timeout_s)[0]


def stop_all(directories: Sequence[NodeDirectory], timeout_s: float | None = None) -> list[Stop]:
    """Stop nodes in order, all at the same time, and wait for them.

    This also forgets the record of a node that had died.

    Args:
        directories: the nodes' directories.
        timeout_s: limit for waiting; by default each node's ServiceTerminatePeriod and `STOP_MARGIN_S`.

    Returns:
        The result for each node. With `STILL_STOPPING` the wait timed out; the node continues to stop, and
        its supervisor kills it after its ServiceTerminatePeriod.
    """
    began = time.monotonic()
    records = [(directory, directory.record()) for directory in directories]
    stopping = [(*each, _signalled(each[1])) for each in records]  # all of them, before the first wait
    return [_ended(*each, began, timeout_s) for each in stopping]


def _signalled(record: RunRecord | None) -> ProcessIdentity | None:
    """Tell a node to stop, by its supervisor, or directly if that is gone; return whom this reached."""
    processes = (record.supervisor, record.node) if record is not None else ()
    return next((one for one in processes if one is not None and one.send(signal.SIGTERM)), None)


def _ended(
    directory: NodeDirectory,
    record: RunRecord | None,
    signalled: ProcessIdentity | None,
    began: float,
    timeout_s: float | None,
) -> Stop:
    """Wait for the end of a node."""
    if record is None:
        return Stop.WAS_NOT_RUNNING
    kill_at = began + record.terminate_period_s
    deadline = kill_at + STOP_MARGIN_S if timeout_s is None else began + timeout_s
    if signalled == record.supervisor:
        is_over = record.supervisor.wait(deadline - time.monotonic())
        return Stop.STOPPED if is_over else Stop.STILL_STOPPING
    if signalled is not None:
        is_over = signalled.wait(min(deadline, kill_at) - time.monotonic())
        if not is_over and time.monotonic() >= kill_at:  # without its supervisor nobody else would kill it
            signalled.send(signal.SIGKILL)
            is_over = signalled.wait(STOP_MARGIN_S)
        if not is_over:
            return Stop.STILL_STOPPING
    if record.phase is not NodePhase.ENDED:
        directory.forget()
    return Stop.STOPPED if signalled is not None else Stop.WAS_NOT_RUNNING
