"""Rehearse persistence services in virtual time: `python -m engine.redundancy FILE --instances 3`.

Exit codes: 0 all instances ended with the same values, 1 they did not, 2 wrong usage or configuration.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence

from engine.config.problems import ConfigError
from engine.redundancy.configuration import load
from engine.redundancy.rehearsal import Cluster
from engine.redundancy.settings import SynchronizationSettings

FAULTS = ("none", "lose", "oscillate")
_WRITERS = ("w0", "w1")
_KEYS = 20


def main(arguments: Sequence[str]) -> int:
    """Run one rehearsal and say what happened."""
    parser = argparse.ArgumentParser(
        prog="python -m engine.redundancy", description=(__doc__ or "").split(":")[0]
    )
    parser.add_argument("file", help="the configuration of the persistence services")
    parser.add_argument("--instances", type=int, default=3, choices=range(2, 10), help="how many (3)")
    parser.add_argument("--fault", default="none", choices=FAULTS, help="what happens half-way (none)")
    parser.add_argument(
        "--periods", type=int, default=60, choices=range(1, 10_001), metavar="N", help="how long (60)"
    )
    parser.add_argument("--seed", type=int, default=1, help="of delays and phases (1)")
    parser.add_argument("--json", action="store_true", help="show the result as JSON")
    given = parser.parse_args(arguments)
    try:
        settings = load(given.file, os.environ).synchronization
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    if not settings.enable:
        sys.stderr.write(f"{given.file}: data_synchronization is not enabled: there is nothing to rehearse\n")
        return 2
    changes, cluster = rehearse(settings, given.instances, given.fault, given.periods, given.seed)
    if given.json:
        data = {"changes": changes, **summary(cluster)}
        document = {"format_version": 1, "kind": "redundancy", "data": data}
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
    else:
        sys.stdout.writelines(_lines(changes, cluster))
    return 0 if cluster.has_converged else 1


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
                lag = cluster.instances[name].lag(writer)
                yield {
                    "time_ms": cluster.now_ms,
                    "instance": name,
                    "writer": writer,
                    "providers": text,
                    "lag": lag,
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


def _lines(changes: Sequence[dict[str, object]], cluster: Cluster) -> Iterator[str]:
    for each in changes:
        yield (
            f"{int(str(each['time_ms'])) / 1000:9.1f} s  {each['instance']}: {each['writer']} comes from "
            f"{each['providers']} (lag {each['lag']})\n"
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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
