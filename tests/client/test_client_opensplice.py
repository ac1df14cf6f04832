"""The client library with servers that answer like those of OpenSplice, which was seen on real ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cyclonedds.core import Policy, Qos
from cyclonedds.domain import DomainParticipant
from cyclonedds.sub import DataReader, Subscriber
from cyclonedds.topic import Topic

from engine.dds.client_protocol.messages import UNLIMITED
from ospltool.client import (
    DurabilityClient,
    DurableReader,
    HistorySelection,
    InstanceState,
    UnsupportedService,
)
from tests.client.federation import Federation, reading
from tests.client.places import ClientLab
from tests.integration.application_types import Reading

pytestmark = pytest.mark.dds
Connect = Callable[[], DurabilityClient]
VOLATILE = Qos(Policy.Durability.Volatile, Policy.Reliability.Reliable(0), Policy.History.KeepAll)
GROUPS = {
    "partA": [reading(1_000 + at, at % 20, at // 20) for at in range(60)],
    "partB": [reading(2_000 + at, 100 + at, 0) for at in range(10)],
    "other": [reading(3_000, 200, 0), reading(3_001, 200, 1, disposes=True)],
}


@pytest.fixture
def federation(lab: ClientLab, connect: Connect) -> Iterator[Federation]:
    """A server, and readers of each of its groups, as the networking service of OpenSplice has them."""
    connect()  # its settings are those of the domain in this process
    made = Federation(lab.domain, lab.uri, GROUPS)
    participant = DomainParticipant(lab.domain)
    qos = Qos(Policy.Durability.Transient, Policy.Reliability.Reliable(0))
    topic = Topic(participant, "Reading", Reading, qos=qos)
    readers = [
        DataReader(Subscriber(participant, Qos(Policy.Partition([name]))), topic, qos=qos) for name in GROUPS
    ]
    yield made
    made.close()
    del readers


def numbers(samples: list[Any]) -> list[int]:
    return sorted(one.data.number for one in samples if one.data is not None)


@pytest.mark.parametrize(
    ("partitions", "groups"),
    [(("part*",), ("partA", "partB")), (("*",), tuple(GROUPS)), (("partA", "part?"), ("partA", "partB"))],
)
def test_a_partition_expression_brings_the_history_of_every_group(
    federation: Federation, connect: Connect, partitions: tuple[str, ...], groups: tuple[str, ...]
) -> None:
    wanted = [sample for name in groups for sample in GROUPS[name]]
    with DurableReader(connect(), "Reading", Reading, partitions) as reader:
        reader.wait_for_historical_data(30)
        got = reader.take()
    assert sorted(one.source_time_ns for one in got) == sorted(one.source_time_ns for one in wanted)
    assert {one.instance_state for one in got if one.data and one.data.number < 200} == {
        InstanceState.NOT_ALIVE_NO_WRITERS
    }, "no participant of that system is there"
    asked = {one.partitions for one in federation.asked}
    assert {(name,) for name in groups} <= asked


def test_limits_are_applied_here_and_no_instance_is_left_out(
    federation: Federation, connect: Connect
) -> None:
    with DurableReader(connect(), "Reading", Reading, ["partA"], VOLATILE) as reader:
        reader.wait_for_historical_data(30, HistorySelection(max_samples_per_instance=1))
        got = [(one.data.number, one.data.value) for one in reader.take() if one.data]
    assert sorted(got) == [(number, 2) for number in range(20)]
    assert {one.max_samples_per_instance for one in federation.asked} == {UNLIMITED}


def test_states_of_every_group_are_told_for_an_expression(federation: Federation, connect: Connect) -> None:
    client = connect()
    client.wait_for_service(20)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        found = {(one.partition, one.topic) for one in client.durability_state("*", ["*"])}
        if len(found) == len(GROUPS):
            break
    assert found == {(name, "Reading") for name in GROUPS}


def test_deleting_is_refused_at_once(federation: Federation, connect: Connect) -> None:
    client = connect()
    client.wait_for_service(20)
    with pytest.raises(UnsupportedService, match="another product"):
        client.delete_historical_data("*", "Reading", timeout_s=3_600)  # this test may last 120 s
