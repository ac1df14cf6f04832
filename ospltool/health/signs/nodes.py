"""Signs of nodes that are heard: slow, stuck, started again, with wrong clocks or settings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from engine.runtime.monitor import FellowView
from engine.tracing.catalogue import catalogue
from ospltool.health.codes import SECOND_NS, Sign, joined
from ospltool.health.facts import MAX_SKEW_NS
from ospltool.health.presence import MEETING_NS, SLOW_START_NS, HealthInput, Presence
from ospltool.health.signs import lost
from ospltool.live.feed import ENDING
from ospltool.live.nodes import Node
from ospltool.live.remarks import RESTARTED_NS, Remark, RemarkSubject

# Chosen: such a node reads first what has waited for it.
LATE_READING_NS: Final = 10 * SECOND_NS
"""Longest time for which a node that was stopped judges clocks by heartbeats that it read late."""

NAMESAKE_NS: Final = SECOND_NS
"""Time in which a node that is replaced by another one of its name may be heard last."""

# Short, because without a supervisor nobody restarts the node.
UNWATCHED_NS: Final = 2 * SECOND_NS
"""Time for which a debugger may hold a supervisor, or a node need to end whose supervisor was killed."""


def of_nodes(scene: HealthInput) -> Iterator[Sign]:
    """Yield the signs about the nodes themselves."""
    yield from lost.of_absent(scene)
    yield from _namesakes(scene)
    for node in scene.nodes:
        presence = scene.presence(node)
        if presence is Presence.HEARD:
            yield from _of_heard(scene, node)
            yield from _restarted(scene, node)
            yield from _remarks(scene, node)
        elif presence is not Presence.STOPPED and not scene.is_passing(node):
            yield lost.of_unheard(scene, node, scene.losses[node.id])


def _namesakes(scene: HealthInput) -> Iterator[Sign]:
    """Yield a sign for each name under which several nodes are heard beside each other."""
    named: dict[str, list[Node]] = {}
    for node in scene.heard:
        named.setdefault(node.snapshot.name, []).append(node)
    for name, nodes in named.items():
        if len(nodes) == 1 or min(one.heard_ns for one in nodes) <= max(one.came_ns for one in nodes):
            continue
        places = joined([f"on {lost.place(one)}" for one in nodes])
        what = f"{'two' if len(nodes) == 2 else len(nodes)} nodes of the name {name} run: {places}"
        since_ns = max(one.snapshot.started_ns - one.ahead_ns for one in nodes)
        ids = tuple(one.id for one in nodes)
        yield Sign("DUL-NAME-SHARED", name, what, since_ns, ids, patience_ns=NAMESAKE_NS)


def _of_heard(scene: HealthInput, node: Node) -> Iterator[Sign]:
    snapshot = node.snapshot
    name = snapshot.name
    starting = snapshot.state not in ("COMPLETE", *ENDING)
    if starting and snapshot.time_ns - snapshot.started_ns > SLOW_START_NS:
        state = snapshot.state.replace("_", " ").lower()
        what = f"{name} is still in {state}"
        was_awaited = node.came_ns - scene.model.began_ns > lost.ABSENT_NS  # it may have waited for room
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


def _skew(scene: HealthInput, node: Node, fellow: FellowView) -> Iterator[Sign]:
    """Yield a sign of a fellow's clock, unless it only seems slow to a node that reads heartbeats late.

    No delay makes a clock seem fast. So of a clock that is slow, the fellow sees this node's to be fast. If
    the fellow is not heard, or has not met the node, that is not known: late heartbeats get time to pass.
    """
    patience_ns = 0
    other = scene.model.nodes.get(fellow.id)
    facts = scene.facts(other) if other is not None and scene.is_heard(other) else None
    if fellow.skew_ns < 0 and not (facts and any(f.id == node.id and f.skew_ns > 0 for f in facts.skewed)):
        if facts and other is not None and node.id in other.fellows.met:
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
    RemarkSubject.RESTORED: "DUL-STORE-RESTORED",
    RemarkSubject.COUNTERS: "DUL-COUNTERS",
    RemarkSubject.DELETION: "DUL-DELETION-REFUSED",
}


_WHY: Final = {
    RemarkSubject.STALLED: "the process was stopped (SIGSTOP, a debugger), or its machine stood still",
    RemarkSubject.RESTORED: "a machine was restored, or a copy of its store put in place",
    RemarkSubject.FILTER: "a content filter of its configuration does not fit the type of the topic",
    RemarkSubject.IGNORED: "its configuration has settings without effect here",
}
"""Causes that the node's own message contains."""

NO_FAILURE: Final = (
    "Read its ospl-error.log: it was started by a new supervisor, which knows nothing of the failure."
)
"""Advice about a node whose supervisor has no failure to tell."""

_VERBS: Final = {RemarkSubject.RESTARTED: "failed and was started again"}


def _remarks(scene: HealthInput, node: Node) -> Iterator[Sign]:
    """Yield a sign for each topic of the remarks of this run of the node that hold."""
    name = node.snapshot.name
    told: dict[RemarkSubject, list[Remark]] = {}
    for remark in scene.model.remarks.present(node.id, scene.now_ns, node.ahead_ns):
        if not _is_over(scene, node, remark):
            told.setdefault(remark.topic, []).append(remark)
    told.pop(RemarkSubject.DISK, ())  # the snapshot shows what is wrong; it tells since when
    for remark in told.pop(RemarkSubject.LATE, ()):
        yield from _late(scene, node, remark)
    for remark in told.pop(RemarkSubject.UNSUPPORTED, ()):
        yield _unsupported(scene, node, remark)
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
            f"{name} {_VERBS.get(topic, 'says')}: {remarks[-1].text.removesuffix('.')}{more}",
            remarks[0].last_ns or (remarks[0].began_ns or remarks[0].time_ns) - node.ahead_ns,
            (node.id,),
            why=report.failure if report else _WHY.get(topic, ""),
            next=NO_FAILURE if report and not report.failure else advice,
            weight=len(remarks),
            occasion=(remarks[0].time_ns,) if topic is RemarkSubject.STALLED else (),
        )


def _is_over(scene: HealthInput, node: Node, remark: Remark) -> bool:
    """Return whether a remark is of a former run, does not hold any more, or is part of a loss of all."""
    if remark.topic is RemarkSubject.RESTARTED:
        return scene.is_excused(node, remark)
    if scene.is_excused(node, remark) or remark.is_before(node.snapshot):
        return True
    return remark.topic is RemarkSubject.UNSUPPORTED and _is_version_over(scene, node, remark)


def _restarted(scene: HealthInput, node: Node) -> Iterator[Sign]:
    """Yield a sign of a restart that only its supervisor saw: this watch began after it.

    A restart after the loss of all is part of that.
    """
    name, snapshot, report = node.snapshot.name, node.snapshot, scene.reports.get(node.snapshot.name)
    told = scene.model.remarks.present(node.id, scene.now_ns)
    again = [one for one in told if one.topic is RemarkSubject.RESTARTED]
    if report is None or any(not _is_over(scene, node, one) for one in again):
        return
    is_of_this_run = 0 < report.failed_ns <= snapshot.started_ns and report.pid == snapshot.pid
    if scene.was_of_all(node, report.failed_ns):
        return
    if is_of_this_run and scene.now_ns - snapshot.started_ns < RESTARTED_NS:
        what = f"{name} {_VERBS[RemarkSubject.RESTARTED]} by its supervisor"
        yield Sign("DUL-NODE-RESTARTED", name, what, report.failed_ns, (node.id,), why=report.failure)


def _late(scene: HealthInput, node: Node, remark: Remark) -> Iterator[Sign]:
    """Yield a sign about the fellow whose heartbeats are late, not about the node that waited for them.

    None if the fellow was lost since then and is back: that it was late was part of that.
    """
    name, since_ns = remark.subject, remark.time_ns - node.ahead_ns
    fellows = [one for one in scene.nodes if one.snapshot.name == name]
    if any(scene.is_heard(one) and one.moved_ns > max(since_ns, one.came_ns) for one in fellows):
        return
    who = tuple(one.id for one in fellows)
    what = f"{node.snapshot.name} says: {remark.text.removesuffix('.')}"
    yield Sign("DUL-HEARTBEAT-LATE", name, what, since_ns, (*who, node.id), subjects=who)


def _shared_identity(scene: HealthInput, node: Node, remark: Remark) -> Sign:
    who = " and ".join(scene.names_of(node))
    what = f"{who} have one id, {node.id[:8]}"
    if who == node.snapshot.name:
        what = f"two nodes of the name {who} have one id, {node.id[:8]}"
    why = "one of them was started on a copy of the other's store"
    return Sign("DUL-IDENTITY-SHARED", who, what, remark.time_ns, (node.id,), why=why)


# They are remarked once; a person who looks within ten minutes still sees them.
UNKNOWN_NS: Final = 600 * SECOND_NS
"""Time for which messages of a sender that is not heard, or of a kind that is not known, are told."""

_VERSION: Final = re.compile(r"(?P<version>-?\d{1,9}) '(?P<kind>.*)'")
"""A longer number is none: a node tells what anybody sent to it."""
_KNOWN: Final = re.compile(r"\d{1,9}")


class _Spoken(NamedTuple):
    """The versions that a sender speaks and that the telling node knows; equal if a kind is new."""

    theirs: int
    known: int


def _spoken(remark: Remark) -> _Spoken | None:
    found = catalogue().match(remark.text)
    fields = found[1] if found else {}
    version = _VERSION.fullmatch(fields.get("version", ""))
    known = fields.get("known", "")
    return _Spoken(int(version["version"]), int(known)) if version and _KNOWN.fullmatch(known) else None


def _is_version_over(scene: HealthInput, node: Node, remark: Remark) -> bool:
    """Return whether what a node told of another version is over.

    A node tells it once of each sender. So it holds as long as the sender is heard and is no fellow of the
    node: what speaks another version cannot become one.
    """
    sender = scene.model.nodes.get(remark.subject)
    spoken = _spoken(remark)
    if sender is None or spoken is None or spoken.theirs == spoken.known:
        return scene.now_ns - remark.time_ns >= UNKNOWN_NS or bool(sender and sender.gone_ns)
    return sender.gone_ns > 0 or sender.id in node.fellows.met


def _unsupported(scene: HealthInput, node: Node, remark: Remark) -> Sign:
    """Return a sign about both sides; `causes` finds the one that differs.

    The watcher may hear of the sender before it hears the sender: the sign waits for its name.
    """
    sender, spoken = scene.model.nodes.get(remark.subject), _spoken(remark)
    name = node.snapshot.name
    what, why = f"{name} says: {remark.text.removesuffix('.')}", ""
    nodes = tuple(filter(None, (node.id, remark.subject)))
    since_ns, patience_ns = (remark.time_ns, 0) if sender is not None else (0, MEETING_NS)
    names = sorted(scene.model.name_of(one) for one in nodes)
    if sender is not None and spoken is not None and spoken.theirs != spoken.known:
        other = sender.snapshot.name
        newer, older = (other, name) if spoken.theirs > spoken.known else (name, other)
        versions = f"{max(spoken)} ({newer}) and {min(spoken)} ({older})"
        what = f"{names[0]} and {names[1]} speak different versions of the protocol: {versions}"
        why = f"{newer} is of a newer release, whose protocol {older} does not know"
    who = " and ".join(names)
    return Sign("DUL-PROTOCOL", who, what, since_ns, nodes, why=why, patience_ns=patience_ns)
