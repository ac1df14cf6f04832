"""What has to reach the disk, in order, and how far it has come.

The runtime never waits for the disk: it hands over jobs and goes on. Whoever owns the store (a thread of the
live node, the simulator's turn) calls `work` and so carries them out; results are taken back with `results`.

A disk that refuses (full, read-only, failing) loses nothing that was acknowledged: the job stays, it is said
loudly, and tried again. If too much piles up meanwhile, live changes are not queued any longer; once the
disk takes data again, the whole set is written anew from memory.
"""

from __future__ import annotations

import collections
import dataclasses
import threading
from typing import TYPE_CHECKING, Final

from engine.store.interface import Fellow, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from engine.core.namespaces import Group
    from engine.dataset.dataset import Summary
    from engine.dataset.groups import GroupDescription
    from engine.dataset.sample import Sample
    from engine.store.interface import Change, Store

MAX_QUEUED_CHANGES: Final = 500_000
BATCH_CHANGES: Final = 20_000
"""Changes that go into one transaction at most."""
WRITE_SAMPLES: Final = 50_000


@dataclasses.dataclass(slots=True)
class _Append:
    name_space: str
    changes: list[Change]


@dataclasses.dataclass(frozen=True, slots=True)
class _WriteSet:
    name_space: str
    groups: list[tuple[GroupDescription, list[Sample]]]
    mark: str


@dataclasses.dataclass(frozen=True, slots=True)
class _Mark:
    name_space: str
    key: str
    value: str


@dataclasses.dataclass(frozen=True, slots=True)
class _Fellows:
    name_space: str
    fellows: tuple[Fellow, ...]


_Job = _Append | _WriteSet | _Mark | _Fellows


@dataclasses.dataclass(frozen=True, slots=True)
class Stored:
    """These groups have reached the disk up to here."""

    name_space: str
    watermarks: dict[Group, Summary]


@dataclasses.dataclass(frozen=True, slots=True)
class SetStored:
    """The complete set of a name-space was switched to what was handed over."""

    name_space: str


@dataclasses.dataclass(frozen=True, slots=True)
class Degraded:
    """The disk refuses: data is in memory only from here on."""

    name_space: str
    cause: str


@dataclasses.dataclass(frozen=True, slots=True)
class Recovered:
    """The disk takes data again. `rewrite` asks for the whole set, because changes were not queued."""

    name_space: str
    rewrite: bool


Result = Stored | SetStored | Degraded | Recovered


class Persistence:
    """The queue between a runtime and its store. `work` is called by the store's owner only."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._jobs: collections.deque[_Job] = collections.deque()
        self._results: collections.deque[Result] = collections.deque()
        self._queued = 0
        self._handed_over = 0
        self._carried_out = 0
        self._problem = ""
        self._overflowed: set[str] = set()

    @property
    def problem(self) -> str:
        """Why the disk refuses, empty while it does not."""
        return self._problem

    @property
    def queued_changes(self) -> int:
        """Live changes that are not on the disk yet."""
        return self._queued

    @property
    def handed_over(self) -> int:
        """How much was handed over so far: changes, and everything else as one each.

        It is on the disk once `carried_out` is as high, unless changes were not queued (`is_overflowed`).
        """
        return self._handed_over

    @property
    def carried_out(self) -> int:
        """How much of `handed_over` has been carried out."""
        return self._carried_out

    @property
    def is_overflowed(self) -> bool:
        """Whether changes are not queued, so that a whole set has to be written first."""
        return bool(self._overflowed)

    @property
    def is_idle(self) -> bool:
        """Whether everything handed over has been carried out."""
        return not self._jobs

    def append(self, name_space: str, changes: list[Change]) -> None:
        """Live changes to a complete set; without any, there need not be a set."""
        if not changes:
            return
        with self._lock:
            if self._queued + len(changes) > MAX_QUEUED_CHANGES and self._problem:
                self._overflowed.add(name_space)
            if name_space in self._overflowed:
                return
            self._queued += len(changes)
            self._handed_over += len(changes)
            last = self._jobs[-1] if self._jobs else None
            if isinstance(last, _Append) and last.name_space == name_space and len(self._jobs) > 1:
                last.changes += changes
            else:
                self._jobs.append(_Append(name_space, list(changes)))

    def write_set(
        self, name_space: str, groups: Iterable[tuple[GroupDescription, list[Sample]]], mark: str
    ) -> None:
        """A new complete set; it replaces the stored one in a single transaction."""
        with self._lock:
            self._overflowed.discard(name_space)
            self._handed_over += 1
            self._jobs.append(_WriteSet(name_space, list(groups), mark))

    def mark(self, name_space: str, key: str, value: str) -> None:
        """Something to remember for a name-space."""
        with self._lock:
            self._handed_over += 1
            self._jobs.append(_Mark(name_space, key, value))

    def remember_fellows(self, name_space: str, fellows: tuple[Fellow, ...]) -> None:
        """The fellows to wait for at the next start."""
        with self._lock:
            self._handed_over += 1
            self._jobs.append(_Fellows(name_space, fellows))

    def results(self) -> list[Result]:
        """What has happened since the last call."""
        with self._lock:
            taken = list(self._results)
            self._results.clear()
            return taken

    def work(self) -> bool:
        """Carry out the next job; False when there is none, or when the disk refused it."""
        with self._lock:
            job = self._jobs[0] if self._jobs else None
            if isinstance(job, _Append):  # take a transaction's worth; the rest may still grow
                batch = job.changes[:BATCH_CHANGES]
        if job is None:
            return False
        try:
            result = self._append(job.name_space, batch) if isinstance(job, _Append) else self._carry_out(job)
        except StoreError as error:
            self._refused(job.name_space, str(error))
            return False
        self._done(job, result)
        return True

    def _append(self, name_space: str, changes: list[Change]) -> Result | None:
        return Stored(name_space, self._store.append(name_space, changes))

    def _carry_out(self, job: _WriteSet | _Mark | _Fellows) -> Result | None:
        if isinstance(job, _WriteSet):
            self._write(job)
            return SetStored(job.name_space)
        if isinstance(job, _Mark):
            self._store.mark(job.name_space, job.key, job.value)
        else:
            self._store.remember_fellows(job.name_space, job.fellows)
        return None

    def _write(self, job: _WriteSet) -> None:
        writer = self._store.begin_set(job.name_space)
        for description, samples in job.groups:
            writer.add(description, ())
            for start in range(0, len(samples), WRITE_SAMPLES):
                writer.add(description, samples[start : start + WRITE_SAMPLES])
        info = self._store.commit_complete(writer, job.mark)
        watermarks = {group.description.group: group.stored for group in info.groups}
        with self._lock:
            self._results.append(Stored(job.name_space, watermarks))

    def _done(self, job: _Job, result: Result | None) -> None:
        with self._lock:
            if isinstance(job, _Append):
                count = min(BATCH_CHANGES, len(job.changes))
                del job.changes[:count]
                self._queued -= count
                self._carried_out += count
            else:
                self._carried_out += 1
            if not isinstance(job, _Append) or not job.changes:
                self._jobs.popleft()
            if result is not None:
                self._results.append(result)
            if self._problem:
                self._problem = ""
                for name_space in {job.name_space, *self._overflowed}:
                    self._results.append(Recovered(name_space, name_space in self._overflowed))

    def _refused(self, name_space: str, cause: str) -> None:
        with self._lock:
            if not self._problem:
                self._results.append(Degraded(name_space, cause))
            self._problem = cause
