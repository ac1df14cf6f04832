"""What a tap gives: one record for each thing that a writer did."""

from __future__ import annotations

import itertools
import operator
import struct
from typing import Final, NamedTuple

from engine.dataset.sample import DATA

WRITER_GONE: Final = 8
"""Status bit of a record that is no sample: the writer was deleted or lost, or no longer matches. `payload`
is `AUTODISPOSE` when its instances count as disposed."""

AUTODISPOSE: Final = b"\x01"

_REMEMBERED_WRITERS: Final = 8192
_WORDS_HOST: Final = struct.Struct("<4I")
_WORDS_NETWORK: Final = struct.Struct(">4I")


class Captured(NamedTuple):
    """One thing that a writer did; the fields in the order that `make_sample` takes.

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
    """Writes of one writer, one after the other, all alike in size: a piece of the queue, not taken apart.

    Where samples of the same instances follow each other quickly, most of them are never looked at.

    Attributes:
        writer: as in `Captured`.
        count: how many.
        octets: how long a piece they are.
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
        """From `begin` on in `piece` a payload of `size` with its key behind it, every `stride` bytes."""
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
        """Whether each sample is newer than the one before."""
        return all(map(operator.lt, self.times_ns, itertools.islice(self.times_ns, 1, None)))

    def keys(self) -> list[bytes]:
        """The instance of each sample."""
        piece, size, first = self._piece, self._key_bytes, self._begin + self._size
        return [piece[at : at + size] for at in range(first, first + self.octets, self._stride)]

    def record(self, place: int) -> Captured:
        """One of them; places count from 0."""
        at = self._begin + place * self._stride
        key_at = at + self._size
        key = self._piece[key_at : key_at + self._key_bytes]
        return Captured(self.times_ns[place], self.writer, DATA, key, self._piece[at:key_at])

    def records(self) -> list[Captured]:
        """All of them."""
        piece, size, stride = self._piece, self._size, self._stride
        payloads = [piece[at : at + size] for at in range(self._begin, self._begin + self.octets, stride)]
        alike = itertools.repeat(self.writer), itertools.repeat(DATA)
        return [*map(Captured, self.times_ns, *alike, self.keys(), payloads)]


class WriterNames:
    """GUIDs as the built-in topics give them, from the host order in which a reader cache gets them.

    One bytes object for each writer serves all its samples.
    """

    def __init__(self) -> None:
        self._known: dict[bytes, bytes] = {}
        self.get = self._known.get
        """The GUID of a writer that was seen before."""

    def learn(self, host_order: bytes) -> bytes:
        """The GUID of a writer that is new: each 32-bit word turned round."""
        if len(self._known) >= _REMEMBERED_WRITERS:
            self._known.clear()
        network = _WORDS_NETWORK.pack(*_WORDS_HOST.unpack(host_order))
        self._known[host_order] = network
        return network
