"""The merged trace of all nodes: events as they send them, or the records of their trace files."""

from __future__ import annotations

import bisect
from typing import ClassVar, Final, NamedTuple

from rich.cells import cell_len
from textual import on
from textual.binding import Binding, BindingType

from engine.runtime.monitor import NodeEvent
from engine.tracing.catalogue import catalogue
from ospltool.trace.reading.record import TraceRecord
from ospltool.views import text
from ospltool.views.cells import Cell, Column, Line, Rows, Span, Tone, single
from ospltool.views.events import MOST_NAME, event_message, no_events
from ospltool.views.view import Subject, View, state_name
from tui.screens.base import TableScreen
from tui.widgets.sheet import Sheet

# Textual takes milliseconds for each thousand when the table changes. Chosen.
MAX_SHOWN: Final = 20_000
"""Rows of the table: the newest; older ones are counted in the title."""

WIDTH_WITH_LEVEL: Final = 100
WIDTH_WITH_THREAD: Final = 150
"""Below these widths the message needs the room more; the lines below the table have everything."""

# Names do not change, and measuring all rows would cost with each new one.
NAMED: Final = 2_000
"""Number of newest rows whose node names determine the width of the column."""

_TONES: Final = {"SEVERE": Tone.FAULT, "ERROR": Tone.FAULT, "CRITICAL": Tone.FAULT, "WARNING": Tone.WARN}
_QUIET: Final = frozenset({"FINEST", "FINER"})


class TraceRow(NamedTuple):
    """One line of the merged trace, from an event or from a record of a file."""

    key: str
    """Identity of the row."""
    time_ns: int
    """Time in ns since 1970; 0 if it has none."""
    node: str
    """Name of the node."""
    level: str
    """Level, such as INFO."""
    state: str
    """State of the node."""
    thread: str
    """Thread that wrote it."""
    text: str
    """Message."""
    event: str
    """Event of the catalogue; empty without one."""
    source: str
    """Its place: file and byte offset, or the number of the event."""


def row_of_event(event: NodeEvent) -> TraceRow:
    """Return an event as a row. A node that was started again counts its events from 1 again."""
    key = f"{event.node}/{event.number}/{event.time_ns}"
    where = f"event {event.number} of {event.node_name}"
    return TraceRow(
        key,
        event.time_ns,
        event.node_name,
        event.level,
        event.state,
        event.thread,
        event.text,
        event.event,
        where,
    )


def row_of_record(record: TraceRecord) -> TraceRow:
    """Return a record of a file as a row."""
    key = f"{record.file}@{record.offset}"
    where = f"{record.file}, byte {record.offset:,}"
    return TraceRow(
        key,
        record.time_ns or 0,
        record.node,
        record.level,
        record.state,
        record.thread,
        record.text,
        record.event,
        where,
    )


def trace(view: View, rows: list[TraceRow], width: int) -> Rows[TraceRow]:
    """Rows of the trace, oldest first."""
    shown = rows[-MAX_SHOWN:]
    columns = [
        Column("time", f"time ({text.TIMES.name})", 12),
        Column("age", "age", 6, right=True),
        Column("mark", "", 1),
        Column("node", "node", _room_for_names(shown)),
    ]
    if width >= WIDTH_WITH_LEVEL:
        columns.append(Column("level", "level", 7))
    if width >= WIDTH_WITH_THREAD:
        columns.append(Column("thread", "thread", 20))
        columns.append(Column("state", "state", 16))
    columns.append(Column("text", "message", 20, grow=1))

    def render(row: TraceRow, key: str) -> Cell:
        tone = _TONES.get(row.level, Tone.DIM if row.level in _QUIET else Tone.PLAIN)
        if key == "text":
            return single(event_message(row.event, row.state, row.text), tone)
        if key == "mark":
            signs = {Tone.FAULT: view.glyphs.fault, Tone.WARN: view.glyphs.warn}
            return (Span(signs.get(tone, " "), tone),)
        if key == "level":
            return single(row.level, tone)
        plain = {
            "time": text.moment(row.time_ns)[11:] if row.time_ns else "no time",
            "age": text.age(view.now_ns - row.time_ns) if row.time_ns else "",
            "node": row.node,
            "thread": row.thread,
            "state": state_name(row.state),
        }
        return single(plain[key], Tone.PLAIN if key == "node" else Tone.DIM)

    kept = [(row.key, row) for row in shown]
    return Rows(columns, kept, render, width=width, fixed=len(columns))


def _room_for_names(rows: list[TraceRow]) -> int:
    """Cells for the names of the nodes, within reason."""
    return min(max(4, *(cell_len(row.node) for row in rows[-NAMED:]), 4), MOST_NAME)


def nothing_lines(reason: str) -> list[Line]:
    """Return the lines shown in place of an empty trace."""
    return [(Span(f" {reason}", Tone.DIM),)]


def row_lines(view: View, row: TraceRow, width: int) -> list[Line]:
    """Return one line of the trace in full, and what it means."""
    head = (
        Span(f" {text.moment(row.time_ns)}", Tone.STRONG),
        Span(f"  {row.node}  {row.level}  {row.state}  ({row.thread})  {row.source}", Tone.DIM),
    )
    ellipsis = view.glyphs.ellipsis
    lines: list[Line] = [head]
    lines += [(Span(f" {part}"),) for part in text.wrap(row.text, max(20, width - 2), 4, ellipsis=ellipsis)]
    if row.event in catalogue():
        meaning = f"{row.event}: {catalogue()[row.event].meaning}"
        wrapped = text.wrap(meaning, max(20, width - 2), 3, ellipsis=ellipsis)
        lines += [(Span(f" {part}", Tone.DIM),) for part in wrapped]
    return lines


def title(source: str, shown: int, every: int, left_out: int) -> str:
    """Return the title with the numbers of shown, hidden and dropped rows.

    `source` names what is shown, `shown` of `every` row pass the filter, and `left_out` older ones were
    dropped.
    """
    parts = [f"{source}: {shown:,} of {every:,}" if shown != every else f"{source}: {shown:,}"]
    if shown > MAX_SHOWN:
        parts.append(f"the newest {MAX_SHOWN:,} of them shown")
    if left_out:
        parts.append(f"{left_out:,} older ones not kept")
    return ", ".join(parts)


FIELDS: Final = ("node", "level", "thread", "state", "fellow", "ns", "group", "conflict", "event")
"""Fields of the filter: those of `ospltool trace`, and the node."""


class TraceScreen(TableScreen):
    """Events as nodes send them, or with `v` the records of trace files; the newest are followed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("v", "other_source", "files"),
        Binding("f", "follow", "follow"),
    ]
    NAME = "trace"
    TITLE_OF_SCREEN = "trace"
    FILTER_FIELDS = FIELDS
    # Chosen by eye: a header and some lines of the message.
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
            from tui import trace_lines as sources  # reading traces costs a tenth of the console's start

            self._made_from = made_from
            if files and self.from_files:
                records = files.records()
                self._every = len(records)
                self._rows = [*map(row_of_record, sources.wanted_records(records, view.filter))]
            else:
                self._every = len(view.model.events)
                kept = sources.wanted_events(view.model.events, view.filter)
                self._rows = [*map(row_of_event, kept)]
        return trace(view, self._rows, width)

    def table_title(self, view: View, rows: Rows[TraceRow]) -> str:
        """Return the title of the table."""
        files = self.console.trace_files
        if files and self.from_files:
            return title("trace files", len(self._rows), self._every, files.seen - self._every)
        return title("events", len(self._rows), self._every, view.model.events_left_out)

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
            return nothing_lines("no line of the trace files matches" if self._every else "no line yet")
        return nothing_lines(no_events(view))

    def about(self, view: View, row: TraceRow, width: int) -> list[Line]:
        """Return the record in full, and what it means."""
        return row_lines(view, row, width)

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
            self.console.show_message("no trace files are followed; name them with --trace")
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
