"""Facts of the newest snapshot of each node, found once for all signs.

The signs that one snapshot shows (`signs.snapshots`) are among them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final, Generic, NamedTuple, TypeVar

from engine.core.name_spaces import MAX_PRIORITY, Durability
from engine.runtime.monitor import FellowView, GroupView, NameSpaceView, NodeSnapshot
from ospltool.health.codes import SECOND_NS, Sign
from ospltool.health.signs.snapshots import of_snapshot
from ospltool.live.nodes import Node

# Above what waits for a transaction of a busy store (`engine.runtime.store_queue.MAX_GATHERED`).
FAR_BEHIND: Final = 1_000
"""Persistent samples in memory only from which a name-space is not on the disk."""
# Several times the longest rest of a store (`engine.node.disk.HEAVY_S`).
STANDING_NS: Final = 3 * SECOND_NS
"""Time without progress of a disk after which the samples that wait for it are not on their way."""
MAX_SKEW_NS: Final = SECOND_NS
"""Tolerated difference between two clocks."""
PERSISTENT: Final = frozenset({"PERSISTENT", "Persistent"})
KEPT_ON_DISK: Final = frozenset({Durability.DURABLE.value, Durability.PERSISTENT.value, "PERSISTENT"})
"""Durabilities of a policy whose persistent samples are stored."""


class Waiting(NamedTuple):
    """Persistent samples of a name-space that are in memory only, by the node's clock."""

    samples: int
    progress: tuple[tuple[int, str], ...]
    """What changes while the disk takes samples."""
    since_ns: int
    """Since when it has not changed."""


_T = TypeVar("_T")


class SnapshotFacts(NamedTuple):
    """Facts from one snapshot.

    Attributes:
        snapshot: that one.
        signs: signs about the node's own data.
        waiting: name-spaces with samples that wait for the disk, and since when it has taken none.
        off_disk: name-spaces that are not on the disk, beyond what is on the way to it, also by their policy.
        refused: fellows with incompatible definitions.
        skewed: fellows whose clock seems to differ by more than half of MAX_SKEW_NS.
        unusual: name-spaces that are not complete, have no master, or come from parts; by name.
        mastered: name-spaces whose master the node says to be.
        legacy: name-spaces with masterPriority 255, the legacy rule.
        is_less_than_whole: whether a set may permanently lack samples.
    """

    snapshot: NodeSnapshot
    signs: tuple[Sign, ...]
    waiting: Mapping[str, Waiting]
    off_disk: frozenset[str]
    refused: tuple[FellowView, ...]
    skewed: tuple[FellowView, ...]
    unusual: Mapping[str, NameSpaceView]
    mastered: tuple[str, ...]
    legacy: frozenset[str]
    is_less_than_whole: bool


class Memo(Generic[_T]):
    """A value that is made again only if what it is made of is another.

    Both of which there is one look at all nodes, at 200 of them a quarter of an examination.
    """

    def __init__(self, nothing: _T) -> None:
        self._parts: list[Any] = []
        self._value = nothing

    def value_of(self, parts: list[Any], make: Callable[[], _T]) -> _T:
        """Return the value of these parts, which never change: mostly they are the same objects as before."""
        if parts != self._parts:
            self._parts, self._value = parts, make()
        return self._value


class FactCache:
    """Facts from the newest snapshot of each node, and the most that others held since a node was lost.

    Attributes:
        deaf: pairs of nodes of which one did not meet the other, each with those that did not.
        doubtful: (name-space, role) that nodes define differently.
    """

    def __init__(self) -> None:
        self.deaf: Memo[dict[tuple[str, str], list[str]]] = Memo({})
        self.doubtful: Memo[set[tuple[str, str]]] = Memo(set())
        self._known: dict[str, SnapshotFacts] = {}
        self._most: dict[tuple[str, str], tuple[int, int]] = {}

    def facts_of(self, node: Node) -> SnapshotFacts:
        """Return the facts from a node's newest snapshot."""
        known, snapshot = self._known.get(node.id), node.snapshot
        if known is None or known.snapshot is not snapshot:
            is_same_run = known is not None and known.snapshot.started_ns == snapshot.started_ns
            known = self._known[node.id] = _facts(node, known.waiting if known and is_same_run else {})
        return known

    def most(self, node: Node, name_space: str, count: int) -> int:
        """Return the most samples of a name-space that others had at once since a node was lost.

        What applications dispose and nodes purge after that was not lost with it. `count` is the most now.
        """
        lost_ns, before = self._most.get((node.id, name_space), (0, 0))
        most = max(count, before) if lost_ns == node.heard_ns else count
        self._most[node.id, name_space] = node.heard_ns, most
        return most

    def forget_others(self, nodes: Collection[str]) -> None:
        """Forget all nodes but these."""
        self._known = {node: one for node, one in self._known.items() if node in nodes}
        self._most = {key: one for key, one in self._most.items() if key[0] in nodes}


def _facts(node: Node, before: Mapping[str, Waiting]) -> SnapshotFacts:
    snapshot, spaces = node.snapshot, node.snapshot.name_spaces
    waiting = _waiting(snapshot, before)
    unusual = {view.name: view for view in spaces if not (view.complete and view.master) or view.from_parts}
    fellows, bound_ns = snapshot.fellows, MAX_SKEW_NS // 2
    is_any_refused = "incompatible" in node.fellows.ways  # of many fellows nearly always none is
    is_any_skewed = node.fellows.skew_ns > bound_ns
    return SnapshotFacts(
        snapshot,
        signs=tuple(of_snapshot(snapshot)),
        waiting=waiting,
        off_disk=frozenset(_off_disk(snapshot, waiting)),
        refused=tuple([one for one in fellows if one.communication == "incompatible"])
        if is_any_refused
        else (),
        skewed=tuple([one for one in fellows if abs(one.skew_ns) > bound_ns]) if is_any_skewed else (),
        unusual=unusual,
        mastered=tuple(dict.fromkeys(view.name for view in spaces if view.master == snapshot.id)),
        legacy=frozenset(
            [view.name for view in spaces if view.master_priority == MAX_PRIORITY and view.aligner]
        ),
        is_less_than_whole=any(view.is_less_than_whole for view in unusual.values()),
    )


def _waiting(snapshot: NodeSnapshot, before: Mapping[str, Waiting]) -> Mapping[str, Waiting]:
    """Return the name-spaces of which samples wait for the disk, judged by the shown groups.

    While samples overwrite others, all but the newest seem to be stored: then a new digest is progress, too.
    """
    late: dict[str, list[GroupView]] = {}
    for group in snapshot.groups:
        if group.stored < group.samples and group.durability in PERSISTENT:
            late.setdefault(group.name_space, []).append(group)
    found = {}
    for name, groups in late.items():
        progress = tuple((one.stored, one.digest if one.stored == one.samples - 1 else "") for one in groups)
        known = before.get(name)
        since_ns = known.since_ns if known and known.progress == progress else snapshot.time_ns
        found[name] = Waiting(sum(one.samples - one.stored for one in groups), progress, since_ns)
    return found


def _off_disk(snapshot: NodeSnapshot, waiting: Mapping[str, Waiting]) -> Iterator[str]:
    """Yield the name-spaces that are in memory only, fail, are far behind, or of which nothing is written."""
    is_none_kept = snapshot.store.kind == "memory" or snapshot.store.problem
    for view in snapshot.name_spaces:
        if is_none_kept or view.durability not in KEPT_ON_DISK:
            yield view.name
    for name, one in waiting.items():
        if one.samples >= FAR_BEHIND or snapshot.time_ns - one.since_ns >= STANDING_NS:
            yield name
