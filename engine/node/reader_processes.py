"""The processes of readers, each with one session and a queue of deliveries."""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable
from typing import Final, NamedTuple

from engine.core.name_spaces import Group
from engine.dds.directed import DirectedSession
from engine.dds.errors import ALREADY_DELETED, DdsError
from engine.dds.shared_waits import TOGETHER, Waits, completed, together

Job = Callable[[DirectedSession], Waits[None]]
Failed = Callable[[DdsError], None]


class _Waiting(NamedTuple):
    """A job, what hears of its failure, and its groups if it may go on together with jobs of others."""

    job: Job
    failed: Failed
    groups: frozenset[Group]


MAX_KEPT_SESSIONS: Final = 192
"""Limit for processes with instances kept ALIVE; each needs a Cyclone DDS domain with five threads."""
MAX_KEPT_WRITERS: Final = 100_000
"""Limit for the writers in all of them; beyond either limit delivered instances are NOT_ALIVE_NO_WRITERS."""


class Process:
    """One process, its session while it is needed, and the deliveries that wait."""

    def __init__(self, opens: Callable[[], DirectedSession]) -> None:
        self._opens = opens
        self._lock = threading.Lock()
        self._waiting: collections.deque[_Waiting] = collections.deque()
        self._is_running = False
        self._is_gone = False
        self._session: DirectedSession | None = None
        self.kept = 0
        self.crowd: frozenset[tuple[str, str, str]] = frozenset()

    def put(self, job: Job, failed: Failed, groups: frozenset[Group] = frozenset()) -> bool:
        """Queue a job; return True if the caller must have `work` called on a worker thread.

        Args:
            job: the job.
            failed: called instead if the process cannot be reached.
            groups: the groups that it delivers, if it may be carried out together with jobs of others.
        """
        with self._lock:
            self._waiting.append(_Waiting(job, failed, groups))
            if self._is_running:
                return False
            self._is_running = True
            return True

    def leave(self) -> bool:
        """Note that the process is gone, so that jobs fail soon; return True if `work` must be called."""
        self._is_gone = True
        self._abandon_if_gone()
        with self._lock:
            if self._is_running:
                return False
            self._is_running = True
            return True

    def work(self) -> None:
        """Carry out the jobs in order, and close the session if no writer stays. It blocks."""
        while (task := self._next()) is not None:
            task()

    def _next(self) -> Callable[[], None] | None:
        with self._lock:
            if self._waiting:
                jobs = self._take()
                return lambda: self._carry_out(jobs)
            if self._session is not None and (self._is_gone or not self.kept):
                return self._close
            self._is_running = False
            return None

    def _take(self) -> list[_Waiting]:
        """Take the next job, and those behind it that may be carried out together with it."""
        jobs = [self._waiting.popleft()]
        groups = jobs[0].groups
        while groups and self._waiting and len(jobs) < TOGETHER:
            more = self._waiting[0].groups
            if not more or not groups.isdisjoint(more):
                break
            groups |= more
            jobs.append(self._waiting.popleft())
        return jobs

    def _carry_out(self, jobs: list[_Waiting]) -> None:
        try:
            if self._is_gone:
                raise DdsError(ALREADY_DELETED, "deliver to a process that is gone")
            if self._session is None:
                session = self._opens()
                with self._lock:
                    self._session = session
                self._abandon_if_gone()
            try:
                completed(together(_carried_out(each, self._session) for each in jobs))
            finally:
                self.kept, self.crowd = self._session.kept, self._session.crowd
        except DdsError as error:
            for each in jobs:
                each.failed(error)

    def _abandon_if_gone(self) -> None:
        with self._lock:
            if self._is_gone and self._session is not None:
                self._session.abandon()

    def _close(self) -> None:
        assert self._session is not None
        with self._lock:
            session, self._session = self._session, None
        session.close()
        self.kept, self.crowd = 0, frozenset()


def _carried_out(waiting: _Waiting, session: DirectedSession) -> Waits[None]:
    try:
        yield from waiting.job(session)
    except DdsError as error:
        waiting.failed(error)
