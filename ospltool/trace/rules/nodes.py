"""Rules about nodes, threads and clocks: lost fellows, silence, states that go backwards, reports."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final

from ospltool.output.text import plural, shortened
from ospltool.output.times import SECOND_NS, clock, duration
from ospltool.trace.meaning import coverage
from ospltool.trace.meaning.alignments import AlignmentStep
from ospltool.trace.meaning.catalogue import catalogue
from ospltool.trace.meaning.fact_kinds import Run, StateSpan
from ospltool.trace.meaning.lines import RecordPlace
from ospltool.trace.meaning.reports import NEAR_NS, meaning_of, missed_heartbeat, stood_still_s
from ospltool.trace.meaning.trace_facts import TraceFacts
from ospltool.trace.reading.record import RecordKind, number
from ospltool.trace.rules import TraceFinding, finding, grouped, over_ns, rule, stopping_ns
from ospltool.trace.views.overview import normalised

# Two or three lines of a terminal.
_LONGEST_TITLE: Final = 220
# A default lease. At the default verbosity, a living node says something within it.
SILENT_NS: Final = 10 * SECOND_NS

ORDER: Final = {
    state: rank
    for rank, state in enumerate(
        (
            "INIT",
            "DISCOVER_FELLOWS_GROUPS",
            "DISCOVER_PERSISTENT_SOURCE",
            "INJECT_PERSISTENT",
            "DISCOVER_LOCAL_GROUPS",
            "FETCH_INITIAL",
            "COMPLETE",
            "TERMINATING",
            "TERMINATED",
        )
    )
}
"""States in the order of a run."""

_DIED: Final = "it died or was killed"
_ENDS: Final = "it is terminating"
_RESTARTED: Final = "it was restarted"
"""Reason of ospltool for removing a fellow that it considered alive."""

_NORMAL: Final = frozenset({"store.incomplete", "align.stray-link", "align.refused"})
"""Warnings that are normal at the first start, or that another rule explains."""


_AFTER_A_LOSS: Final = (
    "Requests that it had to answer go to another aligner, and masters are elected again where it was master."
)


@rule("fellow-lost", "a fellow whose heartbeat was missed although it did not stop in order")
def fellow_lost(facts: TraceFacts) -> Iterator[TraceFinding]:
    """Find lost fellows, and explain the loss from their own traces.

    Seen: a node removes a fellow whose heartbeat it missed, or the service reports a missed heartbeat.
    Refuted by: the fellow, or the node that says so, stopped in order before. A fellow whose trace is not
        here and that did not say that it ends was lost for an unknown reason.
    """
    losses = [(run[0], fellow, place) for run, _, fellow, place in facts.losses]
    missed = [
        (report.node, fellow, place)
        for report, place in facts.reported
        if report.kind is RecordKind.REPORT and (fellow := missed_heartbeat(report.text)) is not None
    ]
    reports = {place for *_, place in missed}
    # By time, because losses that are near to each other become one finding.
    by_time = sorted([*losses, *missed], key=lambda one: one[2].at_ns)
    for (node, fellow), some in grouped(by_time, lambda one: one[:2]):
        places: list[RecordPlace] = []
        stood_still = False
        verdicts: dict[tuple[bool, bool], str] = {}
        for incident in _incidents([place for *_, place in some]):
            when = incident[0].at_ns
            run = max(
                (run for run, at in facts.first_ns.items() if run[0] == node and at <= when), default=None
            )
            stops = None if run is None else stopping_ns(facts, run)
            if (stops is not None and stops <= when) or _ENDS in incident[0].text:
                continue  # one of the two stops in order
            is_new = any(_RESTARTED in place.text for place in incident)
            told, apart = _what_became_of(facts, fellow, when, is_new=is_new)
            if told is None:
                continue
            still_ns = _stood_still(facts, node, incident) if reports.issuperset(incident) else None
            if still_ns is not None:
                told, apart = f"{node} itself stood still for {duration(still_ns)} and heard nobody.", False
                stood_still = True
            verdicts.setdefault((apart, _DIED in told), f"At {clock(when, 3)}: {told}" if verdicts else told)
            places += [place for place in incident if _ENDS not in place.text]  # a later stop is no loss
        if not places:
            continue
        name = facts.names.node(fellow)
        who = f" {name}" if name == fellow else f" {name} (id {fellow})"
        who = who if fellow else ""
        title = f"{node} lost{who}"
        follows = _AFTER_A_LOSS
        if reports.issuperset(places):
            title = f"{node} reports {plural(len(places), 'missed heartbeat')}{' of' if who else ''}{who}"
            follows = "The lease of its domain service was not renewed in time."
        yield finding(
            "fellow-lost",
            title,
            f"{' '.join(verdicts.values())} {follows}",
            places,
            fellow=name,
            address=fellow,
            separated=any(apart for apart, _ in verdicts),
            died=any(died for _, died in verdicts),
            stood_still=stood_still,
        )


def _stood_still(facts: TraceFacts, node: str, incident: list[RecordPlace]) -> int | None:
    """Return how many ns a node did not run around a loss, as its services report; None if they do not."""
    return max(
        (
            round(still_s * SECOND_NS)
            for report, place in facts.reported
            if report.node == node
            and (still_s := stood_still_s(report.text)) is not None
            and any(abs(place.at_ns - one.at_ns) <= NEAR_NS for one in incident)
        ),
        default=None,
    )


def _incidents(places: list[RecordPlace]) -> Iterator[list[RecordPlace]]:
    """Yield the lines about a lost fellow, grouped by loss."""
    incident: list[RecordPlace] = []
    for place in places:
        if incident and place.at_ns - incident[-1].at_ns > NEAR_NS:
            yield incident
            incident = []
        incident.append(place)
    if incident:
        yield incident


def _what_became_of(facts: TraceFacts, address: str, when: int, *, is_new: bool) -> tuple[str | None, bool]:
    """Explain the loss of a fellow from its trace, None if it stopped in order; tell whether it ran on.

    Args:
        facts: facts from the traces.
        address: the fellow's address.
        when: time of the loss, in ns.
        is_new: the fellow was lost because its next run had begun.
    """
    known = facts.names.runs_of.get(address, [])
    runs = sorted(run for run in known if facts.first_ns[run] <= when)
    if known and not runs:
        return "Its trace begins later.", False
    restarted_ns = None
    if len(runs) > 1 and (is_new or when - facts.first_ns[runs[-1]] < NEAR_NS):
        restarted_ns = facts.first_ns[runs.pop()]  # the run before it was lost
    spans = [span for span in facts.states if span.run in runs]
    if not spans:
        return "There is no trace of it, so whether it stopped, died or was cut off is unknown.", False
    if any(_stopped_before(facts, run, when) for run in runs):
        return None, False
    if restarted_ns is not None:
        last_ns = min(max(facts.last_ns[run] for run in runs), restarted_ns)
        again = f"it was started again {duration(when - restarted_ns)} before"
        why = f"{_DIED}, and {again}" if is_new else again
        return f"Its trace ends {duration(when - last_ns)} before, without a stop: {why}.", False
    # It ran on only if its trace goes on: what began before the loss may have ended with it.
    around = [span for span in spans if span.start_ns <= when <= facts.last_ns[span.run]]
    if around and not coverage.is_whole(facts, around[0].run[0], around[0].start_ns, around[0].end_ns):
        return "Its trace lacks lines of that time, so what became of it is unknown.", False
    if around:
        return "It went on running at that time: the connection between the two was lost.", True
    ended = max((span.end_ns for span in spans if span.end_ns <= when), default=None)
    if ended is None:  # it had no state yet
        return "It had only just begun.", False
    heard = coverage.heard(facts).get(address, [])
    later = coverage.last_between(heard, ended + coverage.CUT_NS, when)
    if later is not None:
        heard_ago = f"others received something from it until {duration(when - later)} before"
        why = f"but {heard_ago}: its trace was cut, so what became of it is unknown."
        return f"Its trace ends {duration(when - ended)} before, {why}", False
    return (
        f"Its trace ends {duration(when - ended)} before, without a stop: {_DIED}, or its trace was cut.",
        False,
    )


def _stopped_before(facts: TraceFacts, run: Run, when: int) -> bool:
    """Return whether a run that stopped in order is the lost one.

    The stop may be noticed a little before the trace shows it, and until a lease after the next run began.
    """
    stops = stopping_ns(facts, run)
    if stops is None or when < stops - SECOND_NS:
        return False
    following = facts.first_ns.get((run[0], run[1] + 1))
    return following is None or when < following + NEAR_NS


@rule("heartbeat-late", "a heartbeat that came later than its period allows")
def heartbeat_late(facts: TraceFacts) -> Iterator[TraceFinding]:
    """Find heartbeats that were nearly missed.

    Seen: two heartbeats of one fellow further apart than the period that they announce, or a node of our
        engine that says so.
    Refuted by: the loss of the fellow in between: then it is lost, not late.
    """
    for (node, fellow), some in grouped(facts.late_heartbeats, lambda one: (one[0][0], one[1])):
        longest = max(gap for _, _, gap, _ in some)
        yield finding(
            "heartbeat-late",
            f"{node} heard nothing of {facts.names.node(fellow)} for up to {duration(longest)}",
            "The next heartbeat came after its period: the fellow or the network was overloaded for a while.",
            (place for _, _, _, place in some),
            fellow=facts.names.node(fellow),
            longest_ns=longest,
        )


@rule("state-backwards", "a service state that goes back")
def state_backwards(facts: TraceFacts) -> Iterator[TraceFinding]:
    """Find states that return to an earlier one within a run.

    Seen: a service state that comes before the one it follows in the order of a start.
    Refuted by: an orderly stop: OpenSplice bounces between states while it terminates. A new run starts over.
    """
    for run, spans in grouped(facts.states, lambda one: one.run):
        over = stopping_ns(facts, run)
        lived = [span for span in spans if over is None or span.start_ns < over]
        back = [later for earlier, later in itertools.pairwise(lived) if _is_before(later, earlier)]
        if back:
            path = " → ".join(span.state for span in spans)
            yield finding(
                "state-backwards",
                f"{run[0]} went back to {', '.join(sorted({span.state for span in back}))} in run {run[1]}",
                f"States in order: {path}. The service lost what it had and started over; "
                "or it was started again, and its trace lacks that.",
                (span.place for span in back),
                run=run[1],
                states=[span.state for span in spans],
            )


def _is_before(later: StateSpan, earlier: StateSpan) -> bool:
    return ORDER.get(later.state, -1) < ORDER.get(earlier.state, -1) and later.state in ORDER


_WAITING_BITS: Final = AlignmentStep.RECEIVED.bit | AlignmentStep.SENDING.bit | AlignmentStep.SENT.bit


@rule("thread-silent", "a thread that says nothing while work waits for it")
def thread_silent(facts: TraceFacts) -> Iterator[TraceFinding]:
    """Find silent threads for which work waits.

    Seen: a conflict that nobody works on, or a request that nobody answers, for more than ten seconds, and no
        line of the thread that has to since.
    Refuted by: any later line of that thread, and the orderly stop of the node.
    """
    waiting: list[tuple[Run, str, int, RecordPlace]] = []
    for one in facts.conflicts:
        if number(one.number) is None:
            continue  # of ospltool, whose conflicts have no numbers
        begun = one.resolving or one.ended is not None
        end = one.ended.at_ns if one.ended else over_ns(facts, one.run)
        if not begun or one.resolving == 0:
            waiting.append((one.run, "conflictResolver", end, one.created))
    for exchange in facts.book.all():
        if exchange.seen & _WAITING_BITS != AlignmentStep.RECEIVED.bit:
            continue
        line = exchange.line(AlignmentStep.RECEIVED)
        received = None if line is None else facts.lines.time(line)
        if line is None or received is None:
            continue
        where = facts.lines.place(line)
        run = max(
            (run for run in facts.first_ns if run[0] == where.node and facts.first_ns[run] <= received),
            default=None,
        )
        if run is not None:
            waiting.append((run, "sampleRequestHandler", over_ns(facts, run), where))
    for (run, thread), some in grouped(waiting, lambda one: (one[0], one[1])):
        activity = facts.activity.get((run, thread))
        silent = [
            place
            for _, _, end, place in some
            if end - place.at_ns > SILENT_NS
            and (activity is None or activity.last_ns <= place.at_ns)
            and coverage.is_whole(facts, run[0], place.at_ns, end)
        ]
        if silent:
            yield finding(
                "thread-silent",
                f"{run[0]}: {thread} says nothing while {plural(len(silent), 'piece')} of work wait for it",
                "It is blocked or has ended. Look at its last line, and for `Progress changed` and `Threads "
                "info` lines.",
                [*([activity.last] if activity else []), *silent],
                thread=thread,
                run=run[1],
            )


@rule("clock-jump", "a clock that was set, or timestamps of one line that do not agree")
def clock_jump(facts: TraceFacts) -> Iterator[TraceFinding]:
    """Find clocks that jump back, and files whose timestamps were edited or damaged.

    Seen: a record more than a second older than the one before it in its file, or two times of one header
        that do not agree.
    Refuted by: a new run of the service between the two records; threads that write a little late.
    """
    for (node, is_mismatch), jumps in grouped(facts.jumps, lambda one: (one.run[0], one.is_mismatch)):
        if is_mismatch:
            yield finding(
                "clock-jump",
                f"{node}: the two timestamps of {plural(len(jumps), 'line')} do not agree",
                "Local time and seconds since 1970 are printed from one clock: the file was edited or "
                "damaged.",
                (one.after for one in jumps),
            )
            continue
        most = min(one.by_ns for one in jumps)
        yield finding(
            "clock-jump",
            f"{node}: the clock went back by up to {duration(-most)}, {plural(len(jumps), 'time')}",
            "Samples written before and after are ordered wrongly where source timestamps decide, and "
            "durations in "
            "this trace are wrong across it. Slew clocks instead of setting them.",
            (one.after for one in jumps),
            most_ns=-most,
        )


@rule("reported", "warnings and errors that the service reports itself")
def reported(facts: TraceFacts) -> Iterator[TraceFinding]:
    """Find warnings and worse that the service reports itself, by kind of message.

    Seen: a record of level WARNING or above, in a trace or in a log of reports.
    Refuted by: nothing; but what is normal at a first start, or told by another rule, is left out.
    """
    known = catalogue()
    some = [
        (report, place)
        for report, place in facts.reported
        if report.event not in _NORMAL and missed_heartbeat(report.text) is None
    ]
    for (node, level, template, text), group in grouped(
        some,
        lambda one: (
            one[0].node,
            one[0].level,
            one[0].template,
            "" if one[0].template else normalised(one[0].text),
        ),
    ):
        report = group[0][0]
        found = known.get(template)
        meaning = None if template else meaning_of(report.text)
        texts = {" ".join(one.text.split()) for one, _ in group}
        whole = " ".join(report.text.split())
        shown = whole if meaning is None else " ".join(meaning.line.split())
        times = plural(len(group), "time") + (", at first" if len(texts) > 1 else "")
        why = "No explanation is known."
        if meaning is not None:
            why = f"{meaning.why} {meaning.remedy}"
        elif text:
            is_cut = len(whole) > _LONGEST_TITLE
            why = "Reported in the log of the service" + (f": {whole}" if is_cut else ".")
        yield finding(
            "reported",
            f"{node} {level} {times}: {shortened(shown, _LONGEST_TITLE)}",
            (found.meaning if found else "") or why,
            (place for _, place in group),
            level=level,
            template=template or None,
            event=(meaning.meaning.event or None) if meaning else None,
            follows=meaning is not None and meaning.meaning.follows,
            stood_still=stood_still_s(report.text) is not None,
        )
