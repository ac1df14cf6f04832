"""Health, and the system at one moment, as plain values for JSON, or as CSV."""

from __future__ import annotations

import csv
import dataclasses
import io
from typing import Any, Final, NotRequired, TypedDict

import msgspec

from engine.persistence.service.replica_view import ReplicaView, SubscriptionView, WriterView
from engine.runtime.monitor import AlignmentView, GroupView, NodeEvent, NodeSnapshot, Run
from ospltool.health.health import Health
from ospltool.health.incidents import Incident
from ospltool.health.presence import Presence
from ospltool.health.redundancy import Redundancy
from ospltool.live import persistence
from ospltool.live.conflicts import ReportedConflict
from ospltool.live.masterships import Mastership
from ospltool.live.model import SystemModel
from ospltool.live.persistence import StreamKey, WatchedReplica
from ospltool.live.topics import Application
from ospltool.output import envelope
from ospltool.output.documents import AdvertisedFinding, Copies, HealthData, IncidentData
from ospltool.output.text import visible

COLUMNS: Final = (
    "node",
    "node_id",
    "role",
    "host",
    "node_state",
    "heard_ns",
    "gone_ns",
    "name_space",
    "phase",
    "complete",
    "master",
    "master_id",
    "confirmed",
    "epoch",
    "why",
    "samples",
    "digest",
    "groups",
    "aligner",
    "alignee",
    "durability",
    "master_priority",
    "merges",
)
"""The columns of the CSV: one line for each name-space on each node."""
_AS_THEY_ARE: Final = (
    *("phase", "complete", "confirmed", "epoch", "why", "digest", "groups"),
    *("aligner", "alignee", "durability", "master_priority"),
)
"""Those that the view of a name-space has under the same name."""

_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


class WatchedNode(NodeSnapshot, frozen=True, kw_only=True):
    """A node, as it reports itself, and as the watch knows it."""

    presence: str
    heard_ns: int
    gone_ns: int
    runs: tuple[Run, ...]


class WatchedAlignment(AlignmentView, frozen=True, kw_only=True):
    """A running alignment; a node that is not heard has rate 0 and no time left."""

    node: str
    node_id: str
    name_space: str
    fellow_name: str
    fraction: float | None
    rate_per_s: float
    left_s: float | None
    moved_ns: int


class WatchedGroup(TypedDict):
    """A group, as each node sees it, and the nodes that differ from their master."""

    name_space: str
    partition: str
    topic: str
    type_name: str
    nodes: dict[str, GroupView]
    differing: list[str]


class WatchedEndpoint(TypedDict):
    """A reader or writer of an application, as discovery shows it."""

    guid: str
    participant: str
    application: Application
    is_writer: bool
    topic: str
    partitions: tuple[str, ...]
    type_name: str
    durability: str
    reliable: bool


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WatchedWriter(WriterView):
    """A writer at a replica, with the conclusions of the watch."""

    stability: str
    is_behind: bool
    lag_grows: bool
    lacks_provider: bool
    changed_ns: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WatchedSubscription(SubscriptionView):
    """A durable subscription at a replica, with the conclusions of the watch."""

    present: list[str]
    lacks_quorum: bool


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaData(ReplicaView):
    """A persistence service, with the conclusions of the watch."""

    writers: tuple[WatchedWriter, ...]
    subscriptions: tuple[WatchedSubscription, ...]
    state: str
    heard_ns: int
    gone_ns: int


class SystemData(TypedDict):
    """Everything that a watch knows; `top --screen` leaves out what a screen does not show."""

    time_ns: int
    caption: str
    domain_lost_ns: int
    nodes: NotRequired[list[WatchedNode]]
    alignments: NotRequired[list[WatchedAlignment]]
    groups: NotRequired[list[WatchedGroup]]
    endpoints: NotRequired[list[WatchedEndpoint]]
    conflicts: NotRequired[list[ReportedConflict]]
    masters: NotRequired[list[Mastership]]
    events: NotRequired[list[NodeEvent]]
    events_left_out: NotRequired[int]
    persistence_services: NotRequired[list[ReplicaData]]
    messages_left_out: int
    health: NotRequired[HealthData]
    findings: NotRequired[list[AdvertisedFinding]]


def system(one: Health, now_ns: int) -> dict[str, Any]:
    """Return the state of the nodes, and the health; `now_ns` is the moment, by the clock of the feed."""
    model = one.model
    nodes = [
        {
            **msgspec.to_builtins(node.snapshot),
            "presence": one.presence(node).value,
            "heard_ns": node.heard_ns,
            "gone_ns": node.gone_ns,
            "runs": msgspec.to_builtins(model.runs.get(node.id, ())),
        }
        for node in model.ordered_nodes()
    ]
    return {
        "time_ns": now_ns,
        "caption": model.caption,
        "domain_lost_ns": model.domain_lost_ns,
        "nodes": nodes,
        "alignments": _alignments(one),
        "groups": _groups(model, now_ns),
        "endpoints": [
            {**one._asdict(), "durability": one.durability.name}
            for every in model.applications.by_topic.values()
            for one in every
        ],
        "conflicts": [dataclasses.asdict(each) for each in one.conflicts],
        "masters": [dataclasses.asdict(each) for every in model.masterships.values() for each in every],
        "events": [msgspec.to_builtins(event) for event in model.events],
        "events_left_out": model.events_left_out,
        "persistence_services": [_replica(model, each, now_ns) for each in model.persistence.ordered()],
        "messages_left_out": model.messages_left_out,
        "health": health(one, now_ns),
    }


def _alignments(one: Health) -> list[dict[str, Any]]:
    """Return the running alignments as their nodes report them, with the rate computed from the snapshots.

    A node that is not heard has rate 0 and no time left.
    """
    model = one.model
    return [
        {
            "node": node.snapshot.name,
            "node_id": node.id,
            "name_space": view.name,
            **msgspec.to_builtins(progress.alignment),
            "fellow_name": model.name_of(progress.alignment.fellow),
            "fraction": progress.fraction,
            "rate_per_s": progress.rate_per_s if one.is_heard(node) else 0.0,
            "left_s": progress.left_s if one.is_heard(node) else None,
            "moved_ns": progress.moved_ns,
        }
        for node in model.ordered_nodes()
        if not one.is_away(node)
        for view, progress in model.progress(node)
    ]


def _groups(model: SystemModel, now_ns: int) -> list[dict[str, Any]]:
    """Return each group once, with the view of each node and the nodes that differ from their master."""
    return [
        {
            **key._asdict(),
            "nodes": {
                model.name_of(node): msgspec.to_builtins(view)
                for node, view in model.groups.views(key).items()
            },
            "differing": [model.name_of(node) for node in model.sets.differing_in(key, now_ns)],
        }
        for key in model.groups.ordered()
    ]


def _replica(model: SystemModel, one: WatchedReplica, now_ns: int) -> dict[str, Any]:
    """Return the newest view of a persistence service, with the model's conclusions."""
    document = msgspec.to_builtins(one.view)
    for writer, view in zip(document["writers"], one.view.writers, strict=True):
        stream = one.streams[StreamKey.from_view(view)]
        writer["stability"] = persistence.stability(stream.view)
        writer["is_behind"] = stream.is_behind
        writer["lag_grows"] = stream.grows
        writer["lacks_provider"] = stream.is_unprovided
        writer["changed_ns"] = stream.changed_ns
    for subscription, each in zip(document["subscriptions"], one.view.subscriptions, strict=True):
        subscription["present"] = sorted(model.persistence.present(one.view.service, each))
        subscription["lacks_quorum"] = model.persistence.lacks_quorum(one.view.service, each)
    return {
        **document,
        "state": one.state(now_ns),
        "heard_ns": one.heard_ns,
        "gone_ns": one.gone_ns,
    }


def as_csv(one: Health) -> str:
    """Write a line for each name-space on each node; a node without name-spaces has a line, too.

    `node_state` is the node's own state while it is heard, else "silent", "stopped" or "gone".
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    model = one.model
    for node in model.ordered_nodes():
        snapshot, presence = node.snapshot, one.presence(node)
        about: dict[str, object] = {
            "node": snapshot.name,
            "node_id": node.id,
            "role": snapshot.role,
            "host": snapshot.host,
            "node_state": snapshot.state if presence is Presence.HEARD else presence.value,
            "heard_ns": node.heard_ns,
            "gone_ns": node.gone_ns,
        }
        rows = [
            {
                "name_space": space.name,
                "master": model.name_of(space.master),
                "master_id": space.master,
                "samples": space.count,
                "merges": "; ".join(space.merges),
                **{name: getattr(space, name) for name in _AS_THEY_ARE},
            }
            for space in snapshot.name_spaces
        ]
        for row in rows or [{}]:
            writer.writerow({name: csv_field(value) for name, value in (about | row).items()})
    return text.getvalue()


def csv_field(value: object) -> str:
    """Return a field without terminal control characters, which no spreadsheet takes for a formula."""
    shown = visible(str(value))
    return f"'{shown}" if isinstance(value, str) and shown.startswith(_FORMULA) else shown


def as_json(one: Health, now_ns: int) -> str:
    """Return everything known as one JSON document of kind "system"."""
    return envelope.document("system", system(one, now_ns))


def health(one: Health, now_ns: int) -> HealthData:
    """Return the verdict, the open and closed incidents, the mutes, and the copies of each name-space."""
    verdict = one.verdict
    return {
        "time_ns": now_ns,
        "verdict": verdict.word.lower(),
        "text": verdict.text,
        "why": verdict.why,
        "next": verdict.next,
        "errors": verdict.errors,
        "warnings": verdict.warnings,
        "notices": verdict.notices,
        "muted": verdict.muted,
        "incidents": [incident(one, each) for each in (*one.open, *one.muted)],
        "closed": [incident(one, each) for each in one.closed],
        "mutes": [
            {
                "code": mute.code,
                "who": mute.who,
                "until_ns": mute.until_ns,
                "hides": [each.key for each in hidden],
            }
            for mute, hidden in one.standing_mutes
        ],
        "ended_mutes": [
            {"code": each.mute.code, "who": each.mute.who, "ended_ns": each.time_ns, "why": each.why}
            for each in one.mutes.ended
        ],
        "redundancy": [redundancy(one, each) for each in one.redundancies],
        "expected_nodes": list(one.expected.nodes),
    }


def incident(one: Health, each: Incident) -> IncidentData:
    """Return one incident, with the first and the last event about it."""
    events = one.events(each)
    return {
        "key": each.key,
        "code": each.code.id,
        "title": each.code.title,
        "severity": each.severity.label,
        "who": each.who,
        "since_ns": each.since_ns,
        "began_before": each.began_before,
        "until_ns": each.until_ns,
        "ended_before": each.ended_before,
        "what": each.what,
        "worse": each.worse,
        "why": each.why,
        "effect": each.effect,
        "next": each.next,
        "signs": list(each.signs),
        "nodes": [one.model.name_of(node) for node in each.nodes],
        "name_spaces": list(each.name_spaces),
        "origin": each.origin,
        "times": each.times,
        "acknowledged_ns": each.acknowledged_ns,
        "muted_until_ns": each.muted_until_ns,
        "page": each.code.page,
        "first_event": events[0] if events else None,
        "last_event": events[-1] if events else None,
    }


def redundancy(one: Health, each: Redundancy) -> Copies:
    """Return the copies of one name-space; nodes by name."""
    nodes = one.model.nodes

    def names(node: str) -> str:
        return nodes[node].snapshot.name if node in nodes else node

    return {
        "name_space": each.name,
        "copies": len(each.held),
        "wanted": each.wanted,
        "on_disk": len(each.on_disk),
        "wanted_on_disk": each.wanted_on_disk,
        "left": each.left,
        "held_by": [names(node) for node in each.held],
        "on_disk_of": [names(node) for node in each.on_disk],
        "coming": [names(node) for node in each.coming],
        "stopped": [names(node) for node in each.stopped],
        "lost": [names(node) for node in each.lost],
        "sides": [[names(node) for node in side] for side in each.sides],
    }
