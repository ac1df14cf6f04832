"""Instances, original writers and links in one thread and in virtual time: the same seed, the same run."""

from __future__ import annotations

import collections
import dataclasses
import heapq
import itertools
import random
from collections.abc import Callable

from engine.dataset.sample import DATA
from engine.persistence.core.messages import Delivery, Message, Sample, Saved
from engine.persistence.core.positions import Positions
from engine.persistence.core.replica import Replica
from engine.persistence.core.settings import SynchronizationSettings

LINK_DELAY_MS = 200
_WRITER_DELAY_MS = 50


@dataclasses.dataclass(eq=False)
class Link:
    """Both directions between two instances; what is on its way when it goes down is lost."""

    up: bool = True
    generation: int = 0


class Cluster:
    """Instances named i0, i1 and so on, all connected; an instance that lets a value become older is a fault.

    Args:
        count: how many instances.
        seed: of delays and phases.
        settings: of every instance.

    Attributes:
        now_ms: virtual time since the beginning.
        direct: (writer, instance) pairs that are connected.
        written: samples written, by writer.
        arrivals: how often (instance, writer, sequence number) arrived, since the instance started.
        payloads_between: samples that arrived from other instances.
    """

    def __init__(self, count: int, seed: int, settings: SynchronizationSettings) -> None:
        self._random = random.Random(seed)
        self.settings = settings
        self.now_ms = 0
        self.instances: dict[str, Replica] = {}
        self.links: dict[frozenset[str], Link] = {}
        self.direct: set[tuple[str, str]] = set()
        self.written: dict[str, int] = collections.defaultdict(int)
        self.arrivals: collections.Counter[tuple[str, str, int]] = collections.Counter()
        self.payloads_between = 0
        self._order: dict[tuple[str, str], int] = {}
        self._matches: dict[tuple[str, str], Positions] = {}
        self._numbers = itertools.count()
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        for number in range(count):
            self.start(f"i{number}")
        for pair in itertools.combinations(sorted(self.instances), 2):
            self.links[frozenset(pair)] = Link(up=False)
            self.join(*pair)

    def start(self, name: str, saved: Saved | None = None) -> None:
        """A new instance, empty or with what one of its name has saved; connected with nobody."""
        instance = Replica(name, self.settings, saved)
        self.instances[name] = instance
        self._at(self._random.randrange(self.settings.period_ms), lambda: self._period(name, instance))

    def _period(self, name: str, instance: Replica) -> None:
        if self.instances.get(name) is not instance:
            return
        instance.period()
        self._flush(name)
        self._at(self.settings.period_ms, lambda: self._period(name, instance))

    def _at(self, delay_ms: int, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now_ms + delay_ms, next(self._numbers), action))

    def run(self, milliseconds: int) -> None:
        """Let so much time go by."""
        end = self.now_ms + milliseconds
        while self._events and self._events[0][0] <= end:
            self.now_ms, _, action = heapq.heappop(self._events)
            action()
        self.now_ms = end

    # Links between instances.

    def join(self, one: str, other: str) -> None:
        """Connect two instances; nothing is left over from before."""
        link = self.links[frozenset((one, other))]
        if not link.up and {one, other} <= self.instances.keys():
            link.up = True
            link.generation += 1
            for here, there in ((one, other), (other, one)):
                self.instances[here].connected(there)
                self._flush(here)

    def cut(self, one: str, other: str) -> None:
        """Disconnect two instances; what is on its way is lost."""
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
        due = max(
            self.now_ms + self._random.randrange(1, LINK_DELAY_MS), self._order.get((sender, receiver), 0)
        )
        self._order[sender, receiver] = due  # first in, first out

        def arrive() -> None:
            if link.generation != generation or receiver not in self.instances:
                return
            if isinstance(message, Delivery):
                self.payloads_between += len(message.samples)
                self.arrivals.update((receiver, k.sample.writer, k.sample.sequence) for k in message.samples)
                self._arrived(receiver, [kept.sample for kept in message.samples])
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
        """Connect an original writer with instances."""
        for name in names:
            self.direct.add((writer, name))
            self._matches[writer, name] = Positions()
            self.instances[name].writer_matched(writer)
            self._flush(name)

    def detach(self, writer: str, *names: str) -> None:
        """End that."""
        for name in names:
            self.direct.discard((writer, name))
            if name in self.instances:
                self.instances[name].writer_lost(writer)

    def write(self, writer: str, key: bytes, time_ns: int | None = None) -> None:
        """An original writer writes; its stamp is the virtual time, or another one."""
        self.written[writer] += 1
        stamp = self.now_ms * 1_000_000 if time_ns is None else time_ns
        payload = f"{writer}/{self.written[writer]}".encode()
        for source, name in sorted(self.direct):
            if source == writer and name in self.instances:
                self._deliver(name, writer, key, stamp, payload)

    def _deliver(self, name: str, writer: str, key: bytes, stamp: int, payload: bytes) -> None:
        instance, match = self.instances[name], self._matches[writer, name]
        due = max(
            self.now_ms + self._random.randrange(1, _WRITER_DELAY_MS),
            self._order.get((writer, name), 0),
        )
        self._order[writer, name] = due

        def arrive() -> None:
            if self.instances.get(name) is instance:
                sample = match.sample(writer, key, stamp, DATA, payload)
                self.arrivals[name, writer, sample.sequence] += 1
                self._arrived(name, [sample])
                self._checked(name, lambda: instance.samples_arrived([sample]))

        self._at(due - self.now_ms, arrive)

    def _arrived(self, name: str, samples: list[Sample]) -> None:
        """Samples came to an instance, from a writer or from another instance."""

    # Faults and the end.

    def lose(self, name: str) -> None:
        """An instance and its disk are gone for ever."""
        for other in list(self.instances):
            if other != name:
                self.cut(name, other)
        self.direct = {each for each in self.direct if each[1] != name}
        for arrival in [each for each in self.arrivals if each[0] == name]:
            del self.arrivals[arrival]
        del self.instances[name]

    def heal(self) -> None:
        """Connect all instances."""
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

    @property
    def has_converged(self) -> bool:
        """Whether all instances keep the same, the latest of everything."""
        wanted = self.last_values()
        return all(each.values() == wanted for each in self.instances.values())

    @property
    def names(self) -> list[str]:
        """The instances that are there."""
        return sorted(self.instances)
