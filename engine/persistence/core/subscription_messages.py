"""Messages about durable subscriptions: between replicas, and between a replica and a reader."""

from __future__ import annotations

import dataclasses

from engine.persistence.core.ledger import LedgerState, Numbers
from engine.persistence.core.messages import OriginalSample


@dataclasses.dataclass(frozen=True, slots=True)
class Books:
    """From one replica to another: everything on connection, then the news since the last one.

    Attributes:
        ledgers: durable subscriptions and their acknowledgements.
        held: samples that the sender keeps for durable subscriptions.
    """

    ledgers: tuple[LedgerState, ...] = ()
    held: Numbers = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Fetch:
    """From one replica to another: the samples that the sender wants."""

    numbers: Numbers


@dataclasses.dataclass(frozen=True, slots=True)
class Handed:
    """From one replica to another: samples that the receiver asked for."""

    samples: tuple[OriginalSample, ...]


PeerMessage = Books | Fetch | Handed


@dataclasses.dataclass(frozen=True, slots=True)
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


@dataclasses.dataclass(frozen=True, slots=True)
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


@dataclasses.dataclass(frozen=True, slots=True)
class SavedSubscriptions:
    """The durable subscriptions of a group on the disk of a replica, all from one moment."""

    ledgers: tuple[LedgerState, ...] = ()
    held: tuple[OriginalSample, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Released:
    """A sample that no durable subscription needs any more."""

    writer: str
    number: int


@dataclasses.dataclass(frozen=True, slots=True)
class Forgotten:
    """Acknowledgements of the quorum that were forgotten at the bound."""

    name: str
    writer: str
    numbers: tuple[int, ...]


Change = LedgerState | OriginalSample | Released | Forgotten
"""A change to write to disk, in order with others."""
