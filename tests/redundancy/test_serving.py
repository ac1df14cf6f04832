"""Who serves late readers, and with what, among connected persistence services; without a network."""

from __future__ import annotations

import pathlib
import types
from collections.abc import Callable

import pytest

from engine.capture.neighbourhood import DiscoveryChanges, HistoryReader
from engine.config.persistence import load
from engine.core.name_spaces import Group
from engine.dataset.groups import DurabilityKind, GroupDescription, GroupQos
from engine.dataset.sample import DATA
from engine.dds.own_types import SenderState
from engine.dds.topics import description_of
from engine.persistence.core.messages import OriginalSample, ServedReaders
from engine.persistence.service import service_parts as serving_module
from engine.persistence.service.kept_groups import KnownGroups, group_id, writer_name
from engine.persistence.service.service_parts import (
    FURTHER_S,
    MARGIN_NS,
    RETRY_S,
    SETTLE_S,
    Groupwise,
    LateReaders,
)
from engine.runtime.ports import Delivered, GivenGroup

CONFIGURATION = str(pathlib.Path(__file__).parents[2] / "samples" / "redundant-persistence" / "service.xml")
TYPE = description_of(SenderState)
DESCRIPTION = GroupDescription(Group("p", "t", TYPE.type_id), TYPE, GroupQos(DurabilityKind.PERSISTENT))
ID = group_id(DESCRIPTION.group)
READER = HistoryReader(bytes(16), ("10.0.0.1:1",), "t", ("p",))
OTHER = HistoryReader(b"\1" * 16, ("10.0.0.1:2",), "t", ("*",))
START_S, START_NS = 1_000.0, 10**18


def sample(number: int, time_ns: int = START_NS) -> OriginalSample:
    return OriginalSample(
        writer_name(bytes(16), ID), number, ID + bytes((number,)), time_ns + number, b"x", DATA
    )


class Clock:
    """Time as the module under test sees it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = START_S
        monkeypatch.setattr(
            serving_module,
            "time",
            types.SimpleNamespace(monotonic=lambda: self.now_s, time_ns=lambda: START_NS),
        )


class One:
    """A service that keeps three samples; what it delivers is written down, and done when it is told."""

    def __init__(self, name: str, *, synchronizes: bool = True) -> None:
        groups = KnownGroups(load(CONFIGURATION, {}).groups)
        groups.learn(DESCRIPTION)
        self.name = name
        self.kept = [sample(number) for number in (1, 2, 3)]
        self.given: list[tuple[HistoryReader, list[int]]] = []
        self.reached: frozenset[bytes] = frozenset()
        self.problem = ""
        self._under_way: list[tuple[Callable[[], Delivered], Callable[[Delivered], None]]] = []
        self.part = LateReaders(
            name,
            synchronizes=synchronizes,
            groups=groups,
            kept=lambda _: self.kept,
            is_expired=lambda one, _: one.payload == b"expired",
            deliver=self._deliver,
            submit=lambda work, done: self._under_way.append((work, done)),
        )

    def _deliver(self, reader: HistoryReader, groups: Groupwise) -> Delivered:
        numbers = [one.key[0] for _, samples in groups for one in samples]
        self.given.append((reader, numbers))
        given = GivenGroup(DESCRIPTION.group, len(numbers), 0, self.reached, frozenset(), frozenset(), "")
        return Delivered(samples=len(numbers), problem=self.problem, given=(given,))

    def sees(self, *ends: bytes, reader: HistoryReader = READER, is_further: bool = False) -> None:
        self.part.discovered(DiscoveryChanges(ends_seen=[(reader, end, is_further) for end in ends]))

    def finish(self) -> None:
        under_way, self._under_way = self._under_way, []
        for work, done in under_way:
            done(work())


class Services:
    """Replicas that are connected and hear each other at once."""

    def __init__(self, clock: Clock, names: str) -> None:
        self._clock = clock
        self.replicas = {name: One(name) for name in names}
        for name in names:
            for peer in names.replace(name, ""):
                self.replicas[name].part.connected(peer)

    def turn(self) -> None:
        for name, replica in self.replicas.items():
            replica.part.turn(self._clock.now_s)
            replica.finish()
            for peer, message in replica.part.messages():
                if peer in self.replicas:
                    assert isinstance(message, ServedReaders)
                    self.replicas[peer].part.receive(name, message)

    def pass_time(self, seconds: float) -> None:
        self._clock.now_s += seconds
        self.turn()

    def end(self, name: str) -> None:
        del self.replicas[name]
        for replica in self.replicas.values():
            replica.part.disconnected(name)

    def given(self) -> dict[str, int]:
        return {name: len(one.given) for name, one in self.replicas.items()}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def settled(clock: Clock, names: str) -> Services:
    services = Services(clock, names)
    services.turn()
    services.pass_time(SETTLE_S)
    return services


def alone(clock: Clock, *, synchronizes: bool = True) -> One:
    replica = One("a", synchronizes=synchronizes)
    replica.part.turn(clock.now_s)
    clock.now_s += SETTLE_S
    return replica


def check_given(replica: One, clock: Clock, *numbers: int, reader: HistoryReader = READER) -> None:
    """The next turn gives just these samples to the reader's process."""
    replica.given.clear()
    replica.part.turn(clock.now_s)
    replica.finish()
    assert replica.given == ([(reader, list(numbers))] if numbers else [])


def test_one_of_those_that_are_connected_serves_and_the_others_know(clock: Clock) -> None:
    services = settled(clock, "abc")
    for replica in services.replicas.values():
        replica.sees(b"1")
    services.turn()
    assert services.given() == {"a": 1, "b": 0, "c": 0}
    services.end("a")
    services.pass_time(RETRY_S)
    assert services.given() == {"b": 0, "c": 0}, "who was served is not served again"
    for replica in services.replicas.values():
        replica.sees(b"2", reader=OTHER)
    services.turn()
    assert services.given() == {"b": 1, "c": 0}


def test_one_that_connects_later_is_told_who_has_been_served(clock: Clock) -> None:
    first, second = alone(clock), One("b")
    second.part.turn(clock.now_s - SETTLE_S)
    for replica in (first, second):
        replica.sees(b"1")
    check_given(first, clock, 1, 2, 3)
    first.part.connected("b")
    second.part.connected("a")
    for _, message in first.part.messages():
        assert isinstance(message, ServedReaders)
        second.part.receive("a", message)
    second.part.disconnected("a")
    check_given(second, clock)


def test_an_end_that_was_served_elsewhere_before_it_was_seen_here_is_not_served(clock: Clock) -> None:
    replica = alone(clock)
    replica.part.connected("0")
    replica.part.receive("0", ServedReaders((b"1".hex(),)))
    replica.part.disconnected("0")
    replica.sees(b"1")
    check_given(replica, clock)
    replica.part.discovered(DiscoveryChanges(readers_gone=[READER]))
    replica.sees(b"1")  # out of reach for a while: nobody knows what it missed
    check_given(replica, clock, 1, 2, 3)


def test_without_synchronization_each_serves_and_tells_nobody(clock: Clock) -> None:
    replica = alone(clock, synchronizes=False)
    replica.part.connected("0")
    replica.sees(b"1")
    check_given(replica, clock, 1, 2, 3)
    assert replica.part.messages() == []


def test_nobody_is_served_before_others_can_have_been_found(clock: Clock) -> None:
    replica = One("b")
    replica.sees(b"1")
    due_s = replica.part.turn(clock.now_s)
    assert due_s == clock.now_s + SETTLE_S
    check_given(replica, clock)
    clock.now_s = due_s
    check_given(replica, clock, 1, 2, 3)


def test_further_readers_of_a_process_are_served_together_after_a_pause(clock: Clock) -> None:
    replica = alone(clock)
    replica.sees(b"1")
    check_given(replica, clock, 1, 2, 3)
    replica.sees(b"2", is_further=True)
    check_given(replica, clock)
    clock.now_s += 0.8 * FURTHER_S
    replica.sees(b"3", is_further=True)
    clock.now_s += 0.8 * FURTHER_S
    check_given(replica, clock)
    clock.now_s += 0.3 * FURTHER_S
    check_given(replica, clock, 1, 2, 3)
    check_given(replica, clock)


def test_one_that_comes_during_a_delivery_is_served_again_unless_it_got_all_of_it(clock: Clock) -> None:
    for reached, again in ((frozenset({b"2"}), ()), (frozenset[bytes](), (1, 2, 3))):
        replica = alone(clock)
        replica.sees(b"1")
        replica.part.turn(clock.now_s)
        replica.sees(b"2")
        replica.part.turn(clock.now_s)
        replica.reached = reached
        replica.finish()
        assert replica.given == [(READER, [1, 2, 3])], "one after the other"
        check_given(replica, clock)
        clock.now_s += FURTHER_S
        check_given(replica, clock, *again)


def test_a_delivery_that_came_to_nothing_is_tried_again_later_and_whole(clock: Clock) -> None:
    replica = alone(clock)
    replica.problem = "its process does not answer"
    replica.sees(b"1")
    check_given(replica, clock, 1, 2, 3)
    check_given(replica, clock)
    assert replica.part.messages() == []
    clock.now_s += RETRY_S
    replica.problem = ""
    check_given(replica, clock, 1, 2, 3)
    clock.now_s += RETRY_S
    check_given(replica, clock)


def test_what_others_give_later_reaches_those_who_may_have_come_after_it(clock: Clock) -> None:
    replica = alone(clock)
    replica.sees(b"1")
    replica.part.heard([sample(7)])  # the whole comes first, with it
    check_given(replica, clock, 1, 2, 3)
    replica.part.heard([sample(8), sample(9, START_NS + MARGIN_NS)])
    check_given(replica, clock, 8)
    replica.part.connected("0")
    replica.part.heard([sample(8)])
    replica.part.disconnected("0")
    check_given(replica, clock)


def test_an_update_that_could_not_be_given_is_given_later(clock: Clock) -> None:
    replica = alone(clock)
    replica.sees(b"1")
    check_given(replica, clock, 1, 2, 3)
    replica.problem = "its process does not answer"
    replica.part.heard([sample(8)])
    check_given(replica, clock, 8)
    replica.problem = ""
    replica.part.heard([sample(9)])
    check_given(replica, clock)
    clock.now_s += RETRY_S
    check_given(replica, clock, 8, 9)


def test_who_misses_more_than_can_wait_gets_everything(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving_module, "MAX_UPDATES", 2)
    replica = alone(clock)
    replica.sees(b"1")
    check_given(replica, clock, 1, 2, 3)
    replica.part.heard([sample(number) for number in (7, 8, 9)])
    replica.problem = "its process does not answer"
    check_given(replica, clock, 1, 2, 3)
    replica.problem = ""
    clock.now_s += RETRY_S
    check_given(replica, clock, 1, 2, 3)
    check_given(replica, clock)


def test_what_has_expired_is_counted_and_not_given(clock: Clock) -> None:
    replica = alone(clock)
    replica.kept[1] = OriginalSample(replica.kept[1].writer, 2, ID + b"\2", START_NS, b"expired", DATA)
    replica.sees(b"1")
    check_given(replica, clock, 1, 3)
    assert replica.part.counters["expired"] == 1


def test_a_reader_that_went_is_forgotten_and_served_when_it_is_there_again(clock: Clock) -> None:
    replica = alone(clock)
    replica.sees(b"1")
    check_given(replica, clock, 1, 2, 3)
    replica.part.discovered(DiscoveryChanges(readers_gone=[READER]))
    assert replica.part.readers(DESCRIPTION) == 0
    replica.sees(b"1")
    assert replica.part.readers(DESCRIPTION) == 1
    check_given(replica, clock, 1, 2, 3)


def test_a_stranger_has_no_say_in_who_was_served(clock: Clock) -> None:
    replica = alone(clock)
    replica.part.receive("stranger", ServedReaders((b"1".hex(),)))
    replica.sees(b"1")
    check_given(replica, clock, 1, 2, 3)
