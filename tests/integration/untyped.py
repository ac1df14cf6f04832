"""An application like those of ROS 2: a type is known by its name only, and no type information is told."""

from __future__ import annotations

import ctypes
from typing import Any, Final

from cyclonedds.internal import DDS

from engine.dds.abi import TopicDescriptor

_ADR, _KOF, _RTS = 1 << 24, 7 << 24, 0
_FOUR_BYTES, _KEY = 3 << 16, 1
_FIXED_KEY: Final = 1 << 2
_KEYED_OPS: Final = (_ADR | _FOUR_BYTES | _KEY, 0, _RTS, _KOF | 1, 0)
_KEYLESS_OPS: Final = (_ADR | _FOUR_BYTES, 0, _RTS)


class _Key(ctypes.Structure):
    """dds_key_descriptor_t."""

    _fields_ = [("name", ctypes.c_char_p), ("offset", ctypes.c_uint32), ("index", ctypes.c_uint32)]


def _descriptor(*, keyed: bool) -> TopicDescriptor:
    """Of a struct with one 32-bit number."""
    ops = _KEYED_OPS if keyed else _KEYLESS_OPS
    made = TopicDescriptor()
    made.size = made.align = 4
    made.flagset = _FIXED_KEY if keyed else 0
    made.typename = b"bare::Keyed" if keyed else b"bare::Keyless"
    made.nkeys = int(keyed)
    made.ops = ctypes.cast((ctypes.c_uint32 * len(ops))(*ops), ctypes.c_void_p)
    made.nops = 3
    if keyed:
        made.keys = ctypes.cast(ctypes.pointer(_Key(b"number", 3, 0)), ctypes.c_void_p)
    made.meta = b""
    made.restrict_data_representation = 1
    return made


def write(domain: int, topic: str, *, keyed: bool, count: int) -> str:
    """Make a TRANSIENT writer and let it write; its GUID. It lives as long as the process."""
    library = ctypes.CDLL(DDS._dll_handle._name)
    library.dds_create_qos.restype = ctypes.c_void_p
    qos = ctypes.c_void_p(library.dds_create_qos())
    library.dds_qset_durability(qos, 2)
    library.dds_qset_reliability(qos, 1, ctypes.c_int64(10**10))

    def made(code: int) -> int:
        if code < 0:
            raise OSError(f"Cyclone DDS answers {code}")
        return code

    participant = made(library.dds_create_participant(domain, None, None))
    descriptor = _descriptor(keyed=keyed)
    entity = made(library.dds_create_topic(participant, ctypes.byref(descriptor), topic.encode(), None, None))
    writer = made(library.dds_create_writer(participant, entity, qos, None))
    for number in range(count):
        made(library.dds_write(writer, ctypes.byref(ctypes.c_uint32(number))))
    guid: Any = (ctypes.c_uint8 * 16)()
    made(library.dds_get_guid(writer, ctypes.byref(guid)))
    return bytes(guid).hex()
