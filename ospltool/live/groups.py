"""The groups of all nodes side by side, and samples that a node may have lost."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from engine.runtime.monitor import GroupView, NodeSnapshot
from ospltool.live.nodes import natural

MAX_GROUPS: Final = 20_000


class GroupKey(NamedTuple):
    """Identity of a group. Two types under one topic name are two groups."""

    name_space: str
    partition: str
    topic: str
    type_name: str

    @classmethod
    def of(cls, view: GroupView) -> GroupKey:
        """Return the key of one node's view of a group."""
        return cls(view.name_space, view.partition, view.topic, view.type_name)

    def __str__(self) -> str:
        return f"{self.partition}.{self.topic}"

    @property
    def id(self) -> str:
        """All parts in one text, as a key for rows of a table."""
        return "\0".join(self)


_LOST: Final = operator.attrgetter("lost")


class _Shown(NamedTuple):
    """What a node shows: the keys of its groups, and whether all have a place."""

    keys: list[GroupKey]
    is_whole: bool


_NOTHING: Final = _Shown([], True)


class GroupIndex:
    """Each group with the view of every node that has it. `left_out` counts groups beyond the bound.

    It keeps where a group stands in what each node shows, which changes only with the keys of its groups.
    """

    def __init__(self) -> None:
        self._places: dict[GroupKey, dict[str, int]] = {}
        self._of_node: dict[str, _Shown] = {}
        self._views: dict[str, tuple[GroupView, ...]] = {}
        self._order: list[GroupKey] | None = []
        self.left_out = 0

    def ordered(self) -> list[GroupKey]:
        """Return all groups by name-space, partition and topic, in natural order."""
        if self._order is None:
            self._order = sorted(self._places, key=lambda key: tuple(map(natural, key)))
        return self._order

    def apply(self, snapshot: NodeSnapshot) -> None:
        """Take in the groups of a snapshot, and remove groups that the node no longer has."""
        before = self._of_node.get(snapshot.id, _NOTHING)
        told = [(one.name_space, one.partition, one.topic, one.type_name) for one in snapshot.groups]
        self._views[snapshot.id] = snapshot.groups
        if told == before.keys and before.is_whole:  # nearly always: then every group has its place
            return
        keys = [*map(GroupKey._make, told)]
        for key in {*before.keys} - {*keys}:
            self._remove(key, snapshot.id)
        left_out = self.left_out
        for place, key in enumerate(keys):
            places = self._places.get(key)
            if places is not None:
                places[snapshot.id] = place
            elif len(self._places) < MAX_GROUPS:
                self._places[key] = {snapshot.id: place}
                self._order = None
            else:
                self.left_out += 1
        self._of_node[snapshot.id] = _Shown(keys, left_out == self.left_out)

    def forget(self, node: str) -> None:
        """Remove all groups of a node."""
        self._views.pop(node, None)
        for key in self._of_node.pop(node, _NOTHING).keys:
            self._remove(key, node)

    def _remove(self, key: GroupKey, node: str) -> None:
        places = self._places.get(key)
        if places is not None:
            places.pop(node, None)
            if not places:
                del self._places[key]
                self._order = None

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[GroupKey]:
        return iter(self._places)

    def views(self, key: GroupKey) -> dict[str, GroupView]:
        """Return the views of one group by node id; empty for an unknown group."""
        places = self._places.get(key, {})
        return {node: self._views[node][place] for node, place in places.items()}


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

    def tell(self, node: str, time_ns: int) -> None:
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
            key = GroupKey.of(view)
            if view.lost:
                self._note(key, snapshot.id, Loss(view.lost, heard_ns, is_older=is_first))
            for node, loss in self._known.get(key, {}).items():
                if not loss.is_repaired:
                    loss.is_repaired = self._is_repaired(node, loss, groups.views(key), was_heard)

    def of(self, snapshot: NodeSnapshot) -> tuple[int, int, bool]:
        """Return (samples, since when in ns, whether before that) of losses not known to be repaired.

        Those from before the watch are dated by what the node remembers, which may be late itself.
        """
        lost = 0
        since_ns = 0
        is_older = False
        for view in snapshot.groups:
            if not view.lost:
                continue
            known = self._known.get(GroupKey.of(view), {}).get(snapshot.id)
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
