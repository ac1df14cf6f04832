"""Findings of the check about the live system."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from textual import on, work

from engine.runtime.monitor import NodeSnapshot
from ospltool.diagnostics.model import Finding, Severity
from ospltool.live.model import SystemModel
from ospltool.output.text import plural
from ospltool.views import text
from ospltool.views.cells import Cell, Column, Line, Rows, Span, Tone, single, table_title
from ospltool.views.view import Subject, View
from tui.screens.base import TableScreen
from tui.widgets.sheet import Sheet

if TYPE_CHECKING:
    from tui import advertised

FIELDS = ("code", "name", "node", "severity")

_TONES = {Severity.ERROR: Tone.FAULT, Severity.WARNING: Tone.WARN, Severity.INFO: Tone.PLAIN}


def finding_rows(view: View, found: Sequence[Finding], width: int) -> Rows[Finding]:
    """Return the findings, the worst first."""
    columns = (
        Column("mark", "", 1),
        Column("code", "rule", 7),
        Column("nodes", "nodes", 10, grow=1, most=30),
        Column("message", "finding", 30, grow=5),
    )

    def render(one: Finding, key: str) -> Cell:
        tone = _TONES[one.severity]
        glyphs = view.glyphs
        if key == "mark":
            sign = {Tone.FAULT: glyphs.fault, Tone.WARN: glyphs.warn}.get(tone, glyphs.nothing)
            return (Span(sign, tone),)
        if key == "message":
            return single(one.message, tone)
        return single(one.code if key == "code" else ", ".join(one.nodes), Tone.DIM)

    kept = [
        (f"{one.code}/{number}", one)
        for number, one in enumerate(found)
        if view.filter.matches(
            {
                "code": one.code,
                "name": one.name,
                "node": " ".join(one.nodes),
                "severity": one.severity.label,
                "message": one.message,
            }
        )
    ]
    return Rows(columns, kept, render, width=width, fixed=2, hidden=len(found) - len(kept))


def finding_lines(view: View, one: Finding, width: int) -> list[Line]:
    """Return one finding in full, what to do about it, and the command that explains the rule."""
    ellipsis = view.glyphs.ellipsis
    room = max(20, width - 2)
    lines: list[Line] = [
        (Span(f" {one.code} {one.name}", Tone.STRONG), Span(f"  {one.severity.label}", Tone.DIM))
    ]
    lines += [(Span(f" {part}"),) for part in text.wrap(one.message, room, 3, ellipsis=ellipsis)]
    if one.advice:
        lines += [(Span(f" {part}"),) for part in text.wrap(one.advice, room, 3, ellipsis=ellipsis)]
    lines.append((Span(f" more: ospltool explain {one.code}", Tone.DIM),))
    return lines


def title(view: View, found: Sequence[Finding], hidden: int, *, running: bool) -> str:
    """Return the title with the numbers of findings by severity.

    Of these the filter hides `hidden`; none is known yet while the check is running.
    """
    heard = sum(map(view.is_heard, view.model.nodes))
    if not heard:
        return "no node is heard, so nothing can be compared"
    if running:
        return "findings, being worked out"
    worst = [
        plural(sum(1 for one in found if one.severity is severity), severity.label)
        for severity in (Severity.ERROR, Severity.WARNING, Severity.INFO)
        if any(one.severity is severity for one in found)
    ]
    who = f"{heard:,} nodes advertise" if heard > 1 else "the node advertises"
    return table_title([*worst] or [f"no findings: what {who} fits together"], hidden)


def none_lines(*, running: bool) -> list[Line]:
    """Return the lines shown without findings: what was compared, and what was not."""
    if running:
        return []
    told = (
        "compared: what nodes advertise; for readers and writers: `ospltool doctor`",
        "for their configurations: `ospltool check FILE`",
    )
    return [(Span(f" {line}", Tone.DIM),) for line in told]


# Checking 200 nodes takes tens of milliseconds, and configurations do not change.
PAUSE_NS: Final = 2_000_000_000
"""The nodes are looked at again after this time at the earliest."""


class FindingsScreen(TableScreen):
    """Findings of the check's rules on advertised settings, computed in a thread after each change."""

    NAME = "findings"
    TITLE_OF_SCREEN = "findings"
    FILTER_FIELDS = FIELDS

    def __init__(self) -> None:
        super().__init__()
        self._found: tuple[Finding, ...] = ()
        self._model: SystemModel | None = None
        self._about: advertised.Advertised | None = None
        self._seen = -1
        self._looked_ns = 0
        self._working = False

    def table(self, view: View, width: int) -> Rows[Finding]:
        """Return the findings so far; new ones are worked out when the nodes advertise something else."""
        if view.model is not self._model:  # another system is shown
            self._model, self._found, self._about, self._seen = view.model, (), None, -1
        seen = view.model.revision
        is_due = self._about is None or abs(view.now_ns - self._looked_ns) >= PAUSE_NS
        if is_due and not self._working and seen != self._seen:
            self._seen = seen
            self._looked_ns = view.now_ns
            self._working = True
            nodes = view.model.ordered_nodes()
            snapshots = [node.snapshot for node in nodes if not view.health.is_away(node)]
            self._work_out(view.model, snapshots)
        return finding_rows(view, self._found, width)

    @work(thread=True, description="findings")  # Textual would write out all snapshots
    def _work_out(self, model: SystemModel, snapshots: list[NodeSnapshot]) -> None:
        """Compute the findings in a thread, since with hundreds of nodes even the comparison takes a while.

        Meanwhile threads take turns ten times as often, so that keys are answered at once.
        """
        from tui import advertised  # the rules of check cost a seventh of the console's start

        usual_s = sys.getswitchinterval()
        sys.setswitchinterval(usual_s / 10)
        try:
            about = advertised.advertised(snapshots)
            found = self._found if about == self._about else advertised.findings_of(snapshots)
        finally:
            sys.setswitchinterval(usual_s)
        self.app.call_from_thread(self._worked_out, model, about, found)

    def _worked_out(
        self, model: SystemModel, about: advertised.Advertised, found: tuple[Finding, ...]
    ) -> None:
        self._working = False
        if model is not self._model:
            return
        is_new = self._about is None or found != self._found
        self._about, self._found = about, found
        if is_new:
            self.refresh_now()

    def table_title(self, view: View, rows: Rows[Finding]) -> str:
        """Return the title of the table."""
        return title(view, self._found, rows.hidden, running=self._about is None)

    def about(self, view: View, row: Finding, width: int) -> list[Line]:
        """Return the finding and what to do about it."""
        return finding_lines(view, row, width)

    def instead(self, view: View) -> list[Line]:
        """Return the lines shown without findings."""
        return none_lines(running=self._about is None) if not self.filter else []

    def here(self) -> Subject:
        """Return the first node that the finding is about."""
        if self.row is None or not self.row.nodes:
            return super().here()
        named = [
            node.id for node in self.console.model.ordered_nodes() if node.snapshot.name in self.row.nodes
        ]
        return Subject(next(iter(named), ""), self.console.subject.name_space)

    @on(Sheet.Chosen)
    def _chosen(self) -> None:
        self.action_jump("node")
