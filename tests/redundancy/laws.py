"""What must hold of instances, whatever happened."""

from __future__ import annotations

from engine.simulator.rehearsal.cluster import Cluster


def check_converged(cluster: Cluster) -> None:
    """All keep the latest that any of them has."""
    wanted = cluster.last_values()
    for name, instance in cluster.instances.items():
        assert instance.values() == wanted, name


def check_applied_once(cluster: Cluster) -> None:
    """No more samples became a last value than different ones arrived, and the rest was counted."""
    for name, instance in cluster.instances.items():
        heard = sum(1 for who, _, _ in cluster.arrivals if who == name)
        copies = sum(count for (who, _, _), count in cluster.arrivals.items() if who == name)
        assert instance.counters["applied"] <= heard
        assert instance.counters["repeated"] >= copies - heard
