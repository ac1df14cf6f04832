"""Signs of persistence services: gone, silent, failed, behind, without a provider or a quorum."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from engine.persistence.service.replica_view import ReplicaView
from ospltool.health.codes import SECOND_NS, Sign
from ospltool.health.presence import HealthInput
from ospltool.live import persistence
from ospltool.live.persistence import ReplicaState, Stream, WatchedReplica
from ospltool.output.text import plural

# Chosen: an application connects its readers one after the other.
GATHERING_NS: Final = 4 * SECOND_NS
"""Longest normal time until the readers of a durable subscription have connected."""


def of_services(scene: HealthInput) -> Iterator[Sign]:
    """Yield the signs about all persistence services."""
    for one in scene.model.persistence.ordered():
        yield from of_service(one, scene.now_ns)
        if not one.is_stale(scene.now_ns):
            yield from _quorums(scene, one)


def of_service(one: WatchedReplica, now_ns: int) -> Iterator[Sign]:
    """Yield the signs about one persistence service."""
    name = called(one.view)
    state = one.state(now_ns)
    if state is ReplicaState.GONE:
        yield Sign("DUL-SERVICE-GONE", name, f"{name} is gone", one.gone_ns, weight=2)
    elif state is ReplicaState.SILENT:
        yield Sign("DUL-SERVICE-SILENT", name, f"{name} is silent", one.heard_ns)
    elif state is not ReplicaState.STOPPED:
        yield from _of_heard_service(one.view, one.used)


def _of_heard_service(view: ReplicaView, used: Sequence[Stream]) -> Iterator[Sign]:
    name = called(view)
    for problem in view.problems:
        yield Sign("DUL-SERVICE-FAILED", name, f"{name}: {problem}", why=problem)
    rejected = view.counters.get("limited", 0)
    if rejected:
        yield Sign(
            "DUL-REJECTED", name, f"{name} rejected {plural(rejected, 'value')} by resource limits of topics"
        )
    unprovided = [stream for stream in used if stream.is_unprovided]
    if unprovided:
        what = f"{name} has no provider of {_some(unprovided)}"
        since_ns = min(stream.unprovided_ns for stream in unprovided)
        yield Sign("DUL-NO-PROVIDER", name, what, since_ns, weight=2)
    behind = [stream for stream in used if stream.is_behind and not stream.unprovided_ns]
    if behind:
        most = max(behind, key=lambda stream: stream.view.lag_ns)
        grows = " and falls further behind" if most.grows else ""
        what = f"{name} lags {persistence.lag(most.view.lag_ns)}{grows}, in {_some(behind)}"
        yield Sign("DUL-SERVICE-BEHIND", name, what, most.rising_ns)


def _quorums(scene: HealthInput, one: WatchedReplica) -> Iterator[Sign]:
    for each in one.view.subscriptions:
        if scene.model.persistence.lacks_quorum(one.view.service, each):
            present = len(scene.model.persistence.present(one.view.service, each))
            what = (
                f"durable subscription {each.name} of {each.partition}.{each.topic} has {present} of "
                f"{plural(each.quorum, 'reader')}; "
                f"{plural(each.pending, 'sample waits', 'samples wait')} at {called(one.view)}"
            )
            lacking = each.quorum - present
            why = f"{lacking} more of its readers must run and be connected to acknowledge them"
            yield Sign("DUL-NO-QUORUM", f"subscription {each.name}", what, why=why, patience_ns=GATHERING_NS)


def called(view: ReplicaView) -> str:
    """Return the name of a persistence service for people."""
    return f"persistence service {view.name}"


def _some(streams: Sequence[Stream]) -> str:
    """Return the name of the first group, and the number of further ones."""
    groups = sorted({f"{stream.view.partition}.{stream.view.topic}" for stream in streams})
    return groups[0] if len(groups) == 1 else f"{groups[0]} and {len(groups) - 1:,} more"
