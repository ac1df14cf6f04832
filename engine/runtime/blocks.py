"""Samples by columns: how many of them travel together, and how they become samples again.

A block is: counts and flags, the writers, then one column after the other. A column whose entries are all
alike is not written. Taking a block apart costs one look at each column, not one at each field.
"""

from __future__ import annotations

import itertools
import struct
from typing import TYPE_CHECKING, Final

from engine.dataset.sample import DATA, DISPOSE, UNREGISTER, make_samples

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from engine.dataset.sample import Sample

MAX_SAMPLES: Final = 4096
"""Samples in a block at most."""

_HEAD: Final = struct.Struct("<HHB")
"""Samples, writers, flags."""
_LENGTH: Final = struct.Struct("<I")
_WRITER_BYTES: Final = 16
_SEQUENCES, _STATUSES, _KEY_LENGTHS, _PAYLOAD_LENGTHS = 1, 2, 4, 8
"""Flags: this column is written. Without them: 0, DATA, and one length for all."""
_STATUS: Final = DATA | DISPOSE | UNREGISTER


class StreamFault(ValueError):
    """A batch that is not ours, damaged, or out of order."""


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


def encode(samples: Sequence[Sample]) -> bytes:
    """A block of 1 to `MAX_SAMPLES` samples."""
    times, writers, sequences, _, statuses, keys, payloads = zip(*samples, strict=True)
    count = len(samples)
    known = {writer: number for number, writer in enumerate(dict.fromkeys(writers))}
    key_lengths, payload_lengths = [*map(len, keys)], [*map(len, payloads)]
    parts = [*known, struct.pack(f"<{count}q", *times)]
    flags = 0
    if len(known) > 1:
        parts.append(struct.pack(f"<{count}H", *[known[writer] for writer in writers]))
    if any(sequences):
        flags |= _SEQUENCES
        parts.append(struct.pack(f"<{count}Q", *sequences))
    if statuses != (DATA,) * count:
        flags |= _STATUSES
        parts.append(bytes(statuses))
    for lengths, flag in ((key_lengths, _KEY_LENGTHS), (payload_lengths, _PAYLOAD_LENGTHS)):
        if lengths.count(lengths[0]) == count:
            parts.append(_LENGTH.pack(lengths[0]))
        else:
            flags |= flag
            parts.append(struct.pack(f"<{count}I", *lengths))
    return b"".join((_HEAD.pack(count, len(known), flags), *parts, *keys, *payloads))


class _Columns:
    """A block that is being read."""

    def __init__(self, block: bytes) -> None:
        self.block = block
        self.position = 0

    def take(self, layout: str) -> tuple[int, ...]:
        values = struct.unpack_from("<" + layout, self.block, self.position)
        self.position += struct.calcsize("<" + layout)
        return values

    def texts(self, count: int, lengths: tuple[int, ...]) -> list[bytes]:
        """So many octet strings; a single length is that of all."""
        block, begin = self.block, self.position
        total = lengths[0] * count if len(lengths) == 1 else sum(lengths)
        if begin + total > len(block):
            raise StreamFault("samples are cut off")
        self.position = begin + total
        if len(lengths) > 1:
            ends = [*itertools.accumulate(lengths, initial=begin)]
            return [block[at:end] for at, end in itertools.pairwise(ends)]
        size = lengths[0]
        return [block[at : at + size] for at in range(begin, begin + total, size)] if size else [b""] * count


def decode(block: bytes) -> list[Sample]:
    """The samples of a block, each with its digest computed from what is here.

    Raises:
        StreamFault, struct.error: not a block.
    """
    columns = _Columns(block)
    count, known, flags = columns.take("HHB")
    if not count or not known:
        raise StreamFault("a block without samples")
    writers = columns.texts(known, (_WRITER_BYTES,))
    times = columns.take(f"{count}q")
    of: list[bytes] = writers * count
    if known > 1:
        of = [writers[number] for number in columns.take(f"{count}H")]
    sequences = columns.take(f"{count}Q") if flags & _SEQUENCES else (0,) * count
    statuses = columns.take(f"{count}B") if flags & _STATUSES else (DATA,) * count
    for status in set(statuses):
        if not status or status & ~_STATUS:
            raise StreamFault(f"a sample has the status {status}, which means nothing")
    key_lengths = columns.take(f"{count}I" if flags & _KEY_LENGTHS else "I")
    payload_lengths = columns.take(f"{count}I" if flags & _PAYLOAD_LENGTHS else "I")
    keys = columns.texts(count, key_lengths)
    payloads = columns.texts(count, payload_lengths)
    if columns.position != len(block):
        raise StreamFault("there is more than the samples")
    return make_samples(times, of, sequences, statuses, keys, payloads)
