"""What the engine asks of a place where sets live; memory and SQLite both answer it.

A *set version* is one copy of a name-space's data. At most one version per name-space is complete and at
most one is filling; the complete one stays until the filling one takes its place in a single transaction,
which is the back-up set of deployment guide 5.4.4. One that is filling when its node ends stays, too. At most
`MAX_BACKUPS` former complete sets are kept beside them (5.2.3.3). A version is identified by a number that is
never used again in one store.

A store belongs to the thread that opened it. It starts no threads and waits for nothing but the disk, so
that its owner decides where the waiting happens; another thread opens its own read-only view instead.
"""

from __future__ import annotations

import dataclasses
import enum
import errno
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

from engine.dataset.dataset import weight_of
from engine.dataset.group_set import Summary

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from engine.core.namespaces import Group
    from engine.dataset.groups import GroupDescription
    from engine.dataset.rows import Rows, Samples
    from engine.dataset.sample import Sample


class StoreError(Exception):
    """Anything that keeps a store from doing what was asked; nothing acknowledged is lost by it."""


class StoreFull(StoreError):
    """No space is left. The transaction did not happen; the same call works again when space returns."""


class StoreFailed(StoreError):
    """The medium refused: an I/O error, a read-only file system, missing permission. Nothing was changed."""


def refused(path: Path, error: OSError, what: str = "") -> StoreFull | StoreFailed:
    """The store error that an error of the operating system stands for."""
    kind = StoreFull if error.errno in (errno.ENOSPC, errno.EDQUOT) else StoreFailed
    return kind(f"{path}: {what}{error.strerror}")


class StoreDamaged(StoreError):
    """The file is not a readable store any more."""


class StoreRefused(StoreError):
    """The store is sound but not for us: a newer format, or not a store of ospltool at all."""


class LockedStore(StoreRefused):
    """Another node has the store open; the message says which.

    Attributes:
        pid: process id of the holder, 0 when its note could not be read.
        node: name of the holder.
        since_ns: when it opened the store, nanoseconds since 1970 UTC.
    """

    def __init__(self, message: str, pid: int, node: str, since_ns: int) -> None:
        super().__init__(message)
        self.pid = pid
        self.node = node
        self.since_ns = since_ns


class SetState(enum.StrEnum):
    """What a set version is good for."""

    COMPLETE = "complete"
    FILLING = "filling"
    KEPT = "kept"
    """A back-up: a former complete set, which a merge or an operator replaced; see `engine.store.backups`."""


class Soundness(enum.StrEnum):
    """Whether the samples of a set version are known to be what was once written."""

    UNVERIFIED = "unverified"
    INTACT = "intact"
    DAMAGED = "damaged"


class Damage(NamedTuple):
    """One thing that is not as it was written: where, and what is wrong with it."""

    place: str
    reason: str

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}"


MAX_BACKUPS: Final = 2
"""Back-ups of a name-space that a store keeps; one more drops the oldest."""

Marks: TypeAlias = "Mapping[str, str | None]"
"""Values to remember for a name-space, by key; None forgets one."""
NO_MARKS: Final[Marks] = {}
MAX_DAMAGE_KEPT: Final = 1_000


class DamageLog:
    """Collects damage; of more than `MAX_DAMAGE_KEPT` the first are kept and all are counted."""

    __slots__ = ("count", "first")

    def __init__(self) -> None:
        self.count = 0
        self.first: list[Damage] = []

    def add(self, place: str, reason: str) -> None:
        """Note one damage."""
        self.count += 1
        if len(self.first) < MAX_DAMAGE_KEPT:
            self.first.append(Damage(place, reason))


class Fellow(NamedTuple):
    """A fellow of the last run: 128-bit id as 32 hexadecimal characters, name, role."""

    id: str
    name: str
    role: str


class Change(NamedTuple):
    """What one call of `GroupSet.apply` or `remove_instance` did to a group.

    `added` is None when samples only went away.
    """

    description: GroupDescription
    added: Sample | None
    evicted: Sequence[Sample] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class GroupInfo:
    """A group of a set version with its stored watermark: what of it is on disk."""

    description: GroupDescription
    stored: Summary


@dataclasses.dataclass(frozen=True, slots=True)
class SetInfo:
    """One set version.

    Attributes:
        version: number of this version, larger than every earlier one.
        mark: what the owner wrote at `commit_complete`, such as a merge id.
        stored: roll-up of all groups.
        groups: in the order of their names.
        soundness: see `Store.load`.
    """

    version: int
    name_space: str
    state: SetState
    mark: str
    stored: Summary
    groups: tuple[GroupInfo, ...]
    soundness: Soundness

    @property
    def quality_ns(self) -> int | None:
        """Newest source timestamp, 0 for an empty set; None unless the set is verified and intact."""
        return self.stored.newest_ns if self.soundness is Soundness.INTACT else None


@dataclasses.dataclass(frozen=True, slots=True)
class OpenReport:
    """What opening found.

    Attributes:
        node_id: 32 hexadecimal characters, made at the first start and kept from then on.
        incarnation: counts the openings, from 1.
        clean_shutdown: the last run closed the store; True at the first start.
        findings: what verification noticed, in words; empty when there is nothing to say.
        fellows: the fellows that were known at the end of the last run, by name-space.
        is_damaged: something that was on disk cannot be read or is not there any more.
    """

    node_id: str
    incarnation: int
    clean_shutdown: bool
    findings: tuple[str, ...]
    fellows: Mapping[str, tuple[Fellow, ...]]
    is_damaged: bool = False


class SetWriter(Protocol):
    """Fills one new set version; each call is one transaction of its own."""

    @property
    def name_space(self) -> str:
        """The name-space of the version."""
        ...

    @property
    def version(self) -> int:
        """The number of the version."""
        ...

    @property
    def stored(self) -> Summary:
        """Roll-up of what was added so far."""
        ...

    def add(self, description: GroupDescription, samples: Samples, evicted: Sequence[Sample] = ()) -> None:
        """Put samples into a group and take the evicted out; without samples, declare the group.

        Raises:
            StoreError: nothing of this call was stored; the writer can be used again.
        """
        ...


class Store(Protocol):
    """Sets, and what a node must remember besides them."""

    @property
    def report(self) -> OpenReport:
        """What opening found."""
        ...

    def name_spaces(self) -> tuple[str, ...]:
        """The name-spaces of which there is a set or a remembered value."""
        ...

    def sets(self, name_space: str) -> tuple[SetInfo, ...]:
        """All versions, oldest first."""
        ...

    def complete_set(self, name_space: str) -> SetInfo | None:
        """The complete version, which may be empty; None when there never was one."""
        ...

    def newest_until(self, name_space: str, limit_ns: int) -> int | None:
        """Quality of the complete set without the samples stamped later than `limit_ns`.

        Returns:
            None when there is no complete set or it is not known to be intact; 0 when nothing is that old.
        """
        ...

    def begin_set(self, name_space: str) -> SetWriter:
        """Start a new version; one that was still filling is abandoned."""
        ...

    def filling(self, name_space: str) -> SetWriter | None:
        """Goes on with the version that is filling, which a former run may have begun; None without one."""
        ...

    def commit_complete(
        self,
        writer: SetWriter,
        mark: str = "",
        *,
        keep_previous: str | None = None,
        marks: Marks = NO_MARKS,
    ) -> SetInfo:
        """Make the writer's version the complete one and drop the previous, in one transaction.

        What `marks` says is remembered in the same transaction; see `mark`. With `keep_previous` the
        previous one stays as a back-up under that mark; of more back-ups than `MAX_BACKUPS` the oldest is
        dropped.
        """
        ...

    def restore_backup(self, version: int, mark: str, keep_previous: str, marks: Marks = NO_MARKS) -> SetInfo:
        """Make a back-up the complete set again; the present one takes its place as a back-up, so marked.

        What `marks` says is remembered in the same transaction; see `mark`.

        Raises:
            LookupError: there is no such back-up.
        """
        ...

    def drop_backup(self, version: int) -> None:
        """Drop a back-up, so that `tidy` can give its space back.

        Raises:
            LookupError: there is no such back-up.
        """
        ...

    def abandon(self, writer: SetWriter) -> None:
        """Drop a version that is still filling."""
        ...

    def append(
        self, name_space: str, changes: Sequence[Change], marks: Marks = NO_MARKS
    ) -> dict[Group, Summary]:
        """Bring live changes, in their order, to the complete set as one transaction.

        What `marks` says is remembered in the same transaction; see `mark`.

        Returns:
            The new watermark of each group named in `changes`, once all of them are on disk. A sample that
            is there already, or not there when it is evicted, changes nothing.

        Raises:
            StoreError: none of the changes is stored.
            LookupError: there is no complete set.
        """
        ...

    def load(
        self, name_space: str, damage: DamageLog, version: int | None = None
    ) -> Iterator[tuple[GroupDescription, Iterator[Rows]]]:
        """Read a version (the complete one by default), each group in pieces, oldest sample first.

        What is read is the version as it is when reading starts, whatever is appended meanwhile. Every
        sample's digest is computed again; a sample that fails goes to `damage` instead of the caller.
        When everything was read and found as the watermarks promise, the version is intact from then on.
        A group's samples must be used up before the next group is asked for. A damaged group description
        takes its samples with it.
        """
        ...

    def remember_fellows(self, name_space: str, fellows: Iterable[Fellow]) -> None:
        """Replace the fellows known to a name-space."""
        ...

    def mark(self, name_space: str, marks: Marks) -> None:
        """Remember values of a name-space, such as its elements, in one transaction; None forgets one."""
        ...

    def marks(self, name_space: str) -> dict[str, str]:
        """What was remembered with `mark`."""
        ...

    def begin_anew(self) -> str:
        """Put a damaged medium aside and go on with one without sets; what was remembered stays.

        Until each name-space has a complete set again, the next opening says that something is missing.

        Returns:
            The name under which the damaged one is kept.

        Raises:
            StoreError: it cannot be put aside, or has been once since it was opened.
        """
        ...

    def tidy(self) -> bool:
        """Give back some of the space of dropped versions, a bounded piece of work.

        Writing does a little of it too. Returns True when more is left.
        """
        ...

    def optimize(self) -> bool:
        """Give free space inside the store back to the disk; returns whether that was worth doing.

        It rewrites the whole store, so it is done only where a good part of it is free, and only while the
        disk has room for a second copy.

        Raises:
            StoreError: it did not work; the store is as it was.
        """
        ...

    def close(self) -> None:
        """End in order; the next opening reports a clean shutdown. A second call does nothing."""
        ...


def roll_up(groups: Iterable[tuple[Group, Summary]]) -> Summary:
    """The summary of a whole version: what `DataSet.summary` says of the same samples."""
    count = digest = newest_ns = 0
    for group, stored in groups:
        count += stored.count
        digest += stored.digest * weight_of(group)
        newest_ns = max(newest_ns, stored.newest_ns)
    return Summary(count, digest & ((1 << 128) - 1), newest_ns)


def unfinished(name_space: str, count: int) -> str:
    """The finding for a version that was still filling when its node ended."""
    return (
        f"name-space {name_space!r}: an alignment was interrupted; its {count} samples are compared at the "
        "next one, and the last complete set stays"
    )
