"""The screen of alignments."""

from __future__ import annotations

from typing import Any

from textual import on
from textual.app import ComposeResult

from ospltool.output.text import plural
from ospltool.views.alignment import FIELDS, alignments, counts, curve, deliveries, idle_lines, told_lines
from ospltool.views.cells import Rows
from ospltool.views.view import Subject, View, rule_line
from tui import panels
from tui.screens.base import OpsScreen, set_height
from tui.widgets.curve import LEAST_HEIGHT, Curve
from tui.widgets.lines import Lines
from tui.widgets.sheet import Sheet

MOST_CURVE = 16
"""A plot does not get better above this height."""

LEAST_TOLD = 4
"""Lines for requests and answers, their title included."""


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
        yield Lines(id="title")
        yield Sheet(id="alignments")
        yield Lines(id="idle")
        yield Lines(id="joiners-title")
        yield Sheet(id="joiners")
        yield Curve(id="received")
        yield Lines(id="told")

    def show(self, view: View) -> None:
        """Fill both tables and share the height."""
        width = self.size.width
        nodes = view.model.ordered_nodes()
        rows = self._alignments = alignments(view, width)
        joiners = self._joiners = deliveries(view, nodes, width)
        room = max(0, self.room - 2)
        self.fill("#title", [rule_line(view, plural(len(rows.keys), "alignment"), width)])
        idle = [] if rows.keys else idle_lines(view)[: max(1, room // 2)]
        self.fill("#idle", idle)
        for_alignments = min(len(rows.keys) + 1, max(2, room * 2 // 3)) if rows.keys else 0
        grid = self.query_one("#alignments", Sheet)
        set_height(grid, for_alignments)
        grid.show(rows)
        title = plural(len(joiners.keys), "late joiner") + " served"
        self.fill("#joiners-title", [rule_line(view, title, width)])
        grid = self.query_one("#joiners", Sheet)
        grid.show(joiners)
        for_joiners = len(joiners.keys) + 1 if joiners.keys else 0
        left = room - for_alignments - len(idle)
        for_told = (
            0 if left < LEAST_TOLD else max(LEAST_TOLD, left - for_joiners - MOST_CURVE * bool(rows.keys))
        )
        for_joiners = min(for_joiners, left - for_told)
        set_height(grid, max(0, for_joiners))
        for_curve = self._show_curve(view, left - for_joiners - for_told)
        if not for_curve:
            for_told = max(0, left - for_joiners)
        lines = told_lines(view, for_told - 1, width)
        title = counts(view)
        self.fill("#told", panels.titled(title, lines, for_told, view, width, note=False), for_told)

    def _show_curve(self, view: View, room: int) -> int:
        """Return the curve of the alignment under the cursor where there is room; how high it is."""
        plot = self.query_one(Curve)
        row = self.query_one("#alignments", Sheet).row
        one = self._alignments.item(row) if self._alignments else None
        plot.display = room >= LEAST_HEIGHT and one is not None
        if one is not None and plot.display:
            plot.styles.height = min(room, MOST_CURVE)
            plot.show(*curve(view, one), view.now_ns)
        return min(room, MOST_CURVE) if plot.display else 0

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
        self.query_one(Curve).forget()
        self.refresh_now()

    @on(Sheet.Chosen)
    def _chosen(self, event: Sheet.Chosen) -> None:
        self.action_jump("name-space" if event.sheet.id == "alignments" else "node")
