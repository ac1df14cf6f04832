"""Who is there: whether each node is up, since when, and who says so. Everybody who tells it asks here.

The model says what this watch observed: when each node was heard, whether its participant left, and whether
it had announced its end. Alone that decides little: a silent node may be busy, dead, or out of reach of this
watch only. Three others are asked. The *supervisors* of this machine know whether a process exists. The
*fellows* tell in their snapshots when they received a heartbeat of it last, and whether they have removed it.
All nodes *together* tell a cut of this watch's link from the loss of one node.

`HealthInput` joins that at each examination of the health, in this order:

1. what the watch observes (`observed`), corrected by supervisors;
2. what a loss counts as until more is known (`_doubtful`), so that each loss is told once, and that of all as
   one;
3. of each node that is lost then, a `NodeLoss`: gone, or silent because something still hears it or starts
   it;
4. `conclude`, which keeps in `PresenceMemory` what is told until the next examination, and what that needs.

Nothing here writes into the model.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import heapq
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from engine.runtime.monitor import FellowView, NameSpaceView, NodeEvent
from ospltool.health.codes import OF_WATCH, SECOND_NS
from ospltool.health.facts import FactCache
from ospltool.live.expectation import NOTHING, Expectation
from ospltool.live.feed import ENDING, FeedNotice, no_route
from ospltool.live.model import MAX_NODES, DomainLoss, SystemModel
from ospltool.live.nodes import MIN_STALE_NS, Node, natural, replaces
from ospltool.live.remarks import Remark, RemarkSubject, clock
from ospltool.live.supervision import START_NS, SupervisorReport

# Times of this kind are chosen: if one is too short, `make faults STARTS=100` names a fault while healthy
# nodes start and stop; longer delays the report of a real one by as much.
MEETING_NS: Final = 5 * SECOND_NS // 2
"""Longest normal time until two nodes that meet, or a node and the watcher, know each other."""
# Two snapshots of the slowest, as one may be lost.
LATE_NS: Final = 4 * SECOND_NS
"""Time after its last heartbeat from which a node that this watch never heard may be dead."""
LEASE_NS: Final = 7 * SECOND_NS // 10
"""Time for which a silent node may be about to be gone, as its lease is short: its loss is told once."""
REACH_NS: Final = 3 * SECOND_NS // 2
"""Beyond the silence that counts, the time to be heard again that a node has which was out of reach."""
ON_THE_WAY_NS: Final = 2 * SECOND_NS
"""Longest time after its end for which the last message of a node may be on the way."""
# As `ON_THE_WAY_NS`: it is the same way.
HEARD_YET_NS: Final = 2 * SECOND_NS
"""Longest time for which what was on its way is heard after a link is seen to be broken."""
# Half of the supervisor's grace (`engine.supervisor.policy.START_GRACE_S`), after which it restarts the
# node.
SLOW_START_NS: Final = 60 * SECOND_NS
"""Longest normal start of a node."""
COMING_NS: Final = 4 * SECOND_NS
"""Time without progress of any node after which the others do not come with them."""
BREAK: Final = 2
"""Times that it takes until a node is silent, after which its next heartbeat is no longer one of many."""
# Of two nodes that meet, the later one is heard by its fellows and by this watch within a second.
STRANGER_NS: Final = 3 * SECOND_NS // 2
"""Time for which only fellows may hear a node before this watch waits for it, too."""
TOGETHER_NS: Final = SECOND_NS
"""Longest time between the moments at which two fellows notice the end of a node, by their own clocks."""
ANSWER_NS: Final = SECOND_NS // 2
"""What a snapshot of a fellow may be late when it is to tell of a node that the watch has lost."""
IN_ORDER: Final = "it is terminating"
"""The reason of a fellow that had announced its end."""


class Presence(enum.StrEnum):
    """Presence of a node; the value is the word that people read.

    SILENT: no snapshot came for too long. STOPPED: it ended in order. GONE: it left unannounced, or is known
    to be dead.
    """

    HEARD = "heard"
    SILENT = "silent"
    STOPPED = "stopped"
    GONE = "gone"


def observed(node: Node, now_ns: int) -> Presence:
    """Return the presence as the watch alone would tell it: by what it hears, and by leases."""
    if node.gone_ns:
        return Presence.STOPPED if node.in_order else Presence.GONE
    silent_ns = now_ns - node.heard_ns
    is_silent = silent_ns > MIN_STALE_NS and silent_ns > node.stale_after_ns  # the first tells most often
    return Presence.SILENT if is_silent else Presence.HEARD


def told_ns(teller: Node, node_id: str) -> int:
    """Return when a fellow heard a node last, by the feed's clock; 0 if it tells of no heartbeat.

    Differences of clocks cancel out: the teller's clock measures the age of the heartbeat.
    """
    last_ns = teller.fellows.heartbeat_ns(node_id)
    return teller.heard_ns - max(0, teller.snapshot.time_ns - last_ns) if last_ns else 0


def has_heard_since(teller: Node, node: Node) -> bool:
    """Return whether a fellow heard a node when it was silent for the watch already."""
    return told_ns(teller, node.id) > node.heard_ns + node.stale_after_ns


def fellows_of(node: Node, heard: Iterable[Node]) -> list[Node]:
    """Return the heard nodes that the node had as fellows."""
    met = {one.id for one in node.snapshot.fellows if one.communication == "approved"}
    return [one for one in heard if one.id in met]


class FellowLoss(NamedTuple):
    """The event of a node that lost a fellow, with the name of that and the reason."""

    event: NodeEvent
    fellow: str
    reason: str


def fellow_losses(model: SystemModel) -> Iterator[FellowLoss]:
    """Yield what nodes told of lost fellows, newest first; who comes late learns it from their pasts."""
    for one in reversed(model.events):
        if one.event == "fellow.disconnected":
            name, _, reason = one.text.removeprefix("Removing confirmed fellow ").partition(". Reason: ")
            yield FellowLoss(one, name, reason.removesuffix("."))


class Departure(NamedTuple):
    """The last end of a node that its fellows report: their names, the id of the last one, when, and why."""

    tellers: tuple[str, ...]
    teller: str
    time_ns: int
    reason: str

    @property
    def is_orderly(self) -> bool:
        """Whether the node had announced its end."""
        return self.reason == IN_ORDER


def _departures(model: SystemModel) -> dict[str, Departure]:
    """Return the last end of each node that a fellow lost, by name of the node.

    What a fellow told before the others is of another end, or of a cut link: another one heard it later.
    """
    told: dict[str, dict[str, FellowLoss]] = {}
    for one in fellow_losses(model):
        told.setdefault(one.fellow, {}).setdefault(one.event.node, one)
    found = {}
    for name, by_teller in told.items():
        newest = next(iter(by_teller.values()))
        first_ns = newest.event.time_ns - TOGETHER_NS
        same = {one.event.node_name for one in by_teller.values() if one.event.time_ns >= first_ns}
        tellers = tuple(sorted(same, key=natural))
        found[name] = Departure(tellers, newest.event.node, newest.event.time_ns, newest.reason)
    return found


class _Hearing(NamedTuple):
    """What fellows hear of a node that the watch has lost; moments by the feed's clock.

    `lost_ns` is when the watch heard it last. Since `begin_ns` fellows hear it without a break, the last time
    at `last_ns`; before that break they had heard it last at `before_ns`.
    """

    lost_ns: int
    begin_ns: int
    last_ns: int
    before_ns: int


@dataclasses.dataclass(slots=True)
class PresenceMemory:
    """What one examination leaves to those who show it, and to the next one.

    Attributes:
        concluded: (when it was heard last, what it is) of each node that was overdue, by id.
        stopped: when a node that a supervisor stopped was heard last, by id: it ended in order, even if
            killed.
        alone: when a node that was told to be lost by itself was heard last, by id.
        were_alone: ids of all of those since the last loss of all.
        hearings: what fellows hear of lost nodes, by id.
        strangers: when a fellow last heard a node that this watch never heard, by name.
        unmet_ns: since when fellows know of such a node, by name, while they do.
        departures, departures_of: the ends that fellows reported, by name, and in how many events.
        ends: the last report on each dead node, by name, until the node is heard again.
        stalled: the process of each node that was seen in trouble and alive, until the node is heard again.
        is_start_over, start_ns: whether the start that followed the loss of that moment is over.
        is_lost: whether all nodes were told to be lost.
        loss, loss_found_ns: what the model told of losses of all, by notices.
        lost_ns, last_lost_ns: when the last node was heard before the last loss of all, and when that was
            told.
        found_ns: when a node was heard again after it; -1 for never.
        is_link: whether it was that of a link of this watch.
        has_survivor: whether a node ran on meanwhile, so that the watch could not hear it.
    """

    concluded: dict[str, tuple[int, Presence]] = dataclasses.field(default_factory=dict)
    stopped: dict[str, int] = dataclasses.field(default_factory=dict)
    alone: dict[str, int] = dataclasses.field(default_factory=dict)
    were_alone: set[str] = dataclasses.field(default_factory=set)
    hearings: dict[str, _Hearing] = dataclasses.field(default_factory=dict)
    strangers: dict[str, int] = dataclasses.field(default_factory=dict)
    unmet_ns: dict[str, int] = dataclasses.field(default_factory=dict)
    departures: dict[str, Departure] = dataclasses.field(default_factory=dict)
    departures_of: int = -1
    ends: dict[str, SupervisorReport] = dataclasses.field(default_factory=dict)
    stalled: dict[str, int] = dataclasses.field(default_factory=dict)
    is_start_over: bool = False
    start_ns: int = -1
    is_lost: bool = False
    loss: DomainLoss | None = None
    loss_found_ns: int = -1
    lost_ns: int = -1
    last_lost_ns: int = -1
    found_ns: int = -1
    is_link: bool = False
    has_survivor: bool = False

    def presence(self, node: Node, now_ns: int) -> Presence:
        """Return what a node is: what was concluded, until it is heard or examined again."""
        seen = observed(node, now_ns)
        if seen is Presence.HEARD:  # nearly always, and a screen asks for each cell
            return seen
        heard_ns, concluded = self.concluded.get(node.id, (-1, seen))
        return concluded if heard_ns == node.heard_ns else seen

    def has_ended(self, node: Node) -> bool:
        """Return whether a node ended in order, as it or its supervisor said."""
        return node.in_order or self.stopped.get(node.id) == node.heard_ns

    def all_stopped(self, model: SystemModel) -> bool:
        """Return whether nodes or persistence services were heard, and all of them have ended in order."""
        nodes = all(one.gone_ns and self.has_ended(one) for one in model.nodes.values())
        services = all(one.gone_ns and one.view.ending for one in model.persistence.ordered())
        return not model.is_empty and nodes and services


class NodeLoss(NamedTuple):
    """What is known of a node that is not heard and has not ended in order.

    Attributes:
        why: the cause that its supervisor tells; empty for none.
        link: what was wrong with the link of this watch when it lost the node; empty for nothing.
        hearing: the fellows that hear it, by name, each with when.
        is_hearing: whether they may hear it, because only this watch has lost it.
        is_gone: whether its lease ended, or its process or all of its fellows say that it is dead.
        restarts: whether its supervisor starts it again.
        has_ended: whether it is known that its process ended, and that nothing starts it again.
        since_ns: its last sign of life; if its fellows hear it, the last one that this watch heard.
        began_before: whether nobody tells that: it was at `since_ns` or before.
    """

    why: str
    link: str
    hearing: Sequence[tuple[str, int]]
    is_hearing: bool
    is_gone: bool
    restarts: bool
    has_ended: bool
    since_ns: int
    began_before: bool

    @property
    def presence(self) -> Presence:
        """Whether it counts as gone or as silent."""
        is_other = self.restarts or self.is_hearing
        return Presence.GONE if self.is_gone and not is_other else Presence.SILENT


class HealthInput:
    """The system at one moment: who is there, and facts of snapshots.

    Args:
        model: the system.
        now_ns: the moment, by the clock of the feed.
        expected: nodes and copies that should exist.
        reports: reports of this machine's supervisors by node name.
        here: addresses of the watch.
        memory: what the examination before left; it is changed.
        cache: facts that are known; it is changed.

    Attributes:
        nodes: all nodes in the order of the model, without gone ones that a present one replaces.
        heard: nodes among them that are heard, or may be about to.
        reports: without those on nodes that run on another machine now.
        awaited: names of nodes that should be there: the expected ones, and without a fleet file those of
            this machine that are in trouble, those that fellows hear, and those that they lost unannounced.
        unheard: reports on the awaited nodes that were never heard, None for no report.
        missing: those of them that are not known to start or to be stopped.
        ends: as in `PresenceMemory`.
        facts: returns the facts from a node's own snapshot.
        is_gathering: whether the system starts, or comes back after the loss of all: others may still come.
        losses: what is known of each node that is not heard and has not ended in order, by id.
        unmet: what heard nodes (ids) tell of fellows (name, id) that this watch never heard.
    """

    def __init__(
        self,
        model: SystemModel,
        now_ns: int,
        expected: Expectation = NOTHING,
        reports: Mapping[str, SupervisorReport] | None = None,
        here: frozenset[str] = frozenset(),
        memory: PresenceMemory | None = None,
        cache: FactCache | None = None,
    ) -> None:
        self.model, self.now_ns, self.expected, self.here = model, now_ns, expected, here
        self.memory = memory = memory or PresenceMemory()
        self.cache = cache or FactCache()
        self.cache.forget_others(model.nodes.keys())
        self.facts = self.cache.facts_of
        self._note_loss_of_all()
        ordered = model.ordered_nodes()
        self.reports = {**(reports or {})}
        for node in ordered:
            if self._has_moved(node):
                del self.reports[node.snapshot.name]
        there = [node for node in ordered if not node.gone_ns]
        self.nodes = [
            node
            for node in ordered
            if not node.gone_ns or not any(replaces(one, node, there) for one in there)
        ]
        self._presence = {node.id: self._observed(node) for node in ordered}
        self._presence |= self._doubtful()
        self.heard = [node for node in self.nodes if self.is_heard(node)]
        back = {node.snapshot.name for node in self.heard}
        dead = {name: report for name, report in self.reports.items() if report.is_dead}
        stand = {
            name: one.pid
            for name, one in self.reports.items()
            if one.is_trouble and one.pid and not one.is_dead
        }
        memory.ends = {name: one for name, one in memory.ends.items() if name not in back} | dead
        memory.stalled = {name: pid for name, pid in memory.stalled.items() if name not in back} | stand
        self.ends = memory.ends
        self.unmet = self._unmet()
        self.awaited = self._awaited()
        known = {
            name for node in (model.nodes.values() if self.awaited else ()) for name in self.names_of(node)
        }
        self.unheard = {name: self.reports.get(name) for name in self.awaited if name not in known}
        self.missing = {
            name: report
            for name, report in self.unheard.items()
            if not (report and (report.in_order or report.is_starting))
        }
        self.is_gathering = self._gathers()
        for one in self.heard:
            if observed(one, now_ns) is not Presence.HEARD:
                self._hearing_of(one)  # what is told before more is known of it counts later
        self.losses = {one.id: self._loss(one) for one in self.nodes if self.is_away(one)}

    def _note_loss_of_all(self) -> None:
        """Take in what became of the last loss of all, as health concluded it, or as notices tell it.

        A notice is newer: a lease ends after the silence of all, and what comes back is told after its
        snapshot.
        """
        model, memory = self.model, self.memory
        last_ns = (
            {node: heard_ns for node, (heard_ns, _) in memory.concluded.items()} if memory.is_lost else {}
        )
        back = [one for one in model.nodes.values() if one.heard_ns > last_ns.get(one.id, one.heard_ns)]
        if back:
            newest_ns = max(last_ns.values())
            self._begin_loss(DomainLoss(newest_ns, newest_ns))
            memory.found_ns = min(one.moved_ns if one.moved_ns > newest_ns else one.heard_ns for one in back)
        if model.loss is not None and model.loss != memory.loss:
            memory.loss = model.loss
            self._begin_loss(model.loss)
        if model.found_ns != memory.loss_found_ns:
            memory.found_ns = memory.loss_found_ns = model.found_ns
        memory.has_survivor |= any(
            one.came_ns <= memory.last_lost_ns < one.heard_ns for one in model.nodes.values()
        )

    def _begin_loss(self, loss: DomainLoss) -> None:
        memory = self.memory
        memory.lost_ns, memory.last_lost_ns, memory.is_link = loss
        memory.is_lost = memory.has_survivor = False
        memory.were_alone.clear()

    def _has_moved(self, node: Node) -> bool:
        """Return whether what this machine knows is not of the run that was heard, but of one before.

        Its last report stays here after the node was moved: it tells nothing of the node of today. So it is
        if the node was heard after the end of the run of that report, or after that was seen first.
        """
        report = self.reports.get(node.snapshot.name)
        if report is None or report.pid or not (report.is_dead or report.in_order):
            return False
        over_ns = report.ended_ns or report.seen_ns
        if over_ns and node.heard_ns > over_ns + ON_THE_WAY_NS:
            return True
        is_elsewhere = bool(self.here) and self.here.isdisjoint(node.snapshot.addresses)
        return is_elsewhere and 0 < max(report.started_ns, report.ended_ns) < node.snapshot.started_ns

    def has_failed_to_start(self, node: Node) -> bool:
        """Return whether a node was stopped in order, and its next start has failed."""
        report = self.reports.get(node.snapshot.name)
        return bool(
            report and report.is_dead and report.started_ns > node.heard_ns
        ) and self.memory.has_ended(node)

    def _observed(self, node: Node) -> Presence:
        """Return what the watch, or its supervisor on this machine, observes of a node.

        That it was stopped holds until it is heard, also while a new supervisor tells that it starts.
        """
        if self.has_failed_to_start(node):
            return Presence.GONE
        seen, report = observed(node, self.now_ns), self.reports.get(node.snapshot.name)
        is_stopped = self.memory.stopped.get(node.id) == node.heard_ns or (
            report is not None and report.in_order
        )
        return Presence.STOPPED if is_stopped and seen is not Presence.HEARD else seen

    @property
    def is_silent(self) -> bool:
        """Whether several nodes have not ended in order, and none of them was heard for long."""
        lost = [node for node in self.model.nodes.values() if not self.memory.has_ended(node)]
        newest = max(lost, key=lambda node: node.heard_ns, default=None)
        return (
            newest is not None and len(lost) > 1 and self.now_ns - newest.heard_ns > newest.all_lost_after_ns
        )

    def _doubtful(self) -> dict[str, Presence]:
        """Return what is told until more is known of nodes that are overdue, by id.

        One that is overdue alone or with all others counts as heard until the next snapshot of another: the
        loss of all is one loss. The same holds when others are heard again after the silence of all, until it
        is the turn of these. The loss of one has one story, too: see `_before_told`.
        """
        model = self.model
        there = [one for one in self.nodes if self._presence[one.id] is not Presence.STOPPED]
        overdue = [one for one in there if self._presence[one.id] is not Presence.HEARD]
        if not overdue or model.domain_lost_ns or model.link_lost or self.is_silent:
            return {}
        newest = heapq.nlargest(2, there, key=lambda one: one.heard_ns)
        heard = [one for one in there if self._presence[one.id] is Presence.HEARD]
        since_ns, until_ns = model.silence
        found = {}
        for one in overdue:
            others = [other.heard_ns for other in newest if other is not one]
            is_newest = bool(others) and max(others) <= one.overdue_ns
            is_of_all = one.heard_ns <= since_ns <= one.overdue_ns and self.now_ns <= until_ns + one.due_ns
            found[one.id] = Presence.HEARD if is_newest or is_of_all else self._before_told(one, heard)
        return found

    def _before_told(self, node: Node, heard: Sequence[Node]) -> Presence:
        """Return what a node counts as that is lost for the watch: what it was before, until more is known.

        It is silent when its lease had the time to end, and gone when its fellows could tell whether they
        hear it. What its supervisor on this machine knows counts at once.
        """
        report = self.reports.get(node.snapshot.name)
        seen = self._presence[node.id]
        if report is not None and (report.is_dead or report.restarts(self.now_ns)):
            return seen
        if node.gone_ns and self._is_told(node, heard):
            return seen
        silent_ns = node.heard_ns + node.stale_after_ns + LEASE_NS
        return Presence.SILENT if (node.gone_ns or self.now_ns) > silent_ns else Presence.HEARD

    def _is_told(self, node: Node, heard: Iterable[Node]) -> bool:
        """Return whether fellows have told if they hear a node that left, or tell nothing in time.

        One that hears it decides; else all must have removed it, or miss it. What they told before the loss
        says nothing of it.
        """
        fellows = fellows_of(node, heard)
        until_ns = max(node.gone_ns, node.heard_ns + node.stale_after_ns) + node.due_ns + ANSWER_NS
        if not fellows or self.now_ns >= until_ns or any(has_heard_since(one, node) for one in fellows):
            return True
        missed_ns = max(SECOND_NS, 2 * node.due_ns)
        return all(
            one.heard_ns > node.heard_ns and one.heard_ns - told_ns(one, node.id) >= missed_ns
            for one in fellows
        )

    def _gathers(self) -> bool:
        """Return whether nodes that are missing may still come.

        The start is over once no node that is heard makes progress, and does not go on until nobody is heard
        any more: a node that is started again later does not excuse those that are missing.
        """
        now_ns, heard, memory = self.now_ns, self.heard, self.memory
        starts_ns = [
            now_ns - one.started_ns if one is not None and one.is_starting else SLOW_START_NS
            for one in self.unheard.values()
            if one is None or not one.in_order
        ]
        come = bool(starts_ns) and max(starts_ns) < SLOW_START_NS
        if not heard or memory.found_ns != memory.start_ns:
            memory.start_ns, memory.is_start_over = memory.found_ns, False
        if not heard:
            return come or (bool(starts_ns) and min(starts_ns) < START_NS)
        moved_ns = max(memory.found_ns, *(node.moved_ns for node in heard))
        stands = now_ns - moved_ns >= COMING_NS
        if memory.found_ns < 0:
            runs_ns = (one.snapshot.time_ns - one.snapshot.started_ns - one.heard_ns for one in heard)
            oldest_ns = max(runs_ns) + now_ns
            is_early = oldest_ns < START_NS or any(
                one.snapshot.state not in ("COMPLETE", *ENDING) for one in heard
            )
            stands = oldest_ns >= SLOW_START_NS or (stands and not (come or is_early))
        memory.is_start_over |= stands
        return not memory.is_start_over

    def presence(self, node: Node) -> Presence:
        """Return whether the node is heard, silent, stopped or gone, before its loss is looked at."""
        return self._presence[node.snapshot.id]

    def is_heard(self, node: Node) -> bool:
        """Return whether the node is heard."""
        return self._presence[node.snapshot.id] is Presence.HEARD

    def is_away(self, node: Node) -> bool:
        """Return whether the node is not heard, and did not stop in order."""
        return self.presence(node) not in (Presence.HEARD, Presence.STOPPED)

    def may_come_back(self, node: Node) -> bool:
        """Return whether the node was lost with the whole domain, and has time to come as that is back."""
        memory = self.memory
        if not self.is_away(node) or not self.was_lost_with_all(node):
            return False
        if memory.is_link or memory.has_survivor:
            return self.now_ns < memory.found_ns + REACH_NS + node.stale_after_ns
        return bool(self.heard) and self.is_gathering

    def may_run(self, node: Node) -> bool:
        """Return whether a lost node may run: the watch is cut off, a fellow hears it, or none could tell."""
        if not self.is_away(node) or node.snapshot.name in self.ends:
            return False
        return bool(self.hearing(node)) or not self._is_told(node, self.heard) or bool(self.own_link(node))

    def hearing(self, node: Node) -> list[Node]:
        """Return the heard fellows of a node that heard it after this watch missed it."""
        return [one for one in fellows_of(node, self.heard) if has_heard_since(one, node)]

    def heard_by_any(self) -> frozenset[str]:
        """Return the ids of the nodes that this watch or a heard node hears."""
        away = filter(self.is_away, self.nodes)
        others = (one.id for one in away if any(has_heard_since(each, one) for each in self.heard))
        return frozenset([*(one.id for one in self.heard), *others])

    def tellers(self, node: Node) -> list[str]:
        """Return the ids of the heard nodes that know a lost one, and heard it after this watch did."""
        return [
            one.id
            for one in self.heard
            if node.id in one.fellows.met
            and has_heard_since(one, node)
            and told_ns(one, node.id) > one.moved_ns + SECOND_NS  # else it may have read that late
        ]

    def was_lost_with_all(self, node: Node) -> bool:
        """Return whether the node was lost together with all others, and has not been heard since."""
        memory = self.memory
        return (
            node.heard_ns <= memory.last_lost_ns and node.heard_ns + node.all_lost_after_ns >= memory.lost_ns
        )

    def was_of_all(self, node: Node, failed_ns: int) -> bool:
        """Return whether the node failed in the last loss of all, or just before it: each shows late."""
        memory = self.memory
        is_out_of_reach = memory.is_link or memory.has_survivor
        return not is_out_of_reach and memory.lost_ns - node.due_ns <= failed_ns <= memory.found_ns

    def is_excused(self, node: Node, remark: Remark) -> bool:
        """Return whether a restart, or a time of standing still, was planned or part of a loss of all.

        One that stood still until later than others is part of it, too, unless it was told to be lost by
        itself.
        """
        memory = self.memory
        if remark.topic is RemarkSubject.RESTARTED:
            if memory.stopped.get(node.id) == remark.last_ns:
                return True
            is_alone = memory.alone.get(node.id) == remark.last_ns
            return not is_alone and remark.last_ns <= memory.last_lost_ns and not memory.has_survivor
        if remark.topic is not RemarkSubject.STALLED:
            return False
        is_late = remark.began_ns > memory.found_ns or node.id in memory.were_alone
        is_in_time = remark.time_ns <= memory.found_ns + REACH_NS + node.due_ns
        return memory.lost_ns < remark.time_ns and (is_in_time or not is_late)

    def _unmet(self) -> Mapping[tuple[str, str], Mapping[str, FellowView]]:
        """Return what heard nodes tell of fellows that this watch never heard, without nameless ones."""
        found: dict[tuple[str, str], dict[str, FellowView]] = {}
        nodes, last_ns = self.model.nodes, self.memory.strangers
        for node in self.heard:
            places = node.fellows.places
            if places.keys() <= nodes.keys():  # nearly always, and sooner known than the difference
                continue
            for one in sorted(places.keys() - nodes.keys()):
                view = node.snapshot.fellows[places[one]]
                if view.state:  # else it has told nothing of itself, and its name is a part of its id
                    found.setdefault((view.name, one), {})[node.id] = view
                    last_ns[view.name] = max(told_ns(node, one), last_ns.get(view.name, 0))
        return found

    @property
    def departures(self) -> Mapping[str, Departure]:
        """The last end of each node that a fellow lost, by name."""
        memory, number = self.memory, self.model.events_seen
        if memory.departures_of != number:
            memory.departures, memory.departures_of = _departures(self.model), number
        return memory.departures

    @functools.cached_property
    def lost_unannounced(self) -> Mapping[str, Departure]:
        """The ends that heard nodes report of their present run, of nodes that none of them has met again.

        Nobody knows whether a node that was lost in an earlier run still belongs to the system.
        """
        runs_ns = {node.id: node.snapshot.started_ns for node in self.heard}
        there = {name for name, _ in self.unmet}
        return {
            name: one
            for name, one in self.departures.items()
            if not one.is_orderly
            and name not in there
            and one.teller in runs_ns
            and one.time_ns >= runs_ns[one.teller]
        }

    def _awaited(self) -> tuple[str, ...]:
        """Return the names of the nodes that should be there, heard or not, in order."""
        memory = self.memory
        known = {node.snapshot.name for node in self.model.nodes.values()}
        names = dict.fromkeys(name for name, _ in self.unmet if name not in known)
        memory.unmet_ns = {name: memory.unmet_ns.get(name, self.now_ns) for name in names}
        if self.expected.nodes and self.expected.is_whole:
            return self.expected.nodes
        troubled = [name for name, report in self.reports.items() if report.is_trouble]
        told = {name for name, ns in memory.unmet_ns.items() if self.now_ns - ns >= STRANGER_NS}
        told.update(self.lost_unannounced.keys() - known)
        others = sorted(told, key=natural)[:MAX_NODES]
        return tuple(dict.fromkeys((*self.expected.nodes, *troubled, *others)))

    @functools.cached_property
    def strangers(self) -> Mapping[tuple[str, str], Mapping[str, FellowView]]:
        """What heard nodes (ids) tell of awaited ones (name, id) that they met and this watch never heard."""
        found: dict[tuple[str, str], dict[str, FellowView]] = {}
        for (name, one), told in self.unmet.items():
            met = {node: view for node, view in told.items() if one in self.model.nodes[node].fellows.met}
            if met and name in self.missing:
                found[name, one] = met
        return found

    def heard_by(self, name: str) -> tuple[list[str], list[str]]:
        """Return the heard nodes that hear a node that this watch never heard, and all that know it."""
        told = [
            (self.model.nodes[node], one[1])
            for one, by in self.unmet.items()
            if one[0] == name
            for node in by
        ]
        hearing = [
            node.snapshot.name
            for node, one in told
            if node.heard_ns - told_ns(node, one) <= node.stale_after_ns
        ]
        return hearing, [node.snapshot.name for node, _ in told]

    def hears_of(self, name: str) -> bool:
        """Return whether a fellow heard a node lately that this watch never heard."""
        return self.now_ns - self.memory.strangers.get(name, 0) < LATE_NS

    @functools.cached_property
    def contested(self) -> list[tuple[str, str, dict[str, str]]]:
        """(name-space, role, master by node) where present nodes confirm different masters."""
        return list(self.model.contested())

    @functools.cached_property
    def unusual(self) -> Mapping[str, list[tuple[Node, NameSpaceView]]]:
        """Views of heard nodes that are not complete, have no master, or come from parts; by name-space."""
        found: dict[str, list[tuple[Node, NameSpaceView]]] = {}
        for node in self.heard:
            for name, view in self.facts(node).unusual.items():
                found.setdefault(name, []).append((node, view))
        return found

    def names(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        """Return the names of nodes, in the order of the model."""
        if not nodes:
            return ()
        wanted = set(nodes)
        return tuple(one.snapshot.name for one in self.model.ordered_nodes() if one.id in wanted)

    def names_of(self, node: Node) -> list[str]:
        """Return the names of the nodes that share an id: normally one, two after copying a store."""
        told = self.model.remarks.present(node.id, self.now_ns)
        others = {one.subject for one in told if one.topic is RemarkSubject.IDENTITY}
        return sorted({node.snapshot.name} | others)

    def _loss(self, node: Node) -> NodeLoss:
        name, report = node.snapshot.name, self.reports.get(node.snapshot.name)
        fellows = fellows_of(node, self.heard)
        are_without = bool(fellows) and not any(node.id in one.fellows.places for one in fellows)
        stood = bool(report and report.pid and report.pid == self.memory.stalled.get(name))  # not heard since
        runs = bool(report and (report.is_trouble or report.stuck or stood) and not report.is_dead)
        is_dead = bool(report and report.is_dead) or (not runs and are_without)
        is_gone = self.presence(node) is Presence.GONE or is_dead
        hearing, link = self._hearing_of(node), self.own_link(node)
        why = report.cause_since(node.heard_ns - SECOND_NS) if report else ""
        is_hearing = bool(hearing or link) and not why
        if not why and name in self.ends:  # of the run that was lost, while another one begins
            why = self.ends[name].cause_since(node.heard_ns - SECOND_NS)
        is_early = self.now_ns - node.heard_ns < 2 * START_NS  # else it fails again and again
        restarts = is_early and bool(report and report.restarts(self.now_ns))
        has_ended = (name in self.ends and not restarts) or (is_gone and node.lost_supervisor)
        last_ns = self.last_sign_ns(node)
        since_ns = node.heard_ns if is_hearing else last_ns
        if report and self.has_failed_to_start(node):
            since_ns = report.started_ns
        unseen_ns = 0 if is_hearing else self._unseen_loss_ns(node, since_ns)
        since_ns = unseen_ns or since_ns
        return NodeLoss(
            why,
            link,
            hearing,
            is_hearing,
            is_gone,
            restarts,
            has_ended,
            since_ns,
            began_before=bool(unseen_ns),
        )

    def _unseen_loss_ns(self, node: Node, last_ns: int) -> int:
        """Return when fellows lost a node long after its last known sign of life, as this watch heard nobody.

        0 if that sign was the last one.
        """
        known_ns = last_ns + node.stale_after_ns + SECOND_NS
        if last_ns > node.heard_ns + node.stale_after_ns or not self.was_lost_with_all(node):
            return 0
        name = node.snapshot.name
        last = next((one for one in fellow_losses(self.model) if one.fellow == name), None)
        if last is None or last.event.time_ns <= known_ns or last.reason == IN_ORDER:
            return 0
        return last.event.time_ns

    def is_passing(self, node: Node) -> bool:
        """Return whether a lost node has time to be heard again, or until no other one is heard either.

        So has one that was not told yet when its fellows hear it again: this watch is about to meet it, too.
        """
        is_met = self._before_meeting_ns(node) and self.memory.alone.get(node.id) != node.heard_ns
        if is_met or self.may_come_back(node):
            return True
        link, report = self.model.link_lost, self.reports.get(node.snapshot.name)
        if link is None or (report and report.is_dead) or not self.own_link(node):
            return False
        return self.now_ns - link.time_ns < node.all_lost_after_ns

    def _hearing_of(self, node: Node) -> list[tuple[str, int]]:
        """Return the heard nodes that heard the node after this watch missed it, each with when.

        Fellows that hear it again, as after a restart, do not count until this watch had the time to meet it
        too. What they tell is noted, and known when they have removed the node.
        """
        if not self.heard:
            return []
        told = [(one, moment_ns) for one in self.heard if (moment_ns := told_ns(one, node.id))]
        newest_ns = max((moment_ns for _, moment_ns in told), default=0)
        run_ns = max(self._newer_run_ns(node), self._parted_ns(node))
        begin_ns = self._heard_since_ns(node, newest_ns, run_ns)
        is_anew = begin_ns > node.heard_ns and self.now_ns - begin_ns <= MEETING_NS
        if is_anew or newest_ns < run_ns:
            return []
        return [(one.snapshot.name, moment_ns) for one, moment_ns in told if has_heard_since(one, node)]

    def _heard_since_ns(self, node: Node, last_ns: int, run_ns: int) -> int:
        """Return since when fellows hear a node without a break: when the watch lost it, or later.

        A watch that does not know what was before takes it for one without a break.

        Args:
            node: a node that the watch has lost.
            last_ns: newest heartbeat of it that a fellow heard, by the feed's clock; 0 for none.
            run_ns: start of a newer run of the node; 0 if none is known.
        """
        heard_ns = node.heard_ns
        known = self.memory.hearings.get(node.id)
        is_first = known is None or known.lost_ns != heard_ns
        if known is None or is_first:
            known = _Hearing(heard_ns, heard_ns, heard_ns, heard_ns)
        is_anew = not is_first and last_ns > known.last_ns + BREAK * node.stale_after_ns
        is_anew = is_anew or known.last_ns < run_ns <= last_ns
        begin_ns, before_ns = (last_ns, known.last_ns) if is_anew else (known.begin_ns, known.before_ns)
        self.memory.hearings[node.id] = _Hearing(heard_ns, begin_ns, max(known.last_ns, last_ns), before_ns)
        return begin_ns

    def _parted_ns(self, node: Node) -> int:
        """Return when the fellows that hear a node again lost it; 0 if one has heard it all the time."""
        hearing = {one.id: one for one in self.heard if has_heard_since(one, node)}
        found: dict[str, int] = {}
        for loss in fellow_losses(self.model) if hearing else ():
            event = loss.event
            if event.time_ns < node.heard_ns:
                break
            if event.node in hearing and loss.fellow == node.snapshot.name:
                teller = hearing[event.node]
                found.setdefault(event.node, event.time_ns + teller.heard_ns - teller.snapshot.time_ns)
        are_again = found.keys() == hearing.keys() and all(
            told_ns(hearing[one], node.id) > parted_ns for one, parted_ns in found.items()
        )
        return max(found.values(), default=0) if are_again else 0

    def _newer_run_ns(self, node: Node) -> int:
        """Return when the run began that a supervisor here started after the lost one; 0 for none."""
        report = self.reports.get(node.snapshot.name)
        if report is None or not report.pid or report.pid == node.snapshot.pid:
            return 0
        return max(report.started_ns, report.failed_ns)

    def _before_meeting_ns(self, node: Node) -> int:
        """Return the last sign of life before fellows, a moment ago, began to hear a node again; else 0."""
        known = self.memory.hearings.get(node.id)
        if known is None or known.lost_ns != node.heard_ns:
            return 0
        is_anew = known.begin_ns >= max(self.now_ns - MEETING_NS, node.heard_ns + 1)
        return known.before_ns if is_anew else 0

    def last_sign_ns(self, node: Node) -> int:
        """Return when this watch or a fellow heard a lost node last, before fellows heard it again."""
        known = self.memory.hearings.get(node.id)
        last_ns = known.last_ns if known is not None and known.lost_ns == node.heard_ns else node.heard_ns
        return self._before_meeting_ns(node) or last_ns

    def broken_link(self, until_ns: int, heard_ns: int = 0) -> str:
        """Return what is wrong with the interfaces of this watch, if it was so before a moment; else nothing.

        It has nothing to do with the loss of a node that was heard long after it began (`heard_ns`), as one
        of this host may be.
        """
        link = self.model.link_lost
        return self._as_cause(link, link.text, until_ns, heard_ns) if link else ""

    def broken_route(self, node: Node, until_ns: int, heard_ns: int = 0) -> str:
        """Return that no route leads to a node, as `broken_link`; one heard since `heard_ns` needs none."""
        lost, addresses = self.model.route_lost, set(node.snapshot.addresses)
        if lost is None or not addresses or not addresses <= {*lost.text.split()}:
            return ""
        return self._as_cause(lost, no_route(sorted(addresses)), until_ns, heard_ns)

    def _as_cause(self, notice: FeedNotice, text: str, until_ns: int, heard_ns: int) -> str:
        """Return what the watch saw, with its time; what it saw first may have been there before."""
        if notice.time_ns > until_ns or heard_ns - notice.time_ns > HEARD_YET_NS:
            return ""
        is_first = notice.time_ns - self.model.began_ns <= HEARD_YET_NS
        return f"{text} {OF_WATCH}{'before ' if is_first else ''}{clock(notice.time_ns)} UTC"

    def own_link(self, node: Node) -> str:
        """Return what was wrong with the interfaces of this watch when it lost a node; else nothing.

        A node of the same host needs none, as long as others of that host are heard. A route is no matter for
        a node that its fellows elsewhere have lost.
        """
        until_ns = node.heard_ns + node.stale_after_ns
        link = self.broken_link(until_ns, node.heard_ns)
        if not link and not self._is_lost_elsewhere(node):
            link = self.broken_route(node, until_ns, node.heard_ns)
        if link and not self.here.isdisjoint(node.snapshot.addresses):
            return "" if any(is_on_one_host(one, node) for one in self.heard) else link
        return link

    def _is_lost_elsewhere(self, node: Node) -> bool:
        """Return whether all heard fellows on hosts other than that of the watch have removed the node."""
        fellows = fellows_of(node, self.heard)
        elsewhere = [one for one in fellows if self.here.isdisjoint(one.snapshot.addresses)]
        return bool(elsewhere) and not any(node.id in one.fellows.places for one in elsewhere)

    def conclude(self, alone: Collection[str], *, is_lost: bool) -> None:
        """Keep what is told of the nodes that are overdue: what their incidents say, everybody says.

        Args:
            alone: ids of the nodes that are told to be lost by themselves.
            is_lost: whether all nodes are lost.
        """
        memory, losses, nodes = self.memory, self.losses, self.model.nodes
        memory.concluded = {
            one.id: (one.heard_ns, losses[one.id].presence if one.id in losses else self.presence(one))
            for one in self.nodes
            if observed(one, self.now_ns) is not Presence.HEARD
        }
        stopped = {node: ns for node, (ns, what) in memory.concluded.items() if what is Presence.STOPPED}
        memory.stopped = {node: ns for node, ns in memory.stopped.items() if node in nodes} | stopped
        # What was told of a run that is over says later whether the loss of that run was told.
        over = {node: ns for node, ns in memory.alone.items() if node in nodes and nodes[node].heard_ns > ns}
        memory.alone = over | {node: nodes[node].heard_ns for node in alone if node in nodes}
        memory.were_alone.update(alone)
        memory.is_lost = is_lost
        memory.hearings = {node: one for node, one in memory.hearings.items() if node in nodes}
        told = memory.unmet_ns.keys() | self.unheard.keys()
        memory.strangers = {name: ns for name, ns in memory.strangers.items() if name in told}


def is_on_one_host(one: Node, other: Node) -> bool:
    """Return whether two nodes are known to run on one host; False if a node tells no address."""
    return not set(one.snapshot.addresses).isdisjoint(other.snapshot.addresses)
