"""One node: who it is, its fellows as it sees them, its name-spaces, and whom it serves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.cells import cell_len

from engine.runtime.monitor import FellowView, NameSpaceView
from engine.runtime.past import IN_ORDER
from ospltool.health.presence import Presence
from ospltool.live.nodes import Node, natural
from ospltool.live.series import COUNTERS, RATE_WINDOW_NS, Point
from ospltool.output.text import listed, plural
from ospltool.views import text
from ospltool.views.alignment import waits_for
from ospltool.views.cells import (
    Cell,
    Column,
    Facts,
    Line,
    Rows,
    Span,
    Tone,
    dimmed,
    plain,
    single,
    widest,
)
from ospltool.views.groups import is_kept
from ospltool.views.view import (
    UnheardNode,
    View,
    lacking_words,
    master_mark,
    name_space_state,
    node_mark,
    node_state,
    ranks,
    shown,
    since_heard,
    unheard_nodes,
)

WIDE: Final = 200
"""Cells in which all counters have room."""


def subject_node(view: View) -> Node | None:
    """Return the node that is looked at: the chosen one, else the first."""
    chosen = view.model.nodes.get(view.subject.node)
    if chosen is not None:
        return chosen
    nodes = view.model.ordered_nodes()
    return nodes[0] if nodes else None


def nodes(
    view: View, width: int, only: Sequence[Node | UnheardNode] | None = None
) -> Rows[Node | UnheardNode]:
    """Return every node, or only some, what is in trouble first."""
    ranked = ranks(view, view.health.open)
    every: Sequence[Node | UnheardNode] = (
        only if only is not None else [*view.model.ordered_nodes(), *unheard_nodes(view)]
    )
    kept = [
        (one.key if isinstance(one, UnheardNode) else one.id, one) for one in every if keeps_node(view, one)
    ]
    kept.sort(key=lambda pair: pair[1].rank if isinstance(pair[1], UnheardNode) else ranked[pair[0]])
    cut = view.glyphs.ellipsis
    columns = (
        Column("mark", "", 1),
        Column("node", "node", 8, grow=2, most=24, cut=cut, among=view.node_names),
        Column("state", "state", 13, grow=1, most=16),
        Column("since", "up", 6, right=True),
        Column("heard", "heard", 5, right=True),
        Column("complete", "complete", 8),
        Column("leads", "master of", 9, grow=2, most=40, cut=cut),
        Column("samples", "samples", 7, right=True),
        Column("rate", "stored", 7, right=True, spare=1),
        Column("fellows", "fellows", 7, spare=2),
        Column("disk_bytes", "disk", 8, right=True, spare=3),
        Column("memory_bytes", "memory", 8, right=True, spare=3),
        Column("role", "role", 11, grow=1, most=20, spare=4),
        Column("host", "host", 6, grow=1, most=24, spare=5),
        Column("problem", "", 8, grow=4),
    )

    def render(one: Node | UnheardNode, key: str) -> Cell:
        if isinstance(one, UnheardNode):
            is_known = key in ("mark", "node", "state") or (key == "heard" and one.heard_ns)
            return one.cell(view, key, one.name) if is_known else ()
        if key == "mark":
            return (node_mark(view, one),)
        if key == "state":
            return (node_state(view, one),)
        facts = _node_facts(view, one)
        tone = {"node": Tone.PLAIN, "samples": Tone.PLAIN, "problem": Tone.FAULT}.get(key, Tone.DIM)
        if key == "complete" and facts["incomplete"]:
            tone = Tone.PLAIN
        if key == "heard" and view.is_stale(one):
            tone = Tone.WARN
        cell = single(shown(view, key, facts[key]), tone)
        return dimmed(cell) if view.is_stale(one) else cell

    def facts(one: Node | UnheardNode) -> Facts:
        if isinstance(one, UnheardNode):
            return {"node": one.name, "state": one.state, "heard": one.heard_ns, "why": one.why}
        return _node_facts(view, one)

    return Rows(columns, kept, render, width=width, fixed=2, hidden=len(every) - len(kept), facts=facts)


def leaving(view: View, node: Node) -> tuple[str, ...]:
    """Return what others lose while a node is down: who is being served, and what nobody else holds whole."""
    served = sum(one.state in ("running", "waiting") for one in node.snapshot.deliveries)
    others = [one for one in view.model.nodes.values() if one.id != node.id and not view.health.is_away(one)]
    alone = [
        space.name
        for space in node.snapshot.name_spaces
        if space.complete
        and not any(
            name == space.name and held.complete for one in others for name, held in one.name_spaces.items()
        )
    ]
    told = []
    if served:
        told.append(f"It serves {plural(served, 'late joiner')} now; another node begins again for them.")
    if alone:
        told.append(f"No other node holds {', '.join(alone)} whole: late joiners wait until it is back.")
    return tuple(told)


def keeps_node(view: View, one: Node | UnheardNode) -> bool:
    """Return whether the filter keeps a node."""
    if not view.filter:
        return True
    if isinstance(one, UnheardNode):
        values = {"node": one.name, "role": "", "host": "", "state": one.state}
    else:
        told = one.snapshot
        state = node_state(view, one).text
        values = {"node": told.name, "role": told.role, "host": told.host, "state": state}
    return view.filter.matches(values, skip=("ns",))


def _node_facts(view: View, node: Node) -> Facts:
    """Return the values of a node; one that is not heard has no rate and has not been up since any time."""
    snapshot, is_heard = node.snapshot, not view.is_stale(node)
    series = view.model.series.get(node.id) if is_heard else None
    spaces = snapshot.name_spaces
    lacking = [space.name for space in spaces if not space.is_at_rest]
    approved = sum(_is_heard_by(node, fellow) for fellow in snapshot.fellows)
    return {
        "node": snapshot.name,
        "id": node.id,
        "state": snapshot.state if is_heard else view.presence(node).value,
        "since": snapshot.started_ns if is_heard else 0,
        "heard": max(node.heard_ns, view.health.heartbeat_ns(node)),
        "complete": f"{len(spaces) - len(lacking)} of {len(spaces)}",
        "incomplete": lacking,
        "leads": [space.name for space in spaces if view.health.is_master(node, space.name)],
        "samples": sum(space.count for space in spaces),
        "rate": series.rate_per_s("stored") if series else None,
        "fellows": f"{approved} of {len(snapshot.fellows)}",
        "disk_bytes": snapshot.store.disk_bytes,
        "memory_bytes": snapshot.memory_bytes if is_heard else 0,
        "role": snapshot.role,
        "host": snapshot.host,
        "pid": snapshot.pid,
        "version": snapshot.version,
        "domain_id": snapshot.domain_id,
        "problem": snapshot.store.problem,
    }


def _is_heard_by(node: Node, fellow: FellowView) -> bool:
    """Return whether a node talks to a fellow, and heard it lately."""
    elapsed_ns = node.snapshot.time_ns - fellow.last_heartbeat_ns
    return fellow.communication == "approved" and elapsed_ns <= node.stale_after_ns


def _talk(node: Node, fellow: FellowView) -> str:
    """Return how a node talks to a fellow, in a word."""
    is_silent = fellow.communication == "approved" and not _is_heard_by(node, fellow)
    return Presence.SILENT.value if is_silent else fellow.communication


def fellows_by_node(view: View, width: int) -> Rows[Node]:
    """Return a row for each node: how many fellows it communicates with, and which others it knows.

    A row for each pair would be 40,000 in a system of 200 nodes.
    """
    every = view.model.ordered_nodes()
    cut = view.glyphs.ellipsis
    columns = (
        Column("mark", "", 1),
        Column("node", "node", 8, grow=2, most=24, cut=cut),
        Column("approved", "talks to", 10),
        Column("heartbeat", "heard last", 10, right=True),
        Column("skew", "largest skew", 12, right=True, spare=1),
        Column("others", "does not talk to", 24, grow=6),
    )

    def facts(node: Node) -> Facts:
        fellows = node.snapshot.fellows
        others = [one for one in fellows if not _is_heard_by(node, one)]
        slowest_ns = min((one.last_heartbeat_ns for one in fellows if one.last_heartbeat_ns), default=0)
        elapsed_ns = node.snapshot.time_ns - slowest_ns + node.age_ns(view.now_ns)
        return {
            "node": node.snapshot.name,
            "approved": f"{len(fellows) - len(others)} of {len(fellows)}",
            "heartbeat": view.now_ns - elapsed_ns if slowest_ns else 0,
            "skew_ns": node.fellows.skew_ns,
            "others": [f"{one.name} ({_talk(node, one)})" for one in others],
        }

    def render(node: Node, key: str) -> Cell:
        if key == "mark":
            return (node_mark(view, node),)
        if key == "skew":
            return single(
                f"{round(node.fellows.skew_ns / 1e6)} ms" if node.snapshot.fellows else "", Tone.DIM
            )
        tone = {"node": Tone.PLAIN, "others": Tone.WARN}.get(key, Tone.DIM)
        cell = single(shown(view, key, facts(node)[key]), tone)
        return dimmed(cell) if view.is_stale(node) else cell

    kept = [(node.id, node) for node in every if keeps_node(view, node)]
    return Rows(columns, kept, render, width=width, fixed=2, hidden=len(every) - len(kept), facts=facts)


def card(view: View, node: Node, width: int = WIDE) -> list[Line]:
    """Return the node in five lines, more where its counters need them or it has run before."""
    snapshot, now_ns = node.snapshot, view.now_ns
    heard = text.ago(node.age_ns(now_ns))
    heartbeat = text.ago(now_ns - view.health.heartbeat_ns(node))
    said = f"heard {heard}  heartbeat {heartbeat}" if heard != heartbeat else f"heard {heard}"
    mark, state = node_mark(view, node), node_state(view, node)
    store = snapshot.store
    tone = Tone.FAULT if store.problem else Tone.DIM
    memory = f"  memory {text.size(snapshot.memory_bytes)}" if snapshot.memory_bytes else ""
    configured = f"role {snapshot.role}  {snapshot.configuration}"
    found = f"  found at start: {'; '.join(store.findings)}" if store.findings else ""
    return [
        (
            Span(" "),
            mark,
            Span(f" {snapshot.name}", Tone.STRONG),
            Span("  "),
            state,
            Span(f"  {since_heard(view, node)}", Tone.PLAIN),
            Span(f"  {said}", Tone.DIM),
        ),
        (Span(f"   id {snapshot.id}  run {snapshot.incarnation}  version {snapshot.version}", Tone.DIM),),
        (Span(f"   host {snapshot.host}  pid {snapshot.pid}{memory}  {configured}", Tone.DIM),),
        (Span(f"   store {store.kind} {store.path}{found}", Tone.DIM), Span(f"  {store.problem}", tone)),
        *counter_lines(view, node, width),
        *_run_lines(view, node),
    ]


ORPHANED: Final = "by itself: its supervisor was killed"
"""End of a run that ended in order, which nobody had asked for."""


def _run_lines(view: View, node: Node) -> list[Line]:
    """Return the end of the previous run, as the node remembers it."""
    former = [run for run in view.model.runs.get(node.id, ()) if run.ended_ns]
    if not former:
        return []
    last = former[-1]
    end = ORPHANED if last.end == IN_ORDER and view.model.is_orphaned(node.id, last) else last.end
    tone = Tone.DIM if end == IN_ORDER else Tone.WARN
    what = f"{plural(len(former), 'earlier run')}, the last began {text.moment(last.started_ns)[:19]}"
    when = f"ended {text.moment(last.ended_ns)[:19]}" if last.end == IN_ORDER else "ended"
    return [(Span(f"   {what} and {when} ", Tone.DIM), Span(end, tone))]


def counter_lines(view: View, node: Node, width: int) -> list[Line]:
    """Totals since start, with the rate of those that are kept over time; without rates where nobody is."""
    series = None if view.is_stale(node) else view.model.series.get(node.id)
    parts: list[Line] = []
    counted = {name: total for name, total in node.snapshot.counters.items() if total or name in COUNTERS}
    for name, total in counted.items():
        rate = series.rate_per_s(name) if series and name in COUNTERS and name != "queued" else None
        figures = f"{text.count(total)} {text.count(round(rate))}/s" if rate else text.count(total)
        parts.append((Span(f"{name.replace('_', ' ')} ", Tone.DIM), Span(figures)))
    if any(part[-1].text.endswith("/s") for part in parts):
        mean = f"(per second: mean of {RATE_WINDOW_NS // 1_000_000_000} s)"
        parts.append((Span(mean, Tone.DIM),))
    zeros = len(node.snapshot.counters) - len(counted)
    if zeros:
        parts.append((Span(f"{plural(zeros, 'other')} 0", Tone.DIM),))
    return _wrapped(parts, width) if parts else [(Span("   nothing counted yet", Tone.DIM),)]


def _wrapped(parts: list[Line], width: int) -> list[Line]:
    """Return the parts one after the other, in as many lines as they need."""
    lines: list[Line] = []
    for part in parts:
        longer = (*(lines[-1] if lines else (Span(" "),)), Span("  "), *part)
        if lines and cell_len(plain(longer)) > width:
            lines.append((Span("   "), *part))
        else:
            lines[-1:] = [longer]
    return lines


def curves(view: View, node: Node) -> list[tuple[str, list[Point]]]:
    """Return the plots of a node: titles with the newest value, and points."""
    series = view.model.series.get(node.id)
    presence = view.presence(node)
    is_heard = presence is Presence.HEARD
    last_ns = view.health.heartbeat_ns(node)
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
    names = widest((fellow.name for fellow in node.snapshot.fellows), 10, 24)
    has_problem = any(fellow.problem for fellow in node.snapshot.fellows)
    roles = widest((fellow.role for fellow in node.snapshot.fellows), 11, 20)
    columns = (
        Column("mark", "", 1),
        Column("name", "fellow", 10, grow=2, most=names, cut=view.glyphs.ellipsis),
        Column("role", "role", 11, grow=1, most=roles, spare=3),
        Column("state", "state", 13, grow=1, most=18),
        Column("communication", "talks", 12),
        Column("heartbeat", "heard", 6, right=True),
        Column("skew", "skew", 8, right=True, spare=2),
        *((Column("problem", "", 8, grow=6),) if has_problem else ()),
    )

    def render(fellow: FellowView, key: str) -> Cell:
        cell = fellow_cell(fellow, key)
        return dimmed(cell) if view.is_stale(node) else cell

    def facts(fellow: FellowView) -> Facts:
        # By the clock of the watch: that of the node may be another.
        elapsed_ns = node.snapshot.time_ns - fellow.last_heartbeat_ns + node.age_ns(view.now_ns)
        return {
            "node": node.snapshot.name,
            "name": fellow.name,
            "role": fellow.role,
            "state": fellow.state,
            "communication": _talk(node, fellow),
            "heartbeat": view.now_ns - elapsed_ns if fellow.last_heartbeat_ns else 0,
            "skew_ns": fellow.skew_ns,
            "problem": fellow.problem,
        }

    def fellow_cell(fellow: FellowView, key: str) -> Cell:
        if key == "mark":
            return (_fellow_mark(view, _talk(node, fellow)),)
        if key == "skew":
            # `round` gives a whole number, which has no "-0".
            return single(f"{round(fellow.skew_ns / 1e6):+d} ms", Tone.DIM)
        value = facts(fellow)[key]
        if key == "state":
            return single(fellow.state.replace("_", " ").lower(), Tone.DIM)
        tone = {"name": Tone.PLAIN, "problem": Tone.CONFLICT}.get(key, Tone.DIM)
        return single("never" if key == "heartbeat" and not value else shown(view, key, value), tone)

    kept = [
        (fellow.id, fellow)
        for fellow in sorted(node.snapshot.fellows, key=lambda fellow: _fellow_order(node, fellow))
        if view.filter.matches({"fellow": fellow.name, "role": fellow.role, "state": fellow.state})
    ]
    hidden = len(node.snapshot.fellows) - len(kept)
    return Rows(columns, kept, render, width=width, fixed=2, hidden=hidden, facts=facts)


def _fellow_order(node: Node, fellow: FellowView) -> tuple[object, ...]:
    return _is_heard_by(node, fellow), natural(fellow.name), fellow.id


def _fellow_mark(view: View, talk: str) -> Span:
    glyphs = view.glyphs
    return {
        "approved": Span(glyphs.ok, Tone.DIM),
        "waiting": Span(glyphs.busy),
        "incompatible": Span(glyphs.conflict, Tone.CONFLICT),
        "lost": Span(glyphs.fault, Tone.FAULT),
    }.get(talk, Span(glyphs.warn, Tone.WARN))


def name_spaces(view: View, node: Node, width: int) -> Rows[NameSpaceView]:
    """Return the name-spaces of this node with the policy that it applies to each."""
    cut = view.glyphs.ellipsis
    names = widest((space.name for space in node.snapshot.name_spaces), 12, 28)
    columns = (
        Column("mark", "", 2),
        Column("name", "name-space", 12, grow=2, most=names),
        Column("master", "master", 8, grow=1, most=16, cut=cut, among=view.node_names),
        Column("phase", "phase", 8),
        Column("samples", "samples", 8, right=True),
        Column("alignee", "alignee", 10),
        Column("durability", "durability", 10, spare=2),
        Column("priority", "prio", 4, right=True, spare=3),
        Column("merges", "merge", 8, grow=2, most=40, spare=4),
        Column("digest", "digest", 8),
    )

    def render(space: NameSpaceView, key: str) -> Cell:
        cell = space_cell(space, key)
        return dimmed(cell) if view.is_stale(node) else cell

    def space_cell(space: NameSpaceView, key: str) -> Cell:
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


MOST_SPACES: Final = 4
"""Name-spaces that a summary of a node names; the others are counted."""
MOST_FELLOWS: Final = 8


def summary_lines(view: View, node: Node, *, since_ns: int, failure: str) -> list[Line]:
    """Return what one asks of one node, a line for each question: label, then answer; at most ten.

    Args:
        view: the system.
        node: the node.
        since_ns: when its present state began; 0 if unknown.
        failure: its last failure, as its supervisor knows it; empty for none.
    """
    snapshot, spaces = node.snapshot, node.snapshot.name_spaces
    since = f" since {text.clock(since_ns)} UTC, {text.age(view.now_ns - since_ns)}" if since_ns else ""
    state = node_state(view, node)
    about = (
        f"{since_heard(view, node)}, pid {snapshot.pid}, domain {snapshot.domain_id}, role {snapshot.role}"
    )
    kept = [group for group in snapshot.groups if is_kept(group)]
    behind = sum(max(0, group.samples - group.stored) for group in kept)
    store = snapshot.store
    place = f"{text.size(store.disk_bytes)} in {store.path}" if store.path else "no store"
    disk = f"{place}, {plural(behind, 'sample') + ' not there yet' if behind else 'all samples are there'}"
    troubles = [one.what for one in view.health.open if node.id in one.subjects] or (
        [failure] if failure else []
    )
    waits = list(filter(None, (lacking_words(view, node, space) for space in spaces)))
    waits += [
        f"reader of {one.partition}.{one.topic}: {waits_for(view, node, one)}"
        for one in snapshot.deliveries
        if one.state == "waiting"
    ]
    return [
        _answer("state", f"{state.text}{since}", state.tone),
        _answer("process", about),
        _answer("fellows", _fellow_words(node)),
        *(_space_answer(view, node, space) for space in spaces[:MOST_SPACES]),
        *([_answer("", f"and {plural(len(spaces) - MOST_SPACES, 'more name-space')}")]
          if len(spaces) > MOST_SPACES else []),
        _answer("disk", store.problem or disk, Tone.FAULT if store.problem else Tone.PLAIN),
        _answer("waits for", "; ".join(waits) or "nothing", Tone.WARN if waits else Tone.PLAIN),
        _answer("trouble", "; ".join(troubles) or "none known", Tone.WARN if troubles else Tone.PLAIN),
    ]  # fmt: skip


LABEL: Final = 11
"""Cells of the labels of a summary, and of short names of name-spaces."""


def _answer(label: str, answer: str, tone: Tone = Tone.PLAIN) -> Line:
    return (Span(f"  {label:<{LABEL}} ", Tone.DIM), Span(answer, tone))


def _fellow_words(node: Node) -> str:
    fellows = sorted(node.snapshot.fellows, key=lambda one: natural(one.name))
    names = [fellow.name for fellow in fellows if _is_heard_by(node, fellow)]
    others = [f"{one.name} ({_talk(node, one)})" for one in fellows if not _is_heard_by(node, one)]
    parts = [listed(names, MOST_FELLOWS)] if names else []
    return "; not ".join([*parts, listed(others, MOST_FELLOWS)]) if others else "".join(parts) or "none"


def _space_answer(view: View, node: Node, space: NameSpaceView) -> Line:
    """Return one name-space: what the node holds, whom it follows, and why."""
    held = f"{plural(space.count, 'sample')}, {space.phase}"
    master = f"master {view.model.name_of(space.master)}" if space.master else "no master"
    absence = view.absence(space.master) if space.master else ""
    master += f", which is {absence}" if absence else ""
    tone = Tone.PLAIN if space.master and space.is_at_rest and not absence else Tone.WARN
    return _answer(space.name, f"{held}; {master}: {space.why or 'none was chosen yet'}", tone)
