from __future__ import annotations

import random

import msgspec
import pytest

from docs import client_durability as wiretypes
from engine.core.name_spaces import Group
from engine.dataset.groups import DurabilityKind, GroupQos
from engine.dataset.sample import DATA, DISPOSE, UNREGISTER, make_sample
from engine.dds.cdr import Malformed
from engine.dds.client_protocol import extensions
from engine.dds.client_protocol.messages import (
    INFINITE,
    ZERO,
    Bead,
    ByteOrder,
    Completeness,
    ErrorCode,
    GroupState,
    HistoryRequest,
    Link,
    RequestId,
    StateAnswer,
    StateRequest,
    Time,
    decode,
    decode_history,
    encode,
    encode_link,
)

REAL_BEAD = bytes.fromhex(
    "000100000100000001100000000000007a858b620000000000000000010000003916000094702f5b72661001c1010000"
    "992471cf0100000000003dbf0e3b3b05000001000000000000000e3b79fc006b591ba929020000000100000000000000"
    "01000000000000000300000000000000000000860000000000000000ffffff7fffffff7f00000000ffffff7fffffff7f"
    "ffffff7fffffff7f0000000001000000060000007061727441000000000000330000000000000000000000000200312f"
    "4900000033000000020000003d00000054312f7061727441206b65793d303030303531207365713d32207a6162636465"
    "666768696a6b6c6d6e6f707172737475767778797a616263646566670000000000000000"
)
"""A sample of a historical set, as a real service sent it."""

SERVER = bytes(range(16))
REQUEST = RequestId(bytes(range(0xF0, 0x100)), 77)
QOS = GroupQos(DurabilityKind.PERSISTENT, history_depth=5, by_source_timestamp=True)
HISTORY_REQUEST = HistoryRequest(
    REQUEST,
    "Observation",
    ("ships*", "", "weather"),
    ByteOrder.LITTLE_ENDIAN,
    3,
    Time(10, 5),
    INFINITE,
    "value > %0",
    ("3", "it's"),
    5,
    6,
    7,
    ("durabilityPartition.x",),
    (SERVER, bytes(16)),
    Time(0, 500_000_000),
    {"ospltool": b'{"follow":true}', "x": b""},
)
STATE_REQUEST = StateRequest(REQUEST, "Observation", ("a", "*"), (SERVER,), Time(1, 2), {"n": b"\0\1"})
STATE = StateAnswer(
    SERVER,
    (REQUEST, RequestId(bytes(16), 0)),
    (GroupState("a", "T", Completeness.COMPLETE), GroupState("", "U", 1)),
    {"ospltool": b"{}"},
)
MESSAGES = [
    HISTORY_REQUEST,
    msgspec.structs.replace(HISTORY_REQUEST, topic="", partitions=()),
    STATE_REQUEST,
    STATE,
]


def text(value: str) -> list[int]:
    return list(value.encode() + b"\0")


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_comes_back_as_it_was_sent(message: HistoryRequest | StateRequest | StateAnswer) -> None:
    assert decode(type(message), encode(message)) == message


def test_a_message_of_the_real_service_is_understood() -> None:
    history = decode_history(REAL_BEAD)
    assert isinstance(history.content, Bead)
    assert history.content.partitions == ("partA",)
    assert history.content.source_time == Time(1795226745, 698948441)
    sample, depth = extensions.sample_of(history.content, history.extensions)
    assert (sample.status, depth, sample.payload[:4].hex()) == (DATA, None, "00010000")
    assert b"T1/partA key=000051 seq=2" in sample.payload


def test_cyclone_reads_from_our_bytes_what_we_wrote() -> None:
    read = wiretypes.HistoricalDataRequest.deserialize(encode(HISTORY_REQUEST))
    assert [read.topic, read.partitions] == [text("Observation"), [text("ships*"), [0], text("weather")]]
    assert (read.request.number, read.qos.durability, read.qos.history) == (77, 3, 1)
    assert (read.max_samples, read.max_instances, read.max_samples_per_instance) == (5, 6, 7)
    assert read.request.client.prefix == int.from_bytes(REQUEST.client[:8], signed=True)
    assert [bytes(one.value) for one in read.extensions] == [b'{"follow":true}', b""]
    state = wiretypes.DurabilityState.deserialize(encode(STATE))
    assert [(one.partition, one.completeness) for one in state.groups] == [(text("a"), 2), ([0], 1)]
    request = wiretypes.DurabilityStateRequest.deserialize(encode(STATE_REQUEST))
    assert (request.timeout.seconds, request.timeout.nanoseconds) == (1, 2)
    link = wiretypes.HistoricalData.deserialize(
        encode_link(SERVER, REQUEST, Link(3, 2, ErrorCode.NOT_RESPONSIBLE), {})
    )
    assert (link.content.value.count, link.content.value.error) == (3, 0x80000001)


@pytest.mark.parametrize("status", [DATA, DISPOSE, UNREGISTER, DATA | DISPOSE, DISPOSE | UNREGISTER])
@pytest.mark.parametrize("header", ["00010000", "00000000", "00070001", "00090002", "00060000"])
@pytest.mark.parametrize("partition", ["", "a", "ab", "abc", "abcd"])
def test_a_sample_comes_back_with_key_status_sequence_and_encapsulation(
    status: int, header: str, partition: str
) -> None:
    payload = bytes.fromhex(header) + b"payload"
    sample = make_sample(1_700_000_000_123_456_789, bytes(range(16)), status, b"k" * 20, payload, 1 << 40)
    encoder = extensions.SampleEncoder(SERVER, REQUEST, Group(partition, "T"), QOS, ours=True)
    encoded = encoder.encode(sample)
    history = decode_history(encoded)
    assert isinstance(history.content, Bead)
    assert extensions.sample_of(history.content, history.extensions) == (sample, 5)
    assert (history.server, history.requests) == (SERVER, (REQUEST,))
    read = wiretypes.HistoricalData.deserialize(encoded).content.value
    assert [read.partitions, read.qos.durability] == [[text(partition)], 3]
    assert (read.source_time.seconds, bytes(read.payload)) == (1_700_000_000, b"payload")


def test_a_client_of_another_product_gets_a_dispose_with_an_earlier_sample() -> None:
    sample = make_sample(5, bytes(16), DISPOSE, b"key", b"\0\7\0\0key")
    encoder = extensions.SampleEncoder(SERVER, REQUEST, Group("a", "T"), QOS, ours=False)
    history = decode_history(encoder.encode(sample, b"whole"))
    assert isinstance(history.content, Bead)
    assert (history.content.kind, history.content.payload, history.extensions) == (1, b"whole", {})


@pytest.mark.parametrize("message", MESSAGES)
def test_damaged_bytes_are_refused_and_nothing_else_happens(
    message: HistoryRequest | StateRequest | StateAnswer,
) -> None:
    whole = encode(message)
    chance = random.Random(7)
    refused = 0
    damaged = [whole[:size] for size in range(len(whole) - 4)]
    for _ in range(2000):
        bytes_ = bytearray(whole)
        bytes_[chance.randrange(len(bytes_))] = chance.randrange(256)
        damaged.append(bytes(bytes_))
    for one in damaged:
        try:
            decode(type(message), one)
        except Malformed:
            refused += 1
    assert refused >= len(whole) - 8


@pytest.mark.parametrize(
    "addition",
    [
        *(b"", b"[]", b"{", b"[" * 100_000, b'{"stored":5}', b'{"keep":"AAAA"}', b'{"delete":{"topic":"*"}}'),
        b'{"pending":{"id":"7","since_ns":3,"wait_s":1.0}}',
        b'{"pending":{"id":"77","since_ns":3,"wait_s":-1}}',
        b'{"stored":{"version":2,"count":-1}}',
    ],
)
def test_an_addition_of_another_form_is_refused(addition: bytes) -> None:
    with pytest.raises(Malformed):
        extensions.unpack({"ospltool": addition}, extensions.StateRequestAddition)


@pytest.mark.parametrize(
    ("value_ns", "wire"),
    [
        (0, ZERO),
        (-5, ZERO),
        (1_500_000_000, Time(1, 500_000_000)),
        (1 << 62, INFINITE),
        (0x7FFFFFFF * 10**9, INFINITE),
    ],
)
def test_times_travel_as_seconds_and_nanoseconds(value_ns: int, wire: Time) -> None:
    assert Time.of_ns(value_ns) == wire
