"""The last value of every instance that a replica keeps, with digests for the audit."""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Callable

from engine.persistence.core import audit
from engine.persistence.core.messages import OriginalSample


@dataclasses.dataclass(slots=True)
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
        self._digests = audit.Digests()
        self._keys_of_part: list[set[bytes]] = [set() for _ in range(audit.PARTS)]

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
            self._keys_of_part[audit.part_of(sample.key)].add(sample.key)
        self.entries[sample.key] = LastValue(sample, entry.writers if entry else frozenset())
        self.changed.add(sample.key)
        return pushed

    def _drop(self, key: bytes) -> LastValue:
        entry = self.entries.pop(key)
        self._digests.replace(key, entry.sample.order, None)
        self._keys_of_part[audit.part_of(key)].discard(key)
        self.changed.add(key)
        return entry

    def digests(self) -> tuple[int, ...]:
        """Return the digest of each part."""
        return self._digests.snapshot()

    def of_part(self, part: int) -> list[LastValue]:
        """Return the last values of one part, in order of their keys."""
        return [self.entries[key] for key in sorted(self._keys_of_part[part])]
