"""Reads ospl-info.log and ospl-error.log.

A record stands between lines of `=`; its keys are at the start of a line, continuation lines are indented.
Reports of the API may be stacks: a header with `Context`, then sections between lines of `-`. The time is
taken from `Internals`, because the format of `Date` differs between releases and locales.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import IO, Final

from ospltool.trace.meaning.catalogue import UNKNOWN_LEVEL
from ospltool.trace.reading.headers import is_time
from ospltool.trace.reading.record import RecordKind, TimeBase, TraceRecord
from ospltool.trace.reading.sources import PlainStream, TraceFile

# As `engine`'s own traces are read (`reader.BLOCK_BYTES`).
BLOCK_BYTES: Final = 1 << 18
# Reports have some lines; a file that is none must not fill the memory.
LONGEST_REPORT: Final = 1 << 20
"""Size at which a report is cut into parts, of which only the first is parsed."""

LEVELS: Final = {
    **{
        level: level
        for level in ("DEBUG", "INFO", "WARNING", "API_INFO", "ERROR", "CRITICAL", "FATAL", "REPAIRED")
    },
    "CRITICAL ERROR": "CRITICAL",
    "FATAL ERROR": "FATAL",
}
"""Levels as any release writes them; those up to 6.4 write the two worst with a second word."""

_RULE: Final = re.compile(rb"(?:^|(?<=\0))={60,}[ \t]*\r*\n", re.MULTILINE)
_LINE_END: Final = re.compile(r"\r+\n")
_KEY: Final = re.compile(
    r"^(Report|Date|Description|Node|Process|Thread|Internals|Context)[ \t]*: ?", re.MULTILINE
)
_SECTION: Final = re.compile(r"^-{60,}\r?$", re.MULTILINE)
_TIME: Final = re.compile(r"(\d{1,10})\.(\d{9})(?:/(-?\d+))?\s*$")
_NAME_AND_ID: Final = re.compile(r"^(.*?)\s*<?([0-9A-Fa-fx]+)>?$")


def read_reports(
    stream: IO[bytes] | PlainStream, source: TraceFile, offset: int = 0
) -> Iterator[TraceRecord]:
    """Yield the reports of a log from an offset on, in order. Other bytes are unparsed records."""
    buffer = b""
    while True:
        block = stream.read(BLOCK_BYTES)
        buffer += block
        cuts = [found.start() for found in _RULE.finditer(buffer)]
        if block and cuts:
            cuts.pop()  # the last one may not be whole yet
        elif not block:
            cuts.append(len(buffer))
        taken = 0
        for cut in cuts:
            if cut > taken:
                yield read_report(buffer[taken:cut], source, offset + taken)
                taken = cut
        if block and len(buffer) - taken > LONGEST_REPORT:
            yield read_report(buffer[taken:], source, offset + taken)
            taken = len(buffer)
        buffer = buffer[taken:]
        offset += taken
        if not block:
            return


def read_report(raw: bytes, source: TraceFile, offset: int) -> TraceRecord:
    """Parse one report: the raw bytes from its line of `=` to the next."""
    text = _LINE_END.sub("\n", raw.replace(b"\0", b"").decode("utf-8", "surrogateescape"))
    body = text.partition("\n")[2] if text.startswith("====") else text
    sections = _SECTION.split(body)
    values = _values(sections[0])
    for section in sections[1:]:
        for key, value in _values(section).items():
            values[key] = (
                f"{values[key]}\n{value}" if key == "Report" and key in values else values.get(key, value)
            )
    last = _values(sections[-1]).get("Internals", sections[-1]).strip()
    time = _TIME.search(last.partition("\n")[0])  # anything may follow the last report
    if time and not is_time(int(time[1] + time[2])):
        time = None
    written = values.get("Report", "")
    first, _, stack = written.partition("\n")
    level = LEVELS.get(first.strip())
    is_known = level is not None
    if level is None:
        # The sections of a stack describe an error, and a level that nobody knows may be one. The beginning
        # of a report that is cut off had some level.
        level, stack = "ERROR" if written.strip() else UNKNOWN_LEVEL, written
    if time is None and not values.keys() & {"Report", "Description", "Internals"}:
        return TraceRecord(
            RecordKind.UNPARSED,
            source.node,
            source.file,
            offset,
            None,
            TimeBase.NONE,
            "",
            "",
            text.strip("\n"),
            raw,
        )
    description = values.get("Description", "")
    if not description:
        description = "\n".join(filter(None, (values.get("Context", ""), stack)))
    elif not is_known and written.strip():
        description += f"\nlevel: {written.strip()}"
    fields = _fields(values)
    if time and time[3]:
        fields["domain"] = time[3]
    return TraceRecord(
        RecordKind.REPORT,
        source.node,
        source.file,
        offset,
        int(time[1] + time[2]) if time else None,
        TimeBase.ABSOLUTE if time else TimeBase.NONE,
        "",
        fields.get("thread", ""),
        description,
        raw,
        fields=fields,
        level=level,
    )


def _values(section: str) -> dict[str, str]:
    """Return the values of a section by key; continuation lines lose their indent."""
    found = list(_KEY.finditer(section))
    values: dict[str, str] = {}
    for key, following in zip(found, [*found[1:], None], strict=False):
        value = section[key.end() : following.start() if following else len(section)]
        lines = [line.removeprefix(" " * 14) for line in value.rstrip("\n").split("\n")]
        values.setdefault(key[1], "\n".join(lines).strip("\n"))
    return values


REPORT_FIELDS: Final = (
    "host", "process", "pid", "thread", "thread_id", "context", "version", "code", "line", "source", "domain",
)  # fmt: skip
"""Fields that a report may have."""


def _fields(values: dict[str, str]) -> dict[str, str]:
    fields: dict[str, str] = {}
    if values.get("Node"):
        fields["host"] = values["Node"].strip()
    for key, name, number in (("Process", "process", "pid"), ("Thread", "thread", "thread_id")):
        found = _NAME_AND_ID.match(values.get(key, "").strip())
        if found:
            fields[name], fields[number] = found[1], found[2]
    if values.get("Context"):
        fields["context"] = values["Context"].strip()
    internals = values.get("Internals", "").strip().partition("\n")[0].split("/")
    # version/revision/revision/context/file/line/code/time/domain: context and file may have slashes too
    if len(internals) >= 8:
        fields["version"] = internals[0]
        tail = internals[:-1] if "." not in internals[-1] else internals
        if len(tail) >= 7:
            fields["code"], fields["line"] = tail[-2], tail[-3]
            fields["source"] = tail[-4]
            fields.setdefault("context", "/".join(tail[3:-4]))
    return fields
