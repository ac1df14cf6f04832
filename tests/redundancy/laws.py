"""What must hold of replicas, whatever happened."""

from __future__ import annotations

from collections.abc import Iterable

from engine.persistence.core.messages import Saved, SavedSubscriptions
from engine.persistence.core.provider_selection import SynchronizationSettings
from engine.persistence.core.sequences import Sequences
from engine.simulator.rehearsal import Id, ReplicaCluster


class TriedCluster(ReplicaCluster):
    """Replicas that crash and lose writers, which no rehearsal does, and what they know together."""

    def __init__(self, count: int, seed: int, settings: SynchronizationSettings) -> None:
        self._disks: dict[str, tuple[Saved, SavedSubscriptions]] = {}
        super().__init__(count, seed, settings)

    def save(self, name: str) -> None:
        """Put everything that a replica has on its disk."""
        self._disks[name] = self.replicas[name].saved(), self.stocks[name].saved()

    def crash(self, name: str) -> None:
        """Kill a replica and start it with its last save, connected to no other."""
        self.lose(name)
        self.start(name, *self._disks.get(name, ()))

    def detach(self, writer: str, *names: str) -> None:
        """Disconnect an original writer from replicas."""
        for name in names:
            self.direct.discard((writer, name))
            if name in self.replicas:
                self.replicas[name].writer_lost(writer)
                self._flush(name)

    def delete(self, name: str, subscription: str) -> None:
        """Delete a durable subscription at one replica."""
        self._at_stock(name, lambda: self.stocks[name].delete(subscription))

    def find(self, application: str, replica: str) -> None:
        """Connect an application to a replica."""
        self.applications[application].replicas.add(replica)

    def repeated(self) -> int:
        """Count the samples that came again, at all replicas together."""
        return sum(each.counters["repeated"] for each in self.replicas.values())

    def done(self) -> set[tuple[str, str, int]]:
        """Return (subscription, writer, number) of the samples that a replica knows as done by the quorum."""
        return {
            (state.name, writer, number)
            for stock in self.stocks.values()
            for state in stock.saved().ledgers
            for writer, numbers in state.done
            for number in numbers
        }

    def held(self) -> set[Id]:
        """Return the samples that at least one replica holds for durable subscriptions."""
        return set().union(*(stock.held() for stock in self.stocks.values()))


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
