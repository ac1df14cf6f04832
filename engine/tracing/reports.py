"""Records of ospl-info.log and ospl-error.log, in the shape that tools for OpenSplice read.

Records up to WARNING go to the information log, the others to the error log. Places and verbosity follow
from //OpenSplice/Domain/Report, OSPL_LOGPATH, OSPL_INFOFILE, OSPL_ERRORFILE, OSPL_VERBOSITY and
OSPL_LOGAPPEND; the configuration takes precedence over the environment.
"""

from __future__ import annotations

import datetime
import inspect
import os
import pathlib
import re
import socket
import threading
from typing import TYPE_CHECKING, Final

from engine.tracing.escaping import escape
from engine.tracing.levels import Level, ReportType
from engine.tracing.record import fill_in, seconds_text
from engine.tracing.sinks import open_sink

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping

    from engine.tracing.record import EventRecord
    from engine.tracing.sinks import Sink
    from engine.tracing.tracer import Tracer

# As OpenSplice writes it.
RULE: Final = "=" * 88
CONTINUATION: Final = " " * 14
"""The width of the names of fields in OpenSplice's logs, whose tools look for it."""
_SOCKET: Final = re.compile(r"[^/\\]+:\d+")


class ReportTargetError(ValueError):
    """A log cannot be at the place in the environment; the message names the variable."""


class Reporter:
    """Writes the reports of one process.

    Args:
        process: the process name of the Process line.
        version: the product version in the Internals line.
        environ: the environment variables.
        clock: wall clock, nanoseconds since 1970 UTC.
        directory: base of a relative OSPL_LOGPATH, and its default.
        domain_id: the domain id of the Internals line.
        append: Domain/Report's `append`; None when not configured.
        verbosity: Domain/Report's `verbosity`; None when not configured.
        node: the host name of the Node line.

    Raises:
        ReportTargetError: a variable has a value that cannot be used.
    """

    def __init__(
        self,
        process: str,
        version: str,
        environ: Mapping[str, str],
        clock: Callable[[], int],
        *,
        directory: pathlib.Path | None = None,
        domain_id: int = 0,
        append: bool | None = None,
        verbosity: ReportType | None = None,
        node: str | None = None,
    ) -> None:
        self._process = f"{process} <{os.getpid()}>"
        self._version = version
        self._clock = clock
        self._domain_id = domain_id
        self._node = socket.gethostname() if node is None else node
        self._verbosity = verbosity_of(environ) if verbosity is None else verbosity
        self._append = appends(environ) if append is None else append
        start = pathlib.Path() if directory is None else directory
        self._info, self._error = (_LogFile(target, start) for target in targets_of(environ))
        # Any thread reports; a report of several lines must stay in one piece.
        self._lock = threading.Lock()
        self.lost = 0
        """Number of records that could not be written."""

    def report(
        self,
        kind: ReportType,
        description: str,
        *,
        context: str = "DurabilityService",
        code: int = 0,
        thread: str | None = None,
        source: str | None = None,
    ) -> None:
        """Write one record.

        Args:
            kind: the type; records below the verbosity are not written.
            description: the event; it may have several lines; everything else that does not print is escaped.
            context: the part of the product that reports.
            code: a number for programs, 0 for none.
            thread: the name in the Thread line; the calling thread's by default.
            source: `<file>/<line>` for the Internals line; the caller's by default.
        """
        if kind < self._verbosity or kind is ReportType.NONE:
            return
        if source is None:
            source = _caller()
        name = threading.current_thread().name if thread is None else thread
        time_ns = self._clock()
        moment = datetime.datetime.fromtimestamp(time_ns // 1_000_000_000, datetime.UTC).astimezone()
        lines = f"\n{CONTINUATION}".join(escape(line) for line in description.split("\n"))
        internals = (
            f"{self._version}///{escape(context)}/{escape(source)}/{code}/"
            f"{seconds_text(time_ns)}/{self._domain_id}"
        )
        text = (
            f"{RULE}\n"
            f"Report      : {kind.name}\n"
            f"Date        : {moment.strftime('%Y-%m-%dT%H:%M:%S%z')}\n"
            f"Description : {lines}\n"
            f"Node        : {escape(self._node)}\n"
            f"Process     : {escape(self._process)}\n"
            f"Thread      : {escape(f'{name} {threading.get_ident():x}')}\n"
            f"Internals   : {internals}"
        )
        log = self._info if kind <= ReportType.WARNING else self._error
        with self._lock:
            try:
                log.write(text, append=self._append)
            except OSError:  # a full disk must not end what reports
                self.lost += 1

    def attach(self, tracer: Tracer, without: Container[str] = ()) -> None:
        """Write a record for every later traced event that has one, and is not `without` it here."""
        tracer.subscribe(
            self._report_event, lambda event: event.report is not None and event.id not in without
        )

    def close(self) -> None:
        """Close both logs."""
        with self._lock:
            self._info.close()
            self._error.close()

    def _report_event(self, record: EventRecord) -> None:
        event = record.event
        if event.report is None or event.report < self._verbosity or record.is_withheld:
            return
        self.report(
            event.report,
            fill_in(event.report_text, record.fields).strip("\n"),
            thread=event.thread,
            source=f"{event.id}/0",
            code=int(event.level is Level.SEVERE),
        )


class _LogFile:
    """A log that is opened with its first record: a run without errors leaves no error log."""

    def __init__(self, target: str, directory: pathlib.Path) -> None:
        self._target = target
        self._directory = directory
        self._sink: Sink | None = None

    def write(self, text: str, *, append: bool) -> None:
        if self._sink is None:
            self._sink = open_sink(self._target, self._directory)
            if not append and self._target not in ("stdout", "stderr"):
                os.truncate(self._directory / self._target, 0)
        self._sink.write(text)

    def close(self) -> None:
        if self._sink is not None:
            self._sink.close()
            self._sink = None


def _caller() -> str:
    frame = inspect.currentframe()
    for _ in range(2):  # this function, then `report`
        frame = frame.f_back if frame is not None else None
    if frame is None:
        return "unknown/0"
    return f"{pathlib.Path(frame.f_code.co_filename).name}/{frame.f_lineno}"


def targets_of(environ: Mapping[str, str]) -> tuple[str, str]:
    """Return the targets of the information log and of the error log: a path, `stdout` or `stderr` each.

    Raises:
        ReportTargetError: a target is a socket.
    """
    log_path = environ.get("OSPL_LOGPATH", "").strip()
    return (
        _target(environ, "OSPL_INFOFILE", "ospl-info.log", log_path),
        _target(environ, "OSPL_ERRORFILE", "ospl-error.log", log_path),
    )


def _target(environ: Mapping[str, str], variable: str, default: str, log_path: str) -> str:
    name = environ.get(variable, "").strip() or default
    if name in ("<stdout>", "<stderr>"):
        return name.strip("<>")
    if log_path in ("<stdout>", "<stderr>"):
        return log_path.strip("<>")
    if _SOCKET.fullmatch(name):
        raise ReportTargetError(f"{variable}={name}: a log can be a file, <stdout> or <stderr>, not a socket")
    return str(pathlib.Path(log_path) / name)


def verbosity_of(environ: Mapping[str, str]) -> ReportType:
    """Return the value of OSPL_VERBOSITY.

    Raises:
        ReportTargetError: it is not a type of report.
    """
    value = environ.get("OSPL_VERBOSITY", "").strip()
    if not value:
        return ReportType.INFO
    if value.isdecimal() and int(value) <= ReportType.NONE:
        return ReportType(int(value))
    try:
        return ReportType.named(value)
    except ValueError as error:
        raise ReportTargetError(f"OSPL_VERBOSITY={value}: {error}") from None


def appends(environ: Mapping[str, str]) -> bool:
    """Return the value of OSPL_LOGAPPEND.

    Raises:
        ReportTargetError: it is neither true nor false.
    """
    value = environ.get("OSPL_LOGAPPEND", "").strip().lower()
    if value not in ("", "true", "false", "yes", "no", "1", "0"):
        raise ReportTargetError(f"OSPL_LOGAPPEND={value}: neither true nor false")
    return value not in ("false", "no", "0")
