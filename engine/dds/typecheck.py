"""Whether a type description is whole. Cyclone DDS trusts what it is given and would end the process.

A TypeMapping carries each type with the identifier that is computed from its bytes (XTypes 1.3, 7.3.4.8:
the first 14 bytes of their MD5 digest). So damage shows, wherever the description was kept meanwhile. This
finds accidents, not attacks: whoever can make a type can make a harmful one with fitting identifiers.
"""

from __future__ import annotations

import hashlib
import re
import struct
from typing import Final

from engine.dataset.groups import TypeDescription
from engine.dds.errors import BAD_PARAMETER, DdsError

MAX_TYPES: Final = 4096
"""Types in one description; more is refused."""

_MINIMAL: Final = 0xF1
_COMPLETE: Final = 0xF2
_HASH_BYTES: Final = 14
_IDENTIFIER_BYTES: Final = 1 + _HASH_BYTES
_U32: Final = struct.Struct("<I")
# A hash identifier in a TypeInformation: the length of its structure, the kind, the hash.
_USED: Final = re.compile(rb"\x14\x00\x00\x00([\xf1\xf2].{14})", re.DOTALL)


class BrokenType(DdsError):
    """A type description is damaged. The text says where."""

    def __init__(self, text: str) -> None:
        super().__init__(BAD_PARAMETER, text)
        self.args = (text,)


def check_description(description: TypeDescription) -> None:
    """Refuse a damaged description.

    Raises:
        BrokenType: a type does not have the identifier that its bytes give, a type that the description
            refers to is not in it, or the structure is broken.
    """
    try:
        held = _identifiers_in(description.mapping)
    except struct.error:
        raise BrokenType(f"the type mapping of '{description.name}' is cut off") from None
    except BrokenType as error:
        raise BrokenType(f"the type mapping of '{description.name}' is damaged: {error}") from None
    used = _USED.findall(description.information)
    if {identifier[0] for identifier in used} != {_MINIMAL, _COMPLETE}:
        raise BrokenType(f"the type information of '{description.name}' names no type")
    for identifier in used:
        if identifier not in held:
            raise BrokenType(
                f"type {identifier.hex()} is missing in the type mapping of '{description.name}'"
            )


def _identifiers_in(mapping: bytes) -> set[bytes]:
    """Walk through the minimal types, the complete types, and the pairs of both (TypeMapping)."""
    held: set[bytes] = set()
    at = 0
    for kind in (_MINIMAL, _COMPLETE):
        at, end, count = _sequence(mapping, at)
        for _ in range(count):
            at = _check_type(mapping, at, end, kind, held)
        if at != end:
            raise BrokenType(f"{end - at} bytes too many at {at}")
    at, end, count = _sequence(mapping, at)
    if end - at != count * 2 * _IDENTIFIER_BYTES or end != len(mapping):
        raise BrokenType(f"its end at {end} is not where it should be")
    for start in range(at, end, _IDENTIFIER_BYTES):
        if mapping[start : start + _IDENTIFIER_BYTES] not in held:
            raise BrokenType(f"it names an unknown type at {start}")
    return held


def _sequence(mapping: bytes, at: int) -> tuple[int, int, int]:
    """Begin of the first element, end, and number of elements."""
    at += -at % 4
    (size,) = _U32.unpack_from(mapping, at)
    (count,) = _U32.unpack_from(mapping, at + 4)
    end = at + 4 + size
    if end > len(mapping) or count > MAX_TYPES:
        raise BrokenType(f"{count} types in {size} bytes are announced at {at}")
    return at + 8, end, count


def _check_type(mapping: bytes, at: int, end: int, kind: int, held: set[bytes]) -> int:
    """Check one type, and return where the next begins."""
    identifier = mapping[at : at + _IDENTIFIER_BYTES]
    begin = at + _IDENTIFIER_BYTES
    begin += -begin % 4
    (size,) = _U32.unpack_from(mapping, begin)
    behind = begin + 4 + size
    if behind > end or identifier[:1] != bytes((kind,)):
        raise BrokenType(f"no type at {at}")
    # MD5 is what the standard prescribes; it protects nothing here.
    digest = hashlib.md5(mapping[begin:behind], usedforsecurity=False).digest()
    if digest[:_HASH_BYTES] != identifier[1:]:
        raise BrokenType(f"the type at {at} is not what its identifier says")
    held.add(identifier)
    return int(behind)
