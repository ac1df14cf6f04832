"""Samples by name: what a client asks about, what a node answers for each, and samples that are handed over.

The name of a sample is its writer, source time, status, instance and content digest. A node computes the
same digest from what it captured or was aligned with, so it can say of each name whether it has exactly that
sample. These blocks travel as additions (see `extensions`) beside the JSON.
"""

from __future__ import annotations

import dataclasses
import enum
import struct
from typing import TYPE_CHECKING, Final

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
"""Version of the answers about samples; nodes that do not say it answer about something weaker."""
MAX_NAMES: Final = 4_096
"""Names in one question."""
MAX_BLOCK_BYTES: Final = 256 << 10
"""Bytes of names or samples in one message; a single sample may be larger."""

_GUID_BYTES: Final = 16
_NAME: Final = struct.Struct(f"<{_GUID_BYTES}sqB{DIGEST_BYTES}sI")
_SAMPLE: Final = struct.Struct(f"<{_GUID_BYTES}sqBII")
_STATUSES: Final = DATA | DISPOSE | UNREGISTER


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class SampleName:
    """One write, dispose or unregister of one writer.

    Attributes:
        source_time_ns: nanoseconds since 1970 UTC.
        writer: the writer's GUID, 16 bytes in network order.
        digest: 16 bytes over all that the sample is.
        status: `DATA`, `DISPOSE` and `UNREGISTER` bits.
        key: the instance, as XCDR2 key bytes; empty for a topic without keys.
    """

    source_time_ns: int
    writer: bytes
    digest: bytes
    status: int
    key: bytes

    @classmethod
    def of(cls, sample: Sample) -> SampleName:
        """The name of a sample."""
        return cls(sample.source_time_ns, sample.writer, sample.digest, sample.status, sample.key)

    def __str__(self) -> str:
        return f"{self.source_time_ns} ns (instance {self.key.hex() or 'of a topic without keys'})"


class Verdict(enum.IntEnum):
    """What a node says of one sample in one or more groups; of several groups, the lowest counts."""

    MISSING = 0
    """It is not here."""
    REFUSED = 1
    """It was here, and is too large to be kept."""
    IN_MEMORY = 2
    """It is in the set, and must reach the disk yet, or the set is not complete."""
    DELETED = 3
    """It is not here, and will not be: it is at most as new as what `delete_historical_data` deleted."""
    SUPERSEDED = 4
    """Samples that are kept as they must be leave no place for it (HISTORY depth and limits of the group)."""
    HELD = 5
    """It is in the complete set, in memory, where this group belongs on this node."""
    STORED = 6
    """It is in the complete set and on the disk."""

    @property
    def is_kept(self) -> bool:
        """Whether the node has done for it all that its policy and the writer's QoS demand."""
        return self >= Verdict.SUPERSEDED


def pack_names(names: Iterable[SampleName]) -> bytes:
    """Names as a block."""
    parts: list[bytes] = []
    for one in names:
        head = _NAME.pack(one.writer, one.source_time_ns, one.status, one.digest, len(one.key))
        parts += (head, one.key)
    return b"".join(parts)


def unpack_names(block: bytes) -> tuple[SampleName, ...]:
    """The names in a block.

    Raises:
        Malformed: it is damaged, or has more than `MAX_NAMES`.
    """
    found: list[SampleName] = []
    at = 0
    while at < len(block):
        if at + _NAME.size > len(block) or len(found) >= MAX_NAMES:
            raise Malformed("a block of names is cut off or too long")
        writer, time_ns, status, digest, size = _NAME.unpack_from(block, at)
        at += _NAME.size
        if at + size > len(block) or not 0 < status <= _STATUSES:
            raise Malformed("a block of names is damaged")
        found.append(SampleName(time_ns, writer, digest, status, block[at : at + size]))
        at += size
    return tuple(found)


def pack_samples(samples: Iterable[Sample]) -> bytes:
    """Samples as a block; sequence numbers do not travel."""
    parts: list[bytes] = []
    for one in samples:
        head = _SAMPLE.pack(one.writer, one.source_time_ns, one.status, len(one.key), len(one.payload))
        parts += (head, one.key, one.payload)
    return b"".join(parts)


def unpack_samples(block: bytes) -> list[Sample]:
    """The samples in a block, with their digests.

    Raises:
        Malformed: it is damaged.
    """
    found: list[Sample] = []
    at = 0
    while at < len(block):
        if at + _SAMPLE.size > len(block):
            raise Malformed("a block of samples is cut off")
        writer, time_ns, status, key_bytes, payload_bytes = _SAMPLE.unpack_from(block, at)
        at += _SAMPLE.size
        end = at + key_bytes + payload_bytes
        if end > len(block) or not 0 < status <= _STATUSES:
            raise Malformed("a block of samples is damaged")
        key, payload = block[at : at + key_bytes], block[at + key_bytes : end]
        found.append(make_sample(time_ns, writer, status, key, payload))
        at = end
    return found


def first_names(names: Sequence[SampleName]) -> int:
    """How many of the names fit into one question, at least one."""
    size = 0
    for count, one in enumerate(names[:MAX_NAMES]):
        size += _NAME.size + len(one.key)
        if size > MAX_BLOCK_BYTES and count:
            return count
    return min(len(names), MAX_NAMES)


def unpack_verdicts(block: bytes, count: int) -> tuple[Verdict, ...]:
    """The verdicts on so many names.

    Raises:
        Malformed: there are others.
    """
    if len(block) != count or any(value > Verdict.STORED for value in block):
        raise Malformed("the verdicts are not about what was asked")
    return tuple(map(Verdict, block))
