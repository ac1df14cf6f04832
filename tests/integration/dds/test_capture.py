from __future__ import annotations

import functools
import random
import time
from collections import defaultdict
from typing import Any

import msgspec
import pytest

from engine.capture.tap_registry import TapRegistry
from engine.core.name_spaces import Group
from engine.dataset.captured import CapturedRun
from engine.dataset.groups import DurabilityKind, GroupDescription, GroupQos, TypeDescription
from engine.dataset.living import whole
from engine.dataset.sample import DATA, DISPOSE, UNREGISTER, UNTIMED, Sample, captured_sample, with_digest
from engine.dds.capture_reader import CaptureReader
from engine.dds.directed import DirectedSession, Portion
from engine.dds.discovery import Discovery, EndpointSeen, ParticipantSeen
from engine.dds.participant import NodeParticipant
from engine.dds.qos import EndpointQos
from engine.dds.topics import Topic, description_of, open_topic
from engine.dds.typeinfo import BrokenType, check_description, resolve_type
from engine.dds.waiting import Signal
from engine.dds.writer import RawWriter, key_payload
from engine.dds.writer_names import AUTODISPOSE, WRITER_GONE
from tests.integration.dds import sample_types
from tests.integration.dds.processes import Arena, wait_until
from tests.integration.dds.sample_types import sample_of

pytestmark = pytest.mark.dds

TYPES = [one.__name__ for one in sample_types.SAMPLES if one is not sample_types.OtherPlain]


def discover_writers(discovery: Discovery, signal: Signal, count: int) -> list[EndpointSeen]:
    found: list[EndpointSeen] = []

    def enough() -> bool:
        found.extend(one for one in discovery.take() if isinstance(one, EndpointSeen) and one.is_writer)
        return len(found) >= count

    wait_until(enough, signal.wait)
    return found


def expected_of(name: str, count: int) -> list[tuple[int, int, bytes | None]]:
    """What `peer.writer` does: source time, status, and the payload where the wheel can tell it."""
    expected: list[tuple[int, int, bytes | None]] = []
    for number in range(count):
        sample = sample_types.SAMPLES[sample_types.TYPES[name]](number)
        expected.append((1000 + 10 * number, DATA, sample.serialize()))
        if name != "Keyless" and number % 2:
            expected.append((1001 + 10 * number, DISPOSE, None))
            expected.append((1002 + 10 * number, UNREGISTER, None))
    return expected


def body(payload: bytes) -> bytes:
    """Without the header, which tells the padding, and without the padding."""
    return payload[4:].rstrip(b"\0")


def test_every_kind_of_type_is_captured_and_written_again_bit_by_bit(
    arena: Arena, participant: NodeParticipant
) -> None:
    count = 6
    source = arena.start("writer", types=TYPES, count=count, partitions=["shop", "other"])
    signal = Signal(participant)
    discovery = Discovery(participant, signal)
    writers = discover_writers(discovery, signal, len(TYPES))
    assert {one.topic for one in writers} == set(TYPES)
    assert {one.partitions for one in writers} == {("shop", "other")}

    described: dict[str, TypeDescription] = {}
    taps: dict[str, CaptureReader] = {}
    for one in writers:
        assert one.type is not None
        resolution = resolve_type(participant, one.type)
        assert resolution.type is not None, resolution.reason
        described[one.topic] = resolution.type
        topic = open_topic(participant, one.topic, resolution.type)
        taps[one.topic] = CaptureReader(participant, topic, signal=signal)

    captured: dict[str, list[Sample]] = defaultdict(list)
    wanted = {name: len(expected_of(name, count)) for name in TYPES}

    def all_there() -> bool:
        for name, tap in taps.items():
            captured[name] += tap.drain()
        return {name: len(some) for name, some in captured.items()} == wanted

    wait_until(all_there, signal.wait)
    by_topic = {one.topic: one.guid for one in writers}
    for name in TYPES:
        expected = expected_of(name, count)
        for event, (time_ns, status, payload) in zip(captured[name], expected, strict=True):
            assert (event.source_time_ns, event.status, event.writer) == (time_ns, status, by_topic[name])
            assert bool(event.key) == (name != "Keyless")
            if payload is not None:
                assert body(event.payload) == body(payload), name

    # The application goes. Its topics are made again elsewhere from their descriptions alone.
    source.end()
    again = {f"again_{name}": description for name, description in described.items()}
    target = arena.start(
        "tap",
        described={
            topic: (one.name, one.information.hex(), one.mapping.hex(), one.keyed)
            for topic, one in again.items()
        },
    )
    target.ready()
    address = wait_until(lambda: address_of(discovery, target.pid), signal.wait)
    qos = {one.topic: one.qos for one in writers}
    with DirectedSession(address, "lo", arena.domain, b"n" * 16, tag=arena.tag) as session:
        for name in TYPES:
            samples = [with_digest(event) for event in captured[name]]
            group = Group("", f"again_{name}", described[name].type_id)
            description = GroupDescription(group, described[name], qos[name])
            report = session.deliver(Portion(description, whole(samples, frozenset())), 10)
            assert (report.problem, report.acked) == ("", len(samples)), name
            for event in captured[name]:
                line = target.expect(functools.partial(is_event_of, f"again_{name}"))
                sent = [event.source_time_ns, event.status, event.key.hex(), event.payload.hex()]
                assert line["event"] == sent, name


def test_samples_without_a_source_timestamp_get_the_time_of_their_arrival(
    arena: Arena, participant: NodeParticipant
) -> None:
    """In order, and with their numbers; large ones, too. Taps in step with a writer have the same."""
    types, count, began_ns = ["Plain", "Keyless"], 300, time.time_ns()
    topics = [Topic.of_class(participant, name, sample_types.TYPES[name]) for name in types]
    taps = [[CaptureReader(participant, topic) for _ in range(2)] for topic in topics]
    arena.start("writer", types=types, count=count, untimed=True, step=40)
    got: dict[CaptureReader, list[Sample]] = {tap: [] for pair in taps for tap in pair}

    def all_there() -> bool:
        for tap, some in got.items():
            some += tap.drain()
        return all(len(some) == count for some in got.values())

    signal = Signal(participant)
    wait_until(all_there, lambda _: signal.wait(0.01))
    assert max(len(one.payload) for one in got[taps[1][0]]) > 1 << 15
    for first, second in taps:
        assert got[first][-1] == got[second][-1]
        assert [one[1:] for one in got[first]] == [one[1:] for one in got[second]]
        times = [one.source_time_ns for one in got[first]]
        assert times == sorted(set(times))
        assert began_ns <= times[0] <= times[-1] <= time.time_ns()
        assert {one.status for one in got[first]} == {DATA}
        assert [one.sequence for one in got[first]] == [UNTIMED | number for number in range(1, count + 1)]


def is_event_of(topic: str, said: dict[str, Any]) -> bool:
    return said.get("topic") == topic and "event" in said


def address_of(discovery: Discovery, pid: int) -> str | None:
    for one in discovery.take():
        if isinstance(one, ParticipantSeen) and one.pid == pid:
            return one.address
    return None


@pytest.mark.parametrize("name", [name for name in TYPES if name != "Keyless"])
def test_an_instance_is_disposed_by_its_key_alone(participant: NodeParticipant, name: str) -> None:
    type_ = sample_types.TYPES[name]
    topic = Topic.of_class(participant, name, type_)
    tap = CaptureReader(participant, topic)
    writer = RawWriter(participant, topic, EndpointQos(history_depth=0, autodispose=False))
    payload = sample_types.SAMPLES[type_](5).serialize()
    writer.write(payload, 1)
    (first,) = tap.drain()
    writer.dispose(key_payload(first.key), 2)
    writer.unregister(key_payload(first.key), 3)
    second, third = tap.drain()
    assert (second.status, second.key) == (DISPOSE, first.key)
    assert (third.status, third.key) == (UNREGISTER, first.key)


@pytest.mark.parametrize("autodispose", [False, True])
def test_a_tap_sees_each_event_of_a_writer_in_order_with_its_own_time(
    participant: NodeParticipant, autodispose: bool
) -> None:
    topic = Topic.of_class(participant, "Plain", sample_types.Plain)
    tap = CaptureReader(participant, topic)
    writer = RawWriter(participant, topic, EndpointQos(history_depth=0, autodispose=autodispose))
    whole = b"\0\1\0\0" + bytes([7, 0, 0, 0]) + bytes(12)
    key = whole[:8]
    writer.write(whole, 100)
    writer.dispose(key, 101)
    writer.write(whole, 102)
    writer.writedispose(whole, 103)
    writer.unregister(key, 104)
    writer.close()
    assert tap.wait(1)
    got = tap.drain()
    assert [(one.source_time_ns, one.status) for one in got[:5]] == [
        (100, DATA),
        (101, DISPOSE),
        (102, DATA),
        (103, DATA | DISPOSE),
        (104, UNREGISTER | (DISPOSE if autodispose else 0)),
    ]
    assert {one.writer for one in got} == {writer.guid}
    assert {one.key for one in got[:5]} == {bytes([7, 0, 0, 0])}
    assert [one.payload for one in got[:5]] == [whole, key, whole, whole, key]
    assert got[-1] == captured_sample(0, writer.guid, WRITER_GONE, b"", AUTODISPOSE if autodispose else b"")


@pytest.mark.parametrize(
    ("status", "again"),
    [
        (DATA, [DATA]),
        (DATA | DISPOSE, [DATA | DISPOSE]),
        (DISPOSE, [DISPOSE]),
        (UNREGISTER, [UNREGISTER]),
        (DISPOSE | UNREGISTER, [DISPOSE, UNREGISTER]),
        (DATA | UNREGISTER, [DATA, UNREGISTER]),
        (DATA | DISPOSE | UNREGISTER, [DATA | DISPOSE, UNREGISTER]),
    ],
)
def test_what_was_captured_is_written_again_with_the_same_effect(
    participant: NodeParticipant, status: int, again: list[int]
) -> None:
    topic = Topic.of_class(participant, "Plain", sample_types.Plain)
    tap = CaptureReader(participant, topic)
    writer = RawWriter(participant, topic, EndpointQos(history_depth=0, autodispose=False))
    key = bytes([7, 0, 0, 0])
    payload = b"\0\1\0\0" + key + (bytes(12) if status & DATA else b"")
    writer.put(status, key, payload, 42)
    got = tap.drain()
    assert [(one.source_time_ns, one.status, one.key) for one in got] == [(42, one, key) for one in again]


def test_what_a_drain_leaves_behind_sets_the_signal_again(participant: NodeParticipant) -> None:
    signal = Signal(participant)
    topic = Topic.of_class(participant, "Plain", sample_types.Plain)
    tap = CaptureReader(participant, topic, signal=signal)
    writer = RawWriter(participant, topic, EndpointQos(history_depth=0))
    for number in range(10):
        writer.write(b"\0\1\0\0" + bytes(16), number)
    for left in (6, 2, 0):
        assert signal.wait(1)
        tap.drain(4)
        assert len(tap) == left
    assert not signal.wait(0.01)


def test_a_tap_is_closed_with_its_participant(arena: Arena) -> None:
    with NodeParticipant(arena.domain, arena.uri, "closing", b"c" * 16) as closing:
        topic = Topic.of_class(closing, "Bytes", sample_types.Bytes)
        tap = CaptureReader(closing, topic)
        writer = RawWriter(closing, topic, EndpointQos(history_depth=0, representations=(2,)))
        writer.write(sample_of(1, bytes(100_000)), 1)
        assert len(tap) == 1
    assert (tap.drain(), len(tap)) == ([], 0)


def test_a_full_queue_pushes_back_on_the_writer_and_loses_nothing(
    arena: Arena, participant: NodeParticipant
) -> None:
    count = 4000
    tap = CaptureReader(
        participant,
        Topic.of_class(participant, "Plain", sample_types.Plain),
        limit=100,
    )
    assert tap.fill == 0
    source = arena.start("raw_writer", count=count)
    numbers: list[int] = []

    def all_there() -> bool:
        assert len(tap) <= 101
        numbers.extend(
            int.from_bytes(one.payload[4:8], "little") for one in tap.drain(60) if one.status & DATA
        )
        return len(numbers) >= count

    wait_until(lambda: tap.rejected > 0, lambda _: tap.wait(0.01))
    assert tap.fill >= 1
    wait_until(all_there, tap.wait, 40)
    assert numbers == list(range(count))
    assert source.expect(lambda line: line.get("written"))["acked"]


@pytest.mark.parametrize("size", [0, 1, 32_700, 32_800, 300_000, 6_000_000])
def test_a_sample_of_any_size_fits(participant: NodeParticipant, size: int) -> None:
    topic = Topic.of_class(participant, "Bytes", sample_types.Bytes)
    qos = EndpointQos(history_depth=0, autodispose=False, representations=(2,))
    tap = CaptureReader(participant, topic, capacity_bytes=1 << 18)
    writer = RawWriter(participant, topic, qos)
    contents = [bytes([round_]) * size for round_ in range(12)]
    for round_, content in enumerate(contents, 1):
        writer.write(sample_of(round_, content), round_)
        (got,) = tap.drain()
        assert got.payload[20 : 20 + size] == content
        assert (got.source_time_ns, got.status) == (round_, DATA)


def test_the_ring_turns_round_without_losing_or_mixing(participant: NodeParticipant) -> None:
    topic = Topic.of_class(participant, "Bytes", sample_types.Bytes)
    qos = EndpointQos(history_depth=0, autodispose=False, representations=(2,))
    tap = CaptureReader(participant, topic, capacity_bytes=1 << 18)
    writer = RawWriter(participant, topic, qos)
    sent: list[bytes] = []
    got: list[bytes] = []
    for round_ in range(600):
        sent.append(sample_of(round_, bytes([round_ % 251]) * (round_ * 37 % 7000)))
        writer.write(sent[-1], round_)
        if round_ % 7 == 6:
            got += (one.payload for one in tap.drain(8 if round_ > 30 else 1))
    while some := tap.drain(11):
        got += (one.payload for one in some)
    assert got == sent
    assert tap.rejected == 0


@pytest.mark.parametrize(
    ("size", "is_urgent"), [(100, False), (1_000, False), (2_000, True), (30_000, True), (50_000, True)]
)
def test_samples_that_are_not_small_wake_who_looks_by_the_clock_before_the_queue_is_full(
    participant: NodeParticipant, size: int, *, is_urgent: bool
) -> None:
    topic = Topic.of_class(participant, "Bytes", sample_types.Bytes)
    bell = Signal(participant).bell()
    tap = CaptureReader(participant, topic, signal=bell, capacity_bytes=1 << 20)
    writer = RawWriter(
        participant, topic, EndpointQos(history_depth=0, autodispose=False, representations=(2,))
    )
    writer.write(sample_of(0, bytes(size)), 0)
    assert bell.acknowledge()
    number = 0
    while (fill := tap.fill) < 0.9:
        assert bell.acknowledge() is (is_urgent and 0.5 <= fill < 0.5 + (size + 200) / (1 << 20))
        number += 1
        writer.write(sample_of(number, bytes(size)), number)
    assert tap.rejected == 0


@pytest.mark.parametrize("often", [0.0, 0.002, 0.05, 0.5])
def test_runs_have_the_same_samples_in_the_same_order(participant: NodeParticipant, often: float) -> None:
    """However often something else stands between writes that are alike: `often` of all."""
    topic = Topic.of_class(participant, "Bytes", sample_types.Bytes)
    qos = EndpointQos(history_depth=0, autodispose=False, representations=(2,))
    whole = CaptureReader(participant, topic)
    in_runs = CaptureReader(participant, topic, capacity_bytes=1 << 19)
    one, other = (RawWriter(participant, topic, qos) for _ in range(2))
    chance = random.Random(1)
    differences = (*["size", "writer"] * 20, "large")
    got: list[Sample] = []
    expected: list[Sample] = []
    runs = 0
    for number in range(5000):
        different = chance.choice(differences) if chance.random() < often else ""
        size = {"size": chance.randrange(60), "large": 33_000}.get(different, 8)
        (other if different == "writer" else one).write(sample_of(number % 50, bytes(size)), number + 1)
        if number % 100 == 99:
            expected += whole.drain(100)
        while number % 200 == 199 and len(in_runs) > 30:
            count, taken = in_runs.drain_runs(chance.choice((10, 100, 500)))
            records = [each for x in taken for each in ([x] if isinstance(x, Sample) else x.samples())]
            assert len(records) == count
            assert all(x.sample(3) == x.samples()[3] for x in taken if isinstance(x, CapturedRun))
            runs += len(taken) < count
            got += records
    assert [*got, *in_runs.drain()] == expected
    assert often > 0.01 or runs > 10


def test_two_types_under_one_topic_name_are_captured_apart(
    arena: Arena, participant: NodeParticipant
) -> None:
    arena.start("writer", types=["Plain"], topic="Same", count=3)
    arena.start("writer", types=["OtherPlain"], topic="Same", count=3)
    signal = Signal(participant)
    writers = discover_writers(Discovery(participant, signal), signal, 2)
    got: dict[bytes, list[Sample]] = {}
    taps = {}
    for one in writers:
        assert one.type is not None
        description = resolve_type(participant, one.type).type
        assert description is not None
        topic = open_topic(participant, "Same", description)
        taps[one.guid] = CaptureReader(participant, topic, signal=signal)
        got[one.guid] = []
    assert len({one.topic.type.type_id for one in taps.values()}) == 2

    def all_there() -> bool:
        for guid, tap in taps.items():
            got[guid] += tap.drain()
        return all(len(some) == 5 for some in got.values())

    wait_until(all_there, signal.wait)
    assert all({one.writer for one in some} == {guid} for guid, some in got.items())


def test_a_group_takes_its_qos_from_the_writer(arena: Arena, participant: NodeParticipant) -> None:
    arena.start("writer", types=["Plain"], by_source=True, partitions=["a"])
    signal = Signal(participant)
    (seen,) = discover_writers(Discovery(participant, signal), signal, 1)
    assert seen.qos == GroupQos(
        durability=DurabilityKind.TRANSIENT,
        history_depth=3,
        cleanup_delay_ns=5_000_000_000,
        by_source_timestamp=True,
        max_samples=1000,
        max_instances=100,
        max_samples_per_instance=50,
        representations=seen.qos.representations,
    )
    assert (seen.reliable, seen.type_name, seen.is_writer) == (True, "shop::Plain", True)


def test_a_group_whose_type_cannot_be_used_has_no_tap_and_a_reason(participant: NodeParticipant) -> None:
    """Taps of other groups are opened all the same."""
    whole_type = description_of(sample_types.Plain)
    taps = TapRegistry(participant, Signal(participant))
    damaged = msgspec.structs.replace(whole_type, mapping=whole_type.mapping[:-1])
    for topic, type_ in (("Damaged", damaged), ("Whole", whole_type)):
        group = Group("", topic, type_.type_id)
        taps.open(GroupDescription(group, type_, GroupQos(durability=DurabilityKind.TRANSIENT)))
        is_whole = topic == "Whole"
        assert ("mapping of 'shop::Plain'" in taps.problem(group)) is not is_whole
        assert (taps.refusals((group,), EndpointQos()) is not None) is is_whole
    taps.close()


def test_a_tap_tells_which_writers_it_matches(arena: Arena, participant: NodeParticipant) -> None:
    """By their handles: a tap without a key never matches a writer with one, and their QoS do not show it."""
    arena.start("writer", types=["Plain"], count=0)
    signal = Signal(participant)
    (seen,) = discover_writers(Discovery(participant, signal), signal, 1)
    type_ = description_of(sample_types.Plain)
    for keyed in (True, False):
        taps = TapRegistry(participant, signal)
        group = Group("", "Plain", type_.type_id)
        assert taps.is_matched((group,), seen.handle) is None
        description = msgspec.structs.replace(type_, keyed=keyed)
        taps.open(GroupDescription(group, description, GroupQos(durability=DurabilityKind.TRANSIENT)))
        assert taps.is_matched((group,), seen.handle) is keyed
        assert taps.refusals((group,), seen.endpoint_qos) == ()
        taps.close()


def test_a_damaged_type_description_is_refused_with_the_place(participant: NodeParticipant) -> None:
    whole = Topic.of_class(participant, "Growing", sample_types.Growing).type
    other = Topic.of_class(participant, "Plain", sample_types.Plain).type

    def check_refused(
        words: str, information: bytes = whole.information, mapping: bytes = whole.mapping
    ) -> None:
        damaged = msgspec.structs.replace(whole, information=information, mapping=mapping)
        with pytest.raises(BrokenType, match=words):
            open_topic(participant, "Damaged", damaged)

    for cut in range(0, len(whole.mapping), 7):
        check_refused("type mapping of 'shop::Growing'", mapping=whole.mapping[:cut])
    padding = 0
    for at in range(len(whole.mapping)):
        changed = whole.mapping[:at] + bytes([whole.mapping[at] ^ 0x55]) + whole.mapping[at + 1 :]
        try:
            check_description(msgspec.structs.replace(whole, mapping=changed))
        except BrokenType:
            continue
        padding += 1
        assert whole.mapping[at] == 0, f"a change at {at} was not found"
    assert padding <= 12
    check_refused("does not name a type", information=b"")
    check_refused("is missing in the type mapping", information=other.information)
