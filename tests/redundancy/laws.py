"""What must hold of replicas, whatever happened."""

from __future__ import annotations

from collections.abc import Iterable

from engine.persistence.core.sequences import Sequences
from engine.simulator.rehearsal import ReplicaCluster


def check_converged(cluster: ReplicaCluster) -> None:
    """All keep the latest that any of them has."""
    wanted = cluster.last_values()
    for name, replica in cluster.replicas.items():
        assert replica.values() == wanted, name


def check_applied_once(cluster: ReplicaCluster) -> None:
    """No more samples became a last value than different ones arrived, and the rest was counted."""
    for name, replica in cluster.replicas.items():
        heard = sum(1 for who, _, _ in cluster.arrivals if who == name)
        copies = sum(count for (who, _, _), count in cluster.arrivals.items() if who == name)
        assert replica.counters["applied"] <= heard
        assert replica.counters["repeated"] >= copies - heard


def numbers_of(wanted: Iterable[int]) -> Sequences:
    """The set of these numbers."""
    return Sequences.joined((number, number) for number in wanted)
