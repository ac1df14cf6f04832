"""The readers and writers of applications, as discovery announces them.

A domain is full of endpoints that hold no data of an application: those of the durability protocol, of
OpenSplice's own services and of ROS 2. Who shows applications leaves them out.
"""

from __future__ import annotations

import dataclasses
import operator
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Generic, TypeVar

from engine.dataset.groups import kept_depth
from engine.dds.abi import INFINITE_NS
from engine.dds.channel import PARTITION
from engine.dds.discovery import Change, EndpointGone, EndpointSeen, ParticipantGone, ParticipantSeen
from engine.dds.qos import EndpointQos

# Far above real domains; anybody may announce any number.
MAX_ENDPOINTS: Final = 100_000
_PROTOCOL: Final = "d_"
_ANNOUNCEMENT: Final = "d_nameSpaces"
_BUILT_IN_PARTITION: Final = "__BUILT-IN PARTITION__"
"""Where OpenSplice's services have topics of their own."""
_BUILT_IN: Final = re.compile("DCPS|CM(Participant|Publisher|Subscriber|DataReader|DataWriter)|d_")
_BUILT_IN_ROS: Final = re.compile("ros_discovery_info$|r[qr]/|rt/(rosout|parameter_events)$")
"""Requests and replies, logs and changes of parameters: no state that a late joiner lacks."""


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
    participant: str = ""
    """GUID of its participant, 32 hexadecimal digits."""
    name: str = ""
    """Name of the participant; empty if not announced."""
    pid: int = 0
    """Process id; 0 if not announced."""
    host: str = ""
    """Host name; empty if not announced."""
    type_id: str = ""
    """Hash of the structure of its type, equal for equal ones; empty if it announces no type."""
    is_library: bool = False
    """A reader of the client library, which orders by source time and requests its history."""

    @classmethod
    def announced(cls, endpoint: EndpointSeen, owner: ParticipantSeen) -> Endpoint:
        """Return what a participant announces."""
        return cls(
            guid=endpoint.guid.hex(),
            is_writer=endpoint.is_writer,
            topic=endpoint.topic,
            type_name=endpoint.type_name,
            partitions=endpoint.partitions,
            qos=endpoint.endpoint_qos,
            participant=owner.guid.hex(),
            name=owner.name,
            pid=owner.pid,
            host=owner.hostname,
            type_id=endpoint.type.minimal.hex() if endpoint.type else "",
            is_library=owner.tag is not None and not endpoint.is_writer,
        )

    @property
    def kind(self) -> str:
        """`writer` or `reader`."""
        return "writer" if self.is_writer else "reader"

    @property
    def process(self) -> str:
        """The process in words: the name, process id and host that its participant announces."""
        parts = [self.name] if self.name else []
        parts += [f"pid {self.pid}"] if self.pid else []
        parts += [f"host {self.host}"] if self.host else []
        return " ".join(parts) or f"participant {self.participant}"

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
class EndpointCounts:
    """What a domain has beside the endpoints of applications."""

    foreign_services: int = 0
    """Participants of other durability services, whose data is unknown."""
    protocol: int = 0
    """Endpoints of the durability protocol, of a client or of a console."""
    built_in: int = 0
    """Endpoints of OpenSplice's and ROS 2's own topics."""


T = TypeVar("T")


class DomainEndpoints(Generic[T]):
    """The participants of a domain that are present, and the readers and writers of applications.

    Args:
        make: makes what `endpoints` returns of a reader or writer and its participant.
        partition: the durability partition of the nodes.
        shows_all: own topics of OpenSplice and ROS 2, too, which hold no data of an application.
    """

    def __init__(
        self,
        make: Callable[[EndpointSeen, ParticipantSeen], T],
        partition: str = PARTITION,
        *,
        shows_all: bool = False,
    ) -> None:
        self._make = make
        self._made: dict[bytes, tuple[EndpointSeen, ParticipantSeen, T | None]] = {}
        self._partition = partition
        self._shows_all = shows_all
        self._participants: dict[bytes, ParticipantSeen] = {}
        self._endpoints: dict[bytes, EndpointSeen] = {}
        self._left_out: set[bytes] = set()

    @property
    def left_out(self) -> int:
        """Endpoints beyond the bound."""
        return len(self._left_out)

    def update(self, changes: Iterable[Change]) -> bool:
        """Take in what discovery tells; return whether an endpoint came, changed or left."""
        has_changed = False
        for change in changes:
            if isinstance(change, ParticipantSeen):
                self._participants[change.guid] = change
            elif isinstance(change, ParticipantGone):
                self._participants.pop(change.guid, None)
            elif isinstance(change, EndpointGone):
                has_changed |= self._endpoints.pop(change.guid, None) is not None
                self._made.pop(change.guid, None)
                self._left_out.discard(change.guid)
            elif change.guid in self._endpoints or len(self._endpoints) < MAX_ENDPOINTS:
                self._endpoints[change.guid] = change
                has_changed = True
            else:
                self._left_out.add(change.guid)
        return has_changed

    def present(self) -> dict[bytes, ParticipantSeen]:
        """Return the participants that are present, without the one that observes."""
        return {guid: seen for guid, seen in self._participants.items() if not seen.is_own}

    def endpoints(self) -> list[T]:
        """Return the readers and writers of applications, by GUID: the same domain gives the same report."""
        return [made for _, made in sorted(self._shown(), key=operator.itemgetter(0))]

    def _shown(self) -> Iterator[tuple[bytes, T]]:
        """Yield what is made of each, once: a watch asks after each change, and few have changed."""
        for one, owner in self._owned():
            known = self._made.get(one.guid)
            if known is None or known[0] is not one or known[1] is not owner:
                made = self._make(one, owner) if self._is_shown(one, owner) else None
                known = self._made[one.guid] = one, owner, made
            if known[2] is not None:
                yield one.guid, known[2]

    def counts(self) -> EndpointCounts:
        """Count what `endpoints` leaves out."""
        protocol = built_in = 0
        foreign = set()
        for one, owner in self._owned():
            if self._is_protocol(one, owner):
                protocol += 1
                if not owner.is_ours and one.topic == _ANNOUNCEMENT and one.is_writer:
                    foreign.add(owner.guid)
            elif not self._is_shown(one, owner):
                built_in += 1
        return EndpointCounts(len(foreign), protocol, built_in)

    def _owned(self) -> Iterator[tuple[EndpointSeen, ParticipantSeen]]:
        """Yield the endpoints of others whose participant is known."""
        for one in self._endpoints.values():
            owner = self._participants.get(one.participant)
            if owner is not None and not owner.is_own:
                yield one, owner

    def _is_shown(self, endpoint: EndpointSeen, owner: ParticipantSeen) -> bool:
        if self._is_protocol(endpoint, owner):
            return False
        return self._shows_all or not _is_built_in(endpoint)

    def _is_protocol(self, endpoint: EndpointSeen, owner: ParticipantSeen) -> bool:
        """Tell whether an endpoint serves the durability protocol, a client or a console."""
        if owner.is_ours:
            return True
        is_named_so = endpoint.topic.startswith(_PROTOCOL)
        return is_named_so and (self._partition in endpoint.partitions or owner.tag is not None)


def _is_built_in(endpoint: EndpointSeen) -> bool:
    """Tell whether an endpoint belongs to the own topics of OpenSplice (DCPS..., CM..., d_...) or ROS 2."""
    names = _BUILT_IN_ROS if is_ros_type(endpoint.type_name) else _BUILT_IN
    return _BUILT_IN_PARTITION in endpoint.partitions or names.match(endpoint.topic) is not None
