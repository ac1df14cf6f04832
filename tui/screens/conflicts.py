"""Conflicts between nodes, and the conflict under the cursor in full."""

from __future__ import annotations

from textual import on

from ospltool.live.conflicts import ReportedConflict
from ospltool.views import text
from ospltool.views.cells import Cell, Column, Line, Rows, Span, Tone, single, table_title
from ospltool.views.view import Subject, View
from tui.screens.base import TableScreen
from tui.widgets.sheet import Sheet

CONFLICT_FIELDS = ("node", "fellow", "ns", "cause", "policy", "state")


def conflicts(view: View, width: int) -> Rows[ReportedConflict]:
    """Return the conflicts as a table."""
    columns = (
        Column("mark", "", 1),
        Column("began", "since", 6, right=True),
        Column("lasted", "lasted", 8, right=True),
        Column("node", "node", 8, grow=1, most=16, cut=view.glyphs.ellipsis),
        Column("fellow", "with", 8, grow=1, most=16, cut=view.glyphs.ellipsis),
        Column("space", "name-space", 10, grow=1, most=24),
        Column("cause", "cause", 18, grow=3, most=40),
        Column("policy", "policy", 8, grow=1, most=18),
        Column("outcome", "outcome", 8, grow=3),
    )

    def render(one: ReportedConflict, key: str) -> Cell:
        is_open = not one.ended_ns
        if key == "mark":
            return (Span(view.glyphs.conflict, Tone.CONFLICT) if is_open else Span(view.glyphs.ok, Tone.DIM),)
        if key == "outcome" and is_open:
            return single("merging" if one.policy else "open", Tone.STRONG)
        plain = {
            "began": text.age(view.now_ns - one.began_ns) if one.began_ns else "",
            "lasted": _lasted(one),
            "node": one.node_name,
            "fellow": one.fellow,
            "space": one.name_space,
            "cause": one.cause,
            "policy": one.policy,
            "outcome": one.outcome,
        }
        tone = Tone.PLAIN if is_open or key in ("cause", "outcome") else Tone.DIM
        return single(plain[key], tone)

    every = view.health.conflicts
    kept = [(one.key, one) for one in every if _shows_conflict(view, one)]
    return Rows(columns, kept, render, width=width, fixed=2, hidden=len(every) - len(kept))


def _shows_conflict(view: View, one: ReportedConflict) -> bool:
    return view.filter.matches(
        {
            "node": one.node_name,
            "fellow": one.fellow,
            "ns": one.name_space,
            "cause": one.cause,
            "policy": one.policy,
            "state": "over" if one.ended_ns else "open",
            "outcome": one.outcome,
        }
    )


def _lasted(one: ReportedConflict) -> str:
    elapsed_ns = one.ended_ns - one.began_ns
    return f"{elapsed_ns / 1e9:.2f} s" if 0 <= elapsed_ns < 100_000_000_000 and one.ended_ns else ""


def conflict_lines(view: View, one: ReportedConflict, width: int) -> list[Line]:
    """Return one conflict in full."""
    when = text.moment(one.began_ns) if one.began_ns else "now"
    ended = f", ended {text.moment(one.ended_ns)}" if one.ended_ns else ", open"
    head = (Span(f" {one.cause}", Tone.STRONG), Span(f"  began {when}{ended}", Tone.DIM))
    body = text.wrap(one.text, max(20, width - 2), 4, ellipsis=view.glyphs.ellipsis)
    return [head, *((Span(f" {line}"),) for line in body)]


def none_lines() -> list[Line]:
    """Return the lines shown without conflicts."""
    return [(Span(" no conflicts yet", Tone.DIM),)]


def conflict_title(view: View, rows: Rows[ReportedConflict]) -> str:
    """Return the title with the numbers of open, ended and hidden conflicts."""
    every = view.health.conflicts
    over = sum(1 for one in every if one.ended_ns)
    lost = view.model.conflicts.left_out
    parts = [
        f"conflicts: {len(every) - over} open, {over} over",
        f"{lost} older ones not kept" if lost else "",
    ]
    return table_title(parts, rows.hidden)


class ConflictsScreen(TableScreen):
    """Conflicts between nodes, open and past."""

    NAME = "conflicts"
    TITLE_OF_SCREEN = "conflicts"
    FILTER_FIELDS = CONFLICT_FIELDS

    def table(self, view: View, width: int) -> Rows[ReportedConflict]:
        """Return the conflicts."""
        return conflicts(view, width)

    def table_title(self, view: View, rows: Rows[ReportedConflict]) -> str:
        """Return the title of the table."""
        return conflict_title(view, rows)

    def about(self, view: View, row: ReportedConflict, width: int) -> list[Line]:
        """Return the conflict in the words of the node."""
        return conflict_lines(view, row, width)

    def instead(self, view: View) -> list[Line]:
        """Return the lines shown without conflicts."""
        return none_lines() if not self.filter else []

    def here(self) -> Subject:
        """Return the node that told of the conflict, and the name-space that it is about."""
        if self.row is None:
            return super().here()
        return Subject(self.row.node, self.row.name_space or self.console.subject.name_space)

    def moment_ns(self) -> int:
        """Return the beginning of the conflict."""
        return self.row.began_ns if self.row is not None else 0

    @on(Sheet.Chosen)
    def _chosen(self) -> None:
        self.action_jump("trace")
