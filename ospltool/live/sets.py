"""The sets of all nodes side by side: the largest ones, and those that differ from their master's."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Final

from engine.runtime.monitor import NameSpaceView
from ospltool.live.groups import GroupIndex, GroupKey
from ospltool.live.nodes import Node

MENDING_NS: Final = 3_500_000_000
"""Ordinary time until a node has what it missed: samples settle first, then heartbeats are compared."""

_FOLLOWED: Final = operator.attrgetter("name", "master")


def _followed_ns(node: Node, view: NameSpaceView) -> int:
    """Return since when a node has followed its master, by the feed's clock."""
    return node.heard_ns - node.snapshot.time_ns + view.master_since_ns if view.master_since_ns else 0


class SetComparison:
    """Compares what nodes hold. What it has found is kept until the nodes change.

    Args:
        nodes: all nodes, by id.
        groups: their groups.
    """

    def __init__(self, nodes: Mapping[str, Node], groups: GroupIndex) -> None:
        self._nodes = nodes
        self._groups = groups
        self._largest: dict[str, int] = {}
        self._followed: dict[tuple[tuple[str, str], ...], tuple[str | None, ...]] = {}
        self._follows: dict[str, tuple[tuple[object, ...], tuple[tuple[str, str], ...]]] = {}

    def forget(self) -> None:
        """Compare again: the nodes have changed."""
        self._largest.clear()
        self._followed.clear()
        if len(self._follows) > len(self._nodes):
            self._follows = {node: one for node, one in self._follows.items() if node in self._nodes}

    def share_held(self, node: Node, name_space: str) -> float:
        """Return the share of a name-space that a node holds (0 to 1), compared with the largest set."""
        mine = node.name_spaces[name_space].count
        if not mine:
            return 0.0
        return min(1.0, mine / self.largest()[name_space])

    def largest(self) -> Mapping[str, int]:
        """Return the number of samples in the largest set of each name-space."""
        found = self._largest
        if not found:
            alike: dict[tuple[str, ...], list[tuple[int, ...]]] = {}
            for node in self._nodes.values():
                alike.setdefault(tuple(node.name_spaces), []).append(node.counts)
            for names, each in alike.items():
                for name, count in zip(names, map(max, zip(*each, strict=True)), strict=True):
                    found[name] = max(count, found.get(name, 0))
        return found

    def differing(self, node: Node) -> list[str]:
        """Return the name-spaces whose digest differs from the master's, without filtered ones."""
        if node.sets == self._sets_of_masters(node):  # nearly always
            return []
        found = []
        nodes = self._nodes
        for name, view in node.name_spaces.items():
            master = nodes.get(view.master)
            theirs = master.digests.get(name) if master else None
            if theirs is None or theirs[0] == view.digest or view.filtered:
                continue
            if master is not None and not master.name_spaces[name].filtered:
                found.append(name)
        return found

    def _sets_of_masters(self, node: Node) -> tuple[str | None, ...]:
        """Return the digest of each name-space as its master has it, once for all nodes that agree."""
        followed = self._masters_of(node)
        found = self._followed.get(followed)
        if found is None:
            masters = [(name, self._nodes.get(master)) for name, master in followed]
            theirs = [master.digests.get(name) if master else None for name, master in masters]
            found = self._followed[followed] = tuple([one[0] if one else None for one in theirs])
        return found

    def _masters_of(self, node: Node) -> tuple[tuple[str, str], ...]:
        """Return (name-space, master) of all that a node has, which its outline tells, too."""
        around, followed = self._follows.get(node.id, (None, ()))
        if around is not node.outline:
            followed = tuple(map(_FOLLOWED, node.snapshot.name_spaces))
            self._follows[node.id] = node.outline, followed
        return followed

    def differs_since(self, node: Node, name_space: str, now_ns: int) -> int:
        """Return since when the node's settled set differs from its master's; 0 if it does not.

        Snapshots of two nodes are never taken at the same instant, so sets that are being written always
        seem to differ. Only sets that both stand still for longer than snapshots take can be compared, and
        only if both nodes have said so since: one that is busy may have changed its set, and not told it yet.
        A node that lacks samples also has the time in which it gets them from its master.
        """
        view = node.name_spaces[name_space]
        master = self._nodes.get(view.master)
        theirs = master.name_spaces.get(name_space) if master else None
        if master is None or theirs is None or master.id == node.id or view.filtered or theirs.filtered:
            return 0
        if node.gone_ns or master.gone_ns:
            return 0
        if not (view.complete and theirs.complete) or view.digest == theirs.digest:
            return 0
        since_ns = max(node.digests[name_space][1], master.digests[name_space][1])
        patience_ns = max(node.stale_after_ns, master.stale_after_ns, MENDING_NS)
        said_ns = min(now_ns, node.heard_ns, master.heard_ns)
        if view.alignments or said_ns - max(since_ns, _followed_ns(node, view)) < patience_ns:
            return 0
        return since_ns

    def differing_in(self, group: GroupKey, now_ns: int) -> list[str]:
        """Return the nodes whose settled set of this group differs from their master's."""
        views = self._groups.views(group)
        found = []
        for node_id, mine in views.items():
            node = self._nodes.get(node_id)
            space = node.name_spaces.get(group.name_space) if node else None
            if node is None or space is None or node.gone_ns:
                continue
            theirs = views.get(space.master)
            if theirs is None or theirs.digest == mine.digest:
                continue
            if self.differs_since(node, group.name_space, now_ns):
                found.append(node_id)
        return found
