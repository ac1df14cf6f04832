"""I9, single source of injection: the injecting node is the best of those present, and none was first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.core.states import Phase
from engine.simulator.checkers.base import Checker, talk

if TYPE_CHECKING:
    from engine.core.name_space_state import NameSpaceState
    from engine.simulator.checkers.base import Standing
    from engine.simulator.node import SimulatedNode
    from engine.simulator.system import SimulatedSystem

ALONE = "the only candidate"
"""The reason of an election without other known electors."""


class Sources(Checker):
    """Checks the whole system whenever a node injects."""

    invariant = "I9"
    meaning = "persistent data is injected by exactly one source, the best that is present"

    def __init__(self, cluster: SimulatedSystem) -> None:
        super().__init__(cluster)
        self._electors: dict[tuple[SimulatedNode, str], set[tuple[str, int]]] = {}

    def stepped(self, node: SimulatedNode, name_space: str, before: Standing | None, now: Standing) -> None:
        """A node has become complete without aligning: it injected.

        A fellow that may not align others has nothing to give, even if it holds the set; and a master is not
        disturbed by a fellow that did not take part in its election.
        """
        if before is None or before.following != now.following:
            self._electors[node, name_space] = _known_electors(node, name_space)
        if before is None or before.holder or not now.holder or now.is_aligned:
            return
        if node.is_catching_up:
            return  # its knowledge at the injection is unknown
        own = _state(node, name_space)
        for other in self.cluster.up():
            state = _state(other, name_space)
            if other is node or state is None or not talk(node, other):
                continue
            if state.holder and state.policy.aligner and _says_so(node, other, name_space):
                self.fail(f"{node.name} injects {name_space} although {other.name} holds the set")
            if (other.id, other.incarnation) not in self._electors[node, name_space]:
                continue
            if _is_elector(state) and other.plan.settings.role == node.plan.settings.role and own is not None:
                self._compare(node, own, other, state)

    def _compare(
        self, node: SimulatedNode, own: NameSpaceState, other: SimulatedNode, state: NameSpaceState
    ) -> None:
        if own.why == ALONE:
            return  # it woke up, and elected before it read the messages
        ranks = [
            (each.quality_ns >= 0, each.policy.master_priority, each.quality_ns, node_id)
            for each, node_id in ((own, node.id), (state, other.id))
        ]
        if ranks[1] > ranks[0]:
            self.fail(f"{node.name} injects {own.name} although the set of {other.name} goes before")


def _state(node: SimulatedNode, name_space: str) -> NameSpaceState | None:
    assert node.runtime is not None
    data = node.runtime.spaces.get(name_space)
    return data.state if data else None


def _known_electors(node: SimulatedNode, name_space: str) -> set[tuple[str, int]]:
    """Return the electors that a node knows, with their incarnations."""
    assert node.runtime is not None
    reports = [(fellow, fellow.report(name_space)) for fellow in node.runtime.core.fellows]
    return {
        (fellow.node, fellow.incarnation)
        for fellow, report in reports
        if fellow.approved and report is not None and report.phase is not Phase.DISCOVER
    }


def _says_so(node: SimulatedNode, other: SimulatedNode, name_space: str) -> bool:
    """Tell whether the node has received a message that the other holds the set."""
    assert node.runtime is not None
    reports = [f.report(name_space) for f in node.runtime.core.fellows if f.node == other.id]
    return any(report is not None and report.holder for report in reports)


def _is_elector(state: NameSpaceState) -> bool:
    return state.policy.may_be_master and not state.is_lazy and state.phase is not Phase.DISCOVER
