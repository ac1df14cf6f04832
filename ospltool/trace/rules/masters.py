"""Masters: who follows whom, whether they agree, and whether an election settles."""

from __future__ import annotations

import collections
import itertools
from typing import TYPE_CHECKING, Final

from ospltool.trace.names import NOBODY
from ospltool.trace.rules import burst, finding, grouped, plural, rule, span
from ospltool.trace.times import SECOND_NS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ospltool.trace.facts import Choice, Facts
    from ospltool.trace.rules import Finding

CHANGES_PER_MINUTE: Final = 3
CONFLICTS_PER_MINUTE: Final = 5
MINUTE_NS: Final = 60 * SECOND_NS
OVERLAP_NS: Final = 2 * SECOND_NS
"""Two masters for less than this are a hand-over."""

LEGACY: Final = 255


@rule(
    "master-flapping", "a node that changes the master of a name-space three times in a minute or more often"
)
def flapping(facts: Facts) -> Iterator[Finding]:
    """A node whose master changes and changes."""
    for (run, namespace), choices in grouped(facts.choices, lambda one: (one.run, one.namespace)):
        changes = [later for earlier, later in itertools.pairwise(choices) if earlier.master != later.master]
        times = [one.place.time_ns or 0 for one in changes]
        if len(changes) >= CHANGES_PER_MINUTE and burst(times, CHANGES_PER_MINUTE, MINUTE_NS):
            masters = sorted({facts.names.node(one.master) for one in choices})
            yield finding(
                "master-flapping",
                f"{run[0]} changed the master of name-space {namespace} {len(changes)} times",
                f"It followed {', '.join(masters)} in turn. Every change marks all groups incomplete and "
                "starts a merge. "
                "Look at why the masters were lost (heartbeats, restarts), or at why elections end "
                "differently.",
                (one.place for one in changes),
                namespace=namespace,
                changes=len(changes),
                masters=masters,
            )


@rule(
    "master-livelock", "elections of a master that are repeated without end, because nodes choose differently"
)
def livelock(facts: Facts) -> Iterator[Finding]:
    """Master conflicts that return and return, each with a merge: an election that can not settle."""
    conflicts = [one for one in facts.conflicts if one.kind == "conflict.master"]
    for namespace, some in grouped(conflicts, lambda one: one.namespace):
        times = [one.created.time_ns or 0 for one in some]
        if not burst(times, CONFLICTS_PER_MINUTE, MINUTE_NS):
            continue
        choices = [
            one
            for one in facts.choices
            if one.namespace == namespace and min(times) <= (one.place.time_ns or 0)
        ]
        favourites = _favourites(choices)
        if len({master for master, _ in favourites.values()}) < 2:
            continue
        rounds = _rounds(facts, namespace)
        merges = collections.Counter(
            one.run[0]
            for one in facts.merges
            if one.namespace == namespace and (one.place.time_ns or 0) >= min(times)
        )
        took = span(min(times), max(times))
        who = "; ".join(_choice_text(facts, chooser, *choice) for chooser, choice in favourites.items())
        merge_text = ", ".join(f"{node} {count}" for node, count in sorted(merges.items()))
        yield finding(
            "master-livelock",
            f"name-space {namespace} never settles on a master: {plural(rounds, 'round')} of election and "
            f"merge in {took}",
            f"Nodes follow different masters, and stay with their choices: {who}. Each sees a master "
            "conflict in "
            f"the other's choice, elects again with the same result, and merges: "
            f"{plural(sum(merges.values()), 'merge')} "
            f"({merge_text}). {_cause(facts, favourites)}",
            (one.created for one in some),
            namespace=namespace,
            rounds=rounds,
            merges=dict(merges),
            merges_in_all=sum(merges.values()),
            conflicts=len(some),
            choices={
                facts.names.node(chooser): {
                    "address": chooser,
                    "master": facts.names.node(master),
                    "master_address": master,
                    "times": count,
                    "priority": facts.names.priority_of.get(chooser),
                    "master_priority": facts.names.priority_of.get(master),
                }
                for chooser, (master, count) in favourites.items()
            },
        )


def _favourites(choices: Iterable[Choice]) -> dict[str, tuple[str, int]]:
    """For each chooser the master that it confirmed most often, and how often."""
    counts: dict[str, collections.Counter[str]] = {}
    for one in choices:
        counts.setdefault(one.chooser, collections.Counter())[one.master] += 1
    return {chooser: of_one.most_common(1)[0] for chooser, of_one in counts.items()}


def _rounds(facts: Facts, namespace: str) -> int:
    """How many elections were held: what the busiest node, over all of its runs, resolved."""
    resolved = collections.Counter(
        one.run[0]
        for one in facts.conflicts
        if one.kind == "conflict.master" and one.namespace == namespace and one.how == "conflict.resolved"
    )
    return max(resolved.values(), default=0)


def _choice_text(facts: Facts, chooser: str, master: str, count: int) -> str:
    chosen = "itself" if master == chooser else _described(facts, master)
    return f"{_described(facts, chooser)} chose {chosen} {plural(count, 'time')}"


def _described(facts: Facts, address: str) -> str:
    priority = facts.names.priority_of.get(address)
    known = f"masterPriority {priority}, " if priority is not None else ""
    return f"{facts.names.node(address)} ({known}id {address})"


def _cause(facts: Facts, favourites: dict[str, tuple[str, int]]) -> str:
    """Why nodes choose differently, as far as the traces tell."""
    priorities = facts.names.priority_of
    for chooser, (master, _) in favourites.items():
        own = priorities.get(chooser)
        if own is None or own == LEGACY or master in {chooser, NOBODY}:
            continue
        better = [
            one
            for one, priority in priorities.items()
            if priority > priorities.get(master, 0) and one != master
        ]
        above_own = [one for one in better if priorities[one] > own]
        if not above_own or own >= priorities.get(master, 0):
            continue
        best = max(above_own, key=lambda one: priorities[one])
        if int(master) > int(best) if master.isdigit() and best.isdigit() else False:
            return (
                f"The wrong choice is that of {facts.names.node(chooser)}: {facts.names.node(best)} has the "
                "higher "
                f"masterPriority ({priorities[best]} against {priorities.get(master)}). OpenSplice compares "
                "every "
                f"candidate with the node's own priority ({own}) instead of with the best candidate so far, "
                "and walks "
                f"fellows in ascending order of id: of all fellows above {own} the one with the highest id "
                "wins, here "
                f"{facts.names.node(master)}. Ids are drawn at every start, so a restart may end it, or "
                "start it. Give "
                f"{facts.names.node(chooser)} and {facts.names.node(master)} the same masterPriority, or "
                "let no more "
                "than one fellow have a higher one than any node."
            )
    return (
        "Why they choose differently is not in the traces; compare the fellows that each node knew, their "
        "masterPriority and their quality."
    )


@rule("two-masters", "two nodes of one role that are master of a name-space at the same time")
def two_masters(facts: Facts) -> Iterator[Finding]:
    """More than one node acts as master."""
    for (namespace, role), spans in grouped(
        _reigns(facts), lambda one: (one[0].namespace, facts.roles.get(one[0].chooser, ""))
    ):
        ordered = sorted(spans, key=lambda one: one[1])
        for number, (first, start, end) in enumerate(ordered):
            for second, other_start, other_end in ordered[number + 1 :]:
                overlap = min(end, other_end) - max(start, other_start)
                if first.run[0] == second.run[0] or overlap < OVERLAP_NS:
                    continue
                lost = _lost_each_other(facts, first, second, max(start, other_start))
                why = (
                    "They had lost each other, so each side elected its own master; data written "
                    "meanwhile is merged after they meet again."
                    if lost
                    else "They knew each other: compare masterPriority, quality and id in their lines."
                )
                yield finding(
                    "two-masters",
                    f"{first.run[0]} and {second.run[0]} were both master of name-space {namespace} for "
                    f"{span(0, overlap)}",
                    f"Role {role or 'unknown'}. {why}",
                    [first.place, second.place],
                    namespace=namespace,
                    role=role,
                    overlap_ns=overlap,
                    separated=lost,
                )


def _reigns(facts: Facts) -> Iterator[tuple[Choice, int, int]]:
    """From when to when a node took itself for the master."""
    for (run, _), choices in grouped(facts.choices, lambda one: (one.run, one.namespace)):
        begun: Choice | None = None
        for one in choices:
            if one.master == one.chooser:
                begun = begun or one
            elif begun is not None:
                yield begun, begun.place.time_ns or 0, one.place.time_ns or 0
                begun = None
        if begun is not None:
            yield begun, begun.place.time_ns or 0, facts.last_ns.get(run, 0)


def _lost_each_other(facts: Facts, first: Choice, second: Choice, around_ns: int) -> bool:
    pairs = {(first.run, second.chooser), (second.run, first.chooser)}
    return any(
        (run, fellow) in pairs and abs((place.time_ns or 0) - around_ns) < MINUTE_NS
        for run, _, fellow, place in facts.losses
    )
