"""A rehearsal in virtual time: two writers, replicas, a fault, readers of subscriptions, the outcome."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from engine.config.persistence import PersistenceService
from engine.simulator.rehearsal import visits
from engine.simulator.rehearsal.replicas import ReplicaCluster
from engine.simulator.rehearsal.subscribed import SubscribedCluster
from engine.simulator.rehearsal.visits import SubscriptionResult, Visits

FAULTS = ("none", "lose", "oscillate")
MAX_READERS = 50
"""Readers of durable subscriptions that can be rehearsed: the sum of all quorums."""
_WRITERS = ("w0", "w1")
_KEYS = 20


@dataclasses.dataclass(frozen=True, slots=True)
class Rehearsal:
    """The outcome of a rehearsal.

    Attributes:
        changes: each change of providers, in order of time.
        cluster: the replicas at the end.
        subscriptions: the outcome for each durable subscription of the configuration.
    """

    changes: list[dict[str, object]]
    cluster: ReplicaCluster
    subscriptions: tuple[SubscriptionResult, ...]

    @property
    def is_good(self) -> bool:
        """Whether all replicas keep the same, and readers of durable subscriptions got everything once."""
        return self.cluster.has_converged and all(each.is_good for each in self.subscriptions)


def rehearse(service: PersistenceService, replicas: int, fault: str, periods: int, seed: int) -> Rehearsal:
    """Let two writers write to one replica each in every period; then they stop, and all links heal.

    Readers of the durable subscriptions of the configuration come and go (`visits`).

    Args:
        service: the configuration.
        replicas: how many, from 2.
        fault: one of `FAULTS`.
        periods: selection periods in which the writers write.
        seed: of delays and phases.

    Raises:
        ValueError: the quorums need more than `MAX_READERS` readers.
    """
    readers = sum(each.quorum for each in service.subscriptions)
    if readers > MAX_READERS:
        raise ValueError(
            f"the durable subscriptions need {readers} readers for their quorums; "
            f"at most {MAX_READERS} can be rehearsed"
        )
    settings = service.synchronization
    cluster = SubscribedCluster(replicas, seed, settings)
    visiting = [
        Visits(cluster, subscription, number, _WRITERS)
        for number, subscription in enumerate(service.subscriptions)
    ]
    for number, writer in enumerate(_WRITERS):
        cluster.attach(writer, f"i{number}")
    changes: list[dict[str, object]] = []
    shown: dict[tuple[str, str], str] = {}
    for number in range(periods):
        _fault(cluster, fault, number, periods)
        for _ in range(5):
            for writer in _WRITERS:
                cluster.publish(writer, b"%d" % (sum(cluster.written.values()) * 7 % _KEYS))
            visits.pass_time(cluster, visiting, settings.period_ms // 5 or 1)
        changes += _changes(cluster, shown)
    cluster.heal()
    for _ in range(10 + 4 * settings.max_change_periods):
        visits.pass_time(cluster, visiting, settings.period_ms)
        changes += _changes(cluster, shown)
    visits.finish(cluster, visiting)
    return Rehearsal(changes, cluster, tuple(each.result() for each in visiting))


def _fault(cluster: ReplicaCluster, fault: str, number: int, periods: int) -> None:
    """Lose i1 half-way and connect its writer to the last replica, or cut and join one link in turn."""
    if fault == "lose" and number == periods // 2 and len(cluster.replicas) > 1:
        cluster.lose("i1")
        cluster.attach("w1", cluster.names[-1])
    elif fault == "oscillate":
        (cluster.cut if number % 2 else cluster.join)("i0", cluster.names[-1])


def _changes(cluster: ReplicaCluster, shown: dict[tuple[str, str], str]) -> Iterator[dict[str, object]]:
    for name in cluster.names:
        for writer in _WRITERS:
            providers = cluster.replicas[name].providers(writer)
            text = "the writer" if providers.live == "*" else providers.live or "nobody"
            text += f", filled by {', '.join(sorted(providers.filling))}" if providers.filling else ""
            if shown.get((name, writer), "nobody") != text:
                shown[name, writer] = text
                lag_ns = cluster.replicas[name].lag_ns(writer)
                yield {
                    "time_ms": cluster.now_ms,
                    "replica": name,
                    "writer": writer,
                    "providers": text,
                    "lag_ns": lag_ns,
                }


def summary(rehearsal: Rehearsal) -> dict[str, object]:
    """Return the outcome for JSON."""
    cluster = rehearsal.cluster
    return {
        "changes": rehearsal.changes,
        "converged": cluster.has_converged,
        "written": sum(cluster.written.values()),
        "dds_instances": len(cluster.last_values()),
        "between_replicas": cluster.payloads_between,
        "counters": {name: dict(sorted(cluster.replicas[name].counters.items())) for name in cluster.names},
        "durable_subscriptions": rehearsal.subscriptions,
    }


def lines(rehearsal: Rehearsal) -> Iterator[str]:
    """Yield the outcome as text."""
    cluster = rehearsal.cluster
    for each in rehearsal.changes:
        yield (
            f"{int(str(each['time_ms'])) / 1000:9.1f} s  {each['replica']}: {each['writer']} comes from "
            f"{each['providers']} (lag {int(str(each['lag_ns'])) / 1e9:.1f} s)\n"
        )
    for name in cluster.names:
        counted = ", ".join(
            f"{key} {count}" for key, count in sorted(cluster.replicas[name].counters.items())
        )
        yield f"{name}: {counted}\n"
    yield from visits.lines(rehearsal.subscriptions)
    end = "all keep the same" if cluster.has_converged else "they do not keep the same"
    yield (
        f"{sum(cluster.written.values())} samples written, {cluster.payloads_between} sent between "
        f"{len(cluster.replicas)} replicas: {end}, {len(cluster.last_values())} values\n"
    )
