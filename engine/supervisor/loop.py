"""The supervisor's event loop: it turns signals, renewals and the node's end into commands."""

from __future__ import annotations

import contextlib
import datetime
import os
import pathlib
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Final

import msgspec

from engine.files import is_permanent, open_private
from engine.supervisor.launch import Launch
from engine.supervisor.lease_link import BEAT_S, LEASE_FD, RUN_DIR, SUPERVISOR_FD
from engine.supervisor.policy import FINAL, NodePhase, SupervisionPolicy, SupervisorAction
from engine.supervisor.process_identity import ProcessIdentity, identify
from engine.supervisor.rundir import NodeDirectory, RunRecord, present_ns
from engine.tracing.levels import ReportType
from engine.tracing.reports import Reporter, ReportTargetError
from engine.tracing.version import product_version

_CONTEXT = "The OpenSplice domain service"


class Narrator:
    """Writes a line for each change, and a report for changes that an operator must know."""

    def __init__(self, launch: Launch, environ: Mapping[str, str]) -> None:
        self._last = ""
        self._reporter: Reporter | None = None
        try:
            self._reporter = Reporter(
                "ospltool",
                product_version(),
                environ,
                time.time_ns,
                directory=pathlib.Path(launch.working_directory),
                domain_id=launch.domain_id,
                append=launch.report_append,
                verbosity=ReportType.configured(launch.report_verbosity),
            )
        except ReportTargetError as error:
            self._log(str(error))

    def __call__(self, record: RunRecord) -> None:
        """Write a change."""
        reason = f": {record.reason}" if record.reason else ""
        text = f"{record.domain_name} ({record.configuration}) {record.phase}{reason}"
        if record.node is not None:
            text += f", process {record.node.pid}"
        if text == self._last:
            return
        self._last = text
        self._log(text)
        kind = None
        if record.phase is NodePhase.DIED:
            kind = ReportType.ERROR
        elif record.is_unresponsive or record.phase in (NodePhase.RESTARTING, NodePhase.KILLING):
            kind = ReportType.WARNING
        if kind is not None and self._reporter is not None:
            description = (
                f"The service 'durability' of domain \"{record.domain_name}\" {record.phase}{reason}"
            )
            self._reporter.report(kind, description, context=_CONTEXT, thread="spliced")

    @staticmethod
    def _log(text: str) -> None:
        moment = datetime.datetime.now(datetime.UTC).astimezone()
        sys.stderr.write(f"{moment.strftime('%Y-%m-%dT%H:%M:%S%z')} supervisor: {text}\n")
        sys.stderr.flush()


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
        os.set_blocking(self._alive, False)  # a node that stands still does not hold its supervisor up
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
        except BlockingIOError:  # nothing was written
            return None
        self.has_closed_lease = not data
        lines = data.decode("ascii", "replace").split("\n")[:-1]
        return lines[-1] if lines else None

    def beat(self) -> None:
        """Show the node that its supervisor is alive (deployment guide 5.3.2)."""
        with contextlib.suppress(BlockingIOError, BrokenPipeError):  # the node stands still, or ends
            os.write(self._alive, b".")

    def terminate(self) -> None:
        """Tell the node to stop."""
        self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the node and its process group."""
        with contextlib.suppress(ProcessLookupError):  # it has just ended by itself
            os.killpg(self._process.pid, signal.SIGKILL)

    def ended(self) -> int | None:
        """Return the exit code, negative for a signal; None while the node runs."""
        return self._process.poll()

    def close(self) -> None:
        """Close the pipes of a node that has ended."""
        self._close(self.lease, self._alive, self.handle)

    @staticmethod
    def _close(*descriptors: int) -> None:
        for descriptor in descriptors:
            os.close(descriptor)


# The last two logs together take 32 MiB of the disk; a text editor still opens one.
MAX_LOG_BYTES: Final = 16 << 20
"""Size at which the node.log of a running node becomes its node.log.1.

Cyclone DDS prints there, among others for each damaged packet that somebody sends."""
# Some lines of a terminal; the whole message is in the log.
MAX_CAUSE: Final = 500
"""Limit for the characters of a node's last message."""
STOP_SIGNALS: Final = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGALRM,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
"""Signals that stop the node in order; only SIGKILL ends a supervisor without this."""


class Supervisor:
    """Supervises one node until it has ended for good.

    Args:
        launch: the node.
        environ: its environment.
        observe: called with the record at every change.
        to_terminal: let the node share the standard streams of this process (foreground), instead of writing
            them to node.log.
    """

    def __init__(
        self,
        launch: Launch,
        environ: Mapping[str, str],
        observe: Callable[[RunRecord], None],
        *,
        to_terminal: bool = False,
    ) -> None:
        self._launch = launch
        self._environ = environ
        self._observe = observe
        self._to_terminal = to_terminal
        self._directory = NodeDirectory(pathlib.Path(launch.directory))
        self._watch = SupervisionPolicy(launch.rules)
        self._node: NodeProcess | None = None
        self._failures = 0
        self._selector = selectors.DefaultSelector()
        self._record = self._first_record()

    def run(self) -> int:
        """Run until the node has ended for good; return the exit code for this process.

        Call it in the main thread, while the lock of the node's directory is held.
        """
        with self._signals() as signals, self._selector:
            self._selector.register(signals, selectors.EVENT_READ)
            self._directory.clear_state()
            self._obey(self._watch.begin(time.monotonic()))
            while self._watch.phase not in FINAL:
                self._wait(signals)
        return self._watch.exit_code

    def _wait(self, signals: socket.socket) -> None:
        deadline = self._watch.next_timer()
        if self._node is not None:
            self._node.beat()
        timeout_s = BEAT_S if deadline is None else min(BEAT_S, max(deadline - time.monotonic(), 0))
        # A wait that SIGCONT ends after its time looks at nothing: what the node said meanwhile counts.
        found = self._selector.select(timeout_s) or self._selector.select(0)
        ready = {key.fileobj for key, _ in found}
        now = time.monotonic()
        node = self._node
        if signals in ready:
            number = signal.Signals(signals.recv(1)[0])
            self._obey(self._watch.stop(now, f"stopped by {number.name}"))
        if node is not None and node.lease in ready:
            state = node.renewals()
            if state is not None:
                self._obey(self._watch.renewed(now, state))
            elif node.has_closed_lease:  # it cannot renew any more; the lease will expire
                self._selector.unregister(node.lease)
        if node is not None and node.handle in ready:
            self._node_ended(node, now)
        self._obey(self._watch.timer(now, self._stuck))
        self._bound_log()

    def _node_ended(self, node: NodeProcess, now: float) -> None:
        exit_code = node.ended()
        if exit_code is None:
            return
        if not node.has_closed_lease:
            self._selector.unregister(node.lease)
        self._selector.unregister(node.handle)
        node.close()
        self._node = None
        cause = self._said(node, "fault")
        if cause and not self._to_terminal:  # on a terminal, the command that started it shows the reason
            with contextlib.suppress(OSError), self._open_log() as log:  # `status` has the reason as well
                log.write(f"ospltool: {cause}\n".encode("utf-8", "replace"))
        self._obey(self._watch.exited(now, exit_code, cause))

    def _stuck(self) -> str:
        """Return which of its threads a node names that does not renew its lease; empty for none."""
        stuck = self._said(self._node, "stuck") if self._node is not None else ""
        return f"{stuck} did not proceed" if stuck else ""

    def _said(self, node: NodeProcess, what: str) -> str:
        """Return what the last report of this run of the node says of something; empty for nothing."""
        said = self._directory.state()
        is_its_word = node.identity is not None and said.get("pid") == node.identity.pid
        return str(said.get(what) or "")[:MAX_CAUSE] if is_its_word else ""

    def _obey(self, commands: list[SupervisorAction]) -> None:
        for command in commands:
            match command:
                case SupervisorAction.START:
                    self._start()
                case SupervisorAction.TERMINATE if self._node is not None:
                    self._node.terminate()
                case SupervisorAction.KILL if self._node is not None:
                    self._node.kill()
                case _:  # END: the loop sees the phase
                    pass
        self._publish()

    def _start(self) -> None:
        try:
            with self._output() as output:
                node = NodeProcess(self._launch, self._environ, self._directory.path, output)
        except OSError as error:
            now, never = time.monotonic(), is_permanent(error)
            self._obey(self._watch.start_failed(now, str(error), is_permanent=never))
            return
        self._node = node
        self._selector.register(node.lease, selectors.EVENT_READ)
        self._selector.register(node.handle, selectors.EVENT_READ)

    @contextlib.contextmanager
    def _output(self) -> Iterator[IO[bytes] | None]:
        if self._to_terminal:
            yield None
            return
        log = self._directory.node_log
        if not self._watch.restarts and log.exists():
            log.replace(self._former_log)
        with self._open_log() as output:
            yield output

    def _bound_log(self) -> None:
        """Begin a new log when this one is large. The node keeps it open, so it is copied and emptied."""
        log = self._directory.node_log
        # A disk that is full, perhaps by this log: the node goes on, and the next look tries again.
        with contextlib.suppress(OSError):
            if not self._to_terminal and log.stat().st_size > MAX_LOG_BYTES:
                flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
                with log.open("rb") as whole, os.fdopen(open_private(self._former_log, flags), "wb") as copy:
                    shutil.copyfileobj(whole, copy)
                os.truncate(log, 0)

    @property
    def _former_log(self) -> pathlib.Path:
        return self._directory.node_log.with_name("node.log.1")

    def _open_log(self) -> IO[bytes]:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        return os.fdopen(open_private(self._directory.node_log, flags), "ab")

    def _first_record(self) -> RunRecord:
        launch = self._launch
        identity = identify(os.getpid())
        assert identity is not None, "this process runs"
        now_ns = present_ns()
        return RunRecord(
            uri=launch.uri,
            configuration=launch.configuration,
            domain_name=launch.domain_name,
            domain_id=launch.domain_id,
            role=launch.role,
            store=launch.store,
            terminate_period_s=launch.terminate_period_s,
            phase=NodePhase.STARTING,
            reason="",
            restarts=0,
            is_unresponsive=False,
            started_ns=now_ns,
            changed_ns=now_ns,
            supervisor=identity,
            has_run=False,
            working_directory=launch.working_directory,
            fleet=launch.fleet,
            name=launch.name,
            logs=launch.logs,
        )

    def _publish(self) -> None:
        watch = self._watch
        if watch.failures != self._failures:
            self._failures = watch.failures
            self._record = msgspec.structs.replace(self._record, failed_ns=present_ns())
        record = msgspec.structs.replace(
            self._record,
            failure=watch.failure,
            has_run=watch.has_run,
            phase=watch.phase,
            reason=watch.reason,
            restarts=watch.restarts,
            is_unresponsive=watch.is_unresponsive,
            exit_code=watch.exit_code,
            node=self._node.identity if self._node is not None else None,
        )
        if record == self._record and (self._directory.path / "supervisor.json").exists():
            return
        self._record = msgspec.structs.replace(record, changed_ns=present_ns())
        try:
            self._directory.write_record(self._record)
        except OSError as error:
            sys.stderr.write(f"{self._directory.path}: {error}\n")
        self._observe(self._record)

    @staticmethod
    @contextlib.contextmanager
    def _signals() -> Iterator[socket.socket]:
        """Open a socket that gets a byte, the number, for every stop signal."""
        receiving, sending = socket.socketpair()
        receiving.setblocking(False)
        sending.setblocking(False)
        before = {number: signal.signal(number, lambda *_: None) for number in STOP_SIGNALS}
        wakeup_before = signal.set_wakeup_fd(sending.fileno(), warn_on_full_buffer=False)
        try:
            yield receiving
        finally:
            signal.set_wakeup_fd(wakeup_before)
            for number, handler in before.items():
                signal.signal(number, signal.SIG_DFL if handler is None else handler)
            receiving.close()
            sending.close()
