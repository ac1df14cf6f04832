"""Batches of alignment streams, from Cyclone DDS into the runtime, at the runtime's pace."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.dds.bulk import BulkReceiver, ReceivedBatch
    from engine.runtime.ports import Clock
    from engine.runtime.runtime import Runtime

MAX_BYTES_WAITING: Final = 32 << 20
"""Limit for the bytes of streams that wait for the node's thread."""
TURN_S: Final = 0.01
"""Time for streams in one turn of the node."""


class Streams:
    """Streams from fellows to this node.

    Args:
        receiver: receives the batches.
        runtime: takes them.
        clock: the node's.
    """

    def __init__(self, receiver: BulkReceiver, runtime: Runtime, clock: Clock) -> None:
        self._receiver = receiver
        self._runtime = runtime
        self._clock = clock
        self._bytes_taken = 0  # the pump's thread counts
        self._bytes_done = 0  # the node's thread counts
        self._waiting: collections.deque[bytes] = collections.deque()

    def take(self) -> list[ReceivedBatch]:
        """Take batches on the pump's thread, unless too many wait; the rest makes senders wait."""
        if self._bytes_taken - self._bytes_done >= MAX_BYTES_WAITING:
            return []
        taken = self._receiver.take()
        self._bytes_taken += sum(len(received.payload or b"") for received in taken)
        return taken

    # On the node's thread.

    @property
    def is_waiting(self) -> bool:
        """Whether `turn` has something to do."""
        return bool(self._waiting)

    def arrived(self, batch: Sequence[Any]) -> None:
        """Keep batches of the pump until `turn`."""
        self._waiting.extend(received.payload for received in batch if received.payload is not None)

    def turn(self) -> None:
        """Pass batches to the runtime for at most `TURN_S`, so that heartbeats are not delayed."""
        until = self._clock.monotonic() + TURN_S
        while self._waiting and self._clock.monotonic() < until:
            payload = self._waiting.popleft()
            self._runtime.transfers.batch(payload)
            self._bytes_done += len(payload)
            self._receiver.wake()
