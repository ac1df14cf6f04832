"""I6: alignment moves what it has reason to move, and no more.

A set is sent because a node started, because two nodes met again, because an aligner was lost or did not
answer, or because sets were found to differ. Each reason is good for a bounded number of sets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from engine.simulator.checkers.base import Checker

if TYPE_CHECKING:
    from engine.simulator.checkers.base import Standing
    from engine.simulator.node import SimulatedNode

SETS_FOR_A_REASON: Final = 3


class Traffic(Checker):
    """Counts reasons and sets."""

    invariant = "I6"
    meaning = "alignment traffic is bounded by the reasons for it"

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]  # passed on as they are
        self._reasons = 0
        self._sets = 0

    def attached(self, node: SimulatedNode) -> None:
        """Two nodes have met."""
        self._reasons += 1

    def stepped(self, node: SimulatedNode, name_space: str, before: Standing | None, now: Standing) -> None:
        """A run begins."""

    def streaming(self, node: SimulatedNode, name_space: str, fellows: tuple[str, ...], size: int) -> None:
        """Sets are sent."""
        self._sets += len(fellows)
