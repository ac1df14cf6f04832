"""The current work of each thread of a process, so that the deadlock watch can name a thread that hangs."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE_S: Final = 10.0
"""Limit for one piece of work, unless its activity sets another."""


class Work:
    """The work of one activity; use `with work:` around each piece of it.

    Attributes:
        name: the activity's name in the trace.
        patience_s: limit for a piece of work, or for a part of it that ends with `moved`.
        since_s: start of the current piece or part, monotonic; None while the activity waits for work.
        done: number of finished pieces and parts.
        tid: the operating system's id of the thread that did the last piece, 0 before the first.
        withholds: whether the process stops renewing its lease while this work is stuck.
    """

    __slots__ = ("done", "name", "patience_s", "since_s", "tid", "withholds")

    def __init__(self, name: str = "", patience_s: float = PATIENCE_S, *, withholds: bool = True) -> None:
        self.name = name
        self.withholds = withholds
        self.patience_s = patience_s
        self.since_s: float | None = None
        self.done = 0
        self.tid = 0

    def __enter__(self) -> Work:
        self.tid = threading.get_native_id()
        self.since_s = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        self.since_s = None
        self.done += 1

    def moved(self) -> None:
        """Finish a part of the piece: the next part has `patience_s` again."""
        if self.since_s is not None:
            self.since_s = time.monotonic()
            self.done += 1

    def is_stuck(self, now_s: float) -> bool:
        """Tell whether the work exceeds its limit at monotonic time `now_s`."""
        since_s = self.since_s
        return since_s is not None and now_s - since_s > self.patience_s


_current = threading.local()


def moved() -> None:
    """Call `Work.moved` for this thread's job (see `ThreadActivities.job`), if it has one."""
    work: Work | None = getattr(_current, "work", None)
    if work is not None:
        work.moved()


class ThreadActivities:
    """The activities of a process. Safe to call from any thread.

    Args:
        patience_s: the least limit that any activity gets.
    """

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._lock = threading.Lock()
        self._works: list[Work] = []

    def work(self, name: str, patience_s: float = 0.0, *, withholds: bool = True) -> Work:
        """Add a lasting activity, such as a thread.

        Args:
            name: the activity's name in the trace.
            patience_s: limit for one piece of work, if longer than that of the process.
            withholds: whether the process stops renewing its lease while this work is stuck.
        """
        work = Work(name, max(self._patience_s, patience_s), withholds=withholds)
        with self._lock:
            self._works.append(work)
        return work

    @contextlib.contextmanager
    def job(self, name: str, patience_s: float = 0.0) -> Iterator[Work]:
        """Add an activity that lasts as long as the block, for a thread that does work of many kinds."""
        work = self.work(name, patience_s)
        before, _current.work = getattr(_current, "work", None), work
        try:
            with work:
                yield work
        finally:
            _current.work = before
            self.end(work)

    def end(self, work: Work) -> None:
        """Remove an activity."""
        with self._lock:
            self._works.remove(work)

    def all(self) -> list[Work]:
        """Return the activities that exist now."""
        with self._lock:
            return list(self._works)
