"""The durable subscriptions of one group at one replica: the samples held for them, and their readers.

A sample is held, beside the last value of its instance, until the quorum of every durable subscription has
acknowledged it. Replicas exchange acknowledgements, and samples that one holds and another lacks.

Invariant: a held sample is released only when every subscription has acknowledged it or is deleted.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable
from typing import Final

from engine.core.lazy_dataclass import lazy_dataclass
from engine.persistence.core.provider_selection import SynchronizationSettings
from engine.persistence.core.replica_messages import (
    Change,
    Fetch,
    Forgotten,
    OriginalSample,
    PeerMessage,
    Released,
    SavedSubscriptions,
    SubscriptionUpdate,
)
from engine.persistence.core.subscription_exchange import GroupExchange, HeldRoom, HeldSample, Id, ids_of
from engine.persistence.core.subscription_ledger import (
    LedgerState,
    Numbers,
    SubscriptionLedger,
    SubscriptionTerms,
)

MAX_SUBSCRIPTIONS: Final = 1_000
"""Durable subscriptions of one group; more are refused, counted and reported."""

MAX_WRITERS: Final = 100_000
"""Writers of one group that are remembered; beyond, all are forgotten, which does no harm."""


@lazy_dataclass(frozen=True, slots=True)
class SubscriptionStatus:
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
    in_doubt: tuple[tuple[str, int], ...]


class Subscriptions:
    """The durable subscriptions of one group at one replica. Links keep the order and lose nothing.

    Args:
        name: of the replica.
        settings: of data synchronization.
        values: returns the last value of every instance; a new subscription begins with them.
        saved: the state on its disk.
        room: shared with other groups.

    Attributes:
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
        self._missed = 0
        self._missed_now = 0
        self._readers: dict[str, tuple[str, str]] = {}
        self._period = 0
        self._changes: list[Change] = []
        self._reports: list[str] = []
        self._exchange = GroupExchange(
            settings, self._held, self._room, lambda id_: bool(self._wanted_by(id_))
        )
        self._restore(saved or SavedSubscriptions())

    def _restore(self, saved: SavedSubscriptions) -> None:
        self._ledgers = {state.name: SubscriptionLedger.of(state) for state in saved.ledgers}
        for sample in saved.held:
            self._hold(sample)
        self._changes.clear()

    # State.

    def saved(self) -> SavedSubscriptions:
        """Return everything that it has."""
        ledgers = tuple(ledger.state() for _, ledger in sorted(self._ledgers.items()))
        return SavedSubscriptions(ledgers, tuple(each.sample for _, each in sorted(self._held.items())))

    def held(self) -> frozenset[Id]:
        """Return the samples that are held: (writer, number)."""
        return frozenset(self._held)

    def status(self) -> tuple[SubscriptionStatus, ...]:
        """Return the status of every subscription."""
        return tuple(
            SubscriptionStatus(
                name,
                ledger.quorum,
                tuple(sorted({member for of, member in self._readers.values() if of == name})),
                self._pending[name],
                tuple(sorted(ledger.members().items())),
            )
            for name, ledger in sorted(self._ledgers.items())
            if not ledger.terms.is_deleted
        )

    @property
    def missed(self) -> int:
        """Samples that were not held because there was no room."""
        return self._missed

    @property
    def missed_now(self) -> int:
        """Samples that were not held since there was room for the last time."""
        return self._missed_now

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
        return self._exchange.messages()

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
        terms = (
            SubscriptionTerms(known.terms.generation + known.terms.is_deleted)
            if known
            else SubscriptionTerms()
        )
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
            ledger = self._ledgers[state.name] = SubscriptionLedger(state.name, state.quorum, state.terms)
            ledger.join(state)
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
        self._exchange.learned(new, source)

    def _begin(self, ledger: SubscriptionLedger) -> None:
        """Hold samples for a new subscription, or release those of a deleted one."""
        for id_ in list(self._held):
            if ledger.terms.is_deleted:
                self._let_go(ledger.name, id_)
            elif ledger.name not in self._held[id_].wanted_by and not ledger.is_done(*id_):
                self._held[id_].wanted_by.add(ledger.name)
                self._pending[ledger.name] += 1
        if not ledger.terms.is_deleted:
            self._hold_values()

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
        self._room.take(len(sample.payload))
        self._writers.add(sample.writer)
        self._pending.update(wanted_by)
        self.counters["held"] += 1
        self._changes.append(sample)
        self._exchange.held(id_)
        return True

    def _miss(self) -> None:
        if not self._missed_now:
            self._reports.append(
                f"{self._room.samples} samples ({self._room.size} bytes) wait for durable subscriptions: no "
                f"more are kept until some are acknowledged; pending: "
                + ", ".join(f"'{each.name}' {each.pending}" for each in self.status() if each.pending)
            )
        self._missed += 1
        self._missed_now += 1
        self.counters["refused"] += 1

    def _hold_values(self) -> None:
        for sample in self._values():
            self._hold(sample)

    def _let_go(self, name: str, id_: Id) -> None:
        held = self._held.get(id_)
        if held is None or name not in held.wanted_by:
            return
        held.wanted_by.discard(name)
        self._pending[name] -= 1
        if not held.wanted_by:
            del self._held[id_]
            self._room.give_back(len(held.sample.payload))
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
        """Begin to exchange with a replica, whose link is new."""
        self._exchange.connected(peer, [ledger.state() for _, ledger in sorted(self._ledgers.items())])

    def disconnected(self, peer: str) -> None:
        """Forget a replica, whose link is down."""
        self._exchange.disconnected(peer)

    def receive(self, peer: str, message: PeerMessage) -> None:
        """Take a message of another replica."""
        if not self._exchange.hears(peer):
            return
        if isinstance(message, SubscriptionUpdate):
            for ledger in message.ledgers:
                self._learn(ledger, peer)
            self._exchange.offered(peer, ids_of(message.held))
        elif isinstance(message, Fetch):
            samples = [self._held[id_].sample for id_ in ids_of(message.numbers) if id_ in self._held]
            self.counters["handed"] += len(samples)
            self._exchange.hand(peer, samples)
        else:
            for sample in message.samples:
                id_ = (sample.writer, sample.sequence)
                if self._hold(sample):
                    self.counters["fetched"] += 1
                elif self._wanted_by(id_):
                    self._exchange.offered(peer, [id_])  # when there is room

    def period(self) -> None:
        """End a durable_subscription_synchronization_period: tell others news, and ask them for samples."""
        if self._missed_now and self._room.has(0):
            self._reports.append(f"{self._missed_now} samples were not kept for durable subscriptions")
            self._missed_now = 0
            self._hold_values()
        self._exchange.period()
        self._period += 1
