"""What traces cover: the trace of a node that lived on may have been cut."""

from __future__ import annotations

import bisect
import functools
import itertools
import weakref
from collections.abc import Callable
from typing import Final, TypeVar

from ospltool.trace.meaning.alignments import AlignmentStep
from ospltool.trace.meaning.fact_kinds import Run
from ospltool.trace.meaning.trace_facts import TraceFacts

# A node is heard this much later than its last line by the way of a heartbeat and by clocks that differ a
# little.
CUT_NS: Final = 1_000_000_000
"""Time after the end of a trace at which its node was heard, so that the trace is not whole."""


_Found = TypeVar("_Found")


def _once(find: Callable[[TraceFacts], _Found]) -> Callable[[TraceFacts], _Found]:
    """Find it once for facts that are whole: rules ask for it for each of many requests."""
    found: weakref.WeakKeyDictionary[TraceFacts, _Found] = weakref.WeakKeyDictionary()

    @functools.wraps(find)
    def known(facts: TraceFacts) -> _Found:
        if facts not in found:
            found[facts] = find(facts)
        return found[facts]

    return known


@_once
def heard(facts: TraceFacts) -> dict[str, list[int]]:
    """Return the times at which other nodes received something from each address, in order."""
    times: dict[str, list[int]] = {}
    for one in facts.book.all():
        for sender, step in (
            (one.alignee, AlignmentStep.RECEIVED),
            (one.aligner, AlignmentStep.LINK),
        ):
            time_ns = one.time(step)
            if time_ns is not None:
                times.setdefault(sender, []).append(time_ns)
    for each in facts.described:
        times.setdefault(each.fellow, []).append(each.place.at_ns)
    for some in times.values():
        some.sort()
    return times


def last_between(times: list[int], after_ns: int, until_ns: int) -> int | None:
    """Return the last of some times within a span; None if there is none.

    Args:
        times: the times, in order.
        after_ns: the last time before the span.
        until_ns: the end of the span.
    """
    at = bisect.bisect_right(times, until_ns)
    return times[at - 1] if at and times[at - 1] > after_ns else None


def covers(facts: TraceFacts, address: str, from_ns: int, until_ns: int) -> bool:
    """Return whether one run of an address has records before and after a span, or stopped in order.

    Args:
        facts: facts from the traces.
        address: the address.
        from_ns: the beginning of the span.
        until_ns: its end.
    """
    return any(
        facts.first_ns[run] <= from_ns and (facts.last_ns[run] >= until_ns or run in facts.stopping)
        for run in facts.names.runs_of.get(address, ())
    )


@_once
def lacking(facts: TraceFacts) -> dict[str, list[int]]:
    """Return the times at which others got messages of which a node's trace says nothing, in order, by node.

    A node whose trace has no line about any such message does not trace them.
    """
    traced = {run[0] for run in facts.first_ns}
    node_of = facts.names.node_of
    asking: set[str] = set()
    sending: set[str] = set()
    times: dict[tuple[str, bool], list[int]] = {}
    for one in facts.book.all():
        alignee, aligner = node_of.get(one.alignee, ""), node_of.get(one.aligner, "")
        if one.seen & AlignmentStep.REQUESTED.bit:
            asking.add(alignee)
        elif one.seen & AlignmentStep.RECEIVED.bit:
            times.setdefault((alignee, True), []).append(one.time(AlignmentStep.RECEIVED) or 0)
        if one.seen & _ANSWERED_BITS:
            sending.add(aligner)
        elif one.seen & AlignmentStep.LINK.bit:
            times.setdefault((aligner, False), []).append(one.time(AlignmentStep.LINK) or 0)
    found: dict[str, list[int]] = {}
    for (node, is_request), some in times.items():
        if node in traced and node in (asking if is_request else sending):
            found.setdefault(node, []).extend(some)
    return {node: sorted(some) for node, some in found.items()}


_ANSWERED_BITS: Final = AlignmentStep.SENT.bit | AlignmentStep.EQUAL.bit


def is_whole(facts: TraceFacts, node: str, from_ns: int, until_ns: int) -> bool:
    """Return whether nothing shows that the trace of a node lacks lines of a span of time.

    Args:
        facts: facts from the traces.
        node: name of the node.
        from_ns: the beginning of the span.
        until_ns: its end.
    """
    if last_between(lacking(facts).get(node, []), from_ns - 1, until_ns) is not None:
        return False
    return not any(  # after such a start, the address of the node is unknown
        run[0] == node and at_ns <= until_ns and facts.last_ns[run] >= from_ns
        for run, at_ns in hidden_starts(facts)
    )


@_once
def hidden_starts(facts: TraceFacts) -> list[tuple[Run, int]]:
    """Return the runs that were complete and began to start, without the beginning of another run; and when.

    The trace lacks the beginning, or the service started over.
    """
    return [
        (one.run, one.start_ns)
        for before, one in itertools.pairwise(facts.states)
        if before.run == one.run and before.state == "COMPLETE" and one.state.startswith("DISCOVER_")
    ]


@_once
def nameless_runs(facts: TraceFacts) -> list[Run]:
    """Return the runs that have records of a trace, but do not tell the address of the node."""
    named = {run for runs in facts.names.runs_of.values() for run in runs}
    return [run for run in facts.first_ns if run not in named]


def later_than_trace(facts: TraceFacts) -> list[tuple[str, int, int]]:
    """Return the nodes whose trace ends before they were heard for the last time: node, and both times."""
    last_runs: dict[str, Run] = {}
    for run, first_ns in facts.first_ns.items():
        known = last_runs.get(run[0])
        if known is None or first_ns > facts.first_ns[known]:
            last_runs[run[0]] = run
    found = []
    over_ns = max(facts.last_ns.values(), default=0)
    for node, run in sorted(last_runs.items()):
        end_ns = facts.last_ns[run]
        if run in facts.stopping or over_ns <= end_ns + CUT_NS:
            continue
        times = heard(facts)
        addresses = [address for address, runs in facts.names.runs_of.items() if run in runs]
        last = max((times[one][-1] for one in addresses if one in times), default=0)
        if last > end_ns + CUT_NS:
            found.append((node, end_ns, last))
    return found
