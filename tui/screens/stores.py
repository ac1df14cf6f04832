"""The store of each node, and what the store under the cursor reports."""

from __future__ import annotations

from typing import ClassVar, Final

from textual import on

from engine.runtime.monitor import GroupView
from ospltool.live.nodes import Node
from ospltool.output.text import plural
from ospltool.views import text
from ospltool.views.cells import Cell, Column, Line, Rows, Span, Tone, dimmed, single, table_title, widest
from ospltool.views.groups import is_kept
from ospltool.views.view import Subject, View, node_mark
from tui.screens.base import TableScreen
from tui.widgets.sheet import Sheet

STORE_FIELDS = ("node", "kind", "path", "state")

# The figures beside it need the rest of a line of 100.
MOST_GROUP: Final = 50
"""Cells after which the name of a group is cut."""

MOST_KIND: Final = 9
"""Cells of the longest kind, "simulated"."""


def stores(view: View, width: int) -> Rows[Node]:
    """Return the store of each node."""
    every = view.model.ordered_nodes()
    kept = [(node.id, node) for node in every if _shows_store(view, node)]
    paths = [node.snapshot.store.path for _, node in kept]
    kind = widest((node.snapshot.store.kind for _, node in kept), 6, MOST_KIND)
    has_problem = any(node.snapshot.store.problem or node.snapshot.store.findings for _, node in kept)
    columns = (
        Column("mark", "", 1),
        Column("node", "node", 8, grow=1, most=20, cut=view.glyphs.ellipsis),
        Column("kind", "kind", kind),
        Column("complete", "complete", 8, right=True),
        Column("samples", "samples", 8, right=True),
        Column("stored", "on disk", 8, right=True),
        Column("behind", "behind", 7, right=True),
        Column("queued", "queued", 7, right=True),
        Column("bytes", "payload", 9, right=True),
        Column("disk", "disk", 9, right=True),
        *((Column("path", "path", 16, grow=6, most=widest(paths, 16, 60)),) if any(paths) else ()),
        *((Column("problem", "", 6, grow=4),) if has_problem else ()),
    )

    def render(node: Node, key: str) -> Cell:
        cell = _store_cell(view, node, key)
        return dimmed(cell) if view.is_stale(node) else cell

    return Rows(columns, kept, render, width=width, fixed=2, hidden=len(every) - len(kept))


def _shows_store(view: View, node: Node) -> bool:
    store = node.snapshot.store
    state = "degraded" if store.problem else "good"
    values = {"node": node.snapshot.name, "kind": store.kind, "path": store.path, "state": state}
    return view.filter.matches(values)


def _store_cell(view: View, node: Node, key: str) -> Cell:
    snapshot, store = node.snapshot, node.snapshot.store
    if key == "mark":
        if store.problem or view.is_stale(node):
            return (node_mark(view, node),)
        return (Span(view.glyphs.ok, Tone.DIM),)
    if key == "problem":
        return single(store.problem or "; ".join(store.findings), Tone.FAULT if store.problem else Tone.DIM)
    if key == "behind":
        behind = _behind(node)
        return single(text.count(behind) if behind else "", Tone.STRONG)
    complete = sum(1 for space in snapshot.name_spaces if space.complete)
    plain = {
        "node": snapshot.name,
        "kind": store.kind,
        "complete": f"{complete} of {len(snapshot.name_spaces)}",
        "samples": text.count(sum(group.samples for group in snapshot.groups)),
        "stored": text.count(sum(group.stored for group in snapshot.groups)),
        "queued": text.count(snapshot.counters.get("queued", 0)),
        "bytes": text.size(sum(group.bytes for group in snapshot.groups)),
        "disk": text.size(store.disk_bytes) if store.disk_bytes else "",
        "path": store.path,
    }
    return single(plain[key], Tone.PLAIN if key in ("node", "samples", "stored") else Tone.DIM)


def _behind(node: Node) -> int:
    """Samples of persistent groups that are not known to be on disk."""
    return sum(map(_lacks, node.snapshot.groups))


def store_lines(view: View, node: Node, width: int) -> list[Line]:
    """Return a store's messages at start, its problem, and its groups that are behind."""
    store = node.snapshot.store
    lines: list[Line] = [
        (Span(f" {node.snapshot.name}  ", Tone.STRONG), Span(f"{store.kind} {store.path}", Tone.DIM))
    ]
    if store.problem:
        lines.append((Span(f" {view.glyphs.fault} {store.problem}", Tone.FAULT),))
    for finding in store.findings:
        lines += [(Span(f" {part}"),) for part in text.wrap(f"at start: {finding}", max(20, width - 2), 2)]
    return [*lines, *_group_lines(view, node)]


def _group_lines(view: View, node: Node) -> list[Line]:
    """Return the groups of a store with what the disk has of each; those that are behind come first."""
    # A stable sort: groups that lack nothing stay in the order of their names.
    groups = sorted(node.snapshot.groups, key=lambda one: -_lacks(one))
    names = [f"{one.partition}.{one.topic}" for one in groups]
    longest = widest(names, 0, MOST_GROUP)
    counts = [plural(one.samples, "sample") for one in groups]
    room = widest(counts, 0, MOST_GROUP)
    lines: list[Line] = []
    for one, name, count in zip(groups, names, counts, strict=True):
        shown = text.fit(name, longest, ellipsis=view.glyphs.ellipsis)
        if lacks := _lacks(one):
            told = Span(f"  {lacks:,} of them not on disk yet")
        else:
            told = Span(
                "  on disk" if is_kept(one) else f"  {one.durability.lower()}, not kept on disk", Tone.DIM
            )
        lines.append((Span(f"   {shown}"), Span(f"  {count:>{room}}", Tone.DIM), told))
    return lines


def _lacks(group: GroupView) -> int:
    """Samples of a persistent group that are not known to be on disk."""
    return max(0, group.samples - group.stored) if is_kept(group) else 0


def store_title(view: View, rows: Rows[Node]) -> str:
    """Return the title with the numbers of shown, degraded and hidden stores."""
    bad = sum(1 for node in view.model.nodes.values() if node.snapshot.store.problem)
    return table_title([plural(len(rows.keys), "store"), f"{bad} degraded" if bad else ""], rows.hidden)


class StoreScreen(TableScreen):
    """The store of each node."""

    NAME = "store"
    TITLE_OF_SCREEN = "store"
    # All that is there: this screen has no other use for the room.
    ABOUT_LINES: ClassVar[int] = 40
    FILTER_FIELDS = STORE_FIELDS

    def table(self, view: View, width: int) -> Rows[Node]:
        """Return the stores."""
        return stores(view, width)

    def table_title(self, view: View, rows: Rows[Node]) -> str:
        """Return the title of the table."""
        return store_title(view, rows)

    def about(self, view: View, row: Node, width: int) -> list[Line]:
        """Return the messages of the store."""
        return store_lines(view, row, width)

    def here(self) -> Subject:
        """Return the node whose store it is."""
        if self.row is None:
            return super().here()
        return Subject(self.row.id, self.console.subject.name_space)

    @on(Sheet.Chosen)
    def _chosen(self) -> None:
        self.action_jump("node")
