"""I7: a node's memory besides its data does not grow with time."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Final

from engine.dataset.dataset import DataSet
from engine.dataset.groups import GroupDescription
from engine.runtime.housekeeping import DisposedInstances, Registered
from engine.runtime.name_space_data import Began
from engine.runtime.reconciling.alignee import ComparisonBase
from engine.runtime.reconciling.aligner import ComparedSet
from engine.runtime.store_queue import StoreQueue
from engine.simulator.checkers.base import Checker
from engine.tracing.tracer import Tracer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.runtime.runtime import Runtime
    from engine.simulator.system import SimulatedSystem

BASE: Final = 100
"""Entries of a node that is alone: counters, history of masters, remembered fellows."""
FOR_EACH: Final = 6
"""Entries for each fellow, reader process, writer and topic, times the name-spaces."""
LOOKS: Final = 6
_CONTAINERS: Final = (dict, list, tuple, set, frozenset, collections.deque)
_DATA: Final = (
    DataSet,
    DisposedInstances,
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
        spaces = max((len(node.runtime.spaces) for node in cluster.up() if node.runtime), default=1)
        topics = len(cluster.options.workload.topics)
        participants = len(cluster.nodes) + len(cluster.all_readers) + topics * len(cluster.writers)
        bound = BASE + FOR_EACH * participants * spaces
        for node in cluster.up():
            assert node.runtime is not None
            count = entries(node.runtime)
            if count > bound:
                self.fail(f"{node.name} holds {count} entries, {bound} are enough for this system")


def entries(runtime: Runtime) -> int:
    """Count the entries of the containers that can grow, without those of data sets."""
    seen: set[int] = set()
    waiting: list[object] = [runtime]
    count = 0
    while waiting:
        value = waiting.pop()
        if id(value) in seen or isinstance(value, _DATA):
            continue
        seen.add(id(value))
        if isinstance(value, _CONTAINERS) and not isinstance(value, tuple):
            count += len(value)
        waiting += [part for part in _parts(value) if type(part) not in _ATOMS]
    return count


def _parts(value: object) -> Iterator[object]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, _CONTAINERS):
        yield from value
    elif type(value).__module__.startswith(_OURS):
        yield from getattr(value, "__dict__", {}).values()
        for kind in type(value).__mro__:
            for name in getattr(kind, "__slots__", ()):
                yield getattr(value, name, None)
