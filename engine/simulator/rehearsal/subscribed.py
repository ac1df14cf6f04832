"""A cluster with durable subscriptions: subscribers that come and go, instances that crash, links that fail.

What must hold is checked at every step: an instance lets go only of what the quorum of every durable
subscription has acknowledged.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Callable, Iterable
from typing import Final

from engine.dataset.sample import DATA
from engine.persistence.core.desk import Desk
from engine.persistence.core.messages import Sample, Saved
from engine.persistence.core.positions import position_of
from engine.persistence.core.settings import SynchronizationSettings
from engine.persistence.core.subscriber import Subscriber
from engine.persistence.core.subscription_messages import (
    Answer,
    PeerMessage,
    SavedSubscriptions,
    SubscriberState,
)
from engine.persistence.core.subscriptions import Subscriptions
from engine.simulator.rehearsal.cluster import LINK_DELAY_MS, Cluster, Link

_TURN_MS: Final = 100
CLIENT_DELAY_MS: Final = 50

Id = tuple[str, int]


@dataclasses.dataclass(frozen=True, slots=True)
class Disk:
    """What an instance has saved, all from one moment."""

    saved: Saved
    subscriptions: SavedSubscriptions


@dataclasses.dataclass(eq=False)
class Application:
    """A reader with a durable subscription.

    Attributes:
        deciding: what it decides.
        instances: those it is connected with.
        writers: original writers that it is connected with.
        waiting: samples that came before the pending ones were complete.
        taken: what the application got, in order.
        acknowledged: how many of them it has acknowledged.
        sent: what instances sent it.
        is_there: it has not ended.
    """

    deciding: Subscriber
    instances: set[str] = dataclasses.field(default_factory=set)
    writers: set[str] = dataclasses.field(default_factory=set)
    waiting: list[Sample] = dataclasses.field(default_factory=list)
    taken: list[Sample] = dataclasses.field(default_factory=list)
    acknowledged: int = 0
    sent: list[Id] = dataclasses.field(default_factory=list)
    is_there: bool = True


class SubscribedCluster(Cluster):
    """Instances with durable subscriptions, and applications that read with them.

    Attributes:
        stocks: what each instance keeps for durable subscriptions.
        desks: where readers talk to it.
        applications: by a name that is never used again.
        issued: (subscription, writer, number) to members that have acknowledged it.
        disks: what each instance has saved last.
    """

    def __init__(self, count: int, seed: int, settings: SynchronizationSettings) -> None:
        self.stocks: dict[str, Subscriptions] = {}
        self.desks: dict[str, Desk] = {}
        self.applications: dict[str, Application] = {}
        self.issued: dict[tuple[str, str, int], set[str]] = collections.defaultdict(set)
        self.disks: dict[str, Disk] = {}
        super().__init__(count, seed, settings)

    # Instances.

    def start(self, name: str, saved: Saved | None = None) -> None:
        """A new instance; with `saved` it finds the durable subscriptions of its disk as well."""
        super().start(name, saved)
        instance, disk = self.instances[name], self.disks.get(name)
        stock = Subscriptions(
            name,
            self.settings,
            lambda: instance.values().values(),
            disk.subscriptions if disk and saved is not None else None,
        )
        self.stocks[name] = stock
        self.desks[name] = Desk(name, lambda _: (stock,))
        self._at(
            self._random.randrange(self.settings.subscription_period_ms), lambda: self._sync(name, stock)
        )

    def _sync(self, name: str, stock: Subscriptions) -> None:
        if self.stocks.get(name) is stock:
            self._at_stock(name, stock.period)
            self._at(self.settings.subscription_period_ms, lambda: self._sync(name, stock))

    def save(self, name: str) -> None:
        """What an instance has now is on its disk."""
        self.disks[name] = Disk(self.instances[name].saved(), self.stocks[name].saved())

    def crash(self, name: str) -> None:
        """An instance ends without a word and starts again with what it has saved, connected with nobody."""
        disk = self.disks.get(name)
        self.lose(name)
        self.start(name, disk.saved if disk else None)

    def lose(self, name: str) -> None:
        """An instance and its disk are gone for ever."""
        super().lose(name)
        del self.stocks[name], self.desks[name]
        for application in self.applications.values():
            application.instances.discard(name)

    def join(self, one: str, other: str) -> None:
        """Connect two instances."""
        before = self.links[frozenset((one, other))].generation
        super().join(one, other)
        if self.links[frozenset((one, other))].generation != before:
            for here, there in ((one, other), (other, one)):
                self._at_stock(here, functools.partial(self.stocks[here].connected, there))

    def cut(self, one: str, other: str) -> None:
        """Disconnect two instances."""
        super().cut(one, other)
        for here, there in ((one, other), (other, one)):
            if here in self.stocks:
                self.stocks[here].disconnected(there)

    def _arrived(self, name: str, samples: list[Sample]) -> None:
        for sample in samples:
            self._at_stock(name, functools.partial(self.stocks[name].sample_arrived, sample))

    def register(self, name: str, subscription: str, quorum: int) -> None:
        """An instance has a durable subscription in its configuration."""
        self._at_stock(name, lambda: self.stocks[name].register(subscription, quorum))

    def delete(self, name: str, subscription: str) -> None:
        """Somebody deletes a durable subscription at one instance."""
        self._at_stock(name, lambda: self.stocks[name].delete(subscription))

    def _at_stock(self, name: str, act: Callable[[], object]) -> None:
        """What happens at one instance; it lets go of nothing that is not acknowledged."""
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

    def _tell_peer(self, sender: str, receiver: str, link: Link, message: PeerMessage) -> None:
        generation = link.generation

        def arrive() -> None:
            if link.generation == generation and receiver in self.stocks:
                self._at_stock(receiver, lambda: self.stocks[receiver].receive(sender, message))

        self._in_order((f"stock {sender}", receiver), LINK_DELAY_MS, arrive)

    def _in_order(self, line: tuple[str, str], delay_ms: int, act: Callable[[], None]) -> None:
        due = max(self.now_ms + self._random.randrange(1, delay_ms), self._order.get(line, 0))
        self._order[line] = due
        self._at(due - self.now_ms, act)

    # Applications.

    def come(self, subscription: str, quorum: int, member: str, *instances: str) -> str:
        """An application with a durable subscription starts, connected with these instances; its name."""
        name = f"a{len(self.applications)}"
        period_s = self.settings.subscription_period_ms / 1000
        deciding = Subscriber("T", (), subscription, quorum, member, period_s)
        self.applications[name] = Application(deciding)
        for instance in instances:
            self.find(name, instance)
        self._at(1, lambda: self._turn(name))
        return name

    def find(self, application: str, instance: str) -> None:
        """Connect an application with an instance."""
        self.applications[application].instances.add(instance)

    def part(self, application: str, instance: str) -> None:
        """Disconnect them."""
        self.applications[application].instances.discard(instance)
        self.desks[instance].left(application)

    def leave(self, application: str) -> None:
        """An application ends without a word; what it has acknowledged is what instances have heard."""
        for instance in list(self.applications[application].instances):
            self.part(application, instance)
        self.applications[application].is_there = False

    def listen(self, application: str, writer: str) -> None:
        """Connect an application with an original writer."""
        self.applications[application].writers.add(writer)

    def acknowledge(self, application: str, count: int) -> None:
        """An application is done with the next so many samples that it has taken."""
        state = self.applications[application]
        samples = state.taken[state.acknowledged : state.acknowledged + count]
        state.acknowledged += len(samples)
        for sample in samples:
            subscription = state.deciding.name
            self.issued[subscription, sample.writer, sample.sequence].add(state.deciding.member)
        state.deciding.acknowledge((sample.writer, sample.sequence) for sample in samples)

    def publish(self, writer: str, key: bytes, time_ns: int | None = None) -> Sample:
        """An original writer writes, to instances and to applications."""
        stamp = self.now_ms * 1_000_000 if time_ns is None else time_ns
        self.write(writer, key, stamp)
        payload = f"{writer}/{self.written[writer]}".encode()
        sample = Sample(writer, position_of(key, stamp, DATA, payload), key, stamp, payload)
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
        state.deciding.present(state.instances, now)
        told = state.deciding.turn(now)
        if told is not None:
            for instance in sorted(state.instances):
                hear = functools.partial(self._hear, instance, self.desks[instance], name, told)
                self._in_order((name, instance), CLIENT_DELAY_MS, hear)
        self._at(_TURN_MS, lambda: self._turn(name))

    def _hear(self, instance: str, desk: Desk, name: str, told: SubscriberState) -> None:
        if self.desks.get(instance) is not desk or instance not in self.applications[name].instances:
            return
        answers: list[Answer] = []
        self._at_stock(instance, lambda: answers.extend(desk.heard(name, told)))
        for answer in answers:
            self._tell_application(instance, name, answer)

    def _tell_application(self, instance: str, name: str, answer: Answer) -> None:
        state, desk = self.applications[name], self.desks[instance]

        def arrive() -> None:
            if self.desks.get(instance) is not desk or instance not in state.instances:
                return
            state.sent.extend((sample.writer, sample.sequence) for sample in answer.samples)
            self._take(name, answer.samples)
            state.deciding.answer(instance, answer, self.now_ms / 1000)
            self._take(name, ())

        self._in_order((instance, name), CLIENT_DELAY_MS, arrive)

    def _take(self, name: str, samples: Iterable[Sample]) -> None:
        state = self.applications[name]
        if not state.is_there:
            return
        state.waiting += [each for each in samples if state.deciding.arrived(each.writer, each.sequence)]
        if state.deciding.is_complete:
            state.taken += sorted(state.waiting, key=lambda each: each.order)
            state.waiting.clear()

    # The end.

    def done(self) -> set[tuple[str, str, int]]:
        """(subscription, writer, number) of what some instance knows to be acknowledged by the quorum."""
        return {
            (state.name, writer, number)
            for stock in self.stocks.values()
            for state in stock.saved().ledgers
            for writer, numbers in state.done
            for number in numbers
        }

    def held(self) -> set[Id]:
        """What some instance holds for durable subscriptions."""
        return set().union(*(stock.held() for stock in self.stocks.values()))
