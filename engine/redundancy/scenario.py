"""A rehearsal: two writers, instances and a fault in virtual time, and what came of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from engine.redundancy.rehearsal import Cluster
from engine.redundancy.settings import SynchronizationSettings

FAULTS = ("none", "lose", "oscillate")
_WRITERS = ("w0", "w1")
_KEYS = 20


def rehearse(
    settings: SynchronizationSettings, instances: int, fault: str, periods: int, seed: int
) -> tuple[list[dict[str, object]], Cluster]:
    """Two writers, connected with one instance each, write in every period; then they stop and all heals.

    Returns:
        The changes of providers that were made, and the cluster at the end.
    """
    cluster = Cluster(instances, seed, settings)
    for number, writer in enumerate(_WRITERS):
        cluster.attach(writer, f"i{number}")
    changes: list[dict[str, object]] = []
    shown: dict[tuple[str, str], str] = {}
    for number in range(periods):
        _fault(cluster, fault, number, periods)
        for _ in range(5):
            for writer in _WRITERS:
                cluster.write(writer, b"%d" % (sum(cluster.written.values()) * 7 % _KEYS))
            cluster.run(settings.period_ms // 5 or 1)
        changes += _changes(cluster, shown)
    cluster.heal()
    for _ in range(10 + 4 * settings.max_change_periods):
        cluster.run(settings.period_ms)
        changes += _changes(cluster, shown)
    return changes, cluster


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


def summary(cluster: Cluster) -> dict[str, object]:
    """What happened in all."""
    return {
        "converged": cluster.has_converged,
        "written": sum(cluster.written.values()),
        "dds_instances": len(cluster.last_values()),
        "between_instances": cluster.payloads_between,
        "counters": {name: dict(sorted(cluster.instances[name].counters.items())) for name in cluster.names},
    }


def lines(changes: Sequence[dict[str, object]], cluster: Cluster) -> Iterator[str]:
    """The same for a person to read."""
    for each in changes:
        yield (
            f"{int(str(each['time_ms'])) / 1000:9.1f} s  {each['instance']}: {each['writer']} comes from "
            f"{each['providers']} (lag {int(str(each['lag_ns'])) / 1e9:.1f} s)\n"
        )
    for name in cluster.names:
        counted = ", ".join(
            f"{key} {count}" for key, count in sorted(cluster.instances[name].counters.items())
        )
        yield f"{name}: {counted}\n"
    end = "all keep the same" if cluster.has_converged else "they do not keep the same"
    yield (
        f"{sum(cluster.written.values())} samples written, {cluster.payloads_between} sent between "
        f"{len(cluster.instances)} instances: {end}, {len(cluster.last_values())} values\n"
    )
