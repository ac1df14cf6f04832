"""What a file or a pasted text is, what went wrong in it first, why, what to do, and what else to look at.

It recognises logs of reports, durability traces, configurations, settings of Cyclone DDS and lines of a
terminal, and asks the rules that exist for each: those of `check` and of `trace anomalies`, the templates of
messages, and the meanings of reports. Where these know no cause, it says so and shows the first line that
reports an error.
"""

from __future__ import annotations

import bisect
import codecs
import collections
import contextlib
import dataclasses
import io
import itertools
import re
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from engine.config import ConfigError
from engine.config.reader import read_bytes
from ospltool.diagnostics.model import Severity, Target
from ospltool.forensics.attachments import AttachmentKind, what_is
from ospltool.forensics.evidence import RawEvidence
from ospltool.forensics.investigation import investigate
from ospltool.output.text import plural, shortened
from ospltool.output.times import SECOND_NS, clock_since, duration, iso
from ospltool.trace.case.reading_back import Window
from ospltool.trace.meaning.catalogue import UNKNOWN_LEVEL, Product, pieces
from ospltool.trace.meaning.line_explanation import explain as explain_line
from ospltool.trace.meaning.names import IDENTIFIED
from ospltool.trace.meaning.reports import (
    NEAR_NS,
    DomainStarts,
    MatchedReport,
    meaning_of,
    missed_heartbeat,
    stood_still_s,
)
from ospltool.trace.meaning.trace_facts import MAIN_THREADS, TraceFacts
from ospltool.trace.reading import damage
from ospltool.trace.reading.headers import LINE_HEADER, first_on_line, headers
from ospltool.trace.reading.record import STRAGGLER_NS, RecordKind, TraceRecord, one_line, valid_text
from ospltool.trace.reading.report_logs import read_reports
from ospltool.trace.reading.sources import (
    REPORT,
    SNIFFED_BYTES,
    NothingFoundError,
    SourceError,
    TraceFile,
    TraceFormat,
    find_sources,
    open_stream,
    sniff,
)
from ospltool.trace.views.overview import normalised
from ospltool.trace.views.selection import REPORT_LEVELS
from ospltool.trace.views.timeline import START_STATES

if TYPE_CHECKING:
    from ospltool.diagnostics.model import Finding, Report

MOST_BYTES: Final = 64 << 20
"""Most bytes of a text that is read as a whole."""

MOST_REPORTS: Final = 100_000
"""Most reports of a log that are looked at."""

_LONGEST: Final = 220
_MOST_OTHERS: Final = 3
_MOST_PLACES: Final = 5
_LONG_NS: Final = 30 * SECOND_NS
"""Time in one state after which a start takes longer than usual."""

_FEW_LINES: Final = 20
"""Lines that are better explained one by one than as a trace without a fault."""

_TOGETHER_NS: Final = 2 * SECOND_NS
"""Time within which a process makes the reports of one event."""

_LEADS_NS: Final = 60 * SECOND_NS
"""Time within which others miss a process: some leases."""

_SERVICES: Final = {Target.OPENSPLICE: "OpenSplice", Target.OSPLTOOL: "an ospltool node"}
_ROOTS: Final = frozenset({"opensplice", "cyclonedds", "dds"})

_VALUE: Final = (
    r"(?P<quote>['\"]?)\s*(?:(?P<file>(?:file:|(?!\w+://))[^\s'\",;<>]*(?:/|\.xml\b)[^\s'\",;<>]*)(?P<list>,\s*(?=<))?"
    r"|(?=<[A-Za-z?!]))"
)
_BARE: Final = re.compile(r"\s*" + _VALUE)
"""Settings of Cyclone DDS, or a configuration, of which a text consists."""

_ASSIGNED: Final = re.compile(
    # In a shell, a unit of systemd, a Dockerfile, a file of compose or Kubernetes, or a launch file of ROS.
    r"(?P<before>['\"]?)\b(?P<product>CYCLONEDDS|OSPL)_URI(?P<after>['\"]?)\]?"
    r"(?:\s*[=:,]\s*|\s+(?=value)|[ \t]+)(?:value\s*[=:]\s*)?(?:[|>][-+]?[ \t]*\n\s*)?" + _VALUE
)
_COMMENTED: Final = re.compile(r"(?:#|//|REM\b|::).*", re.IGNORECASE)
_NAMED: Final = re.compile(r"file:|.*\.xml$")
_ELEMENT: Final = re.compile(r"(?=<(?:OpenSplice|CycloneDDS|persistence_service)[\s/>])")
"""A configuration within other text, such as a template or a ConfigMap."""

_ROOT: Final = re.compile(r"<(?![?!])(?:\w+:)?(\w+)")
_REPORT: Final = re.compile(REPORT.pattern + rb"|^Report[ \t]*: *\w+\s*$", re.MULTILINE)
"""The beginning of a report, maybe copied without the line before it."""

_CODE: Final = re.compile(r"\b(DUR\d{3}|DUL-[A-Z]+(?:-[A-Z]+)*)\b")
_COMPLAINT: Final = re.compile(
    r"(?<![-\w.])(?:errors?(?!\.log)|fail(?:ed|ure|s)?|fatal|severe|critical|exception|cannot|"
    r"could not|unable|denied|refused|abort(?:ed)?)\b",
    re.IGNORECASE,
)
_DATE: Final = re.compile(rb"^Date        : *(.*)$", re.MULTILINE)
_VERSION: Final = re.compile(r"(?:^|[/: ])V?(\d\.\d{1,2}\.\w[\w.]*)/")


class UnknownFileError(Exception):
    """The text is of no known kind; the message says what was looked for."""


@dataclasses.dataclass(frozen=True, slots=True)
class CauseReport:
    """The answer to a file or text.

    Attributes:
        what: what it is.
        first: what went wrong first, with its place; or that nothing did.
        why: the cause, or that it is unknown.
        remedy: what to do; empty if there is nothing to do.
        others: what else is wrong.
        further: what else to look at.
        is_bad: whether anything is wrong.
    """

    what: str
    first: str
    why: str = ""
    remedy: str = ""
    others: tuple[str, ...] = ()
    further: tuple[str, ...] = ()
    is_bad: bool = True


def explain_file(path: Path, environ: Mapping[str, str], *, is_named: bool = False) -> CauseReport:
    """Explain a file.

    Args:
        path: the file.
        environ: for variables in configurations.
        is_named: another text names it, so it is not to name one itself, maybe the same.

    Raises:
        SourceError: it cannot be read.
        UnknownFileError: it is of no known kind.
    """
    what = what_is(path)
    shown = _shown(str(path))
    if what is AttachmentKind.STORE:
        further = (f"ospltool store info {shown}", f"ospltool store verify {shown}")
        return CauseReport(f"{shown} is a persistent store", "not looked for", further=further, is_bad=False)
    if what is AttachmentKind.RECORDING:
        further = (f"ospltool health {shown}", f"ospltool top --replay {shown}")
        return CauseReport(f"{shown} is a recording", "not looked for", further=further, is_bad=False)
    if path.suffix == ".toml":
        return _explain_fleet(path, environ)
    if path.is_dir():
        raise UnknownFileError(f"{shown} is a directory: name a file{_commands_for(path, shown)}")
    return _explain(path, str(path), environ, is_named=is_named)


def explain_text(data: bytes, environ: Mapping[str, str], name: str = "the text") -> CauseReport:
    """Explain a text, or a compressed one.

    Args:
        data: its bytes.
        environ: for variables in configurations.
        name: what to call it.

    Raises:
        SourceError: a file that it names cannot be read.
        UnknownFileError: it is of no known kind.
    """
    with tempfile.TemporaryDirectory(prefix="ospltool-explain-") as scratch:
        path = Path(scratch) / "pasted.log"
        path.write_bytes(data)
        return _explain(path, name, environ)


def _explain(path: Path, name: str, environ: Mapping[str, str], *, is_named: bool = False) -> CauseReport:
    """Explain a file of text; `name` is what to call it."""
    content = _Content(path, is_named=is_named)
    found = _explain_content(path, name, content, environ)
    if content.damage is None:
        return found
    cut = f"it cannot be read beyond byte {content.damage.offset:,}: {content.damage.reason}"
    return dataclasses.replace(found, others=(*found.others, cut))


def _explain_content(path: Path, name: str, content: _Content, environ: Mapping[str, str]) -> CauseReport:
    shown, data, text = _shown(name), content.data, content.text
    if not text.strip("\0 \t\r\n"):
        is_zero = "; it has zero bytes only, as after a loss of power" if "\0" in text else ""
        reason = "empty" if content.damage is None else f"damaged: {content.damage.reason}"
        raise UnknownFileError(f"{shown} is {reason}{is_zero}")
    bare = _BARE.match(text)
    if bare is not None and (
        bare["file"] is None or bare["list"] or (len(text.split()) == 1 and _NAMED.match(bare["file"]))
    ):
        return _explain_settings(bare, content, name, environ)
    source = sniff(path)
    log = _REPORT.search(data)
    is_trace = source.format is TraceFormat.TRACE and first_on_line(data[:SNIFFED_BYTES]) >= 0
    if source.format is TraceFormat.EVENTS or is_trace:
        found = _explain_trace(path, name, content)
        if found.is_bad or data.count(b"\n") > _FEW_LINES:
            return found
    elif log is not None:
        logged = TraceFile(path, "", TraceFormat.REPORTS)
        reports = read_reports(io.BytesIO(data[log.start() :]), logged, log.start())
        logs = [one for one in itertools.islice(reports, MOST_REPORTS) if one.kind is RecordKind.REPORT]
        if logs:
            return _explain_reports(name, logs, content)
    if "\0" in text[:1000]:
        raise UnknownFileError(f"{shown} is no text")
    known = _known_lines(text)
    if not any(one.is_bad for one in known):  # a line that tells of a fault is worth more than settings
        assigned = list(_ASSIGNED.finditer(text))
        begins = [text.rfind("\n", 0, one.start()) + 1 for one in assigned]
        kept = [one for one, at in zip(assigned, begins, strict=True) if not _COMMENTED.match(text, at)]
        files = [one for one in kept or assigned if one["file"] and not one["list"]]
        inline = [one for one in kept or assigned if one not in files]
        settings = [
            *(inline or itertools.islice(_ELEMENT.finditer(text), 1)),
            *files,
        ]  # XML says more than a name
        if settings and _is_template(text, name):
            return _explain_xml(text, environ, name, is_text=False)
        answers = [_explain_settings(one, content, name, environ) for one in settings[:_MOST_PLACES]]
        if answers:
            return next((one for one in answers if one.is_bad), answers[0])
    return _explain_lines(text, shown, known)


def _commands_for(directory: Path, shown: str) -> str:
    """Return advice on the commands that find something to read in a directory."""
    from ospltool.check.inputs import found_in

    commands = [f"`ospltool check {shown}`"] if any(True for _ in found_in(str(directory))) else []
    with contextlib.suppress(NothingFoundError):
        if find_sources([str(directory)]).sources:
            commands.append(f"`ospltool trace anomalies {shown}`")
    return f", or run {' or '.join(commands)}" if commands else "; it has no configuration, log or trace"


def as_text(one: CauseReport, width: int) -> Iterator[str]:
    """Yield an answer as lines of at most that width."""
    import textwrap

    rows = [("What", one.what), ("First", one.first), ("Why", one.why), ("Do", one.remedy)]
    rows += [("Also" if number == 0 else "", each) for number, each in enumerate(one.others)]
    rows += [("Look at" if number == 0 else "", each) for number, each in enumerate(one.further)]
    for title, body in rows:
        if body:
            head = f"{title}:" if title else ""
            yield from textwrap.wrap(
                one_line(body), width, initial_indent=f"{head:<9}", subsequent_indent=" " * 9,
                break_long_words=False, break_on_hyphens=False,
            )  # fmt: skip


def _shown(name: str) -> str:
    return one_line(valid_text(name))


# ------------------------------------------------------------------ places


class _Content:
    """What a file contains, and the numbers of its lines; other than in XML, a lone CR ends none.

    Args:
        path: the file.
        is_named: another text names it.

    Raises:
        SourceError: it cannot be read.
    """

    def __init__(self, path: Path, *, is_named: bool) -> None:
        self.is_named = is_named
        try:
            with open_stream(path) as stream:
                self.data = stream.read(MOST_BYTES)
                self._programs = stream.programs
        except OSError as cause:
            raise SourceError(f"{path}: {cause.strerror or cause}") from None
        self.text = self.data.decode("utf-8-sig", "replace")
        self.damage = damage.found_in(path)
        """Why the rest cannot be read; None if all of it can."""

        self._starts = [found.end() for found in re.finditer(rb"\n", self.data)]

    def number(self, offset: int) -> int:
        """Return the number of the line with a byte, from 1."""
        return bisect.bisect_right(self._starts, offset) + 1

    def foreign_to(self, own: str) -> Iterator[str]:
        """Yield what it contains beside what it is explained as, each with its first line."""
        for name, beginning in _PARTS.items():
            found = beginning.search(self.data)
            if found is not None and name != own:
                at = self.number(found.start())
                yield f"line {at}: {name} begins here, which was not looked at: explain it by itself"
        if len(self._programs) > 1:
            some = one_line(b", ".join(sorted(self._programs)[:3]).decode("utf-8", "replace"))
            programs = plural(len(self._programs), "program")
            yield f"lines of {programs} are mixed here ({some}): explain those of each by themselves"
        zeros = _ZEROS.search(self.data)
        if zeros is not None:
            line, count = self.number(zeros.start()), zeros.end() - zeros.start()
            yield f"line {line}: {count:,} zero bytes, as after a loss of power: text is missing here"


_TRACE: Final = "a durability trace"
_REPORTS: Final = "a log of reports"
_PARTS: Final = {
    _TRACE: LINE_HEADER,
    _REPORTS: REPORT,
    "output of Cyclone DDS": re.compile(rb"^\d{9,}\.\d+ \[\d*\] +[^\s:]+: ", re.MULTILINE),
    "XML": re.compile(rb"^[ \t]*<(?:\?xml|OpenSplice|CycloneDDS|Domain)\b", re.MULTILINE),
}
"""How parts of each kind begin."""

_ZEROS: Final = re.compile(rb"\0{8,}")


def _line_of(record: TraceRecord, lines: _Content, text: str = "") -> int:
    """Return the number of the line of a record that contains a text, or of its first line with one."""
    at = record.raw.find(text.encode("utf-8", "surrogateescape")) if text else -1
    if at < 0:
        at = max(0, record.raw.find(b"\n") + 1 if record.raw.startswith(b"====") else 0)
    return lines.number(record.offset + at)


# ------------------------------------------------------------------ logs of reports


def _explain_reports(name: str, reports: Sequence[TraceRecord], lines: _Content) -> CauseReport:
    shown = _shown(name)
    what = f"{shown} is a log of {_release(reports)}: {_span_of(reports)}"
    problems = [each for one in reports if _is_problem(one) for each in _lines_with_problems(one)]
    further = ["ospl-info.log and ospl-error.log of the same directory, and those of the other nodes"]
    if not problems:
        first_line = f"nothing: it reports no error and no warning{_starts_of(reports)}"
        cut = sum(one.level == UNKNOWN_LEVEL for one in reports)
        if cut:
            first_line += f"; {plural(cut, 'report')} {'has' if cut == 1 else 'have'} no level"
        others = tuple(lines.foreign_to(_REPORTS))
        return CauseReport(what, first_line, others=others, further=tuple(further), is_bad=False)
    first = _first_of(problems)
    if Path(name).exists():
        further.append(f"ospltool trace {shown} --level {'INFO' if _is_note(first.record) else 'WARNING'}")
    event = [one for one in problems if _is_one_event(first, one)]
    faults = event if first.is_harmless else [one for one in event if not one.is_harmless]
    known = [(one, one.found) for one in faults if one.found is not None]
    cause = min(known, key=lambda each: each[1].meaning.number, default=None)
    text = f"{_when(first.record)}{first.place(lines)}, {_level(first.record)}: "
    text += shortened(first.line, _LONGEST)
    who = ", ".join(filter(None, (_process(first.record), first.record.fields.get("host", ""))))
    text += f" ({who})" if who else ""
    again = [one for one in problems if one.kind == first.kind]
    if len(again) > 1:
        text += f"; {len(again)} times in all{_spread_of(again)}"
    others = _other_reports(problems, first, first if cause is None else cause[0], lines, _services(reports))
    starts = _starts_of(reports).removeprefix("; ")
    others = (*others, starts) if starts else others
    others = (*others, *lines.foreign_to(_REPORTS))
    if len(reports) == MOST_REPORTS:
        others = (*others, f"only the first {MOST_REPORTS:,} reports were read")
    why, remedy = "unknown: no rule knows this report.", ""
    if cause is not None:
        one, found = cause
        why, remedy = found.why, found.remedy
        if one is not first:
            why += f" ({one.place(lines)}: {shortened(one.line, _LONGEST)})"
    return CauseReport(what, text, why, remedy, others, tuple(further))


@dataclasses.dataclass(frozen=True, slots=True)
class _Problem:
    """A line of a report that says what went wrong."""

    record: TraceRecord
    line: str
    found: MatchedReport | None
    """What it means; None if that is unknown."""

    @property
    def kind(self) -> str:
        """What is equal for lines of the same text, whatever their numbers."""
        return normalised(self.line)

    @property
    def is_harmless(self) -> bool:
        """Whether it is known to be no fault."""
        return self.found is not None and self.found.meaning.is_harmless

    @property
    def event(self) -> str:
        """What it tells of together with other reports; may be empty."""
        return "" if self.found is None else self.found.meaning.event

    def place(self, lines: _Content) -> str:
        """Return where it is, for users."""
        return f"line {_line_of(self.record, lines, self.line)}"


def _first_of(problems: Sequence[_Problem]) -> _Problem:
    """Return the first problem that is a fault, or the note before it that tells of its cause.

    A process that crashes reports that as a note, and others warn of what follows when its lease is over.
    """
    serious = [one for one in problems if not one.is_harmless] or problems
    worst = next(
        (
            one
            for level in ("SEVERE", "WARNING")
            for one in serious
            if REPORT_LEVELS.get(one.record.level) == level
        ),
        serious[0],
    )
    end_ns = worst.record.time_ns

    def leads(one: _Problem) -> bool:
        start_ns = one.record.time_ns
        if one.found is None:
            return False
        # Only an error is worse than a lost fellow, of which some releases tell in a note.
        if REPORT_LEVELS.get(worst.record.level) == "WARNING" and missed_heartbeat(worst.line) is None:
            return True
        return start_ns is not None and end_ns is not None and 0 <= end_ns - start_ns <= _LEADS_NS

    return next(one for one in serious if one is worst or leads(one))


def _is_note(record: TraceRecord) -> bool:
    return REPORT_LEVELS.get(record.level) == "INFO"


def _lines_with_problems(record: TraceRecord) -> Iterator[_Problem]:
    """Yield the line of a report that says what happened, and further causes that a stack names."""
    found = meaning_of(record.text)
    lines = [line for line in record.text.split("\n") if line.strip()]
    is_stack = record.raw.find(b"\n-----") >= 0
    title = (lines[-1] if is_stack else lines[0]) if lines else ""  # of a stack, the deepest
    if found is not None:
        title = found.line
    yield _Problem(record, title, found)
    for line in lines if is_stack else ():
        other = meaning_of(line)
        if line != title and other is not None and not other.meaning.follows:
            yield _Problem(record, line, other)


def _is_problem(record: TraceRecord) -> bool:
    """Return whether a report tells of a fault: some do at a low level, as releases differ."""
    found = meaning_of(record.text) if _is_note(record) else None
    is_telling = found is not None and not found.meaning.is_harmless
    return is_telling or REPORT_LEVELS.get(record.level) in {"SEVERE", "WARNING"}


def _is_one_event(first: _Problem, other: _Problem) -> bool:
    one, two = first.record, other.record
    if one is two:
        return True
    if one.time_ns is None or two.time_ns is None:
        return False
    apart_ns = abs(two.time_ns - one.time_ns)
    if apart_ns <= _TOGETHER_NS and _process(one) == _process(two):
        return True
    # A process that stood still reports that when it runs again, and others what they made of it before.
    is_host = one.fields.get("host") == two.fields.get("host")
    return (
        apart_ns <= NEAR_NS
        and is_host
        and (first.event == other.event != "" or _missed_by_itself(first, other))
    )


def _missed_by_itself(one: _Problem, other: _Problem) -> bool:
    """Return whether a process missed the heartbeats of others around the time in which it did not run."""
    texts = (one.line, other.line), (other.line, one.line)
    return any(missed_heartbeat(a) is not None and stood_still_s(b) is not None for a, b in texts)


def _other_reports(
    problems: Sequence[_Problem],
    first: _Problem,
    cause: _Problem,
    lines: _Content,
    services: Mapping[str, str],
) -> tuple[str, ...]:
    """Describe the reports of other texts than the first and its cause, in the order of their first lines."""
    told = {first.kind, cause.kind}
    kinds: dict[str, list[_Problem]] = {}
    for one in problems:
        if one.kind not in told:
            kinds.setdefault(one.kind, []).append(one)
    # What the answer says already is not said again beside another line.
    meanings = {one.found.meaning for one in (first, cause) if one.found is not None}
    shown = []
    frequent = max(kinds.values(), key=len, default=[])
    listed = list(itertools.islice(kinds.values(), _MOST_OTHERS))
    if len(frequent) > max(map(len, listed), default=0):
        listed[-1] = frequent  # the most frequent one tells more than the third
    for same in listed:
        one, found = same[0], same[0].found
        times = f", {len(same)} times{_spread_of(same)}" if len(same) > 1 else ""
        text = f"{one.place(lines)}{times}, {_level(one.record)}: {shortened(one.line, _LONGEST)}"
        if found is not None and found.meaning not in meanings:
            meanings.add(found.meaning)
            text += ": The same cause." if _missed_by_itself(cause, one) else f": {found.why}"
        missed = services.get(missed_heartbeat(one.line) or "", "")
        shown.append(text + (f" (it is {missed})" if missed else ""))
    hidden = [same[0] for same in kinds.values() if same not in listed]
    if hidden:
        numbers = [str(_line_of(one.record, lines, one.line)) for one in hidden]
        places = ", ".join(numbers[:_MOST_PLACES]) + (", …" if len(numbers) > _MOST_PLACES else "")
        at = "at line" if len(hidden) == 1 else "at lines"
        shown.append(f"{plural(len(hidden), 'more kind')} of reports, {at} {places}")
    return tuple(shown)


def _services(reports: Sequence[TraceRecord]) -> dict[str, str]:
    """Return the processes of the durability services of a log, by the ids that missed heartbeats name."""
    ids = ((one, IDENTIFIED.search(one.text)) for one in reports)
    return {found[1]: _process(one) for one, found in ids if found is not None}


def _starts_of(reports: Sequence[TraceRecord]) -> str:
    """Return how often the domain service started in a log, and how each of these runs ended."""
    starts = DomainStarts()
    for one in reports:
        starts.add(f"{one.fields.get('host', '')} {_process(one)}", one.text)
    endings = [ending or "without an end in the log" for ending in starts.endings]
    counts = collections.Counter(endings)
    ends = [ending if count == len(endings) else f"{count} {ending}" for ending, count in counts.items()]
    if len(endings) > 1 and len(ends) == 1:
        ends = [f"each {ends[0]}"]
    return f"; {plural(len(endings), 'start')} of the domain service, {', '.join(ends)}" if endings else ""


def _spread_of(same: Sequence[_Problem]) -> str:
    """Return when reports of one kind were made, and by how many processes if by several."""
    makers = {(one.record.fields.get("host", ""), _process(one.record)) for one in same}
    by = f", by {len(makers)} processes" if len(makers) > 1 else ""
    times = [one.record.time_ns for one in same if one.record.time_ns is not None]
    if not times:
        return by
    if times[0] == min(times):
        return f"{by}, the last at {iso(max(times), 0)}"
    return f"{by}, from {iso(min(times), 0)} to {iso(max(times), 0)}"  # logs of several machines in one


def _when(record: TraceRecord) -> str:
    if record.time_ns is not None:
        return f"{iso(record.time_ns, 3)}, "
    found = _DATE.search(record.raw)  # the oldest releases report no other
    return f"{found[1].decode('utf-8', 'replace').strip()}, " if found else ""


def _level(record: TraceRecord) -> str:
    return record.level if record.level in REPORT_LEVELS else "report"


def _process(record: TraceRecord) -> str:
    process, pid = record.fields.get("process", ""), record.fields.get("pid", "")
    return f"{process} <{pid}>" if pid else process


def _release(reports: Sequence[TraceRecord]) -> str:
    """Return the product, with the releases that the reports name."""
    found: dict[str, None] = {}
    for one in reports:
        internals = one.raw if b"Context" in one.raw else one.raw.rpartition(b"Internals   :")[2]
        release = _VERSION.search(internals.decode("utf-8", "replace"))
        if release is not None:
            found.setdefault(release[1])
        if len(found) > 2:
            return "OpenSplice of several releases"
    product = "ospltool" if any(one.startswith("0.") for one in found) else "OpenSplice"
    return " ".join(filter(None, (product, " and ".join(found))))


def _span_of(records: Sequence[TraceRecord]) -> str:
    times = [one.time_ns for one in records if one.time_ns is not None]
    span = plural(len(records), "report")
    domains = sorted({one.fields["domain"] for one in records if "domain" in one.fields})
    # Reports of no domain have a number below 0.
    domains = [one for one in domains if not one.startswith("-")]
    if len(domains) > 1:
        span += f" of domains {', '.join(domains[:-1])} and {domains[-1]}"
    if not times:
        return span
    start, end = min(times), max(times)
    return f"{span} from {iso(start, 0)}" + (f" to {clock_since(start, end, 0)}" if end > start else "")


# ------------------------------------------------------------------ traces


def _explain_trace(path: Path, name: str, lines: _Content) -> CauseReport:
    """Explain a trace; `name` is what to call it."""
    shown = _shown(name)
    evidence = RawEvidence([str(path)], sys.stderr)
    source, found = evidence.sources[0], investigate(evidence, Window(), {}, with_stores=False)
    facts = found.facts
    is_own = source.origin is Product.ENGINE or source.format is TraceFormat.EVENTS
    what = f"{shown} is a durability trace of {'ospltool' if is_own else 'OpenSplice'}"
    further = [
        f"ospltool trace anomalies {shown} (with the traces of all nodes, it knows more causes)",
        f"ospltool trace timeline {shown}",
    ]
    if not facts.first_ns:
        what += " without timestamps"
        further = [f"ospltool trace {shown} --level WARNING"]
    else:
        start, end = min(facts.first_ns.values()), max(facts.last_ns.values())
        what += f": {plural(len(facts.first_ns), 'run')} from {iso(start, 0)} to {clock_since(start, end, 0)}"
    if name != str(path):
        further = ["the whole traces of all nodes, with `ospltool trace anomalies`"]
    others = [found.verdict.headline] if any(not one.is_harmless for one in found.verdict.conclusions) else []
    stuck = _never_operational(facts)
    first, why = f"nothing: no rule of `trace anomalies` finds anything in it{_state_of(facts)}", ""
    if found.findings:
        one = found.findings[0]
        where = "".join(f", line {lines.number(place.offset)}" for place in one.evidence[:1])
        when = "" if one.start_ns is None else iso(one.start_ns, 3)
        first, why = f"{when}{where}: {one.title} ({one.rule})".removeprefix(", "), one.explanation
        titles = list(dict.fromkeys(each.title for each in found.findings[1:]))
        others += [] if stuck is None else [stuck[0]]
        others += titles[:_MOST_OTHERS]
        if len(titles) > _MOST_OTHERS:
            others.append(plural(len(titles) - _MOST_OTHERS, "more finding"))
    elif stuck is not None:
        first, why = stuck
    is_bad = bool(found.findings or others) or stuck is not None
    others += [*lines.foreign_to(_TRACE), *_overlaps(facts)]
    return CauseReport(what, first, why, "", tuple(others), tuple(further), is_bad)


def _overlaps(facts: TraceFacts) -> Iterator[str]:
    """Yield that runs of one file overlap, as those of one node cannot."""
    for before, after in itertools.pairwise(sorted(facts.first_ns)):
        if facts.first_ns[after] < facts.last_ns[before] - STRAGGLER_NS:
            yield (
                f"run {after[1]} begins at {iso(facts.first_ns[after], 3)}, before run {before[1]} ends: "
                "these are the traces of several nodes, which need a file each, or the clock was set back"
            )
            return


def _state_of(facts: TraceFacts) -> str:
    """Describe the last state."""
    last = max(facts.states, key=lambda span: span.start_ns, default=None)
    if last is None:
        return ""
    is_early = last.state in START_STATES
    return f"; it ends in state {last.state}{', before the service was operational' if is_early else ''}"


def _never_operational(facts: TraceFacts) -> tuple[str, str] | None:
    """Describe the last run if it did not become operational for long; None if it did, stopped or was cut."""
    run = max(facts.first_ns, key=lambda one: facts.first_ns[one], default=None)
    if run is None or run in facts.stopping:
        return None
    own = [span for span in facts.states if span.run == run]
    if not own or any(span.state not in START_STATES for span in own):
        return None
    last = own[-1]
    threads = ((each, thread, one.last) for (each, thread), one in facts.activity.items())
    written = [where for each, thread, where in threads if each == run and thread in MAIN_THREADS]
    where = max(written, key=lambda one: one.at_ns, default=None)
    lasted_ns = facts.last_ns[run] - last.start_ns
    if lasted_ns < _LONG_NS:
        return None  # the trace may just be a part of another, or end early
    first = (
        f"it did not become operational: it is in state {last.state} since {iso(last.start_ns, 3)}, for "
        f"{duration(lasted_ns)}"
    )
    why = "unknown."
    if where is not None:
        meaning = next(filter(None, (one.template.meaning for one in explain_line(where.text))), "")
        why += f" Its main thread last wrote: {shortened(where.text, _LONGEST)}"
        why += f" ({meaning})" if meaning else ""
    return first, why


# ------------------------------------------------------------------ configurations


def _explain_settings(
    found: re.Match[str], content: _Content, name: str, environ: Mapping[str, str]
) -> CauseReport:
    """Explain settings that one of the expressions for them found in a text, or the file that it names."""
    text, parts, shown = content.text, found.groupdict(""), _shown(name)
    is_bare = found.re is _BARE
    if parts.get("file") and not parts["list"]:
        file = parts["file"].removeprefix("file://")
        named = Path(re.sub(r"\$\{?(\w+)\}?", lambda each: environ.get(each[1], each[0]), file)).expanduser()
        if named.exists() and not content.is_named:
            return explain_file(named, environ, is_named=True)
        if named.exists():
            raise UnknownFileError(f"{shown} names another file: explain {_shown(str(named))}")
        line = text.count("\n", 0, found.start("file")) + 1
        is_ours = parts.get("product") != "OSPL"
        what = "Cyclone DDS creates no participant" if is_ours else "OpenSplice does not start"
        return CauseReport(
            f"{shown} names a file with settings",
            f"line {line}: there is no file {_shown(str(named))} on this machine",
            f"{what} if it cannot read this file.",
            "On the machine that has it, run `ospltool explain` on the file itself.",
        )
    start, end = found.start("file") if parts.get("list") else found.end(), len(text)
    quote = parts.get("quote") or ("" if parts.get("after") else parts.get("before", ""))
    line_end = text.find("\n", start)
    root = _ROOT.search(text, start)
    close = -1 if root is None else text.find(f"</{root[1]}>", start)
    if quote and (last := re.compile(rf">\s*{quote}").search(text, start)) is not None:
        end = last.start() + 1
    elif found.re is _ASSIGNED and text[start:line_end].rstrip().endswith(">") and close < line_end:
        end = line_end
    elif not is_bare and close >= 0:
        end = text.find(">", close) + 1
    before = text.count("\n", 0, start) if not is_bare else 0
    whole = "\n" * before + text[start:end].rstrip()
    answer = _explain_xml(whole, environ, name, is_text=not is_bare or bool(parts.get("list")))
    return dataclasses.replace(answer, others=(*answer.others, *content.foreign_to("XML")))


def _explain_xml(text: str, environ: Mapping[str, str], name: str, *, is_text: bool) -> CauseReport:
    """Explain XML; `is_text`: it is the value of CYCLONEDDS_URI itself."""
    from ospltool.check import cyclone
    from ospltool.check.commands import choice
    from ospltool.check.inputs import DeploymentInput, NodeInput
    from ospltool.check.runner import examine, run

    shown = _shown(name)
    root = _ROOT.search(text)
    tag = root[1] if root else ""
    # Cyclone DDS takes a part of its settings as a text only, so a file with one is a text that was saved.
    is_file = not is_text and not cyclone.is_part(tag) and _is_whole(text.encode(), name)
    examined = examine(DeploymentInput((NodeInput(name, environ, text=None if is_file else text.encode()),)))
    # A file of OpenSplice may be for OpenSplice alone: what an ospltool node ignores of it is no fault there.
    wanted = [Target.OPENSPLICE] if examined.fleet.nodes else []
    report = run([examined], choice([], [], [], wanted, "info"))
    views = examined.unreadable
    if _is_template(text, name):
        what = f"{shown} is a template"
    elif examined.fleet.nodes:
        what = f"{shown} is a configuration of OpenSplice"
    elif any(one.cyclone is not None for one in views):
        what = f"{shown} has settings of Cyclone DDS"
    elif any(one.profiles is not None for one in views):
        what = f"{shown} has QoS profiles"
    elif any(one.is_known for one in views):
        what = f"{shown} is a configuration of persistence services"
    elif tag.lower() in _ROOTS or cyclone.is_part(tag):
        what = f"{shown} is a configuration that cannot be read"
    else:
        root_name = f"the root <{one_line(tag)}>" if tag else "no root"
        raise UnknownFileError(f"{shown} is XML with {root_name}: no configuration that ospltool knows")
    place = name if Path(name).exists() else "FILE"
    found = _explain_findings(what, report, place, _STOPS_HERE)
    if not wanted:
        return found
    also = f"ospltool check {_shown(place)} --target ospltool, if an ospltool node is to run with it"
    return dataclasses.replace(found, further=(*found.further, also))


def _is_template(text: str, name: str) -> bool:
    from ospltool.check.runner import template_in

    return template_in(text.encode(), name) is not None


def _is_whole(data: bytes, name: str) -> bool:
    """Return whether data is all of a file."""
    with contextlib.suppress(ConfigError):
        return read_bytes(name).removeprefix(codecs.BOM_UTF8).strip() == data.strip()
    return False


def _explain_fleet(path: Path, environ: Mapping[str, str]) -> CauseReport:
    from ospltool.check.commands import check, choice, deployments

    everything = choice([], [], [], [], "info")
    report = check(deployments([str(path)], [], [], environ, together=False), everything)
    # The nodes of a fleet run on other machines.
    return _explain_findings(f"{_shown(str(path))} is a fleet file", report, str(path), ())


def _explain_findings(what: str, report: Report, place: str, stopping: Collection[str]) -> CauseReport:
    """Explain what the check found.

    Args:
        what: what was checked.
        report: what was found.
        place: what the check can be run on.
        stopping: codes of warnings that stop a start.
    """
    further = [f"ospltool check {_shown(place)}"]
    # What stops a start comes before what does not, however it is rated, and what is only old after both.
    found = sorted(
        report.diagnostics,
        key=lambda each: (
            each.severity > Severity.ERROR,
            each.code not in stopping,
            each.severity,
            each.code in _OLD,
            not each.blocks,
            each.place.order,
        ),
    )
    if not found:
        return CauseReport(what, "nothing: the check finds nothing", further=tuple(further), is_bad=False)
    first = found[0]
    remedy = first.advice or (first.fix.title if first.fix is not None else _STOPS_HERE.get(first.code, ""))
    further.append(f"ospltool explain {first.code}")
    names = {each.place.path for each in found}
    remark = _remark_on(found, stopping)
    others = [f"{_found_at(each, names)}: {each.message}" for each in found[1 : 1 + _MOST_OTHERS]]
    if len(found) > 1 + _MOST_OTHERS:
        others.append(plural(len(found) - 1 - _MOST_OTHERS, "more finding"))
    return CauseReport(
        what,
        f"{remark}{_found_at(first, names)}: {first.message}",
        _why_found(first),
        remedy if re.match(r"\w+=", remedy) else f"{remedy[:1].upper()}{remedy[1:]}",  # `enabled="true"`
        tuple(others),
        tuple(further),
        is_bad=first.severity < Severity.INFO,
    )


_OLD: Final = frozenset({"DUR120", "DUR220", "DUR755"})
"""Findings of settings that are deprecated, and work all the same."""

_STOPS_HERE: Final = {
    "DUR759": "Name an interface that `ip -br addr` shows as UP, or let it be determined automatically.",
    "DUR762": "Lower `min` of the buffer, or raise the limit of the kernel (`sysctl net.core.rmem_max`).",
    "DUR763": "Make the directory, or name one that is there.",
    "DUR768": "Install the library, or remove what asks for it.",
}
"""Findings with which Cyclone DDS does not start on this machine, and what to do. They are warnings for
`check`, as a file may be for another machine."""


def _remark_on(found: Sequence[Finding], stopping: Collection[str]) -> str:
    """Return that nothing stops a start, and how much there is to improve; empty if something does."""
    if found[0].severity is Severity.ERROR or found[0].code in stopping:
        return ""
    warnings = sum(each.severity is Severity.WARNING for each in found)
    if not warnings:
        return "no error and no warning; "
    hints = len(found) - warnings
    also = f" and {plural(hints, 'hint')}" if hints else ""
    return f"no error, but {plural(warnings, 'warning')}{also}; "


def _found_at(one: Finding, names: Collection[str]) -> str:
    """Return the place of a finding; `names` are the files that have any."""
    file = f"{one.place.path}, " if len(names) > 1 else ""
    return f"{file}line {one.place.line}, {one.severity.label} {one.code}"


def _why_found(one: Finding) -> str:
    """Return why a rule finds something, and who does not start because of it."""
    from ospltool.check.rule_book import all_rules

    rule = all_rules()[one.code]
    why = " ".join((rule.sections().get("Why") or rule.summary).split())
    if one.code in _STOPS_HERE and one.code != "DUR768":  # what its page says is not conditional
        traces = " if it traces to that file" if one.code == "DUR763" else ""
        return f"{why} Cyclone DDS does not start with it on this machine{traces}."
    names = [_SERVICES[target] for target in sorted(one.blocks)]
    refuse = "refuses" if len(names) == 1 else "refuse"
    blocked = f"{' and '.join(names)} {refuse} to start with it."
    return f"{why} {blocked[:1].upper()}{blocked[1:]}" if names else why


# ------------------------------------------------------------------ lines of a terminal


@dataclasses.dataclass(frozen=True, slots=True)
class _KnownLine:
    """A line of which something is known."""

    number: int
    text: str
    why: str
    remedy: str
    is_bad: bool
    """Whether it tells of a fault."""
    follows: bool = False
    """Whether another line says the cause."""


def _known_lines(text: str) -> list[_KnownLine]:
    lines = enumerate(text.splitlines(), 1)
    return [found for number, line in lines if (found := _known_line(number, line)) is not None]


def _explain_lines(text: str, shown: str, known: Sequence[_KnownLine]) -> CauseReport:
    lines = text.splitlines()
    bad = [one for one in known if one.is_bad]
    numbers = {one.number for one in known}
    unknown = (one for one in enumerate(lines, 1) if one[0] not in numbers)
    complaint = next((number for number, line in unknown if _COMPLAINT.search(line[:_LONGEST_LINE])), None)
    what = f"{shown} has {plural(len(lines), 'line')} of text"
    if known:
        what += f", {len(known)} of which ospltool knows"
    if bad:
        cause = first = bad[0]
        if first.follows:  # what it follows from is near
            near = [one for one in bad if abs(one.number - first.number) <= _NEAR_LINES]
            cause = min(near, key=lambda one: (one.follows, one.number))
        why = cause.why if cause is first else f"{cause.why} (line {cause.number}: {cause.text})"
        if cause.follows:
            why += " No line here does."
        again = sum(one.why == first.why for one in bad)
        times = f"; {again} times in all" if again > 1 else ""
        distinct = {one.why: one for one in reversed(bad) if one.why not in {first.why, cause.why}}
        others = [f"line {one.number}: {one.text}: {why}" for why, one in reversed(distinct.items())]
        first_line = f"line {first.number}: {first.text}{times}"
        return CauseReport(what, first_line, why, cause.remedy, tuple(others[:_MOST_OTHERS]), _WHOLE_FILES)
    if complaint is not None:
        first_line = f"line {complaint} is the first that reads like an error: "
        first_line += shortened(lines[complaint - 1], _LONGEST)
        return CauseReport(what, first_line, "unknown: no rule knows this line.", "", (), _WHOLE_FILES)
    if known:
        first = known[0]
        return CauseReport(
            what, f"nothing: no line reports an error. Line {first.number}: {first.text}", first.why, "", (),
            _WHOLE_FILES, is_bad=False,
        )  # fmt: skip
    raise UnknownFileError(
        f"{shown}: no line of it is known: no report, record of a trace, finding or message of OpenSplice, "
        "Cyclone DDS or ospltool"
    )


_NEAR_LINES: Final = 20
_LONGEST_LINE: Final = 4_096  # characters: the search for what is known takes time by their square

_WHOLE_FILES: Final = (
    "the whole files behind these lines: ospl-info.log, ospl-error.log, durability trace, configuration",
)


def _known_line(number: int, line: str) -> _KnownLine | None:
    shown, line = shortened(line, _LONGEST), line[:_LONGEST_LINE]
    found = meaning_of(line)
    if found is not None:
        one = found.meaning
        return _KnownLine(number, shown, found.why, found.remedy, not one.is_harmless, one.follows)
    code, meaning = _CODE.search(line), ""
    if code is not None and code[1].startswith("DUL-"):
        meaning = "A finding of `ospltool health`."
    elif code is not None:
        from ospltool.check.rule_book import all_rules

        rule = all_rules().get(code[1])
        meaning = "" if rule is None else rule.summary
    if code is not None and meaning:
        return _KnownLine(number, shown, meaning, f"Run `ospltool explain {code[1]}`.", is_bad=True)
    raw = line.encode("utf-8", "surrogateescape")
    header = next(headers(raw, untimed=True), None)
    message = line if header is None else raw[header.end :].decode("utf-8", "surrogateescape")
    for template in (one.template for one in explain_line(message)):
        fixed = sum(len(piece.literal) for piece in pieces(template.pattern))
        # Without a header, prose that happens to fit a pattern with free text is no message of the service.
        if header is not None or (len(message) >= _SURE and 2 * fixed >= len(message)):
            why = (
                template.meaning or f"A {template.level} message of {template.origin}; its cause is unknown."
            )
            is_bad = bool({"WARNING", "SEVERE"} & set(template.levels))
            return _KnownLine(number, shown, why, "", is_bad)
    return None


_SURE: Final = 30
"""Length from which a message without a header is no accident."""
