"""The screen of stores."""

from __future__ import annotations

from typing import ClassVar

from textual import on

from ospltool.live.nodes import Node
from tui.cells import Line, Rows
from tui.screens.table import TableScreen
from tui.viewmodel import stores
from tui.viewmodel.base import Subject, View
from tui.widgets.sheet import Sheet


class StoreScreen(TableScreen):
    """The store of each node."""

    NAME = "store"
    TITLE_OF_SCREEN = "store"
    ABOUT_LINES: ClassVar[int] = 40
    FILTER_FIELDS = stores.STORE_FIELDS

    def table(self, view: View, width: int) -> Rows[Node]:
        """Return the stores."""
        return stores.stores(view, width)

    def table_title(self, view: View, rows: Rows[Node]) -> str:
        """Return the title of the table."""
        return stores.store_title(view, rows)

    def about(self, view: View, row: Node, width: int) -> list[Line]:
        """Return the messages of the store."""
        return stores.store_lines(view, row, width)

    def here(self) -> Subject:
        """Return the node whose store it is."""
        if self.row is None:
            return super().here()
        return Subject(self.row.id, self.console.subject.name_space)

    @on(Sheet.Chosen)
    def _chosen(self) -> None:
        self.action_jump("node")
