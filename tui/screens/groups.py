"""The screen of all groups."""

from __future__ import annotations

from typing import ClassVar

from textual import on

from ospltool.live.groups import GroupKey
from ospltool.views.cells import Line, Rows
from ospltool.views.groups import GROUP_FIELDS, group_lines, group_title, groups
from ospltool.views.view import Subject, View
from tui.screens.base import TableScreen
from tui.widgets.sheet import Sheet


class GroupsScreen(TableScreen):
    """All groups of the system."""

    NAME = "groups"
    TITLE_OF_SCREEN = "groups"
    FILTER_FIELDS = GROUP_FIELDS
    # Chosen by eye, as in the other screens.
    ABOUT_LINES: ClassVar[int] = 12

    def table(self, view: View, width: int) -> Rows[GroupKey]:
        """Return the groups."""
        return groups(view, width)

    def table_title(self, view: View, rows: Rows[GroupKey]) -> str:
        """Return the title of the table."""
        return group_title(view, rows)

    def about(self, view: View, row: GroupKey, width: int) -> list[Line]:
        """Return the group on each node."""
        return group_lines(view, row)

    def here(self) -> Subject:
        """Return the name-space and the topic of the group under the cursor."""
        if self.row is None:
            return super().here()
        return Subject(self.console.subject.node, self.row.name_space, topic=self.row.topic)

    @on(Sheet.Chosen)
    def _chosen(self) -> None:
        self.action_jump("topic")
