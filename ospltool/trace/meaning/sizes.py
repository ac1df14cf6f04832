"""Sizes of the sets of groups on nodes over time, from traces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ospltool.trace.meaning.exchanges import (
    AlignmentEnd,
    AlignmentStep,
    KindCounts,
    TracedAlignment,
)
from ospltool.trace.meaning.fact_kinds import BUILT_IN, How, SetSize
from ospltool.trace.meaning.trace_facts import TraceFacts

_TAKES_THE_PLACE: Final = frozenset({"", "REPLACE", "CATCHUP"})


def sizes(facts: TraceFacts) -> list[SetSize]:
    """Return all sizes from traces, by time, without OpenSplice's own groups."""
    found = [one for one in facts.told_sizes if not one.group.startswith(BUILT_IN)]
    for one in facts.book.all():
        if not one.group.startswith(BUILT_IN):
            found.extend(_of_exchange(facts, one))
    found += [
        SetSize(run[0], group, where.time_ns or 0, 0, How.EMPTIED, where)
        for run, policy, group, where in facts.applied
        if policy == "DELETE" and not group.startswith(BUILT_IN)
    ]
    return sorted(found, key=lambda one: (one.time_ns, one.node, one.group))


def _of_exchange(facts: TraceFacts, one: TracedAlignment) -> Iterator[SetSize]:
    alignee, aligner = facts.names.node(one.alignee), facts.names.node(one.aligner)
    for step, where in one.steps:
        if where.time_ns is None:
            continue
        if step is AlignmentStep.SENT:
            sent = sent_set(one)
            if sent is not None:
                yield SetSize(
                    aligner, one.group, where.time_ns, sent.data, How.SENT, where, "", sent.disposes
                )
        elif (
            step is AlignmentStep.COMPLETE
            and one.end is AlignmentEnd.COMPLETE
            and not one.is_equal
            and one.policy != "DELETE"
        ):
            taken = taken_set(one)
            if taken is not None:
                how = How.TAKEN if one.policy in _TAKES_THE_PLACE else How.JOINED
                yield SetSize(alignee, one.group, where.time_ns, taken.data, how, where, "", taken.disposes)


def sent_set(one: TracedAlignment) -> KindCounts | None:
    """Return the size of the aligner's set; None if it is unknown."""
    if one.set_size is not None:
        return KindCounts(one.set_size, 0)
    return one.kinds_sent or _all_data(one.samples_sent)


def taken_set(one: TracedAlignment) -> KindCounts | None:
    """Return the size of the set that the alignee took; None if it is unknown."""
    if one.set_size is not None:
        return KindCounts(one.set_size, 0)
    return one.kinds or one.kinds_sent or _all_data(one.samples)


def _all_data(samples: int | None) -> KindCounts | None:
    return None if samples is None else KindCounts(samples, 0)
