"""Long work in steps, so that nothing else waits longer than for one of them.

A piece of work is a generator that yields after each step of a few milliseconds: one block, or
`engine.dataset.rateless.STEP` samples. The node's thread carries out steps for `budget_s`, then looks at
messages, timers and heartbeats again. Without a second thread or a lock, a run in virtual time repeats
exactly.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator
from typing import Final

from engine.runtime.ports import Clock

BUDGET_S: Final = 0.005
"""Seconds of steps before the node looks at everything else: less than any heartbeat may be late, and long
beside one such look, which would otherwise take most of the time."""


class StreamFault(ValueError):
    """A batch or comparison message of a peer that is foreign, damaged, or out of order."""


class Steps:
    """The long work of a node, one piece after the other.

    Args:
        clock: measures the budget.
        failed: takes the fault of a peer that ended a piece of work.

    Attributes:
        budget_s: seconds for one call of `work`; 0 carries out a single step.
        done: steps carried out.
    """

    def __init__(self, clock: Clock, failed: Callable[[StreamFault], None]) -> None:
        self._clock = clock
        self._failed = failed
        self._pieces: collections.deque[Iterator[None]] = collections.deque()
        self.budget_s = BUDGET_S
        self.done = 0

    @property
    def are_left(self) -> bool:
        """Whether `work` has something to do."""
        return bool(self._pieces)

    def begin(self, piece: Iterator[None]) -> None:
        """Queue a piece of work."""
        self._pieces.append(piece)

    def work(self) -> None:
        """Carry out steps, at least one, until the budget is used up."""
        until = self._clock.monotonic() + self.budget_s
        while self._pieces:
            self.done += 1
            try:
                next(self._pieces[0])
            except StopIteration:
                self._pieces.popleft()
            except StreamFault as fault:  # of a peer: it ends this piece of work only
                self._pieces.popleft()
                self._failed(fault)
            if self._clock.monotonic() >= until:
                return
