"""Types of discovered endpoints: from the announced reference to a description that can be stored."""

from __future__ import annotations

import ctypes
import dataclasses
import time
from typing import Final

from engine.dataset.groups import TypeDescription
from engine.dds import abi
from engine.dds.errors import DdsError
from engine.dds.participant import NodeParticipant

_MINIMAL: Final = 0
_COMPLETE: Final = 1
_HASH_BYTES: Final = 14
MAX_DESCRIPTION_BYTES: Final = 4 << 20
"""Larger type descriptions are refused; the largest seen in practice have a few kilobytes."""
ATTEMPTS: Final = 3
ATTEMPT_S: Final = 2.0
PAUSE_S: Final = 0.2
LOOK_UP_S: Final = ATTEMPTS * (ATTEMPT_S + PAUSE_S)
"""Limit for one look-up."""


class TypeRef:
    """The TypeInformation of an endpoint, copied out of the discovery data.

    Attributes:
        identity: the equivalence hashes of the complete and the minimal type, which are equal for equal
            types: one resolution serves all endpoints of a type.
    """

    __slots__ = ("_pointer", "identity")

    def __init__(self, pointer: int) -> None:
        self._pointer = pointer
        self.identity = _hash(pointer, _COMPLETE) + _hash(pointer, _MINIMAL)

    @classmethod
    def of_endpoint(cls, builtin_endpoint: int) -> TypeRef | None:
        """Copy it from the built-in sample at an address; None if the endpoint announces no type."""
        borrowed = ctypes.c_void_p()
        code = abi.endpoint_type(builtin_endpoint, ctypes.byref(borrowed))
        if code != 0 or not borrowed.value:
            return None
        copy = abi.duplicate_type(borrowed)
        return cls(copy) if copy else None

    @classmethod
    def of_description(cls, description: TypeDescription) -> TypeRef | None:
        """Make the reference of a type that was resolved before; None if the description is damaged."""
        information = description.information
        pointer = abi.read_type(information, len(information))
        return cls(pointer) if pointer else None

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


@dataclasses.dataclass(frozen=True, slots=True)
class Resolution:
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
                return _describe(abi.TopicDescriptor.from_address(descriptor.value))
            finally:
                abi.delete_descriptor(descriptor)
        error = DdsError(code, "look up the type")
    return Resolution(None, f"{error} ({attempts} attempts)")


def _describe(descriptor: abi.TopicDescriptor) -> Resolution:
    information, mapping = descriptor.type_information, descriptor.type_mapping
    size = information.size + mapping.size
    if size > MAX_DESCRIPTION_BYTES:
        return Resolution(None, f"the type description has {size} bytes, more than {MAX_DESCRIPTION_BYTES}")
    return Resolution(
        TypeDescription(
            name=descriptor.typename.decode("utf-8", "replace"),
            information=ctypes.string_at(information.data, information.size),
            mapping=ctypes.string_at(mapping.data, mapping.size),
            keyed=descriptor.nkeys > 0,
        )
    )
