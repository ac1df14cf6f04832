"""The queue between a runtime and its store, and what the store's thread makes of it.

The runtime never waits for the disk: it hands over jobs and continues. The owner of the store (a thread of
the live node, the simulator's turn) calls `StoreQueue.work` to carry them out; the runtime takes `results`.

Live changes wait as their net effect (`NetChanges`), one job for each transaction: what comes and goes before
it is written is never written. `SetWriting` writes whole sets: from streams that arrive in parts, by their
difference, or from memory. `Backups` keeps sets that are replaced.

If the disk refuses (full, read-only, failing), nothing acknowledged is lost: the job stays, the refusal is
reported, and the job is tried again. If too much piles up meanwhile, live changes are not queued any longer;
once the disk takes data again, the whole set is rewritten from memory. If the file is damaged, all sets are
written into a new one.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from engine.core.name_spaces import Group
from engine.dataset.group_set import Summary
from engine.dataset.groups import GroupDescription
from engine.dataset.sample import Sample
from engine.dataset.sample_rows import SampleRows
from engine.store.interface import (
    GroupChange,
    Marks,
    NetChanges,
    RememberedFellow,
    Replaced,
    SetInfo,
    SetState,
    SetWriter,
    Soundness,
    Store,
    StoreDamaged,
    StoreError,
    StoreFull,
)

# As many as one drain of the taps brings (`engine.node.intake.DRAIN`). Larger transactions are hardly
# faster, and a crash loses more.
BATCH_CHANGES: Final = 20_000
"""Changes in one transaction at most."""
# 2.5 times what waits before capture pauses in health: while the disk refuses, capture goes on.
MAX_QUEUED_CHANGES: Final = 500_000
"""Changes that may wait while the disk refuses; with more, the whole set is rewritten later instead."""
# From there the cost of the transaction is small beside that of its rows. Chosen.
MAX_GATHERED: Final = 1_000
"""Queued changes of small samples from which on the store does not wait for more."""
MAX_GATHERED_BYTES: Final = 64 << 20
"""Bytes of payloads from which on it does not: half of what may wait for it."""
# Chosen: a tenth of a second of writing, which can begin at once.
MAX_NEW_BYTES: Final = 8 << 20
"""Bytes of those that replace nothing, from which on it does not either: to wait would spare no writing."""


class AppendJob(msgspec.Struct):
    """Live changes to a complete set, at most `BATCH_CHANGES`; more may join until the job starts.

    `marks` are stored with them.
    """

    name_space: str
    net: NetChanges = msgspec.field(default_factory=NetChanges)
    marks: dict[str, str] = msgspec.field(default_factory=dict)


class FillJob(msgspec.Struct):
    """Samples of a set that is still arriving, in the stream of that number."""

    name_space: str
    stream: bytes
    description: GroupDescription
    samples: SampleRows
    resumes: bool


class Conversion(msgspec.Struct, frozen=True):
    """Changes that turn the stored set into another one, instead of writing all of it.

    Attributes:
        changes: difference from what arrived in `stream` or, without a stream, from the set `before`.
        stream: number of the stream whose samples were handed over while they arrived.
        before: the stored set to which `changes` apply.
        rest: samples to add to those of the stream, because they were here before.
    """

    changes: list[GroupChange]
    stream: bytes = b""
    before: Summary | None = None
    rest: list[tuple[GroupDescription, SampleRows]] = msgspec.field(default_factory=list)


class SetJob(msgspec.Struct, frozen=True):
    """A whole set, which replaces the stored one."""

    name_space: str
    groups: list[tuple[GroupDescription, SampleRows]]
    wanted: Summary
    mark: str
    marks: Mapping[str, str]
    conversion: Conversion | None
    keeps: Replaced | None


class EntryJob(msgspec.Struct, frozen=True):
    """One small transaction beside the samples; `write` is a call of the store."""

    name_space: str
    write: Callable[[Store], None]


Job = AppendJob | FillJob | SetJob | EntryJob


class StoredGroups(msgspec.Struct, frozen=True):
    """Content of groups that is on the disk; `changes` counts those that were just written."""

    name_space: str
    watermarks: dict[Group, Summary]
    changes: int = 0


class SetStored(msgspec.Struct, frozen=True):
    """The complete set of a name-space is on the disk; `written` samples were needed for it."""

    name_space: str
    written: int


class Degraded(msgspec.Struct, frozen=True):
    """The disk refuses jobs, so new data is in memory only."""

    name_space: str
    cause: str


class Recovered(msgspec.Struct, frozen=True):
    """The disk takes jobs again; `rewrite` asks for the whole set, because changes were not queued.

    `waited` counts the changes that had to wait, of all name-spaces.
    """

    name_space: str
    rewrite: bool
    waited: int = 0


Result = StoredGroups | SetStored | Degraded | Recovered

# Chosen: a back-up is a whole former set, and cannot be made again.
PATIENCE: Final = 10
"""Successive refusals, one per second, so that a disk that is full for a moment costs no back-up."""


class BackupKept(msgspec.Struct, frozen=True):
    """A replaced set stays as set `version` of the store."""

    name_space: str
    version: int
    note: Replaced


class BackupMissing(msgspec.Struct, frozen=True):
    """A replaced set is lost, because there was no space for both."""

    name_space: str
    note: Replaced


class BackupDropped(msgspec.Struct, frozen=True):
    """A back-up was dropped."""

    name_space: str
    version: int
    samples: int
    cause: str


Report = BackupKept | BackupMissing | BackupDropped


class Backups:
    """The back-ups of a store, for the thread that owns it.

    Attributes:
        reports: events that have not been traced yet.
        gives_up: the disk has no space for a set and its back-up.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._refusals = 0
        self.gives_up = False
        self.reports: list[Report] = []

    def note_for(self, name_space: str, wanted: Summary, keeps: Replaced | None) -> Replaced | None:
        """Return the note on the present complete set if it must stay when the wanted one replaces it."""
        before = self._store.complete_set(name_space)
        if keeps is None or before is None or not before.stored.count or before.stored.same_content(wanted):
            return None
        return msgspec.structs.replace(
            keeps, before=before.stored.count, after=wanted.count, mark=before.mark
        )

    def commit(
        self, writer: SetWriter, mark: str, note: Replaced | None, marks: Mapping[str, str | None]
    ) -> SetInfo:
        """Make the writer's version the complete one, together with its marks.

        With a note, the present one stays as a back-up.
        """
        before = self._store.complete_set(writer.name_space)
        kept = self._kept(writer.name_space)
        kept_as = note.to_mark() if note else None
        info = self._store.commit_complete(writer, mark, keep_previous=kept_as, marks=marks)
        left = {one.version for one in self._kept(writer.name_space)}
        for one in kept:
            if one.version not in left:
                self._tell_dropped(one, "a newer back-up takes its place")
        if note is not None and before is not None:
            self.reports.append(BackupKept(writer.name_space, before.version, note))
        return info

    def not_kept(self, name_space: str, note: Replaced) -> None:
        """Report a set that was replaced without a back-up."""
        self.reports.append(BackupMissing(name_space, note))

    def went_well(self) -> None:
        """Note that the disk took a job."""
        self._refusals = 0
        self.gives_up = False

    def is_full(self, cause: str) -> None:
        """Note that the disk refused a job for lack of space, and make room after `PATIENCE` refusals."""
        self._refusals += 1
        # The full disk may refuse even this; the next refusal, a second later, tries it again.
        with contextlib.suppress(StoreError):
            if self._refusals >= PATIENCE:
                self._give_way(cause)
            while self._store.tidy():
                pass

    def _give_way(self, cause: str) -> None:
        kept = [one for name in self._store.name_spaces() for one in self._kept(name)]
        if not kept:
            self.gives_up = True
            return
        oldest = min(kept, key=lambda one: one.version)
        self._store.drop_backup(oldest.version)
        self._tell_dropped(oldest, cause)

    def _kept(self, name_space: str) -> list[SetInfo]:
        return [one for one in self._store.sets(name_space) if one.state is SetState.KEPT]

    def _tell_dropped(self, one: SetInfo, cause: str) -> None:
        self.reports.append(BackupDropped(one.name_space, one.version, one.stored.count, cause))


# The thread reports its progress between two portions, and each takes a fraction of a second.
WRITE_SAMPLES: Final = 50_000
"""Samples that are handed to the store at a time."""
# Not measured closely: changing or removing a row costs more than inserting one in order.
WORTH_CHANGING: Final = 0.3
"""Part of a set above which rewriting it is faster than changing it."""


class SetWriting:
    """Writes the whole sets of a store, for the thread that owns it.

    Args:
        store: the store.
        backups: keeps sets that are replaced.
        moved: called after each part of a set.
    """

    def __init__(self, store: Store, backups: Backups, moved: Callable[[], None]) -> None:
        self._store = store
        self._backups = backups
        self._moved = moved
        self._filling: dict[str, tuple[bytes, SetWriter]] = {}

    def forget(self) -> None:
        """Forget the parts of sets that a store had which is no longer there."""
        self._filling.clear()

    def fill(self, job: FillJob) -> None:
        """Write samples of a set that is still arriving.

        Raises:
            StoreError: the store did not take them.
        """
        filling = self._filling.get(job.name_space)
        if filling is None or filling[0] != job.stream:
            former = self._former(job.name_space) if job.resumes else None
            filling = job.stream, former or self._store.begin_set(job.name_space)
            self._filling[job.name_space] = filling
        filling[1].add(job.description, job.samples)

    def _former(self, name_space: str) -> SetWriter | None:
        """Return the writer of a stream that broke off, if its samples are intact."""
        for info in self._store.sets(name_space):
            if info.state is SetState.FILLING and info.soundness is Soundness.INTACT:
                return self._store.filling(name_space)
        return None

    def write(self, job: SetJob) -> tuple[int, dict[Group, Summary]]:
        """Turn the stored set into the job's at the least cost.

        Returns:
            How many samples were written, and what each group has in the store now.

        Raises:
            StoreError: the store did not take it.
        """
        note = self._backups.note_for(job.name_space, job.wanted, job.keeps)
        kept = None if self._backups.gives_up else note
        written = self._convert(job, kept)
        info = self._store.complete_set(job.name_space)
        if written is None or info is None or not info.stored.same_content(job.wanted):
            info, written = self._write_whole(job, kept), job.wanted.count
        if note is not None and kept is None:
            self._backups.not_kept(job.name_space, note)
        return written, {group.description.group: group.stored for group in info.groups}

    def _convert(self, job: SetJob, note: Replaced | None) -> int | None:
        """Write the job's conversion if it fits the stored set; None if the whole set must be written."""
        conversion, info = job.conversion, self._store.complete_set(job.name_space)
        stored = info.stored if info is not None and info.soundness is Soundness.INTACT else None
        filling = self._filling.get(job.name_space)
        if stored is not None and stored.same_content(job.wanted):
            changes: list[GroupChange] = []
        elif (
            conversion is not None
            and conversion.stream
            and filling is not None
            and filling[0] == conversion.stream
        ):
            return self._finish(job, filling[1], conversion, note)
        elif (
            note is None
            and conversion is not None
            and stored is not None
            and conversion.before is not None
            and stored.same_content(conversion.before)
            and len(conversion.changes) <= WORTH_CHANGING * stored.count
        ):
            changes = conversion.changes
        else:
            return None
        assert info is not None
        known = {group.description for group in info.groups}
        declared = [
            GroupChange(description, None) for description, _ in job.groups if description not in known
        ]
        remembered = self._store.marks(job.name_space)
        if changes or declared or any(remembered.get(key) != value for key, value in job.marks.items()):
            self._store.append(job.name_space, [*changes, *declared], job.marks)
        left = self._store.filling(job.name_space)
        if left is not None:
            self._store.abandon(left)
        self._filling.pop(job.name_space, None)
        return len(changes)

    def _finish(
        self, job: SetJob, writer: SetWriter, conversion: Conversion, note: Replaced | None
    ) -> int | None:
        for description, _ in job.groups:
            writer.add(description, ())
        for description, samples in conversion.rest:
            for some in samples.split(WRITE_SAMPLES):
                writer.add(description, some)
                self._moved()
        by_group: dict[Group, tuple[GroupDescription, list[Sample], list[Sample]]] = {}
        for description, added, evicted in conversion.changes:
            _, comes, goes = by_group.setdefault(description.group, (description, [], []))
            comes += () if added is None else (added,)
            goes += evicted
        for description, comes, goes in by_group.values():
            writer.add(description, comes, goes)
        if not writer.stored.same_content(job.wanted):
            return None
        self._backups.commit(writer, job.mark, note, job.marks)
        del self._filling[job.name_space]
        return job.wanted.count

    def _write_whole(self, job: SetJob, note: Replaced | None) -> SetInfo:
        self._filling.pop(job.name_space, None)
        writer = self._store.begin_set(job.name_space)
        try:
            for description, samples in job.groups:
                writer.add(description, ())
                for some in samples.split(WRITE_SAMPLES):
                    writer.add(description, some)
                    self._moved()
            return self._backups.commit(writer, job.mark, note, job.marks)
        except StoreError:
            with contextlib.suppress(StoreError):
                self._store.abandon(writer)  # its own first part may fill the disk
            raise


class StoreQueue:
    """The queue between a runtime and its store; only the owner of the store calls `work`.

    Args:
        store: the store.
        moved: called after each part of a long job.
    """

    def __init__(self, store: Store, moved: Callable[[], None] = lambda: None) -> None:
        self._store = store
        # Held for moments only, never while the disk works: the node's thread must not wait for the disk.
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
            lacking: set[bytes] = set()
            for job in self._jobs:
                if isinstance(job, AppendJob) and job.name_space == name_space and group in job.net.groups:
                    net = job.net.groups[group]
                    lacking = (lacking - net.evicted.keys() - net.passing.keys()) | net.added.keys()
            return len(lacking)

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
                large += job.net.large
                replacing += job.net.replacing_bytes
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
            # Further changes may join the last job of their name-space, unless it is being carried out or a
            # job of another kind came after it, which may be the set that they change.
            appending = itertools.takewhile(lambda job: isinstance(job, AppendJob), reversed(self._jobs))
            last = next((job for job in appending if job.name_space == name_space), None)
            waiting = last if isinstance(last, AppendJob) and last is not self._at_work else None
            while changes:
                if waiting is None or waiting.net.count >= BATCH_CHANGES:
                    waiting = AppendJob(name_space)
                    self._jobs.append(waiting)
                waiting.marks |= marks or {}
                marks = None  # with the first of the changes: they must reach the disk no later than these
                some = changes[: BATCH_CHANGES - waiting.net.count]
                changes = changes[len(some) :]
                self._queued_bytes -= waiting.net.payload_bytes
                waiting.net.extend(some)
                self._queued_bytes += waiting.net.payload_bytes

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
        if job is None:
            return False
        result: Result | None = None
        try:
            match job:
                case AppendJob():
                    stored = self._store.append(job.name_space, job.net, job.marks)
                    result = StoredGroups(job.name_space, stored, job.net.count)
                case FillJob():
                    self._sets.fill(job)
                case SetJob():
                    written, watermarks = self._sets.write(job)
                    with self._lock:
                        self._results.append(StoredGroups(job.name_space, watermarks))
                    result = SetStored(job.name_space, written)
                case EntryJob():
                    job.write(self._store)
        except StoreError as error:  # the job stays the first one, and is tried again
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

    def _done(self, job: Job, result: Result | None) -> None:
        with self._lock:
            self._at_work = None
            self._has_hurried |= self._carried_out < self._urgent
            waited = self._queued
            assert self._jobs[0] is job, "jobs are carried out in order"
            self._jobs.popleft()
            if isinstance(job, AppendJob):
                self._count_out(job)
            else:
                self._carried_out += 1
            assert self._carried_out <= self._handed_over, "nothing is on the disk that was not handed over"
            if result is not None:
                self._results.append(result)
            if self._problem:
                self._problem = ""
                for name_space in {job.name_space, *self._overflowed}:
                    self._results.append(Recovered(name_space, name_space in self._overflowed, waited))

    def _count_out(self, job: AppendJob) -> None:
        """Count changes as carried out; they are on the disk, or a whole set that has them will be."""
        self._queued -= job.net.count
        self._queued_bytes -= job.net.payload_bytes
        self._carried_out += job.net.count
        assert self._queued >= 0, "a change is taken off once"
        assert self._queued_bytes >= 0, "as are its bytes"

    def _replace_damaged_store(self, name_space: str, damage: StoreDamaged) -> bool:
        """Continue with a new file and ask for all sets, which are in memory; False if that fails."""
        try:
            lost = {name_space, *self._store.name_spaces()}
            aside = self._store.replace_damaged()
        except StoreError:  # then the job stays refused, and the caller reports the damage
            return False
        self._sets.forget()
        with self._lock:
            left: collections.deque[Job] = collections.deque()
            for job in self._jobs:
                if isinstance(job, AppendJob):
                    self._count_out(job)
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
