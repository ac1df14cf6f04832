"""Groups, name-spaces and the policies that apply to them.

Deployment guide, 5.2.2 Name-spaces and 5.2.3 Name-space policies. These are plain values: the configuration
package makes them from XML, the protocol sends them to fellows, and the check calls the same functions on
them that a node calls at run time.
"""

from __future__ import annotations

import dataclasses
import enum
from typing import NamedTuple

from engine.core import expressions

MAX_PRIORITY = 255
"""The highest masterPriority; it also stands for the legacy rule (quality, then id)."""

LAST_RESORT_PRIORITY = 1
"""The masterPriority of a node in a name-space that its content filters touch, unless the policy says 0."""


class Group(NamedTuple):
    """A partition and topic pair: the unit of alignment.

    `type_id` tells apart two types that are used under one topic name; it is empty where the type does
    not matter, as in expressions and reports.
    """

    partition: str
    topic: str
    type_id: str = ""

    def __str__(self) -> str:
        return f"{self.partition}.{self.topic}"


class Alignee(enum.StrEnum):
    """When a node obtains the data of a name-space (5.2.3.1)."""

    INITIAL = "Initial"
    LAZY = "Lazy"
    ON_REQUEST = "On_Request"


class Durability(enum.StrEnum):
    """How strongly a node keeps the data of a name-space at most (5.2.3.2); it can only weaken."""

    DURABLE = "Durable"
    PERSISTENT = "Persistent"
    TRANSIENT = "Transient"
    TRANSIENT_LOCAL = "Transient_Local"
    VOLATILE = "Volatile"


class MergeType(enum.StrEnum):
    """What a node does with its set when it meets a set that evolved apart (5.2.3.4)."""

    IGNORE = "Ignore"
    DELETE = "Delete"
    MERGE = "Merge"
    REPLACE = "Replace"
    CATCHUP = "Catchup"


@dataclasses.dataclass(frozen=True, slots=True)
class MergeRule:
    """A merge type for the fellows whose role matches `scope`."""

    type: MergeType
    scope: str


@dataclasses.dataclass(frozen=True, slots=True)
class Policy:
    """The responsibilities of one node for the name-spaces whose name matches `name_space`.

    `master_priority` is 0 (never master) to 255; `merges` is in document order and the first rule whose
    scope matches applies. With `filtered`, content filters of the node withhold a part of the data.
    """

    name_space: str
    durability: Durability = Durability.DURABLE
    aligner: bool = True
    alignee: Alignee = Alignee.INITIAL
    delayed_alignment: bool = False
    equality_check: bool = False
    master_priority: int = MAX_PRIORITY
    merges: tuple[MergeRule, ...] = ()
    filtered: bool = False

    def merge_type(self, role: str) -> MergeType | None:
        """The type of the first rule whose scope matches `role`; None when no scope does."""
        for rule in self.merges:
            if expressions.matches(rule.scope, role):
                return rule.type
        return None

    def with_filter(self) -> Policy:
        """The policy of a node that filters: it is incomplete, and master in the last resort only."""
        return dataclasses.replace(
            self, filtered=True, master_priority=min(self.master_priority, LAST_RESORT_PRIORITY)
        )

    @property
    def may_be_master(self) -> bool:
        """A non-aligner and a priority of 0 never become master (5.4.3, 5.4.4)."""
        return self.aligner and self.master_priority > 0

    @property
    def may_lead_others(self) -> bool:
        """A Lazy or On_Request node has no whole set to give, and is master of its own at most (5.2.3.1)."""
        return self.may_be_master and self.alignee is Alignee.INITIAL


class Element(NamedTuple):
    """One `partition.topic` expression of a name-space."""

    partition: str
    topic: str

    def __str__(self) -> str:
        return f"{self.partition}.{self.topic}"

    @classmethod
    def parse(cls, text: str) -> Element:
        """Split at the last dot; a text without a dot is a partition whose topics all belong.

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
        """Whether both parts accept the group's names."""
        return expressions.matches(self.partition, group.partition) and expressions.matches(
            self.topic, group.topic
        )


@dataclasses.dataclass(frozen=True, slots=True)
class NameSpace:
    """A named set of groups that is always handled as one data set (5.2.2)."""

    name: str
    elements: tuple[Element, ...]

    @classmethod
    def of(cls, name: str, *texts: str) -> NameSpace:
        """A name-space from `partition.topic` texts, in canonical order and without repetitions."""
        return cls(name, tuple(sorted({Element.parse(text) for text in texts})))

    def contains(self, group: Group) -> bool:
        """Whether any element accepts the group."""
        return any(element.contains(group) for element in self.elements)

    def __str__(self) -> str:
        return ",".join(map(str, self.elements))


@dataclasses.dataclass(frozen=True, slots=True)
class Conflict:
    """Two definitions that cannot both be used in one system (5.2.2, 5.4.2).

    `witness` is a group that lies in both; it is None when the same name has been given definitions that
    do not even touch.
    """

    ours: NameSpace
    theirs: NameSpace
    witness: Group | None

    def __str__(self) -> str:
        both = f"name-space '{self.ours.name}' = {self.ours} and "
        both += f"name-space '{self.theirs.name}' = {self.theirs}"
        if self.ours.name == self.theirs.name:
            return f"{both}: the same name is defined differently"
        return f"{both} overlap: both contain {self.witness}"


def overlap(left: NameSpace, right: NameSpace) -> Group | None:
    """A group that lies in both name-spaces, or None when they are disjoint. The answer is exact."""
    for a in left.elements:
        for b in right.elements:
            partition = expressions.intersection(a.partition, b.partition)
            topic = expressions.intersection(a.topic, b.topic)
            if partition is not None and topic is not None:
                return Group(partition, topic)
    return None


def compare(ours: NameSpace, theirs: NameSpace) -> Conflict | None:
    """Whether two definitions conflict: same name but different, or overlapping under two names.

    Disjoint name-spaces co-exist, and so do equal definitions of one name. Names decide nothing about
    overlap: expressions do.
    """
    if ours.name == theirs.name:
        same = set(ours.elements) == set(theirs.elements)
        return None if same else Conflict(ours, theirs, overlap(ours, theirs))
    witness = overlap(ours, theirs)
    return Conflict(ours, theirs, witness) if witness else None


def find_policy(policies: tuple[Policy, ...], name: str) -> Policy | None:
    """The first policy, in document order, whose expression matches the name-space's name."""
    for policy in policies:
        if expressions.matches(policy.name_space, name):
            return policy
    return None
