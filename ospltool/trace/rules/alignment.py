"""Rules about alignments that do not finish."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ospltool.output.text import plural
from ospltool.output.times import SECOND_NS, duration
from ospltool.trace.meaning import coverage
from ospltool.trace.meaning.alignments import AlignmentEnd, AlignmentStep, TracedAlignment, line_of
from ospltool.trace.meaning.names import NOBODY
from ospltool.trace.meaning.trace_facts import TraceFacts
from ospltool.trace.rules import TraceFinding, finding_of_lines, grouped, lines_of, over_ns, rule, run_at

# Half of the time after which an alignee asks again (`request_patience_s`).
ANSWERED_WITHIN_NS: Final = 5 * SECOND_NS


@rule("request-unanswered", "a request for a group that nobody answered within five seconds")
def no_answer(facts: TraceFacts) -> Iterator[TraceFinding]:
    """Find requests without an answer.

    Seen: a request for a group, no end mark for it, and a node that asked and ran on for more than five
        seconds.
    Refuted by: an answer or a refusal, the loss or the restart of the aligner, and the orderly stop or the
        next start of the node that asked. A request to all is not judged where the trace of a node that may
        have answered is not here, and none if the trace of the node that asked lacks lines of that time.
    """
    waiting = [
        one
        for one in _unanswered(facts)
        if (open_ns := _open_ns(facts, one)) > ANSWERED_WITHIN_NS and _is_known(facts, one, open_ns)
    ]
    for (alignee, aligner), some in grouped(
        waiting,
        lambda one: (
            facts.names.node(one.alignee),
            "all aligners" if one.aligner == NOBODY else facts.names.node(one.aligner),
        ),
    ):
        received = sum(one.has(AlignmentStep.RECEIVED) for one in some)
        groups = sorted({one.group for one in some})
        open_ns = _open_ns(facts, some[0])
        what = f"{plural(len(some), 'request')} of {alignee}"
        is_traced = all(_is_traced(facts, one) for one in some)
        effect = "the groups stay incomplete there, and readers that wait for historical data block."
        yield finding_of_lines(
            "request-unanswered",
            (
                f"{aligner} never answered {what}: "
                if is_traced
                else f"no answer of {aligner} to {what} is seen: "
            )
            + ", ".join(groups[:3])
            + (f" and {len(groups) - 3} more" if len(groups) > 3 else ""),
            f"{_why(facts, some[0], received, len(some))} Waiting for {duration(open_ns)} at the end of the "
            f"trace; {'' if is_traced else 'unless it was answered together with another request, '}{effect}",
            facts.lines,
            (line_of(one.noted[0]) for one in some),
            alignee=alignee,
            aligner=aligner,
            groups=groups,
            received=received,
            requests=len(some),
        )


def _is_known(facts: TraceFacts, one: TracedAlignment, open_ns: int) -> bool:
    """Return whether the traces have what an answer would have left.

    Of a request that is answered together with another one only the aligner tells.
    """
    asked_ns, names = one.start_ns or 0, facts.names
    if not coverage.is_whole(facts, names.node(one.alignee), asked_ns, asked_ns + open_ns):
        return False
    if one.aligner == NOBODY and any(facts.last_ns[run] >= asked_ns for run in coverage.nameless_runs(facts)):
        return False
    aligners = {run[0] for run in facts.first_ns} if one.aligner == NOBODY else {names.node(one.aligner)}
    return all(coverage.is_whole(facts, node, asked_ns, asked_ns + ANSWERED_WITHIN_NS) for node in aligners)


def _unanswered(facts: TraceFacts) -> Iterator[TracedAlignment]:
    """Yield alignments that nobody answered, and nothing tells why."""
    book, node = facts.book.all(), facts.names.node
    nodes = {node(address) for one in book for address in (one.alignee, one.aligner) if address != NOBODY}
    traced = {run[0] for run in facts.first_ns}
    for one in book:
        if (
            one.end is not AlignmentEnd.OPEN
            or one.has(AlignmentStep.LINK)
            or not one.has(AlignmentStep.REQUESTED)
        ):
            continue
        if one.aligner == NOBODY and (nodes - traced or traced == {node(one.alignee)}):
            continue  # no trace of a node that may have answered, which alone tells of some answers
        yield one


def _is_traced(facts: TraceFacts, one: TracedAlignment) -> bool:
    """Return whether the trace of the aligner covers the time of a request; true if it was to all."""
    asked_ns = one.start_ns or 0
    return one.aligner == NOBODY or coverage.covers(
        facts, one.aligner, asked_ns, asked_ns + ANSWERED_WITHIN_NS
    )


def _open_ns(facts: TraceFacts, one: TracedAlignment) -> int:
    """Return how long the node that asked waited, until it stopped or its run ended."""
    run = run_at(facts, one.alignee, one.start_ns or 0)
    return 0 if run is None else over_ns(facts, run) - (one.start_ns or 0)


def _why(facts: TraceFacts, one: TracedAlignment, received: int, count: int) -> str:
    is_known = one.aligner in facts.names.node_of
    if is_known and not _is_traced(facts, one):
        return (
            "The trace of the aligner does not cover that time, so whether it received and answered them is "
            "unknown."
        )
    if received == count:
        if one.has(AlignmentStep.SENT):
            return "They were received and answered, but no end mark came in: the answer was lost."
        return "They were received, and no answer was sent: see what the aligner's sampleRequestHandler did."
    if one.aligner != NOBODY and not is_known:
        return "There is no trace of the aligner, so whether it received them is unknown."
    if received:
        return f"{received} of {count} were received, none was answered."
    return "They did not arrive: the aligner was not ready to receive, was gone, or the network lost them."


@rule("alignment-refused", "an aligner that refused to align a node")
def refused(facts: TraceFacts) -> Iterator[TraceFinding]:
    """Find aligners that refused to align a node.

    Seen: an end mark by which an aligner says that it will not align this node.
    Refuted by: nothing; the aligner says so itself. It is said once for each pair, however often it happens.
    """
    some = [one for one in facts.book.all() if one.end is AlignmentEnd.REFUSED]
    for (alignee, aligner), exchanges in grouped(
        some, lambda one: (facts.names.node(one.alignee), facts.names.node(one.aligner))
    ):
        yield finding_of_lines(
            "alignment-refused",
            f"{aligner} refused to align {alignee} ({plural(len(exchanges), 'group')})",
            "Their name-spaces or states do not match. The fellow is dropped and discovered again; if that "
            "repeats, "
            "compare the NameSpaces and Policies of both configurations.",
            facts.lines,
            lines_of(exchanges, AlignmentStep.LINK),
            alignee=alignee,
            aligner=aligner,
        )
