"""Health as plain values for JSON, in `ospltool health` and in the console."""

from __future__ import annotations

from typing import Any

from engine.core import plain
from engine.runtime.monitor import NodeEvent
from ospltool.health.health import Health
from ospltool.health.incidents import Incident
from ospltool.health.redundancy import Redundancy
from ospltool.live import export
from ospltool.output import envelope


def as_json(one: Health, now_ns: int) -> str:
    """Return everything known as one JSON document of kind "system"."""
    return envelope.document("system", system(one, now_ns))


def system(one: Health, now_ns: int) -> dict[str, Any]:
    """Return the state of the nodes, and the health."""
    return {**export.system(one.model, now_ns), "health": health(one, now_ns)}


def health(one: Health, now_ns: int) -> dict[str, Any]:
    """Return the verdict, the open and closed incidents, and the copies of each name-space."""
    verdict = one.verdict
    return {
        "time_ns": now_ns,
        "verdict": verdict.word.lower(),
        "text": verdict.text,
        "errors": verdict.errors,
        "warnings": verdict.warnings,
        "notices": verdict.notices,
        "muted": verdict.muted,
        "incidents": [incident(one, each) for each in (*one.open, *one.muted)],
        "closed": [incident(one, each) for each in one.closed],
        "redundancy": [redundancy(one, each) for each in one.redundancies],
        "expected_nodes": list(one.expected.nodes),
    }


def incident(one: Health, each: Incident) -> dict[str, Any]:
    """Return one incident, with the first and the last event about it."""
    events = one.events(each)
    return {
        "key": each.key,
        "code": each.code.id,
        "title": each.code.title,
        "severity": each.severity.label,
        "who": each.who,
        "since_ns": each.since_ns,
        "until_ns": each.until_ns,
        "what": each.what,
        "why": each.why,
        "effect": each.effect,
        "next": each.next,
        "signs": list(each.signs),
        "nodes": [one.model.name_of(node) for node in each.nodes],
        "name_spaces": list(each.name_spaces),
        "times": each.times,
        "acknowledged_ns": each.acknowledged_ns,
        "muted_until_ns": each.muted_until_ns,
        "page": each.code.page,
        "first_event": _event(events[0]) if events else None,
        "last_event": _event(events[-1]) if events else None,
    }


def redundancy(one: Health, each: Redundancy) -> dict[str, Any]:
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
    }


def _event(event: NodeEvent) -> dict[str, Any]:
    found: dict[str, Any] = plain.to_plain(event)
    return found
