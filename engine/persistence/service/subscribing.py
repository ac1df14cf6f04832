"""The part that holds samples for durable subscriptions, by group, and answers their readers."""

from __future__ import annotations

import collections
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from engine.config.persistence import DurableSubscriptionSettings
from engine.core import expressions
from engine.dataset.groups import GroupDescription
from engine.persistence.core.messages import (
    Fetch,
    FetchedSamples,
    MessageFault,
    OriginalSample,
    PeerMessage,
    SavedSubscriptions,
    SubscriberAnswer,
    SubscriberState,
    SubscriptionUpdate,
)
from engine.persistence.core.positions import position_of
from engine.persistence.core.provider_selection import SynchronizationSettings
from engine.persistence.core.subscriptions import (
    HeldRoom,
    ReaderAnswers,
    Subscriptions,
)
from engine.persistence.service import replica_rows as rows
from engine.persistence.service.kept_groups import ID_BYTES, KnownGroups
from engine.persistence.service.replica_view import SubscriptionView
from engine.persistence.service.service_part import ServicePart, Write

_REGISTRATIONS: Final = bytes(ID_BYTES)
"""The id of that group; no other group has it."""


class Registration(NamedTuple):
    """A durable subscription of all groups of a topic in partitions that an expression matches."""

    topic: str
    name: str
    partitions: tuple[str, ...]

    @classmethod
    def of(cls, state: SubscriberState) -> Registration:
        """Return the registration that a reader needs."""
        return cls(state.topic, state.name, state.partitions or ("",))

    @property
    def key(self) -> str:
        """Its name as a durable subscription."""
        return msgspec.json.encode((self.topic, self.name, *self.partitions)).decode()

    @classmethod
    def read(cls, key: str) -> Registration | None:
        """Return the registration of a key; None if it is not a key."""
        try:
            topic, name, *partitions = msgspec.json.decode(key, type=list[str])
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return None
        return cls(topic, name, tuple(partitions)) if partitions else None

    def concerns(self, description: GroupDescription) -> bool:
        """Whether it includes this group."""
        group = description.group
        return self.topic == group.topic and any(
            expressions.matches(pattern, group.partition) for pattern in self.partitions
        )


def _active(stock: Subscriptions) -> Iterator[tuple[Registration, int]]:
    """Yield all registrations, with their quorums."""
    for each in stock.status():
        registration = Registration.read(each.name)
        if registration is not None:
            yield registration, each.quorum


def _delete(stock: Subscriptions, given: Registration) -> None:
    """Delete registrations of the same topic and name whose partitions overlap with those given."""
    for each, _ in list(_active(stock)):
        overlaps = any(
            one == pattern or expressions.matches(pattern, one)
            for one in each.partitions
            for pattern in given.partitions
        )
        if (each.topic, each.name) == (given.topic, given.name) and overlaps:
            stock.delete(each.key)


MAX_GROUPS: Final = 10_000
GUID_CHARS: Final = 32


class Subscribing(ServicePart):
    """Durable subscriptions of all groups.

    Readers know nothing of groups: in the samples for them a writer is its GUID, and a position is that of
    the sample without its group.

    Args:
        name: of this replica.
        settings: of data synchronization.
        preconfigured: the durable subscriptions of the configuration.
        groups: the known groups.
        values: returns the last values of a group.
        say: takes sentences for operators.

    Attributes:
        damaged: rows of the store that were damaged at the start.
    """

    tables = rows.SUBSCRIPTION_TABLES
    kinds = (SubscriptionUpdate, Fetch, FetchedSamples)

    def __init__(
        self,
        name: str,
        settings: SynchronizationSettings,
        preconfigured: Sequence[DurableSubscriptionSettings],
        groups: KnownGroups,
        values: Callable[[bytes], list[OriginalSample]],
        say: Callable[[str], None],
    ) -> None:
        super().__init__()
        self._name = name
        self._settings = settings
        self._preconfigured = preconfigured
        self._groups = groups
        self._values = values
        self._say = say
        self._stocks: dict[bytes, Subscriptions] = {}
        self._looked_at: set[bytes] = set()
        self._room = HeldRoom()
        self._registered = self._make(_REGISTRATIONS)
        self._reader_answers = ReaderAnswers("", self._of_state)
        self._gathered: list[tuple[str, SubscriberAnswer]] = []
        self._in_flight: list[tuple[str, SubscriberAnswer]] = []
        self._answers: list[tuple[str, SubscriberAnswer]] = []
        self._due_s = 0.0
        self.damaged = 0

    def begin(self, own: str) -> None:
        """Set the name by which readers ask this replica; called once, before the first reader."""
        self._reader_answers = ReaderAnswers(own, self._of_state)

    # The store.

    def restore(self, store: sqlite3.Connection) -> None:
        """Load the durable subscriptions, and register those of the configuration."""
        saved, self.damaged = rows.read_subscriptions(store)
        self._registered = self._make(_REGISTRATIONS, saved.pop(_REGISTRATIONS, None))
        for group, each in saved.items():
            self._make(group, each)
        for one in self._preconfigured:
            self._registered.register(Registration(one.topic, one.name, ("*",)).key, one.quorum)

    def changes(self) -> Write | None:
        """Take the changes; answers that depend on them wait until the next call.

        It is called only when all earlier changes are on disk.
        """
        self._answers += self._in_flight
        self._in_flight, self._gathered = self._gathered, []
        changed = {group: each for group, stock in self._stocks.items() if (each := stock.changes())}
        if not changed:
            self._answers += self._in_flight
            self._in_flight = []
            return None
        return lambda store: rows.write_subscriptions(store, changed)

    def answers(self) -> list[tuple[str, SubscriberAnswer]]:
        """Take the answers to send to readers, in order."""
        answers, self._answers = self._answers, []
        return answers

    # Groups.

    def _make(self, group: bytes, saved: SavedSubscriptions | None = None) -> Subscriptions:
        stock = self._stocks[group] = Subscriptions(
            self._name, self._settings, lambda: map(_for_readers, self._values(group)), saved, self._room
        )
        return stock

    def _stock(self, group: bytes) -> Subscriptions | None:
        """Return the subscriptions of a group; None beyond the bound, which is that of groups."""
        stock = self._stocks.get(group)
        if stock is None and len(self._stocks) < MAX_GROUPS:
            stock = self._make(group)
            for peer in sorted(self.peers):
                stock.connected(peer)
        return stock

    def groups_seen(self) -> None:
        """Begin to hold samples of new groups that durable subscriptions want."""
        if len(self._looked_at) == len(self._groups):
            return
        for group, description in self._groups.items():
            if group not in self._looked_at:
                self._looked_at.add(group)
                self._look_at(group, description)

    def _look_at(self, group: bytes, description: GroupDescription) -> None:
        stock = self._stock(group)
        if stock is not None:
            for each, quorum in _active(self._registered):
                if each.concerns(description):
                    stock.register(each.name, quorum)
            self._reader_answers.group_came(stock)

    def _of_state(self, state: SubscriberState) -> list[Subscriptions]:
        """Return the groups that a reader reads."""
        self.groups_seen()
        return [
            self._stocks[group]
            for group, description in self._groups.items()
            if group in self._stocks and Registration.of(state).concerns(description)
        ]

    # Samples and readers.

    def captured(self, samples: Sequence[OriginalSample]) -> None:
        """Hold samples from original writers that durable subscriptions want."""
        self.groups_seen()
        for sample in samples:
            stock = self._stocks.get(sample.key[:ID_BYTES])
            if stock is not None and stock.is_wanted:
                stock.sample_arrived(_for_readers(sample))

    def heard(self, reader: str, state: SubscriberState) -> None:
        """Take the state of a reader."""
        registration = Registration.of(state)
        if state.deletes:
            _delete(self._registered, registration)
        elif not self._reader_answers.knows(reader):
            self._registered.register(registration.key, state.quorum)
        self._gathered += [(reader, answer) for answer in self._reader_answers.heard(reader, state)]

    def left(self, reader: str) -> None:
        """Forget a reader that is gone."""
        self._reader_answers.left(reader)

    # Other replicas.

    def connected(self, peer: str) -> None:
        """Begin to synchronize with a replica."""
        super().connected(peer)
        for stock in self._stocks.values():
            stock.connected(peer)

    def disconnected(self, peer: str) -> None:
        """Forget a replica."""
        super().disconnected(peer)
        for stock in self._stocks.values():
            stock.disconnected(peer)

    def receive(self, peer: str, message: PeerMessage) -> None:
        """Take a message of another replica."""
        if len(message.group) != ID_BYTES:
            raise MessageFault("not a group")
        stock = self._stock(message.group)
        if stock is self._registered:
            before = set(_active(stock))
            stock.receive(peer, message)
            self._apply(set(_active(stock)) - before)
        elif stock is not None:
            stock.receive(peer, message)

    def _apply(self, new: set[tuple[Registration, int]]) -> None:
        """Register durable subscriptions that another replica has told, in their groups."""
        for group, description in self._groups.items():
            for each, quorum in sorted(new, key=lambda one: one[0].key):
                if group in self._looked_at and each.concerns(description):
                    self._stocks[group].register(each.name, quorum)

    def messages(self) -> Sequence[tuple[str, PeerMessage]]:
        """Take the messages to other replicas, in order."""
        return [
            (peer, msgspec.structs.replace(message, group=group))
            for group, stock in self._stocks.items()
            for peer, message in stock.messages()
        ]

    def turn(self, now_s: float) -> float:
        """Synchronize once in each durable_subscription_synchronization_period."""
        self.groups_seen()
        period_s = self._settings.subscription_period_ms / 1000
        if not self._due_s:
            self._due_s = now_s + period_s
        elif now_s >= self._due_s:
            for stock in self._stocks.values():
                stock.period()
            self._due_s = max(self._due_s + period_s, now_s)
        for stock in self._stocks.values():
            for report in stock.reports():
                self._say(report)
        return self._due_s

    # Status.

    def views(self) -> tuple[SubscriptionView, ...]:
        """Return all durable subscriptions, by name, topic and partition, those without a group, too."""
        views = [
            SubscriptionView(
                each.name,
                description.group.topic,
                description.group.partition,
                each.quorum,
                each.members,
                each.pending,
                each.in_doubt,
            )
            for group, description in self._groups.items()
            if group in self._stocks
            for each in self._stocks[group].status()
        ]
        views += [
            SubscriptionView(one.name, one.topic, ",".join(one.partitions), quorum, (), 0, {})
            for one, quorum in _active(self._registered)
            if not any(one.concerns(description) for _, description in self._groups.items())
        ]
        return tuple(sorted(views, key=lambda view: (view.name, view.topic, view.partition)))

    def problems(self) -> list[str]:
        """Return sentences about present problems."""
        missed = sum(stock.missed_now for stock in self._stocks.values())
        text = f"{missed} samples are not kept for durable subscriptions, because too many wait already"
        return [text] if missed else []

    def counters(self) -> collections.Counter[str]:
        """Return the counts of all groups."""
        found: collections.Counter[str] = collections.Counter()
        for stock in self._stocks.values():
            found.update({f"subscription_{name}": count for name, count in stock.counters.items()})
            found["subscription_forgotten"] += stock.forgotten
        found.update({f"subscription_{name}": count for name, count in self._reader_answers.counters.items()})
        return found


def _for_readers(sample: OriginalSample) -> OriginalSample:
    """Return a sample without its group."""
    key = sample.key[ID_BYTES:]
    position = position_of(key, sample.source_time_ns, sample.status, sample.payload)
    return OriginalSample(
        sample.writer[:GUID_CHARS], position, key, sample.source_time_ns, sample.payload, sample.status
    )
