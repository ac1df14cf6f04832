"""Events of nodes as lines, those that several nodes told alike as one."""

from __future__ import annotations

import dataclasses
import functools
import heapq
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from rich.cells import cell_len

from engine.runtime.monitor import NodeEvent
from engine.tracing.catalogue import catalogue
from engine.tracing.levels import Level
from ospltool.health.codes import joined
from ospltool.health.mutes import MuteEnd
from ospltool.output.text import plural
from ospltool.views import text
from ospltool.views.cells import Cell, Column, Facts, Line, LineRows, Rows, Span, Tone, plain, single
from ospltool.views.view import View

URGENT_LEVELS: Final = {"SEVERE": Tone.FAULT, "WARNING": Tone.WARN}
_NANOSECONDS: Final = re.compile(r"\b(\d+\.\d\d)\d{7}\b")
ENTERING: Final = "lifecycle.entering-state"
LEAVING: Final = "lifecycle.leaving-state"
ELECTED: Final = "election.confirmed-self"
LEFT_OUT: Final = frozenset(
    {LEAVING, "lifecycle.operational", "lifecycle.address", "lifecycle.capture", "lifecycle.other-library"}
)
"""Events that say only what the next one says, too, or what is the same at each start: the trace has them."""
LEAST_LOOKED_AT: Final = 300
"""Events that are looked at for a few lines: those that 200 nodes told alike become one."""
SMALL_LEVELS: Final = frozenset(level.name for level in Level if level < Level.INFO)
"""Events of these levels are on the trace screen only."""
SAME_NS: Final = 5_000_000_000
"""Time within which equal messages of several nodes make one line."""
MOST_NAME: Final = 12
"""Cells after which the name of a node in a list of events is cut."""


STATES: Final = {
    "COMPLETE": "became complete",
    "INJECT_PERSISTENT": "began to read its store",
    "DISCOVER_FELLOWS_GROUPS": "began to discover fellows",
    "DISCOVER_LOCAL_GROUPS": "began to discover groups",
    "DISCOVER_PERSISTENT_SOURCE": "began to look for the best store",
    "FETCH_INITIAL": "began to fetch data",
    "TERMINATING": "began to end",
    "TERMINATED": "ended",
}
"""What a node did when it entered a state."""
SENTENCES: Final = {
    "lifecycle.run-before": "had not ended in order before: {cause}",
    "lifecycle.stop-requested": "received {signal}, and began to end",
    "lifecycle.daemon-lost": "lost its supervisor, and began to end",
    "lifecycle.interface": "took network interface {interface}, {reach}",
    "lifecycle.outdated": "began a new run, as {fellow} knew run {known}, and its store run {incarnation}",
    "watch.progress-back": "had progress of {activity} again",
    "watch.stalled": "stood still for {elapsed_ns}",
    "fellow.discovered": "discovered {fellow}",
    "fellow.confirmed": "accepted {fellow} as fellow",
    "fellow.disconnected": "lost {fellow}: {reason}",
    "fellow.reconnected": "had {fellow} back after {gap_ns}; a merge follows",
    "fellow.resumed": "heard {fellow} again after {gap_ns}; nothing was missed",
    "fellow.late": "heard {fellow} only after {elapsed_ns}; after {expiry_ns} it is lost",
    "fellow.asymmetric": "was not heard by {fellow}, which may have missed data",
    "fellow.reestablished": "met {fellow} again",
    "fellow.in-range": "saw possible counters of {fellow} again, or that it is gone",
    "fellow.clock-skew": "measured {skew_ns} between its clock and that of {fellow}",
    "namespace.learned": "learned {namespace} from {fellow}",
    "namespace.remembered": "maintained {namespace} again, as learned in a former run",
    "compatibility.resolved": "accepted {fellow}, whose name-spaces fit now",
    "store.opened": "opened the store in {directory}",
    "store.degraded": "could keep {namespace} in memory only: {cause}",
    "store.recovered": "stored {namespace} on disk again: {samples} after {elapsed_ns}",
    "store.restored": "restored a back-up of {namespace}: {samples}",
    "store.parts-completed": "had {namespace} whole: its parts joined the set of {fellow}",
    "store.replaced": "found {namespace} replaced by an operator while it was down: {samples}",
    "identity.unique": "had an id of its own again",
    "election.confirmed-self": "became master of {namespace}",
    "election.confirmed-fellow": "chose {fellow} as master of {namespace}",
    "election.no-master": "found no master of {namespace}: {reason}",
    "election.hand-over": "gave {namespace} to {fellow}: masterPriority {priority} before {own_priority}",
    "conflict.combine": "asked aligners for data of {namespace}",
    "group.outside": "kept nothing of {group}, which has a durable writer: {reason}",
    "group.memory-only": "kept {group} in memory only, though it is PERSISTENT: {reason}",
    "group.raised": "began to keep {group} as {durability}, as a writer asks; it was {before}",
    "group.deepened": "began to keep {group} with {differences}, as a topic or writer asks",
    "group.not-kept": "did not keep topic {topic} in {partitions}: {cause}",
    "group.kept-after-all": "began to keep topic {topic} in {partitions}",
    "align.refused": "was refused data of {group} by {fellow}: {reason}",
    "align.timed-out": "had no answer from {fellow} for {group} in {waited_ns}, and asked again",
    "capture.lost": "lost {count} of {group}, which came too late",
    "capture.limited": "rejected {count} of {group}: {causes}",
    "capture.moving": "began to request {requested} for {group}, which was not known before",
    "capture.moved": "requested {requested} for topic {topic} in place of {before}, after {elapsed_ns}",
    "capture.back-pressure": "held writers back: {samples} waiting to be taken in",
    "capture.relieved": "had room for samples again after {elapsed_ns}",
    "merge.started": "began to merge {namespace} with {fellow} ({policy})",
    "merge.finished": "caught up in {namespace}: {samples} in {elapsed_ns} ({policy})",
    "merge.equal-shown": "gave readers every instance of {namespace} again: equalityCheck is false",
    "delete.left-out": "left out a deletion of {origin}, which it is meeting again",
    "pending.silent": "missed writer {writer} of {topic}: disposed instances wait for it up to {wait_ns}",
    "pending.given-up": "gave up writer {writer} of {topic}, silent for too long",
    "message.malformed": "ignored a malformed message: {cause}",
    "proof.refused": "refused messages of {name}: {cause}",
}
"""What a node did, by event, with the fields of its text; of other events the text is shown."""
LEAST_WITHIN_S: Final = 0.1
"""Several nodes did at the same time what lies closer together."""
FELLOW: Final = "fellow"
_ID: Final = re.compile(r"\b[0-9a-f]{32}\b")
MOST_SUBJECTS: Final = 2
"""Nodes that are named as the subject of a sentence; more are counted."""
MOST_SUBJECT: Final = 24
"""Characters after which such a name is cut."""


def sentence(view: View, one: RepeatedEvent) -> str:
    """Return an event as a sentence about the nodes that told it."""
    event = one.event
    said = predicate(view, event, one.fellows)
    who = subject(view, one)
    within_s = (one.until_ns - event.time_ns) / 1e9 if one.others else 0.0
    within = f" within {within_s:.1f} s" if within_s >= LEAST_WITHIN_S else ""
    if not said:
        return f"{who}: {named_text(view, event_message(event.event, event.state, event.text))}"
    return f"{who} {said}{within}"


def named_text(view: View, message: str) -> str:
    """Return a text with the names of nodes in place of their ids."""
    return _ID.sub(lambda found: view.model.name_of(found[0]), message)


def subject(view: View, one: RepeatedEvent) -> str:
    """Return the nodes that told an event: by name, or how many there are."""
    if len(one.tellers) > MOST_SUBJECTS:
        return f"{len(one.tellers)} nodes"
    others = (view.model.name_of(node) for node in one.tellers - {one.event.node})
    names = (one.event.node_name, *others)
    return " and ".join(text.fit(name, min(len(name), MOST_SUBJECT)) for name in names)


def predicate(view: View, event: NodeEvent, fellows: Sequence[str] = ()) -> str:
    """Return what the node did; empty for an event without a sentence.

    Args:
        view: knows the names of nodes, and why one is master.
        event: what the node told.
        fellows: the fellows of several events that differ in nothing else; none for that of the event.
    """
    if event.event == ENTERING:
        return STATES.get(event.state, f"entered state {event.state}")
    fields = fields_of(event.event, event.text)
    if fields is None:
        return ""
    named = {name: _seconds(value) if name.endswith("_ns") else value for name, value in fields.items()}
    for name in named.keys() & {"samples", "count"}:
        number = named[name].replace(",", "")
        named[name] = plural(int(number), "sample") if number.isdecimal() else f"{number} samples"
    if FELLOW in named:
        every = fellows or (named[FELLOW],)
        named[FELLOW] = joined([named_text(view, one) for one in every])
    said = SENTENCES[event.event].format_map(named)
    return f"{said}{_why(view, event, fields['namespace'])}" if event.event == ELECTED else said


def _why(view: View, event: NodeEvent, name_space: str) -> str:
    """Return why a node became master then, as it tells."""
    for (name, _), terms in view.model.masterships.items():
        for one in terms:
            if (name, one.master) == (name_space, event.node) and abs(one.since_ns - event.time_ns) < SAME_NS:
                return f": {one.why}"
    return ""


def _seconds(value: str) -> str:
    """Return a duration that an event tells in seconds."""
    try:
        seconds = float(value)
    except ValueError:
        return value
    return f"{seconds:.1f} s" if abs(seconds) >= 1 else f"{seconds:.2g} s"


@functools.lru_cache(10_000)
def fields_of(event: str, message: str) -> Mapping[str, str] | None:
    """Return the fields of an event that has a sentence; None for another one, or one with another text."""
    if event not in SENTENCES:
        return None
    found = _pattern(event).fullmatch(message)
    return found.groupdict() if found else None


@functools.cache
def _pattern(event: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>.*?)", re.escape(catalogue()[event].text)), re.DOTALL)


def event_line(view: View, one: RepeatedEvent) -> Line:
    """Return one event: time of day, age, and what which nodes did."""
    event = one.event
    tone = URGENT_LEVELS.get(event.level, Tone.PLAIN)
    sign = {Tone.FAULT: view.glyphs.fault, Tone.WARN: view.glyphs.warn}.get(tone, " ")
    return (
        Span(" " + text.clock(event.time_ns), Tone.DIM),
        Span(f" {text.age(view.now_ns - event.time_ns):>6}  ", Tone.DIM),
        Span(sign, tone),
        Span(" "),
        Span(sentence(view, one), tone),
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
    """An event, and the ids of the nodes that told the same within a few seconds, the last at `until_ns`.

    `fellows` are those of alike events of one node; none for that of the event alone.
    """

    event: NodeEvent
    tellers: frozenset[str]
    until_ns: int = 0
    fellows: tuple[str, ...] = ()

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
    kept: list[NodeEvent] = []
    found = 0
    for event in events:
        if event.event in LEFT_OUT or event.level in SMALL_LEVELS:
            continue
        values = {"node": event.node_name, "text": event.text, "event": event.event, "level": event.level}
        if not view.filter.matches(values, skip=("ns", "role", "host", "state")):
            continue
        kept.append(event)
        found += 1
        if found >= max(number, LEAST_LOOKED_AT):
            break
    return folded(kept[::-1])[-number:] if number else []


def _end_of_mute(number: int, one: MuteEnd) -> NodeEvent:
    """Return the end of a mute as an event."""
    return NodeEvent("", "this watch", number, one.time_ns, "", "", Level.INFO.name, "mute.ended", one.text)


def folded(events: Sequence[NodeEvent]) -> list[RepeatedEvent]:
    """Return the events, oldest first; what several nodes told alike within a few seconds is one.

    So are events of one node that differ only in the fellow. A second time by one node is another event.
    """
    found: list[RepeatedEvent] = []
    places: dict[tuple[str, ...], int] = {}
    for event in events:
        fields = fields_of(event.event, event.text) or {}
        fellow = fields.get(FELLOW, "")
        rest = "" if not fellow else event.text.replace(fellow, "", 1)
        # Each master has a reason of its own: two that were elected are two sentences.
        told_by_all = "" if event.event != ELECTED else event.node
        same = told_by_all, event.event, event.text, event.state
        alike = event.node, event.event, rest, ""
        known = _recent(found, places, same, event)
        if known is not None and event.node not in known.tellers and not known.fellows:
            found[places[same]] = dataclasses.replace(
                known, tellers=known.tellers | {event.node}, until_ns=event.time_ns
            )
            continue
        known = _recent(found, places, alike, event) if fellow else None
        if known is not None and len(known.tellers) == 1 and fellow not in known.fellows:
            first = fields_of(known.event.event, known.event.text) or {}
            fellows = (*(known.fellows or (first[FELLOW],)), fellow)
            found[places[alike]] = dataclasses.replace(known, fellows=fellows)
            continue
        places[same] = places[alike] = len(found)
        found.append(RepeatedEvent(event, frozenset((event.node,))))
    return found


def _recent(
    found: Sequence[RepeatedEvent],
    places: Mapping[tuple[str, ...], int],
    key: tuple[str, ...],
    event: NodeEvent,
) -> RepeatedEvent | None:
    """Return what was told under a key shortly before an event."""
    known = found[places[key]] if key in places else None
    return known if known is not None and event.time_ns - known.event.time_ns <= SAME_NS else None


def events_table(
    view: View, shown: Sequence[RepeatedEvent], width: int, hidden: int = 0
) -> Rows[RepeatedEvent]:
    """Return events as a table; `hidden` counts those that a filter leaves out."""
    columns = (
        Column("time", "time", 12),
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
            "sentence": sentence(view, each),
            "text": event_message(event.event, event.state, event.text),
        }

    def render(each: RepeatedEvent, key: str) -> Cell:
        event = each.event
        tone = URGENT_LEVELS.get(event.level, Tone.PLAIN)
        return {
            "time": single(text.moment(event.time_ns)[11:], Tone.DIM),
            "text": single(sentence(view, each), tone),
        }[key]

    items = [(f"{each.event.node} {each.event.time_ns} {each.event.number}", each) for each in shown]
    return Rows(columns, items, render, width=width, hidden=hidden, facts=facts)


def event_rows(view: View, number: int, width: int) -> LineRows[RepeatedEvent | None]:
    """Return the newest events, at most `number`, oldest first; one line that says why if there is none."""
    events = newest_events(view, max(0, number))
    if not events:
        return LineRows([("", (Span(f" {no_events(view)}", Tone.DIM),), None)], width)
    keys = (f"{one.event.node} {one.event.number} {one.event.time_ns}" for one in events)
    return LineRows(list(zip(keys, lines_of_events(view, events, width), events, strict=True)), width)


def lines_of_events(view: View, events: Sequence[RepeatedEvent], width: int) -> list[Line]:
    """Return a line for each event; neighbours that would be cut alike lose what they share."""
    lines = [event_line(view, one) for one in events]
    rooms = [width - cell_len(plain(line[:-1])) for line in lines]
    texts = text.apart([line[-1].text for line in lines], rooms, ellipsis=view.glyphs.ellipsis)
    return [(*line[:-1], Span(told, line[-1].tone)) for line, told in zip(lines, texts, strict=True)]


def no_events(view: View) -> str:
    """Return the lines shown without events."""
    if view.model.events and view.filter:
        return f"no event matches the filter; {len(view.model.events):,} hidden"
    return "no events yet" + ("; 7 shows all that is traced" if view.model.events else "")


def events_title(view: View) -> str:
    """Return the name of the list of events, and what is not in it."""
    left_out = view.model.events_left_out
    return f"events, {left_out:,} older ones not kept" if left_out else "events"
