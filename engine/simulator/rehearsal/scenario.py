"""A rehearsal: two writers, instances and a fault in virtual time, readers if any, and what came of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from engine.config.persistence import PersistenceService
from engine.simulator.rehearsal import visits
from engine.simulator.rehearsal.cluster import Cluster
from engine.simulator.rehearsal.subscribed import SubscribedCluster
from engine.simulator.rehearsal.visits import SubscriptionResult, Visits

FAULTS = ("none", "lose", "oscillate")
MAX_READERS = 50
"""Readers of durable subscriptions that can be rehearsed: the sum of all quorums."""
_WRITERS = ("w0", "w1")
_KEYS = 20


@dataclasses.dataclass(frozen=True, slots=True)
class Rehearsal:
    """What a rehearsal showed.

    Attributes:
        changes: the changes of providers that were made.
        cluster: as it is at the end.
        subscriptions: what became of the durable subscriptions of the configuration.
    """

    changes: list[dict[str, object]]
    cluster: Cluster
    subscriptions: tuple[SubscriptionResult, ...]

    @property
    def is_good(self) -> bool:
        """All instances keep the same, and durable subscriptions got everything once."""
        return self.cluster.has_converged and all(each.is_good for each in self.subscriptions)


def rehearse(service: PersistenceService, instances: int, fault: str, periods: int, seed: int) -> Rehearsal:
    """Two writers, connected with one instance each, write in every period; then they stop and all heals.

    Readers of the durable subscriptions of the configuration come and go (`visits`).

    Raises:
        ValueError: there would be more than `MAX_READERS` readers.
    """
    readers = sum(each.quorum for each in service.subscriptions)
    if readers > MAX_READERS:
        raise ValueError(
            f"the durable subscriptions need {readers} readers for their quorums; "
            f"at most {MAX_READERS} can be rehearsed"
        )
    settings = service.synchronization
    cluster = SubscribedCluster(instances, seed, settings)
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


def _fault(cluster: Cluster, fault: str, number: int, periods: int) -> None:
    """i1 is lost half-way, and its writer finds the last instance; or the first link comes and goes."""
    if fault == "lose" and number == periods // 2 and len(cluster.instances) > 1:
        cluster.lose("i1")
        cluster.attach("w1", cluster.names[-1])
    elif fault == "oscillate":
        (cluster.cut if number % 2 else cluster.join)("i0", cluster.names[-1])


def _changes(cluster: Cluster, shown: dict[tuple[str, str], str]) -> Iterator[dict[str, object]]:
    for name in cluster.names:
        for writer in _WRITERS:
            providers = cluster.instances[name].providers(writer)
            text = "the writer" if providers.live == "*" else providers.live or "nobody"
            text += f", filled by {', '.join(sorted(providers.filling))}" if providers.filling else ""
            if shown.get((name, writer), "nobody") != text:
                shown[name, writer] = text
                lag_ns = cluster.instances[name].lag_ns(writer)
                yield {
                    "time_ms": cluster.now_ms,
                    "instance": name,
                    "writer": writer,
                    "providers": text,
                    "lag_ns": lag_ns,
                }


def summary(rehearsal: Rehearsal) -> dict[str, object]:
    """All of it, for a program to read."""
    cluster = rehearsal.cluster
    return {
        "changes": rehearsal.changes,
        "converged": cluster.has_converged,
        "written": sum(cluster.written.values()),
        "dds_instances": len(cluster.last_values()),
        "between_instances": cluster.payloads_between,
        "counters": {name: dict(sorted(cluster.instances[name].counters.items())) for name in cluster.names},
        "durable_subscriptions": rehearsal.subscriptions,
    }


def lines(rehearsal: Rehearsal) -> Iterator[str]:
    """The same for a person to read."""
    cluster = rehearsal.cluster
    for each in rehearsal.changes:
        yield (
            f"{int(str(each['time_ms'])) / 1000:9.1f} s  {each['instance']}: {each['writer']} comes from "
            f"{each['providers']} (lag {int(str(each['lag_ns'])) / 1e9:.1f} s)\n"
        )
    for name in cluster.names:
        counted = ", ".join(
            f"{key} {count}" for key, count in sorted(cluster.instances[name].counters.items())
        )
        yield f"{name}: {counted}\n"
    yield from visits.lines(rehearsal.subscriptions)
    end = "all keep the same" if cluster.has_converged else "they do not keep the same"
    yield (
        f"{sum(cluster.written.values())} samples written, {cluster.payloads_between} sent between "
        f"{len(cluster.instances)} instances: {end}, {len(cluster.last_values())} values\n"
    )
