"""The parts of a persistence service: what it knows and decides, between its links and its store.

- `Lifespans`: the lifespans of writers, which replicas tell each other (`engine.dataset.lifespans`).
- `Synchronization`: the last values, and who sends which (`engine.persistence.core.replica`).
- `LateReaders`: deliveries of last values to late readers. Of the connected replicas the one whose name comes
  first serves, and tells the others which readers. Without synchronization each one serves its own values. A
  value that comes from another replica later is given to readers that may have come after it was written.
- `Subscribing`: the samples held for durable subscriptions, by group, and the answers to their readers.

Lifespans and groups are sent before the samples that need them, so the parts are in this order.
"""

from __future__ import annotations

import collections
import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Struct

from engine.capture.neighbourhood import DiscoveryChanges, HistoryReader
from engine.config.persistence import DurableSubscriptionSettings
from engine.core import expressions
from engine.core.untrusted import Newest
from engine.dataset import sample as dataset_sample
from engine.dataset.groups import GroupDescription, is_given
from engine.dataset.lifespans import LifespanTable
from engine.persistence.core.messages import (
    Announcement,
    Fetch,
    FetchedSamples,
    GroupDescriptions,
    Inventory,
    Message,
    MessageFault,
    OriginalSample,
    PeerMessage,
    ReplicaMessage,
    SampleBatch,
    SavedSubscriptions,
    ServedReaders,
    SubscriberAnswer,
    SubscriberState,
    Subscription,
    SubscriptionUpdate,
    WriterLifespans,
    merged,
)
from engine.persistence.core.positions import position_of
from engine.persistence.core.provider_selection import SynchronizationSettings
from engine.persistence.core.replica import BATCH_SAMPLES, Replica
from engine.persistence.core.subscriptions import (
    HeldRoom,
    ReaderAnswers,
    Subscriptions,
)
from engine.persistence.service import kept_groups as groups_module
from engine.persistence.service import replica_store as rows
from engine.persistence.service.kept_groups import ID_BYTES, KnownGroups, WriterName
from engine.persistence.service.links import NEVER_S, ServicePart, Write
from engine.persistence.service.replica_view import ReaderDeliveryView, SubscriptionView
from engine.runtime.ports import Delivered


class Lifespans(ServicePart):
    """The writers whose samples expire. Its messages are sent before the samples of these writers."""

    tables = (
        "CREATE TABLE IF NOT EXISTS lifespan (writer TEXT PRIMARY KEY, ns INTEGER NOT NULL) WITHOUT ROWID;"
    )
    kinds = (WriterLifespans,)

    def __init__(self) -> None:
        super().__init__()
        self._table = LifespanTable()
        self._unsaved: dict[str, int] = {}

    @property
    def refused(self) -> int:
        """Number of writers beyond the bound."""
        return self._table.refused

    def learn(self, writer: bytes, lifespan_ns: int) -> None:
        """Note the lifespan of a writer's samples."""
        self._learn([(writer, lifespan_ns)], "")

    def is_expired(self, sample: OriginalSample, now_ns: int) -> bool:
        """Whether a sample has expired at this wall clock time; a dispose never expires."""
        name = WriterName.parse(sample.writer)
        return name is not None and self._table.is_expired(
            name.guid, sample.status, sample.source_time_ns, now_ns
        )

    def _learn(self, lifespans: Iterable[tuple[bytes, int]], source: str) -> None:
        news = {writer.hex(): ns for writer, ns in self._table.learn(lifespans).items()}
        self._unsaved |= news
        if news:
            self.send(self.peers - {source}, WriterLifespans(news))

    # Others, and the store.

    def connected(self, peer: str) -> None:
        """Tell a replica all lifespans."""
        super().connected(peer)
        if self._table.known:
            self.send([peer], WriterLifespans({writer.hex(): ns for writer, ns in self._table.known.items()}))

    def receive(self, peer: str, message: WriterLifespans) -> None:
        """Take lifespans that another replica tells."""
        self._learn(((bytes.fromhex(writer), ns) for writer, ns in message.lifespans.items()), peer)

    def restore(self, store: sqlite3.Connection) -> None:
        """Load the lifespans."""
        rows = store.execute("SELECT writer, ns FROM lifespan")
        self._table.known = {bytes.fromhex(writer): ns for writer, ns in rows}

    def changes(self) -> Write | None:
        """Take new lifespans, for the store."""
        if not self._unsaved:
            return None
        rows, self._unsaved = [*self._unsaved.items()], {}

        def write(store: sqlite3.Connection) -> None:
            store.executemany("INSERT OR REPLACE INTO lifespan VALUES (?, ?)", rows)

        return write


# Some hundred megabytes of small samples; a link that restarts asks for what it lacks.
MAX_WAITING: Final = 100_000
"""Messages that may wait for a slow replica; beyond, its link is restarted."""


class Synchronization(ServicePart):
    """The last values of the service. With `enable` false it sends no messages.

    Args:
        name: of this replica.
        settings: of data synchronization.
        groups: the known groups.

    Attributes:
        replica: the decisions.
        damaged: rows of the store that were damaged at the start.
        counters: `received` (samples from other replicas).
    """

    tables = rows.TABLES + groups_module.TABLES
    kinds = (GroupDescriptions, Announcement, Subscription, SampleBatch, Inventory)

    def __init__(self, name: str, settings: SynchronizationSettings, groups: KnownGroups) -> None:
        super().__init__()
        self._name = name
        self._settings = settings
        self._groups = groups
        self._waiting: dict[str, collections.deque[GroupDescriptions | Message]] = {}
        self._due_s = 0.0
        self.replica = Replica(name, settings, room=groups.room)
        self.damaged = 0
        self.counters: collections.Counter[str] = collections.Counter()
        self._from_others: list[OriginalSample] = []

    def restore(self, store: sqlite3.Connection) -> None:
        """Load groups and last values."""
        self._groups.restore(store)
        saved, self.damaged = rows.read(store)
        self.replica = Replica(self._name, self._settings, saved, self._groups.room)

    def changes(self) -> Write | None:
        """Take the changes of groups, last values and numbers, all of this moment."""
        saved, described = self.replica.changes(), self._groups.changes()
        if not (saved.kept or saved.had or saved.gone or described):
            return None
        write_rows = rows.writing(saved)

        def write(store: sqlite3.Connection) -> None:
            store.executemany("INSERT OR REPLACE INTO sample_group VALUES (?, ?)", described)
            write_rows(store)

        return write

    def connected(self, peer: str) -> None:
        """Tell a replica all groups, and begin to synchronize."""
        if self._settings.enable:
            super().connected(peer)
            self._waiting[peer] = collections.deque()
            self._tell_groups([peer], [description for _, description in self._groups.items()])
            self.replica.connected(peer)

    def disconnected(self, peer: str) -> None:
        """Forget a replica, and its waiting messages."""
        if peer in self.peers:
            super().disconnected(peer)
            del self._waiting[peer]
            self.replica.disconnected(peer)

    def group_seen(self, description: GroupDescription) -> None:
        """Note a group that has a writer, and tell others if it is new."""
        if self._groups.learn(description):
            known = self._groups.get(groups_module.group_id(description.group))
            self._tell_groups(sorted(self.peers), [known or description])

    def _tell_groups(self, peers: Sequence[str], groups: Sequence[GroupDescription]) -> None:
        for peer in peers if groups else ():
            self._waiting[peer].append(GroupDescriptions(tuple(groups)))

    def captured(self, samples: Sequence[OriginalSample]) -> None:
        """Keep samples from original writers."""
        self.replica.samples_arrived(samples)

    def receive(self, peer: str, message: GroupDescriptions | Message) -> None:
        """Take a message of another replica."""
        if peer not in self.peers:
            return
        if isinstance(message, GroupDescriptions):
            self._groups.learn_all(message.groups)
            return
        if isinstance(message, SampleBatch):
            for kept in message.samples:
                self._groups.check(kept.sample)
            self.counters["received"] += len(message.samples)
            self._from_others += [kept.sample for kept in message.samples]
        elif isinstance(message, Inventory) and any(len(key) < ID_BYTES for key, _ in message.entries):
            raise MessageFault("an instance without a group")
        self.replica.receive(peer, message)

    def take_from_others(self) -> tuple[list[OriginalSample], list[OriginalSample]]:
        """Take the samples that came from other replicas, and those of them that are last values now."""
        taken, self._from_others = self._from_others, []
        return taken, [each for each in taken if self.replica.value(each.key) is each]

    def messages(self) -> Iterator[tuple[str, ReplicaMessage]]:
        """Take the messages to replicas whose queues have room; groups go before their samples."""
        for peer, message in merged(self.replica.messages(), BATCH_SAMPLES):
            if peer in self._waiting:
                self._waiting[peer].append(message)
        for peer, waiting in list(self._waiting.items()):
            while waiting and self.has_room(peer):
                yield peer, waiting.popleft()

    def overrun(self) -> list[str]:
        """Return the replicas for which too many messages wait: their links must be restarted."""
        return [peer for peer, waiting in self._waiting.items() if len(waiting) > MAX_WAITING]

    def turn(self, now_s: float) -> float:
        """Evaluate the providers once in each remote_provider_selection_period."""
        period_s = self._settings.period_ms / 1000
        if not self._due_s:
            self._due_s = now_s + period_s
        elif now_s >= self._due_s:
            self.replica.period()
            self._due_s = max(self._due_s + period_s, now_s)
        return self._due_s


# As `engine.persistence.service.links.MATCH_S`: discovery takes a second or two.
SETTLE_S: Final = 2.0
"""Time after the start in which a service looks for others before it serves."""
# Chosen: by then discovery has noticed a process that ends in order.
RETRY_S: Final = 2.0
"""Pause before a delivery that failed is tried again: its process may be about to end."""
# An application makes its readers one by one within that; a whole delivery for each would cost far more.
FURTHER_S: Final = 0.5
"""Time that a further reader of a process waits, so that several are served at once."""
# Chosen: a delivery too many is recognised by its reader, a sample that is left out is lost.
MARGIN_NS: Final = 60_000_000_000
"""Tolerated difference between the clocks of writers and of this replica."""
# Chosen, as the other limits for what strangers can make.
MAX_READERS: Final = 10_000
MAX_ENDS: Final = 100_000
"""Served readers that are taken from one message; twice as many are remembered."""
# Chosen: then the values are fewer than the updates, as a rule.
MAX_UPDATES: Final = 100_000
"""Samples that may wait for one reader; beyond, the reader gets all values again."""


Groupwise = list[tuple[GroupDescription, list[dataset_sample.Sample]]]


DeliverTo = Callable[[HistoryReader, Groupwise], Delivered]
"""Delivers samples to the readers of one kind in a process; it blocks. See `engine.capture.delivery`."""


class _Reader(Struct):
    """Readers of one kind in a process: a delivery reaches all of them.

    Attributes:
        seen_ns: when the last of them came, nanoseconds since 1970.
        unserved: GUIDs, in hexadecimal digits, of those that have not been served.
        served: GUIDs of those that have been served.
        missed: whether they must get all values again.
        updates: later values that they must get.
        is_busy: whether a delivery is under way.
        due_s: when the next delivery may begin, monotonic seconds.
    """

    seen_ns: int = 0
    unserved: set[str] = set()
    served: set[str] = set()
    missed: bool = False
    updates: list[OriginalSample] = []
    is_busy: bool = False
    due_s: float = 0.0

    @property
    def wants_all(self) -> bool:
        """Whether they must get all values."""
        return self.missed or bool(self.unserved)

    def serve(self, ends: Collection[str]) -> None:
        """Note readers that have been served; those of other kinds are ignored."""
        self.served |= self.unserved.intersection(ends)
        self.unserved -= self.served


class LateReaders(ServicePart):
    """The late readers, and deliveries to them.

    Args:
        name: of this replica.
        synchronizes: whether replicas keep the same; then one serves.
        groups: the known groups.
        kept: returns the last values of a group.
        is_expired: whether a sample has expired at a time, in nanoseconds since 1970.
        deliver: delivers samples to a reader.
        submit: runs a function on a worker thread, and then one on the service's thread.

    Attributes:
        deliveries: the last 20, oldest first.
        counters: `deliveries`, `delivered` (samples), `expired` (samples withheld).
    """

    kinds = (ServedReaders,)

    def __init__(
        self,
        name: str,
        *,
        synchronizes: bool,
        groups: KnownGroups,
        kept: Callable[[bytes], list[OriginalSample]],
        is_expired: Callable[[OriginalSample, int], bool],
        deliver: DeliverTo,
        submit: Callable[[Callable[[], Delivered], Callable[[Delivered], None]], None],
    ) -> None:
        super().__init__()
        self._name = name
        self._synchronizes = synchronizes
        self._groups = groups
        self._kept = kept
        self._is_expired = is_expired
        self._deliver = deliver
        self._submit = submit
        self._readers: dict[HistoryReader, _Reader] = {}
        self._served: Newest[str, None] = Newest(2 * MAX_ENDS)
        self._starts_s = 0.0
        self.deliveries: collections.deque[ReaderDeliveryView] = collections.deque(maxlen=20)
        self.counters: collections.Counter[str] = collections.Counter()

    # Input.

    def discovered(self, changes: DiscoveryChanges) -> None:
        """Note readers that came and went."""
        for reader in changes.readers_gone:
            gone = self._readers.pop(reader, None)
            for known in (gone.served | gone.unserved) if gone else ():
                self._served.pop(known, None)
        for reader, end, is_further in changes.ends_seen:
            if not self._groups.covers(reader.topic) or (
                reader not in self._readers and len(self._readers) >= MAX_READERS
            ):
                continue
            one = self._readers.setdefault(reader, _Reader())
            one.seen_ns = time.time_ns()
            if end.hex() in self._served:
                one.served.add(end.hex())
                continue
            one.unserved.add(end.hex())
            if is_further:
                one.due_s = max(one.due_s, time.monotonic() + FURTHER_S)

    def connected(self, peer: str) -> None:
        """Tell a replica which readers this one has served."""
        if self._synchronizes:
            super().connected(peer)
            served = tuple(end for one in self._readers.values() for end in sorted(one.served))
            self.send([peer], ServedReaders(served))

    def receive(self, peer: str, message: ServedReaders) -> None:
        """Note the readers that another replica has served."""
        if peer not in self.peers:
            return
        self._served |= dict.fromkeys(message.readers[:MAX_ENDS])
        for one in self._readers.values():
            one.serve(self._served.keys())

    def heard(self, samples: Sequence[OriginalSample]) -> None:
        """Take last values that came from other replicas, for readers that may lack them."""
        if not self._is_ours():
            return
        for sample in samples:
            description = self._groups.get(sample.key[:ID_BYTES])
            for reader, one in self._readers.items():
                is_old = sample.source_time_ns < one.seen_ns + MARGIN_NS
                if description is None or one.wants_all or not is_old or not _reads(reader, description):
                    continue
                one.updates.append(sample)
                if len(one.updates) > MAX_UPDATES:
                    one.updates.clear()
                    one.missed = True

    # Deliveries.

    def _is_ours(self) -> bool:
        return not self._synchronizes or all(self._name < peer for peer in self.peers)

    def turn(self, now_s: float) -> float:
        """Serve readers that wait; return when the next turn is due at the latest."""
        self._starts_s = self._starts_s or now_s + SETTLE_S
        if now_s < self._starts_s:
            return self._starts_s
        due_s = NEVER_S
        if self._is_ours():
            for reader, one in self._readers.items():
                if one.is_busy or not (one.wants_all or one.updates):
                    continue
                if now_s >= one.due_s:
                    self._serve(reader, one)
                else:
                    due_s = min(due_s, one.due_s)
        return due_s

    def _serve(self, reader: HistoryReader, one: _Reader) -> None:
        groups: Groupwise = []
        is_whole, updates, ends = one.wants_all, one.updates, frozenset(one.unserved)
        one.missed, one.updates = False, []
        now_ns = time.time_ns()
        for id_, description in self._groups.items():
            if _reads(reader, description):
                found = self._kept(id_) if is_whole else [s for s in updates if s.key[:ID_BYTES] == id_]
                samples = [_for_delivery(sample) for sample in found if not self._is_expired(sample, now_ns)]
                self.counters["expired"] += len(found) - len(samples)
                if samples:
                    groups.append((description, samples))
        if not groups:
            self._have_served(one, ends)
            return
        one.is_busy = True

        def done(delivery: Delivered) -> None:
            one.is_busy = False
            self.deliveries.append(
                ReaderDeliveryView(
                    reader.topic,
                    ",".join(reader.partitions),
                    reader.process.hex(),
                    delivery.samples,
                    round(delivery.elapsed_ns / 1e9, 3),
                    delivery.problem,
                )
            )
            self.counters["deliveries"] += 1
            self.counters["delivered"] += delivery.samples
            if delivery.problem:
                one.missed = one.missed or is_whole
                one.updates = [] if one.wants_all else [*updates, *one.updates]
                one.due_s = time.monotonic() + RETRY_S
            elif is_whole and reader in self._readers:
                self._have_served(one, ends | {end.hex() for end in delivery.readers})

        self._submit(lambda: self._deliver(reader, groups), done)

    def _have_served(self, one: _Reader, ends: frozenset[str]) -> None:
        """Note readers that got all values, and tell others; one that came meanwhile may need them again."""
        before = len(one.served)
        one.serve(ends)
        if len(one.served) > before:
            self.send(self.peers, ServedReaders(tuple(sorted(one.served.intersection(ends)))))
        if one.unserved:
            one.due_s = time.monotonic() + FURTHER_S

    def readers(self, description: GroupDescription) -> int:
        """Count the processes that read a group."""
        return sum(_reads(reader, description) for reader in self._readers)


def _reads(reader: HistoryReader, description: GroupDescription) -> bool:
    return is_given(description.group, reader.topic, reader.partitions)


def _for_delivery(sample: OriginalSample) -> dataset_sample.Sample:
    writer: Any = WriterName.parse(sample.writer)
    return dataset_sample.make_sample(
        sample.source_time_ns, writer.guid, sample.status, sample.key[ID_BYTES:], sample.payload
    )


_REGISTRATIONS: Final = bytes(ID_BYTES)
"""The id of that group; no other group has it."""


class Registration(NamedTuple):
    """A durable subscription of all groups of a topic in partitions that an expression matches."""

    topic: str
    name: str
    partitions: tuple[str, ...]

    @classmethod
    def needed_by(cls, state: SubscriberState) -> Registration:
        """Return the registration that a reader needs."""
        return cls(state.topic, state.name, state.partitions or ("",))

    @property
    def key(self) -> str:
        """Its name as a durable subscription."""
        return msgspec.json.encode((self.topic, self.name, *self.partitions)).decode()

    @classmethod
    def parse(cls, key: str) -> Registration | None:
        """Return the registration of a key; None if it is not a key."""
        try:
            topic, name, *partitions = msgspec.json.decode(key, type=list[str])
        # A registration is a sample that anybody can write.
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return None
        return cls(topic, name, tuple(partitions)) if partitions else None

    def concerns(self, description: GroupDescription) -> bool:
        """Whether it includes this group."""
        group = description.group
        return self.topic == group.topic and any(
            expressions.matches(pattern, group.partition) for pattern in self.partitions
        )

    def overlaps(self, other: Registration) -> bool:
        """Whether it has the topic and name of another one, and partitions that the other one matches."""
        return (self.topic, self.name) == (other.topic, other.name) and any(
            one == pattern or expressions.matches(pattern, one)
            for one in self.partitions
            for pattern in other.partitions
        )


def _active(stock: Subscriptions) -> Iterator[tuple[Registration, int]]:
    """Yield all registrations, with their quorums."""
    for each in stock.status():
        registration = Registration.parse(each.name)
        if registration is not None:
            yield registration, each.quorum


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
        report: takes sentences for operators.

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
        report: Callable[[str], None],
    ) -> None:
        super().__init__()
        self._name = name
        self._settings = settings
        self._preconfigured = preconfigured
        self._groups = groups
        self._values = values
        self._report = report
        self._stocks: dict[bytes, Subscriptions] = {}
        self._begun: set[bytes] = set()
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
        if len(self._begun) == len(self._groups):
            return  # nearly always
        for group, description in self._groups.items():
            if group in self._begun:
                continue
            self._begun.add(group)
            stock = self._stock(group)
            if stock is not None:
                for each, quorum in _active(self._registered):
                    if each.concerns(description):
                        stock.register(each.name, quorum)
                self._reader_answers.group_came(stock)

    def _of_state(self, state: SubscriberState) -> list[Subscriptions]:
        """Return the groups that a reader reads."""
        self.groups_seen()
        registration = Registration.needed_by(state)
        return [
            self._stocks[group]
            for group, description in self._groups.items()
            if group in self._stocks and registration.concerns(description)
        ]

    # Samples and readers.

    def captured(self, samples: Sequence[OriginalSample]) -> None:
        """Hold samples from original writers that durable subscriptions want."""
        self.groups_seen()
        for sample in samples:
            stock = self._stocks.get(sample.key[:ID_BYTES])
            if stock is not None and stock.is_wanted:
                stock.sample_arrived(_for_readers(sample))

    def heard(self, reader: str, state: SubscriberState | None) -> None:
        """Take in the state of a reader; None if it is gone."""
        if state is None:
            self._reader_answers.left(reader)
            return
        registration = Registration.needed_by(state)
        if state.deletes:
            for each, _ in list(_active(self._registered)):
                if each.overlaps(registration):
                    self._registered.delete(each.key)
        elif not self._reader_answers.knows(reader):
            self._registered.register(registration.key, state.quorum)
        self._gathered += [(reader, answer) for answer in self._reader_answers.heard(reader, state)]

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
            # A set has no order, and two runs must do the same.
            new = sorted(set(_active(stock)) - before, key=lambda one: one[0].key)
            for group, description in self._groups.items():
                for each, quorum in new:
                    if group in self._begun and each.concerns(description):
                        self._stocks[group].register(each.name, quorum)
        elif stock is not None:
            stock.receive(peer, message)

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
                self._report(report)
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
        # By name, so that rows of a screen do not jump.
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
