"""Sets of sequence numbers as intervals: the samples of one writer that a replica has accounted for."""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Iterable, Iterator
from typing import Annotated, Final

from msgspec import Meta, Struct

HIGHEST: Final = 1 << 128
"""The highest number: positions have 128 bits (`engine.persistence.core.positions`)."""
# Chosen: 32 KiB for a writer at the worst. In order, a writer has one or two.
MAX_INTERVALS: Final = 1024
"""Intervals kept of one writer. Beyond the bound the shortest is forgotten; a gap is never closed.

Forgotten samples are asked for again, and found to be no newer than the last value. The samples in a closed
gap would be lost.
"""


class Sequences(Struct, frozen=True, array_like=True, gc=False):
    """A set of positive sequence numbers: disjoint, not adjacent intervals with both ends, in order.

    Raises:
        ValueError: the intervals are out of order, empty or adjacent, or a number is too high.
    """

    intervals: Annotated[tuple[tuple[int, int], ...], Meta(max_length=MAX_INTERVALS)] = ()

    def __post_init__(self) -> None:
        before = -1
        for first, last in self.intervals:
            if not before + 1 < first <= last <= HIGHEST:
                raise ValueError(f"{first} to {last} is not an interval after {before}")
            before = last

    @classmethod
    def joined(cls, intervals: Iterable[tuple[int, int]]) -> Sequences:
        """Return the set of the numbers in any intervals."""
        joined: list[tuple[int, int]] = []
        for first, last in sorted(intervals):
            if joined and first <= joined[-1][1] + 1:
                joined[-1] = (joined[-1][0], max(joined[-1][1], last))
            else:
                joined.append((first, last))
        excess = len(joined) - MAX_INTERVALS
        if excess > 0:
            shortest = heapq.nsmallest(
                excess, range(len(joined)), key=lambda at: joined[at][1] - joined[at][0]
            )
            forgotten = set(shortest)
            joined = [each for at, each in enumerate(joined) if at not in forgotten]
        return cls(tuple(joined))

    @property
    def bounded(self) -> Sequences:
        """The part of it that may be sent: a difference of two sets may have too many intervals."""
        return self if len(self.intervals) <= MAX_INTERVALS else Sequences.joined(self.intervals)

    @property
    def lowest(self) -> int:
        """The lowest number, 0 for the empty set."""
        return self.intervals[0][0] if self.intervals else 0

    @property
    def highest(self) -> int:
        """The highest number, 0 for the empty set."""
        return self.intervals[-1][1] if self.intervals else 0

    def __contains__(self, number: int) -> bool:
        at = bisect.bisect_right(self.intervals, (number, number)) - 1
        return any(first <= number <= last for first, last in self.intervals[max(0, at) : at + 2])

    def __bool__(self) -> bool:
        return bool(self.intervals)

    @property
    def count(self) -> int:
        """The number of numbers, which may be beyond the range of `len`."""
        return sum(last - first + 1 for first, last in self.intervals)

    def __iter__(self) -> Iterator[int]:
        for first, last in self.intervals:
            yield from range(first, last + 1)

    def __or__(self, other: Sequences) -> Sequences:
        if not other.intervals or other is self:
            return self
        if self.intervals and len(other.intervals) == 1:
            (first, last), (own_first, own_last) = other.intervals[0], self.intervals[-1]
            if first == own_last + 1:  # what nearly always happens
                return Sequences((*self.intervals[:-1], (own_first, last)))
        return Sequences.joined((*self.intervals, *other.intervals)) if self.intervals else other

    def __sub__(self, other: Sequences) -> Sequences:
        left: list[tuple[int, int]] = []
        at = 0
        for start, last in self.intervals:
            first = start
            while at < len(other.intervals) and other.intervals[at][1] < first:
                at += 1
            index = at
            while index < len(other.intervals) and other.intervals[index][0] <= last:
                taken_first, taken_last = other.intervals[index]
                if first < taken_first:
                    left.append((first, taken_first - 1))
                first = taken_last + 1
                index += 1
            if first <= last:
                left.append((first, last))
        return Sequences(tuple(left))

    def __and__(self, other: Sequences) -> Sequences:
        return self - (self - other)

    def below(self, number: int) -> Sequences:
        """The part below a number."""
        return self & Sequences(((1, number - 1),)) if number > 1 else Sequences()
