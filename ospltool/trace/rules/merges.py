"""Rules about merges and conflicts: storms, conflicts without end, and needless transfers."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator
from typing import Final

from ospltool.output.text import plural
from ospltool.output.times import SECOND_NS, duration
from ospltool.trace.meaning import coverage
from ospltool.trace.meaning.alignments import AlignmentStep, TracedAlignment
from ospltool.trace.meaning.fact_kinds import Run
from ospltool.trace.meaning.trace_facts import TraceFacts
from ospltool.trace.reading.record import number
from ospltool.trace.rules import (
    TraceFinding,
    burst,
    finding,
    finding_of_lines,
    grouped,
    lines_of,
    over_ns,
    rule,
    run_at,
    span,
)

# Chosen above the merges after one separation of some nodes, one for each pair.
STORM_MERGES: Final = 10
STORM_WITHIN_NS: Final = 60 * SECOND_NS
# As `alignment.ANSWERED_WITHIN_NS`.
RESOLVED_WITHIN_NS: Final = 5 * SECOND_NS
# Two may be a request that was made again.
REPEATED: Final = 3
"""Number of transfers of a set of the same size to one node that are reported."""


@rule("merge-storm", "ten merges of one name-space on a node within a minute")
def storm(facts: TraceFacts) -> Iterator[TraceFinding]:
    """Find storms of merges.

    Seen: ten merges of one name-space in one run of a node within a minute.
    Refuted by: fewer, or over a longer time. What created the conflicts is told by other rules.
    """
    received: dict[str, list[tuple[int, int]]] = {}
    for one in facts.book.all():
        if one.policy:
            arrived = (one.start_ns or 0, one.samples or 0)
            received.setdefault(facts.names.node(one.alignee), []).append(arrived)
    counted = {node: _Counted(some) for node, some in received.items()}
    policies_of: dict[Run, set[str]] = {}
    for of_run, policy, _, _ in facts.applied:
        policies_of.setdefault(of_run, set()).add(policy)
    for (run, namespace), merges in grouped(facts.merges, lambda one: (one.run, one.namespace)):
        times = [one.place.at_ns for one in merges]
        if not burst(times, STORM_MERGES, STORM_WITHIN_NS):
            continue
        policies = sorted(policies_of.get(run, ()))
        first, last = facts.first_ns[run], facts.last_ns[run]
        moved = counted[run[0]].between(first, last) if run[0] in counted else 0
        yield finding(
            "merge-storm",
            f"{run[0]} merged name-space {namespace} {len(merges)} times in {span(min(times), max(times))}",
            f"Policy {', '.join(policies) or 'unknown'}; {plural(moved, 'sample')} received for it. During "
            "a merge "
            "groups are incomplete and readers that wait for historical data block. REPLACE also disposes "
            "every "
            "instance each time. See what created the conflicts (master-livelock, two-masters, disconnects).",
            (one.place for one in merges),
            namespace=namespace,
            merges=len(merges),
            policies=policies,
            samples=moved,
        )


class _Counted:
    """Samples that arrived, by time."""

    def __init__(self, arrived: list[tuple[int, int]]) -> None:
        arrived.sort()
        self._times = [time for time, _ in arrived]
        self._sums = [0, *itertools.accumulate(samples for _, samples in arrived)]

    def between(self, first_ns: int, last_ns: int) -> int:
        """Return the number of samples from one time to another."""
        until = bisect.bisect_right(self._times, last_ns)
        return max(0, self._sums[until] - self._sums[bisect.bisect_left(self._times, first_ns)])


@rule("conflict-unresolved", "a conflict that was created and neither resolved nor discarded")
def unresolved(facts: TraceFacts) -> Iterator[TraceFinding]:
    """Find conflicts without end. While one is open, readers that wait for historical data block.

    Seen: a conflict that was created, or a merge that began, and no end of it for more than five seconds.
    Refuted by: the resolution of the conflict, its combination with another, the orderly stop of the node,
        and the end of its run within five seconds. Conflicts of ospltool have no numbers to follow. Not
        judged if the trace lacks lines of that time.
    """
    for one in facts.conflicts:
        if number(one.number) is None:
            continue
        left = over_ns(facts, one.run) - one.created.at_ns
        is_open = one.ended is None or (one.started is not None and one.stopped is None)
        if not is_open or left < RESOLVED_WITHIN_NS:
            continue
        if not coverage.is_whole(facts, one.run[0], one.created.at_ns, over_ns(facts, one.run)):
            continue
        what = one.kind.removeprefix("conflict.").replace("-", " ")
        if one.started is not None:
            why = "Its merge began and never ended: look for the requests of that time that have no answer."
        elif one.resolving:
            why = f"Work on it began {plural(one.resolving, 'time')}: the lines after it say what is missing."
        else:
            why = "No work on it began: see what the conflictResolver did instead."
        yield finding(
            "conflict-unresolved",
            f"{one.run[0]}: conflict {one.number} ({what}) was not resolved within {duration(left)}",
            f"{why} While it is open, groups stay incomplete and waiting readers block.",
            [place for place in (one.created, one.started) if place is not None],
            conflict=one.number,
            kind=one.kind,
            namespace=one.namespace,
            open_ns=left,
        )


@rule(
    "equal-set-transferred", "whole sets that were sent again although nothing in them seems to have changed"
)
def equal_sets(facts: TraceFacts) -> Iterator[TraceFinding]:
    """Find sets of the same size that were sent again and again.

    Seen: between the same two runs, one group sent three times or more with the number of samples of before.
    Refuted by: another number of samples, an answer that says that the sets are equal, and a start of one of
        the two. Equal numbers do not prove equal sets, and it is not said that they do.
    """
    complete = [
        one for one in facts.book.all() if one.samples and not one.is_equal and one.has(AlignmentStep.LINK)
    ]
    pairs = grouped(complete, lambda one: (one.alignee, one.aligner, one.group, *_runs(facts, one)))
    repeated_by: dict[tuple[str, str], list[TracedAlignment]] = {}
    for (address, _, group, *_), exchanges in pairs:
        repeated = [
            later for earlier, later in itertools.pairwise(exchanges) if later.samples == earlier.samples
        ]
        repeated_by.setdefault((facts.names.node(address), group), []).extend(repeated)
    for (alignee, group), repeated in repeated_by.items():
        # In the order in which they began: the lines shown are the first ones.
        repeated.sort(key=lambda one: one.number)
        if len(repeated) < REPEATED:
            continue
        samples = sum(one.samples or 0 for one in repeated)
        yield finding_of_lines(
            "equal-set-transferred",
            f"{alignee} received the set of {group} {plural(len(repeated), 'time')} again with the same "
            "number of samples",
            f"{plural(samples, 'sample')} moved for nothing, if the sets were equal: the trace tells their "
            "sizes "
            "(here those before and after agree), not their content. OpenSplice sends whole sets; "
            "equalityCheck avoids "
            "some of these transfers.",
            facts.lines,
            lines_of(repeated, AlignmentStep.LINK),
            alignee=alignee,
            group=group,
            transfers=len(repeated),
            samples=samples,
        )


def _runs(facts: TraceFacts, one: TracedAlignment) -> tuple[Run | None, Run | None]:
    """Return the runs of the two nodes of an alignment, since ospltool nodes keep their addresses."""
    at = one.start_ns or 0
    return run_at(facts, one.alignee, at), run_at(facts, one.aligner, at)
