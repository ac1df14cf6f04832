"""What the threads of a process are busy with, so that a thread that hangs can be named.

An activity says since when it has been busy with one piece of work, and that it moves on within one.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE_S: Final = 10.0
"""How long one piece of work may take, unless its activity says otherwise."""


class Work:
    """What an activity is busy with: `with work:` around one piece of it.

    Attributes:
        name: of the activity, in the trace.
        patience_s: how long a piece of work, or a part of it after which it has `moved`, may take.
        since_s: since when the activity has been busy with it, monotonic; None while it waits for work.
        done: pieces and parts that are done.
        tid: the thread (as the operating system numbers it) that did the last piece, 0 before.
        withholds: whether the lease is withheld while it is stuck; not where nobody waits for it.
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
        """A part of the piece is done; what follows has as much time again."""
        if self.since_s is not None:
            self.since_s = time.monotonic()
            self.done += 1

    def is_stuck(self, now_s: float) -> bool:
        """Whether it takes longer than it may, at monotonic time `now_s`."""
        since_s = self.since_s
        return since_s is not None and now_s - since_s > self.patience_s


_current = threading.local()


def moved() -> None:
    """The job of this thread has moved on (see `Activities.job`); does nothing where there is none."""
    work: Work | None = getattr(_current, "work", None)
    if work is not None:
        work.moved()


class Activities:
    """All activities of a process. Safe to call from any thread.

    Args:
        patience_s: what activities are given that ask for no more.
    """

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._lock = threading.Lock()
        self._works: list[Work] = []

    def work(self, name: str, patience_s: float = 0.0, *, withholds: bool = True) -> Work:
        """A lasting activity, such as a thread; `patience_s` counts where it is the longer one."""
        work = Work(name, max(self._patience_s, patience_s), withholds=withholds)
        with self._lock:
            self._works.append(work)
        return work

    @contextlib.contextmanager
    def job(self, name: str, patience_s: float = 0.0) -> Iterator[Work]:
        """A piece of work of a thread that has many different ones; it is over with the block."""
        work = self.work(name, patience_s)
        before, _current.work = getattr(_current, "work", None), work
        try:
            with work:
                yield work
        finally:
            _current.work = before
            self.end(work)

    def end(self, work: Work) -> None:
        """There will be no more of this activity."""
        with self._lock:
            self._works.remove(work)

    def all(self) -> list[Work]:
        """What there is now."""
        with self._lock:
            return list(self._works)
