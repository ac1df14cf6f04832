"""What a node must know of a group besides its samples: type, and the QoS that shapes its history."""

from __future__ import annotations

import dataclasses
import enum
import hashlib
from collections.abc import Iterable
from typing import Final, NamedTuple

from engine.core.expressions import is_literal, matches
from engine.core.namespaces import Group

KEEP_ALL: Final = 0
"""History depth that stands for KEEP_ALL."""

BUILTIN_PARTITION: Final = "__BUILT-IN PARTITION__"
"""Where OpenSplice publishes its built-in topics, of which every federation keeps its own."""


class DurabilityKind(enum.IntEnum):
    """DURABILITY QoS kinds in the order in which an offer satisfies a request (DDS 1.4, 2.2.3.4)."""

    VOLATILE = 0
    TRANSIENT_LOCAL = 1
    TRANSIENT = 2
    PERSISTENT = 3


class Limits(NamedTuple):
    """The resource limits of DURABILITY_SERVICE for one group (DDS 1.4, 2.2.3.5); -1 for none."""

    max_samples: int = -1
    max_instances: int = -1
    max_samples_per_instance: int = -1

    @property
    def are_set(self) -> bool:
        """Whether at least one of them limits anything."""
        return max(self) > 0


NO_LIMITS: Final = Limits()


def is_given(group: Group, topic: str, partitions: Iterable[str]) -> bool:
    """Whether the data of a group is given to readers of a topic in these partitions.

    Expressions select by name (DDS 1.4, 2.2.3.13), also that of a group whose writer is in a partition with
    wildcards; two expressions do not meet. Nothing of the built-in partition is given to anybody.
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


@dataclasses.dataclass(frozen=True, slots=True)
class TypeDescription:
    """A type as Cyclone DDS describes it, enough to re-create the topic with no writer alive.

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
        """A short name of exactly this type, for `Group.type_id`."""
        return hashlib.sha256(self.information).hexdigest()[:12]


@dataclasses.dataclass(frozen=True, slots=True)
class GroupQos:
    """The QoS of a group, from the topic or, where topic discovery is silent, from the first writer.

    Attributes:
        durability: TRANSIENT or PERSISTENT.
        history_depth: samples kept per instance, from DURABILITY_SERVICE; `KEEP_ALL` (0) for all.
        cleanup_delay_ns: service_cleanup_delay; -1 for infinite.
        by_source_timestamp: DESTINATION_ORDER is BY_SOURCE_TIMESTAMP.
        exclusive: OWNERSHIP is EXCLUSIVE.
        max_samples: DURABILITY_SERVICE limit for the group, -1 for none; likewise the next two.
        representations: offered data representations, as in DATA_REPRESENTATION (0 XCDR1, 2 XCDR2).
        requested: durability that the built-in reader requests: the topic's (DDS 1.4, 2.2.3.4); VOLATILE,
            which every writer offers, where nobody tells that of the topic.

    Raises:
        ValueError: the history depth is negative.
    """

    durability: DurabilityKind
    history_depth: int = 1
    cleanup_delay_ns: int = 0
    by_source_timestamp: bool = False
    exclusive: bool = False
    max_samples: int = -1
    max_instances: int = -1
    max_samples_per_instance: int = -1
    representations: tuple[int, ...] = (0, 2)
    requested: DurabilityKind = DurabilityKind.VOLATILE

    def __post_init__(self) -> None:
        if self.history_depth < KEEP_ALL:
            raise ValueError(f"a history depth of {self.history_depth} keeps nothing")

    @property
    def limits(self) -> Limits:
        """The three limits of DURABILITY_SERVICE."""
        return Limits(self.max_samples, self.max_instances, self.max_samples_per_instance)

    def raised_by(self, other: GroupQos) -> GroupQos:
        """This QoS with the durability of a topic that asks for more and was told of later.

        In whatever order they are told of, what is requested in the end is the highest. Everything else
        stays: nothing that is captured is given up while the system runs.
        """
        if other.requested <= self.requested:
            return self
        durability = max(self.durability, other.requested)
        return dataclasses.replace(self, durability=durability, requested=other.requested)


@dataclasses.dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group with its type and QoS; this is what fellows tell each other about new groups."""

    group: Group
    type: TypeDescription
    qos: GroupQos
