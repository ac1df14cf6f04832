"""Sizes of the sets of groups on nodes over time, from traces."""

from __future__ import annotations

import dataclasses
import enum
from typing import TYPE_CHECKING, Final

from ospltool.trace.meaning.exchanges import (
    AlignmentEnd,
    AlignmentStep,
    KindCounts,
    RecordPlace,
    TracedAlignment,
    place,
)
from ospltool.trace.reading.whole import number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ospltool.trace.meaning.trace_facts import TraceFacts
    from ospltool.trace.reading.record import TraceRecord

BUILT_IN: Final = "__BUILT-IN PARTITION__."
TOLD_BY: Final = frozenset({"store.namespace", "store.restored", "injection.started"})
"""Events of ospltool with the number of samples of a name-space on the node."""

_TAKES_THE_PLACE: Final = frozenset({"", "REPLACE", "CATCHUP"})


class How(enum.StrEnum):
    """Origin of a known size."""

    SENT = "sent"
    """The node sent its whole set."""
    TAKEN = "taken"
    """The node replaced its set with the whole set of another node."""
    JOINED = "joined"
    """The node joined another set with its own, so the size is a lower bound."""
    EMPTIED = "emptied"
    """Merge policy Delete discarded the set."""
    TOLD = "told"
    """The node reported its size."""
    STORED = "stored"
    """A store contains the set."""
    RECORDED = "recorded"
    """A console recorded the node's snapshot."""


@dataclasses.dataclass(frozen=True, slots=True)
class SetSize:
    """The number of samples with data in a set at one moment."""

    node: str
    """Name of the node."""
    group: str
    """Partition.topic; a name-space in ospltool traces."""
    time_ns: int
    """Time since 1970."""
    samples: int
    """Number of samples; only those with data if the trace counts by kind."""
    how: How
    """Origin of the size."""
    place: RecordPlace | None = None
    """Line that shows it; None for stores and recordings."""
    source: str = ""
    """Store or recording; empty for a line."""
    disposes: int = 0
    """Number of disposes in the set, whose instances vanish when they are purged."""


def told(record: TraceRecord) -> SetSize | None:
    """Return the size of a set in a line of ospltool; None if it has none."""
    samples = number(record.fields.get("samples"))
    namespace = record.fields.get("namespace")
    if samples is None or not namespace or record.time_ns is None:
        return None
    return SetSize(record.node, namespace, record.time_ns, samples, How.TOLD, place(record))


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
