"""The rules about bounds: of the traffic (I6) and of the memory (I7)."""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable, Collection
from typing import Any, Final

from engine.dataset.dataset import DataSet
from engine.dataset.groups import GroupDescription
from engine.runtime.housekeeping import DisposedInstances, PurgedTombstones, Registered
from engine.runtime.name_space_data import Began
from engine.runtime.reconciling.alignee import ComparisonBase
from engine.runtime.reconciling.aligner import ComparedSet
from engine.runtime.runtime import Runtime
from engine.runtime.startup import StoredContent
from engine.runtime.store_queue import StoreQueue
from engine.simulator.simulated_node import SimulatedNode
from engine.simulator.simulated_system import Checker, SimulatedSystem, Standing
from engine.tracing.tracer import Tracer

SETS_FOR_A_REASON: Final = 1.5
"""Each reason is good for one set, and now and then for a second one."""


class Traffic(Checker):
    """Counts reasons and sets, by name-space.

    A set is sent because a node started, because two nodes met, because a master changed, or because sets
    were found to differ. Each reason is good for a set, now and then for two; nodes that meet give two
    reasons, and mostly need none. A difference is told to the master, which collects and has everybody take
    it over.
    """

    invariant = "I6"
    meaning = "alignment traffic is bounded by the reasons for it"

    def __init__(self, cluster: SimulatedSystem) -> None:
        super().__init__(cluster)
        self._reasons: dict[str, float] = {}
        self._sets: dict[str, int] = {}

    def opened(self, node: SimulatedNode, found: StoredContent) -> None:
        """Count a start, after which a node needs all sets."""
        self._happened(node)

    def met(self, node: SimulatedNode, fellow: SimulatedNode) -> None:
        """Count a meeting, once for each of the two nodes."""
        self._happened(node)

    def differed(self, node: SimulatedNode, name_space: str) -> None:
        """A sample did not reach everybody; that pauses between repairs grow is for the check of quiet."""
        repaired = len(self.cluster.nodes) / SETS_FOR_A_REASON
        self._reasons[name_space] = self._reasons.get(name_space, 0) + repaired

    def stepped(self, node: SimulatedNode, name_space: str, before: Standing | None, now: Standing) -> None:
        """Count a new master of a node."""
        if before is not None and before.following != now.following:
            self._reasons[name_space] = self._reasons.get(name_space, 0) + 1

    def _happened(self, node: SimulatedNode) -> None:
        for space in node.plan.settings.name_spaces:
            self._reasons[space.name] = self._reasons.get(space.name, 0) + 1

    def streaming(self, node: SimulatedNode, name_space: str, fellows: tuple[str, ...], samples: int) -> None:
        """Count sent sets."""
        sent = self._sets[name_space] = self._sets.get(name_space, 0) + len(fellows)
        bound = SETS_FOR_A_REASON * self._reasons.get(name_space, 0) + len(self.cluster.nodes)
        if sent > bound:
            self.fail(f"{sent} sets of {name_space} were sent, {bound:.0f} would have been enough")


BASE: Final = 100
"""Entries of a node that is alone: counters, history of masters, remembered fellows."""
FOR_EACH: Final = 10
"""Entries for each fellow (nine containers list it), reader, writer and topic, times the name-spaces."""
FOR_TOPIC: Final = 6
"""Entries for each topic whose group is kept, also after its writers have ended."""
LOOKS: Final = 6
"""Counting visits every object of every node, and growth takes time."""
_CONTAINERS: Final = (dict, list, tuple, set, frozenset, collections.deque)
_DATA: Final = (
    DataSet,
    DisposedInstances,
    PurgedTombstones,
    Registered,
    ComparisonBase,
    ComparedSet,
    Began,
    GroupDescription,
    StoreQueue,
    Tracer,
)
"""Classes that do not count: data, and changes that wait for a slow disk, which have their own bound."""
_ATOMS: Final = frozenset({str, int, float, bool, bytes, type(None)})
_OURS: Final = ("engine.core.", "engine.runtime.", "engine.dataset.")


class Bounds(Checker):
    """Counts the entries of all containers of a runtime, without sets of data."""

    invariant = "I7"
    meaning = "memory and queues are bounded by what there is, not by what there was"

    def __init__(self, cluster: SimulatedSystem) -> None:
        super().__init__(cluster)
        self._looks = 0

    def looked(self) -> None:
        """Compare each node with the system, once in `LOOKS` calls, because growth takes time."""
        self._looks += 1
        if self._looks % LOOKS == 1:
            self._count()

    def settled(self) -> None:
        """Compare each node with the system."""
        self._count()

    def _count(self) -> None:
        cluster = self.cluster
        spaces = max((len(node.live.spaces) for node in cluster.up()), default=1)
        topics = len(cluster.options.workload.topics)
        participants = len(cluster.nodes) + len(cluster.all_readers) + topics * len(cluster.writers)
        bound = BASE + FOR_EACH * participants * spaces + FOR_TOPIC * topics
        for node in cluster.up():
            count = entries(node.live)
            if count > bound:
                self.fail(f"{node.name} holds {count} entries, {bound} are enough for this system")


def entries(runtime: Runtime) -> int:
    """Count the entries of the containers that can grow, without those of data sets."""
    seen: set[int] = set()
    waiting: list[object] = [runtime]
    count = 0
    while waiting:
        value = waiting.pop()
        number = id(value)
        if number in seen:
            continue
        seen.add(number)
        kind: Any = type(value)
        parts_of, are_entries = _way_into(kind)
        parts = parts_of(value)
        if are_entries:
            count += len(parts)
        waiting += [part for part in parts if type(part) not in _ATOMS]
    return count


@functools.cache
def _way_into(kind: Any) -> tuple[Callable[[Any], Collection[object]], bool]:
    """Return what finds the parts of values of a class, and whether the parts are entries that may grow."""
    slots = tuple(name for base in kind.__mro__ for name in getattr(base, "__slots__", ()))
    if issubclass(kind, _DATA):
        return lambda _: (), False
    if issubclass(kind, dict):
        return lambda value: value.values(), True
    if issubclass(kind, _CONTAINERS):
        return lambda value: value, not issubclass(kind, tuple)
    if not kind.__module__.startswith(_OURS):
        return lambda _: (), False
    return (
        lambda value: [
            *getattr(value, "__dict__", {}).values(),
            *[getattr(value, name, None) for name in slots],
        ],
        False,
    )
