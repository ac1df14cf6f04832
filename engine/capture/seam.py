"""Where two readers of the same writers meet: what both of them got counts once.

Cyclone DDS does not show the number of a sample. But of one writer both readers get the same samples in the
same order, from the moment on from which both are in step with it, and each may be behind the other. So what
one of them has is held against what the other one had.
"""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from engine.dds.captured import Captured


class Seam:
    """The former reader's samples all count; of the present one's those that the former one did not have.

    Args:
        known: writers that the former reader was in step with long before. What the present one hears of them
            before something that the former one had, the former one had, too, however long ago.
    """

    def __init__(self, known: Collection[bytes] = ()) -> None:
        self._known = frozenset(known)
        self._given: dict[bytes, dict[Captured, int]] = {}
        self._ahead: dict[bytes, dict[Captured, int]] = {}
        self._last: dict[bytes, Captured] = {}

    def give(self, records: Iterable[Captured], *, both: bool = True) -> None:
        """The former reader had these; `both`: they came when the present one did keep what comes."""
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

    def hear(self, records: Iterable[Captured]) -> None:
        """The present reader has these, while there may be more of the former one."""
        for record in records:
            if not self._was_given(record):
                ahead = self._ahead.setdefault(record.writer, {})
                ahead[record] = ahead.get(record, 0) + 1
            elif record.writer in self._known:
                self._ahead.pop(record.writer, None)

    def is_in_step(self, writers: Collection[bytes], busy: Collection[bytes] = ()) -> bool:
        """Whether the present reader has heard what the former one had last of each of these writers.

        Of a writer that has given nothing to both that is not known; `busy` ones are waited for.
        `hear` all that the present reader has before asking.
        """
        return self._last.keys() >= set(busy) and all(
            record not in self._given.get(writer, ())
            for writer, record in self._last.items()
            if writer in writers
        )

    def rest(self) -> list[Captured]:
        """What the present reader has heard and the former one, of which nothing more comes, has not had."""
        ahead, self._ahead = self._ahead, {}
        fresh = [record for each in ahead.values() for record in collections.Counter(each).elements()]
        for record in fresh:
            self._given.pop(record.writer, None)
        return fresh

    def fresh(self, records: Iterable[Captured]) -> list[Captured]:
        """Of what the present reader has after `rest`, what the former one has not had."""
        found = []
        for record in records:
            if not self._was_given(record):
                self._given.pop(record.writer, None)  # all that follows of this writer is later
                found.append(record)
        return found

    @property
    def is_closed(self) -> bool:
        """Whether all that follows is fresh."""
        return not self._given

    def _was_given(self, record: Captured) -> bool:
        """Whether the former reader had it; what it had before that is not heard any more."""
        given = self._given.get(record.writer)
        if given is None or record not in given:
            return False
        _drop_before(given, record)
        _take_one(given, record)
        return True


def _drop_before(counts: dict[Captured, int], record: Captured) -> None:
    while (first := next(iter(counts))) != record:
        del counts[first]


def _take_one(counts: dict[Captured, int], record: Captured) -> None:
    counts[record] -= 1
    if not counts[record]:
        del counts[record]
