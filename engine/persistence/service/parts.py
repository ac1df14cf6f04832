"""What a persistence service decides about, in parts that share its thread, its links and its store.

The service gives a part what happens, sends what the part wants sent, and writes what all parts changed in
one transaction. No part waits for anything.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from engine.persistence.core.messages import OriginalSample

Write = Callable[[sqlite3.Connection], None]
"""Writes to the store, on the store's thread and inside a transaction; it holds what it writes."""

NEVER_S: Final = math.inf


class ServicePart:
    """One of them; what it does not override does nothing.

    Attributes:
        has_room: whether a replica takes what it is sent fast enough; what can wait should wait for that.
        tables: statements that make its tables where they are not there yet, ended by semicolons.
        kinds: the messages that are for it; no two parts have the same.
    """

    has_room: Callable[[str], bool] = staticmethod(lambda _: True)
    tables: str = ""
    kinds: frozenset[str] = frozenset()

    def restore(self, store: sqlite3.Connection) -> None:
        """Take what the store has; called first, on the store's thread, while nothing else runs.

        Raises:
            sqlite3.Error: the store cannot be read.
        """

    def changes(self) -> Write | None:
        """What must be written since the last call; None for nothing."""
        return None

    def connected(self, peer: str) -> None:
        """The link with another replica is up."""

    def disconnected(self, peer: str) -> None:
        """It is down, and what was sent and had not arrived is lost."""

    def receive(self, peer: str, kind: str, body: bytes) -> None:
        """A message of another replica.

        Raises:
            engine.persistence.core.codec.MessageFault: it is none.
        """

    def messages(self) -> Iterable[tuple[str, str, bytes]]:
        """What is to be sent now, in order: (replica, kind, body)."""
        return ()

    def captured(self, samples: Sequence[OriginalSample]) -> None:
        """What came from original writers, in order."""

    def turn(self, now_s: float) -> float:
        """Do what is due at this monotonic time; returns when to come again at the latest."""
        return NEVER_S
