"""The overview: what needs attention, and every node and name-space on one page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from ospltool.diagnostics.model import Severity
from ospltool.health.incidents import Incident
from ospltool.health.presence import Presence
from ospltool.live.nodes import Node
from ospltool.live.series import RATE_WINDOW_NS, NodeSeries
from ospltool.output.text import plural
from ospltool.views import text
from ospltool.views.cells import Cell, Column, Glyphs, Line, Span, Tone, dimmed, single, value_of
from ospltool.views.events import URGENT_LEVELS
from ospltool.views.view import (
    Rank,
    UnheardNode,
    View,
    master_mark,
    name_space_state,
    node_mark,
    node_state,
    ranks,
    rule_line,
    severity_sign,
    since_heard,
    unheard_nodes,
)

SPAN_NS: Final = 3_600_000_000_000
STEPS: Final = 6
"""Moments that are named below the row."""


def timeline_lines(view: View, width: int) -> list[Line]:
    """Return a rule, the row of marks, and below it the times of day."""
    room = max(10, width - 2)
    marks: list[tuple[Tone, str]] = [(Tone.DIM, view.glyphs.nothing)] * room
    begin_ns = view.now_ns - SPAN_NS
    signs = {Tone.FAULT: view.glyphs.fault, Tone.WARN: view.glyphs.warn}
    for time_ns, tone in moments(view, begin_ns):
        place = (time_ns - begin_ns) * room // SPAN_NS
        if 0 <= place < room and marks[place][0] is not Tone.FAULT:
            marks[place] = tone, signs[tone]
    health = view.health
    begun = sum(one.since_ns >= begin_ns for one in health.every)
    seen = f", {plural(begun, 'incident')} seen" if begun else ""
    title = f"last hour{seen}; {view.glyphs.fault} error, {view.glyphs.warn} warning"
    row: list[Span] = [Span(" ")]
    for tone, sign in marks:
        if len(row) > 1 and row[-1].tone is tone:
            row[-1] = Span(row[-1].text + sign, tone)
        else:
            row.append(Span(sign, tone))
    return [rule_line(view, title, width), tuple(row), _clock_line(begin_ns, room)]


def moments(view: View, begin_ns: int) -> Iterator[tuple[int, Tone]]:
    """Return when incidents began and nodes reported grave events, also before the console's start."""
    health = view.health
    for one in health.every:
        if one.since_ns >= begin_ns and one.severity is not Severity.NOTICE:
            yield one.since_ns, Tone.FAULT if one.severity is Severity.ERROR else Tone.WARN
    for event in reversed(view.model.events):
        if event.time_ns < begin_ns:
            return
        if event.level in URGENT_LEVELS:
            yield event.time_ns, URGENT_LEVELS[event.level]


def _clock_line(begin_ns: int, room: int) -> Line:
    times = ""
    for step in range(STEPS):
        times = times.ljust(step * room // STEPS) + text.clock(begin_ns + step * SPAN_NS // STEPS)[:5]
    return (Span(" " + times.ljust(room - 3) + "now", Tone.DIM),)


FIELDS: Final = ("node", "role", "host", "state", "ns")


FOLDED: Final = "folded"
"""The key of the row that stands for the healthy nodes that do not fit."""

MEAN_S: Final = RATE_WINDOW_NS // 1_000_000_000
"""Seconds over which rates are means."""
CURVE: Final = 12
"""Cells of the small curves of rate and heartbeat, which cover a minute."""
CELL_NS: Final = 60_000_000_000 // CURVE
"""Time of one of them."""
STATE: Final = 10
LONG_STATE: Final = 16
"""Cells for the states of nodes: the longer ones are those of a start."""
LEAST_FIGURE: Final = 14
"""A cell of fewer cells has no room for a figure, which is worth more than curves."""


class Overview:
    """The matrix of nodes and name-spaces, what is in trouble first. Cells are made when looked at.

    Args:
        view: what it is computed from.
        width: cells.
        incidents: what needs attention; it puts nodes first.
        rows: lines for nodes; healthy nodes that do not fit are folded into one. 0 for as many as there are.
    """

    def __init__(self, view: View, width: int, incidents: Sequence[Incident] = (), rows: int = 0) -> None:
        self._view = view
        ranked = self._ranked = ranks(view, incidents)
        unheard = unheard_nodes(view)
        kept: list[Node | UnheardNode] = [node for node in view.model.ordered_nodes() if self._keeps(node)]
        kept += [one for one in unheard if self._keeps(one)]
        every = sorted(((_rank(one, ranked), one) for one in kept), key=lambda pair: pair[0])
        if view.faults_only:
            every = [(rank, one) for rank, one in every if rank <= Rank.WARNING]
        self.hidden = len(view.model.nodes) + len(unheard) - len(every)
        self.folded: list[Node] = []
        calm = [one for rank, one in every if rank is Rank.CALM and isinstance(one, Node)]
        if 0 < rows < len(every) and len(calm) > 1:
            self.folded = calm[max(rows - 1 - (len(every) - len(calm)), 0) :]
        away = {node.id for node in self.folded}
        self._nodes = [one for _, one in every if _key(one) not in away]
        self._stale = {one.id for one in self._nodes if isinstance(one, Node) and view.is_stale(one)}
        names = view.model.name_space_names()
        self.name_spaces = [name for name in names if view.filter.matches_field("ns", name)]
        self.keys = tuple(map(_key, self._nodes)) + ((FOLDED,) if self.folded else ())
        self.columns = self._columns(width)
        self.fixed = len(self.columns) - len(self.name_spaces)
        shown = text.distinct(list(map(_name, self._nodes)), self.columns[1].width)
        self._names = dict(zip(map(_key, self._nodes), shown, strict=True))

    def _keeps(self, node: Node | UnheardNode) -> bool:
        if not self._view.filter:
            return True
        if isinstance(node, UnheardNode):
            values = {"node": node.name, "role": "", "host": "", "state": node.state}
            return self._view.filter.matches(values, skip=("ns",))
        snapshot = node.snapshot
        values = {
            "node": snapshot.name,
            "role": snapshot.role,
            "host": snapshot.host,
            "state": node_state(self._view, node).text,
        }
        return self._view.filter.matches(values, skip=("ns",))

    def _columns(self, width: int) -> tuple[Column, ...]:
        longest = max((len(_name(one)) for one in self._nodes), default=4)
        name_width = min(max(longest, 6), 24 if width >= 110 else 12 if width >= 72 else 10)
        is_long = width >= 72 and any(len(_state(self._view, one)) > STATE for one in self._nodes)
        state_width = LONG_STATE if is_long else STATE
        fixed: tuple[Column, ...] = (
            Column("mark", "", 1),
            Column("node", "node", name_width),
            Column("state", "state", state_width),
            Column("heartbeat", "heard", 6, right=True),
        )
        with_curves = (
            *fixed,
            Column("beats", "gaps, 1 min", CURVE + 1),
            Column("rate", f"rate, {MEAN_S} s mean, 1 min", CURVE + 10),
        )
        if self._share(with_curves, width) >= LEAST_FIGURE:
            fixed = with_curves
        cell_width = min(max(self._share(fixed, width), 6), 24)
        titles = text.distinct(self.name_spaces, cell_width, ellipsis=self._view.glyphs.ellipsis)
        named = zip(self.name_spaces, titles, strict=True)
        return (*fixed, *(Column(f"ns {name}", title, cell_width) for name, title in named))

    def _share(self, fixed: Sequence[Column], width: int) -> int:
        """Cells for each name-space beside these columns."""
        room = width - sum(column.width + 1 for column in fixed) - 1
        return room // max(1, len(self.name_spaces)) - 2

    def line(self, row: int) -> Line | None:
        """Return the healthy nodes that do not fit, in one line; None for every other row."""
        if row < len(self._nodes):
            return None
        view = self._view
        slowest = min(self.folded, key=lambda node: node.heard_ns)
        age_s = slowest.age_ns(view.now_ns) / 1e9
        shown = (one for one in self._nodes if isinstance(one, Node))
        more = "more " if any(node_mark(view, node).tone is Tone.DIM for node in shown) else ""
        held = sum(space.count for node in self.folded for space in node.name_spaces.values())
        about = f"{text.count(held)} samples held, heard last {slowest.snapshot.name} {age_s:.1f} s ago"
        return (
            Span(f" {view.glyphs.ok} ", Tone.DIM),
            Span(f"{len(self.folded):,} {more}healthy"),
            Span(f"  {about}  (enter shows them)", Tone.DIM),
        )

    def value(self, row: int, column: int) -> str:
        """Return the figures of a cell."""
        key = self.columns[column].key
        node = self.node(row)
        if node is not None and column >= self.fixed:
            space = node.name_spaces.get(key.removeprefix("ns "))
            if space is None:
                return ""
            fraction = name_space_state(self._view, node, space)[1]
            return f"{space.count:,}" if space.complete else text.percent(fraction)
        return value_of(self.cell(row, column))

    def node(self, row: int) -> Node | None:
        """Return the node of a row; None for a line, and for a node that was never heard."""
        one = self._nodes[row] if 0 <= row < len(self._nodes) else None
        return one if isinstance(one, Node) else None

    def name(self, row: int) -> str:
        """Return the name of the node of a row that is no line."""
        return _name(self._nodes[row])

    def unheard(self, row: int) -> UnheardNode | None:
        """Return the node of a row if it was never heard."""
        one = self._nodes[row] if 0 <= row < len(self._nodes) else None
        return one if isinstance(one, UnheardNode) else None

    def cell(self, row: int, column: int) -> Cell:
        """Return one cell; dim when the node has not been heard for too long."""
        node = self._nodes[row]
        if isinstance(node, UnheardNode):
            return node.cell(self._view, self.columns[column].key, self._names[node.key])
        if column >= self.fixed:
            name = self.name_spaces[column - self.fixed]
            cell = self._name_space_cell(node, name, self.columns[column].width)
        else:
            cell = self._node_cell(node, self.columns[column].key)
        return dimmed(cell) if node.id in self._stale else cell

    def _node_cell(self, node: Node, key: str) -> Cell:
        view = self._view
        if key == "mark":
            return (self._mark(node),)
        if key == "node":
            return single(self._names[node.id])
        if key == "state":
            return (node_state(view, node),)
        series = view.model.series.get(node.id)
        if key == "rate":
            return rate_cell(view, node, series)
        if key == "beats":
            gaps = series.silences_s(CELL_NS, CURVE, view.now_ns) if series else []
            return (sparks(gaps, view.glyphs, CURVE, least=2 * node.stale_after_ns / 1e9),)
        if view.is_stale(node):
            return single(text.age(node.age_ns(view.now_ns)), Tone.WARN)
        heard_ns = max(node.heard_ns, view.health.heartbeat_ns(node))  # by the watch, or by a fellow
        return single(text.age(view.now_ns - heard_ns), Tone.DIM)

    def _mark(self, node: Node) -> Span:
        """Return how the node is; of one that says it is well, whether an incident is about it."""
        mark, rank = node_mark(self._view, node), self._ranked[node.id]
        is_heard = self._view.presence(node) is Presence.HEARD
        if is_heard and mark.tone is Tone.DIM and rank <= Rank.WARNING:
            return Span(*severity_sign(self._view.glyphs, Severity(rank)))
        return mark

    def _name_space_cell(self, node: Node, name: str, width: int) -> Cell:
        glyphs = self._view.glyphs
        space = node.name_spaces.get(name)
        if space is None:
            return single(glyphs.nothing, Tone.DIM)
        state, fraction = name_space_state(self._view, node, space)
        figure = text.percent(fraction) if not space.complete else text.count(space.count)
        show_figure = width >= LEAST_FIGURE
        bar_width = width - 3 - (9 if show_figure else 0)
        full, empty = glyphs.bar(fraction, bar_width)
        bar_tone = Tone.DIM if space.complete else Tone.PLAIN
        cell: Cell = (
            master_mark(self._view, node, space),
            state,
            Span(" "),
            Span(full, bar_tone),
            Span(empty, Tone.DIM),
        )
        return (*cell, Span(f" {figure:>8}")) if show_figure else cell


def _rank(one: Node | UnheardNode, ranked: Mapping[str, Rank]) -> Rank:
    return one.rank if isinstance(one, UnheardNode) else ranked[one.id]


def _key(one: Node | UnheardNode) -> str:
    return one.key if isinstance(one, UnheardNode) else one.id


def _state(view: View, one: Node | UnheardNode) -> str:
    return one.state if isinstance(one, UnheardNode) else node_state(view, one).text


def _name(one: Node | UnheardNode) -> str:
    return one.name if isinstance(one, UnheardNode) else one.snapshot.name


def rate_cell(view: View, node: Node, series: NodeSeries | None) -> Cell:
    """Samples stored per second now, and lately; nothing for a node that is not heard."""
    if series is None or view.is_stale(node):
        return single(view.glyphs.nothing, Tone.DIM)
    rate = series.rate_per_s("stored") or 0.0
    lately = series.means("stored", CELL_NS, CURVE)
    return Span(f"{text.count(round(rate)):>7}/s "), sparks(lately, view.glyphs, CURVE)


def sparks(values: Sequence[float], glyphs: Glyphs, width: int, *, least: float = 0.0) -> Span:
    """The newest values as blocks, the last on the right; the highest block stands for `least` or more."""
    newest = list(values)[-width:]
    most = max([*newest, least], default=0.0)
    top = len(glyphs.blocks) - 1
    drawn = "".join(glyphs.blocks[round(max(0.0, v) / most * top) if most > 0 else 0] for v in newest)
    return Span(drawn.rjust(width), Tone.DIM)


def nothing_shown(view: View) -> list[Line]:
    """Return the lines shown without a node to explain."""
    if view.faults_only and view.model.nodes and not view.filter:
        number = plural(len(view.model.nodes), "node")
        return [(Span(f" no faults: {number} hidden; f shows all", Tone.DIM),)]
    if view.filter and view.model.nodes:
        number = plural(len(view.model.nodes), "node")
        return [(Span(f" no node matches the filter {view.filter.text!r}; {number} hidden"),)]
    lines: list[Line] = [(Span(" no node heard yet", Tone.DIM),)]
    if view.model.persistence:
        lines.append((Span(" 0 shows the persistence services"),))
    return lines


def detail(view: View, node: Node, name: str | None) -> list[Line]:
    """Explain the cell under the cursor in two lines, the most important words first.

    `name` is the name-space of the cell, None for the node as a whole.
    """
    snapshot = node.snapshot
    heard = text.ago(node.age_ns(view.now_ns))
    about = f"host {snapshot.host}  pid {snapshot.pid}  role {snapshot.role}"
    lived = f"{since_heard(view, node)}  heard {heard}"
    space = node.name_spaces.get(name) if name else None
    if space is None:
        store = f"store {snapshot.store.kind} {snapshot.store.path}"
        here = f"{name} is not on {snapshot.name}" if name else snapshot.name
        return [
            (Span(f" {here}  ", Tone.STRONG), Span(f"{about}  {lived}", Tone.DIM)),
            (Span(f" {store}", Tone.DIM),),
        ]
    word = "master" if space.confirmed else "proposes"
    said = (
        f"{word} {view.model.name_of(space.master)}: {space.why}"
        if space.master
        else f"no master: {space.why or 'none was chosen yet'}"
    )
    presence = view.presence(node)
    tone = Tone.PLAIN
    if presence is not Presence.HEARD:
        said, tone = f"{presence}, said last: {said}", Tone.DIM
    held = f"{plural(space.count, 'sample')} in {plural(space.groups, 'group')}, {space.phase}"
    return [
        (Span(f" {space.name} on {snapshot.name}  ", Tone.STRONG), Span(said, tone)),
        (Span(f" {held}  digest {space.digest[:8]}  epoch {space.epoch}  {about}", Tone.DIM),),
    ]
