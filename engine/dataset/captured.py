"""What taps give: captured samples, and runs of writes that stay in one piece until somebody needs them.

A captured sample has no digest yet (`engine.dataset.sample.captured_sample`): of many writes to one instance
only the newest enters the set, and a digest costs more than all else that is done with a large sample.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import itertools
import operator
import struct
from collections.abc import Sequence
from typing import Final

from engine import native
from engine.dataset.sample import DATA, DIGEST_BYTES, HEADER, LARGE_BYTES, Sample, with_digest

TOGETHER_BYTES: Final = 1 << 10
"""Payloads from this size on are digested together, if at least `TOGETHER` samples are: for smaller ones the
call of the compiled library costs more than it saves."""
# With fewer, the arrays for the call cost more than three calls. Chosen.
TOGETHER: Final = 4


class CapturedRun:
    """Consecutive writes of one writer, all of equal size, as one undivided piece of the queue.

    Samples that are overwritten within the run can be skipped without being copied.

    Attributes:
        writer: the writer's GUID, 16 bytes, network order.
        count: number of writes.
        size_bytes: bytes of the queue that they take.
        times_ns: their source timestamps, in the order of the writes.
    """

    __slots__ = (
        "_begin",
        "_key_bytes",
        "_piece",
        "_size",
        "_stride",
        "count",
        "size_bytes",
        "times_ns",
        "writer",
    )

    def __init__(
        self,
        writer: bytes,
        times_ns: list[int],
        piece: bytes,
        begin: int,
        stride: int,
        size: int,
        key_bytes: int,
    ) -> None:
        """Use `piece`, which has a payload of `size` and then its key every `stride` bytes from `begin`."""
        self.writer = writer
        self.times_ns = times_ns
        self.count = len(times_ns)
        self.size_bytes = self.count * stride
        self._piece = piece
        self._begin = begin
        self._stride = stride
        self._size = size
        self._key_bytes = key_bytes

    def is_in_order(self) -> bool:
        """Tell whether each sample is newer than the one before."""
        return all(map(operator.lt, self.times_ns, itertools.islice(self.times_ns, 1, None)))

    def keys(self) -> list[bytes]:
        """Return the key bytes of each sample."""
        piece, size, first = self._piece, self._key_bytes, self._begin + self._size
        return [piece[at : at + size] for at in range(first, first + self.size_bytes, self._stride)]

    def sample(self, place: int) -> Sample:
        """Return the sample at a place, counted from 0."""
        at = self._begin + place * self._stride
        key_at = at + self._size
        key = self._piece[key_at : key_at + self._key_bytes]
        return Sample(self.times_ns[place], self.writer, 0, b"", DATA, key, self._piece[at:key_at])

    def samples(self) -> list[Sample]:
        """Return all samples."""
        piece, size, stride = self._piece, self._size, self._stride
        payloads = [piece[at : at + size] for at in range(self._begin, self._begin + self.size_bytes, stride)]
        alike = map(itertools.repeat, (self.writer, 0, b"", DATA))
        return [*map(Sample, self.times_ns, *alike, self.keys(), payloads)]


def singly(records: Sequence[Sample | CapturedRun]) -> list[Sample]:
    """Return records with the samples of runs one by one."""
    return [
        sample
        for each in records
        for sample in (each.samples() if isinstance(each, CapturedRun) else (each,))
    ]


@functools.cache
def _compiled() -> ctypes.CDLL:
    """The compiled library, whose function gives up the interpreter lock."""
    return native.unlocked()


def _digests(heads: Sequence[bytes], payloads: Sequence[bytes]) -> list[bytes]:
    """Return the digests of texts whose heads are header, writer and key.

    The library computes four at once where the processor has the registers for it.
    """
    count = len(heads)
    digests = ctypes.create_string_buffer(DIGEST_BYTES * count)
    texts = [
        part
        for column in (heads, payloads)
        for part in ((ctypes.c_char_p * count)(*column), struct.pack(f"={count}Q", *map(len, column)))
    ]
    _compiled().digests_of_samples(ctypes.c_uint64(count), *texts, digests)
    joined = digests.raw
    return [joined[at : at + DIGEST_BYTES] for at in range(0, len(joined), DIGEST_BYTES)]


def with_digests(samples: Sequence[Sample]) -> list[Sample]:
    """Return captured samples, whose sequence number must be 0, with their digests."""
    if len(samples) == 1 and len(samples[0].payload) < LARGE_BYTES:
        return [with_digest(samples[0])]
    hashed, pack, new, size = hashlib.blake2b, HEADER.pack, tuple.__new__, DIGEST_BYTES
    least = TOGETHER_BYTES if len(samples) >= TOGETHER else LARGE_BYTES
    large = [sample for sample in samples if len(sample.payload) >= least]
    heads = [
        pack(time_ns, 0, status, len(key), len(payload)) + writer + key
        for time_ns, writer, _, _, status, key, payload in large
    ]
    together = iter(_digests(heads, [sample.payload for sample in large]) if large else ())
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
                ).digest()
                if len(payload) < least
                else next(together),
                status,
                key,
                payload,
            ),
        )
        for time_ns, writer, _, _, status, key, payload in samples
    ]
