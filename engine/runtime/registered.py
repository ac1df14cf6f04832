"""Writers that have an instance registered although only samples of other writers are kept."""

from __future__ import annotations

from typing import Final

from engine.core.name_spaces import Group

MAX_REGISTERED: Final = 100_000
"""Instances remembered; of others only the writers of kept samples are known."""


class Registered:
    """Registrations that this node has captured since its start."""

    def __init__(self) -> None:
        self._writers: dict[tuple[Group, bytes], set[bytes]] = {}

    def passed_over(self, group: Group, key: bytes, writer: bytes) -> None:
        """Note that a sample of a writer gave way to one of another writer."""
        known = self._writers.get((group, key))
        if known is not None:
            known.add(writer)
            return
        self._writers[group, key] = {writer}
        if len(self._writers) > MAX_REGISTERED:
            del self._writers[next(iter(self._writers))]

    def unregistered(self, group: Group, key: bytes, writer: bytes) -> None:
        """Note that a writer has unregistered an instance."""
        known = self._writers.get((group, key))
        if known is not None:
            known.discard(writer)
            if not known:
                self.forget(group, key)

    def writers(self, group: Group, key: bytes) -> frozenset[bytes]:
        """Return the writers known to have an instance registered, or to have had it when they went."""
        return frozenset(self._writers.get((group, key), ()))

    def forget(self, group: Group, key: bytes) -> None:
        """Forget an instance."""
        self._writers.pop((group, key), None)
