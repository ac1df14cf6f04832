"""The screen of one node."""

from __future__ import annotations

from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal

from ospltool.live.nodes import Node
from ospltool.output.text import plural
from ospltool.views.alignment import deliveries
from ospltool.views.cells import (
    Rows,
    table_title,
)
from ospltool.views.node import card, curves, fellows, name_spaces, subject_node
from ospltool.views.view import (
    Subject,
    View,
    rule_line,
)
from tui.screens.base import OpsScreen, neighbour_keys, set_height, share
from tui.widgets.curve import LEAST_HEIGHT, Curve
from tui.widgets.lines import Lines
from tui.widgets.sheet import Sheet

PARTS = ("fellows", "spaces", "joiners")
MOST_HEIGHT = 16
"""A plot does not get better above this height."""


class NodeScreen(OpsScreen):
    """Who the node is, its fellows, its name-spaces, and the late joiners that it serves."""

    BINDINGS: ClassVar[list[BindingType]] = neighbour_keys("node")
    NAME = "node"
    TITLE_OF_SCREEN = "node"
    FILTER_FIELDS = ("fellow", "role", "state", "ns", "topic")

    def __init__(self) -> None:
        super().__init__()
        self._node: Node | None = None
        self._rows: dict[str, Rows[Any]] = {}

    def body(self) -> ComposeResult:
        """Return the card and three tables, each under its title."""
        yield Lines(id="card")
        for part in PARTS:
            yield Lines(id=f"{part}-title")
            yield Sheet(id=part)
        with Horizontal(id="curves"):
            yield Curve(id="stored")
            yield Curve(id="gaps")

    def show(self, view: View) -> None:
        """Fill card and tables, and share the height."""
        width = self.size.width
        node = self._node = subject_node(view)
        self.heading = f"node {node.snapshot.name}" if node else "node"
        nobody = [rule_line(view, "no node heard yet", width)]
        lines = card(view, node, width) if node else nobody
        self.fill("#card", lines)
        if node is None:
            for part in PARTS:
                self._show_part(view, part, None, "", 0)
            self.query_one("#curves", Horizontal).display = False
            return
        rows: dict[str, Rows[Any]] = {
            "fellows": fellows(view, node, width),
            "spaces": name_spaces(view, node, width),
            "joiners": deliveries(view, [node], width),
        }
        self._rows = rows
        room = max(0, self.room - len(lines) - len(PARTS))
        heights = share([len(rows[part].keys) + bool(rows[part].keys) for part in PARTS], room)
        nouns = {"fellows": "fellow", "spaces": "name-space", "joiners": "late joiner"}
        for part, height in zip(PARTS, heights, strict=True):
            title = table_title([plural(len(rows[part].keys), nouns[part])], rows[part].hidden)
            self._show_part(view, part, rows[part], title, height)
        self._show_curves(view, node, room - sum(heights))

    def _show_curves(self, view: View, node: Node, room: int) -> None:
        row = self.query_one("#curves", Horizontal)
        row.display = room >= LEAST_HEIGHT
        if not row.display:
            return
        row.styles.height = min(room, MOST_HEIGHT)
        for curve, (title, points) in zip(row.query(Curve), curves(view, node), strict=True):
            curve.show(title, points, view.now_ns)

    def _show_part(self, view: View, part: str, rows: Rows[Any] | None, title: str, height: int) -> None:
        lines = [rule_line(view, title, self.size.width)] if rows is not None else []
        self.fill(f"#{part}-title", lines)
        grid = self.query_one(f"#{part}", Sheet)
        set_height(grid, height)
        if rows is not None:
            grid.show(rows)

    def here(self) -> Subject:
        """Return the fellow under the cursor, or this node with the name-space under the cursor."""
        grid = self.focused
        mine = self._node.id if self._node else ""
        if not isinstance(grid, Sheet) or not grid.row_key:
            return Subject(mine, self.console.subject.name_space)
        if grid.id == "fellows":
            return Subject(grid.row_key, self.console.subject.name_space)
        if grid.id == "spaces":
            return Subject(mine, grid.row_key)
        return Subject(mine, self.console.subject.name_space)

    def moment_ns(self) -> int:
        """Return the beginning of the delivery under the cursor."""
        grid = self.focused
        if isinstance(grid, Sheet) and grid.id == "joiners" and self._rows:
            delivery = self._rows["joiners"].item(grid.row)
            return delivery[1].started_ns if delivery else 0
        return 0

    def action_neighbour(self, step: int) -> None:
        """Show the next node, or the one before."""
        order = [node.id for node in self.console.model.ordered_nodes()]
        if self._node and self._node.id in order:
            index = (order.index(self._node.id) + step) % len(order)
            self.console.look_at(Subject(order[index], self.console.subject.name_space))

    @on(Sheet.Chosen)
    def _chosen(self, event: Sheet.Chosen) -> None:
        targets = {"fellows": "node", "spaces": "name-space", "joiners": "trace"}
        self.action_jump(targets[event.sheet.id or "fellows"])
