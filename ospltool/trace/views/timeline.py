"""Where the time went: phases of each run, alignments, merges, waits."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from ospltool.trace.meaning.exchanges import End
from ospltool.trace.meaning.names import NOBODY
from ospltool.trace.reading.record import one_line
from ospltool.trace.views.times import clock, duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ospltool.trace.meaning.exchanges import Exchange, Place
    from ospltool.trace.meaning.fact_kinds import Run, StateSpan, Wait
    from ospltool.trace.meaning.facts import Facts

START_STATES: Final = (
    "INIT",
    "DISCOVER_FELLOWS_GROUPS",
    "DISCOVER_PERSISTENT_SOURCE",
    "INJECT_PERSISTENT",
    "DISCOVER_LOCAL_GROUPS",
    "FETCH_INITIAL",
)
"""The states before a service is operational."""

LONGEST_WAITS: Final = 3
BAR_WIDTH: Final = 30


@dataclasses.dataclass(frozen=True, slots=True)
class Phase:
    """A state of a run, with what its main threads waited for longest."""

    span: StateSpan
    waits: tuple[Wait, ...]

    @property
    def length_ns(self) -> int:
        """How long it took."""
        return max(0, self.span.end_ns - self.span.start_ns)


@dataclasses.dataclass(frozen=True, slots=True)
class Alignments:
    """The alignments of one node from another, of one group, in one run of the node that asked."""

    alignee: str
    aligner: str
    group: str
    count: int
    complete: int
    samples: int
    longest_ns: int
    total_ns: int


@dataclasses.dataclass(frozen=True, slots=True)
class RunTimes:
    """One run of a service.

    Attributes:
        run: the node and the number of the run.
        phases: its states, in order.
        start_ns: its first record.
        operational_ns: from the first record until it was operational; None when it never was.
        merges: how many merges it began.
        readers: how many waits for historical data, and the longest.
    """

    run: Run
    phases: tuple[Phase, ...]
    start_ns: int
    operational_ns: int | None
    merges: int
    merge_ns: int
    readers: int
    longest_reader_ns: int


@dataclasses.dataclass(frozen=True, slots=True)
class Timeline:
    """All runs, and all alignments."""

    runs: tuple[RunTimes, ...]
    alignments: tuple[Alignments, ...]


def timeline(facts: Facts) -> Timeline:
    """Where the time went."""
    runs = []
    for run in sorted(facts.first_ns):
        spans = [span for span in facts.states if span.run == run]
        phases = tuple(Phase(span, _longest(facts, span)) for span in spans)
        own_merges = {
            (facts.names.own.get(run[0]), namespace)
            for of_run, _, namespace, _ in facts.applied
            if of_run == run
        }
        complete = next((span.start_ns for span in spans if span.state == "COMPLETE"), None)
        merging = [
            (one.stopped.time_ns or 0) - (one.started.time_ns or 0)
            for one in facts.conflicts
            if one.run == run and one.started and one.stopped
        ]
        merging += [  # of our engine, which has no conflicts with numbers
            (one.end_ns or 0) - (one.start_ns or 0)
            for one in facts.book.all()
            if (one.alignee, one.group) in own_merges
            and one.policy
            and facts.first_ns[run] <= (one.start_ns or 0) <= facts.last_ns[run]
        ]
        waits = [
            (end.time_ns or 0) - (start.time_ns or 0)
            for of_run, _, start, end in facts.readers
            if of_run == run and end
        ]
        runs.append(
            RunTimes(
                run,
                phases,
                facts.first_ns[run],
                None if complete is None else complete - facts.first_ns[run],
                sum(one.run == run for one in facts.merges),
                sum(merging),
                len(waits),
                max(waits, default=0),
            )
        )
    return Timeline(tuple(runs), tuple(_alignments(facts)))


def _longest(facts: Facts, span: StateSpan) -> tuple[Wait, ...]:
    """The longest waits within a state."""
    inside = [
        wait
        for wait in facts.waits
        if wait.run == span.run
        and wait.state == span.state
        and span.start_ns <= (wait.before.time_ns or 0)
        and (wait.after.time_ns or 0) <= max(span.end_ns, span.start_ns + wait.length_ns)
        and wait.length_ns <= span.end_ns - span.start_ns + 1_000_000
    ]
    return tuple(sorted(inside, key=lambda wait: -wait.length_ns)[:LONGEST_WAITS])


def _alignments(facts: Facts) -> Iterator[Alignments]:
    groups: dict[tuple[str, str, str], list[Exchange]] = {}
    for one in facts.book.all():
        aligner = "all" if one.aligner == NOBODY else facts.names.node(one.aligner)
        groups.setdefault((facts.names.node(one.alignee), aligner, one.group), []).append(one)
    for (alignee, aligner, group), some in sorted(groups.items()):
        times = [(one.end_ns or 0) - (one.start_ns or 0) for one in some if one.end is End.COMPLETE]
        yield Alignments(
            alignee,
            aligner,
            group,
            len(some),
            len(times),
            sum(one.samples or 0 for one in some),
            max(times, default=0),
            sum(times),
        )


def as_text(times: Timeline) -> Iterator[str]:
    """The timeline as lines of text."""
    for run in times.runs:
        begun = clock(run.start_ns, 3)
        end = (
            "never operational"
            if run.operational_ns is None
            else f"operational after {duration(run.operational_ns)}"
        )
        yield f"{one_line(run.run[0])}, run {run.run[1]}, from {begun}: {end}"
        longest = max((phase.length_ns for phase in run.phases), default=0)
        for phase in run.phases:
            bar = "#" * (-(-phase.length_ns * BAR_WIDTH // longest) if longest else 0)
            begun, took = clock(phase.span.start_ns, 3), duration(phase.length_ns)
            yield f"  {begun}  {phase.span.state:<27}{took:>13}  {bar}".rstrip()
            if phase.span.state in START_STATES:
                for wait in phase.waits:
                    yield f"{'':>16}{_said(wait)}"
        if run.merges:
            yield f"  merges: {run.merges}, {duration(run.merge_ns)} in all"
        if run.readers:
            yield f"  waits for historical data: {run.readers}, the longest {duration(run.longest_reader_ns)}"
        yield ""
    if times.alignments:
        yield "Alignments (by alignee, aligner, group)"
        for row in times.alignments:
            yield (
                f"  {one_line(row.alignee)} from {one_line(row.aligner)}  {one_line(row.group)}: "
                f"{row.complete} of {row.count} complete, "
                f"{row.samples} samples, longest {duration(row.longest_ns)}, {duration(row.total_ns)} in all"
            )


def _said(wait: Wait) -> str:
    return f"{duration(wait.length_ns)} of it after: {_short(wait.before)} (until: {_short(wait.after)})"


def _short(place: Place) -> str:
    return one_line(place.text[:100])


def as_value(times: Timeline) -> dict[str, object]:
    """The timeline for JSON."""
    return {
        "runs": [
            {
                "node": run.run[0],
                "run": run.run[1],
                "start_ns": run.start_ns,
                "operational_after_ns": run.operational_ns,
                "merges": run.merges,
                "merge_ns": run.merge_ns,
                "reader_waits": run.readers,
                "longest_reader_wait_ns": run.longest_reader_ns,
                "phases": [
                    {
                        "state": phase.span.state,
                        "start_ns": phase.span.start_ns,
                        "length_ns": phase.length_ns,
                        "waits": [
                            {
                                "length_ns": wait.length_ns,
                                "thread": wait.thread,
                                "after": wait.before.text,
                                "until": wait.after.text,
                            }
                            for wait in phase.waits
                        ],
                    }
                    for phase in run.phases
                ],
            }
            for run in times.runs
        ],
        "alignments": list(times.alignments),
    }
