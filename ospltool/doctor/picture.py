"""A domain at one moment as the rules see it: endpoints of applications, and snapshots of nodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from engine.core import expressions
from engine.dds.endpoints import Endpoint
from engine.runtime.monitor import NodeSnapshot


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
