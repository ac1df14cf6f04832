"""All incidents, and one of them in full with what nodes said around it."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Final, cast

from rich.cells import cell_len
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from engine.runtime.monitor import NodeEvent
from ospltool.health.incidents import Incident
from ospltool.health.presence import Presence
from ospltool.output.text import plural
from tui import panels, text
from tui.cells import Cell, Column, Line, Rows, Span, Tone, dimmed, plain, single, table_title
from tui.panels import URGENT_LEVELS, RepeatedEvent, folded, more_line, teller
from tui.panels import event_message as text_of
from tui.screens.base import OpsScreen, TableScreen, set_height
from tui.view import ConsoleStatus, Rank, Subject, View, severity_sign, unheard_nodes
from tui.widgets.lines import Lines
from tui.widgets.sheet import Sheet

LEAST_WITH_CLOCK: Final = 100
"""Cells from which the time of the beginning has room beside how long it lasts."""

FIELDS: Final = ("code", "who", "text", "state")
LABEL: Final = 9
"""Cells for the words what, why, effect and next."""
MAX_MUTES: Final = 4
"""The most lines for mutes."""
MAX_LINES: Final = 4
"""The most lines for one of them."""


def find(view: View, key: str) -> Incident | None:
    """Return the incident with this key; of several that are over, the one that ended last."""
    return next((one for one in view.health.every if one.key == key), None)


def state(view: View, one: Incident) -> str:
    """Return whether it lasts, in one word."""
    if one.until_ns:
        return "over"
    if one.muted_until_ns:
        return f"muted {text.age(one.muted_until_ns - view.now_ns)}"
    return "known" if one.acknowledged_ns else "open"


def incidents(view: View, width: int) -> Rows[Incident]:
    """Return all incidents."""
    every = view.health.every
    states = max((len(state(view, one)) for one in every), default=0)
    codes = max((len(one.code.id) for one in every), default=0)
    whose = max((len(one.who) for one in every), default=0)
    lasts = max((len(one.lasts(view.now_ns)) for one in every), default=0)
    who = min(max(3, whose), 24 if width >= LEAST_WITH_CLOCK else 10)
    columns = (
        Column("mark", "", 1),
        *((Column("since", "since", 8),) if width >= LEAST_WITH_CLOCK else ()),
        Column("lasts", "lasts", max(6, lasts), right=True),
        Column("state", "state", max(5, states)),
        Column("code", "code", max(4, codes)),
        Column("who", "who", who, cut=view.glyphs.ellipsis, among=view.node_names),
        Column("text", "what", 12, grow=6),
    )

    def render(one: Incident, key: str) -> Cell:
        sign, tone = severity_sign(view.glyphs, one.severity)
        cells = {
            "mark": single(sign, tone),
            "since": single(text.clock(one.since_ns), Tone.DIM),
            "lasts": single(one.lasts(view.now_ns)),
            "state": single(state(view, one)),
            "code": single(one.code.id),
            "who": single(one.who),
            "text": single(one.what, tone),
        }
        quiet = one.until_ns or one.muted_until_ns
        return tuple(Span(span.text, Tone.DIM) for span in cells[key]) if quiet else cells[key]

    kept = [
        (f"{one.key} {one.since_ns}", one)
        for one in every
        if view.filter.matches(
            {"code": one.code.id, "who": one.who, "text": one.what, "state": state(view, one)}
        )
    ]
    return Rows(columns, kept, render, width=width, fixed=1, hidden=len(every) - len(kept))


def title(view: View, rows: Rows[Incident]) -> str:
    """Return the title with the numbers of open, muted and closed incidents."""
    health = view.health
    muted = f"{len(health.muted)} muted" if health.muted else ""
    over = f"{len(health.closed)} over" if health.closed else ""
    return table_title([plural(len(health.open), "incident"), muted, over], rows.hidden)


def mute_lines(view: View) -> list[Line]:
    """Return a line for each of the mutes that stand, the next to end first, the last one for the others."""
    lines: list[Line] = [
        (Span(f" mute {one.name} until {text.clock(one.until_ns)} UTC {one.words(hidden)}", Tone.DIM),)
        for one, hidden in view.health.standing_mutes
    ]
    left_out = len(lines) - MAX_MUTES + 1
    return [*lines[: MAX_MUTES - 1], more_line(left_out)] if left_out > 1 else lines


def about(view: View, one: Incident, width: int, most: int = MAX_LINES) -> list[Line]:
    """Return observation, cause, effect and advice, each in at most `most` lines."""
    return _told(view, (("What", one.what), *_reasons(one)), width, most)


def explanation(view: View, one: Incident, width: int, most: int = 1) -> list[Line]:
    """Return cause, effect and advice, each in at most `most` lines, beside the observation."""
    return _told(view, _reasons(one), width, most)


def _reasons(one: Incident) -> tuple[tuple[str, str], ...]:
    return ("Why", one.why), ("Effect", one.effect), ("Next", one.next)


def _told(view: View, told: tuple[tuple[str, str], ...], width: int, most: int) -> list[Line]:
    lines: list[Line] = []
    for label, value in told:
        wrapped = text.wrap(value, max(10, width - LABEL - 2), most, ellipsis=view.glyphs.ellipsis)
        for number, part in enumerate(wrapped):
            tone = Tone.STRONG if label == "What" else Tone.PLAIN
            lines.append((Span(f" {label if not number else '':<{LABEL}}", Tone.DIM), Span(part, tone)))
    return lines


def head(view: View, one: Incident, width: int) -> Line:
    """Return code, title, since when, whether it lasts, and the page of the code, without what does not fit.

    The heading of the screen has the code, and every code its page.
    """
    sign, tone = severity_sign(view.glyphs, one.severity)
    lasts = f"{one.lasts(view.now_ns)}{one.again}"
    code, title = Span(f" {one.code.id} ", tone), Span(f" {one.code.title}", Tone.STRONG)
    since = Span(f"  {one.since} {text.clock(one.since_ns)} UTC, {lasts}, {state(view, one)}", Tone.DIM)
    mark = Span(f" {sign}", tone)
    forms: tuple[Line, ...] = (
        (mark, code, title, since, Span(f"  {one.code.page}", Tone.DIM)),
        (mark, code, title, since),
        (mark, title, since),
    )
    return next((line for line in forms if cell_len(plain(line)) <= width), forms[-1])


def events(view: View, one: Incident, width: int) -> Rows[RepeatedEvent]:
    """Return the events around the incident at INFO and above, oldest first; alike ones are one row."""
    found = view.health.events(one)
    kept = [event for event in found if view.filter.matches({"node": event.node_name, "text": event.text})]
    shown = folded(kept)
    names = max((cell_len(teller(view, each)) for each in shown), default=0)
    columns = (
        Column("time", "time", 12),
        Column("node", "node", max(4, names)),
        Column("text", "event", 20, grow=8, cut=view.glyphs.ellipsis, texts=True),
    )

    def render(each: RepeatedEvent, key: str) -> Cell:
        event = each.event
        tone = URGENT_LEVELS.get(event.level, Tone.PLAIN)
        return {
            "time": single(text.moment(event.time_ns)[11:], Tone.DIM),
            "node": single(teller(view, each), Tone.DIM),
            "text": single(text_of(event.event, event.state, event.text), tone),
        }[key]

    items = [(f"{each.event.node} {each.event.time_ns} {each.event.number}", each) for each in shown]
    return Rows(columns, items, render, width=width, hidden=len(found) - len(kept))


def events_title(rows: Rows[RepeatedEvent]) -> str:
    """Return how many events there are, and what enter does."""
    number = sum(len(each.tellers) for _, each in rows.items)
    return f"{plural(number, 'event')} around it, enter opens the trace"


_LOST: Final = (Presence.SILENT, Presence.GONE)


def none_lines(view: View) -> list[Line]:
    """Return the lines shown without incidents."""
    if not view.is_anybody_heard:
        why = f": {view.health.verdict.why}" if view.health.verdict.why else ""
        return [dimmed((Span(f" no node is heard, so nothing is known to be wrong{why}"),))]
    heard = view.model.ordered_nodes()
    lost = [node.snapshot.name for node in heard if view.presence(node) in _LOST]
    lost += [one.name for one in unheard_nodes(view) if one.rank is not Rank.STOPPED]
    if lost and not view.health.muted:
        first, others = lost[0], len(lost) - 1
        more = f" and {plural(others, 'other node')}" if others else ""
        return [(Span(f" no incident yet, but {first}{more} cannot be heard"),)]
    began_ns = view.model.began_ns
    since = f", nor was since this console came at {text.clock(began_ns)} UTC" if began_ns else ""
    return [dimmed((Span(f" nothing is wrong{since}; 7: trace"),))]


MUTE_NS: Final = 3_600_000_000_000
"""Duration of a mute by key `m`."""

KEYS: Final[list[BindingType]] = [
    Binding("m", "mute", "mute 1 h"),
    Binding("m", "unmute", "lift mute"),
    Binding("a", "acknowledge", "acknowledge", show=False),
]


class IncidentKeys(OpsScreen):
    """Actions on the incident under the cursor."""

    @property
    def incident(self) -> Incident | None:
        """The incident under the cursor; none where a screen does not say."""
        return None

    def __init__(self) -> None:
        super().__init__()
        self._mutable = ""

    def update(self, view: View, status: ConsoleStatus) -> None:
        """Show the system, and what the key for mutes does now."""
        super().update(view, status)
        self._show_keys()

    @on(Sheet.Moved)
    def _show_keys(self) -> None:
        one, mutable = self.incident, ""
        if one is not None and one.is_open:
            mutable = "unmute" if one.muted_until_ns else "mute"
        if mutable != self._mutable:
            self._mutable = mutable
            self.refresh_bindings()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer to mute an incident, or to lift its mute."""
        if action in ("mute", "unmute"):
            # In a recording or simulation the key marks the moment: what is muted there is muted for nobody.
            return self.console.travel is None and action == self._mutable
        return super().check_action(action, parameters)

    def action_mute(self) -> None:
        """Mute the incident for an hour."""
        one = self.incident
        if one is None or one.until_ns:
            self.console.say("this row has no open incident to mute")
        else:
            self.console.health.mute(one.code.id, one.who, MUTE_NS)
            self.console.say(f"{one.code.id} {one.who} is muted for 1 h, or until it gets worse")

    def action_unmute(self) -> None:
        """Lift the mute of the incident."""
        one = self.incident
        if one is not None and self.console.health.unmute(one.code.id, one.who):
            self.console.say(f"{one.code.id} {one.who} counts again")

    def action_acknowledge(self) -> None:
        """Acknowledge the incident."""
        one = self.incident
        if one is not None and self.console.health.acknowledge(one.key):
            self.console.say(f"{one.code.id} {one.who} is acknowledged")
        else:
            self.console.say("this row has no open incident to acknowledge")


class IncidentsScreen(TableScreen, IncidentKeys):
    """Every incident: open, muted and closed ones."""

    BINDINGS: ClassVar[list[BindingType]] = KEYS
    NAME = "incidents"
    TITLE_OF_SCREEN = "incidents"
    FILTER_FIELDS = FIELDS
    ABOUT_LINES: ClassVar[int] = 10

    @property
    def incident(self) -> Incident | None:
        """The incident under the cursor."""
        return cast("Incident | None", self.row)

    def table(self, view: View, width: int) -> Rows[Incident]:
        """Return the incidents."""
        return incidents(view, width)

    def table_title(self, view: View, rows: Rows[Incident]) -> str:
        """Return the title of the table."""
        return title(view, rows)

    def notes(self, view: View, width: int) -> list[Line]:
        """Return the mutes that stand."""
        return mute_lines(view)

    def about(self, view: View, row: Incident, width: int) -> list[Line]:
        """Return cause, effect and advice."""
        return about(view, row, width, 2)

    def instead(self, view: View) -> list[Line]:
        """Return the lines shown without incidents."""
        return none_lines(view) if not self.filter else []

    def here(self) -> Subject:
        """Return the incident, with the first of its nodes and name-spaces."""
        return subject_of(self.incident, self.console.subject)

    def moment_ns(self) -> int:
        """Return the beginning of the incident."""
        return self.incident.since_ns if self.incident else 0

    @on(Sheet.Chosen)
    def _chosen(self) -> None:
        self.action_jump("incident")


class IncidentScreen(IncidentKeys):
    """One incident: what, why, effect, next, and the events around it."""

    BINDINGS: ClassVar[list[BindingType]] = KEYS
    NAME = "incident"
    TITLE_OF_SCREEN = "incident"
    FILTER_FIELDS = ("node", "text")

    def __init__(self) -> None:
        super().__init__()
        self._incident: Incident | None = None
        self._rows: Rows[RepeatedEvent] | None = None

    def body(self) -> ComposeResult:
        """Yield the description of the incident, and the events."""
        yield Lines(id="about")
        yield Lines(id="title")
        yield Sheet(id="events")

    @property
    def incident(self) -> Incident | None:
        """The incident that is shown; it stays when it is forgotten."""
        return self._incident

    def show(self, view: View) -> None:
        """Fill both parts and share the height."""
        width = self.size.width
        key = view.subject.incident
        known = self._incident if self._incident and self._incident.key == key else None
        one = self._incident = find(view, key) or known
        self.heading = one.code.id if one else "incident"
        if one is None:
            why = (
                "this incident has been forgotten"
                if key
                else "no incident chosen; 5 lists all, enter opens one"
            )
            self.fill("#about", [panels.rule_line(view, why, width)])
            self.fill("#title", [])
            set_height(self.query_one("#events", Sheet), 0)
            return
        every = [head(view, one, width), (), *about(view, one, width)]
        lines = every[: max(3, self.room * 2 // 3)]
        self.fill("#about", lines)
        rows = self._rows = events(view, one, width)
        self.fill("#title", [panels.rule_line(view, events_title(rows), width)])
        grid = self.query_one("#events", Sheet)
        grid.show(rows)
        set_height(grid, max(0, self.room - len(lines) - 1) if rows.keys else 0)

    def here(self) -> Subject:
        """Return the incident, with the node that it is about."""
        return subject_of(self._incident, self.console.subject)

    def moment_ns(self) -> int:
        """Return the time of the event, or the beginning of the incident."""
        if self._event:
            return self._event.time_ns
        return self._incident.since_ns if self._incident else 0

    @property
    def _event(self) -> NodeEvent | None:
        told = self._rows.item(self.query_one("#events", Sheet).row) if self._rows else None
        return told.event if told else None

    def action_jump(self, screen: str) -> None:
        """Show another screen; the trace shows the node that told of the event."""
        here, event = self.here(), self._event
        if screen == "trace" and event:
            here = dataclasses.replace(here, node=event.node)
        self.console.go(screen, here, self.moment_ns())

    @on(Sheet.Chosen)
    def _chosen(self) -> None:
        self.action_jump("trace")


def subject_of(one: Incident | None, here: Subject) -> Subject:
    """Return the subject of screens that are opened from an incident."""
    if one is None:
        return here
    return Subject(one.node or here.node, next(iter(one.name_spaces), here.name_space), incident=one.key)
