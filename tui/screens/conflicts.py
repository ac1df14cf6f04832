"""The screen of conflicts between nodes."""

from __future__ import annotations

from textual import on

from ospltool.live.conflicts import ReportedConflict
from tui.cells import Line, Rows
from tui.screens.table import TableScreen
from tui.viewmodel import conflicts
from tui.viewmodel.base import Subject, View
from tui.widgets.sheet import Sheet


class ConflictsScreen(TableScreen):
    """Conflicts between nodes, open and past."""

    NAME = "conflicts"
    TITLE_OF_SCREEN = "conflicts"
    FILTER_FIELDS = conflicts.CONFLICT_FIELDS

    def table(self, view: View, width: int) -> Rows[ReportedConflict]:
        """Return the conflicts."""
        return conflicts.conflicts(view, width)

    def table_title(self, view: View, rows: Rows[ReportedConflict]) -> str:
        """Return the title of the table."""
        return conflicts.conflict_title(view, rows)

    def about(self, view: View, row: ReportedConflict, width: int) -> list[Line]:
        """Return the conflict in the words of the node."""
        return conflicts.conflict_lines(view, row, width)

    def instead(self, view: View) -> list[Line]:
        """Return the lines shown without conflicts."""
        return conflicts.none_lines() if not self.filter else []

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
