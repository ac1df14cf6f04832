"""Blocks of samples some of which are gone; a number, the *row*, stands for each sample."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Final

from engine.dataset.blocks import PLACE, PLACE_BITS, Block
from engine.dataset.sample import Sample
from engine.dataset.weaving import BlockSources

MAX_BLOCKS: Final = 1 << (31 - PLACE_BITS)
"""Blocks at most, because rows have 31 bits."""

BLOCK_BYTES: Final = 512 << 10
"""Bytes of a block that is made here, about."""


class _Segment:
    """A block, and which of its samples are left; `alive` is None while all are."""

    __slots__ = ("alive", "block", "left")

    def __init__(self, block: Block) -> None:
        self.block = block
        self.alive: bytearray | None = None
        self.left = block.count


class Segments:
    """Samples in blocks.

    Attributes:
        count: number of samples that are left.
    """

    def __init__(self) -> None:
        self.count = 0
        self._segments: dict[int, _Segment] = {}
        self._unused: list[int] = []
        self._known: BlockSources | None = None

    def _next_row(self) -> int:
        """Return the row of the first sample of the next block; at most `MAX_BLOCKS` fit."""
        return (self._unused[-1] if self._unused else len(self._segments)) << PLACE_BITS

    def _append(self, block: Block) -> None:
        self._segments[self._next_row() >> PLACE_BITS] = _Segment(block)
        if self._unused:
            self._unused.pop()
        self._known = None
        self.count += block.count

    def _at(self, row: int) -> tuple[Block, int]:
        return self._segments[row >> PLACE_BITS].block, row & PLACE

    def _sample(self, row: int) -> Sample:
        return self._segments[row >> PLACE_BITS].block.sample(row & PLACE)

    def _drop(self, row: int) -> bool:
        """Remove a sample; return whether less than half of its block was left from now on."""
        segment = self._segments[row >> PLACE_BITS]
        if segment.alive is None:
            segment.alive = bytearray(b"\1") * segment.block.count
        segment.alive[row & PLACE] = 0
        segment.left -= 1
        self.count -= 1
        return 2 * segment.left < segment.block.count

    def _left(self, number: int) -> list[Sample]:
        """Return the samples left in a block, in the order of their rows."""
        segment = self._segments[number]
        return list(itertools.compress(segment.block.samples(), segment.alive or itertools.repeat(1)))

    def _release(self, number: int) -> None:
        """Remove a block, with all that is left of it."""
        self.count -= self._segments.pop(number).left
        self._unused.append(number)
        self._known = None

    def until(self, time_ns: int) -> Iterable[bytes]:
        """Return the keys of samples that are not newer than a source time, each once."""
        found: dict[bytes, None] = {}
        for segment in self._segments.values():
            block = segment.block
            if block.span_ns()[0] <= time_ns:
                rows = zip(block.keys(), block.times_ns(), segment.alive or itertools.repeat(1), strict=False)
                found.update((key, None) for key, at_ns, is_there in rows if is_there and at_ns <= time_ns)
        return found

    @property
    def _sources(self) -> BlockSources:
        """The blocks as they are now."""
        if self._known is None:
            self._known = BlockSources({number: each.block for number, each in self._segments.items()})
        return self._known

    def _parts(self) -> Iterator[tuple[int, Block, bytearray | None]]:
        return ((number, each.block, each.alive) for number, each in self._segments.items())
