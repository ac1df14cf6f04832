"""Listening to a domain (discovery and monitor topics), without writing or taking samples."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Iterable
from typing import Final

from engine.dds.channel import CONSOLE_TOPICS, PARTITION, Channel, ReceivedMessage
from engine.dds.discovery import Change, Discovery
from engine.dds.endpoints import DomainEndpoints, Endpoint
from engine.dds.participant import NODE_ID_BYTES, NodeParticipant, TagRole
from engine.dds.proofs import DomainSecret
from engine.dds.waiting import Signal
from engine.runtime import monitor
from engine.runtime.monitor import NodeSnapshot
from ospltool.doctor.picture import DomainPicture

MAX_NODES: Final = 1_000
"""Nodes whose snapshots are kept; anybody may pretend to be any number."""


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
        self._endpoints = DomainEndpoints(Endpoint.announced, partition, shows_all=shows_all)
        self._heard: dict[str, tuple[bytes, NodeSnapshot]] = {}
        self._faults = 0

    def update(self, changes: Iterable[Change]) -> None:
        """Take changes of participants and endpoints."""
        self._endpoints.update(changes)

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
        seen = self._endpoints
        present, counts = seen.present(), seen.counts()
        nodes = [snapshot for participant, snapshot in self._heard.values() if participant in present]
        return DomainPicture(
            endpoints=tuple(seen.endpoints()),
            nodes=tuple(sorted(nodes, key=lambda each: (each.name, each.id))),
            participants=len(present),
            foreign_services=counts.foreign_services,
            protocol_endpoints=counts.protocol,
            built_in_endpoints=counts.built_in,
            left_out=seen.left_out,
            faults=self._faults,
        )
