"""A domain at one moment as the rules see it: endpoints of applications, and snapshots of nodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from engine.core import expressions
from engine.dataset.groups import kept_depth
from engine.dds.abi import INFINITE_NS
from engine.dds.qos import EndpointQos
from engine.runtime.monitor import NodeSnapshot


def is_ros_type(type_name: str) -> bool:
    """Tell whether a type has a name that only the generator of ROS 2 gives."""
    return "::dds_::" in type_name and type_name.endswith("_")


@dataclasses.dataclass(frozen=True, slots=True)
class Endpoint:
    """A reader or writer of an application."""

    guid: str
    """32 hexadecimal digits."""
    is_writer: bool
    """Writer, else reader."""
    topic: str
    """Name of the topic."""
    type_name: str
    """Name of the type."""
    partitions: tuple[str, ...]
    """Names or expressions; empty for the default partition."""
    qos: EndpointQos
    """All announced policies."""
    process: str
    """Name, process id and host of the participant, where it announces them."""
    host: str
    """Host name; empty if not announced."""
    type_id: str = ""
    """Hash of the structure of its type, equal for equal ones; empty if it announces no type."""
    is_library: bool = False
    """A reader of the client library, which orders by source time and requests its history."""

    @property
    def kind(self) -> str:
        """`writer` or `reader`."""
        return "writer" if self.is_writer else "reader"

    @property
    def service_depth(self) -> int:
        """Samples of each instance that DURABILITY_SERVICE of a writer leaves for late joiners; 0 for all."""
        return kept_depth(self.qos.service_history_depth, self.qos.service_max_samples_per_instance)

    @property
    def is_ros(self) -> bool:
        """Whether ROS 2 made it, whose QoS profiles have no TRANSIENT and no DESTINATION_ORDER."""
        return is_ros_type(self.type_name)

    @property
    def is_periodic(self) -> bool:
        """Whether it offers or requests periodic updates of each instance (DEADLINE)."""
        return self.qos.deadline_ns != INFINITE_NS


@dataclasses.dataclass(frozen=True, slots=True)
class TopicView:
    """A topic with the endpoints of applications."""

    name: str
    writers: tuple[Endpoint, ...]
    readers: tuple[Endpoint, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class DomainPicture:
    """A domain at one moment."""

    endpoints: tuple[Endpoint, ...] = ()
    """Readers and writers of applications."""
    nodes: tuple[NodeSnapshot, ...] = ()
    """Latest snapshot of each ospltool node."""
    participants: int = 0
    """Number of participants, without that of the doctor."""
    foreign_services: int = 0
    """Participants of other durability services, whose data is unknown."""
    protocol_endpoints: int = 0
    """Skipped endpoints of the durability protocol."""
    built_in_endpoints: int = 0
    """Skipped endpoints of OpenSplice's and ROS 2's own topics."""
    left_out: int = 0
    """Skipped endpoints beyond the bound."""
    refusal: str = ""
    """Why messages of nodes were refused, what this process lacks included; empty if none was."""
    faults: int = 0
    """Messages of nodes that could not be decoded."""

    def topics(self) -> Iterator[TopicView]:
        """Yield the topics by name, each with its endpoints by GUID."""
        found: dict[str, tuple[list[Endpoint], list[Endpoint]]] = {}
        # By GUID: the same domain must give the same report.
        for endpoint in sorted(self.endpoints, key=lambda each: each.guid):
            found.setdefault(endpoint.topic, ([], []))[not endpoint.is_writer].append(endpoint)
        for name in sorted(found):
            writers, readers = found[name]
            yield TopicView(name, tuple(writers), tuple(readers))

    def only(self, topic: str) -> DomainPicture:
        """Return the same domain with only the endpoints whose topic matches an expression."""
        kept = tuple(each for each in self.endpoints if expressions.matches(topic, each.topic))
        return dataclasses.replace(self, endpoints=kept)
