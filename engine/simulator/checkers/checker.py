"""What several checkers look at: the samples of a set, and whether nodes talk to each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from engine.core.name_spaces import Group, MergeType
from engine.dataset.dataset import DataSet
from engine.dataset.sample import Sample
from engine.simulator.simulated_node import SimulatedNode

Held = dict[tuple[Group, bytes], Sample]
"""Samples by group and digest."""


def is_ours(node: SimulatedNode, group: Group) -> bool:
    """Tell whether a group is in a name-space of the node, whose configuration may have changed."""
    return node.live.core.name_space_of(group) is not None


def talk(one: SimulatedNode, other: SimulatedNode) -> bool:
    """Tell whether two nodes are up and talk to each other."""
    return _knows(one, other) and _knows(other, one)


def _knows(one: SimulatedNode, other: SimulatedNode) -> bool:
    return one.runtime is not None and any(
        fellow.node == other.id and fellow.approved and fellow.incarnation == other.incarnation
        for fellow in one.runtime.core.fellows
    )


def samples_of(data: DataSet) -> Iterator[tuple[Group, Sample]]:
    """Return all samples of a set with their groups."""
    for group, group_set in data.groups.items():
        for sample in group_set.samples():
            yield group, sample


def held(data: DataSet) -> Held:
    """Return the samples of a set by group and digest."""
    return {(group, sample.digest): sample for group, sample in samples_of(data)}


def is_kept(data: DataSet, group: Group, sample: Sample) -> bool:
    """Tell whether a set has the sample, or newer ones of its instance in its place."""
    group_set = data.groups.get(group)
    if group_set is None:
        return False
    return sample in group_set.instance(sample.key) or group_set.has_no_place(sample)


def missing(before: Held, data: DataSet) -> list[tuple[Group, Sample]]:
    """Return the samples of `before` that the set should still have, but lacks."""
    present = held(data)
    gone = [key for key in before if key not in present]
    return [(key[0], before[key]) for key in gone if not is_kept(data, key[0], before[key])]


def deletes(node: SimulatedNode, name_space: str) -> bool:
    """Tell whether a merge policy of the node deletes its set."""
    rules = node.live.spaces[name_space].state.policy.merges
    return any(rule.type is MergeType.DELETE for rule in rules)


def describe(lost: Sequence[tuple[Group, Sample]]) -> str:
    """Describe the first few samples, for a message."""
    texts = [
        f"{group} key {sample.key.hex()} t={sample.source_time_ns} status={sample.status}"
        for group, sample in lost[:3]
    ]
    more = f" and {len(lost) - 3} more" if len(lost) > 3 else ""
    return "; ".join(texts) + more
