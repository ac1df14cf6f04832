"""The screen of groups."""

from __future__ import annotations

from typing import ClassVar

from textual import on

from ospltool.live.groups import GroupKey
from tui.cells import Line, Rows
from tui.screens.table import TableScreen
from tui.viewmodel import groups
from tui.viewmodel.base import Subject, View
from tui.widgets.sheet import Sheet


class GroupsScreen(TableScreen):
    """All groups of the system."""

    NAME = "groups"
    TITLE_OF_SCREEN = "groups"
    FILTER_FIELDS = groups.GROUP_FIELDS
    ABOUT_LINES: ClassVar[int] = 12

    def table(self, view: View, width: int) -> Rows[GroupKey]:
        """Return the groups."""
        return groups.groups(view, width)

    def table_title(self, view: View, rows: Rows[GroupKey]) -> str:
        """Return the title of the table."""
        return groups.group_title(view, rows)

    def about(self, view: View, row: GroupKey, width: int) -> list[Line]:
        """Return the group on each node."""
        return groups.group_lines(view, row)

    def here(self) -> Subject:
        """Return the name-space of the group under the cursor."""
        if self.row is None:
            return super().here()
        return Subject(self.console.subject.node, self.row.name_space, self.row.id)

    @on(Sheet.Chosen)
    def _chosen(self) -> None:
        self.action_jump("name-space")
