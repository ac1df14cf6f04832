"""I2: an instance that a node knows to be disposed does not come alive again without a newer sample.

The checker remembers a dispose of a complete set while the node runs, also after the node has purged it. It
forgets the dispose if the node's set was set aside or merged away (see I1), and when two nodes meet for the
first time: a node keeps its tombstones for known fellows, and cannot wait for unknown ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.core.states import Phase
from engine.dataset.sample import DISPOSE, UNREGISTER
from engine.simulator.checkers.base import Checker
from engine.simulator.checkers.kept import DISCARDING, Place

if TYPE_CHECKING:
    from engine.core.name_spaces import Group
    from engine.dataset.sample import Sample
    from engine.simulator.checkers.base import Standing
    from engine.simulator.node import SimulatedNode
    from engine.simulator.system import SimulatedSystem

Tombstones = dict[tuple["Group", bytes], "Sample"]


class Resurrection(Checker):
    """Remembers disposes."""

    invariant = "I2"
    meaning = "no disposed instance is alive again"

    def __init__(self, cluster: SimulatedSystem) -> None:
        super().__init__(cluster)
        self._tombstones: dict[Place, Tombstones] = {}
        self._pairs: set[frozenset[str]] = set()
        self._replaced: dict[Place, int] = {}

    def met(self, node: SimulatedNode, fellow: SimulatedNode) -> None:
        """Forget purged disposes at the first meeting of two nodes, which may bring older data."""
        pair = frozenset((node.id, fellow.id))
        if pair not in self._pairs:
            self._pairs.add(pair)
            for place, tombstones in self._tombstones.items():
                self._tombstones[place] = self._kept(place, tombstones)

    @staticmethod
    def _kept(place: Place, tombstones: Tombstones) -> Tombstones:
        """Return the tombstones that the node has not purged."""
        node, name_space = place
        if node.runtime is None:
            return {}
        groups = node.runtime.spaces[name_space].working.groups
        return {
            (group, key): tombstone
            for (group, key), tombstone in tombstones.items()
            if group in groups and key in groups[group].disposed
        }

    def _is_newer(self, group: Group, last: Sample, tombstone: Sample) -> bool:
        """Tell whether a sample was written after the dispose, by true time and not by its timestamp.

        A dispose with a future timestamp is also forgotten when its time has come on a clock that is ahead;
        a later write then makes a new instance, with any timestamp.
        """
        return self.cluster.written_s(group, last) > self.cluster.written_s(group, tombstone)

    def ended(self, node: SimulatedNode) -> None:
        """Forget the disposes of a node: after a restart it may have another set."""
        for place in [place for place in self._tombstones if place[0] is node]:
            del self._tombstones[place]
        for place in [place for place in self._replaced if place[0] is node]:
            del self._replaced[place]

    def stepped(self, node: SimulatedNode, name_space: str, before: Standing | None, now: Standing) -> None:
        """Check each change; a merge that may discard samples makes the node's disposes forgotten."""
        assert node.runtime is not None
        place = (node, name_space)
        if not now.holder or before is None:
            return
        if now.lineage != before.lineage and self._may_discard(place):
            self._tombstones.pop(place, None)
        if now.phase is not Phase.MERGE:
            self._look(place)

    @staticmethod
    def _may_discard(place: Place) -> bool:
        """Tell whether a merge policy of the node may discard samples."""
        node, name_space = place
        assert node.runtime is not None
        rules = node.runtime.spaces[name_space].state.policy.merges
        return bool(DISCARDING.intersection(rule.type for rule in rules))

    def looked(self) -> None:
        """Check all complete sets."""
        for place in list(self._tombstones):
            self._look(place)

    def _look(self, place: Place) -> None:
        node, name_space = place
        assert node.runtime is not None
        data = node.runtime.spaces[name_space]
        if data.replaced != self._replaced.get(place, 0) and self._may_discard(place):
            self._tombstones.pop(place, None)
        self._replaced[place] = data.replaced
        tombstones = self._tombstones.setdefault(place, {})
        for group, group_set in data.working.groups.items():
            for (known_group, key), tombstone in tombstones.items():
                if known_group == group:
                    last = _last(group_set.instance(key))
                    if last is not None and last < tombstone and not self._is_newer(group, last, tombstone):
                        self._tell(node, name_space, group, last, tombstone)
            for key in sorted(group_set.disposed):
                last = _last(group_set.instance(key))
                if last is not None:
                    tombstones[group, key] = last

    def _tell(
        self, node: SimulatedNode, name_space: str, group: Group, last: Sample, tombstone: Sample
    ) -> None:
        state = "disposed" if last.status & DISPOSE else "alive"
        self.fail(
            f"{node.name}: {name_space} {group} key {last.key.hex()} was disposed at "
            f"{tombstone.source_time_ns} and is {state} with a sample of {last.source_time_ns}"
        )


def _last(history: tuple[Sample, ...]) -> Sample | None:
    """Return the sample that decides whether an instance is alive."""
    return next((sample for sample in reversed(history) if sample.status != UNREGISTER), None)
