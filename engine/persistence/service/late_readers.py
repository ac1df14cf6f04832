"""Delivers last values to late readers, from one replica.

Of the connected replicas the one whose name comes first serves, and tells the others which readers. Without
synchronization each one serves its own values. A value that comes from another replica later is given to
readers that may have come after it was written.
"""

from __future__ import annotations

import collections
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from msgspec import Struct

from engine.capture.neighbourhood import DiscoveryChanges, HistoryReader
from engine.dataset import sample as dataset_sample
from engine.dataset.groups import GroupDescription, is_given
from engine.persistence.core.messages import OriginalSample, ServedReaders
from engine.persistence.service.kept_groups import ID_BYTES, KnownGroups, WriterName
from engine.persistence.service.replica_view import ReaderDeliveryView
from engine.persistence.service.service_part import NEVER_S, ServicePart
from engine.runtime.ports import Delivered

SETTLE_S: Final = 2.0
"""Time after the start in which a service looks for others before it serves."""
RETRY_S: Final = 2.0
FURTHER_S: Final = 0.5
"""Time that a further reader of a process waits, so that several are served at once."""
MARGIN_NS: Final = 60_000_000_000
"""Tolerated difference between the clocks of writers and of this replica."""
MAX_READERS: Final = 10_000
MAX_ENDS: Final = 100_000
"""Served readers that are taken from one message; twice as many are remembered."""
MAX_UPDATES: Final = 100_000
"""Samples that may wait for one reader; beyond, the reader gets all values again."""


Groupwise = list[tuple[GroupDescription, list[dataset_sample.Sample]]]


DeliverTo = Callable[[HistoryReader, Groupwise], Delivered]
"""Delivers samples to the readers of one kind in a process; it blocks. See `engine.capture.delivery`."""


class _Reader(Struct):
    """Readers of one kind in a process: a delivery reaches all of them.

    Attributes:
        seen_ns: when the last of them came, nanoseconds since 1970.
        unserved: GUIDs, in hexadecimal digits, of those that have not been served.
        served: GUIDs of those that have been served.
        missed: whether they must get all values again.
        updates: later values that they must get.
        is_busy: whether a delivery is under way.
        due_s: when the next delivery may begin, monotonic seconds.
    """

    seen_ns: int = 0
    unserved: set[str] = set()
    served: set[str] = set()
    missed: bool = False
    updates: list[OriginalSample] = []
    is_busy: bool = False
    due_s: float = 0.0

    @property
    def wants_all(self) -> bool:
        """Whether they must get all values."""
        return self.missed or bool(self.unserved)

    def serve(self, ends: Collection[str]) -> None:
        """Note readers that have been served; those of other kinds are ignored."""
        self.served |= self.unserved.intersection(ends)
        self.unserved -= self.served


class LateReaders(ServicePart):
    """The late readers, and deliveries to them.

    Args:
        name: of this replica.
        synchronizes: whether replicas keep the same; then one serves.
        groups: the known groups.
        kept: returns the last values of a group.
        is_expired: whether a sample has expired at a time, in nanoseconds since 1970.
        deliver: delivers samples to a reader.
        submit: runs a function on a worker thread, and then one on the service's thread.

    Attributes:
        deliveries: the last 20, oldest first.
        counters: `deliveries`, `delivered` (samples), `expired` (samples withheld).
    """

    kinds = (ServedReaders,)

    def __init__(
        self,
        name: str,
        *,
        synchronizes: bool,
        groups: KnownGroups,
        kept: Callable[[bytes], list[OriginalSample]],
        is_expired: Callable[[OriginalSample, int], bool],
        deliver: DeliverTo,
        submit: Callable[[Callable[[], Delivered], Callable[[Delivered], None]], None],
    ) -> None:
        super().__init__()
        self._name = name
        self._synchronizes = synchronizes
        self._groups = groups
        self._kept = kept
        self._is_expired = is_expired
        self._deliver = deliver
        self._submit = submit
        self._readers: dict[HistoryReader, _Reader] = {}
        self._served: dict[str, None] = {}
        self._starts_s = 0.0
        self.deliveries: collections.deque[ReaderDeliveryView] = collections.deque(maxlen=20)
        self.counters: collections.Counter[str] = collections.Counter()

    # Input.

    def discovered(self, changes: DiscoveryChanges) -> None:
        """Note readers that came and went."""
        for reader in changes.readers_gone:
            gone = self._readers.pop(reader, None)
            for known in (gone.served | gone.unserved) if gone else ():
                self._served.pop(known, None)
        for reader, end, is_further in changes.ends_seen:
            if self._groups.covers(reader.topic) and (
                reader in self._readers or len(self._readers) < MAX_READERS
            ):
                self._end_seen(self._readers.setdefault(reader, _Reader()), end.hex(), is_further=is_further)

    def _end_seen(self, one: _Reader, end: str, *, is_further: bool) -> None:
        one.seen_ns = time.time_ns()
        if end in self._served:
            one.served.add(end)
            return
        one.unserved.add(end)
        if is_further:
            one.due_s = max(one.due_s, time.monotonic() + FURTHER_S)

    def connected(self, peer: str) -> None:
        """Tell a replica which readers this one has served."""
        if self._synchronizes:
            super().connected(peer)
            served = tuple(end for one in self._readers.values() for end in sorted(one.served))
            self.send([peer], ServedReaders(served))

    def receive(self, peer: str, message: ServedReaders) -> None:
        """Note the readers that another replica has served."""
        if peer not in self.peers:
            return
        self._served |= dict.fromkeys(message.readers[:MAX_ENDS])
        while len(self._served) > 2 * MAX_ENDS:
            del self._served[next(iter(self._served))]
        for one in self._readers.values():
            one.serve(self._served.keys())

    def heard(self, samples: Sequence[OriginalSample]) -> None:
        """Take last values that came from other replicas, for readers that may lack them."""
        if not self._is_ours():
            return
        for sample in samples:
            description = self._groups.get(sample.key[:ID_BYTES])
            for reader, one in self._readers.items():
                is_old = sample.source_time_ns < one.seen_ns + MARGIN_NS
                if description is None or one.wants_all or not is_old or not _reads(reader, description):
                    continue
                one.updates.append(sample)
                if len(one.updates) > MAX_UPDATES:
                    one.updates.clear()
                    one.missed = True

    # Deliveries.

    def _is_ours(self) -> bool:
        return not self._synchronizes or all(self._name < peer for peer in self.peers)

    def turn(self, now_s: float) -> float:
        """Serve readers that wait; return when the next turn is due at the latest."""
        self._starts_s = self._starts_s or now_s + SETTLE_S
        if now_s < self._starts_s:
            return self._starts_s
        due_s = NEVER_S
        if self._is_ours():
            for reader, one in self._readers.items():
                if one.is_busy or not (one.wants_all or one.updates):
                    continue
                if now_s >= one.due_s:
                    self._serve(reader, one)
                else:
                    due_s = min(due_s, one.due_s)
        return due_s

    def _serve(self, reader: HistoryReader, one: _Reader) -> None:
        groups: Groupwise = []
        is_whole, updates, ends = one.wants_all, one.updates, frozenset(one.unserved)
        one.missed, one.updates = False, []
        for id_, description in self._groups.items():
            if _reads(reader, description):
                samples = self._kept(id_) if is_whole else [s for s in updates if s.key[:ID_BYTES] == id_]
                samples = self._unexpired(samples)
                if samples:
                    groups.append((description, [_of_dataset(sample) for sample in samples]))
        if not groups:
            self._have_served(one, ends)
            return
        one.is_busy = True

        def done(delivery: Delivered) -> None:
            one.is_busy = False
            self.deliveries.append(
                ReaderDeliveryView(
                    reader.topic,
                    ",".join(reader.partitions),
                    reader.process.hex(),
                    delivery.samples,
                    round(delivery.elapsed_ns / 1e9, 3),
                    delivery.problem,
                )
            )
            self.counters["deliveries"] += 1
            self.counters["delivered"] += delivery.samples
            if delivery.problem:
                one.missed = one.missed or is_whole
                one.updates = [] if one.wants_all else [*updates, *one.updates]
                one.due_s = time.monotonic() + RETRY_S
            elif is_whole and reader in self._readers:
                self._have_served(one, ends | {end.hex() for end in delivery.readers})

        self._submit(lambda: self._deliver(reader, groups), done)

    def _unexpired(self, samples: list[OriginalSample]) -> list[OriginalSample]:
        now_ns = time.time_ns()
        good = [sample for sample in samples if not self._is_expired(sample, now_ns)]
        self.counters["expired"] += len(samples) - len(good)
        return good

    def _have_served(self, one: _Reader, ends: frozenset[str]) -> None:
        """Note readers that got all values, and tell others; one that came meanwhile may need them again."""
        before = len(one.served)
        one.serve(ends)
        if len(one.served) > before:
            self.send(self.peers, ServedReaders(tuple(sorted(one.served.intersection(ends)))))
        if one.unserved:
            one.due_s = time.monotonic() + FURTHER_S

    def readers(self, description: GroupDescription) -> int:
        """Count the processes that read a group."""
        return sum(_reads(reader, description) for reader in self._readers)


def _reads(reader: HistoryReader, description: GroupDescription) -> bool:
    return is_given(description.group, reader.topic, reader.partitions)


def _of_dataset(sample: OriginalSample) -> dataset_sample.Sample:
    writer: Any = WriterName.of(sample.writer)
    return dataset_sample.make_sample(
        sample.source_time_ns, writer.guid, sample.status, sample.key[ID_BYTES:], sample.payload
    )
