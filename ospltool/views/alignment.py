"""Alignments that run, and late joiners that are served."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from engine.runtime.monitor import DeliveryView, NameSpaceView, NodeEvent
from ospltool.live.nodes import Node
from ospltool.live.series import AlignmentProgress
from ospltool.output.text import plural
from ospltool.views import text
from ospltool.views.cells import Cell, Column, Facts, Line, Rows, Span, Tone, single
from ospltool.views.events import RepeatedEvent, lines_of_events
from ospltool.views.view import Rank, UnheardNode, View, shown, unheard_nodes

FIELDS: Final = ("ns", "aligner", "alignee", "node", "topic", "state")
EVENTS: Final = ("align.", "merge.")
LEAST_WITH_BAR: Final = 100
_ALIGNEES: Final = re.compile(r"\((\d{1,6}) fellows total\)")


class Running(NamedTuple):
    """One alignment as one of its two sides reports it."""

    node: Node
    space: NameSpaceView
    progress: AlignmentProgress


def running(view: View) -> list[tuple[str, Running]]:
    """Return all alignments, each once: as the alignee tells it, or the aligner when that is silent."""
    found: dict[tuple[str, str, str], Running] = {}
    for node in view.model.ordered_nodes():
        if view.health.is_away(node):
            continue
        for space, progress in view.model.progress(node):
            alignment = progress.alignment
            received = alignment.direction == "from"
            pair = (node.id, alignment.fellow) if received else (alignment.fellow, node.id)
            key = (space.name, *pair)
            if received or key not in found:
                found[key] = Running(node, space, progress)
    return [("/".join(key), one) for key, one in found.items()]


def sides(view: View, one: Running) -> tuple[str, str]:
    """Return the names of aligner and alignee."""
    fellow = view.model.name_of(one.progress.alignment.fellow)
    if one.progress.alignment.direction == "from":
        return fellow, one.node.snapshot.name
    return one.node.snapshot.name, fellow


def alignments(view: View, width: int, name: str = "") -> Rows[Running]:
    """Return the running alignments, perhaps of one name-space.

    Where there is little room, rate and time left are worth more than a bar.
    """
    bar = (Column("bar", "", 10, grow=2, most=40, spare=1),) if width >= LEAST_WITH_BAR else ()
    columns = (
        Column("mark", "", 1),
        Column("since", "since", 6, right=True, spare=2),
        Column("space", "name-space", 10, grow=2, most=28),
        Column("aligner", "aligner", 7, grow=1, most=16, cut=view.glyphs.ellipsis),
        Column("alignee", "alignee", 7, grow=1, most=16, cut=view.glyphs.ellipsis),
        *bar,
        Column("percent", "done", 5, right=True),
        Column("samples", "samples", 15, right=True),
        Column("rate", "rate", 9, right=True),
        Column("left", "left", 6, right=True),
        Column("bytes", "received", 9, right=True, spare=3),
    )
    width_of_bar = 0

    def render(one: Running, key: str) -> Cell:
        if key == "bar":
            full, empty = view.glyphs.bar(one.progress.fraction, width_of_bar)
            return (Span(full), Span(empty, Tone.DIM))
        return _cell(view, one, key)

    kept = []
    for key, one in running(view):
        aligner, alignee = sides(view, one)
        if name in ("", one.space.name) and view.filter.matches(
            {"ns": one.space.name, "aligner": aligner, "alignee": alignee}
        ):
            kept.append((key, one))
    rows = Rows(columns, kept, render, width=width, fixed=3, facts=lambda one: _facts(view, one))
    width_of_bar = next((column.width for column in rows.columns if column.key == "bar"), 0)
    return rows


def _cell(view: View, one: Running, key: str) -> Cell:
    progress, alignment = one.progress, one.progress.alignment
    if key == "mark":
        stalled = view.now_ns - progress.moved_ns > 10_000_000_000
        sign = Span(view.glyphs.warn, Tone.WARN) if stalled else Span(view.glyphs.busy)
        return (sign,)
    if key == "samples":
        figures = f"{text.count(alignment.samples)}/{text.count(alignment.expected)}"
        return single(figures)
    return single(
        shown(view, key, _facts(view, one)[key]), Tone.DIM if key in ("since", "bytes") else Tone.PLAIN
    )


def _facts(view: View, one: Running) -> Facts:
    """Return the values of an alignment; of a node that is not heard, rate and time left are not known."""
    progress, alignment = one.progress, one.progress.alignment
    aligner, alignee = sides(view, one)
    is_stale = view.is_stale(one.node)
    return {
        "since": alignment.started_ns,
        "space": one.space.name,
        "aligner": aligner,
        "alignee": alignee,
        "percent": progress.fraction,
        "samples": alignment.samples,
        "expected": alignment.expected,
        "rate": None if is_stale else progress.rate_per_s,
        "left": None if is_stale else progress.left_s,
        "bytes": alignment.bytes,
    }


def curve(view: View, one: Running) -> tuple[str, list[tuple[int, float]]]:
    """Return the samples of one alignment over time, with a title."""
    aligner, alignee = sides(view, one)
    alignment = one.progress.alignment
    points = view.model.history(one.node.id, one.space.name, alignment.fellow, alignment.direction)
    received = plural(alignment.samples, "sample")
    title = f"{one.space.name}, {aligner} {view.glyphs.arrow} {alignee}: {received} received"
    return title, [(time_ns, float(samples)) for time_ns, samples in points]


def request_events(view: View, number: int) -> list[NodeEvent]:
    """Return the newest events about requests, their combination and their answers, oldest first."""
    found: list[NodeEvent] = []
    for event in reversed(view.model.events):
        if event.event.startswith(EVENTS) and _keeps_event(view, event):
            found.append(event)
            if len(found) >= number:
                break
    return found[::-1]


def _keeps_event(view: View, event: NodeEvent) -> bool:
    """Words of the filter are looked for in the message; its fields are those of the tables."""
    return view.filter.matches({"node": event.node_name, "text": event.text}, skip=FIELDS)


def told_lines(view: View, number: int, width: int) -> list[Line]:
    """Return the newest requests and answers that nodes reported while watching, at most `number`."""
    if number <= 0:
        return []
    events = request_events(view, number)
    if not events:
        return [(Span(" no requests yet", Tone.DIM),)]
    single_ones = [RepeatedEvent(event, frozenset((event.node,))) for event in events]
    return lines_of_events(view, single_ones, width)


def counts(view: View) -> str:
    """Return the number of received requests, and of those answered together with another one."""
    received = combined = 0
    for event in view.model.events:
        if event.event == "align.request-received":
            received += 1
        elif event.event == "align.sent":
            alignees = _ALIGNEES.search(event.text)
            combined += int(alignees[1]) - 1 if alignees else 0
    return f"{plural(received, 'request')} received while watching, {combined} combined with another"


def unfinished(view: View, name: str = "") -> list[tuple[Node, NameSpaceView]]:
    """Return the name-spaces, or the one of a name, that present nodes do not hold whole yet but should."""
    return [
        (node, space)
        for node in view.model.ordered_nodes()
        if not view.health.is_away(node)
        for space in node.snapshot.name_spaces
        if not space.is_at_rest and name in ("", space.name)
    ]


def idle_lines(view: View, name: str = "") -> list[Line]:
    """Return the lines shown without alignments, perhaps of one name-space."""
    waiting = [(node, space) for node, space in unfinished(view, name) if not space.alignments]
    if not waiting and not view.is_anybody_heard:
        return [(Span(" no node is heard, so no alignment is seen", Tone.DIM),)]
    if not waiting:
        spaces = [space for node in view.model.nodes.values() for space in node.snapshot.name_spaces]
        parts = sum(1 for space in spaces if space.is_less_than_whole)
        rest = f" but {parts:,}, which may stay without samples" if parts else ""
        if lost := _lost(view):
            rest += f" on the nodes that are heard; {lost[0].name}: {lost[0].state}"
            rest += f", and {len(lost) - 1:,} more" if len(lost) > 1 else ""
        return [(Span(f" nothing is being aligned: every set is complete{rest}", Tone.DIM),)]
    return [_lacking_line(view, node, space) for node, space in waiting]


def lacking_lines(view: View) -> list[Line]:
    """Return a line for each name-space that is not whole on a present node, and for each node not heard."""
    return [
        *(_lacking_line(view, node, space) for node, space in unfinished(view)),
        *((Span(f" {view.glyphs.idle} "), Span(f"{one.name}: {one.state}")) for one in _lost(view)),
    ]


def _lost(view: View) -> list[UnheardNode]:
    """Return the expected nodes that were never heard and have not ended in order."""
    return [one for one in unheard_nodes(view) if one.rank is not Rank.STOPPED]


def _lacking_line(view: View, node: Node, space: NameSpaceView) -> Line:
    does = "aligns" if space.alignments else f"waits in phase {space.phase}"
    told = f"{space.name} on {node.snapshot.name} is not complete and {does}"
    return (Span(f" {view.glyphs.idle} "), Span(told))


SECOND_NS: Final = 1_000_000_000


def alignment_line(view: View, node: Node, space: NameSpaceView, progress: AlignmentProgress) -> Line:
    """Return one running alignment: who from whom, how far, how fast, how long still."""
    glyphs = view.glyphs
    full, empty = glyphs.bar(progress.fraction, 10)
    left = "" if progress.left_s is None else f"{text.age(max(SECOND_NS, int(progress.left_s * 1e9)))} left"
    alignment = progress.alignment
    source, alignee = view.model.name_of(alignment.fellow), node.snapshot.name
    if alignment.direction == "to":
        source, alignee = alignee, source
    who = f"{space.name}  {source} {glyphs.arrow} {alignee}  "
    figures = f" {text.percent(progress.fraction):>5}  {alignment.samples:,}/{alignment.expected:,}"
    speed = f"  {text.count(round(progress.rate_per_s))}/s  {left}" if progress.rate_per_s else ""
    return (
        Span(f" {glyphs.busy} "),
        Span(f"{text.age(view.now_ns - alignment.started_ns):>6}  ", Tone.DIM),
        Span(who),
        Span(full),
        Span(empty, Tone.DIM),
        Span(figures),
        Span(speed, Tone.DIM),
    )


def delivery_line(view: View, node: Node, delivery: DeliveryView) -> Line:
    """Return a late joiner that is being served, or waits for a set to be complete."""
    elapsed = text.age(view.now_ns - delivery.started_ns)
    what = f"{delivery.partition}.{delivery.topic}"
    place = view.model.applications.place(delivery.participant)
    why = waits_for(view, node, delivery)
    return (
        Span(f" {view.glyphs.busy if delivery.state == 'running' else view.glyphs.idle} "),
        Span(f"{elapsed:>6}  ", Tone.DIM),
        Span(f"late joiner of {what}, served by {node.snapshot.name}{', in ' if place else ''}{place}"),
        Span(f"  {plural(delivery.samples, 'sample')}  {delivery.state}  {why}", Tone.DIM),
    )


Delivery = tuple[Node, DeliveryView]


def waits_for(view: View, node: Node, delivery: DeliveryView) -> str:
    """Return why a late joiner has not been served: what its node says, or the set that is not whole yet."""
    if delivery.problem or delivery.state != "waiting":
        return delivery.problem
    spaces = {
        group.name_space
        for group in node.snapshot.groups
        if group.topic == delivery.topic and group.partition in delivery.partition.split(",")
    }
    lacking = [space for space in node.snapshot.name_spaces if space.name in spaces and not space.complete]
    return "; ".join(
        f"waits until {space.name} is complete on {node.snapshot.name}, now in phase {space.phase}"
        for space in lacking
    )


def deliveries(view: View, nodes: list[Node], width: int) -> Rows[Delivery]:
    """Return the late joiners that these nodes serve or served, the newest first."""
    columns = (
        Column("mark", "", 1),
        Column("since", "since", 6, right=True),
        Column("node", "by", 8, grow=1, most=16),
        Column("topic", "late joiner of", 16, grow=3, most=40),
        Column("participant", "participant", 11, grow=3, most=36, spare=2),
        Column("state", "state", 8),
        Column("samples", "samples", 8, right=True),
        Column("took", "took", 8, right=True, spare=1),
        Column("problem", "", 4, grow=4),
    )

    def facts(delivery: Delivery) -> Facts:
        node, one = delivery
        return {
            "since": one.started_ns,
            "node": node.snapshot.name,
            "topic": f"{one.partition}.{one.topic}",
            "participant": one.participant,
            "state": one.state,
            "samples": one.samples,
            "took": took(one.started_ns, one.finished_ns),
            "finished_ns": one.finished_ns,
            "problem": waits_for(view, node, one),
        }

    def render(delivery: Delivery, key: str) -> Cell:
        state = delivery[1].state
        if key == "mark":
            return (delivery_mark(view, state),)
        value = shown(view, key, facts(delivery)[key])
        if key == "problem":
            return single(value, Tone.FAULT if state == "failed" else Tone.WARN)
        return single(value, Tone.PLAIN if key in ("topic", "samples") else Tone.DIM)

    rows = [
        (f"{node.id}/{d.participant}/{d.partition}/{d.topic}/{d.started_ns}", (node, d))
        for node in nodes
        for d in node.snapshot.deliveries
        if view.filter.matches({"node": node.snapshot.name, "topic": d.topic, "state": d.state})
    ]
    rows.sort(key=lambda row: (-row[1][1].started_ns, row[0]))
    return Rows(columns, rows, render, width=width, fixed=4, facts=facts)


def delivery_mark(view: View, state: str) -> Span:
    """Return the sign of a delivery in this state."""
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
