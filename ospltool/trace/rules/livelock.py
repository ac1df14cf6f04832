"""Rule about elections that do not settle.

A *round* is a master conflict of a run and the choice that follows it. It is *disputed* when another run of
the same role follows another master, still so a second later or when the run chooses again. A live-lock is a
row of rounds within a minute that the same two runs dispute, and in which nothing else happened: no
round that they agreed on, no fellow lost, no start and no stop of the two. Elections after restarts, which
settle, are not live-locks.
"""

from __future__ import annotations

import bisect
import collections
import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from ospltool.output.text import plural
from ospltool.output.times import SECOND_NS, clock_since
from ospltool.trace.meaning.fact_kinds import MasterConfirmation, Run, TracedConflict
from ospltool.trace.meaning.names import NOBODY
from ospltool.trace.meaning.trace_facts import TraceFacts
from ospltool.trace.reading.record import number
from ospltool.trace.rules import TraceFinding, burst, finding, grouped, rule, span, stopping_ns

# A second round may follow a change of nodes, a third a lost message. Chosen.
ROUNDS: Final = 4
"""Disputed rounds in a row that make a live-lock."""

# Rounds of a live-lock follow within seconds; elections of different causes are minutes apart.
WITHIN_NS: Final = 60 * SECOND_NS
SETTLES_WITHIN_NS: Final = SECOND_NS
# `engine.core.name_spaces.MAX_PRIORITY`: the legacy rule.
LEGACY: Final = 255


@dataclasses.dataclass(slots=True)
class _Row:
    """Rounds of a run in a row that one other run disputed."""

    run: Run
    other: Run
    times: list[int] = dataclasses.field(default_factory=list)


@rule(
    "master-livelock", "elections of a master that are repeated without end, because nodes choose differently"
)
def livelock(facts: TraceFacts) -> Iterator[TraceFinding]:
    """Find elections that are repeated, each with a merge, and do not end with one master.

    Seen: four rounds in a row within a minute that the same two runs dispute (see the module).
    Refuted by: a round on which they agree, and a start, a stop or a loss of one of the two in between.
        Whether it settled afterwards, and when, is said.
    """
    conflicts = [one for one in facts.conflicts if one.kind == "conflict.master"]
    for namespace, some in grouped(conflicts, lambda one: one.namespace):
        choices = [one for one in facts.choices if one.namespace == namespace]
        rows = list(_rows(facts, some, choices))
        for runs in _joined({row.run, row.other} for row in rows):
            since = min(row.times[0] for row in rows if row.run in runs)
            until = max(row.times[-1] for row in rows if row.run in runs)
            yield _finding(facts, namespace, _Lock(runs, since, until), some, choices)


@dataclasses.dataclass(frozen=True, slots=True)
class _Lock:
    """A live-lock: its runs, and the time in which nodes chose differently."""

    runs: set[Run]
    since_ns: int
    until_ns: int


def _rows(
    facts: TraceFacts, conflicts: list[TracedConflict], choices: list[MasterConfirmation]
) -> Iterator[_Row]:
    """Yield the rows of disputed rounds that are long enough for a live-lock."""
    of_run = dict(grouped(choices, lambda one: one.run))
    created = {
        run: sorted(one.created.at_ns for one in some)
        for run, some in grouped(conflicts, lambda one: one.run)
    }
    lost = {
        run: sorted(place.at_ns for *_, place in some)
        for run, some in grouped(facts.losses, lambda one: one[0])
    }
    for run, own in of_run.items():
        rows: dict[Run, _Row] = {}
        before = 0
        for position, choice in enumerate(own):
            now = choice.place.at_ns
            is_round = _any_between(created.get(run, ()), before, now)
            before = now
            if not is_round:
                continue
            following = own[position + 1].place.at_ns if position + 1 < len(own) else now + WITHIN_NS
            others = _disputing(facts, choice, of_run, min(now + SETTLES_WITHIN_NS, following))
            for other, row in list(rows.items()):
                if other not in others or any(
                    _any_between(lost.get(one, ()), row.times[-1], now) for one in (run, other)
                ):
                    yield from _if_long(rows.pop(other))
            for other in others:
                rows.setdefault(other, _Row(run, other)).times.append(now)
        for row in rows.values():
            yield from _if_long(row)


def _if_long(row: _Row) -> Iterator[_Row]:
    if burst(row.times, ROUNDS, WITHIN_NS):
        yield row


def _any_between(times: Sequence[int], after: int, until: int) -> bool:
    """Return whether one of the ordered times lies within a span."""
    at = bisect.bisect_right(times, after)
    return at < len(times) and times[at] <= until


def _disputing(
    facts: TraceFacts, choice: MasterConfirmation, of_run: dict[Run, list[MasterConfirmation]], until: int
) -> set[Run]:
    """Return the runs of the same role that follow another master at a time, and live on after it."""
    found = set()
    role = facts.roles.get(choice.chooser)
    for run, theirs in of_run.items():
        if run[0] == choice.run[0] or not facts.first_ns[run] <= until <= facts.last_ns[run]:
            continue
        stops = stopping_ns(facts, run)
        if (stops is not None and stops <= until) or facts.roles.get(theirs[0].chooser, role) != role:
            continue
        at = bisect.bisect_right(theirs, until, key=lambda one: one.place.at_ns)
        if at and theirs[at - 1].master != choice.master:
            found.add(run)
    return found


def _joined(sets: Iterable[set[Run]]) -> list[set[Run]]:
    """Unite the sets that share a run."""
    joined: list[set[Run]] = []
    for one in sets:
        touching = [other for other in joined if other & one]
        joined = [other for other in joined if not other & one]
        joined.append(one.union(*touching))
    return joined


def _finding(
    facts: TraceFacts,
    namespace: str,
    lock: _Lock,
    conflicts: list[TracedConflict],
    all_choices: list[MasterConfirmation],
) -> TraceFinding:
    runs = lock.runs
    some = [one for one in conflicts if one.run in runs]
    choices = [one for one in all_choices if one.run in runs]
    times = [one.created.at_ns for one in some]
    favourites = _favourites(choices)
    rounds = _rounds(some)
    merges = collections.Counter(
        one.run[0] for one in facts.merges if one.namespace == namespace and one.run in runs
    )
    took = span(min(times), max(times))
    who = "; ".join(_choice_text(facts, chooser, *choice) for chooser, choice in favourites.items())
    merge_text = ", ".join(f"{node} {count}" for node, count in sorted(merges.items()))
    settled = _settled_ns(facts, lock, choices)
    what = "never settles on a master" if settled is None else "did not settle on a master"
    return finding(
        "master-livelock",
        f"name-space {namespace} {what}: {plural(rounds, 'round')} of election and merge in {took}",
        "Nodes follow different masters, and stay with their choices: "
        f"{who}. Each sees a master conflict in the other's choice, elects again with the same result, and "
        f"merges: {plural(sum(merges.values()), 'merge')} ({merge_text}). {_cause(facts, choices)}"
        + (
            ""
            if settled is None
            else f" From {clock_since(some[0].created.time_ns, settled)} on all that live follow one master."
        ),
        (one.created for one in some),
        namespace=namespace,
        rounds=rounds,
        merges=dict(merges),
        merges_in_all=sum(merges.values()),
        conflicts=len(some),
        settled_ns=settled,
        choices={
            facts.names.node(chooser): {
                "address": chooser,
                "master": facts.names.node(master),
                "master_address": master,
                "times": count,
                "priority": facts.names.priority_of.get(chooser),
                "master_priority": facts.names.priority_of.get(master),
            }
            for chooser, (master, count) in favourites.items()
        },
    )


def _settled_ns(facts: TraceFacts, lock: _Lock, choices: list[MasterConfirmation]) -> int | None:
    """Return when all runs that live on had chosen one master; None if they had not at the end."""
    last = {one.run: one for one in choices}
    living = [one for run, one in last.items() if facts.last_ns[run] > lock.until_ns + SETTLES_WITHIN_NS]
    if len(living) < 2 or len({one.master for one in living}) > 1:
        return None
    return max(one.place.at_ns for one in living)


def _favourites(choices: Iterable[MasterConfirmation]) -> dict[str, tuple[str, int]]:
    """Return the master that each chooser confirmed most often, and how often."""
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for one in choices:
        counts[one.chooser][one.master] += 1
    return {chooser: of_one.most_common(1)[0] for chooser, of_one in counts.items()}


def _rounds(conflicts: list[TracedConflict]) -> int:
    """Return the number of elections: those that the busiest node resolved in all of its runs."""
    resolved = collections.Counter(one.run[0] for one in conflicts if one.how == "conflict.resolved")
    return max(resolved.values(), default=0)


def _choice_text(facts: TraceFacts, chooser: str, master: str, count: int) -> str:
    chosen = "itself" if master == chooser else _described(facts, master)
    return f"{_described(facts, chooser)} chose {chosen} {plural(count, 'time')}"


def _described(facts: TraceFacts, address: str) -> str:
    priority = facts.names.priority_of.get(address)
    known = f"masterPriority {priority}, " if priority is not None else ""
    return f"{facts.names.node(address)} ({known}id {address})"


def _cause(facts: TraceFacts, choices: Iterable[MasterConfirmation]) -> str:
    """Explain from the traces why nodes choose differently."""
    wrong = collections.Counter(
        (one.chooser, one.master, better) for one in choices if (better := _passed_over(facts, one))
    )
    if not wrong:
        return (
            "Why they choose differently is not in the traces; compare the fellows that "
            "each node knew, their "
            "masterPriority and their quality."
        )
    (chooser, master, best), _ = wrong.most_common(1)[0]
    priorities, node = facts.names.priority_of, facts.names.node
    own = priorities[chooser]
    return (
        f"The wrong choice is that of {node(chooser)}: {node(best)} has the higher masterPriority "
        f"({priorities[best]} against {priorities[master]}). OpenSplice compares every candidate with the "
        f"node's own priority ({own}) instead of with the best candidate so far, and walks "
        "fellows in ascending "
        f"order of id: of all fellows above {own} the one with the highest id wins, here {node(master)}. Ids "
        f"are drawn at every start, so a restart may end it, or start it. Give {node(chooser)} and "
        f"{node(master)} the same masterPriority, or let no more than one fellow have a "
        "higher one than any node."
    )


def _passed_over(facts: TraceFacts, choice: MasterConfirmation) -> str:
    """Return the fellow that should have been chosen, if OpenSplice's comparison explains the error; else "".

    Only fellows that lived at that time count: ids of earlier incarnations are not candidates.
    """
    priorities = facts.names.priority_of
    own, chosen = priorities.get(choice.chooser), priorities.get(choice.master)
    if own is None or chosen is None or own == LEGACY or choice.master in {choice.chooser, NOBODY}:
        return ""
    now = choice.place.at_ns
    above = [
        one for one, priority in priorities.items()
        if priority > own and one != choice.chooser and number(one) is not None and _lives(facts, one, now)
    ]  # fmt: skip
    if choice.master not in above or max(above, key=int) != choice.master:
        return ""
    best = max(above, key=lambda one: priorities[one])
    return best if priorities[best] > chosen else ""


def _lives(facts: TraceFacts, address: str, now: int) -> bool:
    """Return whether the node of an address ran at a time; True without its trace."""
    runs = facts.names.runs_of.get(address, [])
    return not runs or any(facts.first_ns[run] <= now <= facts.last_ns[run] for run in runs)
