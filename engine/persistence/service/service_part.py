"""The parts of a persistence service, which share its thread, its links and its store.

The service calls a part with each input, sends its messages, and writes the changes of all parts in one
transaction. No part waits for anything.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from engine.persistence.core.messages import OriginalSample, ReplicaMessage

Write = Callable[[sqlite3.Connection], None]
"""Writes to the store, on the store's thread and inside a transaction; it holds its data itself."""

NEVER_S: Final = math.inf


class ServicePart:
    """One part; each method does no more than it says unless a subclass overrides it.

    Attributes:
        has_room: whether the queue to a replica has room; messages that can wait should wait for that.
        tables: statements that create its tables where they do not exist, ended by semicolons.
        kinds: classes of the messages for this part; no two parts share one.
        peers: names of the replicas whose links are up.
    """

    has_room: Callable[[str], bool] = staticmethod(lambda _: True)
    tables: str = ""
    kinds: tuple[type, ...] = ()

    def __init__(self) -> None:
        self.peers: set[str] = set()
        self._outbox: list[tuple[str, ReplicaMessage]] = []

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
        self.peers.add(peer)

    def disconnected(self, peer: str) -> None:
        """End with a replica whose link is down; messages that had not arrived are lost."""
        self.peers.discard(peer)

    def receive(self, peer: str, message: Any) -> None:
        """Take a message, of one of `kinds`, of another replica.

        Raises:
            MessageFault: not a valid message.
        """

    def send(self, peers: Iterable[str], message: ReplicaMessage) -> None:
        """Send a message to replicas."""
        self._outbox += [(peer, message) for peer in sorted(peers)]

    def messages(self) -> Iterable[tuple[str, ReplicaMessage]]:
        """Take the messages to send, in order: (replica, message)."""
        outbox, self._outbox = self._outbox, []
        return outbox

    def captured(self, samples: Sequence[OriginalSample]) -> None:
        """Take samples from original writers, in order."""

    def turn(self, now_s: float) -> float:
        """Do the work that is due at this monotonic time; return when the next turn is due at the latest."""
        return NEVER_S
