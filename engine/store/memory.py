"""The store for nodes without a store directory and for simulation, and the reference for tests.

The content of a `Medium` survives the store that is opened on it, as a disk survives a process; a store that
is not closed stands for a killed process. A medium can be made to fail, so that a simulated cluster meets
the same faults as a real one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from engine.core.name_spaces import Group
from engine.dataset.group_set import Summary
from engine.dataset.groups import GroupDescription
from engine.dataset.sample import Sample
from engine.dataset.sample_rows import SampleRows
from engine.store.interface import (
    NO_MARKS,
    DamageLog,
    GroupRow,
    Marks,
    Net,
    OpenReport,
    RememberedFellow,
    SetState,
    SetVersion,
    SetWriter,
    Soundness,
    Store,
    StoreFailed,
    StoreFull,
    unfinished,
)
from engine.store.verification import sound_samples

_MASK: Final = (1 << 128) - 1
# As `engine.dataset.blocks.MAX_SAMPLES`.
_PIECE: Final = 4096
"""Samples of one piece."""


class PowerCut(Exception):
    """The node died in the middle of a transaction."""


class Medium:
    """The substitute for a store directory, which survives its stores.

    Attributes:
        node_id: id of the node.
        capacity_bytes: limit for payload bytes, None for none; a write beyond it raises `StoreFull`.
        writes_left: writes until the power is cut; None for no such thing.
        failing: whether every write raises `StoreFailed`.
        incarnation: number of openings.
        commits: number of transactions.
        closed: whether the last store was closed.
        last_version: number of the last set version.
        used_bytes: payload bytes in use.
        versions: set versions by number.
        fellows: remembered fellows by name-space.
        marks: remembered values by name-space and key.
        rotten: samples that were damaged, by name-space and digest.
    """

    def __init__(self, node_id: str, capacity_bytes: int | None = None) -> None:
        self.node_id = node_id
        self.capacity_bytes = capacity_bytes
        self.failing = False
        self.incarnation = 0
        self.commits = 0
        self.closed = True
        self.last_version = 0
        self.used_bytes = 0
        self.writes_left: int | None = None
        self.versions: dict[int, SetVersion] = {}
        self.fellows: dict[str, tuple[RememberedFellow, ...]] = {}
        self.marks: dict[str, dict[str, str]] = {}
        self.rotten: set[tuple[str, bytes]] = set()

    def check_writable(self, more_bytes: int = 0) -> None:
        """Raise the fault that is set, if any; each write calls this once, before it changes anything.

        Raises:
            PowerCut: `writes_left` writes have been made.
            StoreFull: `more_bytes` do not fit.
            StoreFailed: the medium is failing.
        """
        if self.writes_left is not None:
            if self.writes_left <= 0:
                raise PowerCut
            self.writes_left -= 1
        if self.failing:
            raise StoreFailed("memory medium: writing fails")
        if self.capacity_bytes is not None and self.used_bytes + more_bytes > self.capacity_bytes:
            raise StoreFull(f"memory medium: {more_bytes} more bytes do not fit in {self.capacity_bytes}")

    def flip(self, name_space: str, digest: bytes) -> bool:
        """Damage one sample of the complete set as a flipped bit would; return False if it is not there."""
        for version in self.versions.values():
            if version.name_space == name_space and version.state is SetState.COMPLETE:
                for group in version.groups.values():
                    sample = group.rows.get(digest)
                    if sample is not None:
                        time_ns = sample.source_time_ns ^ 1
                        group.rows[digest] = sample._replace(source_time_ns=time_ns)
                        self.rotten.add((name_space, digest))
                        return True
        return False

    def remember(self, name_space: str, marks: Marks) -> None:
        """Remember values for a name-space; None forgets one."""
        known = {**self.marks.get(name_space, {}), **marks}
        self.marks[name_space] = {key: value for key, value in known.items() if value is not None}
        if not self.marks[name_space]:
            del self.marks[name_space]

    def drop(self, version: SetVersion) -> None:
        """Remove a version and free its space."""
        del self.versions[version.number]
        for group in version.groups.values():
            self.used_bytes -= sum(len(sample.payload) for sample in group.rows.values())


def _in_pieces(samples: Iterator[Sample]) -> Iterator[SampleRows]:
    while piece := list(itertools.islice(samples, _PIECE)):
        yield SampleRows.coerce(piece)


class MemoryStore(Store):
    """A store on a `Medium`; see `engine.store.interface.Store` for the calls."""

    def __init__(self, medium: Medium) -> None:
        medium.check_writable()
        self._medium, self._versions = medium, medium.versions
        self._open = True
        findings = []
        for version in list(medium.versions.values()):
            version.soundness = Soundness.UNVERIFIED
            if version.state is SetState.FILLING:
                findings.append(unfinished(version.name_space, version.stored().count))
        medium.incarnation += 1
        medium.commits += 1
        self.report = OpenReport(
            medium.node_id,
            medium.incarnation,
            medium.closed,
            tuple(findings),
            dict(medium.fellows),
            commits=medium.commits,
        )
        medium.closed = False

    def name_spaces(self) -> tuple[str, ...]:
        """Return the name-spaces with a set or a remembered value."""
        named = {version.name_space for version in self._medium.versions.values()}
        return tuple(sorted(named.union(self._medium.fellows, self._medium.marks)))

    def begin_set(self, name_space: str) -> SetWriter:
        """Begin a new version."""
        self._medium.check_writable()
        former = self._find(name_space, SetState.FILLING)
        if former is not None:
            self._medium.drop(former)
        self._medium.last_version += 1
        number = self._medium.last_version
        version = SetVersion(number, name_space, SetState.FILLING, soundness=Soundness.INTACT)
        self._medium.versions[version.number] = version
        return SetWriter(version, self._add)

    def _newest_until(self, version: SetVersion, limit_ns: int) -> int:
        times = (row.source_time_ns for group in version.groups.values() for row in group.rows.values())
        return max((time_ns for time_ns in times if time_ns <= limit_ns), default=0)

    def _write(self, version: SetVersion, nets: Mapping[Group, Net], marks: Marks = NO_MARKS) -> None:
        medium = self._medium
        came = [[*net.rows, *net.added.values()] for net in nets.values()]
        passing = [sample for net in nets.values() for sample in net.passing.values()]
        medium.check_writable(sum(len(one.payload) for some in (*came, passing) for one in some))
        for (group, net), added in zip(nets.items(), came, strict=True):
            row = version.groups.setdefault(group, GroupRow(net.description))
            row.description = net.description
            count, digest, newest_ns = row.stored.count, row.stored.digest, row.stored.newest_ns
            for sample in added:
                if sample.digest not in row.rows:
                    row.rows[sample.digest] = sample
                    count += 1
                    digest += int.from_bytes(sample.digest)
                    newest_ns = max(newest_ns, sample.source_time_ns)
                    medium.used_bytes += len(sample.payload)
            for gone in (*net.evicted.values(), *net.passing.values()):
                if gone.digest in net.passing:  # it was here for a moment
                    newest_ns = max(newest_ns, gone.source_time_ns)
                if (known := row.rows.pop(gone.digest, None)) is not None:
                    count -= 1
                    digest -= int.from_bytes(gone.digest)
                    medium.used_bytes -= len(known.payload)
            row.stored = Summary(count, digest & _MASK, newest_ns)
        medium.remember(version.name_space, marks)
        # A transaction for a set that is filling does not count: no reader sees it.
        medium.commits += version.state is SetState.COMPLETE

    def _switch(
        self,
        version: SetVersion,
        mark: str,  # the version gets them from the caller
        kept: SetVersion | None,
        kept_mark: str,
        dropped: Sequence[SetVersion],
        marks: Marks,
    ) -> None:
        self._medium.check_writable()
        self._medium.commits += 1
        self._medium.remember(version.name_space, marks)

    def _forget(self, version: SetVersion) -> None:
        self._medium.drop(version)

    def _drop(self, version: SetVersion) -> None:
        self._medium.check_writable()
        self._medium.drop(version)

    def _read(
        self, version: SetVersion, damage: DamageLog
    ) -> Iterator[tuple[GroupDescription, Iterator[SampleRows]]]:
        before = damage.count
        snapshot = [
            (key, group.description, group.stored, sorted(group.rows.values()))
            for key, group in sorted(version.groups.items())
        ]
        for key, description, stored, rows in snapshot:
            pieces = _in_pieces(sound_samples(key, stored, rows, damage))
            yield description, pieces
            skipped = sum(1 for _ in pieces)
            assert not skipped, "a group's samples must be used up before the next group is asked for"
        version.soundness = Soundness.INTACT if damage.count == before else Soundness.DAMAGED

    def remember_fellows(self, name_space: str, fellows: Iterable[RememberedFellow]) -> None:
        """Replace the remembered fellows of a name-space."""
        self._medium.check_writable()
        self._medium.fellows[name_space] = tuple(sorted(fellows))
        self._medium.commits += 1

    def mark(self, name_space: str, marks: Marks) -> None:
        """Remember values; None forgets one."""
        self._medium.check_writable()
        self._medium.remember(name_space, marks)
        self._medium.commits += 1

    def marks(self, name_space: str) -> dict[str, str]:
        """Return the values remembered with `mark`."""
        return dict(self._medium.marks.get(name_space, {}))

    @property
    def commits(self) -> int:
        """Transactions so far; those of a set that is filling do not count."""
        return self._medium.commits

    def outlive(self, incarnation: int, commits: int) -> None:
        """Count on from above these numbers."""
        self._medium.check_writable()
        self._medium.incarnation = max(self._medium.incarnation, incarnation)
        self._medium.commits = max(self._medium.commits, commits) + 1

    def check_in_place(self) -> None:
        """Do nothing: memory is not taken away."""

    def replace_damaged(self) -> str:
        """Refuse: a medium in memory is never damaged as a whole."""
        raise StoreFailed("memory medium: it cannot be damaged as a whole")

    def tidy(self) -> bool:
        """Do nothing: memory has nothing to free."""
        return False

    def optimize(self) -> bool:
        """Do nothing: memory has no file that could shrink."""
        return False

    def close(self) -> None:
        """Close the store."""
        if self._open:
            self._open = False
            self._medium.closed = True
