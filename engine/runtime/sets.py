"""The data of one name-space on one node: what is being filled, what is complete, what lies on the disk."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from engine.core.namespaces import Durability
from engine.dataset.dataset import DataSet
from engine.dataset.group_set import GroupSet, Outcome
from engine.dataset.groups import DurabilityKind
from engine.dataset.living import by_instance
from engine.dataset.sample import DISPOSE, NO_WRITER, UNREGISTER, make_sample
from engine.dataset.settling import Present
from engine.runtime.jobs import Conversion
from engine.store.interface import Change, roll_up

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from engine.core.namespace import NameSpaceState
    from engine.core.namespaces import Group
    from engine.dataset.group_set import Summary
    from engine.dataset.groups import GroupDescription
    from engine.dataset.rows import Rows
    from engine.dataset.sample import Sample

_ON_DISK = (Durability.DURABLE, Durability.PERSISTENT)
_KEY_ONLY = b"\x00\x07\x00\x00"
"""Encapsulation header of a serialized key: PLAIN_CDR2, little-endian (RTPS 2.5, 10.2)."""

Difference = dict["Group", list["Sample"]]
"""What readers who had the set before must get to have the set now."""


def dispose_of(key: bytes, now_ns: int) -> Sample:
    """A dispose that a merge policy makes for readers; it is nobody's fact and is never stored."""
    return make_sample(now_ns, NO_WRITER, DISPOSE, key, _KEY_ONLY + key)


def withdrawal_of(key: bytes, now_ns: int) -> Sample:
    """Says to clients that a merge policy put other samples in the place of those of an instance."""
    return make_sample(now_ns, NO_WRITER, UNREGISTER, key, _KEY_ONLY + key)


def _changes(
    description: GroupDescription, before: GroupSet | None, after: GroupSet, seen: set[bytes]
) -> list[Change]:
    """What a store must change for a group; `seen` are the digests of `before`."""
    added = [Change(description, sample) for sample in after.samples().without(seen)]
    if before is None:
        return added
    gone = list(before.samples().without(set(after.samples().each_digest())))
    return [*added, Change(description, None, gone)] if gone else added


@dataclasses.dataclass(frozen=True, slots=True)
class Began:
    """When a merge began: the wall clock of this node, and what was here then that claims to be newer.

    Clocks of writers may be ahead of this node's. What was here before is not what was written since.
    """

    time_ns: int
    ahead: frozenset[bytes]

    def written_since(self, samples: Rows) -> Iterator[Sample]:
        """Those that have been written since."""
        return (sample for sample in samples.after(self.time_ns) if sample.digest not in self.ahead)


@dataclasses.dataclass(slots=True)
class NameSpaceData:
    """A name-space's sets.

    Attributes:
        state: the core's view of the name-space.
        working: what was captured in this run and, once complete, the whole set.
        staging: the set that is being loaded, collected or aligned; it joins `working` when complete.
        conversion: how the stored set becomes `staging`, None when it must be written anew.
        loaded: the verified stored set, until it is known whether it will be injected.
        part: what has arrived of a set whose stream broke off. It is only ever compared with.
        is_switched: the store's complete set is `working`, so that live changes are appended to it.
        stored: the watermark of each group on disk.
        has_changed: `working` differs from what the core was last told.
        present: by which changes of `working` are dated.
        keeps: why the stored set stays as a back-up when the staged one takes its place; empty if not.
        replaced: how often another set took the place of `working`, so that what was in it may be gone.
    """

    state: NameSpaceState
    working: DataSet = dataclasses.field(default_factory=DataSet)
    staging: DataSet | None = None
    conversion: Conversion | None = None
    loaded: DataSet | None = None
    part: DataSet | None = None
    is_switched: bool = False
    stored: dict[Group, Summary] = dataclasses.field(default_factory=dict)
    has_changed: bool = True
    present: Present = dataclasses.field(default_factory=Present)
    keeps: str = ""
    replaced: int = 0

    def is_kept(self, description: GroupDescription) -> bool:
        """Whether this node keeps the group at all; policies only weaken (deployment guide 5.2.3.2)."""
        return (
            self.state.policy.durability not in (Durability.VOLATILE, Durability.TRANSIENT_LOCAL)
            and description.qos.durability >= DurabilityKind.TRANSIENT
        )

    def is_on_disk(self, description: GroupDescription) -> bool:
        """Whether the group belongs on the disk of this node."""
        return (
            self.state.policy.durability in _ON_DISK
            and description.qos.durability is DurabilityKind.PERSISTENT
        )

    def open_group(self, description: GroupDescription) -> GroupSet:
        """The group's part of the working set."""
        return self.working.open_described(description)

    def stage(self, data: DataSet, conversion: Conversion | None) -> None:
        """A set that is to be the working set once it is complete."""
        # A part is not what lies in the store already, whatever has arrived: it is written anew.
        self.staging, self.conversion = data, None if self.state.is_part else conversion

    def stage_nothing(self) -> None:
        """Forget what was staged."""
        self.staging = self.conversion = None

    def leave_out(self, known: Mapping[Group, GroupDescription]) -> None:
        """Forget stored groups that this node does not keep, because it is configured otherwise than before.

        The stored set stays as a back-up when the next one takes its place.
        """
        groups = self.loaded.groups if self.loaded is not None else {}
        foreign = [group for group in groups if group not in known]
        if any(groups[group].count for group in foreign):
            self.keeps = f"{len(foreign)} of its groups are not kept any more by the configuration"
        for group in foreign:
            del groups[group]

    def stage_loaded(self) -> DataSet:
        """The stored set is to be injected."""
        loaded = self.loaded or DataSet()
        self.stage(loaded, Conversion([], before=loaded.summary()))
        return loaded

    def stage_too(self, other: DataSet, describe: dict[Group, GroupDescription]) -> None:
        """What a fellow had captured joins the staged set."""
        assert self.staging is not None
        _, changes = self._join(self.staging, other, describe)
        if self.conversion is not None:
            self.conversion.changes.extend(changes)

    def join(
        self, other: DataSet, describe: dict[Group, GroupDescription]
    ) -> tuple[Difference, list[Change]]:
        """MERGE `other` into the working set: what is new in it, and what the store must append."""
        self.has_changed = True
        new, changes = self._join(self.working, other, describe)
        return new, changes if self.is_switched else []

    def _join(
        self, target: DataSet, other: DataSet, describe: dict[Group, GroupDescription]
    ) -> tuple[Difference, list[Change]]:
        changes: list[Change] = []
        new: Difference = {}
        for group, theirs in other.groups.items():
            description = describe[group]
            ours = target.open_described(description)
            is_on_disk = self.is_on_disk(description)
            removed = ours.raise_floor(theirs.floor_ns)
            if removed and is_on_disk:
                changes.append(Change(description, None, removed))
            for sample in theirs.samples():
                outcome, evicted = ours.apply(sample)
                if outcome is Outcome.STORED:
                    new.setdefault(group, []).append(sample)
                    if is_on_disk:
                        changes.append(Change(description, sample, evicted))
        return new, changes

    def delete(self, description: GroupDescription, until_ns: int) -> list[Change]:
        """Delete the historical data of a group up to a source time; what the store must take out."""
        removed = self.open_group(description).raise_floor(until_ns)
        if not removed:
            return []
        self.has_changed = True
        return self._removal(description, removed)

    def purge(self, description: GroupDescription, key: bytes, last: bytes) -> list[Change]:
        """Forget an instance that is disposed here, too, and ends with the sample of that digest.

        Where that only says that a writer unregistered it, this node may have newer data before it.
        """
        group_set = self.open_group(description)
        history = group_set.instance(key)
        if key not in group_set.disposed or history[-1].digest != last:
            return []
        self.has_changed = True
        return self._removal(description, group_set.remove_instance(key))

    def _removal(self, description: GroupDescription, removed: list[Sample]) -> list[Change]:
        stored = self.is_switched and self.is_on_disk(description)
        return [Change(description, None, removed)] if stored else []

    def complete(self, describe: dict[Group, GroupDescription]) -> Conversion | None:
        """The staged set with what was captured meanwhile is the working and the stored set from now on.

        Returns how the stored set becomes that one, None when it must be written anew.
        """
        conversion = self.conversion
        if self.staging is not None:
            captured, self.working = self.working, self.staging
            _, changes = self._join(self.working, captured, describe)
            if conversion is not None:
                conversion.changes.extend(changes)
        self.staging = self.loaded = self.part = self.conversion = None
        self.is_switched = self.has_changed = True
        return conversion

    def stored_part(self, descriptions: Iterable[GroupDescription]) -> Summary:
        """The summary of what of the working set belongs on the disk."""
        groups = self.working.groups
        return roll_up(
            (description.group, groups[description.group].summary())
            for description in descriptions
            if description.group in groups and self.is_on_disk(description)
        )

    def begin(self, now_ns: int) -> Began:
        """A set is asked for that is to take the place of this one."""
        groups = self.working.groups.values()
        ahead = (sample.digest for group_set in groups for sample in group_set.samples().after(now_ns))
        return Began(now_ns, frozenset(ahead))

    def replace(
        self,
        other: DataSet,
        began: Began | None,
        now_ns: int,
        passes_disposed: Callable[[Group], bool],
        describe: dict[Group, GroupDescription],
    ) -> tuple[Difference, list[Change]]:
        """REPLACE, CATCHUP or DELETE: `other` is the set now, with what was written since the merge began.

        Without `began` it begins now, and nothing was.
        Returns what readers on this side must see: a dispose for every instance that is no more (where a
        group `passes_disposed`, for every instance), and the samples that are new (there, all of them); and
        what the store must change.
        """
        for group, group_set in self.working.groups.items():
            target = other.open_like(group, group_set)
            for sample in began.written_since(group_set.samples()) if began else ():
                target.apply(sample)
        difference: Difference = {}
        changes: list[Change] = []
        for group, target in other.groups.items():
            before = self.working.groups.get(group)
            seen = set(before.samples().each_digest()) if before else set()
            old_keys = before.keys() if before else []
            every = passes_disposed(group)
            gone = [key for key in old_keys if every or key not in target]
            samples = [dispose_of(key, now_ns) for key in gone]
            samples += target.samples() if every else target.samples().without(seen)
            if samples:
                difference[group] = by_instance(samples)
            if self.is_on_disk(describe[group]):
                changes += _changes(describe[group], before, target, seen)
        self.working = other
        self.has_changed = True
        self.replaced += 1
        return difference, changes

    def persistent_groups(
        self, descriptions: Iterable[GroupDescription]
    ) -> list[tuple[GroupDescription, Rows]]:
        """What of the working set belongs on the disk."""
        return [
            (description, self.working.groups[description.group].samples())
            for description in descriptions
            if description.group in self.working.groups and self.is_on_disk(description)
        ]
