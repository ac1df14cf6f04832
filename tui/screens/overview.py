"""The overview: every node and every name-space on one page."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from tui.cells import Line
from tui.screens.base import OpsScreen, set_height
from tui.viewmodel import overview, panels
from tui.viewmodel.base import View
from tui.viewmodel.overview import Overview
from tui.widgets.grid import Grid
from tui.widgets.lines import Lines


class OverviewScreen(OpsScreen):
    """Nodes x name-spaces, what needs attention, and the newest events."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("e", "events", "events"),
    ]
    TITLE_OF_SCREEN = "overview"
    FILTER_FIELDS = overview.FIELDS

    def __init__(self) -> None:
        super().__init__()
        self.only_events = False
        self._matrix: Overview | None = None

    def body(self) -> ComposeResult:
        """The matrix and its explanation, attention, events."""
        yield Lines(id="summary")
        yield Grid(cells=True, id="matrix")
        yield Lines(id="detail")
        yield Lines(id="attention")
        yield Lines(id="ticker")

    def on_mount(self) -> None:
        """The arrow keys walk over the matrix."""
        self.focus_body()

    def focus_body(self) -> None:
        """The arrow keys walk over the matrix."""
        self.set_focus(self.query_one(Grid))

    def show(self, view: View) -> None:
        """Fill all parts and share the height between them."""
        width, height = self.size.width, self.size.height
        concerns = panels.current_concerns(view)
        self.query_one("#summary", Lines).show([panels.summary(view, concerns)])
        grid = self.query_one(Grid)
        matrix = self._matrix = Overview(view, width)
        grid.show(matrix)
        attention = panels.attention_lines(view, concerns)
        room = height - self.caption_height - self.filter_height - 3
        shares = panels.share_height(room, len(matrix.keys), len(attention), events_only=self.only_events)
        grid.display = shares.matrix > 0
        if grid.display:
            grid.styles.height = shares.matrix
        self._show("#detail", self._detail(view, matrix), shares.detail)
        lines = panels.titled("attention", attention, shares.attention, view, width)
        self._show("#attention", lines, shares.attention)
        events = panels.event_lines(view, shares.events - 1)
        title = panels.events_title(view)
        lines = panels.titled(title, events, shares.events, view, width, note=False)
        self._show("#ticker", lines, shares.events)

    def _show(self, selector: str, lines: list[Line], height: int) -> None:
        widget = self.query_one(selector, Lines)
        set_height(widget, height)
        widget.show(lines)

    def _detail(self, view: View, matrix: Overview) -> list[Line]:
        grid = self.query_one(Grid)
        if not matrix.keys:
            return overview.nothing_shown(view)
        name = grid.column_key.removeprefix("ns ") if grid.column_key.startswith("ns ") else None
        return overview.detail(view, matrix.node(grid.row), name)

    @on(Grid.Moved)
    def _moved(self) -> None:
        if self.last is not None and self._matrix is not None:
            view, _ = self.last
            self.query_one("#detail", Lines).show(self._detail(view, self._matrix))

    def action_events(self) -> None:
        """Give the whole page to the events, or back to the matrix."""
        self.only_events = not self.only_events
        self.refresh_now()
