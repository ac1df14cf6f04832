"""Lines and tables that several screens show: header, summary, attention, late joiners and events."""

from __future__ import annotations

import dataclasses
import heapq
import re
from collections.abc import Sequence
from typing import Final

from rich.cells import cell_len

from engine.runtime.monitor import DeliveryView, NameSpaceView, NodeEvent
from engine.tracing.levels import Level
from ospltool.diagnostics.model import Severity
from ospltool.health.codes import joined
from ospltool.health.incidents import Incident
from ospltool.health.mutes import MuteEnd
from ospltool.health.verdict import FAILED, NOBODY, STARTING, UNKNOWN
from ospltool.live.feed import ReplayPosition
from ospltool.live.nodes import Node
from ospltool.live.series import AlignmentProgress
from ospltool.output.text import plural
from tui import text
from tui.cells import Cell, Column, Line, LineRows, Rows, Span, Tone, fit_line, plain, single
from tui.view import ConsoleStatus, Elsewhere, Subject, View, severity_sign, verdict_sign

MOST_ELSEWHERE: Final = 3
"""Other systems in trouble that the header names."""

SHORT_NAMES: Final = {
    "overview": "home",
    "node": "node",
    "name-space": "space",
    "alignment": "align",
    "incidents": "trouble",
    "groups": "group",
    "trace": "trace",
    "store": "store",
    "findings": "check",
    "persistence": "pers",
}
"""Short names of screens for a narrow header."""

SECOND_NS: Final = 1_000_000_000


def header(view: View, status: ConsoleStatus, screen: str, heading: str, width: int) -> list[Line]:
    """Return the header: system, screen, and whether it is live, frozen or out of reach; below, the tabs.

    `heading` is the screen's name for people.
    """
    right = _mode(view, status)
    room = max(0, width - sum(len(span.text) for span in right))
    sign, tone = verdict_sign(view, view.health.verdict)
    word = "" if tone is Tone.DIM else f"  {sign} {view.health.verdict.word}"
    if status.ago_ns is not None:
        tone = Tone.DIM
    others = _elsewhere(view, status)
    gap = Span(f" {view.glyphs.separator} ", Tone.DIM)
    at = gap, Span(heading, Tone.STRONG), Span(word, tone)
    source = Span(f" {status.source}", Tone.DIM)
    choices: tuple[Line, ...] = (
        (Span(f" {status.title} ", Tone.STRONG), source, *at, *others),
        (source, *at, *others),
        *([(source, Span(word, tone), *others)] if others else []),
        *([(source, Span(word, tone), *_elsewhere(view, status, 0))] if others else []),
        (Span(f" {heading}", Tone.STRONG), Span(word, tone)),
    )
    fitting = (line for line in choices if sum(cell_len(span.text) for span in line) <= room)
    first = fit_line(next(fitting, choices[-1]), room, glyphs=view.glyphs)
    return [(*first, *right), fit_line(_tabs(status, screen, width), width, glyphs=view.glyphs)]


def _elsewhere(view: View, status: ConsoleStatus, most: int = MOST_ELSEWHERE) -> Line:
    """Return the other systems: those in trouble by name, worst first, the others as a number.

    If none may be named, the number has the sign of the worst.
    """
    gap = f" {view.glyphs.separator} "
    sick = [one for one in status.elsewhere if one.verdict.word != "OK" or one.is_present]
    sick.sort(key=lambda one: (one.verdict.worst is None, one.verdict.worst or 0))
    if sick and not most:
        sign, tone = verdict_sign(view, sick[0].verdict)
        return (Span(f"{gap}{sign} {len(sick)} more", tone),)
    shown = sick[:most]
    spans = [span for one in shown for span in (Span(gap, Tone.DIM), _of_another(view, one))]
    rest = len(status.elsewhere) - len(shown)
    if rest:
        word = "more" if len(sick) > len(shown) else "OK" if sick else "other OK"
        spans.append(Span(f"{gap}{rest} {word}", Tone.DIM))
    return tuple(spans)


def _of_another(view: View, one: Elsewhere) -> Span:
    sign, tone = verdict_sign(view, one.verdict)
    errors, warnings = one.verdict.errors, one.verdict.warnings
    if one.verdict.word == "OK":
        return Span(f"{one.title}: OK", Tone.DIM)
    if one.verdict.word == FAILED:
        return Span(f"{sign} {one.title}: this watch has failed", tone)
    if one.verdict.worst is None:
        return Span(f"{one.title}: {'starting' if one.verdict.word == STARTING else 'nobody heard'}", tone)
    return Span(
        f"{sign} {one.title}: {plural(errors, 'error') if errors else plural(warnings, 'warning')}", tone
    )


def tab_at(line: Line, x: int, screens: tuple[str, ...]) -> str:
    """Return the screen whose tab stands at cell `x` of the tabs; empty where there is none."""
    at = 0
    for span, screen in zip(line, screens, strict=False):
        at += cell_len(span.text)
        if x < at:
            return screen
    return ""


def _tabs(status: ConsoleStatus, screen: str, width: int) -> Line:
    """The screens with their keys and names, as long as those have room; the present one stands out."""
    for names in ({name: name for name in status.screens}, SHORT_NAMES, {}):
        tabs = tuple(
            Span(
                f" {number % 10} {names[name]}" if name in names else f" {number % 10}",
                Tone.STRONG if name == screen else Tone.DIM,
            )
            for number, name in enumerate(status.screens, 1)
        )
        if sum(cell_len(tab.text) for tab in tabs) <= width:
            break
    return tabs


def _mode(view: View, status: ConsoleStatus) -> tuple[Span, ...]:
    glyphs = view.glyphs
    moment = Span(f"  {text.clock(view.now_ns)} UTC ", Tone.DIM)
    if status.ago_ns is not None:
        return (Span(f"  PAST, {text.ago(status.ago_ns)}", Tone.WARN), moment)
    if status.paused:
        behind = f", {text.age(status.behind_ns)} behind" if status.behind_ns >= SECOND_NS else ""
        return (Span(f"  PAUSED{behind}", Tone.WARN), moment)
    if view.model.domain_lost_ns and view.health.all_stopped:
        return (Span("  all nodes stopped", Tone.DIM), moment)
    lost = next((one for one in view.health.every if one.is_open and one.code.cause == "domain"), None)
    if lost is not None and lost.nodes:
        told = f"  {glyphs.fault} DOMAIN LOST {text.ago(view.now_ns - lost.since_ns)}"
        return (Span(told, Tone.FAULT), moment)
    if view.model.ended_ns:
        what = {"recorded": "recording", "simulated": "simulation"}.get(status.mode, status.mode)
        return (Span(f"  end of {what}", Tone.STRONG), moment)
    if status.operates:
        return (Span("  OPERATE", Tone.WARN), Span(f" {status.mode}", Tone.DIM), moment)
    return (Span(f"  {status.mode}", Tone.DIM), moment)


def timebar_lines(view: View, status: ConsoleStatus, width: int) -> list[Line]:
    """Return the position in a recording; [] for a live system."""
    timeline = status.timeline
    if timeline is None:
        return []
    glyphs = view.glyphs
    elapsed_ns, whole_ns = timeline.now_ns - timeline.begin_ns, timeline.end_ns - timeline.begin_ns
    sign = "paused" if timeline.paused else _speed(timeline)
    left = f" {text.moment(timeline.now_ns)[:19]}  {sign:>7}  "
    right = f"  {text.age(elapsed_ns)} of {text.age(whole_ns)}  {plural(len(timeline.marks), 'mark')} "
    room = max(4, width - len(left) - len(right))
    full, empty = glyphs.bar(elapsed_ns / whole_ns if whole_ns > 0 else 1.0, room)
    bar = list(full + empty)
    for mark_ns in timeline.marks:
        if whole_ns > 0 and timeline.begin_ns <= mark_ns <= timeline.end_ns:
            bar[min(room - 1, (mark_ns - timeline.begin_ns) * room // whole_ns)] = glyphs.mark
    return [(Span(left, Tone.STRONG), Span("".join(bar)), Span(right, Tone.DIM))]


def _speed(timeline: ReplayPosition) -> str:
    """Return the speed; of a simulation that cannot keep up, the speed that it reaches."""
    if timeline.reached is None:
        return f"{timeline.speed:g}x"
    return f"{timeline.reached:.2g}x, cannot keep up with {timeline.speed:g}x"


URGENT_LEVELS: Final = {"SEVERE": Tone.FAULT, "WARNING": Tone.WARN}
_NANOSECONDS: Final = re.compile(r"\b(\d+\.\d\d)\d{7}\b")
ENTERING: Final = "lifecycle.entering-state"
LEAVING: Final = "lifecycle.leaving-state"
SMALL_LEVELS: Final = frozenset(level.name for level in Level if level < Level.INFO)
"""Events of these levels are on the trace screen only."""
SAME_NS: Final = 5_000_000_000
"""Time within which equal messages of several nodes make one line."""
LEAST_FOR_TIMELINE: Final = 28
LEAST_FOR_EXPLANATION: Final = 17
MAX_CAPTION_LINES: Final = 2
MOST_NAME: Final = 12
"""Cells after which the name of a node in a list of events is cut."""


def caption_lines(view: View, width: int) -> list[Line]:
    """Return the sentence for the reader, at most two lines; none when there is nothing to say."""
    glyphs = view.glyphs
    caption, verdict = view.model.caption, view.health.verdict
    if not caption and verdict.why and verdict.why != NOBODY:
        caption = f"{verdict.why}. {verdict.next}"
    elif not caption and view.model.is_empty and view.where:
        awaited = view.health.awaited
        caption = f"no node heard{view.where}" + (f"; expected: {joined(awaited)}" if awaited else "")
    lines = text.wrap(caption, max(10, width - 4), MAX_CAPTION_LINES, ellipsis=glyphs.ellipsis)
    return [(Span(f" {glyphs.caption} ", Tone.ACCENT), Span(line, Tone.STRONG)) for line in lines]


def current_incidents(view: View) -> list[Incident]:
    """Return the open incidents that are not muted, worst first."""
    return view.health.open


def summary(view: View, width: int) -> Line:
    """Return the whole system in one line: the verdict, then how much there is, without what does not fit."""
    verdict = view.health.verdict
    if view.model.is_empty and verdict.word == UNKNOWN:
        return (Span(" nobody heard yet", Tone.DIM),)
    sign, tone = verdict_sign(view, verdict)
    running = (
        one for node in view.model.nodes.values() for space in node.aligning for one in space.alignments
    )
    aligning = sum(one.direction == "from" for one in running)
    services = len(view.model.persistence)
    parts = [
        plural(len(view.model.name_space_names()), "name-space"),
        plural(sum(view.model.sets.largest().values()), "sample"),
        f"{aligning} aligning" if aligning else "",
        plural(services, "persistence service") if services else "",
    ]
    gap, start = f" {view.glyphs.separator} ", f" {sign} {verdict.word}"
    every = _with_ends_of_mutes(view, verdict.parts)
    short = [part.partition(" (")[0] for part in every]
    shorter = [re.sub(r"(?<= complete),.*|, [\d,]+ notice.*", "", part) for part in short]
    least = [re.split("[,:] ", part)[0] for part in shorter]
    forms = ["".join(f"{gap}{part}" for part in form) for form in (every, short, shorter, least)]
    said = next((form for form in forms if cell_len(start + form) <= width), "")
    for part in filter(None, parts if said else (*least, *parts)):
        if cell_len(f"{start}{said}{gap}{part}") <= width:
            said += f"{gap}{part}"
    return (Span(start, tone), Span(said, Tone.DIM))


def _with_ends_of_mutes(view: View, parts: Sequence[str]) -> list[str]:
    """Return the parts of a verdict, and last, where there is room, when the mutes of open incidents end."""
    ends = sorted({one.muted_until_ns for one in view.health.muted})
    if not ends:
        return list(parts)
    times = " to ".join(dict.fromkeys((text.clock(ends[0]), text.clock(ends[-1]))))
    return [*parts, f"mutes end {times}"]


def incident_line(view: View, incident: Incident) -> Line:
    """Return one incident: sign, since when, code, what was seen."""
    sign, tone = severity_sign(view.glyphs, incident.severity)
    since = text.age(incident.age_ns(view.now_ns))
    known = "known  " if incident.acknowledged_ns else ""
    return (
        Span(" "),
        Span(sign, tone),
        Span(f" {since:>6}  ", Tone.DIM),
        Span(f"{incident.code.id}  {known}", Tone.DIM),
        Span(incident.what, tone),
    )


def alignment_line(view: View, node: Node, space: NameSpaceView, progress: AlignmentProgress) -> Line:
    """Return one running alignment: who from whom, how far, how fast, how long still."""
    glyphs = view.glyphs
    full, empty = glyphs.bar(progress.fraction, 10)
    left = "" if progress.left_s is None else f"{text.age(max(SECOND_NS, int(progress.left_s * 1e9)))} left"
    alignment = progress.alignment
    source, alignee = view.model.name_of(alignment.fellow), node.snapshot.name
    if alignment.direction == "to":
        source, alignee = alignee, source
    who = f"{space.name}  {source} {glyphs.arrow} {alignee}  "
    figures = f" {text.percent(progress.fraction):>5}  {alignment.samples:,}/{alignment.expected:,}"
    speed = f"  {text.count(round(progress.rate_per_s))}/s  {left}" if progress.rate_per_s else ""
    return (
        Span(f" {glyphs.busy} "),
        Span(f"{text.age(view.now_ns - alignment.started_ns):>6}  ", Tone.DIM),
        Span(who),
        Span(full),
        Span(empty, Tone.DIM),
        Span(figures),
        Span(speed, Tone.DIM),
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Notable:
    """Something to look at, with the screen that shows more of it."""

    key: str
    line: Line
    subject: Subject
    screen: str
    incident: Incident | None = None


def notables(view: View, incidents: Sequence[Incident]) -> list[Notable]:
    """Return the lines about trouble, then those about running work."""
    found = [_of_incident(view, incident) for incident in incidents]
    for node in view.model.ordered_nodes():
        deliveries = node.snapshot.deliveries
        if not (node.aligning or deliveries) or view.is_stale(node):
            continue
        for space, progress in view.model.progress(node):
            if progress.alignment.direction == "from":
                line = alignment_line(view, node, space, progress)
                key = f"alignment {node.id} {space.name} {progress.alignment.fellow}"
                found.append(Notable(key, line, Subject(node.id, space.name), "alignment"))
        for one in deliveries:
            if one.state in ("waiting", "running"):
                key = f"delivery {node.id} {one.participant} {one.partition} {one.topic} {one.started_ns}"
                line = delivery_line(view, node, one)
                found.append(Notable(key, line, Subject(node.id), "alignment"))
    return found


def _of_incident(view: View, incident: Incident) -> Notable:
    name_space = next(iter(incident.name_spaces), "")
    subject = Subject(incident.node, name_space, incident=incident.key)
    return Notable(incident.key, incident_line(view, incident), subject, "incident", incident)


def severe(view: View) -> dict[str, tuple[str, ...]]:
    """Return code, subject and observation of severe incidents, by a key that changes when one gets worse."""
    return {
        f"{one.origin} {one.rises}": (one.code.id, one.who, one.what)
        for one in current_incidents(view)
        if one.severity is Severity.ERROR
    }


def attention(view: View, every: Sequence[Notable], height: int, width: int) -> LineRows[Notable]:
    """Return a table of what to look at, of `height` lines; its heading counts what does not fit."""
    left_out = len(every) - (height - 1)
    title = f"attention, {left_out} below" if left_out > 0 else "attention"
    return LineRows(plain(rule_line(view, title, width)), [(one.key, one.line, one) for one in every], width)


def delivery_line(view: View, node: Node, delivery: DeliveryView) -> Line:
    """Return a late joiner that is being served, or waits for a set to be complete."""
    elapsed = text.age(view.now_ns - delivery.started_ns)
    what = f"{delivery.partition}.{delivery.topic}"
    return (
        Span(f" {view.glyphs.busy if delivery.state == 'running' else view.glyphs.idle} "),
        Span(f"{elapsed:>6}  ", Tone.DIM),
        Span(f"late joiner of {what}, served by {node.snapshot.name}"),
        Span(f"  {plural(delivery.samples, 'sample')}  {delivery.state}  {delivery.problem}", Tone.DIM),
    )


def event_line(view: View, one: RepeatedEvent, room: int = MOST_NAME) -> Line:
    """Return one event: time of day, age, node, text. `room` is for the node and the number of others."""
    event = one.event
    tone = URGENT_LEVELS.get(event.level, Tone.PLAIN)
    sign = {Tone.FAULT: view.glyphs.fault, Tone.WARN: view.glyphs.warn}.get(tone, " ")
    return (
        Span(" " + text.clock(event.time_ns), Tone.DIM),
        Span(f" {text.age(view.now_ns - event.time_ns):>6}  ", Tone.DIM),
        Span(sign, tone),
        Span(" "),
        Span(text.fit(teller(view, one), room, ellipsis=view.glyphs.ellipsis) + " ", Tone.DIM),
        Span(event_message(event.event, event.state, event.text), tone),
    )


def event_message(event: str, state: str, message: str) -> str:
    """Return an event's message as people read it.

    A new state is said in words, because the trace has it only in the header; seconds have two decimals.
    """
    if event == ENTERING:
        return f"enters state {state}"
    return f"leaves state {state}" if event == LEAVING else _NANOSECONDS.sub(r"\1", message)


@dataclasses.dataclass(frozen=True, slots=True)
class RepeatedEvent:
    """An event, and the ids of the nodes that told the same within a few seconds."""

    event: NodeEvent
    tellers: frozenset[str]

    @property
    def others(self) -> int:
        """Number of nodes beside the first that told it."""
        return len(self.tellers) - 1


def newest_events(view: View, number: int) -> list[RepeatedEvent]:
    """The newest events of INFO and above that pass the filter, oldest first; equal neighbours are one.

    The ends of mutes are among them, as events of the watch.
    """
    found: list[RepeatedEvent] = []
    ends = [_end_of_mute(number, one) for number, one in enumerate(view.health.mutes.ended)]
    newest = (reversed(view.model.events), reversed(ends))
    for event in heapq.merge(*newest, key=lambda one: one.time_ns, reverse=True):
        if event.event == LEAVING or event.level in SMALL_LEVELS:
            continue  # of a change of states, the next event says which state begins
        values = {"node": event.node_name, "text": event.text, "event": event.event, "level": event.level}
        if not view.filter.matches(values, skip=("ns", "role", "host", "state")):
            continue
        if found and _is_same(found[-1].event, event):
            found[-1] = RepeatedEvent(event, found[-1].tellers | {event.node})
        elif len(found) >= number:
            break
        else:
            found.append(RepeatedEvent(event, frozenset((event.node,))))
    found.reverse()
    return found


def _end_of_mute(number: int, one: MuteEnd) -> NodeEvent:
    """Return the end of a mute as an event."""
    return NodeEvent("", "this watch", number, one.time_ns, "", "", Level.INFO.name, "mute.ended", one.text)


def folded(events: Sequence[NodeEvent]) -> list[RepeatedEvent]:
    """Return the events, oldest first; what several nodes told alike within a few seconds is one.

    A second time by one node is another event.
    """
    found: list[RepeatedEvent] = []
    places: dict[tuple[str, str, str], int] = {}
    for event in events:
        key = event.event, event.text, event.state
        known = found[places[key]] if key in places else None
        if known and event.node not in known.tellers and event.time_ns - known.event.time_ns <= SAME_NS:
            found[places[key]] = RepeatedEvent(known.event, known.tellers | {event.node})
        else:
            places[key] = len(found)
            found.append(RepeatedEvent(event, frozenset((event.node,))))
    return found


def _is_same(later: NodeEvent, event: NodeEvent) -> bool:
    said = later.event == event.event and later.text == event.text and later.state == event.state
    return said and later.time_ns - event.time_ns <= SAME_NS


def event_lines(view: View, number: int, width: int) -> list[Line]:
    """Return the newest events, at most `number`, oldest first; a sentence when there is none."""
    events = newest_events(view, max(0, number))
    if not events and number > 0:
        return [(Span(f" {no_events(view)}", Tone.DIM),)]
    return lines_of_events(view, events, width)


def lines_of_events(view: View, events: Sequence[RepeatedEvent], width: int) -> list[Line]:
    """Return a line for each event; neighbours that would be cut alike lose what they share."""
    room = max((cell_len(teller(view, one)) for one in events), default=0)
    lines = [event_line(view, one, room) for one in events]
    rooms = [width - cell_len(plain(line[:-1])) for line in lines]
    texts = text.apart([line[-1].text for line in lines], rooms, ellipsis=view.glyphs.ellipsis)
    return [(*line[:-1], Span(told, line[-1].tone)) for line, told in zip(lines, texts, strict=True)]


def teller(view: View, one: RepeatedEvent) -> str:
    """Return the name of the node, cut to `MOST_NAME` cells, and how many others said the same."""
    name = one.event.node_name
    if cell_len(name) > MOST_NAME:
        name = text.fit(name, MOST_NAME, ellipsis=view.glyphs.ellipsis)
    return f"{name} +{one.others}" if one.others else name


def no_events(view: View) -> str:
    """Return the lines shown without events."""
    if view.model.events and view.filter:
        return f"no event matches the filter; {len(view.model.events):,} hidden"
    return "no events yet" + ("; 7 shows all that is traced" if view.model.events else "")


def nothing_lines(view: View, what: str) -> list[Line]:
    """Return the line that stands in place of an empty table of `what`, in the plural, and says why."""
    if not view.is_anybody_heard:
        return [(Span(f" no node is heard, so there are no {what} to show", Tone.DIM),)]
    if view.filter:
        return [(Span(f" no {what} match the filter {view.filter.text!r}", Tone.DIM),)]
    return [(Span(f" no {what} yet", Tone.DIM),)]


def events_title(view: View) -> str:
    """Return the name of the list of events, and what is not in it."""
    left_out = view.model.events_left_out
    return f"events, {left_out:,} older ones not kept" if left_out else "events"


def titled(
    title: str, lines: list[Line], height: int, view: View, width: int, *, note: bool = True
) -> list[Line]:
    """Return a rule with a title, and below it what fits in `height` lines; a note counts what does not."""
    if height < 1:
        return []
    left_out = len(lines) - (height - 1)
    if note and left_out > 0:
        title = f"{title}, {left_out} more than fit"
    return [rule_line(view, title, width), *lines[: height - 1]]


def rule_line(view: View, title: str, width: int) -> Line:
    """Return a rule across the screen, with a title."""
    rule = view.glyphs.rule
    start = f"{rule} {title} " if title else ""
    return (Span(start + rule * max(0, width - len(start)), Tone.DIM),)


def more_line(number: int) -> Line:
    """Return the last line of a part that does not fit."""
    return (Span(f"   and {plural(number, 'more line')}", Tone.DIM),)


@dataclasses.dataclass(frozen=True, slots=True)
class Shares:
    """Lines of each part of the overview, titles included; 0 hides it."""

    attention: int
    about: int
    matrix: int
    detail: int
    timeline: int
    events: int


def share_height(room: int, nodes: int, attention: int, *, events_only: bool, explained: int = 0) -> Shares:
    """Share `room` lines: attention gets what it needs up to a third, events four at least, nodes the rest.

    Where there is room, the last hour gets three, and the explanation of an incident what it needs.

    Args:
        room: the lines of the screen that are left.
        nodes: number of nodes.
        attention: number of incidents and of running work.
        events_only: give the events everything.
        explained: number of lines that explain an incident, 0 without one.
    """
    if events_only:
        return Shares(0, 0, 0, 0, 0, max(2, room))
    about = explained if room >= LEAST_FOR_EXPLANATION else 0
    room -= about
    detail = 2
    timeline = 3 if room >= LEAST_FOR_TIMELINE else 0
    wanted = attention + 1 if attention else 0
    watched = min(wanted, max(2, room // 3)) if wanted else 0
    matrix = max(2, min(nodes + 1, max(3, room - detail - watched - timeline - 4)))
    events = max(0, room - matrix - detail - watched - timeline)
    return Shares(watched, about, matrix, detail, timeline, events)


Delivery = tuple[Node, DeliveryView]


def deliveries(view: View, nodes: list[Node], width: int) -> Rows[Delivery]:
    """Return the late joiners that these nodes serve or served, the newest first."""
    columns = (
        Column("mark", "", 1),
        Column("since", "since", 6, right=True),
        Column("node", "by", 8, grow=1, most=16),
        Column("topic", "late joiner of", 16, grow=3, most=40),
        Column("participant", "participant", 11, grow=3, most=36),
        Column("state", "state", 8),
        Column("samples", "samples", 8, right=True),
        Column("took", "took", 8, right=True),
        Column("problem", "", 4, grow=4),
    )

    def render(delivery: Delivery, key: str) -> Cell:
        node, view_ = delivery
        if key == "mark":
            return (_delivery_mark(view, view_.state),)
        if key == "problem":
            return single(view_.problem, Tone.FAULT if view_.state == "failed" else Tone.WARN)
        plain = {
            "since": text.age(view.now_ns - view_.started_ns),
            "node": node.snapshot.name,
            "topic": f"{view_.partition}.{view_.topic}",
            "participant": view_.participant,
            "state": view_.state,
            "samples": text.count(view_.samples),
            "took": took(view_.started_ns, view_.finished_ns),
        }
        return single(plain[key], Tone.PLAIN if key in ("topic", "samples") else Tone.DIM)

    rows = [
        (f"{node.id}/{d.participant}/{d.partition}/{d.topic}/{d.started_ns}", (node, d))
        for node in nodes
        for d in node.snapshot.deliveries
        if view.filter.matches({"node": node.snapshot.name, "topic": d.topic, "state": d.state})
    ]
    rows.sort(key=lambda row: (-row[1][1].started_ns, row[0]))
    return Rows(columns, rows, render, width=width, fixed=4)


def _delivery_mark(view: View, state: str) -> Span:
    glyphs = view.glyphs
    return {
        "waiting": Span(glyphs.idle),
        "running": Span(glyphs.busy),
        "done": Span(glyphs.ok, Tone.DIM),
        "failed": Span(glyphs.fault, Tone.FAULT),
    }.get(state, Span(glyphs.warn, Tone.WARN))


def took(started_ns: int, finished_ns: int) -> str:
    """Return a duration to a hundredth of a second; empty while it runs."""
    if finished_ns <= started_ns:
        return ""
    seconds = (finished_ns - started_ns) / 1e9
    return f"{seconds:.2f} s" if seconds < 100 else text.age(finished_ns - started_ns)
