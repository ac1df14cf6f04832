from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cyclonedds.core import Policy, Qos

from engine.dds.uri import cyclone_uri
from ospltool.client import (
    ContentFilter,
    DurabilityClient,
    DurabilityTimeout,
    DurableReader,
    HistorySelection,
    InstanceState,
    NoService,
    NotResponsible,
    PreconditionNotMet,
    UnsupportedQos,
)
from tests.client.places import ClientLab
from tests.integration.application_types import Reading
from tests.integration.configurations import Settings
from tests.integration.conftest import own_domain

pytestmark = pytest.mark.dds

Connect = Callable[[], DurabilityClient]
VOLATILE = Qos(Policy.Durability.Volatile, Policy.Reliability.Reliable(0), Policy.History.KeepAll)
STOCK = ("stock",)


@pytest.fixture(scope="module")
def depot(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientLab]:
    """A node with ten instances of three samples each, for tests that change nothing."""
    domain, tag = own_domain()
    made = ClientLab(tmp_path_factory.mktemp("depot"), (domain + 100) % 230, f"depot-{tag}")
    try:
        made.start_one()
        made.write(
            {"count": 10, "time": 1_000, "value": 1},
            {"count": 10, "time": 2_000, "value": 2},
            {"count": 10, "time": 3_000, "value": 3},
            depth=0,
        )
        made.seen.wait_for("it is stored", lambda: made.seen.stored("n1") == 30)
        yield made
    finally:
        made.close()


@pytest.fixture
def client(depot: ClientLab) -> Iterator[DurabilityClient]:
    with DurabilityClient(depot.domain, uri=depot.uri) as made:
        yield made


def numbers(samples: list[Any]) -> list[int]:
    return sorted(one.data.number for one in samples if one.data is not None)


def check_streams(samples: list[Any], instances: int, count: int) -> None:
    """Every value of every instance once, in order."""
    for number in range(instances):
        values = [one.data.value for one in samples if one.data.number == number]
        assert values == list(range(count))


def test_a_reader_gets_the_whole_history_once_with_times_writers_and_states(
    lab: ClientLab, connect: Connect
) -> None:
    lab.start_one()
    lab.write(
        {"count": 50, "time": 1_000},
        {"op": "dispose", "first": 10, "count": 5, "time": 2_000},
        {"op": "unregister", "first": 20, "count": 5, "time": 3_000},
    )
    lab.seen.wait_for("it is stored", lambda: lab.seen.stored("n1") == 60)
    with DurableReader(connect(), "Reading", Reading, STOCK) as reader:
        reader.wait_for_historical_data(30)
        assert len(reader.read()) == 60
        samples = reader.take()
        assert reader.take() == []
    assert len(samples) == 60
    assert all(one.is_historical and len(one.writer) == 16 for one in samples)
    assert {one.source_time_ns for one in samples if one.data} == {*range(1_000, 1_050)}
    disposed = [one for one in samples if one.instance_state is InstanceState.NOT_ALIVE_DISPOSED]
    assert numbers(disposed) == [10, 11, 12, 13, 14]
    assert sorted(one.source_time_ns for one in samples if one.is_dispose) == [*range(2_000, 2_005)]
    assert sorted(one.source_time_ns for one in samples if one.is_unregister) == [*range(3_000, 3_005)]
    others = {one.instance_state for one in samples} - {InstanceState.NOT_ALIVE_DISPOSED}
    assert others == {InstanceState.NOT_ALIVE_NO_WRITERS}


def test_a_history_arrives_whole_and_in_order_while_writers_go_on(lab: ClientLab, connect: Connect) -> None:
    lab.start_one()
    writer = lab.client_program("stream", readers=1, instances=4, pause_s=0.002, first=200)
    writer.answer("written")
    readers = [DurableReader(connect(), "Reading", Reading, STOCK) for _ in range(3)]
    samples: list[list[Any]] = [[] for _ in readers]
    for reader, got in zip(readers, samples, strict=True):
        reader.wait_for_historical_data(30)
        got += reader.take()
        assert len(got) >= 4 * 200
        assert {one.instance_state for one in got} == {InstanceState.ALIVE}, "its writer lives"
        assert {one.absolute_generation_rank for one in got} == {0}
    time.sleep(0.3)  # live samples go on arriving; nothing is awaited here
    writer.tell(end=True)
    count = writer.answer("written")
    for reader, got in zip(readers, samples, strict=True):
        while len(got) < 4 * count and reader.wait(30):
            got += reader.take()
        check_streams(got, 4, count)
        assert {one.is_historical for one in got} == {True, False}
        assert reader.counters.lost_older_than_taken == 0


def test_a_sample_older_than_one_that_was_taken_is_lost_and_counted(lab: ClientLab, connect: Connect) -> None:
    lab.start_one()
    with DurableReader(connect(), "Reading", Reading, STOCK) as reader:
        reader.wait_for_historical_data(30)
        lab.write({"count": 2, "time": 5_000}, readers=2)
        got: list[Any] = []
        while len([one for one in got if one.data]) < 2 and reader.wait(30):
            got += reader.take()
        lab.write({"count": 1, "time": 4_000}, {"count": 1, "first": 2, "time": 6_000}, readers=2)
        while not (newest := [one for one in reader.take() if one.data]) and reader.wait(30):
            pass
        assert [(one.data.number, one.source_time_ns) for one in newest if one.data] == [(2, 6_000)]
        assert reader.counters.lost_older_than_taken == 1


def test_an_ordinary_reader_and_one_of_the_library_in_one_process_each_get_all_once(lab: ClientLab) -> None:
    from cyclonedds.domain import DomainParticipant
    from cyclonedds.sub import DataReader, Subscriber
    from cyclonedds.topic import Topic

    names = (lab.start_one(),)
    lab.fill(*names, count=100)
    participant = DomainParticipant(lab.domain)  # in the domain that this process has open
    qos = Qos(Policy.Durability.Persistent, Policy.Reliability.Reliable(0), Policy.History.KeepAll)
    with DurableReader(participant, "Reading", Reading, STOCK) as durable:
        subscriber = Subscriber(participant, Qos(Policy.Partition(list(STOCK))))
        ordinary = DataReader(subscriber, Topic(participant, "Reading", Reading, qos=qos), qos=qos)
        durable.wait_for_historical_data(30)
        plain: list[Any] = []
        deadline = time.monotonic() + 20
        while len(plain) < 100 and time.monotonic() < deadline:
            plain += [one for one in ordinary.take(1000) if one.sample_info.valid_data]
            time.sleep(0.01)
        lab.wait_delivered()
        lab.write({"first": 100, "count": 10, "time": 5_000}, readers=len(names) + 2)
        got = durable.take()
        while len(got) < 110 and durable.wait(30):
            got += durable.take()
        plain += [one for one in ordinary.take(1000) if one.sample_info.valid_data]
        assert numbers(got) == [*range(110)]
        assert sorted(one.number for one in plain) == [*range(110)]
        assert durable.counters.deliveries >= 100


def test_parts_of_the_history_by_time_limit_and_content(client: DurabilityClient) -> None:
    def part(selection: HistorySelection | None) -> list[tuple[int, int]]:
        with DurableReader(client, "Reading", Reading, STOCK, VOLATILE) as reader:
            reader.wait_for_historical_data(30, selection)
            found = [(one.data.number, one.data.value) for one in reader.take() if one.data]
            assert reader.counters.repeated == 0
            return sorted(found)

    everything = [(number, value) for number in range(10) for value in (1, 2, 3)]
    assert part(None) == everything
    assert part(HistorySelection(start_ns=2_005, end_ns=3_001)) == [
        (0, 3), (1, 3), (5, 2), (6, 2), (7, 2), (8, 2), (9, 2),
    ]  # fmt: skip
    assert part(HistorySelection(max_samples_per_instance=1)) == [(n, 3) for n in range(10)]
    assert part(HistorySelection(max_instances=2)) == [(n, v) for n in (8, 9) for v in (1, 2, 3)]
    assert part(HistorySelection(max_samples=3)) == [(7, 3), (8, 3), (9, 3)]
    condition = ContentFilter("value < %0 and number between 2 and 3", ("3",))
    assert part(HistorySelection(condition=condition)) == [(2, 1), (2, 2), (3, 1), (3, 2)]
    newest = HistorySelection(condition=condition, max_samples_per_instance=1)
    assert part(newest) == [(2, 2), (3, 2)]


def test_only_a_reader_that_is_not_durable_selects_and_gets_history_only_when_it_asks(
    client: DurabilityClient,
) -> None:
    with DurableReader(client, "Reading", Reading, STOCK) as durable:
        with pytest.raises(PreconditionNotMet):
            durable.wait_for_historical_data(1, HistorySelection(max_samples=1))
        durable.wait_for_historical_data(30)
    with DurableReader(client, "Reading", Reading, STOCK, VOLATILE) as reader:
        assert not reader.wait(0.5)
        reader.wait_for_historical_data(30, HistorySelection(end_ns=1_001))
        assert numbers(reader.take()) == [0, 1]
        reader.wait_for_historical_data(30, HistorySelection(start_ns=1_001))
        assert len(reader.take()) == 28
    with pytest.raises(UnsupportedQos, match="Exclusive"):
        DurableReader(client, "Reading", Reading, STOCK, Qos(Policy.Ownership.Exclusive))


def test_waiting_ends_when_the_set_is_complete_and_not_before(lab: ClientLab, connect: Connect) -> None:
    names = lab.start_two()
    lab.fill(*names, count=20)
    lab.stop(*names)
    client = connect()
    reader = DurableReader(client, "Reading", Reading, STOCK)
    with pytest.raises(NoService):
        reader.wait_for_historical_data(0.3)
    for name in names:
        lab.configure(
            name,
            Settings(discovery_s=10.0).with_priority(100),
        )
    lab.start("n2")  # it remembers n1, and waits for it
    client.wait_for_service(30)
    with pytest.raises(NotResponsible, match="NO_MASTER_SELECTED"):
        reader.wait_for_historical_data(2)
    assert reader.take() == []
    lab.start("n1")
    reader.wait_for_historical_data(30)
    assert numbers(reader.take()) == [*range(20)]


def test_a_group_without_data_is_complete_and_one_that_nobody_keeps_is_not_found(
    client: DurabilityClient,
) -> None:
    with DurableReader(client, "Nothing", Reading, STOCK) as reader:
        reader.wait_for_historical_data(30)
        assert reader.take() == []
    with DurableReader(client, "Reading", Reading, ("elsewhere",)) as reader:
        with pytest.raises(DurabilityTimeout, match="GROUP_NOT_FOUND") as error:
            reader.wait_for_historical_data(1)
        assert type(error.value).__name__ == "GroupNotFound"


def test_a_node_answers_for_a_master_that_does_not_serve_clients(lab: ClientLab, connect: Connect) -> None:
    lab.silent = frozenset(("n1",))
    names = lab.start_two()
    lab.fill(*names, count=20)
    with DurableReader(connect(), "Reading", Reading, STOCK) as reader:
        reader.wait_for_historical_data(30)
        assert numbers(reader.take()) == [*range(20)]


def test_without_a_node_that_serves_clients_waiting_says_so(lab: ClientLab) -> None:
    lab.silent = frozenset(("n1",))
    lab.start_one()
    with DurabilityClient(lab.domain, uri=cyclone_uri(environment={})) as client:
        with pytest.raises(NoService):
            client.wait_for_service(0.5)
        with DurableReader(client, "Reading", Reading, STOCK) as reader, pytest.raises(NoService):
            reader.wait_for_historical_data(0.5)


def test_when_the_node_that_serves_it_is_killed_the_reader_goes_on_and_gets_nothing_twice(
    lab: ClientLab, connect: Connect
) -> None:
    names = lab.start_two()
    lab.fill(*names, count=50)
    with DurableReader(connect(), "Reading", Reading, STOCK) as reader:
        reader.wait_for_historical_data(30)
        assert len(reader.take()) == 50
        lab.kill("n1")
        lab.seen.wait_for("n2 is master", lambda: lab.seen.are_complete("n2"))
        lab.write({"first": 50, "count": 10, "time": 9_000}, readers=2)
        got: list[Any] = []
        while len(got) < 10 and reader.wait(30):
            got += reader.take()
        deadline = time.monotonic() + 30
        while reader.counters.repeated < 50 and time.monotonic() < deadline:
            reader.wait(0.05)  # until another node has given everything again
        got += reader.take()
        assert numbers(got) == [*range(50, 60)]
        assert reader.counters.repeated >= 50


def test_a_node_that_stops_answering_in_the_middle_costs_a_pause_and_no_sample(
    lab: ClientLab, connect: Connect
) -> None:
    names = lab.start_two()
    lab.fill(*names, count=50)
    client = connect()
    client.wait_for_service(20)
    lab.process("n1").send_signal(signal.SIGSTOP)
    try:
        with DurableReader(client, "Reading", Reading, STOCK) as reader:
            reader.wait_for_historical_data(30)
            assert numbers(reader.take()) == [*range(50)]
    finally:
        lab.process("n1").send_signal(signal.SIGCONT)
