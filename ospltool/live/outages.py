"""Times in which no node at all was heard: lost with the whole domain, or out of reach of the watch."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from ospltool.live.feed import ReceivedSnapshot
from ospltool.live.nodes import Node

REACH_NS: Final = 1_500_000_000
"""Beyond the silence that counts, the time to be heard again that a node has which was out of reach."""


class Silence(NamedTuple):
    """The time between two snapshots without one of any node, although it was due; 0 for none so far."""

    since_ns: int
    until_ns: int


class Outages:
    """What is known of the last loss of all nodes, and of the last time in which all were silent.

    Attributes:
        found_ns: when a node was heard again after the last loss of all; -1 for never.
        silence: the last silence of all nodes that has ended.
    """

    def __init__(self) -> None:
        self.found_ns = -1
        self.silence = Silence(0, 0)
        self._lost_ns = self._last_lost_ns = -1
        self._is_lost = self._is_link = self._has_survivor = False
        self._alone: Collection[str] = ()
        self._were_alone: set[str] = set()
        self._newest_ns = 0

    @property
    def were_out_of_reach(self) -> bool:
        """Whether the nodes ran meanwhile, so that the watch could not hear them."""
        return self._is_link or self._has_survivor

    def hear(self, before: Node | None, heard: ReceivedSnapshot) -> None:
        """Take in a snapshot of a node, and what was known of it before; None for a new one."""
        heard_ns = heard.heard_ns
        if before is not None:
            is_new = heard.snapshot.started_ns > before.snapshot.started_ns
            if heard_ns > max(self._newest_ns, before.heard_ns) + before.due_ns:
                self.silence = Silence(self._newest_ns, heard_ns)
            if self._is_lost:
                self.lose(self._newest_ns)
                self.find(heard_ns)
            if self.was_lost_before(before):
                self._has_survivor |= not is_new
        self._newest_ns = max(self._newest_ns, heard_ns)

    def conclude(self, alone: Collection[str], *, is_lost: bool) -> None:
        """Take in whether health concludes that all nodes are lost; leases may end later, or never.

        Args:
            alone: ids of the nodes that it tells to be lost by themselves.
            is_lost: whether all are.
        """
        self._is_lost, self._alone = is_lost, alone
        self._were_alone.update(alone)

    def lose(self, last_ns: int, nodes: Iterable[Node] = (), *, is_link: bool = False) -> None:
        """Take in that all nodes were lost by the moment `last_ns`, perhaps with a link of the watch.

        That may be told together with the first snapshots after it, which are those of `nodes` then.
        """
        self._is_lost = False
        self._were_alone.clear()
        self._lost_ns, self._last_lost_ns = min(self._newest_ns, last_ns), last_ns
        self._is_link = is_link
        self._has_survivor = any(one.came_ns <= last_ns < one.heard_ns for one in nodes)

    def find(self, now_ns: int) -> None:
        """Take in that nodes are heard again, or can be."""
        self.found_ns = now_ns

    def was_lost_before(self, node: Node) -> bool:
        """Return whether the node was heard last before all were lost."""
        return node.heard_ns <= self._last_lost_ns

    def is_alone(self, node: Node) -> bool:
        """Return whether the node was told to be lost by itself, although all may have been lost before."""
        return node.id in self._alone

    def ended_all(self, last_ns: int) -> bool:
        """Return whether a run that was heard last at a moment ended in a loss of all that none survived."""
        return last_ns <= self._last_lost_ns and not self._has_survivor

    def has_stalled_all(self, node: Node, began_ns: int, until_ns: int) -> bool:
        """Return whether a node stood still from `began_ns` until a moment within a loss of all, or later.

        One that went on later than others is part of it, too, unless it was told to be lost by itself.
        """
        is_late = began_ns > self.found_ns or node.id in self._were_alone
        is_in_time = until_ns <= self.found_ns + REACH_NS + node.due_ns
        return self._lost_ns < until_ns and (is_in_time or not is_late)

    def was_lost_with_all(self, node: Node) -> bool:
        """Return whether the node was lost together with all others, and has not been heard since."""
        return self.was_lost_before(node) and node.heard_ns + node.all_lost_after_ns >= self._lost_ns

    def was_of_all(self, node: Node, failed_ns: int) -> bool:
        """Return whether the node failed in the last loss of all, or just before it: each shows late."""
        return not self.were_out_of_reach and self._lost_ns - node.due_ns <= failed_ns <= self.found_ns

    def may_be_reached(self, node: Node, now_ns: int) -> bool:
        """Return whether a node that was out of reach of the watch has time to be heard again."""
        return now_ns < self.found_ns + REACH_NS + node.stale_after_ns
