"""Alignments that run, and late joiners that are served."""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from textual import on
from textual.app import ComposeResult

from engine.runtime.monitor import NameSpaceView, NodeEvent
from ospltool.live.nodes import Node
from ospltool.live.series import AlignmentProgress
from ospltool.output.text import plural
from tui import panels, text
from tui.cells import Cell, Column, Line, Rows, Span, Tone, single
from tui.panels import RepeatedEvent, lines_of_events
from tui.screens.base import OpsScreen, set_height
from tui.view import Subject, View
from tui.widgets.curve import LEAST_HEIGHT, Curve
from tui.widgets.lines import Lines
from tui.widgets.sheet import Sheet

FIELDS: Final = ("ns", "aligner", "alignee", "node", "topic", "state")
EVENTS: Final = ("align.", "merge.")
LEAST_WITH_BAR: Final = 100
_ALIGNEES: Final = re.compile(r"\((\d{1,6}) fellows total\)")


class Running(NamedTuple):
    """One alignment as one of its two sides reports it."""

    node: Node
    space: NameSpaceView
    progress: AlignmentProgress


def running(view: View) -> list[tuple[str, Running]]:
    """Return all alignments, each once: as the alignee tells it, or the aligner when that is silent."""
    found: dict[tuple[str, str, str], Running] = {}
    for node in view.model.ordered_nodes():
        if view.health.is_away(node):
            continue
        for space, progress in view.model.progress(node):
            alignment = progress.alignment
            received = alignment.direction == "from"
            pair = (node.id, alignment.fellow) if received else (alignment.fellow, node.id)
            key = (space.name, *pair)
            if received or key not in found:
                found[key] = Running(node, space, progress)
    return [("/".join(key), one) for key, one in found.items()]


def sides(view: View, one: Running) -> tuple[str, str]:
    """Return the names of aligner and alignee."""
    fellow = view.model.name_of(one.progress.alignment.fellow)
    if one.progress.alignment.direction == "from":
        return fellow, one.node.snapshot.name
    return one.node.snapshot.name, fellow


def alignments(view: View, width: int) -> Rows[Running]:
    """The running alignments. Where there is little room, rate and time left are worth more than a bar."""
    bar = (Column("bar", "", 10, grow=2, most=40),) if width >= LEAST_WITH_BAR else ()
    columns = (
        Column("mark", "", 1),
        Column("since", "since", 6, right=True),
        Column("space", "name-space", 10, grow=2, most=28),
        Column("aligner", "aligner", 7, grow=1, most=16, cut=view.glyphs.ellipsis),
        Column("alignee", "alignee", 7, grow=1, most=16, cut=view.glyphs.ellipsis),
        *bar,
        Column("percent", "done", 5, right=True),
        Column("samples", "samples", 15, right=True),
        Column("rate", "rate", 9, right=True),
        Column("left", "left", 6, right=True),
        Column("bytes", "received", 9, right=True),
    )
    width_of_bar = 0

    def render(one: Running, key: str) -> Cell:
        if key == "bar":
            full, empty = view.glyphs.bar(one.progress.fraction, width_of_bar)
            return (Span(full), Span(empty, Tone.DIM))
        return _cell(view, one, key)

    kept = []
    for key, one in running(view):
        aligner, alignee = sides(view, one)
        if view.filter.matches({"ns": one.space.name, "aligner": aligner, "alignee": alignee}):
            kept.append((key, one))
    rows = Rows(columns, kept, render, width=width, fixed=3)
    width_of_bar = next((column.width for column in rows.columns if column.key == "bar"), 0)
    return rows


def _cell(view: View, one: Running, key: str) -> Cell:
    progress, alignment = one.progress, one.progress.alignment
    if key == "mark":
        stalled = view.now_ns - progress.moved_ns > 10_000_000_000
        sign = Span(view.glyphs.warn, Tone.WARN) if stalled else Span(view.glyphs.busy)
        return (sign,)
    if key in ("rate", "left") and view.is_stale(one.node):
        return single("")  # what was so when its node was heard
    aligner, alignee = sides(view, one)
    plain = {
        "since": text.age(view.now_ns - alignment.started_ns),
        "space": one.space.name,
        "aligner": aligner,
        "alignee": alignee,
        "percent": text.percent(progress.fraction),
        "samples": f"{text.count(alignment.samples)}/{text.count(alignment.expected)}",
        "rate": f"{text.count(round(progress.rate_per_s))}/s" if progress.rate_per_s else "",
        "left": "" if progress.left_s is None else text.age(int(progress.left_s * 1e9)),
        "bytes": text.size(alignment.bytes),
    }
    return single(plain[key], Tone.DIM if key in ("since", "bytes") else Tone.PLAIN)


def curve(view: View, one: Running) -> tuple[str, list[tuple[int, float]]]:
    """Return the samples of one alignment over time, with a title."""
    aligner, alignee = sides(view, one)
    alignment = one.progress.alignment
    points = view.model.history(one.node.id, one.space.name, alignment.fellow, alignment.direction)
    received = plural(alignment.samples, "sample")
    title = f"{one.space.name}, {aligner} {view.glyphs.arrow} {alignee}: {received} received"
    return title, [(time_ns, float(samples)) for time_ns, samples in points]


def request_events(view: View, number: int) -> list[NodeEvent]:
    """Return the newest events about requests, their combination and their answers, oldest first."""
    found: list[NodeEvent] = []
    for event in reversed(view.model.events):
        if event.event.startswith(EVENTS) and _keeps_event(view, event):
            found.append(event)
            if len(found) >= number:
                break
    return found[::-1]


def _keeps_event(view: View, event: NodeEvent) -> bool:
    """Words of the filter are looked for in the message; its fields are those of the tables."""
    return view.filter.matches({"node": event.node_name, "text": event.text}, skip=FIELDS)


def told_lines(view: View, number: int, width: int) -> list[Line]:
    """Return the newest requests and answers that nodes reported while watching, at most `number`."""
    if number <= 0:
        return []
    events = request_events(view, number)
    if not events:
        return [(Span(" no requests yet", Tone.DIM),)]
    single_ones = [RepeatedEvent(event, frozenset((event.node,))) for event in events]
    return lines_of_events(view, single_ones, width)


def counts(view: View) -> str:
    """Return the number of received requests, and of those answered together with another one."""
    received = combined = 0
    for event in view.model.events:
        if event.event == "align.request-received":
            received += 1
        elif event.event == "align.sent":
            alignees = _ALIGNEES.search(event.text)
            combined += int(alignees[1]) - 1 if alignees else 0
    return f"{plural(received, 'request')} received while watching, {combined} combined with another"


def idle_lines(view: View) -> list[Line]:
    """Return the lines shown without alignments."""
    waiting = [
        (node, space)
        for node in view.model.ordered_nodes()
        if not view.health.is_away(node)
        for space in node.snapshot.name_spaces
        if not space.is_at_rest and not space.alignments
    ]
    if not waiting and not view.is_anybody_heard:
        return [(Span(" no node is heard, so no alignment is seen", Tone.DIM),)]
    if not waiting:
        spaces = [space for node in view.model.nodes.values() for space in node.snapshot.name_spaces]
        parts = sum(1 for space in spaces if space.is_less_than_whole)
        rest = f" but {parts:,}, which may stay without samples" if parts else ""
        return [(Span(f" nothing is being aligned: every set is complete{rest}", Tone.DIM),)]
    return [
        (
            Span(f" {view.glyphs.idle} "),
            Span(f"{space.name} on {node.snapshot.name} is not complete and waits in phase {space.phase}"),
        )
        for node, space in waiting
    ]


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
        joiners = self._joiners = panels.deliveries(view, nodes, width)
        room = max(0, self.room - 2)
        self.fill("#title", [panels.rule_line(view, plural(len(rows.keys), "alignment"), width)])
        idle = [] if rows.keys else idle_lines(view)[: max(1, room // 2)]
        self.fill("#idle", idle)
        for_alignments = min(len(rows.keys) + 1, max(2, room * 2 // 3)) if rows.keys else 0
        grid = self.query_one("#alignments", Sheet)
        set_height(grid, for_alignments)
        grid.show(rows)
        title = plural(len(joiners.keys), "late joiner") + " served"
        self.fill("#joiners-title", [panels.rule_line(view, title, width)])
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
