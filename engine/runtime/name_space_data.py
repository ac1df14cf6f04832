"""The sets of one name-space on one node: working, staged, and stored."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from engine.core.name_space_state import NameSpaceState
from engine.core.name_spaces import Durability, Group
from engine.dataset.dataset import DataSet
from engine.dataset.group_set import NO_FLOOR, ApplyOutcome, GroupSet, Summary
from engine.dataset.groups import DurabilityKind, GroupDescription
from engine.dataset.living import by_instance
from engine.dataset.sample import DISPOSE, KEY_HEADER, NO_WRITER, UNREGISTER, Sample, make_sample
from engine.dataset.sample_rows import SampleRows
from engine.dataset.settling import Content, SettlingClock
from engine.runtime.store_queue import Conversion
from engine.store.interface import GroupChange, roll_up

Difference = dict["Group", list["Sample"]]
"""Samples that turn one set into another, by group."""


def floor_mark(group: Group) -> str:
    """Return the name of the mark with the source time up to which a group's data was deleted."""
    return f"floor {group.type_id} {group.partition}.{group.topic}"


def dispose_of(key: bytes, now_ns: int) -> Sample:
    """Make a dispose for readers on behalf of a merge policy; it comes from no writer and is never stored."""
    return make_sample(now_ns, NO_WRITER, DISPOSE, key, KEY_HEADER + key)


def withdrawal_of(key: bytes, now_ns: int) -> Sample:
    """Make a sample that tells clients that a merge policy replaced the samples of an instance."""
    return make_sample(now_ns, NO_WRITER, UNREGISTER, key, KEY_HEADER + key)


def _changes(
    description: GroupDescription, before: GroupSet | None, after: GroupSet, seen: set[bytes]
) -> list[GroupChange]:
    """Return the changes of a group for the store; `seen` are the digests of `before`."""
    added = [GroupChange(description, sample) for sample in after.samples().without(seen)]
    if before is None:
        return added
    gone = list(before.samples().without(set(after.samples().each_digest())))
    return [*added, GroupChange(description, None, gone)] if gone else added


class Began(msgspec.Struct, frozen=True):
    """Start of a merge: the wall clock of this node, and the samples present then with a later source time.

    Clocks of writers may be ahead of this node's; such samples were not written after the start.
    """

    time_ns: int
    ahead: frozenset[bytes]

    def written_since(self, samples: SampleRows) -> Iterator[Sample]:
        """Return the samples written since the start."""
        return (sample for sample in samples.after(self.time_ns) if sample.digest not in self.ahead)


@dataclasses.dataclass(slots=True)
class NameSpaceData:
    """The sets of one name-space."""

    state: NameSpaceState
    """The core's state of the name-space."""
    applied: DataSet = dataclasses.field(default_factory=DataSet)
    """`working` without the captured samples that wait for newer ones (`engine.runtime.capture`)."""
    waiting_ns: int = NO_FLOOR
    """Least source time of those that wait, or less."""
    _settle: Callable[[], None] | None = dataclasses.field(default=None, init=False)
    staging: DataSet | None = None
    """The set that is being loaded, collected or aligned; it becomes `working` when complete."""
    conversion: Conversion | None = None
    """Changes that turn the stored set into `staging`; None to write the whole set."""
    loaded: DataSet | None = None
    """The verified stored set, until it is injected, joined or given up."""
    part: DataSet | None = None
    """Samples of a set whose stream broke off; they are only used in comparisons."""
    is_switched: bool = False
    """The store's complete set is `working`, so that live changes are appended to it."""
    stored: dict[Group, Summary] = dataclasses.field(default_factory=dict)
    """Watermark of each group on disk."""
    has_changed: bool = True
    """`working` has changed since the core was last told its content."""
    present: SettlingClock = dataclasses.field(default_factory=SettlingClock)
    """Clock by which changes of `working` are dated."""
    keeps: str = ""
    """Why the stored set stays as a back-up when the staged one replaces it; empty if it does not."""
    backup: str = ""
    """The newest back-up that this run made, for people."""
    backup_ns: int = 0
    """When another set replaced that one, nanoseconds since 1970; 0 for none."""
    replaced: int = 0
    """Times that another set replaced `working`, so that samples may be gone."""

    @property
    def working(self) -> DataSet:
        """Samples captured in this run and, once complete, the whole set; none wait after this."""
        if self._settle is not None:
            settle, self._settle = self._settle, None
            settle()
        return self.applied

    @working.setter
    def working(self, data: DataSet) -> None:
        self.applied = data

    def wait(self, settle: Callable[[], None], oldest_ns: int) -> None:
        """Note that captured samples wait.

        Args:
            settle: puts them into `applied`.
            oldest_ns: their least source time, or less.
        """
        self.waiting_ns = min(self.waiting_ns, oldest_ns) if self._settle is not None else oldest_ns
        self._settle = settle

    def settled(self, until_ns: int) -> Content:
        """Return the content as of a source time (`DataSet.settled`), without applying later samples."""
        is_part = self._settle is not None and (until_ns > self.waiting_ns or self.present.skews)
        return (self.working if is_part else self.applied).settled(until_ns)

    @property
    def keeps_any(self) -> bool:
        """Whether the policy lets this node keep durable data."""
        return self.state.policy.durability not in (Durability.VOLATILE, Durability.TRANSIENT_LOCAL)

    def is_kept(self, description: GroupDescription) -> bool:
        """Whether this node keeps the group; policies only weaken durability (deployment guide 5.2.3.2)."""
        return self.keeps_any and description.qos.durability >= DurabilityKind.TRANSIENT

    def is_on_disk(self, description: GroupDescription) -> bool:
        """Whether the group belongs on the disk of this node."""
        return self.state.policy.persists and description.qos.durability is DurabilityKind.PERSISTENT

    def open_group(self, description: GroupDescription) -> GroupSet:
        """Return the group's part of the working set."""
        return self.working.open_described(description)

    def stage(self, data: DataSet, conversion: Conversion | None) -> None:
        """Stage a set, which becomes the working set once it is complete."""
        # A part is always written whole, because the store may have more or less of it.
        self.staging, self.conversion = data, None if self.state.is_part else conversion

    def stage_nothing(self) -> None:
        """Forget what was staged."""
        self.staging = self.conversion = None

    def leave_out(self, known: Mapping[Group, GroupDescription]) -> None:
        """Forget stored groups that a changed configuration does not keep.

        The stored set stays as a back-up when the next one replaces it.
        """
        groups = self.loaded.groups if self.loaded is not None else {}
        foreign = [group for group in groups if group not in known]
        if any(groups[group].count for group in foreign):
            self.keeps = f"{len(foreign)} of its groups are not kept any more by the configuration"
        for group in foreign:
            del groups[group]

    def stage_loaded(self) -> DataSet:
        """Stage the stored set for injection."""
        loaded = self.loaded or DataSet()
        self.stage(loaded, Conversion([], before=loaded.summary()))
        return loaded

    def stage_too(self, other: DataSet, describe: dict[Group, GroupDescription]) -> None:
        """Join a fellow's captured samples with the staged set."""
        assert self.staging is not None
        _, changes = self._join(self.staging, other, describe)
        if self.conversion is not None:
            self.conversion.changes.extend(changes)

    def join(
        self, other: DataSet, describe: dict[Group, GroupDescription]
    ) -> tuple[Difference, list[GroupChange]]:
        """Join `other` with the working set; return its new samples and the changes for the store."""
        self.has_changed = True
        new, changes = self._join(self.working, other, describe)
        return new, changes if self.is_switched else []

    def _join(
        self, target: DataSet, other: DataSet, describe: dict[Group, GroupDescription]
    ) -> tuple[Difference, list[GroupChange]]:
        changes: list[GroupChange] = []
        new: Difference = {}
        for group, theirs in other.groups.items():
            description = describe[group]
            ours = target.open_described(description)
            is_on_disk = self.is_on_disk(description)
            removed = ours.raise_floor(theirs.floor_ns)
            if removed and is_on_disk:
                changes.append(GroupChange(description, None, removed))
            for sample in theirs.samples():
                outcome, evicted = ours.apply(sample)
                if outcome is ApplyOutcome.STORED:
                    new.setdefault(group, []).append(sample)
                    if is_on_disk:
                        changes.append(GroupChange(description, sample, evicted))
        return new, changes

    def delete(self, description: GroupDescription, until_ns: int) -> list[GroupChange]:
        """Delete historical data of a group up to a source time; return the changes for the store."""
        removed = self.open_group(description).raise_floor(until_ns)
        if not removed:
            return []
        self.has_changed = True
        return self._removal(description, removed)

    def floors(self, groups: Iterable[Group]) -> dict[str, str]:
        """Return the marks with the source times up to which data of groups was deleted.

        They must reach the disk no later than the removal of that data.
        """
        known = ((group, self.working.groups.get(group)) for group in groups)
        return {
            floor_mark(group): str(group_set.floor_ns)
            for group, group_set in known
            if group_set is not None and group_set.floor_ns > NO_FLOOR
        }

    def purge(self, description: GroupDescription, key: bytes, last: bytes) -> list[GroupChange]:
        """Forget an instance that is disposed here, too, and ends with the sample of digest `last`.

        That sample may only unregister the instance, so the dispose must be checked as well.
        """
        group_set = self.open_group(description)
        history = group_set.instance(key)
        if key not in group_set.disposed or history[-1].digest != last:
            return []
        self.has_changed = True
        return self._removal(description, group_set.remove_instance(key))

    def _removal(self, description: GroupDescription, removed: list[Sample]) -> list[GroupChange]:
        stored = self.is_switched and self.is_on_disk(description)
        return [GroupChange(description, None, removed)] if stored else []

    def complete(self, describe: dict[Group, GroupDescription]) -> Conversion | None:
        """Make the staged set, joined with the samples captured meanwhile, the working set.

        Returns the changes that turn the stored set into it; None if it must be written whole.
        """
        conversion = self.conversion
        if self.staging is not None:
            captured, self.working = self.working, self.staging
            _, changes = self._join(self.working, captured, describe)
            if conversion is not None:
                conversion.changes.extend(changes)
        # What was stored is in the working set now, or was given up: it must not be joined a second time.
        self.staging = self.loaded = self.part = self.conversion = None
        self.is_switched = self.has_changed = True
        return conversion

    def stored_part(self, descriptions: Iterable[GroupDescription]) -> Summary:
        """Return the summary of the groups of the working set that belong on the disk."""
        groups = self.working.groups
        return roll_up(
            (description.group, groups[description.group].summary())
            for description in descriptions
            if description.group in groups and self.is_on_disk(description)
        )

    def begin(self, now_ns: int) -> Began:
        """Note the start of a merge that will replace the working set."""
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
    ) -> tuple[Difference, list[GroupChange]]:
        """Replace the working set (REPLACE, CATCHUP, DELETE), keeping samples written since the merge began.

        Returns the samples for readers on this side, which are a dispose for each instance that is gone and
        the new samples, and the changes for the store.

        Args:
            other: the set that takes its place.
            began: start of the merge; None for now, so that nothing was written since.
            now_ns: wall clock.
            passes_disposed: whether readers of a group see all instances disposed, and all samples again.
            describe: descriptions of the groups.
        """
        for group, group_set in self.working.groups.items():
            target = other.open_like(group, group_set)
            for sample in began.written_since(group_set.samples()) if began else ():
                target.apply(sample)
        difference: Difference = {}
        changes: list[GroupChange] = []
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
    ) -> list[tuple[GroupDescription, SampleRows]]:
        """Return the groups of the working set that belong on the disk."""
        return [
            (description, self.working.groups[description.group].samples())
            for description in descriptions
            if description.group in self.working.groups and self.is_on_disk(description)
        ]
