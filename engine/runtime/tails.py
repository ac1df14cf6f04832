"""Samples captured during a delivery, which readers must get again after it.

- The tail of a set: a living writer begins to send to a new reader at about the time at which this node
  discovers the reader; the exact time is unknown.
- The tail of a return: this node may hear a writer that is back before the readers of its host do, and before
  discovery reports the writer.
- Missed samples that came from another node before the loss of their writer was known: readers of this host
  may have missed them, too.
- Overtaken samples: readers ordered by reception may get a delivered sample after a newer one that the writer
  sent meanwhile, and would see the older one last.

A repeated sample is counted and shown; a lost one would be neither.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator
from typing import Final

from engine.core.lazy_dataclass import lazy_dataclass
from engine.core.messages import ReaderKey
from engine.core.name_spaces import Group
from engine.dataset.groups import GroupDescription, is_given
from engine.dataset.sample import UNREGISTER, Sample
from engine.dataset.sample_rows import SampleRows
from engine.runtime.name_space_data import Difference

TAIL_S: Final = 0.1
"""Seconds after a set was taken for which its reader also gets captured samples."""
READERS_S: Final = 1.25
"""Seconds after a set was taken for which a further reader may get it with the same delivery.

A delivery waits for the readers of a process for at most 1 s (`engine.dds.directed.LONGEST_UNREST_S`).
"""
RETURN_S: Final = 3.0
"""Seconds after a writer's return for which readers get its samples again.

A writer finds the readers of a host one by one; a second, short network cut without a lost lease delays that.
"""
LATE_S: Final = 0.1
"""Seconds after a delivery in which samples may be captured that its reader had before its end."""
PASSED_S: Final = 0.2
"""Seconds after that to wait whether the writer itself sends a newer sample."""
MISSED_S: Final = 30.0
"""Seconds for which a missed sample is kept in case its writer turns out to be lost."""
MAX_LOST: Final = 10_000
"""Lost writers remembered."""
MAX_TAIL: Final = 10_000
"""Samples of one tail; further ones are counted as not given."""


@lazy_dataclass(slots=True)
class Tail:
    """Samples captured since a reader's set was taken, or since a writer is back.

    Attributes:
        until_s: when it is due; infinite if it only waits for more readers.
        closes_s: when it ends, for the tail of a set.
        taken: number of the last sample that was given.
        left_out: samples that could not be given.
    """

    until_s: float
    closes_s: float = math.inf
    taken: int = 0
    left_out: int = 0
    count: int = 0
    noted: list[tuple[int, Group, Sample]] = dataclasses.field(default_factory=list)

    def add(self, number: int, group: Group, sample: Sample) -> None:
        """Add a sample, by its number; beyond `MAX_TAIL` only count it."""
        self.count += 1
        if self.count <= MAX_TAIL:
            self.noted.append((number, group, sample))

    def after(self, number: int) -> Difference:
        """Return the samples with higher numbers."""
        samples: Difference = {}
        for at, group, sample in self.noted:
            if at > number:
                samples.setdefault(group, []).append(sample)
        return samples


@lazy_dataclass(slots=True)
class _Passed:
    """The instances in a delivery (None for a whole group), and their samples captured meanwhile."""

    keys: dict[Group, frozenset[bytes] | None]
    newer: dict[Group, dict[bytes, Sample]] = dataclasses.field(default_factory=dict)
    closes_s: float = math.inf
    until_s: float = math.inf

    @property
    def next_s(self) -> float:
        """Time of the next action."""
        return min(self.closes_s, self.until_s)

    def close(self, now: float) -> None:
        """End the delivery: from now on the reader gets captured samples after the delivered ones."""
        self.closes_s = math.inf
        self.until_s = now + PASSED_S if any(self.newer.values()) else 0.0

    def add(self, group: Group, sample: Sample) -> None:
        """Note the newest sample of an instance; a later one makes the repetition unnecessary."""
        keys = self.keys.get(group, _NONE)
        if keys is None or sample.key in keys:
            newer = self.newer.setdefault(group, {})
            if self.until_s < math.inf:
                newer.pop(sample.key, None)
            elif sample.status != UNREGISTER and (len(newer) < MAX_TAIL or sample.key in newer):
                newer[sample.key] = sample


_NONE: Final[frozenset[bytes]] = frozenset()


class Tails:
    """The repetitions of one node; true while they need all captured samples."""

    def __init__(self) -> None:
        self._sets: dict[ReaderKey, Tail] = {}
        self._lost: dict[bytes, Tail] = {}
        self._missed: dict[bytes, Tail] = {}
        self._returns: dict[bytes, Tail] = {}
        self._passed: dict[ReaderKey, _Passed] = {}
        self._number = 0
        """Samples noted so far."""
        self._has: dict[ReaderKey, int] = {}
        """Number of the last sample that readers have, with all before it, from their set and its tail."""

    def __bool__(self) -> bool:
        return bool(self._sets or self._returns or self._passed)

    @property
    def next_s(self) -> float | None:
        """Time of the next action; None if there is none."""
        if not (self._sets or self._returns or self._passed):
            return None
        dues = [min(tail.until_s, tail.closes_s) for tail in (*self._sets.values(), *self._returns.values())]
        until_s = min([*dues, *(passed.next_s for passed in self._passed.values())], default=math.inf)
        return None if until_s == math.inf else until_s

    def set_taken(self, reader: ReaderKey, now: float) -> None:
        """Begin the tail of a set that was taken for a reader."""
        self._sets[reader] = Tail(now + TAIL_S, now + READERS_S)
        self._has[reader] = self._number

    def extended(self, reader: ReaderKey, now: float) -> bool:
        """Extend the tail of a reader's set for a further reader; False if that is not possible any more."""
        tail = self._sets.get(reader)
        if tail is None or tail.count > MAX_TAIL:
            return False
        tail.until_s = now + TAIL_S
        return True

    def lost(self, writer: bytes, now: float) -> None:
        """Note a lost writer: samples of it from now on mean that it is back.

        The tail of its last return is due at once.
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
        """Begin the tail of a writer that is back."""
        since = self._lost.pop(writer, Tail(now))
        self._return(writer, since).until_s = now + RETURN_S

    def _return(self, writer: bytes, tail: Tail) -> Tail:
        """Queue a tail of a writer, after the one that waits already."""
        if (former := self._returns.get(writer)) is not None:
            former.count += tail.count
            former.noted.extend(tail.noted)
            return former
        self._returns[writer] = tail
        return tail

    def missed(self, group: Group, samples: Iterable[Sample], now: float) -> None:
        """Note samples from another node that readers should have from their living writers.

        If this node hears nothing more of such a writer until it is lost, readers have missed them, too.
        """
        self._missed = {writer: tail for writer, tail in self._missed.items() if now < tail.until_s}
        for sample in samples:
            self._number += 1
            if sample.writer in self._missed or len(self._missed) < MAX_LOST:
                self._missed.setdefault(sample.writer, Tail(now + MISSED_S)).add(self._number, group, sample)

    def wants(self, writer: bytes) -> bool:
        """Whether `captured` needs the samples of a writer."""
        if self._sets or self._returns or self._passed:
            return True
        return writer in self._lost or writer in self._missed

    def begins(
        self, reader: ReaderKey, groups: Iterable[tuple[GroupDescription, SampleRows]], *, has_all: bool
    ) -> None:
        """Begin a delivery; with `has_all` it has every instance of its groups."""
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
        """End a delivery."""
        if (passed := self._passed.get(reader)) is not None:
            passed.closes_s, passed.until_s = now + LATE_S, math.inf

    def forget(self, reader: ReaderKey) -> None:
        """Forget a reader."""
        self._sets.pop(reader, None)
        self._passed.pop(reader, None)
        self._has.pop(reader, None)

    def captured(self, group: Group, sample: Sample) -> None:
        """Take a captured sample."""
        self._number += 1
        self._missed.pop(sample.writer, None)
        for reader, tail in self._sets.items():
            if is_given(group, reader.topic, reader.partitions):
                tail.add(self._number, group, sample)
        if (tail_of := self._lost.get(sample.writer) or self._returns.get(sample.writer)) is not None:
            tail_of.add(self._number, group, sample)
        for passed in self._passed.values():
            passed.add(group, sample)

    def take_sets(self, now: float) -> Iterator[tuple[ReaderKey, Difference, int]]:
        """Take what is due for readers whose set was taken, and the number of samples that were too many."""
        for reader, tail in list(self._sets.items()):
            if now >= tail.until_s:
                samples, tail.taken = tail.after(tail.taken), self._number
                left_out, tail.left_out = tail.left_out, max(0, tail.count - MAX_TAIL)
                if not tail.left_out:
                    self._has[reader] = self._number
                tail.until_s = math.inf
                yield reader, samples, tail.left_out - left_out
            if now >= tail.closes_s and tail.until_s == math.inf:
                del self._sets[reader]

    def take_returns(self, now: float) -> Iterator[Tail]:
        """Take the tails that are due of writers that are back; readers get what they are `lacking`."""
        for writer in [writer for writer, tail in self._returns.items() if now >= tail.until_s]:
            yield self._returns.pop(writer)

    def lacking(self, reader: ReaderKey, tail: Tail) -> Difference:
        """Return the samples of a tail that a reader has neither from its set nor from that set's tail."""
        return tail.after(self._has.get(reader, 0))

    def take_passed(self, now: float) -> Iterator[tuple[ReaderKey, Difference]]:
        """Take samples that readers may have seen before older ones; call it when nothing waits."""
        for passed in self._passed.values():
            if now >= passed.closes_s:
                passed.close(now)
        for reader in [reader for reader, passed in self._passed.items() if now >= passed.until_s]:
            newer = self._passed.pop(reader).newer
            if again := {group: list(samples.values()) for group, samples in newer.items() if samples}:
                yield reader, again
