"""Deletion of data on request, and purging of instances that were disposed long enough ago.

An instance is purged when three conditions hold (DDS 1.4, 2.2.3.5 DURABILITY_SERVICE): it is disposed, none
of its writers is alive, and service_cleanup_delay has passed since this node noticed both. The clocks of
writers play no part; for writers that went before its start, a node notices it at its start. Beyond the
standard, the tombstone of an instance stays until every known fellow has acknowledged it, so that no node can
revive the instance. The master decides and tells the others, so that all sets stay equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from engine.core.expressions import matches
from engine.core.messages import PurgedInstance
from engine.core.name_spaces import Group
from engine.core.purging import FOREVER_NS
from engine.dataset.group_set import GroupSet
from engine.dataset.groups import GroupDescription
from engine.dataset.sample import UNREGISTER, Sample
from engine.dataset.settling import STEP_NS
from engine.runtime.disposed import DisposedInstances
from engine.runtime.pending import PendingWriters
from engine.runtime.registered import Registered
from engine.runtime.sets import NameSpaceData
from engine.runtime.shared import SharedState

PERIOD_S: Final = 1.0
MAX_REMEMBERED: Final = 100_000
"""Lost writers remembered with the time of their loss; older ones share one time."""
SAY_REJECTED_S: Final = 60.0
"""Seconds between two trace lines on samples of a group that were rejected or lost."""
MAX_LOOKED_AT: Final = 5_000
"""Limit for the instances of a group looked at in one period, and for those looked at again."""
INFINITE: Final = -1
FOREVER_S: Final = float("inf")


class Housekeeping:
    """The part of a runtime that deletes and purges.

    Attributes:
        registered: writers with instances registered, besides the writers of the kept samples.
        forgotten_ns: latest source time of an instance that was purged in this run, by group.
    """

    def __init__(self, shared: SharedState, pending: PendingWriters) -> None:
        self._shared = shared
        self._pending = pending
        self._writers: dict[bytes, tuple[Group, ...]] = {}
        self._gone_s: dict[bytes, float] = {}
        self._others_gone_s = shared.clock.monotonic()
        self._due_s = 0.0
        self._disposed = DisposedInstances()
        self.registered = Registered()
        self.forgotten_ns: dict[Group, int] = {}
        self._lost: dict[Group, int] = {}
        self._tell_lost_s = 0.0
        self._rejected: dict[Group, tuple[GroupSet, int, int, float]] = {}

    @property
    def next_s(self) -> float | None:
        """Time of the next `work`; None if the next turn is early enough."""
        return self._due_s if self._disposed else None

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
            return
        self._due_s = now + PERIOD_S
        self._pending.work(now)
        self._tell_rejected(now)
        self._tell_lost(now)
        self._disposed.look(self._purgeable_groups(), now)
        if self._disposed:
            for data in self._shared.spaces.values():
                self._purge(data, now)

    def _purgeable_groups(self) -> dict[Group, GroupSet]:
        return {
            group: group_set
            for data in self._shared.spaces.values()
            for group, group_set in data.working.groups.items()
            if group in self._shared.descriptions
            and self._shared.descriptions[group].qos.cleanup_delay_ns != INFINITE
        }

    def _tell_rejected(self, now: float) -> None:
        """Count the samples that resource limits rejected, and trace them from time to time."""
        for data in self._shared.spaces.values():
            for group, group_set in data.working.groups.items():
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
            for group, group_set in data.working.groups.items():
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

    def _purge(self, data: NameSpaceData, now: float) -> None:
        until_ns = self._shared.core.purgeable_until(data.state.name, now)
        if until_ns is None:
            return
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
                is_awaited = history[-1].source_time_ns >= pending_ns
                if not is_awaited and not self._is_written(group, key, history, over_s):
                    instances.append(PurgedInstance(key, history[-1].digest))
            if instances:
                self.purged(group, tuple(instances))
                self._shared.core.purge(group, tuple(instances))

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
        changes = [change for key, last in instances for change in data.purge(description, key, last)]
        for key, _ in instances:
            self.registered.forget(group, key)
        self._shared.store_queue.append(data.state.name, changes)
        self._shared.counters["purged"] += len(instances)
        self._shared.tracer.event("purge.done", group=group, instances=len(instances))

    def deleted(self, partition: str, topic: str, until_ns: int) -> None:
        """Delete historical data of all groups that match, permanently."""
        removed = groups = 0
        for group, description in list(self._shared.descriptions.items()):
            if not (matches(partition, group.partition) and matches(topic, group.topic)):
                continue
            data, _ = self._find(group)
            if data is None:
                continue
            before = data.open_group(description).count
            changes = data.delete(description, until_ns)
            self._shared.store_queue.append(data.state.name, changes, data.floors((group,)))
            removed += before - data.open_group(description).count
            groups += 1
        self._shared.tracer.event(
            "delete.done", samples=removed, groups=groups, expression=f"{partition}.{topic}"
        )

    def _find(self, group: Group) -> tuple[NameSpaceData | None, GroupDescription | None]:
        state = self._shared.core.name_space_of(group)
        data = self._shared.spaces.get(state.name) if state else None
        return data, self._shared.descriptions.get(group)
