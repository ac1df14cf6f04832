"""The input of the search for signs: the model at one moment, facts of snapshots, and what is expected.

The signs that one snapshot shows (`signs.snapshots`) are among its facts, so that they are found once.
"""

from __future__ import annotations

import functools
import heapq
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from engine.core.name_spaces import MAX_PRIORITY, Durability
from engine.runtime.monitor import FellowView, GroupView, NameSpaceView, NodeSnapshot
from ospltool.health.codes import SECOND_NS, Sign
from ospltool.health.gathering import Gathering
from ospltool.health.hearings import Hearings, is_told, told_ns
from ospltool.health.runs import has_failed_to_start, has_moved
from ospltool.health.signs.snapshots import of_snapshot
from ospltool.live.expectation import NOTHING, Expectation
from ospltool.live.model import SystemModel
from ospltool.live.nodes import Node, Presence, replaces
from ospltool.live.remarks import RemarkSubject
from ospltool.live.supervision import SupervisorReport

FAR_BEHIND: Final = 1_000
"""Persistent samples in memory only from which a name-space is not on the disk."""
STANDING_NS: Final = 3 * SECOND_NS
"""Time without progress of a disk after which the samples that wait for it are not on their way."""
MAX_SKEW_NS: Final = SECOND_NS
"""Tolerated difference between two clocks."""

MEETING_NS: Final = 5 * SECOND_NS // 2
"""Longest normal time until two nodes that meet, or a node and the watcher, know each other."""

LATE_NS: Final = 4 * SECOND_NS
"""Time after its last heartbeat from which a node that this watch never heard may be dead."""

LEASE_NS: Final = 7 * SECOND_NS // 10
"""Time for which a silent node may be about to be gone, as its lease is short: its loss is told once."""

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


class SnapshotFacts(NamedTuple):
    """Facts from one snapshot.

    Attributes:
        signs: signs about the node's own data.
        waiting: name-spaces with samples that wait for the disk, and since when it has taken none.
        off_disk: name-spaces that are not on the disk, beyond what is on the way to it, also by their policy.
        met: ids of the fellows that have introduced themselves, compatible or not.
        refused: fellows with incompatible definitions.
        skewed: fellows whose clock seems to differ by more than half of MAX_SKEW_NS.
        unusual: name-spaces that are not complete, have no master, or come from parts; by name.
        mastered: name-spaces whose master the node says to be.
        legacy: name-spaces with masterPriority 255, the legacy rule.
        is_less_than_whole: whether a set may permanently lack samples.
    """

    signs: tuple[Sign, ...]
    waiting: Mapping[str, Waiting]
    off_disk: frozenset[str]
    met: frozenset[str]
    refused: tuple[FellowView, ...]
    skewed: tuple[FellowView, ...]
    unusual: Mapping[str, NameSpaceView]
    mastered: tuple[str, ...]
    legacy: frozenset[str]
    is_less_than_whole: bool


class _OutlineFacts(NamedTuple):
    """Facts that stay the same while the outline of a node's name-spaces does."""

    unusual: tuple[str, ...]
    mastered: tuple[str, ...]
    legacy: frozenset[str]
    memory_only: tuple[str, ...]
    """Name-spaces of which, by their policy, nothing is written to the disk."""
    is_less_than_whole: bool


_T = TypeVar("_T")


class Kept(Generic[_T]):
    """A value that is made again only if it would be made of something else.

    What it is made of is the same if `names` are equal and each of `parts` is the same object, which never
    changes. Looking at whether objects are the same is quick however large they are.
    """

    def __init__(self, nothing: _T) -> None:
        self._names: Sequence[str] = ()
        self._parts: list[object] = []
        self._value = nothing

    def of(self, names: Sequence[str], parts: Iterable[object], make: Callable[[], _T]) -> _T:
        """Return the value, made now or before.

        Args:
            names: what must be equal.
            parts: the objects that must be the same.
            make: makes the value of both.
        """
        found = list(parts)
        is_same = len(found) == len(self._parts) and all(map(operator.is_, found, self._parts))
        if not is_same or names != self._names:
            self._value = make()
            self._names, self._parts = names, found
        return self._value


class KeptSigns:
    """What is searched for in all nodes, and changes seldom.

    Attributes:
        deaf: pairs of nodes of which one did not meet the other, each with those that did not.
        doubtful: (name-space, role) that nodes define differently.
    """

    def __init__(self) -> None:
        self.deaf: Kept[dict[tuple[str, str], list[str]]] = Kept({})
        self.doubtful: Kept[set[tuple[str, str]]] = Kept(set())
        self._best: dict[tuple[str, str], tuple[int, int]] = {}

    def best(self, node: Node, name_space: str, count: int) -> int:
        """Return the most samples of a name-space that others had at once since a node was lost.

        What applications dispose and nodes purge after that was not lost with it. `count` is the most now.
        """
        lost_ns, before = self._best.get((node.id, name_space), (0, 0))
        best = max(count, before) if lost_ns == node.heard_ns else count
        self._best[node.id, name_space] = node.heard_ns, best
        return best

    def keep(self, nodes: Iterable[str]) -> None:
        """Forget all other nodes."""
        known = set(nodes)
        self._best = {key: one for key, one in self._best.items() if key[0] in known}


class _Known(NamedTuple):
    node: Node
    facts: SnapshotFacts
    outlined: _OutlineFacts


class FactBook:
    """Facts from the newest snapshot of each node. `kept` are those of all nodes together."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}
        self.kept = KeptSigns()

    def of(self, node: Node) -> SnapshotFacts:
        """Return the facts from a node's newest snapshot."""
        known = self._known.get(node.snapshot.id)
        if known is not None and known.node.snapshot is node.snapshot:
            return known.facts
        outlined: _OutlineFacts | None = None
        before: Mapping[str, Waiting] = {}
        if known is not None:
            last = known.node
            outlined = known.outlined if last.outline is node.outline else None
            before = known.facts.waiting if last.snapshot.started_ns == node.snapshot.started_ns else {}
        outlined = outlined or _of_outline(node.snapshot)
        facts = _facts(node, outlined, _met(node, known), before)
        self._known[node.snapshot.id] = _Known(node, facts, outlined)
        return facts

    def keep(self, nodes: Iterable[str]) -> None:
        """Forget all other nodes."""
        self._known = {node: self._known[node] for node in nodes if node in self._known}
        self.kept.keep(self._known)


def _met(node: Node, known: _Known | None) -> frozenset[str]:
    """Return the fellows that have introduced themselves; the same object while these are the same."""
    if known is not None and known.node.fellows.communications is node.fellows.communications:
        return known.facts.met
    return frozenset(
        [one.id for one in node.snapshot.fellows if one.communication not in ("waiting", "lost")]
    )


def _of_outline(snapshot: NodeSnapshot) -> _OutlineFacts:
    spaces = snapshot.name_spaces
    unusual = [view for view in spaces if not (view.complete and view.master) or view.from_parts]
    mastered = tuple(dict.fromkeys(view.name for view in spaces if view.master == snapshot.id))
    legacy = [view.name for view in spaces if view.master_priority == MAX_PRIORITY and view.aligner]
    memory_only = [view.name for view in spaces if view.durability not in KEPT_ON_DISK]
    is_less = any(view.is_less_than_whole for view in unusual)
    names = tuple(view.name for view in unusual)
    return _OutlineFacts(names, mastered, frozenset(legacy), tuple(memory_only), is_less)


def _facts(
    node: Node, outlined: _OutlineFacts, met: frozenset[str], before: Mapping[str, Waiting]
) -> SnapshotFacts:
    snapshot = node.snapshot
    waiting = _waiting(snapshot, before)
    return SnapshotFacts(
        signs=tuple(of_snapshot(snapshot)),
        waiting=waiting,
        off_disk=frozenset(_off_disk(snapshot, waiting, outlined)),
        met=met,
        refused=_refused(node),
        skewed=_skewed(node),
        unusual={name: node.name_spaces[name] for name in outlined.unusual},
        mastered=outlined.mastered,
        legacy=outlined.legacy,
        is_less_than_whole=outlined.is_less_than_whole,
    )


def _refused(node: Node) -> tuple[FellowView, ...]:
    if "incompatible" not in node.fellows.ways:  # nearly always
        return ()
    return tuple([one for one in node.snapshot.fellows if one.communication == "incompatible"])


def _skewed(node: Node) -> tuple[FellowView, ...]:
    bound_ns = MAX_SKEW_NS // 2
    if node.fellows.skew_ns <= bound_ns:  # nearly always
        return ()
    return tuple([one for one in node.snapshot.fellows if abs(one.skew_ns) > bound_ns])


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


def _off_disk(
    snapshot: NodeSnapshot, waiting: Mapping[str, Waiting], outlined: _OutlineFacts
) -> Iterator[str]:
    """Yield the name-spaces that are in memory only, fail, are far behind, or of which nothing is written."""
    if snapshot.store.kind == "memory" or snapshot.store.problem:
        yield from (view.name for view in snapshot.name_spaces)
        return
    yield from outlined.memory_only
    for name, one in waiting.items():
        if one.samples >= FAR_BEHIND or snapshot.time_ns - one.since_ns >= STANDING_NS:
            yield name


STEP: Final = 40
"""Nodes that are examined at once."""


def _is_newest(node: Node, newest: Sequence[Node]) -> bool:
    """Return whether no other node was heard since this one is overdue; False without another."""
    others = [one.heard_ns for one in newest if one is not node]
    return bool(others) and max(others) <= node.overdue_ns


class Scene:
    """The system at one moment.

    Args:
        model: the system.
        now_ns: the moment, by the clock of the feed.
        expected: nodes and copies that should exist.
        reports: reports of this machine's supervisors by node name.
        facts: cache of the facts from snapshots.
        here: addresses of the watch.
        hearings: what fellows hear of lost nodes.
        ends: `ends` of the moment before.
        stalled: `stalled` of the moment before.
        gathering: what is known of the start of the system.

    Attributes:
        nodes: all nodes in the order of the model, without gone ones that a present one replaces.
        heard: nodes among them that are heard, or may be about to.
        facts: returns the facts from a node's own snapshot.
        unheard: reports on the awaited nodes that were never heard, None for no report.
        missing: those of them that are not known to start or to be stopped.
        is_gathering: whether the system starts, or comes back after the loss of all: others may still come.
        ends: the last report on each dead node, by name, until the node is heard again.
        stalled: the process of each node that was seen in trouble and alive, until the node is heard again.
        kept: what was found at the moment before, and need not be searched for again.
        awaited: names of nodes that should be there: the expected ones, and without a fleet file those of
            this machine that are in trouble.
    """

    def __init__(
        self,
        model: SystemModel,
        now_ns: int,
        expected: Expectation = NOTHING,
        reports: Mapping[str, SupervisorReport] | None = None,
        facts: FactBook | None = None,
        here: frozenset[str] = frozenset(),
        hearings: Hearings | None = None,
        ends: Mapping[str, SupervisorReport] | None = None,
        gathering: Gathering | None = None,
        stalled: Mapping[str, int] | None = None,
    ) -> None:
        self.model = model
        self.now_ns = now_ns
        self.here = here
        self.expected = expected
        ordered = model.ordered_nodes()
        moved = {node.snapshot.name for node in ordered if has_moved(node, reports or {}, here)}
        self.reports = {name: one for name, one in (reports or {}).items() if name not in moved}
        troubled = [
            name for name, report in self.reports.items() if report.is_trouble and name not in expected.nodes
        ]
        self.awaited = (
            expected.nodes if expected.nodes and expected.is_whole else (*expected.nodes, *troubled)
        )
        facts = facts or FactBook()
        self.facts, self.kept = facts.of, facts.kept
        there = [node for node in ordered if not node.gone_ns]
        self.nodes = [
            node
            for node in ordered
            if not node.gone_ns or not any(replaces(one, node, there) for one in there)
        ]
        self._presence = {node.id: self._observed(node) for node in ordered}
        self._presence |= self._doubtful()
        self.heard = [node for node in self.nodes if self.is_heard(node)]
        self.hearings = hearings or Hearings()
        back = {node.snapshot.name for node in self.heard}
        self.ends = {name: report for name, report in (ends or {}).items() if name not in back}
        self.ends |= {name: report for name, report in self.reports.items() if report.is_dead}
        self.stalled = {name: pid for name, pid in (stalled or {}).items() if name not in back}
        stand = {name: one for name, one in self.reports.items() if one.is_trouble and not one.is_dead}
        self.stalled |= {name: one.pid for name, one in stand.items() if one.pid}
        nodes = model.nodes.values() if self.awaited else ()
        known = {name for node in nodes for name in self.names_of(node)}
        self.unheard = {name: self.reports.get(name) for name in self.awaited if name not in known}
        self.missing = {
            name: report
            for name, report in self.unheard.items()
            if not (report and (report.in_order or report.is_starting))
        }
        self.is_gathering = (gathering or Gathering()).goes_on(model, now_ns, self.heard, self.unheard)

    def _doubtful(self) -> dict[str, Presence]:
        """Return what is told until more is known of nodes that are overdue, by id.

        One that is overdue alone or with all others counts as heard until the next snapshot of another: the
        loss of all is one loss. The same holds when others are heard again after the silence of all, until it
        is the turn of these. The loss of one has one story, too: see `_before_told`.
        """
        model = self.model
        there = [one for one in self.nodes if self._presence[one.id] is not Presence.STOPPED]
        overdue = [one for one in there if self._presence[one.id] is not Presence.HEARD]
        if not overdue or model.domain_lost_ns or model.link_lost or model.is_silent(self.now_ns):
            return {}
        newest = heapq.nlargest(2, there, key=lambda one: one.heard_ns)
        heard = [one for one in there if self._presence[one.id] is Presence.HEARD]
        found = {one.id: self._before_told(one, heard) for one in overdue}
        for one in overdue:
            if _is_newest(one, newest) or self._is_about_to_come(one):
                found[one.id] = Presence.HEARD
        return found

    def _before_told(self, node: Node, heard: Sequence[Node]) -> Presence:
        """Return what a node counts as that is lost for the watch: what it was before, until more is known.

        It is silent when its lease had the time to end, and gone when its fellows could tell whether they
        hear it. What its supervisor on this machine knows counts at once.
        """
        report = self.reports.get(node.snapshot.name)
        observed = self._presence[node.id]
        if report is not None and (report.is_dead or report.restarts(self.now_ns)):
            return observed
        if node.gone_ns and is_told(node, heard, self.now_ns):
            return observed
        silent_ns = node.heard_ns + node.stale_after_ns + LEASE_NS
        return Presence.SILENT if (node.gone_ns or self.now_ns) > silent_ns else Presence.HEARD

    def _is_about_to_come(self, node: Node) -> bool:
        """Return whether the silence of all has just ended, with which that of a node began."""
        since_ns, until_ns = self.model.outages.silence
        is_of_all = node.heard_ns <= since_ns <= node.overdue_ns
        return is_of_all and self.now_ns <= until_ns + node.due_ns

    def _observed(self, node: Node) -> Presence:
        """Return what the watch, or its supervisor on this machine, observes of a node.

        That it was stopped holds until it is heard, also while a new supervisor tells that it starts.
        """
        observed = node.observed(self.now_ns)
        report = self.reports.get(node.snapshot.name)
        if report is not None and has_failed_to_start(node, report):
            return Presence.GONE
        is_stopped = node.concluded is Presence.STOPPED or (report is not None and report.in_order)
        return Presence.STOPPED if is_stopped and observed is not Presence.HEARD else observed

    def presence(self, node: Node) -> Presence:
        """Return whether the node is heard, silent, stopped or gone, before anything else is concluded."""
        return self._presence[node.snapshot.id]

    def is_heard(self, node: Node) -> bool:
        """Return whether the node is heard."""
        return self._presence[node.snapshot.id] is Presence.HEARD

    def is_away(self, node: Node) -> bool:
        """Return whether the node is not heard, and did not stop in order."""
        return self.presence(node) not in (Presence.HEARD, Presence.STOPPED)

    def may_come_back(self, node: Node) -> bool:
        """Return whether the node was lost with the whole domain, and has time to come as that is back."""
        outages = self.model.outages
        if not self.is_away(node) or not outages.was_lost_with_all(node):
            return False
        if outages.were_out_of_reach:
            return outages.may_be_reached(node, self.now_ns)
        return bool(self.heard) and self.is_gathering

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

    @functools.cached_property
    def strangers(self) -> Mapping[tuple[str, str], Mapping[str, FellowView]]:
        """What heard nodes (ids) tell of awaited ones (name, id) that they met and this watch never heard.

        When they heard them last is noted.
        """
        found: dict[tuple[str, str], dict[str, FellowView]] = {}
        for node in self.heard if self.missing else ():
            for one in sorted((node.fellows.places.keys() - self.model.nodes.keys()) & self.facts(node).met):
                view = node.snapshot.fellows[node.fellows.places[one]]
                if view.name in self.missing:
                    found.setdefault((view.name, one), {})[node.id] = view
                    self.hearings.note(view.name, told_ns(node, one))
        return found

    def hears_of(self, name: str) -> bool:
        """Return whether a fellow heard a node lately that this watch never heard."""
        return self.now_ns - self.hearings.last_of(name) < LATE_NS

    def names_of(self, node: Node) -> list[str]:
        """Return the names of the nodes that share an id: normally one, two after copying a store."""
        told = self.model.told.of(node.id, self.now_ns)
        others = {one.subject for one in told if one.topic is RemarkSubject.IDENTITY}
        return sorted({node.snapshot.name} | others)

    def names(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        """Return the names of nodes, in the order of the model."""
        if not nodes:
            return ()
        wanted = set(nodes)
        return tuple(one.snapshot.name for one in self.model.ordered_nodes() if one.id in wanted)
