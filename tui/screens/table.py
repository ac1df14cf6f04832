"""The base of screens with one table, and below it what is under the cursor in full."""

from __future__ import annotations

from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult

from tui.cells import Line, Rows
from tui.screens.base import OpsScreen, set_height
from tui.viewmodel import panels
from tui.viewmodel.base import View
from tui.widgets.lines import Lines
from tui.widgets.sheet import HEADER, Sheet


class TableScreen(OpsScreen):
    """Subclasses give the table, its title and the lines about a row."""

    ABOUT_LINES: ClassVar[int] = 8
    """The most lines for what is under the cursor: a third of the screen, or what the table leaves free."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: Rows[Any] | None = None
        self.shown: View | None = None
        self._notes: list[Line] = []

    def body(self) -> ComposeResult:
        """Yield title, table, and lines about the row under the cursor."""
        yield Lines(id="title")
        yield Sheet(id="table")
        yield Lines(id="about")

    def table(self, view: View, width: int) -> Rows[Any]:
        """Return the table."""
        raise NotImplementedError

    def table_title(self, view: View, rows: Rows[Any]) -> str:
        """Return the title of the table."""
        return self.TITLE_OF_SCREEN

    def about(self, view: View, row: Any, width: int) -> list[Line]:
        """Return the row under the cursor in full."""
        return []

    def notes(self, view: View, width: int) -> list[Line]:
        """Return lines below the title, whatever the table has."""
        return []

    def instead(self, view: View) -> list[Line]:
        """Return the lines below an empty table."""
        return panels.nothing_lines(view, f"{self.TITLE_OF_SCREEN.removesuffix('s')}s")

    @property
    def row(self) -> Any:
        """The value under the cursor; None when the table is empty."""
        return self.rows.item(self.query_one("#table", Sheet).row) if self.rows else None

    def show(self, view: View) -> None:
        """Fill table and lines, and share the height."""
        self.shown = view
        width = self.size.width
        grid = self.query_one("#table", Sheet)
        rows = self.rows = self.table(view, width)
        grid.show(rows)
        title = panels.rule_line(view, self.table_title(view, rows), width)
        self._notes = self.notes(view, width)
        self.fill("#title", [title, *self._notes])
        self.show_about()

    def show_about(self) -> None:
        """Show the lines about the row under the cursor below the table."""
        if self.shown is None or self.rows is None:
            return
        view, width = self.shown, self.size.width
        row = self.row
        lines = self.about(view, row, width) if row is not None else self.instead(view)
        room = max(0, self.room - 1 - len(self._notes))
        free = room - HEADER - len(self.rows.keys) - 1
        most = min(self.ABOUT_LINES, max(room // 3, free)) if row is not None else room - 1
        if len(lines) > most > 0:
            left_out = len(lines) - most + 1
            lines = [*lines[: most - 1], panels.more_line(left_out)]
        rule = [panels.rule_line(view, "", width)] if lines and row is not None else []
        lines = [*rule, *lines[: max(0, most)]]
        self.fill("#about", lines)
        set_height(self.query_one("#table", Sheet), max(2, room - len(lines)) if self.rows.keys else 0)

    @on(Sheet.Moved)
    def _moved(self) -> None:
        self.show_about()
