"""How large the set of a group was on a node, whenever the traces show it."""

from __future__ import annotations

import dataclasses
import enum
from typing import TYPE_CHECKING, Final

from ospltool.trace.meaning.exchanges import End, Exchange, Kinds, Place, Step, place
from ospltool.trace.reading.whole import number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ospltool.trace.meaning.facts import Facts
    from ospltool.trace.reading.record import Record

BUILT_IN: Final = "__BUILT-IN PARTITION__."
TOLD_BY: Final = frozenset({"store.namespace", "store.restored", "injection.started"})
"""Events of our engine that say how many samples a name-space has on the node."""

_TAKES_THE_PLACE: Final = frozenset({"", "REPLACE", "CATCHUP"})


class How(enum.StrEnum):
    """How a size is known."""

    SENT = "sent"
    """The node sent its whole set."""
    TAKEN = "taken"
    """The node took the whole set of another in place of its own."""
    JOINED = "joined"
    """The node joined another set with its own: it has at least that much."""
    EMPTIED = "emptied"
    """Merge policy Delete threw the set away."""
    TOLD = "told"
    """The node says how much it has."""
    STORED = "stored"
    """A store has it."""
    RECORDED = "recorded"
    """The node showed it to a console."""


@dataclasses.dataclass(frozen=True, slots=True)
class SetSize:
    """How many samples with data a set had.

    Attributes:
        node: where.
        group: partition.topic; a name-space in traces of our engine.
        time_ns: when.
        samples: how many; writes and disposing writes where the trace counts them by kind, else all.
        how: how this is known.
        place: the line that shows it; None for stores and recordings.
        source: the store or recording; empty for a line.
    """

    node: str
    group: str
    time_ns: int
    samples: int
    how: How
    place: Place | None = None
    source: str = ""
    disposes: int = 0
    """Disposes in the set: so many instances are gone when they are purged."""


def told(record: Record) -> SetSize | None:
    """The size of a set that a line of our engine tells."""
    samples = number(record.fields.get("samples"))
    namespace = record.fields.get("namespace")
    if samples is None or not namespace or record.time_ns is None:
        return None
    return SetSize(record.node, namespace, record.time_ns, samples, How.TOLD, place(record))


def sizes(facts: Facts) -> list[SetSize]:
    """All sizes that traces show, by time. OpenSplice's own groups are left out."""
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


def _of_exchange(facts: Facts, one: Exchange) -> Iterator[SetSize]:
    alignee, aligner = facts.names.node(one.alignee), facts.names.node(one.aligner)
    for step, where in one.steps:
        if where.time_ns is None:
            continue
        if step is Step.SENT:
            sent = sent_set(one)
            if sent is not None:
                yield SetSize(
                    aligner, one.group, where.time_ns, sent.data, How.SENT, where, "", sent.disposes
                )
        elif (
            step is Step.COMPLETE and one.end is End.COMPLETE and not one.is_equal and one.policy != "DELETE"
        ):
            taken = taken_set(one)
            if taken is not None:
                how = How.TAKEN if one.policy in _TAKES_THE_PLACE else How.JOINED
                yield SetSize(alignee, one.group, where.time_ns, taken.data, how, where, "", taken.disposes)


def sent_set(one: Exchange) -> Kinds | None:
    """The set of the aligner; None where the trace does not tell."""
    if one.set_size is not None:
        return Kinds(one.set_size, 0)
    return one.kinds_sent or _all_data(one.samples_sent)


def taken_set(one: Exchange) -> Kinds | None:
    """The set that the alignee took; None where the trace does not tell."""
    if one.set_size is not None:
        return Kinds(one.set_size, 0)
    return one.kinds or one.kinds_sent or _all_data(one.samples)


def _all_data(samples: int | None) -> Kinds | None:
    return None if samples is None else Kinds(samples, 0)
