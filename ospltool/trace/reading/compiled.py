"""The functions of `engine/native/traces.c`, which scan pieces of traces."""

from __future__ import annotations

import ctypes
import functools
import itertools
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from engine import native

_Bytes = npt.NDArray[np.uint8]
_Positions = npt.NDArray[np.int64]
_Marks = npt.NDArray[np.bool_]

# A trace has a context for each thread, some tens; the compiled table has a fixed size.
_CONTEXTS: Final = 4096
"""Different contexts that are numbered at once; headers with others are examined one by one."""

_USUAL_RECORD: Final = 64
"""Bytes of a record, of which most pieces have fewer than their size tells."""
# So that a short piece of short lines fits, too.
_LEAST_ROOM: Final = 1_000


class _Headers(ctypes.Structure):
    """`struct headers` of traces.c."""

    _fields_ = [(name, ctypes.c_void_p) for name in ("ends", "starts", "times", "suspects", "contexts")]


class _Contexts(ctypes.Structure):
    """`struct contexts` of traces.c."""

    _fields_ = [
        ("count", ctypes.c_int64),
        ("starts", ctypes.c_int64 * _CONTEXTS),
        ("sizes", ctypes.c_int64 * _CONTEXTS),
    ]


class _Kinds(ctypes.Structure):
    """`struct kinds` of traces.c."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("firsts", "offsets", "texts", "table")),
        ("table_mask", ctypes.c_uint64),
    ]


@functools.cache
def library() -> ctypes.PyDLL:
    """Return the compiled library."""
    found = native.library()
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    found.trace_headers.restype = number
    found.trace_headers.argtypes = [pointer, number, pointer, number, pointer]
    found.trace_stops.restype = None
    found.trace_stops.argtypes = [pointer, pointer, pointer, number, pointer]
    found.trace_kinds.restype = number
    found.trace_kinds.argtypes = [*[pointer] * 5, number, pointer, pointer]
    found.trace_views.restype = None
    found.trace_views.argtypes = [*[pointer] * 4, number, pointer]
    return found


def headers(
    scanner: ctypes.PyDLL, data: _Bytes
) -> tuple[_Positions, _Positions, _Positions, _Marks, npt.NDArray[np.int32], list[tuple[int, int]]]:
    """Find the headers of the usual form in data, which begins at the start of a line.

    Returns:
        For each `) -> ` its end, and the start of its header, -1 if it is none of the usual form. For those
        that are: the time, whether its two times disagree, and the number of its context. Beginning and end
        of each context.
    """
    room = _LEAST_ROOM + data.size // _USUAL_RECORD
    contexts = _Contexts()
    while True:
        starts, ends, times = (np.empty(room, np.int64) for _ in range(3))
        suspects, numbers = np.empty(room, np.bool_), np.empty(room, np.int32)
        columns = _Headers(*(one.ctypes.data for one in (ends, starts, times, suspects, numbers)))
        count = scanner.trace_headers(
            data.ctypes.data, data.size, ctypes.byref(columns), room, ctypes.byref(contexts)
        )
        if count >= 0:
            break
        room *= 8
    places = [
        (start, start + size)
        for start, size in zip(contexts.starts[: contexts.count], contexts.sizes, strict=False)
    ]
    return starts[:count], ends[:count], times[:count], suspects[:count], numbers[:count], places


def stops(scanner: ctypes.PyDLL, data: _Bytes, bodies: _Positions, ends: _Positions) -> _Positions:
    """Return the ends of messages without the line ends after them.

    Args:
        scanner: the library.
        data: the bytes.
        bodies: beginning of each message.
        ends: end of each record.
    """
    found = np.empty(ends.size, np.int64)
    bodies, ends = _plain(bodies), _plain(ends)
    scanner.trace_stops(data.ctypes.data, bodies.ctypes.data, ends.ctypes.data, ends.size, found.ctypes.data)
    return found


def kinds(
    scanner: ctypes.PyDLL,
    data: _Bytes,
    bodies: _Positions,
    message_ends: _Positions,
    store: _Marks,
    open_end: _Marks,
) -> tuple[npt.NDArray[np.int32], list[int], list[bytes]]:
    """Number messages that are equal when their digits are masked.

    Args:
        scanner: the library.
        data: the bytes.
        bodies: beginning of each message.
        message_ends: end of each message.
        store: for each message, whether the store's printer wrote it.
        open_end: for each message, whether no line end follows.

    Returns:
        The kind of each message, or -1; the first message of each kind, and its masked text.
    """
    count = bodies.size
    kind_of = np.empty(count, np.int32)
    firsts, offsets = np.empty(count, np.int64), np.empty(count + 1, np.int64)
    texts = np.empty(int(np.maximum(message_ends - bodies, 0).sum()), np.uint8)
    table = np.zeros(1 << (2 * count).bit_length(), np.uint64)
    places = (one.ctypes.data for one in (firsts, offsets, texts, table))
    room = _Kinds(*places, table.size - 1)
    bodies, message_ends = _plain(bodies), _plain(message_ends)
    marks = [np.ascontiguousarray(one, np.bool_) for one in (store, open_end)]
    found = scanner.trace_kinds(
        data.ctypes.data,
        bodies.ctypes.data,
        message_ends.ctypes.data,
        *(one.ctypes.data for one in marks),
        count,
        ctypes.byref(room),
        kind_of.ctypes.data,
    )
    cuts = offsets[: found + 1].tolist()
    all_texts = texts[: cuts[-1]].tobytes()
    masked = [all_texts[start:end] for start, end in itertools.pairwise(cuts)]
    return kind_of, firsts[:found].tolist(), masked


def views(
    scanner: ctypes.PyDLL, data: _Bytes, starts: _Positions, ends: _Positions, present: _Marks | None
) -> npt.NDArray[np.uint32]:
    """Return Arrow's views of pieces of data, as four words each.

    Args:
        scanner: the library.
        data: the bytes.
        starts: beginning of each piece.
        ends: end of each piece.
        present: whether each piece is not null; None for all.
    """
    found = np.empty((starts.size, 4), np.uint32)
    starts, ends = _plain(starts), _plain(ends)
    marks: Any = None if present is None else np.ascontiguousarray(present, np.bool_)
    scanner.trace_views(
        data.ctypes.data,
        starts.ctypes.data,
        ends.ctypes.data,
        None if marks is None else marks.ctypes.data,
        starts.size,
        found.ctypes.data,
    )
    return found


def _plain(positions: _Positions) -> _Positions:
    return np.ascontiguousarray(positions, np.int64)
