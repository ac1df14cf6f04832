"""Listening to a domain (discovery and monitor topics), without writing or taking samples."""

from __future__ import annotations

import dataclasses
import os
import re
import time
from collections.abc import Iterable
from typing import Final

from engine.dds.channel import CONSOLE_TOPICS, PARTITION, Channel, ReceivedMessage
from engine.dds.discovery import Discovery, EndpointGone, EndpointSeen, ParticipantGone, ParticipantSeen
from engine.dds.participant import NODE_ID_BYTES, NodeParticipant, TagRole
from engine.dds.proofs import DomainSecret
from engine.dds.waiting import Signal
from engine.runtime import monitor
from engine.runtime.monitor import NodeSnapshot
from ospltool.doctor.picture import DomainPicture, Endpoint, is_ros_type

# Far above real domains; anybody may announce any number.
MAX_ENDPOINTS: Final = 100_000
MAX_NODES: Final = 1_000
_PROTOCOL: Final = "d_"
_ANNOUNCEMENT: Final = "d_nameSpaces"


BUILT_IN_PARTITION: Final = "__BUILT-IN PARTITION__"
"""Where OpenSplice's services have topics of their own."""
_BUILT_IN: Final = re.compile("DCPS|CM(Participant|Publisher|Subscriber|DataReader|DataWriter)|d_")
_BUILT_IN_ROS: Final = re.compile("ros_discovery_info$|r[qr]/|rt/(rosout|parameter_events)$")
"""Requests and replies, logs and changes of parameters: no state that a late joiner lacks."""


def listen(
    domain_id: int,
    uri: str,
    seconds: float,
    partition: str = PARTITION,
    secret: DomainSecret | None = None,
    *,
    shows_all: bool = False,
) -> DomainPicture:
    """Listen to a domain for some time, and return what is in it.

    Args:
        domain_id: DDS domain, 0 to 230.
        uri: Cyclone DDS settings.
        seconds: how long to listen.
        partition: the durability partition of the nodes.
        secret: the secret of the domain; by default that of OSPLTOOL_DOMAIN_SECRET, if it is set.
        shows_all: own topics of OpenSplice and ROS 2, too, which hold no data of an application.

    Raises:
        DdsError: the domain cannot be opened with these settings.
    """
    tag = os.urandom(NODE_ID_BYTES)
    with NodeParticipant(
        domain_id, uri, "ospltool doctor", tag, TagRole.CLIENT, secret=secret
    ) as participant:
        signal = Signal(participant)
        channel = Channel(participant, partition, topics=CONSOLE_TOPICS, signal=signal)
        discovery = Discovery(participant, signal)
        notes = ObservedSystem(partition, shows_all=shows_all)
        deadline_s = time.monotonic() + seconds
        while (left_s := deadline_s - time.monotonic()) > 0:
            signal.wait(left_s)
            notes.update(discovery.take())
            notes.hear(channel.take())
        channel.close()
        return dataclasses.replace(notes.picture(), refusal=participant.proofs.difference())


class ObservedSystem:
    """The participants, endpoints and nodes seen so far.

    Args:
        partition: the durability partition.
        shows_all: own topics of OpenSplice and ROS 2, too.
    """

    def __init__(self, partition: str = PARTITION, *, shows_all: bool = False) -> None:
        self._partition = partition
        self._shows_all = shows_all
        self._participants: dict[bytes, ParticipantSeen] = {}
        self._endpoints: dict[bytes, EndpointSeen] = {}
        self._heard: dict[str, tuple[bytes, NodeSnapshot]] = {}
        self._left_out: set[bytes] = set()
        self._faults = 0

    def update(
        self, changes: Iterable[ParticipantSeen | ParticipantGone | EndpointSeen | EndpointGone]
    ) -> None:
        """Take changes of participants and endpoints."""
        for change in changes:
            if isinstance(change, ParticipantSeen):
                self._participants[change.guid] = change
            elif isinstance(change, ParticipantGone):
                self._participants.pop(change.guid, None)
            elif isinstance(change, EndpointGone):
                self._endpoints.pop(change.guid, None)
                self._left_out.discard(change.guid)
            elif change.guid in self._endpoints or len(self._endpoints) < MAX_ENDPOINTS:
                self._endpoints[change.guid] = change
            else:
                self._left_out.add(change.guid)

    def hear(self, messages: Iterable[ReceivedMessage]) -> None:
        """Take messages of nodes; count those that cannot be decoded."""
        for received in messages:
            try:
                message = monitor.decode(received.payload)
            except monitor.MonitorFault:
                self._faults += 1
                continue
            if not isinstance(message, NodeSnapshot):
                continue
            if message.id != received.sender_id or (
                message.id not in self._heard and len(self._heard) >= MAX_NODES
            ):
                self._faults += 1
                continue
            self._heard[message.id] = (received.participant, message)

    def picture(self) -> DomainPicture:
        """Return the domain as it is now, without the doctor."""
        present = {guid: seen for guid, seen in self._participants.items() if not seen.is_own}
        endpoints, protocol, built_in, foreign = [], 0, 0, set()
        for endpoint in self._endpoints.values():
            owner = present.get(endpoint.participant)
            if owner is None:
                continue
            if owner.is_ours or self._is_protocol(endpoint, owner):
                protocol += 1
                if not owner.is_ours and endpoint.topic == _ANNOUNCEMENT and endpoint.is_writer:
                    foreign.add(owner.guid)
                continue
            if _is_built_in(endpoint) and not self._shows_all:
                built_in += 1
            else:
                endpoints.append(_endpoint(endpoint, owner))
        nodes = [snapshot for participant, snapshot in self._heard.values() if participant in present]
        return DomainPicture(
            # Discovery comes in any order; the same domain must give the same report.
            endpoints=tuple(sorted(endpoints, key=lambda each: each.guid)),
            nodes=tuple(sorted(nodes, key=lambda each: (each.name, each.id))),
            participants=len(present),
            foreign_services=len(foreign),
            protocol_endpoints=protocol,
            built_in_endpoints=built_in,
            left_out=len(self._left_out),
            faults=self._faults,
        )

    def _is_protocol(self, endpoint: EndpointSeen, owner: ParticipantSeen) -> bool:
        """Tell whether an endpoint serves the durability protocol, a client or a console."""
        if not endpoint.topic.startswith(_PROTOCOL):
            return False
        return self._partition in endpoint.partitions or owner.tag is not None


def _is_built_in(endpoint: EndpointSeen) -> bool:
    """Tell whether an endpoint belongs to the own topics of OpenSplice (DCPS..., CM..., d_...) or ROS 2."""
    names = _BUILT_IN_ROS if is_ros_type(endpoint.type_name) else _BUILT_IN
    return BUILT_IN_PARTITION in endpoint.partitions or names.match(endpoint.topic) is not None


def _endpoint(endpoint: EndpointSeen, owner: ParticipantSeen) -> Endpoint:
    return Endpoint(
        guid=endpoint.guid.hex(),
        is_writer=endpoint.is_writer,
        topic=endpoint.topic,
        type_name=endpoint.type_name,
        partitions=endpoint.partitions,
        qos=endpoint.endpoint_qos,
        process=_process(owner),
        host=owner.hostname,
        type_id=endpoint.type.minimal.hex() if endpoint.type else "",
        is_library=owner.tag is not None and not endpoint.is_writer,
    )


def _process(owner: ParticipantSeen) -> str:
    """Describe a participant: the name, process and host that it announces."""
    parts = [owner.name] if owner.name else []
    parts += [f"pid {owner.pid}"] if owner.pid else []
    parts += [f"host {owner.hostname}"] if owner.hostname else []
    return " ".join(parts) or f"participant {owner.guid.hex()}"
