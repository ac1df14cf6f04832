"""Whether two replicas keep the same, found out without looking at what they have accounted for.

What is accounted for may be wrong: an application wrote with timestamps in the past, a writer died before
its last samples had reached anybody. So replicas compare digests of what they keep, in parts by key. A part
that differs and in which nothing has changed for some periods, although nothing is known to be missing, will
not become equal by itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Final

PARTS: Final = 256
"""Parts of the instances; a digest of each goes into every announcement."""
MAX_PARTS_ASKED: Final = 16
"""Inventories to one replica in one period; the others wait."""
MARGIN_PERIODS: Final = 2
"""A difference must stay for so many periods longer than a change of providers may take."""

_MASK: Final = (1 << 64) - 1


def part_of(key: bytes) -> int:
    """The part in which an instance is."""
    return hashlib.blake2b(key, digest_size=1).digest()[0]


def _digest(key: bytes, order: tuple[int, str, int]) -> int:
    time_ns, writer, sequence = order
    text = b"%d|%d|%s|" % (time_ns, sequence, writer.encode())
    return int.from_bytes(hashlib.blake2b(text + key, digest_size=8).digest(), "big")


class Digests:
    """One number for each part: the sum of the digests of what is kept."""

    def __init__(self) -> None:
        self._sums = [0] * PARTS
        self._snapshot: tuple[int, ...] | None = None

    def replace(self, key: bytes, old: tuple[int, str, int] | None, new: tuple[int, str, int] | None) -> None:
        """The last value of an instance is another one; `old` is None for the first, `new` for none."""
        change = (_digest(key, new) if new is not None else 0) - (_digest(key, old) if old is not None else 0)
        part = part_of(key)
        self._sums[part] = (self._sums[part] + change) & _MASK
        self._snapshot = None

    def snapshot(self) -> tuple[int, ...]:
        """All of them now."""
        if self._snapshot is None:
            self._snapshot = tuple(self._sums)
        return self._snapshot


class Comparison:
    """The differences with one other replica, and for how long they have been the same."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[tuple[int, int], int]] = {}

    def period(self, ours: Sequence[int], theirs: Sequence[int], patience: int) -> Iterator[int]:
        """The parts that have differed in the same way for `patience` periods."""
        seen, self._seen = self._seen, {}
        if len(theirs) != PARTS or ours == theirs:
            return
        asked = 0
        for part, pair in enumerate(zip(ours, theirs, strict=True)):
            if pair[0] == pair[1]:
                continue
            before, count = seen.get(part, (pair, 0))
            count = count + 1 if before == pair else 1
            if count > patience and asked < MAX_PARTS_ASKED:
                asked += 1
                count = 0
                yield part
            self._seen[part] = (pair, count)
