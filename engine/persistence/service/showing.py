"""Builds the parts of a replica's view from its state."""

from __future__ import annotations

import collections
from collections.abc import Iterator
from typing import Final

from engine.dataset.groups import GroupDescription
from engine.dds.channel import ChannelTopic
from engine.persistence.core.replica import Replica
from engine.persistence.core.selection import ORIGINAL
from engine.persistence.service.groups import ID_BYTES, KnownGroups, WriterName
from engine.persistence.service.late_readers import LateReaders
from engine.persistence.service.links import Links
from engine.persistence.service.subscribing import Subscribing
from engine.persistence.service.view import (
    MAX_WRITERS_SHOWN,
    PAST_TOPIC,
    TOPIC,
    KeptGroupView,
    PeerView,
    ReaderDeliveryView,
    SubscriptionView,
    WriterView,
)

STATUS_TOPICS: Final = (
    ChannelTopic(TOPIC, is_state=True, reads=False),
    ChannelTopic(PAST_TOPIC, is_state=True, reads=False),
)
"""The topics on which a replica shows itself."""


def group_views(groups: KnownGroups, replica: Replica, serving: LateReaders) -> tuple[KeptGroupView, ...]:
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


def writer_views(groups: KnownGroups, replica: Replica) -> tuple[tuple[WriterView, ...], int]:
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


def subscription_views(subscribing: Subscribing) -> tuple[SubscriptionView, ...]:
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


def delivery_views(serving: LateReaders) -> tuple[ReaderDeliveryView, ...]:
    """Return the last deliveries, oldest first."""
    return tuple(
        ReaderDeliveryView(d.topic, d.partition, d.participant, d.samples, round(d.seconds, 3), d.problem)
        for d in serving.deliveries
    )


def peer_views(links: Links) -> tuple[PeerView, ...]:
    """Return the other replicas, by name; one whose link is not up yet has its GUID for a name."""
    up = [PeerView(name, "up") for name in links.connected]
    refused = [PeerView(one.name, "refused", one.problem) for one in links.refused]
    others = [PeerView(guid.hex(), "beginning") for guid in links.beginning]
    return tuple(sorted((*up, *refused, *others), key=lambda peer: peer.name))
