"""The processes of readers, each with one session and a queue of deliveries."""

from __future__ import annotations

import collections
import threading
from typing import TYPE_CHECKING, Final

from engine.dds.errors import ALREADY_DELETED, DdsError

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.dds.directed import DirectedSession

    Job = Callable[[DirectedSession], None]
    Failed = Callable[[DdsError], None]

MAX_KEPT_SESSIONS: Final = 192
"""Limit for processes with instances kept ALIVE; each needs a Cyclone DDS domain with five threads."""
MAX_KEPT_WRITERS: Final = 100_000
"""Limit for the writers in all of them; beyond either limit delivered instances are NOT_ALIVE_NO_WRITERS."""


class Process:
    """One process, its session while it is needed, and the deliveries that wait."""

    def __init__(self, opens: Callable[[], DirectedSession]) -> None:
        self._opens = opens
        self._lock = threading.Lock()
        self._waiting: collections.deque[tuple[Job, Failed]] = collections.deque()
        self._is_running = False
        self._is_gone = False
        self._session: DirectedSession | None = None
        self.kept = 0
        self.crowd: frozenset[tuple[str, str, str]] = frozenset()

    def put(self, job: Job, failed: Failed) -> bool:
        """Queue a job; return True if the caller must have `work` called on a worker thread."""
        with self._lock:
            self._waiting.append((job, failed))
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
                job, failed = self._waiting.popleft()
                return lambda: self._carry_out(job, failed)
            if self._session is not None and (self._is_gone or not self.kept):
                return self._close
            self._is_running = False
            return None

    def _carry_out(self, job: Job, failed: Failed) -> None:
        try:
            if self._is_gone:
                raise DdsError(ALREADY_DELETED, "deliver to a process that is gone")
            if self._session is None:
                session = self._opens()
                with self._lock:
                    self._session = session
                self._abandon_if_gone()
            try:
                job(self._session)
            finally:
                self.kept, self.crowd = self._session.kept, self._session.crowd
        except DdsError as error:
            failed(error)

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
