"""The screens of one subject: a node, or a name-space."""

from __future__ import annotations

from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal

from ospltool.live.nodes import Node
from tui.cells import Rows, table_title
from tui.screens.base import OpsScreen, set_height, share
from tui.viewmodel import panels
from tui.viewmodel import subject as views
from tui.viewmodel.base import Subject, View, plural
from tui.widgets.curve import LEAST_HEIGHT, Curve
from tui.widgets.lines import Lines
from tui.widgets.sheet import Sheet

PARTS = ("fellows", "spaces", "joiners")
MOST_HEIGHT = 16
"""A plot does not get better above this height."""


def _neighbours(name: str) -> list[BindingType]:
    """Return the keys to the subjects before and after the one that is shown."""
    return [
        Binding("less_than_sign", "neighbour(-1)", f"{name} before", key_display="<", show=False),
        Binding("greater_than_sign", "neighbour(1)", f"next {name}", key_display=">", show=False),
    ]


class NodeScreen(OpsScreen):
    """Who the node is, its fellows, its name-spaces, and the late joiners that it serves."""

    BINDINGS: ClassVar[list[BindingType]] = _neighbours("node")
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
        node = self._node = views.subject_node(view)
        self.heading = f"node {node.snapshot.name}" if node else "node"
        nobody = [panels.rule_line(view, "no node heard yet", width)]
        self.fill("#card", views.card(view, node) if node else nobody)
        if node is None:
            for part in PARTS:
                self._show_part(view, part, None, "", 0)
            self.query_one("#curves", Horizontal).display = False
            return
        rows: dict[str, Rows[Any]] = {
            "fellows": views.fellows(view, node, width),
            "spaces": views.name_spaces(view, node, width),
            "joiners": views.deliveries(view, [node], width),
        }
        self._rows = rows
        room = max(0, self.room - 5 - len(PARTS))
        heights = share([len(rows[part].keys) + bool(rows[part].keys) for part in PARTS], room)
        nouns = {"fellows": "fellow", "spaces": "name-space", "joiners": "late joiner"}
        for part, height in zip(PARTS, heights, strict=True):
            title = table_title([plural(len(rows[part].keys), nouns[part])], rows[part].hidden)
            self._show_part(view, part, rows[part], title, height)
        self._show_curves(view, node, room - sum(heights))

    def _show_curves(self, view: View, node: Node, room: int) -> None:
        curves = self.query_one("#curves", Horizontal)
        curves.display = room >= LEAST_HEIGHT
        if not curves.display:
            return
        curves.styles.height = min(room, MOST_HEIGHT)
        for curve, (title, points) in zip(curves.query(Curve), views.curves(view, node), strict=True):
            curve.show(title, points, view.now_ns)

    def _show_part(self, view: View, part: str, rows: Rows[Any] | None, title: str, height: int) -> None:
        lines = [panels.rule_line(view, title, self.size.width)] if rows is not None else []
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


class NameSpaceScreen(OpsScreen):
    """A name-space: definitions of the nodes, present masters with reasons, and former masters."""

    BINDINGS: ClassVar[list[BindingType]] = _neighbours("name-space")
    NAME = "name-space"
    TITLE_OF_SCREEN = "name-space"
    FILTER_FIELDS = ("node", "role", "state")

    def __init__(self) -> None:
        super().__init__()
        self._space = ""
        self._rows: Rows[Any] | None = None

    def body(self) -> ComposeResult:
        """Yield definition, masters, nodes, trouble and history."""
        yield Lines(id="definition")
        yield Lines(id="masters")
        yield Lines(id="nodes-title")
        yield Sheet(id="nodes")
        yield Lines(id="trouble")
        yield Lines(id="history")

    def show(self, view: View) -> None:
        """Fill all parts and share the height."""
        width = self.size.width
        name = self._space = views.subject_name_space(view)
        self.heading = f"name-space {name}" if name else "name-space"
        rows = self._rows = views.holders(view, name, width)
        masters = views.master_lines(view, name)
        trouble = views.trouble_lines(view, name, panels.current_incidents(view))
        history = views.history_lines(view, name)
        nothing = [panels.rule_line(view, "no name-space heard yet", width)]
        nothing += panels.nothing_lines(view, "name-spaces")
        definition = views.definition_lines(view, name) if name else nothing
        room = self.room
        definition, masters = definition[: max(1, room // 5)], masters[: max(1, room // 5)]
        title = table_title([plural(len(rows.keys), "node")], rows.hidden)
        self.fill("#definition", definition)
        self.fill("#masters", masters)
        self.fill("#nodes-title", [panels.rule_line(view, title, width)] if name else [])
        left = max(0, room - len(definition) - len(masters) - 1)
        for_trouble = min(len(trouble) + 1 if trouble else 0, left // 4)
        for_nodes = min(len(rows.keys) + 1, max(2, left - for_trouble - 3))
        grid = self.query_one("#nodes", Sheet)
        set_height(grid, for_nodes if name else 0)
        grid.show(rows)
        self.fill("#trouble", panels.titled("attention", trouble, for_trouble, view, width))
        rest = max(0, left - for_trouble - for_nodes) if name else 0
        self.fill("#history", panels.titled("masters", history, rest, view, width), rest)

    def here(self) -> Subject:
        """Return the node under the cursor, with this name-space."""
        return Subject(self.query_one("#nodes", Sheet).row_key, self._space)

    def action_neighbour(self, step: int) -> None:
        """Show the next name-space, or the one before."""
        names = self.console.model.name_space_names()
        if self._space in names:
            name = names[(names.index(self._space) + step) % len(names)]
            self.console.look_at(Subject(self.console.subject.node, name))

    @on(Sheet.Chosen)
    def _chosen(self) -> None:
        self.action_jump("node")
