"""Lines of text around the matrix: header, caption, summary, attention and events."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Final

from rich.cells import cell_len

from engine.runtime.monitor import DeliveryView, NameSpaceView, NodeEvent
from ospltool.live.complaints import Concern, Severity
from ospltool.live.concerns import concerns
from ospltool.live.model import Node
from ospltool.live.progress import Progress
from tui import text
from tui.cells import Line, Span, Tone, fit_line
from tui.viewmodel.base import Status, View, plural, severity_sign

URGENT_LEVELS: Final = {"SEVERE": Tone.FAULT, "WARNING": Tone.WARN}
ENTERING: Final = "lifecycle.entering-state"
LEAVING: Final = "lifecycle.leaving-state"
MAX_CAPTION_LINES: Final = 2
MOST_NAME: Final = 12
"""A name of a node in a list of events is cut after so many cells."""

SHORT_NAMES: Final = {
    "overview": "home",
    "node": "node",
    "name-space": "space",
    "alignment": "align",
    "conflicts": "conflict",
    "groups": "group",
    "trace": "trace",
    "store": "store",
    "findings": "check",
    "persistence": "persist",
}
"""What the screens are called in a header without room for their whole names."""

SECOND_NS: Final = 1_000_000_000


def header(view: View, status: Status, screen: str, heading: str, width: int) -> Line:
    """What is watched and where we are on the left, how on the right: live, frozen, or out of reach."""
    right = _mode(view, status)
    room = max(0, width - sum(len(span.text) for span in right))
    source = Span(f" {status.source} ", Tone.DIM)
    titled = (Span(f" {status.title} ", Tone.STRONG), source)
    number = (1 + status.screens.index(screen)) % 10 if screen in status.screens else ""
    choices = (
        (*titled, *_tabs(status, screen, heading, {name: name for name in status.screens})),
        (source, *_tabs(status, screen, heading, SHORT_NAMES)),
        (*titled, *_tabs(status, screen, heading, {})),
        (source, *_tabs(status, screen, heading, {})),
        (source, Span(f" {number} {heading}", Tone.STRONG)),
    )
    fitting = (line for line in choices if sum(cell_len(span.text) for span in line) <= room)
    return (*fit_line(next(fitting, choices[-1]), room, glyphs=view.glyphs), *right)


def tab_at(line: Line, x: int, screens: tuple[str, ...]) -> str:
    """The screen whose tab stands at cell `x` of a header; empty where there is none."""
    at, number = 0, 0
    for span in line:
        at += cell_len(span.text)
        key = f" {(number + 1) % 10}"
        if number < len(screens) and (span.text == key or span.text.startswith(f"{key} ")):
            number += 1
            if x < at:
                return screens[number - 1]
        elif x < at:
            break
    return ""


def _tabs(status: Status, screen: str, heading: str, names: Mapping[str, str]) -> Line:
    """The screens with their keys; names where there are some, the present one always."""
    return tuple(
        Span(f" {number % 10} {heading}", Tone.STRONG)
        if name == screen
        else Span(f" {number % 10} {names[name]}" if name in names else f" {number % 10}", Tone.DIM)
        for number, name in enumerate(status.screens, 1)
    )


def _mode(view: View, status: Status) -> tuple[Span, ...]:
    glyphs = view.glyphs
    moment = Span(f"  {text.clock(view.now_ns)} UTC ", Tone.DIM)
    if status.paused:
        behind = f", {text.age(status.behind_ns)} behind" if status.behind_ns >= SECOND_NS else ""
        return (Span(f"  PAUSED{behind}", Tone.WARN), moment)
    if view.model.domain_lost_ns:
        lost = text.ago(view.now_ns - view.model.domain_lost_ns)
        return (Span(f"  {glyphs.fault} DOMAIN LOST {lost}", Tone.FAULT), moment)
    if view.model.ended_ns:
        what = {"recorded": "recording", "simulated": "simulation"}.get(status.mode, status.mode)
        return (Span(f"  end of {what}", Tone.STRONG), moment)
    if status.operates:
        return (Span("  OPERATE", Tone.WARN), Span(f" {status.mode}", Tone.DIM), moment)
    return (Span(f"  {status.mode}", Tone.DIM), moment)


def caption_lines(view: View, width: int) -> list[Line]:
    """The sentence for the reader, at most two lines; none when there is nothing to say."""
    glyphs = view.glyphs
    lines = text.wrap(view.model.caption, max(10, width - 4), MAX_CAPTION_LINES, ellipsis=glyphs.ellipsis)
    return [(Span(f" {glyphs.caption} ", Tone.ACCENT), Span(line, Tone.STRONG)) for line in lines]


def current_concerns(view: View) -> list[Concern]:
    """What needs attention now."""
    return concerns(view.model, view.now_ns)


def summary(view: View, concerns: list[Concern]) -> Line:
    """The whole system in one line."""
    nodes = list(view.model.nodes.values())
    spaces = view.model.name_space_names()
    samples = _largest_counts(nodes)
    aligning = sum(
        1 for node in nodes for _, p in view.model.progress(node) if p.alignment.direction == "from"
    )
    here = sum(1 for node in nodes if not node.gone_ns)
    counted = plural(here, "node") if here == len(nodes) else f"{here:,} of {plural(len(nodes), 'node')}"
    parts = [counted, plural(len(spaces), "name-space"), f"{samples:,} samples"]
    if aligning:
        parts.append(f"{aligning} aligning")
    if view.model.persistence:
        parts.append(plural(len(view.model.persistence), "persistence service"))
    gap = f" {view.glyphs.separator} "
    line = [Span(" " + gap.join(parts), Tone.DIM), Span(gap, Tone.DIM)]
    for severity in Severity:
        sign, tone = severity_sign(view.glyphs, severity)
        number = sum(1 for concern in concerns if concern.severity is severity)
        if number:
            line += [Span(f"{sign} {number}", tone), Span("  ")]
    if not concerns:
        line.append(_calm(nodes, is_empty=view.model.is_empty))
    return tuple(line)


def _calm(nodes: list[Node], *, is_empty: bool) -> Span:
    """What is said where nothing is wrong: quiet is only what is complete."""
    if is_empty:
        return Span("nobody heard yet", Tone.DIM)
    going_on = [
        node
        for node in nodes
        if not node.gone_ns
        and not (node.snapshot.state == "COMPLETE" and all(s.complete for s in node.snapshot.name_spaces))
    ]
    if going_on:
        return Span(f"{plural(len(going_on), 'node')} not complete yet", Tone.STRONG)
    return Span("all quiet", Tone.DIM)


def _largest_counts(nodes: list[Node]) -> int:
    """The samples of all name-spaces, each as the node that has most of it counts."""
    largest: dict[str, int] = {}
    for node in nodes:
        for view in node.snapshot.name_spaces:
            if view.count > largest.get(view.name, 0):
                largest[view.name] = view.count
    return sum(largest.values())


def concern_line(view: View, concern: Concern) -> Line:
    """One thing to look at: sign, since when, what."""
    sign, tone = severity_sign(view.glyphs, concern.severity)
    since = text.age(view.now_ns - concern.since_ns) if concern.since_ns else ""
    return (Span(" "), Span(sign, tone), Span(f" {since:>6}  ", Tone.DIM), Span(concern.text, tone))


def alignment_line(view: View, node: Node, space: NameSpaceView, progress: Progress) -> Line:
    """One running alignment: who from whom, how far, how fast, how long still."""
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


def attention_lines(view: View, concerns: list[Concern]) -> list[Line]:
    """What is not as it should be, then what is under way; a single quiet line when there is neither."""
    lines = [concern_line(view, concern) for concern in concerns]
    for node in view.model.ordered_nodes():
        if not node.is_stale(view.now_ns):
            lines.extend(
                alignment_line(view, node, space, progress)
                for space, progress in view.model.progress(node)
                if progress.alignment.direction == "from"
            )
            lines.extend(
                delivery_line(view, node, delivery)
                for delivery in node.snapshot.deliveries
                if delivery.state in ("waiting", "running")
            )
    return lines


def delivery_line(view: View, node: Node, delivery: DeliveryView) -> Line:
    """A late joiner that is being served, or waits for a set to be complete."""
    elapsed = text.age(view.now_ns - delivery.started_ns)
    what = f"{delivery.partition}.{delivery.topic}"
    return (
        Span(f" {view.glyphs.busy if delivery.state == 'running' else view.glyphs.idle} "),
        Span(f"{elapsed:>6}  ", Tone.DIM),
        Span(f"late joiner of {what}, served by {node.snapshot.name}"),
        Span(f"  {delivery.samples:,} samples  {delivery.state}  {delivery.problem}", Tone.DIM),
    )


def event_line(view: View, event: NodeEvent, room: int = MOST_NAME) -> Line:
    """One event: time of day, age, node in so much room, and what happened."""
    tone = URGENT_LEVELS.get(event.level, Tone.PLAIN)
    sign = {Tone.FAULT: view.glyphs.fault, Tone.WARN: view.glyphs.warn}.get(tone, " ")
    return (
        Span(" " + text.clock(event.time_ns), Tone.DIM),
        Span(f" {text.age(view.now_ns - event.time_ns):>6}  ", Tone.DIM),
        Span(sign, tone),
        Span(" "),
        Span(text.fit(event.node_name, room, ellipsis=view.glyphs.ellipsis) + " ", Tone.DIM),
        Span(told(event.event, event.state, event.text), tone),
    )


def told(event: str, state: str, message: str) -> str:
    """An event's message; a new state is said in words, because the trace has it only in the header."""
    if event == ENTERING:
        return f"enters state {state}"
    return f"leaves state {state}" if event == LEAVING else message


def newest_events(view: View, number: int) -> list[NodeEvent]:
    """The newest events that pass the filter, oldest first."""
    found: list[NodeEvent] = []
    for event in reversed(view.model.events):
        if event.event == LEAVING:
            continue  # the next event says which state begins
        values = {"node": event.node_name, "text": event.text, "event": event.event, "level": event.level}
        if view.filter.matches(values, skip=("ns", "role", "host", "state")):
            found.append(event)
            if len(found) >= number:
                break
    found.reverse()
    return found


def event_lines(view: View, number: int) -> list[Line]:
    """The newest events, oldest first; a sentence when there is none."""
    events = newest_events(view, max(0, number))
    if not events and number > 0:
        return [(Span(f" {no_events(view)}", Tone.DIM),)]
    room = min(MOST_NAME, max((cell_len(event.node_name) for event in events), default=0))
    return [event_line(view, event, room) for event in events]


def no_events(view: View) -> str:
    """What stands in for events where there are none."""
    if view.model.events:
        return f"no event matches the filter; {len(view.model.events):,} hidden"
    return "no event since we watch; nodes tell what happens, not what has happened"


def events_title(view: View) -> str:
    """The name of the list of events, and what is not in it."""
    left_out = view.model.events_left_out
    return f"events, {left_out:,} older ones not kept" if left_out else "events"


def titled(
    title: str, lines: list[Line], height: int, view: View, width: int, *, note: bool = True
) -> list[Line]:
    """A rule with a title, and below it what fits in `height` lines; what does not is counted."""
    if height < 1:
        return []
    left_out = len(lines) - (height - 1)
    if note and left_out > 0:
        title = f"{title}, {left_out} more than fit"
    return [rule_line(view, title, width), *lines[: height - 1]]


def rule_line(view: View, title: str, width: int) -> Line:
    """A rule across the screen, with a title."""
    rule = view.glyphs.rule
    start = f"{rule} {title} " if title else ""
    return (Span(start + rule * max(0, width - len(start)), Tone.DIM),)


def more_line(number: int) -> Line:
    """The last line of a part that does not fit."""
    return (Span(f"   and {plural(number, 'more line')}", Tone.DIM),)


def timebar_lines(view: View, status: Status, width: int) -> list[Line]:
    """Where a recording stands; none for what is live."""
    timeline = status.timeline
    if timeline is None:
        return []
    glyphs = view.glyphs
    elapsed_ns, whole_ns = timeline.now_ns - timeline.begin_ns, timeline.end_ns - timeline.begin_ns
    sign = "paused" if timeline.paused else f"{timeline.speed:g}x"
    left = f" {text.moment(timeline.now_ns)[:19]}  {sign:>7}  "
    right = f"  {text.age(elapsed_ns)} of {text.age(whole_ns)}  {plural(len(timeline.marks), 'mark')} "
    room = max(4, width - len(left) - len(right))
    full, empty = glyphs.bar(elapsed_ns / whole_ns if whole_ns > 0 else 1.0, room)
    bar = list(full + empty)
    for mark_ns in timeline.marks:
        if whole_ns > 0 and timeline.begin_ns <= mark_ns <= timeline.end_ns:
            bar[min(room - 1, (mark_ns - timeline.begin_ns) * room // whole_ns)] = glyphs.mark
    return [(Span(left, Tone.STRONG), Span("".join(bar)), Span(right, Tone.DIM))]


@dataclasses.dataclass(frozen=True, slots=True)
class Shares:
    """How many lines each part of the overview gets, titles included; 0 hides it."""

    matrix: int
    detail: int
    attention: int
    events: int


def share_height(room: int, nodes: int, attention: int, *, events_only: bool) -> Shares:
    """Share `room` lines: events keep four, attention what it needs up to a third, the matrix the rest."""
    if events_only:
        return Shares(0, 0, 0, max(2, room))
    detail = 2
    wanted = attention + 1 if attention else 0
    watched = min(wanted, max(2, room // 3)) if wanted else 0
    matrix = min(nodes + 1, max(3, room - detail - watched - 4))
    return Shares(max(matrix, 2), detail, watched, max(0, room - max(matrix, 2) - detail - watched))
