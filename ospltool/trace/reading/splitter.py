"""Finds the same records as `headers` in a large piece of a trace, ten times faster, in C or with NumPy.

Every header ends with `) -> `. One of the usual form at the start of its line is checked in columns of bytes;
every other `) -> ` (a glued header, another form of timestamp, a message with these characters) is examined
one by one. A test compares the result with `headers`, byte by byte.
"""

from __future__ import annotations

import ctypes
import dataclasses
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ospltool.trace.reading import compiled
from ospltool.trace.reading.headers import END, LONGEST, SECOND_NS, context_of, header_ending_at, is_header

Bytes = npt.NDArray[np.uint8]
Positions = npt.NDArray[np.int64]

_INLINE: Final = 12
"""Bytes of the longest text that Arrow keeps inside a view."""

_KEPT: Final = np.where(
    np.arange(_INLINE) < np.arange(_INLINE + 1)[:, None], np.uint8(0xFF), np.uint8(0)
).view(np.uint32)
"""Masks of the bytes in a text of each length, as words."""

_masks: Final[dict[int, npt.NDArray[np.uint64]]] = {}


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


def rows_of(data: Bytes, at: Positions, width: int, lengths: Positions) -> npt.NDArray[np.uint64]:
    """Return the bytes from each position as words, zeros beyond each length. `width` is a multiple of 8."""
    if width not in _masks:
        kept = np.arange(width) < np.arange(width + 1)[:, None]
        _masks[width] = np.where(kept, np.uint8(0xFF), np.uint8(0)).view(np.uint64)
    return bytes_at(data, at, width).view(np.uint64) & _masks[width][lengths]


def padded_for_views(data: bytes) -> Bytes:
    """Return `data` with as many bytes behind it as `string_views` needs: what Arrow keeps inside a view."""
    if compiled.library() is not None:
        return np.frombuffer(data, np.uint8)
    return np.frombuffer(data + b"\0" * _INLINE, np.uint8)


def string_views(
    data: bytes,
    padded: Bytes,
    start: Positions,
    stop: Positions,
    present: npt.NDArray[np.bool_] | None = None,
) -> Any:
    """Return pieces of `data` as an Arrow column that points into it, without a copy.

    Args:
        data: valid UTF-8.
        padded: its `padded_for_views`, which several columns share.
        start: beginning of each piece, between two characters.
        stop: end of each piece.
        present: whether each piece is not null; None for all.
    """
    valid = None if present is None else pa.py_buffer(np.packbits(present, bitorder="little"))
    scanner = compiled.library()
    views = (
        _views(padded, start, stop)
        if scanner is None
        else compiled.views(scanner, padded, start, stop, present)
    )
    return pa.Array.from_buffers(
        pa.string_view(), start.size, [valid, pa.py_buffer(views), pa.py_buffer(data)]
    )


def _views(padded: Bytes, start: Positions, stop: Positions) -> npt.NDArray[np.uint32]:
    lengths = stop - start
    views = np.zeros((start.size, 4), np.uint32)
    views[:, 0] = lengths
    long = np.flatnonzero(lengths > _INLINE)
    views[long, 1] = _windows(padded, 4)[start[long]].view(np.uint32)
    views[long, 3] = start[long]
    short = np.flatnonzero((lengths > 0) & (lengths <= _INLINE))  # an empty text, or null, is all zeros
    inline = _windows(padded, _INLINE)[start[short]].view(np.uint32).reshape(-1, 3)
    views[short, 1:] = inline & _KEPT[lengths[short]]
    return views


NO_TIME: Final = np.iinfo(np.int64).min
"""Time of a record without timestamp."""

LAST_SECOND: Final = np.iinfo(np.int64).max // SECOND_NS
"""Last second whose nanoseconds fit into 64 bits."""

STAMP: Final = b"0000-00-00T00:00:00+0000 0000000000.000000000 "
"""Times of a header of the usual form, with 0 for each digit."""

_CONTEXT_WIDTH: Final = 64
_NEWLINE, _RETURN = 10, 13


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

    def taken(self, order: Positions) -> Split:
        """Return the records in another order."""
        columns = ("start", "body", "stop", "end", "time_ns", "context", "suspect")
        return dataclasses.replace(self, **{name: getattr(self, name)[order] for name in columns})


def split(buffer: bytes, *, untimed: bool = False) -> Split:
    """Split a buffer that begins at the start of a line.

    Args:
        buffer: the bytes.
        untimed: the file has no timestamps, so headers without one count anywhere in a line.
    """
    data = np.frombuffer(buffer, np.uint8)
    scanner = compiled.library()
    found = _found(buffer, data) if scanner is None else _scanned(buffer, data, scanner)
    starts, ends, times, suspect, context, contexts = found
    others = np.flatnonzero(starts < 0)
    if others.size:
        _look_at(others, buffer, starts, ends, times, context, contexts, untimed=untimed)
    kept = np.flatnonzero(starts >= 0)
    start = starts[kept]
    end = np.append(start[1:], data.size) if start.size else start
    body = ends[kept]
    stop = (
        _without_line_ends(data, body, end) if scanner is None else compiled.stops(scanner, data, body, end)
    )
    head = int(start[0]) if start.size else data.size
    return Split(start, body, stop, end, times[kept], context[kept], contexts, head, suspect[kept])


class _Found(NamedTuple):
    """An entry for each `) -> `; see `compiled.headers`."""

    starts: Positions
    ends: Positions
    times: Positions
    suspect: npt.NDArray[np.bool_]
    context: npt.NDArray[np.int32]
    contexts: list[tuple[str, str]]


def _scanned(buffer: bytes, data: Bytes, scanner: ctypes.PyDLL) -> _Found:
    """Find headers of the usual form with the compiled library."""
    starts, ends, times, suspect, context, places = compiled.headers(scanner, data)
    texts = [buffer[start:end] for start, end in places]
    known = np.array([is_header(text) for text in texts], np.bool_)
    if not known.all():
        others = ~known[context]
        starts[others], suspect[others] = -1, True
    return _Found(starts, ends, times, suspect, context, [context_of(text) for text in texts])


def _found(buffer: bytes, data: Bytes) -> _Found:
    """Find headers of the usual form with NumPy."""
    ends = _header_ends(data)
    newlines = np.flatnonzero(data == _NEWLINE)
    lines = np.zeros(ends.size, np.int64)
    before = np.searchsorted(newlines, ends)
    lines[before > 0] = newlines[before[before > 0] - 1] + 1
    times = np.full(ends.size, NO_TIME, np.int64)
    suspect = np.ones(ends.size, np.bool_)
    usual, context, contexts = _usual(buffer, data, lines, ends, times, suspect)
    return _Found(np.where(usual, lines, -1), ends, times, suspect, context, contexts)


def _header_ends(data: Bytes) -> Positions:
    """Return the end of every `) -> `."""
    at = np.flatnonzero(data[:-1] == ord(">"))
    at = at[at >= 3]
    at = at[(data[at - 1] == ord("-")) & (data[at - 2] == ord(" ")) & (data[at - 3] == ord(")"))]
    ends: Positions = at[data[at + 1] == ord(" ")] + 2
    return ends


def _usual(
    buffer: bytes,
    data: Bytes,
    lines: Positions,
    ends: Positions,
    times: Positions,
    suspect: npt.NDArray[np.bool_],
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int32], list[tuple[str, str]]]:
    """Find headers of the usual form, their states and threads; set `times` and `suspect`."""
    context_at = lines + len(STAMP)
    widths = ends - context_at
    usual = (widths > 0) & (widths <= _CONTEXT_WIDTH)
    index = np.flatnonzero(usual)
    stamps = bytes_at(data, lines[index], len(STAMP))
    good = np.ones(index.size, np.bool_)
    for column, expected in enumerate(STAMP):
        values = stamps[:, column]
        if expected == ord("0"):
            good &= (values - np.uint8(ord("0"))) <= 9
        elif expected == ord("+"):
            good &= (values == ord("+")) | (values == ord("-"))
        else:
            good &= values == expected
    index = index[good]
    codes, texts = _codes(buffer, data, context_at[index], widths[index])
    known = np.array([is_header(text) for text in texts], np.bool_)
    certain = known[codes] if texts else np.zeros(0, np.bool_)
    index = index[certain]
    usual[:] = False
    usual[index] = True
    context = np.zeros(ends.size, np.int32)
    context[index] = codes[certain]
    usual_stamps = stamps[good][certain]
    times[index] = _times(usual_stamps)
    suspect[index] = _disagree(usual_stamps, times[index]) | (times[index] == NO_TIME)
    return usual, context, [context_of(text) for text in texts]


def _codes(
    buffer: bytes, data: Bytes, at: Positions, widths: Positions
) -> tuple[npt.NDArray[np.int32], list[bytes]]:
    """Number equal pieces of text; return the number of each piece, and the texts."""
    words = rows_of(data, at, _CONTEXT_WIDTH, widths)
    hashes = np.zeros(at.size, np.uint64)
    for column in range(words.shape[1]):
        hashes = (hashes ^ words[:, column]) * np.uint64(0x9E3779B97F4A7C15)
        hashes ^= hashes >> np.uint64(29)
    _, first, codes = np.unique(hashes, return_index=True, return_inverse=True)
    if not (words == words[first][codes]).all():  # two texts with one hash
        _, first, codes = np.unique(words, axis=0, return_index=True, return_inverse=True)
    texts = [buffer[at[one] : at[one] + widths[one]] for one in first.tolist()]
    return codes.reshape(-1).astype(np.int32), texts


def _times(stamps: Bytes) -> Positions:
    """Return the times of usual headers, in nanoseconds."""
    seconds = _number(stamps[:, 25:35])
    times = seconds * SECOND_NS + _number(stamps[:, 36:45])
    times[(seconds > LAST_SECOND) | (times < 0)] = NO_TIME  # `headers.is_time`
    return times


def _disagree(stamps: Bytes, times: Positions) -> npt.NDArray[np.bool_]:
    """Return whether the two times of each header differ in minute and second, as `disagrees`."""
    seconds = times // SECOND_NS
    zone = _number(stamps[:, 20:22]) * 60 + _number(stamps[:, 22:24])
    zone[stamps[:, 19] == ord("-")] *= -1
    of_day = (seconds // 60 + zone) % 1440 * 60 + seconds % 60
    local = (_number(stamps[:, 11:13]) * 60 + _number(stamps[:, 14:16])) * 60 + _number(stamps[:, 17:19])
    differs: npt.NDArray[np.bool_] = of_day != local
    return differs


def _number(digits: Bytes) -> Positions:
    """Return the numbers in rows of digits."""
    number = np.zeros(len(digits), np.int64)
    for column in range(digits.shape[1]):
        number *= 10
        number += digits[:, column]
        number -= ord("0")
    return number


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


def _without_line_ends(data: Bytes, body: Positions, end: Positions) -> Positions:
    """Return the ends of the messages without the line ends after them."""
    stop = end - ((end > body) & (data[end - 1] == _NEWLINE)) if end.size else end
    left = np.arange(stop.size)
    while left.size:  # few messages have more than one
        last = data[stop[left] - 1]
        left = left[(stop[left] > body[left]) & ((last == _NEWLINE) | (last == _RETURN))]
        stop[left] -= 1
    return stop
