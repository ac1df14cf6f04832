"""The tables of conflicts, groups and stores, and what is under the cursor in full."""

from __future__ import annotations

from typing import Final

from rich.cells import cell_len

from engine.runtime.monitor import GroupView
from ospltool.live.conflicts import ReportedConflict
from ospltool.live.groups import GroupKey
from ospltool.live.nodes import Node, Presence
from tui import text
from tui.cells import Cell, Column, Line, Rows, Span, Tone, dimmed, single, table_title
from tui.viewmodel.base import View, node_mark, plural

CONFLICT_FIELDS = ("node", "fellow", "ns", "cause", "policy", "state")


def conflicts(view: View, width: int) -> Rows[ReportedConflict]:
    """Return the conflicts as a table."""
    columns = (
        Column("mark", "", 1),
        Column("began", "since", 6, right=True),
        Column("lasted", "lasted", 8, right=True),
        Column("node", "node", 8, grow=1, most=16),
        Column("fellow", "with", 8, grow=1, most=16),
        Column("space", "name-space", 10, grow=1, most=24),
        Column("cause", "cause", 18, grow=3, most=40),
        Column("policy", "policy", 8, grow=1, most=18),
        Column("outcome", "outcome", 8, grow=3),
    )

    def render(one: ReportedConflict, key: str) -> Cell:
        is_open = not one.ended_ns
        if key == "mark":
            return (Span(view.glyphs.conflict, Tone.CONFLICT) if is_open else Span(view.glyphs.ok, Tone.DIM),)
        if key == "outcome" and is_open:
            return single("merging" if one.policy else "open", Tone.STRONG)
        plain = {
            "began": text.age(view.now_ns - one.began_ns) if one.began_ns else "",
            "lasted": _lasted(one),
            "node": one.node_name,
            "fellow": one.fellow,
            "space": one.name_space,
            "cause": one.cause,
            "policy": one.policy,
            "outcome": one.outcome,
        }
        tone = Tone.PLAIN if is_open or key in ("cause", "outcome") else Tone.DIM
        return single(plain[key], tone)

    every = view.model.conflicts.every(view.model.nodes)
    kept = [(one.key, one) for one in every if _shows_conflict(view, one)]
    return Rows(columns, kept, render, width=width, fixed=2, hidden=len(every) - len(kept))


def _shows_conflict(view: View, one: ReportedConflict) -> bool:
    return view.filter.matches(
        {
            "node": one.node_name,
            "fellow": one.fellow,
            "ns": one.name_space,
            "cause": one.cause,
            "policy": one.policy,
            "state": "over" if one.ended_ns else "open",
            "outcome": one.outcome,
        }
    )


def _lasted(one: ReportedConflict) -> str:
    elapsed_ns = one.ended_ns - one.began_ns
    return f"{elapsed_ns / 1e9:.2f} s" if 0 <= elapsed_ns < 100_000_000_000 and one.ended_ns else ""


def conflict_lines(view: View, one: ReportedConflict, width: int) -> list[Line]:
    """Return one conflict in full."""
    when = text.moment(one.began_ns) if one.began_ns else "now"
    ended = f", ended {text.moment(one.ended_ns)}" if one.ended_ns else ", open"
    head = (Span(f" {one.cause}", Tone.STRONG), Span(f"  began {when}{ended}", Tone.DIM))
    body = text.wrap(one.text, max(20, width - 2), 4, ellipsis=view.glyphs.ellipsis)
    return [head, *((Span(f" {line}"),) for line in body)]


def none_lines() -> list[Line]:
    """Return the lines shown without conflicts."""
    return [(Span(" no conflicts yet", Tone.DIM),)]


def conflict_title(view: View, rows: Rows[ReportedConflict]) -> str:
    """Return the title with the numbers of open, ended and hidden conflicts."""
    every = view.model.conflicts.every(view.model.nodes)
    over = sum(1 for one in every if one.ended_ns)
    lost = view.model.conflicts.left_out
    parts = [f"{len(every) - over} open, {over} over", f"{lost} older ones not kept" if lost else ""]
    return table_title(parts, rows.hidden)


MEASURED = 200
"""Groups whose names decide how wide the columns become."""

GROUP_FIELDS = ("ns", "partition", "topic", "type", "differs")


def groups(view: View, width: int) -> Rows[GroupKey]:
    """Return every group, with the figures of the node that has most of it."""
    every = view.model.groups.ordered()
    names = max((len(str(key)) for key in every[:MEASURED]), default=0)
    types = max((len(key.type_name) for key in every[:MEASURED]), default=0)
    columns = (
        Column("mark", "", 1),
        Column("group", "partition.topic", 15, grow=4, most=min(max(names, 15), 60)),
        Column("space", "name-space", 10, grow=1, most=24),
        Column("nodes", "nodes", 5, right=True),
        Column("samples", "samples", 8, right=True),
        Column("instances", "instances", 9, right=True),
        Column("bytes", "payload", 9, right=True),
        Column("newest", "newest", 6, right=True),
        Column("stored", "on disk", 7, right=True),
        Column("lost", "lost", 5, right=True),
        Column("differs", "differs", 7, grow=1, most=30),
        Column("type", "type", 8, grow=3, most=min(max(types, 8), 40)),
    )

    rows: dict[GroupKey, dict[str, Cell]] = {}

    def render(key: GroupKey, column: str) -> Cell:
        if key not in rows:
            rows[key] = _row(view, key)
        return rows[key].get(column, ())

    kept = [(key.id, key) for key in every if not view.filter or _shows_group(view, key)]
    return Rows(columns, kept, render, width=width, fixed=2, hidden=len(every) - len(kept))


def _shows_group(view: View, key: GroupKey) -> bool:
    values = {"ns": key.name_space, "partition": key.partition, "topic": key.topic, "type": key.type_name}
    if any(term.field == "differs" for term in view.filter.terms):
        values["differs"] = " ".join(
            view.model.name_of(node) for node in view.model.differing_in(key, view.now_ns)
        )
    return view.filter.matches(values)


def _row(view: View, key: GroupKey) -> dict[str, Cell]:
    """Return the cells of a row by column, worked out at once: most look at every node with the group."""
    views = view.model.groups.views(key)
    if not views:
        return {}
    differ = view.model.differing_in(key, view.now_ns)
    lost_samples = sum(one.lost + sum(count for _, count in one.rejected) for one in views.values())
    largest = max(views.values(), key=lambda one: (one.samples, one.newest_ns))
    kept = [one.samples - one.stored for one in views.values() if _is_kept(one)]
    behind = max(kept, default=0)
    sign = view.glyphs.conflict if differ else view.glyphs.warn if lost_samples else ""
    plain = {
        "space": key.name_space,
        "nodes": str(sum(map(view.is_heard, views))),
        "instances": text.count(largest.instances),
        "bytes": text.size(largest.bytes),
        "newest": text.age(view.now_ns - largest.newest_ns) if largest.newest_ns else "",
        "stored": ("all" if behind <= 0 else f"-{text.count(behind)}") if kept else "",
        "type": key.type_name,
    }
    return {name: single(value, Tone.DIM) for name, value in plain.items()} | {
        "mark": single(sign, Tone.WARN) if sign else (),
        "group": single(str(key)),
        "samples": single(text.count(largest.samples)),
        "lost": single(text.count(lost_samples) if lost_samples else "", Tone.WARN),
        "differs": single(", ".join(map(view.model.name_of, differ)), Tone.WARN),
    }


def _is_kept(view: GroupView) -> bool:
    """Return whether the group goes to disk."""
    return view.durability.casefold() == "persistent"


def group_lines(view: View, key: GroupKey) -> list[Line]:
    """Return one group on each node that has it; the master first."""
    views = view.model.groups.views(key)
    differ = set(view.model.differing_in(key, view.now_ns))
    lines: list[Line] = [
        (
            Span(f" {key}", Tone.STRONG),
            Span(f"  type {key.type_name}  in {key.name_space}, {plural(len(views), 'node')}", Tone.DIM),
        )
    ]
    room = min(12, max((cell_len(view.model.name_of(node_id)) for node_id in views), default=0))
    for node in view.model.ordered_nodes():
        one = views.get(node.id)
        if one is None:
            continue
        space = node.name_spaces.get(key.name_space)
        is_master = space is not None and view.model.is_master(node, space.name, view.now_ns)
        sign = view.glyphs.master if is_master else view.glyphs.conflict if node.id in differ else " "
        tone = Tone.WARN if node.id in differ else Tone.PLAIN
        samples, instances = plural(one.samples, "sample"), plural(one.instances, "instance")
        counts = f"{samples}  {instances}  {text.size(one.bytes)} of payload"
        kept = (
            f"  on disk {'all' if one.stored >= one.samples else f'{one.stored:,}'}" if _is_kept(one) else ""
        )
        lost = f"  lost {one.lost:,}" if one.lost else ""
        rejected = "".join(f"  rejected {count:,} by {cause}" for cause, count in one.rejected)
        rest = f"{kept}{lost}{rejected}  digest {one.digest[:8]}"
        name = text.fit(node.snapshot.name, room, ellipsis=view.glyphs.ellipsis)
        line: Line = (Span(f" {sign} ", tone), Span(f"{name} {counts}", tone), Span(rest, Tone.DIM))
        presence = node.presence(view.now_ns)
        if presence is not Presence.HEARD:
            line = dimmed((*line, Span(f"  {presence}, heard {text.ago(node.age_ns(view.now_ns))}")))
        lines.append(line)
    return lines


def group_title(view: View, rows: Rows[GroupKey]) -> str:
    """Return the title with the numbers of shown and hidden groups."""
    groups = view.model.groups
    unseen = sum(node.snapshot.groups_left_out for node in view.model.nodes.values()) + groups.left_out
    more = f"{unseen:,} more not told by their nodes or not kept" if unseen else ""
    return table_title([plural(len(groups), "group"), more], rows.hidden)


STORE_FIELDS = ("node", "kind", "path", "state")

MOST_KIND: Final = 9
"""Cells of the longest kind, "simulated"."""


def stores(view: View, width: int) -> Rows[Node]:
    """Return the store of each node."""
    every = view.model.ordered_nodes()
    kept = [(node.id, node) for node in every if _shows_store(view, node)]
    longest = max((len(node.snapshot.store.path) for _, node in kept), default=16)
    kind = max((len(node.snapshot.store.kind) for _, node in kept), default=6)
    has_problem = any(node.snapshot.store.problem or node.snapshot.store.findings for _, node in kept)
    columns = (
        Column("mark", "", 1),
        Column("node", "node", 8, grow=1, most=20),
        Column("kind", "kind", min(max(6, kind), MOST_KIND)),
        Column("complete", "complete", 8, right=True),
        Column("samples", "samples", 8, right=True),
        Column("stored", "on disk", 8, right=True),
        Column("behind", "behind", 7, right=True),
        Column("queued", "queued", 7, right=True),
        Column("bytes", "payload", 9, right=True),
        Column("disk", "disk", 9, right=True),
        Column("path", "path", 16, grow=6, most=max(16, min(longest, 60))),
        *((Column("problem", "", 6, grow=4),) if has_problem else ()),
    )

    def render(node: Node, key: str) -> Cell:
        cell = _store_cell(view, node, key)
        return dimmed(cell) if node.is_stale(view.now_ns) else cell

    return Rows(columns, kept, render, width=width, fixed=2, hidden=len(every) - len(kept))


def _shows_store(view: View, node: Node) -> bool:
    store = node.snapshot.store
    state = "degraded" if store.problem else "good"
    values = {"node": node.snapshot.name, "kind": store.kind, "path": store.path, "state": state}
    return view.filter.matches(values)


def _store_cell(view: View, node: Node, key: str) -> Cell:
    snapshot, store = node.snapshot, node.snapshot.store
    if key == "mark":
        if store.problem or node.is_stale(view.now_ns):
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
    return sum(
        max(0, group.samples - group.stored)
        for group in node.snapshot.groups
        if group.durability.casefold() == "persistent"
    )


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
    late = [group for group in node.snapshot.groups if group.stored < group.samples]
    for group in sorted(late, key=lambda one: one.stored - one.samples):
        if group.durability.casefold() == "persistent":
            short = group.samples - group.stored
            told = f" {group.partition}.{group.topic}: {short:,} of {group.samples:,} not on disk yet"
            lines.append((Span(told),))
    return lines


def store_title(view: View, rows: Rows[Node]) -> str:
    """Return the title with the numbers of shown, degraded and hidden stores."""
    bad = sum(1 for node in view.model.nodes.values() if node.snapshot.store.problem)
    return table_title([plural(len(rows.keys), "store"), f"{bad} degraded" if bad else ""], rows.hidden)
