"""The data of one name-space on one node: what is being filled, what is complete, what lies on the disk."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from engine.core.namespaces import Durability
from engine.dataset.dataset import DataSet, GroupSet, Outcome
from engine.dataset.groups import DurabilityKind
from engine.store.interface import Change

if TYPE_CHECKING:
    from collections.abc import Iterable

    from engine.core.namespace import NameSpaceState
    from engine.core.namespaces import Group
    from engine.dataset.dataset import Summary
    from engine.dataset.groups import GroupDescription
    from engine.dataset.sample import Sample

_ON_DISK = (Durability.DURABLE, Durability.PERSISTENT)


@dataclasses.dataclass(slots=True)
class NameSpaceData:
    """A name-space's sets.

    Attributes:
        state: the core's view of the name-space.
        working: what was captured in this run and, once complete, the whole set.
        staging: the set that is being loaded, collected or aligned; it joins `working` when complete.
        loaded: the verified stored set, until it is known whether it will be injected.
        is_switched: the store's complete set is `working`, so that live changes are appended to it.
        stored: the watermark of each group on disk.
        has_changed: `working` differs from what the core was last told.
    """

    state: NameSpaceState
    working: DataSet = dataclasses.field(default_factory=DataSet)
    staging: DataSet | None = None
    loaded: DataSet | None = None
    is_switched: bool = False
    stored: dict[Group, Summary] = dataclasses.field(default_factory=dict)
    has_changed: bool = True

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
        return self.working.open_group(description.group, description.qos.history_depth)

    def take_in(self, group_set: GroupSet, description: GroupDescription, sample: Sample) -> Change | None:
        """Apply one sample to the working set; the change when it is to be appended to the store."""
        outcome, evicted = group_set.apply(sample)
        if outcome is not Outcome.STORED:
            return None
        self.has_changed = True
        if self.is_switched and self.is_on_disk(description):
            return Change(description, sample, evicted)
        return None

    def join(self, other: DataSet, describe: dict[Group, GroupDescription]) -> tuple[int, list[Change]]:
        """MERGE `other` into the working set: how many samples were new, and what the store must append."""
        changes: list[Change] = []
        new = 0
        for group, theirs in other.groups.items():
            description = describe[group]
            ours = self.open_group(description)
            before = ours.count
            for sample in theirs.samples():
                change = self.take_in(ours, description, sample)
                if change:
                    changes.append(change)
            new += ours.count - before
        return new, changes

    def complete(self) -> None:
        """The staged set and what was captured meanwhile are the working set from now on."""
        if self.staging is not None:
            captured, self.working = self.working, self.staging
            self.working.join(captured)
        self.staging = self.loaded = None
        self.has_changed = True

    def replace(self, other: DataSet, since_ns: int) -> None:
        """REPLACE or CATCHUP: `other` is the set now, with what was written since the merge began."""
        for group, group_set in self.working.groups.items():
            target = other.open_group(group, group_set.depth)
            for sample in group_set.samples():
                if sample.source_time_ns > since_ns:
                    target.apply(sample)
        self.working = other
        self.has_changed = True

    def persistent_groups(
        self, descriptions: Iterable[GroupDescription]
    ) -> list[tuple[GroupDescription, list[Sample]]]:
        """What of the working set belongs on the disk."""
        return [
            (description, list(self.working.groups[description.group].samples()))
            for description in descriptions
            if description.group in self.working.groups and self.is_on_disk(description)
        ]
