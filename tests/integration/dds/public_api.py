"""What a node needs of Cyclone DDS, by public functions only, in whatever library.

`python -m tests.integration.dds.public_api LIBRARY taken DOMAIN TOPIC COUNT`: a topic of a type that is
discovered, and samples as they were serialized. `... LIBRARY made DOMAIN`: topics of types that are known by
their bytes.
"""

from __future__ import annotations

import ctypes
import json
import re
import sys
import time
from typing import Any, Final

from engine.dds.abi import TopicDescriptor
from engine.dds.topics import description_of
from tests.integration.dds import sample_types
from tests.integration.untyped import descriptor_of, made

PUBLICATIONS: Final = 0x7FFF0003
"""DDS_BUILTIN_TOPIC_DCPSPUBLICATION."""
LOCAL: Final = 1
"""DDS_FIND_SCOPE_LOCAL_DOMAIN."""
WAIT_S: Final = 30.0
TIMEOUT_NS: Final = 5_000_000_000
WORDS: Final = 64


class Serdata(ctypes.Structure):
    """The public head of struct ddsi_serdata (ddsi_serdata.h), the same in 0.10 and 11."""

    _fields_ = [
        ("ops", ctypes.c_void_p),
        ("hash", ctypes.c_uint32),
        ("references", ctypes.c_uint32),
        ("kind", ctypes.c_int),
        ("type", ctypes.c_void_p),
        ("time", ctypes.c_int64),
        ("status", ctypes.c_uint32),
    ]


def type_of_writer(library: Any, participant: int, topic: str) -> ctypes.c_void_p:
    """The type information of a writer, once it is discovered."""
    reader = made(library.dds_create_reader(participant, PUBLICATIONS, None, None))
    until = time.monotonic() + WAIT_S
    while time.monotonic() < until:
        samples, facts = (ctypes.c_void_p * 1)(), (ctypes.c_uint64 * WORDS)()
        if made(library.dds_take(reader, samples, facts, ctypes.c_size_t(1), ctypes.c_uint32(1))):
            # struct dds_builtintopic_endpoint: key, participant_key, instance handle, topic_name
            name = ctypes.c_char_p.from_address((samples[0] or 0) + 40).value
            found = ctypes.c_void_p()
            library.dds_builtintopic_get_endpoint_type_info(ctypes.c_void_p(samples[0]), ctypes.byref(found))
            if name == topic.encode() and found.value:
                return found
        time.sleep(0.01)
    raise TimeoutError("no writer is discovered")


def content(library: Any, serdata: int) -> bytes:
    """The serialized bytes of a sample."""
    size = library.ddsi_serdata_size(ctypes.c_void_p(serdata))
    buffer = ctypes.create_string_buffer(size)
    library.ddsi_serdata_to_ser(ctypes.c_void_p(serdata), ctypes.c_size_t(0), ctypes.c_size_t(size), buffer)
    return buffer.raw


def take(path: str, domain: int, topic: str, count: int) -> None:
    """Take `count` samples of a writer in another process; print kind, status, bytes and key of each."""
    library = ctypes.CDLL(path)
    library.ddsi_serdata_to_untyped.restype = ctypes.c_void_p
    library.dds_create_qos.restype = ctypes.c_void_p
    participant = made(library.dds_create_participant(domain, None, None))
    type_ = type_of_writer(library, participant, topic)
    descriptor = ctypes.c_void_p()
    timeout = ctypes.c_int64(TIMEOUT_NS)
    made(library.dds_create_topic_descriptor(0, participant, type_, timeout, ctypes.byref(descriptor)))
    qos = ctypes.c_void_p(library.dds_create_qos())
    library.dds_qset_durability(qos, 2)
    library.dds_qset_reliability(qos, 1, timeout)
    library.dds_qset_history(qos, 1, 0)
    entity = made(library.dds_create_topic(participant, descriptor, topic.encode(), None, None))
    reader = made(library.dds_create_reader(participant, entity, qos, None))
    found: list[tuple[int, int, str, str]] = []
    until = time.monotonic() + WAIT_S
    while len(found) < count and time.monotonic() < until:
        serdata, facts = (ctypes.c_void_p * 1)(), (ctypes.c_uint64 * WORDS)()
        if not made(library.dds_takecdr(reader, serdata, ctypes.c_uint32(1), facts, ctypes.c_uint32(0))):
            time.sleep(0.01)
            continue
        sample = serdata[0] or 0
        head = Serdata.from_address(sample)
        key = library.ddsi_serdata_to_untyped(ctypes.c_void_p(sample))
        found.append((head.kind, head.status, content(library, sample).hex(), content(library, key).hex()))
    print(json.dumps(found))


def hashes_in(information: bytes) -> set[bytes]:
    """The hashes of types in a TypeInformation, whose order differs."""
    return set(re.findall(rb"\x14\x00\x00\x00([\xf1\xf2].{14})", information, re.DOTALL))


def make(path: str, domain: int) -> None:
    """Make topics of types that are not compiled in, and print whether each has just the type that was given.

    A topic of any layout with these type descriptions lets the library know them; the second one is theirs.
    """
    library = ctypes.CDLL(path)
    library.ddsi_typeinfo_deser.restype = ctypes.c_void_p
    participant = made(library.dds_create_participant(domain, None, None))
    found = {}
    for name, class_ in sample_types.TYPES.items():
        wanted = description_of(class_)
        stub = descriptor_of(wanted)
        made(library.dds_create_topic(participant, ctypes.byref(stub), f"stub{name}".encode(), None, None))
        size = ctypes.c_uint32(len(wanted.information))
        type_ = ctypes.c_void_p(library.ddsi_typeinfo_deser(wanted.information, size))
        descriptor = ctypes.c_void_p()
        made(
            library.dds_create_topic_descriptor(
                LOCAL, participant, type_, ctypes.c_int64(0), ctypes.byref(descriptor)
            )
        )
        made(library.dds_create_topic(participant, descriptor, name.encode(), None, None))
        told = TopicDescriptor.from_address(descriptor.value or 0)
        information = ctypes.string_at(told.type_information.data, told.type_information.size)
        found[name] = (
            hashes_in(information) == hashes_in(wanted.information) and bool(told.nkeys) == wanted.keyed
        )
    print(json.dumps(found))


if __name__ == "__main__":
    library_path, role, domain_id, *rest = sys.argv[1:]
    if role == "taken":
        take(library_path, int(domain_id), rest[0], int(rest[1]))
    else:
        make(library_path, int(domain_id))
