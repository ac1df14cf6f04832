"""Texts of many rows, compressed, of which few are ever shown."""

from __future__ import annotations

import functools
from typing import Final

import numpy as np
import pyarrow as pa

ROWS: Final = 2_048
"""Texts that are compressed together; to show one, all of them are taken out."""
_RECENT: Final = 16
_LEVEL: Final = 1


class PackedTexts:
    """The texts of a column, by position.

    Args:
        texts: a column of texts, none of them missing, whose memory need not stay.
    """

    def __init__(self, texts: pa.StringArray) -> None:
        codec = pa.Codec("zstd", compression_level=_LEVEL)
        _, places, data = texts.buffers()
        kind = np.int64 if pa.types.is_large_string(texts.type) else np.int32
        first = texts.offset
        self._places = (
            np.frombuffer(places, kind)[first : first + len(texts) + 1].copy()
            if len(texts)
            else np.zeros(1, kind)
        )
        self._blocks: list[bytes] = []
        for first in range(0, len(texts), ROWS):
            start, end = self._span(first // ROWS)
            self._blocks.append(
                codec.compress(data.slice(start, end - start), asbytes=True) if end > start else b""
            )

    def _span(self, block: int) -> tuple[int, int]:
        return int(self._places[block * ROWS]), int(
            self._places[min((block + 1) * ROWS, self._places.size - 1)]
        )

    def __getitem__(self, at: int) -> str:
        block = at // ROWS
        start, end = self._span(block)
        if start == end:
            return ""
        data = _unpacked(self._blocks[block], end - start)
        return data[int(self._places[at]) - start : int(self._places[at + 1]) - start].decode()


@functools.lru_cache(_RECENT)
def _unpacked(block: bytes, size: int) -> bytes:
    return bytes(pa.Codec("zstd").decompress(block, size, asbytes=True))
