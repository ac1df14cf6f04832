"""Replicas with durable subscriptions: readers that come and go, replicas that crash, links that fail.

Every step is checked: a replica forgets a sample only when the quorum of each durable subscription has
acknowledged it.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Callable, Iterable
from typing import Final

from engine.core.lazy_dataclass import lazy_dataclass
from engine.dataset.sample import DATA
from engine.persistence.core.positions import position_of
from engine.persistence.core.provider_selection import SynchronizationSettings
from engine.persistence.core.reader_answers import ReaderAnswers
from engine.persistence.core.replica_messages import (
    OriginalSample,
    PeerMessage,
    Saved,
    SavedSubscriptions,
    SubscriberAnswer,
    SubscriberState,
)
from engine.persistence.core.subscriber import Subscriber
from engine.persistence.core.subscriptions import Subscriptions
from engine.simulator.rehearsal.rehearsed_replicas import LINK_DELAY_MS, RehearsedLink, ReplicaCluster

_TURN_MS: Final = 100
CLIENT_DELAY_MS: Final = 50

Id = tuple[str, int]


@lazy_dataclass(frozen=True, slots=True)
class SavedReplica:
    """The disk of a replica: everything from one moment."""

    saved: Saved
    subscriptions: SavedSubscriptions


@lazy_dataclass(eq=False)
class RehearsedReader:
    """An application with one reader of a durable subscription."""

    deciding: Subscriber
    """Its decisions."""
    replicas: set[str] = dataclasses.field(default_factory=set)
    """Names of the replicas that it is connected to."""
    writers: set[str] = dataclasses.field(default_factory=set)
    """Original writers that it is connected to."""
    waiting: list[OriginalSample] = dataclasses.field(default_factory=list)
    """Samples that came before the pending ones were complete."""
    taken: list[OriginalSample] = dataclasses.field(default_factory=list)
    """Samples that the application took, in order."""
    acknowledged: int = 0
    """How many of `taken` it has acknowledged."""
    sent: list[Id] = dataclasses.field(default_factory=list)
    """Samples that replicas sent to it."""
    is_there: bool = True
    """Whether it runs; it never starts again under its name."""


class SubscribedCluster(ReplicaCluster):
    """Replicas with durable subscriptions, and applications that read with them.

    There are `count` replicas; the seed determines all that is random.

    Attributes:
        stocks: the durable subscriptions of each replica.
        reader_answers: the side of each replica to which readers talk.
        applications: by a name that is never used again.
        issued: members that have acknowledged a sample, by (subscription, writer, number).
        disks: the last save of each replica.
    """

    def __init__(self, count: int, seed: int, settings: SynchronizationSettings) -> None:
        self.stocks: dict[str, Subscriptions] = {}
        self.reader_answers: dict[str, ReaderAnswers] = {}
        self.applications: dict[str, RehearsedReader] = {}
        self.issued: dict[tuple[str, str, int], set[str]] = collections.defaultdict(set)
        self.disks: dict[str, SavedReplica] = {}
        super().__init__(count, seed, settings)

    # Replicas.

    def start(self, name: str, saved: Saved | None = None) -> None:
        """Start a replica; with `saved` it also finds the durable subscriptions of its disk."""
        super().start(name, saved)
        replica, disk = self.replicas[name], self.disks.get(name)
        stock = Subscriptions(
            name,
            self.settings,
            lambda: replica.values().values(),
            disk.subscriptions if disk and saved is not None else None,
        )
        self.stocks[name] = stock
        self.reader_answers[name] = ReaderAnswers(name, lambda _: (stock,))
        self._after(self._random.randrange(self.settings.subscription_period_ms), self._sync, name, stock)

    def _sync(self, name: str, stock: Subscriptions) -> None:
        if self.stocks.get(name) is stock:
            self._at_stock(name, stock.period)
            self._after(self.settings.subscription_period_ms, self._sync, name, stock)

    def save(self, name: str) -> None:
        """Put everything that a replica has on its disk."""
        self.disks[name] = SavedReplica(self.replicas[name].saved(), self.stocks[name].saved())

    def crash(self, name: str) -> None:
        """Kill a replica and start it with its last save, connected to no other."""
        disk = self.disks.get(name)
        self.lose(name)
        self.start(name, disk.saved if disk else None)

    def lose(self, name: str) -> None:
        """Take a replica and its disk away for ever."""
        super().lose(name)
        del self.stocks[name], self.reader_answers[name]
        for application in self.applications.values():
            application.replicas.discard(name)

    def join(self, one: str, other: str) -> None:
        """Connect two replicas."""
        before = self.links[frozenset((one, other))].generation
        super().join(one, other)
        if self.links[frozenset((one, other))].generation != before:
            for here, there in ((one, other), (other, one)):
                self._at_stock(here, functools.partial(self.stocks[here].connected, there))

    def cut(self, one: str, other: str) -> None:
        """Disconnect two replicas."""
        super().cut(one, other)
        for here, there in ((one, other), (other, one)):
            if here in self.stocks:
                self.stocks[here].disconnected(there)

    def _arrived(self, name: str, samples: list[OriginalSample]) -> None:
        for sample in samples:
            self._at_stock(name, functools.partial(self.stocks[name].sample_arrived, sample))

    def register(self, name: str, subscription: str, quorum: int) -> None:
        """Create a durable subscription at the replica `name`, as its configuration does.

        A sample that `quorum` of its readers have acknowledged is done.
        """
        self._at_stock(name, lambda: self.stocks[name].register(subscription, quorum))

    def delete(self, name: str, subscription: str) -> None:
        """Delete a durable subscription at one replica."""
        self._at_stock(name, lambda: self.stocks[name].delete(subscription))

    def _at_stock(self, name: str, act: Callable[[], object]) -> None:
        """Let a replica do something, and check that it forgets only what is acknowledged."""
        stock = self.stocks[name]
        before = stock.held()
        act()
        for writer, number in before - stock.held():
            for each in stock.status():
                acknowledged = len(self.issued[each.name, writer, number])
                assert acknowledged >= each.quorum, (name, each.name, writer, number)
        for receiver, message in stock.messages():
            link = self.links[frozenset((name, receiver))]
            if link.up:
                self._tell_peer(name, receiver, link, message)

    def _tell_peer(self, sender: str, receiver: str, link: RehearsedLink, message: PeerMessage) -> None:
        generation = link.generation

        def arrive() -> None:
            if link.generation == generation and receiver in self.stocks:
                self._at_stock(receiver, lambda: self.stocks[receiver].receive(sender, message))

        self._in_order((f"stock {sender}", receiver), LINK_DELAY_MS, arrive)

    # Applications.

    def come(self, subscription: str, quorum: int, member: str, *replicas: str) -> str:
        """Start an application with a durable subscription, connected to `replicas`; return its name.

        Its `member` name is part of the subscription, in which `quorum` members must acknowledge a sample.
        """
        name = f"a{len(self.applications)}"
        period_s = self.settings.subscription_period_ms / 1000
        deciding = Subscriber("T", (), subscription, quorum, member, period_s)
        self.applications[name] = RehearsedReader(deciding)
        for replica in replicas:
            self.find(name, replica)
        self._after(1, self._turn, name)
        return name

    def find(self, application: str, replica: str) -> None:
        """Connect an application to a replica."""
        self.applications[application].replicas.add(replica)

    def part(self, application: str, replica: str) -> None:
        """Disconnect an application from a replica."""
        self.applications[application].replicas.discard(replica)
        self.reader_answers[replica].left(application)

    def leave(self, application: str) -> None:
        """Kill an application; acknowledgements that no replica has heard are lost."""
        for replica in list(self.applications[application].replicas):
            self.part(application, replica)
        self.applications[application].is_there = False

    def listen(self, application: str, writer: str) -> None:
        """Connect an application to an original writer."""
        self.applications[application].writers.add(writer)

    def acknowledge(self, application: str, count: int) -> None:
        """Let an application acknowledge the next `count` samples that it has taken."""
        state = self.applications[application]
        samples = state.taken[state.acknowledged : state.acknowledged + count]
        state.acknowledged += len(samples)
        for sample in samples:
            subscription = state.deciding.name
            self.issued[subscription, sample.writer, sample.sequence].add(state.deciding.member)
        state.deciding.acknowledge((sample.writer, sample.sequence) for sample in samples)

    def publish(self, writer: str, key: bytes, time_ns: int | None = None) -> OriginalSample:
        """Let an original writer write to replicas and to applications; as `write`.

        `time_ns` is the source time, by default the present one.
        """
        stamp = self.now_ms * 1_000_000 if time_ns is None else time_ns
        self.write(writer, key, stamp)
        payload = f"{writer}/{self.written[writer]}".encode()
        sample = OriginalSample(writer, position_of(key, stamp, DATA, payload), key, stamp, payload)
        for name, state in self.applications.items():
            if state.is_there and writer in state.writers:
                arrive = functools.partial(self._take, name, [sample])
                self._in_order((writer, name), CLIENT_DELAY_MS, arrive)
        return sample

    def _turn(self, name: str) -> None:
        state = self.applications[name]
        if not state.is_there:
            return
        now = self.now_ms / 1000
        state.deciding.present(state.replicas, now)
        told = state.deciding.turn(now)
        if told is not None:
            for replica in sorted(state.replicas):
                hear = functools.partial(self._hear, replica, self.reader_answers[replica], name, told)
                self._in_order((name, replica), CLIENT_DELAY_MS, hear)
        self._after(_TURN_MS, self._turn, name)

    def _hear(self, replica: str, reader_answers: ReaderAnswers, name: str, told: SubscriberState) -> None:
        if (
            self.reader_answers.get(replica) is not reader_answers
            or replica not in self.applications[name].replicas
        ):
            return
        answers: list[SubscriberAnswer] = []
        self._at_stock(replica, lambda: answers.extend(reader_answers.heard(name, told)))
        for answer in answers:
            self._tell_application(replica, name, answer)

    def _tell_application(self, replica: str, name: str, answer: SubscriberAnswer) -> None:
        state, reader_answers = self.applications[name], self.reader_answers[replica]

        def arrive() -> None:
            if self.reader_answers.get(replica) is not reader_answers or replica not in state.replicas:
                return
            state.sent.extend((sample.writer, sample.sequence) for sample in answer.samples)
            self._take(name, answer.samples)
            state.deciding.answer(replica, answer, self.now_ms / 1000)
            self._take(name, ())

        self._in_order((replica, name), CLIENT_DELAY_MS, arrive)

    def _take(self, name: str, samples: Iterable[OriginalSample]) -> None:
        state = self.applications[name]
        if not state.is_there:
            return
        state.waiting += [each for each in samples if state.deciding.arrived(each.writer, each.sequence)]
        if state.deciding.is_complete:
            state.taken += sorted(state.waiting, key=lambda each: each.order)
            state.waiting.clear()

    # The end.

    def done(self) -> set[tuple[str, str, int]]:
        """Return (subscription, writer, number) of the samples that a replica knows as done by the quorum."""
        return {
            (state.name, writer, number)
            for stock in self.stocks.values()
            for state in stock.saved().ledgers
            for writer, numbers in state.done
            for number in numbers
        }

    def held(self) -> set[Id]:
        """Return the samples that at least one replica holds for durable subscriptions."""
        return set().union(*(stock.held() for stock in self.stocks.values()))
