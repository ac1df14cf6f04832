"""The parts of a persistence service, which share its thread, its links and its store.

The service calls a part with each input, sends its messages, and writes the changes of all parts in one
transaction. No part waits for anything.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from engine.persistence.core.replica_messages import OriginalSample

Write = Callable[[sqlite3.Connection], None]
"""Writes to the store, on the store's thread and inside a transaction; it holds its data itself."""

NEVER_S: Final = math.inf


class ServicePart:
    """One part; each method does nothing unless a subclass overrides it.

    Attributes:
        has_room: whether the queue to a replica has room; messages that can wait should wait for that.
        tables: statements that create its tables where they do not exist, ended by semicolons.
        kinds: of the messages for this part; no two parts share one.
    """

    has_room: Callable[[str], bool] = staticmethod(lambda _: True)
    tables: str = ""
    kinds: frozenset[str] = frozenset()

    def restore(self, store: sqlite3.Connection) -> None:
        """Load the data of the store; called first, on the store's thread, while nothing else runs.

        Raises:
            sqlite3.Error: the store cannot be read.
        """

    def changes(self) -> Write | None:
        """Take the changes since the last call, to be written; None for none."""
        return None

    def connected(self, peer: str) -> None:
        """Begin with a replica whose link is up."""

    def disconnected(self, peer: str) -> None:
        """End with a replica whose link is down; messages that had not arrived are lost."""

    def receive(self, peer: str, kind: str, body: bytes) -> None:
        """Take a message of another replica.

        Args:
            peer: name of the replica.
            kind: one of `kinds`.
            body: its bytes.

        Raises:
            engine.persistence.core.replica_codec.MessageFault: not a valid message.
        """

    def messages(self) -> Iterable[tuple[str, str, bytes]]:
        """Take the messages to send, in order: (replica, kind, body)."""
        return ()

    def captured(self, samples: Sequence[OriginalSample]) -> None:
        """Take samples from original writers, in order."""

    def turn(self, now_s: float) -> float:
        """Do the work that is due at this monotonic time; return when the next turn is due at the latest."""
        return NEVER_S
