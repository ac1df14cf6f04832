"""The data types of stored samples."""

from __future__ import annotations

import dataclasses
import functools
import struct
from typing import Final

from engine.dataset.content import Undecodable as Undecodable  # re-exported


@dataclasses.dataclass(frozen=True, slots=True)
class Primitive:
    """A number, character or truth value; `code` as in module struct."""

    name: str
    code: str

    @property
    def size(self) -> int:
        """Size in bytes, which is also the alignment in XCDR1."""
        return _size_of(self.code)


@functools.cache
def _size_of(code: str) -> int:
    return struct.calcsize(f"<{code}")


BOOLEAN: Final = Primitive("boolean", "?")
CHAR: Final = Primitive("char", "c")
OCTET: Final = Primitive("octet", "B")
INT8: Final = Primitive("int8", "b")
SHORT: Final = Primitive("short", "h")
USHORT: Final = Primitive("unsigned short", "H")
LONG: Final = Primitive("long", "i")
ULONG: Final = Primitive("unsigned long", "I")
LONGLONG: Final = Primitive("long long", "q")
ULONGLONG: Final = Primitive("unsigned long long", "Q")
FLOAT: Final = Primitive("float", "f")
DOUBLE: Final = Primitive("double", "d")


@dataclasses.dataclass(frozen=True, slots=True)
class Text:
    """A string of bytes; `bound` is its greatest length, 0 for none."""

    bound: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Sequence:
    """A sequence; `bound` is its greatest length, 0 for none."""

    element: Type
    bound: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Array:
    """An array of fixed size."""

    element: Type
    size: int


@dataclasses.dataclass(frozen=True, slots=True)
class Enumeration:
    """An enumeration: its labels and their values, in order."""

    name: str
    labels: tuple[tuple[str, int], ...]


@dataclasses.dataclass(frozen=True, slots=True)
class StructMember:
    """A field of a structure."""

    name: str
    type: Type


@dataclasses.dataclass(frozen=True, slots=True)
class Structure:
    """A final structure."""

    name: str
    members: tuple[StructMember, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class UnionCase:
    """A branch of a union; `labels` are discriminator values, None for the default."""

    name: str
    type: Type
    labels: tuple[int | None, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Union:
    """A final union."""

    name: str
    switch: Primitive | Enumeration
    cases: tuple[UnionCase, ...]

    def case_of(self, value: int) -> UnionCase | None:
        """Return the branch of a discriminator value; None if it has none."""
        for case in self.cases:
            if value in case.labels:
                return case
        return next((case for case in self.cases if None in case.labels), None)


Type = Primitive | Text | Sequence | Array | Enumeration | Structure | Union

Value = bool | int | float | str | list["Value"] | dict[str, "Value"]
"""A decoded value. A union is a dict of `switch` and the active branch; an enumeration its label."""

KeyPath = tuple[str, ...]


def key_paths(key_list: str) -> tuple[KeyPath, ...]:
    """Split a key list such as `id.number,name` into paths."""
    return tuple(tuple(part.strip().split(".")) for part in key_list.split(",") if part.strip())
