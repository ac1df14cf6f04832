"""A sample as it is kept, moved and compared: original bytes, original source timestamp, never decoded.

The order is that of the tuple: source timestamp, writer, sequence number, content digest. So two nodes with
the same samples have the same order.
"""

from __future__ import annotations

import bisect
import hashlib
import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

DISPOSE: Final = 1
"""Status bit: the instance is disposed (DDSI-RTPS StatusInfo_t)."""
UNREGISTER: Final = 2
"""Status bit: the writer unregisters the instance (DDSI-RTPS StatusInfo_t)."""
DATA: Final = 4
"""Status bit: `payload` is a whole sample; without the bit it is only the serialized key."""
UNTIMED: Final = 1 << 63
"""Bit of `sequence`: the writer sent no source timestamp. The time is that of reception, at the node that
captured the sample first."""
NO_WRITER: Final = bytes(16)
"""Writer of samples that a merge policy makes."""

KEY_HEADER: Final = b"\x00\x07\x00\x00"
"""Encapsulation header of a payload with only the key: PLAIN_CDR2, little-endian (RTPS 2.5, 10.2)."""

LOST_HEADER: Final = b"\x00\x07\x80\x00"
"""`KEY_HEADER` of the end of a writer that was lost and has not said it; receivers ignore the option bit."""

DIGEST_BYTES: Final = 16
"""128 bits: samples count as equal by it alone, so two of a million must never share one by chance."""
# Copying 32 KiB takes microseconds, as much as the calls that spare it.
LARGE_BYTES: Final = 1 << 15
"""Payloads from this size on are not copied in order to digest or store them."""
HEADER: Final = struct.Struct("<qQBII")
"""Digested before writer, key and payload: source time, sequence, status, lengths of key and payload."""


class Sample(NamedTuple):
    """One write, dispose or unregister of one instance.

    Attributes:
        source_time_ns: the writer's source timestamp, nanoseconds since 1970 UTC.
        writer: the original writer's GUID, 16 bytes in network order.
        sequence: the original sequence number, 0 if unknown; with `UNTIMED` it tells which sample of its
            writer this is, whenever a node received it.
        digest: 16 bytes over all other fields; samples with equal digests are equal. Empty from the tap to
            the set (`captured_sample`).
        status: `DATA`, `DISPOSE` and `UNREGISTER` bits.
        key: the instance, as XCDR2 key bytes; empty for a topic without keys.
        payload: CDR with its 4-byte encapsulation header.
    """

    source_time_ns: int
    writer: bytes
    sequence: int
    digest: bytes
    status: int
    key: bytes
    payload: bytes


def digest_of(
    source_time_ns: int, writer: bytes, sequence: int, status: int, key: bytes, payload: bytes
) -> bytes:
    """Return the content digest of a sample: 16 bytes, the same on every node and in every run."""
    header = HEADER.pack(source_time_ns, sequence, status, len(key), len(payload))
    if len(payload) >= LARGE_BYTES:
        digest = hashlib.blake2b(b"".join((header, writer, key)), digest_size=DIGEST_BYTES)
        digest.update(payload)
        return digest.digest()
    return hashlib.blake2b(b"".join((header, writer, key, payload)), digest_size=DIGEST_BYTES).digest()


def is_end(sample: Sample) -> bool:
    """Whether a merge policy, not a writer, disposes or withdraws an instance."""
    return sample.writer == NO_WRITER and sample.status in (DISPOSE, UNREGISTER)


def end_of_writer(time_ns: int, writer: bytes, key: bytes, *, is_lost: bool) -> Sample:
    """Make the end of a writer with autodispose for an instance.

    Args:
        time_ns: source time.
        writer: the writer.
        key: the instance.
        is_lost: the writer has not said it.
    """
    return make_sample(
        time_ns, writer, DISPOSE | UNREGISTER, key, (LOST_HEADER if is_lost else KEY_HEADER) + key
    )


def is_lost_end(sample: Sample) -> bool:
    """Whether a sample is the end of a writer that was lost, which the writer's return takes back."""
    return sample.status == DISPOSE | UNREGISTER and sample.payload.startswith(LOST_HEADER)


def make_sample(
    source_time_ns: int,
    writer: bytes,
    status: int,
    key: bytes,
    payload: bytes,
    sequence: int = 0,
) -> Sample:
    """Make a sample, with its digest."""
    digest = digest_of(source_time_ns, writer, sequence, status, key, payload)
    return Sample(source_time_ns, writer, sequence, digest, status, key, payload)


def captured_sample(
    source_time_ns: int,
    writer: bytes,
    status: int,
    key: bytes,
    payload: bytes,
    sequence: int = 0,
) -> Sample:
    """Make a sample as a tap gives it: without digest, because most are replaced before anybody needs one.

    One with other bits in `status` than those of a sample is about a writer, and never enters a set.
    """
    return Sample(source_time_ns, writer, sequence, b"", status, key, payload)


def with_digest(sample: Sample) -> Sample:
    """Return a captured sample with its digest."""
    time_ns, writer, sequence, _, status, key, payload = sample
    digest = digest_of(time_ns, writer, sequence, status, key, payload)
    return Sample(time_ns, writer, sequence, digest, status, key, payload)


def digest_sum(samples: Sequence[Sample]) -> int:
    """Return the sum of the samples' digests as numbers, not reduced."""
    return sum_of_digests(b"".join([sample.digest for sample in samples]))


def sum_of_digests(joined: bytes) -> int:
    """Return the sum of the digests in `joined`, 16 bytes each, as numbers, not reduced."""
    halves: tuple[int, ...] = struct.unpack(f">{len(joined) // 8}Q", joined)
    return (sum(halves[::2]) << 64) + sum(halves[1::2])


def is_intact(sample: Sample) -> bool:
    """Whether the digest of a sample is that of its content."""
    return sample.digest == digest_of(
        sample.source_time_ns,
        sample.writer,
        sample.sequence,
        sample.status,
        sample.key,
        sample.payload,
    )


def retained(samples: list[Sample], depth: int) -> list[Sample]:
    """Return the samples of one instance to keep of `samples`, which are in order and without repetitions.

    They are a function of the *set* of samples that ever arrived, not of their order of arrival, so that
    capture, alignment, merge and restart reach the same result. With history depth n (0 keeps all):

    - of the writes, the n newest;
    - no dispose or unregister older than the oldest write at full depth, because no reader sees it any more;
    - of the disposes, the n newest; of the unregisters, the newest of each writer.

    Keeping is therefore a join: commutative, associative and idempotent.
    """
    writes = [sample for sample in samples if sample.status & DATA]
    if len(writes) == len(samples):  # a plain write is kept by its age alone
        return samples[-depth:]
    if depth and len(writes) >= depth:
        oldest = writes[-depth]
        samples = samples[bisect.bisect_left(samples, oldest) :]
    disposes_left = depth or len(samples)
    seen_writers: set[bytes] = set()
    kept: list[Sample] = []
    for sample in reversed(samples):
        keep = bool(sample.status & DATA)
        if sample.status & DISPOSE and not keep and disposes_left:
            disposes_left -= 1
            keep = True
        if sample.status & UNREGISTER and sample.writer not in seen_writers:
            seen_writers.add(sample.writer)
            keep = True
        if keep:
            kept.append(sample)
    kept.reverse()
    return kept
