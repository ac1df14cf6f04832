"""Parts of a source that can be read independently: each begins with a record and ends with one."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import IO, Final

from ospltool.trace.reading.headers import LONGEST, first_on_line, last_on_line
from ospltool.trace.reading.sources import TraceFile, TraceFormat, open_stream

RANGE_BYTES: Final = 64 << 20
PIECE_BYTES: Final = 16 << 20
"""Size of a piece, whose records a case has in the order of their templates: the larger, the fewer bytes."""

LARGEST_PIECE: Final = 64 << 20
"""Size at which a piece is cut if no record begins a line."""

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


def ranges(source: TraceFile, range_bytes: int = RANGE_BYTES, start: int = 0) -> Iterator[Range]:
    """Yield a source in parts; a file that must be read from its beginning is one part.

    Args:
        source: the file.
        range_bytes: approximate size of a part.
        start: byte offset of the first wanted record.
    """
    size = source.path.stat().st_size
    if source.format is not TraceFormat.TRACE or source.compressed or size - start <= range_bytes * 3 // 2:
        yield Range(source, start, None, size - start)
        return
    with source.path.open("rb") as stream:
        while size - start > range_bytes * 3 // 2:
            end = first_record(stream, start + range_bytes, size)
            yield Range(source, start, end, end - start)
            start = end
    if start < size:
        yield Range(source, start, None, size - start)


def first_record(stream: IO[bytes], wanted: int, size: int) -> int:
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
