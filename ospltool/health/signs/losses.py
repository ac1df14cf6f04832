"""The cause of the loss of a node: what its host, its fellows and this watch show of it."""

from __future__ import annotations

from typing import Final, NamedTuple

from ospltool.health.codes import CUT, OF_WATCH, SECOND_NS, UNANNOUNCED, joined
from ospltool.health.hearings import fellows_of, has_heard_since, told_ns
from ospltool.health.scene import MEETING_NS, Scene
from ospltool.health.signs.partings import partings
from ospltool.live.feed import FeedNotice, no_route
from ospltool.live.nodes import Node, Presence
from ospltool.live.remarks import clock

OWN_LINK: Final = (
    "Bring the network of this watch back, or run `ospltool health` on another host; `ospltool status` on "
    "the host of a node says whether that runs."
)

HEARD_YET_NS: Final = 2 * SECOND_NS
"""Longest time for which what was on its way is heard after a link is seen to be broken."""


class LossCause(NamedTuple):
    """The cause of a loss in words: `why` if it is known, else `guess` with every cause that is left.

    `is_hearing`: fellows may hear the node, because it is only this watch that has lost it. `next`: what to
    look at first; empty for the advice of the code.
    """

    why: str = ""
    guess: str = ""
    is_hearing: bool = False
    next: str = ""


def cause_of_loss(scene: Scene, node: Node, *, is_gone: bool) -> LossCause:
    """Return what is known of the cause why a node is not heard.

    Hosts are told apart by addresses: several may share a name. What is told of others is told in the past
    tense with its time, because they may be lost later, and the cause of this loss stays as it was.

    Args:
        scene: the system now.
        node: a node that is not heard and has not ended in order.
        is_gone: its participant left, or its lease ended; else it may be busy, and speak again.
    """
    hearing = hearing_of(scene, node)
    link = own_link(scene, node)
    if link:
        return LossCause(link, is_hearing=True, next=OWN_LINK)
    if hearing:
        names = joined([name for name, _ in hearing])
        said = f"{names} heard it at {clock(max(ns for _, ns in hearing))} UTC"
        if is_gone:
            return LossCause(f"{CUT}: {said}", is_hearing=True)
        return LossCause(
            guess=f"cause unknown: link to this watch cut, or a thread of it stands still; {said}",
            is_hearing=True,
        )
    answer = _answer(scene, node)
    if answer and is_gone:
        return LossCause(f"{UNANNOUNCED}; {answer}")
    if answer:
        return LossCause(guess=f"cause unknown: process stopped (SIGSTOP), starved, or killed; {answer}")
    where = place(node) if node.snapshot.addresses else "its host"
    pinged = f": `ping {where}` from here and from a host whose node is heard" * bool(node.snapshot.addresses)
    advice = look_at_host(node.snapshot.name, f"the host {node.snapshot.host}", pinged)
    together = _lost_together(scene, node)
    if together:
        names = joined([node.snapshot.name, *together])
        return LossCause(
            guess=f"cause unknown: link to {where} cut, or host down; {names} were lost together", next=advice
        )
    known = "no other node there is heard" if node.snapshot.addresses else "the node tells no address"
    last_ns = last_sign_ns(scene, node)
    if last_ns > node.heard_ns + node.stale_after_ns:
        names = joined([one.snapshot.name for one in fellows_of(node, scene.heard)])
        known = f"{names} lost it, too, and heard it last at {clock(last_ns)} UTC"
    return LossCause(
        guess=f"cause unknown: link to {where} cut, host down, or process killed or stopped; {known}",
        next=advice,
    )


def look_at_host(name: str, called: str, pinged: str = "") -> str:
    """Return the advice on a node that may be cut off as well as dead; `called` names its host.

    `pinged` says how to see whether that answers.
    """
    return (
        f"Look at {called} first, and at the link to it{pinged}. "
        f"If it answers, run `ospltool status` there, and start {name} again if it does not run."
    )


def broken_link(scene: Scene, until_ns: int, heard_ns: int = 0) -> str:
    """Return what is wrong with the interfaces of this watch, if it was so before a moment; else nothing.

    It has nothing to do with the loss of a node that was heard long after it began (`heard_ns`), as one of
    this host may be.
    """
    link = scene.model.link_lost
    if link is None or link.time_ns > until_ns or heard_ns - link.time_ns > HEARD_YET_NS:
        return ""
    return f"{link.text} {OF_WATCH}{_seen(scene, link)}"


def broken_route(scene: Scene, node: Node, until_ns: int, heard_ns: int = 0) -> str:
    """Return that no route leads to a node, if it was so before a moment; else nothing.

    It has nothing to do with the loss of a node that was heard long after it began (`heard_ns`): what comes
    from there needs no route.
    """
    lost = scene.model.route_lost
    if lost is None or lost.time_ns > until_ns or heard_ns - lost.time_ns > HEARD_YET_NS:
        return ""
    addresses = set(node.snapshot.addresses)
    if not addresses or not addresses <= {*lost.text.split()}:
        return ""
    text = no_route(sorted(addresses))
    return f"{text} {OF_WATCH}{_seen(scene, lost)}"


def _seen(scene: Scene, notice: FeedNotice) -> str:
    """Return when the watch saw something of its host, or that it may have been there before."""
    is_first = notice.time_ns - scene.model.began_ns <= HEARD_YET_NS
    return f"{'before ' if is_first else ''}{clock(notice.time_ns)} UTC"


def own_link(scene: Scene, node: Node) -> str:
    """Return what was wrong with the interfaces of this watch when it lost a node; else nothing.

    A node of the same host needs none, as long as others of that host are heard. A route is no matter for a
    node that its fellows elsewhere have lost.
    """
    until_ns = node.heard_ns + node.stale_after_ns
    route = "" if _is_lost_elsewhere(scene, node) else broken_route(scene, node, until_ns, node.heard_ns)
    link = broken_link(scene, until_ns, node.heard_ns) or route
    if link and not scene.here.isdisjoint(node.snapshot.addresses):
        return "" if any(is_on_one_host(one, node) for one in scene.heard) else link
    return link


def _is_lost_elsewhere(scene: Scene, node: Node) -> bool:
    """Return whether all heard fellows on hosts other than that of the watch have removed the node."""
    fellows = fellows_of(node, scene.heard)
    elsewhere = [one for one in fellows if scene.here.isdisjoint(one.snapshot.addresses)]
    return bool(elsewhere) and not any(node.id in one.fellows.places for one in elsewhere)


def cause_of_domain_loss(scene: Scene) -> str:
    """Return the causes that are left when all nodes that were heard are lost."""
    lost = [one for one in scene.nodes if scene.presence(one) is not Presence.STOPPED]
    if lost and all(not scene.here.isdisjoint(one.snapshot.addresses) for one in lost):
        return "cause unknown: all processes killed, crashed or stopped; their host is that of this watch"
    return "cause unknown: the network of this watch is cut or changed, or every node was killed at once"


def place(node: Node) -> str:
    """Return the address of a node's host; its name if the node tells none beyond loopback."""
    address = next(iter(node.snapshot.addresses), "127.")
    return node.snapshot.host if address.startswith("127.") else address


def is_on_one_host(one: Node, other: Node) -> bool:
    """Return whether two nodes are known to run on one host; False if a node tells no address."""
    return not set(one.snapshot.addresses).isdisjoint(other.snapshot.addresses)


def before_meeting_ns(scene: Scene, node: Node) -> int:
    """Return the last sign of life of a node before fellows, a moment ago, began to hear it again; else 0."""
    return scene.hearings.before_ns(node, scene.now_ns - MEETING_NS)


def last_sign_ns(scene: Scene, node: Node) -> int:
    """Return the last sign of life of a lost node, before fellows began to hear it again."""
    return before_meeting_ns(scene, node) or scene.hearings.last_ns(node)


def hearing_of(scene: Scene, node: Node) -> list[tuple[str, int]]:
    """Return the heard nodes that heard a heartbeat of the node after this watch missed it, each with when.

    Fellows that hear it again, as after a restart, do not count until this watch had the time to meet it too.
    What they tell is noted, and known when they have removed the node.
    """
    if not scene.heard:
        return []
    told = [(one, moment_ns) for one in scene.heard if (moment_ns := told_ns(one, node.id))]
    newest_ns = max((moment_ns for _, moment_ns in told), default=0)
    run_ns = max(_newer_run_ns(scene, node), _parted_ns(scene, node))
    begin_ns = scene.hearings.since_ns(node, newest_ns, run_ns)
    is_anew = begin_ns > node.heard_ns and scene.now_ns - begin_ns <= MEETING_NS
    if is_anew or newest_ns < run_ns:
        return []
    return [(one.snapshot.name, moment_ns) for one, moment_ns in told if has_heard_since(one, node)]


def _parted_ns(scene: Scene, node: Node) -> int:
    """Return when the fellows that hear a node again lost it; 0 if one of them has heard it all the time."""
    hearing = {one.id: one for one in scene.heard if has_heard_since(one, node)}
    found: dict[str, int] = {}
    for parting in partings(scene.model) if hearing else ():
        event = parting.event
        if event.time_ns < node.heard_ns:
            break
        if event.node in hearing and parting.fellow == node.snapshot.name:
            teller = hearing[event.node]
            found.setdefault(event.node, event.time_ns + teller.heard_ns - teller.snapshot.time_ns)
    are_again = found.keys() == hearing.keys() and all(
        told_ns(hearing[one], node.id) > parted_ns for one, parted_ns in found.items()
    )
    return max(found.values(), default=0) if are_again else 0


def _newer_run_ns(scene: Scene, node: Node) -> int:
    """Return when the run began that a supervisor of this machine started after the lost one; 0 for none."""
    report = scene.reports.get(node.snapshot.name)
    if report is None or not report.pid or report.pid == node.snapshot.pid:
        return 0
    return max(report.started_ns, report.failed_ns)


def _answer(scene: Scene, node: Node) -> str:
    """Tell that the host of a node answers although the node does not; empty if that is not known.

    Nodes that were heard only until it was overdue may have been lost together with it.
    """
    if not scene.here.isdisjoint(node.snapshot.addresses):
        return "its host is that of this watch"
    there = [one for one in scene.heard if one.heard_ns > node.overdue_ns and is_on_one_host(one, node)]
    if not there:
        return ""
    names = joined([one.snapshot.name for one in there])
    moment = clock(max(one.heard_ns for one in there))
    return f"its host {place(node)} answered: {names} {_were(there)} heard there at {moment} UTC"


def _were(nodes: list[Node]) -> str:
    return "was" if len(nodes) == 1 else "were"


def _lost_together(scene: Scene, node: Node) -> list[str]:
    """Return the other nodes of its host if all were lost when it was; empty without any."""
    others = [one for one in scene.nodes if one.id != node.id and is_on_one_host(one, node)]
    others = [one for one in others if scene.presence(one) is not Presence.STOPPED]
    is_at_once = all(
        not scene.is_heard(one)
        and abs(one.heard_ns - node.heard_ns) <= max(one.stale_after_ns, node.stale_after_ns)
        for one in others
    )
    return [one.snapshot.name for one in others] if is_at_once else []
