"""Deletion of data on request, and how far it may reach.

A deletion leaves the source time up to which a group was deleted, which travels with the set: nodes take in
nothing any more that is as old. A time in the future would keep out everything that is written until then.
So each node bounds it where it enters:

- a request, of a client or of a fellow, by the clock that is the furthest behind of those that carry it out
  (`AHEAD_NS` later at most);
- a set, of the disk or of a fellow, by the clock in the middle (`FUTURE_NS` later at most). What is later is
  refused, and not brought down: the present is not what was asked for, and would delete what others wrote.

A time that turns out to be in the future later, because a clock was put right, is given up, and what others
have comes back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from engine.core.expressions import matches
from engine.core.name_spaces import Group
from engine.dataset.dataset import DataSet
from engine.dataset.group_set import NO_FLOOR
from engine.runtime.name_space_data import floor_mark
from engine.runtime.shared_state import SharedState

# As the largest difference of clocks that is not reported (`core.operator_events.MAX_SKEW_NS`).
AHEAD_NS: Final = 1_000_000_000
"""Nanoseconds by which a deletion may reach beyond the clock that is the furthest behind."""
# Chosen: above what two clocks differ by that nobody has set wrong, below a time zone.
FUTURE_NS: Final = 60_000_000_000
"""Nanoseconds beyond the clock in the middle from which a time is in the future: clocks differ a little."""
PERIOD_S: Final = 1.0
"""Time between two looks whether a stored deletion is still in the future; clocks are seldom put right."""


class Deletions:
    """The part of a runtime that deletes.

    Args:
        shared: what the parts of the runtime share.
        stored: the sets of the store. Times in them that are in the future are given up at once.
    """

    def __init__(self, shared: SharedState, stored: Mapping[str, DataSet]) -> None:
        self._shared = shared
        self._due_s = float("-inf")
        self._stored = {name: self._give_up(data) for name, data in stored.items()}

    def _bound(self, partition: str, topic: str, until_ns: int) -> tuple[int, str]:
        """Return how far a deletion up to a source time reaches now, and the node whose clock bounds it.

        The node is empty if no clock bounds it; otherwise that is reported.
        """
        shared = self._shared
        oldest, oldest_ns = shared.core.oldest_clock(shared.clock.wall_ns(), shared.clock.monotonic())
        if until_ns <= oldest_ns + AHEAD_NS:
            return until_ns, ""
        node, ahead_ns = shared.core.name_of(oldest), until_ns - oldest_ns
        shared.tracer.event("delete.bounded", expression=f"{partition}.{topic}", node=node, ahead_ns=ahead_ns)
        return oldest_ns, node

    def delete(self, partition: str, topic: str, until_ns: int) -> tuple[int, str]:
        """Delete historical data on all nodes, for a client.

        Returns how far, and the node whose clock bounds it; empty if none does.
        """
        reached = self._bound(partition, topic, until_ns)
        self._shared.core.delete_data(partition, topic, reached[0])
        return reached

    def deleted(self, partition: str, topic: str, until_ns: int) -> None:
        """Delete historical data of all groups that match, permanently."""
        shared = self._shared
        reached_ns, _ = self._bound(partition, topic, until_ns)
        removed = groups = 0
        for group, description in list(shared.descriptions.items()):
            if not (matches(partition, group.partition) and matches(topic, group.topic)):
                continue
            state = shared.core.name_space_of(group)
            data = shared.spaces.get(state.name) if state else None
            if data is None:
                continue
            before = data.open_group(description).count
            changes = data.delete(description, reached_ns)
            shared.store_queue.append(data.state.name, changes, data.floors((group,)))
            removed += before - data.open_group(description).count
            groups += 1
        shared.tracer.event("delete.done", samples=removed, groups=groups, expression=f"{partition}.{topic}")

    def refuse(self, data: DataSet, giver: str) -> None:
        """Refuse the times in a set that a fellow, `giver`, has sent which are in the future."""
        for group in self._give_up(data):
            self._report_future(group, f"node {self._shared.core.name_of(giver)} sends")

    def work(self, now: float) -> None:
        """Give up times that are in the future, because a clock was put right or fellows know better."""
        if now < self._due_s:
            return
        self._due_s = now + PERIOD_S
        for name, data in self._shared.spaces.items():
            found = self._stored.pop(name, [])
            for group in found:
                self._report_future(group, "the store has")
            for each in (data.applied, data.staging, data.loaded):
                for group in self._give_up(each) if each is not None else ():
                    self._report_future(group, "this node has")
                    found.append(group)
            if found:  # else it would come back with the next start
                marks = {floor_mark(group): str(NO_FLOOR) for group in found}
                self._shared.store_queue.mark(name, marks)

    def _give_up(self, data: DataSet) -> list[Group]:
        """Give up the times of a set that are in the future; return their groups."""
        deleted = [(group, one) for group, one in data.groups.items() if one.floor_ns > NO_FLOOR]
        if not deleted:
            return []
        shared = self._shared
        middle_ns = shared.core.middle_clock_ns(shared.clock.wall_ns(), shared.clock.monotonic())
        found = [(group, one) for group, one in deleted if one.floor_ns > middle_ns + FUTURE_NS]
        for _, one in found:
            one.floor_ns = NO_FLOOR
        return [group for group, _ in found]

    def _report_future(self, group: Group, origin: str) -> None:
        self._shared.counters["future_deletions"] += 1
        self._shared.tracer.event("delete.future", group=group, origin=origin)
