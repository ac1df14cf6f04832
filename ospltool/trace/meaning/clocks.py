"""Clocks of nodes that differ by a second or more, seen in the requests and answers of alignments.

The order of what two nodes did follows from their clocks, and with it which request an answer is for, who was
there, and what came first. So a clock that is wrong is corrected before any conclusion is drawn.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from ospltool.output.text import plural
from ospltool.output.times import SECOND_NS, duration
from ospltool.trace.meaning.alignments import AlignmentStep, TracedAlignment
from ospltool.trace.meaning.names import NOBODY, Names
from ospltool.trace.meaning.skew import Skew, SkewEstimator

APART_NS: Final = SECOND_NS
"""Difference of two clocks from which one of them is wrong."""

LEAST_PAIRS: Final = 2
CLUSTER_NS: Final = SECOND_NS // 10
"""A second need not be known to a millisecond, and nodes that started just now have sent few messages."""


@dataclasses.dataclass(frozen=True, slots=True)
class ClockDoubts:
    """Clocks that differ from those of most other nodes.

    Attributes:
        wrong: corrections of clocks that are wrong, by node; `add_ns` is relative to `reference`.
        reference: a node whose clock agrees with those of most others.
        unknown: nodes whose messages do not fit the clocks, and whose own clock cannot be estimated.
    """

    wrong: Mapping[str, Skew]
    reference: str
    unknown: tuple[str, ...]

    @property
    def corrections(self) -> dict[str, int]:
        """Nanoseconds to add to the times of each node whose clock is wrong."""
        return {node: one.add_ns for node, one in self.wrong.items()}


NO_DOUBTS: Final = ClockDoubts({}, "", ())


def doubts(names: Names, exchanges: Collection[TracedAlignment], traced: Collection[str]) -> ClockDoubts:
    """Return the clocks that are wrong.

    Args:
        names: the nodes by address.
        exchanges: alignments between them.
        traced: names of the nodes that have traces.
    """
    suspicious = _suspicious(names, exchanges, traced)
    if not suspicious:
        return NO_DOUBTS
    estimates = {one.node: one for one in _estimator(names, exchanges, traced).estimate()}
    known = {node: one for node, one in estimates.items() if one.uncertainty_ns is not None}
    if not known:
        return NO_DOUBTS
    near = {
        node: sum(abs(one.add_ns - other.add_ns) < APART_NS for other in known.values())
        for node, one in known.items()
    }
    reference = max(sorted(known), key=near.__getitem__)
    base = known[reference]
    wrong: dict[str, Skew] = {}
    for node, one in known.items():
        add, error = one.add_ns - base.add_ns, (one.uncertainty_ns or 0) + (base.uncertainty_ns or 0)
        if abs(add) >= APART_NS + error and error < APART_NS:
            wrong[node] = Skew(node, add, error, one.pairs or base.pairs)
    left = tuple(sorted(node for node in suspicious if node not in known))
    return ClockDoubts(wrong, reference, left)


def sentences(found: ClockDoubts, *, is_corrected: bool) -> list[str]:
    """Describe wrong clocks; `is_corrected` tells whether the conclusions are drawn with right ones."""
    told = []
    for one in found.wrong.values():
        ahead = f"{duration(abs(one.add_ns))} {'behind' if one.add_ns > 0 else 'ahead of'} that of"
        what = (
            f"its times are corrected here, as by `--skew {one.node}={one.add_ns / SECOND_NS:+.3f}s`"
            if is_corrected
            else "what the two did to each other is put into a wrong order"
        )
        told.append(
            f"which clock was right: that of {one.node} is {ahead} {found.reference} (within "
            f"{duration(one.uncertainty_ns or 0)}, from {plural(one.pairs, 'message')}); {what}"
        )
    if found.unknown:
        told.append(
            f"whether the clocks agree: messages of {', '.join(found.unknown)} do not fit those of other "
            "nodes, and are too few to correct it; or the traces lack lines"
        )
    return told


def _suspicious(names: Names, exchanges: Iterable[TracedAlignment], traced: Collection[str]) -> set[str]:
    """Return the nodes for most of whose requests the two times, of sending and receipt, do not fit."""
    fits: collections.Counter[tuple[str, str]] = collections.Counter()
    others: collections.Counter[tuple[str, str]] = collections.Counter()
    node_of = names.node_of
    for one in exchanges:
        alignee, aligner = node_of.get(one.alignee, ""), node_of.get(one.aligner, "")
        if alignee not in traced or aligner not in traced:
            continue
        (fits if _fits(one) else others)[min(alignee, aligner), max(alignee, aligner)] += 1
    return {node for pair, count in others.items() if count > fits[pair] for node in pair}


def _fits(one: TracedAlignment) -> bool:
    if one.seen & _BOTH_BITS != _BOTH_BITS:
        return False
    sent, received = one.time(AlignmentStep.REQUESTED), one.time(AlignmentStep.RECEIVED)
    return sent is not None and received is not None and abs(received - sent) < APART_NS


_BOTH_BITS: Final = AlignmentStep.REQUESTED.bit | AlignmentStep.RECEIVED.bit


def _estimator(names: Names, exchanges: Iterable[TracedAlignment], traced: Iterable[str]) -> SkewEstimator:
    estimator = SkewEstimator(names, LEAST_PAIRS, CLUSTER_NS)
    estimator.nodes.update(traced)
    for one in exchanges:
        if one.aligner == NOBODY:
            continue
        there, back = (one.alignee, one.aligner, one.group), (one.aligner, one.alignee, one.group)
        for note, step, key in (
            (estimator.sent, AlignmentStep.REQUESTED, ("request", *there)),
            (estimator.received, AlignmentStep.RECEIVED, ("request", *there)),
            (estimator.sent, AlignmentStep.SENT, ("link", *back, str(one.samples_sent))),
            (estimator.received, AlignmentStep.LINK, ("link", *back, str(one.samples))),
            (estimator.sent, AlignmentStep.SENT, ("set", *back)),
            (estimator.received, AlignmentStep.COMPLETE, ("set", *back)),  # in ospltool there is no link
        ):
            time = one.time(step)
            if time is not None:
                note(key, time)
    return estimator
