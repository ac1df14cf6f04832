"""What is captured while something is on its way to readers, and must be given to them once more.

- The tail of a set: a living writer begins to send to a new reader at about the time at which we see that
  reader; nobody else knows exactly when.
- The tail of a return: this node may hear a writer that was lost, and is back, before the readers of its
  host do, and before discovery has told it that the writer is back.
- What this node missed and has from another one, while it does not know yet that its writer is lost: readers
  of its host may have missed it, too.
- What a delivery passes: for readers ordered by reception, what is delivered may come after something newer
  that the writer sent meanwhile, and would be the last that they see.

A sample that arrives twice is counted and shown, a sample that is lost would be neither.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Final

from engine.dataset.groups import is_given
from engine.dataset.sample import UNREGISTER

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from engine.core.messages import ReaderKey
    from engine.core.namespaces import Group
    from engine.dataset.groups import GroupDescription
    from engine.dataset.rows import Rows
    from engine.dataset.sample import Sample
    from engine.runtime.sets import Difference

TAIL_S: Final = 0.1
"""How long after a set was taken what is captured is given to its reader, too."""
RETURN_S: Final = 3.0
"""How long after its return what a writer sends is given again to readers that were there.

A writer finds the readers of a host one by one; a second, short cut, in which no lease ends, delays that.
"""
LATE_S: Final = 0.1
"""How long after a delivery something may be taken in that its reader had before the end of it."""
PASSED_S: Final = 0.2
"""How long after that it is seen whether the writer itself sends something newer."""
MISSED_S: Final = 30.0
"""How long after it was had from another node something missed may turn out to be of a lost writer."""
MAX_LOST: Final = 10_000
"""Writers that were lost and are remembered."""
MAX_TAIL: Final = 10_000
"""Samples of one such moment; more are counted as not given."""


@dataclasses.dataclass(slots=True)
class Tail:
    """What was captured since a reader's set was taken, or since a writer is back."""

    until_s: float
    samples: Difference = dataclasses.field(default_factory=dict)
    count: int = 0

    def add(self, group: Group, sample: Sample) -> None:
        """One more; beyond the bound it is only counted."""
        self.count += 1
        if self.count <= MAX_TAIL:
            self.samples.setdefault(group, []).append(sample)


@dataclasses.dataclass(slots=True)
class _Passed:
    """The instances that a delivery has (None: all of a group), and what was captured of them meanwhile."""

    keys: dict[Group, frozenset[bytes] | None]
    newer: dict[Group, dict[bytes, Sample]] = dataclasses.field(default_factory=dict)
    closes_s: float = math.inf
    until_s: float = math.inf

    @property
    def next_s(self) -> float:
        """When something is due."""
        return min(self.closes_s, self.until_s)

    def close(self, now: float) -> None:
        """From now on the reader has what is captured behind what was delivered."""
        self.closes_s = math.inf
        self.until_s = now + PASSED_S if any(self.newer.values()) else 0.0

    def add(self, group: Group, sample: Sample) -> None:
        """Note the newest until this is closed; of what comes afterwards nothing older is to be feared."""
        keys = self.keys.get(group, _NONE)
        if keys is None or sample.key in keys:
            newer = self.newer.setdefault(group, {})
            if self.until_s < math.inf:
                newer.pop(sample.key, None)
            elif sample.status != UNREGISTER and (len(newer) < MAX_TAIL or sample.key in newer):
                newer[sample.key] = sample


_NONE: Final[frozenset[bytes]] = frozenset()


class Tails:
    """All of it, of one node; it is true while something must be told of what is captured."""

    def __init__(self) -> None:
        self._sets: dict[ReaderKey, Tail] = {}
        self._lost: dict[bytes, Tail] = {}
        self._missed: dict[bytes, Tail] = {}
        self._returns: dict[bytes, Tail] = {}
        self._passed: dict[ReaderKey, _Passed] = {}

    def __bool__(self) -> bool:
        return bool(self._sets or self._returns or self._passed)

    @property
    def next_s(self) -> float | None:
        """When something is due."""
        dues = [tail.until_s for tail in (*self._sets.values(), *self._returns.values())]
        until_s = min([*dues, *(passed.next_s for passed in self._passed.values())], default=math.inf)
        return None if until_s == math.inf else until_s

    def set_taken(self, reader: ReaderKey, now: float) -> None:
        """The set that a reader is given was taken."""
        self._sets[reader] = Tail(now + TAIL_S)

    def lost(self, writer: bytes, now: float) -> None:
        """A writer is lost: what comes of it from now on, comes since it is back.

        What came since it was back the last time is due at once.
        """
        missed = self._missed.pop(writer, None)
        if missed is not None and now < missed.until_s:
            self._return(writer, missed)
        if (tail := self._returns.get(writer)) is not None:
            tail.until_s = 0.0
        self._lost[writer] = Tail(math.inf)
        if len(self._lost) > MAX_LOST:
            del self._lost[next(iter(self._lost))]

    def returned(self, writer: bytes, now: float) -> None:
        """A writer is back that had been lost."""
        since = self._lost.pop(writer, Tail(now))
        self._return(writer, since).until_s = now + RETURN_S

    def _return(self, writer: bytes, tail: Tail) -> Tail:
        """Have it given, behind what is to be given of that writer already."""
        if (former := self._returns.get(writer)) is not None:
            former.count += tail.count
            for group, samples in tail.samples.items():
                former.samples.setdefault(group, []).extend(samples)
            return former
        self._returns[writer] = tail
        return tail

    def missed(self, group: Group, samples: Iterable[Sample], now: float) -> None:
        """These came from another node, and readers are taken to have them from their writers, which live.

        If nothing more is heard of such a writer until it is lost, readers have not heard of them either.
        """
        self._missed = {writer: tail for writer, tail in self._missed.items() if now < tail.until_s}
        for sample in samples:
            if sample.writer in self._missed or len(self._missed) < MAX_LOST:
                self._missed.setdefault(sample.writer, Tail(now + MISSED_S)).add(group, sample)

    def wants(self, writer: bytes) -> bool:
        """Whether `captured` must be told of the samples of a writer."""
        return bool(self) or writer in self._lost or writer in self._missed

    def begins(
        self, reader: ReaderKey, groups: Iterable[tuple[GroupDescription, Rows]], *, has_all: bool
    ) -> None:
        """A delivery begins; with `has_all` it has every instance of its groups."""
        keys = {
            description.group: None if has_all else frozenset(sample.key for sample in rows)
            for description, rows in groups
            if not description.qos.by_source_timestamp
        }
        if not keys:
            return
        former = self._passed.get(reader)
        passed = self._passed[reader] = _Passed(keys)
        if former is not None:
            passed.newer = former.newer
            for group, some in former.keys.items():
                more = keys.get(group, _NONE)
                keys[group] = None if some is None or more is None else some | more

    def ended(self, reader: ReaderKey, now: float) -> None:
        """A delivery has ended."""
        if (passed := self._passed.get(reader)) is not None:
            passed.closes_s, passed.until_s = now + LATE_S, math.inf

    def forget(self, reader: ReaderKey) -> None:
        """A reader is gone."""
        self._sets.pop(reader, None)
        self._passed.pop(reader, None)

    def captured(self, group: Group, sample: Sample) -> None:
        """A sample was taken in."""
        self._missed.pop(sample.writer, None)
        for reader, tail in self._sets.items():
            if is_given(group, reader.topic, reader.partitions):
                tail.add(group, sample)
        if (tail_of := self._lost.get(sample.writer) or self._returns.get(sample.writer)) is not None:
            tail_of.add(group, sample)
        for passed in self._passed.values():
            passed.add(group, sample)

    def take_sets(self, now: float) -> Iterator[tuple[ReaderKey, Tail]]:
        """What is due for readers whose set was taken."""
        for reader in [reader for reader, tail in self._sets.items() if now >= tail.until_s]:
            yield reader, self._sets.pop(reader)

    def take_returns(self, now: float) -> Iterator[Tail]:
        """What is due of writers that are back."""
        for writer in [writer for writer, tail in self._returns.items() if now >= tail.until_s]:
            yield self._returns.pop(writer)

    def take_passed(self, now: float) -> Iterator[tuple[ReaderKey, Difference]]:
        """What readers may have seen before something older; all that has arrived must have been taken in."""
        for passed in self._passed.values():
            if now >= passed.closes_s:
                passed.close(now)
        for reader in [reader for reader, passed in self._passed.items() if now >= passed.until_s]:
            newer = self._passed.pop(reader).newer
            if again := {group: list(samples.values()) for group, samples in newer.items() if samples}:
                yield reader, again
