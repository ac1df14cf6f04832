"""Rule about sets that a merge policy emptied."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from ospltool.trace.meaning.exchanges import AlignmentStep, RecordPlace, TracedAlignment
from ospltool.trace.meaning.fact_kinds import BUILT_IN
from ospltool.trace.meaning.names import NOBODY
from ospltool.trace.meaning.trace_facts import TraceFacts
from ospltool.trace.rules import Anomaly, finding, grouped, plural, rule
from ospltool.trace.views.times import SECOND_NS

FOLLOWS_WITHIN_NS: Final = 10 * SECOND_NS
"""Time until which sizes belong to the set before it was emptied."""


@rule("set-emptied", "a set that merge policy Delete, or an empty set in its place, left without data")
def emptied(facts: TraceFacts) -> Iterator[Anomaly]:
    """Find data that a merge threw away, and that no alignment brought back.

    Seen: Delete, or an empty set in place of another, on a node, and a size of that set before.
    Refuted by: an alignment that brought data to the node later, and a set that was never seen with data.
    """
    exchanges = facts.book.all()
    of_group = dict(grouped(exchanges, lambda one: one.group))
    for group, some in grouped(facts.applied, lambda one: one[2]):
        moved = of_group.get(group, [])
        gone: dict[str, RecordPlace] = {}
        taken: dict[tuple[str, int], list[TracedAlignment]] = {}
        for one in moved:
            for step, at in one.steps:
                if step is AlignmentStep.APPLIED:
                    taken.setdefault((at.file, at.offset), []).append(one)
        for run, policy, _, place in some:
            sets = taken.get((place.file, place.offset), ())
            if policy == "DELETE" or _is_nothing(policy, sets):
                gone[run[0]] = place
            else:
                gone.pop(run[0], None)
        gone = {node: place for node, place in gone.items() if not _is_refilled(facts, moved, node, place)}
        since = min((place.time_ns or 0 for place in gone.values()), default=0)
        most = max(
            (_size(one) for one in moved if (one.start_ns or 0) <= since + FOLLOWS_WITHIN_NS), default=0
        )
        if not gone or not most or group.startswith(BUILT_IN):
            continue  # the set is not known to have had samples
        yield _emptied(facts, group, gone, most, moved)


def _emptied(
    facts: TraceFacts, group: str, gone: dict[str, RecordPlace], most: int, moved: list[TracedAlignment]
) -> Anomaly:
    holders = {facts.names.node(address) for one in moved for address in (one.alignee, one.aligner)}
    kept = sorted(node for node in holders - gone.keys() if node in {run[0] for run in facts.first_ns})
    unknown = sorted(node for node in holders - gone.keys() - set(kept) if node != facts.names.node(NOBODY))
    where = ", ".join(sorted(gone))
    lost = not kept and not unknown
    rest = "no node kept it" if lost else ", ".join(
        [f"{node} kept it" for node in kept] + [f"of {node} nothing is known" for node in unknown]
    )  # fmt: skip
    return finding(
        "set-emptied",
        f"the set of {group} was emptied on {where}: {rest}; up to {plural(most, 'sample')} were there",
        "Merge policy Delete throws away what a node has, also where the fellow's set was "
        "thrown away too; an "
        "empty set in place of another does the same. No alignment brought data back later in these traces; "
        "whether applications wrote again is not in them. Stores and back-ups of before may "
        "still have it: keep "
        "them before any node is started again, and see why the merge came (master-livelock, two-masters, "
        "fellow-lost).",
        gone.values(),
        group=group,
        nodes=sorted(gone),
        kept=kept,
        unknown=unknown,
        samples_before=most,
        is_total=lost,
    )


def _size(one: TracedAlignment) -> int:
    return max(one.samples or 0, one.samples_sent or 0)


def _is_nothing(policy: str, taken: Sequence[TracedAlignment]) -> bool:
    """Return whether the sets that replaced another one had no samples."""
    return policy in {"REPLACE", "CATCHUP"} and bool(taken) and all(
        one.samples == 0 and not one.is_equal for one in taken
    )  # fmt: skip


def _is_refilled(facts: TraceFacts, moved: list[TracedAlignment], node: str, place: RecordPlace) -> bool:
    """Return whether an alignment brought data after a node's set was emptied."""
    return any(
        facts.names.node(one.alignee) == node
        and one.policy != "DELETE"
        and (one.end_ns or 0) > (place.time_ns or 0)
        and _size(one) > 0
        for one in moved
    )
