"""The records of taps: one for each write, dispose and unregister, and for each end of a writer."""

from __future__ import annotations

import itertools
import operator
from typing import NamedTuple

from engine.dataset.sample import DATA


class CapturedSample(NamedTuple):
    """One write, dispose, unregister or end of a writer; the fields in the order that `make_sample` takes.

    A record with other bits in `status` than those of a sample is about a writer and is not a sample.
    """

    source_time_ns: int
    """The writer's source timestamp; 0 for the end of a writer, the time of reception if it sent none."""
    writer: bytes
    """The writer's GUID, 16 bytes, network order."""
    status: int
    """`DATA`, `DISPOSE` or `UNREGISTER` of `engine.dataset.sample`, or `WRITER_GONE`."""
    key: bytes
    """XCDR2 key bytes; empty for a topic without keys."""
    payload: bytes
    """CDR with its header; the key only if `status` lacks `DATA`."""
    sequence: int = 0
    """0; of a sample without a source timestamp, `UNTIMED` with its number: the time is that of reception."""


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

    def record(self, place: int) -> CapturedSample:
        """Return the record at a place, counted from 0."""
        at = self._begin + place * self._stride
        key_at = at + self._size
        key = self._piece[key_at : key_at + self._key_bytes]
        return CapturedSample(self.times_ns[place], self.writer, DATA, key, self._piece[at:key_at])

    def records(self) -> list[CapturedSample]:
        """Return all records."""
        piece, size, stride = self._piece, self._size, self._stride
        payloads = [piece[at : at + size] for at in range(self._begin, self._begin + self.size_bytes, stride)]
        alike = itertools.repeat(self.writer), itertools.repeat(DATA)
        return [*map(CapturedSample, self.times_ns, *alike, self.keys(), payloads)]
