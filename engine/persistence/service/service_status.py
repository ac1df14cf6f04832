"""The status of a replica: put together from its parts, and published."""

from __future__ import annotations

import collections
import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from engine.capture.shell import Watchdog
from engine.config.persistence import PersistenceService
from engine.core.lazy_dataclass import lazy_dataclass
from engine.dataset.groups import GroupDescription
from engine.dds.channel import Channel, ChannelTopic
from engine.dds.errors import DdsTimeout
from engine.persistence.core.provider_selection import ORIGINAL
from engine.persistence.core.replica import Replica
from engine.persistence.service.kept_groups import ID_BYTES, KnownGroups, WriterName
from engine.persistence.service.late_readers import LateReaders
from engine.persistence.service.lifespans import Lifespans
from engine.persistence.service.peer_links import Links
from engine.persistence.service.replica_intake import Intake
from engine.persistence.service.replica_store import ReplicaStore
from engine.persistence.service.replica_transport import ReplicaTransport
from engine.persistence.service.replica_view import (
    MAX_WRITERS_SHOWN,
    PAST_TOPIC,
    TOPIC,
    KeptGroupView,
    PeerView,
    ReaderDeliveryView,
    ReplicaView,
    SubscriptionView,
    WriterView,
    encode,
)
from engine.persistence.service.subscribing import Subscribing
from engine.persistence.service.subscription_readers import ConnectedReaders
from engine.persistence.service.synchronization import Synchronization
from engine.runtime import monitor
from engine.runtime.past import Past

STATUS_TOPICS: Final = (
    ChannelTopic(TOPIC, is_state=True, reads=False),
    ChannelTopic(PAST_TOPIC, is_state=True, reads=False),
)
"""The topics on which a replica shows itself."""


def _group_views(groups: KnownGroups, replica: Replica, serving: LateReaders) -> tuple[KeptGroupView, ...]:
    """Return the views of all groups."""
    counts = collections.Counter(key[:ID_BYTES] for key in replica.instances())
    return tuple(
        KeptGroupView(
            partition=description.group.partition,
            topic=description.group.topic,
            type_name=description.type.name,
            values=counts[id_],
            readers=serving.readers(description),
        )
        for id_, description in groups.items()
    )


def _writer_views(groups: KnownGroups, replica: Replica) -> tuple[tuple[WriterView, ...], int]:
    """Return the views of writers, those in use before the others, and how many were left out."""
    names = replica.writers()
    if len(names) > MAX_WRITERS_SHOWN:
        names.sort(key=lambda name: (not replica.is_direct(name), replica.path(name) is None, name))
    shown = list(_writers(names[:MAX_WRITERS_SHOWN], groups, replica))
    return tuple(sorted(shown, key=_place)), len(names) - len(shown)


def _place(view: WriterView) -> tuple[str, str, str, bool]:
    return view.topic, view.partition, view.writer, view.late


def _writers(names: list[str], groups: KnownGroups, replica: Replica) -> Iterator[WriterView]:
    for name in names:
        writer = WriterName.of(name)
        description = groups.get(writer.group) if writer is not None else None
        if writer is not None and description is not None:
            yield _writer(name, writer, description, replica)


def _writer(name: str, writer: WriterName, description: GroupDescription, replica: Replica) -> WriterView:
    used, selected = replica.providers(name), replica.selected(name)
    unchanged, unsettled = replica.stability(name)
    settings = replica.settings
    return WriterView(
        writer=writer.guid.hex(),
        topic=description.group.topic,
        partition=description.group.partition,
        late=writer.late,
        direct=replica.is_direct(name),
        provider=_provider(used.live),
        filling=tuple(sorted(used.filling)),
        selected=_provider(selected.live),
        selected_filling=tuple(sorted(selected.filling)),
        lag_ns=replica.lag_ns(name),
        stable=min(unchanged, settings.stable_periods),
        stable_of=settings.stable_periods,
        unsettled=unsettled,
        unsettled_of=settings.max_change_periods,
        path=replica.path(name) or (),
    )


def _provider(name: str | None) -> str:
    return "original" if name == ORIGINAL else name or ""


def _subscription_views(subscribing: Subscribing) -> tuple[SubscriptionView, ...]:
    """Return all durable subscriptions, by name, topic and partition."""
    views = [
        SubscriptionView(
            name=each.name,
            topic=description.group.topic,
            partition=description.group.partition,
            quorum=each.quorum,
            members=each.members,
            pending=each.pending,
            in_doubt=dict(each.in_doubt),
        )
        for description, each in subscribing.status()
    ]
    views += [
        SubscriptionView(one.name, one.topic, ",".join(one.partitions), quorum, (), 0, {})
        for one, quorum in subscribing.waiting()
    ]
    return tuple(sorted(views, key=lambda view: (view.name, view.topic, view.partition)))


def _delivery_views(serving: LateReaders) -> tuple[ReaderDeliveryView, ...]:
    """Return the last deliveries, oldest first."""
    return tuple(
        ReaderDeliveryView(d.topic, d.partition, d.participant, d.samples, round(d.seconds, 3), d.problem)
        for d in serving.deliveries
    )


def _peer_views(links: Links) -> tuple[PeerView, ...]:
    """Return the other replicas, by name; one whose link is not up yet has its GUID for a name."""
    up = [PeerView(name, "up") for name in links.connected]
    refused = [PeerView(one.name, "refused", one.problem) for one in links.refused]
    others = [PeerView(guid.hex(), "beginning") for guid in links.beginning]
    return tuple(sorted((*up, *refused, *others), key=lambda peer: peer.name))


STATUS_S: Final = 1.0
STATUS_SHARE: Final = 20
"""At most 1/20 of the time is spent on making the status."""


@lazy_dataclass(frozen=True, slots=True)
class ViewedParts:
    """The parts of a replica that appear in its view."""

    settings: PersistenceService
    """The configuration."""
    name: str
    """Name of the replica."""
    domain_id: int
    """Its DDS domain."""
    directory: Path
    """Its store directory."""
    started_ns: int
    """When it started, nanoseconds since 1970 UTC."""
    counters: Mapping[str, int]
    """Counts of the process itself."""
    groups: KnownGroups
    """The groups that it keeps."""
    synchronization: Synchronization
    """The last values, and their exchange."""
    lifespans: Lifespans
    """The writers whose samples expire."""
    serving: LateReaders
    """The deliveries to late readers."""
    subscribing: Subscribing
    """The durable subscriptions."""
    store: ReplicaStore
    """Its store."""
    intake: Intake
    """The capture of original writers."""
    readers: ConnectedReaders
    """The readers with durable subscriptions."""
    transport: ReplicaTransport
    """The links to other replicas."""
    links: Links
    """The replicas at the other ends of the links."""
    watch: Watchdog
    """The deadlock watch."""

    def look(self, *, is_ending: bool) -> ReplicaView:
        """Return the view of the replica."""
        replica = self.synchronization.replica
        groups = _group_views(self.groups, replica, self.serving)
        writers, left_out = _writer_views(self.groups, replica)
        return ReplicaView(
            service=self.settings.name,
            name=self.name,
            id=self.store.id,
            host=socket.gethostname(),
            pid=os.getpid(),
            domain_id=self.domain_id,
            store=str(self.directory.absolute()),
            started_ns=self.started_ns,
            time_ns=time.time_ns(),
            synchronizes=self.settings.synchronization.enable,
            period_ms=self.settings.synchronization.period_ms,
            values=sum(group.values for group in groups),
            transactions=self.store.written,
            unwritten=not self.store.is_idle,
            peers=_peer_views(self.links),
            groups=groups,
            writers=writers,
            writers_left_out=left_out,
            deliveries=_delivery_views(self.serving),
            subscriptions=_subscription_views(self.subscribing),
            counters=self._all_counters(),
            problems=self._problems(),
            ending=is_ending,
        )

    def _all_counters(self) -> dict[str, int]:
        counted = collections.Counter(self.synchronization.replica.counters)
        for more in (
            self.synchronization.counters,
            self.intake.counters,
            self.serving.counters,
            self.subscribing.counters(),
            {f"reader_{name}": count for name, count in self.readers.counters.items()},
            self.counters,
            self.links.counters,
            {
                "malformed": self.transport.malformed + self.transport.receiver.malformed,
                "broken_links": self.transport.breaks,
                "oversized": self.transport.oversized,
                "refused_peers": self.transport.refused,
                "rejected": self.intake.rejected,
                "refused_groups": self.groups.refused,
                "refused_lifespans": self.lifespans.refused,
            },
        ):
            counted.update(more)
        return dict(sorted((name, count) for name, count in counted.items() if count))

    def _problems(self) -> tuple[str, ...]:
        found = [self.store.problem] if self.store.problem else []
        damaged = self.synchronization.damaged + self.subscribing.damaged
        if damaged:
            found.append(f"{damaged} rows of the store were damaged and left out")
        found += [f"{name} does not proceed" for name in self.watch.stuck]
        found += self.subscribing.problems()
        return (*found, *(f"{one.name}: {one.problem}" for one in self.links.refused))


class StatusPublisher:
    """Publishes the view, and the past when it has changed.

    Args:
        name: of the replica.
        id: of its store.
        channel: on which it is published.
        past: the memory of this run and former ones.
        submit: runs a blocking function on another thread, and then one on this thread.
    """

    def __init__(
        self,
        name: str,
        id: str,  # noqa: A002  # as in what it shows
        channel: Channel,
        past: Past,
        submit: Callable[[Callable[[], Any], Callable[[Any], None]], None],
    ) -> None:
        self._name = name
        self._id = id
        self._channel = channel
        self._past = past
        self._past_shown = -1
        self._submit = submit
        self._is_showing = False
        self._due_s = 0.0

    def turn(self, now_s: float, look: Callable[[], ReplicaView]) -> float:
        """Publish the view if it is due; return when it is due next.

        Args:
            now_s: when this turn of the service began, monotonic seconds.
            look: makes the view.
        """
        if now_s >= self._due_s:
            self._show(look)
            took_s = time.monotonic() - now_s
            self._due_s = now_s + max(STATUS_S, STATUS_SHARE * took_s)
        return self._due_s

    def _show(self, look: Callable[[], ReplicaView]) -> None:
        """Publish a view unless the last one is still being sent: a slow reader must hold nothing up."""
        if self._is_showing:
            return
        self._is_showing = True
        payload = encode(look())

        def publish() -> None:
            self._publish(payload)

        def published(_: None) -> None:
            self._is_showing = False

        self._submit(publish, published)

    def show_last(self, last: ReplicaView) -> None:
        """Publish the last view, and wait until it is sent."""
        self._publish(encode(last))

    def _publish(self, payload: bytes) -> None:
        with contextlib.suppress(DdsTimeout):
            self._channel.publish(TOPIC, self._name, payload)
            revision = self._past.revision
            if revision != self._past_shown:
                past = monitor.encode(self._past.shown(self._id, self._name))
                self._channel.publish(PAST_TOPIC, self._name, past)
                self._past_shown = revision
