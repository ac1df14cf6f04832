"""The screen of the overview."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Final

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Horizontal, Vertical

from engine.runtime.monitor import NodeEvent
from ospltool.health.incidents import Incident
from ospltool.output.text import plural
from ospltool.views import incidents as incident_views
from ospltool.views.cells import Line, LineRows
from ospltool.views.curves import area
from ospltool.views.events import RepeatedEvent, event_rows, events_title
from ospltool.views.incidents import Notable, notables, summary
from ospltool.views.overview import (
    FIELDS,
    FOLDED,
    WIDE,
    Overview,
    application_lines,
    detail,
    flows,
    hour_lines,
    hour_title,
    mesh_lines,
    nothing_shown,
)
from ospltool.views.view import (
    Subject,
    UnheardNode,
    View,
)
from tui import panels
from tui.screens.base import set_height
from tui.screens.incidents import KEYS, IncidentKeys
from tui.widgets.lines import Lines
from tui.widgets.sheet import Sheet

# Chosen by eye: the table keeps half of the lines.
LEAST_FOR_LONG: Final = 34
"""Lines from which the explanation of an incident has two for each part."""
MOST_MASTERS: Final = 8
"""Name-spaces whose masters are shown."""
WAIT_S: Final = 4.0
"""A wait for a node that looks high: about twice what is normal."""
# Explaining all would take time with hundreds of incidents.
COMPARED: Final = 5
"""Incidents whose explanations have room, so that nothing moves when the cursor does."""


class OverviewScreen(IncidentKeys):
    """What needs attention, nodes x name-spaces, the last hour, and the newest events."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *KEYS,
        Binding("f", "faults", "faults only"),
        Binding("z", "fold", "fold healthy nodes", show=False),
        Binding("e", "events", "events", show=False),
        Binding("tab", "other_table(1)", "focus next", show=False),
        Binding("shift+tab", "other_table(-1)", "focus previous", show=False),
    ]
    NAME = "overview"
    TITLE_OF_SCREEN = "overview"
    FILTER_FIELDS = FIELDS

    def __init__(self) -> None:
        super().__init__()
        self.only_events = False
        self.only_faults = False
        self.unfolded = False
        self._is_walking = False
        self._most = 1
        self._side = 0
        self._view: View | None = None
        self._matrix: Overview | None = None
        self._attention: LineRows[Notable] | None = None
        self._events: LineRows[RepeatedEvent | None] | None = None

    def body(self) -> ComposeResult:
        """Yield incidents, the matrix and its explanation, the last hour, applications, curves and events."""
        self.set_class(self.app.size.width - 2 * self.has_class("-roomy") >= WIDE, "-wide")
        yield Lines(id="summary", classes="free")
        with Container(classes="columns"):
            with Vertical():
                yield Sheet(id="attention", classes="panel")
            with Vertical():
                yield Lines(id="about", classes="panel")
        yield Sheet(cells=True, id="matrix", classes="panel")
        yield Lines(id="detail", classes="free")
        with Container(classes="columns"):
            with Vertical():
                yield Lines(id="hour", classes="panel")
            with Vertical():
                yield Lines(id="applications", classes="panel")
        with Horizontal(id="curves"):
            yield Lines(id="stored", classes="panel")
            yield Lines(id="gaps", classes="panel")
        yield Sheet(id="ticker", classes="panel")

    @property
    def grid(self) -> Sheet:
        """The matrix."""
        return self.query_one("#matrix", Sheet)

    def show(self, view: View) -> None:
        """Fill all parts and share the height."""
        view = dataclasses.replace(view, faults_only=self.only_faults)
        width = self.inner
        is_wide = width >= WIDE
        self.set_class(is_wide, "-wide")
        self._side = self.size.width // 2 - 2 * self.is_roomy if is_wide else width
        self._view = view
        incidents = view.health.open
        self.query_one("#summary", Lines).show([summary(view, width)])
        urgent = notables(view, incidents)
        room, nodes = self.room - 1, len(view.model.nodes) + len(view.health.unheard)
        self._most = 2 if room >= LEAST_FOR_LONG else 1
        told = (incident_views.explanation(view, one, self._side, self._most) for one in incidents[:COMPARED])
        applications = application_lines(view, self._side) if self.is_roomy else []
        mesh = mesh_lines(view) if self.is_roomy else []
        wanted = panels.Wanted(
            len(urgent),
            max(map(len, told), default=0),
            nodes,
            min(len(view.model.masterships), MOST_MASTERS) + 2,
            len(applications) + (len(mesh) + 1 if mesh else 0),
        )
        if self.only_events:
            shares = panels.Shares(events=max(2, room - self.frame))
        else:
            shares = panels.share_height(room, self.frame, wanted, is_wide=is_wide)
        rows = 0 if self.unfolded else shares.matrix - 1
        matrix = self._matrix = Overview(view, width, incidents, rows)
        self.heading = (
            f"faults only, {plural(matrix.hidden, 'node')} hidden" if self.only_faults else "overview"
        )
        if len(matrix.keys) < nodes and not self.only_events:
            wanted = dataclasses.replace(wanted, nodes=len(matrix.keys))
            shares = panels.share_height(room, self.frame, wanted, is_wide=is_wide)
        self._show_attention(view, urgent, shares)
        self.grid.show(matrix)
        self.panel("#matrix", "nodes", shares.matrix if matrix.keys else 0)
        if not self.is_roomy and matrix.keys:  # the names of its columns are its edge
            set_height(self.grid, shares.matrix)
        self.fill("#detail", self._detail(view, matrix), shares.detail)
        hour = hour_lines(view, self._side, shares.hour) if shares.hour else []
        self.panel("#hour", hour_title(view), shares.hour, hour)
        lines = [*applications, *([(), *mesh] if mesh else [])]
        self.panel("#applications", "applications (A lists them)", shares.applications, lines)
        self._show_curves(view, shares.flows)
        self._events = event_rows(view, shares.events, width)
        self.query_one("#ticker", Sheet).show(self._events)
        self.panel("#ticker", events_title(view), shares.events)

    def _show_curves(self, view: View, height: int) -> None:
        """Show the curves of all nodes together."""
        row, found = self.query_one("#curves", Horizontal), flows(view) if height else []
        row.display = bool(found)
        row.styles.height = height
        width = self.size.width // 2 - 2 * self.is_roomy
        for selector, (title, points) in zip(("#stored", "#gaps"), found, strict=False):
            least = WAIT_S if selector == "#gaps" else 0.0
            lines = area(points, view.now_ns, width, height - self.frame, view.glyphs, least=least)
            self.panel(selector, title, height - self.frame, lines)

    def _show_attention(self, view: View, urgent: list[Notable], shares: panels.Shares) -> None:
        """Fill the table of incidents, which has the cursor until the user moves it elsewhere."""
        table, height = self.query_one("#attention", Sheet), shares.attention
        self._attention = LineRows([(one.key, one.line, one) for one in urgent], self._side)
        table.show(self._attention)
        self.panel("#attention", panels.counted("attention", urgent, height), height)
        about = self._about(view)
        if self.inner >= WIDE:
            self.panel("#about", "why, and what to do", shares.about if about else 0, about)
        else:
            self.fill("#about", about, shares.about)
        is_touched = self._is_walking or table.is_touched or self.grid.is_touched
        if height and self.focused is self.grid and not is_touched:
            self.set_focus(table)

    def _about(self, view: View) -> list[Line]:
        """Explain the incident under the cursor, or else the most urgent one."""
        one = self.incident or next(iter(view.health.open), None)
        return incident_views.explanation(view, one, self._side, self._most) if one else []

    @on(Sheet.Moved)
    def _explain(self) -> None:
        about = self.query_one("#about", Lines)
        if self._view is not None and about.display:
            about.show(self._about(self._view))

    @property
    def _event(self) -> NodeEvent | None:
        """The event under the cursor, while the list of events has it."""
        table = self.query_one("#ticker", Sheet)
        one = self._events.item(table.row) if self._events and self.focused is table else None
        return one.event if one else None

    def moment_ns(self) -> int:
        """Return the time of the event under the cursor."""
        return self._event.time_ns if self._event else 0

    @on(Sheet.Chosen, "#ticker")
    def _open_event(self) -> None:
        self.action_jump("trace")

    def here(self) -> Subject:
        """Return the node and the name-space under the cursor, or those that need attention."""
        if self._event is not None:
            return Subject(self._event.node)
        notable = self._notable
        if notable is not None:
            return notable.subject
        key = self.grid.row_key
        unheard = self._unheard
        if unheard is not None:
            return Subject(incident=unheard.incident.key if unheard.incident else "")
        return Subject(key if key != FOLDED else "", self._name_space)

    @property
    def incident(self) -> Incident | None:
        """The incident under the cursor; on the row of a node the most urgent one of that node alone."""
        notable = self._notable
        if notable is not None:
            return notable.incident
        if self._unheard is not None:
            return self._unheard.incident if self.focused is self.grid else None
        health, node = self.console.health, self.grid.row_key
        ours = (one for one in (*health.open, *health.muted) if one.subjects == (node,))
        return next(ours, None) if self.focused is self.grid else None

    @property
    def _unheard(self) -> UnheardNode | None:
        """The node under the cursor of the matrix if it was never heard."""
        return self._matrix.unheard(self.grid.row) if self._matrix else None

    @property
    def _name_space(self) -> str:
        """The name-space under the cursor of the matrix."""
        key = self.grid.column_key
        return key.removeprefix("ns ") if key.startswith("ns ") else ""

    @property
    def _notable(self) -> Notable | None:
        """The incident under the cursor of the list, while it exists."""
        table = self.query_one("#attention", Sheet)
        return self._attention.item(table.row) if self._attention and self.focused is table else None

    def _detail(self, view: View, matrix: Overview) -> list[Line]:
        row = self.grid.row
        if not matrix.keys:
            return nothing_shown(view)
        unheard = matrix.unheard(row)
        if unheard is not None:
            return unheard.detail(view)
        node, line = matrix.node(row), matrix.line(row)
        return detail(view, node, self._name_space or None) if node else [line or ()]

    def action_other_table(self, direction: int) -> None:
        """Give the cursor to the next table, or the one before, and leave it there."""
        self._is_walking = True
        if direction > 0:
            self.focus_next()
        else:
            self.focus_previous()

    @on(Sheet.Moved, "#matrix")
    def _moved(self) -> None:
        if self._view is not None and self._matrix is not None:
            self.query_one("#detail", Lines).show(self._detail(self._view, self._matrix))

    @on(Sheet.Chosen, "#matrix")
    def _chosen(self) -> None:
        if self.grid.row_key == FOLDED:
            self.action_fold()
        elif self._unheard is not None:
            self.action_jump("incident" if self._unheard.incident else "incidents")
        else:
            self.action_jump("name-space")

    @on(Sheet.Chosen, "#attention")
    def _open(self) -> None:
        if self._notable is not None:
            self.action_jump(self._notable.screen)

    def action_events(self) -> None:
        """Give the whole page to the events, or back to the matrix."""
        self.only_events = not self.only_events
        self.refresh_now()

    def action_faults(self) -> None:
        """Show only nodes in trouble, or all."""
        self.only_faults = not self.only_faults
        self.refresh_now()

    def action_fold(self) -> None:
        """Show every healthy node, or fold those that do not fit."""
        self.unfolded = not self.unfolded
        self.refresh_now()

    def go_home(self) -> None:
        """Reset the overview to its state at the console's start."""
        self.only_events = self.only_faults = self.unfolded = False
        self.set_filter("")
