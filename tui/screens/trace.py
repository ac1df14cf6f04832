"""The merged trace of all nodes."""

from __future__ import annotations

import bisect
from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType

from tui import trace_lines as sources
from tui.cells import Line, Rows
from tui.screens.table import TableScreen
from tui.viewmodel import panels, trace
from tui.viewmodel.base import Subject, View
from tui.viewmodel.trace import TraceRow
from tui.widgets.sheet import Sheet


class TraceScreen(TableScreen):
    """Events as nodes send them, or with `v` the records of trace files; the newest are followed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("v", "other_source", "files"),
        Binding("f", "follow", "follow"),
    ]
    NAME = "trace"
    TITLE_OF_SCREEN = "trace"
    FILTER_FIELDS = sources.FIELDS
    ABOUT_LINES: ClassVar[int] = 9

    def __init__(self) -> None:
        super().__init__()
        self.following = True
        self.from_files = False
        self._every = 0
        self._shown = 0
        self._made_from: tuple[object, ...] = ()
        self._rows: list[TraceRow] = []
        self._wanted_ns = 0

    def table(self, view: View, width: int) -> Rows[TraceRow]:
        """Return the newest records that pass the filter, worked out again only when there are more."""
        files = self.console.trace_files
        seen = files.seen if files and self.from_files else view.model.events_seen
        made_from = (self.from_files, seen, view.filter.text)
        if made_from != self._made_from:
            self._made_from = made_from
            if files and self.from_files:
                records = files.records()
                self._every = len(records)
                self._rows = [*map(trace.row_of_record, sources.wanted_records(records, view.filter))]
            else:
                self._every = len(view.model.events)
                kept = sources.wanted_events(view.model.events, view.filter)
                self._rows = [*map(trace.row_of_event, kept)]
        return trace.trace(view, self._rows, width)

    def table_title(self, view: View, rows: Rows[TraceRow]) -> str:
        """Return the title of the table."""
        files = self.console.trace_files
        if files and self.from_files:
            return trace.title("trace files", len(self._rows), self._every, files.seen - self._every)
        return trace.title("events", len(self._rows), self._every, view.model.events_left_out)

    def show(self, view: View) -> None:
        """Fill the table; while following, the cursor stays on the newest record."""
        super().show(view)
        self._settle_on_moment()
        grid = self.query_one("#table", Sheet)
        if self.following and self.rows and self.rows.keys and grid.row_key != self.rows.keys[-1]:
            grid.go_to(self.rows.keys[-1])
        self.heading = "trace, following" if self.following else "trace"

    def instead(self, view: View) -> list[Line]:
        """Return the reason for an empty table."""
        if self.from_files:
            return trace.nothing_lines("no line of the trace files matches" if self._every else "no line yet")
        return trace.nothing_lines(panels.no_events(view))

    def about(self, view: View, row: TraceRow, width: int) -> list[Line]:
        """Return the record in full, and what it means."""
        return trace.row_lines(view, row, width)

    def here(self) -> Subject:
        """Return the node that wrote the record."""
        if self.row is None:
            return super().here()
        named = [
            node.id for node in self.console.model.ordered_nodes() if node.snapshot.name == self.row.node
        ]
        return Subject(next(iter(named), ""), self.console.subject.name_space)

    def moment_ns(self) -> int:
        """Return the time of the record."""
        return self.row.time_ns if self.row is not None else 0

    def go_to_moment(self, moment_ns: int) -> None:
        """Put the cursor on the first record at or after a moment, and stop following."""
        self.following = False
        self._wanted_ns = moment_ns
        self.refresh_now()

    def _settle_on_moment(self) -> None:
        if self.rows is None or not self.rows.keys or not self._wanted_ns:
            return
        moment_ns, self._wanted_ns = self._wanted_ns, 0
        shown = self._rows[-len(self.rows.keys) :]
        index = bisect.bisect_left(shown, moment_ns, key=lambda row: row.time_ns)
        self.query_one("#table", Sheet).go_to(self.rows.keys[min(index, len(shown) - 1)])

    def action_follow(self) -> None:
        """Follow the newest record, or stay."""
        self.following = not self.following
        self.refresh_now()

    def action_other_source(self) -> None:
        """Show the files instead of the events, or back, at the same moment."""
        if self.console.trace_files is None:
            self.console.say("no trace files are followed; name them with --trace")
            return
        moment_ns, following = self.moment_ns(), self.following
        self.from_files = not self.from_files
        self.refresh_now()
        if not following and moment_ns:
            self.go_to_moment(moment_ns)

    @on(Sheet.Moved)
    def _moved_by_hand(self, event: Sheet.Moved) -> None:
        if event.by_hand and self.rows and self.rows.keys:
            self.following = event.sheet.row_key == self.rows.keys[-1]
            self.heading = "trace, following" if self.following else "trace"

    @on(Sheet.Chosen)
    def _chosen(self) -> None:
        self.action_jump("node")
