"""An application in C: by default like those of ROS 2, whose types are known by name only.

With `typed` it tells its type. With `mute`, too, but it does not answer who asks for it. With `broken` it
tells another type. With `untimed` it sends no source timestamps. With `library` it
uses another libddsc than the one of the Python package.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from cyclonedds.internal import DDS

from engine.dds.abi import SampleInfo, TopicDescriptor
from engine.dds.topics import description_of
from tests.integration.application_types import Keyed, Keyless, Reading
from tests.integration.applications import commands, say

_ADR, _KOF, _RTS = 1 << 24, 7 << 24, 0
_FOUR_BYTES, _KEY = 3 << 16, 1
_FIXED_KEY: Final = 1 << 1
"""DDS_TOPIC_FIXED_KEY."""
_TELLS_TYPE: Final = 1 << 6
"""DDS_TOPIC_XTYPES_METADATA."""
_KEYED_OPS: Final = (_ADR | _FOUR_BYTES | _KEY, 0, _RTS, _KOF | 1, 0)
_KEYLESS_OPS: Final = (_ADR | _FOUR_BYTES, 0, _RTS)


class _Key(ctypes.Structure):
    """dds_key_descriptor_t."""

    _fields_ = [("name", ctypes.c_char_p), ("offset", ctypes.c_uint32), ("index", ctypes.c_uint32)]


def _descriptor(*, keyed: bool, typed: bool, mute: bool, broken: bool) -> TopicDescriptor:
    """Of a struct with one 32-bit number; a mute one lacks its types, a broken one names another."""
    ops = _KEYED_OPS if keyed else _KEYLESS_OPS
    found = TopicDescriptor()
    found.size = found.align = 4
    found.flagset = (_FIXED_KEY if keyed else 0) | (_TELLS_TYPE if typed else 0)
    found.typename = b"bare::Keyed" if keyed else b"bare::Keyless"
    found.nkeys = int(keyed)
    found.ops = ctypes.cast((ctypes.c_uint32 * len(ops))(*ops), ctypes.c_void_p)
    found.nops = 3
    if keyed:
        found.keys = ctypes.cast(ctypes.pointer(_Key(b"number", 3, 0)), ctypes.c_void_p)
    found.meta = b""
    found.restrict_data_representation = 1
    if typed:
        type_ = description_of(Reading if broken else Keyed if keyed else Keyless)
        known = description_of(Keyless if keyed else Keyed) if mute else type_
        _tell(found, type_.information, known.mapping)
    return found


def _tell(descriptor: TopicDescriptor, information: bytes, mapping: bytes) -> None:
    for blob, told in ((descriptor.type_information, information), (descriptor.type_mapping, mapping)):
        blob.data, blob.size = ctypes.cast(ctypes.c_char_p(told), ctypes.c_void_p), len(told)


_QOS_AT = 56
"""Offset of the QoS in dds_builtintopic_endpoint_t, behind two GUIDs, a handle and two names."""


def made(code: int) -> int:
    """What a function of Cyclone DDS returned, unless it is an error."""
    if code < 0:
        raise OSError(f"Cyclone DDS answers {code}")
    return code


class Bare:
    """A participant with one topic, and one writer or reader of it; they live as long as the process."""

    def __init__(self, options: dict[str, Any]) -> None:
        keyed, durability = options.get("keyed", False), options.get("durability", 2)
        library = self._library = ctypes.CDLL(options.get("library", DDS._dll_handle._name))
        library.dds_create_qos.restype = ctypes.c_void_p
        self._qos = ctypes.c_void_p(library.dds_create_qos())
        library.dds_qset_durability(self._qos, durability)
        library.dds_qset_reliability(self._qos, 1, ctypes.c_int64(10**10))
        library.dds_qset_history(self._qos, 1, 0)
        if depth := options.get("depth"):
            library.dds_qset_durability_service(self._qos, ctypes.c_int64(0), 0, depth, -1, -1, -1)
        self._untimed = options.get("untimed", False)
        library.dds_qset_writer_data_lifecycle(self._qos, ctypes.c_bool(False))
        self._participant = made(library.dds_create_participant(options["domain"], None, None))
        mute = options.get("mute", False)
        broken = options.get("broken", False)
        typed = mute or broken or options.get("typed", False)
        told = _descriptor(keyed=keyed, typed=typed, mute=mute, broken=broken)
        self._descriptor = ctypes.byref(told)
        name = options["topic"].encode()
        make = library.dds_create_topic
        self._topic = made(make(self._participant, self._descriptor, name, self._qos, None))

    def write(self, numbers: Iterable[int], *, readers: int = 0) -> str:
        """Make a writer, wait for this number of readers, and write; its GUID."""
        library = self._library
        self._writer = made(library.dds_create_writer(self._participant, self._topic, self._qos, None))
        self.write_more(numbers, readers=readers)
        guid: Any = (ctypes.c_uint8 * 16)()
        made(library.dds_get_guid(self._writer, ctypes.byref(guid)))
        return bytes(guid).hex()

    def write_more(self, numbers: Iterable[int], *, readers: int) -> None:
        """The same with the writer that there is."""
        library, writer = self._library, self._writer
        while made(library.dds_get_matched_subscriptions(writer, None, 0)) < readers:
            time.sleep(0.01)
        for number in numbers:
            # Without a source timestamp a sample is received with the time 0.
            time_ns = 0 if self._untimed else time.time_ns()
            made(library.dds_write_ts(writer, ctypes.byref(ctypes.c_uint32(number)), ctypes.c_int64(time_ns)))
        made(library.dds_wait_for_acks(writer, ctypes.c_int64(10**10)))

    def tags(self) -> list[str]:
        """The USER_DATA of the readers that match the writer."""
        library, found = self._library, []
        library.dds_get_matched_subscription_data.restype = ctypes.c_void_p
        handles = (ctypes.c_uint64 * 64)()
        count = made(library.dds_get_matched_subscriptions(self._writer, handles, ctypes.c_size_t(64)))
        for handle in handles[:count]:
            data = library.dds_get_matched_subscription_data(self._writer, ctypes.c_uint64(handle))
            qos = ctypes.c_void_p.from_address(data + _QOS_AT)
            value, size = ctypes.c_char_p(), ctypes.c_size_t()
            library.dds_qget_userdata(qos, ctypes.byref(value), ctypes.byref(size))
            found.append((value.value or b"").decode())
        return sorted(found)

    def read(self) -> Callable[[], list[int]]:
        """Make a reader; a function that takes what has come."""
        library = self._library
        reader = made(library.dds_create_reader(self._participant, self._topic, self._qos, None))

        def take() -> list[int]:
            samples = (ctypes.c_void_p * 64)()
            facts = (SampleInfo * 64)()
            count = made(library.dds_take(reader, samples, facts, ctypes.c_size_t(64), ctypes.c_uint32(64)))
            found = [
                ctypes.c_uint32.from_address(sample or 0).value
                for sample, fact in zip(samples[:count], facts, strict=False)
                if fact.valid_data
            ]
            if count:
                made(library.dds_return_loan(reader, samples, ctypes.c_int32(count)))
            return found

        return take


def writer(options: dict[str, Any]) -> None:
    """A writer of the numbers below `count`, and of one more for each line; it ends when it is told to.

    The line `tags` asks for its tags instead.

    Other options: `durability`, `depth`, `readers` to wait for, `first` number, `typed`, `mute`, `broken`,
    `untimed`, `library`.
    """
    side = Bare(options)
    first = options.get("first", 0)
    end = first + options["count"]
    guid = side.write(range(first, end), readers=options.get("readers", 0))
    say(guid=guid, tags=side.tags())
    for command in commands():
        if "tags" in command:
            say(tags=side.tags())
            continue
        side.write_more([end], readers=1)
        say(wrote=end)
        end += 1


def reader(options: dict[str, Any]) -> None:
    """A reader; each line is answered with the numbers that it got so far."""
    take = Bare(options).read()
    say(ready=True)
    numbers: list[int] = []
    for _ in commands():
        numbers += take()
        say(numbers=numbers)
