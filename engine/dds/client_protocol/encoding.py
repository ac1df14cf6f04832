"""The primitives of a message of the client-durability protocol: numbers, strings and sequences as bytes."""

from __future__ import annotations

import functools
import struct
from typing import Final

from engine.dds.cdr import HEADER, Malformed

# Partitions and names are tens; the length comes from the network, before the elements that would prove it.
MAX_ELEMENTS: Final = 10_000
"""Limit for the elements of a sequence of strings or structures; a longer one is refused."""
_ORDERS: Final = {b"\x00\x00": ">", b"\x00\x01": "<"}


@functools.lru_cache(maxsize=256)
def _packed(order: str, layout: str) -> struct.Struct:
    return struct.Struct(order + layout)


class CdrReader:
    """Reads one message, from `at` bytes behind its header; it raises `Malformed` for every fault."""

    __slots__ = ("_at", "_data", "_order")

    def __init__(self, payload: bytes, at: int = 0) -> None:
        order = _ORDERS.get(payload[:2])
        if order is None:
            raise Malformed(f"encapsulation {payload[:4].hex() or 'missing'}")
        self._order = order
        self._data = memoryview(payload)[4:]
        self._at = at

    def read(self, layout: str, alignment: int) -> tuple[int, ...]:
        """Read primitives without padding between them; `layout` as for `struct`, without byte order."""
        self._at += -self._at % alignment
        packed = _packed(self._order, layout)
        try:
            values = packed.unpack_from(self._data, self._at)
        except struct.error:
            raise Malformed("truncated") from None
        self._at += packed.size
        return values

    def u16(self) -> int:
        """Read an unsigned 16-bit number."""
        return self.read("H", 2)[0]

    def u32(self) -> int:
        """Read an unsigned 32-bit number."""
        return self.read("I", 4)[0]

    def count(self) -> int:
        """Read the number of elements of a sequence."""
        count = self.u32()
        if count > min(MAX_ELEMENTS, len(self._data) - self._at):
            raise Malformed(f"{count} elements announced in {len(self._data) - self._at} bytes")
        return count

    def raw(self, size: int) -> bytes:
        """Read `size` bytes."""
        if self._at + size > len(self._data):
            raise Malformed(f"{size} bytes announced, {len(self._data) - self._at} there")
        found = bytes(self._data[self._at : self._at + size])
        self._at += size
        return found

    def byte_sequence(self) -> bytes:
        """Read a sequence of bytes."""
        return self.raw(self.u32())

    def text(self) -> str:
        """Read a string; OpenSplice's NULL becomes an empty one."""
        found = self.byte_sequence()
        try:
            return found.removesuffix(b"\0").decode()
        except UnicodeDecodeError:
            raise Malformed("a string is not UTF-8") from None


class CdrWriter:
    """Writes one message, little-endian."""

    __slots__ = ("_data",)

    def __init__(self) -> None:
        self._data = bytearray()

    def put(self, layout: str, alignment: int, *values: int) -> None:
        """Write primitives without padding between them; `layout` as for `struct`, without byte order.

        The first of the values begins at a multiple of `alignment` bytes.
        """
        self._data += bytes(-len(self._data) % alignment)
        self._data += struct.pack("<" + layout, *values)

    def u16(self, value: int) -> None:
        """Write an unsigned 16-bit number."""
        self.put("H", 2, value)

    def u32(self, value: int) -> None:
        """Write an unsigned 32-bit number."""
        self.put("I", 4, value)

    def raw(self, data: bytes) -> None:
        """Write bytes without their length."""
        self._data += data

    def byte_sequence(self, data: bytes) -> None:
        """Write a sequence of bytes."""
        self.u32(len(data))
        self._data += data

    def text(self, text: str) -> None:
        """Write a string with its terminating zero."""
        self.byte_sequence(text.encode() + b"\0")

    def __len__(self) -> int:
        return len(self._data)

    def body(self) -> bytes:
        """Return the bytes without a header."""
        return bytes(self._data)

    def message(self) -> bytes:
        """Return the bytes with an encapsulation header, padded to four bytes."""
        return b"".join((HEADER, self._data, bytes(-len(self._data) % 4)))
