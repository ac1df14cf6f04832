"""Back-ups of replaced sets, as the owner of the store makes them and, on a full disk, gives them up.

A back-up must not prevent anything else from being stored. When a job is refused for want of space
`PATIENCE` times in a row, the oldest back-up of any name-space is dropped, and one more at each further
refusal. When none is left, a set that should have been kept is replaced without a back-up. All is reported.
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Final

from engine.store.interface import SetState, StoreError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.dataset.group_set import Summary
    from engine.store.backups import Replaced
    from engine.store.interface import SetInfo, SetWriter, Store

PATIENCE: Final = 10
"""Refusals in a row, one a second: a disk that is full for a moment costs no back-up."""


@dataclasses.dataclass(frozen=True, slots=True)
class Kept:
    """A set was replaced and stays as set `version` of the store."""

    name_space: str
    version: int
    note: Replaced


@dataclasses.dataclass(frozen=True, slots=True)
class NotKept:
    """A set was replaced and is gone, because there was no space for both."""

    name_space: str
    note: Replaced


@dataclasses.dataclass(frozen=True, slots=True)
class Dropped:
    """A back-up is gone."""

    name_space: str
    version: int
    samples: int
    cause: str


Report = Kept | NotKept | Dropped


class Backups:
    """The back-ups of a store. Its owner's thread uses them.

    Attributes:
        reports: what happened since somebody looked last.
        gives_up: there is no space for a set and its back-up.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._refusals = 0
        self.gives_up = False
        self.reports: list[Report] = []

    def note_for(self, name_space: str, wanted: Summary, keeps: Replaced | None) -> Replaced | None:
        """The note for the present complete set, if it must stay when the wanted one takes its place."""
        before = self._store.complete_set(name_space)
        if keeps is None or before is None or not before.stored.count or before.stored.same_content(wanted):
            return None
        return dataclasses.replace(keeps, before=before.stored.count, after=wanted.count, mark=before.mark)

    def commit(
        self, writer: SetWriter, mark: str, note: Replaced | None, marks: Mapping[str, str | None]
    ) -> SetInfo:
        """Make the writer's version the complete one, with what is remembered beside it.

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
            self.reports.append(Kept(writer.name_space, before.version, note))
        return info

    def not_kept(self, name_space: str, note: Replaced) -> None:
        """A set was replaced without a back-up."""
        self.reports.append(NotKept(name_space, note))

    def went_well(self) -> None:
        """The disk took a job."""
        self._refusals = 0
        self.gives_up = False

    def is_full(self, cause: str) -> None:
        """A job was refused for want of space."""
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
        self.reports.append(Dropped(one.name_space, one.version, one.stored.count, cause))
