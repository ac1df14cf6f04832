"""The seam between two readers of the same writers: samples that both received count once.

Cyclone DDS does not show the number of a sample. But once both readers are in step with a writer, both get
its samples in the same order, and either may be behind the other. So the seam compares the samples of one
reader with those of the other.
"""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from engine.dataset.captured import CapturedSample


class Seam:
    """Passes all samples of the former reader, and those of the present one that the former one did not get.

    Args:
        known: writers with which the former reader has long been in step. Samples of these that the present
            reader gets before one that the former reader got were also received by the former reader.
    """

    def __init__(self, known: Collection[bytes] = ()) -> None:
        self._known = frozenset(known)
        self._given: dict[bytes, dict[CapturedSample, int]] = {}
        self._ahead: dict[bytes, dict[CapturedSample, int]] = {}
        self._last: dict[bytes, CapturedSample] = {}

    def give(self, records: Iterable[CapturedSample], *, both: bool = True) -> None:
        """Take in records of the former reader; `both`: the present one kept samples when they arrived."""
        for record in records:
            if both:
                self._last[record.writer] = record
            ahead = self._ahead.get(record.writer, {})
            if record in ahead:
                if record.writer in self._known:
                    _drop_before(ahead, record)
                _take_one(ahead, record)
            else:
                given = self._given.setdefault(record.writer, {})
                given[record] = given.get(record, 0) + 1

    def hear(self, records: Iterable[CapturedSample]) -> None:
        """Take in records of the present reader, while the former one may still have more."""
        for record in records:
            if not self._was_given(record):
                ahead = self._ahead.setdefault(record.writer, {})
                ahead[record] = ahead.get(record, 0) + 1
            elif record.writer in self._known:
                self._ahead.pop(record.writer, None)

    def is_in_step(self, writers: Collection[bytes], busy: Collection[bytes] = ()) -> bool:
        """Tell whether the present reader has the former one's last record of each of these writers.

        It cannot know that for a writer without a record in both; for such `busy` writers it returns False.
        Call `hear` with all records of the present reader first.
        """
        return self._last.keys() >= set(busy) and all(
            record not in self._given.get(writer, ())
            for writer, record in self._last.items()
            if writer in writers
        )

    def rest(self) -> list[CapturedSample]:
        """Take the records of the present reader that the former one, which has ended, did not get."""
        ahead, self._ahead = self._ahead, {}
        fresh = [record for each in ahead.values() for record in collections.Counter(each).elements()]
        for record in fresh:
            self._given.pop(record.writer, None)
        return fresh

    def fresh(self, records: Iterable[CapturedSample]) -> list[CapturedSample]:
        """Return the records of the present reader, after `rest`, that the former one did not get."""
        found = []
        for record in records:
            if not self._was_given(record):
                self._given.pop(record.writer, None)  # all that follows of this writer is later
                found.append(record)
        return found

    @property
    def is_closed(self) -> bool:
        """Whether all later records are fresh."""
        return not self._given

    def _was_given(self, record: CapturedSample) -> bool:
        """Tell whether the former reader got it; forget its earlier records, which cannot come again."""
        given = self._given.get(record.writer)
        if given is None or record not in given:
            return False
        _drop_before(given, record)
        _take_one(given, record)
        return True


def _drop_before(counts: dict[CapturedSample, int], record: CapturedSample) -> None:
    while (first := next(iter(counts))) != record:
        del counts[first]


def _take_one(counts: dict[CapturedSample, int], record: CapturedSample) -> None:
    counts[record] -= 1
    if not counts[record]:
        del counts[record]
