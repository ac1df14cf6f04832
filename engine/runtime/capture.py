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
from collections.abc import Iterable, Mapping
from typing import Final

from engine.core.name_spaces import Group
from engine.dataset.captured import CapturedRun, with_digests
from engine.dataset.group_set import NO_FLOOR, ApplyOutcome, GroupSet
from engine.dataset.groups import GroupDescription
from engine.dataset.sample import DATA, DISPOSE, UNREGISTER, Sample, with_digest
from engine.dataset.settling import FUTURE_NS, WIDTH_NS, border_before
from engine.runtime.housekeeping import Registered
from engine.runtime.late_joiners import LateJoinerDelivery
from engine.runtime.name_space_data import NameSpaceData
from engine.runtime.shared_state import SharedState
from engine.store.interface import GroupChange

# Chosen: a writer of more than 3 Hz replaces its sample within it. Longer delays large samples for fellows,
# late joiners and the disk.
WAIT_S: Final = 0.3
"""Time that large samples may wait for newer ones of their instances."""
# Below it digesting a sample costs less than to hold it; above `WAITS_TO` few fit into `MAX_WAITING_BYTES`.
# Chosen.
WAITS_FROM: Final = 4_096
WAITS_TO: Final = 1 << 20
"""Least and largest payload of samples that wait."""
# 64 samples of the largest size that waits.
MAX_WAITING_BYTES: Final = 64 << 20
"""Bytes of all payloads that wait."""
_NEVER_NS: Final = 1 << 63
"""Later than any source time, which is a signed 64-bit number."""
_SAMPLE: Final = DATA | DISPOSE | UNREGISTER
# A run has far fewer samples than 2**32, so run and place make one number.
_PLACE_BITS: Final = 32
_PLACE: Final = (1 << _PLACE_BITS) - 1


class _Sink:
    """A group and, for each instance, the newest sample of the batch that waits to be applied."""

    __slots__ = (
        "_runs",
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
        "writers",
    )

    def __init__(self, description: GroupDescription, data: NameSpaceData, registered: Registered) -> None:
        self.registered = registered
        """Where to note writers without a kept sample."""
        self.writers: set[bytes] = set()
        """Writers of the samples that wait."""
        self.description = description
        self.data = data
        """Name-space of the group."""
        self.group_set: GroupSet = data.applied.open_described(description)
        self.on_disk = data.is_switched and data.is_on_disk(description)
        """Changes go to the store."""
        self.newest: dict[bytes, Sample | int] = {}
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
        size, oldest_ns = 0, _NEVER_NS
        for waiting in self.newest.values():
            if isinstance(waiting, int) or not WAITS_FROM <= len(waiting.payload) <= WAITS_TO:
                return False
            size += len(waiting.payload)
            oldest_ns = min(oldest_ns, waiting.source_time_ns)
        if not 0 < size <= room or not self.writers.isdisjoint(self.data.present.skews):
            return False
        self.size, self.since_s = size, self.since_s or now
        self.until_ns = border_before(oldest_ns) + WIDTH_NS
        return True

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
        if self.writers - {run.writer}:
            for key in self.newest.keys() & set(keys):
                self.passed_over(key, self.sample(self.newest[key]).writer)
        self.writers.add(run.writer)
        self.newest.update(zip(keys, range(start, start + run.count), strict=True))
        assert run.times_ns[-1] >= self.newest_ns, "a run is newer than all that waits"
        self.newest_ns = run.times_ns[-1]
        return run.count - (len(self.newest) - waiting)

    def sample(self, waiting: Sample | int) -> Sample:
        """Return a waiting sample, which of a run is made now."""
        if isinstance(waiting, int):
            return self._runs[waiting >> _PLACE_BITS].sample(waiting & _PLACE)
        return waiting

    def clear(self) -> None:
        """Forget the samples that waited, which are about to be applied."""
        self.newest.clear()
        self.writers.clear()
        self._runs.clear()
        self.since_s, self.size, self.until_ns = 0.0, 0, _NEVER_NS


class CapturePath:
    """The path from the taps to the sets and the queue of the store."""

    def __init__(self, shared: SharedState, late_joiners: LateJoinerDelivery, registered: Registered) -> None:
        self._shared = shared
        self._late_joiners = late_joiners
        self._registered = registered
        self._max_bytes = shared.settings.max_sample_bytes
        self._late: dict[Group, _Sink] = {}
        """Those with samples that wait for further batches."""
        self._changes: dict[str, list[GroupChange]] = {}
        """For the store, by name-space."""
        self._captured = 0
        self._forget_batch()

    def _forget_batch(self) -> None:
        """Forget what is known of writers: it holds for one batch only, as discovery may change it."""
        self._routes: Mapping[bytes, tuple[Group, ...]] = {}
        self._by_group: dict[Group, _Sink] = {}
        self._by_writer: dict[bytes, tuple[_Sink, ...]] = {}
        self._single: dict[bytes, _Sink] = {}
        self._strangers: set[bytes] = set()
        """Writers whose first samples these are: they may be old ones that the writer still had."""
        self._now_ns = 0

    @property
    def is_waiting(self) -> bool:
        """Whether captured samples wait for newer ones."""
        return bool(self._late)

    def receive(
        self,
        records: Iterable[Sample | CapturedRun],
        routes: Mapping[bytes, tuple[Group, ...]],
        *,
        waits: bool = False,
    ) -> list[Sample]:
        """Apply captured samples; return those whose writer is not in `routes` yet.

        Args:
            records: the samples, and runs of them.
            routes: the groups of each writer, () for a writer to ignore.
            waits: large samples may wait for newer ones of their instances, until `settle`.
        """
        assert not self._changes, "the former batch went to the store"
        self._routes, self._now_ns = routes, self._shared.steady_ns()
        single, by_writer, unrouted, passed = self._single, self._by_writer, list[Sample](), 0
        for record in records:
            for sample in self._left_of(record) if isinstance(record, CapturedRun) else (record,):
                time_ns, writer, sequence, _, status, key, _ = sample
                sink = single.get(writer)
                if sink is None and status == DATA and writer not in by_writer:
                    self._sinks_of(writer, time_ns)
                    sink = single.get(writer)
                # A plain write into one KEEP_LAST 1 group: only the newest of the instance waits, by source
                # timestamp and then by writer (DDS 1.4, 2.2.3.17 DESTINATION_ORDER). Not one with a number:
                # a fellow may have received it earlier, which only the set can tell.
                if sink is not None and status == DATA and not sequence:
                    if time_ns >= sink.until_ns:
                        self._apply_waiting(sink)
                    before = sink.newest.get(key)
                    if isinstance(before, int):
                        before = sink.sample(before)
                    if before is None:
                        if sink.group_set.is_newest(key, time_ns, writer):
                            sink.newest[key] = sample
                            sink.newest_ns = max(sink.newest_ns, time_ns)
                            sink.writers.add(writer)
                            continue
                    elif time_ns > before[0] or (time_ns == before[0] and writer > before[1]):
                        if before.writer != writer:
                            sink.passed_over(key, before.writer)
                        sink.newest[key] = sample
                        if time_ns > sink.newest_ns:
                            sink.newest_ns = time_ns
                        passed += 1
                        continue
                if status <= _SAMPLE and not self._take_singly(sample):
                    unrouted.append(sample)
        self._captured += passed
        if waits:
            now = self._shared.clock.monotonic()
            for group, sink in self._by_group.items():
                if sink.waits(now, MAX_WAITING_BYTES - sum([each.size for each in self._late.values()])):
                    self._late[group] = sink
                    sink.data.wait(functools.partial(self.settle, sink.data), sink.until_ns - WIDTH_NS)
        self._end([sink for group, sink in self._by_group.items() if group not in self._late])
        self._forget_batch()
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
            self._end([self._late.pop(group) for group in due])

    def _end(self, sinks: Iterable[_Sink]) -> None:
        """Apply what waits in these sinks, and hand all changes to the store."""
        # KEEP_LAST 1 (DDS 1.4, 2.2.3.18): what waits is the newest of each instance, all that is kept.
        for sink in sinks:
            self._apply_waiting(sink)
        self._shared.counters["captured"] += self._captured
        self._captured = 0
        # Persistent groups (guide, 5.2.3.2): the changes of a batch go to the store together.
        changes, self._changes = self._changes, {}
        for name, some in changes.items():
            self._shared.store_queue.append(name, some)

    def _left_of(self, run: CapturedRun) -> Iterable[Sample]:
        """Take a run whole if it is newer than all known samples; else return its samples."""
        self._sinks_of(run.writer, run.times_ns[0])
        sink = self._single.get(run.writer)
        if sink is not None and run.times_ns[-1] >= sink.until_ns:
            self._apply_waiting(sink)
        passed = sink.add_run(run) if sink is not None else None
        if passed is None:
            return run.samples()
        self._captured += passed
        return ()

    def _take_singly(self, sample: Sample) -> bool:
        """Apply a sample of any kind, after the waiting one of its instance; False for an unknown writer."""
        sinks = self._sinks_of(sample.writer, sample.source_time_ns)
        if sinks is None:
            return False
        for sink in sinks:
            waiting = sink.newest.pop(sample.key, None)
            if waiting is not None:
                self._apply(sink, sink.sample(waiting))
            self._apply(sink, sample)
        self._captured -= max(0, len(sinks) - 1)  # a sample in several partitions counts once
        return True

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
                sink = self._late.pop(group, None)  # with what waits from earlier batches
                if sink is not None and sink.description is not description:
                    self._apply_waiting(sink)
                    sink = None
                self._by_group[group] = sink or _Sink(
                    description, self._shared.spaces[state.name], self._registered
                )
            sinks.append(self._by_group[group])
        self._by_writer[writer] = tuple(sinks)
        # Samples may be passed over only if no reader that is being served needs each of them (5.4.7), and no
        # content filter looks at each (//OpenSplice/Domain/Filters). A writer in several partitions is rare.
        is_gated = bool(self._shared.gates) and not self._shared.gates.keys().isdisjoint(groups)
        is_plain = len(sinks) == 1 and sinks[0].group_set.is_renewable and not is_gated
        if is_plain and not self._late_joiners.tails.wants(writer):
            self._single[writer] = sinks[0]
        return self._by_writer[writer]

    def _apply(self, sink: _Sink, captured: Sample) -> None:
        # What must not enter the set: samples too large to align, samples that a content filter withholds.
        if len(captured.payload) > self._max_bytes:
            self._shared.tell_too_large(sink.description.group, len(captured.payload))
            return
        sample = with_digest(captured)
        writer, key = sample.writer, sample.key
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
        if sample.status & UNREGISTER:
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
        fitting = []
        for sample in map(sink.sample, sink.newest.values()):
            if len(sample.payload) <= self._max_bytes:
                fitting.append(sample)
            else:
                self._shared.tell_too_large(sink.description.group, len(sample.payload))
        sink.clear()
        if not fitting:
            return
        samples = with_digests(fitting)
        self._captured += len(samples)
        evicted = sink.group_set.renew(samples)
        for sample, gone in zip(samples, evicted, strict=True):
            if gone and (gone[0].writer != sample.writer or len(gone) > 1):
                sink.pushed_out(sample, gone)
        sink.data.has_changed = True
        if sink.on_disk:
            changes = map(GroupChange, itertools.repeat(sink.description), samples, evicted)
            self._changes.setdefault(sink.data.state.name, []).extend(changes)
