"""The table of the late joiners that nodes serve."""

from __future__ import annotations

from engine.runtime.monitor import DeliveryView
from ospltool.live.nodes import Node
from tui import text
from tui.cells import Cell, Column, Rows, Span, Tone, single
from tui.viewmodel.base import View

Delivery = tuple[Node, DeliveryView]


def deliveries(view: View, nodes: list[Node], width: int) -> Rows[Delivery]:
    """Return the late joiners that these nodes serve or served, the newest first."""
    columns = (
        Column("mark", "", 1),
        Column("since", "since", 6, right=True),
        Column("node", "by", 8, grow=1, most=16),
        Column("topic", "late joiner of", 16, grow=3, most=40),
        Column("participant", "participant", 11, grow=3, most=36),
        Column("state", "state", 8),
        Column("samples", "samples", 8, right=True),
        Column("took", "took", 8, right=True),
        Column("problem", "", 4, grow=4),
    )

    def render(delivery: Delivery, key: str) -> Cell:
        node, view_ = delivery
        if key == "mark":
            return (_delivery_mark(view, view_.state),)
        if key == "problem":
            return single(view_.problem, Tone.FAULT if view_.state == "failed" else Tone.WARN)
        plain = {
            "since": text.age(view.now_ns - view_.started_ns),
            "node": node.snapshot.name,
            "topic": f"{view_.partition}.{view_.topic}",
            "participant": view_.participant,
            "state": view_.state,
            "samples": text.count(view_.samples),
            "took": took(view_.started_ns, view_.finished_ns),
        }
        return single(plain[key], Tone.PLAIN if key in ("topic", "samples") else Tone.DIM)

    rows = [
        (f"{node.id}/{d.participant}/{d.partition}/{d.topic}/{d.started_ns}", (node, d))
        for node in nodes
        for d in node.snapshot.deliveries
        if view.filter.matches({"node": node.snapshot.name, "topic": d.topic, "state": d.state})
    ]
    rows.sort(key=lambda row: (-row[1][1].started_ns, row[0]))
    return Rows(columns, rows, render, width=width, fixed=4)


def _delivery_mark(view: View, state: str) -> Span:
    glyphs = view.glyphs
    return {
        "waiting": Span(glyphs.idle),
        "running": Span(glyphs.busy),
        "done": Span(glyphs.ok, Tone.DIM),
        "failed": Span(glyphs.fault, Tone.FAULT),
    }.get(state, Span(glyphs.warn, Tone.WARN))


def took(started_ns: int, finished_ns: int) -> str:
    """Return a duration to a hundredth of a second; empty while it runs."""
    if finished_ns <= started_ns:
        return ""
    seconds = (finished_ns - started_ns) / 1e9
    return f"{seconds:.2f} s" if seconds < 100 else text.age(finished_ns - started_ns)
