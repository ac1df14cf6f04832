"""The disk of a simulated node: a medium that survives, and a store on it that may die at any moment."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from engine.core.name_spaces import Group
from engine.dataset.group_set import Summary
from engine.dataset.sample import Sample
from engine.runtime.store_queue import StoreQueue
from engine.simulator.schedule import Schedule
from engine.store.interface import NO_MARKS, GroupChange, Marks, NetChanges, OpenReport, SetInfo, SetWriter
from engine.store.memory import Medium, MemoryStore, PowerCut

RETRY_S: Final = 1.0
"""As `engine.node.disk` waits before it tries a refusing disk again."""
LONGEST_S: Final = 30.0
"""Limit for a transaction on the slowest disk, also if it began before everything healed."""


class Committed(msgspec.Struct, frozen=True):
    """A transaction that is on the disk: changes to a set, or (with `whole`) another set in its place."""

    name_space: str
    added: tuple[tuple[Group, Sample], ...]
    evicted: tuple[tuple[Group, Sample], ...] = ()
    whole: bool = False


class WatchedStore(MemoryStore):
    """A store that reports its transactions.

    Attributes:
        committed: transactions since somebody looked last.
    """

    def __init__(self, medium: Medium) -> None:
        self.committed: list[Committed] = []
        super().__init__(medium)

    def commit_complete(
        self,
        writer: SetWriter,
        mark: str = "",
        *,
        keep_previous: str | None = None,
        marks: Marks = NO_MARKS,
    ) -> SetInfo:
        """As in the store below."""
        info = super().commit_complete(writer, mark, keep_previous=keep_previous, marks=marks)
        groups = self._medium.versions[info.version].groups.items()
        samples = tuple((key, row) for key, group in groups for row in group.rows.values())
        self.committed.append(Committed(writer.name_space, samples, whole=True))
        return info

    def append(
        self, name_space: str, changes: NetChanges | Sequence[GroupChange], marks: Marks = NO_MARKS
    ) -> dict[Group, Summary]:
        """As in the store below."""
        net = changes if isinstance(changes, NetChanges) else NetChanges(changes)
        watermarks = super().append(name_space, net, marks)
        nets = net.groups.items()
        added = tuple((group, sample) for group, each in nets for sample in each.added.values())
        gone = ((group, {**each.evicted, **each.passing}) for group, each in nets)
        evicted = tuple((group, sample) for group, each in gone for sample in each.values())
        self.committed.append(Committed(name_space, added, evicted))
        return watermarks


class SimulatedDisk:
    """Carries out what a runtime puts into its store queue, one transaction after the other.

    A transaction takes `delay_s` seconds on average, times the slowness; `on_result` is called after each.

    Attributes:
        slowness: factor on the time of a transaction, for slow disks.
    """

    def __init__(
        self,
        schedule: Schedule,
        medium: Medium,
        rng: random.Random,
        delay_s: float,
        on_result: Callable[[], None],
    ) -> None:
        self._medium = medium
        self.store = WatchedStore(medium)
        self.store_queue = StoreQueue(self.store)
        self.slowness = 1.0
        self._schedule = schedule
        self._rng = rng
        self._delay_s = delay_s
        self._on_result = on_result
        self._is_working = False
        self._is_dead = False

    @property
    def report(self) -> OpenReport:
        """Result of opening the store."""
        return self.store.report

    def wake(self) -> None:
        """Start to work if there are changes."""
        if not self._is_working and not self._is_dead and not self.store_queue.is_idle:
            self._is_working = True
            pause = RETRY_S if self.store_queue.problem else self._pause()
            self._schedule.after(pause, self._work)

    def _pause(self) -> float:
        return min(self._rng.expovariate(1.0) * self._delay_s * self.slowness, LONGEST_S)

    def _work(self) -> None:
        if self._is_dead:
            return
        self._is_working = False
        refused = bool(self.store_queue.problem)
        if self.store_queue.work() or not refused:
            self._on_result()
        self.wake()

    def flush(self) -> None:
        """Write the queued changes, as an orderly end does, and close; refused changes are lost."""
        while self.store_queue.work():
            pass
        self._is_dead = True
        self.store.close()

    def die(self, *, torn: bool) -> None:
        """Kill the process; with `torn` in the middle of a waiting transaction, if there is one."""
        if torn and not self._is_dead:
            self._medium.writes_left = self._rng.randrange(4)
            with contextlib.suppress(PowerCut):
                while self.store_queue.work():
                    pass
            self._medium.writes_left = None  # the next run has power
        self._is_dead = True
