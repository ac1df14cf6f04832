"""Names of samples in questions of clients, the node's verdict on each, and samples that are handed over.

The name of a sample is its writer, source time, status, instance and content digest. A node computes the
same digest from captured and aligned samples, so it knows for each name whether it has exactly that sample.
These blocks travel as additions (see `extensions`) beside the JSON.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from msgspec import Meta, Struct

from engine.dataset.sample import DATA, DIGEST_BYTES, DISPOSE, UNREGISTER, make_sample
from engine.dds.cdr import Malformed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from engine.dataset.sample import Sample

NAMES: Final = "ospltool.names"
"""Addition to a question: packed names."""
VERDICTS: Final = "ospltool.verdicts"
"""Addition to an answer: one byte for each name, in the order of the question."""
SAMPLES: Final = "ospltool.samples"
"""Addition to a request to keep samples: packed samples."""
ANSWERS: Final = 2
"""Version of the answers about samples; nodes that do not send it promise less."""
# With `_NAME_BYTES` each, as many as fill `MAX_BLOCK_BYTES`.
MAX_NAMES: Final = 4_096
"""Limit for the names in one question."""
# The smallest batch that is among the fastest of the stream (see `engine.dds.bulk`); larger only delays the
# first answer.
MAX_BLOCK_BYTES: Final = 256 << 10
"""Limit for the bytes of names or samples in one message; a single sample may be larger."""

_STATUSES: Final = DATA | DISPOSE | UNREGISTER
# Writer (16), time and digest with their msgpack heads come to less; an estimate that is too large makes
# blocks smaller, not wrong.
_NAME_BYTES: Final = 64
"""What a name takes at most besides its key."""

Guid = Annotated[bytes, Meta(min_length=16, max_length=16)]
Status = Annotated[int, Meta(ge=1, le=_STATUSES)]


class SampleName(Struct, frozen=True, order=True, array_like=True):
    """The name of one write, dispose or unregister of one writer.

    Attributes:
        source_time_ns: nanoseconds since 1970 UTC.
        writer: the writer's GUID, 16 bytes in network order.
        digest: 16 bytes over the whole sample.
        status: `DATA`, `DISPOSE` and `UNREGISTER` bits.
        key: the instance, as XCDR2 key bytes; empty for a topic without keys.
    """

    source_time_ns: int
    writer: Guid
    digest: Annotated[bytes, Meta(min_length=DIGEST_BYTES, max_length=DIGEST_BYTES)]
    status: Status
    key: bytes

    @classmethod
    def from_sample(cls, sample: Sample) -> SampleName:
        """Return the name of a sample."""
        return cls(sample.source_time_ns, sample.writer, sample.digest, sample.status, sample.key)

    def __str__(self) -> str:
        return f"{self.source_time_ns} ns (instance {self.key.hex() or 'of a topic without keys'})"


class SampleVerdict(enum.IntEnum):
    """A node's verdict on one sample in one or more groups; the lowest verdict of the groups counts."""

    MISSING = 0
    """The node does not have it."""
    REFUSED = 1
    """It is too large to be kept, or a limit of the group keeps it out in favour of other instances."""
    IN_MEMORY = 2
    """It is in the set, but not yet on disk, or the set is not complete."""
    DELETED = 3
    """`delete_historical_data` deletes it: its source time is not later than the deletion's."""
    SUPERSEDED = 4
    """Newer samples of its instance have taken its place (history depth, max_samples_per_instance)."""
    HELD = 5
    """It is in the complete set, in memory, and this node keeps the group in memory only."""
    STORED = 6
    """It is in the complete set and on disk."""

    @property
    def is_kept(self) -> bool:
        """Whether the node has done everything that its policy and the writer's QoS demand."""
        return self >= SampleVerdict.SUPERSEDED


_NAMES: Final = msgspec.msgpack.Decoder(Annotated[tuple[SampleName, ...], Meta(max_length=MAX_NAMES)])
_SAMPLES: Final = msgspec.msgpack.Decoder(tuple[tuple[int, Guid, Status, bytes, bytes], ...])


def pack_names(names: Iterable[SampleName]) -> bytes:
    """Pack names into a block."""
    return msgspec.msgpack.encode(tuple(names))


def unpack_names(block: bytes) -> tuple[SampleName, ...]:
    """Unpack the names in a block.

    Raises:
        Malformed: it is damaged, or has more than `MAX_NAMES`.
    """
    try:
        found: tuple[SampleName, ...] = _NAMES.decode(block)
    except msgspec.MsgspecError as error:
        raise Malformed(f"a block of names: {error}") from None
    return found


def pack_samples(samples: Iterable[Sample]) -> bytes:
    """Pack samples into a block, without their sequence numbers."""
    parts = [(one.source_time_ns, one.writer, one.status, one.key, one.payload) for one in samples]
    return msgspec.msgpack.encode(parts)


def unpack_samples(block: bytes) -> list[Sample]:
    """Unpack the samples in a block, with their digests.

    Raises:
        Malformed: it is damaged.
    """
    try:
        return [make_sample(*one) for one in _SAMPLES.decode(block)]
    except msgspec.MsgspecError as error:
        raise Malformed(f"a block of samples: {error}") from None


def pieces(samples: Sequence[Sample]) -> list[list[Sample]]:
    """Split samples into pieces that fit into one message, or have one sample."""
    pieces: list[list[Sample]] = []
    size = 0
    for sample in samples:
        size += len(sample.payload) + len(sample.key)
        if not pieces or size > MAX_BLOCK_BYTES:
            pieces.append([])
            size = len(sample.payload) + len(sample.key)
        pieces[-1].append(sample)
    return pieces


def first_names(names: Sequence[SampleName]) -> int:
    """Return how many of the names fit into one question, at least one."""
    size = 0
    for count, one in enumerate(names[:MAX_NAMES]):
        size += _NAME_BYTES + len(one.key)
        if size > MAX_BLOCK_BYTES and count:
            return count
    return min(len(names), MAX_NAMES)


def unpack_verdicts(block: bytes, count: int) -> tuple[SampleVerdict, ...]:
    """Unpack the verdicts on `count` names.

    Raises:
        Malformed: the number differs, or a verdict is unknown.
    """
    if len(block) != count or any(value > SampleVerdict.STORED for value in block):
        raise Malformed("the verdicts do not fit the question")
    return tuple(map(SampleVerdict, block))
