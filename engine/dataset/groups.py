"""Description of a group: its type, and the QoS that shapes its history."""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from engine.core.expressions import is_literal, matches
from engine.core.name_spaces import Group
from engine.dataset.lifespans import WriterLifespan, joined

KEEP_ALL: Final = 0
"""History depth that stands for KEEP_ALL."""

BUILTIN_PARTITION: Final = "__BUILT-IN PARTITION__"
"""Partition of OpenSplice's built-in topics, of which each federation keeps its own."""


class DurabilityKind(enum.IntEnum):
    """DURABILITY QoS kinds in the order in which an offer satisfies a request (DDS 1.4, 2.2.3.4)."""

    VOLATILE = 0
    TRANSIENT_LOCAL = 1
    TRANSIENT = 2
    PERSISTENT = 3


class GroupLimits(NamedTuple):
    """The resource limits of DURABILITY_SERVICE for one group (DDS 1.4, 2.2.3.5); -1 for none."""

    max_samples: int = -1
    max_instances: int = -1
    max_samples_per_instance: int = -1

    @property
    def are_set(self) -> bool:
        """Whether at least one limit is set."""
        return max(self) > 0

    def loosened_by(self, other: GroupLimits) -> GroupLimits:
        """Return the higher of each limit; none is higher than any.

        Nodes learn of limits in different orders, so this is a join. Where samples and instances are limited,
        an instance has its share of the samples (`engine.dataset.dataset`). More instances must not make that
        share smaller, or a set would hold what a new one refuses: there may be more samples instead.
        """
        loosened = GroupLimits(*map(loosest, self, other))
        if min(loosened[:2]) <= 0:
            return loosened
        share = max(self.max_samples // self.max_instances, other.max_samples // other.max_instances)
        most = max(loosened.max_samples, loosened.max_instances * share)
        return loosened._replace(max_samples=most)


def loosest(one: int, other: int) -> int:
    """Return the higher of two history depths or limits; 0 and negative numbers stand for no bound."""
    return min(one, other) if min(one, other) <= 0 else max(one, other)


def is_deeper(one: int, other: int) -> bool:
    """Tell whether a history depth is above another one; 0 stands for KEEP_ALL."""
    return one != other and loosest(one, other) == one


def kept_depth(depth: int, limit: int) -> int:
    """Return the samples of each instance that depth and max_samples_per_instance leave; 0 for all."""
    return limit if limit > 0 and is_deeper(depth, limit) else depth


def depth_name(depth: int) -> str:
    """Return a HISTORY policy in words; a depth of 0 is KEEP_ALL."""
    return f"KEEP_LAST {depth}" if depth else "KEEP_ALL"


NO_LIMITS: Final = GroupLimits()

_ORDERS: Final = ("BY_RECEPTION_TIMESTAMP", "BY_SOURCE_TIMESTAMP")
_OWNERSHIPS: Final = ("SHARED", "EXCLUSIVE")
_REPRESENTATIONS: Final = {0: "XCDR1", 1: "XML", 2: "XCDR2"}


def is_given(group: Group, topic: str, partitions: Iterable[str]) -> bool:
    """Whether readers of a topic in these partitions get the data of a group.

    Expressions select by name (DDS 1.4, 2.2.3.13), also groups whose writer is in a partition with wildcards;
    two expressions do not match. No reader gets data of the built-in partition.
    """
    return (
        group.topic == topic
        and group.partition != BUILTIN_PARTITION
        and any(meets(pattern, group.partition) for pattern in partitions)
    )


def meets(one: str, other: str) -> bool:
    """Whether writers and readers in two partitions match; either may be an expression, but not both."""
    if is_literal(other):
        return matches(one, other)
    return is_literal(one) and matches(other, one)


UNTYPED_MEMBER: Final = "ospltool_untyped"
"""The only member of the stand-in for a type of which no more than the name is known."""


class TypeDescription(msgspec.Struct, frozen=True):
    """A type as Cyclone DDS describes it, enough to re-create the topic without a living writer.

    Attributes:
        name: the type name on the wire.
        information: the XTypes TypeInformation, serialized.
        mapping: the XTypes TypeMapping (the types themselves), serialized.
        keyed: whether the type has key fields.
    """

    name: str
    information: bytes
    mapping: bytes
    keyed: bool

    @property
    def type_id(self) -> str:
        """Short name that is unique to this type, for `Group.type_id`.

        Types without key are one if they have one name, by which they match; the rest may be known later.
        """
        return hashlib.sha256(self.information if self.keyed else self.name.encode()).hexdigest()[:12]

    @property
    def is_untyped(self) -> bool:
        """Whether only the name is known: writers announced no more, or nobody answered for it so far."""
        return UNTYPED_MEMBER.encode() in self.mapping


class GroupQos(msgspec.Struct, frozen=True):
    """The QoS of a group, from the topic or, if topic discovery does not find it, from the first writer.

    Raises:
        ValueError: the history depth is negative, or a lifespan is none.
    """

    durability: DurabilityKind
    """TRANSIENT or PERSISTENT."""
    history_depth: int = 1
    """Samples kept per instance, from DURABILITY_SERVICE; `KEEP_ALL` (0) for all."""
    cleanup_delay_ns: int = 0
    """service_cleanup_delay; -1 for infinite."""
    by_source_timestamp: bool = False
    """DESTINATION_ORDER is BY_SOURCE_TIMESTAMP."""
    exclusive: bool = False
    """OWNERSHIP is EXCLUSIVE."""
    max_samples: int = -1
    """DURABILITY_SERVICE limit for the group; -1 for none."""
    max_instances: int = -1
    """DURABILITY_SERVICE limit for the group; -1 for none."""
    max_samples_per_instance: int = -1
    """DURABILITY_SERVICE limit for each instance; -1 for none."""
    representations: tuple[int, ...] = (0, 2)
    """Offered data representations, as in DATA_REPRESENTATION (0 XCDR1, 2 XCDR2)."""
    requested: DurabilityKind = DurabilityKind.VOLATILE
    """Durability that the built-in reader requests: the topic's, or VOLATILE if that is unknown."""
    lifespans: tuple[WriterLifespan, ...] = ()
    """The writers whose samples expire (`engine.dataset.lifespans`); a policy of each writer for itself."""

    def __post_init__(self) -> None:
        if self.history_depth < KEEP_ALL:
            raise ValueError(f"a history depth of {self.history_depth} keeps nothing")
        if not all(one.is_valid for one in self.lifespans):
            raise ValueError("a lifespan of no writer, or that is negative")

    @property
    def limits(self) -> GroupLimits:
        """The three limits of DURABILITY_SERVICE."""
        return GroupLimits(self.max_samples, self.max_instances, self.max_samples_per_instance)

    def raised_by(self, other: GroupQos) -> GroupQos:
        """Return this QoS with what a later topic or writer asks for beyond it.

        The highest durability counts in any order of discovery: that of topics, or of writers while no topic
        is known. So do the deepest history and the highest limits of any topic or writer: nodes learn of
        topics and writers in different orders, and must end with one QoS. Lifespans are added. Everything
        else stays, so that no captured data is given up while the system runs.
        """
        requested = max(self.requested, other.requested)
        is_known = requested > DurabilityKind.VOLATILE
        durability = max(self.durability, other.requested if is_known else other.durability)
        depth = loosest(self.history_depth, other.history_depth)
        limits = self.limits.loosened_by(other.limits)
        raised = msgspec.structs.replace(
            self,
            durability=durability,
            requested=requested,
            history_depth=depth,
            lifespans=joined(self.lifespans, other.lifespans),
            **limits._asdict(),
        )
        return self if raised == self else raised

    def deepened(self, now: GroupQos) -> tuple[str, ...]:
        """Return what of history and limits is looser now, with the values before and after."""
        names = ("history", *GroupLimits._fields)
        pairs = zip(self._policies(), now._policies(), strict=True)
        return tuple(
            f"{name} {after} (it was {before})"
            for (name, before), (_, after) in pairs
            if name in names and before != after
        )

    def differences(self, offered: GroupQos) -> tuple[str, ...]:
        """Return the policies in which a writer differs from this QoS, which stays, with both values.

        Args:
            offered: the QoS that the writer offers.
        """
        pairs = zip(self._policies(), offered._policies(), strict=True)
        return tuple(
            f"{name}: offered {other}, kept as {kept}" for (name, kept), (_, other) in pairs if other != kept
        )

    def _policies(self) -> tuple[tuple[str, str], ...]:
        """Return the policies, each with its value as text."""
        representations = (_REPRESENTATIONS.get(one, str(one)) for one in self.representations)
        return (
            ("DURABILITY", self.durability.name),
            ("history", depth_name(self.history_depth)),
            ("service_cleanup_delay", _bounded(self.cleanup_delay_ns, " ns")),
            ("DESTINATION_ORDER", _ORDERS[self.by_source_timestamp]),
            ("OWNERSHIP", _OWNERSHIPS[self.exclusive]),
            *((name, _bounded(most)) for name, most in self.limits._asdict().items()),
            ("DATA_REPRESENTATION", "+".join(representations)),
        )


def _bounded(value: int, unit: str = "") -> str:
    return "unlimited" if value < 0 else f"{value}{unit}"


class GroupDescription(msgspec.Struct, frozen=True):
    """A group with its type and QoS, as fellows announce it."""

    group: Group
    type: TypeDescription
    qos: GroupQos

    def improved_by(self, other: GroupDescription) -> GroupDescription:
        """Return this description with the type and the QoS that another one knows better."""
        type_ = other.type if self.type.is_untyped else self.type
        return GroupDescription(self.group, type_, self.qos.raised_by(other.qos))
