"""A model of the system from all snapshots and events so far. Pure: time comes in with the updates."""

from __future__ import annotations

import bisect
import dataclasses
import operator
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple, TypeVar

from engine.core.untrusted import Newest
from engine.runtime.monitor import NameSpaceView, NodeEvent, NodePast, NodeSnapshot, Run
from engine.runtime.past import without_surplus
from ospltool.live.conflicts import ConflictLog
from ospltool.live.feed import ENDING, FeedNotice, NoticeKind, ReceivedSnapshot, Update
from ospltool.live.groups import GroupIndex, Losses, SetComparison
from ospltool.live.masterships import Claim, Mastership, Masterships
from ospltool.live.nodes import Fellows, Node, natural, outline, replaces
from ospltool.live.persistence import PersistenceServices
from ospltool.live.remarks import Remarks, ended_in_order
from ospltool.live.series import AlignmentProgress, NodeSeries, Trackers, Witnesses
from ospltool.live.supervision import LocalView
from ospltool.live.topics import Applications

# As `engine.config.fleet.MAX_NODES`; anybody may pretend to be any number.
MAX_NODES: Final = 1_000
# Ten for each of 1,000 nodes; a recording has all.
MAX_EVENTS: Final = 10_000
EVENTS_SLACK: Final = 1_000
"""Events beyond MAX_EVENTS before the oldest are dropped all at once, which is cheaper than one by one."""

# Each is for a person; a recording has all.
MAX_NOTICES: Final = 500

# A few milliseconds, so that keys of the console are answered in between.
STEP: Final = 10
"""Snapshots that are taken in at once."""

_ORPHANED: Final = "lifecycle.daemon-lost"
_LOST: Final = "capture.lost"


_TIME: Final = operator.attrgetter("time_ns")
_Item = TypeVar("_Item")
_SENDER: Final = operator.attrgetter("node")


class DomainLoss(NamedTuple):
    """A loss of all nodes: when the last was heard, when it was told, whether a link was lost."""

    heard_ns: int
    lost_ns: int
    is_link: bool = False


def _is_settled(snapshot: NodeSnapshot) -> bool:
    """Return whether a node is complete and waits for nothing; the outline and the state tell that, too."""
    return snapshot.state == "COMPLETE" and all(view.is_at_rest for view in snapshot.name_spaces)


def _digests(before: Node | None, heard: ReceivedSnapshot) -> Mapping[str, tuple[str, int]]:
    """Return (digest, when it was first heard) by name-space."""
    old: Mapping[str, tuple[str, int]] = before.digests if before else {}
    told = [(view.name, view.digest) for view in heard.snapshot.name_spaces]
    if told == [(name, digest) for name, (digest, _) in old.items()]:  # mostly: then nothing is made
        return old
    found = {}
    for name, digest in told:
        known = old.get(name)
        found[name] = known if known and known[0] == digest else (digest, heard.heard_ns)
    return found


class SystemModel:
    """Everything known about all nodes and persistence services.

    Every collection in it is bounded; `…_left_out` counts the rest. `era` counts how often everything was
    forgotten. `link_lost` says that no interface of the watch carries anything, None if one does;
    `route_lost` has the addresses to which no route leads, None for none; `watch_failed` says that what reads
    has failed, and hears nothing; `applications` are the readers and writers that discovery shows; `loss` and
    `found_ns` say when all nodes were lost last, by notices, and when one was heard again, -1 for never;
    `silence` is the last time (since, until) without a snapshot although one was due; `local` is what the
    recorder of a recording knew beside what it heard.
    """

    def __init__(self) -> None:
        self.revision = 0
        self.era = 0
        self._forget()

    def _forget(self) -> None:
        """Forget everything but the count of revisions, so that no reader takes the new state for the old."""
        self.nodes: dict[str, Node] = {}
        self.events: list[NodeEvent] = []
        self.groups = GroupIndex()
        self.sets = SetComparison(self.nodes, self.groups)
        self.conflicts = ConflictLog()
        self.persistence = PersistenceServices()
        self.series: dict[str, NodeSeries] = {}
        self.runs: dict[str, tuple[Run, ...]] = {}
        self.notices: deque[FeedNotice] = deque(maxlen=MAX_NOTICES)
        self.caption = ""
        self.domain_lost_ns = 0
        self.link_lost: FeedNotice | None = None
        self.unproved: FeedNotice | None = None
        self.route_lost: FeedNotice | None = None
        self.watch_failed: FeedNotice | None = None
        self.local = LocalView()
        self.applications = Applications()
        self.newest_ns = 0
        self.silence = (0, 0)
        self.loss: DomainLoss | None = None
        self.found_ns = -1
        self.ended_ns = 0
        self.dropped = 0
        self.faults = 0
        self.nodes_left_out = 0
        self.left_out_ns = 0
        self.events_seen = 0
        self.losses = Losses()
        self.remarks = Remarks()
        self.began_ns = 0
        self._masterships = Masterships()
        self._names_told: dict[str, str] = {}
        self._names_introduced: Mapping[str, str] = {}
        self._introduced_of = -1
        self._replaced: Newest[str, int] = Newest(MAX_NODES)
        self._last_words: list[NodeEvent] = []
        self._orphaned_ns: Newest[str, int] = Newest(MAX_NODES)
        self._ordered_names: dict[str, str] = {}
        self._order: list[str] = []
        self._name_space_order: list[str] | None = None
        self._trackers = Trackers()
        self._witnesses = Witnesses(self.series)

    def follow(self, before: SystemModel) -> None:
        """Count revisions and eras on from a model that this one takes the place of."""
        self.revision, self.era = before.revision + 1, before.era + 1

    @property
    def events_left_out(self) -> int:
        """Events that were seen and are no longer kept."""
        return self.events_seen - len(self.events)

    @property
    def messages_left_out(self) -> int:
        """Messages that did not fit into a bound of the feed or of this model, or could not be read."""
        return self.dropped + self.faults + self.nodes_left_out + self.persistence.left_out

    @property
    def is_empty(self) -> bool:
        """Whether no node and no persistence service was heard."""
        return not self.nodes and not self.persistence

    @property
    def masterships(self) -> Mapping[tuple[str, str], deque[Mastership]]:
        """The masters of each name-space and role, oldest first."""
        return self._masterships.history

    def claims(self, name_space: str, role: str) -> Mapping[str, Claim]:
        """Return the master of a name-space that each node of a role confirms, by node id."""
        return self._masterships.claims(name_space, role)

    def contested(self) -> Iterator[tuple[str, str, dict[str, str]]]:
        """Yield (name-space, role, master by node) where present nodes confirm different masters."""
        return self._masterships.contested(self.nodes)

    def apply(self, update: Update, now_ns: int) -> None:
        """Take in an update that a feed returned at `now_ns`."""
        for _ in self.steps(update, now_ns):
            pass

    def steps(self, update: Update, now_ns: int) -> Iterator[None]:
        """Take in an update as `apply` does, in steps of a few milliseconds."""
        if update.restart:
            self._forget()
            self.era += 1
        self.began_ns = self.began_ns or now_ns
        left_out = self.messages_left_out
        if update.snapshots or update.replicas or update.events:
            self.ended_ns = 0  # a recording that is still written goes on after its end
        for past in update.pasts:  # how the former run of a node ended matters for the first of the next
            self._attempt(self._note_runs, past)
        self._last_words = [one for one in update.events if one.state in ENDING or one.event == _ORPHANED]
        for index, heard in enumerate(update.snapshots, 1):
            self._attempt(self._apply_snapshot, heard)
            if index % STEP == 0 and not update.restart:
                yield
        for replica in update.replicas:
            self._attempt(self.persistence.apply, replica)
        for past in update.pasts:
            self._attempt(self._apply_past, past)
        for notice in update.notices:
            self._apply_notice(notice, now_ns)
        if update.events:
            self._apply_events(update.events)
        if update.caption is not None:
            self.caption = update.caption
        if update.local is not None:
            self.local = update.local
        if update.endpoints is not None:
            self.applications = Applications(update.endpoints, is_known=True)
        self.dropped = max(self.dropped, update.dropped)
        if self.messages_left_out > left_out:
            self.left_out_ns = now_ns
        if update:
            self.revision += 1
            self.sets.forget()

    def _attempt(self, take_in: Callable[[_Item], object], item: _Item) -> None:
        """Take in what one sender says; if that fails, it costs nothing of what others say."""
        try:
            take_in(item)
        except Exception:  # of any class: it may be of anybody
            self.faults += 1

    def note_fault(self, now_ns: int) -> None:
        """Count an update that could not be taken in, or only in part."""
        self.faults += 1
        self.left_out_ns = now_ns
        self.revision += 1

    def name_of(self, node_id: str) -> str:
        """Return the node's name, as it or a fellow reports it; without one, the first digits of its id."""
        if not node_id:
            return "nobody"
        node = self.nodes.get(node_id)
        if node:
            return node.snapshot.name
        if node_id not in self._names_told:
            named = (
                one.name for each in self.nodes.values() for one in each.snapshot.fellows if one.id == node_id
            )
            if name := next(named, ""):
                self._names_told[node_id] = name
        return self._names_told.get(node_id) or self._introduced().get(node_id, node_id[:8])

    def _introduced(self) -> Mapping[str, str]:
        """Return the names of nodes (ids) that were gone before this watch began, by what events tell.

        A node tells the id of whom it discovers, then the name of whom it accepts: if one alone has no name
        yet, that is its.
        """
        if self._introduced_of != self.events_seen:
            self._introduced_of, found = self.events_seen, dict[str, str]()
            named = {one.snapshot.name for one in self.nodes.values()}
            awaited: dict[str, dict[str, None]] = {}
            for event in self.events:
                if event.event == "fellow.discovered":
                    one = event.text.removeprefix("Unconfirmed fellow ").partition(" ")[0]
                    if one not in self.nodes and one not in self._names_told:
                        awaited.setdefault(event.node, {})[one] = None
                elif event.event == "fellow.confirmed" and event.node in awaited:
                    name = event.text.removeprefix("Confirmed fellow ").partition(" ")[0]
                    if name not in named and len(ids := awaited.pop(event.node)) == 1:
                        found.update(dict.fromkeys(ids, name))
            self._names_introduced = found
        return self._names_introduced

    def ordered_nodes(self) -> list[Node]:
        """Return all nodes by name, then id, so that the order is stable."""
        names = {node_id: node.snapshot.name for node_id, node in self.nodes.items()}
        if names != self._ordered_names:
            self._ordered_names = names
            # By id where two have one name, so that rows do not jump.
            self._order = sorted(names, key=lambda node_id: (natural(names[node_id]), node_id))
        return [self.nodes[node_id] for node_id in self._order]

    def name_space_names(self) -> list[str]:
        """Return the name-spaces that any node has, sorted."""
        if self._name_space_order is None:
            names = {name for node in self.nodes.values() for name in node.name_spaces}
            self._name_space_order = sorted(names, key=natural)
        return self._name_space_order

    def holders(self, name_space: str) -> list[Node]:
        """Return the nodes that have the name-space, in the order of `ordered_nodes`."""
        return [node for node in self.ordered_nodes() if name_space in node.name_spaces]

    def progress(self, node: Node) -> Iterator[tuple[NameSpaceView, AlignmentProgress]]:
        """Yield the alignments that `node` reports, each with its rate."""
        for view in node.aligning:
            for alignment in view.alignments:
                key = view.name, alignment.fellow, alignment.direction
                yield view, self._trackers.progress(node.id, key)

    def is_orphaned(self, node_id: str, run: Run) -> bool:
        """Return whether a node told in a run that is over that its supervisor was gone."""
        first = bisect.bisect_left(self.events, run.started_ns, key=_TIME)
        last = bisect.bisect_right(self.events, run.ended_ns, key=_TIME)
        return any(one.event == _ORPHANED and one.node == node_id for one in self.events[first:last])

    def history(self, node_id: str, name_space: str, fellow: str, direction: str) -> list[tuple[int, int]]:
        """Return (time in ns, samples) points of a running alignment; empty if there is none.

        The node with `node_id` sends to the fellow or receives from it: `direction` is as in `AlignmentView`.
        """
        return self._trackers.history(node_id, (name_space, fellow, direction))

    def _apply_snapshot(self, heard: ReceivedSnapshot) -> None:
        snapshot = heard.snapshot
        before = self.nodes.get(snapshot.id)
        if before is None and len(self.nodes) >= MAX_NODES:
            self.nodes_left_out += 1
            return
        if snapshot.time_ns <= self._replaced.get(snapshot.id, 0):  # a recording repeats what it knew
            return
        if before is not None and heard.heard_ns > max(self.newest_ns, before.heard_ns) + before.due_ns:
            self.silence = self.newest_ns, heard.heard_ns
        self.newest_ns = max(self.newest_ns, heard.heard_ns)
        name_spaces = {view.name: view for view in snapshot.name_spaces}
        aligning = tuple([view for view in snapshot.name_spaces if view.alignments])
        fellows = Fellows(snapshot.fellows, before.fellows if before is not None else None)
        around = outline(snapshot, aligning)
        is_alike = before is not None and around == before.outline
        if before is not None and is_alike:
            around = before.outline
        elif before is None or before.name_spaces.keys() != name_spaces.keys():
            self._name_space_order = None
        is_orphan = self._orphaned_ns.get(snapshot.id, -1) >= snapshot.started_ns
        is_same_run = before is not None and before.snapshot.started_ns == snapshot.started_ns
        is_going_on = (
            before is not None
            and is_same_run
            and before.snapshot.state == snapshot.state
            and not before.gone_ns
            and heard.heard_ns - before.heard_ns <= before.stale_after_ns
        )
        # A recording repeats the last snapshot of a node that had ended in order.
        is_repeated = before is not None and before.in_order and snapshot.time_ns <= before.snapshot.time_ns
        is_same_state = before is not None and is_alike and before.snapshot.state == snapshot.state
        self.nodes[snapshot.id] = Node(
            snapshot,
            heard.heard_ns,
            came_ns=before.came_ns if before is not None and is_same_run else heard.heard_ns,
            moved_ns=before.moved_ns if before is not None and is_going_on else heard.heard_ns,
            in_order=not is_orphan and (snapshot.state in ENDING or is_repeated),
            lost_supervisor=is_orphan,
            name_spaces=name_spaces,
            digests=_digests(before, heard),
            aligning=aligning,
            fellows=fellows,
            is_settled=before.is_settled if before is not None and is_same_state else _is_settled(snapshot),
            outline=around,
        )
        self._masterships.note(heard, is_alike=is_alike)
        self._series_of(snapshot.id).add(snapshot, heard.heard_ns)
        self._witnesses.note(snapshot.id, fellows, heard.heard_ns)
        self.groups.apply(snapshot)
        self._trackers.apply(snapshot.id, aligning, heard.heard_ns, snapshot.time_ns - heard.heard_ns)
        heard_since = self._heard_since
        self.losses.apply(snapshot, heard.heard_ns, self.groups, heard_since, is_first=before is None)
        self.conflicts.settle(snapshot)
        self._note_run(before, heard)
        if before is None or before.fellows.communications is not fellows.communications:
            for node in [one for one in self.nodes.values() if one.gone_ns]:
                self._forget_replaced(node)

    def _forget_replaced(self, node: Node) -> None:
        """Forget a node that has left if its name runs under a new identity, as after losing its store."""
        old = node.snapshot
        present = [one for one in self.nodes.values() if not one.gone_ns]
        if not node.gone_ns or not any(replaces(one, node, present) for one in present):
            return
        del self.nodes[node.id]
        self._names_told[node.id] = old.name
        self._replaced[node.id] = old.time_ns
        self._name_space_order = None
        self._masterships.forget(node.id)
        self._witnesses.forget(node.id)
        self.groups.forget(node.id)
        self._trackers.apply(node.id, (), node.gone_ns)

    def _note_run(self, before: Node | None, heard: ReceivedSnapshot) -> None:
        """Notice a node that runs in a new process although the former one did not end in order."""
        snapshot = heard.snapshot
        if before is not None and snapshot.started_ns <= before.snapshot.started_ns:
            return
        self.remarks.settle(snapshot)
        if before is None or before.in_order or snapshot.pid == before.snapshot.pid:
            return
        last_ns = before.snapshot.time_ns
        words = {
            event.event
            for event in self._last_words
            if event.node == snapshot.id and last_ns <= event.time_ns < snapshot.started_ns
        }
        is_orphan = before.lost_supervisor or _ORPHANED in words
        if is_orphan or not (words or ended_in_order(self.runs.get(snapshot.id, ()), last_ns)):
            before = dataclasses.replace(before, lost_supervisor=is_orphan)
            self.remarks.restarted(before, heard.heard_ns)

    def _heard_since(self, node_id: str, moment_ns: int) -> bool:
        """Return whether the node is present and was heard at a moment or later."""
        node = self.nodes.get(node_id)
        return node is not None and not node.gone_ns and node.heard_ns >= moment_ns

    def _series_of(self, node_id: str) -> NodeSeries:
        series = self.series.get(node_id)
        if series is None:
            series = NodeSeries()
            if len(self.series) < MAX_NODES:
                self.series[node_id] = series
        return series

    def _note_runs(self, past: NodePast) -> None:
        if past.id in self.runs or len(self.runs) < MAX_NODES:
            self.runs[past.id] = past.runs
        self.remarks.learn(past.id, past.runs)

    def _apply_past(self, past: NodePast) -> None:
        """Take in the masterships that a node remembers; their times are by its clock."""
        for run in past.runs:
            self._masterships.begin_run(past.id, run.started_ns)
        for one in past.masterships:
            is_own = one.master == past.id
            told = one.name_space, one.role, one.master, True, one.epoch, one.why, True, is_own
            self._masterships.add(Mastership(one.since_ns, *told))

    def _apply_events(self, events: tuple[NodeEvent, ...]) -> None:
        """Keep the newest events by time; nodes report in turns, so events may be out of order."""
        self.events_seen += len(events)
        # In the order in which it happened: a later state must overwrite an earlier one.
        for event in sorted(events, key=lambda event: event.time_ns):
            node = self.nodes.get(event.node)
            self._attempt(self.conflicts.apply, event)
            if node is None or event.time_ns >= node.snapshot.started_ns:  # not of a former run
                self._attempt(self.remarks.apply, event)
            if event.event == _LOST:
                self.losses.note_teller(event.node, event.time_ns)
            if event.event == _ORPHANED:
                self._note_orphan(event)
            elif event.state in ENDING and node is not None and event.time_ns >= node.snapshot.time_ns:
                self.nodes[node.id] = dataclasses.replace(node, in_order=not node.lost_supervisor)
        first_ns = min(event.time_ns for event in events)
        start = len(self.events)
        while start and self.events[start - 1].time_ns > first_ns:
            start -= 1
        # Only the end is sorted again: new events are nearly always the newest.
        self.events[start:] = sorted((*self.events[start:], *events), key=lambda event: event.time_ns)
        if len(self.events) > MAX_EVENTS + EVENTS_SLACK:
            self.events = without_surplus(self.events, MAX_EVENTS, _SENDER)

    def _note_orphan(self, event: NodeEvent) -> None:
        """Notice that the supervisor of a node is gone: the end that the node announces then is unplanned."""
        self._orphaned_ns[event.node] = event.time_ns
        node = self.nodes.get(event.node)
        if node is not None and event.time_ns >= node.snapshot.started_ns:
            self.nodes[node.id] = dataclasses.replace(node, in_order=False, lost_supervisor=True)

    def _lose(self, last_ns: int, *, is_link: bool = False) -> None:
        """Note that all nodes were lost by a moment; it may be told together with what was heard after it."""
        self.loss = DomainLoss(min(self.newest_ns, last_ns), last_ns, is_link)

    def _apply_notice(self, notice: FeedNotice, now_ns: int) -> None:
        self.notices.append(notice)
        node = self.nodes.get(notice.node)
        if notice.kind is NoticeKind.NODE_LOST and node is not None and notice.time_ns >= node.heard_ns:
            in_order = (node.in_order or notice.in_order) and not node.lost_supervisor
            gone = dataclasses.replace(node, gone_ns=notice.time_ns, in_order=in_order)
            self.nodes[node.id] = gone
            self._forget_replaced(gone)
        elif notice.kind is NoticeKind.NODE_FOUND and node is not None:
            self.nodes[node.id] = dataclasses.replace(node, gone_ns=0)
        elif notice.kind is NoticeKind.REPLICA_LOST:
            self.persistence.lose(notice.node, notice.time_ns)
        elif notice.kind is NoticeKind.DOMAIN_LOST:
            self.domain_lost_ns = notice.time_ns
            self._lose(notice.time_ns)
        elif notice.kind is NoticeKind.DOMAIN_FOUND:
            self.domain_lost_ns = 0
            self.found_ns = notice.time_ns
        elif notice.kind is NoticeKind.ROUTE_LOST:
            self.route_lost = notice
        elif notice.kind is NoticeKind.ROUTE_FOUND:
            self.route_lost = None
        elif notice.kind is NoticeKind.WATCH_FAILED:
            self.watch_failed = notice
        elif notice.kind is NoticeKind.WATCH_BACK:
            self.watch_failed = None
        elif notice.kind is NoticeKind.LINK_LOST:
            self.link_lost = notice
        elif notice.kind is NoticeKind.LINK_FOUND and self.link_lost:
            self._lose(self.link_lost.time_ns, is_link=True)
            self.link_lost = None
            self.found_ns = notice.time_ns
        elif notice.kind is NoticeKind.UNPROVED:
            self.unproved = notice
        elif notice.kind is NoticeKind.END:
            self.ended_ns = now_ns
