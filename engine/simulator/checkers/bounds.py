"""I7: what a node remembers besides its data does not grow with time."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Final

from engine.dataset.dataset import DataSet
from engine.dataset.groups import GroupDescription
from engine.runtime.disposed import DisposedInstances
from engine.runtime.persistence import Persistence
from engine.runtime.reconciling.alignee import Base
from engine.runtime.registered import Registered
from engine.runtime.sets import Began
from engine.simulator.checkers.base import Checker
from engine.tracing.tracer import Tracer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.runtime.runtime import Runtime
    from engine.simulator.cluster import Cluster

BASE: Final = 100
"""Entries of a node that is alone: counters, history of masters, fellows that it remembers."""
FOR_EACH: Final = 6
"""Entries for each fellow, reader process, writer and topic, times the name-spaces."""
LOOKS: Final = 6
_CONTAINERS: Final = (dict, list, tuple, set, frozenset, collections.deque)
_DATA: Final = (DataSet, DisposedInstances, Registered, Base, Began, GroupDescription, Persistence, Tracer)
"""Not looked into: data, and what waits for a slow disk, which has its own bound."""
_ATOMS: Final = frozenset({str, int, float, bool, bytes, type(None)})
_OURS: Final = ("engine.core.", "engine.runtime.", "engine.dataset.")


class Bounds(Checker):
    """Counts the entries of everything that a runtime holds, except for sets of data."""

    invariant = "I7"
    meaning = "memory and queues are bounded by what there is, not by what there was"

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._looks = 0

    def looked(self) -> None:
        """Compare each node with what is there now; growth takes time, so this need not be done often."""
        self._looks += 1
        if self._looks % LOOKS == 1:
            self._count()

    def settled(self) -> None:
        """In the end, too."""
        self._count()

    def _count(self) -> None:
        cluster = self.cluster
        spaces = max((len(node.runtime.spaces) for node in cluster.up() if node.runtime), default=1)
        topics = len(cluster.options.workload.topics)
        parties = len(cluster.nodes) + len(cluster.all_readers) + topics * len(cluster.writers)
        bound = BASE + FOR_EACH * parties * spaces
        for node in cluster.up():
            assert node.runtime is not None
            count = entries(node.runtime)
            if count > bound:
                self.fail(f"{node.name} holds {count} entries, {bound} are enough for what there is")


def entries(runtime: Runtime) -> int:
    """How many entries the containers that can grow have in all, those of data sets left out."""
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
