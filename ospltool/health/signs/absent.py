"""Signs of nodes that are awaited and were never heard."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from ospltool.diagnostics.model import Severity
from ospltool.health.codes import SECOND_NS, Sign, joined
from ospltool.health.scene import Scene
from ospltool.health.signs.domain import stopped_processes
from ospltool.health.signs.losses import OWN_LINK, broken_link, look_at_host
from ospltool.health.signs.partings import IN_ORDER, Parting, partings
from ospltool.health.signs.proofs import refused_by_watch
from ospltool.health.signs.unheard import OUT_OF_REACH, RESTARTS, STARTED, STUCK
from ospltool.live.nodes import natural
from ospltool.live.remarks import clock
from ospltool.live.supervision import START_NS, SupervisorReport

ABSENT_NS: Final = 4 * SECOND_NS
"""Watching time after which an unheard node is absent: each sends a snapshot every second or two."""

TOGETHER_NS: Final = SECOND_NS
"""Longest time between the moments at which two fellows notice the end of a node, by their own clocks."""


def of_absent(scene: Scene) -> Iterator[Sign]:
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
        refused = refused_by_watch(scene)
        why = link or (scene.model.unproved.text if refused and scene.model.unproved else "")
        yield Sign(
            "DUL-DOMAIN-LOST", "domain", what, since_ns, why=why,
            next=OWN_LINK if link else refused or stopped_processes(scene, absent),
            began_before=not all(ends),
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
        what = (STARTED if report.pid else RESTARTS).format(name)
        code, known_ns = "DUL-NODE-SILENT", report.failed_ns
    elif report and report.never_ran and not hearing:
        code, what = "DUL-NODE-NOT-STARTED", f"{name} did not start, and was not heard since this watch began"
    elif (report and report.is_dead) or (farewell and not farewell.is_orderly and not hearing):
        code, what = "DUL-NODE-GONE", f"{name} is gone, and was not heard since this watch began"
        if farewell and farewell.time_ns >= (report.started_ns if report and report.is_dead else 0):
            bound_ns = farewell.time_ns
        if farewell and not farewell.is_orderly:
            tellers = joined(farewell.tellers)
            if not known_ns:
                known_ns = last_ns
                latest, at = "" if known_ns else ", at the latest", clock(known_ns or bound_ns)
                what = f"{name} is gone{latest} since {at} UTC according to {tellers}"
            why = why or f"{tellers} lost it at {clock(farewell.time_ns)} UTC: {farewell.reason}"
            advice = advice or look_at_host(name, f"the host of {name}")
    elif report and report.stuck:
        code, what, why = "DUL-NODE-STUCK", STUCK.format(what, report.stuck), ""
    elif hearing:
        what += f", but {joined(hearing)} {'hears' if len(hearing) == 1 else 'hear'} it"
        why = why or f"{joined(hearing)} heard it at {clock(last_ns)} UTC, and this watch did not reach it"
        advice = advice or OUT_OF_REACH.format(name)
    elif farewell:
        say = "says" if len(farewell.tellers) == 1 else "say"
        why = (
            why or f"it ended in order at {clock(farewell.time_ns)} UTC, as {joined(farewell.tellers)} {say}"
        )
    elif report is None and (link := broken_link(scene, scene.now_ns)):
        why, advice = link, OWN_LINK
    elif refused := refused_by_watch(scene, name):
        why, advice = "this watch refuses its messages", refused
    is_later = code == "DUL-NODE-GONE" and known_ns == last_ns > began_ns
    is_out_of_reach = bool(hearing) and code == "DUL-NODE-ABSENT"
    severity = Severity.WARNING if is_out_of_reach else None  # as of one that this watch has heard
    return Sign(
        code, name, what, known_ns if is_later else min(known_ns or bound_ns, began_ns), why=why, next=advice,
        severity=severity, weight=2, began_before=not known_ns, is_later=is_later,
    )  # fmt: skip


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
