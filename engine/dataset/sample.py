"""A sample as it is kept, moved and compared: original bytes, original source timestamp, never decoded.

Order is the natural order of the tuple: source timestamp, then writer, then sequence number, then content
digest. Two nodes that hold the same samples therefore order them alike without talking to each other.
"""

from __future__ import annotations

import hashlib
import struct
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

DISPOSE: Final = 1
"""Status bit: the instance is disposed (DDSI-RTPS StatusInfo_t)."""
UNREGISTER: Final = 2
"""Status bit: the writer unregisters the instance (DDSI-RTPS StatusInfo_t)."""
DATA: Final = 4
"""Status bit: `payload` is a whole sample; without it, it is the serialized key only."""
NO_WRITER: Final = bytes(16)
"""The writer of what a merge policy says."""

KEY_HEADER: Final = b"\x00\x07\x00\x00"
"""Encapsulation header of a payload that is the key only: PLAIN_CDR2, little-endian (RTPS 2.5, 10.2)."""

DIGEST_BYTES: Final = 16
HEADER: Final = struct.Struct("<qQBII")
"""What is digested before writer, key and payload: source time, sequence, status, the lengths of both."""


class Sample(NamedTuple):
    """One write, dispose or unregister of one instance.

    Attributes:
        source_time_ns: the writer's source timestamp, nanoseconds since 1970 UTC.
        writer: the original writer's GUID, 16 bytes in network order.
        sequence: the original sequence number, 0 where the network did not tell.
        digest: 16 bytes over everything else; equal digests are the same sample.
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
    """The content digest of a sample: 16 bytes, the same on every node and in every run."""
    header = HEADER.pack(source_time_ns, sequence, status, len(key), len(payload))
    return hashlib.blake2b(b"".join((header, writer, key, payload)), digest_size=DIGEST_BYTES).digest()


def is_end(sample: Sample) -> bool:
    """Whether a merge policy, and no writer, says that what was known of an instance counts no longer."""
    return sample.writer == NO_WRITER and sample.status in (DISPOSE, UNREGISTER)


def make_sample(
    source_time_ns: int,
    writer: bytes,
    status: int,
    key: bytes,
    payload: bytes,
    sequence: int = 0,
) -> Sample:
    """A sample with its digest computed."""
    digest = digest_of(source_time_ns, writer, sequence, status, key, payload)
    return Sample(source_time_ns, writer, sequence, digest, status, key, payload)


def make_samples(records: Iterable[tuple[int, bytes, int, bytes, bytes]]) -> list[Sample]:
    """Many samples; of each the arguments of `make_sample`."""
    hashed, pack, new, size = hashlib.blake2b, HEADER.pack, tuple.__new__, DIGEST_BYTES
    return [
        new(
            Sample,
            (
                time_ns,
                writer,
                0,
                hashed(
                    pack(time_ns, 0, status, len(key), len(payload)) + writer + key + payload,
                    digest_size=size,
                ).digest(),
                status,
                key,
                payload,
            ),
        )
        for time_ns, writer, status, key, payload in records
    ]


def digest_sum(samples: Sequence[Sample]) -> int:
    """The sum of the samples' digests as numbers, not reduced."""
    return sum_of_digests(b"".join([sample.digest for sample in samples]))


def sum_of_digests(joined: bytes) -> int:
    """The sum of digests, one after the other in `joined`, as numbers, not reduced."""
    halves: tuple[int, ...] = struct.unpack(f">{len(joined) // 8}Q", joined)
    return (sum(halves[::2]) << 64) + sum(halves[1::2])


def is_intact(sample: Sample) -> bool:
    """Whether the digest that came with the sample is the digest of its content."""
    return sample.digest == digest_of(
        sample.source_time_ns,
        sample.writer,
        sample.sequence,
        sample.status,
        sample.key,
        sample.payload,
    )
