"""The living writers of one reader, and the instances that each writer has written."""

from __future__ import annotations

import hashlib
from typing import Final

from engine.dataset.sample import NO_WRITER

# Chosen: 16 bytes each. A forgotten one that comes back counts as new.
MAX_GONE: Final = 10_000
"""Most writers remembered after they are gone."""
# The participant's part of a GUID, from which OpenSplice makes its name of a system (`_systems`).
_PREFIX_BYTES: Final = 12
_SYSTEM_BYTES: Final = 4


class WriterPresence:
    """Writers by their GUIDs, or by the names that OpenSplice has for them.

    OpenSplice names a writer by private numbers, of which only the first, the system, can be compared. Of
    such a writer only one thing can be known: whether any writer of its system lives.
    """

    def __init__(self) -> None:
        self.living: set[bytes] = set()
        self._gone: dict[bytes, bool] = {}
        self._keys: dict[bytes, dict[bytes, None]] = {}
        self._named: dict[bytes, dict[bytes, None]] = {}

    def writes(self, writer: bytes, key: bytes) -> None:
        """Note that a writer has written an instance."""
        if writer != NO_WRITER:
            self._keys.setdefault(writer, {})[key] = None

    def is_inexact(self, writer: bytes) -> bool:
        """Return whether a writer is known by a name of OpenSplice."""
        return writer in self._named.get(writer[:_SYSTEM_BYTES], ())

    def learn_inexact(self, writer: bytes) -> None:
        """Note a name of OpenSplice for a writer."""
        self._named.setdefault(writer[:_SYSTEM_BYTES], {})[writer] = None

    def is_living(self, writer: bytes) -> bool:
        """Return whether a writer lives or may live."""
        if writer in self.living or writer == NO_WRITER:
            return True
        return self.is_inexact(writer) and self._has_system(writer[:_SYSTEM_BYTES])

    def autodispose(self, writer: bytes) -> bool:
        """Return whether the instances of a writer that is gone count as disposed."""
        return self._gone.get(writer, False)

    def was_lost(self, writer: bytes) -> bool:
        """Return whether a known writer, perhaps known only by its samples, is absent."""
        return writer not in self.living and (writer in self._gone or writer in self._keys)

    def found(self, writer: bytes) -> list[tuple[bytes, tuple[bytes, ...]]]:
        """Note that a writer lives; return the writers that now live, with their instances."""
        before = self._inexact_living(writer)
        self.living.add(writer)
        self._gone.pop(writer, None)
        new = [one for one in self._of_systems(writer) if one not in before]
        return [(one, tuple(self._keys.get(one, ()))) for one in (writer, *new)]

    def lost(self, writer: bytes, *, autodispose: bool) -> list[tuple[bytes, tuple[bytes, ...]]]:
        """Note that a writer is gone; return the writers that now are gone, with their instances."""
        before = self._inexact_living(writer)
        self.living.discard(writer)
        self._gone[writer] = autodispose
        old = [one for one in before if not self.is_living(one)]
        found = [(one, tuple(self._keys.get(one, ()))) for one in (writer, *old)]
        if len(self._gone) > MAX_GONE:
            oldest = next(iter(self._gone))
            del self._gone[oldest]
            self._keys.pop(oldest, None)
        return found

    def _inexact_living(self, writer: bytes) -> list[bytes]:
        return [one for one in self._of_systems(writer) if self.is_living(one)]

    def _of_systems(self, writer: bytes) -> list[bytes]:
        """Return writers with names of OpenSplice that may be of the same system."""
        return (
            [one for system in _systems(writer) for one in self._named.get(system, ())] if self._named else []
        )

    def _has_system(self, system: bytes) -> bool:
        return any(system in _systems(one) for one in self.living)


def _systems(writer: bytes) -> tuple[bytes, bytes]:
    """Return OpenSplice's names for the system of a writer: of its own, and of another vendor."""
    prefix = writer[:_PREFIX_BYTES]
    digest = hashlib.md5(prefix, usedforsecurity=False).digest()
    return prefix[:_SYSTEM_BYTES][::-1], digest[:_SYSTEM_BYTES][::-1]
