"""One node, whom it sees, what it keeps, whom it serves; and one name-space, its definitions and masters."""

from __future__ import annotations

from collections.abc import Mapping

from engine.runtime.monitor import DeliveryView, FellowView, NameSpaceView
from engine.runtime.past import IN_ORDER
from ospltool.health.incidents import Incident
from ospltool.live.masterships import Mastership
from ospltool.live.nodes import Node, Presence, natural
from ospltool.live.series import COUNTERS, RATE_WINDOW_NS, Point
from tui import text
from tui.cells import Cell, Column, Line, Rows, Span, Tone, dimmed, single
from tui.viewmodel.base import (
    Rank,
    View,
    master_mark,
    name_space_state,
    node_mark,
    node_state,
    plural,
    ranks,
    since_heard,
)
from tui.viewmodel.panels import incident_line


def subject_node(view: View) -> Node | None:
    """Return the node that is looked at: the chosen one, else the first."""
    chosen = view.model.nodes.get(view.subject.node)
    if chosen is not None:
        return chosen
    nodes = view.model.ordered_nodes()
    return nodes[0] if nodes else None


def card(view: View, node: Node) -> list[Line]:
    """Return the node in five lines, and one more where it has run before."""
    snapshot, now_ns = node.snapshot, view.now_ns
    heartbeat = text.ago(now_ns - view.model.heartbeat_ns(node))
    mark, state = node_mark(view, node), node_state(view, node)
    store = snapshot.store
    tone = Tone.FAULT if store.problem else Tone.DIM
    found = f"  found at start: {'; '.join(store.findings)}" if store.findings else ""
    return [
        (
            Span(" "),
            mark,
            Span(f" {snapshot.name}", Tone.STRONG),
            Span("  "),
            state,
            Span(f"  role {snapshot.role}  {since_heard(view, node)}", Tone.PLAIN),
            Span(f"  heard {text.ago(node.age_ns(now_ns))}  heartbeat {heartbeat}", Tone.DIM),
        ),
        (Span(f"   id {snapshot.id}  run {snapshot.incarnation}  version {snapshot.version}", Tone.DIM),),
        (Span(f"   host {snapshot.host}  pid {snapshot.pid}  {snapshot.configuration}", Tone.DIM),),
        (Span(f"   store {store.kind} {store.path}{found}", Tone.DIM), Span(f"  {store.problem}", tone)),
        counters_line(view, node),
        *_run_lines(view, node),
    ]


def _run_lines(view: View, node: Node) -> list[Line]:
    """Return the end of the previous run, as the node remembers it."""
    former = [run for run in view.model.runs.get(node.id, ()) if run.ended_ns]
    if not former:
        return []
    last = former[-1]
    tone = Tone.DIM if last.end == IN_ORDER else Tone.WARN
    what = f"{plural(len(former), 'earlier run')}, the last began {text.moment(last.started_ns)[:19]}"
    when = f"ended {text.moment(last.ended_ns)[:19]}" if last.end == IN_ORDER else "ended"
    return [(Span(f"   {what} and {when} ", Tone.DIM), Span(last.end, tone))]


def counters_line(view: View, node: Node) -> Line:
    """Totals since start, with the rate of those that are kept over time; without rates where nobody is."""
    series = None if node.is_stale(view.now_ns) else view.model.series.get(node.id)
    spans = [Span("  ")]
    counted = {name: total for name, total in node.snapshot.counters.items() if total or name in COUNTERS}
    for name, total in counted.items():
        spans.append(Span(f" {name.replace('_', ' ')} ", Tone.DIM))
        spans.append(Span(f"{text.count(total)}"))
        rate = series.rate_per_s(name) if series and name in COUNTERS and name != "queued" else None
        if rate:
            spans.append(Span(f" {text.count(round(rate))}/s"))
        spans.append(Span(" "))
    if any(span.text.endswith("/s") for span in spans):
        spans.append(Span(f" (per second: mean of {RATE_WINDOW_NS // 1_000_000_000} s)", Tone.DIM))
    zeros = len(node.snapshot.counters) - len(counted)
    if zeros:
        spans.append(Span(f" {plural(zeros, 'other')} 0", Tone.DIM))
    return tuple(spans) if len(spans) > 1 else (Span("   nothing counted yet", Tone.DIM),)


def curves(view: View, node: Node) -> list[tuple[str, list[Point]]]:
    """Return the plots of a node: titles with the newest value, and points."""
    series = view.model.series.get(node.id)
    presence = node.presence(view.now_ns)
    is_heard = presence is Presence.HEARD
    last_ns = view.model.heartbeat_ns(node)
    stored = series.rates("stored") if series else []
    gaps = series.heartbeat_gaps_s(0 if is_heard else last_ns, view.now_ns) if series else []
    rate = _newest(stored, "{:,.0f}") if is_heard else f": none, the node is {presence}"
    rising = "" if is_heard else " and rising"
    return [
        (f"samples stored per second{rate}", stored),
        (f"seconds between heartbeats{_newest(gaps, '{:.2f}')}{rising}", gaps),
    ]


def _newest(points: list[Point], shown: str) -> str:
    return f": {shown.format(points[-1][1])}" if points else ": nothing known yet"


def fellows(view: View, node: Node, width: int) -> Rows[FellowView]:
    """Return the fellows as this node sees them, those that it does not talk to first, then by name."""
    columns = (
        Column("mark", "", 1),
        Column("name", "fellow", 10, grow=2, most=24),
        Column("role", "role", 11, grow=1, most=20),
        Column("state", "state", 13, grow=1, most=18),
        Column("communication", "talks", 12),
        Column("heartbeat", "heard", 6, right=True),
        Column("skew", "skew", 8, right=True),
        Column("problem", "", 8, grow=6),
    )

    def render(fellow: FellowView, key: str) -> Cell:
        cell = told(fellow, key)
        return dimmed(cell) if node.is_stale(view.now_ns) else cell

    def told(fellow: FellowView, key: str) -> Cell:
        if key == "mark":
            return (_fellow_mark(view, fellow),)
        if key == "heartbeat":
            elapsed_ns = node.snapshot.time_ns - fellow.last_heartbeat_ns + node.age_ns(view.now_ns)
            return single(text.age(elapsed_ns) if fellow.last_heartbeat_ns else "never", Tone.DIM)
        if key == "skew":
            return single(f"{fellow.skew_ns / 1e6:+.0f} ms", Tone.DIM)
        if key == "state":
            return single(fellow.state.replace("_", " ").lower(), Tone.DIM)
        if key == "problem":
            return single(fellow.problem, Tone.CONFLICT)
        tone = Tone.PLAIN if key == "name" else Tone.DIM
        return single(str(getattr(fellow, key)), tone)

    kept = [
        (fellow.id, fellow)
        for fellow in sorted(node.snapshot.fellows, key=_fellow_order)
        if view.filter.matches({"fellow": fellow.name, "role": fellow.role, "state": fellow.state})
    ]
    hidden = len(node.snapshot.fellows) - len(kept)
    return Rows(columns, kept, render, width=width, fixed=2, hidden=hidden)


def _fellow_order(fellow: FellowView) -> tuple[object, ...]:
    return fellow.communication == "approved", natural(fellow.name), fellow.id


def _fellow_mark(view: View, fellow: FellowView) -> Span:
    glyphs = view.glyphs
    return {
        "approved": Span(glyphs.ok, Tone.DIM),
        "waiting": Span(glyphs.busy),
        "incompatible": Span(glyphs.conflict, Tone.CONFLICT),
        "lost": Span(glyphs.fault, Tone.FAULT),
    }.get(fellow.communication, Span(glyphs.warn, Tone.WARN))


def name_spaces(view: View, node: Node, width: int) -> Rows[NameSpaceView]:
    """Return the name-spaces of this node with the policy that it applies to each."""
    columns = (
        Column("mark", "", 2),
        Column("name", "name-space", 12, grow=2, most=28),
        Column("master", "master", 8, grow=1, most=16),
        Column("phase", "phase", 8),
        Column("samples", "samples", 8, right=True),
        Column("alignee", "alignee", 10),
        Column("durability", "durability", 10),
        Column("priority", "prio", 4, right=True),
        Column("merges", "merge", 8, grow=2, most=40),
        Column("digest", "digest", 8),
    )

    def render(space: NameSpaceView, key: str) -> Cell:
        cell = told(space, key)
        return dimmed(cell) if node.is_stale(view.now_ns) else cell

    def told(space: NameSpaceView, key: str) -> Cell:
        if key == "mark":
            return (master_mark(view, node, space), name_space_state(view, node, space)[0])
        if key == "name":
            return single(space.name)
        if key == "master":
            return single(view.model.name_of(space.master), Tone.PLAIN if space.master else Tone.FAULT)
        if key == "samples":
            return single(text.count(space.count))
        plain = {
            "phase": space.phase,
            "alignee": space.alignee if space.aligner else f"{space.alignee} -",
            "durability": space.durability,
            "priority": str(space.master_priority),
            "merges": ", ".join(space.merges),
            "digest": space.digest[:8],
        }
        return single(plain[key], Tone.DIM)

    kept = [
        (space.name, space)
        for space in node.snapshot.name_spaces
        if view.filter.matches({"ns": space.name, "state": space.phase})
    ]
    hidden = len(node.snapshot.name_spaces) - len(kept)
    return Rows(columns, kept, render, width=width, fixed=2, hidden=hidden)


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
    columns = (
        Column("mark", "", 3),
        Column("node", "node", 8, grow=2, most=24),
        Column("role", "role", 11, grow=1, most=20),
        Column("phase", "phase", 8),
        Column("samples", "samples", 8, right=True),
        Column("master", "follows", 8, grow=1, most=16),
        Column("epoch", "epoch", 10),
        Column("policy", "alignee, durability", 20),
        Column("priority", "prio", 4, right=True),
        Column("merges", "merge", 8, grow=2, most=40),
        Column("digest", "digest", 8),
    )

    def render(holder: Holder, key: str) -> Cell:
        node, space = holder
        cell = _holder_cell(view, node, space, key)
        return dimmed(cell) if node.is_stale(view.now_ns) else cell

    kept = []
    ranked = ranks(view, [one for one in view.health.open if name in one.name_spaces or not one.name_spaces])
    for node in sorted(view.model.holders(name), key=lambda node: _urgency(view, node, name, ranked)):
        values = {
            "node": node.snapshot.name,
            "role": node.snapshot.role,
            "state": node_state(view, node).text,
        }
        if view.filter.matches(values):
            kept.append((node.id, (node, node.name_spaces[name])))
    hidden = len(view.model.holders(name)) - len(kept)
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
        if (role, space.master) in seen or node.gone_ns:
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
    sign = Span(f" {glyphs.master if space.confirmed else glyphs.unconfirmed} ", Tone.STRONG)
    presence = master.presence(view.now_ns) if master else Presence.HEARD
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
