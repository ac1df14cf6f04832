"""The matrix of nodes and name-spaces, and the explanation of the cell under the cursor."""

from __future__ import annotations

from typing import Final

from ospltool.live.model import Node
from tui import text
from tui.cells import Cell, Column, Line, Span, Tone, dimmed, single
from tui.viewmodel.base import (
    View,
    master_mark,
    name_space_state,
    node_mark,
    node_state,
    plural,
    since_heard,
)

FIELDS: Final = ("node", "role", "host", "state", "ns")


class Overview:
    """The matrix of nodes and name-spaces. Rows and columns are settled at once, cells when looked at."""

    fixed = 4

    def __init__(self, view: View, width: int) -> None:
        self._view = view
        self._nodes = [node for node in view.model.ordered_nodes() if self._keeps(node)]
        names = view.model.name_space_names()
        self.name_spaces = [name for name in names if view.filter.matches_field("ns", name)]
        self.keys = tuple(node.id for node in self._nodes)
        self.columns = self._columns(width)

    def _keeps(self, node: Node) -> bool:
        snapshot = node.snapshot
        values = {
            "node": snapshot.name,
            "role": snapshot.role,
            "host": snapshot.host,
            "state": node_state(self._view, node).text,
        }
        return self._view.filter.matches(values, skip=("ns",))

    def _columns(self, width: int) -> tuple[Column, ...]:
        longest = max((len(node.snapshot.name) for node in self._nodes), default=4)
        name_width = min(max(longest, 6), 24 if width >= 110 else 10)
        state_width = 16 if width >= 72 else 10
        fixed = (
            Column("mark", "", 1),
            Column("node", "node", name_width),
            Column("state", "state", state_width),
            Column("heartbeat", "heard", 6, right=True),
        )
        room = width - sum(column.width + 1 for column in fixed) - 1
        share = room // max(1, len(self.name_spaces)) - 2
        cell_width = min(max(share, 6), 24)
        spaces = (Column(f"ns {name}", name, cell_width) for name in self.name_spaces)
        return (*fixed, *spaces)

    def node(self, row: int) -> Node:
        """The node of a row."""
        return self._nodes[row]

    def cell(self, row: int, column: int) -> Cell:
        """One cell; dim when the node has not been heard for too long."""
        node = self._nodes[row]
        stale = node.is_stale(self._view.now_ns)
        if column >= self.fixed:
            name = self.name_spaces[column - self.fixed]
            cell = self._name_space_cell(node, name, self.columns[column].width)
        else:
            cell = self._node_cell(node, self.columns[column].key)
        return dimmed(cell) if stale else cell

    def _node_cell(self, node: Node, key: str) -> Cell:
        view = self._view
        if key == "mark":
            return (node_mark(view, node),)
        if key == "node":
            return single(node.snapshot.name)
        if key == "state":
            return (node_state(view, node),)
        tone = Tone.WARN if node.is_stale(view.now_ns) else Tone.DIM
        return single(text.age(view.now_ns - view.model.heartbeat_ns(node)), tone)

    def _name_space_cell(self, node: Node, name: str, width: int) -> Cell:
        glyphs = self._view.glyphs
        space = node.name_spaces.get(name)
        if space is None:
            return single(glyphs.nothing, Tone.DIM)
        state, fraction = name_space_state(self._view, node, space)
        figure = text.percent(fraction) if not space.complete else text.count(space.count)
        show_figure = width >= 14
        bar_width = width - 3 - (9 if show_figure else 0)
        full, empty = glyphs.bar(fraction, bar_width)
        bar_tone = Tone.DIM if space.complete else Tone.PLAIN
        cell: Cell = (
            master_mark(self._view, node, space),
            state,
            Span(" "),
            Span(full, bar_tone),
            Span(empty, Tone.DIM),
        )
        return (*cell, Span(f" {figure:>8}")) if show_figure else cell


def nothing_shown(view: View) -> list[Line]:
    """What stands in for the explanation while there is no node to explain."""
    if view.filter and view.model.nodes:
        number = plural(len(view.model.nodes), "node")
        return [(Span(f" no node matches the filter {view.filter.text!r}; {number} hidden"),)]
    lines: list[Line] = [(Span(" no node heard yet", Tone.DIM),)]
    if view.model.persistence:
        lines.append((Span(" 0 shows the persistence services"),))
    return lines


def detail(view: View, node: Node, name: str | None) -> list[Line]:
    """What the cell under the cursor means, in two lines; the most important words come first."""
    snapshot = node.snapshot
    heard = text.ago(node.age_ns(view.now_ns))
    about = f"host {snapshot.host}  pid {snapshot.pid}  role {snapshot.role}"
    lived = f"{since_heard(view, node)}  heard {heard}"
    space = node.name_spaces.get(name) if name else None
    if space is None:
        store = f"store {snapshot.store.kind} {snapshot.store.path}"
        here = f"{name} is not on {snapshot.name}" if name else snapshot.name
        return [
            (Span(f" {here}  ", Tone.STRONG), Span(f"{about}  {lived}", Tone.DIM)),
            (Span(f" {store}", Tone.DIM),),
        ]
    word = "master" if space.confirmed else "proposes"
    said = (
        f"{word} {view.model.name_of(space.master)}: {space.why}"
        if space.master
        else f"no master: {space.why}"
    )
    held = f"{space.count:,} samples in {plural(space.groups, 'group')}, {space.phase}"
    return [
        (Span(f" {space.name} on {snapshot.name}  ", Tone.STRONG), Span(said)),
        (Span(f" {held}  digest {space.digest[:8]}  epoch {space.epoch}  {about}", Tone.DIM),),
    ]
