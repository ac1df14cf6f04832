"""The groups and sets of all nodes side by side: which differ, and what a node may have lost."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from engine.runtime.monitor import GroupView, NameSpaceView, NodeSnapshot
from ospltool.live.nodes import Node, natural

# Forty times what one snapshot shows (`engine.runtime.node_snapshot.MAX_GROUPS_SHOWN`).
MAX_GROUPS: Final = 20_000


class GroupKey(NamedTuple):
    """Identity of a group. Two types under one topic name are two groups."""

    name_space: str
    partition: str
    topic: str
    type_name: str

    @classmethod
    def from_view(cls, view: GroupView) -> GroupKey:
        """Return the key of one node's view of a group."""
        return cls(view.name_space, view.partition, view.topic, view.type_name)

    def __str__(self) -> str:
        return f"{self.partition}.{self.topic}"

    @property
    def id(self) -> str:
        """All parts in one text, as a key for rows of a table."""
        return "\0".join(self)


_LOST: Final = operator.attrgetter("lost")


class GroupIndex:
    """Each group with the view of every node that has it; `left_out` counts groups beyond the bound.

    It keeps where a group stands in what each node shows, which changes only with the keys of its groups.
    """

    def __init__(self) -> None:
        self._places: dict[GroupKey, dict[str, int]] = {}
        self._told: dict[str, list[tuple[str, str, str, str]]] = {}
        self._views: dict[str, tuple[GroupView, ...]] = {}
        self._order: list[GroupKey] | None = []
        self.left_out = 0

    def ordered(self) -> list[GroupKey]:
        """Return all groups by name-space, partition and topic, in natural order."""
        if self._order is None:
            # Kept until a group comes: screens ask for it at each tick.
            self._order = sorted(self._places, key=lambda key: tuple(map(natural, key)))
        return self._order

    def apply(self, snapshot: NodeSnapshot) -> None:
        """Take in the groups of a snapshot, and remove groups that the node no longer has."""
        told = [(one.name_space, one.partition, one.topic, one.type_name) for one in snapshot.groups]
        if told != self._told.get(snapshot.id):  # seldom
            self.forget(snapshot.id)
            self._told[snapshot.id] = told
            for place, key in enumerate(map(GroupKey._make, told)):
                if key in self._places or len(self._places) < MAX_GROUPS:
                    self._places.setdefault(key, {})[snapshot.id] = place
                else:
                    self.left_out += 1
        self._views[snapshot.id] = snapshot.groups

    def forget(self, node: str) -> None:
        """Remove all groups of a node."""
        self._views.pop(node, None)
        self._order = None
        for key in map(GroupKey._make, self._told.pop(node, ())):
            places = self._places.get(key, {})
            places.pop(node, None)
            if not places:
                self._places.pop(key, None)

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[GroupKey]:
        return iter(self._places)

    def views(self, key: GroupKey) -> dict[str, GroupView]:
        """Return the views of one group by node id; empty for an unknown group."""
        places = self._places.get(key, {})
        return {node: self._views[node][place] for node, place in places.items()}


# As `MAX_GROUPS`.
MAX_LOSSES: Final = 20_000


@dataclasses.dataclass(slots=True)
class Loss:
    """The samples of one group that one node lost: `count` in all, the last at `since_ns` or before.

    `is_repaired`: after the last loss the node's set was equal to the set of a node that lost none, or
    to the sets of all other nodes that have the group. `is_older`: the first snapshot that was heard told it.
    """

    count: int
    since_ns: int
    is_repaired: bool = False
    is_older: bool = False


class Losses:
    """The losses of all nodes. Losses beyond the bound count as not repaired."""

    def __init__(self) -> None:
        self._known: dict[GroupKey, dict[str, Loss]] = {}
        self._count = 0
        self._told_ns: dict[str, int] = {}

    def note_teller(self, node: str, time_ns: int) -> None:
        """Take in that a node told at a moment, by its clock, of losses a moment or at most a minute ago."""
        if node in self._told_ns or len(self._told_ns) < MAX_LOSSES:
            self._told_ns[node] = max(time_ns, self._told_ns.get(node, 0))

    def apply(
        self,
        snapshot: NodeSnapshot,
        heard_ns: int,
        groups: GroupIndex,
        was_heard: Callable[[str, int], bool],
        *,
        is_first: bool = False,
    ) -> None:
        """Take in a snapshot whose groups have been added to `groups`.

        Args:
            snapshot: of one node.
            heard_ns: when it was heard.
            groups: the groups of all nodes.
            was_heard: tells whether a node (id) was heard at a moment (ns) or later.
            is_first: whether no other snapshot of the node was heard before.
        """
        if not self._known and not any(map(_LOST, snapshot.groups)):  # nearly always
            return
        for view in snapshot.groups:
            if not view.lost and not self._known:
                continue
            key = GroupKey.from_view(view)
            if view.lost:
                self._note(key, snapshot.id, Loss(view.lost, heard_ns, is_older=is_first))
            for node, loss in self._known.get(key, {}).items():
                if not loss.is_repaired:
                    loss.is_repaired = self._is_repaired(node, loss, groups.views(key), was_heard)

    def unrepaired(self, snapshot: NodeSnapshot) -> tuple[int, int, bool]:
        """Return (samples, since when in ns, whether before that) of losses not known to be repaired.

        Those from before the watch are dated by what the node remembers, which may be late itself.
        """
        lost = 0
        since_ns = 0
        is_older = False
        for view in snapshot.groups:
            if not view.lost:
                continue
            known = self._known.get(GroupKey.from_view(view), {}).get(snapshot.id)
            if known is None or not known.is_repaired:
                lost += view.lost
                if known is not None and known.since_ns > since_ns:
                    since_ns, is_older = known.since_ns, known.is_older
        told_ns = self._told_ns.get(snapshot.id, 0) if is_older else 0
        return lost, min(since_ns, told_ns) if told_ns >= snapshot.started_ns else since_ns, is_older

    def _note(self, key: GroupKey, node: str, loss: Loss) -> None:
        losses = self._known.get(key, {})
        known = losses.get(node)
        if known is None and self._count >= MAX_LOSSES:
            return
        if known is None or known.count != loss.count:
            self._count += known is None
            losses[node] = loss
            self._known[key] = losses

    @staticmethod
    def _is_repaired(
        node: str, loss: Loss, views: dict[str, GroupView], was_heard: Callable[[str, int], bool]
    ) -> bool:
        if node not in views or not was_heard(node, loss.since_ns):
            return False
        others = [view for other, view in views.items() if other != node and was_heard(other, loss.since_ns)]
        return _is_given_back(views[node], others)


def _is_given_back(mine: GroupView, others: list[GroupView]) -> bool:
    equal = [view for view in others if (view.digest, view.samples) == (mine.digest, mine.samples)]
    return any(not view.lost for view in equal) or 0 < len(equal) == len(others)


# 1 s until samples settle, two heartbeats that differ, and the copying.
MENDING_NS: Final = 3_500_000_000
"""Ordinary time until a node has what it missed: samples settle first, then heartbeats are compared."""


def _followed_ns(node: Node, view: NameSpaceView) -> int:
    """Return since when a node has followed its master, by the feed's clock."""
    return node.heard_ns - node.snapshot.time_ns + view.master_since_ns if view.master_since_ns else 0


class SetComparison:
    """Compares what nodes hold.

    Args:
        nodes: all nodes, by id.
        groups: their groups.
    """

    def __init__(self, nodes: Mapping[str, Node], groups: GroupIndex) -> None:
        self._nodes = nodes
        self._groups = groups
        self._largest: dict[str, int] = {}

    def forget(self) -> None:
        """Count again: the nodes have changed."""
        self._largest.clear()

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
            # Nodes mostly have the same name-spaces: `max` over them all at once takes a quarter of the time.
            alike: dict[tuple[str, ...], list[list[int]]] = {}
            for node in self._nodes.values():
                counts = [view.count for view in node.name_spaces.values()]
                alike.setdefault(tuple(node.name_spaces), []).append(counts)
            for names, every in alike.items():
                for name, most in zip(names, map(max, zip(*every, strict=True)), strict=True):
                    found[name] = max(most, found.get(name, 0))
        return found

    def differing(self, node: Node) -> list[str]:
        """Return the name-spaces whose digest differs from the master's, without filtered ones."""
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
