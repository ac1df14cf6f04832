"""What became of the data: sets that a merge policy emptied, and fellows without their master's set."""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING, Final

from ospltool.trace.meaning.exchanges import Step
from ospltool.trace.meaning.names import NOBODY
from ospltool.trace.reading.whole import number
from ospltool.trace.rules import finding, grouped, plural, rule, stopping_ns
from ospltool.trace.views.times import SECOND_NS, duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ospltool.trace.meaning.exchanges import Exchange, Place
    from ospltool.trace.meaning.facts import Choice, Facts, Run
    from ospltool.trace.rules import Finding

FOLLOWS_WITHIN_NS: Final = 10 * SECOND_NS
"""A fellow that has not taken its master's merged set after this time does not have it."""

BUILT_IN: Final = "__BUILT-IN PARTITION__."


@rule("set-emptied", "a set that merge policy Delete, or an empty set in its place, left without data")
def emptied(facts: Facts) -> Iterator[Finding]:
    """Data that a merge threw away, and that no alignment brought back."""
    exchanges = facts.book.all()
    of_group = dict(grouped(exchanges, lambda one: one.group))
    for group, some in grouped(facts.applied, lambda one: one[2]):
        moved = of_group.get(group, [])
        gone: dict[str, Place] = {}
        taken: dict[tuple[str, int], list[Exchange]] = {}
        for one in moved:
            for step, at in one.steps:
                if step is Step.APPLIED:
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
            continue  # nothing is known to have been there
        yield _emptied(facts, group, gone, most, moved)


def _emptied(facts: Facts, group: str, gone: dict[str, Place], most: int, moved: list[Exchange]) -> Finding:
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
        "whether applications wrote anew is not in them. Stores and back-ups of before may "
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


def _size(one: Exchange) -> int:
    return max(one.samples or 0, one.samples_sent or 0)


def _is_nothing(policy: str, taken: Sequence[Exchange]) -> bool:
    """Whether the sets that took the place of another had no samples."""
    return policy in {"REPLACE", "CATCHUP"} and bool(taken) and all(
        one.samples == 0 and not one.is_equal for one in taken
    )  # fmt: skip


def _is_refilled(facts: Facts, moved: list[Exchange], node: str, place: Place) -> bool:
    """Whether an alignment brought data after a node's set was emptied."""
    return any(
        facts.names.node(one.alignee) == node
        and one.policy != "DELETE"
        and (one.end_ns or 0) > (place.time_ns or 0)
        and _size(one) > 0
        for one in moved
    )


@dataclasses.dataclass(frozen=True, slots=True)
class _Merged:
    """A master's set changed by a merge, and stayed so."""

    run: Run
    namespace: str
    role: str
    state: str
    start_ns: int
    end_ns: int
    place: Place


@rule("set-diverged", "a fellow that follows a master and did not take the set that it had merged")
def diverged(facts: Facts) -> Iterator[Finding]:
    """Nodes of one role, with one master, whose sets are not the same."""
    of_space = dict(grouped(facts.choices, lambda one: one.namespace))
    for merged in _merged_sets(facts):
        choices = of_space.get(merged.namespace, [])
        own = {one.chooser for one in choices if one.run == merged.run}
        for run in sorted({one.run for one in choices} - {merged.run}):
            since = _without(facts, merged, run, own, choices)
            if since is None:
                continue
            last = [one for one in facts.merge_states if one.run == run and one.namespace == merged.namespace]
            before = [one for one in last if (one.place.time_ns or 0) <= since]
            lasted = merged.end_ns - since
            stayed = f"stayed in merge state {before[-1].state}" if before else "told of no merge state"
            yield finding(
                "set-diverged",
                f"{run[0]} {stayed} of name-space {merged.namespace} while its master {merged.run[0]} was in "
                f"{merged.state}, for {duration(lasted)}",
                f"Role {merged.role}. The master's set was changed by a merge, and {run[0]} "
                "did not take it: their "
                "sets are not known to be equal since, and how many samples they differ by "
                "is not in the traces. "
                "Compare the stores (`ospltool store diff`). A master merges with the other role, and its "
                "fellows take its set by their policy for their own role: look for a Merge "
                "whose scope matches "
                "that role (`*`, or its name) and whose type is not Ignore.",
                [merged.place, *(one.place for one in before[-1:])],
                since_ns=since,
                namespace=merged.namespace,
                role=merged.role,
                master=merged.run[0],
                node=run[0],
                merge_state=merged.state,
                other_state=before[-1].state if before else None,
                diverged_ns=lasted,
            )


def _merged_sets(facts: Facts) -> Iterator[_Merged]:
    """The states of masters after merges that lasted long enough to be taken by their fellows."""
    for (run, namespace), states in grouped(facts.merge_states, lambda one: (one.run, one.namespace)):
        over = stopping_ns(facts, run) or facts.last_ns[run]
        changes = [list(same) for _, same in itertools.groupby(states, lambda one: one.state)]
        for same, following in itertools.zip_longest(changes, changes[1:]):
            one, start = same[0], same[0].place.time_ns or 0
            ends = (following[0].place.time_ns or 0) if following else over
            is_new = one.event == "namespace.merge-state" and number(one.state) is not None
            if is_new and ends - start > FOLLOWS_WITHIN_NS:
                yield _Merged(run, namespace, one.role, one.state, start, ends, one.place)


def _without(facts: Facts, merged: _Merged, run: Run, master: set[str], choices: list[Choice]) -> int | None:
    """Since when a run follows the master without its set; None when it has it, or nothing can be told."""
    begun = facts.first_ns[run]
    if begun >= merged.start_ns or run[0] == merged.run[0]:
        return None
    own = [one for one in choices if one.run == run]
    at = [one for one in own if (one.place.time_ns or 0) <= merged.start_ns + FOLLOWS_WITHIN_NS]
    if not at or at[-1].master not in master or facts.roles.get(at[-1].chooser, merged.role) != merged.role:
        return None
    since = max(merged.start_ns, at[-1].place.time_ns or 0)
    until = since + FOLLOWS_WITHIN_NS
    ends = min(merged.end_ns, stopping_ns(facts, run) or facts.last_ns[run])
    if until > ends or any(since < (one.place.time_ns or 0) <= until for one in own):
        return None
    pair = {(run, one) for one in master} | {(merged.run, at[-1].chooser)}
    if any((of, fellow) in pair and since - SECOND_NS <= (place.time_ns or 0) <= until
           for of, _, fellow, place in facts.losses):  # fmt: skip
        return None
    taken = any(
        one.run == run and one.namespace == merged.namespace and one.state == merged.state
        and merged.start_ns - SECOND_NS <= (one.place.time_ns or 0) <= until
        for one in facts.merge_states
    )  # fmt: skip
    return None if taken else since
