"""Rules about sets: emptied by a merge policy, or different at nodes of one role with one master."""

from __future__ import annotations

import bisect
import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from ospltool.output.text import plural
from ospltool.output.times import SECOND_NS, clock_since, duration
from ospltool.trace.meaning import coverage
from ospltool.trace.meaning.alignments import AlignmentEnd, AlignmentStep, TracedAlignment
from ospltool.trace.meaning.fact_kinds import BUILT_IN, MasterConfirmation, MergeState, Run
from ospltool.trace.meaning.lines import RecordPlace
from ospltool.trace.meaning.names import NOBODY
from ospltool.trace.meaning.trace_facts import TraceFacts
from ospltool.trace.reading.record import number
from ospltool.trace.rules import TraceFinding, end_ns, finding, grouped, rule

# Chosen: a set is emptied when the new one begins to come, and the sizes of the old one are printed before.
FOLLOWS_WITHIN_NS: Final = 10 * SECOND_NS
"""Time until which sizes belong to the set before it was emptied."""


@rule("set-emptied", "a set that merge policy Delete, or an empty set in its place, left without data")
def emptied(facts: TraceFacts) -> Iterator[TraceFinding]:
    """Find data that a merge threw away, and that no alignment brought back.

    Seen: Delete, or an empty set in place of another, on a node, and a size of that set before.
    Refuted by: an alignment that brought data to the node later, and a set that was never seen with data.
    """
    exchanges = facts.book.all()
    of_group = dict(grouped(exchanges, lambda one: one.group))
    for group, some in grouped(facts.applied, lambda one: one[2]):
        moved = of_group.get(group, [])
        lines: dict[str, int] = {}
        taken: dict[int | None, list[TracedAlignment]] = {}
        for one in moved if any(one.samples == 0 for one in moved) else ():
            taken.setdefault(one.line(AlignmentStep.APPLIED), []).append(one)
        for run, policy, _, line in some:
            if policy == "DELETE" or _is_nothing(policy, taken.get(line, ())):
                lines[run[0]] = line
            else:
                lines.pop(run[0], None)
        places = {node: facts.lines.place(line) for node, line in lines.items()}
        gone = {node: place for node, place in places.items() if not _is_refilled(facts, moved, node, place)}
        if not gone or group.startswith(BUILT_IN):
            continue
        since = min((place.at_ns for place in gone.values()), default=0)
        most = max(
            (_size(one) for one in moved if (one.start_ns or 0) <= since + FOLLOWS_WITHIN_NS), default=0
        )
        if most:  # the set is known to have had samples
            yield _emptied(facts, group, gone, most, moved)


def _emptied(
    facts: TraceFacts, group: str, gone: dict[str, RecordPlace], most: int, moved: list[TracedAlignment]
) -> TraceFinding:
    holders = {facts.names.node(address) for one in moved for address in (one.alignee, one.aligner)}
    since_ns = max(place.at_ns for place in gone.values())
    kept = sorted(node for node in holders - gone.keys() if _is_traced_until(facts, node, since_ns))
    unknown = sorted(node for node in holders - gone.keys() - set(kept) if node != facts.names.node(NOBODY))
    where = ", ".join(sorted(gone))
    lost = not kept and not unknown
    rest = "no known node kept it" if lost else ", ".join(
        [f"{node} kept it" for node in kept]
        + [f"whether {node} kept it is unknown, as there is no trace of it from then" for node in unknown]
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


def _is_traced_until(facts: TraceFacts, node: str, time_ns: int) -> bool:
    """Return whether the trace of a node goes on to a time, or ends before with an orderly stop."""
    runs = [run for run in facts.first_ns if run[0] == node]
    if not runs:
        return False
    last = max(runs, key=facts.first_ns.__getitem__)
    return facts.last_ns[last] >= time_ns or last in facts.stopping


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
        and (one.end_ns or 0) > place.at_ns
        and _size(one) > 0
        for one in reversed(moved)
    )


BACK: Final = "fellow.reconnected"
"""Event with which a node reports the return of a lost fellow."""

CHANGED: Final = "namespace.merge-state"
"""Event with which a master reports that a merge changed its set."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Reign:
    """A time in which a master's set was in one merge state, from its own trace or its fellows'."""

    node: str
    addresses: frozenset[str]
    role: str
    state: str
    start_ns: int
    end_ns: int
    place: RecordPlace


@rule("set-diverged", "a fellow that follows a master and did not take the set that it had merged")
def diverged(facts: TraceFacts) -> Iterator[TraceFinding]:
    """Find nodes that stay in another merge state than the master that they follow.

    Seen: a master's merge state changes; a fellow of its role has that node confirmed as its master, and is
        not in that state ten seconds later.
    Refuted by: the fellow takes the state in time, or a set of its master; it stops, restarts or chooses
        another master, or the two lose each other. If it takes the state later, that ends it. Not judged if
        one of the two traces lacks lines of that time.
    """
    taken = _taken_sets(facts)
    for namespace, choices in grouped(facts.choices, lambda one: one.namespace):
        of_run = dict(grouped(choices, lambda one: one.run))
        told = (one for one in facts.merge_states if one.namespace == namespace)
        states = dict(grouped(told, lambda one: one.run))
        reigns: dict[str, list[_Reign]] = {}
        # By time, so that of one address the last reign is the present one.
        for reign in sorted(_reigns(facts, namespace, states, of_run), key=lambda one: one.start_ns):
            for address in reign.addresses:
                reigns.setdefault(address, []).append(reign)
        for run, own in of_run.items():
            for choice, spell in _spells(facts, run, own, states.get(run, []), reigns):
                if _is_aligned(taken.get((choice.chooser, choice.master), ()), spell):
                    continue  # it has the data in any state
                if not all(
                    coverage.is_whole(facts, node, spell.start_ns, spell.end_ns)
                    for node in (run[0], spell.reigns[0].node)
                ):
                    continue
                yield _diverged(facts, namespace, run, spell)


def _diverged(facts: TraceFacts, namespace: str, run: Run, spell: _Spell) -> TraceFinding:
    first, taken = spell.reigns[0], spell.taken
    own = [one for one in facts.merge_states if one.run == run and one.namespace == namespace]
    before = [one for one in own if one.place.at_ns <= spell.start_ns]
    stayed = f"stayed in merge state {before[-1].state}" if before else "told of no merge state"
    states = first.state if len(spell.reigns) == 1 else f"{first.state} to {spell.reigns[-1].state}"
    ended = (
        ""
        if taken is None
        else f"; it took state {taken.state} at {clock_since(spell.start_ns, spell.end_ns)}"
    )
    length = spell.end_ns - spell.start_ns
    return finding(
        "set-diverged",
        f"{run[0]} {stayed} of name-space {namespace} while its master {first.node} was in {states}, for "
        f"{duration(length)}{ended}",
        f"Role {first.role or 'unknown'}. The master's set was changed by a merge, and {run[0]} did not "
        f"take it {'in that time' if taken else 'before the traces end'}. By how many samples they "
        "differed is not in the traces; compare the stores (`ospltool store diff --data-only`). A fellow "
        "takes its master's set by the Merge for its own role: look for one whose scope matches that role "
        "(`*`, or its name) and whose type is not Ignore, for several roles that share the scope `*` "
        "(DUR426), and for requests that stayed open in that time.",
        [first.place, *(one.place for one in before[-1:]), *([taken.place] if taken else [])],
        since_ns=spell.start_ns,
        namespace=namespace,
        role=first.role,
        master=first.node,
        node=run[0],
        merge_state=spell.reigns[-1].state,
        other_state=before[-1].state if before else None,
        diverged_ns=length,
        until_ns=spell.end_ns,
        is_over=taken is not None,
    )


def _reigns(
    facts: TraceFacts,
    namespace: str,
    states: Mapping[Run, list[MergeState]],
    choices: Mapping[Run, list[MasterConfirmation]],
) -> Iterator[_Reign]:
    """Yield the merge states of nodes that are their own masters."""
    traced: set[str] = set()
    for run, some in states.items():
        addresses = frozenset(one for one, runs in facts.names.runs_of.items() if run in runs)
        traced |= addresses
        over = end_ns(facts, run)
        changes = [
            _Change(one.place.at_ns, one.role, one.state, one.place, one.event == CHANGED) for one in some
        ]
        own = _ByTime(choices.get(run, []))
        for reign in _stretches(run[0], addresses, changes, over):
            before = own.last(reign.start_ns)
            if before is not None and before.master == before.chooser:
                yield reign
    told = [one for one in facts.described if one.namespace == namespace and one.fellow not in traced]
    for fellow, heard in grouped(told, lambda one: one.fellow):
        over = max(facts.last_ns[one.run] for one in heard)
        changes = [
            _Change(one.place.at_ns, one.role, one.state, one.place, False)
            # By time: a change is the difference from the one before.
            for one in sorted(heard, key=lambda one: one.place.at_ns)
            if one.master == fellow
        ]
        yield from _stretches(facts.names.node(fellow), frozenset({fellow}), changes, over)


class _Change(NamedTuple):
    """A merge state of a node, and whether a merge changed its set."""

    time_ns: int
    role: str
    state: str
    place: RecordPlace
    is_merged: bool


def _stretches(node: str, addresses: frozenset[str], changes: list[_Change], over: int) -> Iterator[_Reign]:
    """Yield each merge state with its time, without the initial one, unless a merge made it."""
    same = [list(some) for _, some in itertools.groupby(changes, lambda one: one.state)]
    for at, (first, *_) in enumerate(same):
        end = same[at + 1][0].time_ns if at + 1 < len(same) else over
        if (at or first.is_merged) and _is_state(first.state):
            yield _Reign(node, addresses, first.role, first.state, first.time_ns, end, first.place)


class _Spell(NamedTuple):
    """A time in which a follower lacked its master's set."""

    reigns: list[_Reign]
    start_ns: int
    end_ns: int
    taken: MergeState | None


def _spells(
    facts: TraceFacts,
    run: Run,
    own: list[MasterConfirmation],
    states: list[MergeState],
    reigns: Mapping[str, list[_Reign]],
) -> Iterator[tuple[MasterConfirmation, _Spell]]:
    """Yield the times in which a run lacked its master's merge state for longer than a delay."""
    over = end_ns(facts, run)
    told = _ByTime(states)
    ends = [*(one.place.at_ns for one in own[1:]), over]
    following: list[tuple[MasterConfirmation, int, int]] = []
    for choice, end in zip(own, ends, strict=True):
        if following and following[-1][0].master == choice.master:
            following[-1] = (following[-1][0], following[-1][1], end)
        else:
            following.append((choice, choice.place.at_ns, end))
    for choice, since, until in following:
        last = min([until, *_parted(facts, run, choice, since)])
        theirs = [one for one in reigns.get(choice.master, ()) if one.node != run[0]]
        for spell in _within(since, last, told, theirs):
            if not _is_of_other_role(facts, choice, spell):
                yield choice, spell


def _is_of_other_role(facts: TraceFacts, choice: MasterConfirmation, spell: _Spell) -> bool:
    role = spell.reigns[0].role
    return bool(role) and facts.roles.get(choice.chooser, role) != role


def _taken_sets(facts: TraceFacts) -> dict[tuple[str, str], list[TracedAlignment]]:
    """Return the completed alignments by alignee and aligner, without OpenSplice's own groups."""
    taken = (
        one
        for one in facts.book.all()
        if one.end is AlignmentEnd.COMPLETE and not one.group.startswith(BUILT_IN)
    )
    return dict(grouped(taken, lambda one: (one.alignee, one.aligner)))


def _is_aligned(taken: Sequence[TracedAlignment], spell: _Spell) -> bool:
    """Return whether one of the sets that a follower took of its master came meanwhile."""
    return any(
        spell.start_ns <= (one.start_ns or 0) and (one.end_ns or 0) < spell.end_ns - SECOND_NS
        for one in taken
    )


def _parted(facts: TraceFacts, run: Run, choice: MasterConfirmation, since: int) -> Iterator[int]:
    """Yield when a run and its master lost each other after a time.

    A report of a return ends an earlier loss, also if it comes a moment after the other node's report.
    """
    master_runs = set(facts.names.runs_of.get(choice.master, ()))
    for of, event, fellow, place in facts.losses:
        pair = (of == run and fellow == choice.master) or (of in master_runs and fellow == choice.chooser)
        is_new = place.at_ns >= since + (SECOND_NS if event == BACK else 0)
        if pair and is_new:
            yield place.at_ns - SECOND_NS


def _within(since: int, until: int, states: _ByTime[MergeState], reigns: list[_Reign]) -> Iterator[_Spell]:
    missed: list[_Reign] = []
    begun = 0
    for reign in reigns:
        start, end = max(since, reign.start_ns), min(until, reign.end_ns)
        if end <= start:
            continue
        known = states.last(start)
        has = known is not None and known.state == reign.state
        later = states.between(start, end + SECOND_NS)
        taken = next((one for one in later if one.state == reign.state), None)
        if not has:
            begun = begun if missed else start
            missed.append(reign)
        at = start if has else taken.place.at_ns if taken else None
        if at is not None and missed:
            if at - begun > FOLLOWS_WITHIN_NS:
                yield _Spell(missed, begun, at, taken)
            missed = []
    if missed and (last := min(until, missed[-1].end_ns)) - begun > FOLLOWS_WITHIN_NS:
        yield _Spell(missed, begun, last, None)


class _Placed(Protocol):
    """A fact with the line that tells it."""

    @property
    def place(self) -> RecordPlace:
        """The line."""


Told = TypeVar("Told", bound=_Placed)


class _ByTime(Generic[Told]):
    """Facts in the order of their lines, found by time; a clock may have gone back."""

    def __init__(self, some: Sequence[Told]) -> None:
        self._some = some
        self._times = [one.place.at_ns for one in some]
        self._is_ordered = all(early <= late for early, late in itertools.pairwise(self._times))

    def last(self, until_ns: int) -> Told | None:
        """Return the last one that is not later than a time; None if there is none."""
        if self._is_ordered:
            at = bisect.bisect_right(self._times, until_ns)
            return self._some[at - 1] if at else None
        found = (
            one
            for one, time in zip(reversed(self._some), reversed(self._times), strict=True)
            if time <= until_ns
        )
        return next(found, None)

    def between(self, after_ns: int, until_ns: int) -> Iterator[Told]:
        """Yield those that are later than a time, but not than another."""
        first = bisect.bisect_right(self._times, after_ns) if self._is_ordered else 0
        for at in range(first, len(self._some)):
            if after_ns < self._times[at] <= until_ns:
                yield self._some[at]
            elif self._is_ordered:
                return


def _is_state(text: str) -> bool:
    """Return whether a text is a merge state of a set: a number, or in ospltool a number and a master."""
    return number(text.partition("/")[0]) is not None
