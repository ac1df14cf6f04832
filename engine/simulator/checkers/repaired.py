"""I12: settled samples are on all nodes within a bound, although writing continues.

While there is no other fault (all nodes that are up talk to each other and hold the set, no link between them
is cut, no node stands still), every node has a sample that one node has had for longer than the bound, or
newer ones of its instance, or it was deleted or purged. The links of applications and the taps do not matter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from engine.simulator.checkers.base import Checker, talk
from engine.simulator.settling import unsettled

if TYPE_CHECKING:
    from engine.runtime.startup import StoredContent
    from engine.simulator.checkers.base import Standing
    from engine.simulator.node import SimulatedNode
    from engine.simulator.system import SimulatedSystem

REPAIRED_S: Final = 5.0
PERIODS: Final = 5
"""Heartbeat periods that, together with `REPAIRED_S`, bound the time of a repair."""


class Repaired(Checker):
    """Looks for old samples that a node lacks."""

    invariant = "I12"
    meaning = "what has settled is equal within a bound, although writing goes on"

    def __init__(self, cluster: SimulatedSystem) -> None:
        super().__init__(cluster)
        self._disturbed_s = 0.0
        settings = [plan.settings for plan in cluster.options.nodes]
        self.bound_s = REPAIRED_S + PERIODS * max(one.heartbeat_period_s for one in settings)
        self._patience_s = max(one.request_patience_s for one in settings)

    def opened(self, node: SimulatedNode, found: StoredContent) -> None:
        """Note a start: the node may bring samples that the others lack."""
        self._disturb()

    def ended(self, node: SimulatedNode) -> None:
        """Note an end, which the others must notice first."""
        self._disturb()

    def met(self, node: SimulatedNode, fellow: SimulatedNode) -> None:
        """Note a meeting, after which two nodes may have to merge."""
        self._disturb()

    def stepped(self, node: SimulatedNode, name_space: str, before: Standing | None, now: Standing) -> None:
        """Note a new master, or a node that begins or ends to hold the set."""
        if before is None or (before.following, before.holder) != (now.following, now.holder):
            self._disturb()

    def _disturb(self) -> None:
        self._disturbed_s = self.cluster.schedule.now

    def looked(self) -> None:
        """Check everything, if the system has been calm for long enough."""
        cluster = self.cluster
        until_s = cluster.schedule.now - self.bound_s
        if self._disturbed_s >= until_s or not self._is_calm():
            return
        if cluster.network.disturbed_s >= until_s - self._patience_s:
            return  # a lost request or answer is repeated after that time
        reason = unsettled(cluster, until_s)
        if reason:
            self.fail(f"after {self.bound_s:g} s without any fault: {reason}")

    def _is_calm(self) -> bool:
        up = self.cluster.up()
        return (
            self.cluster.network.is_calm()
            and all(not (node.is_stalled or node.participant.is_frozen or node.cost_s) for node in up)
            and all(talk(one, other) for one in up for other in up if one is not other)
        )
