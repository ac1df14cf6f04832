"""Findings of the check about the live system."""

from __future__ import annotations

import sys
from typing import Final

from textual import on, work

from engine.runtime.monitor import NodeSnapshot
from ospltool.diagnostics.model import Diagnostic
from ospltool.live.model import SystemModel
from tui.cells import Line, Rows
from tui.screens.table import TableScreen
from tui.viewmodel import findings
from tui.viewmodel.base import Subject, View
from tui.widgets.sheet import Sheet

PAUSE_NS: Final = 2_000_000_000
"""The nodes are looked at again after this time at the earliest."""


class FindingsScreen(TableScreen):
    """Findings of the check's rules on advertised settings, computed in a thread after each change."""

    NAME = "findings"
    TITLE_OF_SCREEN = "findings"
    FILTER_FIELDS = findings.FIELDS

    def __init__(self) -> None:
        super().__init__()
        self._found: tuple[Diagnostic, ...] = ()
        self._model: SystemModel | None = None
        self._about: findings.Advertised | None = None
        self._seen = -1
        self._looked_ns = 0
        self._working = False

    def table(self, view: View, width: int) -> Rows[Diagnostic]:
        """Return the findings so far; new ones are worked out when the nodes advertise something else."""
        if view.model is not self._model:  # another system is shown
            self._model, self._found, self._about, self._seen = view.model, (), None, -1
        seen = view.model.revision
        is_due = self._about is None or abs(view.now_ns - self._looked_ns) >= PAUSE_NS
        if is_due and not self._working and seen != self._seen:
            self._seen = seen
            self._looked_ns = view.now_ns
            self._working = True
            snapshots = [node.snapshot for node in view.model.ordered_nodes() if not node.is_away]
            self._work_out(view.model, snapshots)
        return findings.finding_rows(view, self._found, width)

    @work(thread=True, description="findings")  # Textual would write out all snapshots
    def _work_out(self, model: SystemModel, snapshots: list[NodeSnapshot]) -> None:
        """Compute the findings in a thread, since with hundreds of nodes even the comparison takes a while.

        Meanwhile threads take turns ten times as often, so that keys are answered at once.
        """
        usual_s = sys.getswitchinterval()
        sys.setswitchinterval(usual_s / 10)
        try:
            about = findings.advertised(snapshots)
            found = self._found if about == self._about else findings.findings_of(snapshots)
        finally:
            sys.setswitchinterval(usual_s)
        self.app.call_from_thread(self._worked_out, model, about, found)

    def _worked_out(
        self, model: SystemModel, about: findings.Advertised, found: tuple[Diagnostic, ...]
    ) -> None:
        self._working = False
        if model is not self._model:
            return
        is_new = self._about is None or found != self._found
        self._about, self._found = about, found
        if is_new:
            self.refresh_now()

    def table_title(self, view: View, rows: Rows[Diagnostic]) -> str:
        """Return the title of the table."""
        return findings.title(view, self._found, rows.hidden, running=self._about is None)

    def about(self, view: View, row: Diagnostic, width: int) -> list[Line]:
        """Return the finding and what to do about it."""
        return findings.finding_lines(view, row, width)

    def instead(self, view: View) -> list[Line]:
        """Return the lines shown without findings."""
        return findings.none_lines(running=self._about is None) if not self.filter else []

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
