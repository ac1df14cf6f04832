"""Packing and unpacking of ospltool's own types (`engine.dds.own_types`): an optional name and bytes.

The layout is the same in XCDR1 and XCDR2, because nothing in it is aligned to more than four bytes.
"""

from __future__ import annotations

import struct
from typing import Final, TypeVar

HEADER: Final = b"\x00\x01\x00\x00"
"""CDR, little-endian."""

# Sender ids have 36 characters; one byte of length would hold this. A larger length is damage.
MAX_NAME_BYTES: Final = 255
_LITTLE_ENDIAN: Final = (b"\x00\x01", b"\x00\x07")
_U32: Final = struct.Struct("<I")
B = TypeVar("B", bytes, memoryview)


class Malformed(ValueError):
    """A payload is not of its topic's type."""


def pack_bytes(*parts: bytes) -> bytes:
    """Pack a `Batch` of these parts, one after the other."""
    size = sum(map(len, parts))
    return b"".join((HEADER, _U32.pack(size), *parts, bytes(-size % 4)))


def unpack_bytes(cdr: bytes) -> memoryview:
    """Return the payload of a `Batch`, which may be large, as a view.

    Raises:
        Malformed: the bytes are not a `Batch`.
    """
    _check_header(cdr)
    return _bytes_at(memoryview(cdr), 4)


def pack_named(name: bytes, payload: bytes) -> bytes:
    """Pack a `SenderState` or `Message`.

    Raises:
        ValueError: the name is empty, longer than 255 bytes or has a zero byte.
    """
    if not 0 < len(name) <= MAX_NAME_BYTES or 0 in name:
        raise ValueError(f"a sender id has 1 to {MAX_NAME_BYTES} bytes, none of them zero: {name!r}")
    terminated = name + bytes(1 + -(len(name) + 1) % 4)
    return b"".join(
        (
            HEADER,
            _U32.pack(len(name) + 1),
            terminated,
            _U32.pack(len(payload)),
            payload,
            bytes(-len(payload) % 4),
        )
    )


def unpack_named(cdr: bytes) -> tuple[bytes, bytes]:
    """Return name and payload of a `SenderState` or `Message`.

    Raises:
        Malformed: the bytes are neither.
    """
    _check_header(cdr)
    length = _length_at(cdr, 4)
    end = 8 + length
    if not 1 < length <= MAX_NAME_BYTES + 1 or end > len(cdr) or cdr.find(0, 8, end) != end - 1:
        raise Malformed("no terminated name")
    return cdr[8 : end - 1], _bytes_at(cdr, end + -end % 4)


def _check_header(cdr: bytes) -> None:
    if cdr[:2] not in _LITTLE_ENDIAN:
        raise Malformed(f"encapsulation {cdr[:4].hex() or 'missing'}")


def _length_at(cdr: bytes | memoryview, offset: int) -> int:
    if offset + 4 > len(cdr):
        raise Malformed("truncated")
    return int(_U32.unpack_from(cdr, offset)[0])


def _bytes_at(cdr: B, offset: int) -> B:
    length = _length_at(cdr, offset)
    begin = offset + 4
    if begin + length > len(cdr):
        raise Malformed(f"{length} bytes announced, {len(cdr) - begin} there")
    return cdr[begin : begin + length]
