"""Replicas, original writers and links in one thread under virtual time: equal seeds give equal runs.

`engine.simulator.schedule` gives the time. `engine.simulator.network` does not fit: it holds messages back on
a cut link, while a link between replicas that goes down loses them.
"""

from __future__ import annotations

import collections
import functools
import itertools
import random
from collections.abc import Callable

from engine.core.lazy_dataclass import lazy_dataclass
from engine.dataset.sample import DATA
from engine.persistence.core.positions import Positions
from engine.persistence.core.provider_selection import SynchronizationSettings
from engine.persistence.core.replica import Replica
from engine.persistence.core.replica_messages import Message, OriginalSample, SampleBatch, Saved
from engine.simulator.schedule import Schedule

LINK_DELAY_MS = 200
_WRITER_DELAY_MS = 50


@lazy_dataclass(eq=False)
class RehearsedLink:
    """Both directions between two replicas; messages on the way are lost when it goes down.

    Attributes:
        up: whether messages arrive.
        generation: how often it came up or went down.
    """

    up: bool = True
    generation: int = 0


class ReplicaCluster:
    """Replicas named i0, i1 and so on, all connected. A replica that lets a value become older is a fault.

    Args:
        count: how many replicas.
        seed: of delays and phases.
        settings: of every replica.

    Attributes:
        replicas: by name.
        links: by the names of both replicas.
        direct: (writer, replica) pairs that are connected.
        written: samples written, by writer.
        arrivals: how often (replica, writer, sequence number) arrived since the replica started.
        payloads_between: samples that arrived from other replicas.
    """

    def __init__(self, count: int, seed: int, settings: SynchronizationSettings) -> None:
        self._random = random.Random(seed)
        self._schedule = Schedule()
        self.settings = settings
        self.replicas: dict[str, Replica] = {}
        self.links: dict[frozenset[str], RehearsedLink] = {}
        self.direct: set[tuple[str, str]] = set()
        self.written: dict[str, int] = collections.defaultdict(int)
        self.arrivals: collections.Counter[tuple[str, str, int]] = collections.Counter()
        self.payloads_between = 0
        self._order: dict[tuple[str, str], int] = {}
        self._matches: dict[tuple[str, str], Positions] = {}
        for number in range(count):
            self.start(f"i{number}")
        for pair in itertools.combinations(sorted(self.replicas), 2):
            self.links[frozenset(pair)] = RehearsedLink(up=False)
            self.join(*pair)

    def start(self, name: str, saved: Saved | None = None) -> None:
        """Start a replica, empty or with what one of its name has saved; it is connected to no other."""
        replica = Replica(name, self.settings, saved)
        self.replicas[name] = replica
        self._after(self._random.randrange(self.settings.period_ms), self._period, name, replica)

    def _period(self, name: str, replica: Replica) -> None:
        if self.replicas.get(name) is not replica:
            return
        replica.period()
        self._flush(name)
        self._after(self.settings.period_ms, self._period, name, replica)

    @property
    def now_ms(self) -> int:
        """Virtual time since the beginning."""
        return round(self._schedule.now * 1000)

    def _after(self, delay_ms: int, action: Callable[..., None], *arguments: object) -> None:
        self._schedule.at((self.now_ms + delay_ms) / 1000, action, *arguments)

    def _in_order(self, line: tuple[str, str], delay_ms: int, arrive: Callable[[], None]) -> None:
        """Let something arrive within `delay_ms`, but not before earlier arrivals of the same line."""
        due_ms = max(self.now_ms + self._random.randrange(1, delay_ms), self._order.get(line, 0))
        self._order[line] = due_ms
        self._after(due_ms - self.now_ms, arrive)

    def run(self, milliseconds: int) -> None:
        """Carry out everything that is due in the next `milliseconds`."""
        self._schedule.run_until((self.now_ms + milliseconds) / 1000)

    # Links between replicas.

    def join(self, one: str, other: str) -> None:
        """Connect two replicas."""
        link = self.links[frozenset((one, other))]
        if not link.up and {one, other} <= self.replicas.keys():
            link.up = True
            link.generation += 1
            for here, there in ((one, other), (other, one)):
                self.replicas[here].connected(there)
                self._flush(here)

    def cut(self, one: str, other: str) -> None:
        """Disconnect two replicas; messages on the way are lost."""
        link = self.links[frozenset((one, other))]
        if link.up:
            link.up = False
            link.generation += 1
            for here, there in ((one, other), (other, one)):
                if here in self.replicas:
                    self.replicas[here].disconnected(there)
                    self._flush(here)

    def _flush(self, name: str) -> None:
        for receiver, message in self.replicas[name].messages():
            link = self.links[frozenset((name, receiver))]
            if link.up:
                arrive = functools.partial(self._arrive, name, receiver, link, link.generation, message)
                self._in_order((name, receiver), LINK_DELAY_MS, arrive)

    def _arrive(
        self, sender: str, receiver: str, link: RehearsedLink, generation: int, message: Message
    ) -> None:
        if link.generation != generation or receiver not in self.replicas:
            return
        if isinstance(message, SampleBatch):
            self.payloads_between += len(message.samples)
            self.arrivals.update((receiver, k.sample.writer, k.sample.sequence) for k in message.samples)
            self._arrived(receiver, [kept.sample for kept in message.samples])
        self._checked(receiver, lambda: self.replicas[receiver].receive(sender, message))

    def _checked(self, name: str, act: Callable[[], None]) -> None:
        """Let a replica do something, and check that no last value becomes older by it."""
        before = self.replicas[name].values()
        act()
        after = self.replicas[name].values()
        assert all(after[key].order >= sample.order for key, sample in before.items())
        self._flush(name)

    # Original writers.

    def attach(self, writer: str, *names: str) -> None:
        """Connect an original writer to replicas."""
        for name in names:
            self.direct.add((writer, name))
            self._matches[writer, name] = Positions()
            self.replicas[name].writer_matched(writer)
            self._flush(name)

    def detach(self, writer: str, *names: str) -> None:
        """Disconnect an original writer from replicas."""
        for name in names:
            self.direct.discard((writer, name))
            if name in self.replicas:
                self.replicas[name].writer_lost(writer)
                self._flush(name)

    def write(self, writer: str, key: bytes, time_ns: int | None = None) -> None:
        """Let an original writer write a sample; its source timestamp is the virtual time unless given."""
        self.written[writer] += 1
        stamp = self.now_ms * 1_000_000 if time_ns is None else time_ns
        payload = f"{writer}/{self.written[writer]}".encode()
        for source, name in sorted(self.direct):
            if source == writer and name in self.replicas:
                self._deliver(name, writer, key, stamp, payload)

    def _deliver(self, name: str, writer: str, key: bytes, stamp: int, payload: bytes) -> None:
        replica, match = self.replicas[name], self._matches[writer, name]

        def arrive() -> None:
            if self.replicas.get(name) is replica:
                sample = match.sample(writer, key, stamp, DATA, payload)
                self.arrivals[name, writer, sample.sequence] += 1
                self._arrived(name, [sample])
                self._checked(name, lambda: replica.samples_arrived([sample]))

        self._in_order((writer, name), _WRITER_DELAY_MS, arrive)

    def _arrived(self, name: str, samples: list[OriginalSample]) -> None:
        """Take note of samples that came to a replica, from a writer or from another replica."""

    # Faults and the end.

    def lose(self, name: str) -> None:
        """Take a replica and its disk away for ever."""
        for other in list(self.replicas):
            if other != name:
                self.cut(name, other)
        self.direct = {each for each in self.direct if each[1] != name}
        for arrival in [each for each in self.arrivals if each[0] == name]:
            del self.arrivals[arrival]
        del self.replicas[name]

    def heal(self) -> None:
        """Connect all replicas."""
        for one, other in itertools.combinations(sorted(self.replicas), 2):
            self.join(one, other)

    def last_values(self) -> dict[bytes, OriginalSample]:
        """Return the latest sample of each instance that any replica has: all must end with these."""
        latest: dict[bytes, OriginalSample] = {}
        for replica in self.replicas.values():
            for key, sample in replica.values().items():
                if key not in latest or sample.order > latest[key].order:
                    latest[key] = sample
        return latest

    def repeated(self) -> int:
        """Count the samples that came again, at all replicas together."""
        return sum(each.counters["repeated"] for each in self.replicas.values())

    @property
    def has_converged(self) -> bool:
        """Whether all replicas keep the same, the latest of everything."""
        wanted = self.last_values()
        return all(each.values() == wanted for each in self.replicas.values())

    @property
    def names(self) -> list[str]:
        """The replicas that run."""
        return sorted(self.replicas)
