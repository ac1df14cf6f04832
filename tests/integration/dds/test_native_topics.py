"""Topics of the compiled library beside those of the package cyclonedds: the same samples, byte for byte."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import random
import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

from engine.dataset.groups import TypeDescription
from engine.dds import abi, native_topics
from engine.dds.errors import DdsError
from engine.dds.participant import NodeParticipant, free_domain_id
from engine.dds.selfcheck import create_package_topic
from engine.dds.topics import description_of, untyped
from engine.dds.uri import private_uri
from tests.integration.dds import sample_types

if TYPE_CHECKING:
    from collections.abc import Iterator


KEY, DATA = 1, 2
"""Kinds of samples in Cyclone DDS."""
KEY_HASH_AT: Final = 14 * 8
"""Where struct ddsi_serdata_ops has the function that gives the hash of a key."""
TYPE_ID_AT: Final = 8 * 8
"""Where struct ddsi_sertype_ops has the functions that tell the type."""
MOST_BYTES: Final = 96
CHANGES: Final = 40


class Pair(NamedTuple):
    """Two topics of one type."""

    ours: int
    theirs: int


@contextlib.contextmanager
def alone() -> Iterator[NodeParticipant]:
    """A participant in a domain of its own."""
    with free_domain_id() as domain, NodeParticipant(domain, private_uri(), "pair", os.urandom(16)) as made:
        yield made


@pytest.fixture(scope="module")
def participant() -> Iterator[NodeParticipant]:
    with alone() as made:
        yield made


_numbers = itertools.count()


def pair(participant: NodeParticipant, type_: TypeDescription) -> Pair:
    name = f"T{next(_numbers)}"
    ours = native_topics.create(participant.entity, f"{name}ours", type_)
    return Pair(ours, create_package_topic(participant.entity, f"{name}theirs", type_))


def in_both(topics: Pair, payload: bytes, *, is_key: bool = False) -> tuple[bytes, bytes] | None:
    """Key and bytes of a sample, or None; the same in both topics."""
    ours, theirs = (abi.as_written(one, payload, is_key=is_key) for one in topics)
    assert ours == theirs, payload.hex()
    return ours


def key_hash(topic: int, payload: bytes, *, kind: int, as_md5: bool) -> bytes:
    sertype = ctypes.c_void_p()
    abi.sertype_of(topic, ctypes.byref(sertype))
    sample = abi.SampleBytes(payload, len(payload))
    serdata = abi._serdata_from(sertype, kind, ctypes.byref(sample))
    assert serdata
    ops = ctypes.c_uint64.from_address(serdata).value
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_bool)
    buffer = ctypes.create_string_buffer(16)
    function(ctypes.c_uint64.from_address(ops + KEY_HASH_AT).value)(serdata, buffer, as_md5)
    abi.serdata_unref(serdata)
    return buffer.raw


def told(topic: int) -> list[int]:
    """The functions that tell a type: its ids, its mapping and its information."""
    sertype = ctypes.c_void_p()
    abi.sertype_of(topic, ctypes.byref(sertype))
    ops = ctypes.c_uint64.from_address(sertype.value or 0).value
    return list((ctypes.c_uint64 * 3).from_address(ops + TYPE_ID_AT))


@pytest.mark.parametrize("class_", sample_types.SAMPLES, ids=lambda one: one.__name__)
@pytest.mark.parametrize("version_2", [False, True])
def test_samples_of_every_type_have_the_bytes_key_and_hash_of_the_package(
    participant: NodeParticipant, class_: Any, version_2: bool
) -> None:
    type_ = description_of(class_)
    topics = pair(participant, type_)
    for number in range(1, 8):
        value = sample_types.SAMPLES[class_](number)
        whole = value.serialize(use_version_2=version_2)
        content = in_both(topics, whole)
        assert content is not None
        assert content[1] == whole
        assert bool(content[0]) == type_.keyed
        forms = [(whole, DATA)]
        if type_.keyed:
            key_only = value.serialize_key(use_version_2=version_2)
            assert in_both(topics, key_only, is_key=True) == (content[0], key_only)
            forms.append((key_only, KEY))
        for payload, kind in forms:
            for as_md5 in (False, True):
                ours, theirs = (key_hash(one, payload, kind=kind, as_md5=as_md5) for one in topics)
                assert ours == theirs


@pytest.mark.parametrize("class_", sample_types.SAMPLES, ids=lambda one: one.__name__)
def test_what_is_not_of_the_type_is_refused_as_the_package_refuses_it(
    participant: NodeParticipant, class_: Any
) -> None:
    """Cut off, with more behind, and with drawn changes."""
    topics = pair(participant, description_of(class_))
    drawn = random.Random(19)
    value = sample_types.SAMPLES[class_](3)
    for version_2, is_key in itertools.product((False, True), repeat=2):
        made = value.serialize_key if is_key else value.serialize
        whole = made(use_version_2=version_2)
        for size in range(4, min(len(whole), MOST_BYTES)):
            in_both(topics, whole[:size], is_key=is_key)
        in_both(topics, whole + bytes(8), is_key=is_key)
        for _ in range(CHANGES):
            changed = bytearray(whole)
            changed[drawn.randrange(4, max(5, len(whole))) % len(whole)] = drawn.randrange(256)
            in_both(topics, bytes(changed), is_key=is_key)


def test_a_sample_of_the_other_byte_order_is_turned(participant: NodeParticipant) -> None:
    topics = pair(participant, description_of(sample_types.Plain))
    found = in_both(topics, b"\0\0\0\0" + struct.pack(">iid", 7, 0, 1.5))
    assert found == (struct.pack("<i", 7), b"\0\1\0\0" + struct.pack("<iid", 7, 0, 1.5))


def test_a_sample_without_its_header_is_refused(participant: NodeParticipant) -> None:
    """The package reads beyond such a sample, so it is not asked."""
    topic = native_topics.create(participant.entity, "Short", description_of(sample_types.Keyless))
    assert [abi.as_written(topic, bytes(size)) for size in range(4)] == [None] * 4


def test_of_a_type_known_by_name_every_payload_is_a_sample(participant: NodeParticipant) -> None:
    topic = native_topics.create(participant.entity, "Bare", untyped("some::Type"))
    for payload in (b"\0\1\0\0", b"\0\1\0\0abc", b"\0\7\0\0" + bytes(1000)):
        assert abi.as_written(topic, payload) == (b"", payload)
    assert told(topic) == [0, 0, 0]
    assert all(told(native_topics.create(participant.entity, "Told", description_of(sample_types.Plain))))


def test_topics_of_equal_types_share_one_and_keep_it_when_the_first_goes(
    participant: NodeParticipant,
) -> None:
    type_ = description_of(sample_types.Growing)
    payload = sample_types.SAMPLES[sample_types.Growing](3).serialize()
    first, second = (native_topics.create(participant.entity, f"Shared{n}", type_) for n in range(2))
    pointers = [ctypes.c_void_p(), ctypes.c_void_p()]
    for topic, pointer in zip((first, second), pointers, strict=True):
        abi.sertype_of(topic, ctypes.byref(pointer))
    assert pointers[0].value == pointers[1].value
    abi.delete(first)
    content = abi.as_written(second, payload)
    assert content is not None
    assert content[1] == payload
    abi.delete(second)


def test_a_type_that_cannot_be_described_leaves_no_topic() -> None:
    other, plain = description_of(sample_types.Growing), description_of(sample_types.Plain)
    mixed = TypeDescription("shop::Mixed", plain.information, other.mapping, keyed=True)
    with alone() as participant:
        with pytest.raises(DdsError, match="create the topic 'Mixed' of type 'shop::Mixed'"):
            native_topics.create(participant.entity, "Mixed", mixed)
        assert native_topics.create(participant.entity, "Mixed", plain) > 0
