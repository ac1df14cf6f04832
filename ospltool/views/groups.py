"""All groups, and one of them on each node that has it."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len

from engine.dataset.groups import depth_name
from engine.runtime.monitor import GroupView
from ospltool.health.presence import Presence
from ospltool.live.groups import GroupKey
from ospltool.output.text import plural
from ospltool.views import text
from ospltool.views.cells import (
    Cell,
    Column,
    Facts,
    Line,
    Rows,
    Span,
    Tone,
    dimmed,
    single,
    table_title,
    widest,
)
from ospltool.views.view import View, master_tone, shown

MEASURED = 200
"""Groups whose names decide how wide the columns become."""

GROUP_FIELDS = ("ns", "partition", "topic", "type", "differs")


def groups(view: View, width: int, only: Sequence[GroupKey] | None = None) -> Rows[GroupKey]:
    """Return every group, or only some, with the figures of the node that has most of it."""
    every = view.model.groups.ordered() if only is None else only
    names = widest(map(str, every[:MEASURED]), 15, 60)
    spaces = widest(view.model.name_space_names(), 10, 24)
    cut = view.glyphs.ellipsis
    types = widest((key.type_name for key in every[:MEASURED]), 8, 40)
    columns = (
        Column("mark", "", 1),
        Column("group", "partition.topic", 15, grow=4, most=names, cut=cut),
        Column("space", "name-space", 10, grow=1, most=spaces, cut=cut),
        Column("nodes", "nodes", 5, right=True, spare=1),
        Column("samples", "samples", 8, right=True),
        Column("instances", "instances", 9, right=True, spare=4),
        Column("bytes", "payload", 9, right=True, spare=3),
        Column("newest", "newest", 6, right=True, spare=2),
        Column("stored", "on disk", 7, right=True),
        Column("lost", "lost", 5, right=True),
        Column("differs", "differs", 7, grow=1, most=30),
        Column("type", "type", 8, grow=3, most=types, spare=5),
    )

    rows: dict[GroupKey, dict[str, Cell]] = {}

    def render(key: GroupKey, column: str) -> Cell:
        if key not in rows:
            rows[key] = _row(view, key)
        return rows[key].get(column, ())

    kept = [(key.id, key) for key in every if not view.filter or _shows_group(view, key)]
    hidden = len(every) - len(kept)
    return Rows(
        columns, kept, render, width=width, fixed=2, hidden=hidden, facts=lambda key: group_facts(view, key)
    )


def _shows_group(view: View, key: GroupKey) -> bool:
    values = {"ns": key.name_space, "partition": key.partition, "topic": key.topic, "type": key.type_name}
    if any(term.field == "differs" for term in view.filter.terms):
        values["differs"] = " ".join(
            view.model.name_of(node) for node in view.model.sets.differing_in(key, view.now_ns)
        )
    return view.filter.matches(values)


def group_facts(view: View, key: GroupKey) -> Facts:
    """Return the values of a group, worked out at once: most look at every node with it.

    `stored` is the number of samples by which the worst disk is behind, None without a disk.
    """
    views = view.model.groups.views(key)
    if not views:
        return {}
    largest = max(views.values(), key=lambda one: (one.samples, one.newest_ns))
    return {
        "group": str(key),
        "space": key.name_space,
        "nodes": sum(map(view.is_heard, views)),
        "samples": largest.samples,
        "instances": largest.instances,
        "bytes": largest.bytes,
        "newest": largest.newest_ns,
        "behind": max((one.samples - one.stored for one in views.values() if is_kept(one)), default=None),
        "lost": sum(one.lost + sum(count for _, count in one.rejected) for one in views.values()),
        "differs": [view.model.name_of(node) for node in view.model.sets.differing_in(key, view.now_ns)],
        "type": key.type_name,
    }


def _row(view: View, key: GroupKey) -> dict[str, Cell]:
    """Return the cells of a row by column."""
    facts = group_facts(view, key)
    if not facts:
        return {}
    sign = view.glyphs.conflict if facts["differs"] else view.glyphs.warn if facts["lost"] else ""
    behind = facts["behind"]
    stored = (
        ""
        if behind is None
        else f"-{text.count(behind)}"
        if isinstance(behind, int) and behind > 0
        else "all"
    )
    tones = {"group": Tone.PLAIN, "samples": Tone.PLAIN, "lost": Tone.WARN, "differs": Tone.WARN}
    cells = {
        name: single(shown(view, name, value), tones.get(name, Tone.DIM)) for name, value in facts.items()
    }
    return cells | {
        "mark": single(sign, Tone.WARN) if sign else (),
        "stored": single(stored, Tone.DIM),
        "lost": cells["lost"] if facts["lost"] else (),
    }


def is_kept(view: GroupView) -> bool:
    """Return whether the group goes to disk."""
    return view.durability.casefold() == "persistent"


def group_lines(view: View, key: GroupKey) -> list[Line]:
    """Return one group on each node that has it; the master first."""
    views = view.model.groups.views(key)
    differ = set(view.model.sets.differing_in(key, view.now_ns))
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
        is_master = space is not None and view.health.is_master(node, space.name)
        sign = view.glyphs.master if is_master else view.glyphs.conflict if node.id in differ else " "
        tone = Tone.WARN if node.id in differ else Tone.PLAIN
        samples, instances = plural(one.samples, "sample"), plural(one.instances, "instance")
        counts = f"{samples}  {instances}  {text.size(one.bytes)}"
        kept = (
            f"  on disk {'all' if one.stored >= one.samples else f'{one.stored:,}'}" if is_kept(one) else ""
        )
        lost = f"  lost {one.lost:,}" if one.lost else ""
        rejected = "".join(f"  rejected {count:,} by {cause}" for cause, count in one.rejected)
        asked = f"  keeps {depth_name(one.kept_depth)}, readers ask for {depth_name(one.asked)}"
        rest = f"{kept}{lost}{rejected}{asked if one.is_cut else ''}  digest {one.digest[:8]}"
        name = text.fit(node.snapshot.name, room, ellipsis=view.glyphs.ellipsis)
        star = master_tone(view, node.snapshot.role, key.name_space) if is_master else tone
        line: Line = (Span(f" {sign} ", star), Span(f"{name} {counts}", tone), Span(rest, Tone.DIM))
        presence = view.presence(node)
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
