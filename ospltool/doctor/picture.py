"""A domain at one moment, as the rules look at it: endpoints of applications, and words of nodes."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator

from engine.core import expressions
from engine.dds.abi import INFINITE_NS
from engine.dds.qos import EndpointQos
from engine.runtime.monitor import NodeSnapshot


@dataclasses.dataclass(frozen=True, slots=True)
class Endpoint:
    """A reader or writer of an application.

    Attributes:
        guid: 32 hexadecimal digits.
        is_writer: writer or reader.
        topic, type_name: names.
        partitions: names or expressions; empty for the default partition.
        qos: every policy, as announced.
        process: its process in words, made from what the participant announces of itself.
        host: host name, empty where none is announced.
        is_library: a reader of our client library, which orders by source time and asks for its history.
    """

    guid: str
    is_writer: bool
    topic: str
    type_name: str
    partitions: tuple[str, ...]
    qos: EndpointQos
    process: str
    host: str
    is_library: bool = False

    @property
    def kind(self) -> str:
        """`writer` or `reader`."""
        return "writer" if self.is_writer else "reader"

    @property
    def is_periodic(self) -> bool:
        """Whether it promises, or asks for, updates of every instance within a time (DEADLINE)."""
        return self.qos.deadline_ns != INFINITE_NS


@dataclasses.dataclass(frozen=True, slots=True)
class TopicView:
    """One topic with the applications' endpoints on it."""

    name: str
    writers: tuple[Endpoint, ...]
    readers: tuple[Endpoint, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Picture:
    """A domain.

    Attributes:
        endpoints: of applications.
        nodes: the last snapshot of each ospltool node that was heard.
        participants: how many were seen, without our own.
        foreign_services: participants of durability services that are not ours: what they keep is not known.
        protocol_endpoints: endpoints of the durability protocol, which are not looked at.
        built_in_endpoints: endpoints of OpenSplice's own topics, which are not looked at unless asked for.
        left_out: endpoints beyond the bound, which are not looked at.
        faults: messages of nodes that could not be understood.
    """

    endpoints: tuple[Endpoint, ...] = ()
    nodes: tuple[NodeSnapshot, ...] = ()
    participants: int = 0
    foreign_services: int = 0
    protocol_endpoints: int = 0
    built_in_endpoints: int = 0
    left_out: int = 0
    faults: int = 0

    def topics(self) -> Iterator[TopicView]:
        """The topics by name, each with its endpoints by GUID."""
        found: dict[str, tuple[list[Endpoint], list[Endpoint]]] = {}
        for endpoint in sorted(self.endpoints, key=lambda each: each.guid):
            found.setdefault(endpoint.topic, ([], []))[not endpoint.is_writer].append(endpoint)
        for name in sorted(found):
            writers, readers = found[name]
            yield TopicView(name, tuple(writers), tuple(readers))

    def only(self, topic: str) -> Picture:
        """The same domain without the endpoints whose topic an expression does not match."""
        kept = tuple(each for each in self.endpoints if expressions.matches(topic, each.topic))
        return dataclasses.replace(self, endpoints=kept)


class Weight(enum.StrEnum):
    """ERROR: data does not arrive at all. WARNING: not eventually consistent. INFO: depends on the use."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Cause(enum.StrEnum):
    """What is wrong; the names are stable."""

    RELIABILITY = "reliability"
    DURABILITY = "durability"
    DESTINATION_ORDER = "destination-order"
    INCOMPATIBLE_DURABILITY = "incompatible-durability"
    INCOMPATIBLE_QOS = "incompatible-qos"
    DIFFERENT_TYPES = "different-types"
    WRITERS_DISAGREE = "writers-disagree"
    NOBODY_KEEPS = "nobody-keeps"
    NOT_KEPT = "not-kept"
    DIES_WITH_WRITER = "dies-with-writer"
    CLOCKS = "clocks"
    CAPTURE_IN_PYTHON = "capture-in-python"
    NODES_INCOMPATIBLE = "nodes-incompatible"
    NOT_MERGED = "not-merged"
    READER_DEVIATES = "reader-deviates"


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """One reason why something cannot be eventually consistent.

    Attributes:
        cause: which rule.
        weight: how bad.
        topic: topic name; empty for what concerns nodes.
        message: what is so, and what follows from it.
        advice: what to do.
        endpoints: every endpoint that it concerns, writers first.
        nodes: names of the nodes that it concerns.
    """

    cause: Cause
    weight: Weight
    topic: str
    message: str
    advice: str
    endpoints: tuple[Endpoint, ...] = ()
    nodes: tuple[str, ...] = ()
