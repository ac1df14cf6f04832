"""Durable subscriptions under faults, in virtual time."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.persistence.core import subscriptions as held_module
from engine.persistence.core import subscriptions as subscriptions_module
from engine.persistence.core.messages import OriginalSample, SubscriberState
from engine.persistence.core.provider_selection import SynchronizationSettings
from engine.persistence.core.subscriber import Subscriber
from engine.persistence.core.subscriptions import ReaderAnswers, Subscriptions
from engine.simulator.rehearsal import RehearsedReader
from tests.redundancy.laws import TriedCluster

BOTH = SynchronizationSettings(enable=True, synchronize_durable_subscriptions=True)
PERIOD_MS = BOTH.subscription_period_ms
LOG = "logger"


def ids(samples: list[OriginalSample]) -> list[tuple[str, int]]:
    return [(each.writer, each.sequence) for each in samples]


def cluster_of(count: int, seed: int = 3, *, quorum: int = 1) -> TriedCluster:
    """Replicas that all have the durable subscription in their configuration, and one writer with i0."""
    cluster = TriedCluster(count, seed, BOTH)
    for name in cluster.names:
        cluster.register(name, LOG, quorum)
    cluster.attach("w", "i0")
    cluster.run(1_000)
    return cluster


def write(cluster: TriedCluster, count: int, keys: int = 3) -> list[tuple[str, int]]:
    written = []
    for number in range(count):
        written.append(cluster.write("w", b"%d" % (number % keys)))
        cluster.run(1)
    cluster.run(1_000)
    return ids(written)


def all_come(cluster: TriedCluster, quorum: int = 1, member: str = "m") -> RehearsedReader:
    name = cluster.come(LOG, quorum, member, *cluster.names)
    cluster.run(1_000)
    assert cluster.applications[name].deciding.is_complete
    return cluster.applications[name]


def test_a_subscriber_that_was_away_gets_what_it_lacks_in_order_and_once() -> None:
    cluster = cluster_of(2)
    first = write(cluster, 10)
    cluster.run(4 * PERIOD_MS)
    cluster.save("i0")
    one = all_come(cluster)
    assert ids(one.taken) == first
    assert len(one.sent) == 10, "one replica gives, the other is told what is there"
    cluster.acknowledge("a0", 7)
    cluster.run(1_000)
    cluster.leave("a0")
    cluster.crash("i0")
    assert cluster.stocks["i0"].held() == set(first), "what it had saved"
    cluster.attach("w", "i0")
    later = write(cluster, 5)
    cluster.heal()
    cluster.run(4 * PERIOD_MS)
    assert ids(all_come(cluster).taken) == first[7:] + later


def test_what_only_one_replica_got_comes_to_the_others_and_survives_it() -> None:
    cluster = cluster_of(3)
    written = write(cluster, 40)
    cluster.run(4 * PERIOD_MS)
    assert all(stock.held() == set(written) for stock in cluster.stocks.values())
    cluster.lose("i0")
    assert ids(all_come(cluster).taken) == written


def test_an_acknowledgement_reaches_replicas_that_were_not_there() -> None:
    cluster = cluster_of(2)
    written = write(cluster, 6)
    cluster.run(4 * PERIOD_MS)
    cluster.cut("i0", "i1")
    cluster.come(LOG, 1, "m", "i0")
    cluster.run(1_000)
    cluster.acknowledge("a0", 4)
    cluster.run(1_000)
    cluster.leave("a0")
    assert (len(cluster.stocks["i0"].held()), len(cluster.stocks["i1"].held())) == (2, 6)
    cluster.heal()
    cluster.run(2 * PERIOD_MS)
    assert ids(all_come(cluster).taken) == written[4:]


def test_a_quorum_of_two_needs_two_members_and_each_gets_only_what_it_lacks() -> None:
    cluster = cluster_of(2, quorum=2)
    written = write(cluster, 6)
    all_come(cluster, 2, "a")
    cluster.acknowledge("a0", 6)
    cluster.run(1_000)
    assert cluster.held() == set(written), "one of two"
    status = cluster.stocks["i0"].status()[0]
    assert (status.members, status.pending, status.in_doubt) == (("a",), 6, {"a": 6})
    cluster.leave("a0")
    assert all_come(cluster, 2, "a").taken == [], "it has them already"
    assert ids(all_come(cluster, 2, "b").taken) == written
    cluster.acknowledge("a2", 4)
    cluster.run(1_000)
    assert cluster.held() == set(written[4:])


def test_live_samples_are_not_sent_again_and_come_after_what_was_pending() -> None:
    cluster = cluster_of(2)
    pending = write(cluster, 5)
    name = cluster.come(LOG, 1, "m", *cluster.names)
    cluster.listen(name, "w")
    live = write(cluster, 5)
    cluster.run(10 * PERIOD_MS)
    one = cluster.applications[name]
    assert ids(one.taken) == pending + live
    assert set(one.sent) >= set(pending)
    assert len(one.sent) <= 10


def test_a_sample_that_reaches_only_a_replica_comes_to_the_subscriber_all_the_same() -> None:
    cluster = cluster_of(2)
    one = all_come(cluster)
    written = write(cluster, 5)
    cluster.run(4 * PERIOD_MS)
    assert ids(one.taken) == written


def test_a_deleted_subscription_keeps_nothing_and_a_new_readerbegins_with_last_values() -> None:
    cluster = cluster_of(2)
    written = write(cluster, 9)
    cluster.run(4 * PERIOD_MS)
    cluster.delete("i1", LOG)
    cluster.run(2 * PERIOD_MS)
    assert cluster.held() == set()
    assert all(stock.status() == () for stock in cluster.stocks.values())
    cluster.register("i0", LOG, 1)
    cluster.run(2 * PERIOD_MS)
    assert cluster.held() == set(written[-3:]), "of three instances"


def test_without_synchronization_a_replica_knows_only_its_own() -> None:
    cluster = TriedCluster(2, 3, SynchronizationSettings(enable=True))
    cluster.register("i0", LOG, 1)
    cluster.attach("w", "i0")
    cluster.run(4 * PERIOD_MS)
    assert [len(stock.status()) for stock in cluster.stocks.values()] == [1, 0]


class Room:
    """One replica with room for three samples."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(held_module, "MAX_HELD", 3)
        self.values: dict[bytes, OriginalSample] = {}
        self.stock = Subscriptions("i", BOTH, self.values.values)
        self.stock.register(LOG, 1)
        for number in range(1, 6):
            sample = OriginalSample("w", number, b"k", number)
            self.values[sample.key] = sample
            self.stock.sample_arrived(sample)


def test_at_the_bound_new_samples_are_not_kept_which_is_counted_and_said_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    room = Room(monkeypatch)
    assert room.stock.held() == {("w", 1), ("w", 2), ("w", 3)}
    assert room.stock.counters["refused"] == 2
    (report,) = room.stock.reports()
    assert "3 samples" in report
    assert f"'{LOG}' 3" in report
    room.stock.acknowledge(LOG, "m", (("w", (1,)),))
    room.stock.period()
    assert room.stock.held() == {("w", 2), ("w", 3), ("w", 5)}, "the last value comes back when there is room"
    assert room.stock.reports() == ["2 samples were not kept for durable subscriptions"]
    reader_answers = ReaderAnswers("i", lambda _: (room.stock,))
    (answer,) = reader_answers.heard("c", SubscriberState("T", (), LOG, 1, "m", 1, asked="i", request=1))
    assert (answer.is_last, answer.missed, ids(list(answer.samples))) == (
        True,
        2,
        [("w", 2), ("w", 3), ("w", 5)],
    )


def test_a_group_is_told_of_its_own_writers_and_what_is_given_again_is_acknowledged_again() -> None:
    one, other = (Subscriptions("i", BOTH, tuple) for _ in range(2))
    reader_answers = ReaderAnswers("i", lambda _: (one, other))
    reader = Subscriber("T", ("*",), LOG, 1, "m")
    reader.present(["i"], 0.0)

    def talk(now: float) -> list[OriginalSample]:
        """What the reader is given that is new to it."""
        new: list[OriginalSample] = []
        while (state := reader.turn(now)) is not None:
            for answer in reader_answers.heard("c", state):
                new += [each for each in answer.samples if reader.arrived(each.writer, each.sequence)]
                reader.answer("i", answer, now)
        return new

    assert talk(0.0) == []
    one.sample_arrived(OriginalSample("w", 1, b"k", 1))
    one.period()
    assert ids(talk(10.0)) == [("w", 1)]
    reader.acknowledge([("w", 1)])
    talk(10.0)
    assert one.held() == set()
    assert other.saved().ledgers[0].done == (), "its memory is not used for what it never had"
    other.sample_arrived(OriginalSample("w", 1, b"k", 1))  # the writer writes in both partitions
    other.period()
    assert talk(20.0) == [], "nothing comes twice"
    assert other.held() == set(), "and it is let go"


def test_subscriptions_beyond_the_bound_are_refused_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions_module, "MAX_SUBSCRIPTIONS", 1)
    stock = Subscriptions("i", BOTH, tuple)
    stock.register("one", 1)
    stock.register("two", 1)
    assert [each.name for each in stock.status()] == ["one"]
    assert (stock.counters["subscriptions_refused"], len(stock.reports())) == (1, 1)


def test_the_smaller_of_two_quorums_counts_and_is_said() -> None:
    stock = Subscriptions("i", BOTH, tuple)
    stock.register(LOG, 2)
    stock.register(LOG, 1)
    assert stock.status()[0].quorum == 1
    assert (stock.counters["quorum_conflicts"], len(stock.reports())) == (1, 1)


KINDS = (
    *("write", "write", "write", "old", "cut", "join", "lose", "save", "crash", "attach"),
    *("come", "come", "leave", "find", "part", "acknowledge", "acknowledge", "listen"),
)
STEPS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 9), st.integers(0, 9)), max_size=50)
MEMBERS = {"one": ("m",), "two": ("a", "b", "c")}
QUORUMS = {"one": 1, "two": 2}


class Chaos:
    """A drawn system: two durable subscriptions, with quorums of one and of two."""

    def __init__(self, count: int, seed: int) -> None:
        self.cluster = TriedCluster(count, seed, BOTH)
        for name, (subscription, quorum) in itertools.product(self.cluster.names, QUORUMS.items()):
            self.cluster.register(name, subscription, quorum)
        self.cluster.attach("w0", "i0")
        self.cluster.attach("w1", "i1")

    def step(self, kind: str, one: int, other: int) -> None:
        cluster = self.cluster
        alive = list(cluster.names)
        here, there = alive[one % len(alive)], alive[other % len(alive)]
        writer = f"w{one % 3}"
        if kind in ("cut", "join") and here == there:
            return
        if kind == "lose" and (len(alive) == 1 or one != other):
            return
        acts: dict[str, Callable[[], object]] = {
            "write": lambda: cluster.write(writer, b"%d" % (other % 4)),
            "old": lambda: cluster.write(writer, b"%d" % (other % 4), time_ns=other),
            "cut": partial(cluster.cut, here, there),
            "join": partial(cluster.join, here, there),
            "attach": partial(cluster.attach, writer, there),
            "save": partial(cluster.save, here),
            "crash": partial(self.crash, here),
            "lose": partial(cluster.lose, here),
            "come": partial(self.come, ("one", "two")[other % 2], one, here),
        }
        applications = [name for name, each in cluster.applications.items() if each.is_there]
        if applications:
            application = applications[one % len(applications)]
            acts |= {
                "leave": partial(cluster.leave, application),
                "find": partial(cluster.find, application, there),
                "part": partial(cluster.part, application, there),
                "acknowledge": partial(cluster.acknowledge, application, other),
                "listen": partial(cluster.listen, application, f"w{other % 3}"),
            }
        acts.get(kind, lambda: None)()
        cluster.run(one * 700)

    def crash(self, name: str) -> None:
        self.cluster.crash(name)
        for each in self.cluster.names:
            if each != name:
                self.cluster.join(name, each)

    def come(self, subscription: str, number: int, *replicas: str) -> str:
        members = MEMBERS[subscription]
        return self.cluster.come(
            subscription, QUORUMS[subscription], members[number % len(members)], *replicas
        )


@settings(max_examples=2 * settings().max_examples)
@given(st.sampled_from([2, 3]), st.integers(0, 1000), STEPS)
def test_nothing_unacknowledged_is_lost_and_nothing_acknowledged_is_sent_again(
    count: int, seed: int, steps: list[tuple[str, int, int]]
) -> None:
    chaos = Chaos(count, seed)
    cluster = chaos.cluster
    for kind, one, other in steps:
        chaos.step(kind, one, other)
    for name in cluster.applications:
        cluster.leave(name)
    cluster.heal()
    held, done = cluster.held(), cluster.done()
    cluster.run(8 * PERIOD_MS)
    for subscription, members in MEMBERS.items():
        wanted = {each for each in held if (subscription, *each) not in cluster.done()}
        quorum = QUORUMS[subscription]
        for member in members[:quorum]:
            lacking = {
                (each.writer, each.sequence)
                for stock in cluster.stocks.values()
                for each in stock.pending(subscription, member)
            }
            name = cluster.come(subscription, quorum, member, *cluster.names)
            cluster.run(2_000)
            reader = cluster.applications[name]
            assert sorted(ids(reader.taken)) == sorted(lacking), "whole, and once"
            assert reader.taken == sorted(reader.taken, key=lambda each: each.order)
            assert not {(subscription, *each) for each in reader.sent} & done
            if quorum == 1:
                assert set(ids(reader.taken)) >= wanted
            cluster.acknowledge(name, len(reader.taken))
            cluster.run(1_000)
    cluster.run(4 * PERIOD_MS)
    assert cluster.held() == set(), "all is acknowledged"
    books = [stock.saved().ledgers for stock in cluster.stocks.values()]
    assert all(each == books[0] for each in books), "all know the same"
