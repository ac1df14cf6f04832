"""The system as the snapshots and events so far describe it. Pure: time comes in with the updates."""

from __future__ import annotations

import collections
import dataclasses
import enum
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from engine.runtime.monitor import NameSpaceView, NodeEvent, NodeSnapshot
from ospltool.live.complaints import Concern, complaints
from ospltool.live.conflicts import ConflictLog
from ospltool.live.feed import ENDING, Heard, Notice, NoticeKind, Update
from ospltool.live.groups import GroupIndex, GroupKey
from ospltool.live.losses import Losses
from ospltool.live.names import natural
from ospltool.live.persistence import PersistenceServices
from ospltool.live.progress import Progress, Tracker
from ospltool.live.series import NodeSeries

MAX_NODES: Final = 1_000
MAX_EVENTS: Final = 10_000
EVENTS_SLACK: Final = 1_000
"""So many more are kept before the oldest are dropped all at once, which is cheaper than one by one."""

MAX_NOTICES: Final = 500
MAX_MASTERSHIPS: Final = 50
"""Former masters kept for each name-space and role; the oldest are forgotten."""

MIN_STALE_NS: Final = 2_000_000_000

JITTER_NS: Final = 1_000_000_000
"""By so much one moment may differ from snapshot to snapshot: they take different times to arrive."""


class Presence(enum.StrEnum):
    """Whether a node can be heard; the value is the word that people read.

    SILENT: nothing was heard for too long. STOPPED: it has ended in order. GONE: it went without a word.
    """

    HEARD = "heard"
    SILENT = "silent"
    STOPPED = "stopped"
    GONE = "gone"


@dataclasses.dataclass(frozen=True, slots=True)
class Node:
    """The newest snapshot of one node, when it was heard, and since when it is gone (0: it is there).

    `in_order` says that it told that it ends before it went.
    `digests` maps a name-space to its digest and since when that digest is unchanged; `aligning` are the
    name-spaces with a running alignment, `complaints` what the snapshot alone shows to be abnormal.
    """

    snapshot: NodeSnapshot
    heard_ns: int
    gone_ns: int = 0
    in_order: bool = False
    name_spaces: Mapping[str, NameSpaceView] = dataclasses.field(default_factory=dict)
    digests: Mapping[str, tuple[str, int]] = dataclasses.field(default_factory=dict)
    aligning: tuple[NameSpaceView, ...] = ()
    complaints: tuple[Concern, ...] = ()

    @property
    def id(self) -> str:
        """The node's 128-bit id as text."""
        return self.snapshot.id

    @property
    def stale_after_ns(self) -> int:
        """How long without a snapshot is still normal: two update periods, two seconds at least."""
        return max(2 * self.snapshot.update_period_ns, MIN_STALE_NS)

    def age_ns(self, now_ns: int) -> int:
        """Time since the node was heard."""
        return max(0, now_ns - self.heard_ns)

    def is_stale(self, now_ns: int) -> bool:
        """What is shown of the node may be out of date."""
        return self.presence(now_ns) is not Presence.HEARD

    def presence(self, now_ns: int) -> Presence:
        """Whether the node can be heard."""
        if self.gone_ns:
            return Presence.STOPPED if self.in_order else Presence.GONE
        return Presence.SILENT if self.age_ns(now_ns) > self.stale_after_ns else Presence.HEARD

    def shown_state(self, now_ns: int) -> str:
        """How the node is, in one word: its own state while it is heard, else what became of it."""
        presence = self.presence(now_ns)
        return self.snapshot.state if presence is Presence.HEARD else presence.value


def _is_repeated(before: Node | None, snapshot: NodeSnapshot) -> bool:
    """Whether a recording says again how a node was that had ended in order."""
    return before is not None and before.in_order and snapshot.time_ns <= before.snapshot.time_ns


@dataclasses.dataclass(frozen=True, slots=True)
class Mastership:
    """From when on a node was master of a name-space for a role, and why, in the words of a node.

    `since_ns` is by the clock of the feed. Without `is_exact` no node says since when: then it is when the
    mastership was first heard of, and began earlier.
    """

    since_ns: int
    name_space: str
    role: str
    master: str
    confirmed: bool
    epoch: str
    why: str
    is_exact: bool = False


class Claim(NamedTuple):
    """Which master a node confirms, and since when it was heard to."""

    master: str
    since_ns: int


class SystemModel:
    """What is known of all nodes and persistence services.

    Every collection in it is bounded; `left_out` counts what was not kept.
    """

    def __init__(self) -> None:
        self.revision = 0
        self._forget()

    def _forget(self) -> None:
        """Begin again, but keep counting revisions, so that nobody takes the new state for the old."""
        self.nodes: dict[str, Node] = {}
        self.events: list[NodeEvent] = []
        self.groups = GroupIndex()
        self.conflicts = ConflictLog()
        self.persistence = PersistenceServices()
        self.series: dict[str, NodeSeries] = {}
        self.notices: collections.deque[Notice] = collections.deque(maxlen=MAX_NOTICES)
        self.masterships: dict[tuple[str, str], collections.deque[Mastership]] = {}
        self.caption = ""
        self.domain_lost_ns = 0
        self.ended_ns = 0
        self.dropped = 0
        self.nodes_left_out = 0
        self.events_seen = 0
        self.losses = Losses()
        self._largest: dict[str, int] = {}
        self._heartbeats: dict[str, dict[str, int]] = {}
        self._claims: dict[tuple[str, str], dict[str, Claim]] = {}
        self._ordered_names: dict[str, str] = {}
        self._order: list[str] = []
        self._name_spaces: set[str] = set()
        self._name_space_order: list[str] = []
        self._trackers: dict[tuple[str, str, str, str], Tracker] = {}

    @property
    def events_left_out(self) -> int:
        """Events that were seen and are no longer kept."""
        return self.events_seen - len(self.events)

    @property
    def messages_left_out(self) -> int:
        """What did not fit into a bound, of the feed or of this model."""
        return self.dropped + self.nodes_left_out + self.persistence.left_out

    @property
    def is_empty(self) -> bool:
        """Nobody was heard."""
        return not self.nodes and not self.persistence

    def apply(self, update: Update, now_ns: int) -> None:
        """Take in what a feed returned at `now_ns`."""
        if update.restart:
            self._forget()
        for heard in update.snapshots:
            self._apply_snapshot(heard)
        for instance in update.instances:
            self.persistence.apply(instance)
        for notice in update.notices:
            self._apply_notice(notice, now_ns)
        if update.events:
            self._apply_events(update.events)
        if update.caption is not None:
            self.caption = update.caption
        self.dropped = max(self.dropped, update.dropped)
        if update:
            self.revision += 1
            self._largest.clear()

    def name_of(self, node_id: str) -> str:
        """The name people know the node by; the beginning of the id when it was never heard."""
        if not node_id:
            return "nobody"
        node = self.nodes.get(node_id)
        return node.snapshot.name if node else node_id[:8]

    def ordered_nodes(self) -> list[Node]:
        """All nodes by name, then id: an order that does not jump."""
        names = {node.id: node.snapshot.name for node in self.nodes.values()}
        if names != self._ordered_names:
            self._ordered_names = names
            self._order = sorted(names, key=lambda node_id: (natural(names[node_id]), node_id))
        return [self.nodes[node_id] for node_id in self._order]

    def name_space_names(self) -> list[str]:
        """The name-spaces that any node has, sorted."""
        names: set[str] = set()
        for node in self.nodes.values():
            names.update(node.name_spaces)
        if names != self._name_spaces:
            self._name_spaces = names
            self._name_space_order = sorted(names, key=natural)
        return self._name_space_order

    def holders(self, name_space: str) -> list[Node]:
        """The nodes that have the name-space, in the order of `ordered_nodes`."""
        return [node for node in self.ordered_nodes() if name_space in node.name_spaces]

    def progress(self, node: Node) -> Iterator[tuple[NameSpaceView, Progress]]:
        """The alignments that `node` reports, each with its rate."""
        for view in node.aligning:
            for alignment in view.alignments:
                key = (node.id, view.name, alignment.fellow, alignment.direction)
                yield view, self._trackers[key].progress()

    def heartbeat_ns(self, node: Node) -> int:
        """When a fellow last had a heartbeat of `node`, by the feed's clock.

        Without a fellow that tells it is when we heard of the node. Clock differences between hosts cancel
        out: the fellow's own clock tells how old the heartbeat was when the fellow reported it.
        """
        told = [
            heartbeat_ns
            for teller, heartbeat_ns in self._heartbeats.get(node.id, {}).items()
            if teller in self.nodes and not self.nodes[teller].gone_ns
        ]
        return max(told) if told else node.heard_ns

    def is_master(self, node: Node, name_space: str, now_ns: int) -> bool:
        """Whether the node is the master of a name-space, as far as can be told at `now_ns`.

        What a node said of itself holds as long as it is heard. A silent one counts as master while no node
        of its role that is heard follows another; one that is gone is the master of nothing.
        """
        view = node.name_spaces.get(name_space)
        presence = node.presence(now_ns)
        if view is None or view.master != node.id or presence in (Presence.GONE, Presence.STOPPED):
            return False
        if presence is Presence.HEARD:
            return True
        claims = self._claims.get((name_space, node.snapshot.role), {})
        return all(
            claim.master == node.id or self.nodes[teller].is_stale(now_ns) for teller, claim in claims.items()
        )

    def share_held(self, node: Node, name_space: str) -> float:
        """How much of a name-space a node holds (0 to 1): its samples against the most that any node has."""
        mine = node.name_spaces[name_space].count
        if not mine:
            return 0.0
        if not self._largest:
            for other in self.nodes.values():
                for view in other.snapshot.name_spaces:
                    self._largest[view.name] = max(view.count, self._largest.get(view.name, 0))
        return mine / self._largest[name_space]

    def history(self, node_id: str, name_space: str, fellow: str, direction: str) -> list[tuple[int, int]]:
        """(time in ns, samples) points of a running alignment; empty when there is none."""
        tracker = self._trackers.get((node_id, name_space, fellow, direction))
        return tracker.history() if tracker else []

    def differing(self, node: Node) -> list[str]:
        """The name-spaces whose digest is not the one that their master has now."""
        found = []
        nodes = self.nodes
        for name, view in node.name_spaces.items():
            master = nodes.get(view.master)
            if master is None or master is node:
                continue
            theirs = master.digests.get(name)
            if theirs is not None and theirs[0] != view.digest:
                found.append(name)
        return found

    def differs_since(self, node: Node, name_space: str, now_ns: int) -> int:
        """Since when the node's set is settled and still another than its master's; 0 when it is not.

        Snapshots of two nodes are never taken at the same instant, so sets that are being written always
        seem to differ. Only sets that both stand still for longer than snapshots take can be compared.
        """
        view = node.name_spaces[name_space]
        master = self.nodes.get(view.master)
        theirs = master.name_spaces.get(name_space) if master else None
        if master is None or theirs is None or master.id == node.id:
            return 0
        if not (view.complete and theirs.complete) or view.digest == theirs.digest:
            return 0
        since_ns = max(node.digests[name_space][1], master.digests[name_space][1])
        patience_ns = max(node.stale_after_ns, master.stale_after_ns)
        return since_ns if now_ns - since_ns > patience_ns else 0

    def differing_in(self, group: GroupKey, now_ns: int) -> list[str]:
        """The nodes whose set of this group is settled and another than that of their master."""
        views = self.groups.views(group)
        found = []
        for node_id, mine in views.items():
            node = self.nodes.get(node_id)
            space = node.name_spaces.get(group.name_space) if node else None
            if node is None or space is None or node.gone_ns:
                continue
            theirs = views.get(space.master)
            if theirs is None or theirs.digest == mine.digest:
                continue
            if self.differs_since(node, group.name_space, now_ns):
                found.append(node_id)
        return found

    def _apply_snapshot(self, heard: Heard) -> None:
        snapshot = heard.snapshot
        before = self.nodes.get(snapshot.id)
        if before is None and len(self.nodes) >= MAX_NODES:
            self.nodes_left_out += 1
            return
        old = before.digests if before else {}
        digests = {}
        for view in snapshot.name_spaces:
            known = old.get(view.name)
            same = known is not None and known[0] == view.digest
            digests[view.name] = known if same and known else (view.digest, heard.heard_ns)
            self._note_master(snapshot, view, heard)
        name_spaces = {view.name: view for view in snapshot.name_spaces}
        aligning = tuple(view for view in snapshot.name_spaces if view.alignments)
        self.nodes[snapshot.id] = Node(
            snapshot,
            heard.heard_ns,
            in_order=snapshot.state in ENDING or _is_repeated(before, snapshot),
            name_spaces=name_spaces,
            digests=digests,
            aligning=aligning,
            complaints=tuple(complaints(snapshot)),
        )
        for fellow in snapshot.fellows:
            if fellow.last_heartbeat_ns:
                age_ns = max(0, snapshot.time_ns - fellow.last_heartbeat_ns)
                self._heartbeats.setdefault(fellow.id, {})[snapshot.id] = heard.heard_ns - age_ns
                self._series_of(fellow.id).add_heartbeat(
                    snapshot.id, fellow.last_heartbeat_ns, heard.heard_ns
                )
        self._series_of(snapshot.id).add(snapshot, heard.heard_ns)
        self.groups.apply(snapshot)
        self._track(heard)
        self.losses.apply(snapshot, heard.heard_ns, self.groups, self._heard_since)
        self.conflicts.settle(snapshot)

    def _heard_since(self, node_id: str, moment_ns: int) -> bool:
        """Whether the node is there, and has been heard at a moment or after it."""
        node = self.nodes.get(node_id)
        return node is not None and not node.gone_ns and node.heard_ns >= moment_ns

    def _series_of(self, node_id: str) -> NodeSeries:
        series = self.series.get(node_id)
        if series is None:
            series = NodeSeries()
            if len(self.series) < MAX_NODES:
                self.series[node_id] = series
        return series

    def _track(self, heard: Heard) -> None:
        node = heard.snapshot.id
        running = set()
        for view in self.nodes[node].aligning:
            for alignment in view.alignments:
                key = (node, view.name, alignment.fellow, alignment.direction)
                running.add(key)
                self._trackers.setdefault(key, Tracker()).add(alignment, heard.heard_ns)
        over = [key for key in self._trackers if key[0] == node and key not in running]
        for key in over:
            del self._trackers[key]

    def contested(self) -> Iterator[tuple[str, str, dict[str, str]]]:
        """(name-space, role, who says which master) where nodes that are there confirm different masters.

        Nodes show themselves in turns, so while a master changes they seem to contradict each other. Only
        what a node has said, or said again, since the newest of the masters was first named counts.
        """
        for (name_space, role), claims in sorted(self._claims.items()):
            told = {teller: claim for teller, claim in claims.items() if not self.nodes[teller].gone_ns}
            first_ns: dict[str, int] = {}
            for claim in told.values():
                first_ns[claim.master] = min(claim.since_ns, first_ns.get(claim.master, claim.since_ns))
            if len(first_ns) < 2:
                continue
            newest_ns = max(first_ns.values())
            said = {
                teller: claim.master
                for teller, claim in told.items()
                if self.nodes[teller].heard_ns >= newest_ns
            }
            if len(set(said.values())) > 1:
                yield name_space, role, said

    def _note_master(self, snapshot: NodeSnapshot, view: NameSpaceView, heard: Heard) -> None:
        claims = self._claims.setdefault((view.name, snapshot.role), {})
        if not view.confirmed or not view.master:
            claims.pop(snapshot.id, None)
            return
        claim = claims.get(snapshot.id)
        if claim is None or claim.master != view.master:
            claims[snapshot.id] = Claim(view.master, heard.heard_ns)
        history = self.masterships.get((view.name, snapshot.role))
        if history is None:
            history = collections.deque(maxlen=MAX_MASTERSHIPS)
            self.masterships[view.name, snapshot.role] = history
        told_ns = view.master_since_ns
        since_ns = heard.heard_ns - max(0, snapshot.time_ns - told_ns) if told_ns else heard.heard_ns
        found = Mastership(
            since_ns, view.name, snapshot.role, view.master, True, view.epoch, view.why, told_ns > 0
        )
        for index in range(len(history) - 1, -1, -1):
            known = history[index]
            if (known.master, known.epoch) == (view.master, view.epoch):
                if found.is_exact and not (known.is_exact and known.since_ns <= found.since_ns + JITTER_NS):
                    history[index] = dataclasses.replace(known, since_ns=since_ns, is_exact=True)
                return
        history.append(found)

    def _apply_events(self, events: tuple[NodeEvent, ...]) -> None:
        """Keep the newest in the order of their times: nodes report in turns, each what happened since."""
        self.events_seen += len(events)
        for event in sorted(events, key=lambda event: event.time_ns):
            self.conflicts.apply(event)
            node = self.nodes.get(event.node)
            if event.state in ENDING and node is not None and event.time_ns >= node.snapshot.time_ns:
                self.nodes[node.id] = dataclasses.replace(node, in_order=True)
        first_ns = min(event.time_ns for event in events)
        start = len(self.events)
        while start and self.events[start - 1].time_ns > first_ns:
            start -= 1
        self.events[start:] = sorted((*self.events[start:], *events), key=lambda event: event.time_ns)
        if len(self.events) > MAX_EVENTS + EVENTS_SLACK:
            del self.events[:-MAX_EVENTS]

    def _apply_notice(self, notice: Notice, now_ns: int) -> None:
        self.notices.append(notice)
        node = self.nodes.get(notice.node)
        if notice.kind is NoticeKind.NODE_LOST and node is not None and notice.time_ns >= node.heard_ns:
            in_order = node.in_order or notice.in_order
            self.nodes[node.id] = dataclasses.replace(node, gone_ns=notice.time_ns, in_order=in_order)
        elif notice.kind is NoticeKind.NODE_FOUND and node is not None:
            self.nodes[node.id] = dataclasses.replace(node, gone_ns=0)
        elif notice.kind is NoticeKind.INSTANCE_LOST:
            self.persistence.lose(notice.node, notice.time_ns)
        elif notice.kind is NoticeKind.DOMAIN_LOST:
            self.domain_lost_ns = notice.time_ns
        elif notice.kind is NoticeKind.DOMAIN_FOUND:
            self.domain_lost_ns = 0
        elif notice.kind is NoticeKind.END:
            self.ended_ns = now_ns
