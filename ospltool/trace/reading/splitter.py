"""Finds the same records as `headers` in a large piece of a trace, many times faster.

Every header ends with `) -> `. The compiled library finds those of the usual form at the start of a line;
every other `) -> ` (a glued header, another form of timestamp, a message with these characters) is examined
one by one. A test compares the result with `headers`, byte by byte.
"""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ospltool.trace.reading import compiled
from ospltool.trace.reading.headers import (
    END,
    LONGEST,
    SHORTEST_DATE_NS,
    context_of,
    header_ending_at,
    is_header,
)

Bytes = npt.NDArray[np.uint8]
Positions = npt.NDArray[np.int64]


def bytes_at(data: Bytes, at: Positions, width: int) -> Bytes:
    """Return `width` bytes from each of the sorted positions; zeros beyond the end of the data."""
    if data.size < width:
        data = np.append(data, np.zeros(width, np.uint8))
    last = data.size - width
    rows: Bytes = _windows(data, width)[np.minimum(at, last)].view(np.uint8).reshape(-1, width)
    for number in range(int(np.searchsorted(at, last, side="right")), at.size):
        rest = data[at[number] :]
        rows[number, : rest.size], rows[number, rest.size :] = rest, 0
    return rows


def _windows(data: Bytes, width: int) -> Any:
    """Return a view with the `width` bytes from each position as one value, which are copied at once."""
    return np.ndarray(data.size - width + 1, f"V{width}", data, strides=(1,))


def string_views(
    data: bytes,
    start: Positions,
    stop: Positions,
    present: npt.NDArray[np.bool_] | None = None,
) -> Any:
    """Return pieces of `data` as an Arrow column that points into it, without a copy.

    Args:
        data: valid UTF-8.
        start: beginning of each piece, between two characters.
        stop: end of each piece.
        present: whether each piece is not null; None for all.
    """
    valid = None if present is None else pa.py_buffer(np.packbits(present, bitorder="little"))
    views = compiled.views(compiled.library(), np.frombuffer(data, np.uint8), start, stop, present)
    return pa.Array.from_buffers(
        pa.string_view(), start.size, [valid, pa.py_buffer(views), pa.py_buffer(data)]
    )


NO_TIME: Final = np.iinfo(np.int64).min
"""Time of a record without timestamp."""


@dataclasses.dataclass(frozen=True, slots=True)
class Split:
    """The records of a buffer, by column."""

    start: Positions
    """Beginning of each record."""
    body: Positions
    """Beginning of each message."""
    stop: Positions
    """End of each message, without line ends after it."""
    end: Positions
    """Beginning of the next record."""
    time_ns: Positions
    """Time of each record, or `NO_TIME`."""
    context: npt.NDArray[np.int32]
    """Index of each record into `contexts`."""
    contexts: list[tuple[str, str]]
    """Pairs of state and thread that occur."""
    head: int
    """Number of bytes before the first record."""
    suspect: npt.NDArray[np.bool_]
    """For each record, whether the two times of its header disagree or were not compared."""

    def reordered(self, order: Positions) -> Split:
        """Return the records in another order."""
        columns = ("start", "body", "stop", "end", "time_ns", "context", "suspect")
        return dataclasses.replace(self, **{name: getattr(self, name)[order] for name in columns})


def split(buffer: bytes, *, untimed: bool = False, files: Sequence[int] = ()) -> Split:
    """Split a buffer that begins at the start of a line.

    Args:
        buffer: the bytes.
        untimed: the file has no timestamps, so headers without one count anywhere in a line.
        files: beginnings of further files, whose times tell nothing of those before.
    """
    data = np.frombuffer(buffer, np.uint8)
    scanner = compiled.library()
    starts, ends, times, suspect, context, contexts = _scanned(buffer, data, scanner)
    others = np.flatnonzero(starts < 0)
    if others.size:
        _look_at(others, buffer, starts, ends, times, context, contexts, untimed=untimed)
    kept = np.flatnonzero(starts >= 0)
    start, time_ns = starts[kept], times[kept]
    is_short = (time_ns >= 0) & (time_ns < SHORTEST_DATE_NS)
    if is_short.any():  # as `headers.is_cut` says
        is_short[:-1] &= (time_ns[1:] >= SHORTEST_DATE_NS) & ~np.isin(start[1:], files)
        is_short[-1] = False
        time_ns[is_short] = NO_TIME
    end = np.append(start[1:], data.size) if start.size else start
    body = ends[kept]
    stop = compiled.stops(scanner, data, body, end)
    head = int(start[0]) if start.size else data.size
    return Split(start, body, stop, end, time_ns, context[kept], contexts, head, suspect[kept])


class _Found(NamedTuple):
    """An entry for each `) -> `; see `compiled.headers`."""

    starts: Positions
    ends: Positions
    times: Positions
    suspect: npt.NDArray[np.bool_]
    context: npt.NDArray[np.int32]
    contexts: list[tuple[str, str]]


def _scanned(buffer: bytes, data: Bytes, scanner: ctypes.PyDLL) -> _Found:
    """Find headers of the usual form."""
    starts, ends, times, suspect, context, places = compiled.headers(scanner, data)
    texts = [buffer[start:end] for start, end in places]
    known = np.array([is_header(text) for text in texts], np.bool_)
    if not known.all():
        others = ~known[context]
        starts[others], suspect[others] = -1, True
    return _Found(starts, ends, times, suspect, context, [context_of(text) for text in texts])


def _look_at(
    others: Positions,
    buffer: bytes,
    starts: Positions,
    ends: Positions,
    times: Positions,
    context: npt.NDArray[np.int32],
    contexts: list[tuple[str, str]],
    *,
    untimed: bool,
) -> None:
    """Examine every `) -> ` that does not end a usual header, in order."""
    numbers = {pair: number for number, pair in enumerate(contexts)}
    for one in others.tolist():
        end = int(ends[one])
        floor, at = 0, one - 1
        while at >= 0 and int(ends[at]) > end - LONGEST - len(END):
            if starts[at] >= 0:
                floor = int(ends[at])
                break
            at -= 1
        header = header_ending_at(buffer, floor, end, untimed=untimed)
        if header is None:
            continue
        pair = (header.state, header.thread)
        if pair not in numbers:
            numbers[pair] = len(contexts)
            contexts.append(pair)
        starts[one] = header.start
        times[one] = NO_TIME if header.time_ns is None else header.time_ns
        context[one] = numbers[pair]
