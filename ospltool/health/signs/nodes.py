"""Signs of nodes: gone, silent, slow, stuck, with wrong clocks or settings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from engine.runtime.monitor import FellowView
from ospltool.health.codes import SECOND_NS, HealthSeverity, Sign, continue_them, joined
from ospltool.health.gathering import SLOW_START_NS
from ospltool.health.hearings import fellows_of
from ospltool.health.scene import MAX_SKEW_NS, MEETING_NS, Scene
from ospltool.health.signs import versions
from ospltool.health.signs.losses import (
    LossCause,
    broken_link,
    cause_of_domain_loss,
    cause_of_loss,
    hearing_of,
    look_at_host,
    own_link,
)
from ospltool.health.signs.partings import IN_ORDER, Parting, last_parting_ns, partings
from ospltool.live.feed import ENDING
from ospltool.live.nodes import Node, Presence, natural
from ospltool.live.remarks import RESTARTED_NS, Remark, RemarkSubject, clock
from ospltool.live.supervision import START_NS, SupervisorReport
from ospltool.output.text import plural

ABSENT_NS: Final = 4 * SECOND_NS
"""Watching time after which an unheard node is absent: each sends a snapshot every second or two."""

TOGETHER_NS: Final = SECOND_NS
"""Longest time between the moments at which two fellows notice the end of a node, by their own clocks."""

LATE_READING_NS: Final = 10 * SECOND_NS
"""Longest time for which a node that was stopped judges clocks by heartbeats that it read late."""

UNWATCHED_NS: Final = 2 * SECOND_NS
"""Time for which a debugger may hold a supervisor, or a node need to end whose supervisor was killed."""


def of_nodes(scene: Scene, losses: Mapping[str, NodeLoss]) -> Iterator[Sign]:
    """Yield the signs about the nodes themselves; `losses` are those of the scene."""
    yield from _absent(scene)
    for node in scene.nodes:
        presence = scene.presence(node)
        if presence is Presence.HEARD:
            yield from _of_heard(scene, node)
            yield from _restarted(scene, node)
            yield from _remarks(scene, node)
        elif presence is not Presence.STOPPED and not _is_passing(scene, node):
            yield _unheard(scene, node, losses[node.id])


def _is_passing(scene: Scene, node: Node) -> bool:
    """Return whether a node has time to be heard again, or until no other one is heard either.

    So has one that was not told yet when its fellows hear it again: this watch is about to meet it, too.
    """
    is_met = _before_meeting_ns(scene, node) and not scene.model.outages.is_alone(node)
    if is_met or scene.may_come_back(node):
        return True
    link, report = scene.model.link_lost, scene.reports.get(node.snapshot.name)
    if link is None or (report and report.is_dead) or not own_link(scene, node):
        return False
    return scene.now_ns - link.time_ns < node.all_lost_after_ns


def losses_of(scene: Scene) -> dict[str, NodeLoss]:
    """Return what is known of each node that is not heard and has not ended in order, by id."""
    for one in scene.nodes:
        if scene.is_heard(one) and one.observed(scene.now_ns) is not Presence.HEARD:
            hearing_of(scene, one)  # what is told before more is known of it counts later
    away = (one for one in scene.nodes if not scene.is_heard(one))
    return {one.id: _loss(scene, one) for one in away if scene.presence(one) is not Presence.STOPPED}


def conclusions(scene: Scene, losses: Mapping[str, NodeLoss]) -> dict[str, Presence]:
    """Return what the nodes that are overdue are, by id: what their incidents say, everybody says.

    `losses` are those of the scene.
    """
    return {
        one.id: losses[one.id].presence if one.id in losses else scene.presence(one)
        for one in scene.nodes
        if one.observed(scene.now_ns) is not Presence.HEARD
    }


def _absent(scene: Scene) -> Iterator[Sign]:
    """Yield signs of awaited nodes that were never heard; of no expected one, also one of the domain."""
    model, strangers = scene.model, scene.strangers
    if scene.now_ns - model.began_ns < ABSENT_NS:
        return
    absent = scene.missing
    farewells = _farewells(scene) if absent else {}
    for name, report in absent.items():
        if not scene.is_gathering or (report and report.is_trouble):
            hearing = [
                model.name_of(node) for one, told in strangers.items() if one[0] == name for node in told
            ]
            yield _absence(scene, name, report, farewells.get(name), hearing)
    if len(scene.expected.nodes) > 1 and set(scene.expected.nodes) <= absent.keys():
        names = joined(list(absent))
        what = f"none of {len(absent)} expected nodes was heard since this watch began: {names}"
        ends = [report.ended_ns if report else 0 for report in absent.values()]
        since_ns = min(max(ends), model.began_ns) if all(ends) else model.began_ns
        link = broken_link(scene, scene.now_ns)
        yield Sign(
            "DUL-DOMAIN-LOST", "domain", what, since_ns, why=link,
            next=OWN_LINK if link else _stopped_processes(scene, absent), began_before=not all(ends),
        )  # fmt: skip


def _absence(
    scene: Scene, name: str, report: SupervisorReport | None, farewell: Farewell | None, hearing: list[str]
) -> Sign:
    """Return the sign of an awaited node that was never heard; `hearing` are the nodes that do hear it."""
    began_ns, code, why, advice = scene.model.began_ns, "DUL-NODE-ABSENT", "", ""
    what = f"{name} is expected and was not heard since this watch began"
    if name not in scene.expected.nodes:
        what = f"{name} was started on this machine and is not heard"
    if report and report.waits_for_room:
        what = f"{name} runs, waits for room to open its store, and was not heard since this watch began"
    if report:
        why, advice = report.cause_since(scene.now_ns - START_NS), report.next
    last_ns = scene.hearings.last_of(name)
    known_ns = report.ended_ns if report else 0
    bound_ns = began_ns
    if report and report.restarts(scene.now_ns):
        what = (_STARTED if report.pid else _RESTARTS).format(name)
        code, known_ns = "DUL-NODE-SILENT", report.failed_ns
    elif (report and report.is_dead) or (farewell and not farewell.is_orderly and not hearing):
        code, what = "DUL-NODE-GONE", f"{name} is gone, and was not heard since this watch began"
        if farewell and farewell.time_ns >= (report.started_ns if report and report.is_dead else 0):
            bound_ns = farewell.time_ns
        if farewell and not farewell.is_orderly:
            known_ns = known_ns or last_ns
            tellers, at = joined(farewell.tellers), f"{clock(known_ns or bound_ns)} UTC"
            latest = "" if known_ns else ", at the latest"
            what = f"{name} is gone{latest} since {at} according to {tellers}"
            why = why or f"{tellers} lost it at {clock(farewell.time_ns)} UTC: {farewell.reason}"
            advice = advice or look_at_host(name, f"the host of {name}")
    elif hearing:
        what += f", but {joined(hearing)} {'hears' if len(hearing) == 1 else 'hear'} it"
        why = why or f"{joined(hearing)} heard it at {clock(last_ns)} UTC, and this watch did not reach it"
        advice = advice or _OUT_OF_REACH.format(name)
    elif farewell:
        say = "says" if len(farewell.tellers) == 1 else "say"
        why = (
            why or f"it ended in order at {clock(farewell.time_ns)} UTC, as {joined(farewell.tellers)} {say}"
        )
    elif report is None and (link := broken_link(scene, scene.now_ns)):
        why, advice = link, OWN_LINK
    is_later = code == "DUL-NODE-GONE" and known_ns == last_ns > began_ns
    is_out_of_reach = bool(hearing) and code == "DUL-NODE-ABSENT"
    severity = HealthSeverity.WARNING if is_out_of_reach else None  # as of one that this watch has heard
    return Sign(
        code, name, what, known_ns if is_later else min(known_ns or bound_ns, began_ns), why=why, next=advice,
        severity=severity, weight=2, began_before=not known_ns, is_later=is_later,
    )  # fmt: skip


_OUT_OF_REACH: Final = (
    "Compare the interface and the CYCLONEDDS_URI of this watch with those of {}, or watch from its host."
)


class Farewell(NamedTuple):
    """The end of a node as its fellows told it last: who, the latest moment, and the newest reason."""

    tellers: tuple[str, ...]
    time_ns: int
    reason: str

    @property
    def is_orderly(self) -> bool:
        """Whether the node had announced its end."""
        return self.reason == IN_ORDER


def _farewells(scene: Scene) -> dict[str, Farewell]:
    """Return the last end of each node that a fellow lost, by name of the node.

    What a fellow told before the others is of another end, or of a cut link: another one heard it later.
    """
    told: dict[str, dict[str, Parting]] = {}
    for one in partings(scene.model):
        told.setdefault(one.fellow, {}).setdefault(one.event.node, one)
    found = {}
    for name, by_teller in told.items():
        newest, *others = by_teller.values()
        same = [newest.event]
        same += [one.event for one in others if newest.event.time_ns - one.event.time_ns <= TOGETHER_NS]
        tellers = tuple(sorted({one.node_name for one in same}, key=natural))
        found[name] = Farewell(tellers, newest.event.time_ns, newest.reason)
    return found


_RESTARTS: Final = "{} failed, and its supervisor starts it again"
_STARTED: Final = "{} failed, was started again, and is not heard yet"


class NodeLoss(NamedTuple):
    """What is known of a node that is not heard and has not ended in order.

    Attributes:
        why: the cause that its supervisor tells; empty for none.
        cause: the cause as it is concluded without that.
        is_gone: whether its lease ended, or its process or all of its fellows say that it is dead.
        restarts: whether its supervisor starts it again.
        has_ended: whether it is known that its process ended, and that nothing starts it again.
        since_ns: its last sign of life; if its fellows hear it, the last one that this watch heard.
        began_before: whether nobody tells that: it was at `since_ns` or before.
    """

    why: str
    cause: LossCause
    is_gone: bool
    restarts: bool
    has_ended: bool
    since_ns: int
    began_before: bool

    @property
    def presence(self) -> Presence:
        """Whether it counts as gone or as silent."""
        is_other = self.restarts or self.cause.is_hearing
        return Presence.GONE if self.is_gone and not is_other else Presence.SILENT


def _loss(scene: Scene, node: Node) -> NodeLoss:
    name, report = node.snapshot.name, scene.reports.get(node.snapshot.name)
    stood = bool(report and report.pid and report.pid == scene.stalled.get(name))  # and was not heard since
    runs = bool(report and (report.is_trouble or stood) and not report.is_dead)
    is_dead = bool(report and report.is_dead) or (not runs and _is_removed(scene, node))
    is_gone = scene.presence(node) is Presence.GONE or is_dead
    is_early = scene.now_ns - node.heard_ns < 2 * START_NS  # else it fails again and again
    cause = cause_of_loss(scene, node, is_gone=is_gone)
    why = report.cause_since(node.heard_ns - SECOND_NS) if report else ""
    if why:
        cause = LossCause()
    elif name in scene.ends:  # of the run that was lost, while another one begins
        why = scene.ends[name].cause_since(node.heard_ns - SECOND_NS)
        cause = LossCause(is_hearing=cause.is_hearing) if why else cause
    restarts = is_early and bool(report and report.restarts(scene.now_ns))
    has_ended = (name in scene.ends and not restarts) or (is_gone and node.lost_supervisor)
    last_ns = _before_meeting_ns(scene, node) or scene.hearings.last_ns(node)
    since_ns = node.heard_ns if cause.is_hearing else last_ns
    unseen_ns = 0 if cause.is_hearing else _unseen_loss_ns(scene, node, since_ns)
    return NodeLoss(why, cause, is_gone, restarts, has_ended, unseen_ns or since_ns, bool(unseen_ns))


def _before_meeting_ns(scene: Scene, node: Node) -> int:
    """Return the last sign of life of a node before fellows, a moment ago, began to hear it again; else 0."""
    return scene.hearings.before_ns(node, scene.now_ns - MEETING_NS)


def _unseen_loss_ns(scene: Scene, node: Node, last_ns: int) -> int:
    """Return when fellows lost a node long after its last known sign of life, as this watch heard nobody.

    0 if that sign was the last one.
    """
    known_ns = last_ns + node.stale_after_ns + SECOND_NS
    if last_ns > node.heard_ns + node.stale_after_ns or not scene.model.outages.was_lost_with_all(node):
        return 0
    return last_parting_ns(scene.model, node.snapshot.name, known_ns)


def _unheard(scene: Scene, node: Node, loss: NodeLoss) -> Sign:
    name, report = node.snapshot.name, scene.reports.get(node.snapshot.name)
    advice = report.next if report else ""
    why, told = loss.why, loss.cause
    if loss.presence is Presence.SILENT:
        what = _RESTARTS.format(name) if loss.restarts else f"{name} is silent"
        if told.is_hearing and loss.is_gone:
            what, advice = f"{name} is out of reach of this watch", _OUT_OF_REACH.format(name)
        if report and report.pid and report.pid != node.snapshot.pid:
            what = _STARTED.format(name)
            advice = f"Wait: {name} starts. If it is not heard in a minute, read its ospl-error.log."
        is_urgent = not scene.heard and scene.now_ns - node.heard_ns > 2 * node.stale_after_ns
        severity = HealthSeverity.ERROR if is_urgent else None
        return Sign(
            "DUL-NODE-SILENT", name, what, loss.since_ns, (node.id,), why=why or told.why, guess=told.guess,
            next=advice or told.next, severity=severity, began_before=loss.began_before,
        )  # fmt: skip
    if node.lost_supervisor and not why:
        why = "its supervisor was killed, and the node ended by itself"
        advice = "Start it again on its host: `ospltool start` with its configuration."
    return Sign(
        "DUL-NODE-GONE", name, f"{name} is gone", loss.since_ns, (node.id,), why=why or told.why,
        guess=told.guess, next=advice or told.next, weight=2, began_before=loss.began_before,
        is_later=loss.since_ns > node.heard_ns + node.stale_after_ns,
    )  # fmt: skip


def _is_removed(scene: Scene, node: Node) -> bool:
    """Return whether all heard nodes that the node had as fellows have removed it; False without any."""
    fellows = fellows_of(node, scene.heard)
    return bool(fellows) and not any(node.id in one.fellows.places for one in fellows)


def _of_heard(scene: Scene, node: Node) -> Iterator[Sign]:
    snapshot = node.snapshot
    name = snapshot.name
    starting = snapshot.state not in ("COMPLETE", *ENDING)
    if starting and snapshot.time_ns - snapshot.started_ns > SLOW_START_NS:
        state = snapshot.state.replace("_", " ").lower()
        what = f"{name} is still in {state}"
        was_awaited = node.came_ns - scene.model.began_ns > ABSENT_NS  # it may have waited for room
        since_ns = max(snapshot.started_ns, node.came_ns if was_awaited else 0)
        yield Sign("DUL-NOT-COMPLETE", name, what, since_ns, (node.id,))
    report = scene.reports.get(name)
    if report and report.unwatched and report.pid == snapshot.pid and snapshot.state not in ENDING:
        what = f"{name} runs, and nobody watches it"
        yield Sign(
            "DUL-NODE-UNSUPERVISED", name, what, 0, (node.id,), why=report.unwatched, next=report.next,
            patience_ns=UNWATCHED_NS,
        )  # fmt: skip
    for fellow in scene.facts(node).skewed:
        if abs(fellow.skew_ns) > MAX_SKEW_NS:
            yield from _skew(scene, node, fellow)


def _skew(scene: Scene, node: Node, fellow: FellowView) -> Iterator[Sign]:
    """Yield a sign of a fellow's clock, unless it only seems slow to a node that reads heartbeats late.

    No delay makes a clock seem fast. So of a clock that is slow, the fellow sees this node's to be fast. If
    the fellow is not heard, or has not met the node, that is not known: late heartbeats get time to pass.
    """
    patience_ns = 0
    other = scene.model.nodes.get(fellow.id)
    facts = scene.facts(other) if other is not None and scene.is_heard(other) else None
    if fellow.skew_ns < 0 and not (facts and any(f.id == node.id and f.skew_ns > 0 for f in facts.skewed)):
        if facts and node.id in facts.met:
            return
        patience_ns = LATE_READING_NS
    first, second = sorted((node.snapshot.name, fellow.name))
    off = f"{fellow.skew_ns / 1e9:+.1f} s off"
    what = f"clocks differ: that of {fellow.name} is {off}, as {node.snapshot.name} sees it"
    pair = (node.id, fellow.id)
    yield Sign("DUL-CLOCK-SKEW", f"{first} and {second}", what, 0, pair, patience_ns=patience_ns)


_CODES: Final = {
    RemarkSubject.STUCK: "DUL-NODE-STUCK",
    RemarkSubject.STALLED: "DUL-NODE-STALLED",
    RemarkSubject.RESTARTED: "DUL-NODE-RESTARTED",
    RemarkSubject.FILTER: "DUL-FILTER-REFUSED",
    RemarkSubject.IGNORED: "DUL-CONFIG-IGNORED",
    RemarkSubject.PRESSURE: "DUL-BACK-PRESSURE",
}


_WHY: Final = {
    RemarkSubject.STALLED: "the process was stopped (SIGSTOP, a debugger), or its machine stood still",
    RemarkSubject.FILTER: "a content filter of its configuration does not fit the type of the topic",
    RemarkSubject.IGNORED: "its configuration has settings without effect here",
}
"""Causes that the node's own message contains."""

NO_FAILURE: Final = (
    "Read its ospl-error.log: it was started by a new supervisor, which knows nothing of the failure."
)
"""Advice about a node whose supervisor has no failure to tell."""

_VERBS: Final = {RemarkSubject.RESTARTED: "failed and was started again"}


def _remarks(scene: Scene, node: Node) -> Iterator[Sign]:
    """Yield a sign for each topic of the remarks of this run of the node that hold."""
    name = node.snapshot.name
    told: dict[RemarkSubject, list[Remark]] = {}
    for remark in scene.model.told.of(node.id, scene.now_ns):
        if not _is_over(scene, node, remark):
            told.setdefault(remark.topic, []).append(remark)
    told.pop(RemarkSubject.DISK, ())  # the snapshot shows what is wrong; it tells since when
    for remark in told.pop(RemarkSubject.LATE, ()):
        yield _late(scene, node, remark)
    for remark in told.pop(RemarkSubject.UNSUPPORTED, ()):
        yield versions.unsupported(scene, node, remark)
    for remark in told.pop(RemarkSubject.IDENTITY, ())[:1]:
        yield _shared_identity(scene, node, remark)
    for topic, remarks in told.items():
        more = f" (and {len(remarks) - 1:,} more)" if len(remarks) > 1 else ""
        report = scene.reports.get(name)
        advice = report.next if report and topic is RemarkSubject.STALLED else ""
        report = report if topic is RemarkSubject.RESTARTED else None
        yield Sign(
            _CODES[topic],
            name,
            f"{name} {_VERBS.get(topic, 'says')}: {remarks[-1].text}{more}",
            remarks[0].last_ns or remarks[0].began_ns or remarks[0].time_ns,
            (node.id,),
            why=report.failure if report else _WHY.get(topic, ""),
            next=NO_FAILURE if report and not report.failure else advice,
            weight=len(remarks),
            occasion=(remarks[0].time_ns,) if topic is RemarkSubject.STALLED else (),
        )


def _is_over(scene: Scene, node: Node, remark: Remark) -> bool:
    """Return whether a remark is of a former run, does not hold any more, or is part of a loss of all."""
    if remark.topic is RemarkSubject.RESTARTED:
        return not remark.is_alone and scene.model.outages.ended_all(remark.last_ns)
    if remark.topic is RemarkSubject.STALLED and scene.model.outages.has_stalled_all(
        node, remark.began_ns, remark.time_ns
    ):
        return True
    is_of_version = remark.topic is RemarkSubject.UNSUPPORTED
    return remark.time_ns < node.snapshot.started_ns or (
        is_of_version and versions.is_over(scene, node, remark)
    )


def _restarted(scene: Scene, node: Node) -> Iterator[Sign]:
    """Yield a sign of a restart that only its supervisor saw: this watch began after it.

    A restart after the loss of all is part of that.
    """
    name, snapshot, report = node.snapshot.name, node.snapshot, scene.reports.get(node.snapshot.name)
    told = scene.model.told.of(node.id, scene.now_ns)
    again = [one for one in told if one.topic is RemarkSubject.RESTARTED]
    if report is None or any(not _is_over(scene, node, one) for one in again):
        return
    is_of_this_run = 0 < report.failed_ns <= snapshot.started_ns and report.pid == snapshot.pid
    if scene.model.outages.was_of_all(node, report.failed_ns):
        return
    if is_of_this_run and scene.now_ns - snapshot.started_ns < RESTARTED_NS:
        what = f"{name} {_VERBS[RemarkSubject.RESTARTED]} by its supervisor"
        yield Sign("DUL-NODE-RESTARTED", name, what, report.failed_ns, (node.id,), why=report.failure)


def _late(scene: Scene, node: Node, remark: Remark) -> Sign:
    """Return a sign about the fellow whose heartbeats are late, not about the node that waited for them."""
    name = remark.subject
    fellows = tuple(one.id for one in scene.nodes if one.snapshot.name == name)
    what = f"{node.snapshot.name} says: {remark.text}"
    return Sign("DUL-HEARTBEAT-LATE", name, what, remark.time_ns, (*fellows, node.id), subjects=fellows)


def _shared_identity(scene: Scene, node: Node, remark: Remark) -> Sign:
    who = " and ".join(scene.names_of(node))
    what = f"{who} have one id, {node.id[:8]}"
    if who == node.snapshot.name:
        what = f"two nodes of the name {who} have one id, {node.id[:8]}"
    why = "one of them was started on a copy of the other's store"
    return Sign("DUL-IDENTITY-SHARED", who, what, remark.time_ns, (node.id,), why=why)


def _stopped_processes(scene: Scene, names: Iterable[str]) -> str:
    """Return the advice about the stopped processes of nodes on this machine; empty without any."""
    reports = {name: scene.reports.get(name) for name in names}
    stopped = {name: report.stopped for name, report in reports.items() if report and report.stopped}
    if not stopped:
        return ""
    them = "the process" if len(stopped) == 1 else "the processes"
    return continue_them(
        f"{them} of {joined(list(stopped))}", [pid for each in stopped.values() for pid in each]
    )


OWN_LINK: Final = (
    "Bring the network of this watch back, or run `ospltool health` on another host; `ospltool status` on "
    "the host of a node says whether that runs."
)

LEFT_OUT_NS: Final = 5 * SECOND_NS
"""Time for which the loss of a message by the watcher is told: what is too large is lost again and again."""


def of_domain(scene: Scene) -> Iterator[Sign]:
    """Yield the signs about the domain as a whole, and about the watcher."""
    model, lost = scene.model, [one for one in scene.nodes if scene.presence(one) is not Presence.STOPPED]
    if (model.domain_lost_ns and not model.all_stopped) or (
        lost and not scene.heard and (model.link_lost or model.is_silent(scene.now_ns))
    ):
        lost_ns = model.domain_lost_ns or scene.now_ns
        heard_ns = [node.heard_ns for node in model.nodes.values() if not node.in_order]
        since_ns = min(lost_ns, max(heard_ns, default=lost_ns))
        nodes = tuple(model.nodes)
        silent_ns = max((one.all_lost_after_ns for one in lost), default=0)
        link = broken_link(scene, since_ns + silent_ns, since_ns)
        are_dead = bool(lost) and all(one.snapshot.name in scene.ends for one in lost)
        yield Sign(
            "DUL-DOMAIN-LOST", "domain", "this watch hears no node any more", since_ns, nodes,
            why="" if are_dead else link, guess=cause_of_domain_loss(scene),
            next=OWN_LINK if link else _stopped_processes(scene, [one.snapshot.name for one in lost]),
        )  # fmt: skip
    if model.left_out_ns and scene.now_ns - model.left_out_ns < LEFT_OUT_NS:
        what = f"{plural(model.messages_left_out, 'message')} not shown: no room, or unreadable"
        yield Sign("DUL-MESSAGES-LOST", "watcher", what)
