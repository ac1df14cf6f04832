"""What a replica keeps: the last value of every instance, with digests for the audit."""

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
"""The group of an instance, and how many instances of it are kept at most; 0 for no limit."""


def no_limits(key: bytes) -> tuple[bytes, int]:
    """Everything is kept."""
    return key, 0


class LastValues:
    """The last values. Of a group with a limit, the instances whose keys come first in byte order.

    Which these are does not depend on the order in which samples come, so replicas of the service agree.

    Args:
        room: tells how many are kept.

    Attributes:
        entries: by instance.
        changed: instances that are different since somebody cleared this.
    """

    def __init__(self, room: Room = no_limits) -> None:
        self._room = room
        self._limited: dict[bytes, list[bytes]] = {}
        self.entries: dict[bytes, LastValue] = {}
        self.changed: set[bytes] = set()
        self._digests = audit.Digests()
        self._keys_of_part: list[set[bytes]] = [set() for _ in range(audit.PARTS)]

    def keep(self, sample: OriginalSample) -> LastValue | None:
        """This is the last value of its instance from now on; what that pushed out, or did not let in."""
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
        """The digest of each part."""
        return self._digests.snapshot()

    def of_part(self, part: int) -> list[LastValue]:
        """The last values of one part, in order of their instances."""
        return [self.entries[key] for key in sorted(self._keys_of_part[part])]
