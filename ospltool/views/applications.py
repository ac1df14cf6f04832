"""Readers and writers, as nodes report them: who waits, who gets other samples, what is not kept."""

from __future__ import annotations

from typing import Final, NamedTuple

from engine.runtime.monitor import DeliveryView, DeviationView, UnkeptView, is_nowhere
from ospltool.live.nodes import Node
from ospltool.views import alignment
from ospltool.views.cells import Cell, Column, Facts, Rows, Tone, single
from ospltool.views.view import View, shown

FIELDS: Final = ("node", "topic", "partition", "state")


class Reader(NamedTuple):
    """Readers of a topic in one process: how a node serves them, and where they see another set."""

    node: Node
    delivery: DeliveryView | None
    deviation: DeviationView | None

    @property
    def report(self) -> DeliveryView | DeviationView:
        """What the node reports of them: one of the two is there."""
        found = self.delivery or self.deviation
        assert found is not None
        return found


def _readers(view: View) -> list[Reader]:
    """Return the readers that present nodes report, those that wait first, then the newest."""
    found = []
    for node in view.model.ordered_nodes():
        if view.health.is_away(node):
            continue
        others = {(one.participant, one.topic, one.partition): one for one in node.snapshot.deviations}
        found += [
            Reader(node, each, others.pop((each.participant, each.topic, each.partition), None))
            for each in node.snapshot.deliveries
        ]
        found += [Reader(node, None, one) for one in others.values()]
    found.sort(key=lambda one: -one.delivery.started_ns if one.delivery else 0)
    found.sort(key=lambda one: not (one.delivery and one.delivery.state in ("waiting", "running", "failed")))
    return found


def _reader_facts(view: View, one: Reader) -> Facts:
    """Return the values of a reader."""
    report, delivery = one.report, one.delivery
    reasons = [alignment.waits_for(view, one.node, delivery)] if delivery else []
    reasons += [one.deviation.text] if one.deviation else []
    return {
        "topic": f"{report.partition}.{report.topic}",
        "state": ("left" if delivery.is_gone else delivery.state) if delivery else "served",
        "since": delivery.started_ns if delivery else 0,
        "node": one.node.snapshot.name,
        "samples": delivery.samples if delivery else None,
        "took": alignment.took(delivery.started_ns, delivery.finished_ns) if delivery else "",
        "participant": report.participant,
        "why": "; ".join(filter(None, reasons)),
    }


def readers(view: View, width: int, topic: str = "", *, is_noteworthy: bool = False) -> Rows[Reader]:
    """Return late joiners and readers that see other samples than the set has, with the reason.

    Args:
        view: what they are taken from.
        width: cells of the table.
        topic: only this one; empty for all.
        is_noteworthy: leave out those that have been served and see what the set has.
    """
    cut = view.glyphs.ellipsis
    columns = (
        Column("mark", "", 1),
        Column("topic", "reader of", 12, grow=3, most=40, cut=cut),
        Column("state", "state", 7),
        Column("since", "since", 6, right=True),
        Column("node", "served by", 9, grow=1, most=24, cut=cut),
        Column("samples", "samples", 7, right=True, spare=1),
        Column("took", "took", 6, right=True, spare=2),
        Column("participant", "participant", 11, grow=1, most=36, spare=3, cut=cut),
        Column("why", "why", 24, grow=6),
    )

    def render(one: Reader, key: str) -> Cell:
        state = one.delivery.state if one.delivery else "done"
        if key == "mark":
            return (alignment.delivery_mark(view, "differs" if one.deviation and state == "done" else state),)
        tone = Tone.PLAIN if key in ("topic", "samples") else Tone.DIM
        if key == "why":
            tone = Tone.FAULT if state == "failed" else Tone.WARN
        return single(shown(view, key, facts(one)[key]), tone)

    def facts(one: Reader) -> Facts:
        return _reader_facts(view, one)

    every = _readers(view)
    kept = []
    for number, one in enumerate(every):
        report = one.report
        is_quiet = one.deviation is None and (one.delivery is None or one.delivery.state == "done")
        if topic not in ("", report.topic) or (is_noteworthy and is_quiet):
            continue
        known = facts(one)
        values = {
            "node": str(known["node"]),
            "topic": report.topic,
            "partition": report.partition,
            "state": str(known["state"]),
        }
        if view.filter.matches(values):
            kept.append(
                (f"{one.node.id}/{report.participant}/{report.partition}/{report.topic}/{number}", one)
            )
    return Rows(columns, kept, render, width=width, fixed=2, hidden=len(every) - len(kept), facts=facts)


Writer = tuple[UnkeptView, tuple[str, ...]]
"""A durable writer whose data is not kept, and the names of the nodes that say so."""


def writers(view: View, width: int, topic: str = "") -> Rows[Writer]:
    """Return the durable writers whose data no node keeps, or not every node, with the reason.

    Args:
        view: what they are taken from.
        width: cells of the table.
        topic: only this one; empty for all.
    """
    present = [node for node in view.model.ordered_nodes() if not view.health.is_away(node)]
    snapshots = [node.snapshot for node in present]
    told: dict[tuple[str, str, str], list[str]] = {}
    views: dict[tuple[str, str, str], UnkeptView] = {}
    for node in present:
        for one in node.snapshot.unkept:
            if is_nowhere(one, snapshots):
                key = one.writer, one.topic, one.partition
                told.setdefault(key, []).append(node.snapshot.name)
                views[key] = one
    cut = view.glyphs.ellipsis
    columns = (
        Column("mark", "", 1),
        Column("topic", "writer of", 12, grow=3, most=40, cut=cut),
        Column("nodes", "not kept by", 11, grow=1, most=30, cut=cut),
        Column("writer", "writer", 8, grow=1, most=36, spare=1, cut=cut),
        Column("why", "why", 28, grow=6),
    )

    def facts(one: Writer) -> Facts:
        unkept, nodes = one
        return {
            "topic": f"{unkept.partition}.{unkept.topic}",
            "nodes": nodes,
            "code": unkept.why,
            "why": unkept.text,
            "writer": unkept.writer,
        }

    def render(one: Writer, key: str) -> Cell:
        if key == "mark":
            return single(view.glyphs.warn, Tone.WARN)
        tone = {"topic": Tone.PLAIN, "why": Tone.WARN}.get(key, Tone.DIM)
        return single(shown(view, key, facts(one)[key]), tone)

    kept = [
        ("/".join(key), (views[key], tuple(nodes)))
        for key, nodes in told.items()
        if topic in ("", key[1])
        and view.filter.matches(
            {"node": " ".join(nodes), "topic": key[1], "partition": key[2], "state": "not kept"}
        )
    ]
    return Rows(columns, kept, render, width=width, fixed=2, hidden=len(told) - len(kept), facts=facts)
