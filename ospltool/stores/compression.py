"""The compressions of OpenSplice's key-value store."""

from __future__ import annotations

import zlib
from typing import Final

from ospltool.stores.types import Undecodable

MAX_VALUE_BYTES: Final = 256 << 20
"""A value that claims to be larger is taken for damaged."""

NAMES: Final = ("none", "lzf", "snappy", "zlib", "custom")
_FRAME_BYTES: Final = 5


def decompress(kind: int, data: bytes) -> bytes:
    """Decompress a value.

    Raises:
        Undecodable: it is damaged, or of a compression that is not known.
    """
    name = NAMES[kind] if kind < len(NAMES) else str(kind)
    if name == "none":
        return data
    if name == "snappy":
        return _snappy(data)
    if name not in ("zlib", "lzf"):
        raise Undecodable(f"compression {name} is not known")
    if len(data) < _FRAME_BYTES:
        raise Undecodable("the compressed value is cut off")
    size = int.from_bytes(data[1:_FRAME_BYTES])
    if size > MAX_VALUE_BYTES:
        raise Undecodable(f"the compressed value claims {size} bytes")
    body = data[_FRAME_BYTES:]
    value = _inflated(body, size) if name == "zlib" else _lzf(body, size)
    if len(value) != size:
        raise Undecodable(f"the compressed value gives {len(value)} bytes instead of {size}")
    return value


def _inflated(data: bytes, size: int) -> bytes:
    try:
        return zlib.decompressobj().decompress(data, size + 1)
    except zlib.error as error:
        raise Undecodable(f"the compressed value is damaged: {error}") from error


def _lzf(data: bytes, size: int) -> bytes:
    """Decompress LZF: a control byte N below 32 precedes N + 1 literal bytes; others repeat earlier bytes."""
    out = bytearray()
    at = 0
    try:
        while at < len(data) and len(out) <= size:
            control = data[at]
            at += 1
            if control < 32:
                out += data[at : at + control + 1]
                at += control + 1
                continue
            length = control >> 5
            if length == 7:
                length += data[at]
                at += 1
            _repeat(out, ((control & 31) << 8 | data[at]) + 1, length + 2)
            at += 1
    except IndexError:
        raise Undecodable("the compressed value is cut off") from None
    return bytes(out)


def _snappy(data: bytes) -> bytes:
    size, at = _variable(data, 0)
    if size > MAX_VALUE_BYTES:
        raise Undecodable(f"the compressed value claims {size} bytes")
    out = bytearray()
    try:
        while at < len(data) and len(out) <= size:
            at = _snappy_element(data, at, out)
    except IndexError:
        raise Undecodable("the compressed value is cut off") from None
    if len(out) != size:
        raise Undecodable(f"the compressed value gives {len(out)} bytes instead of {size}")
    return bytes(out)


def _snappy_element(data: bytes, at: int, out: bytearray) -> int:
    """Decode one literal or repetition; return the offset of the next."""
    tag = data[at]
    at += 1
    kind, number = tag & 3, tag >> 2
    if kind == 0:
        if number >= 60:
            width = number - 59
            number = int.from_bytes(data[at : at + width], "little")
            at += width
        if at + number >= len(data):
            raise IndexError
        out += data[at : at + number + 1]
        return at + number + 1
    if kind == 1:
        _repeat(out, tag >> 5 << 8 | data[at], (number & 7) + 4)
        return at + 1
    width = 2 if kind == 2 else 4
    _repeat(out, int.from_bytes(data[at : at + width], "little"), number + 1)
    return at + width


def _repeat(out: bytearray, distance: int, length: int) -> None:
    if not 0 < distance <= len(out):
        raise Undecodable("the compressed value refers to what is not there")
    for _ in range(length):  # it may overlap itself
        out.append(out[-distance])


def _variable(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 35:
        value |= (data[at] & 0x7F) << shift
        at += 1
        if not data[at - 1] & 0x80:
            return value, at
        shift += 7
    raise Undecodable("the compressed value has no length")
