"""Durable subscriptions between real processes: what a reader lacks comes, in order and once."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from cyclonedds.core import Policy, Qos

from engine.dds.subscription_endpoints import StateWriter, reader_id
from engine.persistence.core.messages import SubscriberState, encode
from engine.persistence.service.replica_view import SubscriptionView
from ospltool.client import (
    DurabilityClient,
    DurableReader,
    InvalidSubscription,
    NoPersistenceService,
    PreconditionNotMet,
    UnsupportedQos,
)
from tests.integration.application_types import Reading
from tests.integration.lab import Lab
from tests.redundancy.replicas import Replicas

pytestmark = pytest.mark.dds

STOCK = ("stock",)
LOG = "logger"
TOGETHER = """<synchronize_durable_subscription>true</synchronize_durable_subscription>
<durable_subscription_synchronization_period>300</durable_subscription_synchronization_period>"""

Open = Callable[..., DurableReader[Reading]]


@pytest.fixture
def replicas(lab: Lab) -> Iterator[Replicas]:
    made = Replicas(lab, synchronization=TOGETHER)
    yield made
    made.close()


@pytest.fixture
def client(lab: Lab) -> Iterator[DurabilityClient]:
    with DurabilityClient(lab.domain, uri=lab.uri) as made:
        yield made


@pytest.fixture
def come(client: DurabilityClient) -> Open:
    """Opens a reader of the durable subscription, with what was pending complete."""

    def make(**options: Any) -> DurableReader[Reading]:
        options = {"durable_subscription": LOG, **options}
        reader = DurableReader(client, "Reading", Reading, STOCK, **options)
        reader.wait_for_historical_data(30)
        return reader

    return make


TIMES = itertools.count(1)


def write(lab: Lab, values: Sequence[int], instances: int = 2, *, readers: int) -> None:
    """Each value to each instance."""
    steps = [{"count": instances, "time": 1_000_000 * next(TIMES), "value": value} for value in values]
    lab.write(*steps, depth=0, readers=readers)


def check_values(samples: Sequence[Any], values: Sequence[int], instances: int = 2) -> None:
    """Of each instance these values, in order, once."""
    for number in range(instances):
        assert [one.data.value for one in samples if one.data.number == number] == list(values)


def pending(replicas: Replicas, name: str) -> int:
    shown = replicas.shown().get(name)
    return sum(each.pending for each in shown.subscriptions) if shown else -1


def wait_pending(replicas: Replicas, count: int, *names: str) -> None:
    """Until so many samples wait at each of them, all on disk."""

    def are_pending() -> bool:
        shown = replicas.shown()
        return all(
            name in shown and pending(replicas, name) == count and not shown[name].unwritten for name in names
        )

    replicas.wait_for(f"{count} are pending at {', '.join(names)}", are_pending)


def test_a_reader_that_was_away_gets_what_it_lacks_although_a_replica_was_killed(
    lab: Lab, replicas: Replicas, client: DurabilityClient, come: Open
) -> None:
    replicas.start("a", "b")
    replicas.wait_connected("a", "b")
    client.register_durable_subscription("Reading", LOG, partitions=STOCK, timeout_s=20)
    write(lab, range(10), readers=2)
    wait_pending(replicas, 20, "a", "b")
    with come() as reader:
        samples = reader.take(10)
        reader.wait_for_acknowledgments(20)
        assert all(one.is_historical for one in samples)
    wait_pending(replicas, 10, "a", "b")
    replicas.kill("b")
    write(lab, range(10, 15), readers=1)
    wait_pending(replicas, 20, "a")
    replicas.start("b")
    wait_pending(replicas, 20, "b")
    replicas.kill("a")
    with come() as reader:
        samples += reader.take()
        check_values(samples, range(15))
        reader.wait_for_acknowledgments(20)
        assert reader.counters.repeated == 0
    wait_pending(replicas, 0, "b")
    with come() as reader:
        assert reader.take() == []
    replicas.start("a")
    wait_pending(replicas, 0, "a")


def test_live_samples_follow_what_was_pending_and_nothing_comes_twice(
    lab: Lab, replicas: Replicas, client: DurabilityClient, come: Open
) -> None:
    replicas.start("a")
    say_nonsense(client)
    client.register_durable_subscription("Reading", LOG, partitions=STOCK, timeout_s=20)
    write(lab, range(3), readers=1)
    wait_pending(replicas, 6, "a")
    replicas.wait_for(
        "nonsense is counted and harms nobody", lambda: replicas.counter("a", "reader_malformed") == 1
    )
    refused = lab.program("refused_writer")
    assert refused.line(30)["refused"]
    replicas.wait_for("it is counted", lambda: replicas.counter("a", "refused_writers") == 1)
    assert "RELIABILITY: offered BEST_EFFORT, requested RELIABLE" in replicas.log("a").read_text()
    assert refused.end() == 0
    with come(acknowledges_on_take=False) as reader:
        write(lab, range(3, 6), readers=2)
        samples = reader.take()
        while len(samples) < 12:
            assert reader.wait(20)
            samples += reader.take()
        check_values(samples, range(6))
        assert pending(replicas, "a") > 0, "nothing is acknowledged"
        first = [one for one in samples if one.data is not None and one.data.value < 4]
        reader.acknowledge(first)
        reader.wait_for_acknowledgments(20)
        wait_pending(replicas, 4, "a")
    with come() as reader:
        check_values(reader.take(), range(4, 6))


def test_what_is_configured_has_its_quorum_and_can_be_deleted(
    lab: Lab, client: DurabilityClient, come: Open
) -> None:
    element = f"<role_name>{LOG}</role_name><topic_name>Reading</topic_name><quorum>2</quorum>"
    configured = f"<durable_subscriptions><element>{element}</element></durable_subscriptions>"
    replicas = Replicas(lab, synchronization=TOGETHER, more=configured)
    try:
        replicas.start("a")
        write(lab, range(4), readers=1)
        wait_pending(replicas, 8, "a")
        for member, left in (("one", 8), ("two", 0)):
            with come(quorum=2, member=member) as reader:
                check_values(reader.take(), range(4))
                reader.wait_for_acknowledgments(20)
                wait_members(replicas, member)
            wait_pending(replicas, left, "a")
        (shown,) = views(replicas)
        assert (shown.name, shown.quorum, shown.topic, shown.partition) == (LOG, 2, "Reading", "stock")
        client.delete_durable_subscription("Reading", LOG, partitions=["*"], timeout_s=20)
        replicas.wait_for("it is gone", lambda: views(replicas) == ())
    finally:
        replicas.close()


def views(replicas: Replicas) -> tuple[SubscriptionView, ...]:
    return replicas.shown()["a"].subscriptions


def wait_members(replicas: Replicas, *wanted: str) -> None:
    def are_shown() -> bool:
        return [member for each in views(replicas) for member in each.members] == [*wanted]

    replicas.wait_for(f"{wanted} are shown", are_shown)


def say_nonsense(client: DurabilityClient) -> None:
    """As a reader whose state is none."""
    session = client.session
    with session.lock:
        hostile = StateWriter(session.participant, session.signal, reader_id(session.id, 999))
    assert session.wait_until(lambda: bool(hostile.services()), time.monotonic() + 20)
    whole = encode(SubscriberState("Reading", STOCK, LOG, 1, "m", 1))
    hostile.write(whole.replace(b'"quorum":1', b'"quorum":0'), time.time_ns())


def test_what_can_not_be_is_refused(client: DurabilityClient) -> None:
    wrong: list[dict[str, Any]] = [
        {"durable_subscription": ""},
        {"durable_subscription": "x" * 256},
        {"durable_subscription": LOG, "quorum": 0},
        {"durable_subscription": LOG, "quorum": 2},
        {"durable_subscription": LOG, "member": "\x1b"},
    ]
    for options in wrong:
        with pytest.raises(InvalidSubscription):
            DurableReader(client, "Reading", Reading, STOCK, **options)
    with pytest.raises(UnsupportedQos):
        DurableReader(
            client, "Reading", Reading, STOCK, Qos(Policy.History.KeepLast(1)), durable_subscription=LOG
        )
    with pytest.raises(NoPersistenceService):
        client.register_durable_subscription("Reading", LOG, timeout_s=0.3)
    with DurableReader(client, "Reading", Reading, STOCK, durable_subscription=LOG) as reader:
        with pytest.raises(NoPersistenceService):
            reader.wait_for_historical_data(0.3)
        with pytest.raises(NoPersistenceService):
            reader.wait_for_acknowledgments(0.3)
    with DurableReader(client, "Reading", Reading, STOCK) as ordinary, pytest.raises(PreconditionNotMet):
        ordinary.wait_for_acknowledgments(0.3)
