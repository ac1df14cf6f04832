"""The screens that are one table each: conflicts, groups, store."""

from __future__ import annotations

from typing import ClassVar

from textual import on

from ospltool.live.conflicts import ReportedConflict
from ospltool.live.groups import GroupKey
from ospltool.live.nodes import Node
from tui.cells import Line
from tui.screens.table import TableScreen
from tui.viewmodel import conflicts, groups, store
from tui.viewmodel.base import Subject, View, plural
from tui.viewmodel.tables import Rows
from tui.widgets.sheet import Sheet


class ConflictsScreen(TableScreen):
    """Conflicts between nodes, open and past."""

    NAME = "conflicts"
    TITLE_OF_SCREEN = "conflicts"
    FILTER_FIELDS = conflicts.FIELDS

    def table(self, view: View, width: int) -> Rows[ReportedConflict]:
        """Return the conflicts."""
        return conflicts.conflicts(view, width)

    def table_title(self, view: View, rows: Rows[ReportedConflict]) -> str:
        """Return the title of the table."""
        return conflicts.title(view, rows)

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


class GroupsScreen(TableScreen):
    """All groups of the system."""

    NAME = "groups"
    TITLE_OF_SCREEN = "groups"
    FILTER_FIELDS = groups.FIELDS
    ABOUT_LINES: ClassVar[int] = 12

    def table(self, view: View, width: int) -> Rows[GroupKey]:
        """Return the groups."""
        return groups.groups(view, width)

    def table_title(self, view: View, rows: Rows[GroupKey]) -> str:
        """Return the title of the table."""
        return groups.title(view, rows)

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


class StoreScreen(TableScreen):
    """The store of each node."""

    NAME = "store"
    TITLE_OF_SCREEN = "store"
    FILTER_FIELDS = store.FIELDS

    def table(self, view: View, width: int) -> Rows[Node]:
        """Return the stores."""
        return store.stores(view, width)

    def table_title(self, view: View, rows: Rows[Node]) -> str:
        """Return the title of the table."""
        bad = sum(1 for node in view.model.nodes.values() if node.snapshot.store.problem)
        hidden = f", {rows.hidden} hidden by the filter" if rows.hidden else ""
        return plural(len(rows.keys), "store") + (f", {bad} degraded" if bad else "") + hidden

    def about(self, view: View, row: Node, width: int) -> list[Line]:
        """Return the messages of the store."""
        return store.store_lines(view, row, width)

    def here(self) -> Subject:
        """Return the node whose store it is."""
        return (
            Subject(self.row.id, self.console.subject.name_space) if self.row is not None else super().here()
        )

    @on(Sheet.Chosen)
    def _chosen(self) -> None:
        self.action_jump("node")
