"""Signs of what is not heard: lost nodes, nodes that were never heard, and the domain as a whole.

What a node is, `presence` decides; here stands what is told of it, and of the cause: what its host, its
fellows and this watch show. What is told of others is told in the past tense with its time, because they may
be lost later, and the cause of this loss stays as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from ospltool.diagnostics.model import Severity
from ospltool.health.codes import CUT, SECOND_NS, UNANNOUNCED, Sign, continue_them, joined
from ospltool.health.presence import (
    STRANGER_NS,
    Departure,
    HealthInput,
    NodeLoss,
    Presence,
    fellows_of,
    is_on_one_host,
)
from ospltool.health.signs.proofs import refused_by_watch
from ospltool.live.nodes import Node
from ospltool.live.remarks import clock
from ospltool.live.supervision import START_NS, SupervisorReport
from ospltool.output.text import plural

OWN_LINK: Final = (
    "Bring the network of this watch back, or run `ospltool health` on another host; `ospltool status` on "
    "the host of a node says whether that runs."
)
OUT_OF_REACH: Final = (
    "Compare the interface and the CYCLONEDDS_URI of this watch with those of {}, or watch from its host."
)
RESTARTS: Final = "{} failed, and its supervisor starts it again"
SILENT: Final = "cause unknown: process stopped (SIGSTOP), starved, or killed"
STUCK: Final = "{}, and says on its host: {} does not proceed"
STARTED: Final = "{} failed, was started again, and is not heard yet"
# Two snapshots of the slowest, as one may be lost.
ABSENT_NS: Final = 4 * SECOND_NS
"""Watching time after which an unheard node is absent: each sends a snapshot every second or two."""
# Longer than the pause between two that are lost, so that the sign does not flicker.
LEFT_OUT_NS: Final = 5 * SECOND_NS
"""Time for which the loss of a message by the watcher is told: what is too large is lost again and again."""


def of_domain(scene: HealthInput) -> Iterator[Sign]:
    """Yield the signs about the domain as a whole, and about the watcher."""
    model, lost = scene.model, [one for one in scene.nodes if scene.presence(one) is not Presence.STOPPED]
    if (model.domain_lost_ns and not scene.memory.all_stopped(model)) or (
        lost and not scene.heard and (model.link_lost or scene.is_silent)
    ):
        lost_ns = model.domain_lost_ns or scene.now_ns
        heard_ns = [node.heard_ns for node in model.nodes.values() if not scene.memory.has_ended(node)]
        since_ns = min(lost_ns, max(heard_ns, default=lost_ns))
        silent_ns = max((one.all_lost_after_ns for one in lost), default=0)
        link = scene.broken_link(since_ns + silent_ns, since_ns)
        are_dead = bool(lost) and all(one.snapshot.name in scene.ends for one in lost)
        guess = "cause unknown: the network of this watch is cut or changed, or every node was killed at once"
        if lost and all(not scene.here.isdisjoint(one.snapshot.addresses) for one in lost):
            guess = (
                "cause unknown: all processes killed, crashed or stopped; their host is that of this watch"
            )
        yield Sign(
            "DUL-DOMAIN-LOST", "domain", "this watch hears no node any more", since_ns, tuple(model.nodes),
            why="" if are_dead else link, guess=guess,
            next=OWN_LINK if link else _stopped_processes(scene, [one.snapshot.name for one in lost]),
        )  # fmt: skip
    if model.left_out_ns and scene.now_ns - model.left_out_ns < LEFT_OUT_NS:
        what = f"{plural(model.messages_left_out, 'message')} not shown: no room, or unreadable"
        yield Sign("DUL-MESSAGES-LOST", "watcher", what)


def _stopped_processes(scene: HealthInput, names: Iterable[str]) -> str:
    """Return the advice about the stopped processes of nodes on this machine; empty without any."""
    reports = {name: scene.reports.get(name) for name in names}
    stopped = {name: report.stopped for name, report in reports.items() if report and report.stopped}
    if not stopped:
        return ""
    them = "the process" if len(stopped) == 1 else "the processes"
    pids = [pid for each in stopped.values() for pid in each]
    return continue_them(f"{them} of {joined(list(stopped))}", pids)


def of_unheard(scene: HealthInput, node: Node, loss: NodeLoss) -> Sign:
    """Return the sign of a node that is not heard and has not ended in order."""
    name, report = node.snapshot.name, scene.reports.get(node.snapshot.name)
    advice = report.next if report else ""
    if report and report.stuck and report.pid == node.snapshot.pid:  # it runs, though nobody hears of it
        what = STUCK.format(f"{name} is not heard", report.stuck)
        return Sign("DUL-NODE-STUCK", name, what, loss.since_ns, (node.id,), next=advice)
    why = loss.why
    told = _Cause() if why else _cause_of(scene, node, loss)
    if loss.presence is Presence.SILENT:
        what = RESTARTS.format(name) if loss.restarts else f"{name} is silent"
        if loss.is_hearing and loss.is_gone:
            what, advice = f"{name} is out of reach of this watch", told.next or OUT_OF_REACH.format(name)
        if report and report.pid and report.pid != node.snapshot.pid:
            what = STARTED.format(name)
            advice = f"Wait: {name} starts. If it is not heard in a minute, read its ospl-error.log."
        is_urgent = not scene.heard and scene.now_ns - node.heard_ns > 2 * node.stale_after_ns
        return Sign(
            "DUL-NODE-SILENT", name, what, loss.since_ns, (node.id,), why=why or told.why, guess=told.guess,
            next=advice or told.next, severity=Severity.ERROR if is_urgent else None,
            began_before=loss.began_before,
        )  # fmt: skip
    if node.lost_supervisor and not why:
        why = "its supervisor was killed, and the node ended by itself"
        advice = "Start it again on its host: `ospltool start` with its configuration."
    code, what = "DUL-NODE-GONE", f"{name} is gone"
    is_of_start = scene.has_failed_to_start(node)
    if report and is_of_start:
        code = "DUL-NODE-NOT-STARTED" if report.never_ran else code
        what = f"{name} was stopped, and its next start has failed"
    return Sign(
        code, name, what, loss.since_ns, (node.id,), why=why or told.why,
        guess=told.guess, next=advice or told.next, weight=2, began_before=loss.began_before,
        is_later=not is_of_start and loss.since_ns > node.heard_ns + node.stale_after_ns,
    )  # fmt: skip


class _Cause(NamedTuple):
    """The cause of a loss: `why` if it is known, else `guess` with every cause that is left.

    `next` says what to look at first; empty for the advice of the code.
    """

    why: str = ""
    guess: str = ""
    next: str = ""


def _cause_of(scene: HealthInput, node: Node, loss: NodeLoss) -> _Cause:
    """Return what is known of the cause why a node is not heard.

    Hosts are told apart by addresses: several may share a name. A node that is not gone may be busy, and
    speak again.
    """
    if loss.link:
        return _Cause(loss.link, next=OWN_LINK)
    if loss.hearing:
        names = joined([name for name, _ in loss.hearing])
        said = f"{names} heard it at {clock(max(ns for _, ns in loss.hearing))} UTC"
        if loss.is_gone:
            return _Cause(f"{CUT}: {said}")
        return _Cause(guess=f"cause unknown: link to this watch cut, or a thread of it stands still; {said}")
    if answer := _answer(scene, node):
        if loss.is_gone:
            return _Cause(f"{UNANNOUNCED}; {answer}")
        return _Cause(guess=f"{SILENT}; {answer}")
    addresses = node.snapshot.addresses
    where = place(node) if addresses else "its host"
    pinged = f": `ping {where}` from here and from a host whose node is heard" if addresses else ""
    advice = _look_at_host(node.snapshot.name, f"the host {node.snapshot.host}", pinged)
    together = _lost_together(scene, node)
    if together:
        names = joined([node.snapshot.name, *together])
        return _Cause(
            guess=f"cause unknown: link to {where} cut, or host down; {names} were lost together", next=advice
        )
    known = "no other node there is heard" if addresses else "the node tells no address"
    last_ns = scene.last_sign_ns(node)
    if last_ns > node.heard_ns + node.stale_after_ns:
        names = joined([one.snapshot.name for one in fellows_of(node, scene.heard)])
        known = f"{names} lost it, too, and heard it last at {clock(last_ns)} UTC"
    return _Cause(
        guess=f"cause unknown: link to {where} cut, host down, or process killed or stopped; {known}",
        next=advice,
    )


def _look_at_host(name: str, called: str, pinged: str = "") -> str:
    """Return the advice on a node that may be cut off as well as dead; `called` names its host.

    `pinged` says how to see whether that answers.
    """
    return (
        f"Look at {called} first, and at the link to it{pinged}. "
        f"If it answers, run `ospltool status` there, and start {name} again if it does not run."
    )


def place(node: Node) -> str:
    """Return the address of a node's host; its name if the node tells none beyond loopback."""
    address = next(iter(node.snapshot.addresses), "127.")
    return node.snapshot.host if address.startswith("127.") else address


def _answer(scene: HealthInput, node: Node) -> str:
    """Tell that the host of a node answers although the node does not; empty if that is not known.

    Nodes that were heard only until it was overdue may have been lost together with it.
    """
    if not scene.here.isdisjoint(node.snapshot.addresses):
        return "its host is that of this watch"
    there = [one for one in scene.heard if one.heard_ns > node.overdue_ns and is_on_one_host(one, node)]
    if not there:
        return ""
    names = joined([one.snapshot.name for one in there])
    were = "was" if len(there) == 1 else "were"
    moment = clock(max(one.heard_ns for one in there))
    return f"its host {place(node)} answered: {names} {were} heard there at {moment} UTC"


def _lost_together(scene: HealthInput, node: Node) -> list[str]:
    """Return the other nodes of its host if all were lost when it was; empty without any."""
    others = [one for one in scene.nodes if one.id != node.id and is_on_one_host(one, node)]
    others = [one for one in others if scene.presence(one) is not Presence.STOPPED]
    is_at_once = all(
        not scene.is_heard(one)
        and abs(one.heard_ns - node.heard_ns) <= max(one.stale_after_ns, node.stale_after_ns)
        for one in others
    )
    return [one.snapshot.name for one in others] if is_at_once else []


def of_absent(scene: HealthInput) -> Iterator[Sign]:
    """Yield signs of awaited nodes that were never heard; of no expected one, also one of the domain."""
    model, absent, watched_ns = scene.model, scene.missing, scene.now_ns - scene.model.began_ns
    for name, report in absent.items():
        hearing, knowing = scene.heard_by(name)
        is_dead = watched_ns >= STRANGER_NS and bool(report and report.is_dead)
        is_lost = is_dead or name in scene.lost_unannounced or (bool(knowing) and not hearing)
        if is_lost or (
            watched_ns >= ABSENT_NS and (not scene.is_gathering or (report and report.is_trouble))
        ):
            yield _absence(scene, name, report, hearing, knowing)
    if (
        watched_ns >= ABSENT_NS
        and len(scene.expected.nodes) > 1
        and set(scene.expected.nodes) <= absent.keys()
    ):
        names = joined(list(absent))
        what = f"none of {len(absent)} expected nodes was heard since this watch began: {names}"
        ends = [report.ended_ns if report else 0 for report in absent.values()]
        since_ns = min(max(ends), model.began_ns) if all(ends) else model.began_ns
        link = scene.broken_link(scene.now_ns)
        refused = refused_by_watch(scene)
        yield Sign(
            "DUL-DOMAIN-LOST", "domain", what, since_ns,
            why=link or (model.unproved.text if refused and model.unproved else ""),
            next=OWN_LINK if link else refused or _stopped_processes(scene, absent),
            began_before=not all(ends),
        )  # fmt: skip


def _cause_of_absence(
    scene: HealthInput, name: str, report: SupervisorReport | None, departure: Departure | None
) -> _Cause:
    """Return what is known of the cause why a node was never heard, if it may run as well as not."""
    if departure:
        tellers, say = joined(departure.tellers), "says" if len(departure.tellers) == 1 else "say"
        return _Cause(f"it ended in order at {clock(departure.time_ns)} UTC, as {tellers} {say}")
    if report is None and (link := scene.broken_link(scene.now_ns)):
        return _Cause(link, next=OWN_LINK)
    refused = refused_by_watch(scene, name)
    return _Cause("this watch refuses its messages", next=refused) if refused else _Cause()


def _not_heard(scene: HealthInput, name: str, report: SupervisorReport | None) -> str:
    """Return that an awaited node is not heard, and why it is awaited."""
    if report and report.waits_for_room:
        return f"{name} runs, waits for room to open its store, and was not heard since this watch began"
    if name in scene.expected.nodes:
        return f"{name} is expected and was not heard since this watch began"
    if report:
        return f"{name} was started on this machine and is not heard"
    return f"{name} was not heard since this watch began"


def _absence(
    scene: HealthInput,
    name: str,
    report: SupervisorReport | None,
    hearing: list[str],
    knowing: list[str],
) -> Sign:
    """Return the sign of an awaited node that was never heard.

    Args:
        scene: the system.
        name: the node.
        report: what its supervisor on this machine tells.
        hearing: the nodes that hear it.
        knowing: the nodes that have not removed it.
    """
    began_ns, code, why, advice, guess = scene.model.began_ns, "DUL-NODE-ABSENT", "", "", ""
    departure, what = scene.departures.get(name), _not_heard(scene, name, report)
    if report:
        why, advice = report.cause_since(scene.now_ns - START_NS), report.next
    last_ns = scene.memory.strangers.get(name, 0)
    known_ns = report.ended_ns if report else 0
    bound_ns = began_ns
    if report and report.restarts(scene.now_ns):
        what = (STARTED if report.pid else RESTARTS).format(name)
        code, known_ns = "DUL-NODE-SILENT", report.failed_ns
    elif report and report.never_ran and not hearing:
        code, what = "DUL-NODE-NOT-STARTED", f"{name} did not start, and was not heard since this watch began"
    elif (report and report.is_dead) or (departure and not departure.is_orderly and not knowing):
        code, what = "DUL-NODE-GONE", f"{name} is gone, and was not heard since this watch began"
        if departure and departure.time_ns >= (report.started_ns if report and report.is_dead else 0):
            bound_ns = departure.time_ns
        if departure and not departure.is_orderly:
            tellers = joined(departure.tellers)
            if not known_ns:
                known_ns = last_ns
                latest, at = "" if known_ns else ", at the latest", clock(known_ns or bound_ns)
                what = f"{name} is gone{latest} since {at} UTC according to {tellers}"
            why = why or f"{tellers} lost it at {clock(departure.time_ns)} UTC: {departure.reason}"
            advice = advice or _look_at_host(name, f"the host of {name}")
    elif report and report.stuck:
        code, what, why = "DUL-NODE-STUCK", STUCK.format(what, report.stuck), ""
    elif hearing:
        what += f", but {joined(hearing)} {'hears' if len(hearing) == 1 else 'hear'} it"
        why = why or f"{joined(hearing)} heard it at {clock(last_ns)} UTC, and this watch did not reach it"
        advice = advice or OUT_OF_REACH.format(name)
    elif knowing:
        code, what, known_ns = "DUL-NODE-SILENT", f"{name} is silent", last_ns
        guess = f"{SILENT}; {joined(knowing)} heard it last at {clock(last_ns)} UTC"
    else:
        cause = _cause_of_absence(scene, name, report, departure)
        why, advice = (cause.why, cause.next or advice) if cause.next or not why else (why, advice)
    is_later = code == "DUL-NODE-GONE" and known_ns == last_ns > began_ns
    is_out_of_reach = bool(hearing) and code == "DUL-NODE-ABSENT"
    severity = Severity.WARNING if is_out_of_reach else None  # as of one that this watch has heard
    since_ns = known_ns if known_ns and known_ns == last_ns else min(known_ns or bound_ns, began_ns)
    return Sign(
        code, name, what, since_ns, why=why, next=advice,
        severity=severity, weight=2, began_before=not known_ns, is_later=is_later, guess=guess,
    )  # fmt: skip
