"""Apply captured samples to the sets, one batch at a time.

In a KEEP_LAST 1 group only the newest sample of an instance in a batch can stay; the others would be stored
and pushed out at once. They are counted and passed over, which saves most of the time and gives the same set.
Samples of a run that are passed over never become objects.

While a tap is busy, large samples wait for further batches as they would in the tap, because their digests
cost more than all the rest: one that is replaced meanwhile gets none. They are applied before anybody looks
at the set (`NameSpaceData.working`), and after `WAIT_S` at the latest. None replaces one of an earlier
interval of `engine.dataset.settling` there, because fellows compare their sets as of its border.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from engine.core.name_spaces import Group
from engine.dataset.captured import CapturedRun, CapturedSample
from engine.dataset.group_set import NO_FLOOR, ApplyOutcome, GroupSet
from engine.dataset.groups import GroupDescription
from engine.dataset.sample import DATA, DISPOSE, UNREGISTER, Sample, make_sample
from engine.dataset.sample_making import make_samples
from engine.dataset.settling import FUTURE_NS, WIDTH_NS, border_before
from engine.runtime.housekeeping import Registered
from engine.runtime.late_joiners import LateJoinerDelivery
from engine.runtime.name_space_data import NameSpaceData
from engine.runtime.shared_state import SharedState
from engine.store.interface import GroupChange

WAIT_S: Final = 0.3
"""Time that large samples may wait for newer ones of their instances."""
WAITS_FROM: Final = 4_096
WAITS_TO: Final = 1 << 20
"""Least and largest payload of samples that wait."""
MAX_WAITING_BYTES: Final = 64 << 20
"""Bytes of all payloads that wait."""
_NEVER_NS: Final = 1 << 63
_SAMPLE: Final = DATA | DISPOSE | UNREGISTER
_PLACE_BITS: Final = 32
_PLACE: Final = (1 << _PLACE_BITS) - 1


class _Sink:
    """A group and, for each instance, the newest sample of the batch that waits to be applied."""

    __slots__ = (
        "_runs",
        "_waiting",
        "data",
        "description",
        "group_set",
        "newest",
        "newest_ns",
        "on_disk",
        "registered",
        "since_s",
        "size",
        "until_ns",
    )

    def __init__(self, description: GroupDescription, data: NameSpaceData, registered: Registered) -> None:
        self.registered = registered
        """Where to note writers without a kept sample."""
        self._waiting: set[bytes] = set()
        """Writers of the samples that wait."""
        self.description = description
        self.data = data
        """Name-space of the group."""
        self.group_set: GroupSet = data.applied.open_described(description)
        self.on_disk = data.is_switched and data.is_on_disk(description)
        """Changes go to the store."""
        self.newest: dict[bytes, CapturedSample | int] = {}
        """The sample that waits, by key; a sample of a run as number of the run and place in it."""
        self.newest_ns = NO_FLOOR
        """Source time that no waiting sample exceeds."""
        self._runs: list[CapturedRun] = []
        self.since_s = 0.0
        """Monotonic time since which samples wait for further batches; 0 if none do."""
        self.size = 0
        """Bytes of their payloads."""
        self.until_ns = _NEVER_NS
        """Source time from which on samples must not replace them."""

    def waits(self, now: float, room: int) -> bool:
        """Let all samples wait for further batches, if they are large and at most `room` bytes together.

        Not those of a wrong clock: what is known of it when they come decides how they are dated.
        """
        size = 0
        for waiting in self.newest.values():
            if isinstance(waiting, int) or not WAITS_FROM <= len(waiting[4]) <= WAITS_TO:
                return False
            size += len(waiting[4])
        if not 0 < size <= room or not self._waiting.isdisjoint(self.data.present.skews):
            return False
        self.size, self.since_s = size, self.since_s or now
        oldest_ns = min([self.record(waiting)[0] for waiting in self.newest.values()])
        self.until_ns = border_before(oldest_ns) + WIDTH_NS
        return True

    def take(self) -> list[CapturedSample]:
        """Take the samples that wait, each the newest of its instance."""
        taken = [*map(self.record, self.newest.values())]
        self.newest.clear()
        self._waiting.clear()
        self._runs.clear()
        self.since_s, self.size, self.until_ns = 0.0, 0, _NEVER_NS
        return taken

    def wait(self, key: bytes, record: CapturedSample) -> None:
        """Queue the first sample of an instance."""
        self.newest[key] = record
        self.newest_ns = max(self.newest_ns, record[0])
        self._waiting.add(record[1])

    def passed_over(self, key: bytes, writer: bytes) -> None:
        """Note a writer that has the instance registered and none of whose samples is kept."""
        self.registered.passed_over(self.description.group, key, writer)

    def pushed_out(self, sample: Sample, gone: list[Sample]) -> None:
        """Note the writers of samples that a newer sample pushed out."""
        if {each.writer for each in gone} == {sample.writer}:
            return
        newest = {each.writer: each.status for each in gone} | self.group_set.writers(sample.key)
        for writer, status in newest.items():
            if not status & UNREGISTER and writer != sample.writer:
                self.passed_over(sample.key, writer)

    def add_run(self, run: CapturedRun) -> int | None:
        """Queue a run; return how many samples were passed over.

        Do nothing and return None unless each of its samples is newer than all known ones of the group.
        """
        known_ns = max(self.newest_ns, self.group_set.summary().newest_ns, self.group_set.floor_ns)
        if run.times_ns[0] <= known_ns or not run.is_in_order():
            return None
        start = len(self._runs) << _PLACE_BITS
        self._runs.append(run)
        waiting, keys = len(self.newest), run.keys()
        if self._waiting - {run.writer}:
            for key in self.newest.keys() & set(keys):
                self.passed_over(key, self.record(self.newest[key])[1])
        self._waiting.add(run.writer)
        self.newest.update(zip(keys, range(start, start + run.count), strict=True))
        self.newest_ns = run.times_ns[-1]
        return run.count - (len(self.newest) - waiting)

    def record(self, waiting: CapturedSample | int) -> CapturedSample:
        """Return a waiting sample as a record."""
        if isinstance(waiting, int):
            return self._runs[waiting >> _PLACE_BITS].record(waiting & _PLACE)
        return waiting


class CapturePath:
    """The path from the taps to the sets."""

    def __init__(self, shared: SharedState, late_joiners: LateJoinerDelivery, registered: Registered) -> None:
        self._shared = shared
        self._late_joiners = late_joiners
        self._registered = registered
        self._late: dict[Group, _Sink] = {}
        """Those with samples that wait for further batches."""

    @property
    def is_waiting(self) -> bool:
        """Whether captured samples wait for newer ones."""
        return bool(self._late)

    def take(
        self,
        records: Iterable[CapturedSample | CapturedRun],
        routes: Mapping[bytes, tuple[Group, ...]],
        *,
        waits: bool = False,
    ) -> list[CapturedSample]:
        """Apply records of taps; return the samples whose writer is not in `routes` yet.

        Args:
            records: the records.
            routes: the groups of each writer, () for a writer to ignore.
            waits: large samples may wait for newer ones of their instances, until `settle`.
        """
        batch = _Batch(self._shared, self._late_joiners, self._registered, routes, self._late)
        unrouted = batch.take(records)
        if not (waits or self._late):
            batch.end(batch.all_sinks())
            return unrouted
        now = self._shared.clock.monotonic()
        for group, sink in batch.sinks() if waits else ():
            if sink.waits(now, MAX_WAITING_BYTES - sum([each.size for each in self._late.values()])):
                self._late[group] = sink
                sink.data.wait(functools.partial(self.settle, sink.data), sink.until_ns - WIDTH_NS)
        batch.end([sink for group, sink in batch.sinks() if group not in self._late])
        return unrouted

    def settle(self, data: NameSpaceData | None = None, until_s: float = math.inf) -> None:
        """Apply the samples that wait.

        Args:
            data: only those of this name-space.
            until_s: only those of groups where some have waited since before this monotonic time.
        """
        due = [
            group
            for group, sink in self._late.items()
            if (data is None or sink.data is data) and sink.since_s < until_s
        ]
        if due:
            batch = _Batch(self._shared, self._late_joiners, self._registered, {}, self._late)
            batch.end([self._late.pop(group) for group in due])


class _Batch:
    """One call of `CapturePath.take`."""

    def __init__(
        self,
        shared: SharedState,
        late_joiners: LateJoinerDelivery,
        registered: Registered,
        routes: Mapping[bytes, tuple[Group, ...]],
        waiting: dict[Group, _Sink],
    ) -> None:
        self._shared = shared
        self._late_joiners = late_joiners
        self._registered = registered
        self._routes = routes
        self._late = waiting
        """Those with samples of earlier batches, which this one takes."""
        self._by_group: dict[Group, _Sink] = {}
        self._by_writer: dict[bytes, tuple[_Sink, ...]] = {}
        self._single: dict[bytes, _Sink] = {}
        self._strangers: set[bytes] = set()
        """Writers whose first samples these are: they may be old ones that the writer still had."""
        self._changes: dict[str, list[GroupChange]] = {}
        self._unrouted: list[CapturedSample] = []
        self._captured = 0
        self._now_ns = shared.steady_ns()
        self._max_bytes = shared.settings.max_sample_bytes

    def take(self, records: Iterable[CapturedSample | CapturedRun]) -> list[CapturedSample]:
        """Take records, and leave the newest writes waiting in the sinks; return those without a route."""
        single, passed = self._single, 0
        for record in records:
            if not isinstance(record, CapturedSample):
                self._take_run(record)
                continue
            time_ns, writer, status, key, _, sequence = record
            sink = single.get(writer)
            if sink is None and status == DATA and writer not in self._by_writer:
                self._sinks_of(writer, time_ns)
                sink = single.get(writer)
            if sequence:  # a fellow may have received it earlier, which only the set can tell
                sink = None
            # A plain write into one KEEP_LAST 1 group: only the newest of the instance waits, by source
            # timestamp and then by writer (DDS 1.4, 2.2.3.17 DESTINATION_ORDER).
            if sink is not None and status == DATA:
                if time_ns >= sink.until_ns:
                    self._apply_waiting(sink)
                before = sink.newest.get(key)
                if isinstance(before, int):
                    before = sink.record(before)
                if before is None:
                    if sink.group_set.is_newest(key, time_ns, writer):
                        sink.wait(key, record)
                        continue
                elif time_ns > before[0] or (time_ns == before[0] and writer > before[1]):
                    if before[1] != writer:
                        sink.passed_over(key, before[1])
                    sink.newest[key] = record
                    if time_ns > sink.newest_ns:
                        sink.newest_ns = time_ns
                    passed += 1
                    continue
            if status <= _SAMPLE:
                self._take_singly(record)
        self._captured += passed
        return self._unrouted

    def sinks(self) -> list[tuple[Group, _Sink]]:
        """Return the groups of the records."""
        return list(self._by_group.items())

    def all_sinks(self) -> Iterable[_Sink]:
        """Return what takes the records."""
        return self._by_group.values()

    def end(self, sinks: Iterable[_Sink]) -> None:
        """Apply what waits in these sinks, and hand all changes to the store."""
        # KEEP_LAST 1 (DDS 1.4, 2.2.3.18): what waits is the newest of each instance, all that is kept.
        for sink in sinks:
            self._apply_waiting(sink)
        counters = self._shared.counters
        counters["captured"] += self._captured
        # Persistent groups (guide, 5.2.3.2): the changes of a batch go to the store together.
        for name, changes in self._changes.items():
            self._shared.store_queue.append(name, changes)

    def _take_run(self, run: CapturedRun) -> None:
        """Take a run, whole if it is newer than all known samples, else record by record."""
        self._sinks_of(run.writer, run.times_ns[0])
        sink = self._single.get(run.writer)
        if sink is not None and run.times_ns[-1] >= sink.until_ns:
            self._apply_waiting(sink)
        passed = sink.add_run(run) if sink is not None else None
        if passed is None:
            self.take(run.records())
        else:
            self._captured += passed

    def _take_singly(self, record: CapturedSample) -> None:
        """Apply a sample of any kind, after the waiting sample of its instance."""
        sinks = self._sinks_of(record[1], record[0])
        if sinks is None:
            self._unrouted.append(record)
            return
        for sink in sinks:
            waiting = sink.newest.pop(record[3], None)
            if waiting is not None:
                self._apply(sink, sink.record(waiting))
            self._apply(sink, record)
        self._captured -= max(0, len(sinks) - 1)  # a sample in several partitions counts once

    def _sinks_of(self, writer: bytes, time_ns: int) -> tuple[_Sink, ...] | None:
        """Return the groups of a writer, whose first sample has this time; None if it is unknown yet."""
        sinks = self._by_writer.get(writer)
        if sinks is None and (groups := self._routes.get(writer)) is not None:
            sinks, now_ns = self._open(writer, groups), self._now_ns
            for sink in sinks:
                if not sink.data.present.knows(writer):
                    self._strangers.add(writer)
                sink.data.present.saw(writer, time_ns, now_ns)
                if writer in self._shared.ended_writers:  # its end must follow this sample, too
                    self._shared.late_writers.setdefault(sink.data.state.name, set()).add(writer)
            if time_ns - now_ns > FUTURE_NS and sinks:
                self._shared.tell_future(sinks[0].description.group, writer, time_ns - now_ns)
        return sinks

    def _open(self, writer: bytes, groups: tuple[Group, ...]) -> tuple[_Sink, ...]:
        sinks: list[_Sink] = []
        for group in groups:
            if group not in self._by_group:
                state = self._shared.core.name_space_of(group)
                description = self._shared.descriptions.get(group)
                if state is None or description is None or not state.keeps(group):
                    continue
                self._by_group[group] = self._sink(description, self._shared.spaces[state.name])
            sinks.append(self._by_group[group])
        self._by_writer[writer] = tuple(sinks)
        # Samples may be passed over only if no reader that is being served needs each of them (5.4.7), and no
        # content filter looks at each (//OpenSplice/Domain/Filters). A writer in several partitions is rare.
        is_gated = bool(self._shared.gates) and not self._shared.gates.keys().isdisjoint(groups)
        is_plain = len(sinks) == 1 and sinks[0].group_set.is_renewable and not is_gated
        if is_plain and not self._late_joiners.tails.wants(writer):
            self._single[writer] = sinks[0]
        return self._by_writer[writer]

    def _sink(self, description: GroupDescription, data: NameSpaceData) -> _Sink:
        """Return the sink of a group, with what waits from earlier batches."""
        waiting = self._late.pop(description.group, None)
        if waiting is not None:
            if waiting.description is description:
                return waiting
            self._apply_waiting(waiting)
        return _Sink(description, data, self._registered)

    def _apply(self, sink: _Sink, record: CapturedSample) -> None:
        time_ns, writer, status, key, payload, sequence = record
        # What must not enter the set: samples too large to align, samples that a content filter withholds.
        if len(payload) > self._max_bytes:
            self._refuse(sink, len(payload))
            return
        sample = make_sample(time_ns, writer, status, key, payload, sequence)
        self._captured += 1
        if self._shared.gates and not self._shared.passes(sink.description.group, sample, sink.group_set):
            return
        outcome, evicted = sink.group_set.apply(sample)
        # Registrations decide when an instance may be purged (DDS 1.4, 2.2.3.5 service_cleanup_delay).
        if outcome is ApplyOutcome.OLDER:
            sink.passed_over(key, writer)
            if writer not in self._strangers:
                sink.group_set.came_late(sample, self._now_ns)
        elif evicted:
            sink.pushed_out(sample, evicted)
        if status & UNREGISTER:
            sink.registered.unregistered(sink.description.group, key, writer)
        if outcome is not ApplyOutcome.STORED:
            self._shared.counters["too_old"] += outcome is ApplyOutcome.OLDER
            return
        sink.data.has_changed = True
        # A late joiner that is being served may have missed the sample (5.4.7).
        if self._late_joiners.tails.wants(writer):
            self._late_joiners.tails.captured(sink.description.group, sample)
        if sink.on_disk:
            name = sink.data.state.name
            self._changes.setdefault(name, []).append(GroupChange(sink.description, sample, evicted))

    def _apply_waiting(self, sink: _Sink) -> None:
        """Apply the waiting writes of a group, each the newest of its instance."""
        if not (sink.newest or sink.since_s):
            return
        samples = make_samples(self._fitting(sink))
        if not samples:
            return
        self._captured += len(samples)
        evicted = sink.group_set.renew(samples)
        for sample, gone in zip(samples, evicted, strict=True):
            if gone and (gone[0].writer != sample.writer or len(gone) > 1):
                sink.pushed_out(sample, gone)
        sink.data.has_changed = True
        if sink.on_disk:
            changes = map(GroupChange, itertools.repeat(sink.description), samples, evicted)
            self._changes.setdefault(sink.data.state.name, []).extend(changes)

    def _fitting(self, sink: _Sink) -> Iterator[CapturedSample]:
        for record in sink.take():
            if len(record[4]) > self._max_bytes:
                self._refuse(sink, len(record[4]))
            else:
                yield record

    def _refuse(self, sink: _Sink, size: int) -> None:
        self._shared.tell_too_large(sink.description.group, size)
