"""Collects the views that the replicas of a domain publish."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from typing import Final, Self

from engine.dds.channel import Channel, ChannelTopic
from engine.dds.discovery import Discovery, ParticipantGone, ParticipantSeen
from engine.dds.participant import NODE_ID_BYTES, NodeParticipant, TagRole
from engine.dds.subscription_endpoints import PARTITION
from engine.dds.waiting import Signal
from engine.persistence.service import replica_view as view
from engine.persistence.service.replica_view import ReplicaView, ViewFault

WATCH_TOPICS: Final = (ChannelTopic(view.TOPIC, is_state=True, writes=False),)
"""The topics to open to see replicas."""
PAST_TOPICS: Final = (ChannelTopic(view.PAST_TOPIC, is_state=True, writes=False),)
"""The topics to open beside them to see the past of replicas."""
# Chosen: a person who ends a wait does not notice it.
_SLICE_S: Final = 0.5
"""How often a wait asks whether it is over."""


class Watching:
    """The newest view of each running replica.

    Args:
        domain_id: DDS domain.
        uri: Cyclone DDS settings.

    Attributes:
        addresses: where services listen (`ParticipantSeen.address`), by process id.
        faults: payloads that were not valid views.

    Raises:
        DdsError: the domain cannot be opened with these settings.
    """

    def __init__(self, domain_id: int, uri: str) -> None:
        tag = os.urandom(NODE_ID_BYTES)
        self._participant = NodeParticipant(domain_id, uri, "ospltool status", tag, TagRole.CLIENT)
        self._signal = Signal(self._participant)
        self._channel = Channel(self._participant, PARTITION, topics=WATCH_TOPICS, signal=self._signal)
        self._discovery = Discovery(self._participant, self._signal)
        self._services: set[bytes] = set()
        self._views: dict[bytes, ReplicaView] = {}
        self.addresses: dict[int, str] = {}
        self.faults = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._participant.close()

    def replicas(self) -> list[ReplicaView]:
        """Return the views of all running replicas, by service and name."""
        for change in self._discovery.take():
            if isinstance(change, ParticipantSeen) and change.tag is not None:
                if change.tag.role is TagRole.PERSISTENCE:
                    self._services.add(change.guid)
                    self.addresses[change.pid] = change.address or ""
            elif isinstance(change, ParticipantGone):
                self._services.discard(change.guid)
                self._views.pop(change.guid, None)
        for received in self._channel.take():
            try:
                self._views[received.participant] = view.decode(received.payload)
            except ViewFault:
                self.faults += 1
        # By name, so that rows of a screen do not jump; the pid tells two runs of one service apart.
        return sorted(self._views.values(), key=lambda each: (each.service, each.name, each.pid))

    def wait_for(self, condition: Callable[[list[ReplicaView]], object], timeout_s: float) -> bool:
        """Wait until the views meet the condition; False if not in time."""
        return self._signal.wait_until(lambda: bool(condition(self.replicas())), timeout_s)

    def wait_all(self, timeout_s: float, at_least_s: float) -> list[ReplicaView]:
        """Wait until all discovered replicas have shown themselves, or for `timeout_s`.

        Args:
            timeout_s: the longest wait.
            at_least_s: the shortest wait, for discovery.
        """
        self.wait_for(lambda _: False, at_least_s)
        self.wait_for(lambda _: self._services <= self._views.keys(), timeout_s - at_least_s)
        return self.replicas()

    def wait_equal(self, count: int, is_over: Callable[[], bool]) -> bool:
        """Wait until the replicas of each service keep the same on their disks, or until `is_over` holds.

        Args:
            count: the replicas that each service must have, at least 1.
            is_over: whether to give up.
        """
        heard: dict[str, int] = {}

        def are_equal(now: list[ReplicaView]) -> bool:
            for each in now:
                heard.setdefault(each.id, each.time_ns)
            # The first view of a replica may be from before the last write; the next one is not.
            return all(each.time_ns != heard[each.id] for each in now) and keep_the_same(now, count)

        while not is_over():
            if self.wait_for(are_equal, _SLICE_S):
                return True
        return False

    def wait_change(
        self, before: list[ReplicaView], is_over: Callable[[], bool] = lambda: False
    ) -> list[ReplicaView]:
        """Wait until views differ from `before` in more than the time, or until `is_over` holds."""
        known = [_without_time(each) for each in before]
        while not is_over():
            if self.wait_for(lambda now: [_without_time(each) for each in now] != known, _SLICE_S):
                break
        return self.replicas()


def keep_the_same(replicas: list[ReplicaView], count: int) -> bool:
    """Whether each service has at least `count` replicas, and all of them equal values on their disks."""
    services: dict[str, list[ReplicaView]] = {}
    for each in replicas:
        services.setdefault(each.service, []).append(each)
    return bool(services) and all(
        len(members) >= count
        and len({each.digest for each in members}) == 1
        and not any(each.unwritten for each in members)
        for members in services.values()
    )


def _without_time(shown: ReplicaView) -> ReplicaView:
    return dataclasses.replace(shown, time_ns=0, transactions=0, unwritten=False)
