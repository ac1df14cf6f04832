"""Instances, original writers and links in virtual time, all drawn from one seed."""

from __future__ import annotations

import collections
import dataclasses
import heapq
import itertools
import random
from collections.abc import Callable, Iterable

from engine.redundancy.instance import Instance
from engine.redundancy.messages import Delivery, Message, Sample
from engine.redundancy.settings import SynchronizationSettings

PERIOD_MS = 5_000


@dataclasses.dataclass(eq=False)
class Link:
    """Both directions between two instances; what is on its way when it goes down is lost."""

    up: bool = True
    generation: int = 0


class Cluster:
    """A cluster; the laws are checked while it runs.

    Args:
        count: instances, named i0, i1 and so on.
        seed: of delays and phases.
        settings: of every instance.
        connect: whether all links are up at the beginning.
    """

    def __init__(
        self, count: int, seed: int, settings: SynchronizationSettings, *, connect: bool = True
    ) -> None:
        self.random = random.Random(seed)
        self.settings = settings
        self.now_ms = 0
        self.instances: dict[str, Instance] = {}
        self.links: dict[frozenset[str], Link] = {}
        self.direct: set[tuple[str, str]] = set()
        self.written: dict[str, int] = collections.defaultdict(int)
        self.arrivals: collections.Counter[tuple[str, str, int]] = collections.Counter()
        self.payloads_between = 0
        self._order: dict[tuple[str, str], int] = {}
        self._numbers = itertools.count()
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        for number in range(count):
            self.start(f"i{number}")
        for pair in itertools.combinations(sorted(self.instances), 2):
            self.links[frozenset(pair)] = Link(up=False)
            if connect:
                self.join(*pair)

    def start(self, name: str) -> None:
        instance = Instance(name, self.settings)
        self.instances[name] = instance
        self._at(self.random.randrange(PERIOD_MS), lambda: self._period(name, instance))

    def _period(self, name: str, instance: Instance) -> None:
        if self.instances.get(name) is not instance:
            return
        instance.period()
        self._flush(name)
        self._at(PERIOD_MS, lambda: self._period(name, instance))

    def _at(self, delay_ms: int, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now_ms + delay_ms, next(self._numbers), action))

    def run(self, milliseconds: int) -> None:
        end = self.now_ms + milliseconds
        while self._events and self._events[0][0] <= end:
            self.now_ms, _, action = heapq.heappop(self._events)
            action()
        self.now_ms = end

    # Links between instances.

    def join(self, one: str, other: str) -> None:
        link = self.links[frozenset((one, other))]
        if not link.up and {one, other} <= self.instances.keys():
            link.up = True
            link.generation += 1
            for here, there in ((one, other), (other, one)):
                self.instances[here].connected(there)
                self._flush(here)

    def cut(self, one: str, other: str) -> None:
        link = self.links[frozenset((one, other))]
        if link.up:
            link.up = False
            link.generation += 1
            for here, there in ((one, other), (other, one)):
                if here in self.instances:
                    self.instances[here].disconnected(there)

    def _flush(self, name: str) -> None:
        for receiver, message in self.instances[name].messages():
            link = self.links[frozenset((name, receiver))]
            if link.up:
                self._send(name, receiver, link, message)

    def _send(self, sender: str, receiver: str, link: Link, message: Message) -> None:
        generation = link.generation
        due = max(self.now_ms + self.random.randrange(1, 200), self._order.get((sender, receiver), 0))
        self._order[sender, receiver] = due  # first in, first out

        def arrive() -> None:
            if link.generation != generation or receiver not in self.instances:
                return
            if isinstance(message, Delivery):
                self.payloads_between += len(message.samples)
                self.arrivals.update((receiver, k.sample.writer, k.sample.sequence) for k in message.samples)
            self._checked(receiver, lambda: self.instances[receiver].receive(sender, message))

        self._at(due - self.now_ms, arrive)

    def _checked(self, name: str, act: Callable[[], None]) -> None:
        """What an instance keeps of a DDS instance never becomes older."""
        before = self.instances[name].values()
        act()
        after = self.instances[name].values()
        assert all(after[key].order >= sample.order for key, sample in before.items())
        self._flush(name)

    # Original writers.

    def attach(self, writer: str, *names: str) -> None:
        for name in names:
            self.direct.add((writer, name))
            self.instances[name].writer_matched(writer)
            self._flush(name)

    def detach(self, writer: str, *names: str) -> None:
        for name in names:
            self.direct.discard((writer, name))
            if name in self.instances:
                self.instances[name].writer_lost(writer)

    def write(self, writer: str, key: bytes, time_ns: int | None = None) -> Sample:
        self.written[writer] += 1
        sequence = self.written[writer]
        stamp = self.now_ms * 1_000_000 if time_ns is None else time_ns
        sample = Sample(writer, sequence, key, stamp, f"{writer}/{sequence}".encode())
        for source, name in sorted(self.direct):
            if source == writer and name in self.instances:
                self._deliver(name, sample)
        return sample

    def _deliver(self, name: str, sample: Sample) -> None:
        instance = self.instances[name]
        due = max(self.now_ms + self.random.randrange(1, 50), self._order.get((sample.writer, name), 0))
        self._order[sample.writer, name] = due

        def arrive() -> None:
            if self.instances.get(name) is instance:
                self.arrivals[name, sample.writer, sample.sequence] += 1
                self._checked(name, lambda: instance.sample_arrived(sample))

        self._at(due - self.now_ms, arrive)

    # Faults and the end.

    def lose(self, name: str) -> None:
        """An instance and its disk are gone for ever."""
        for other in list(self.instances):
            if other != name:
                self.cut(name, other)
        del self.instances[name]

    def heal(self) -> None:
        for one, other in itertools.combinations(sorted(self.instances), 2):
            self.join(one, other)

    def last_values(self) -> dict[bytes, Sample]:
        """What all must end with: of each DDS instance the latest that any instance has."""
        latest: dict[bytes, Sample] = {}
        for instance in self.instances.values():
            for key, sample in instance.values().items():
                if key not in latest or sample.order > latest[key].order:
                    latest[key] = sample
        return latest

    def repeated(self) -> int:
        """Samples that came again, at all instances together."""
        return sum(each.counters["repeated"] for each in self.instances.values())

    def check_converged(self) -> None:
        wanted = self.last_values()
        for name, instance in self.instances.items():
            assert instance.values() == wanted, name

    def check_applied_once(self) -> None:
        for name, instance in self.instances.items():
            heard = sum(1 for who, _, _ in self.arrivals if who == name)
            assert instance.counters["applied"] <= heard
            copies = sum(count for (who, _, _), count in self.arrivals.items() if who == name)
            assert instance.counters["repeated"] >= copies - heard


def names(cluster: Cluster) -> Iterable[str]:
    return sorted(cluster.instances)
