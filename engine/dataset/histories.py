"""Compact storage of the older samples of instances that have several.

Blocks have the samples, in any order; for each instance a row of numbers says where its samples are, oldest
first. So a newer sample leaves the older ones packed, and one that it pushes out is taken from the front.
Where less than half of a block is left, its samples move to another block.
"""

from __future__ import annotations

import array
import bisect
import itertools
import operator
from collections.abc import Mapping, Sequence
from typing import Final

from engine.dataset.blocks import MAX_SAMPLES, PLACE_BITS, pack_samples, pieces
from engine.dataset.sample import Sample
from engine.dataset.sample_rows import Woven
from engine.dataset.segments import BLOCK_BYTES, MAX_BLOCKS, Segments

_KEY: Final = operator.attrgetter("key")
_ALL: Final = slice(None)
_NONE: Final = array.array("i")
_MOVED: Final = 256
"""Samples left in sparse blocks that move to another block together."""
_MAX_SPARSE: Final = 8
"""Sparse blocks at most, with however few samples."""


class Histories(Segments):
    """The older samples of instances, which are plain writes.

    Attributes:
        count: number of samples.
        rows: where the samples of each instance are, oldest first.
    """

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[bytes, array.array[int]] = {}
        self._sparse: list[int] = []

    # Changes.

    def add(self, samples: Sequence[Sample]) -> bool:
        """Add samples, those of each instance together and oldest first; False, and no change, without room.

        They are newer than those of the same instance that are here.
        """
        made = self._enter(samples)
        for key, some in itertools.groupby(zip(samples, made, strict=False), lambda each: each[0].key):
            rows = array.array("i", [row for _, row in some])
            known = self.rows.get(key)
            self.rows[key] = rows if known is None else known + rows
        return bool(made)

    def _enter(self, samples: Sequence[Sample]) -> list[int]:
        """Put samples into blocks; return their rows, none if there is no room."""
        rows: list[int] = []
        cut = list(pieces(samples, BLOCK_BYTES))
        if len(self._segments) + len(cut) <= MAX_BLOCKS:
            for piece in cut:
                first = self._next_row()
                self._append(pack_samples(piece))
                rows += range(first, first + len(piece))
        return rows

    def take(self, key: bytes, places: slice = _ALL) -> list[Sample]:
        """Take samples of an instance out, or all of it; none if it is not here."""
        rows = self.rows.get(key)
        if rows is None:
            return []
        taken = rows[places]
        del rows[places]
        if not rows:
            del self.rows[key]
        samples = [*map(self._sample, taken)]
        for row in taken:
            number = row >> PLACE_BITS
            if self._drop(row) and number not in self._sparse:
                self._sparse.append(number)
        if self._sparse:
            self._move()
        return samples

    def _move(self) -> None:
        """Move what is left of sparse blocks to others, once it is enough for one."""
        for number in [number for number in self._sparse if not self._segments[number].left]:
            self._sparse.remove(number)
            self._release(number)
        left = sum(self._segments[number].left for number in self._sparse)
        if left < _MOVED and len(self._sparse) < _MAX_SPARSE:
            return
        samples: list[Sample] = []
        old: list[int] = []
        for number in self._sparse:
            segment = self._segments[number]
            assert segment.alive is not None
            first = number << PLACE_BITS
            samples += self._left(number)
            old += itertools.compress(range(first, first + segment.block.count), segment.alive)
        moved = dict(zip(old, self._enter(samples), strict=False))
        if not moved:
            return
        for key in dict.fromkeys(map(_KEY, samples)):
            self.rows[key] = array.array("i", [moved.get(row, row) for row in self.rows[key]])
        for number in self._sparse:
            self._release(number)
        self._sparse.clear()

    # Looks.

    def __contains__(self, key: bytes) -> bool:
        return key in self.rows

    def length(self, key: bytes) -> int:
        """Return the number of samples of an instance; 0 if it is not here."""
        return len(self.rows.get(key, ()))

    def samples(self, key: bytes, places: slice = _ALL) -> list[Sample]:
        """Return samples of an instance, or all of it, oldest first; none if it is not here."""
        return [*map(self._sample, self.rows.get(key, _NONE)[places])]

    def newest(self, key: bytes) -> tuple[int, bytes]:
        """Return source time and writer of the newest sample of an instance that is here."""
        block, place = self._at(self.rows[key][-1])
        return block.time_ns(place), block.writer(place)

    def place(self, sample: Sample) -> int:
        """Return how many samples of its instance are older than this one; its own place if it is here."""
        return bisect.bisect_left(self.rows.get(sample.key, _NONE), sample, key=self._sample)

    def places(self, key: bytes, time_ns: int) -> slice:
        """Return the places of the samples of an instance with this source time."""
        rows = self.rows.get(key, _NONE)
        return slice(
            bisect.bisect_left(rows, time_ns, key=self._time_ns),
            bisect.bisect_right(rows, time_ns, key=self._time_ns),
        )

    def _time_ns(self, row: int) -> int:
        block, place = self._at(row)
        return block.time_ns(place)

    def parts(self, newer: Mapping[bytes, Sequence[Sample]]) -> list[Woven]:
        """Return all samples, and after those of each instance the newer ones of the same instance."""
        blocks = {number: block for number, block, _ in self._parts()}
        rows = array.array("i")
        objects: list[Sample] = []
        for key, older in self.rows.items():
            rows += older
            if later := newer.get(key):
                begin = len(objects)
                objects += later
                rows.extend(range(~begin, ~len(objects), -1))
        begins = range(0, len(rows), MAX_SAMPLES)
        return [Woven(blocks, rows[begin : begin + MAX_SAMPLES], objects) for begin in begins]
