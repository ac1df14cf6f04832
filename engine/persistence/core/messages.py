"""Messages between replicas and to readers with durable subscriptions, their bytes, and what is kept.

Each message is described once, by its class: the fields, their ranges, and thereby its form on the wire. That
is a head, in JSON, and behind it the payloads of its samples as they are, so that a large sample is not
encoded a second time::

    version, 1 byte | samples, 4 | bytes of each payload, 4 each | bytes of the head, 4 | head | payloads

A sender may be broken or hostile. `decode` checks what it reads against the class, and raises `MessageFault`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from engine.core.untrusted import words_of
from engine.dataset.groups import GroupDescription
from engine.dataset.lifespans import MAX_LIFESPAN_NS
from engine.dataset.sample import DATA, DISPOSE
from engine.persistence.core.provider_selection import MAX_PATH
from engine.persistence.core.sequences import HIGHEST, Sequences
from engine.persistence.core.subscription_ledger import (
    MAX_QUORUM,
    LedgerState,
    Name,
    Numbers,
    Text,
    check_numbers,
)

VERSION: Final = 1
MAX_MESSAGE_BYTES: Final = 120 << 20
"""With its frame it fits into a batch (`engine.dds.bulk`); a larger one is not sent, but counted."""
PARTS: Final = 256
"""Number of parts of all instances; a digest of each goes into every announcement."""
MAX_PARTITIONS_CHARS: Final = 2_000
"""With topic and name they fit into `MAX_KEY_CHARS` of a registration."""
LATE: Final = "-late"
"""Suffix that turns the name of a writer into the name of its stream of late samples."""

_TIME_LIMIT: Final = 1 << 63
"""Source times are signed numbers of 64 bits in DDS and in the store."""
_HEAD: Final = struct.Struct(">BI")

Guid = Annotated[str, Meta(pattern=r"^[0-9a-f]{32}\Z")]
"""The GUID of a writer or reader, in hexadecimal digits."""
Digest = Annotated[int, Meta(ge=0)]


class MessageFault(ValueError):
    """A replica or reader sent bytes that are not a valid message."""


class OriginalSample(Struct, frozen=True, eq=False, array_like=True, gc=False):
    """A sample of an original writer. Of two of one instance the one with the higher `order` counts.

    Raises:
        ValueError: a field is out of its range.
    """

    writer: Name
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
    first: int = 0
    """It accounts for the numbers from here to `sequence`; 0 for `sequence` alone. Not compared."""
    late: bool = False
    """Whether it came after one with a higher number, and so belongs to another `stream`. Not compared."""

    def __post_init__(self) -> None:
        if not 0 <= self.first <= self.sequence <= HIGHEST or not self.sequence:
            raise ValueError(f"a sample with numbers {self.first} to {self.sequence}")
        if not self.status or self.status & ~(DATA | DISPOSE):
            raise ValueError(f"a sample of status {self.status}")
        if not -_TIME_LIMIT <= self.source_time_ns < _TIME_LIMIT:
            raise ValueError(f"a source time of {self.source_time_ns} ns")

    def _compared(self) -> tuple[object, ...]:
        return self.writer, self.sequence, self.key, self.source_time_ns, self.payload, self.status

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OriginalSample) and self._compared() == other._compared()

    def __hash__(self) -> int:
        return hash(self._compared())

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
    def alone(self) -> OriginalSample:
        """The sample, accounting for itself only."""
        return msgspec.structs.replace(self, first=0) if self.first else self


class KeptSample(Struct, frozen=True, array_like=True, gc=False):
    """A last value, with every writer that ever wrote its instance; messages leave out that of the sample."""

    sample: OriginalSample
    writers: frozenset[Name]

    @property
    def alone(self) -> KeptSample:
        """The same, with the sample accounting for itself only."""
        return KeptSample(self.sample.alone, self.writers) if self.sample.first else self


class WriterState(Struct, frozen=True, array_like=True, gc=False):
    """The samples of one original writer that a replica has.

    Attributes:
        writer: the original writer, or its stream of late samples.
        had: samples that are accounted for: kept, or superseded by what is kept.
        path: the replicas through which new samples of the writer reach it, itself last; None when none
            do. Its length is the length of the replication path.
    """

    writer: Name
    had: Sequences
    path: Annotated[tuple[Name, ...], Meta(max_length=MAX_PATH + 1)] | None


class Announcement(Struct, frozen=True, tag="announcement"):
    """The states of all writers at a replica; sent to every other replica each period and on connection.

    Attributes:
        states: of the writers.
        digests: of the last values, see `Digests`; empty from one that does not audit.
    """

    states: tuple[WriterState, ...]
    digests: Annotated[tuple[Digest, ...], Meta(max_length=PARTS)] = ()


class Want(Struct, frozen=True, array_like=True, gc=False):
    """One writer in a subscription: all numbers that are not in `had`, or of these only those in `only`."""

    writer: Name
    had: Sequences
    only: Sequences | None = None


class Subscription(Struct, frozen=True, tag="subscription"):
    """The reader with its content filter: from now on the receiver provides `wants` and nothing else.

    `number` counts how often the sender has replaced this reader.
    """

    number: int
    wants: tuple[Want, ...]


class SampleBatch(Struct, frozen=True, tag="delivery"):
    """Samples from one replica to another, and the numbers that they supersede.

    Attributes:
        samples: those that the receiver lacks.
        written: writers of instances whose latest sample the receiver has already.
        superseded: (writer, numbers) that are accounted for once `samples` and `written` are taken in.
    """

    samples: tuple[KeptSample, ...] = ()
    written: tuple[tuple[bytes, frozenset[Name]], ...] = ()
    superseded: tuple[tuple[Name, Sequences], ...] = ()


class Inventory(Struct, frozen=True, tag="inventory"):
    """The last values of one part of all instances; the receiver answers with those that are newer.

    Attributes:
        part: its number, see `part_of` in `engine.persistence.core.replica`.
        entries: (instance, `order` of its last value).
    """

    part: Annotated[int, Meta(ge=0, lt=PARTS)]
    entries: tuple[tuple[bytes, tuple[int, Name, int]], ...]


Message = Announcement | Subscription | SampleBatch | Inventory
"""The messages about last values."""


class SubscriptionUpdate(Struct, frozen=True, tag="subscription-books"):
    """From one replica to another: everything on connection, then the news since the last one.

    Attributes:
        ledgers: durable subscriptions and their acknowledgements.
        held: samples that the sender keeps for durable subscriptions.
        group: id of the group that it is about.
    """

    ledgers: tuple[LedgerState, ...] = ()
    held: Numbers = ()
    group: bytes = b""

    def __post_init__(self) -> None:
        check_numbers(self.held)


class Fetch(Struct, frozen=True, tag="subscription-fetch"):
    """From one replica to another: the samples of a group that the sender wants."""

    numbers: Numbers
    group: bytes = b""

    def __post_init__(self) -> None:
        check_numbers(self.numbers)


class FetchedSamples(Struct, frozen=True, tag="subscription-handed"):
    """From one replica to another: samples of a group that the receiver asked for."""

    samples: tuple[OriginalSample, ...]
    group: bytes = b""


PeerMessage = SubscriptionUpdate | Fetch | FetchedSamples
"""The messages about durable subscriptions."""


class GroupDescriptions(Struct, frozen=True, tag="groups"):
    """Groups with a writer; they are sent before samples of them."""

    groups: tuple[GroupDescription, ...]


class WriterLifespans(Struct, frozen=True, tag="lifespans"):
    """The lifespans of writers, in nanoseconds; they are sent before samples of these writers."""

    lifespans: dict[Guid, Annotated[int, Meta(ge=0, le=MAX_LIFESPAN_NS)]]


class ServedReaders(Struct, frozen=True, tag="served"):
    """Late readers that have got all last values."""

    readers: tuple[Guid, ...]


ReplicaMessage = Message | PeerMessage | GroupDescriptions | WriterLifespans | ServedReaders
"""Every message that replicas send each other on a link."""


class Hello(Struct, frozen=True):
    """The introduction of a replica on a link.

    Attributes:
        service: the name of its persistence_service element; replicas of one service synchronize.
        name: its own name.
        id: of its store.
    """

    service: Name
    name: Name
    id: Name


class SubscriberState(Struct, frozen=True):
    """The state of a reader with a durable subscription, sent to all replicas; the last one counts.

    Raises:
        ValueError: too many characters of partitions, or a number out of its range.
    """

    topic: Text
    """The topic that it reads."""
    partitions: tuple[str, ...]
    """Its partitions, or expressions for them; none means the default partition."""
    name: Text
    """Name of the durable subscription."""
    quorum: Annotated[int, Meta(ge=1, le=MAX_QUORUM)]
    """Quorum that the reader asks for, from 1."""
    member: Text
    """The reader's name in the durable subscription."""
    number: Annotated[int, Meta(ge=1)]
    """Number of this state at its reader, from 1."""
    asked: str = ""
    """The replica that must answer with its pending samples; empty for none."""
    request: Annotated[int, Meta(ge=0)] = 0
    """Number of that request, from 1; 0 before the first."""
    only_settled: bool = False
    """Leave out samples that came to the asked replica within a period: the writer may be sending them."""
    had: Numbers = ()
    """Samples that the reader has and has not acknowledged; they are not sent to it."""
    acknowledged: Numbers = ()
    """Acknowledged samples that some replica may not have stored yet."""
    deletes: bool = False
    """Whether the durable subscription is to be deleted."""

    def __post_init__(self) -> None:
        if sum(map(len, self.partitions)) + 4 * len(self.partitions) > MAX_PARTITIONS_CHARS:
            raise ValueError("too many partitions")
        check_numbers(self.had)
        check_numbers(self.acknowledged)


class SubscriberAnswer(Struct, frozen=True):
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


# Bytes.

_ENCODER: Final = msgspec.json.Encoder()
_DECODERS: Final = {
    wanted: msgspec.json.Decoder(wanted)
    for wanted in (ReplicaMessage, Hello, SubscriberState, SubscriberAnswer)
}


def encode(message: Struct) -> bytes:
    """Return the bytes of a message."""
    samples: Sequence[Any] = getattr(message, "samples", ())
    payloads = [_sample(each).payload for each in samples]
    if payloads:
        message = msgspec.structs.replace(
            message, samples=tuple(_with_payload(each, b"") for each in samples)
        )
    head = _ENCODER.encode(message)
    sizes = struct.pack(f">{len(payloads) + 1}I", *map(len, payloads), len(head))
    return b"".join((_HEAD.pack(VERSION, len(payloads)), sizes, head, *payloads))


def decode(body: bytes, wanted: Any = ReplicaMessage) -> Any:
    """Return the message in these bytes, of the class `wanted`.

    Raises:
        MessageFault: they are none.
    """
    if not _HEAD.size <= len(body) <= MAX_MESSAGE_BYTES:
        raise MessageFault(f"{len(body)} bytes")
    version, count = _HEAD.unpack_from(body)
    if version != VERSION:
        raise MessageFault(f"version {version} is not known")
    try:
        *sizes, size = struct.unpack_from(f">{count + 1}I", body, _HEAD.size)
        start = _HEAD.size + 4 * (count + 1)
        message = _DECODERS[wanted].decode(body[start : start + size])
    except (msgspec.MsgspecError, struct.error, ValueError, RecursionError, MemoryError) as error:
        raise MessageFault(f"a damaged message: {words_of(error)}"[:200]) from error
    samples = getattr(message, "samples", ())
    if len(samples) != count or start + size + sum(sizes) != len(body):
        raise MessageFault("a damaged message: its payloads do not fit its samples")
    if samples:
        payloads = _parts(body, start + size, sizes)
        whole = tuple(map(_with_payload, samples, payloads))
        message = msgspec.structs.replace(message, samples=whole)
    return message


def _parts(body: bytes, at: int, sizes: Sequence[int]) -> Iterator[bytes]:
    for size in sizes:
        yield body[at : at + size]
        at += size


def _sample(each: KeptSample | OriginalSample) -> OriginalSample:
    return each.sample if isinstance(each, KeptSample) else each


def _with_payload(each: KeptSample | OriginalSample, payload: bytes) -> KeptSample | OriginalSample:
    if isinstance(each, KeptSample):
        # Nearly always its only writer is that of the sample: left out, and put in again at the other end.
        own = {each.sample.stream}
        return KeptSample(msgspec.structs.replace(each.sample, payload=payload), each.writers ^ own)
    return msgspec.structs.replace(each, payload=payload)


def merged(messages: list[tuple[str, Message]], most: int) -> Iterator[tuple[str, Message]]:
    """Yield the same messages, with consecutive batches for a receiver joined.

    Args:
        messages: (receiver, message), in order.
        most: samples in one batch.
    """
    held: dict[str, SampleBatch] = {}
    for receiver, message in messages:
        before = held.pop(receiver, None)
        if before is not None and (
            not isinstance(message, SampleBatch) or len(before.samples) + len(message.samples) > most
        ):
            yield receiver, before
            before = None
        if isinstance(message, SampleBatch) and before is not None:
            samples = (*before.samples, *message.samples)
            message = SampleBatch(samples, message.written, message.superseded)
        if not isinstance(message, SampleBatch) or message.written or message.superseded:
            yield receiver, message
        else:
            held[receiver] = message
    yield from held.items()


# What is kept.


class Saved(Struct, frozen=True):
    """The contents of the disk of a replica, all from one moment; `gone` are instances to delete there."""

    kept: tuple[KeptSample, ...] = ()
    had: tuple[tuple[str, Sequences], ...] = ()
    gone: tuple[bytes, ...] = ()


class SavedSubscriptions(Struct, frozen=True):
    """The durable subscriptions of a group on the disk of a replica, all from one moment."""

    ledgers: tuple[LedgerState, ...] = ()
    held: tuple[OriginalSample, ...] = ()


class Released(Struct, frozen=True):
    """A sample that no durable subscription needs any more."""

    writer: str
    number: int


class Forgotten(Struct, frozen=True):
    """Acknowledgements of the quorum that were forgotten at the bound."""

    name: str
    writer: str
    numbers: tuple[int, ...]


Change = LedgerState | OriginalSample | Released | Forgotten
"""A change to write to disk, in order with others."""
