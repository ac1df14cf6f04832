"""The stream that carries a set from aligner to alignees in batches, verified as a whole at its end.

A stream is *begin* (with receivers and lineage), then *group* descriptions, each followed by blocks of
samples, then *end* with count and digest. Records are packed into batches of about `BATCH_BYTES`; a large
sample goes in *pieces* of one batch each, if all receivers can join them. A batch has the stream's number,
its own index and a checksum; it is compressed if the wire is slow. A receiver that misses a batch, or gets
another sum, drops everything: a set arrives whole or not at all.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec

from engine.core.events import AligneeRequest
from engine.core.messages import Epoch
from engine.core.untrusted import json_reader
from engine.dataset.blocks import Block
from engine.dataset.dataset import weight_of
from engine.dataset.groups import GroupDescription
from engine.dataset.sample_rows import SampleRows
from engine.runtime.steps import StreamFault as StreamFault

# In the range of 256 KiB to 1 MiB that is fastest (`engine.dds.bulk`).
BATCH_BYTES: Final = 512 << 10
"""Size at which a batch is closed; for receivers that cannot join pieces, a large sample makes it larger."""
# As `engine.dds.bulk.MAX_BATCH_BYTES`.
MAX_BATCH_BYTES: Final = 128 << 20
"""Batches beyond it are refused before anything is decompressed: their sizes come from the network."""
# Lengths are 32 bits; the largest sample is below (`core.settings.LARGEST_SAMPLE_BYTES`).
MAX_RECORD_BYTES: Final = (1 << 32) - 1
"""Most bytes of one record, in however many pieces."""
SLOW_BYTES_PER_S: Final = 20e6
"""Rate below which the wire is slower than zlib, so that compressing pays."""
# A fifth less on a slow wire is felt; less would not pay for expanding it at the receiver. Chosen.
WORTH_IT: Final = 0.8
"""Largest ratio at which a batch is sent compressed."""

_MAGIC: Final = b"OSPL"
_VERSION: Final = 2
_BATCH: Final = struct.Struct("<4sBB16sII")
"""Magic, version, whether compressed, stream, index, checksum of the rest."""
_RECORD: Final = struct.Struct("<BI")
_BEGIN, _GROUP, _SAMPLES, _END, _REMOVED, _PIECE = range(1, 7)
"""Kinds of records. Pieces are the begin of the record after them, which has the kind and the rest."""


class StreamBegin(msgspec.Struct, frozen=True):
    """The first record: the sender's set, the requests that it answers, and the expected amount.

    With `is_difference` the stream has only the samples that its one target lacks, and the identities of
    those that it must remove; count and digest at the end are still those of the whole set.
    """

    name_space: str
    aligner: str
    lineage: Epoch
    targets: tuple[AligneeRequest, ...]
    count: int
    bytes: int
    is_difference: bool = False


class GroupBegin(msgspec.Struct, frozen=True):
    """A group, and the source time up to which its historical data has been deleted."""

    description: GroupDescription
    floor_ns: int


class StreamEnd(msgspec.Struct, frozen=True):
    """The last record: count and digest of the set, as in the summary of a name-space."""

    count: int
    digest: int


_read_begin: Final = json_reader(StreamBegin)
_read_group: Final = json_reader(GroupBegin)
_read_end: Final = json_reader(StreamEnd)


class Removed(msgspec.Struct, frozen=True):
    """For a difference: identities that the alignee must remove, 8 bytes each, and the sums of the set."""

    identities: bytes
    end: StreamEnd


GroupSamples = tuple[GroupBegin, "SampleRows"]


def batches(
    stream: bytes,
    begin: StreamBegin,
    groups: Iterable[GroupSamples],
    clock: Callable[[], float] | None = None,
    removed: Removed | None = None,
) -> Iterator[bytes]:
    """Yield the batches of a stream.

    Args:
        stream: its number, 16 bytes, unique.
        begin: its first record.
        groups: samples by group.
        clock: measures the wire by the time until the caller wants the next batch, to compress batches
            while it is slow; None never compresses.
        removed: for a difference, what the alignee must remove.
    """
    packer = _Packer(stream)
    count = digest = 0
    packer.add_value(_BEGIN, begin)
    if removed is not None:
        for start in range(0, len(removed.identities), BATCH_BYTES & ~7):
            packer.add(_REMOVED, removed.identities[start : start + (BATCH_BYTES & ~7)])
            yield from packer.close(clock)
    for group, samples in groups:
        packer.add_value(_GROUP, group)
        weight = weight_of(group.description.group)
        for block in samples.blocks(BATCH_BYTES):
            rest = memoryview(block.data)
            while len(rest) > 2 * BATCH_BYTES:
                packer.add(_PIECE, rest[:BATCH_BYTES])
                rest = rest[BATCH_BYTES:]
                yield from packer.close(clock)
            packer.add(_SAMPLES, rest)
            digest += block.digest_sum() * weight
            if packer.size >= BATCH_BYTES:
                yield from packer.close(clock)
        count += len(samples)
    packer.add_value(_END, removed.end if removed else StreamEnd(count, digest & ((1 << 128) - 1)))
    yield from packer.close(clock)


class _Packer:
    """The batch under construction."""

    def __init__(self, stream: bytes) -> None:
        self._stream = stream
        self._index = 0
        self._parts: list[bytes | memoryview] = []
        self._is_slow = False
        self.size = 0

    def add_value(self, kind: int, value: StreamBegin | GroupBegin | StreamEnd) -> None:
        # With spaces, as it always was: sizes of streams are in the digests of simulated runs.
        self.add(kind, msgspec.json.format(msgspec.json.encode(value), indent=0))

    def add(self, kind: int, record: bytes | memoryview) -> None:
        self._parts += (_RECORD.pack(kind, len(record)), record)
        self.size += _RECORD.size + len(record)

    def close(self, clock: Callable[[], float] | None) -> Iterator[bytes]:
        body, compressed = b"".join(self._parts), False
        if self._is_slow:
            smaller = zlib.compress(body, 1)
            if len(smaller) < WORTH_IT * len(body):
                body, compressed = smaller, True
        header = _BATCH.pack(_MAGIC, _VERSION, compressed, self._stream, self._index, zlib.crc32(body))
        self._index += 1
        self._parts.clear()
        self.size = 0
        began = clock() if clock else 0.0
        yield header + body
        if clock:
            self._is_slow = len(header) + len(body) < (clock() - began) * SLOW_BYTES_PER_S


Item = StreamBegin | StreamEnd | bytes | tuple[GroupBegin, Block | None]
"""A group comes with None, then with its samples, block by block; bytes are identities."""


class Unpacker:
    """Reader of the batches of one stream."""

    def __init__(self) -> None:
        self._expected = 0
        self._group: GroupBegin | None = None
        self._pieces: list[bytes] = []
        self._pieces_bytes = 0

    def items(self, batch: bytes) -> Iterator[Item]:
        """Yield the records of a batch.

        Raises:
            StreamFault: the batch is damaged, or one before it is missing.
        """
        _, index = stream_of(batch)
        if index != self._expected:
            raise StreamFault(f"batch {self._expected} is missing; batch {index} came instead")
        self._expected += 1
        body = memoryview(batch)[_BATCH.size :]
        _, _, compressed, _, _, checksum = _BATCH.unpack_from(batch)
        if zlib.crc32(body) != checksum:
            raise StreamFault(f"batch {index} does not have its checksum")
        try:
            yield from self._records(_expanded(body) if compressed else body)
        except (struct.error, zlib.error, ValueError, IndexError) as error:
            raise StreamFault(f"batch {index}: {error}") from error

    def _records(self, body: memoryview) -> Iterator[Item]:
        position = 0
        while position < len(body):
            kind, size = _RECORD.unpack_from(body, position)
            position += _RECORD.size
            if position + size > len(body):
                raise StreamFault("a record is cut off")
            record = bytes(body[position : position + size])
            position += size
            if kind == _PIECE:
                self._add_piece(record)
                continue
            if self._pieces:
                record = b"".join((*self._pieces, record))
                self._pieces.clear()
                self._pieces_bytes = 0
            if kind == _SAMPLES:
                if self._group is None:
                    raise StreamFault("a sample comes before its group")
                yield self._group, Block(record)
            elif kind == _GROUP:
                self._group = _read_group(record)
                yield self._group, None
            elif kind == _REMOVED:
                yield record
            elif kind in (_BEGIN, _END):
                yield (_read_begin if kind == _BEGIN else _read_end)(record)
            else:
                raise StreamFault(f"record kind {kind} is not known")

    def _add_piece(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._pieces_bytes += len(piece)
        if self._pieces_bytes > MAX_RECORD_BYTES:
            raise StreamFault(f"a record has more than {MAX_RECORD_BYTES} bytes")


def _expanded(body: memoryview) -> memoryview:
    expander = zlib.decompressobj()
    content = expander.decompress(body, MAX_BATCH_BYTES)
    if not expander.eof or expander.unused_data:
        raise StreamFault("the compressed content has the wrong length")
    return memoryview(content)


def stream_of(batch: bytes) -> tuple[bytes, int]:
    """Return the number of a batch's stream, and the batch's index.

    Raises:
        StreamFault: not a batch of ospltool, or one of another version.
    """
    if len(batch) < _BATCH.size or len(batch) > MAX_BATCH_BYTES:
        raise StreamFault(f"{len(batch)} bytes are not a batch")
    magic, version, compressed, stream, index, _ = _BATCH.unpack_from(batch)
    if magic != _MAGIC:
        raise StreamFault("not a batch of ospltool")
    if version != _VERSION or compressed > 1:
        raise StreamFault(f"stream version {version}.{compressed} is not known, only {_VERSION}")
    return stream, index
