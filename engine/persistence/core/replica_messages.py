"""Messages between replicas, also about durable subscriptions, and the data that they keep."""

from __future__ import annotations

import dataclasses
from typing import Final

from engine.core.lazy_dataclass import lazy_dataclass
from engine.dataset.sample import DATA, DISPOSE
from engine.persistence.core.sequences import Sequences
from engine.persistence.core.subscription_ledger import LedgerState, Numbers

LATE: Final = "-late"
"""Suffix that turns the name of a writer into the name of its stream of late samples."""


@lazy_dataclass(frozen=True, slots=True)
class OriginalSample:
    """A sample of an original writer. Of two of one instance the one with the higher `order` counts."""

    writer: str
    """The original writer."""
    sequence: int
    """Its number at the writer, from 1; see `engine.persistence.core.positions`."""
    key: bytes
    """The instance."""
    source_time_ns: int
    """Source timestamp, nanoseconds since 1970."""
    payload: bytes = b""
    """The bytes of the writer."""
    status: int = DATA
    """`DATA` and `DISPOSE` bits of `engine.dataset.sample`."""
    first: int = dataclasses.field(default=0, compare=False)
    """It accounts for the numbers from here to `sequence`; 0 for `sequence` alone."""
    late: bool = dataclasses.field(default=False, compare=False)
    """Whether it came after one with a higher number, and so belongs to another `stream`."""

    @property
    def order(self) -> tuple[int, str, int]:
        """The sort key: source timestamp, then writer, then sequence number."""
        return self.source_time_ns, self.writer, self.sequence

    @property
    def stream(self) -> str:
        """The series that its number belongs to: the writer, or the writer's late samples."""
        return self.writer + LATE if self.late else self.writer

    @property
    def numbers(self) -> Sequences:
        """The numbers that it accounts for."""
        return Sequences(((self.first or self.sequence, self.sequence),))

    @property
    def disposed(self) -> bool:
        """Whether it disposes its instance."""
        return bool(self.status & DISPOSE)

    @property
    def alone(self) -> OriginalSample:
        """The sample, accounting for itself only."""
        if not self.first:
            return self
        return OriginalSample(  # dataclasses.replace takes ten times as long
            self.writer, self.sequence, self.key, self.source_time_ns, self.payload, self.status, 0, self.late
        )


@lazy_dataclass(frozen=True, slots=True)
class WriterState:
    """The samples of one original writer that a replica has.

    Attributes:
        writer: the original writer, or its stream of late samples.
        had: samples that are accounted for: kept, or superseded by what is kept.
        path: the replicas through which new samples of the writer reach it, itself last; None when none
            do. Its length is the length of the replication path.
    """

    writer: str
    had: Sequences
    path: tuple[str, ...] | None


@lazy_dataclass(frozen=True, slots=True)
class Announcement:
    """The states of all writers at a replica; sent to every other replica each period and on connection.

    Attributes:
        states: of the writers.
        digests: of the last values, see `Digests`; empty from one that does not audit.
    """

    states: tuple[WriterState, ...]
    digests: tuple[int, ...] = ()


@lazy_dataclass(frozen=True, slots=True)
class Want:
    """One writer in a subscription: all numbers that are not in `had`, or of these only those in `only`."""

    writer: str
    had: Sequences
    only: Sequences | None = None


@lazy_dataclass(frozen=True, slots=True)
class Subscription:
    """The reader with its content filter: from now on the receiver provides `wants` and nothing else.

    `number` counts how often the sender has replaced this reader.
    """

    number: int
    wants: tuple[Want, ...]


@lazy_dataclass(frozen=True, slots=True)
class KeptSample:
    """A last value, with every writer that ever wrote its instance."""

    sample: OriginalSample
    writers: frozenset[str]


@lazy_dataclass(frozen=True, slots=True)
class SampleBatch:
    """Samples from one replica to another, and the numbers that they supersede.

    Attributes:
        samples: those that the receiver lacks.
        written: writers of instances whose latest sample the receiver has already.
        superseded: (writer, numbers) that are accounted for once `samples` and `written` are taken in.
    """

    samples: tuple[KeptSample, ...] = ()
    written: tuple[tuple[bytes, frozenset[str]], ...] = ()
    superseded: tuple[tuple[str, Sequences], ...] = ()


@lazy_dataclass(frozen=True, slots=True)
class Inventory:
    """The last values of one part of all instances; the receiver answers with those that are newer.

    Attributes:
        part: its number, see `engine.persistence.core.last_values`.
        entries: (instance, `order` of its last value).
    """

    part: int
    entries: tuple[tuple[bytes, tuple[int, str, int]], ...]


@lazy_dataclass(frozen=True, slots=True)
class Saved:
    """The contents of the disk of a replica, all from one moment; `gone` are instances to delete there."""

    kept: tuple[KeptSample, ...] = ()
    had: tuple[tuple[str, Sequences], ...] = ()
    gone: tuple[bytes, ...] = ()


Message = Announcement | Subscription | SampleBatch | Inventory


@lazy_dataclass(frozen=True, slots=True)
class SubscriptionUpdate:
    """From one replica to another: everything on connection, then the news since the last one.

    Attributes:
        ledgers: durable subscriptions and their acknowledgements.
        held: samples that the sender keeps for durable subscriptions.
    """

    ledgers: tuple[LedgerState, ...] = ()
    held: Numbers = ()


@lazy_dataclass(frozen=True, slots=True)
class Fetch:
    """From one replica to another: the samples that the sender wants."""

    numbers: Numbers


@lazy_dataclass(frozen=True, slots=True)
class FetchedSamples:
    """From one replica to another: samples that the receiver asked for."""

    samples: tuple[OriginalSample, ...]


PeerMessage = SubscriptionUpdate | Fetch | FetchedSamples


@lazy_dataclass(frozen=True, slots=True)
class SubscriberState:
    """The state of a reader with a durable subscription, sent to all replicas; the last one counts."""

    topic: str
    """The topic that it reads."""
    partitions: tuple[str, ...]
    """Its partitions, or expressions for them; none stands for the default partition."""
    name: str
    """Name of the durable subscription."""
    quorum: int
    """Quorum that the reader asks for, from 1."""
    member: str
    """The reader's name in the durable subscription."""
    number: int
    """Number of this state at its reader, from 1."""
    asked: str = ""
    """The replica that must answer with its pending samples; empty for none."""
    request: int = 0
    """Number of that request, from 1; 0 before the first."""
    only_settled: bool = False
    """Leave out samples that came to the asked replica within a period: the writer may be sending them."""
    had: Numbers = ()
    """Samples that the reader has and has not acknowledged; they are not sent to it."""
    acknowledged: Numbers = ()
    """Acknowledged samples that some replica may not have stored yet."""
    deletes: bool = False
    """Whether the durable subscription is to be deleted."""


@lazy_dataclass(frozen=True, slots=True)
class SubscriberAnswer:
    """From a replica to a reader.

    Attributes:
        stored: the number of the reader's latest state that is on the disk of the replica.
        request: the request that is answered, 0 for none.
        samples: a part of the pending samples, in order.
        is_last: whether this part is the last one.
        missed: samples that the replica had no room for.
    """

    stored: int
    request: int = 0
    samples: tuple[OriginalSample, ...] = ()
    is_last: bool = False
    missed: int = 0


@lazy_dataclass(frozen=True, slots=True)
class SavedSubscriptions:
    """The durable subscriptions of a group on the disk of a replica, all from one moment."""

    ledgers: tuple[LedgerState, ...] = ()
    held: tuple[OriginalSample, ...] = ()


@lazy_dataclass(frozen=True, slots=True)
class Released:
    """A sample that no durable subscription needs any more."""

    writer: str
    number: int


@lazy_dataclass(frozen=True, slots=True)
class Forgotten:
    """Acknowledgements of the quorum that were forgotten at the bound."""

    name: str
    writer: str
    numbers: tuple[int, ...]


Change = LedgerState | OriginalSample | Released | Forgotten
"""A change to write to disk, in order with others."""
