"""Effects of merges and alignments on sets: sizes over time, samples discarded, and joined sets."""

from __future__ import annotations

import bisect
import dataclasses
import functools
import itertools
import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from ospltool.output.text import plural
from ospltool.output.times import SECOND_NS, clock_since, duration
from ospltool.trace.meaning.alignments import AlignmentEnd, AlignmentStep, KindCounts, TracedAlignment
from ospltool.trace.meaning.coverage import heard
from ospltool.trace.meaning.fact_kinds import BUILT_IN, Run, SetSize, SizeOrigin, StoredReplaced
from ospltool.trace.meaning.trace_facts import TraceFacts
from ospltool.trace.rules import SetFate, TraceFinding, grouped, set_finding

BY_TIME: Final = operator.attrgetter("time_ns", "node", "group")
"""The order of sizes."""

_TAKES_THE_PLACE: Final = frozenset({"", "REPLACE", "CATCHUP"})


def sizes(facts: TraceFacts) -> list[SetSize]:
    """Return all sizes from traces, by time, without OpenSplice's own groups."""
    found = [one for one in facts.told_sizes if not one.group.startswith(BUILT_IN)]
    for one in facts.book.all():
        if not one.group.startswith(BUILT_IN):
            found.extend(_of_exchange(facts, one))
    found += [
        SetSize(run[0], group, facts.lines.time(line) or 0, 0, SizeOrigin.EMPTIED)
        for run, policy, group, line in facts.applied
        if policy == "DELETE" and not group.startswith(BUILT_IN)
    ]
    return sorted(found, key=BY_TIME)


def _of_exchange(facts: TraceFacts, one: TracedAlignment) -> Iterator[SetSize]:
    sent_ns = one.time(AlignmentStep.SENT)
    if sent_ns is not None:
        sent = sent_set(one)
        if sent is not None:
            aligner = facts.names.node(one.aligner)
            yield SetSize(aligner, one.group, sent_ns, sent.data, SizeOrigin.SENT, "", sent.disposes)
    if one.end is not AlignmentEnd.COMPLETE or one.is_equal or one.policy == "DELETE":
        return
    taken_ns, taken = one.time(AlignmentStep.COMPLETE), taken_set(one)
    if taken_ns is not None and taken is not None:
        how = SizeOrigin.TAKEN if one.policy in _TAKES_THE_PLACE else SizeOrigin.JOINED
        alignee = facts.names.node(one.alignee)
        yield SetSize(alignee, one.group, taken_ns, taken.data, how, "", taken.disposes)


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


TAKES_THE_PLACE: Final = frozenset({"REPLACE", "CATCHUP"})
# As `meaning.reports.NEAR_NS`.
NOTICED_WITHIN_NS: Final = 15 * SECOND_NS
"""Time within which the lines of a node about the loss of a fellow belong together."""

# A large set on a slow disk; longer would join it with the next one.
STORED_WITHIN_NS: Final = 60 * SECOND_NS
"""Time within which a taken set is stored."""

_EXACT: Final = frozenset({SizeOrigin.SENT, SizeOrigin.TAKEN, SizeOrigin.TOLD, SizeOrigin.EMPTIED})


@dataclasses.dataclass(frozen=True, slots=True)
class Applied:
    """A merge policy that a run applied to one group, with the alignments that brought the sets."""

    run: Run
    group: str
    policy: str
    line: int
    """Number of the policy's line."""
    time_ns: int
    """Time of that line; 0 if it has none."""
    exchanges: tuple[TracedAlignment, ...]


def applied(facts: TraceFacts) -> list[Applied]:
    """Return all applied policies by time.

    OpenSplice reports that it applies a policy; ospltool nodes report only that a set is complete.
    """
    taken: dict[int | None, list[TracedAlignment]] = {line: [] for *_, line in facts.applied}
    for one in facts.book.all():
        for step in (AlignmentStep.APPLIED, AlignmentStep.COMPLETE):
            of_line = taken.get(one.line(step)) if one.has(step) else None
            if of_line is not None:
                of_line.append(one)
    time = facts.lines.time
    found = [
        Applied(run, group, policy, line, time(line) or 0, tuple(taken[line]))
        for run, policy, group, line in facts.applied
        if not group.startswith(BUILT_IN)
    ]
    # Nodes and groups come one after the other: by time for the reader, by run and group where times are
    # equal.
    return sorted(found, key=lambda one: (one.time_ns, one.run, one.group))


def conclusions(
    facts: TraceFacts, shown: Sequence[SetSize], findings: Sequence[TraceFinding]
) -> Iterator[TraceFinding]:
    """Yield conclusions from applied merges, one for each node, group and kind."""
    emptied = {str(one.facts["group"]) for one in findings if one.rule == "set-emptied"}
    history = {
        key: sorted(some, key=lambda one: one.time_ns)
        for key, some in grouped(
            (one for one in shown if one.how in _EXACT), lambda one: (one.node, one.group)
        )
    }
    contacts = _Contacts(facts)
    all_applied = applied(facts)
    for _, some in grouped((one for one in all_applied if one.policy == "MERGE"), lambda one: one.run):
        yield _joined(facts, some, shown)
    for (run, group), some in grouped(all_applied, lambda one: (one.run, one.group)):
        before = history.get((run[0], group), [])
        cut_off = []
        episodes: list[int] = []
        for one in some:
            apart = contacts.apart(one) if one.policy in TAKES_THE_PLACE else None
            if apart is None:
                continue
            cut_off.append(one)
            since = apart.since_ns
            if not any(abs(since - other) < NOTICED_WITHIN_NS for other in episodes):
                yield _thrown_away(facts, one, before, apart)
            episodes.append(since)  # later merges of one episode replaced samples that came from the others
        rest = [one for one in some if one.policy in TAKES_THE_PLACE and one not in cut_off]
        shrank = [one for one in rest if _shrinks(one, before)]
        if shrank and group not in emptied:
            yield _shrank(facts, shrank, before)
        elif rest:
            yield _replaced(facts, rest)


def _aligners(facts: TraceFacts, some: Sequence[Applied]) -> list[str]:
    """Return the names of the nodes whose sets came."""
    return sorted({facts.names.node(exchange.aligner) for one in some for exchange in one.exchanges})


def _named(names: Sequence[str], word: str = "and") -> str:
    return f" {word} ".join(names) or "an unknown node"


def _size_before(before: Sequence[SetSize], at_ns: int) -> SetSize | None:
    """Return the last known size of a set before a time."""
    position = bisect.bisect_left(before, at_ns, key=lambda one: one.time_ns)
    return before[position - 1] if position else None


class _Apart(NamedTuple):
    """A time in which a node captured what the aligner whose set it takes did not.

    Attributes:
        since_ns: when it began.
        until_ns: when a new run of the aligner began; None if the two had lost each other.
    """

    since_ns: int
    until_ns: int | None = None


class _Contacts:
    """Indexes of lost fellows and of alignments between nodes."""

    def __init__(self, facts: TraceFacts) -> None:
        self._facts = facts
        self._lost: dict[tuple[Run, str], list[int]] = {}
        for run, _, fellow, place in facts.losses:
            self._lost.setdefault((run, fellow), []).append(place.at_ns)
        for times in self._lost.values():
            times.sort()
        found: dict[tuple[str, frozenset[str]], list[TracedAlignment]] = {}
        for one in facts.book.all():
            if one.end is AlignmentEnd.COMPLETE or one.has(AlignmentStep.SENT):
                key = (one.group, frozenset({one.alignee, one.aligner}))
                found.setdefault(key, []).append(one)
        self._aligned = {key: _ByStart(some) for key, some in found.items()}
        taken = grouped(
            (one for one in facts.book.all() if one.end is AlignmentEnd.COMPLETE),
            lambda one: (one.group, one.alignee),
        )
        self._first_taken = {key: min(one.end_ns or 0 for one in some) for key, some in taken}

    def lost_since(self, one: Applied, aligner: str) -> int | None:
        """Return when a node lost the aligner whose set it takes; None if they were aligned since."""
        lost = self._lost.get((one.run, aligner), [])
        lost = lost[: bisect.bisect_right(lost, one.time_ns)]
        if not lost:
            return None
        since = next(time for time in lost if time > lost[-1] - NOTICED_WITHIN_NS)
        pair = frozenset({self._facts.names.own_of(one.run), aligner})
        aligned = self._aligned.get((one.group, pair))
        together = aligned is not None and aligned.any_between(since, one)
        return None if together else since

    def was_down(self, one: Applied, aligner: str) -> _Apart | None:
        """Return when the aligner of a set was down while the node that takes it was running.

        None if the aligner has taken any set of the group since, which may have what it missed.
        """
        runs = self._facts.names.runs_of.get(aligner, [])
        if len(runs) != 1:
            return None  # ospltool nodes keep their address, and what they know of their sets
        (node, number), began = runs[0], self._facts.first_ns
        since, until = self._end_of((node, number - 1)), began.get(runs[0])
        if since is None or until is None or not began.get(one.run, since) < since < until < one.time_ns:
            return None
        pair = frozenset({self._facts.names.own_of(one.run), aligner})
        aligned = self._aligned.get((one.group, pair))
        if aligned is not None and aligned.any_between(since, one):
            return None
        return _Apart(since, until) if self._taken_later(one, aligner) else None

    def _end_of(self, run: Run) -> int | None:
        """Return when a run was heard last, by its own trace or by others, as its trace may be cut."""
        end = self._facts.last_ns.get(run)
        times = self._heard.get(self._facts.names.own_of(run), ())
        return end if end is None else max(end, *times[-1:])

    @functools.cached_property
    def _heard(self) -> dict[str, list[int]]:
        return heard(self._facts)

    def _taken_later(self, one: Applied, aligner: str) -> bool:
        """Return whether an aligner took no set of a group before it gave its own."""
        given = min(_given_ns(each) for each in one.exchanges if each.aligner == aligner)
        return self._first_taken.get((one.group, aligner), given) >= given

    def apart(self, one: Applied) -> _Apart | None:
        """Return when a node and the aligners whose sets it takes were apart; None if aligned since."""
        found: list[_Apart] = []
        for aligner in {each.aligner for each in one.exchanges}:
            lost = self.lost_since(one, aligner)
            apart = self.was_down(one, aligner) if lost is None else _Apart(lost)
            if apart is None:
                return None
            found.append(apart)
        return min(found, key=lambda each: each.since_ns, default=None)


class _ByStart:
    """Alignments by their start."""

    def __init__(self, some: Iterable[TracedAlignment]) -> None:
        # By their starts, in which `bisect` looks.
        self._some = sorted(some, key=lambda one: one.start_ns or 0)
        self._starts = [one.start_ns or 0 for one in self._some]
        self._given = [_given_ns(one) for one in self._some]
        earliest = itertools.accumulate(reversed(self._given), min)
        self._earliest = list(earliest)[::-1]
        """When the first of each alignment and the later ones was given."""

    def any_between(self, since_ns: int, applied: Applied) -> bool:
        """Tell whether one began after a time, and was given before a policy was applied to another."""
        for number in range(bisect.bisect_right(self._starts, since_ns), len(self._some)):
            if self._earliest[number] >= applied.time_ns:
                return False
            if self._given[number] < applied.time_ns and self._some[number] not in applied.exchanges:
                return True
        return False


def _given_ns(one: TracedAlignment) -> int:
    """Return when a set was sent by the aligner; if that is unknown, when the alignee took it."""
    sent = one.time(AlignmentStep.SENT)
    return (one.end_ns or 0) if sent is None else sent


def _thrown_away(facts: TraceFacts, one: Applied, before: Sequence[SetSize], apart: _Apart) -> TraceFinding:
    node, since = one.run[0], apart.since_ns
    taken = max(_taken(one), default=0)
    known = _size_before(before, one.time_ns)
    former = _former_set(facts, one)
    if former is not None:
        kept = f", kept as set {former.kept} of its store" if former.kept else ", not kept in its store"
        own = f"{plural(former.before, 'sample')}{kept}"
    elif known is None:
        own = "of unknown size"
    else:
        own = f"last seen with {plural(known.samples, 'sample')} at {clock_since(one.time_ns, known.time_ns)}"
    at_least = max(0, known.samples - known.disposes - taken) if known is not None else 0
    gone = f"at least {plural(at_least, 'sample')}" if at_least else "the number of samples is unknown"
    if apart.until_ns is not None and not at_least:
        gone += ", and may be 0"
    if former is not None and former.kept:
        gone = f"`ospltool store diff STORE@{former.kept} STORE` shows which samples"
    giver = _named(_aligners(facts, [one]))
    noticed = duration(one.time_ns - since)
    what = f"the samples of {one.group} from while it was cut off (noticed {noticed} before)"
    if apart.until_ns is not None:
        between = f"from {clock_since(one.time_ns, since)} to {clock_since(one.time_ns, apart.until_ns)}"
        what = f"whatever it had captured of {one.group} between two runs of {giver}, {between}"
    return set_finding(
        SetFate.THROWN_AWAY,
        f"{node} threw away {what}: {one.policy} put the set of {giver} "
        f"({plural(taken, 'sample')}) in place of its own ({own}); {gone}",
        one.time_ns,
        one.time_ns,
        (node,),
        one.group,
        (facts.lines.place(one.line), *([former.place] if former is not None else [])),
        {
            "policy": one.policy,
            "cut_off_ns": since,
            "restarted_ns": apart.until_ns,
            "samples_taken": taken,
            "samples_before": former.before if former else known.samples if known else None,
            "at_least": at_least,
        },
    )


def _former_set(facts: TraceFacts, one: Applied) -> StoredReplaced | None:
    """Return an ospltool node's line about the stored set that the taken one replaced."""
    said = (
        each
        for each in facts.stored_replaced
        if each.run == one.run
        and each.namespace == one.group
        and 0 <= each.place.at_ns - one.time_ns <= STORED_WITHIN_NS
    )
    return next(said, None)


def _taken(one: Applied) -> list[int]:
    """Return the number of samples in each set that came, without those of unknown size."""
    sets = [taken_set(exchange) for exchange in one.exchanges if not exchange.is_equal]
    return [each.data for each in sets if each is not None]


def _shrinks(one: Applied, before: Sequence[SetSize]) -> bool:
    """Return whether a set lost more samples than instances were disposed in it."""
    known, taken = _size_before(before, one.time_ns), _taken(one)
    if known is None or not taken or len(taken) < len(one.exchanges):
        return False
    return sum(taken) < known.samples - known.disposes


def _shrank(facts: TraceFacts, some: Sequence[Applied], before: Sequence[SetSize]) -> TraceFinding:
    first = some[0]
    known = _size_before(before, first.time_ns)
    had = known.samples if known else 0
    taken = sum(_taken(first))
    again = f", and {plural(len(some) - 1, 'time')} more" if len(some) > 1 else ""
    return _of_merges(
        facts,
        SetFate.SHRANK,
        f"the set of {first.group} on {first.run[0]} shrank from {had} to {plural(taken, 'sample')}: "
        f"{first.policy} put the set of {_named(_aligners(facts, [first]))} in its place{again}; "
        "applications may have deleted some of it in between",
        some,
        first.group,
        {"policy": first.policy, "samples_before": had, "samples_taken": taken, "times": len(some)},
    )


def _replaced(facts: TraceFacts, some: Sequence[Applied]) -> TraceFinding:
    policies = ", ".join(sorted({one.policy for one in some}))
    names = _aligners(facts, some)
    times = (
        "once"
        if len(some) == 1
        else f"{plural(len(some), 'time')} until {clock_since(some[0].time_ns, some[-1].time_ns)}"
    )
    return _of_merges(
        facts,
        SetFate.REPLACED,
        f"the set of {some[0].group} on {some[0].run[0]} was replaced {times} ({policies}), by that of "
        f"{_named(names, 'or')}",
        some,
        some[0].group,
        {"policies": policies, "times": len(some), "from": names},
    )


def _joined(facts: TraceFacts, some: Sequence[Applied], shown: Sequence[SetSize]) -> TraceFinding:
    run = some[0].run
    groups = list(dict.fromkeys(one.group for one in some))
    parts = [_growth(facts, [one for one in some if one.group == group], shown) for group in groups[:3]]
    more = f" and {len(groups) - 3} more" if len(groups) > 3 else ""
    names = _aligners(facts, some)
    return _of_merges(
        facts,
        SetFate.JOINED,
        f"{run[0]} joined its sets with those of {_named(names)} "
        f"({plural(len(some), 'merge')}): {', '.join(parts)}{more}",
        some,
        groups[0] if len(groups) == 1 else "",
        {"merges": len(some), "with": names, "groups": groups},
    )


def _of_merges(
    facts: TraceFacts,
    kind: SetFate,
    said: str,
    some: Sequence[Applied],
    group: str,
    details: dict[str, object],
) -> TraceFinding:
    """Return a conclusion from merges of one node, from the first to the last."""
    places = tuple(facts.lines.place(one.line) for one in some[:5])
    return set_finding(
        kind, said, some[0].time_ns, some[-1].time_ns, (some[0].run[0],), group, places, details
    )


def _growth(facts: TraceFacts, some: Sequence[Applied], shown: Sequence[SetSize]) -> str:
    """Return a group, with the sizes of its set before and after its merges if both are known."""
    run, group = some[0].run, some[0].group
    start, end = facts.first_ns[run], facts.last_ns[run]
    own = [one for one in shown if (one.node, one.group) == (run[0], group) and start <= one.time_ns <= end]
    before = [one for one in own if one.time_ns < some[0].time_ns and one.how in _EXACT]
    after = [one for one in own if one.time_ns >= some[-1].time_ns and one.how is SizeOrigin.SENT]
    known = bool(before and after)
    return (
        f"{group} ({plural(before[-1].samples, 'sample')} before, {after[0].samples} after)"
        if known
        else group
    )
