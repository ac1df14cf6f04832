"""Topics of types that are known by description, or by name only, whether or not they have writers now."""

from __future__ import annotations

import base64
import ctypes
import dataclasses
import functools
import hashlib
import pathlib
import types
from typing import Final

from cyclonedds import _clayer
from cyclonedds.idl import make_idl_struct
from cyclonedds.idl.types import uint8

from engine.dataset.groups import UNTYPED_MEMBER, TypeDescription
from engine.dds import abi
from engine.dds.errors import UNSUPPORTED, DdsError, check
from engine.dds.participant import NodeParticipant
from engine.dds.typeinfo import check_description

_KEYLESS: Final = (0x03, 0x04)
"""Kinds of a writer and a reader without key, the last byte of a GUID (DDSI 2.3, 9.3.1.2)."""
_TYPE_FUNCTIONS: Final = ("type_id", "type_map", "type_info")


class _TypeOps(ctypes.Structure):
    """struct ddsi_sertype_ops (ddsi_sertype.h), the functions of a type."""

    _fields_ = [
        ("version", ctypes.c_void_p),
        ("arg", ctypes.c_void_p),
        ("free", ctypes.c_void_p),
        ("zero_samples", ctypes.c_void_p),
        ("realloc_samples", ctypes.c_void_p),
        ("free_samples", ctypes.c_void_p),
        ("equal", ctypes.c_void_p),
        ("hash", ctypes.c_void_p),
        ("type_id", ctypes.c_void_p),
        ("type_map", ctypes.c_void_p),
        ("type_info", ctypes.c_void_p),
        ("derive_sertype", ctypes.c_void_p),
        ("get_serialized_size", ctypes.c_void_p),
        ("serialize_into", ctypes.c_void_p),
    ]


class _Type(ctypes.Structure):
    """struct ddsi_sertype: begins with the pointer to its functions."""

    _fields_ = [("ops", ctypes.POINTER(_TypeOps))]


def is_keyless(endpoint: bytes) -> bool:
    """Tell by its GUID whether an application's endpoint is of a type without key."""
    return endpoint[-1] in _KEYLESS


def hide_type(topic: int) -> None:
    """Let readers and writers of a topic announce no type information; call it before any is made.

    Cyclone DDS allows types without these functions.

    Raises:
        DdsError: the topic was deleted, or the functions of its type are not as this release knows them.
    """
    pointer = ctypes.c_void_p()
    check(abi.sertype_of(topic, ctypes.byref(pointer)), "look up the functions of a type")
    assert pointer.value is not None
    type_ = _Type.from_address(pointer.value)
    if type_.ops.contents.version != abi.address_of(abi.sertype_version):
        raise DdsError(UNSUPPORTED, "the functions of a type are of an unknown version")
    type_.ops = ctypes.pointer(_without_type(ctypes.addressof(type_.ops.contents)))


@functools.cache
def _without_type(ops: int) -> _TypeOps:
    """Return these functions without those that tell the type; kept for as long as the process runs."""
    found = _TypeOps.from_buffer_copy(_TypeOps.from_address(ops))
    for name in _TYPE_FUNCTIONS:
        setattr(found, name, None)
    return found


_KEYED: Final = 1 << 12
_BOTH_REPRESENTATIONS: Final = 0b101
_REMEMBERED_TYPES: Final = 4096
DESCRIPTIONS: Final = pathlib.Path(__file__).with_name("own_types.tsv")
"""The types of our own topics, made by `docs.own_types`; to make the first of its class takes 0.1 s."""


class _OpaqueType:
    """A substitute for a Python type class: Cyclone's type support reads only these attributes.

    Cyclone DDS compares types by calling into Python, unless it gets the same object; `_opaque_type`
    therefore makes one object for each description.
    """

    def __init__(self, description: TypeDescription) -> None:
        self._description = description
        self.__idl__ = types.SimpleNamespace(
            idl_transformed_typename=description.name,
            data_type_props=_KEYED if description.keyed else 0,
            supported_versions=_BOTH_REPRESENTATIONS,
            _xt_bytedata=(description.information, description.mapping),
            populate=lambda: None,
            fill_type_data=lambda: None,
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _OpaqueType) and other._description == self._description

    def __hash__(self) -> int:
        return hash(self._description)


@functools.lru_cache(maxsize=_REMEMBERED_TYPES)
def _opaque_type(description: TypeDescription) -> _OpaqueType:
    return _OpaqueType(description)


class Topic:
    """A local topic entity; readers and writers are created on it.

    Attributes:
        entity: the handle.
        name: topic name.
        type: the type's description.
    """

    __slots__ = ("__weakref__", "_participant", "entity", "name", "type")

    def __init__(self, participant: NodeParticipant, entity: int, name: str, type_: TypeDescription) -> None:
        self._participant = participant
        self.entity = entity
        self.name = name
        self.type = type_
        participant.adopt(entity, self)

    @classmethod
    def of_class(cls, participant: NodeParticipant, topic_name: str, class_: type) -> Topic:
        """Open the topic `topic_name`, whose type is a class that was made from our IDL."""
        ours = _our_descriptions().get(name_of_class(class_))
        return open_topic(participant, topic_name, ours or description_of(class_))

    def close(self) -> None:
        """Delete the topic; close its readers and writers first. Idempotent."""
        abi.delete(self.entity)
        self._participant.disown(self.entity)


def name_of_class(class_: type) -> str:
    """Return the name of a class with that of its module."""
    return f"{class_.__module__}.{class_.__qualname__}"


@functools.cache
def _our_descriptions() -> dict[str, TypeDescription]:
    """Return the types of our own topics by the names of their classes."""
    found = {}
    for line in DESCRIPTIONS.read_text(encoding="ascii").splitlines():
        class_, name, keyed, information, mapping = line.split("\t")
        parts = base64.b85decode(information), base64.b85decode(mapping)
        found[class_] = TypeDescription(name, *parts, keyed == "1")
    return found


def description_of(class_: type) -> TypeDescription:
    """Return the type of an IDL class."""
    class_.__idl__.populate()  # type: ignore[attr-defined]  # every IDL class has it
    class_.__idl__.fill_type_data()  # type: ignore[attr-defined]  # put there by IdlStruct
    idl = class_.__idl__  # type: ignore[attr-defined]  # put there by IdlStruct
    information, mapping = idl._xt_bytedata
    keyed = bool(idl.data_type_props & _KEYED)
    return TypeDescription(idl.idl_transformed_typename, information, mapping, keyed)


@functools.lru_cache(maxsize=_REMEMBERED_TYPES)
def untyped(name: str) -> TypeDescription:
    """Return the stand-in for a type without key of which only this name is known."""
    unique = f"untyped_{hashlib.sha256(name.encode()).hexdigest()[:16]}"
    class_ = make_idl_struct(unique, unique, {UNTYPED_MEMBER: uint8})
    return dataclasses.replace(description_of(class_), name=name)


def open_topic(participant: NodeParticipant, topic_name: str, description: TypeDescription) -> Topic:
    """Open a topic with exactly this type; the type id on the wire is the original's.

    Two types under one topic name give two topics that do not match each other's readers and writers.

    Raises:
        BrokenType: the description is damaged.
        DdsError: Cyclone DDS refuses the type, for example a recursive one.
    """
    check_description(description)
    action = f"create the topic '{topic_name}' of type '{description.name}'"
    opaque = _opaque_type(description)
    try:
        entity = _clayer.ddspy_topic_create(participant.entity, topic_name, opaque, None, None)
    except (RuntimeError, TypeError, ValueError) as error:
        raise DdsError(-1, f"{action} ({error})") from error
    topic = Topic(participant, check(entity, action), topic_name, description)
    if description.is_untyped:
        hide_type(topic.entity)
    return topic
