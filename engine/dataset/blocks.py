"""Blocks: samples column by column in one piece of bytes, in memory and in streams.

A block has counts and flags, the writers, then one column after the other, keys and payloads last. A column
of equal entries is not written. A sample in a block costs 24 bytes beside its content, as an object 500. Code
that unpacks a block reads each column once, not each field.
"""

from __future__ import annotations

import array
import ctypes
import functools
import itertools
import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from engine import native
from engine.dataset.sample import DATA, DIGEST_BYTES, DISPOSE, UNREGISTER, Sample, sum_of_digests

# Chosen: a block is unpacked as a whole when one of its samples is needed, and the heads of small ones cost
# memory.
MAX_SAMPLES: Final = 4096
"""Samples at most in a block made here."""
# A place has 16 bits of a row of 31, which leaves 2**15 blocks.
MAX_PLACES: Final = 1 << 16
"""Samples at most in any block."""
PLACE: Final = MAX_PLACES - 1
"""Bits of a *row*, the number of a sample in many blocks, that tell its place; the others number blocks."""
PLACE_BITS: Final = PLACE.bit_length()

_HEAD: Final = struct.Struct("<HHB")
"""Samples, writers, flags."""
_LENGTH: Final = struct.Struct("<I")
_TIME: Final = struct.Struct("<q")
_WRITER_BYTES: Final = 16
_SEQUENCES, _STATUSES, _KEY_LENGTHS, _PAYLOAD_LENGTHS = 1, 2, 4, 8
"""Flags: this column is written. Without them: 0, DATA, and one length for all."""
_STATUS: Final = DATA | DISPOSE | UNREGISTER


# Chosen: hashing these takes tens of microseconds, for which giving up the lock pays.
_LARGE_BYTES: Final = 1 << 16
"""Payloads of a block from which on its digests are computed without the interpreter lock."""


class BlockLayout(ctypes.Structure):
    """`struct block` of block.h: where the columns of a block are."""

    _fields_ = [
        *((name, ctypes.c_uint64) for name in ("count", "writers", "times", "writer_of")),
        *((name, ctypes.c_uint64) for name in ("sequences", "statuses", "keys", "payloads")),
        *((name, ctypes.c_int64) for name in ("key_size", "payload_size")),
        *((name, ctypes.c_void_p) for name in ("key_ends", "payload_ends")),
    ]


@functools.cache
def compiled(*, is_long: bool = False) -> ctypes.CDLL:
    """Return the compiled library, which gives up the interpreter lock if that is long."""
    library = native.unlocked() if is_long else native.library()
    library.digests_of_block.restype = ctypes.c_int
    library.digests_of_block.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_char_p]
    return library


class BlockFault(ValueError):
    """Bytes that are not a block."""


class SampleColumns(NamedTuple):
    """One or more samples, column by column; see `engine.dataset.sample.Sample`."""

    times_ns: Sequence[int]
    writers: Sequence[bytes]
    sequences: Sequence[int]
    digests: Sequence[bytes]
    statuses: Sequence[int]
    keys: Sequence[bytes]
    payloads: Sequence[bytes]


def pieces(samples: Sequence[Sample], limit_bytes: int) -> Iterator[Sequence[Sample]]:
    """Cut samples into pieces for one block each, of about `limit_bytes` unless one sample is larger."""
    for start in range(0, len(samples), MAX_SAMPLES):
        yield from _fitting(samples[start : start + MAX_SAMPLES], limit_bytes)


def _fitting(samples: Sequence[Sample], limit_bytes: int) -> Iterator[Sequence[Sample]]:
    size = sum([len(sample.payload) + len(sample.key) for sample in samples])
    if len(samples) == 1 or size <= limit_bytes:
        yield samples
    else:
        middle = len(samples) // 2
        yield from _fitting(samples[:middle], limit_bytes)
        yield from _fitting(samples[middle:], limit_bytes)


_NO_ENDS: Final = array.array("Q")


class TextColumn:
    """A column of byte strings in the bytes of a block.

    Attributes:
        begin: offset of the first one.
        size: size of each; -1 if they differ.
        ends: if they differ, `begin` and then the end of each.
    """

    __slots__ = ("begin", "ends", "size")

    def __init__(self, begin: int, count: int, lengths: Sequence[int]) -> None:
        """Take the lengths of all `count` strings, or one length for all."""
        self.begin = begin
        self.size = lengths[0] if len(lengths) == 1 else -1
        self.ends: array.array[int] = _NO_ENDS
        if self.size < 0:
            self.ends = array.array("Q", itertools.accumulate(lengths, initial=begin))

    def ends_at(self) -> int | None:
        """Return the address of `ends`; None if the sizes are equal."""
        return self.ends.buffer_info()[0] if self.size < 0 else None

    def end(self, count: int) -> int:
        """Return the end of the last one."""
        return self.begin + count * self.size if self.size >= 0 else self.ends[count]

    def at(self, data: bytes, place: int) -> bytes:
        """Return the one at a place, from 0."""
        if self.size < 0:
            return data[self.ends[place] : self.ends[place + 1]]
        begin = self.begin + place * self.size
        return data[begin : begin + self.size]

    def all(self, data: bytes, count: int) -> list[bytes]:
        """Return all of them."""
        size = self.size
        if size < 0:
            return [data[at:end] for at, end in itertools.pairwise(self.ends)]
        begin = self.begin
        if not size:
            return [b""] * count
        return [data[at : at + size] for at in range(begin, begin + count * size, size)]


class Block:
    """One or more samples that never change.

    Attributes:
        data: bytes of the block, as in a stream.
        count: number of samples.
        digests: their digests, 16 bytes each, which do not travel.
        is_plain: all samples are plain writes.
        payload_bytes: bytes of all payloads.
        key_texts, payload_texts: places of the keys and payloads in `data`.
        writers: those of its samples, each once.
    """

    __slots__ = (
        "_digest_sum",
        "_sequences_at",
        "_span_ns",
        "_statuses_at",
        "_times_at",
        "_writer_of_at",
        "count",
        "data",
        "digests",
        "is_plain",
        "key_texts",
        "payload_bytes",
        "payload_texts",
        "writers",
    )

    def __init__(
        self,
        data: bytes,
        digests: bytes | None = None,
        span_ns: tuple[int, int] | None = None,
        digest_sum: int = -1,
    ) -> None:
        """Find the columns.

        Args:
            data: the block.
            digests: those of its samples; they are computed unless they are given.
            span_ns: the oldest and the newest source time, if they are known.
            digest_sum: what `digest_sum` returns, if it is known.

        Raises:
            BlockFault, struct.error: not a block.
        """
        self.data = data
        count, known, flags = _HEAD.unpack_from(data)
        if not count or not known:
            raise BlockFault("a block without samples")
        self.count: int = count
        at = _HEAD.size
        if at + known * _WRITER_BYTES > len(data):
            raise BlockFault("samples are cut off")
        writers = [data[begin : begin + 16] for begin in range(at, at + known * _WRITER_BYTES, _WRITER_BYTES)]
        self.writers: list[bytes] = writers
        self._times_at = at = at + known * _WRITER_BYTES
        at += 8 * count
        self._writer_of_at = at if known > 1 else 0
        at += 2 * count if known > 1 else 0
        self._sequences_at = at if flags & _SEQUENCES else 0
        at += 8 * count if flags & _SEQUENCES else 0
        self._statuses_at = at if flags & _STATUSES else 0
        at += count if flags & _STATUSES else 0
        key_lengths, at = _lengths(data, at, count if flags & _KEY_LENGTHS else 1)
        payload_lengths, at = _lengths(data, at, count if flags & _PAYLOAD_LENGTHS else 1)
        self.key_texts = TextColumn(at, count, key_lengths)
        at = self.key_texts.end(count)
        self.payload_texts = TextColumn(at, count, payload_lengths)
        self.payload_bytes = self.payload_texts.end(count) - at
        self.is_plain = not flags & _STATUSES
        if self.payload_texts.end(count) > len(data):
            raise BlockFault("samples are cut off")
        if self.payload_texts.end(count) < len(data):
            raise BlockFault("bytes follow the samples")
        self.digests = self.computed_digests() if digests is None else digests
        self._digest_sum = digest_sum
        self._span_ns = span_ns

    def computed_digests(self) -> bytes:
        """Compute the digests of the samples.

        Raises:
            BlockFault: a sample has bits in its status that mean nothing.
        """
        for status in set(self.statuses()):
            if not status or status & ~_STATUS:
                raise BlockFault(f"a sample has the invalid status {status}")
        made = bytes(DIGEST_BYTES * self.count)  # nobody else has it yet
        library = compiled(is_long=self.payload_bytes >= _LARGE_BYTES)
        if not library.digests_of_block(self.data, ctypes.byref(self.layout()), len(self.writers), made):
            raise BlockFault("a sample has no writer")
        return made

    def layout(self) -> BlockLayout:
        """Return where the columns are, for the compiled library; valid as long as the block."""
        keys, payloads = self.key_texts, self.payload_texts
        return BlockLayout(
            *(self.count, _HEAD.size, self._times_at, self._writer_of_at),
            *(self._sequences_at, self._statuses_at, keys.begin, payloads.begin, keys.size, payloads.size),
            *(keys.ends_at(), payloads.ends_at()),
        )

    # Columns.

    def times_ns(self) -> Sequence[int]:
        """Return the source times."""
        return struct.unpack_from(f"<{self.count}q", self.data, self._times_at)

    def keys(self) -> list[bytes]:
        """Return the keys."""
        return self.key_texts.all(self.data, self.count)

    def payloads(self) -> list[bytes]:
        """Return the payloads."""
        return self.payload_texts.all(self.data, self.count)

    @property
    def has_sequences(self) -> bool:
        """Whether any sample has a sequence number."""
        return bool(self._sequences_at)

    def sequences(self) -> Sequence[int]:
        """Return the sequence numbers."""
        at = self._sequences_at
        return struct.unpack_from(f"<{self.count}Q", self.data, at) if at else (0,) * self.count

    def statuses(self) -> Sequence[int]:
        """Return the status bits."""
        at = self._statuses_at
        return self.data[at : at + self.count] if at else (DATA,) * self.count

    def _writer_of(self) -> Sequence[bytes]:
        writers = self.writers
        if not self._writer_of_at:
            return writers * self.count
        return [
            writers[number] for number in struct.unpack_from(f"<{self.count}H", self.data, self._writer_of_at)
        ]

    def writer_bytes(self) -> bytes:
        """Return the writers, 16 bytes each; only one entry if one writer wrote all."""
        return b"".join(self._writer_of() if self._writer_of_at else self.writers)

    def columns(self) -> SampleColumns:
        """Return all columns."""
        digests, size = self.digests, DIGEST_BYTES
        return SampleColumns(
            self.times_ns(),
            self._writer_of(),
            self.sequences(),
            [digests[at : at + size] for at in range(0, len(digests), size)],
            self.statuses(),
            self.keys(),
            self.payloads(),
        )

    def samples(self) -> list[Sample]:
        """Return all samples as objects."""
        new = tuple.__new__
        return [new(Sample, row) for row in zip(*self.columns(), strict=True)]

    def span_ns(self) -> tuple[int, int]:
        """Return the oldest and the newest source time."""
        if self._span_ns is None:
            times = self.times_ns()
            self._span_ns = min(times), max(times)
        return self._span_ns

    def newest_ns(self) -> int:
        """Return the newest source time."""
        return self.span_ns()[1]

    def digest_sum(self) -> int:
        """Return the sum of the digests as numbers, modulo 2**128 or not reduced."""
        if self._digest_sum < 0:
            self._digest_sum = sum_of_digests(self.digests)
        return self._digest_sum

    # One sample.

    def key(self, place: int) -> bytes:
        """Return the key of a sample; places count from 0."""
        return self.key_texts.at(self.data, place)

    def time_ns(self, place: int) -> int:
        """Return the source time of a sample."""
        time_ns: int = _TIME.unpack_from(self.data, self._times_at + 8 * place)[0]
        return time_ns

    def writer(self, place: int) -> bytes:
        """Return the writer of a sample."""
        if not self._writer_of_at:
            return self.writers[0]
        at = self._writer_of_at + 2 * place
        return self.writers[int.from_bytes(self.data[at : at + 2], "little")]

    def digest(self, place: int) -> bytes:
        """Return the digest of a sample."""
        return self.digests[DIGEST_BYTES * place : DIGEST_BYTES * (place + 1)]

    def payload_view(self) -> memoryview:
        """Return the payload of the only sample, not copied."""
        return memoryview(self.data)[self.payload_texts.begin :]

    def sample(self, place: int) -> Sample:
        """Return a sample as an object."""
        return self.sample_with(place, self.payload_texts.at(self.data, place))

    def sample_with(self, place: int, payload: bytes) -> Sample:
        """Return a sample as an object, with another payload, for code that has no need of a large one."""
        data, sequence, status = self.data, 0, DATA
        if self._sequences_at:
            at = self._sequences_at + 8 * place
            sequence = int.from_bytes(data[at : at + 8], "little")
        if self._statuses_at:
            status = data[self._statuses_at + place]
        time_ns = _TIME.unpack_from(data, self._times_at + 8 * place)[0]
        writer = self.writer(place) if self._writer_of_at else self.writers[0]
        digest = self.digests[DIGEST_BYTES * place : DIGEST_BYTES * (place + 1)]
        key = self.key_texts.at(data, place)
        return tuple.__new__(Sample, (time_ns, writer, sequence, digest, status, key, payload))


def _lengths(data: bytes, at: int, count: int) -> tuple[Sequence[int], int]:
    """Return `count` lengths from an offset on, and the offset behind them."""
    return struct.unpack_from(f"<{count}I", data, at), at + 4 * count


def pack(columns: SampleColumns) -> Block:
    """Make a block of 1 to `MAX_SAMPLES` samples with correct digests."""
    times, writers, sequences, digests, statuses, keys, payloads = columns
    count = len(times)
    known = {writer: number for number, writer in enumerate(dict.fromkeys(writers))}
    key_lengths, payload_lengths = [*map(len, keys)], [*map(len, payloads)]
    parts = [*known, struct.pack(f"<{count}q", *times)]
    flags = 0
    if len(known) > 1:
        parts.append(struct.pack(f"<{count}H", *[known[writer] for writer in writers]))
    if any(sequences):
        flags |= _SEQUENCES
        parts.append(struct.pack(f"<{count}Q", *sequences))
    if bytes(statuses) != bytes((DATA,)) * count:
        flags |= _STATUSES
        parts.append(bytes(statuses))
    for lengths, flag in ((key_lengths, _KEY_LENGTHS), (payload_lengths, _PAYLOAD_LENGTHS)):
        if lengths.count(lengths[0]) == count:
            parts.append(_LENGTH.pack(lengths[0]))
        else:
            flags |= flag
            parts.append(struct.pack(f"<{count}I", *lengths))
    data = b"".join((_HEAD.pack(count, len(known), flags), *parts, *keys, *payloads))
    return Block(data, b"".join(digests))


def pack_samples(samples: Sequence[Sample]) -> Block:
    """Make a block of 1 to `MAX_SAMPLES` samples."""
    return pack(SampleColumns(*zip(*samples, strict=True)))
