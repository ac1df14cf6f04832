"""Queue of jobs for the disk, and its progress.

The runtime never waits for the disk: it hands over jobs and continues. The owner of the store (a thread of
the live node, the simulator's turn) calls `work` to carry them out; the runtime collects `results`.

If the disk refuses (full, read-only, failing), nothing acknowledged is lost: the job stays, the refusal is
reported, and the job is tried again. If too much piles up meanwhile, live changes are not queued any longer;
once the disk takes data again, the whole set is rewritten from memory. If the file is damaged, all sets are
written into a new one.
"""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from engine.core.name_spaces import Group
from engine.dataset.group_set import Summary
from engine.dataset.groups import GroupDescription
from engine.dataset.sample_rows import SampleRows
from engine.runtime.backups import Backups, Report
from engine.runtime.jobs import (
    AppendJob,
    Conversion,
    Degraded,
    EntryJob,
    FillJob,
    Job,
    Recovered,
    Result,
    SetJob,
    SetStored,
    StoredGroups,
    payload_bytes,
)
from engine.runtime.set_writing import WRITE_SAMPLES, SetWriting
from engine.store.interface import (
    GroupChange,
    Marks,
    RememberedFellow,
    Replaced,
    Store,
    StoreDamaged,
    StoreError,
    StoreFull,
)

MAX_QUEUED_CHANGES: Final = 500_000
MAX_GATHERED: Final = 1_000
"""Queued changes of small samples from which on the store does not wait for more."""
MAX_GATHERED_BYTES: Final = 64 << 20
"""Bytes of payloads from which on it does not: half of what may wait for it."""
MAX_NEW_BYTES: Final = 8 << 20
"""Bytes of those that replace nothing, from which on it does not either: to wait would spare no writing."""


class StoreQueue:
    """The queue between a runtime and its store; only the owner of the store calls `work`.

    Args:
        store: the store.
        moved: called after each part of a long job.
    """

    def __init__(self, store: Store, moved: Callable[[], None] = lambda: None) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._jobs: collections.deque[Job] = collections.deque()
        self._results: collections.deque[Result] = collections.deque()
        self._queued = self._queued_bytes = 0
        self._handed_over = 0
        self._carried_out = 0
        self._urgent = 0
        self._has_hurried = False
        self._stored_s = 0.0
        self._mark: tuple[float, int] | None = None
        self._at_work: Job | None = None
        self._problem = ""
        self._overflowed: set[str] = set()
        self._backups = Backups(store)
        self._sets = SetWriting(store, self._backups, moved)

    @property
    def problem(self) -> str:
        """Reason why the disk refuses; empty while it does not."""
        return self._problem

    @property
    def queued_changes(self) -> int:
        """Live changes that are not on the disk yet."""
        return self._queued

    @property
    def queued_bytes(self) -> int:
        """Bytes of the payloads of live changes that are not on the disk yet."""
        return self._queued_bytes

    def refused(self, name_space: str, group: Group) -> int:
        """Return how many samples of a group the disk lacks because it refuses them; -1 if it is not known.

        While it refuses nothing, no one is counted: what waits is about to be written.
        """
        with self._lock:
            if not self._problem:
                return 0
            if name_space in self._overflowed:
                return -1
            jobs = [job for job in self._jobs if isinstance(job, AppendJob) and job.name_space == name_space]
            return sum(job.added(group) for job in jobs)

    @property
    def handed_over(self) -> int:
        """Changes and other jobs handed over so far.

        They are on the disk once `carried_out` is as high, unless changes were not queued (`is_overflowed`).
        """
        return self._handed_over

    @property
    def carried_out(self) -> int:
        """Part of `handed_over` that has been carried out."""
        return self._carried_out

    def unstored_s(self, now: float) -> float:
        """Return the seconds since the moment as of which the disk has everything; 0 if it has everything.

        Args:
            now: monotonic time, seconds; it must not go back between calls.
        """
        if self._mark is not None and self._carried_out >= self._mark[1] and not self._overflowed:
            self._stored_s, self._mark = self._mark[0], None
        if self._carried_out >= self._handed_over and not self._overflowed:
            self._stored_s, self._mark = now, None
        elif self._mark is None and not self._overflowed:
            self._mark = now, self._handed_over
        return now - self._stored_s

    @property
    def may_gather(self) -> bool:
        """Whether the queue is short and not urgent, so that more changes may join the transaction."""
        with self._lock:
            large = replacing = 0  # one that is replaced while it waits need not be written
            for job in self._jobs:
                if not isinstance(job, AppendJob):
                    return False
                large += job.large
                replacing += job.replacing_bytes
            is_little = self._queued - large < MAX_GATHERED and self._queued_bytes < MAX_GATHERED_BYTES
            is_little = is_little and self._queued_bytes - replacing < MAX_NEW_BYTES
            is_asked_for = self._carried_out < self._urgent or bool(self._problem)
            return bool(self._jobs) and is_little and not is_asked_for

    def hurry(self) -> int:
        """Make everything handed over so far urgent, and return `handed_over`."""
        self._urgent = self._handed_over
        return self._urgent

    @property
    def urgent(self) -> int:
        """What `hurry` returned last: somebody waits until `carried_out` is as high."""
        return self._urgent

    @property
    def is_awaited(self) -> bool:
        """Whether somebody waits for the results that `results` would return, or needs to know them at once.

        That live changes are on the disk, which nobody asked for, may be noticed with the next turn.
        """
        with self._lock:
            has_news = any(not isinstance(result, StoredGroups) for result in self._results)
            return has_news or self._has_hurried or bool(self._backups.reports)

    @property
    def is_overflowed(self) -> bool:
        """Whether changes are not queued, so that a whole set must be written first."""
        return bool(self._overflowed)

    @property
    def is_idle(self) -> bool:
        """Whether everything handed over has been carried out."""
        return not self._jobs

    def append(
        self, name_space: str, changes: list[GroupChange], marks: Mapping[str, str] | None = None
    ) -> None:
        """Queue live changes to a complete set.

        Args:
            name_space: its name.
            changes: the changes.
            marks: marks to store with the changes: in the same transaction, or before them.
        """
        if not changes:
            if marks:
                self.mark(name_space, marks)
            return
        with self._lock:
            if self._queued + len(changes) > MAX_QUEUED_CHANGES and self._problem:
                self._overflowed.add(name_space)
            if name_space in self._overflowed:
                return  # the whole set, which is written later, brings its marks
            self._queued += len(changes)
            self._handed_over += len(changes)
            waiting = self._waiting(name_space)
            if waiting is None:
                waiting = AppendJob(name_space, [])
                self._jobs.append(waiting)
            self._queued_bytes += waiting.join(changes)
            waiting.marks |= marks or {}

    def _waiting(self, name_space: str) -> AppendJob | None:
        """Return the job that further changes of a name-space may join, if the order of jobs allows it."""
        for job in reversed(self._jobs):
            if not isinstance(job, AppendJob):
                return None
            if job.name_space == name_space:
                return None if job is self._at_work else job
        return None

    def fill(
        self,
        name_space: str,
        stream: bytes,
        description: GroupDescription,
        samples: SampleRows,
        *,
        resumes: bool = False,
    ) -> None:
        """Queue samples of a set that is still arriving; they count once `write_set` names their stream.

        With `resumes` they join the samples of a stream that broke off, also in a former run.
        """
        with self._lock:
            last = self._jobs[-1] if len(self._jobs) > 1 else None
            if (
                isinstance(last, FillJob)
                and (last.stream, last.description) == (stream, description)
                and len(last.samples) + len(samples) <= WRITE_SAMPLES
            ):
                last.samples += samples
            else:
                self._handed_over += 1
                self._jobs.append(FillJob(name_space, stream, description, samples, resumes))

    def write_set(
        self,
        name_space: str,
        groups: Iterable[tuple[GroupDescription, SampleRows]],
        wanted: Summary,
        mark: str,
        conversion: Conversion | None = None,
        *,
        marks: Mapping[str, str] | None = None,
        keeps: Replaced | None = None,
    ) -> None:
        """Replace the stored set by another one, in one transaction.

        The store writes nothing if it has the set already, and only the `conversion` if that leads to it.

        Args:
            name_space: its name.
            groups: samples of the set, by group.
            wanted: summary of the set.
            mark: its lineage.
            conversion: changes that turn the stored set into this one.
            marks: marks to store in the same transaction.
            keeps: note with which the stored set stays as a back-up, unless it is empty or equal.
        """
        with self._lock:
            self._overflowed.discard(name_space)
            self._handed_over += 1
            self._jobs.append(SetJob(name_space, list(groups), wanted, mark, marks or {}, conversion, keeps))

    def mark(self, name_space: str, marks: Marks) -> None:
        """Queue marks of a name-space."""
        self._queue_entry(name_space, lambda store: store.mark(name_space, marks))

    def _queue_entry(self, name_space: str, write: Callable[[Store], None]) -> None:
        with self._lock:
            self._handed_over += 1
            self._jobs.append(EntryJob(name_space, write))

    def outlive(self, name_space: str, incarnation: int, commits: int) -> None:
        """Queue that the store counts on above what fellows remember; see `Store.outlive`.

        Args:
            name_space: any of its name-spaces, for which a refusal of the disk is reported.
            incarnation: number of a run.
            commits: number of transactions.
        """
        self._queue_entry(name_space, lambda store: store.outlive(incarnation, commits))

    @property
    def commits(self) -> int:
        """Transactions of the store so far; another thread may be at the next one."""
        return self._store.commits

    def remember_fellows(self, name_space: str, fellows: tuple[RememberedFellow, ...]) -> None:
        """Queue the fellows to wait for at the next start."""
        self._queue_entry(name_space, lambda store: store.remember_fellows(name_space, fellows))

    def results(self) -> list[Result]:
        """Take the results since the last call."""
        if not self._results and not self._has_hurried:
            return []
        with self._lock:
            taken = list(self._results)
            self._results.clear()
            self._has_hurried = False
            return taken

    def backup_reports(self) -> list[Report]:
        """Take the reports on back-ups since the last call."""
        if not self._backups.reports:
            return []
        with self._lock:
            taken, self._backups.reports = self._backups.reports, []
            return taken

    def work(self) -> bool:
        """Carry out the next job; False if there is none or the disk refused it."""
        with self._lock:
            job = self._at_work = self._jobs[0] if self._jobs else None
            batch = job.batch() if isinstance(job, AppendJob) else []
        if job is None:
            return False
        try:
            result = self._carry_out(job, batch)
        except StoreError as error:
            if isinstance(error, StoreFull):
                self._backups.is_full(str(error))
            if isinstance(error, StoreDamaged) and self._replace_damaged_store(job.name_space, error):
                return True
            self._at_work = None
            self._refused(job.name_space, str(error))
            return False
        self._backups.went_well()
        self._done(job, result)
        return True

    def check(self) -> None:
        """Notice while there is nothing to do that the store was taken away, or is back; write all again."""
        if not self.is_idle:
            return
        name = next(iter(self._store.name_spaces()), "")
        try:
            self._store.check_in_place()
        except StoreError as error:
            if not (isinstance(error, StoreDamaged) and self._replace_damaged_store(name, error)):
                self._refused(name, str(error))
            return
        with self._lock:
            if self._problem:
                self._problem = ""
                self._results.append(Recovered(name, rewrite=False))

    def _carry_out(self, job: Job, batch: list[GroupChange]) -> Result | None:
        match job:
            case AppendJob():
                stored = self._store.append(job.name_space, batch, job.marks)
                return StoredGroups(job.name_space, stored, len(batch))
            case FillJob():
                self._sets.fill(job)
            case SetJob():
                written, watermarks = self._sets.write(job)
                with self._lock:
                    self._results.append(StoredGroups(job.name_space, watermarks))
                return SetStored(job.name_space, written)
            case EntryJob():
                job.write(self._store)
        return None

    def _done(self, job: Job, result: Result | None) -> None:
        with self._lock:
            self._at_work = None
            self._has_hurried |= self._carried_out < self._urgent
            waited = self._queued
            if isinstance(job, AppendJob):
                batch = job.batch()
                job.done(len(batch))
                self._queued -= len(batch)
                self._queued_bytes -= payload_bytes(batch)
                self._carried_out += len(batch)
            else:
                self._carried_out += 1
            assert self._queued >= 0, "a change is taken off once"
            assert self._carried_out <= self._handed_over, "nothing is on the disk that was not handed over"
            if not isinstance(job, AppendJob) or not job.changes:
                self._jobs.popleft()
            if result is not None:
                self._results.append(result)
            if self._problem:
                self._problem = ""
                for name_space in {job.name_space, *self._overflowed}:
                    self._results.append(Recovered(name_space, name_space in self._overflowed, waited))

    def _replace_damaged_store(self, name_space: str, damage: StoreDamaged) -> bool:
        """Continue with a new file and ask for all sets, which are in memory; False if that fails."""
        try:
            lost = {name_space, *self._store.name_spaces()}
            aside = self._store.replace_damaged()
        except StoreError:
            return False
        self._sets.forget()
        with self._lock:
            left: collections.deque[Job] = collections.deque()
            for job in self._jobs:
                if isinstance(job, AppendJob):
                    self._queued -= len(job.changes)
                    self._queued_bytes -= payload_bytes(job.changes)
                    self._carried_out += len(job.changes)
                else:
                    left.append(job)
            self._jobs = left
            lost |= {job.name_space for job in left}
            self._overflowed |= lost
            aside = f"it was put aside as {aside}, and " if aside else ""
            cause = f"{damage}; {aside}all sets are rewritten"
            self._results.append(Degraded(name_space, cause))
            self._results.extend(Recovered(name, rewrite=True) for name in sorted(lost))
            self._problem = ""
        return True

    def _refused(self, name_space: str, cause: str) -> None:
        with self._lock:
            if not self._problem:
                self._results.append(Degraded(name_space, cause))
            self._problem = cause
