"""Heartbeats on their own thread, which do not wait for the node's work.

The node's thread provides the heartbeat, which is sent at once, ahead of all other messages. While that
thread is busy with one piece of work for longer than a heartbeat period, the pulse repeats the last heartbeat
with its old serial number: for fellows a sign of life without news. If the thread is busy for longer than the
deadlock watch allows, it counts as hung and the pulse falls silent, so that heartbeats do not outlive a dead
node for longer than that (docs/internals/protocol.md, Life signs).
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from engine.dds.activity import BEAT_S, PATIENCE_S
from engine.dds.errors import DdsError, DdsTimeout

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.dds.activity import Work

# A quarter of a period is far above the jitter of a timer; larger brings the repeated heartbeat nearer to
# the expiry at the fellows.
LATE: Final = 1.25
"""Heartbeat periods after which the node's heartbeat is late, and the last one is repeated."""


class Pulse:
    """Sends the heartbeats of a node.

    Args:
        send: sends a heartbeat to all fellows; may block, and raise DdsError.
        work: the work of the node's thread.
        sending: the work of the heartbeats' thread.
        period_s: the heartbeat period.
        patience_s: limit for one piece of work; beyond it the node's thread counts as hung.

    Attributes:
        beats: number of heartbeats that the node's thread provided.
        repeated: number of heartbeats repeated because the node's thread was busy.
        fault: the error that ended the thread, or None.
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
        self._changed = threading.Condition()  # the node provides heartbeats, its own thread sends them
        self.beats = 0
        self.repeated = 0
        self.fault: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._thread.start()

    def beat(self, heartbeat: bytes) -> None:
        """Send the node's heartbeat; it replaces one that was not sent yet."""
        with self._changed:
            self.beats += 1
            self._newest = heartbeat
            self._changed.notify()

    def _run(self) -> None:
        try:
            while heartbeat := self._next():
                try:
                    with self._sending:
                        self._send(heartbeat)
                except DdsTimeout:
                    continue  # a fellow is behind; the next heartbeat is due soon
            self._sending.rest()
        except DdsError as error:
            if not self._is_ending:
                self.fault = error

    def _next(self) -> bytes:
        """Wait for the next heartbeat to send; return nothing at the end."""
        with self._changed:
            late_s = time.monotonic() + self._pause_s
            while True:
                self._sending.beat()
                if self._newest is not self._sent:
                    self._sent = self._newest
                    return self._sent
                if self._is_ending:
                    return b""
                self._changed.wait(min(BEAT_S, max(0.0, late_s - time.monotonic())))
                if time.monotonic() < late_s:
                    continue
                late_s = time.monotonic() + self._pause_s
                if self._newest is self._sent and self._sent and self._is_busy():
                    self.repeated += 1
                    return self._sent

    def _is_busy(self) -> bool:
        """Tell whether the node's thread is busy, but not hung."""
        since_s = self._work.since_s
        return since_s is not None and time.monotonic() - since_s <= self._patience_s

    def close(self, timeout_s: float) -> None:
        """Send the last heartbeat, for at most `timeout_s`, and end the thread. Idempotent."""
        with self._changed:
            self._is_ending = True
            self._changed.notify()
        self._thread.join(timeout_s)


class PublishSchedule:
    """Says when something is due that is done with the heartbeats, so that it needs no turn of its own.

    Args:
        pause_s: least time between two times, except where `due_s` is set.
        period_s: the heartbeat period; without heartbeats it is due when they are late.

    Attributes:
        due_s: time, monotonic, at which it is due without a heartbeat.
    """

    def __init__(self, pause_s: float, period_s: float) -> None:
        self._pause_s = pause_s
        self._longest_s = LATE * max(pause_s, period_s)
        self._beats = -1
        self._done_s = float("-inf")
        self.due_s = 0.0

    def is_due(self, now_s: float, beats: int) -> bool:
        """Tell whether it is due, where `beats` heartbeats have been provided."""
        return now_s >= self.due_s or (beats != self._beats and now_s - self._done_s >= self._pause_s)

    def done(self, now_s: float, beats: int) -> None:
        """Take in that it is done now."""
        self._done_s, self._beats = now_s, beats
        self.due_s = now_s + self._longest_s
