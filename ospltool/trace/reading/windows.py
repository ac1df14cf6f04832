"""Turns pieces of a buffer of bytes into rows of a matrix or an Arrow column, without a loop."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Bytes = npt.NDArray[np.uint8]
Positions = npt.NDArray[np.int64]

_INLINE: Final = 12
"""Bytes of the longest text that Arrow keeps inside a view."""

_KEPT: Final = np.where(np.arange(_INLINE) < np.arange(_INLINE + 1)[:, None], np.uint8(0xFF), np.uint8(0))
"""Masks of the bytes in a text of each length."""

_masks: Final[dict[int, npt.NDArray[np.uint64]]] = {}


def bytes_at(data: Bytes, at: Positions, width: int) -> Bytes:
    """Return `width` bytes from each of the sorted positions; zeros beyond the end of the data."""
    if data.size < width or (at.size and int(at[-1]) + width > data.size):
        data = np.append(data, np.zeros(width, np.uint8))
    # A view of all windows, of which the wanted ones are copied row by row.
    return np.ascontiguousarray(np.lib.stride_tricks.sliding_window_view(data, width)[at])


def rows_of(data: Bytes, at: Positions, width: int, lengths: Positions) -> npt.NDArray[np.uint64]:
    """Return the bytes from each position as words, zeros beyond each length. `width` is a multiple of 8."""
    if width not in _masks:
        kept = np.arange(width) < np.arange(width + 1)[:, None]
        _masks[width] = np.where(kept, np.uint8(0xFF), np.uint8(0)).view(np.uint64)
    return bytes_at(data, at, width).view(np.uint64) & _masks[width][lengths]


def beginnings(data: bytes) -> Bytes:
    """Return the bytes from each position of `data` that Arrow keeps inside a view, for `string_views`."""
    return np.lib.stride_tricks.sliding_window_view(np.frombuffer(data + b"\0" * _INLINE, np.uint8), _INLINE)


def string_views(
    data: bytes,
    windows: Bytes,
    start: Positions,
    stop: Positions,
    present: npt.NDArray[np.bool_] | None = None,
) -> Any:
    """Return pieces of `data` as an Arrow column that points into it, without a copy.

    Args:
        data: valid UTF-8.
        windows: its `beginnings`, which several columns share.
        start: beginning of each piece, between two characters.
        stop: end of each piece.
        present: whether each piece is not null; None for all.
    """
    lengths = stop - start
    views = np.zeros((start.size, 4), np.uint32)
    views[:, 0] = lengths
    long = np.flatnonzero(lengths > _INLINE)
    views[long, 1] = np.ascontiguousarray(windows[start[long], :4]).view(np.uint32)[:, 0]
    views[long, 3] = start[long]
    short = np.flatnonzero((lengths > 0) & (lengths <= _INLINE))  # an empty text, or null, is all zeros
    inline = windows[start[short]] & _KEPT[lengths[short]]
    views[short, 1:] = inline.view(np.uint32)
    valid = None if present is None else pa.py_buffer(np.packbits(present, bitorder="little"))
    return pa.Array.from_buffers(
        pa.string_view(), start.size, [valid, pa.py_buffer(views), pa.py_buffer(data)]
    )
