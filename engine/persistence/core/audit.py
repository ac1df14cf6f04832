"""The audit: replicas compare digests of their last values, whatever they have accounted for.

The numbers that are accounted for may be wrong: an application wrote with timestamps in the past, or a writer
died before its last samples had reached a replica. So replicas compare digests of their last values, in parts
by key. A part that differs, and has not changed for some periods although nothing is known to be missing,
will not become equal by itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Final

PARTS: Final = 256
"""Number of parts of all instances; a digest of each goes into every announcement."""
MAX_PARTS_ASKED: Final = 16
"""Inventories to one replica in one period; the others wait."""
MARGIN_PERIODS: Final = 2
"""Periods that a difference must stay longer than a change of providers may take."""

_MASK: Final = (1 << 64) - 1


def part_of(key: bytes) -> int:
    """Return the part of an instance."""
    return hashlib.blake2b(key, digest_size=1).digest()[0]


def _digest(key: bytes, order: tuple[int, str, int]) -> int:
    time_ns, writer, sequence = order
    text = b"%d|%d|%s|" % (time_ns, sequence, writer.encode())
    return int.from_bytes(hashlib.blake2b(text + key, digest_size=8).digest(), "big")


class Digests:
    """One number for each part: the sum of the digests of its last values."""

    def __init__(self) -> None:
        self._sums = [0] * PARTS
        self._snapshot: tuple[int, ...] | None = None

    def replace(self, key: bytes, old: tuple[int, str, int] | None, new: tuple[int, str, int] | None) -> None:
        """Replace the last value of an instance: `old` is None for a new one, `new` for one that goes."""
        change = (_digest(key, new) if new is not None else 0) - (_digest(key, old) if old is not None else 0)
        part = part_of(key)
        self._sums[part] = (self._sums[part] + change) & _MASK
        self._snapshot = None

    def snapshot(self) -> tuple[int, ...]:
        """Return the numbers of all parts."""
        if self._snapshot is None:
            self._snapshot = tuple(self._sums)
        return self._snapshot


class Comparison:
    """The parts that differ at one other replica, and for how many periods."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[tuple[int, int], int]] = {}

    def period(self, ours: Sequence[int], theirs: Sequence[int], patience: int) -> Iterator[int]:
        """Compare digests at the end of a period; yield parts that differed unchanged for over `patience`.

        Args:
            ours: digests of this replica, by part.
            theirs: digests of the other replica, by part; empty if it sent none.
            patience: periods.
        """
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
