"""Heartbeats that do not wait for the node's work: a thread of their own sends them.

The node's thread says what its heartbeat is, and it goes out at once, whatever else waits to be sent. While
that thread is busy with one piece of work for longer than a heartbeat period, its last heartbeat is sent
again, with the serial number that it has: to fellows that is a sign of life and no news. A thread that is
busy for longer than the deadlock watch allows is taken for hung, and its node falls silent, so that no
heartbeat outlives a dead node for longer than that (docs/protocol.md, Life signs).
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from engine.dds.activity import PATIENCE_S
from engine.dds.errors import DdsError, DdsTimeout

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.dds.activity import Work

LATE: Final = 1.25
"""Heartbeat periods after which the node's own heartbeat is late, and the last one is sent again."""


class Pulse:
    """Sends the heartbeats of a node.

    Args:
        send: sends one to all fellows; may block, and raise DdsError.
        work: what the node's thread is busy with.
        sending: what the heartbeats' thread is busy with.
        period_s: the heartbeat period.
        patience_s: a thread that is busy for longer is hung.

    Attributes:
        repeated: heartbeats that were sent again because the node's thread was busy.
        fault: what ended the thread, None while it runs.
    """

    def __init__(
        self,
        send: Callable[[bytes], None],
        work: Work,
        sending: Work,
        period_s: float,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._send = send
        self._work, self._sending = work, sending
        self._pause_s = LATE * period_s
        self._patience_s = patience_s
        self._newest = self._sent = b""
        self._is_ending = False
        self._changed = threading.Condition()
        self.repeated = 0
        self.fault: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._thread.start()

    def beat(self, heartbeat: bytes) -> None:
        """Send the node's heartbeat; one that has not been sent yet is not sent any more."""
        with self._changed:
            self._newest = heartbeat
            self._changed.notify()

    def _run(self) -> None:
        try:
            while heartbeat := self._next():
                try:
                    with self._sending:
                        self._send(heartbeat)
                except DdsTimeout:
                    continue  # a fellow does not keep up; the next heartbeat is due soon enough
        except DdsError as error:
            if not self._is_ending:
                self.fault = error

    def _next(self) -> bytes:
        """Wait for what is to be sent next; nothing when it is over."""
        with self._changed:
            while True:
                if self._newest is not self._sent:
                    self._sent = self._newest
                    return self._sent
                if self._is_ending:
                    return b""
                if not self._changed.wait(self._pause_s) and self._sent and self._is_busy():
                    self.repeated += 1
                    return self._sent

    def _is_busy(self) -> bool:
        """Whether the node's thread works and cannot say anything itself."""
        since_s = self._work.since_s
        return since_s is not None and time.monotonic() - since_s <= self._patience_s

    def close(self, timeout_s: float) -> None:
        """Send the last heartbeat, for at most `timeout_s`, and end the thread. Idempotent."""
        with self._changed:
            self._is_ending = True
            self._changed.notify()
        self._thread.join(timeout_s)
