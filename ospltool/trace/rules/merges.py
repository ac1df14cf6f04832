"""Merges and conflicts: too many of them, those without end, and those that moved what was there already."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

from ospltool.trace.meaning.exchanges import Exchange, Step
from ospltool.trace.rules import burst, finding, grouped, plural, rule, span
from ospltool.trace.views.times import SECOND_NS, duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ospltool.trace.meaning.facts import Facts
    from ospltool.trace.rules import Finding

STORM_MERGES: Final = 10
STORM_WITHIN_NS: Final = 60 * SECOND_NS
RESOLVED_WITHIN_NS: Final = 5 * SECOND_NS
REPEATED: Final = 3
"""So many transfers of a set of the same size to one node are reported."""


@rule("merge-storm", "ten merges of one name-space on a node within a minute")
def storm(facts: Facts) -> Iterator[Finding]:
    """Merge after merge."""
    for (run, namespace), merges in grouped(facts.merges, lambda one: (one.run, one.namespace)):
        times = [one.place.time_ns or 0 for one in merges]
        if not burst(times, STORM_MERGES, STORM_WITHIN_NS):
            continue
        policies = sorted({policy for of_run, policy, _, _ in facts.applied if of_run == run})
        first, last = facts.first_ns[run], facts.last_ns[run]
        moved = sum(
            one.samples or 0
            for one in facts.book.all()
            if one.policy and facts.names.node(one.alignee) == run[0] and first <= (one.start_ns or 0) <= last
        )
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


@rule("conflict-unresolved", "a conflict that was created and neither resolved nor discarded")
def unresolved(facts: Facts) -> Iterator[Finding]:
    """A conflict without end. While one is open, readers that wait for historical data block."""
    for one in facts.conflicts:
        left = facts.last_ns[one.run] - (one.created.time_ns or 0)
        is_open = one.ended is None or (one.started is not None and one.stopped is None)
        if not is_open or left < RESOLVED_WITHIN_NS:
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
def equal_sets(facts: Facts) -> Iterator[Finding]:
    """Sets of the same size, sent again and again."""
    complete = [one for one in facts.book.all() if one.samples and not one.is_equal and one.has(Step.LINK)]
    for (alignee, group), exchanges in grouped(
        complete, lambda one: (facts.names.node(one.alignee), one.group)
    ):
        repeated = [
            later
            for earlier, later in itertools.pairwise(exchanges)
            if later.samples == earlier.samples and _same_pair(earlier, later)
        ]
        if len(repeated) < REPEATED:
            continue
        samples = sum(one.samples or 0 for one in repeated)
        yield finding(
            "equal-set-transferred",
            f"{alignee} received the set of {group} {len(repeated)} times again with the same number of "
            "samples",
            f"{plural(samples, 'sample')} moved for nothing, if the sets were equal: the trace tells their "
            "sizes "
            "(here those before and after agree), not their content. OpenSplice sends whole sets; "
            "equalityCheck avoids "
            "some of these transfers.",
            (place for one in repeated for step, place in one.steps if step is Step.LINK),
            alignee=alignee,
            group=group,
            transfers=len(repeated),
            samples=samples,
        )


def _same_pair(earlier: Exchange, later: Exchange) -> bool:
    return earlier.aligner == later.aligner and earlier.alignee == later.alignee
