"""Reads a source as records, exactly: every byte of the file belongs to one record.

A record reaches from one header to the next (see `ospltool.trace.reading.headers`), so messages of several
lines, glued headers and messages without a line end need no special care. Bytes before the first header, or
beyond the size of any real record, become records of kind `unparsed`. The records of several files are merged
by time, each file in its own order.
"""

from __future__ import annotations

import heapq
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from ospltool.trace.meaning.catalogue import UNKNOWN_LEVEL, Template, catalogue
from ospltool.trace.meaning.matcher import Matcher, matcher
from ospltool.trace.reading import damage
from ospltool.trace.reading.headers import LONGEST, RecordHeader, headers, is_cut, is_time
from ospltool.trace.reading.record import (
    LEVELS,
    NO_FIELDS,
    STRAGGLER_NS,
    RecordKind,
    TimeBase,
    TraceRecord,
    one_line,
)
from ospltool.trace.reading.report_logs import read_reports
from ospltool.trace.reading.sources import (
    NothingFoundError,
    PlainStream,
    SourceError,
    TraceFile,
    TraceFormat,
    open_stream,
)

# It fits into the cache of a processor; reading in larger blocks is not faster.
BLOCK_BYTES: Final = 1 << 18
# Above the longest that nodes write; a file without line ends would otherwise fill the memory.
LONGEST_RECORD: Final = 4 << 20
"""Size at which a record is cut; its rest is unparsed."""

_LINE_ENDS: Final = b"\r\n"
_PADDED_END: Final = re.compile(rb"\r{2,}\n")
"""A line end that makes up for bytes that are left out (`sources.plain_lines`)."""
INITIAL: Final = "INIT"
"""The state in which a run begins."""

RUN_HEAD: Final = "Configuration:"
"""The beginning of a text of state INIT that only the beginning of a run has."""

STORE_HEAD: Final = "Persistent store directory "
"""The beginning of the text with which the printer of the store begins a run; it is opened in state INIT."""


class RunCounter:
    """Counts the runs of a service in one file, to which each run appends its trace.

    A run begins with the first record in state INIT after another state, with the first line of the store's
    printer, which shows no state, or with the report of the configuration if the previous run ended in INIT.
    Records before the first start belong to run 0. `ospltool.trace.case.reading_back` counts those of a case.
    """

    def __init__(self) -> None:
        self.run = 0
        self._is_initial: bool | None = None
        """Whether the last record with a state was in INIT; None before the first."""

        self._turned_ns: int | None = None
        """Time of the record with which that began or ended."""

    def count(self, state: str, text: str, time_ns: int | None) -> int:
        """Return the run of a record.

        Args:
            state: state of the service; empty for records without one.
            text: message.
            time_ns: time of the record; None without one.
        """
        is_initial = state == INITIAL if state else text.startswith(STORE_HEAD)
        if not state and not is_initial:
            return self.run
        is_turn = is_initial is not self._is_initial
        if is_initial and (
            (state and text.startswith(RUN_HEAD))
            or (is_turn and (self._is_initial is None or not self._is_late(time_ns)))
        ):
            self.run += 1
        if is_turn:
            self._is_initial, self._turned_ns = is_initial, time_ns
        return self.run

    def _is_late(self, time_ns: int | None) -> bool:
        """Return whether a record in INIT was written as INIT ended, by a thread that was a little late."""
        # A service that was started again is never that fast, and a clock that was set jumps farther.
        return (
            time_ns is not None
            and self._turned_ns is not None
            and abs(time_ns - self._turned_ns) < STRAGGLER_NS
        )


def _has_header(source: TraceFile) -> bool:
    """Tell whether a line of a file is the header of a record, in the memory of a block."""
    with open_stream(source.path) as stream:
        rest = b""
        while block := stream.read(HEADER_BLOCK_BYTES):
            data = rest + block
            if any(next(headers(data, untimed=untimed), None) for untimed in (False, True)):
                return True
            end = data.rfind(b"\n") + 1
            rest = data[end:] if len(data) - end < LONGEST else b""
    return False


HEADER_BLOCK_BYTES: Final = 1 << 20
"""Bytes that are searched for headers at once."""


def require_records(sources: Iterable[TraceFile]) -> None:
    """Require a record in at least one source; a file that grows may still be empty.

    Raises:
        NothingFoundError: there is none, as in an empty file, or in one of another kind.
    """
    sources = list(sources)
    if any(one.format is not TraceFormat.UNKNOWN for one in sources):
        return
    if any(_has_header(one) for one in sources):  # nothing at the beginnings of the files; the rest decides
        return
    files = ", ".join(sorted(str(one.path) for one in sources))
    raise NothingFoundError(f"{files}: no trace or log: no line is a record")


def read_records(source: TraceFile, start: int = 0, end: int | None = None) -> Iterator[TraceRecord]:
    """Yield the records of a source, in the order of the file.

    Args:
        source: the file.
        start: byte offset of the first record; 0 for a compressed file.
        end: byte offset of the end of a record to stop at; None for the end of the file.

    If a compressed file is damaged, the last record is of kind `damaged` and describes it.

    Raises:
        SourceError: the file cannot be read.
    """
    try:
        with open_stream(source.path) as stream:
            if start:
                stream.seek(start)
            match source.format:
                case TraceFormat.REPORTS:
                    yield from read_reports(stream, source)
                case TraceFormat.EVENTS:
                    yield from _read_events(stream, source)
                case _:
                    parser = TraceParser(source, start)
                    for block in _blocks(stream, None if end is None else end - start):
                        yield from parser.feed(block)
                    yield from parser.finish()
    except OSError as cause:
        raise SourceError(f"{source.path}: {cause.strerror or cause}") from None
    found = damage.found_in(source.path)
    if found is not None:
        yield damaged(source, found)


def _blocks(stream: PlainStream, wanted: int | None) -> Iterator[bytes]:
    left = wanted
    while left is None or left > 0:
        block = stream.read(BLOCK_BYTES if left is None else min(BLOCK_BYTES, left))
        if not block:
            return
        if left is not None:
            left -= len(block)
        yield block


class TraceParser:
    """A parser that turns the bytes of a durability trace into records as they come in.

    Args:
        source: the file.
        offset: offset of the first byte in the file.
    """

    def __init__(self, source: TraceFile, offset: int = 0) -> None:
        self._source = source
        self._matcher: Matcher = matcher(source.origin)
        self._runs = RunCounter()
        self._newest_ns: int | None = None
        self._buffer = b""
        self._searched = 0
        """Bytes of the buffer in which there is no header but that of its first record."""
        self._offset = offset

    @property
    def pending(self) -> int:
        """Number of bytes of the last record, which may not be whole before the next header."""
        return len(self._buffer)

    def feed(self, block: bytes) -> Iterator[TraceRecord]:
        """Add bytes; yield the records that are now known to be whole."""
        self._buffer += block
        first = next(headers(self._buffer, 0, 2 * LONGEST, untimed=self._source.untimed), None)
        previous = first if first is not None and first.start == 0 else None
        # A line of gigabytes must not be searched again with each block; a header may end in this one.
        start = max(previous.end if previous else 0, self._searched - 2 * LONGEST)
        taken = 0
        for header in headers(self._buffer, start, untimed=self._source.untimed):
            if previous is not None:
                if is_cut(previous.time_ns, header.time_ns):
                    previous = previous._replace(time_ns=None)
                yield from self._record(previous, header.start)
            elif header.start > 0:
                yield self._unparsed(0, header.start)
            previous = header
            taken = header.start
        self._searched = len(self._buffer)
        if taken:
            self._drop(taken)
        if len(self._buffer) > LONGEST_RECORD:
            yield from self._relieve()

    def finish(self) -> Iterator[TraceRecord]:
        """Yield the last record; the parser can then be fed again."""
        previous = next(headers(self._buffer, untimed=self._source.untimed), None)
        if previous is not None and previous.start == 0:
            yield from self._record(previous, len(self._buffer))
        elif self._buffer:
            yield self._unparsed(0, len(self._buffer))
        self._drop(len(self._buffer))

    def parse(self, data: bytes, offset: int) -> Iterator[TraceRecord]:
        """Yield the records of bytes that begin with a record and end with one, at an offset of the file."""
        self._buffer, self._searched, self._offset = b"", 0, offset
        yield from self.feed(data)
        yield from self.finish()

    def _relieve(self) -> Iterator[TraceRecord]:
        """Yield an endless buffer in parts, so that memory stays bounded."""
        first = next(headers(self._buffer, untimed=self._source.untimed), None)
        if first is not None:
            yield from self._record(first, LONGEST_RECORD)
            self._drop(LONGEST_RECORD)
        keep = len(self._buffer) - LONGEST
        cut = self._buffer.rfind(b"\n", 0, keep) + 1 or keep
        if cut > 0:
            yield self._unparsed(0, cut)
            self._drop(cut)

    def _drop(self, count: int) -> None:
        self._buffer = self._buffer[count:]
        self._searched = max(0, self._searched - count)
        self._offset += count

    def _record(self, header: RecordHeader, end: int) -> Iterator[TraceRecord]:
        cut = min(end, header.start + LONGEST_RECORD)
        yield self._parsed(header, cut)
        for at in range(cut, end, LONGEST_RECORD):
            yield self._unparsed(at, min(end, at + LONGEST_RECORD))

    def _parsed(self, header: RecordHeader, end: int) -> TraceRecord:
        raw = self._buffer[header.start : end]
        body = raw[header.end - header.start :]
        message = body.rstrip(_LINE_ENDS)
        text = (_PADDED_END.sub(b"\n", message) if b"\r\r\n" in message else message).decode(
            "utf-8", "surrogateescape"
        )
        found = self._matcher.match(text, store=not header.state, cut=len(message) == len(body))
        template = found.template if found else None
        return TraceRecord(
            RecordKind.TRACE,
            self._source.node,
            self._source.file,
            self._offset + header.start,
            header.time_ns,
            header.clock,
            header.state,
            header.thread,
            text,
            raw,
            self._runs.count(header.state, text, header.time_ns),
            template,
            found.fields if found else NO_FIELDS,
            template.level if template else UNKNOWN_LEVEL,
            self._is_late(header.time_ns),
        )

    def _is_late(self, time_ns: int | None) -> bool:
        if time_ns is None:
            return False
        late = self._newest_ns is not None and time_ns < self._newest_ns
        if not late:
            self._newest_ns = time_ns
        return late

    def _unparsed(self, start: int, end: int) -> TraceRecord:
        return unparsed(self._source, self._offset + start, self._buffer[start:end], self._runs.run)


def unparsed(source: TraceFile, offset: int, raw: bytes, run: int = 0) -> TraceRecord:
    """Return raw bytes that belong to no record, as a record of kind `unparsed` in a run of the file."""
    text = raw.rstrip(_LINE_ENDS).decode("utf-8", "surrogateescape")
    return TraceRecord(
        RecordKind.UNPARSED, source.node, source.file, offset, None, TimeBase.NONE, "", "", text, raw, run
    )


def damaged(source: TraceFile, found: damage.FileDamage) -> TraceRecord:
    """Return a record without bytes at the place from which a source cannot be read."""
    text = f"the file cannot be read on from here: {found.reason}"
    return TraceRecord(
        RecordKind.DAMAGED, source.node, source.file, found.offset, None, TimeBase.NONE, "", "", text, b""
    )


def parse_events(data: bytes, source: TraceFile, offset: int) -> Iterator[TraceRecord]:
    """Yield the records of the data, whole lines of JSON, at an offset of the file."""
    runs = RunCounter()
    for line in data.splitlines(keepends=True):
        yield _event(line, source, offset, catalogue().get, runs)
        offset += len(line)


def _read_events(stream: PlainStream, source: TraceFile) -> Iterator[TraceRecord]:
    """Yield the records of an ospltool trace in lines of JSON."""
    known = catalogue()
    runs = RunCounter()
    offset = 0
    for line in _lines(stream):
        yield _event(line, source, offset, known.get, runs)
        offset += len(line)


def _lines(stream: PlainStream) -> Iterator[bytes]:
    """Yield the lines of a stream with their ends, in pieces of bounded size."""
    rest = b""
    while block := stream.read(BLOCK_BYTES):
        *lines, rest = (rest + block).split(b"\n")
        for line in lines:
            yield line + b"\n"
        if len(rest) > LONGEST_RECORD:
            yield rest
            rest = b""
    if rest:
        yield rest


def _event(
    line: bytes, source: TraceFile, offset: int, known: Callable[[str], Template | None], runs: RunCounter
) -> TraceRecord:
    try:
        envelope = json.loads(line)
        data = envelope["data"]
        time_ns, state, thread, text = data["time_ns"], data["state"], data["thread"], data["text"]
        level, event, fields = data["level"], data["event"], data["fields"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return unparsed(source, offset, line, runs.run)
    texts, lines = (state, thread, text, level, event), data.get("lines", [])
    if not (
        isinstance(time_ns, int)
        and is_time(time_ns)
        and isinstance(fields, dict)
        and isinstance(lines, list)
        and all(isinstance(one, str) for one in texts)
    ):
        return unparsed(source, offset, line, runs.run)
    return TraceRecord(
        RecordKind.TRACE,
        source.node,
        source.file,
        offset,
        time_ns,
        TimeBase.ABSOLUTE,
        one_line(state),
        thread,
        "\n".join((text, *map(str, lines))),
        line,
        runs.count(state, text, time_ns),
        known(event),
        {str(name): str(value) for name, value in fields.items()},
        level if level in LEVELS else UNKNOWN_LEVEL,
    )


def ordered(records: Iterable[TraceRecord], skew_ns: int = 0) -> Iterator[tuple[int, TraceRecord]]:
    """Yield the records of one file, each with the time of its place among other files.

    The order of the file is kept: a record that is older than one before it, or has no time, takes the time
    of that one. (Threads write out of order by less than a millisecond; after a clock was set back, all
    records do until the old time is reached again.)
    """
    at: int | None = None
    for record in records:
        if record.time_ns is not None:
            time = record.time_ns + skew_ns
            at = time if at is None else max(at, time)
        yield at or 0, record


def merged(
    sources: Sequence[TraceFile],
    skews_ns: Mapping[str, int] | None = None,
    read: Callable[[TraceFile], Iterable[TraceRecord]] = read_records,
) -> Iterator[TraceRecord]:
    """Yield the records of several sources by time, corrected by the skew of their nodes.

    Args:
        sources: the files.
        skews_ns: nanoseconds to add to the times of each node.
        read: returns the records of a source.
    """
    skews = skews_ns or {}
    if len(sources) == 1 and not skews.get(sources[0].node):
        yield from read(sources[0])
        return

    def keyed(number: int, source: TraceFile) -> Iterator[tuple[int, int, int, TraceRecord]]:
        skew = skews.get(source.node, 0)
        for position, (at, record) in enumerate(ordered(read(source), skew)):
            yield at, number, position, corrected(record, skew)

    for *_, record in heapq.merge(*(keyed(number, source) for number, source in enumerate(sources))):
        yield record


def corrected(record: TraceRecord, skew_ns: int) -> TraceRecord:
    """Return the record with its time corrected; a skew that is a date makes relative times absolute."""
    if not skew_ns or record.time_ns is None:
        return record
    clock = TimeBase.ABSOLUTE if record.clock is TimeBase.RELATIVE and skew_ns > 10**18 else record.clock
    return record._replace(time_ns=record.time_ns + skew_ns, clock=clock)
