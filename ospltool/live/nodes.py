"""The newest state of one node, and the order of nodes' names."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from engine.runtime.monitor import FellowView, NameSpaceView, NodeSnapshot

# A snapshot comes each second; a node with shorter heartbeats must not count as silent between two.
MIN_STALE_NS: Final = 2_000_000_000


def outline(snapshot: NodeSnapshot, aligning: tuple[NameSpaceView, ...]) -> tuple[object, ...]:
    """Return what the name-spaces of a snapshot are, and which are aligned, but not how much they hold.

    It stays equal while a node only writes: what depends on nothing else need not be looked at again.
    """
    names = tuple([view.name for view in aligning])
    spaces = [  # by far quicker than `operator.attrgetter`, and each message of each node is looked at so
        (
            one.name, one.elements, one.aligner, one.alignee, one.durability, one.master_priority, one.merges,
            one.phase, one.complete, one.master, one.confirmed, one.epoch, one.why, one.merge_id,
            one.master_since_ns, one.from_parts, one.is_learned, one.filtered, one.backup, one.backup_ns,
        )
        for one in snapshot.name_spaces
    ]  # fmt: skip
    return snapshot.role, names, tuple(spaces)


class Fellows:
    """What a snapshot tells of the node's fellows. In a large system each has all others, mostly unchanged.

    Args:
        views: the fellows of a snapshot.
        before: those of the snapshot before it.

    Attributes:
        places: where each fellow stands, by id; the same object as before if the same fellows are there.
        communications: of each in turn; the same object as before if the same fellows communicate as before.
        ways: the different ones of those.
        met: ids of those that have introduced themselves: the node communicates with them, or knows why not.
        skew_ns: the largest difference of a clock, in either direction.
    """

    __slots__ = ("_ids", "_views", "communications", "met", "places", "skew_ns", "ways")

    def __init__(self, views: Sequence[FellowView] = (), before: Fellows | None = None) -> None:
        self._views = views
        self.places: Mapping[str, int] = {}
        self.communications: Sequence[str] = ()
        self.ways: frozenset[str] = frozenset()
        self.met: frozenset[str] = frozenset()
        self._ids: Sequence[str] = [one.id for one in views]
        self.communications = [one.communication for one in views]
        self.skew_ns: int = max(map(abs, {one.skew_ns for one in views}), default=0)
        if before is not None and before._ids == self._ids:
            self._ids = before._ids
            self.places = before.places
            if before.communications == self.communications:
                self.communications, self.ways, self.met = before.communications, before.ways, before.met
                return
        else:
            self.places = {fellow: place for place, fellow in enumerate(self._ids)}
        self.ways = frozenset(self.communications)
        self.met = frozenset([one.id for one in views if one.communication not in ("waiting", "lost")])

    def heartbeat_ns(self, fellow: str) -> int:
        """Return when the last heartbeat of a fellow (id) came, by the node's clock; 0 if none did."""
        place = self.places.get(fellow)
        return 0 if place is None else self._views[place].last_heartbeat_ns


@dataclasses.dataclass(frozen=True, slots=True)
class Node:
    """One node: its newest snapshot, and facts from it."""

    snapshot: NodeSnapshot
    """Newest snapshot."""
    heard_ns: int
    """When it was heard, by the feed's clock."""
    came_ns: int = 0
    """When this run of it was heard first, by the feed's clock."""
    moved_ns: int = 0
    """When it was heard first in its state without a break since then, by the feed's clock."""
    gone_ns: int = 0
    """When the node left; 0 while it is present."""
    in_order: bool = False
    """Whether the node had announced its end, which somebody had asked for."""
    lost_supervisor: bool = False
    """Whether its supervisor was lost: then it ends by itself, and that is no planned stop."""
    name_spaces: Mapping[str, NameSpaceView] = dataclasses.field(default_factory=dict)
    """Its name-spaces by name."""
    digests: Mapping[str, tuple[str, int]] = dataclasses.field(default_factory=dict)
    """(digest, when it was first heard) by name-space."""
    aligning: tuple[NameSpaceView, ...] = ()
    """Name-spaces with a running alignment."""
    fellows: Fellows = dataclasses.field(default_factory=Fellows, compare=False)
    """What the snapshot tells of its fellows."""
    is_settled: bool = False
    """Whether it is complete and no name-space waits for anything."""
    outline: tuple[object, ...] = ()
    """What its name-spaces are, without how much they hold; the same object as long as that is equal."""

    @property
    def id(self) -> str:
        """The node's 128-bit id as text."""
        return self.snapshot.id

    @property
    def ahead_ns(self) -> int:
        """By how much its clock is ahead of the feed's; 0 for less than what a message may take."""
        ahead_ns = self.snapshot.time_ns - self.heard_ns
        return ahead_ns if abs(ahead_ns) > MIN_STALE_NS else 0

    @property
    def stale_after_ns(self) -> int:
        """The longest normal time without a snapshot: two update periods, two seconds at least."""
        after_ns = 2 * self.snapshot.update_period_ns
        return max(MIN_STALE_NS, after_ns)

    @property
    def due_ns(self) -> int:
        """The time after its last snapshot when the next one is overdue."""
        return self.snapshot.update_period_ns * 5 // 4

    @property
    def overdue_ns(self) -> int:
        """When its next snapshot is overdue, by the feed's clock."""
        return self.heard_ns + self.due_ns

    @property
    def all_lost_after_ns(self) -> int:
        """The time without a snapshot of any node, this one being the last, after which all are lost."""
        return self.stale_after_ns * 3 // 2

    def age_ns(self, now_ns: int) -> int:
        """Return the time since the node was heard."""
        return max(0, now_ns - self.heard_ns)


_DIGITS: Final = re.compile(r"([0-9]+)")


def natural(name: str) -> tuple[tuple[int, str], ...]:
    """Return a sort key that puts n2 before n10."""
    parts = _DIGITS.split(name)
    return tuple(
        (len(part.lstrip("0")), part.lstrip("0")) if i % 2 else (0, part) for i, part in enumerate(parts)
    )


def replaces(present: Node, gone: Node, there: Collection[Node]) -> bool:
    """Return whether a node is the one that has left, under a new identity, as after losing its store.

    A node that was heard beside it is another one, of the same name. One that says so of itself alone may be
    anybody: of the other nodes that are there, one must communicate with it.
    """
    old, new = gone.snapshot, present.snapshot
    is_namesake = (new.name, new.domain_id) == (old.name, old.domain_id)
    if not is_namesake or present.id == gone.id or present.came_ns <= gone.heard_ns:
        return False
    others = [one for one in there if one.id != present.id]
    return not others or any(present.id in one.fellows.met for one in others)
