"""Writing whole sets into a store: from streams that arrive in parts, by their difference, or from memory."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Final

from engine.core.name_spaces import Group
from engine.dataset.group_set import Summary
from engine.dataset.groups import GroupDescription
from engine.dataset.sample import Sample
from engine.runtime.backups import Backups
from engine.runtime.jobs import Conversion, FillJob, SetJob
from engine.store.interface import (
    GroupChange,
    Replaced,
    SetInfo,
    SetState,
    SetWriter,
    Soundness,
    Store,
    StoreError,
)

WRITE_SAMPLES: Final = 50_000
"""Samples that are handed to the store at a time."""
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
