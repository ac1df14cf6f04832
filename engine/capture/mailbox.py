"""What other threads have to say to the one thread in which a service decides."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

Handler = Callable[[Sequence[Any]], None]

MAX_WAITING: Final = 1000
"""Batches of a pump that wait; while there are more, the pump waits, and DDS pushes senders back."""


class Mailbox:
    """Tasks from any thread, carried out in order by the thread that owns the box."""

    def __init__(self) -> None:
        self._tasks: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._room = threading.BoundedSemaphore(MAX_WAITING)
        self._first: Callable[[], None] | None = None

    def post(self, task: Callable[[], None]) -> None:
        """Have a task carried out."""
        self._tasks.put(task)

    def wake(self) -> None:
        """Have the owner look at everything."""
        self.post(_nothing)

    def post_batch(self, handler: Handler, batch: Sequence[Any]) -> None:
        """Have a batch of a pump handled; blocks while too many wait."""

        def handle() -> None:
            self._room.release()
            handler(batch)

        self._room.acquire()
        self.post(handle)

    def wait(self, timeout_s: float) -> None:
        """Wait until there is a task, but no longer than so many seconds."""
        if self._first is None and timeout_s > 0:
            with contextlib.suppress(queue.Empty):
                self._first = self._tasks.get(timeout=timeout_s)

    def carry_out(self) -> None:
        """Carry out the tasks that wait now. What a task raises comes through; those behind it stay."""
        count = self._tasks.qsize()
        first, self._first = self._first, None
        if first is not None:
            first()
        for _ in range(count):
            self._tasks.get_nowait()()


def ignore(batch: Sequence[Any]) -> None:
    """The handler of a source that only wakes the owner."""


def _nothing() -> None:
    """A task that only wakes the owner."""
