"""The last values that a replica keeps, and the digests of their parts, which replicas compare."""

from __future__ import annotations

import bisect
import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from engine.core.lazy_dataclass import lazy_dataclass
from engine.persistence.core.replica_messages import OriginalSample

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


@lazy_dataclass(slots=True)
class LastValue:
    """The last value of one instance, and every writer that ever wrote it."""

    sample: OriginalSample
    writers: frozenset[str]


Room = Callable[[bytes], tuple[bytes, int]]
"""Returns the group of an instance, and how many instances of it are kept at most; 0 for no limit."""


def no_limits(key: bytes) -> tuple[bytes, int]:
    """Keep every instance."""
    return key, 0


class LastValues:
    """The last values. A group with a limit keeps the instances whose keys come first in byte order.

    The choice does not depend on the order in which samples come, so all replicas make the same one.

    Args:
        room: tells how many instances of a group are kept.

    Attributes:
        entries: by instance.
        changed: instances that have changed since the owner cleared this set.
    """

    def __init__(self, room: Room = no_limits) -> None:
        self._room = room
        self._limited: dict[bytes, list[bytes]] = {}
        self.entries: dict[bytes, LastValue] = {}
        self.changed: set[bytes] = set()
        self._digests = Digests()
        self._keys_of_part: list[set[bytes]] = [set() for _ in range(PARTS)]

    def keep(self, sample: OriginalSample) -> LastValue | None:
        """Make a sample the last value of its instance; return a value that the limit left no room for."""
        entry = self.entries.get(sample.key)
        pushed: LastValue | None = None
        if entry is None:
            group, most = self._room(sample.key)
            keys = self._limited.setdefault(group, []) if most else []
            if most and len(keys) >= most:
                if sample.key > keys[-1]:
                    return LastValue(sample, frozenset())
                pushed = self._drop(keys.pop())
            if most:
                bisect.insort(keys, sample.key)
        self._digests.replace(sample.key, entry.sample.order if entry else None, sample.order)
        if entry is None:
            self._keys_of_part[part_of(sample.key)].add(sample.key)
        self.entries[sample.key] = LastValue(sample, entry.writers if entry else frozenset())
        self.changed.add(sample.key)
        return pushed

    def _drop(self, key: bytes) -> LastValue:
        entry = self.entries.pop(key)
        self._digests.replace(key, entry.sample.order, None)
        self._keys_of_part[part_of(key)].discard(key)
        self.changed.add(key)
        return entry

    def digests(self) -> tuple[int, ...]:
        """Return the digest of each part."""
        return self._digests.snapshot()

    def of_part(self, part: int) -> list[LastValue]:
        """Return the last values of one part, in order of their keys."""
        return [self.entries[key] for key in sorted(self._keys_of_part[part])]
