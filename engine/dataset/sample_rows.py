"""Samples of one moment, to walk through later or on another thread.

They share packed blocks with the set, because blocks never change. Objects for packed samples exist only
while code looks at them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from engine.dataset.blocks import Block, SampleColumns, pack, pack_samples, pieces
from engine.dataset.sample import DIGEST_BYTES, LARGE_BYTES, Sample, sum_of_digests
from engine.dataset.weaving import Woven


class Partial:
    """A block with removed samples; `alive` has 1 for each that is left, else 0."""

    __slots__ = ("alive", "block", "count")

    def __init__(self, block: Block, alive: bytes) -> None:
        self.block = block
        self.alive = alive
        self.count = sum(alive)

    @property
    def payload_bytes(self) -> int:
        """Bytes of all payloads."""
        return sum(map(len, self.payloads()))

    def payloads(self) -> list[bytes]:
        """Return the payloads."""
        return list(itertools.compress(self.block.payloads(), self.alive))

    @property
    def digests(self) -> bytes:
        """Digests, 16 bytes each."""
        return b"".join(self.columns().digests)

    def columns(self) -> SampleColumns:
        """Return the samples left, column by column."""
        columns: Any = self.block.columns()
        return SampleColumns(*(list(itertools.compress(column, self.alive)) for column in columns))

    def times_ns(self) -> Sequence[int]:
        """Return the source times."""
        return list(itertools.compress(self.block.times_ns(), self.alive))

    def samples(self) -> list[Sample]:
        """Return the samples left, as objects."""
        return list(itertools.compress(self.block.samples(), self.alive))

    def digest_sum(self) -> int:
        """Return the sum of the digests as numbers, not reduced."""
        return sum_of_digests(self.digests)

    def newest_ns(self) -> int:
        """Return the newest source time."""
        return max(self.times_ns())


class Loose:
    """Samples that are objects."""

    __slots__ = ("_samples", "count")

    def __init__(self, samples: list[Sample]) -> None:
        self._samples = samples
        self.count = len(samples)

    @property
    def payload_bytes(self) -> int:
        """Bytes of all payloads."""
        return sum([len(sample.payload) for sample in self._samples])

    @property
    def digests(self) -> bytes:
        """Digests, 16 bytes each."""
        return b"".join([sample.digest for sample in self._samples])

    def samples(self) -> list[Sample]:
        """Return the objects."""
        return self._samples

    def times_ns(self) -> Sequence[int]:
        """Return the source times."""
        return [sample.source_time_ns for sample in self._samples]

    def digest_sum(self) -> int:
        """Return the sum of the digests as numbers, not reduced."""
        return sum_of_digests(self.digests)

    def newest_ns(self) -> int:
        """Return the newest source time."""
        return max(self.times_ns())


Part = Block | Partial | Loose | Woven


def has_large(part: Part) -> bool:
    """Return whether samples of a part are large (`LARGE_BYTES`); in a block, whether they are on average."""
    if isinstance(part, Loose):
        return max(len(sample.payload) for sample in part.samples()) >= LARGE_BYTES
    return part.payload_bytes >= LARGE_BYTES * part.count


class SampleRows:
    """Samples in an order, in parts, none of which is empty."""

    __slots__ = ("_count", "parts")

    def __init__(self, parts: Iterable[Part] = ()) -> None:
        self.parts: tuple[Part, ...] = tuple(part for part in parts if part.count)
        self._count = sum(part.count for part in self.parts)

    @staticmethod
    def of(samples: SampleRows | Iterable[Sample]) -> SampleRows:
        """Return the samples as rows."""
        return samples if isinstance(samples, SampleRows) else SampleRows((Loose(list(samples)),))

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Sample]:
        for part in self.parts:
            yield from part.samples()

    def __add__(self, other: SampleRows) -> SampleRows:
        return SampleRows((*self.parts, *other.parts))

    @property
    def payload_bytes(self) -> int:
        """Bytes of all payloads."""
        return sum(part.payload_bytes for part in self.parts)

    def digests(self) -> bytes:
        """Return the digests in order, 16 bytes each."""
        return b"".join([part.digests for part in self.parts])

    def each_digest(self) -> Iterator[bytes]:
        """Yield the digests in order."""
        for part in self.parts:
            yield from _each(part.digests)

    def digest_sum(self) -> int:
        """Return the sum of the digests as numbers, not reduced."""
        return sum(part.digest_sum() for part in self.parts)

    def newest_ns(self) -> int:
        """Return the newest source time; 0 without samples."""
        return max((part.newest_ns() for part in self.parts), default=0)

    def blocks(self, limit_bytes: int) -> Iterator[Block]:
        """Yield all samples, those of each instance in order, in blocks of at most about `limit_bytes`.

        A sample that is larger has a block of its own.
        """
        for part in self.parts:
            if isinstance(part, Block) and (part.payload_bytes <= limit_bytes or part.count == 1):
                yield part
            elif isinstance(part, Partial) and part.block.payload_bytes <= limit_bytes:
                yield pack(part.columns())
            elif isinstance(part, Woven):
                yield from part.blocks(limit_bytes)
            else:
                for piece in pieces(part.samples(), limit_bytes):
                    yield pack_samples(piece)

    def places(self, size: int) -> Iterator[Sequence[tuple[int, bytes]]]:
        """Yield source times and digests, of at most `size` samples at once."""
        for part in self.parts:
            places = list(zip(part.times_ns(), _each(part.digests), strict=True))
            for begin in range(0, part.count, size):
                yield places[begin : begin + size]

    def split(self, count: int) -> Iterator[SampleRows]:
        """Yield the samples in order, about `count` at once."""
        held: list[Part] = []
        for part in self.parts:
            if held and sum(each.count for each in held) + part.count > count:
                yield SampleRows(held)
                held = []
            if isinstance(part, Loose) and part.count > count:
                samples = part.samples()
                for begin in range(0, part.count, count):
                    yield SampleRows((Loose(samples[begin : begin + count]),))
            else:
                held.append(part)
        if held:
            yield SampleRows(held)

    def at(self, places: Sequence[int]) -> list[Sample]:
        """Return the samples at these places, which are in order."""
        found: list[Sample] = []
        begin, here = 0, iter(places)
        place = next(here, None)
        for part in self.parts:
            if place is None:
                break
            end = begin + part.count
            if place >= end:
                begin = end
                continue
            sample = part.sample if isinstance(part, Block | Woven) else part.samples().__getitem__
            while place is not None and place < end:
                found.append(sample(place - begin))
                place = next(here, None)
            begin = end
        return found

    def after(self, time_ns: int) -> Iterator[Sample]:
        """Yield the samples newer than a source time."""
        for part in self.parts:
            if part.newest_ns() > time_ns:
                yield from (sample for sample in part.samples() if sample.source_time_ns > time_ns)

    def without(self, digests: set[bytes]) -> SampleRows:
        """Return all samples but those with these digests."""
        if not digests:
            return self
        kept: list[Part] = []
        for part in self.parts:
            each = _each(part.digests)
            if digests.isdisjoint(each):
                kept.append(part)
            elif isinstance(part, Block):
                kept.append(Partial(part, bytes([digest not in digests for digest in each])))
            elif isinstance(part, Woven):
                kept.append(part.those([digest not in digests for digest in each]))
            else:
                kept.append(Loose([sample for sample in part.samples() if sample.digest not in digests]))
        return SampleRows(kept)


def changes(before: SampleRows, after: SampleRows) -> tuple[SampleRows, SampleRows]:
    """Return the samples that came and went between two states of a set; shared blocks cost nothing."""
    old, new = ({_mark(part): part for part in rows.parts} for rows in (before, after))
    left = SampleRows(part for mark, part in old.items() if mark not in new)
    right = SampleRows(part for mark, part in new.items() if mark not in old)
    return (
        right.without(set(left.each_digest())),
        left.without(set(right.each_digest())),
    )


def _mark(part: Part) -> tuple[int, bytes]:
    """Return a mark that equal parts share while both exist."""
    return (id(part.block), part.alive) if isinstance(part, Partial) else (id(part), b"")


def _each(joined: bytes) -> list[bytes]:
    return [joined[at : at + DIGEST_BYTES] for at in range(0, len(joined), DIGEST_BYTES)]


Samples: TypeAlias = SampleRows | Sequence[Sample]
