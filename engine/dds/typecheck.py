"""A check that a type description is intact. A damaged one would make Cyclone DDS end the process.

A TypeMapping carries each type with the identifier that is computed from its bytes (XTypes 1.3, 7.3.4.8:
the first 14 bytes of their MD5 digest), so damage in storage or transfer is visible. The check finds
accidents, not attacks: an attacker can make a harmful type with fitting identifiers.
"""

from __future__ import annotations

import hashlib
import re
import struct
from typing import Final

from engine.dataset.groups import TypeDescription
from engine.dds.errors import BAD_PARAMETER, DdsError

MAX_TYPES: Final = 4096
"""Limit for the types in one description."""

_MINIMAL: Final = 0xF1
_COMPLETE: Final = 0xF2
_HASH_BYTES: Final = 14
_IDENTIFIER_BYTES: Final = 1 + _HASH_BYTES
_U32: Final = struct.Struct("<I")
# A hash identifier in a TypeInformation: the length of its structure, the kind, the hash.
_USED: Final = re.compile(rb"\x14\x00\x00\x00([\xf1\xf2].{14})", re.DOTALL)


class BrokenType(DdsError):
    """A type description is damaged at the place that the text names."""

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
        raise BrokenType(f"the type information of '{description.name}' does not name a type")
    for identifier in used:
        if identifier not in held:
            raise BrokenType(
                f"type {identifier.hex()} is missing in the type mapping of '{description.name}'"
            )


def _identifiers_in(mapping: bytes) -> set[bytes]:
    """Check the minimal types, the complete types, and the pairs of both (TypeMapping)."""
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
    """Return begin of the first element, end, and number of elements."""
    at += -at % 4
    (size,) = _U32.unpack_from(mapping, at)
    (count,) = _U32.unpack_from(mapping, at + 4)
    end = at + 4 + size
    if end > len(mapping) or count > MAX_TYPES:
        raise BrokenType(f"{count} types in {size} bytes are announced at {at}")
    return at + 8, end, count


def _check_type(mapping: bytes, at: int, end: int, kind: int, held: set[bytes]) -> int:
    """Check one type, and return the offset of the next."""
    identifier = mapping[at : at + _IDENTIFIER_BYTES]
    begin = at + _IDENTIFIER_BYTES
    begin += -begin % 4
    (size,) = _U32.unpack_from(mapping, begin)
    behind = begin + 4 + size
    if behind > end or identifier[:1] != bytes((kind,)):
        raise BrokenType(f"there is no type at {at}")
    # The standard prescribes MD5; it is not used for protection here.
    digest = hashlib.md5(mapping[begin:behind], usedforsecurity=False).digest()
    if digest[:_HASH_BYTES] != identifier[1:]:
        raise BrokenType(f"the type at {at} does not fit its identifier")
    held.add(identifier)
    return int(behind)
