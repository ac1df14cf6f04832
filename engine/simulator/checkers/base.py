"""What a checker is: it watches a run, knows nothing of how nodes do their work, and objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple

from engine.core.namespaces import MergeType
from engine.core.states import Phase

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from engine.core.messages import Epoch, ReaderKey
    from engine.core.namespaces import Group
    from engine.dataset.dataset import DataSet
    from engine.dataset.groups import GroupDescription
    from engine.dataset.sample import Sample
    from engine.runtime.runtime import CapturedSample
    from engine.runtime.startup import Found
    from engine.simulator.cluster import Cluster
    from engine.simulator.disk import Committed
    from engine.simulator.node import SimulatedNode

Held = dict[tuple["Group", bytes], "Sample"]
"""Samples by group and digest."""


class Violation(Exception):
    """Something happened that must never happen.

    Attributes:
        invariant: which rule is broken, as in `I1`.
    """

    def __init__(self, invariant: str, text: str) -> None:
        super().__init__(f"{invariant}: {text}")
        self.invariant = invariant


class Standing(NamedTuple):
    """Where a node is in one name-space.

    `is_aligned`: the set that it holds came from a fellow, and was not injected by this node.
    """

    phase: Phase
    holder: bool
    following: Epoch | None
    lineage: Epoch
    requests: tuple[int, ...]
    is_aligned: bool


class Checker:
    """The base of all checkers: it is told of everything and minds nothing.

    Attributes:
        invariant: the code of what it checks; `meaning` says it in words.
    """

    invariant: ClassVar[str]
    meaning: ClassVar[str]

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def fail(self, text: str) -> None:
        """End the run.

        Raises:
            Violation: always.
        """
        raise Violation(self.invariant, text)

    def opened(self, node: SimulatedNode, found: Found) -> None:
        """A node opened and verified its store; its run begins."""

    def ended(self, node: SimulatedNode) -> None:
        """A run has ended, in order or not."""

    def met(self, node: SimulatedNode, fellow: SimulatedNode) -> None:
        """A node talks to a fellow from now on, or again."""

    def differed(self, node: SimulatedNode, name_space: str) -> None:
        """A node found that its set differs from its aligner's for no reason that it knows."""

    def stepped(self, node: SimulatedNode, name_space: str, before: Standing | None, now: Standing) -> None:
        """A node stands elsewhere than after its last turn; `before` is None in a run's first turn."""

    def written(self, description: GroupDescription, record: CapturedSample) -> None:
        """An application wrote a sample."""

    def captured(self, node: SimulatedNode, records: Sequence[CapturedSample]) -> None:
        """A node took samples of applications in."""

    def committed(self, node: SimulatedNode, transaction: Committed) -> None:
        """A transaction of a node is on its disk."""

    def streaming(self, node: SimulatedNode, name_space: str, fellows: tuple[str, ...], size: int) -> None:
        """A node begins to send so many bytes of samples to each of some fellows."""

    def serving(self, node: SimulatedNode, reader: ReaderKey, *, whole: bool) -> None:
        """A node begins to give data to a late joiner."""

    def destroyed(self, node: SimulatedNode) -> None:
        """The disk of a node that is down is lost with everything on it."""

    def rotted(self, node: SimulatedNode, name_space: str, digest: bytes) -> None:
        """A bit of a sample on a node's disk flipped."""

    def looked(self) -> None:
        """Some time has passed: the moment to look at everything."""

    def settled(self) -> None:
        """Everything has healed, and the system is quiet since a while."""


def is_ours(node: SimulatedNode, group: Group) -> bool:
    """Whether a group is in a name-space of the node, which may have been configured anew."""
    assert node.runtime is not None
    return node.runtime.core.name_space_of(group) is not None


def talk(one: SimulatedNode, other: SimulatedNode) -> bool:
    """Whether two nodes are up and have each other as fellows that they talk to."""
    return _knows(one, other) and _knows(other, one)


def _knows(one: SimulatedNode, other: SimulatedNode) -> bool:
    return one.runtime is not None and any(
        fellow.node == other.id and fellow.approved and fellow.incarnation == other.incarnation
        for fellow in one.runtime.core.fellows
    )


def samples_of(data: DataSet) -> Iterator[tuple[Group, Sample]]:
    """All samples of a set with their groups."""
    for group, group_set in data.groups.items():
        for sample in group_set.samples():
            yield group, sample


def held(data: DataSet) -> Held:
    """The samples of a set by what tells them apart."""
    return {(group, sample.digest): sample for group, sample in samples_of(data)}


def is_kept(data: DataSet, group: Group, sample: Sample) -> bool:
    """Whether a set has the sample, or newer ones of its instance in place of it."""
    group_set = data.groups.get(group)
    if group_set is None:
        return False
    return sample in group_set.instance(sample.key) or group_set.has_no_place(sample)


def missing(before: Held, data: DataSet) -> list[tuple[Group, Sample]]:
    """The samples that were there and should still be there, but are not."""
    present = held(data)
    gone = [key for key in before if key not in present]
    return [(key[0], before[key]) for key in gone if not is_kept(data, key[0], before[key])]


def deletes(node: SimulatedNode, name_space: str) -> bool:
    """Whether the merge policy of a node takes everything away."""
    assert node.runtime is not None
    rules = node.runtime.spaces[name_space].state.policy.merges
    return any(rule.type is MergeType.DELETE for rule in rules)


def describe(lost: Sequence[tuple[Group, Sample]]) -> str:
    """A few of some samples, for a message."""
    texts = [
        f"{group} key {sample.key.hex()} t={sample.source_time_ns} status={sample.status}"
        for group, sample in lost[:3]
    ]
    more = f" and {len(lost) - 3} more" if len(lost) > 3 else ""
    return "; ".join(texts) + more
