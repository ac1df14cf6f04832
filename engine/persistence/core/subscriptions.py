"""The durable subscriptions of one group at one replica: the samples held for them, and their readers.

A sample is held, beside the last value of its instance, until the quorum of every durable subscription has
acknowledged it. Replicas send each other acknowledgements, and the names of the samples that they hold;
each fetches those that another one holds and it lacks. `ReaderAnswers` is the side to which readers talk.

Invariant: a held sample is released only when every subscription has acknowledged it or is deleted.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Callable, Iterable
from typing import Final

from msgspec import Struct

from engine.persistence.core.messages import (
    Change,
    Fetch,
    FetchedSamples,
    Forgotten,
    OriginalSample,
    PeerMessage,
    Released,
    SavedSubscriptions,
    SubscriberAnswer,
    SubscriberState,
    SubscriptionUpdate,
)
from engine.persistence.core.provider_selection import SynchronizationSettings
from engine.persistence.core.subscription_ledger import (
    Id,
    LedgerState,
    Numbers,
    SubscriptionLedger,
    SubscriptionTerms,
    ids_of,
    numbers_of,
)

# Chosen: each keeps its samples until they are acknowledged, and anybody can make one.
MAX_SUBSCRIPTIONS: Final = 1_000
"""Durable subscriptions of one group; more are refused, counted and reported."""
# Chosen, as `engine.persistence.core.replica.MAX_WRITERS`.
MAX_WRITERS: Final = 100_000
"""Writers of one group that are remembered; beyond, all are forgotten, which does no harm."""
# Chosen: with 2.6 KB on average both limits are reached at once.
MAX_HELD: Final = 100_000
MAX_HELD_BYTES: Final = 256 << 20
"""Samples, and payload bytes, that a replica keeps for durable subscriptions. New ones beyond are not kept,
counted and reported. When there is room again they come from another replica that has kept them, if any."""
# Chosen, as the other limits for what strangers can make.
MAX_READERS: Final = 10_000
"""Readers at one time; more get no answer, and are counted."""
# Chosen, near the batches of replicas (`engine.persistence.core.replica`).
BATCH_SAMPLES: Final = 256
BATCH_BYTES: Final = 512 << 10
"""Samples and bytes in one message; a single sample may be larger."""


class HeldRoom(Struct):
    """The samples, and payload bytes, that are kept of all groups that share a bound."""

    samples: int = 0
    size: int = 0

    def has(self, size: int) -> bool:
        """Whether there is room for one more sample of `size` bytes."""
        return self.samples < MAX_HELD and self.size + size <= MAX_HELD_BYTES

    def add(self, samples: int, size: int) -> None:
        """Count samples that are kept, with their bytes; negative numbers for those that are no longer."""
        self.samples += samples
        self.size += size
        assert self.samples >= 0 <= self.size, "more was released than held"


class HeldSample(Struct):
    """A sample, the subscriptions that have not acknowledged it, and the period in which it came."""

    sample: OriginalSample
    wanted_by: set[str]
    period: int


class _Peer(Struct):
    """Another replica while it is connected."""

    ledgers: list[LedgerState] = []
    """Acknowledgements to send it."""
    offers: list[Id] = []
    """Samples held here, to offer it."""
    offered: dict[Id, int] = {}
    """Samples that it holds and this replica lacks, with the period in which it offered them."""


def batches(samples: Iterable[OriginalSample]) -> list[tuple[OriginalSample, ...]]:
    """Split samples into batches for messages; at least one, which may be empty."""
    parts: list[list[OriginalSample]] = [[]]
    size = 0
    for sample in samples:
        if parts[-1] and (len(parts[-1]) == BATCH_SAMPLES or size + len(sample.payload) > BATCH_BYTES):
            parts.append([])
            size = 0
        parts[-1].append(sample)
        size += len(sample.payload)
    return [tuple(part) for part in parts]


class SubscriptionStatus(Struct, frozen=True):
    """The status of one durable subscription at this replica.

    Attributes:
        name: its name.
        quorum: members that must acknowledge a sample.
        members: readers that are connected here.
        pending: samples that the quorum has not acknowledged.
        in_doubt: by member, how many samples it has acknowledged and the quorum has not.
    """

    name: str
    quorum: int
    members: tuple[str, ...]
    pending: int
    in_doubt: dict[str, int]


class Subscriptions:
    """The durable subscriptions of one group at one replica. Links keep the order and lose nothing.

    Args:
        name: of the replica.
        settings: of data synchronization.
        values: returns the last value of every instance; a new subscription begins with them.
        saved: the state on its disk.
        room: shared with other groups.

    Attributes:
        missed: samples that were not held because there was no room.
        missed_now: those since there was room for the last time.
        counters: `held`, `released`, `refused` (no room), `acknowledged` (by a quorum), `fetched` (from
            other replicas), `handed` (to them), `quorum_conflicts`, `subscriptions_refused`.
    """

    def __init__(
        self,
        name: str,
        settings: SynchronizationSettings,
        values: Callable[[], Iterable[OriginalSample]],
        saved: SavedSubscriptions | None = None,
        room: HeldRoom | None = None,
    ) -> None:
        self.name = name
        self.settings = settings
        self.counters: collections.Counter[str] = collections.Counter()
        self._values = values
        self._ledgers: dict[str, SubscriptionLedger] = {}
        self._held: dict[Id, HeldSample] = {}
        self._pending: collections.Counter[str] = collections.Counter()
        self._room = room or HeldRoom()
        self._writers: set[str] = set()
        self.missed = self.missed_now = 0
        self._readers: dict[str, tuple[str, str]] = {}
        self._period = 0
        self._changes: list[Change] = []
        self._reports: list[str] = []
        self._peers: dict[str, _Peer] = {}
        self._to_peers: list[tuple[str, PeerMessage]] = []
        self._restore(saved or SavedSubscriptions())

    def _restore(self, saved: SavedSubscriptions) -> None:
        self._ledgers = {state.name: SubscriptionLedger(state) for state in saved.ledgers}
        for sample in saved.held:
            self._hold(sample)
        self._changes.clear()

    # State.

    def saved(self) -> SavedSubscriptions:
        """Return everything that it has."""
        held = tuple(each.sample for _, each in sorted(self._held.items()))
        return SavedSubscriptions(self._states(), held)

    def _states(self) -> tuple[LedgerState, ...]:
        return tuple(ledger.state() for _, ledger in sorted(self._ledgers.items()))

    def held(self) -> frozenset[Id]:
        """Return the samples that are held: (writer, number)."""
        return frozenset(self._held)

    def status(self) -> tuple[SubscriptionStatus, ...]:
        """Return the status of every subscription."""
        return tuple(
            SubscriptionStatus(
                name,
                ledger.quorum,
                tuple(sorted({member for role, member in self._readers.values() if role == name})),
                self._pending[name],
                ledger.members(),
            )
            for name, ledger in sorted(self._ledgers.items())
            if not ledger.terms.is_deleted
        )

    @property
    def forgotten(self) -> int:
        """Acknowledgements that were forgotten or refused at a bound."""
        return sum(each.forgotten + each.refused for each in self._ledgers.values())

    def changes(self) -> list[Change]:
        """Take the changes that must be on disk, in one transaction, before messages are sent."""
        changes, self._changes = self._changes, []
        for name, ledger in self._ledgers.items():
            changes += (Forgotten(name, *each) for each in ledger.just_forgotten())
        return changes

    def messages(self) -> list[tuple[str, PeerMessage]]:
        """Take the messages to other replicas, in order: (receiver, message)."""
        messages, self._to_peers = self._to_peers, []
        return messages

    def reports(self) -> list[str]:
        """Take the sentences for operators."""
        reports, self._reports = self._reports, []
        return reports

    # Subscriptions.

    def register(self, name: str, quorum: int) -> None:
        """Create a durable subscription unless it exists; it begins with the current last values.

        Of two quorums the smaller counts; this is counted and reported. To raise it, delete it first.

        Raises:
            ValueError: a quorum below 1.
        """
        known = self._ledgers.get(name)
        if known is None and len(self._ledgers) >= MAX_SUBSCRIPTIONS:
            if not self.counters["subscriptions_refused"]:
                self._reports.append(
                    f"durable subscription '{name}' is refused: there are {MAX_SUBSCRIPTIONS} already"
                )
            self.counters["subscriptions_refused"] += 1
            return
        terms = SubscriptionTerms(known.terms.generation + known.terms.is_deleted if known else 1)
        if known and quorum != known.quorum and terms == known.terms:
            self.counters["quorum_conflicts"] += 1
            self._reports.append(
                f"durable subscription '{name}' is asked for with quorum {quorum} and has {known.quorum}: "
                f"the smaller counts"
            )
        self._learn(LedgerState(name, terms, quorum))

    def delete(self, name: str) -> bool:
        """Delete a subscription, with the samples held for it alone; False if there is none."""
        ledger = self._ledgers.get(name)
        if ledger is None or ledger.terms.is_deleted:
            return False
        self._learn(LedgerState(name, SubscriptionTerms(ledger.terms.generation, True), ledger.quorum))
        return True

    def _learn(self, state: LedgerState, source: str = "") -> None:
        """Merge a state of a subscription, and plan to tell it to all replicas but `source`."""
        ledger = self._ledgers.get(state.name)
        before = ledger.terms if ledger else None
        if ledger is None:
            if len(self._ledgers) >= MAX_SUBSCRIPTIONS:
                self.counters["subscriptions_refused"] += 1
                return
            ledger = self._ledgers[state.name] = SubscriptionLedger(state)
            new: LedgerState | None = state
        else:
            new = ledger.join(state)
        if new is not None:
            self._spread(new, source)
            if ledger.terms != before:
                self._begin(ledger)
            self._settle(new)

    def _spread(self, new: LedgerState, source: str) -> None:
        self._changes.append(new)
        for name, peer in self._peers.items():
            if name != source:
                peer.ledgers.append(new)

    def _begin(self, ledger: SubscriptionLedger) -> None:
        """Hold samples for a new subscription, or release those of a deleted one."""
        for id_ in list(self._held):
            if ledger.terms.is_deleted:
                self._let_go(ledger.name, id_)
            elif ledger.name not in self._held[id_].wanted_by and not ledger.is_done(*id_):
                self._held[id_].wanted_by.add(ledger.name)
                self._pending[ledger.name] += 1
        for sample in self._values() if not ledger.terms.is_deleted else ():
            self._hold(sample)

    def _settle(self, new: LedgerState) -> None:
        for writer, numbers in new.done:
            self.counters["acknowledged"] += len(numbers)
            for number in numbers:
                self._let_go(new.name, (writer, number))

    def has(self, name: str, member: str, writer: str, number: int) -> bool:
        """Whether this replica knows that a member, or the quorum, has acknowledged a sample.

        Args:
            name: of the durable subscription.
            member: its name.
            writer: of the sample.
            number: of the sample.
        """
        ledger = self._ledgers.get(name)
        return ledger is not None and ledger.has(member, writer, number)

    # Samples.

    def sample_arrived(self, sample: OriginalSample) -> None:
        """Take a sample from its writer or another replica, whether it is the last value or not."""
        self._writers.add(sample.writer)
        if len(self._writers) > MAX_WRITERS:
            self._writers.clear()
        self._hold(sample)

    def knows(self, writer: str) -> bool:
        """Whether a sample of this writer came, or is held; it may be forgotten for a while."""
        return writer in self._writers

    @property
    def is_wanted(self) -> bool:
        """Whether there is a durable subscription."""
        return any(not ledger.terms.is_deleted for ledger in self._ledgers.values())

    def _wanted_by(self, id_: Id) -> set[str]:
        return {
            name
            for name, ledger in self._ledgers.items()
            if not ledger.terms.is_deleted and not ledger.is_done(*id_)
        }

    def _hold(self, sample: OriginalSample) -> bool:
        id_ = (sample.writer, sample.sequence)
        if id_ in self._held:
            return False
        wanted_by = self._wanted_by(id_)
        if not wanted_by:
            return False
        if not self._room.has(len(sample.payload)):
            self._miss()
            return False
        self._held[id_] = HeldSample(sample, wanted_by, self._period)
        self._room.add(1, len(sample.payload))
        self._writers.add(sample.writer)
        self._pending.update(wanted_by)
        self.counters["held"] += 1
        self._changes.append(sample)
        for peer in self._peers.values():
            if peer.offered.pop(id_, None) is None:  # it holds the sample itself if it has offered it
                peer.offers.append(id_)
        return True

    def _miss(self) -> None:
        if not self.missed_now:
            self._reports.append(
                f"{self._room.samples} samples ({self._room.size} bytes) wait for durable subscriptions: no "
                f"more are kept until some are acknowledged; pending: "
                + ", ".join(f"'{each.name}' {each.pending}" for each in self.status() if each.pending)
            )
        self.missed += 1
        self.missed_now += 1
        self.counters["refused"] += 1

    def _let_go(self, name: str, id_: Id) -> None:
        held = self._held.get(id_)
        if held is None or name not in held.wanted_by:
            return
        held.wanted_by.discard(name)
        self._pending[name] -= 1
        assert self._pending[name] >= 0, "a sample is let go once for each subscription"
        if not held.wanted_by:
            del self._held[id_]
            self._room.add(-1, -len(held.sample.payload))
            self.counters["released"] += 1
            self._changes.append(Released(*id_))

    # Readers.

    def reader_came(self, reader: str, name: str, quorum: int, member: str) -> None:
        """Note a connected reader, and create its durable subscription; repeated calls do no harm.

        Args:
            reader: its id.
            name: of the durable subscription.
            quorum: that the reader asks for.
            member: its name in the durable subscription.
        """
        if reader not in self._readers:
            self.register(name, quorum)
            self._readers[reader] = (name, member)

    def reader_left(self, reader: str) -> None:
        """Forget a reader that is gone."""
        self._readers.pop(reader, None)

    def acknowledge(self, name: str, member: str, numbers: Numbers) -> None:
        """Note that a member has acknowledged samples; ignored for an unknown or deleted subscription.

        Args:
            name: of the durable subscription.
            member: its name.
            numbers: of the samples.
        """
        ledger = self._ledgers.get(name)
        if ledger is None or ledger.terms.is_deleted:
            return
        for writer, each in numbers:
            new = ledger.acknowledge(member, writer, each)
            if new is not None:
                self._spread(new, "")
                self._settle(new)

    def pending(
        self, name: str, member: str, had: Numbers = (), *, only_settled: bool = False
    ) -> list[OriginalSample]:
        """Return the held samples that a member lacks, in order of source time.

        Args:
            name: of the durable subscription.
            member: its name.
            had: samples to leave out.
            only_settled: leave out samples that came in this period.
        """
        ledger = self._ledgers.get(name)
        if ledger is None:
            return []
        left_out = {writer: frozenset(numbers) for writer, numbers in had}
        return sorted(
            (
                each.sample
                for (writer, number), each in self._held.items()
                if name in each.wanted_by
                and not (only_settled and each.period >= self._period)
                and number not in left_out.get(writer, ())
                and not ledger.has(member, writer, number)
            ),
            key=lambda sample: sample.order,
        )

    # Other replicas.

    def connected(self, peer: str) -> None:
        """Begin to exchange with a replica whose link is new: send all ledgers, offer all held samples."""
        self._peers[peer] = _Peer()
        if self.settings.synchronize_durable_subscriptions:
            self._to_peers.append((peer, SubscriptionUpdate(self._states(), numbers_of(self._held))))

    def disconnected(self, peer: str) -> None:
        """Forget a replica, whose link is down."""
        self._peers.pop(peer, None)

    def receive(self, peer: str, message: PeerMessage) -> None:
        """Take a message of another replica."""
        if peer not in self._peers or not self.settings.synchronize_durable_subscriptions:
            return
        if isinstance(message, SubscriptionUpdate):
            for ledger in message.ledgers:
                self._learn(ledger, peer)
            self._offered(peer, ids_of(message.held))
        elif isinstance(message, Fetch):
            samples = [self._held[id_].sample for id_ in ids_of(message.numbers) if id_ in self._held]
            self.counters["handed"] += len(samples)
            self._to_peers += [(peer, FetchedSamples(part)) for part in batches(samples) if part]
        else:
            for sample in message.samples:
                id_ = (sample.writer, sample.sequence)
                if self._hold(sample):
                    self.counters["fetched"] += 1
                elif self._wanted_by(id_):
                    self._offered(peer, [id_])  # when there is room

    def _offered(self, peer: str, ids: Iterable[Id]) -> None:
        offered = self._peers[peer].offered
        for id_ in ids:
            if id_ not in self._held and len(offered) < MAX_HELD:  # nobody holds more
                offered[id_] = self._period

    def period(self) -> None:
        """End a durable_subscription_synchronization_period: tell others news, and ask them for samples."""
        if self.missed_now and self._room.has(0):
            self._reports.append(f"{self.missed_now} samples were not kept for durable subscriptions")
            self.missed_now = 0
            for sample in self._values():
                self._hold(sample)
        if self.settings.synchronize_durable_subscriptions:
            if self.settings.enable:
                self._fetch()
            for name, peer in sorted(self._peers.items()):
                offers = numbers_of(id_ for id_ in peer.offers if id_ in self._held)
                if peer.ledgers or offers:
                    self._to_peers.append((name, SubscriptionUpdate(tuple(peer.ledgers), offers)))
                peer.ledgers, peer.offers = [], []
        self._period += 1

    def _fetch(self) -> None:
        """Ask others for missing samples; those offered in this period may yet come from the writer."""
        asked: set[Id] = set()
        for name, peer in sorted(self._peers.items()):
            for id_ in [each for each in peer.offered if each in self._held or not self._wanted_by(each)]:
                del peer.offered[id_]
            due = (id_ for id_, since in peer.offered.items() if since < self._period and id_ not in asked)
            room = MAX_HELD - self._room.samples - len(asked)
            wanted = list(itertools.islice(due, max(0, room)))
            if wanted and self._room.has(0):
                asked.update(wanted)
                for id_ in wanted:
                    del peer.offered[id_]
                self._to_peers.append((name, Fetch(numbers_of(wanted))))


class _Reader(Struct):
    """A present reader: its last state, and the number of its last request."""

    state: SubscriberState
    request: int = 0


class ReaderAnswers:
    """The readers of one replica.

    Args:
        own: the name by which readers ask this replica.
        groups: returns the groups that a state is about.

    Attributes:
        counters: `given` (samples), `readers_refused`.
    """

    def __init__(self, own: str, groups: Callable[[SubscriberState], Iterable[Subscriptions]]) -> None:
        self._own = own
        self._groups = groups
        self._readers: dict[str, _Reader] = {}
        self.counters: collections.Counter[str] = collections.Counter()

    def knows(self, reader: str) -> bool:
        """Whether this reader has sent a state."""
        return reader in self._readers

    def heard(self, reader: str, state: SubscriberState) -> list[SubscriberAnswer]:
        """Take a state of a reader: what it has, acknowledges and asks.

        Args:
            reader: its id; each new reader has a new one, whatever its member name.
            state: its latest state; one that is not newer than the last is ignored.

        Returns:
            Answers to send once all changes of this call are on disk.
        """
        known = self._readers.get(reader)
        if known is None:
            if len(self._readers) >= MAX_READERS:
                self.counters["readers_refused"] += 1
                return []
            known = self._readers[reader] = _Reader(state)
        elif state.number <= known.state.number:
            return []
        known.state = state
        groups = list(self._groups(state))
        for group in groups:
            if state.deletes:
                group.delete(state.name)
            else:
                group.reader_came(reader, state.name, state.quorum, state.member)
        if not state.deletes:
            _acknowledge(state, groups)
        if state.asked != self._own or state.request <= known.request:
            return [SubscriberAnswer(state.number)]
        known.request = state.request
        return self._pending(state, groups)

    def _pending(self, state: SubscriberState, groups: list[Subscriptions]) -> list[SubscriberAnswer]:
        samples = [
            sample
            for group in groups
            for sample in group.pending(state.name, state.member, state.had, only_settled=state.only_settled)
        ]
        if len(groups) > 1:
            # Each partition is in order already; a reader of several gets one order by source time.
            samples.sort(key=lambda sample: sample.order)
        self.counters["given"] += len(samples)
        *parts, last = batches(samples)
        missed = sum(group.missed for group in groups)
        return [
            *(SubscriberAnswer(state.number, state.request, part) for part in parts),
            SubscriberAnswer(state.number, state.request, last, is_last=True, missed=missed),
        ]

    def group_came(self, group: Subscriptions) -> None:
        """Add a new group: register the readers that read it."""
        for reader, known in self._readers.items():
            state = known.state
            if not state.deletes and group in self._groups(state):
                group.reader_came(reader, state.name, state.quorum, state.member)

    def left(self, reader: str) -> None:
        """Forget a reader that is gone."""
        known = self._readers.pop(reader, None)
        if known is not None:
            for group in self._groups(known.state):
                group.reader_left(reader)


def _acknowledge(state: SubscriberState, groups: list[Subscriptions]) -> None:
    """Give each acknowledgement to the groups that know its writer, or to all if none knows it.

    A reader acknowledges a repeated sample again, so a group that learns of a writer later hears of it.
    """
    for writer, numbers in state.acknowledged:
        knowing = [group for group in groups if group.knows(writer)]
        for group in knowing or groups:
            group.acknowledge(state.name, state.member, ((writer, numbers),))
