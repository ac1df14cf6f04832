"""Parts of a source that can be read independently: each begins with a record and ends with one.

Records that contain given bytes are found without parsing the others.
"""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Final

from engine.workers import WorkerProcesses
from ospltool.trace.reading.headers import (
    END,
    IS_LINE_HEADER,
    LONGEST,
    first_on_line,
    header_ending_at,
    last_on_line,
)
from ospltool.trace.reading.reader import read_records
from ospltool.trace.reading.sources import PlainStream, TraceFile, TraceFormat, open_stream

# Work for a process of seconds: enough to be worth its start, and many for each core.
RANGE_BYTES: Final = 64 << 20
# Larger pieces take more memory in each process than they save. Chosen.
PIECE_BYTES: Final = 16 << 20
"""Size of a piece, whose records a case has in the order of their templates: the larger, the fewer bytes."""

# As a range: a piece never is more than what a process reads.
LARGEST_PIECE: Final = 64 << 20
"""Size at which a piece is cut if no record begins a line."""

# A trace has a header within some kilobytes, so one window is enough as a rule.
_WINDOW: Final = 1 << 16


@dataclasses.dataclass(frozen=True, slots=True)
class Range:
    """A part of a source, from a record to the end of a record.

    Attributes:
        source: the file.
        start: byte offset of its first record.
        end: byte offset after its last record; None for the end of the file.
        size: its bytes in the file, before decompression.
    """

    source: TraceFile
    start: int
    end: int | None
    size: int


def ranges(
    source: TraceFile, range_bytes: int = RANGE_BYTES, start: int = 0, until: int | None = None
) -> Iterator[Range]:
    """Yield a source in parts; a file that must be read from its beginning is one part.

    Args:
        source: the file.
        range_bytes: approximate size of a part.
        start: byte offset of the first wanted record.
        until: byte offset after the last one; None for the end of the file.
    """
    size = source.path.stat().st_size if until is None else until
    if source.format is not TraceFormat.TRACE or source.compressed:
        yield Range(source, start, None, size - start)
        return
    if size - start <= range_bytes * 3 // 2:
        yield Range(source, start, until, size - start)
        return
    with open_stream(source.path) as stream:
        while size - start > range_bytes * 3 // 2:
            end = first_record(stream, start + range_bytes, size)
            yield Range(source, start, end, end - start)
            start = end
    if start < size:
        yield Range(source, start, until, size - start)


def first_record(stream: PlainStream, wanted: int, size: int) -> int:
    """Return the offset of the first record that begins a line, at or after `wanted`; else `size`."""
    at = wanted
    while at < size:
        stream.seek(at - 1)  # the byte before shows whether `at` begins a line
        window = stream.read(_WINDOW + LONGEST)
        found = first_on_line(window, 1)
        if found >= 0:
            return at - 1 + found
        at += _WINDOW
    return size


def last_record(source: TraceFile, start: int = 0, end: int | None = None) -> int:
    """Return the offset of the last record that begins a line between two offsets; `start` if there is none.

    Args:
        source: a file that can be read at any offset.
        start: the beginning of a record.
        end: where to stop; None for the end of the file.
    """
    until = source.path.stat().st_size if end is None else end
    width = _WINDOW
    with open_stream(source.path) as stream:
        while True:
            at = max(start, until - width)
            stream.seek(at)
            found = last_on_line(stream.read(until - at))
            if found > 0 or at == start:
                return at + max(found, 0)
            width *= 4


def pieces(part: Range, piece_bytes: int = PIECE_BYTES) -> Iterator[tuple[int, bytes]]:
    """Yield the bytes of a range of a durability trace, in pieces that begin with a record and end with one.

    Yields:
        The byte offset of the piece in the file, and its bytes.
    """
    with open_stream(part.source.path) as stream:
        if part.start:
            stream.seek(part.start)
        at, left, rest = part.start, None if part.end is None else part.end - part.start, b""
        while True:
            block = stream.read(piece_bytes if left is None else min(piece_bytes, left))
            data = rest + block
            if left is not None:
                left -= len(block)
            if not block or left == 0:
                break
            cut = last_on_line(data)
            if cut <= 0:  # no later record begins here
                cut = len(data) if len(data) > LARGEST_PIECE else 0
            if cut:
                yield at, data[:cut]
            at, rest = at + cut, data[cut:]
        if data:
            yield at, data


# Chosen; larger reads are not faster.
BLOCK_BYTES: Final = 4 << 20
SMALL_BYTES: Final = 128 << 20
"""Size up to which files are searched without further processes, which take longer to start."""


def count_records(sources: Sequence[TraceFile], needle: bytes, processes: int | None = None) -> int:
    """Count the records that contain `needle`, headers included.

    Up to `processes` of them work, by default one for each core.
    """
    parts = [part for source in sources for part in ranges(source)]
    workers = min(processes or os.cpu_count() or 1, len(parts))
    if workers <= 1 or sum(part.size for part in parts) < SMALL_BYTES:
        return sum(count_in_range(part, needle) for part in parts)
    # A fork is fastest, but a process with threads (Arrow has some unknown to Python) must not be forked.
    alone = threading.active_count() == 1 and "pyarrow" not in sys.modules
    can_fork = "fork" in multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("fork" if alone and can_fork else "spawn")
    with WorkerProcesses(workers, mp_context=context) as pool:
        return sum(count.result() for count in [pool.submit(count_in_range, part, needle) for part in parts])


def count_in_range(part: Range, needle: bytes) -> int:
    """Count the records of a part of a source that contain `needle`."""
    if part.source.format is not TraceFormat.TRACE:
        return sum(needle in record.raw for record in read_records(part.source))
    with open_stream(part.source.path) as stream:
        if part.start:
            stream.seek(part.start)
        return _count_in_stream(stream, needle, part)


def _count_in_stream(stream: PlainStream, needle: bytes, part: Range) -> int:
    """Count in one buffer that is read into again and again, so that nothing is copied.

    A line of more than `LARGEST_PIECE` bytes, which no trace has, may be counted twice.
    """
    buffer = bytearray(BLOCK_BYTES)
    left = None if part.end is None else part.end - part.start
    count, counted = 0, False  # whether the record that continues was counted
    kept = 0
    while True:
        room = len(buffer) - kept if left is None else min(len(buffer) - kept, left)
        got = stream.read_into(buffer, kept, room)
        filled = kept + got
        if left is not None:
            left -= got
        over = not got or left == 0
        stop = filled if over else buffer.rfind(b"\n", 0, filled) + 1
        if not stop and filled == len(buffer):  # a line that is longer than the buffer
            if len(buffer) < LARGEST_PIECE:
                kept = filled
                buffer.extend(bytes(len(buffer)))
                continue
            stop = filled
        if not stop and not over:  # no line is whole yet
            kept = filled
            continue
        more, counted = _count(buffer, stop, needle, untimed=part.source.untimed, counted=counted)
        count += more
        if over:
            return count
        kept = filled - stop
        buffer[:kept] = buffer[stop:filled]


def _count(data: bytearray, stop: int, needle: bytes, *, untimed: bool, counted: bool) -> tuple[int, bool]:
    """Count the records in `data[:stop]` that contain `needle`; tell whether the last one does.

    Args:
        data: bytes from the start of a line; those after `stop` are ignored.
        stop: the end of a line, or of the file.
        needle: bytes to find.
        untimed: the file has no timestamps.
        counted: the record to which the first line belongs, if it is a continuation line, was counted.
    """
    count = 0
    before = 0  # place of the previous hit, whose record was counted
    find, rfind, match = data.find, data.rfind, IS_LINE_HEADER.match
    at = find(needle, 0, stop)
    if at >= 0:
        begins = match(data, 0, stop) is not None or _begins_between(data, 0, at, stop, untimed=untimed)
        count = 1 if begins or not counted else 0
        counted = True
        before = at
        at = find(needle, at + 1, stop)
    else:
        counted = (
            counted
            and match(data, 0, stop) is None
            and not _begins_between(data, 0, stop - 1, stop, untimed=untimed)
        )
    while at >= 0:
        line = rfind(b"\n", before, at) + 1
        if (line and match(data, line, stop)) or _begins_between(data, before, at, stop, untimed=untimed):
            count += 1
        before = at
        at = find(needle, at + 1, stop)
    if count or counted:
        counted = counted and not _begins_between(data, before, stop - 1, stop, untimed=untimed)
    return count, counted


def _begins_between(data: bytes | bytearray, before: int, at: int, stop: int, *, untimed: bool) -> bool:
    """Return whether a record of `data[:stop]` begins after `before` and not after `at`."""
    line = data.find(b"\n", before, at) + 1
    while line:
        if IS_LINE_HEADER.match(data, line, stop):
            return True
        line = data.find(b"\n", line, at) + 1
    end = data.find(END, before, stop)
    while end >= 0:
        header = header_ending_at(data, 0, end + len(END), untimed=untimed)
        if header is not None and header.start > at:
            return False
        if header is not None and header.start > before:
            return True
        if end > at + 256:
            return False
        end = data.find(END, end + 1, stop)
    return False


def matching_pieces(part: Range, needle: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the records of a part of a durability trace that contain `needle`, with their offsets."""
    for offset, data in pieces(part):
        for start, end in record_spans(data, needle, untimed=part.source.untimed):
            yield offset + start, data[start:end]


def record_spans(data: bytes, needle: bytes, *, untimed: bool) -> Iterator[tuple[int, int]]:
    """Yield beginning and end of the records that contain `needle`, in data that begins with a record.

    Headers of an untimed trace have no time.
    """
    at = data.find(needle)
    while at >= 0:
        start = _begin(data, at, untimed=untimed)
        end = _end(data, max(at, start), untimed=untimed)
        yield start, end
        at = data.find(needle, end)


def _begin(data: bytes, at: int, *, untimed: bool) -> int:
    """Return the beginning of the record that contains the byte `at`."""
    line = data.rfind(b"\n", 0, at + 1) + 1
    while line > 0 and not IS_LINE_HEADER.match(data, line):
        line = data.rfind(b"\n", 0, line - 1) + 1
    begin = line
    end = data.find(END, line)
    while 0 <= end <= at + 256:
        header = header_ending_at(data, begin, end + len(END), untimed=untimed)
        if header is not None and header.start <= at:
            begin = header.start
        end = data.find(END, end + 1)
    return begin


def _end(data: bytes, at: int, *, untimed: bool) -> int:
    """Return the end of the record that contains the byte `at`."""
    line = data.find(b"\n", at) + 1
    while line and not IS_LINE_HEADER.match(data, line):
        line = data.find(b"\n", line) + 1
    stop = line or len(data)
    end = data.find(END, at, stop)
    while end >= 0:
        header = header_ending_at(data, 0, end + len(END), untimed=untimed)
        if header is not None and at < header.start < stop:
            return header.start
        end = data.find(END, end + 1, stop)
    return stop
