"""Events of nodes as lines, those that several nodes told alike as one."""

from __future__ import annotations

import dataclasses
import heapq
import re
from collections.abc import Iterable, Sequence
from typing import Final

from rich.cells import cell_len

from engine.runtime.monitor import NodeEvent
from engine.tracing.levels import Level
from ospltool.health.mutes import MuteEnd
from ospltool.views import text
from ospltool.views.cells import Cell, Column, Facts, Line, Rows, Span, Tone, plain, single
from ospltool.views.view import View

URGENT_LEVELS: Final = {"SEVERE": Tone.FAULT, "WARNING": Tone.WARN}
_NANOSECONDS: Final = re.compile(r"\b(\d+\.\d\d)\d{7}\b")
ENTERING: Final = "lifecycle.entering-state"
LEAVING: Final = "lifecycle.leaving-state"
SMALL_LEVELS: Final = frozenset(level.name for level in Level if level < Level.INFO)
"""Events of these levels are on the trace screen only."""
SAME_NS: Final = 5_000_000_000
"""Time within which equal messages of several nodes make one line."""
MOST_NAME: Final = 12
"""Cells after which the name of a node in a list of events is cut."""


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
    ends = [_end_of_mute(number, one) for number, one in enumerate(view.health.mutes.ended)]
    both = (reversed(view.model.events), reversed(ends))
    return newest_of(view, heapq.merge(*both, key=lambda one: one.time_ns, reverse=True), number)


def newest_of(view: View, events: Iterable[NodeEvent], number: int) -> list[RepeatedEvent]:
    """Return those of these events, the newest first, that `newest_events` would return, at most `number`."""
    found: list[RepeatedEvent] = []
    for event in events:
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


def events_table(
    view: View, shown: Sequence[RepeatedEvent], width: int, hidden: int = 0
) -> Rows[RepeatedEvent]:
    """Return events as a table; `hidden` counts those that a filter leaves out."""
    names = max((cell_len(teller(view, each)) for each in shown), default=0)
    columns = (
        Column("time", "time", 12),
        Column("node", "node", max(4, names)),
        Column("text", "event", 20, grow=8, cut=view.glyphs.ellipsis, texts=True),
    )

    def facts(each: RepeatedEvent) -> Facts:
        event = each.event
        return {
            "time_ns": event.time_ns,
            "node": event.node_name,
            "tellers": [view.model.name_of(node) for node in sorted(each.tellers)],
            "level": event.level,
            "event": event.event,
            "text": event_message(event.event, event.state, event.text),
        }

    def render(each: RepeatedEvent, key: str) -> Cell:
        event = each.event
        tone = URGENT_LEVELS.get(event.level, Tone.PLAIN)
        return {
            "time": single(text.moment(event.time_ns)[11:], Tone.DIM),
            "node": single(teller(view, each), Tone.DIM),
            "text": single(event_message(event.event, event.state, event.text), tone),
        }[key]

    items = [(f"{each.event.node} {each.event.time_ns} {each.event.number}", each) for each in shown]
    return Rows(columns, items, render, width=width, hidden=hidden, facts=facts)


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


def events_title(view: View) -> str:
    """Return the name of the list of events, and what is not in it."""
    left_out = view.model.events_left_out
    return f"events, {left_out:,} older ones not kept" if left_out else "events"
