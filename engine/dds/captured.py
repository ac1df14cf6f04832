"""The records of a tap: one for each write, dispose and unregister, and for each end of a writer."""

from __future__ import annotations

import itertools
import operator
import struct
from typing import Final, NamedTuple

from engine.dataset.sample import DATA

WRITER_GONE: Final = 8
"""Status bit of a record that is not a sample: the writer was deleted, was lost, or no longer matches.
`payload` is `AUTODISPOSE` if its instances count as disposed."""

AUTODISPOSE: Final = b"\x01"

_REMEMBERED_WRITERS: Final = 8192
_WORDS_HOST: Final = struct.Struct("<4I")
_WORDS_NETWORK: Final = struct.Struct(">4I")


class Captured(NamedTuple):
    """One write, dispose, unregister or end of a writer; the fields in the order that `make_sample` takes.

    Attributes:
        source_time_ns: the writer's source timestamp; 0 with `WRITER_GONE`.
        writer: the writer's GUID, 16 bytes, network order.
        status: `DATA`, `DISPOSE`, `UNREGISTER` of `engine.dataset.sample`, or `WRITER_GONE`.
        key: XCDR2 key bytes; empty for a topic without keys.
        payload: CDR with its header; the key only when `status` lacks `DATA`.
    """

    source_time_ns: int
    writer: bytes
    status: int
    key: bytes
    payload: bytes


class CapturedRun:
    """Consecutive writes of one writer, all of equal size, as one undivided piece of the queue.

    Samples that are overwritten within the run can be skipped without being copied.

    Attributes:
        writer: the writer's GUID, 16 bytes, network order.
        count: number of writes.
        octets: bytes of the queue that they take.
        times_ns: their source timestamps, in the order of the writes.
    """

    __slots__ = (
        "_begin",
        "_key_bytes",
        "_piece",
        "_size",
        "_stride",
        "count",
        "octets",
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
        self.octets = self.count * stride
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
        return [piece[at : at + size] for at in range(first, first + self.octets, self._stride)]

    def record(self, place: int) -> Captured:
        """Return the record at a place, counted from 0."""
        at = self._begin + place * self._stride
        key_at = at + self._size
        key = self._piece[key_at : key_at + self._key_bytes]
        return Captured(self.times_ns[place], self.writer, DATA, key, self._piece[at:key_at])

    def records(self) -> list[Captured]:
        """Return all records."""
        piece, size, stride = self._piece, self._size, self._stride
        payloads = [piece[at : at + size] for at in range(self._begin, self._begin + self.octets, stride)]
        alike = itertools.repeat(self.writer), itertools.repeat(DATA)
        return [*map(Captured, self.times_ns, *alike, self.keys(), payloads)]


class WriterNames:
    """GUIDs in network order, as built-in topics show them, by the host order that a reader cache receives.

    One bytes object for each writer serves all its samples.
    """

    def __init__(self) -> None:
        self._known: dict[bytes, bytes] = {}
        self.get = self._known.get
        """Return the GUID of a known writer, or None."""

    def learn(self, host_order: bytes) -> bytes:
        """Remember a new writer and return its GUID: each 32-bit word is byte-swapped."""
        if len(self._known) >= _REMEMBERED_WRITERS:
            self._known.clear()
        network = _WORDS_NETWORK.pack(*_WORDS_HOST.unpack(host_order))
        self._known[host_order] = network
        return network
