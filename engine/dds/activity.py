"""What each thread of a process does, and that it is alive, for the deadlock watch.

A thread that works is busy with a piece of work, for which there is a limit. One that waits for work waits
for at most `BEAT_S`, and then beats: it has come through its own loop and its own queue. So a thread that
stands still is seen whether it had something to do or not.
"""

from __future__ import annotations

import collections
import contextlib
import threading
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PATIENCE_S: Final = 10.0
"""Limit for one piece of work, unless its activity sets another, and for a thread that waits."""
# Ten beats fit into `PATIENCE_S`. An idle thread wakes up this often for nothing else than to show that it
# lives, so shorter costs processor time of every thread.
BEAT_S: Final = 1.0
"""Longest time for which a thread waits before it beats."""
# One beat may just be due and one late on a loaded machine; fewer would call a healthy thread dead.
IDLE_BEATS: Final = 3
"""Beats that a thread may miss at least, however short the limit for its work is."""


class Work:
    """The work of one activity; use `with work:` around each piece of it.

    Attributes:
        name: the activity's name in the trace.
        patience_s: limit for a piece of work, or for a part of it that ends with `moved`.
        idle_s: limit for the time between two beats while it waits.
        since_s: start of the current piece or part, monotonic; None while the activity waits for work.
        done: number of finished pieces and parts.
        beats: number of beats.
        is_beating: whether it beats while it waits; not before the first beat, and not after `rest`.
        tid: the operating system's id of the thread that did the last piece, 0 before the first.
        withholds: whether the process stops renewing its lease while this work is stuck.
    """

    __slots__ = ("beats", "done", "idle_s", "is_beating", "name", "patience_s", "since_s", "tid", "withholds")

    def __init__(
        self,
        name: str = "",
        patience_s: float = PATIENCE_S,
        *,
        idle_s: float = PATIENCE_S,
        withholds: bool = True,
    ) -> None:
        self.name = name
        self.withholds = withholds
        self.patience_s = patience_s
        self.idle_s = idle_s
        self.since_s: float | None = None
        self.done = 0
        self.beats = 0
        self.is_beating = False
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

    def beat(self) -> None:
        """Show that the thread of this activity is alive. From now on it must do so every `BEAT_S`."""
        if not self.is_beating:
            self.tid = threading.get_native_id()
            self.is_beating = True
        self.beats += 1

    def rest(self) -> None:
        """Beat no more: the thread ends, or another activity shows what it does."""
        self.is_beating = False

    @property
    def progress(self) -> tuple[float | None, int, int]:
        """A value that differs from every earlier one, as long as the activity gets on."""
        return self.since_s, self.done, self.beats

    @property
    def limit_s(self) -> float | None:
        """The time for which `progress` may stay as it is; None for ever."""
        if self.since_s is not None:
            return self.patience_s
        return self.idle_s if self.is_beating else None


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
        self._lock = threading.Lock()  # threads begin and end while the watch walks through the list
        self._works: list[Work] = []

    @property
    def idle_s(self) -> float:
        """Limit for the time between two beats."""
        return max(self._patience_s, IDLE_BEATS * BEAT_S)

    def work(
        self, name: str, patience_s: float = 0.0, *, idle_s: float = 0.0, withholds: bool = True
    ) -> Work:
        """Add a lasting activity, such as a thread.

        Args:
            name: the activity's name in the trace.
            patience_s: limit for one piece of work, if longer than that of the process.
            idle_s: limit for the time between two beats, if longer than that of the process.
            withholds: whether the process stops renewing its lease while this work is stuck.
        """
        work = Work(
            name,
            max(self._patience_s, patience_s),
            idle_s=max(self.idle_s, idle_s),
            withholds=withholds,
        )
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


class Workers:
    """Threads that carry out blocking work, begun as they are needed.

    The pool of the standard library cannot be watched: its threads wait for ever, and a task for all of them
    reaches any one.

    Args:
        activities: registers each thread, and its job while it has one.
        most: how many threads there are at most; more work waits for a free one.
        name: of the threads, with a number.
    """

    def __init__(self, activities: ThreadActivities, most: int, name: str) -> None:
        self._activities = activities
        self._most = most
        self._name = name
        self._tasks: collections.deque[Callable[[], None]] = collections.deque()
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._is_closed = False
        self._changed = threading.Condition()
        self.fault: BaseException | None = None
        """An error that a task did not handle, or None."""

    def submit(self, task: Callable[[], None]) -> None:
        """Carry out a task on one of the threads; after `close` it is dropped."""
        with self._changed:
            if self._is_closed:
                return
            self._tasks.append(task)
            if self._idle < len(self._tasks) and len(self._threads) < self._most:
                name = f"{self._name}_{len(self._threads)}"
                thread = threading.Thread(target=self._run, args=(name,), name=name, daemon=True)
                self._threads.append(thread)
                thread.start()
            self._changed.notify()

    def _run(self, name: str) -> None:
        alive = self._activities.work(name)
        while (task := self._next(alive)) is not None:
            alive.rest()  # the task's own activity says what it does
            try:
                task()
            except Exception as error:  # of any class: who relies on the pool ends with it
                self.fault = error
        self._activities.end(alive)

    def _next(self, alive: Work) -> Callable[[], None] | None:
        with self._changed:
            while not self._tasks and not self._is_closed:
                alive.beat()
                self._idle += 1
                self._changed.wait(BEAT_S)
                self._idle -= 1
            return self._tasks.popleft() if self._tasks else None

    def close(self, timeout_s: float = 0.0) -> None:
        """Drop the tasks that wait, and let the threads end, waiting for at most `timeout_s` in all."""
        with self._changed:
            self._is_closed = True
            self._tasks.clear()
            self._changed.notify_all()
        until_s = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, until_s - time.monotonic()))
