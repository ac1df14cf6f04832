"""One name-space: how nodes define it, what each holds of it, and its masters, present and former."""

from __future__ import annotations

from collections.abc import Mapping

from engine.runtime.monitor import NameSpaceView
from ospltool.health.incidents import Incident
from ospltool.health.presence import Presence
from ospltool.live.masterships import Mastership
from ospltool.live.nodes import Node
from ospltool.views import text
from ospltool.views.cells import Cell, Column, Line, Rows, Span, Tone, dimmed, single, widest
from ospltool.views.incidents import incident_line
from ospltool.views.view import (
    Rank,
    View,
    master_mark,
    master_tone,
    name_space_state,
    node_mark,
    node_state,
    ranks,
)

Holder = tuple[Node, NameSpaceView]


def subject_name_space(view: View) -> str:
    """Return the name-space that is looked at: the chosen one, else the first; empty when there is none."""
    names = view.model.name_space_names()
    return view.subject.name_space if view.subject.name_space in names else next(iter(names), "")


def definition_lines(view: View, name: str) -> list[Line]:
    """Return the partition and topic expressions, as often as nodes disagree about them."""
    told: dict[tuple[str, ...], list[str]] = {}
    for node in view.model.holders(name):
        told.setdefault(node.name_spaces[name].elements, []).append(node.snapshot.name)
    agreed = len(told) <= 1
    lines: list[Line] = []
    for elements, nodes in told.items():
        who = f"all {len(nodes)} nodes" if agreed and len(nodes) > 1 else ", ".join(nodes)
        verb = "define" if len(nodes) > 1 else "defines"
        tone = Tone.DIM if agreed else Tone.CONFLICT
        sign = "" if agreed else f"{view.glyphs.conflict} "
        lines.append((Span(f" {sign}{', '.join(elements)}", tone), Span(f"  as {who} {verb} it", Tone.DIM)))
    return lines


def holders(view: View, name: str, width: int) -> Rows[Holder]:
    """Return the name-space on every node that has it, what is in trouble first."""
    every, names, cut = view.model.holders(name), view.node_names, view.glyphs.ellipsis
    roles = widest((node.snapshot.role for node in every), 11, 20)
    merges = widest((", ".join(node.name_spaces[name].merges) for node in every), 8, 40)
    columns = (
        Column("mark", "", 3),
        Column("node", "node", 8, grow=2, most=widest(names, 8, 24), cut=cut),
        Column("role", "role", 11, grow=1, most=roles),
        Column("phase", "phase", 8),
        Column("samples", "samples", 8, right=True),
        Column("master", "follows", 8, grow=1, most=24, cut=cut, among=names),
        Column("epoch", "epoch", 10),
        Column("policy", "alignee, durability", 20),
        Column("priority", "prio", 4, right=True),
        Column("merges", "merge", 8, grow=2, most=merges),
        Column("digest", "digest", 8),
    )

    def render(holder: Holder, key: str) -> Cell:
        node, space = holder
        cell = _holder_cell(view, node, space, key)
        return dimmed(cell) if view.is_stale(node) else cell

    kept = []
    ranked = ranks(view, [one for one in view.health.open if name in one.name_spaces or not one.name_spaces])
    for node in sorted(every, key=lambda node: _urgency(view, node, name, ranked)):
        values = {
            "node": node.snapshot.name,
            "role": node.snapshot.role,
            "state": node_state(view, node).text,
        }
        if view.filter.matches(values):
            kept.append((node.id, (node, node.name_spaces[name])))
    hidden = len(every) - len(kept)
    return Rows(columns, kept, render, width=width, fixed=2, hidden=hidden)


def _urgency(view: View, node: Node, name: str, ranked: Mapping[str, Rank]) -> Rank:
    """Return the rank of the node, or what its set asks for where that is more urgent."""
    space = node.name_spaces[name]
    sign = name_space_state(view, node, space)[0]
    own = Rank.WARNING if sign.tone in (Tone.WARN, Tone.FAULT) else Rank.CALM
    if not space.is_at_rest:
        own = min(own, Rank.BUSY)
    return min(own, ranked[node.id] if ranked[node.id] is not Rank.BUSY else Rank.CALM)


def _holder_cell(view: View, node: Node, space: NameSpaceView, key: str) -> Cell:
    if key == "mark":
        here = (master_mark(view, node, space), name_space_state(view, node, space)[0])
        return (node_mark(view, node), *here)
    if key == "master":
        tone = Tone.PLAIN if space.confirmed else Tone.WARN
        return single(view.model.name_of(space.master), tone if space.master else Tone.FAULT)
    plain = {
        "node": node.snapshot.name,
        "role": node.snapshot.role,
        "phase": space.phase,
        "samples": text.count(space.count),
        "epoch": space.epoch,
        "policy": f"{space.alignee}, {space.durability}" + ("" if space.aligner else ", no aligner"),
        "priority": str(space.master_priority),
        "merges": ", ".join(space.merges),
        "digest": space.digest[:8],
    }
    return single(plain[key], Tone.PLAIN if key in ("node", "samples") else Tone.DIM)


def master_lines(view: View, name: str) -> list[Line]:
    """Return the present master in each role, with the reason in the words of a node."""
    lines: list[Line] = []
    seen: set[tuple[str, str]] = set()
    for node in view.model.holders(name):
        space, role = node.name_spaces[name], node.snapshot.role
        if (role, space.master) in seen or view.health.is_away(node):
            continue
        seen.add((role, space.master))
        master = view.model.nodes.get(space.master)
        own = master.name_spaces.get(name) if master else None
        says_so = own is not None and (own.master, own.epoch) == (space.master, space.epoch)
        lines.append(_master_line(view, role, own if own and says_so else space))
    return lines


def _master_line(view: View, role: str, space: NameSpaceView) -> Line:
    """Return the master that a node follows; one that is no longer there has no star."""
    glyphs = view.glyphs
    if not space.master:
        return (
            Span(f" {glyphs.fault} ", Tone.FAULT),
            Span(f"{role}: no master  ", Tone.STRONG),
            Span(space.why),
        )
    who, master = f"{role}: {view.model.name_of(space.master)}", view.model.nodes.get(space.master)
    star = glyphs.master if space.confirmed else glyphs.unconfirmed
    sign = Span(f" {star} ", master_tone(view, role, space.name))
    presence = view.presence(master) if master else Presence.HEARD
    if presence is not Presence.HEARD:
        sign, who = Span(f" {glyphs.warn} ", Tone.WARN), f"{who}, which is {presence}"
    return (sign, Span(f"{who}  ", Tone.STRONG), Span(space.why), Span(f"  {space.epoch}", Tone.DIM))


def history_lines(view: View, name: str) -> list[Line]:
    """The masters, the newest first, each since when; ">" before an age that is only known to be more."""
    every = [
        mastership
        for (name_space, _), history in view.model.masterships.items()
        if name_space == name
        for mastership in history
    ]
    every.sort(key=lambda mastership: -mastership.since_ns)
    return [
        (
            Span(f" {text.clock(mastership.since_ns)}", Tone.DIM),
            Span(f" {_since(view, mastership):>8}  ", Tone.DIM),
            Span(f"{view.model.name_of(mastership.master)} for {mastership.role}"),
            Span(f"  {mastership.epoch}  {mastership.why}", Tone.DIM),
        )
        for mastership in every
    ]


def _since(view: View, mastership: Mastership) -> str:
    age = text.age(view.now_ns - mastership.since_ns)
    return age if mastership.is_exact else f"> {age}"


def trouble_lines(view: View, name: str, incidents: list[Incident]) -> list[Line]:
    """Return the incidents about this name-space, and those about one node that has it."""
    return [incident_line(view, one) for one in incidents if _touches(view, name, one)]


def _touches(view: View, name: str, incident: Incident) -> bool:
    if incident.name_spaces or len(incident.subjects) != 1:
        return name in incident.name_spaces
    node = view.model.nodes.get(incident.subjects[0])
    return node is not None and name in node.name_spaces
