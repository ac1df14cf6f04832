"""The screen of alignments."""

from __future__ import annotations

from typing import Any

from textual import on
from textual.app import ComposeResult

from ospltool.output.text import plural
from ospltool.views.alignment import FIELDS, alignments, counts, curve, deliveries, idle_lines, told_lines
from ospltool.views.cells import Rows
from ospltool.views.curves import LEAST_HEIGHT, MOST_HEIGHT, area
from ospltool.views.view import Subject, View
from tui.screens.base import OpsScreen
from tui.widgets.lines import Lines
from tui.widgets.sheet import Sheet

LEAST_TOLD = 3
"""Lines for requests and answers."""


class AlignmentScreen(OpsScreen):
    """Who aligns whom with progress, rate and time left, who serves which late joiner, and what was asked."""

    NAME = "alignment"
    TITLE_OF_SCREEN = "alignment"
    FILTER_FIELDS = FIELDS

    def __init__(self) -> None:
        super().__init__()
        self._alignments: Rows[Any] | None = None
        self._joiners: Rows[Any] | None = None

    def body(self) -> ComposeResult:
        """Yield two tables under their titles, a curve, and requests and answers."""
        yield Sheet(id="alignments", classes="panel")
        yield Lines(id="idle", classes="panel")
        yield Lines(id="received", classes="panel")
        yield Sheet(id="joiners", classes="panel")
        yield Lines(id="told", classes="panel")

    def show(self, view: View) -> None:
        """Fill both tables and share the height."""
        width, frame = self.inner, self.frame
        rows = self._alignments = alignments(view, width)
        joiners = self._joiners = deliveries(view, view.model.ordered_nodes(), width)
        left = max(0, self.room - frame)
        title = plural(len(rows.keys), "alignment")
        idle = [] if rows.keys else idle_lines(view)[: max(1, left // 2)]
        for_rows = min(len(rows.keys) + 1, max(2, left * 2 // 3)) if rows.keys else 0
        self.query_one("#alignments", Sheet).show(rows)
        self.panel("#alignments", title, for_rows)
        self.panel("#idle", title, len(idle), idle)
        left -= for_rows + len(idle)
        for_joiners = len(joiners.keys) + 1 + frame if joiners.keys else 0
        for_told = min(left, LEAST_TOLD + frame)
        for_curve = self._show_curve(view, left - for_joiners - for_told)
        for_joiners = max(0, min(for_joiners, left - for_told - for_curve) - frame)
        self.query_one("#joiners", Sheet).show(joiners)
        self.panel("#joiners", plural(len(joiners.keys), "late joiner") + " served", for_joiners)
        left -= for_curve + (for_joiners + frame if for_joiners else 0)
        lines = told_lines(view, left - frame, width)
        self.panel("#told", counts(view), min(max(0, left - frame), len(lines)), lines)

    def _show_curve(self, view: View, room: int) -> int:
        """Show the curve of the alignment under the cursor where there is room; return its height."""
        one = self._alignments.item(self.query_one("#alignments", Sheet).row) if self._alignments else None
        height = min(room, MOST_HEIGHT) if room >= LEAST_HEIGHT and one is not None else 0
        title, points = curve(view, one) if one is not None else ("", [])
        lines = area(points, view.now_ns, self.inner, height - self.frame, view.glyphs)
        self.panel("#received", title, max(0, height - self.frame), lines)
        return height

    def here(self) -> Subject:
        """Return the alignee and the name-space, or the node that serves the late joiner."""
        grid = self.focused
        if isinstance(grid, Sheet) and grid.id == "alignments" and self._alignments:
            shown = self._alignments.item(grid.row)
            if shown is not None:
                return Subject(shown.node.id, shown.space.name)
        if isinstance(grid, Sheet) and grid.id == "joiners" and self._joiners:
            delivery = self._joiners.item(grid.row)
            if delivery is not None:
                return Subject(delivery[0].id, self.console.subject.name_space)
        return super().here()

    @on(Sheet.Moved)
    def _moved(self) -> None:
        self.refresh_now()

    @on(Sheet.Chosen)
    def _chosen(self, event: Sheet.Chosen) -> None:
        self.action_jump("name-space" if event.sheet.id == "alignments" else "node")
