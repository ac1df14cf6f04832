"""The screens of all incidents and of one."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Final, cast

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from engine.runtime.monitor import NodeEvent
from ospltool.health.incidents import Incident
from ospltool.views.cells import (
    Line,
    Rows,
)
from ospltool.views.events import RepeatedEvent
from ospltool.views.incidents import (
    FIELDS,
    about,
    events,
    events_title,
    find,
    head,
    incidents,
    mute_lines,
    none_lines,
    title,
)
from ospltool.views.view import Subject, View
from tui.panels import ConsoleStatus
from tui.screens.base import OpsScreen, TableScreen
from tui.widgets.lines import Lines
from tui.widgets.sheet import Sheet

# An hour: long enough for a repair, short enough that nobody forgets it. Others have a command.
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
            self.console.show_message("this row has no open incident to mute")
        else:
            self.console.health.mute(one.code.id, one.who, MUTE_NS)
            self.console.show_message(f"{one.code.id} {one.who} is muted for 1 h, or until it gets worse")

    def action_unmute(self) -> None:
        """Lift the mute of the incident."""
        one = self.incident
        if one is not None and self.console.health.unmute(one.code.id, one.who):
            self.console.show_message(f"{one.code.id} {one.who} counts again")

    def action_acknowledge(self) -> None:
        """Acknowledge the incident."""
        one = self.incident
        if one is not None and self.console.health.acknowledge(one.key):
            self.console.show_message(f"{one.code.id} {one.who} is acknowledged")
        else:
            self.console.show_message("this row has no open incident to acknowledge")


class IncidentsScreen(TableScreen, IncidentKeys):
    """Every incident: open, muted and closed ones."""

    BINDINGS: ClassVar[list[BindingType]] = KEYS
    NAME = "incidents"
    TITLE_OF_SCREEN = "incidents"
    FILTER_FIELDS = FIELDS
    # Chosen by eye, as in the other screens.
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

    @property
    def named(self) -> str:
        """Who the incident is about, or its code."""
        return (self._incident.who or self._incident.code.id) if self._incident else ""

    def body(self) -> ComposeResult:
        """Yield the description of the incident, and the events."""
        yield Lines(id="about", classes="panel")
        yield Sheet(id="events", classes="panel")

    @property
    def incident(self) -> Incident | None:
        """The incident that is shown; it stays when it is forgotten."""
        return self._incident

    def show(self, view: View) -> None:
        """Fill both parts and share the height."""
        width = self.inner
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
            self.panel("#about", why, max(1, self.room - self.frame), [])
            self.panel("#events", "", 0)
            return
        every = [head(view, one, width), (), *about(view, one, width)]
        lines = every[: max(3, self.room * 2 // 3)]
        self.panel("#about", one.who, len(lines), lines)
        rows = self._rows = events(view, one, width)
        self.query_one("#events", Sheet).show(rows)
        left = self.room - len(lines) - 2 * self.frame
        self.panel("#events", events_title(rows), max(1, left) if rows.keys else 0)

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
