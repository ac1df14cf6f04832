"""I4: an epoch has one master, and no epoch or lineage is begun twice.

An epoch or lineage names the node that began it. A node must not begin one again, in another run or for
another
set: diverged sets would then count as one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.core.states import Phase
from engine.simulator.checkers.base import Checker

if TYPE_CHECKING:
    from engine.core.messages import Epoch
    from engine.simulator.checkers.base import Standing
    from engine.simulator.node import SimulatedNode
    from engine.simulator.system import SimulatedSystem


class Masters(Checker):
    """Remembers which run of which node began each epoch and lineage."""

    invariant = "I4"
    meaning = "at most one confirmed master for each role, name-space and epoch, and no epoch comes again"

    def __init__(self, cluster: SimulatedSystem) -> None:
        super().__init__(cluster)
        self._claims: dict[tuple[str, str, Epoch], tuple[SimulatedNode, int]] = {}
        self._lineages: dict[tuple[str, Epoch], tuple[SimulatedNode, int]] = {}

    def stepped(self, node: SimulatedNode, name_space: str, before: Standing | None, now: Standing) -> None:
        """Check a node that declares itself master, or begins a lineage."""
        run = (node, node.run)
        if (
            now.following
            and now.following.node == node.id
            and (not before or before.following != now.following)
        ):
            key = (node.plan.settings.role, name_space, now.following)
            other = self._claims.setdefault(key, run)
            if other != run:
                self.fail(
                    f"{_text(run)} is master of {name_space} in epoch {now.following} as was {_text(other)}"
                )
        came_with_a_set = before is not None and before.phase is Phase.ALIGN
        if before and now.lineage != before.lineage and now.lineage.node == node.id and not came_with_a_set:
            lineage = (name_space, now.lineage)
            known = self._lineages.setdefault(lineage, run)
            if known != run and not self._is_adopted(node, name_space, now.lineage):
                self.fail(f"{_text(run)} begins lineage {now.lineage} of {name_space} as did {_text(known)}")

    def _is_adopted(self, node: SimulatedNode, name_space: str, lineage: Epoch) -> bool:
        """Tell whether a fellow of the node has the lineage."""
        assert node.runtime is not None
        reports = (fellow.report(name_space) for fellow in node.runtime.core.fellows if fellow.approved)
        return any(report is not None and report.lineage == lineage for report in reports)


def _text(run: tuple[SimulatedNode, int]) -> str:
    return f"{run[0].name} (run {run[1]})"
