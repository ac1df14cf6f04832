"""Back-ups of replaced sets; on a full disk the oldest give way.

A back-up must not prevent anything else from being stored. If the disk refuses a job `PATIENCE` times in a
row for lack of space, the oldest back-up of any name-space is dropped, and another one at each further
refusal. If none is left, the next set is replaced without a back-up. All of this is reported.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Final

import msgspec

from engine.dataset.group_set import Summary
from engine.store.interface import Replaced, SetInfo, SetState, SetWriter, Store, StoreError

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
