"""Compact storage of the older samples of instances that have several.

Blocks have the samples, in any order; for each instance a row of numbers says where its samples are, oldest
first. So a newer sample leaves the older ones packed, and one that it pushes out is taken from the front.
A block with less than half of its samples left is *sparse*. What is left of sparse blocks moves to another
one once the samples gone from them are a fourth of those left in all; most blocks are empty before that.
"""

from __future__ import annotations

import array
import bisect
import itertools
import operator
from collections.abc import Mapping, Sequence
from typing import Final

from engine.dataset.blocks import MAX_SAMPLES, PLACE_BITS, Block, pack_samples, pieces
from engine.dataset.sample import DATA, Sample
from engine.dataset.segments import BLOCK_BYTES, MAX_BLOCKS, Segments
from engine.dataset.weaving import Newer, Woven

_ALL: Final = slice(None)
_NONE: Final = array.array("i")
_MOVED: Final = 1_024
"""Samples left in sparse blocks that move to another block together, about."""
_LONG: Final = 64
"""Samples of an instance above which looking for one row costs more than writing all of them again."""


class Histories(Segments):
    """The older samples of instances, which are plain writes.

    Attributes:
        count: number of samples.
        rows: where the samples of each instance are, oldest first.
    """

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[bytes, array.array[int]] = {}
        self._sparse: dict[int, int] = {}
        """Sparse blocks, and how many of their samples are gone."""
        self._gone = 0
        """Sum of these numbers."""

    # Changes.

    def add(self, samples: Sequence[Sample]) -> bool:
        """Add samples, those of each instance together and oldest first; False, and no change, without room.

        They are newer than those of the same instance that are here.
        """
        made = self._enter(samples)
        for key, some in itertools.groupby(zip(samples, made, strict=False), lambda each: each[0].key):
            self._continue(key, array.array("i", [row for _, row in some]))
        return bool(made)

    @property
    def room(self) -> int:
        """Number of blocks that can be added."""
        return MAX_BLOCKS - len(self._segments)

    def places_of(
        self, block: Block, objects: Mapping[bytes, Sequence[Sample]], depth: int
    ) -> dict[bytes, list[int]]:
        """Return the places of each instance in a block of plain writes; none if it cannot be added as it is.

        It can if each write is newer than those of its instance before it, here, in `objects` and in the
        block, and no instance gets more than `depth`, if that is not 0. A block with hardly two samples of an
        instance takes less memory in `engine.dataset.packed`.
        """
        places: dict[bytes, list[int]] = {}
        for place, key in enumerate(block.keys()):
            places.setdefault(key, []).append(place)
        if 2 * len(places) > block.count:
            return {}
        times_ns = block.times_ns()
        for key, some in places.items():
            each, last = [times_ns[place] for place in some], objects.get(key, ())
            if last or key in self.rows:
                each.insert(0, last[-1].source_time_ns if last else self.newest(key)[0])
            if not all(map(operator.lt, each, each[1:])):
                return {}
            if 0 < depth < self.length(key) + len(last) + len(some):
                return {}
        return places

    def extend(self, block: Block, places: Mapping[bytes, Sequence[int]]) -> None:
        """Add a block, given the places of each instance in it; there is room."""
        first = self._next_row()
        self._append(block)
        for key, some in places.items():
            self._continue(key, array.array("i", [first + place for place in some]))

    def _continue(self, key: bytes, newer: array.array[int]) -> None:
        known = self.rows.get(key)
        if known is None:
            self.rows[key] = newer
        else:
            known += newer

    def _enter(self, samples: Sequence[Sample]) -> list[int]:
        """Put samples into blocks; return their rows, none if there is no room."""
        rows: list[int] = []
        cut = list(pieces(samples, BLOCK_BYTES))
        if len(cut) <= self.room:
            for piece in cut:
                first = self._next_row()
                self._append(pack_samples(piece))
                rows += range(first, first + len(piece))
        return rows

    def pop(self, key: bytes) -> Sample:
        """Take the oldest sample of an instance that is here out."""
        rows = self.rows[key]
        row = rows.pop(0)
        if not rows:
            del self.rows[key]
        sample = self._sample(row)
        self._remove(row)
        if 4 * self._gone > self.count:
            self._move()
        return sample

    def take(self, key: bytes, places: slice = _ALL) -> list[Sample]:
        """Take samples of an instance out, or all of it; none if it is not here."""
        rows = self.rows.get(key)
        if rows is None:
            return []
        taken = rows[places]
        del rows[places]
        if not rows:
            del self.rows[key]
        samples = self._sources.samples(taken, [])
        for row in taken:
            self._remove(row)
        while 4 * self._gone > self.count and self._move():
            pass
        return samples

    def _remove(self, row: int) -> None:
        if self._drop(row):
            number = row >> PLACE_BITS
            segment = self._segments[number]
            gone = segment.block.count - segment.left
            self._gone += gone - self._sparse.get(number, 0)
            self._sparse[number] = gone
            if not segment.left:
                self._forget(number)

    def _forget(self, number: int) -> None:
        """Release a sparse block."""
        self._gone -= self._sparse.pop(number)
        self._release(number)

    def _move(self) -> bool:
        """Move what is left of some sparse blocks to others; False without room."""
        samples: list[Sample] = []
        old: list[int] = []
        numbers: list[int] = []
        for number in self._sparse:
            segment = self._segments[number]
            assert segment.alive is not None
            first = number << PLACE_BITS
            samples += self._left(number)
            old += itertools.compress(range(first, first + segment.block.count), segment.alive)
            numbers.append(number)
            if len(samples) >= _MOVED:
                break
        made = self._enter(samples)
        if not made:
            return False
        moved, long = dict(zip(old, made, strict=True)), set()
        for sample, row in zip(samples, old, strict=True):
            rows = self.rows[sample.key]
            if len(rows) > _LONG:
                long.add(sample.key)
            else:
                rows[rows.index(row)] = moved[row]
        for key in long:
            self.rows[key] = array.array("i", [moved.get(row, row) for row in self.rows[key]])
        for number in numbers:
            self._forget(number)
        return True

    # Looks.

    def __contains__(self, key: bytes) -> bool:
        return key in self.rows

    def length(self, key: bytes) -> int:
        """Return the number of samples of an instance; 0 if it is not here."""
        return len(self.rows.get(key, ()))

    def samples(self, key: bytes, places: slice = _ALL) -> list[Sample]:
        """Return samples of an instance, or all of it, oldest first; none if it is not here."""
        rows = self.rows.get(key)
        return self._sources.samples(rows[places], []) if rows else []

    def writers(self, key: bytes) -> dict[bytes, int]:
        """Return the writers of an instance, each with the status of its samples; none if it is not here."""
        found = map(self._at, self.rows.get(key, _NONE))
        return dict.fromkeys([block.writer(place) for block, place in found], DATA)

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

    def parts(self, newer: Mapping[bytes, list[Sample]]) -> list[Woven]:
        """Return all samples, and after those of each instance the newer ones of the same instance."""
        known, sources = self.rows, self._sources
        runs = [older for key, older in known.items() if key not in newer]
        later = [(known[key], history) for key, history in newer.items() if key in known]
        objects = [sample for _, history in later for sample in history]
        places, begin = array.array("i", range(-1, ~len(objects), -1)), 0
        for older, history in later:
            runs += older, places[begin : begin + len(history)]
            begin += len(history)
        rows, among = array.array("i", b"".join(runs)), Newer(objects)
        begins = range(0, len(rows), MAX_SAMPLES)
        return [Woven(sources, rows[begin : begin + MAX_SAMPLES], among) for begin in begins]
