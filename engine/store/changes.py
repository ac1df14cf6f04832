"""Changes on their way to the disk: their net effect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from engine.core.name_spaces import Group
from engine.dataset.groups import GroupDescription
from engine.dataset.sample import Sample
from engine.dataset.sample_rows import SampleRows, Samples
from engine.store.interface import GroupChange


class Net:
    """The net effect of a sequence of changes of one group.

    A sample that came and went within the sequence is `passing`: it is not written, and presumed absent.
    """

    __slots__ = ("added", "description", "evicted", "passing")

    def __init__(self, description: GroupDescription) -> None:
        self.description = description
        self.added: dict[bytes, Sample] = {}
        self.evicted: dict[bytes, Sample] = {}
        self.passing: dict[bytes, Sample] = {}

    def add(self, sample: Sample) -> None:
        """Add a sample."""
        digest = sample.digest
        if self.evicted:
            self.evicted.pop(digest, None)
        if self.passing:
            self.passing.pop(digest, None)
        self.added[digest] = sample

    def extend(self, samples: Samples) -> None:
        """Add many samples; fast while none was evicted."""
        if self.evicted or self.passing:
            for sample in samples:
                self.add(sample)
        else:
            self.added.update([(sample.digest, sample) for sample in samples])

    def evict(self, sample: Sample) -> None:
        """Evict a sample."""
        digest = sample.digest
        if self.added.pop(digest, None) is not None:
            self.passing[digest] = sample
        elif digest not in self.passing:
            self.evicted[digest] = sample

    def sort_out(self, here: set[bytes]) -> None:
        """Keep only effective changes, given the digests that the store has."""
        self.added = {digest: sample for digest, sample in self.added.items() if digest not in here}
        gone = {**self.evicted, **self.passing}
        self.evicted = {digest: sample for digest, sample in gone.items() if digest in here}
        self.passing = {}

    def samples(self) -> list[Sample]:
        """Return all samples of the sequence."""
        return [*self.added.values(), *self.evicted.values(), *self.passing.values()]


class NewSamples(NamedTuple):
    """Samples to add to a group, each presumed new."""

    description: GroupDescription
    added: SampleRows


def net_changes(changes: Sequence[GroupChange]) -> dict[Group, Net]:
    """Return the net effect of a sequence of changes on each group."""
    nets: dict[Group, Net] = {}
    for description, added, evicted in changes:
        group = description.group
        net = nets.get(group)
        if net is None:
            net = nets[group] = Net(description)
        net.description = description
        if added is not None:
            net.add(added)
        for sample in evicted:
            net.evict(sample)
    return nets
