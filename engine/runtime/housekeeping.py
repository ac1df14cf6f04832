"""Purging of instances that were disposed long enough ago.

An instance is purged when three conditions hold (DDS 1.4, 2.2.3.5 DURABILITY_SERVICE): it is disposed, none
of its writers is alive, and service_cleanup_delay has passed since this node noticed both. The clocks of
writers play no part; for writers that went before its start, a node notices it at its start. Beyond the
standard, the tombstone of an instance stays until every known fellow has acknowledged it, so that no node can
revive the instance. The master decides and tells the others, so that all sets stay equal.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from engine.core.messages import PurgedInstance
from engine.core.name_spaces import Group
from engine.core.purging import FOREVER_NS
from engine.dataset.dataset import DataSet
from engine.dataset.group_set import GroupSet
from engine.dataset.groups import GroupDescription
from engine.dataset.sample import DISPOSE, UNREGISTER, Sample
from engine.dataset.settling import STEP_NS
from engine.runtime.name_space_data import NameSpaceData
from engine.runtime.pending_writers import PendingWriters
from engine.runtime.shared_state import SharedState


class _Found(msgspec.Struct):
    """The disposed instances of one set, each with the monotonic time of its last change."""

    group_set: GroupSet
    since_s: dict[bytes, float] = msgspec.field(default_factory=dict)
    """Those that have not been looked at, in the order of their times."""
    looked_at: dict[bytes, float] = msgspec.field(default_factory=dict)
    """Those that have been, the longest ago first."""

    def update(self, now: float) -> None:
        """Note the changes in the set."""
        for key in sorted(self.group_set.touched):
            self.since_s.pop(key, None)
            self.looked_at.pop(key, None)
            self.since_s[key] = now
        for times in (self.since_s, self.looked_at):
            if len(self.since_s) + len(self.looked_at) > len(self.group_set.disposed):
                for key in times.keys() - self.group_set.disposed:
                    del times[key]
        self.group_set.touched.clear()

    def rotated(self, until_s: float, most: int) -> list[bytes]:
        """Return some instances that were found by a time, and put them last."""
        again = list(itertools.islice(self.looked_at.items(), most))
        new = itertools.takewhile(lambda one: one[1] <= until_s, self.since_s.items())
        first = list(itertools.islice(new, most))
        for key, since in (*again, *first):
            self.looked_at.pop(key, None)
            self.since_s.pop(key, None)
            self.looked_at[key] = since
        return [key for key, since in (*again, *first) if since <= until_s]


class DisposedInstances:
    """The disposed instances of some groups, each with the moment at which this node found it in this state.

    The clocks of writers play no part. A change of an instance, such as an unregister, restarts its time; a
    set that replaces another one does not. Nothing of it outlives the process.
    """

    def __init__(self) -> None:
        self._found: dict[Group, _Found] = {}

    def __bool__(self) -> bool:
        return bool(self._found)

    def update(self, groups: Mapping[Group, GroupSet], now: float) -> None:
        """Note the changes in these groups, and forget all others; `now` is monotonic, seconds."""
        self._found = {
            group: self._renewed(self._found.get(group), group_set, now)
            for group, group_set in groups.items()
            if group_set.disposed
        }

    @staticmethod
    def _renewed(found: _Found | None, group_set: GroupSet, now: float) -> _Found:
        if found is None or found.group_set is not group_set:
            known = found.since_s | found.looked_at if found is not None else {}
            times = {key: known.get(key, now) for key in sorted(group_set.disposed)}
            # In the order of time, so that `until` stops at the first one that is too young.
            found = _Found(group_set, dict(sorted(times.items(), key=operator.itemgetter(1))))
            group_set.touched.clear()
        found.update(now)
        return found

    def until(self, group: Group, until_s: float, most: int) -> list[bytes]:
        """Return instances of a group that were found by `until_s`; in the end each of them has its turn.

        Args:
            group: the group.
            until_s: time on the monotonic clock, seconds.
            most: how many to look at of those that are new, and of those that were returned before.
        """
        found = self._found.get(group)
        return found.rotated(until_s, most) if found is not None else []

    def purged(self, group: Group, keys: Iterable[bytes]) -> None:
        """Forget instances that are gone."""
        found = self._found.get(group)
        if found is None:
            return
        for key in keys:
            found.since_s.pop(key, None)
            found.looked_at.pop(key, None)


MAX_TOMBSTONES: Final = 20_000
"""Limit for the remembered tombstones of a group; a large set is compared with each, 10 ms in all."""
UNDER_WAY_S: Final = 60.0
"""Time for which a stream that was packed before a purge may be under way: twice what a batch of it may take
(`engine.node.wire`)."""


class PurgedTombstones:
    """The tombstones of instances that this node has purged lately.

    Several fellows may give what they found to be missing here. If that was older than a dispose that this
    node had, the instance may be complete, and purged, before the last gift arrives, which would make it
    alive again. So its tombstone joins with the gift, and is purged once more.
    """

    def __init__(self) -> None:
        self._known: dict[Group, dict[bytes, tuple[float, Sample]]] = {}

    def add(self, group: Group, histories: Iterable[Sequence[Sample]], now: float) -> None:
        """Note disposed instances with these histories; `now` is monotonic, seconds."""
        known = self._known.setdefault(group, {})
        for history in histories:
            tombstone = next(one for one in reversed(history) if one.status & DISPOSE)
            known.pop(tombstone.key, None)  # the order is that of the times
            known[tombstone.key] = now, tombstone
        while len(known) > MAX_TOMBSTONES:
            del known[next(iter(known))]

    def forget(self, now: float) -> None:
        """Forget tombstones that no stream under way can lack."""
        for group, known in list(self._known.items()):
            while known and next(iter(known.values()))[0] <= now - UNDER_WAY_S:
                del known[next(iter(known))]
            if not known:
                del self._known[group]

    def join(self, data: DataSet) -> None:
        """Add to an arrived set the tombstones of instances of which it has older samples only."""
        for group, group_set in data.groups.items():
            known = self._known.get(group, {})
            # The smaller side: most gifts have few instances.
            for key in known if len(known) <= group_set.count else group_set.keys():
                if key in known and key in group_set and group_set.instance(key)[-1] < known[key][1]:
                    group_set.apply(known[key][1])


# Chosen: some ten megabytes of keys.
MAX_REGISTERED: Final = 100_000
"""Instances remembered; of others only the writers of kept samples are known."""


class Registered:
    """Registrations that this node has captured since its start.

    Writers may have an instance registered although only samples of other writers are kept.
    """

    def __init__(self) -> None:
        self._writers: dict[tuple[Group, bytes], set[bytes]] = {}

    def passed_over(self, group: Group, key: bytes, writer: bytes) -> None:
        """Note that a sample of a writer gave way to one of another writer."""
        known = self._writers.get((group, key))
        if known is not None:
            known.add(writer)
            return
        self._writers[group, key] = {writer}
        if len(self._writers) > MAX_REGISTERED:
            del self._writers[next(iter(self._writers))]

    def unregistered(self, group: Group, key: bytes, writer: bytes) -> None:
        """Note that a writer has unregistered an instance."""
        known = self._writers.get((group, key))
        if known is not None:
            known.discard(writer)
            if not known:
                self.forget(group, key)

    def writers(self, group: Group, key: bytes) -> frozenset[bytes]:
        """Return the writers known to have an instance registered, or to have had it when they went."""
        return frozenset(self._writers.get((group, key), ()))

    def keys(self, group: Group, writers: Collection[bytes]) -> list[bytes]:
        """Return the instances of a group that one of these writers is known to have registered."""
        return [
            key
            for (one, key), known in self._writers.items()
            if one == group and not known.isdisjoint(writers)
        ]

    def forget(self, group: Group, key: bytes) -> None:
        """Forget an instance."""
        self._writers.pop((group, key), None)


PERIOD_S: Final = 1.0
"""Time between two looks at what is due: nobody waits for a purge, and a look costs all that is disposed."""
# Chosen: a GUID and a time each.
MAX_REMEMBERED: Final = 100_000
"""Lost writers remembered with the time of their loss; older ones share one time."""
# A line a minute for each group: a full group would otherwise fill the trace.
SAY_REJECTED_S: Final = 60.0
"""Seconds between two trace lines on samples of a group that were rejected or lost."""
MAX_LOOKED_AT: Final = 500
"""Limit for the instances of a group looked at in one go, and for those looked at again: about 10 ms."""
# Ten per cent of the time at 10 ms a go.
MORE_S: Final = 0.1
"""Pause before the next go if there are more."""
INFINITE: Final = -1
FOREVER_S: Final = float("inf")


class Housekeeping:
    """The part of a runtime that purges.

    Attributes:
        registered: writers with instances registered, besides the writers of the kept samples.
        tombstones: those of instances that were purged lately.
        forgotten_ns: latest source time of an instance that was purged in this run, by group.
    """

    def __init__(self, shared: SharedState, pending: PendingWriters) -> None:
        self._shared = shared
        self._pending = pending
        self._writers: dict[bytes, tuple[Group, ...]] = {}
        self._gone_s: dict[bytes, float] = {}
        self._others_gone_s = shared.clock.monotonic()
        self._due_s = 0.0
        self._more_s = FOREVER_S
        self._disposed = DisposedInstances()
        self.registered = Registered()
        self.tombstones = PurgedTombstones()
        self.forgotten_ns: dict[Group, int] = {}
        self._lost: dict[Group, int] = {}
        self._tell_lost_s = 0.0
        self._rejected: dict[Group, tuple[GroupSet, int, int, float]] = {}

    @property
    def next_s(self) -> float | None:
        """Time of the next `work`; None if the next turn is early enough."""
        return min(self._due_s, self._more_s) if self._disposed else None

    def writers(self, writer: bytes, groups: tuple[Group, ...]) -> None:
        """Note a living durable writer of these groups, or with no groups its loss."""
        now = self._shared.clock.monotonic()
        if groups:
            self._writers[writer] = groups
        elif self._writers.pop(writer, None) is not None:
            self._went(writer, now)
        alive = {group for known in self._writers.values() for group in known}
        for state in self._shared.core.name_spaces:
            present = any(state.name_space.contains(group) for group in alive)
            self._shared.core.writers_known(state.name, present=present, now=now)

    def _went(self, writer: bytes, now: float) -> None:
        self._gone_s.pop(writer, None)
        self._gone_s[writer] = now
        if len(self._gone_s) > MAX_REMEMBERED:
            self._others_gone_s = self._gone_s.pop(next(iter(self._gone_s)))

    def work(self, now: float) -> None:
        """Purge what may go, and trace rejected and lost samples and back-ups."""
        self._shared.tell_backups()
        if now < self._due_s:
            if now >= self._more_s:
                self._purge_all(now)
            return
        self._due_s = now + PERIOD_S
        self._pending.work(now)
        self.tombstones.forget(now)
        self._tell_rejected(now)
        self._tell_lost(now)
        self._disposed.update(self._purgeable_groups(), now)
        self._purge_all(now)

    def _purge_all(self, now: float) -> None:
        """Purge one go of instances in each group; the next one follows soon where there may be more."""
        spaces = self._shared.spaces.values() if self._disposed else ()
        is_full = [self._purge(data, now) for data in spaces]
        self._more_s = now + MORE_S if any(is_full) else FOREVER_S

    def _purgeable_groups(self) -> dict[Group, GroupSet]:
        return {
            group: group_set
            for data in self._shared.spaces.values()
            for group, group_set in data.applied.groups.items()
            if group in self._shared.descriptions
            and self._shared.descriptions[group].qos.cleanup_delay_ns != INFINITE
        }

    def _tell_rejected(self, now: float) -> None:
        """Count the samples that resource limits rejected, and trace them from time to time."""
        for data in self._shared.spaces.values():
            for group, group_set in data.applied.groups.items():
                count = group_set.rejected.total() if group_set.rejected else 0
                known, counted, said, due_s = self._rejected.get(group, (group_set, 0, 0, now))
                if known is not group_set:  # another set took its place
                    counted = said = 0
                if count == said:
                    continue
                self._shared.counters["rejected"] += count - counted
                if now >= due_s:
                    self._shared.tracer.event(
                        "capture.limited",
                        group=group,
                        count=count - said,
                        total=count,
                        causes=", ".join(
                            f"{getattr(group_set.limits, cause):,} {cause}"
                            for cause in sorted(group_set.rejected)
                        ),
                    )
                    said, due_s = count, now + SAY_REJECTED_S
                self._rejected[group] = group_set, count, said, due_s

    def _tell_lost(self, now: float) -> None:
        """Trace from time to time the samples that arrived too old to be kept."""
        if now < self._tell_lost_s:
            return
        for data in self._shared.spaces.values():
            for group, group_set in data.applied.groups.items():
                if not group_set.lost:
                    continue
                said = self._lost.get(group, 0)
                said = said if said <= group_set.lost else 0  # another set took its place
                if group_set.lost > said:
                    self._tell_lost_s = now + SAY_REJECTED_S
                    self._shared.tracer.event(
                        "capture.lost", group=group, count=group_set.lost - said, total=group_set.lost
                    )
                self._lost[group] = group_set.lost

    def _purge(self, data: NameSpaceData, now: float) -> bool:
        """Purge instances; return whether as many as may be in one go, of some group."""
        is_full = False
        until_ns = self._shared.core.purgeable_until(data.state.name, now)
        if until_ns is None:
            return False
        stored_s = now - (self._shared.store_queue.unstored_s(now) if data.state.policy.persists else 0.0)
        settled_s = FOREVER_S
        if until_ns < FOREVER_NS:
            # A set dates a change at most `STEP_NS` later than it came (see engine.dataset.settling).
            settled_s = now - (self._shared.steady_ns() + STEP_NS - until_ns) / 1e9
        for group, group_set in data.working.groups.items():
            description = self._shared.descriptions.get(group)
            if description is None:
                continue
            over_s = now - description.qos.cleanup_delay_ns / 1e9
            found = self._disposed.until(group, min(settled_s, stored_s, over_s), MAX_LOOKED_AT)
            pending_ns = self._pending.since_ns(group) if found else FOREVER_NS
            instances = []
            for key in found:
                history = group_set.instance(key)
                is_awaited = not history or history[-1].source_time_ns >= pending_ns
                if not is_awaited and not self._is_written(group, key, history, over_s):
                    instances.append(PurgedInstance(key, history[-1].digest))
            if instances:
                self.purged(group, tuple(instances))
                self._shared.core.purge(group, tuple(instances))
            is_full = is_full or len(instances) >= MAX_LOOKED_AT
        return is_full

    def _is_written(self, group: Group, key: bytes, history: Sequence[Sample], until_s: float) -> bool:
        """Whether an instance has, or had at `until_s`, a writer that did not unregister it."""
        newest = {sample.writer: sample for sample in history}
        writers = {writer for writer, sample in newest.items() if not sample.status & UNREGISTER}
        return any(
            writer in self._writers or self._gone_s.get(writer, self._others_gone_s) > until_s
            for writer in writers | self.registered.writers(group, key)
        )

    def purged(self, group: Group, instances: tuple[PurgedInstance, ...]) -> None:
        """Forget instances, as master or because the master did."""
        data, description = self._find(group)
        if data is None or description is None:
            return
        group_set = data.working.groups.get(group)
        if group_set is not None:
            times = [one.source_time_ns for key, _ in instances for one in group_set.instance(key)[-1:]]
            self.forgotten_ns[group] = max((*times, self.forgotten_ns.get(group, 0)))
            ended = [group_set.instance(key) for key, _ in instances if key in group_set.disposed]
            self.tombstones.add(group, ended, self._shared.clock.monotonic())
        changes = [change for key, last in instances for change in data.purge(description, key, last)]
        for key, _ in instances:
            self.registered.forget(group, key)
        self._disposed.purged(group, [key for key, _ in instances])
        self._shared.store_queue.append(data.state.name, changes)
        self._shared.counters["purged"] += len(instances)
        self._shared.tracer.event("purge.done", group=group, instances=len(instances))

    def _find(self, group: Group) -> tuple[NameSpaceData | None, GroupDescription | None]:
        state = self._shared.core.name_space_of(group)
        data = self._shared.spaces.get(state.name) if state else None
        return data, self._shared.descriptions.get(group)
