"""The use of time: phases of each run, alignments, merges, waits."""

from __future__ import annotations

import bisect
import collections
import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypedDict

from ospltool.output.text import plural, shortened
from ospltool.output.times import clock_since, duration, iso
from ospltool.trace.meaning.alignments import AlignmentEnd, TracedAlignment
from ospltool.trace.meaning.fact_kinds import Run, StateSpan, Wait
from ospltool.trace.meaning.lines import RecordPlace
from ospltool.trace.meaning.names import NOBODY
from ospltool.trace.meaning.trace_facts import TraceFacts
from ospltool.trace.reading.record import one_line
from ospltool.trace.rules import grouped

START_STATES: Final = (
    "INIT",
    "DISCOVER_FELLOWS_GROUPS",
    "DISCOVER_PERSISTENT_SOURCE",
    "INJECT_PERSISTENT",
    "DISCOVER_LOCAL_GROUPS",
    "FETCH_INITIAL",
)
"""The states before a service is operational."""

# Chosen: the longest one explains a slow start as a rule.
LONGEST_WAITS: Final = 3
# Beside names, times and figures in a line of 100.
BAR_WIDTH: Final = 30


@dataclasses.dataclass(frozen=True, slots=True)
class _RunState:
    """A state of a run, with the longest waits of its main threads."""

    span: StateSpan
    waits: tuple[Wait, ...]

    @property
    def length_ns(self) -> int:
        """Its length."""
        return max(0, self.span.end_ns - self.span.start_ns)


@dataclasses.dataclass(frozen=True, slots=True)
class Alignments:
    """Figures of all alignments of one group between two nodes."""

    alignee: str
    """Name of the node that asked."""
    aligner: str
    """Name of the node that answered, or "all"."""
    group: str
    """partition.topic; a name-space in ospltool traces."""
    count: int
    """Number of alignments."""
    complete: int
    """Number of complete ones."""
    absorbed: int
    """Number of those that were answered together with an earlier request."""
    unknown: int
    """Number of those whose end is unknown, since the trace of one of the two nodes is not here."""
    samples: int
    """Number of samples announced to the alignee."""
    longest_ns: int
    """Longest time of a complete alignment."""
    total_ns: int
    """Total time of complete alignments."""


@dataclasses.dataclass(frozen=True, slots=True)
class RunTimes:
    """One run of a service."""

    run: Run
    """Node and number of the run."""
    phases: tuple[_RunState, ...]
    """Its states, in order."""
    start_ns: int
    """Time of its first record."""
    operational_ns: int | None
    """Time from the first record until it was operational; None if it never was."""
    merges: int
    """Number of merges that it began."""
    merge_ns: int
    """Total time of its merges."""
    readers: int
    """Number of finished waits for historical data."""
    longest_reader_ns: int
    """Longest of these waits."""


@dataclasses.dataclass(frozen=True, slots=True)
class TraceTimeline:
    """All runs, and all alignments."""

    runs: tuple[RunTimes, ...]
    alignments: tuple[Alignments, ...]


def timeline(facts: TraceFacts) -> TraceTimeline:
    """Compute the use of time."""
    spans = dict(grouped(facts.states, lambda span: span.run))
    waits = dict(grouped(facts.waits, lambda wait: (wait.run, wait.state)))
    begun = collections.Counter(one.run for one in facts.merges)
    merging = _merging(facts)
    reading: dict[Run, list[int]] = {}
    for run, _, start, end in facts.readers:
        if end:
            reading.setdefault(run, []).append(end.at_ns - start.at_ns)
    runs = []
    for run in sorted(facts.first_ns):
        own = spans.get(run, [])
        complete = next((span.start_ns for span in own if span.state == "COMPLETE"), None)
        readers = reading.get(run, [])
        runs.append(
            RunTimes(
                run,
                tuple(_RunState(span, _longest(waits.get((run, span.state), ()), span)) for span in own),
                facts.first_ns[run],
                None if complete is None else complete - facts.first_ns[run],
                begun[run],
                merging[run],
                len(readers),
                max(readers, default=0),
            )
        )
    return TraceTimeline(tuple(runs), tuple(_alignments(facts)))


def _merging(facts: TraceFacts) -> collections.Counter[Run]:
    """Return the time of the merges of each run, in nanoseconds."""
    took: collections.Counter[Run] = collections.Counter()
    for conflict in facts.conflicts:
        if conflict.started and conflict.stopped:
            took[conflict.run] += conflict.stopped.at_ns - conflict.started.at_ns
    # Conflicts of ospltool have no numbers: their time is that of the alignments.
    merges = {
        key: sorted(some, key=_start)
        for key, some in grouped(
            (one for one in facts.book.all() if one.policy), lambda one: (one.alignee, one.group)
        )
    }
    for run, namespace in {(run, namespace) for run, _, namespace, _ in facts.applied}:
        own = facts.names.own.get(run[0])
        if own is None or run not in facts.first_ns:
            continue
        some = merges.get((own, namespace), [])
        first = bisect.bisect_left(some, facts.first_ns[run], key=_start)
        last = bisect.bisect_right(some, facts.last_ns[run], key=_start)
        took[run] += sum((one.end_ns or 0) - _start(one) for one in some[first:last])
    return took


def _start(one: TracedAlignment) -> int:
    return one.start_ns or 0


def _longest(waits: Iterable[Wait], span: StateSpan) -> tuple[Wait, ...]:
    """Return the longest waits within a state, of those of its run in states of its name."""
    inside = [
        wait
        for wait in waits
        if span.start_ns <= wait.before.at_ns
        and wait.after.at_ns <= max(span.end_ns, span.start_ns + wait.length_ns)
        and wait.length_ns <= span.end_ns - span.start_ns + 1_000_000
    ]
    return tuple(sorted(inside, key=lambda wait: -wait.length_ns)[:LONGEST_WAITS])


def _alignments(facts: TraceFacts) -> Iterator[Alignments]:
    groups: dict[tuple[str, str, str], list[TracedAlignment]] = {}
    for one in facts.book.all():
        aligner = "all" if one.aligner == NOBODY else facts.names.node(one.aligner)
        groups.setdefault((facts.names.node(one.alignee), aligner, one.group), []).append(one)
    for (alignee, aligner, group), some in sorted(groups.items()):
        times = [(one.end_ns or 0) - (one.start_ns or 0) for one in some if one.end is AlignmentEnd.COMPLETE]
        yield Alignments(
            alignee,
            aligner,
            group,
            len(some),
            len(times),
            sum(one.end is AlignmentEnd.ABSORBED for one in some),
            sum(one.end is AlignmentEnd.OPEN and not _is_traced(facts, one) for one in some),
            sum(one.samples or 0 for one in some),
            max(times, default=0),
            sum(times),
        )


def _is_traced(facts: TraceFacts, one: TracedAlignment) -> bool:
    """Return whether the traces of both nodes cover the beginning of an alignment."""
    start_ns = _start(one)
    return all(
        any(
            facts.first_ns[run] <= start_ns <= facts.last_ns[run]
            for run in facts.names.runs_of.get(address, ())
        )
        for address in (one.alignee, one.aligner)
        if address != NOBODY
    )


def as_text(times: TraceTimeline) -> Iterator[str]:
    """Yield the timeline as lines of text."""
    for run in times.runs:
        begun = iso(run.start_ns, 3)
        end = (
            "never operational"
            if run.operational_ns is None
            else f"operational after {duration(run.operational_ns)}"
        )
        yield f"{one_line(run.run[0])}, run {run.run[1]}, from {begun}: {end}"
        longest = max((phase.length_ns for phase in run.phases), default=0)
        for phase in run.phases:
            bar = "#" * (-(-phase.length_ns * BAR_WIDTH // longest) if longest else 0)
            begun, took = clock_since(run.start_ns, phase.span.start_ns), duration(phase.length_ns)
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
            who = f"  {one_line(row.alignee)} from {one_line(row.aligner)}  {one_line(row.group)}"
            yield f"{who}: {_ended(row)}"


def _ended(row: Alignments) -> str:
    others = []
    if row.absorbed:
        others.append(f"{row.absorbed} answered together with an earlier request")
    if row.unknown:
        others.append(f"{row.unknown} unknown (no trace of one of the two)")
    if row.unknown == row.count:
        return f"{plural(row.count, 'alignment')}, {others[0]}"
    known = f"{row.complete} of {row.count} complete, {plural(row.samples, 'sample')}"
    times = f"longest {duration(row.longest_ns)}, {duration(row.total_ns)} in all" if row.complete else ""
    return ", ".join(filter(None, (known, times, *others)))


def _said(wait: Wait) -> str:
    between = f'after "{_short(wait.before)}", until "{_short(wait.after)}"'
    return f"{duration(wait.length_ns)} without a line, {between}"


def _short(place: RecordPlace) -> str:
    return one_line(shortened(place.text, 100))


class PhaseWait(TypedDict):
    """A wait without a line."""

    length_ns: int
    thread: str
    after: str
    until: str


class PhaseTimes(TypedDict):
    """A phase of a run."""

    state: str
    start_ns: int
    length_ns: int
    waits: Sequence[PhaseWait]


class RunTimesData(TypedDict):
    """The times of a run."""

    node: str
    run: int
    start_ns: int
    operational_after_ns: int | None
    merges: int
    merge_ns: int
    reader_waits: int
    longest_reader_wait_ns: int
    phases: Sequence[PhaseTimes]


class TimelineData(TypedDict):
    """The times of runs and alignments."""

    runs: Sequence[RunTimesData]
    alignments: Sequence[Alignments]
    unknown: Sequence[str]


def as_value(times: TraceTimeline, unknown: Sequence[str]) -> TimelineData:
    """Return the timeline for JSON, with what is `unknown`."""
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
        "alignments": times.alignments,
        "unknown": unknown,
    }
