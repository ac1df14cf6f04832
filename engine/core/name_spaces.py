"""Groups, name-spaces and the policies that apply to them.

Deployment guide, 5.2.2 Name-spaces and 5.2.3 Name-space policies. These are plain values: the configuration
package makes them from XML, the protocol sends them to fellows, and `ospltool check` and the nodes call the
same functions on them.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from engine.core import expressions
from engine.core.expressions import intersection, matches

# OpenSplice's range for masterPriority, 0 to 255 (deployment guide 5.x).
MAX_PRIORITY = 255
"""The highest masterPriority; it also stands for the legacy rule (quality, then id)."""

LAST_RESORT_PRIORITY = 1
"""Highest masterPriority of a node in a name-space that its content filters touch."""


class Group(NamedTuple):
    """A partition and topic pair: the unit of alignment.

    `type_id` distinguishes types that use one topic name; it is empty if the type does not matter.
    """

    partition: str
    topic: str
    type_id: str = ""

    def __str__(self) -> str:
        return f"{self.partition}.{self.topic}"


class Alignee(enum.StrEnum):
    """Time at which a node obtains the data of a name-space (5.2.3.1)."""

    INITIAL = "Initial"
    LAZY = "Lazy"
    ON_REQUEST = "On_Request"


class Durability(enum.StrEnum):
    """Strongest durability that a node gives the data of a name-space (5.2.3.2); it can only weaken."""

    DURABLE = "Durable"
    PERSISTENT = "Persistent"
    TRANSIENT = "Transient"
    TRANSIENT_LOCAL = "Transient_Local"
    VOLATILE = "Volatile"


class MergeType(enum.StrEnum):
    """Treatment of a node's set that meets a set that evolved apart (5.2.3.4)."""

    IGNORE = "Ignore"
    DELETE = "Delete"
    MERGE = "Merge"
    REPLACE = "Replace"
    CATCHUP = "Catchup"


class MergeRule(msgspec.Struct, frozen=True):
    """A merge type for the fellows whose role matches `scope`."""

    type: MergeType
    scope: str


class Policy(msgspec.Struct, frozen=True):
    """The responsibilities of one node for some name-spaces (5.2.3)."""

    name_space: str
    """Expression; the policy is for the name-spaces whose name matches."""
    durability: Durability = Durability.DURABLE
    """Strongest durability of the data on this node."""
    aligner: bool = True
    """The node may give its set to others."""
    alignee: Alignee = Alignee.INITIAL
    """When the node obtains the data."""
    delayed_alignment: bool | None = None
    """Treatment of a stored set of another lineage at the start (5.2.3.3); None, not given, joins it.

    False sets it aside. True injects it if the set of the domain is empty and has no writers.
    """
    equality_check: bool | None = None
    """Sets are always compared before data moves; only False, if given, has an effect (5.2.3.5).

    It shows readers what merge policy Replace does to instances although the sets are equal.
    """
    master_priority: int = MAX_PRIORITY
    """0 (never master) to 255 (the legacy rule)."""
    merges: tuple[MergeRule, ...] = ()
    """Merge rules in document order; the first one whose scope matches applies."""
    filtered: bool = False
    """Content filters of the node withhold samples."""

    def merge_type(self, role: str) -> MergeType | None:
        """Return the type of the first rule whose scope matches `role`; None if no scope does."""
        for rule in self.merges:
            if expressions.matches(rule.scope, role):
                return rule.type
        return None

    def with_filter(self) -> Policy:
        """Return the policy of a node that filters: its set has gaps, so it is master in the last resort."""
        return msgspec.structs.replace(
            self, filtered=True, master_priority=min(self.master_priority, LAST_RESORT_PRIORITY)
        )

    @property
    def persists(self) -> bool:
        """Whether PERSISTENT data is kept on disk."""
        return self.durability in (Durability.DURABLE, Durability.PERSISTENT)

    @property
    def may_be_master(self) -> bool:
        """Whether the node may become master: an aligner with a priority above 0 (5.4.3, 5.4.4)."""
        return self.aligner and self.master_priority > 0

    @property
    def may_lead_others(self) -> bool:
        """Whether it may be master of others; a Lazy or On_Request node has no whole set (5.2.3.1)."""
        return self.may_be_master and self.alignee is Alignee.INITIAL


class Element(NamedTuple):
    """One `partition.topic` expression of a name-space."""

    partition: str
    topic: str

    def __str__(self) -> str:
        return f"{self.partition}.{self.topic}"

    @classmethod
    def parse(cls, text: str) -> Element:
        """Split at the last dot; a text without a dot is a partition with all its topics.

        Raises:
            ValueError: the topic part is blank.
        """
        partition, dot, topic = text.rpartition(".")
        if not dot:
            return cls(text or "*", "*")
        if not topic:
            raise ValueError(f"{text!r} has a blank topic; the notation is partition.topic")
        return cls(partition, topic)

    def contains(self, group: Group) -> bool:
        """Whether the expression includes a group."""
        return expressions.matches(self.partition, group.partition) and expressions.matches(
            self.topic, group.topic
        )


class NameSpace(msgspec.Struct, frozen=True):
    """A named set of groups that is handled as one data set (5.2.2)."""

    name: str
    elements: tuple[Element, ...]

    @classmethod
    def parse(cls, name: str, *texts: str) -> NameSpace:
        """Make a name-space of `partition.topic` texts, in canonical order and without repetitions."""
        return cls(name, tuple(sorted({Element.parse(text) for text in texts})))

    def contains(self, group: Group) -> bool:
        """Whether any element includes the group."""
        return any(element.contains(group) for element in self.elements)

    def __str__(self) -> str:
        return ",".join(map(str, self.elements))


class DefinitionConflict(msgspec.Struct, frozen=True):
    """Two definitions that cannot both be used in one system (5.2.2, 5.4.2).

    `witness` is a group in both; None if two definitions of one name have no group in common.
    """

    ours: NameSpace
    theirs: NameSpace
    witness: Group | None

    def described(self, ours: str, theirs: str) -> str:
        """Return the conflict in words; `ours` and `theirs` are the names of the two nodes."""
        if self.ours.name == self.theirs.name:
            return f"{ours} defines name-space '{self.ours.name}' as {self.ours}, {theirs} as {self.theirs}"
        first = f"{ours} has name-space '{self.ours.name}' = {self.ours}"
        second = f"{theirs} has '{self.theirs.name}' = {self.theirs}"
        return f"{first}, {second}, and both contain {self.witness}"


def overlap(left: NameSpace, right: NameSpace) -> Group | None:
    """Return a group that lies in both name-spaces, or None if they are disjoint. The answer is exact."""
    for a in left.elements:
        for b in right.elements:
            partition = expressions.intersection(a.partition, b.partition)
            topic = expressions.intersection(a.topic, b.topic)
            if partition is not None and topic is not None:
                return Group(partition, topic)
    return None


def compare(ours: NameSpace, theirs: NameSpace) -> DefinitionConflict | None:
    """Return the conflict of two definitions: different under one name, or overlapping under two.

    Disjoint name-spaces co-exist, and so do equal definitions of one name.
    """
    if ours.name == theirs.name:
        same = ours.elements == theirs.elements or set(ours.elements) == set(theirs.elements)
        return None if same else DefinitionConflict(ours, theirs, overlap(ours, theirs))
    witness = overlap(ours, theirs)
    return DefinitionConflict(ours, theirs, witness) if witness else None


def find_policy(policies: tuple[Policy, ...], name: str) -> Policy | None:
    """Return the first policy, in document order, whose expression matches the name of a name-space."""
    for policy in policies:
        if expressions.matches(policy.name_space, name):
            return policy
    return None


# Applications use a few; a name of each is in each of its state messages.
MAX_PARTITIONS = 100
"""Partitions of one reader at most: each of its announcements contains them all."""


def kept_partitions(group: Group, kept: Iterable[Element], single: Iterable[Element]) -> tuple[str, ...]:
    """Return partitions for a reader of a kept group: it must match nothing of the topic that is not kept.

    These are expressions, so that the reader also matches partitions that become known later. An expression
    that also accepts groups of which each is decided on its own cannot be used: there is no expression for
    the rest. If only such expressions contain the group, the result is its partition.

    Args:
        group: one that is kept.
        kept: groups that are kept, except some that are in `single`.
        single: groups of which each may be kept or not.
    """
    apart = [each.partition for each in single if matches(each.topic, group.topic)]
    found = {
        each.partition: matches(each.partition, group.partition)
        for each in kept
        if matches(each.topic, group.topic)
        and all(intersection(each.partition, one) is None for one in apart)
    }
    if not any(found.values()):
        return (group.partition,)
    # In Fast DDS, no expression matches the default partition.
    default = [""] if any(matches(each, "") for each in found) else []
    if "*" in found:
        return "*", *default
    if len(found) > MAX_PARTITIONS:
        found = {each: contains for each, contains in found.items() if contains}
    return tuple(dict.fromkeys((*found, *default)))


class Interest(msgspec.Struct, frozen=True):
    """A topic, or topics `by_expression`, in partitions given by expressions."""

    topic: str
    partitions: tuple[str, ...]
    by_expression: bool = False

    @property
    def elements(self) -> tuple[Element, ...]:
        """Return the groups as expressions."""
        return tuple(Element(partition, self.topic) for partition in self.partitions)

    def wants(self, group: Group) -> bool:
        """Whether it includes a group."""
        is_topic = matches(self.topic, group.topic) if self.by_expression else group.topic == self.topic
        return is_topic and any(matches(one, group.partition) for one in self.partitions)

    def touches(self, name_space: NameSpace) -> bool:
        """Whether it could include a group of a name-space."""
        return any(
            intersection(element.topic, self.topic) is not None
            and any(intersection(element.partition, one) is not None for one in self.partitions)
            for element in name_space.elements
        )
