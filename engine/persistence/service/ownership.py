"""OWNERSHIP EXCLUSIVE (DDS 1.4, 2.2.3.9): only the owner of an instance can change it.

The owner is the strongest living writer that has written the instance; among equals, the one with the lowest
GUID. A writer that unregisters the instance, or is gone, no longer owns it.
"""

from __future__ import annotations

import collections
from typing import Final

MAX_INSTANCES: Final = 1_000_000
"""Instances whose owner is remembered; beyond, the oldest is forgotten, and its next writer owns it."""


class Owners:
    """The owners of the instances of exclusive topics, among the writers that this process sees."""

    def __init__(self) -> None:
        self._owners: dict[bytes, tuple[bytes, int]] = {}
        self._owned: collections.defaultdict[bytes, set[bytes]] = collections.defaultdict(set)

    def admits(self, instance: bytes, writer: bytes, strength: int) -> bool:
        """Note that a writer wrote or disposed an instance; return whether that counts.

        Args:
            instance: its key, with its group.
            writer: GUID.
            strength: of the writer.
        """
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
        """Release an instance that its writer unregistered."""
        if self._owners.get(instance, (b"", 0))[0] == writer:
            self._release(instance)

    def gone(self, writer: bytes) -> None:
        """Release the instances of a writer that is gone."""
        for instance in list(self._owned.get(writer, ())):
            self._release(instance)

    def _release(self, instance: bytes) -> None:
        owner = self._owners.pop(instance, None)
        if owner is not None:
            owned = self._owned[owner[0]]
            owned.discard(instance)
            if not owned:
                del self._owned[owner[0]]
