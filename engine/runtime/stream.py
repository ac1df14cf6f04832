"""How a set travels from aligner to alignees: batches of bytes, each checked, the whole verified at its end.

A stream is: *begin* (for whom, of which lineage), then *group* descriptions each followed by *samples*, then
*end* with count and digest. Records are packed into batches of up to `BATCH_BYTES`; a batch carries the
stream's number, its own index and a checksum. A receiver that misses a batch, or whose sum differs in the
end, has nothing: a set arrives whole or not at all.
"""

from __future__ import annotations

import dataclasses
import json
import struct
import zlib
from typing import TYPE_CHECKING, Final

from engine.core import plain
from engine.core.events import Target
from engine.core.messages import Epoch
from engine.dataset.dataset import weight_of
from engine.dataset.groups import GroupDescription
from engine.dataset.sample import DATA, DISPOSE, UNREGISTER, make_sample

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from engine.dataset.sample import Sample

BATCH_BYTES: Final = 512 << 10
"""Batches are closed once they have this size; a larger sample makes a larger batch."""
MAX_BATCH_BYTES: Final = 128 << 20

_MAGIC: Final = b"OSPL"
_VERSION: Final = 1
_BATCH: Final = struct.Struct("<4sB16sII")
_RECORD: Final = struct.Struct("<BI")
_SAMPLE: Final = struct.Struct("<qQB16sI")
_BEGIN, _GROUP, _SAMPLE_KIND, _END = range(1, 5)


class StreamFault(ValueError):
    """A batch that is not ours, damaged, or out of order."""


@dataclasses.dataclass(frozen=True, slots=True)
class Begin:
    """What a stream is: whose set, for which requests of whom, and what to expect."""

    name_space: str
    aligner: str
    lineage: Epoch
    targets: tuple[Target, ...]
    count: int
    bytes: int


@dataclasses.dataclass(frozen=True, slots=True)
class GroupBegin:
    """A group and up to which source time its historical data has been deleted."""

    description: GroupDescription
    floor_ns: int


@dataclasses.dataclass(frozen=True, slots=True)
class End:
    """What a stream carried in all: count and digest of the set, as in the summary of a name-space."""

    count: int
    digest: int


GroupSamples = tuple[GroupBegin, list["Sample"]]


def batches(stream: bytes, begin: Begin, groups: Iterable[GroupSamples]) -> Iterator[bytes]:
    """The batches of a stream; `stream` is its number, 16 bytes, new for every stream."""
    packer = _Packer(stream)
    count = digest = 0
    packer.add_value(_BEGIN, begin)
    for group, samples in groups:
        packer.add_value(_GROUP, group)
        weight = weight_of(group.description.group)
        for sample in samples:
            packer.add_sample(sample)
            digest += int.from_bytes(sample.digest) * weight
            if packer.size >= BATCH_BYTES:
                yield packer.close()
        count += len(samples)
    packer.add_value(_END, End(count, digest & ((1 << 128) - 1)))
    yield packer.close()


class _Packer:
    """Records on their way into a batch."""

    def __init__(self, stream: bytes) -> None:
        self._stream = stream
        self._index = 0
        self._parts: list[bytes] = []
        self.size = 0

    def add_value(self, kind: int, value: Begin | GroupBegin | End) -> None:
        self._add(kind, json.dumps(plain.to_plain(value)).encode())

    def add_sample(self, sample: Sample) -> None:
        header = _SAMPLE.pack(
            sample.source_time_ns, sample.sequence, sample.status, sample.writer, len(sample.key)
        )
        self._add(_SAMPLE_KIND, b"".join((header, sample.key, sample.payload)))

    def _add(self, kind: int, record: bytes) -> None:
        self._parts += (_RECORD.pack(kind, len(record)), record)
        self.size += _RECORD.size + len(record)

    def close(self) -> bytes:
        body = b"".join(self._parts)
        header = _BATCH.pack(_MAGIC, _VERSION, self._stream, self._index, zlib.crc32(body))
        self._index += 1
        self._parts.clear()
        self.size = 0
        return header + body


Item = Begin | End | tuple[GroupBegin, "Sample | None"]
"""A group comes once with None, then with each of its samples."""


class Unpacker:
    """Turns the batches of one stream back into what was sent."""

    def __init__(self) -> None:
        self._expected = 0
        self._group: GroupBegin | None = None

    def items(self, batch: bytes) -> Iterator[Item]:
        """What a batch carries.

        Raises:
            StreamFault: the batch is damaged, or one before it is missing.
        """
        _, index = stream_of(batch)
        if index != self._expected:
            raise StreamFault(f"batch {self._expected} is missing; batch {index} came instead")
        self._expected += 1
        body = memoryview(batch)[_BATCH.size :]
        if zlib.crc32(body) != _BATCH.unpack_from(batch)[4]:
            raise StreamFault(f"batch {index} does not have its checksum")
        try:
            yield from self._records(body)
        except (struct.error, plain.PlainFault, ValueError, IndexError) as error:
            raise StreamFault(f"batch {index}: {error}") from error

    def _records(self, body: memoryview) -> Iterator[Item]:
        position = 0
        while position < len(body):
            kind, size = _RECORD.unpack_from(body, position)
            position += _RECORD.size
            if position + size > len(body):
                raise StreamFault("a record is cut off")
            record = body[position : position + size]
            position += size
            if kind == _SAMPLE_KIND:
                if self._group is None:
                    raise StreamFault("a sample comes before its group")
                yield self._group, _sample(record)
            elif kind == _GROUP:
                self._group = plain.from_json(GroupBegin, bytes(record))
                yield self._group, None
            elif kind in (_BEGIN, _END):
                yield plain.from_json(Begin if kind == _BEGIN else End, bytes(record))
            else:
                raise StreamFault(f"record kind {kind} is not known")


def _sample(record: memoryview) -> Sample:
    time_ns, sequence, status, writer, key_bytes = _SAMPLE.unpack_from(record)
    if not status or status & ~(DATA | DISPOSE | UNREGISTER):
        raise StreamFault(f"a sample has the status {status}, which means nothing")
    key_end = _SAMPLE.size + key_bytes
    if key_end > len(record):
        raise StreamFault("a key is cut off")
    key, payload = bytes(record[_SAMPLE.size : key_end]), bytes(record[key_end:])
    return make_sample(time_ns, writer, status, key, payload, sequence)


def stream_of(batch: bytes) -> tuple[bytes, int]:
    """The number of the stream that a batch belongs to, and the batch's index.

    Raises:
        StreamFault: not a batch of ours, or of another version.
    """
    if len(batch) < _BATCH.size or len(batch) > MAX_BATCH_BYTES:
        raise StreamFault(f"{len(batch)} bytes are not a batch")
    magic, version, stream, index, _ = _BATCH.unpack_from(batch)
    if magic != _MAGIC:
        raise StreamFault("not a batch of ours")
    if version != _VERSION:
        raise StreamFault(f"stream version {version} is not known, only {_VERSION}")
    return stream, index
