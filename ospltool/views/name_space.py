"""One name-space: how nodes define it, what each holds of it, and its masters, present and former."""

from __future__ import annotations

import collections
from collections.abc import Mapping
from typing import Final, NamedTuple

from engine.runtime.monitor import NameSpaceView
from ospltool.health.incidents import Incident
from ospltool.health.presence import Presence
from ospltool.live.masterships import Mastership
from ospltool.live.nodes import Node
from ospltool.views import text
from ospltool.views.cells import Cell, Column, Facts, Line, Rows, Span, Tone, dimmed, single, widest
from ospltool.views.incidents import incident_line
from ospltool.views.view import (
    Rank,
    View,
    lacking_words,
    master_mark,
    master_tone,
    name_space_state,
    node_mark,
    node_state,
    ranks,
    shown,
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
        Column("role", "role", 11, grow=1, most=roles, spare=4),
        Column("phase", "phase", 8),
        Column("samples", "samples", 8, right=True),
        Column("master", "follows", 8, grow=1, most=24, cut=cut, among=names),
        Column("epoch", "epoch", 10, spare=3),
        Column("policy", "alignee, durability", 20, spare=2),
        Column("priority", "prio", 4, right=True, spare=1),
        Column("merges", "merge", 8, grow=2, most=merges, spare=5),
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
    return Rows(
        columns, kept, render, width=width, fixed=2, hidden=hidden, facts=lambda one: _facts(view, *one)
    )


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
    value = _facts(view, node, space)[key]
    return single(shown(view, key, value), Tone.PLAIN if key in ("node", "samples") else Tone.DIM)


def _facts(view: View, node: Node, space: NameSpaceView) -> Facts:
    """Return the values of a name-space on a node."""
    return {
        "node": node.snapshot.name,
        "role": node.snapshot.role,
        "phase": space.phase,
        "is_complete": space.complete,
        "samples": space.count,
        "master": view.model.name_of(space.master),
        "is_confirmed": space.confirmed,
        "epoch": space.epoch,
        "policy": f"{space.alignee}, {space.durability}" + ("" if space.aligner else ", no aligner"),
        "priority": space.master_priority,
        "merges": space.merges,
        "digest": space.digest[:8],
        "why": space.why,
    }


class Led(NamedTuple):
    """A master, or its absence, as nodes of one role follow it; `space` is its own if it is there."""

    role: str
    space: NameSpaceView
    followers: tuple[str, ...]


def led(view: View, name: str) -> list[Led]:
    """Return the present masters of a name-space: several of one role while its nodes disagree."""
    found: dict[tuple[str, str], list[Node]] = {}
    for node in view.model.holders(name):
        if not view.health.is_away(node):
            found.setdefault((node.snapshot.role, node.name_spaces[name].master), []).append(node)
    every = []
    for (role, master_id), nodes in found.items():
        space = nodes[0].name_spaces[name]
        master = view.model.nodes.get(master_id)
        own = master.name_spaces.get(name) if master else None
        says_so = own is not None and (own.master, own.epoch) == (space.master, space.epoch)
        names = tuple(node.snapshot.name for node in nodes if node.id != master_id)
        every.append(Led(role, own if own and says_so else space, names))
    roles = [one.role for one in every]
    return sorted(
        every, key=lambda one: (roles.index(one.role), -len(one.followers) if one.space.master else 1)
    )


def master_lines(view: View, name: str) -> list[Line]:
    """Return the present master in each role, with the reason in the words of a node."""
    return [_master_line(view, one.role, one.space) for one in led(view, name)]


def _star(view: View, role: str, space: NameSpaceView) -> Span:
    """Return the sign of a master; one that is no longer there has no star."""
    glyphs = view.glyphs
    if not space.master:
        return Span(glyphs.fault, Tone.FAULT)
    if view.absence(space.master):
        return Span(glyphs.warn, Tone.WARN)
    star = glyphs.master if space.confirmed else glyphs.unconfirmed
    return Span(star, master_tone(view, role, space.name))


def _master_line(view: View, role: str, space: NameSpaceView) -> Line:
    """Return the master that a node follows."""
    sign = _star(view, role, space)
    if not space.master:
        return (Span(f" {sign.text} ", sign.tone), Span(f"{role}: no master  ", Tone.STRONG), Span(space.why))
    who = f"{role}: {view.model.name_of(space.master)}"
    if absence := view.absence(space.master):
        who = f"{who}, which is {absence}"
    return (
        Span(f" {sign.text} ", sign.tone),
        Span(f"{who}  ", Tone.STRONG),
        Span(space.why),
        Span(f"  {space.epoch}", Tone.DIM),
    )


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
            Span(f" {_since(view, mastership):>12}  ", Tone.DIM),
            Span(f"{view.model.name_of(mastership.master)} for {mastership.role}"),
            Span(f"  {mastership.epoch}  {mastership.why}", Tone.DIM),
        )
        for mastership in every
    ]


def _since(view: View, mastership: Mastership) -> str:
    ago = text.ago(view.now_ns - mastership.since_ns)
    return ago if mastership.is_exact else f"> {ago}"


def trouble_lines(view: View, name: str, incidents: list[Incident]) -> list[Line]:
    """Return the incidents about this name-space, and those about one node that has it."""
    return [incident_line(view, one) for one in incidents if _touches(view, name, one)]


def _touches(view: View, name: str, incident: Incident) -> bool:
    if incident.name_spaces or len(incident.subjects) != 1:
        return name in incident.name_spaces
    node = view.model.nodes.get(incident.subjects[0])
    return node is not None and name in node.name_spaces


def every_name_space(view: View, width: int) -> Rows[str]:
    """Return each name-space once: its masters, and where it is complete."""
    every = view.model.name_space_names()
    cut = view.glyphs.ellipsis
    columns = (
        Column("mark", "", 1),
        Column("space", "name-space", 10, grow=2, most=28, cut=cut),
        Column("master", "master", 8, grow=1, most=24, cut=cut),
        Column("samples", "samples", 7, right=True),
        Column("complete", "complete", 8),
        Column("copies", "copies left", 11, right=True, spare=1),
        Column("on_disk", "on disk", 7, right=True),
        Column("policy", "alignee, durability", 12, grow=1, most=30, spare=2),
        Column("lacking", "not complete", 24, grow=6),
    )

    def facts(name: str) -> Facts:
        holders = [node for node in view.model.holders(name) if not view.health.is_away(node)]
        spaces = [node.name_spaces[name] for node in holders]
        copies = next((one for one in view.health.redundancies if one.name == name), None)
        lacking = [lacking_words(view, node, node.name_spaces[name]) for node in holders]
        return {
            "space": name,
            "master": list(dict.fromkeys(view.model.name_of(space.master) for space in spaces)),
            "samples": max((space.count for space in spaces), default=0),
            "complete": f"{sum(space.complete for space in spaces)} of {len(holders)}",
            "copies": len(copies.held) if copies else 0,
            "copies_left": copies.left if copies else 0,
            "on_disk": len(copies.on_disk) if copies else 0,
            "policy": list(dict.fromkeys(f"{space.alignee} {space.durability}" for space in spaces)),
            "lacking": [words for words in lacking if words],
        }

    def render(name: str, key: str) -> Cell:
        known = facts(name)
        if key == "mark":
            return (_mark(view, name),)
        if key == "master" and "nobody" in str(known["master"]):
            return single(shown(view, key, known[key]), Tone.FAULT)
        if key == "copies":
            return single(f"{known['copies_left']}", Tone.DIM if known["copies_left"] else Tone.PLAIN)
        tone = Tone.PLAIN if key in ("space", "samples", "master", "lacking") else Tone.DIM
        return single(shown(view, key, known[key]), tone)

    kept = [(name, name) for name in every if view.filter.matches({"ns": name})]
    return Rows(columns, kept, render, width=width, fixed=2, hidden=len(every) - len(kept), facts=facts)


def _mark(view: View, name: str) -> Span:
    """Return the sign of a name-space: the most urgent one of the nodes that hold it."""
    signs = [
        name_space_state(view, node, node.name_spaces[name])[0]
        for node in view.model.holders(name)
        if not view.health.is_away(node)
    ]
    signs += [_star(view, one.role, one.space) for one in led(view, name) if one.space.master]
    order = [Tone.FAULT, Tone.CONFLICT, Tone.WARN, Tone.PLAIN]
    urgent = [sign for sign in signs if sign.text != " " and sign.tone in order]
    return min(urgent, key=lambda sign: order.index(sign.tone), default=Span(view.glyphs.ok, Tone.DIM))


def masters(view: View, width: int, name: str = "") -> Rows[Led]:
    """Return the present masters of every name-space, or of one, as `led` does."""
    every = [
        one for space in view.model.name_space_names() if name in ("", space) for one in led(view, space)
    ]
    cut = view.glyphs.ellipsis
    columns = (
        Column("mark", "", 1),
        Column("space", "name-space", 10, grow=2, most=28, cut=cut),
        Column("role", "role", 4, grow=1, most=20, spare=1),
        Column("master", "master", 6, grow=1, most=24, cut=cut, among=view.node_names),
        Column("since", "since", 6, right=True),
        Column("followers", "followed by", 11, grow=1, most=40, spare=3),
        Column("epoch", "epoch", 5, spare=2),
        Column("why", "why", 36, grow=8),
    )

    def facts(one: Led) -> Facts:
        is_known = one.space.master in view.model.nodes
        return {
            "space": one.space.name,
            "role": one.role,
            "master": view.model.name_of(one.space.master),
            "presence": view.absence(one.space.master) or (Presence.HEARD.value if is_known else ""),
            "is_confirmed": one.space.confirmed,
            "since": one.space.master_since_ns,
            "followers": one.followers,
            "epoch": one.space.epoch,
            "why": one.space.why,
        }

    def render(one: Led, key: str) -> Cell:
        known = facts(one)
        is_there = known["presence"] in ("", Presence.HEARD.value)
        if key == "mark":
            return (_star(view, one.role, one.space),)
        if key == "master" and not is_there:
            return single(f"{known['master']}, {known['presence']}", Tone.WARN)
        if key == "master" and not one.space.master:
            return single("nobody", Tone.FAULT)
        tone = Tone.PLAIN if key in ("space", "master", "why") else Tone.DIM
        return single(shown(view, key, known[key]), tone)

    kept, numbers = [], collections.Counter[str]()
    for one in every:
        key = f"{one.space.name}/{one.role}"
        numbers[key] += 1  # a change of master is a change of its row
        if view.filter.matches({name: str(facts(one)[fact]) for name, fact in MASTER_FIELDS.items()}):
            kept.append((f"{key}/{numbers[key]}", one))
    return Rows(columns, kept, render, width=width, fixed=2, hidden=len(every) - len(kept), facts=facts)


MASTER_FIELDS: Final = {"ns": "space", "role": "role", "node": "master"}
"""The fields of a filter of masters, with the values that they search."""
