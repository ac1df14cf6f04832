"""Signs of nodes that were heard and are not heard now: silent, or gone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from ospltool.diagnostics.model import Severity
from ospltool.health.codes import SECOND_NS, Sign
from ospltool.health.hearings import fellows_of
from ospltool.health.runs import has_failed_to_start
from ospltool.health.scene import Scene
from ospltool.health.signs.losses import (
    LossCause,
    before_meeting_ns,
    cause_of_loss,
    hearing_of,
    last_sign_ns,
    own_link,
)
from ospltool.health.signs.partings import last_parting_ns
from ospltool.live.nodes import Node, Presence
from ospltool.live.supervision import START_NS

OUT_OF_REACH: Final = (
    "Compare the interface and the CYCLONEDDS_URI of this watch with those of {}, or watch from its host."
)
RESTARTS: Final = "{} failed, and its supervisor starts it again"
STUCK: Final = "{}, and says on its host: {} does not proceed"
STARTED: Final = "{} failed, was started again, and is not heard yet"


def is_passing(scene: Scene, node: Node) -> bool:
    """Return whether a node has time to be heard again, or until no other one is heard either.

    So has one that was not told yet when its fellows hear it again: this watch is about to meet it, too.
    """
    is_met = before_meeting_ns(scene, node) and not scene.model.outages.is_alone(node)
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
    runs = bool(report and (report.is_trouble or report.stuck or stood) and not report.is_dead)
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
    last_ns = last_sign_ns(scene, node)
    since_ns = node.heard_ns if cause.is_hearing else last_ns
    if report and has_failed_to_start(node, report):
        since_ns = last_ns = report.started_ns
    unseen_ns = 0 if cause.is_hearing else _unseen_loss_ns(scene, node, since_ns)
    return NodeLoss(why, cause, is_gone, restarts, has_ended, unseen_ns or since_ns, bool(unseen_ns))


def _unseen_loss_ns(scene: Scene, node: Node, last_ns: int) -> int:
    """Return when fellows lost a node long after its last known sign of life, as this watch heard nobody.

    0 if that sign was the last one.
    """
    known_ns = last_ns + node.stale_after_ns + SECOND_NS
    if last_ns > node.heard_ns + node.stale_after_ns or not scene.model.outages.was_lost_with_all(node):
        return 0
    return last_parting_ns(scene.model, node.snapshot.name, known_ns)


def of_unheard(scene: Scene, node: Node, loss: NodeLoss) -> Sign:
    """Return the sign of a node that is not heard and has not ended in order."""
    name, report = node.snapshot.name, scene.reports.get(node.snapshot.name)
    advice = report.next if report else ""
    why, told = loss.why, loss.cause
    if report and report.stuck and report.pid == node.snapshot.pid:  # it runs, though nobody hears of it
        what = STUCK.format(f"{name} is not heard", report.stuck)
        return Sign("DUL-NODE-STUCK", name, what, loss.since_ns, (node.id,), next=advice)
    if loss.presence is Presence.SILENT:
        what = RESTARTS.format(name) if loss.restarts else f"{name} is silent"
        if told.is_hearing and loss.is_gone:
            what, advice = f"{name} is out of reach of this watch", told.next or OUT_OF_REACH.format(name)
        if report and report.pid and report.pid != node.snapshot.pid:
            what = STARTED.format(name)
            advice = f"Wait: {name} starts. If it is not heard in a minute, read its ospl-error.log."
        is_urgent = not scene.heard and scene.now_ns - node.heard_ns > 2 * node.stale_after_ns
        severity = Severity.ERROR if is_urgent else None
        return Sign(
            "DUL-NODE-SILENT", name, what, loss.since_ns, (node.id,), why=why or told.why, guess=told.guess,
            next=advice or told.next, severity=severity, began_before=loss.began_before,
        )  # fmt: skip
    if node.lost_supervisor and not why:
        why = "its supervisor was killed, and the node ended by itself"
        advice = "Start it again on its host: `ospltool start` with its configuration."
    code, what = "DUL-NODE-GONE", f"{name} is gone"
    is_of_start = bool(report and has_failed_to_start(node, report))
    if report and is_of_start:
        code = "DUL-NODE-NOT-STARTED" if report.never_ran else code
        what = f"{name} was stopped, and its next start has failed"
    return Sign(
        code, name, what, loss.since_ns, (node.id,), why=why or told.why,
        guess=told.guess, next=advice or told.next, weight=2, began_before=loss.began_before,
        is_later=not is_of_start and loss.since_ns > node.heard_ns + node.stale_after_ns,
    )  # fmt: skip


def _is_removed(scene: Scene, node: Node) -> bool:
    """Return whether all heard nodes that the node had as fellows have removed it; False without any."""
    fellows = fellows_of(node, scene.heard)
    return bool(fellows) and not any(node.id in one.fellows.places for one in fellows)
