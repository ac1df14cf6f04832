"""Jobs of the runtime for the store, and their results (see `engine.runtime.store_queue`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from engine.core.name_spaces import Group
from engine.dataset.group_set import Summary
from engine.dataset.groups import GroupDescription
from engine.dataset.sample import Sample
from engine.dataset.sample_rows import SampleRows
from engine.store.interface import GroupChange, Replaced, Store

BATCH_CHANGES: Final = 20_000
"""Changes in one transaction at most."""
LET_GO_BYTES: Final = 4_096
"""Payloads from this size on are let go when they need not be written any more."""


class AppendJob(msgspec.Struct):
    """Live changes to a complete set; more may join until the job starts.

    `marks` are stored with the first of the changes that are not carried out yet.
    """

    name_space: str
    changes: list[GroupChange]
    marks: dict[str, str] = msgspec.field(default_factory=dict)
    large: int = 0
    """Number of changes that add, or added, a payload of `LET_GO_BYTES` or more."""
    replacing_bytes: int = 0
    """Bytes of such payloads whose samples take the place of others, as those after them may take theirs."""
    _done: int = 0
    _large: dict[tuple[Group, bytes], int] = msgspec.field(default_factory=dict)
    _added: dict[Group, set[bytes]] = msgspec.field(default_factory=dict)
    _counted: int = 0

    def added(self, group: Group) -> int:
        """Return how many samples of a group the job adds in all; the next call looks at what joined."""
        for description, added, evicted in self.changes[self._counted :]:
            digests = self._added.setdefault(description.group, set())
            if added is not None:
                digests.add(added.digest)
            digests.difference_update([sample.digest for sample in evicted])
        self._counted = len(self.changes)
        return len(self._added.get(group, ()))

    def batch(self) -> list[GroupChange]:
        """Return the changes of the next transaction."""
        return self.changes[:BATCH_CHANGES]

    def join(self, changes: list[GroupChange]) -> int:
        """Add changes; return by how many bytes the payloads of the job grew, which may be less than 0.

        What comes and goes within a transaction is not written (`engine.store.sample_table`), so a large
        sample needs its payload no longer once a change of its transaction evicts it.
        """
        sizes = [len(change.added.payload) for change in changes if change.added is not None]
        if not self._large and max(sizes, default=0) < LET_GO_BYTES:
            self.changes += changes
            return sum(sizes)
        return sum(sizes) - sum([self._join(change) for change in changes])

    def _join(self, change: GroupChange) -> int:
        """Add a change; return how many bytes it lets go."""
        description, added, evicted = change
        at, left = self._done + len(self.changes), 0
        if added is not None and len(added.payload) >= LET_GO_BYTES:
            self._large[description.group, added.digest] = at
            self.large += 1
            self.replacing_bytes += len(added.payload) if evicted else 0
        self.changes.append(GroupChange(description, added, [_without_payload(sample) for sample in evicted]))
        for sample in evicted:
            place = self._large.pop((description.group, sample.digest), -1)
            if place >= self._done and place // BATCH_CHANGES == at // BATCH_CHANGES:
                left += self._let_go(place - self._done)
        return left

    def _let_go(self, index: int) -> int:
        """Empty the payload that the change of that index adds; return its bytes."""
        description, added, evicted = self.changes[index]
        assert added is not None
        self.changes[index] = GroupChange(description, _without_payload(added), evicted)
        self.replacing_bytes -= len(added.payload) if evicted else 0
        return len(added.payload)

    def done(self, count: int) -> None:
        """Forget the first `count` changes, which are those of `batch`, and the marks: they are stored."""
        del self.changes[:count]
        self.replacing_bytes = payload_bytes([change for change in self.changes if change.evicted])
        self.marks.clear()
        self._done += count
        self._added.clear()
        self._counted = 0
        self.large = max(0, self.large - count)


def _without_payload(sample: Sample) -> Sample:
    """Return what identifies a sample, which is all that its removal needs."""
    return sample._replace(payload=b"") if len(sample.payload) >= LET_GO_BYTES else sample


def payload_bytes(changes: list[GroupChange]) -> int:
    """Return the bytes of the payloads that changes add."""
    return sum([len(change.added.payload) for change in changes if change.added is not None])


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
