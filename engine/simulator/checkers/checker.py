"""The base of checkers: they watch a run, independent of how nodes work, and report violations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, NamedTuple

from engine.core.messages import Epoch, ReaderKey
from engine.core.name_spaces import Group, MergeType
from engine.core.states import Phase
from engine.dataset.captured import CapturedSample
from engine.dataset.dataset import DataSet
from engine.dataset.groups import GroupDescription
from engine.dataset.sample import Sample
from engine.runtime.startup import StoredContent
from engine.simulator.run_record import Violation
from engine.simulator.simulated_disk import Committed
from engine.simulator.simulated_node import SimulatedNode
from engine.simulator.simulated_system import SimulatedSystem

Held = dict[tuple[Group, bytes], Sample]
"""Samples by group and digest."""


class Standing(NamedTuple):
    """The state of a node in one name-space.

    `is_aligned`: its set came from a fellow, and was not injected by this node.
    """

    phase: Phase
    holder: bool
    following: Epoch | None
    lineage: Epoch
    requests: tuple[int, ...]
    is_aligned: bool


class Checker:
    """The base of all checkers: it gets all events and ignores them.

    Attributes:
        invariant: code of the rule.
        meaning: the rule in words.
    """

    invariant: ClassVar[str]
    meaning: ClassVar[str]

    def __init__(self, cluster: SimulatedSystem) -> None:
        self.cluster = cluster

    def fail(self, text: str) -> None:
        """End the run.

        Raises:
            Violation: always.
        """
        raise Violation(self.invariant, text)

    def opened(self, node: SimulatedNode, found: StoredContent) -> None:
        """Take in that a node opened and verified its store; its run begins."""

    def ended(self, node: SimulatedNode) -> None:
        """Take in the end of a run, orderly or not."""

    def met(self, node: SimulatedNode, fellow: SimulatedNode) -> None:
        """Take in that a node begins to talk to a fellow."""

    def differed(self, node: SimulatedNode, name_space: str) -> None:
        """Take in that a node found an unexplained difference between its set and its aligner's."""

    def stepped(self, node: SimulatedNode, name_space: str, before: Standing | None, now: Standing) -> None:
        """Take in a node's change of state since its last turn; `before` is None in a run's first turn."""

    def written(self, description: GroupDescription, record: CapturedSample) -> None:
        """Take in a sample that an application wrote."""

    def captured(self, node: SimulatedNode, records: Sequence[CapturedSample]) -> None:
        """Take in samples that a node captured."""

    def committed(self, node: SimulatedNode, transaction: Committed) -> None:
        """Take in a transaction that reached a node's disk."""

    def streaming(self, node: SimulatedNode, name_space: str, fellows: tuple[str, ...], size: int) -> None:
        """Take in that a node begins to send `size` bytes of samples to each of some fellows."""

    def serving(self, node: SimulatedNode, reader: ReaderKey, *, whole: bool) -> None:
        """Take in that a node begins a delivery to a late joiner. It gets the whole set, or a difference."""

    def destroyed(self, node: SimulatedNode) -> None:
        """Take in the loss of the disk of a node that is down."""

    def rotted(self, node: SimulatedNode, name_space: str, digest: bytes) -> None:
        """Take in a flipped bit of a sample on a node's disk."""

    def looked(self) -> None:
        """Check everything, at regular times."""

    def settled(self) -> None:
        """Check everything once all has healed and the system has been quiet for a while."""


def is_ours(node: SimulatedNode, group: Group) -> bool:
    """Tell whether a group is in a name-space of the node, whose configuration may have changed."""
    assert node.runtime is not None
    return node.runtime.core.name_space_of(group) is not None


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
    assert node.runtime is not None
    rules = node.runtime.spaces[name_space].state.policy.merges
    return any(rule.type is MergeType.DELETE for rule in rules)


def describe(lost: Sequence[tuple[Group, Sample]]) -> str:
    """Describe the first few samples, for a message."""
    texts = [
        f"{group} key {sample.key.hex()} t={sample.source_time_ns} status={sample.status}"
        for group, sample in lost[:3]
    ]
    more = f" and {len(lost) - 3} more" if len(lost) > 3 else ""
    return "; ".join(texts) + more
