"""Types of discovered endpoints: from the announced reference to a description that is checked and stored."""

from __future__ import annotations

import ctypes
import hashlib
import re
import struct
import time
from typing import Final

import msgspec

from engine.dataset.groups import TypeDescription
from engine.dds import abi
from engine.dds.errors import BAD_PARAMETER, DdsError
from engine.dds.participant import NodeParticipant

# A type has as many as structures it uses, tens; the number comes from the network.
MAX_TYPES: Final = 4096
"""Limit for the types in one description."""

# EK_MINIMAL and EK_COMPLETE (DDS-XTypes 7.3.4).
_MINIMAL_KIND: Final = 0xF1
_COMPLETE_KIND: Final = 0xF2
# An equivalence hash is the first 14 bytes of an MD5 digest (DDS-XTypes 7.3.1.2).
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
    if {identifier[0] for identifier in used} != {_MINIMAL_KIND, _COMPLETE_KIND}:
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
    for kind in (_MINIMAL_KIND, _COMPLETE_KIND):
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


_MINIMAL: Final = 0
_COMPLETE: Final = 1
MAX_DESCRIPTION_BYTES: Final = 4 << 20
"""Larger type descriptions are refused; the largest seen in practice have a few kilobytes."""
# The first question may go out before the type look-up service of the other process is matched; one more
# for a lost answer.
ATTEMPTS: Final = 3
ATTEMPT_S: Final = 2.0
"""Seconds for one question: an answer takes milliseconds, and a lost one is asked for again."""
# Matching takes some tens of milliseconds on one machine. Longer delays the capture of a new topic.
PAUSE_S: Final = 0.2
"""Pause before the next question, so that discovery has gone on meanwhile."""
LOOK_UP_S: Final = ATTEMPTS * (ATTEMPT_S + PAUSE_S)
"""Limit for one look-up."""


_KEYLESS: Final = (0x03, 0x04)
"""Kinds of a writer and a reader without key, the last byte of a GUID (DDSI 2.3, 9.3.1.2)."""


def is_keyless(endpoint: bytes) -> bool:
    """Tell by its GUID whether an application's endpoint is of a type without key."""
    return endpoint[-1] in _KEYLESS


class TypeRef:
    """The TypeInformation of an endpoint, copied out of the discovery data.

    Attributes:
        identity: the equivalence hashes of the complete and the minimal type, which are equal for equal
            types: one resolution serves all endpoints of a type.
        is_keyed: whether its endpoints are of the kind with a key. That decides whether they match; Cyclone
            DDS finds no key in some types that the package cyclonedds calls keyed, such as a union as key.
    """

    __slots__ = ("_pointer", "identity", "is_keyed")

    def __init__(self, pointer: int, *, is_keyed: bool) -> None:
        self._pointer = pointer
        self.is_keyed = is_keyed
        self.identity = _hash(pointer, _COMPLETE) + _hash(pointer, _MINIMAL)

    @classmethod
    def of_endpoint(cls, builtin_endpoint: int) -> TypeRef | None:
        """Copy it from the built-in sample at an address; None if the endpoint announces no type."""
        borrowed = ctypes.c_void_p()
        code = abi.endpoint_type(builtin_endpoint, ctypes.byref(borrowed))
        if code != 0 or not borrowed.value:
            return None
        copy = abi.duplicate_type(borrowed)
        guid = bytes(abi.BuiltinEndpoint.from_address(builtin_endpoint).key)
        return cls(copy, is_keyed=not is_keyless(guid)) if copy else None

    @classmethod
    def of_description(cls, description: TypeDescription) -> TypeRef | None:
        """Make the reference of a type that was resolved before; None if the description is damaged."""
        information = description.information
        pointer = abi.read_type(information, len(information))
        return cls(pointer, is_keyed=description.keyed) if pointer else None

    @property
    def minimal(self) -> bytes:
        """Equivalence hash of the minimal type: of what decides whether two types can be exchanged."""
        return self.identity[_HASH_BYTES:]

    @property
    def pointer(self) -> int:
        """Address of the C object, valid while this reference lives."""
        return self._pointer

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TypeRef) and other.identity == self.identity

    def __hash__(self) -> int:
        return hash(self.identity)

    def __repr__(self) -> str:
        return f"TypeRef({self.identity.hex()[:12]})"

    def __del__(self) -> None:
        abi.free_type(self._pointer)


def _hash(type_information: int, kind: int) -> bytes:
    identifier = abi.type_identifier(type_information, kind)
    if not identifier:
        return bytes(_HASH_BYTES)
    buffer = (ctypes.c_uint8 * _HASH_BYTES)()
    abi.type_identifier_hash(identifier, buffer)
    abi.type_identifier_fini(identifier)
    abi.release(identifier)
    return bytes(buffer)


class Resolution(msgspec.Struct, frozen=True):
    """Result of `resolve_type`: a type, or the reason for its lack."""

    type: TypeDescription | None
    reason: str = ""


def resolve_type(
    participant: NodeParticipant,
    reference: TypeRef,
    *,
    attempts: int = ATTEMPTS,
    attempt_timeout_s: float = ATTEMPT_S,
    pause_s: float = PAUSE_S,
) -> Resolution:
    """Request a type from the network. This blocks; call it in a worker thread.

    It repeats the request up to `attempts` times if the owner dies or does not answer; another participant
    that uses the type may answer instead. An attempt lasts up to `attempt_timeout_s` seconds; `pause_s`
    seconds pass between two.
    """
    error: DdsError | None = None
    for attempt in range(attempts):
        if attempt:
            # A worker's own thread: nothing else waits for it.
            time.sleep(pause_s)
        if participant.closed:
            return Resolution(None, "the participant was closed")
        descriptor = ctypes.c_void_p()
        code = abi.create_descriptor(
            abi.FIND_GLOBAL,
            participant.entity,
            reference.pointer,
            round(attempt_timeout_s * 1e9),
            ctypes.byref(descriptor),
        )
        if code == 0 and descriptor.value:
            try:
                found = abi.TopicDescriptor.from_address(descriptor.value)
                return _describe(found, is_keyed=reference.is_keyed)
            finally:
                abi.delete_descriptor(descriptor)
        error = DdsError(code, "look up the type")
    return Resolution(None, f"{error} ({attempts} attempts)")


def _describe(descriptor: abi.TopicDescriptor, *, is_keyed: bool) -> Resolution:
    information, mapping = descriptor.type_information, descriptor.type_mapping
    size = information.size + mapping.size
    if size > MAX_DESCRIPTION_BYTES:
        return Resolution(None, f"the type description has {size} bytes, more than {MAX_DESCRIPTION_BYTES}")
    return Resolution(
        TypeDescription(
            name=descriptor.typename.decode("utf-8", "replace"),
            information=ctypes.string_at(information.data, information.size),
            mapping=ctypes.string_at(mapping.data, mapping.size),
            keyed=is_keyed,
        )
    )
