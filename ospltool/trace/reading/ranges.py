"""Parts of a source that can be read independently: each begins with a record and ends with one."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from ospltool.trace.reading.headers import LONGEST, first_on_line, last_on_line
from ospltool.trace.reading.sources import Format, open_stream

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import IO

    from ospltool.trace.reading.sources import Source

RANGE_BYTES: Final = 64 << 20
PIECE_BYTES: Final = 4 << 20
"""Larger pieces are slower: their columns no longer fit in the processor's caches."""

LARGEST_PIECE: Final = 64 << 20
"""A piece without a record that begins a line is cut here, wherever that is."""

_WINDOW: Final = 1 << 16


@dataclasses.dataclass(frozen=True, slots=True)
class Range:
    """Bytes of a source, from a record to the end of a record.

    Attributes:
        source: the file.
        start: byte offset of the first record.
        end: byte offset after the last one; None for the end of the file.
        size: its bytes in the file, before decompression.
    """

    source: Source
    start: int
    end: int | None
    size: int


def ranges(source: Source, range_bytes: int = RANGE_BYTES, start: int = 0) -> Iterator[Range]:
    """The source in parts of about `range_bytes`; one part of what must be read from its beginning.

    Args:
        source: the file.
        range_bytes: how large parts are.
        start: where its first record begins that is wanted.
    """
    size = source.path.stat().st_size
    if source.format is not Format.TRACE or source.compressed or size - start <= range_bytes * 3 // 2:
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
    """Where the first record that begins a line begins, at or after `wanted`; `size` when there is none."""
    at = wanted
    while at < size:
        stream.seek(at - 1)  # the byte before says whether `at` begins a line
        window = stream.read(_WINDOW + LONGEST)
        found = first_on_line(window, 1)
        if found >= 0:
            return at - 1 + found
        at += _WINDOW
    return size


def pieces(part: Range, piece_bytes: int = PIECE_BYTES) -> Iterator[tuple[int, bytes]]:
    """The bytes of a range of a durability trace, in pieces that begin with a record and end with one.

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
            if cut <= 0:  # nothing begins here but perhaps the first record
                cut = len(data) if len(data) > LARGEST_PIECE else 0
            if cut:
                yield at, data[:cut]
            at, rest = at + cut, data[cut:]
        if data:
            yield at, data
