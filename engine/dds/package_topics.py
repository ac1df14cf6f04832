"""Topics with the type support of the package cyclonedds, for installations without the compiled library.

It is private to the package: the function that makes such a topic, the attributes of a type that it reads,
and where a sample has its bytes (`abi.SERDATA`).
"""

from __future__ import annotations

import ctypes
import functools
import types
from typing import Final

from cyclonedds import _clayer

from engine.dataset.groups import TypeDescription
from engine.dds import abi
from engine.dds.errors import UNSUPPORTED, DdsError, check

_REMEMBERED_TYPES: Final = 4096
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


class _OpaqueType:
    """A substitute for a Python type class: Cyclone's type support reads only these attributes.

    Cyclone DDS compares types by calling into Python, unless it gets the same object; `_opaque_type`
    therefore makes one object for each description.
    """

    def __init__(self, description: TypeDescription) -> None:
        self._description = description
        self.__idl__ = types.SimpleNamespace(
            idl_transformed_typename=description.name,
            data_type_props=abi.KEYED if description.keyed else 0,
            supported_versions=abi.BOTH_REPRESENTATIONS,
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


def create(participant: int, topic_name: str, description: TypeDescription) -> int:
    """Make a topic; return the entity.

    Args:
        participant: the entity in whose domain it is.
        topic_name: the topic's name.
        description: its type; of one that is known by its name, nothing else is announced.

    Raises:
        DdsError: Cyclone DDS refuses the type, for example a recursive one.
    """
    action = f"create the topic '{topic_name}' of type '{description.name}'"
    try:
        entity = _clayer.ddspy_topic_create(participant, topic_name, _opaque_type(description), None, None)
    except (RuntimeError, TypeError, ValueError) as error:
        raise DdsError(-1, f"{action} ({error})") from error
    topic: int = check(entity, action)
    if description.is_untyped:
        _hide_type(topic)
    return topic


def _hide_type(topic: int) -> None:
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
