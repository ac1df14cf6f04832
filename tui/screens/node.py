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
from ospltool.views.curves import LEAST_HEIGHT, MOST_HEIGHT, area
from ospltool.views.node import card, curves, fellows, name_spaces, subject_node
from ospltool.views.view import (
    Subject,
    View,
)
from tui import panels
from tui.screens.base import OpsScreen, neighbour_keys, share
from tui.widgets.lines import Lines
from tui.widgets.sheet import Sheet

PARTS = ("fellows", "spaces", "joiners")
CURVES = ("stored", "gaps")


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

    @property
    def named(self) -> str:
        """The name of the node."""
        return self._node.snapshot.name if self._node else ""

    def body(self) -> ComposeResult:
        """Return the card and three tables, each under its title."""
        yield Lines(id="card", classes="free")
        for part in PARTS:
            yield Sheet(id=part, classes="panel")
        with Horizontal(id="curves"):
            for curve in CURVES:
                yield Lines(id=curve, classes="panel")
        yield Lines(id="told", classes="panel")

    def show(self, view: View) -> None:
        """Fill card and tables, and share the height."""
        width = self.inner
        node = self._node = subject_node(view)
        self.heading = f"node {node.snapshot.name}" if node else "node"
        lines = card(view, node, width) if node else panels.nothing_lines(view, "nodes")
        self.fill("#card", lines)
        if node is None:
            for part in PARTS:
                self.panel(f"#{part}", "", 0)
            self.panel("#told", "", 0)
            self.query_one("#curves", Horizontal).display = False
            return
        rows: dict[str, Rows[Any]] = {
            "fellows": fellows(view, node, width),
            "spaces": name_spaces(view, node, width),
            "joiners": deliveries(view, [node], width),
        }
        self._rows = rows
        shown = [part for part in PARTS if rows[part].keys or rows[part].hidden]
        room = max(0, self.room - len(lines) - self.frame * len(shown))
        heights = dict(zip(shown, share([len(rows[part].keys) + 1 for part in shown], room), strict=True))
        nouns = {"fellows": "fellow", "spaces": "name-space", "joiners": "late joiner"}
        for part in PARTS:
            title = table_title([plural(len(rows[part].keys), nouns[part])], rows[part].hidden)
            self.query_one(f"#{part}", Sheet).show(rows[part])
            self.panel(f"#{part}", title, heights.get(part, 0))
        left = room - sum(heights.values())
        left -= self._show_curves(view, node, left)
        self.show_events(view, lambda event: event.node == node.id, left)

    def _show_curves(self, view: View, node: Node, room: int) -> int:
        """Show the curves side by side where there is room; return their height."""
        row = self.query_one("#curves", Horizontal)
        row.display = room >= LEAST_HEIGHT
        if not row.display:
            return 0
        height = min(room, MOST_HEIGHT)
        row.styles.height = height
        width = self.size.width // len(CURVES) - 2 * self.is_roomy
        for curve, (title, points) in zip(CURVES, curves(view, node), strict=True):
            lines = area(points, view.now_ns, width, height - self.frame, view.glyphs)
            self.panel(f"#{curve}", title, height - self.frame, lines)
        return height

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
