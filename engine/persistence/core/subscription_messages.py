"""What is sent about durable subscriptions: between replicas, and between a replica and a subscriber."""

from __future__ import annotations

import dataclasses

from engine.persistence.core.ledger import LedgerState, Numbers
from engine.persistence.core.messages import OriginalSample


@dataclasses.dataclass(frozen=True, slots=True)
class Books:
    """From one replica to another: what is new there since its last one; all of it on connection.

    Attributes:
        ledgers: durable subscriptions and their acknowledgements.
        held: samples that it keeps for durable subscriptions.
    """

    ledgers: tuple[LedgerState, ...] = ()
    held: Numbers = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Fetch:
    """Of what the other holds, the sender wants these."""

    numbers: Numbers


@dataclasses.dataclass(frozen=True, slots=True)
class Handed:
    """What was asked for."""

    samples: tuple[OriginalSample, ...]


PeerMessage = Books | Fetch | Handed


@dataclasses.dataclass(frozen=True, slots=True)
class SubscriberState:
    """What a reader with a durable subscription says of itself, to all replicas; the last one counts.

    Attributes:
        topic, partitions: what it reads; expressions are allowed for partitions, none is the default one.
        name, quorum: of the durable subscription.
        member: the reader's name in it.
        number: counts the states of this reader, from 1.
        asked: the replica that is asked for what is pending; empty for none.
        request: counts these questions, from 1.
        only_settled: of what the asked one holds, not what arrived there within a period: it may be on
            its way from its writer.
        had: samples that the reader has and has not acknowledged; they are not sent.
        acknowledged: what is acknowledged, and not stored by all replicas yet as far as the reader knows.
        deletes: the durable subscription is to be deleted.
    """

    topic: str
    partitions: tuple[str, ...]
    name: str
    quorum: int
    member: str
    number: int
    asked: str = ""
    request: int = 0
    only_settled: bool = False
    had: Numbers = ()
    acknowledged: Numbers = ()
    deletes: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class SubscriberAnswer:
    """From a replica to a reader.

    Attributes:
        stored: the number of the reader's latest state that is on the disk of the replica.
        request: the question that is answered, 0 for none.
        samples: a part of what is pending, in order.
        is_last: there is no more.
        missed: samples that were not kept for durable subscriptions, because there was no room.
    """

    stored: int
    request: int = 0
    samples: tuple[OriginalSample, ...] = ()
    is_last: bool = False
    missed: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class SavedSubscriptions:
    """What must be on the disk of a replica, all from one moment."""

    ledgers: tuple[LedgerState, ...] = ()
    held: tuple[OriginalSample, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Released:
    """A sample that no durable subscription wants any more."""

    writer: str
    number: int


@dataclasses.dataclass(frozen=True, slots=True)
class Forgotten:
    """Acknowledgements of the quorum that are no longer remembered, because there are too many."""

    name: str
    writer: str
    numbers: tuple[int, ...]


Change = LedgerState | OriginalSample | Released | Forgotten
"""What must be written to disk, in order: new acknowledgements, a sample that is kept, and so on."""
