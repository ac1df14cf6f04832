"""The groups of all nodes side by side."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from engine.runtime.monitor import GroupView, NodeSnapshot
from ospltool.live.names import natural

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


class GroupIndex:
    """Each group with the view of every node that has it. `left_out` counts groups beyond the bound."""

    def __init__(self) -> None:
        self._views: dict[GroupKey, dict[str, GroupView]] = {}
        self._of_node: dict[str, tuple[tuple[GroupView, ...], dict[GroupKey, GroupView]]] = {}
        self._order: list[GroupKey] | None = []
        self.left_out = 0

    def ordered(self) -> list[GroupKey]:
        """Return all groups by name-space, partition and topic, in natural order."""
        if self._order is None:
            self._order = sorted(self._views, key=lambda key: tuple(map(natural, key)))
        return self._order

    def apply(self, snapshot: NodeSnapshot) -> None:
        """Take in the groups of a snapshot, and remove groups that the node no longer has."""
        shown, before = self._of_node.get(snapshot.id, ((), {}))
        if shown == snapshot.groups:
            return
        now = {GroupKey.of(view): view for view in snapshot.groups}
        self._of_node[snapshot.id] = snapshot.groups, now
        for key in before.keys() - now.keys():
            self._remove(key, snapshot.id)
        for key, view in now.items():
            views = self._views.get(key)
            if views is not None:
                views[snapshot.id] = view
            elif len(self._views) < MAX_GROUPS:
                self._views[key] = {snapshot.id: view}
                self._order = None
            else:
                self.left_out += 1

    def _remove(self, key: GroupKey, node: str) -> None:
        views = self._views.get(key)
        if views is not None:
            views.pop(node, None)
            if not views:
                del self._views[key]
                self._order = None

    def __len__(self) -> int:
        return len(self._views)

    def __iter__(self) -> Iterator[GroupKey]:
        return iter(self._views)

    def views(self, key: GroupKey) -> dict[str, GroupView]:
        """Return the views of one group by node id; empty for an unknown group."""
        return self._views.get(key, {})
