from __future__ import annotations

import dataclasses
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from cyclonedds.core import Policy, Qos
from cyclonedds.domain import DomainParticipant
from cyclonedds.pub import DataWriter, Publisher
from cyclonedds.topic import Topic

from engine.dataset.sample import DATA, DISPOSE, Sample, make_sample
from engine.dds.client_protocol import endpoints, naming
from engine.dds.client_protocol.extensions import StateRequestAddition
from engine.dds.client_protocol.messages import (
    Bead,
    ByteOrder,
    ErrorCode,
    HistoryPart,
    HistoryRequest,
    Link,
    RequestId,
    SampleKind,
    StateAnswer,
    StateRequest,
    Time,
    decode,
    decode_history,
    encode,
)
from engine.dds.participant import NodeParticipant, TagRole
from engine.dds.waiting import Signal
from ospltool.client import (
    Completeness,
    DurabilityClient,
    DurabilityTimeout,
    DurableReader,
    DurableWriter,
    GroupCompleteness,
    GroupNotFound,
    NotStored,
    Reason,
    Written,
    wait_until_kept,
)
from ospltool.client.asking import added, ask
from tests.client.places import ClientLab
from tests.integration.application_types import Reading
from tests.integration.applications import qos_of

pytestmark = pytest.mark.dds

Connect = Callable[[], DurabilityClient]
STOCK = ("stock",)


def own_writer(lab: ClientLab, nodes: int) -> DataWriter[Any]:
    """An ordinary writer in this process, which so many nodes keep."""
    participant = DomainParticipant(lab.domain)
    qos = qos_of({"depth": 0})
    topic = Topic(participant, "Reading", Reading, qos=qos)
    publisher = Publisher(participant, Qos(Policy.Partition(list(STOCK))))
    writer = DataWriter(publisher, topic, qos=qos)
    wait_until_kept(writer, nodes, 20)
    return writer


def test_what_is_durable_is_on_every_disk_even_if_all_nodes_are_killed_at_once(
    lab: ClientLab, connect: Connect
) -> None:
    names = lab.start_two()
    client = connect()
    writer = own_writer(lab, nodes=2)
    for number in range(2_000):
        writer.write(Reading(number, 0, "x" * 500))
    stored = client.wait_for_durable(writer, 30, nodes=2)
    assert wait_until_kept(writer, 2) == {one.service for one in stored}
    with pytest.raises(DurabilityTimeout, match="2 of 3 nodes capture what the writer of topic 'Reading'"):
        wait_until_kept(writer, 3, timeout_s=0.1)
    lab.kill(*names)
    assert sorted(one.service_name for one in stored) == ["n1", "n2"]
    for name in names:
        assert len(lab.on_disk(name)["stock", "Reading"]) == 2_000


def test_what_is_missing_somewhere_is_not_durable_and_the_node_is_named(
    lab: ClientLab, connect: Connect
) -> None:
    names = lab.start_two()
    client = connect()
    writer: DurableWriter[Any] = DurableWriter(client, own_writer(lab, nodes=2))
    with writer:
        name = writer.write(Reading(1, 0, ""), timestamp=5_000)
    written = Written("Reading", STOCK, (name,))
    stored = client.wait_for_durable(written, 20)
    assert [(one.service_name, one.on_disk) for one in stored] == [("n1", True), ("n2", True)]
    never = msgspec.structs.replace(name, source_time_ns=5_001, digest=b"never seen here!")
    with pytest.raises(NotStored, match="n1: 1 sample never arrived, the first of 5001 ns") as raised:
        client.wait_for_durable(dataclasses.replace(written, samples=(name, never)), 3)
    assert {(one.node, one.reason, one.count, one.samples) for one in raised.value.missing} == {
        (node, Reason.NEVER_ARRIVED, 1, (never,)) for node in names
    }
    with pytest.raises(NotStored, match="2 nodes store it in partition 'stock', 4 are wanted"):
        client.wait_for_durable(written, 3, nodes=4)
    with pytest.raises(GroupNotFound):
        client.wait_for_durable(Written("Reading", ("elsewhere",), (name,)), 3)
    lab.process("n2").send_signal(signal.SIGSTOP)
    try:
        with pytest.raises(NotStored, match="1 service has not answered"):
            client.wait_for_durable(written, 0.5)
    finally:
        lab.process("n2").send_signal(signal.SIGCONT)
    lab.seen.wait_for("all is well again", lambda: lab.seen.are_complete(*names))
    assert len(client.wait_for_durable(written, 20)) == 2


def test_states_tell_of_every_node_and_deleted_data_is_gone_from_all_of_them(
    lab: ClientLab, connect: Connect
) -> None:
    names = lab.start_two()
    lab.fill(*names, count=10)
    client = connect()
    lab.write({"count": 1, "time": 7_000}, topic="Other", readers=2)
    lab.seen.wait_for("it is stored", lambda: all(lab.seen.stored(n) == 11 for n in names))

    def states_now() -> tuple[GroupCompleteness, ...]:
        return client.durability_state("Reading", ("st*",), timeout_s=10)

    lab.seen.wait_for(
        "it is complete",
        lambda: [one.completeness for one in states_now()] == [Completeness.COMPLETE] * 2,
    )
    states = states_now()
    assert [(one.partition, one.topic) for one in states] == [("stock", "Reading")] * 2
    assert sorted(one.service_name for one in states) == ["n1", "n2"]
    with DurableReader(client, "Reading", Reading, STOCK) as reader:
        reader.wait_for_historical_data(30)
        client.delete_historical_data("*", "Read*", until_ns=1_004, timeout_s=20)
        lab.seen.wait_for("half is gone", lambda: all(lab.seen.stored(n) <= 6 for n in names))
        assert len(reader.take()) == 10  # what a reader has stays with it
    with DurableReader(client, "Reading", Reading, STOCK) as reader:
        reader.wait_for_historical_data(30)
        assert sorted(one.source_time_ns for one in reader.take()) == [*range(1_005, 1_010)]
    with DurableReader(client, "Other", Reading, STOCK) as reader:
        reader.wait_for_historical_data(30)
        assert len(reader.take()) == 1
    wanted = ("client.request", "client.fulfilled", "client.state-request", "delete.received", "delete.done")
    told = {fields["event"] for name in names for fields in lab.trace(name, *wanted)}
    assert told == {*wanted}

    # A node that stands still is named: at first the other one hears it, later it has lost it.
    client.close()
    floor_ns = 1_005
    lab.process("n2").send_signal(signal.SIGSTOP)
    try:
        for is_lost in (False, True):
            if is_lost:
                lab.seen.wait_for("n1 loses n2", lambda: not lab.seen.fellows("n1", "approved"))
            late = connect()
            assert {one.service_name for one in late.durability_state("Reading", ("st*",))} == {"n1"}
            assert late.unanswered == ("n2",)
            done = late.delete_historical_data("*", "Read*", until_ns=floor_ns, timeout_s=20)
            assert (done.node, done.confirmed, done.unconfirmed) == ("n1", ("n1",), ("n2",))
            assert [one.samples for one in done.kept] == [9 - (floor_ns - 1_000)]
            floor_ns += 1
    finally:
        lab.process("n2").send_signal(signal.SIGCONT)
    lab.seen.wait_for("it is gone", lambda: all(lab.seen.stored(n) <= 4 for n in names))
    assert not lab.trace("n2", "delete.refused")
    again = connect()
    states = again.durability_state("Reading", ("st*",), timeout_s=20)
    assert ([one.service_name for one in states], again.unanswered) == ([*names], ())
    assert again.delete_historical_data("*", "Read*", until_ns=1, timeout_s=20).unconfirmed == ()


class Stranger:
    """A client of another product: it knows nothing of our additions."""

    def __init__(self, lab: ClientLab) -> None:
        self.id = b"stranger" * 2
        self._participant = NodeParticipant(lab.domain, lab.uri, "stranger", bytes(16), TagRole.CLIENT)
        self._signal = Signal(self._participant)
        topics = endpoints.open_topics(self._participant)
        where = (endpoints.PARTITION,)
        self._history = endpoints.open_reader(
            self._participant, topics[endpoints.HISTORY], where, self._signal
        )
        self._states = endpoints.open_reader(self._participant, topics[endpoints.STATE], where, self._signal)
        self._requests = endpoints.open_writer(self._participant, topics[endpoints.HISTORY_REQUEST], where)
        self._state_requests = endpoints.open_writer(
            self._participant, topics[endpoints.STATE_REQUEST], where
        )
        assert self._requests.wait_matched(1, 20)
        assert self._state_requests.wait_matched(1, 20)
        self._number = 0

    def request(self, **changes: Any) -> HistoryRequest:
        self._number += 1
        made = HistoryRequest(
            RequestId(self.id, self._number),
            "Reading",
            STOCK,
            alignment_partitions=(endpoints.PARTITION,),
            timeout=Time(1, 0),
        )
        return msgspec.structs.replace(made, **changes)

    def ask(self, request: HistoryRequest) -> tuple[list[HistoryPart], Link]:
        """The samples of an answer, and its end."""
        self._requests.write(encode(request), time.time_ns())
        parts: list[HistoryPart] = []
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            self._signal.wait(1.0)
            for record in self._history.drain():
                if not record.status & DATA:
                    continue
                part = decode_history(record.payload)
                assert part.requests == (request.request,)
                if isinstance(part.content, Link):
                    return parts, part.content
                parts.append(part)
        raise AssertionError("no answer")

    def state(self, partitions: tuple[str, ...]) -> StateAnswer:
        self._number += 1
        request = StateRequest(RequestId(self.id, self._number), "Reading", partitions)
        self._state_requests.write(encode(request), time.time_ns())
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            self._signal.wait(1.0)
            for record in self._states.drain():
                if record.status & DATA:
                    state = decode(StateAnswer, record.payload)
                    if request.request in state.requests:
                        return state
        raise AssertionError("no answer")

    def close(self) -> None:
        self._participant.close()


@pytest.fixture
def stranger(lab: ClientLab) -> Iterator[Stranger]:
    lab.start_one()
    lab.write(
        {"count": 10, "time": 1_000},
        {"op": "dispose", "first": 3, "time": 2_000},
        {"op": "unregister", "first": 4, "time": 2_001},
    )
    lab.seen.wait_for("it is stored", lambda: lab.seen.stored("n1") == 12)
    made = Stranger(lab)
    yield made
    made.close()


def test_a_client_of_another_product_is_served_by_the_protocol_alone(
    lab: ClientLab, stranger: Stranger
) -> None:
    parts, link = stranger.ask(stranger.request(format=ByteOrder.LITTLE_ENDIAN))
    assert link == Link(12, Completeness.COMPLETE, ErrorCode.OK)
    beads = [part.content for part in parts if isinstance(part.content, Bead)]
    assert all(part.extensions == {} for part in parts)
    assert [kind for bead in beads for kind in SampleKind if kind == bead.kind].count(SampleKind.WRITE) == 10
    for bead in beads:
        read = Reading.deserialize(b"\0\1\0\0" + bead.payload)  # disposes, too, carry a whole sample
        assert (bead.partitions, bead.format) == (STOCK, ByteOrder.LITTLE_ENDIAN)
        assert read.text == f"reading {read.number}"
    ended = {Reading.deserialize(b"\0\1\0\0" + one.payload).number: one.kind for one in beads if one.kind}
    assert ended == {3: SampleKind.DISPOSE, 4: SampleKind.UNREGISTER}
    state = stranger.state(("stock",))
    assert [(one.partition, one.completeness) for one in state.groups] == [("stock", 2)]
    link_codes: dict[ErrorCode, dict[str, Any]] = {
        ErrorCode.INCOMPATIBLE_VERSION: {"version": 2},
        ErrorCode.NO_TOPIC: {"topic": ""},
        ErrorCode.INVALID_START_TIME: {"start": Time(5, 0xFFFFFFFE)},
        ErrorCode.INVALID_END_TIME: {"end": Time(-7, 0)},
        ErrorCode.INVALID_TIME_RANGE: {"start": Time(6, 0), "end": Time(5, 0)},
        ErrorCode.INVALID_SERIALIZATION: {"format": 9},
        ErrorCode.NO_PARTITIONS: {"partitions": ()},
        ErrorCode.INVALID_MAX_SAMPLES: {"max_samples": -2},
        ErrorCode.INVALID_MAX_INSTANCES: {"max_instances": -2},
        ErrorCode.INVALID_MAX_SAMPLES_PER_INSTANCE: {"max_samples_per_instance": -2},
        ErrorCode.GROUP_NOT_FOUND: {"partitions": ("elsewhere",)},
        ErrorCode.INVALID: {"sql_filter": "number = 5"},
    }
    for code, changes in link_codes.items():
        parts, link = stranger.ask(stranger.request(**changes))
        assert (parts, link.count, ErrorCode(link.error)) == ([], 0, code)
    parts, link = stranger.ask(stranger.request(format=ByteOrder.BIG_ENDIAN))
    assert (len(parts), link.error, link.completeness) == (2, ErrorCode.INVALID_SERIALIZATION, 1)
    lab.check()


def test_nonsense_in_the_additions_is_counted_and_harms_nobody(lab: ClientLab, stranger: Stranger) -> None:
    for nonsense in (
        b"",
        b"[]",
        b"{",
        b"\xff" * 100,
        b'{"stored":5}',
        b'{"keep":[]}',
        b'{"delete":{"partition":5}}',
    ):
        request = stranger.request(extensions={"ospltool": nonsense})
        stranger._requests.write(encode(request), time.time_ns())
        ask = StateRequest(request.request, "Reading", STOCK, extensions={"ospltool": nonsense})
        stranger._state_requests.write(encode(ask), time.time_ns())
    lab.seen.wait_for(
        "it is counted",
        lambda: (shown := lab.seen.node("n1")) is not None and shown.counters["malformed"] >= 11,
    )
    lab.check()
    assert lab.seen.stored("n1") == 12


def test_what_is_handed_over_must_be_a_sample_of_its_topic(lab: ClientLab, connect: Connect) -> None:
    lab.start_one()
    client = connect()
    writer: DurableWriter[Any] = DurableWriter(client, own_writer(lab, nodes=1))
    with writer:
        name = writer.write(Reading(1, 0, ""))
    payload = Reading(2, 0, "").serialize()
    sound = make_sample(5, name.writer, DATA, (2).to_bytes(4, "little"), payload)
    other = (3).to_bytes(4, "little")
    wrong = [
        make_sample(5, name.writer, DATA, sound.key, payload[:-5]),
        make_sample(5, name.writer, DATA, sound.key, b""),
        make_sample(5, name.writer, DATA, other, payload),
        make_sample(5, name.writer, DISPOSE, sound.key, b"\0\7\0\0"),
    ]

    def hand_over(*samples: Sample) -> list[Any]:
        blocks = {naming.SAMPLES: naming.pack_samples(samples)}
        addition = StateRequestAddition(keep=name.writer)
        deadline_s = time.monotonic() + 1
        answers = ask(client.session, "Reading", STOCK, deadline_s, blocks=blocks, addition=addition)
        return [added(state).kept for state in answers.values()]

    for one in wrong:
        assert hand_over(sound, one) == []
    assert hand_over(sound) == [1]
    written = Written("Reading", STOCK, (name, naming.SampleName.from_sample(sound)))
    assert len(client.wait_for_durable(written, 20)) == 1
    lab.seen.wait_for("all is stored", lambda: lab.seen.stored("n1") == 2)
    lab.seen.wait_for(
        "the wrong ones are counted",
        lambda: (shown := lab.seen.node("n1")) is not None and shown.counters["malformed"] == len(wrong),
    )
