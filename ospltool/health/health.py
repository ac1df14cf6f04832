"""The health of one system: incidents, mutes, redundancy and a verdict. The face of this package."""

from __future__ import annotations

import bisect
import collections
import dataclasses
import re
import shlex
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from engine.runtime.monitor import NodeEvent
from ospltool.diagnostics.model import Severity
from ospltool.health.acknowledgements import Acknowledgements
from ospltool.health.causes import Patience, RootCause, causes_of, unaccounted
from ospltool.health.codes import SECOND_NS, Sign, joined
from ospltool.health.effects import described, effects
from ospltool.health.facts import FactCache
from ospltool.health.incidents import Incident, Incidents
from ospltool.health.mutes import Mute, Mutes
from ospltool.health.presence import HealthInput, Presence, PresenceMemory, observed, told_ns
from ospltool.health.redundancy import Redundancies, Redundancy
from ospltool.health.signs.lost import OWN_LINK, of_domain
from ospltool.health.signs.masters import of_masters
from ospltool.health.signs.nodes import of_nodes
from ospltool.health.signs.proofs import of_proofs
from ospltool.health.signs.services import called, of_services
from ospltool.health.signs.sets import of_data, of_sets
from ospltool.health.verdict import (
    FAILED,
    NEXT_OF_FAILED,
    NEXT_OF_NOBODY,
    NOBODY,
    STARTING,
    UNKNOWN,
    SystemVerdict,
    counted,
)
from ospltool.live.conflicts import ReportedConflict
from ospltool.live.expectation import NOTHING, Expectation
from ospltool.live.feed import ENDING
from ospltool.live.model import SystemModel
from ospltool.live.nodes import Node, natural
from ospltool.live.remarks import clock
from ospltool.live.supervision import SupervisorReport

# An update costs the processor of the watch, which runs beside what it watches.
UPDATE_NS: Final = SECOND_NS // 4
"""Least time between two updates; people do not read faster."""

# Chosen so that a watch of 200 nodes takes a small share of a core (`make bench AREA=console`).
NODE_NS: Final = SECOND_NS // 100
"""Added to that time for each node: 200 nodes are examined every 2.25 s."""

# Heartbeats of about a second: what led to an incident is heard within some of them.
BEFORE_NS: Final = 3 * SECOND_NS
"""Time before (and after) an incident in which events may concern it."""

COUNTED_ANEW: Final = frozenset({"copies", "disk-copies"})
"""Causes without a sign while the domain is lost or gathers: nodes then have the usual time for copies."""

_WORD: Final = re.compile(r"[\w.-]*\w")
"""A name in the text of an event, which may have points and dashes within."""

# A line or two of a terminal.
MAX_FAULT: Final = 300
"""Characters of an error that are told: it may quote what was received."""

TOLD_LEVELS: Final = frozenset({"INFO", "WARNING", "SEVERE", "ERROR"})

SupervisorReports = Callable[[], Mapping[str, SupervisorReport]]


class Health:
    """Present and past incidents of a system.

    Args:
        model: the live system; the caller applies updates to it.
        expected: nodes and copies that should exist.
        mutes: incidents that do not count.
        reports: returns the reports of this machine's supervisors by node name; called at every update.
            Without any, those that a recording has count.
        acknowledged: incidents that the operator knows, also from another moment of the system.
        here: addresses of this watch; a node that has one of them is on the same host.

    Attributes:
        open: open incidents that are not muted, most urgent and then oldest first.
        muted: open incidents that are muted, in the same order.
        closed: closed incidents, newest end first.
        verdict: the whole system in one line.
        awaited: names of the nodes that should be there (see `HealthInput`).
        unheard: those of them that were never heard, with the reports of their supervisors.
    """

    def __init__(
        self,
        model: SystemModel,
        expected: Expectation = NOTHING,
        *,
        mutes: Mutes | None = None,
        reports: SupervisorReports = dict,
        acknowledged: Acknowledgements | None = None,
        here: Iterable[str] = (),
    ) -> None:
        self.model = model
        self.expected = expected
        self.mutes = mutes or Mutes()
        self.acknowledged = acknowledged or Acknowledgements()
        self._reports = reports
        self._here = frozenset(here)
        self._told: Mapping[str, SupervisorReport] = {}
        self.awaited = expected.nodes
        self.unheard: Mapping[str, SupervisorReport | None] = {}
        self._incidents = Incidents()
        self._patience = Patience()
        self._causes: list[RootCause] = []
        self._facts = FactCache()
        self._memory = PresenceMemory()
        self._tellers: list[Node] = []
        self._tellers_of = -1
        self._redundancies = Redundancies()
        self._copies: dict[str, Redundancy] = {}
        self._presences: dict[str, Presence] = {}
        self._contested: frozenset[tuple[str, str]] = frozenset()
        self._updated_ns = self._examined_ns = 0
        self._is_gathering = False
        self._is_coming_back = False
        self._era = model.era
        self._failure = ""
        self.open: list[Incident] = []
        self.muted: list[Incident] = []
        self.closed: list[Incident] = []
        self.verdict = SystemVerdict()

    @property
    def every(self) -> list[Incident]:
        """The open incidents, then the muted, then the closed ones."""
        return [*self.open, *self.muted, *self.closed]

    @property
    def redundancies(self) -> list[Redundancy]:
        """The copies of each name-space, in the order of names."""
        return list(self._copies.values())

    def is_split(self, name_space: str) -> bool:
        """Return whether the copies of a name-space differ, each side of a split network having its own."""
        return name_space in self._copies and bool(self._copies[name_space].sides)

    def is_contested(self, name_space: str, role: str) -> bool:
        """Return whether nodes of a role confirm different masters of a name-space."""
        return (name_space, role) in self._contested

    def presence(self, node: Node) -> Presence:
        """Return what a node is at the moment of which the incidents tell, as everybody tells it.

        If the model was never examined, it counts as heard until it leaves.
        """
        return self._memory.presence(node, self._examined_ns or node.heard_ns)

    def is_heard(self, node: Node) -> bool:
        """Return whether a node is heard, so that its snapshot is not out of date."""
        return self.presence(node) is Presence.HEARD

    def is_away(self, node: Node) -> bool:
        """Return whether a node has ended, or is gone."""
        return self.presence(node) in (Presence.STOPPED, Presence.GONE)

    @property
    def all_stopped(self) -> bool:
        """Whether nodes or persistence services were heard, and all of them have ended in order."""
        return self._memory.all_stopped(self.model)

    @property
    def conflicts(self) -> list[ReportedConflict]:
        """The conflicts of nodes, open ones first; what a supervisor had to kill ended in order, too."""
        ended = self._memory.has_ended
        nodes = {
            node_id: dataclasses.replace(node, in_order=True) if ended(node) else node
            for node_id, node in self.model.nodes.items()
        }
        return self.model.conflicts.every(nodes)

    def is_master(self, node: Node, name_space: str) -> bool:
        """Return whether the node is known to be the master of a name-space.

        A node's own claim holds while the node is heard. A silent node counts as master while no node
        of its role that is heard follows another master; a node that is gone is master of nothing.
        """
        view = node.name_spaces.get(name_space)
        if view is None or view.master != node.id or self.is_away(node):
            return False
        claims = self.model.claims(name_space, node.snapshot.role)
        return self.is_heard(node) or all(
            claim.master == node.id or not self.is_heard(self.model.nodes[teller])
            for teller, claim in claims.items()
        )

    def heartbeat_ns(self, node: Node) -> int:
        """Return when a fellow last received a heartbeat of `node`, by the feed's clock.

        Without a fellow's report it is when the node was heard.
        """
        if self._tellers_of != self.model.revision:  # a screen asks for all of its rows, four times a second
            self._tellers_of = self.model.revision
            self._tellers = [one for one in self.model.nodes.values() if not one.gone_ns]
            # The newest first: the walk below ends as soon as no other can know more.
            self._tellers.sort(key=lambda one: one.heard_ns, reverse=True)
        newest_ns = 0
        for teller in self._tellers:
            if teller.heard_ns <= newest_ns:  # the others tell no newer one
                break
            newest_ns = max(newest_ns, told_ns(teller, node.id))
        return newest_ns or node.heard_ns

    def last_heard_ns(self, name: str) -> int:
        """Return when a fellow heard a node last that this watch never heard; 0 if none tells."""
        return self._memory.strangers.get(name, 0)

    def examined_ns(self, now_ns: int) -> int:
        """Return the moment to which incidents belong, and the presence of nodes: of the last examination.

        If the model was never examined, it is `now_ns`.
        """
        return self._examined_ns or now_ns

    @property
    def is_of_one_moment(self) -> bool:
        """Whether all open incidents were there at the last look; one that was not may be over."""
        return not self._incidents.are_unseen(self._examined_ns)

    @property
    def is_waiting(self) -> bool:
        """Whether a sign may become an incident, or make one more urgent, by lasting."""
        return bool(unaccounted(self._patience.young, self._causes))

    def tells_of(self, name: str) -> bool:
        """Return whether an incident, muted or not, is about the node of this name, or contains that."""
        return any(sign.who == name for cause in self._causes for sign in cause.signs)

    def update(self, now_ns: int) -> None:
        """Examine the model at `now_ns`; do nothing if the last examination was a moment ago.

        A node that is lost or back is always examined at once: its row and the verdict change together.
        """
        for _ in self.steps(now_ns):
            pass

    def steps(self, now_ns: int) -> Iterator[None]:
        """Examine the model as `update` does, in steps of a few milliseconds; the last one tells the result.

        The model must stay as it is until then.
        """
        if self._era != self.model.era or now_ns < self._updated_ns:
            self._era = self.model.era
            self._incidents = self._incidents.wound_to(now_ns)
            self._patience = Patience()
            self._memory = PresenceMemory()
            self._updated_ns = 0
        yield from self.looks(now_ns)

    def resume(self, now_ns: int) -> None:
        """Take in that nobody looked until now: what lasted goes on, what ended or began did so before."""
        self.model.remarks.resume(self._updated_ns, now_ns)
        self._patience.resume(self._updated_ns, now_ns)
        self._incidents.resume(now_ns)

    def looks(self, now_ns: int) -> Iterator[None]:
        """Do what `steps` does, of a model that goes on from where it was, whatever was shown meanwhile.

        While the watch has failed, nothing is examined: that it hears nobody is no loss of a node.
        """
        if self.model.watch_failed:
            self.conclude()
            return
        is_early = now_ns - self._updated_ns < UPDATE_NS + NODE_NS * len(self.model.nodes)
        if self._updated_ns and is_early and not self._is_presence_new(now_ns):
            return
        yield from self.examine(now_ns)

    def _is_presence_new(self, now_ns: int) -> bool:
        """Return whether a node that was examined is heard, silent or gone other than it was then."""
        nodes = self.model.nodes
        for node_id, was in self._presences.items():
            node = nodes.get(node_id)
            if node is not None and observed(node, now_ns) is not was:
                return True
        return False

    def examine(self, now_ns: int) -> Iterator[None]:
        """Examine the model in steps, however short the last examination is ago."""
        self._era, self._updated_ns, self._failure = self.model.era, now_ns, ""
        scene = HealthInput(
            self.model,
            now_ns,
            self.expected,
            self._reports() or self.model.local.reports,
            self._here or frozenset(self.model.local.here),
            self._memory,
            self._facts,
        )
        self._presences = {node.id: observed(node, now_ns) for node in self.model.nodes.values()}
        self._told, self.awaited, self.unheard = scene.reports, scene.awaited, scene.unheard
        yield
        copies = yield from self._redundancies.copies(scene)
        signs: list[Sign] = []
        for found in (
            of_domain(scene),
            of_nodes(scene),
            *of_masters(scene),
            *of_sets(scene, copies),
            of_data(scene),
            of_services(scene),
            of_proofs(scene),
        ):
            yield
            signs += found
        yield
        is_any_missing = any(not (report and report.in_order) for report in self.unheard.values())
        self._is_gathering = is_any_missing and scene.is_gathering
        is_lost = any(sign.code == "DUL-DOMAIN-LOST" for sign in signs)
        if self._is_gathering or is_lost:
            signs = [sign for sign in signs if sign.kind.cause not in COUNTED_ANEW]
        self._is_coming_back = any(map(scene.may_come_back, scene.nodes))
        self._copies = {one.name: one for one in copies}
        self._contested = frozenset((name, role) for name, role, _ in scene.contested)
        causes = causes_of(scene, self._patience.lasting(signs, now_ns, self.model.began_ns))
        self._causes = causes
        alone = {node for one in causes if one.root.kind.cause == "node" for node in one.root.nodes}
        scene.conclude(alone, is_lost=is_lost)
        self._examined_ns = now_ns
        told = effects(scene, causes, self._copies, self._is_muted)
        self._incidents.update(
            causes,
            now_ns,
            lambda cause: described(scene, cause, told[cause.root.key]),
            away={
                node: self.model.nodes[node].heard_ns
                for node, loss in scene.losses.items()
                if not loss.has_ended
            },
            young={sign.key for sign in self._patience.young},
        )
        self.mutes.settle(self._incidents.open, now_ns)
        self.conclude()

    def _is_muted(self, cause: RootCause) -> bool:
        return self.mutes.until_ns(cause.root.kind, cause.root.who, self._updated_ns) > 0

    def fail(self, error: Exception) -> None:
        """Take in that an examination failed: until the next one, the verdict says so."""
        places = traceback.extract_tb(error.__traceback__)
        where = f" in {places[-1].filename}:{places[-1].lineno}" if places else ""
        self._failure = f"this watch has failed: {error!r}"[:MAX_FAULT] + where
        self.verdict = self._failed(self._failure)

    def acknowledge(self, key: str) -> bool:
        """Mark an open incident as known to an operator; return False if there is none with this key."""
        found = next((one for one in self._incidents.open if one.key == key), None)
        if found is not None:
            self.acknowledged.add(found, self._updated_ns)
            self.conclude()
        return found is not None

    def mute(self, code: str, who: str, lasts_ns: int) -> Mute:
        """Mute incidents of a code for `lasts_ns`: those of one subject `who`, or of all if it is empty."""
        made = self.mutes.add(code, who, self._updated_ns + lasts_ns, self._incidents.open)
        self.conclude()
        return made

    def unmute(self, code: str, who: str) -> bool:
        """Lift the mutes of a code's cause, of one subject or of all; return False if there was none."""
        found = self.mutes.remove(code, who)
        self.conclude()
        return found

    @property
    def standing_mutes(self) -> list[tuple[Mute, list[Incident]]]:
        """The mutes that stand, the next to end first, each with the incidents that it hides now."""
        return [
            (one, [each for each in self.muted if one.covers(each.code, each.who)])
            for one in self.mutes.standing
        ]

    def subjects(self) -> Iterator[str]:
        """Yield the subjects that incidents may have: of nodes also those that only their fellows know."""
        model = self.model
        yield from self.awaited
        yield from (one.name for one in self.expected.name_spaces)
        for node in model.ordered_nodes():
            yield node.snapshot.name
            yield from (fellow.name for fellow in node.snapshot.fellows)
        yield from model.name_space_names()
        for group in model.groups.ordered():
            yield f"{group.partition}.{group.topic}" if group.partition else group.topic
        for service in model.persistence.ordered():
            yield called(service.view)
            yield from (f"subscription {one.name}" for one in service.view.subscriptions)
        yield from ("domain", "watcher")
        yield from (one.who for one in self.every)

    def events(self, incident: Incident) -> list[NodeEvent]:
        """Return events about an incident, at INFO and above, oldest first."""
        events = self.model.events
        first = bisect.bisect_left(events, incident.since_ns - BEFORE_NS, key=lambda event: event.time_ns)
        until_ns = incident.until_ns or self._updated_ns
        last = bisect.bisect_right(events, until_ns + BEFORE_NS, key=lambda event: event.time_ns)
        nodes = incident.subjects or incident.nodes
        names = {self.model.name_of(node) for node in nodes}
        known = [self.model.nodes[node] for node in nodes if node in self.model.nodes]
        name_spaces = {*incident.name_spaces, *(name for node in known for name in node.name_spaces)}
        return [one for one in events[first:last] if _is_about(one, nodes, names, name_spaces)]

    def conclude(self) -> None:
        """Compute the shown lists and the verdict, once for all readers until the next change.

        Going back to an earlier health does so too: what the operator said since then counts there.
        """
        lasting = [
            dataclasses.replace(
                one,
                muted_until_ns=self.mutes.until_ns(one.code, one.who, self._updated_ns),
                acknowledged_ns=self.acknowledged.at_ns(one),
            )
            for one in self._incidents.open
        ]
        self.open = [one for one in lasting if not one.muted_until_ns]
        self.muted = [one for one in lasting if one.muted_until_ns]
        self.closed = [
            dataclasses.replace(one, acknowledged_ns=known_ns)
            if (known_ns := self.acknowledged.at_ns(one))
            else one
            for one in self._incidents.closed
        ]
        self.verdict = self._verdict()

    def _failed(self, why: str) -> SystemVerdict:
        """Return the verdict if this watch has failed, which does not count as an incident."""
        worst = Severity.ERROR
        return SystemVerdict(worst, word=FAILED, parts=(why,), why=why, next=NEXT_OF_FAILED)

    def _verdict(self) -> SystemVerdict:
        if failure := (self.model.watch_failed.text if self.model.watch_failed else self._failure):
            return self._failed(failure)
        counts = collections.Counter(one.severity for one in self.open)
        muted = len(self.muted)
        worst = min(counts, default=None)
        words = [
            counted(counts[Severity.ERROR], "error"),
            counted(counts[Severity.WARNING], "warning"),
            counted(counts[Severity.NOTICE], "notice"),
            f"{muted} muted" if muted else "",
        ]
        heard = [node for node in self.model.nodes.values() if self.is_heard(node)]
        services = self.model.persistence.ordered()
        is_anybody_heard = heard or any(not one.is_stale(self._updated_ns) for one in services)
        word = self._calm_word(heard) if worst in (None, Severity.NOTICE) else worst.name
        if self.model.is_empty or not (muted or is_anybody_heard):
            word = UNKNOWN if worst is None else word
        why, advice = self._unknown() if word == UNKNOWN else ("", "")
        return SystemVerdict(
            worst,
            errors=counts[Severity.ERROR],
            warnings=counts[Severity.WARNING],
            notices=counts[Severity.NOTICE],
            muted=muted,
            word=word,
            parts=tuple(filter(None, (", ".join(filter(None, words)), self._nodes(heard), self._left()))),
            why=why,
            next=advice,
        )

    def _unknown(self) -> tuple[str, str]:
        """Tell why nobody is heard although nothing is known to be wrong, and what to do."""
        ended_ns = {
            one.snapshot.name: one.gone_ns or one.heard_ns
            for one in self.model.nodes.values()
            if self._memory.has_ended(one)
        }
        ended_ns |= {
            name: one.ended_ns for name, one in self._told.items() if one.in_order and name not in ended_ns
        }
        names = sorted((name for name in self.awaited or ended_ns if name in ended_ns), key=natural)
        if not names or len(names) < len(self.awaited):
            link = self.model.link_lost.text if self.model.link_lost else ""
            why = (NOBODY, link) if self.model.is_empty or not link else (link,)
            return ": ".join(filter(None, why)), OWN_LINK if link else NEXT_OF_NOBODY
        last_ns = max(ended_ns[name] for name in names)
        when = f", {'the last ' if len(names) > 1 else ''}at {clock(last_ns)} UTC" if last_ns else ""
        them = "it" if len(names) == 1 else "them"
        file = shlex.quote(self.expected.file or "FILE")
        return f"{joined(names)} ended in order{when}", f"Start {them} again with `ospltool start {file}`."

    def _calm_word(self, heard: Iterable[Node]) -> str:
        """Return the verdict on a system without warnings and errors."""
        is_awaiting = self._is_awaiting()
        if self.model.link_lost and is_awaiting:
            return UNKNOWN
        names = {one.snapshot.name for one in heard}
        is_restarting = any(one.is_starting and name not in names for name, one in self._told.items())
        if self._is_gathering or self._is_coming_back or is_awaiting or is_restarting:
            return STARTING
        states = {one.snapshot.state for one in heard}.difference(ENDING)
        return STARTING if states and "COMPLETE" not in states else "OK"

    def _is_awaiting(self) -> bool:
        """Return whether expected nodes or copies are missing, and not by what is muted or ended in order."""
        who = {one.who for one in self.muted}
        nodes = {node for one in self.muted for node in one.nodes}
        name_spaces = {name for one in self.muted for name in one.name_spaces}
        excused = len(who.intersection(self.unheard))
        return any(
            name not in who and not (report and report.in_order) for name, report in self.unheard.items()
        ) or any(
            one.lacks_beside(excused)
            and one.name not in name_spaces
            and nodes.isdisjoint((*one.lost, *one.apart, *one.coming))
            for one in self._copies.values()
        )

    def _nodes(self, present: Sequence[Node]) -> str:
        """Tell how many nodes are complete, of those expected, else of all but those that ended in order."""
        started = [node for node in present if node.snapshot.state == "COMPLETE"]
        parts = {one.id for one in started if self._facts.facts_of(one).is_less_than_whole}
        # One that merges, or gets a new name-space, is in state COMPLETE, and its row says what is not.
        whole = [one for one in started if one.is_settled and one.id not in parts]
        less = len(parts)
        lesser = f", {less} with less than a whole set" if less else ""
        complete, expected = {one.snapshot.name for one in whole}, set(self.expected.nodes)
        if expected and self.expected.is_whole:
            others = sorted({node.snapshot.name for node in present} - expected, key=natural)
            beside = f", {len(others):,} more not in the fleet file ({joined(others)})" if others else ""
            return f"{len(complete & expected)} of {counted(len(expected), 'node')} complete{lesser}{beside}"
        unheard = {name for name, one in self.unheard.items() if not (one and one.in_order)}
        lost = expected | unheard
        lost |= {
            node.snapshot.name
            for node in self.model.nodes.values()
            if self.presence(node) in (Presence.SILENT, Presence.GONE)
        }
        total = len(present) + len(lost - {node.snapshot.name for node in present})
        return f"{len(whole)} of {counted(total, 'node')} complete{lesser}" if total else "no node heard"

    def _left(self) -> str:
        """Tell how many copies may fail before the last one, for the name-space with the fewest."""
        known = [one for one in self._copies.values() if one.held or one.wanted]
        if not known:
            return ""
        least = min(known, key=lambda one: (bool(one.held), one.left, one.name))
        return f"{least.left_text} ({least.name}: {least.text})"


def _is_about(event: NodeEvent, nodes: tuple[str, ...], names: set[str], name_spaces: set[str]) -> bool:
    """Return whether an event is of INFO and above, and of the nodes of an incident or names its subject.

    With nodes, the name-spaces of an incident are those that its nodes have: of what others tell of them,
    only their masters have to do with it.
    """
    if event.level not in TOLD_LEVELS:
        return False
    if event.node in nodes or not (nodes or name_spaces):
        return True
    words = set(_WORD.findall(event.text))
    if not words.isdisjoint(names):
        return True
    return not words.isdisjoint(name_spaces) and (not nodes or event.event.startswith("election."))
