"""Types of which only the name is known: applications of ROS 2 before Lyrical announce no more.

A topic without key needs no type to be kept: its payload travels as it is, and Cyclone DDS matches endpoints
by the name of the type if one of them announces no type information. The type support of the wheel makes
topics of known types only, so such a topic is made with a stand-in (`engine.dds.topics.untyped`), which is
not announced.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Final

from engine.dds import abi
from engine.dds.errors import UNSUPPORTED, DdsError, check

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
