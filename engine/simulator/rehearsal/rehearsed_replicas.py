"""Replicas, original writers and links in one thread under virtual time: equal seeds give equal runs.

`engine.simulator.schedule` gives the time. `engine.simulator.network` does not fit: it holds messages back on
a cut link, while a link between replicas that goes down loses them.

A `SubscribedCluster` has durable subscriptions as well: readers that come and go, replicas that crash, links
that fail. It checks every step: a replica forgets a sample only when the quorum of each durable subscription
has acknowledged it.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
import random
from collections.abc import Callable, Iterable
from typing import Final

from engine.core.lazy_dataclass import lazy_dataclass
from engine.dataset.sample import DATA
from engine.persistence.core.messages import (
    Message,
    OriginalSample,
    PeerMessage,
    SampleBatch,
    Saved,
    SavedSubscriptions,
    SubscriberAnswer,
    SubscriberState,
)
from engine.persistence.core.positions import Positions, position_of
from engine.persistence.core.provider_selection import SynchronizationSettings
from engine.persistence.core.replica import Replica
from engine.persistence.core.subscriber import Subscriber
from engine.persistence.core.subscriptions import ReaderAnswers, Subscriptions
from engine.simulator.schedule import Schedule

LINK_DELAY_MS = 200
_WRITER_DELAY_MS = 50


@lazy_dataclass(eq=False)
class RehearsedLink:
    """Both directions between two replicas; messages on the way are lost when it goes down.

    Attributes:
        up: whether messages arrive.
        generation: how often it came up or went down.
    """

    up: bool = True
    generation: int = 0


class ReplicaCluster:
    """Replicas named i0, i1 and so on, all connected. A replica that lets a value become older is a fault.

    Args:
        count: how many replicas.
        seed: of delays and phases.
        settings: of every replica.

    Attributes:
        replicas: by name.
        links: by the names of both replicas.
        direct: (writer, replica) pairs that are connected.
        written: samples written, by writer.
        arrivals: how often (replica, writer, sequence number) arrived since the replica started.
        payloads_between: samples that arrived from other replicas.
    """

    def __init__(self, count: int, seed: int, settings: SynchronizationSettings) -> None:
        self._random = random.Random(seed)
        self._schedule = Schedule()
        self.settings = settings
        self.replicas: dict[str, Replica] = {}
        self.links: dict[frozenset[str], RehearsedLink] = {}
        self.direct: set[tuple[str, str]] = set()
        self.written: dict[str, int] = collections.defaultdict(int)
        self.arrivals: collections.Counter[tuple[str, str, int]] = collections.Counter()
        self.payloads_between = 0
        self._order: dict[tuple[str, str], int] = {}
        self._matches: dict[tuple[str, str], Positions] = {}
        for number in range(count):
            self.start(f"i{number}")
        for pair in itertools.combinations(sorted(self.replicas), 2):
            self.links[frozenset(pair)] = RehearsedLink(up=False)
            self.join(*pair)

    def start(self, name: str, saved: Saved | None = None) -> None:
        """Start a replica, empty or with what one of its name has saved; it is connected to no other."""
        replica = Replica(name, self.settings, saved)
        self.replicas[name] = replica
        self._after(self._random.randrange(self.settings.period_ms), self._period, name, replica)

    def _period(self, name: str, replica: Replica) -> None:
        if self.replicas.get(name) is not replica:
            return
        replica.period()
        self._flush(name)
        self._after(self.settings.period_ms, self._period, name, replica)

    @property
    def now_ms(self) -> int:
        """Virtual time since the beginning."""
        return round(self._schedule.now * 1000)

    def _after(self, delay_ms: int, action: Callable[..., None], *arguments: object) -> None:
        self._schedule.at((self.now_ms + delay_ms) / 1000, action, *arguments)

    def _in_order(self, line: tuple[str, str], delay_ms: int, arrive: Callable[[], None]) -> None:
        """Let something arrive within `delay_ms`, but not before earlier arrivals of the same line."""
        due_ms = max(self.now_ms + self._random.randrange(1, delay_ms), self._order.get(line, 0))
        self._order[line] = due_ms
        self._after(due_ms - self.now_ms, arrive)

    def run(self, milliseconds: int) -> None:
        """Carry out everything that is due in the next `milliseconds`."""
        self._schedule.run_until((self.now_ms + milliseconds) / 1000)

    # Links between replicas.

    def join(self, one: str, other: str) -> None:
        """Connect two replicas."""
        link = self.links[frozenset((one, other))]
        if not link.up and {one, other} <= self.replicas.keys():
            link.up = True
            link.generation += 1
            for here, there in ((one, other), (other, one)):
                self.replicas[here].connected(there)
                self._flush(here)

    def cut(self, one: str, other: str) -> None:
        """Disconnect two replicas; messages on the way are lost."""
        link = self.links[frozenset((one, other))]
        if link.up:
            link.up = False
            link.generation += 1
            for here, there in ((one, other), (other, one)):
                if here in self.replicas:
                    self.replicas[here].disconnected(there)
                    self._flush(here)

    def _flush(self, name: str) -> None:
        for receiver, message in self.replicas[name].messages():
            link = self.links[frozenset((name, receiver))]
            if link.up:
                arrive = functools.partial(self._arrive, name, receiver, link, link.generation, message)
                self._in_order((name, receiver), LINK_DELAY_MS, arrive)

    def _arrive(
        self, sender: str, receiver: str, link: RehearsedLink, generation: int, message: Message
    ) -> None:
        if link.generation != generation or receiver not in self.replicas:
            return
        if isinstance(message, SampleBatch):
            self.payloads_between += len(message.samples)
            self.arrivals.update((receiver, k.sample.writer, k.sample.sequence) for k in message.samples)
            self._arrived(receiver, [kept.sample for kept in message.samples])
        self._checked(receiver, lambda: self.replicas[receiver].receive(sender, message))

    def _checked(self, name: str, act: Callable[[], None]) -> None:
        """Let a replica do something, and check that no last value becomes older by it."""
        before = self.replicas[name].values()
        act()
        after = self.replicas[name].values()
        assert all(after[key].order >= sample.order for key, sample in before.items())
        self._flush(name)

    # Original writers.

    def attach(self, writer: str, *names: str) -> None:
        """Connect an original writer to replicas."""
        for name in names:
            self.direct.add((writer, name))
            self._matches[writer, name] = Positions()
            self.replicas[name].writer_matched(writer)
            self._flush(name)

    def detach(self, writer: str, *names: str) -> None:
        """Disconnect an original writer from replicas."""
        for name in names:
            self.direct.discard((writer, name))
            if name in self.replicas:
                self.replicas[name].writer_lost(writer)
                self._flush(name)

    def write(self, writer: str, key: bytes, time_ns: int | None = None) -> None:
        """Let an original writer write a sample; its source timestamp is the virtual time unless given."""
        self.written[writer] += 1
        stamp = self.now_ms * 1_000_000 if time_ns is None else time_ns
        payload = f"{writer}/{self.written[writer]}".encode()
        for source, name in sorted(self.direct):
            if source == writer and name in self.replicas:
                self._deliver(name, writer, key, stamp, payload)

    def _deliver(self, name: str, writer: str, key: bytes, stamp: int, payload: bytes) -> None:
        replica, match = self.replicas[name], self._matches[writer, name]

        def arrive() -> None:
            if self.replicas.get(name) is replica:
                sample = match.sample(writer, key, stamp, DATA, payload)
                self.arrivals[name, writer, sample.sequence] += 1
                self._arrived(name, [sample])
                self._checked(name, lambda: replica.samples_arrived([sample]))

        self._in_order((writer, name), _WRITER_DELAY_MS, arrive)

    def _arrived(self, name: str, samples: list[OriginalSample]) -> None:
        """Take note of samples that came to a replica, from a writer or from another replica."""

    # Faults and the end.

    def lose(self, name: str) -> None:
        """Take a replica and its disk away for ever."""
        for other in list(self.replicas):
            if other != name:
                self.cut(name, other)
        self.direct = {each for each in self.direct if each[1] != name}
        for arrival in [each for each in self.arrivals if each[0] == name]:
            del self.arrivals[arrival]
        del self.replicas[name]

    def heal(self) -> None:
        """Connect all replicas."""
        for one, other in itertools.combinations(sorted(self.replicas), 2):
            self.join(one, other)

    def last_values(self) -> dict[bytes, OriginalSample]:
        """Return the latest sample of each instance that any replica has: all must end with these."""
        latest: dict[bytes, OriginalSample] = {}
        for replica in self.replicas.values():
            for key, sample in replica.values().items():
                if key not in latest or sample.order > latest[key].order:
                    latest[key] = sample
        return latest

    def repeated(self) -> int:
        """Count the samples that came again, at all replicas together."""
        return sum(each.counters["repeated"] for each in self.replicas.values())

    @property
    def has_converged(self) -> bool:
        """Whether all replicas keep the same, the latest of everything."""
        wanted = self.last_values()
        return all(each.values() == wanted for each in self.replicas.values())

    @property
    def names(self) -> list[str]:
        """The replicas that run."""
        return sorted(self.replicas)


_TURN_MS: Final = 100
CLIENT_DELAY_MS: Final = 50

Id = tuple[str, int]


@lazy_dataclass(frozen=True, slots=True)
class _SavedReplica:
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
        self.disks: dict[str, _SavedReplica] = {}
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
        self.disks[name] = _SavedReplica(self.replicas[name].saved(), self.stocks[name].saved())

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
