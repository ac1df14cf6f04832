"""OWNERSHIP EXCLUSIVE (DDS 1.4, 2.2.3.9): of an instance only what its owner writes counts.

The owner is the writer of the highest strength among those that have written the instance and are there;
of equal ones the one with the lowest GUID. A writer that unregisters the instance, or is gone, owns it no
longer.
"""

from __future__ import annotations

import collections
from typing import Final

MAX_INSTANCES: Final = 1_000_000
"""Instances whose owner is remembered; of more the longest known are forgotten: their next writer owns
them."""


class Owners:
    """Who owns the instances of exclusive topics, as far as this process sees their writers."""

    def __init__(self) -> None:
        self._owners: dict[bytes, tuple[bytes, int]] = {}
        self._owned: collections.defaultdict[bytes, set[bytes]] = collections.defaultdict(set)

    def admits(self, instance: bytes, writer: bytes, strength: int) -> bool:
        """A writer of this strength wrote or disposed an instance; whether that counts."""
        owner = self._owners.get(instance)
        if owner is not None and owner[0] != writer and (-owner[1], owner[0]) < (-strength, writer):
            return False
        if owner is None or owner[0] != writer:
            self._release(instance)
            self._owned[writer].add(instance)
        self._owners[instance] = (writer, strength)
        if len(self._owners) > MAX_INSTANCES:
            self._release(next(iter(self._owners)))
        return True

    def unregistered(self, instance: bytes, writer: bytes) -> None:
        """A writer is done with an instance."""
        if self._owners.get(instance, (b"", 0))[0] == writer:
            self._release(instance)

    def gone(self, writer: bytes) -> None:
        """A writer is not there any more."""
        for instance in list(self._owned.get(writer, ())):
            self._release(instance)

    def _release(self, instance: bytes) -> None:
        owner = self._owners.pop(instance, None)
        if owner is not None:
            owned = self._owned[owner[0]]
            owned.discard(instance)
            if not owned:
                del self._owned[owner[0]]
