"""I7: a node's memory is bounded by what it has to remember."""

from __future__ import annotations

from engine.simulator.checkers.base import Checker


class Bounds(Checker):
    """Counts what the parts of a node hold."""

    invariant = "I7"
    meaning = "memory and queues are bounded"
