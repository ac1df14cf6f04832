"""I6: alignment sends sets only for a reason.

A set is sent because a node started, because two nodes met, because a master changed, or because sets were
found to differ. Each reason is good for a set, now and then for two; nodes that meet give two reasons, and
mostly need none. A difference is told to the master, which collects and has everybody take it over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from engine.simulator.checkers.base import Checker

if TYPE_CHECKING:
    from engine.runtime.startup import StoredContent
    from engine.simulator.checkers.base import Standing
    from engine.simulator.node import SimulatedNode
    from engine.simulator.system import SimulatedSystem

SETS_FOR_A_REASON: Final = 1.5


class Traffic(Checker):
    """Counts reasons and sets, by name-space."""

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

    def streaming(self, node: SimulatedNode, name_space: str, fellows: tuple[str, ...], size: int) -> None:
        """Count sent sets."""
        sent = self._sets[name_space] = self._sets.get(name_space, 0) + len(fellows)
        bound = SETS_FOR_A_REASON * self._reasons.get(name_space, 0) + len(self.cluster.nodes)
        if sent > bound:
            self.fail(f"{sent} sets of {name_space} were sent, {bound:.0f} would have been enough")
