"""The overview: every node and every name-space on one page."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from tui.cells import Line
from tui.screens.base import OpsScreen, set_height
from tui.viewmodel import overview, panels
from tui.viewmodel.base import Subject, View
from tui.viewmodel.overview import Overview
from tui.widgets.lines import Lines
from tui.widgets.sheet import Sheet


class OverviewScreen(OpsScreen):
    """Nodes x name-spaces, what needs attention, and the newest events."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("e", "events", "events"),
    ]
    NAME = "overview"
    TITLE_OF_SCREEN = "overview"
    FILTER_FIELDS = overview.FIELDS

    def __init__(self) -> None:
        super().__init__()
        self.only_events = False
        self._matrix: Overview | None = None

    def body(self) -> ComposeResult:
        """The matrix and its explanation, attention, events."""
        yield Lines(id="summary")
        yield Sheet(cells=True, id="matrix")
        yield Lines(id="detail")
        yield Lines(id="attention")
        yield Lines(id="ticker")

    def show(self, view: View) -> None:
        """Fill all parts and share the height between them."""
        width = self.size.width
        concerns = panels.current_concerns(view)
        self.query_one("#summary", Lines).show([panels.summary(view, concerns)])
        grid = self.query_one(Sheet)
        matrix = self._matrix = Overview(view, width)
        grid.show(matrix)
        attention = panels.attention_lines(view, concerns)
        shares = panels.share_height(
            self.room - 1, len(matrix.keys), len(attention), events_only=self.only_events
        )
        set_height(grid, shares.matrix)
        self.fill("#detail", self._detail(view, matrix), shares.detail)
        lines = panels.titled("attention", attention, shares.attention, view, width)
        self.fill("#attention", lines, shares.attention)
        events = panels.event_lines(view, shares.events - 1)
        title = panels.events_title(view)
        lines = panels.titled(title, events, shares.events, view, width, note=False)
        self.fill("#ticker", lines, shares.events)

    def here(self) -> Subject:
        """The node and the name-space under the cursor."""
        grid = self.query_one(Sheet)
        name = grid.column_key.removeprefix("ns ") if grid.column_key.startswith("ns ") else ""
        return Subject(grid.row_key, name)

    def _detail(self, view: View, matrix: Overview) -> list[Line]:
        if not matrix.keys:
            return overview.nothing_shown(view)
        return overview.detail(view, matrix.node(self.query_one(Sheet).row), self.here().name_space or None)

    @on(Sheet.Moved)
    def _moved(self) -> None:
        if self.last is not None and self._matrix is not None:
            view, _ = self.last
            self.query_one("#detail", Lines).show(self._detail(view, self._matrix))

    @on(Sheet.Chosen)
    def _chosen(self) -> None:
        self.action_jump("name-space")

    def action_events(self) -> None:
        """Give the whole page to the events, or back to the matrix."""
        self.only_events = not self.only_events
        self.refresh_now()
