"""The interface of stores of sets; memory and SQLite both implement it.

A *set version* is one copy of a name-space's data. At most one version per name-space is complete and at
most one is filling; the complete one stays until the filling one takes its place in a single transaction,
which is the back-up set of deployment guide 5.4.4. A version that is filling when its node ends stays, too.
The store keeps up to `MAX_BACKUPS` former complete sets beside them (5.2.3.3). A version has a number that
the store never uses again.

A store belongs to the thread that opened it. It starts no threads and waits only for the disk; another
thread opens its own read-only view instead.
"""

from __future__ import annotations

import abc
import enum
import errno
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import msgspec

from engine.core.name_spaces import Group
from engine.core.untrusted import json_reader
from engine.dataset.dataset import weight_of
from engine.dataset.group_set import EMPTY, Summary
from engine.dataset.groups import GroupDescription
from engine.dataset.sample import Sample
from engine.dataset.sample_rows import SampleRows, Samples
from engine.files import is_permanent


class StoreError(Exception):
    """A store could not do what was requested; acknowledged data are not lost."""


class StoreFull(StoreError):
    """No space is left. The transaction did not happen; the same call works once there is space."""


class StoreFailed(StoreError):
    """The medium refused: an I/O error, a read-only file system, a missing permission. Nothing changed."""


class StoreForbidden(StoreFailed):
    """The place cannot be used: a missing permission, a read-only file system, no directory, a link.

    Another attempt would end in the same way.
    """


def refused(path: Path, error: OSError, what: str = "") -> StoreFull | StoreFailed:
    """Return the store error for an error of the operating system.

    The text has the path and `what` failed, such as `cannot be put aside: `.
    """
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    kind = StoreFull if is_full else StoreForbidden if is_permanent(error) else StoreFailed
    return kind(f"{path}: {what}{error.strerror}")


class StoreDamaged(StoreError):
    """The file is no longer a readable store."""


class StoreRefused(StoreError):
    """The store cannot be used here: a newer format, or not a store of ospltool."""


class LockedStore(StoreRefused):
    """Another node, which the message names, has the store open.

    Attributes:
        pid: process id of the holder, 0 if its note could not be read.
        node: name of the holder.
        since_ns: time of its opening, nanoseconds since 1970 UTC.
    """

    def __init__(self, message: str, pid: int, node: str, since_ns: int) -> None:
        super().__init__(message)
        self.pid = pid
        self.node = node
        self.since_ns = since_ns


class SetState(enum.StrEnum):
    """Use of a set version."""

    COMPLETE = "complete"
    FILLING = "filling"
    KEPT = "kept"
    """A back-up: a former complete set, which a merge or an operator replaced; see `Replaced`."""


class Soundness(enum.StrEnum):
    """Result of verifying the samples of a set version."""

    UNVERIFIED = "unverified"
    INTACT = "intact"
    DAMAGED = "damaged"


class StoreDamage(NamedTuple):
    """One damaged thing: its place, and what is wrong."""

    place: str
    reason: str

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}"


# Chosen: each is a whole set on the disk. `restore` changes places with one, so two keep the way back open
# after one more exchange.
MAX_BACKUPS: Final = 2
"""Limit for the back-ups of a name-space; one more drops the oldest."""

Marks: TypeAlias = "Mapping[str, str | None]"
"""Values to remember for a name-space, by key; None forgets one."""
NO_MARKS: Final[Marks] = {}
NO_ROWS: Final = SampleRows()
MAX_DAMAGE_KEPT: Final = 1_000
"""Damage beyond is counted: a list of a million says no more."""


class DamageLog:
    """Collects damage: it counts all and keeps the first `MAX_DAMAGE_KEPT`.

    `strange` are the groups among whose sound samples are some that were not stored there.
    """

    __slots__ = ("count", "first", "strange")

    def __init__(self) -> None:
        self.count = 0
        self.first: list[StoreDamage] = []
        self.strange: set[Group] = set()

    def add(self, place: str, reason: str) -> None:
        """Note one damage."""
        self.count += 1
        if len(self.first) < MAX_DAMAGE_KEPT:
            self.first.append(StoreDamage(place, reason))


class RememberedFellow(NamedTuple):
    """A remembered fellow: 128-bit id as 32 hexadecimal characters, name, role."""

    id: str
    name: str
    role: str


class GroupChange(NamedTuple):
    """The effect of one call of `GroupSet.apply` or `GroupSet.remove_instance`.

    `added` is None if samples were only evicted.
    """

    description: GroupDescription
    added: Sample | None
    evicted: Sequence[Sample] = ()


# Chosen: to let go of smaller ones frees little for the work that it takes.
LET_GO_BYTES: Final = 4_096
"""Payloads from this size on are let go when their samples need not be written any more."""


class Net:
    """The net effect of a sequence of changes of one group.

    Attributes:
        added: samples to add, by digest.
        evicted: samples to remove, by digest; large ones without payload, as the digest is enough for that.
        passing: samples that came and went within the sequence, in the same form. They are not written, and
            presumed absent.
        rows: more samples to add, each presumed new.
    """

    __slots__ = ("added", "description", "evicted", "passing", "replacing", "rows")

    def __init__(self, description: GroupDescription, rows: SampleRows = NO_ROWS) -> None:
        self.description = description
        self.added: dict[bytes, Sample] = {}
        self.evicted: dict[bytes, Sample] = {}
        self.passing: dict[bytes, Sample] = {}
        self.rows = rows
        self.replacing: set[bytes] = set()
        """Digests of the large ones of `added` that took the place of other samples."""

    def sort_out(self, present: Callable[[Sequence[Sample]], set[bytes]]) -> None:
        """Keep only effective changes.

        Args:
            present: returns the digests of those of some samples that the store has.
        """
        self.added.update([(sample.digest, sample) for sample in self.rows])
        gone = {**self.evicted, **self.passing}
        here = present([*self.added.values(), *gone.values()])
        self.added = {digest: sample for digest, sample in self.added.items() if digest not in here}
        self.evicted = {digest: sample for digest, sample in gone.items() if digest in here}
        self.passing, self.rows = {}, NO_ROWS


class NetChanges:
    """The net effect of a sequence of changes of one name-space, which one transaction writes.

    Attributes:
        groups: the effect on each group.
        count: number of changes.
        payload_bytes: bytes of the payloads of all that came, without the large ones that were let go.
        large: number of changes that added a payload of `LET_GO_BYTES` or more.
        replacing_bytes: bytes of such payloads, not let go, whose samples took the place of others: as those
            after them may take theirs, waiting may spare to write them.
    """

    def __init__(self, changes: Iterable[GroupChange] = ()) -> None:
        self.groups: dict[Group, Net] = {}
        self.count = self.payload_bytes = self.large = self.replacing_bytes = 0
        self.extend(changes)

    def extend(self, changes: Iterable[GroupChange]) -> None:
        """Add changes.

        What comes and goes within a transaction is not written, so a large sample needs its payload no longer
        once a change of its transaction evicts it.
        """
        count = payload_bytes = 0
        known: GroupDescription | None = None
        for description, added, evicted in changes:
            count += 1
            if description is not known:  # nearly always all are of one group
                known = description
                net = self.groups.setdefault(description.group, Net(description))
                net.description = description
                came, gone, passing = net.added, net.evicted, net.passing
            if added is not None:
                digest, size = added.digest, len(added.payload)
                if gone or passing:  # it may come back
                    gone.pop(digest, None)
                    passing.pop(digest, None)
                came[digest] = added
                payload_bytes += size
                if size >= LET_GO_BYTES:
                    self.large += 1
                    if evicted:
                        self.replacing_bytes += size
                        net.replacing.add(digest)
            for sample in evicted:
                digest, size = sample.digest, len(sample.payload)
                is_passing = came.pop(digest, None) is not None
                if size >= LET_GO_BYTES:
                    sample = sample._replace(payload=b"")
                    payload_bytes -= size if is_passing else 0
                    if digest in net.replacing:
                        net.replacing.discard(digest)
                        self.replacing_bytes -= size
                if is_passing:
                    passing[digest] = sample
                elif digest not in passing:
                    gone[digest] = sample
        self.count += count
        self.payload_bytes += payload_bytes
        assert 0 <= self.replacing_bytes <= self.payload_bytes, "what is let go was counted before"


class GroupInfo(msgspec.Struct, frozen=True):
    """A group of a set version with its watermark: the summary of its samples on disk."""

    description: GroupDescription
    stored: Summary


class SetInfo(msgspec.Struct, frozen=True):
    """One set version.

    Attributes:
        version: number of this version, larger than every earlier one.
        mark: the mark given to `commit_complete`, such as a merge id.
        stored: roll-up of all groups.
        groups: the groups in the order of their names.
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
        """Newest source timestamp, 0 for an empty set; None unless the set is verified and intact.

        A sample in the future raises it, unlike the quality of the protocol (`engine.runtime.startup`).
        """
        return self.stored.newest_ns if self.soundness is Soundness.INTACT else None


class OpenReport(msgspec.Struct, frozen=True):
    """The result of opening a store.

    Attributes:
        node_id: 32 hexadecimal characters, made at the first start and kept from then on.
        incarnation: number of the opening, from 1.
        clean_shutdown: whether the last run closed the store; True at the first start.
        findings: problems found, in words.
        fellows: the fellows known at the end of the last run, by name-space.
        is_damaged: whether stored data are unreadable or missing.
        commits: transactions of the store so far, with that of the opening.
    """

    node_id: str
    incarnation: int
    clean_shutdown: bool
    findings: tuple[str, ...]
    fellows: Mapping[str, tuple[RememberedFellow, ...]]
    is_damaged: bool = False
    commits: int = 0


def roll_up(groups: Iterable[tuple[Group, Summary]]) -> Summary:
    """Return the summary of a whole version, equal to `DataSet.summary` of the same samples."""
    count = digest = newest_ns = 0
    for group, stored in groups:
        count += stored.count
        digest += stored.digest * weight_of(group)
        newest_ns = max(newest_ns, stored.newest_ns)
    return Summary(count, digest & ((1 << 128) - 1), newest_ns)


class GroupRow(msgspec.Struct):
    """A group of one version, and its watermark."""

    description: GroupDescription
    stored: Summary = EMPTY
    id: int = 0
    """Its number in a file."""
    type_number: int = 0
    """That of its type."""
    qos_text: str = ""
    """Its QoS, as in the file."""
    rows: dict[bytes, Sample] = msgspec.field(default_factory=dict)
    """Its samples by digest, in a store in memory."""


class SetVersion(msgspec.Struct):
    """A set version of an open store; `damage` was found in the small tables of a file."""

    number: int
    name_space: str
    state: SetState
    mark: str = ""
    soundness: Soundness = Soundness.UNVERIFIED
    groups: dict[Group, GroupRow] = msgspec.field(default_factory=dict)
    damage: list[StoreDamage] = msgspec.field(default_factory=list)

    def stored(self) -> Summary:
        """Return the roll-up of the groups."""
        return roll_up((group, row.stored) for group, row in self.groups.items())

    def info(self) -> SetInfo:
        """Return the public description."""
        rows = [self.groups[key] for key in sorted(self.groups)]
        groups = tuple(GroupInfo(row.description, row.stored) for row in rows)
        stored = self.stored()
        return SetInfo(self.number, self.name_space, self.state, self.mark, stored, groups, self.soundness)


class SetWriter:
    """Fills one new set version; each call is a transaction."""

    __slots__ = ("_add", "_set")

    def __init__(
        self,
        version: SetVersion,
        add: Callable[[SetVersion, GroupDescription, Samples, Sequence[Sample]], None],
    ) -> None:
        self._set = version
        self._add = add

    @property
    def name_space(self) -> str:
        """The name-space of the version."""
        return self._set.name_space

    @property
    def version(self) -> int:
        """The number of the version."""
        return self._set.number

    @property
    def stored(self) -> Summary:
        """Roll-up of the samples added so far."""
        return self._set.stored()

    def add(self, description: GroupDescription, samples: Samples, evicted: Sequence[Sample] = ()) -> None:
        """Add samples to a group and remove the evicted ones; without samples, declare the group.

        Raises:
            StoreError: this call stored nothing; the writer can be used again.
        """
        self._add(self._set, description, samples, evicted)


class Store(abc.ABC):
    """A store of sets, and of values and fellows that a node must remember.

    Attributes:
        report: the result of opening.
    """

    report: OpenReport
    _versions: dict[int, SetVersion]
    """All versions that can be seen, by number."""

    @abc.abstractmethod
    def name_spaces(self) -> tuple[str, ...]:
        """Return the name-spaces with a set or a remembered value."""

    def sets(self, name_space: str) -> tuple[SetInfo, ...]:
        """Return all versions, oldest first."""
        return tuple(v.info() for v in self._versions.values() if v.name_space == name_space)

    def _find(self, name_space: str, state: SetState) -> SetVersion | None:
        for version in self._versions.values():
            if version.name_space == name_space and version.state is state:
                return version
        return None

    def complete_set(self, name_space: str) -> SetInfo | None:
        """Return the complete version, which may be empty; None if there never was one."""
        version = self._find(name_space, SetState.COMPLETE)
        return version.info() if version else None

    def newest_until(self, name_space: str, limit_ns: int) -> int | None:
        """Return the quality of the complete set without the samples later than `limit_ns`.

        Returns:
            None without a complete set that is known to be intact; 0 if no sample is that old.
        """
        version = self._find(name_space, SetState.COMPLETE)
        if version is None or version.soundness is not Soundness.INTACT:
            return None
        return self._newest_until(version, limit_ns)

    @abc.abstractmethod
    def _newest_until(self, version: SetVersion, limit_ns: int) -> int:
        """Return the newest source time of a version up to a limit; 0 for none."""

    @abc.abstractmethod
    def begin_set(self, name_space: str) -> SetWriter:
        """Begin a new version; one that was filling is abandoned."""

    def filling(self, name_space: str) -> SetWriter | None:
        """Continue the version that is filling, which a former run may have begun; None without one."""
        version = self._find(name_space, SetState.FILLING)
        return SetWriter(version, self._add) if version else None

    def _add(
        self, version: SetVersion, description: GroupDescription, samples: Samples, evicted: Sequence[Sample]
    ) -> None:
        """Do what `SetWriter.add` says."""
        self._filling(version.number)
        if evicted:
            changes = [GroupChange(description, sample) for sample in samples]
            net = NetChanges([*changes, GroupChange(description, None, evicted)]).groups[description.group]
        else:  # nearly always all samples are new
            net = Net(description, SampleRows.coerce(samples))
        self._write(version, {description.group: net})

    def _filling(self, number: int) -> SetVersion:
        return self._in_state(number, SetState.FILLING, "filling")

    def _backup(self, number: int) -> SetVersion:
        return self._in_state(number, SetState.KEPT, "a back-up")

    def _in_state(self, number: int, state: SetState, words: str) -> SetVersion:
        version = self._versions.get(number)
        if version is None or version.state is not state:
            raise LookupError(f"set version {number} is not {words}")
        return version

    def commit_complete(
        self,
        writer: SetWriter,
        mark: str = "",
        *,
        keep_previous: str | None = None,
        marks: Marks = NO_MARKS,
    ) -> SetInfo:
        """Make the writer's version the complete one and drop the previous, in one transaction.

        Args:
            writer: from `begin_set` or `filling`.
            mark: the mark of the version.
            keep_previous: keep the previous version as a back-up with this mark; beyond `MAX_BACKUPS` the
                oldest back-up is dropped.
            marks: values to remember in the same transaction; see `mark`.
        """
        return self._complete(self._filling(writer.version), mark, keep_previous, marks)

    def restore_backup(self, version: int, mark: str, keep_previous: str, marks: Marks = NO_MARKS) -> SetInfo:
        """Make a back-up the complete set again; the present one becomes a back-up.

        Args:
            version: number of the back-up.
            mark: its new mark.
            keep_previous: the mark of the new back-up.
            marks: values to remember in the same transaction; see `mark`.

        Raises:
            LookupError: there is no such back-up.
        """
        return self._complete(self._backup(version), mark, keep_previous, marks)

    def _complete(self, version: SetVersion, mark: str, keep_previous: str | None, marks: Marks) -> SetInfo:
        previous = self._find(version.name_space, SetState.COMPLETE)
        kept = None if keep_previous is None else previous
        dropped = [] if previous is None else [previous]
        if kept is not None:
            backups = [one for one in self._versions.values() if one.state is SetState.KEPT]
            others = [one for one in backups if one.name_space == version.name_space and one is not version]
            dropped = others[: max(0, len(others) - MAX_BACKUPS + 1)]  # the oldest make room for one more
        self._switch(version, mark, kept, keep_previous or "", dropped, marks)
        # Only now, as the transaction may fail; then nothing has changed.
        for one in dropped:
            self._forget(one)
        if kept is not None:
            kept.state, kept.mark = SetState.KEPT, keep_previous or ""
        version.state, version.mark = SetState.COMPLETE, mark
        return version.info()

    @abc.abstractmethod
    def _switch(
        self,
        version: SetVersion,
        mark: str,
        kept: SetVersion | None,
        kept_mark: str,
        dropped: Sequence[SetVersion],
        marks: Marks,
    ) -> None:
        """Write in one transaction that a version is complete, another one a back-up, and others dropped."""

    @abc.abstractmethod
    def _forget(self, version: SetVersion) -> None:
        """Remove a version that has been dropped."""

    @abc.abstractmethod
    def _drop(self, version: SetVersion) -> None:
        """Drop and remove a version."""

    def drop_backup(self, version: int) -> None:
        """Drop a back-up, so that `tidy` can free its space.

        Raises:
            LookupError: there is no such back-up.
        """
        self._drop(self._backup(version))

    def abandon(self, writer: SetWriter) -> None:
        """Drop a version that is filling."""
        self._drop(self._filling(writer.version))

    def append(
        self, name_space: str, changes: NetChanges | Sequence[GroupChange], marks: Marks = NO_MARKS
    ) -> dict[Group, Summary]:
        """Apply changes, in their order, to the complete set as one transaction.

        Adding a sample that is there, or evicting one that is not, changes nothing.

        Args:
            name_space: the name-space.
            changes: the changes.
            marks: values to remember in the same transaction; see `mark`.

        Returns:
            The new watermark of each group in `changes`, once all of them are on disk.

        Raises:
            StoreError: none of the changes was stored.
            LookupError: there is no complete set.
        """
        version = self._find(name_space, SetState.COMPLETE)
        if version is None:
            raise LookupError(f"there is no complete set of name-space {name_space!r}")
        net = changes if isinstance(changes, NetChanges) else NetChanges(changes)
        self._write(version, net.groups, marks)
        return {group: version.groups[group].stored for group in net.groups}

    @abc.abstractmethod
    def _write(self, version: SetVersion, nets: Mapping[Group, Net], marks: Marks = NO_MARKS) -> None:
        """Write the changes of groups, and marks, in one transaction."""

    def load(
        self, name_space: str, damage: DamageLog, version: int | None = None
    ) -> Iterator[tuple[GroupDescription, Iterator[SampleRows]]]:
        """Read a version, each group in pieces, oldest sample first.

        It reads the version as it is at the start, without later changes. It verifies the digest of every
        sample; a damaged sample goes to `damage` instead of the caller. If everything was read and equals the
        watermarks, the version counts as intact from then on. The samples of a group must be consumed before
        the next group is requested. Samples of a group with a damaged description are not read.

        Args:
            name_space: the name-space.
            damage: collects damage.
            version: number of the version; the complete one by default.
        """
        chosen = self._find(name_space, SetState.COMPLETE) if version is None else self._versions.get(version)
        if chosen is None or chosen.name_space != name_space:
            raise LookupError(f"there is no such set of name-space {name_space!r}")
        return self._read(chosen, damage)

    @abc.abstractmethod
    def _read(
        self, version: SetVersion, damage: DamageLog
    ) -> Iterator[tuple[GroupDescription, Iterator[SampleRows]]]:
        """Do what `load` says."""

    @abc.abstractmethod
    def remember_fellows(self, name_space: str, fellows: Iterable[RememberedFellow]) -> None:
        """Replace the remembered fellows of a name-space."""

    @abc.abstractmethod
    def mark(self, name_space: str, marks: Marks) -> None:
        """Remember values for a name-space, such as its elements, in one transaction; None forgets one."""

    @abc.abstractmethod
    def marks(self, name_space: str) -> dict[str, str]:
        """Return the values remembered with `mark`."""

    @property
    @abc.abstractmethod
    def commits(self) -> int:
        """Transactions so far, over all openings."""

    @abc.abstractmethod
    def outlive(self, incarnation: int, commits: int) -> None:
        """Count on from above these numbers, because others know a later state of the store.

        Args:
            incarnation: number of an opening.
            commits: number of transactions.
        """

    @abc.abstractmethod
    def check_in_place(self) -> None:
        """Raise `StoreDamaged` if the medium was taken away while it was in use."""

    @abc.abstractmethod
    def replace_damaged(self) -> str:
        """Put a damaged medium aside and continue with one without sets; remembered values stay.

        Until each name-space has a complete set again, the next opening reports the loss.

        Returns:
            The name of the damaged medium from now on; empty if it is gone.

        Raises:
            StoreError: it cannot be put aside, or this happened once since the opening.
        """

    @abc.abstractmethod
    def tidy(self) -> bool:
        """Free some of the space of dropped versions, a bounded piece of work; return True if more is left.

        Writing does a little of this, too.
        """

    @abc.abstractmethod
    def optimize(self) -> bool:
        """Give free space inside the store back to the disk; return whether that was worth doing.

        It rewrites the whole store, so it does this only if a good part is free and the disk has room for a
        second copy.

        Raises:
            StoreError: it failed; the store is unchanged.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Close the store, so that the next opening reports a clean shutdown. Idempotent."""


def unfinished(name_space: str, count: int) -> str:
    """Return the finding for a version that was filling when its node ended."""
    return (
        f"name-space {name_space!r}: an alignment was interrupted; its {count} samples are compared at the "
        "next one, and the last complete set stays"
    )


REPLACED_MARK: Final = "replaced"
"""Key of the mark by which a store remembers that a command replaced a node's set."""


class Replaced(msgspec.Struct, frozen=True):
    """The note on a back-up, which is the mark of its set version: what replaced a set.

    Attributes:
        by: the node or the command that replaced it.
        at_ns: time, nanoseconds since 1970 UTC.
        why: the reason, in words.
        before: samples of the set that was replaced.
        after: samples of the set that took its place.
        mark: the mark that the set had while it was complete.
    """

    by: str
    at_ns: int
    why: str
    before: int = 0
    after: int = 0
    mark: str = ""

    def to_mark(self) -> str:
        """Return the note as the mark of a set version."""
        return msgspec.json.encode(self).decode()


_read_note: Final = json_reader(Replaced)


def note_of(mark: str) -> Replaced | None:
    """Read the note in a back-up's mark; None if it is none."""
    try:
        note: Replaced = _read_note(mark)
    # A mark of another program or version: the back-up is usable without its note.
    except ValueError:
        return None
    return note
