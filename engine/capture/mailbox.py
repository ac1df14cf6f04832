"""Tasks from other threads for the one thread in which a service decides."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

Handler = Callable[[Sequence[Any]], None]

MAX_WAITING: Final = 1000
"""Limit for waiting batches of a pump; at the limit the pump waits, and DDS makes senders wait."""


class Mailbox:
    """Tasks from any thread, which the owning thread carries out in order."""

    def __init__(self) -> None:
        self._tasks: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._room = threading.BoundedSemaphore(MAX_WAITING)
        self._first: Callable[[], None] | None = None

    def post(self, task: Callable[[], None]) -> None:
        """Add a task."""
        self._tasks.put(task)

    def wake(self) -> None:
        """Wake the owner."""
        self.post(_nothing)

    def post_batch(self, handler: Handler, batch: Sequence[Any]) -> None:
        """Add a batch of a pump for its handler; block while `MAX_WAITING` batches wait."""

        def handle() -> None:
            self._room.release()
            handler(batch)

        self._room.acquire()
        self.post(handle)

    def wait(self, timeout_s: float) -> None:
        """Wait until there is a task, for at most `timeout_s`."""
        if self._first is None and timeout_s > 0:
            with contextlib.suppress(queue.Empty):
                self._first = self._tasks.get(timeout=timeout_s)

    @property
    def is_empty(self) -> bool:
        """Whether no task waits."""
        return self._first is None and self._tasks.empty()

    def carry_out(self) -> None:
        """Carry out the tasks that wait now. If a task raises, the error passes on and later tasks stay."""
        count = self._tasks.qsize()
        first, self._first = self._first, None
        if first is not None:
            first()
        for _ in range(count):
            self._tasks.get_nowait()()


def ignore(batch: Sequence[Any]) -> None:
    """Do nothing: the handler of a source that only wakes the owner."""


def _nothing() -> None:
    """Do nothing: the task that only wakes the owner."""
