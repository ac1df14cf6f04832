"""The merged trace: events as nodes send them, or the records of their trace files."""

from __future__ import annotations

from typing import Final, NamedTuple

from rich.cells import cell_len

from engine.runtime.monitor import NodeEvent
from engine.tracing.catalogue import catalogue
from ospltool.trace.reading.record import TraceRecord
from tui import text
from tui.cells import Cell, Column, Line, Rows, Span, Tone, single
from tui.viewmodel.base import View, state_name
from tui.viewmodel.panels import MOST_NAME, told

MAX_SHOWN: Final = 20_000
"""Rows of the table: the newest; older ones are counted in the title."""

WIDTH_WITH_LEVEL: Final = 100
WIDTH_WITH_THREAD: Final = 150
"""Below these widths the message needs the room more; the lines below the table have everything."""

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
        Column("time", "time (UTC)", 12),
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
            return single(told(row.event, row.state, row.text), tone)
        if key == "mark":
            signs = {Tone.FAULT: view.glyphs.fault, Tone.WARN: view.glyphs.warn}
            return (Span(signs.get(tone, " "), tone),)
        plain = {
            "time": text.moment(row.time_ns)[11:] if row.time_ns else "no time",
            "age": text.age(view.now_ns - row.time_ns) if row.time_ns else "",
            "node": row.node,
            "level": row.level,
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
