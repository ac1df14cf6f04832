from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator

import pytest

from engine.core.name_spaces import Group
from engine.dataset.groups import DurabilityKind, GroupDescription, GroupQos, TypeDescription
from engine.dataset.living import DeliveryStep, InstanceEnd, whole
from engine.dataset.sample import DATA, DISPOSE, UNREGISTER, Sample, make_sample
from engine.dds import directed
from engine.dds.directed import MAX_LOW, DeliveryPurpose, DirectedSession, Portion
from engine.dds.discovery import Discovery, ParticipantSeen
from engine.dds.errors import DdsError
from engine.dds.participant import NodeParticipant, TagRole
from engine.dds.topics import Topic
from engine.dds.waiting import Signal
from tests.integration.dds import sample_types
from tests.integration.dds.processes import Arena, Peer, wait_until

pytestmark = pytest.mark.dds

TRANSIENT = GroupQos(DurabilityKind.TRANSIENT)
ALIVE, DISPOSED, NO_WRITERS = 16, 32, 64
Finder = Callable[[Peer], ParticipantSeen]


@pytest.fixture
def find(participant: NodeParticipant) -> Finder:
    """The participant of a process, once it is discovered."""
    signal = Signal(participant)
    discovery = Discovery(participant, signal)
    seen: dict[int, ParticipantSeen] = {}

    def look(peer: Peer) -> ParticipantSeen:
        def there() -> ParticipantSeen | None:
            seen.update({one.pid: one for one in discovery.take() if isinstance(one, ParticipantSeen)})
            return seen.get(peer.pid)

        found: ParticipantSeen = wait_until(there, signal.wait)
        return found

    return look


@pytest.fixture
def plain(participant: NodeParticipant) -> TypeDescription:
    return Topic.of_class(participant, "Plain", sample_types.Plain).type


def session_with(arena: Arena, target: ParticipantSeen) -> DirectedSession:
    assert target.address is not None
    return DirectedSession(target.address, "lo", arena.domain, b"n" * 16, target.process, arena.tag)


def plain_sample(number: int, time_ns: int, status: int = DATA) -> Sample:
    key = number.to_bytes(4, "little")
    payload = b"\0\1\0\0" + key + (bytes(12) if status & DATA else b"")
    return make_sample(time_ns, b"w" * 16, status, key, payload)


def portion(
    topic: str,
    type_: TypeDescription,
    qos: GroupQos,
    partition: str,
    steps: Iterable[DeliveryStep],
    *,
    mode: DeliveryPurpose = DeliveryPurpose.WHOLE,
    keeps: bool = False,
) -> Portion:
    """What is delivered of a group."""
    group = Group(partition, topic, type_.type_id)
    return Portion(GroupDescription(group, type_, qos), steps, mode, keeps)


def past(samples: Iterable[Sample]) -> Iterator[DeliveryStep]:
    """Samples of writers that are gone."""
    return whole(samples, frozenset())


def states(peer: Peer, timeout_s: float) -> list[tuple[int, int]]:
    return [(line["time"], line["state"]) for line in peer.heard(timeout_s) if "state" in line]


def test_only_the_target_process_gets_what_is_delivered(
    arena: Arena, find: Finder, plain: TypeDescription
) -> None:
    target = arena.start("reader", types=["Plain"])
    other = arena.start("reader", types=["Plain"])
    target.ready()
    other.ready()
    samples = [plain_sample(number % 10, 1000 + number) for number in range(500)]
    with session_with(arena, find(target)) as session:
        report = session.deliver(portion("Plain", plain, TRANSIENT, "", past(samples)), 10)
        assert (report.problem, report.sent, report.acked) == ("", 500, 500)
        assert len(report.readers) == 1
        got = [target.expect(lambda line: "state" in line)["time"] for _ in samples]
        assert sorted(got) == [sample.source_time_ns for sample in samples]
        # Long enough for the other to find the session's participant, if it could.
        assert states(other, 0.7) == []
        assert session.deliver(portion("Plain", plain, TRANSIENT, "", past(samples[:1])), 10).acked == 1
    # The end of the session is what the other would hear of, had it been matched.
    target.expect(lambda line: line.get("state") == NO_WRITERS)
    assert states(other, 0.3) == []


def test_a_delivery_ends_before_a_sample_that_cannot_be_written(
    arena: Arena, find: Finder, plain: TypeDescription
) -> None:
    target = arena.start("reader", types=["Plain"])
    target.ready()
    samples = [plain_sample(number, 1000 + number) for number in range(150)]
    samples[70] = plain_sample(70, 1070, DISPOSE)
    samples[130] = make_sample(1130, b"w" * 16, DATA, samples[130].key, b"\0\1\0\0")
    with session_with(arena, find(target)) as session:
        report = session.deliver(portion("Plain", plain, TRANSIENT, "", past(samples)), 10)
        assert report.sent == 130
        assert "(sample 131, source time 1130 ns)" in report.problem
        got = [target.expect(lambda line: "state" in line)["time"] for _ in range(130)]
        assert got == [sample.source_time_ns for sample in samples[:130]]


def test_instances_end_as_the_delivered_events_say(
    arena: Arena, find: Finder, plain: TypeDescription
) -> None:
    target = arena.start("reader", types=["Plain"], by_source=True)
    target.ready()
    samples = [
        plain_sample(1, 10),
        plain_sample(2, 10),
        plain_sample(2, 20, DISPOSE),
        plain_sample(3, 10),
        plain_sample(3, 30, UNREGISTER),
    ]
    qos = GroupQos(DurabilityKind.TRANSIENT, by_source_timestamp=True)
    steps = whole(samples, frozenset((b"w" * 16,)))
    with session_with(arena, find(target)) as session:
        assert session.deliver(portion("Plain", plain, qos, "", steps, keeps=True), 10).problem == ""
        # An ordinary reader tells the state that an instance has when it is taken.
        heard: set[int] = set()
        while heard != {ALIVE, DISPOSED, NO_WRITERS}:
            heard.add(target.expect(lambda line: "state" in line)["state"])
        states(target, 1.0)  # the rest of the same
    first = target.expect(lambda line: "state" in line)["state"]
    assert [first, *(state for _, state in states(target, 0.3))] == [NO_WRITERS]


def test_a_sample_is_taken_again_however_often_its_writer_was_lost(
    arena: Arena, find: Finder, plain: TypeDescription
) -> None:
    """Each time it comes from a lower GUID, of which there are only so many: the oldest retires."""
    target = arena.start("reader", types=["Plain"], by_source=True, partitions=["*"], keeps=True)
    target.ready()
    qos = GroupQos(DurabilityKind.TRANSIENT, by_source_timestamp=True)
    key = (1).to_bytes(4, "little")

    def give(number: int, partition: str, mode: DeliveryPurpose) -> None:
        steps = whole([plain_sample(number, 10)], frozenset((b"w" * 16,)))
        report = session.deliver(portion("Plain", plain, qos, partition, steps, mode=mode, keeps=True), 10)
        assert (report.problem, report.acked) == ("", 1)

    with session_with(arena, find(target)) as session:
        give(1, "lost", DeliveryPurpose.WHOLE)
        assert target.expect(lambda line: "state" in line)["state"] == ALIVE
        for turn in range(MAX_LOW + 2):
            session.end("Plain", plain, "lost", [InstanceEnd(key, 10)], disposes=True, closes=True)
            assert target.expect(lambda line: "state" in line)["state"] == DISPOSED
            if crowd := session.crowd:
                for _, partition, _ in crowd:
                    if partition != "lost":
                        give(100 + int(partition), partition, DeliveryPurpose.PART)
                session.retire(crowd)
            give(1, "lost", DeliveryPurpose.RETURN)
            assert target.expect(lambda line: "state" in line)["state"] == ALIVE, turn
            give(100 + turn, str(turn), DeliveryPurpose.RETURN)
            assert target.expect(lambda line: "state" in line)["state"] == ALIVE, turn
        assert states(target, 0.5) == [], "what the oldest kept is kept by another one"


def test_one_session_delivers_many_groups(arena: Arena, find: Finder, participant: NodeParticipant) -> None:
    names = ["Plain", "Flagged", "Keyless"]
    target = arena.start("reader", types=names, partitions=["a", "b*"])
    target.ready()
    found = find(target)
    with session_with(arena, found) as session:
        for name in names:
            type_ = sample_types.TYPES[name]
            description = Topic.of_class(participant, name, type_).type
            for partition in ("a", "bcd"):
                payload = sample_types.SAMPLES[type_](4).serialize()
                sample = make_sample(7, b"w" * 16, DATA, b"", payload)
                report = session.deliver(portion(name, description, TRANSIENT, partition, past([sample])), 10)
                assert (report.problem, report.acked) == ("", 1)
                line = target.expect(lambda said: said.get("sample"))
                assert (line["type"], line["sample"]) == (name, repr(sample_types.SAMPLES[type_](4)))
        report = session.deliver(portion("Plain", description, TRANSIENT, "elsewhere", past([])), 0.5)
        assert "no reader of topic 'Plain' in partition 'elsewhere'" in report.problem


def test_a_reader_that_is_incompatible_is_named_with_both_values(
    arena: Arena, find: Finder, plain: TypeDescription, participant: NodeParticipant
) -> None:
    target = arena.start("reader", types=["Plain"], by_source=True)
    target.ready()
    with session_with(arena, find(target)) as session:
        report = session.deliver(portion("Plain", plain, TRANSIENT, "", past([plain_sample(1, 1)])), 20)
        assert report.sent == 0
        assert "DESTINATION_ORDER: offered BY_RECEPTION_TIMESTAMP, requested BY_SOURCE" in report.problem
        other = Topic.of_class(participant, "Plain", sample_types.OtherPlain).type
        qos = GroupQos(DurabilityKind.TRANSIENT, by_source_timestamp=True)
        report = session.deliver(portion("Plain", other, qos, "", past([plain_sample(1, 1)])), 20)
        assert report.sent == 0
        assert "TYPE_CONSISTENCY" in report.problem
        assert session.deliver(portion("Plain", plain, qos, "", past([plain_sample(1, 1)])), 20).acked == 1


def test_a_promise_that_history_cannot_break_does_not_keep_it_from_a_reader(
    arena: Arena, find: Finder, plain: TypeDescription
) -> None:
    target = arena.start("reader", types=["Plain"], deadline_ns=3_000_000_000)
    target.ready()
    with session_with(arena, find(target)) as session:
        report = session.deliver(portion("Plain", plain, TRANSIENT, "", past([plain_sample(1, 1)])), 20)
    assert (report.problem, report.acked) == ("", 1)


def test_a_target_that_is_gone_is_reported(arena: Arena, find: Finder, plain: TypeDescription) -> None:
    target = arena.start("reader", types=["Plain"])
    found = find(target)
    target.kill()
    with session_with(arena, found) as session:
        report = session.deliver(portion("Plain", plain, TRANSIENT, "", past([plain_sample(1, 1)])), 0.6)
    assert (report.sent, report.readers) == (0, frozenset())
    assert "did not answer" in report.problem


def test_a_payload_that_is_not_of_the_type_is_reported_with_its_place(
    arena: Arena, find: Finder, plain: TypeDescription
) -> None:
    target = arena.start("reader", types=["Plain"])
    target.ready()
    bad = make_sample(99, b"w" * 16, DATA, b"", b"\0\1\0\0\1")
    with session_with(arena, find(target)) as session:
        report = session.deliver(portion("Plain", plain, TRANSIENT, "", past([plain_sample(1, 1), bad])), 20)
    assert (report.sent, report.acked) == (1, 1)
    assert "sample 2, source time 99 ns" in report.problem


def test_the_deliverer_of_a_node_is_recognised_by_other_nodes(arena: Arena, find: Finder) -> None:
    target = arena.start("node", name="other")
    address = find(target)
    with session_with(arena, address):
        pass
    assert address.tag is not None
    assert (address.tag.role, address.is_ours) == (TagRole.NODE, True)


def test_sessions_beyond_the_bound_are_refused(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directed, "_sessions", threading.BoundedSemaphore(1))

    def open_session() -> DirectedSession:
        return DirectedSession("127.0.0.1:7410", "lo", arena.domain, b"n" * 16, tag=arena.tag)

    with open_session(), pytest.raises(DdsError, match="open already"):
        open_session()
    open_session().close()
