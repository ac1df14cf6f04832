"""Rules about masters: disagreement and frequent changes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final

from ospltool.output.text import plural
from ospltool.output.times import SECOND_NS
from ospltool.trace.meaning import coverage
from ospltool.trace.meaning.fact_kinds import MasterConfirmation
from ospltool.trace.meaning.lines import RecordPlace
from ospltool.trace.meaning.trace_facts import TraceFacts
from ospltool.trace.rules import TraceFinding, burst, finding, grouped, rule, run_at, span, stopping_ns

# A node that goes and comes back makes two.
CHANGES_PER_MINUTE: Final = 3
MINUTE_NS: Final = 60 * SECOND_NS
# A heartbeat with its delay: until then the former master has not heard of the new one.
OVERLAP_NS: Final = 2 * SECOND_NS
"""Longest hand-over between two masters."""


@rule(
    "master-flapping", "a node that changes the master of a name-space three times in a minute or more often"
)
def flapping(facts: TraceFacts) -> Iterator[TraceFinding]:
    """Find nodes whose master changes often.

    Seen: within one run, three changes of the confirmed master of a name-space within a minute.
    Refuted by: changes that follow the orderly stop or the next start of the former master do not count.
    """
    for (run, namespace), choices in grouped(facts.choices, lambda one: (one.run, one.namespace)):
        changes = [
            later
            for earlier, later in itertools.pairwise(choices)
            if earlier.master != later.master and not _has_stopped(facts, earlier.master, later.place)
        ]
        times = [one.place.at_ns for one in changes]
        if len(changes) >= CHANGES_PER_MINUTE and burst(times, CHANGES_PER_MINUTE, MINUTE_NS):
            masters = sorted({facts.names.node(one.master) for one in choices})
            yield finding(
                "master-flapping",
                f"{run[0]} changed the master of name-space {namespace} {plural(len(changes), 'time')}",
                f"It followed {', '.join(masters)} in turn. Every change marks all groups incomplete and "
                "starts a merge. "
                "Look at why the masters were lost (heartbeats, restarts), or at why elections end "
                "differently.",
                (one.place for one in changes),
                namespace=namespace,
                changes=len(changes),
                masters=masters,
            )


def _has_stopped(facts: TraceFacts, address: str, place: RecordPlace) -> bool:
    """Return whether the run of an address had begun to stop in order at a time."""
    at = place.at_ns
    run = run_at(facts, address, at)
    stops = stopping_ns(facts, run) if run is not None else None
    return stops is not None and stops <= at


@rule("two-masters", "two nodes of one role that are master of a name-space at the same time")
def two_masters(facts: TraceFacts) -> Iterator[TraceFinding]:
    """Find name-spaces with two masters.

    Seen: two nodes of one role that both confirmed themselves, and neither chose another, for two seconds or
        longer; dated from the first moment at which there were two.
    Refuted by: a hand-over of less than two seconds; a node that stops is no master any more. Not judged if
        the trace of one of them lacks lines of that time.
    """
    for (namespace, role), spans in grouped(
        _reigns(facts), lambda one: (one[0].namespace, facts.roles.get(one[0].chooser, ""))
    ):
        # By their starts, so that each is compared with later ones only.
        ordered = sorted(spans, key=lambda one: one[1])
        for number, (first, start, end) in enumerate(ordered):
            for second, other_start, other_end in ordered[number + 1 :]:
                overlap = min(end, other_end) - max(start, other_start)
                if first.run[0] == second.run[0] or overlap < OVERLAP_NS:
                    continue
                until = min(end, other_end)
                if not (
                    coverage.is_whole(facts, first.run[0], start, until)
                    and coverage.is_whole(facts, second.run[0], other_start, until)
                ):
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
                    since_ns=max(start, other_start),
                    namespace=namespace,
                    role=role,
                    overlap_ns=overlap,
                    separated=lost,
                )


def _reigns(facts: TraceFacts) -> Iterator[tuple[MasterConfirmation, int, int]]:
    """Yield the times in which a node considered itself master, until it chose another or began to stop."""
    for (run, _), choices in grouped(facts.choices, lambda one: (one.run, one.namespace)):
        over = stopping_ns(facts, run) or facts.last_ns.get(run, 0)
        begun: MasterConfirmation | None = None
        for one in choices:
            if one.master == one.chooser:
                begun = begun or one
            elif begun is not None:
                yield begun, begun.place.at_ns, one.place.at_ns
                begun = None
        if begun is not None:
            yield begun, begun.place.at_ns, over


def _lost_each_other(
    facts: TraceFacts, first: MasterConfirmation, second: MasterConfirmation, around_ns: int
) -> bool:
    pairs = {(first.run, second.chooser), (second.run, first.chooser)}
    return any(
        (run, fellow) in pairs and abs(place.at_ns - around_ns) < MINUTE_NS
        for run, _, fellow, place in facts.losses
    )
