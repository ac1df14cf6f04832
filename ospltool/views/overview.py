"""The overview: what needs attention, and every node and name-space on one page."""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from ospltool.diagnostics.model import Severity
from ospltool.health.incidents import Incident
from ospltool.health.presence import Presence
from ospltool.live.masterships import Mastership
from ospltool.live.nodes import Node, natural
from ospltool.live.series import RATE_WINDOW_NS, NodeSeries, Point
from ospltool.output.text import listed, plural
from ospltool.views import text
from ospltool.views.applications import readers, writers
from ospltool.views.cells import (
    Cell,
    Column,
    Line,
    Span,
    Tone,
    dimmed,
    fit_line,
    more_line,
    single,
    value_of,
    widest,
)
from ospltool.views.curves import sparks
from ospltool.views.events import URGENT_LEVELS
from ospltool.views.node import keeps_node
from ospltool.views.view import (
    Rank,
    UnheardNode,
    View,
    difference,
    master_mark,
    name_space_state,
    node_mark,
    node_state,
    ranks,
    severity_sign,
    since_heard,
    unheard_nodes,
)

MINUTE_NS: Final = 60_000_000_000
SPANS_NS: Final = (5 * MINUTE_NS, 15 * MINUTE_NS, 60 * MINUTE_NS)
"""Times that the row of masters covers: the least one within which all began that is known."""
STEPS: Final = 6
"""Moments that are named below the row."""
LABEL: Final = 16
"""The most cells for the names of name-spaces beside their masters."""


def hour_lines(view: View, width: int, most: int, only: str = "") -> list[Line]:
    """Return who led each name-space when, what went wrong, and the times of day, over the last hour or less.

    Args:
        view: what it is computed from.
        width: cells.
        most: the most lines; name-spaces whose master changed come first, and the last ones are left out.
        only: the only name-space; empty for all.
    """
    begin_ns = _begin_ns(view)
    every = sorted(view.model.masterships.items(), key=lambda each: -_hand_overs(each[1], begin_ns))
    every = [each for each in every if only in ("", each[0][0])]
    roles = collections.Counter(name for (name, _), _ in every)
    named = [
        (f"{name} {role}" if roles[name] > 1 else name, name, role, terms) for (name, role), terms in every
    ]
    named = named[: max(0, most - 2)]
    label = widest((one for one, *_ in named), 0, LABEL) if width >= 4 * LABEL else 0
    room = max(10, width - label - 3)
    lines: list[Line] = []
    for one, name, role, terms in named:
        shown = text.fit(one, label, ellipsis=view.glyphs.ellipsis)
        lines.append((Span(f" {shown} "), *_terms(view, name, role, terms, begin_ns, room)))
    gap = Span(" " * (label + 2))
    marks = (gap, *_marks(view, begin_ns, room))
    return [*lines, marks, (gap, Span(_clocks(begin_ns, view.now_ns, room), Tone.DIM))][-max(most, 2) :]


def hour_title(view: View, only: str = "") -> str:
    """Return the title of the last hour, which explains its marks."""
    begin_ns, glyphs = _begin_ns(view), view.glyphs
    every = view.model.masterships.items()
    changes = sum(_hand_overs(terms, begin_ns) for (name, _), terms in every if only in ("", name))
    begun = sum(one.since_ns >= begin_ns for one in view.health.every)
    parts = [f"masters of the last {text.age(view.now_ns - begin_ns)}"]
    parts += [f"{glyphs.mark} {plural(changes, 'hand-over')}"] if changes else []
    parts += [f"{plural(begun, 'incident')} ({glyphs.fault} error, {glyphs.warn} warning)"] if begun else []
    return ", ".join(parts)


def _hand_overs(terms: Iterable[Mastership], begin_ns: int) -> int:
    """Return how often the master changed since a moment."""
    pairs = itertools.pairwise(terms)
    return sum(later.since_ns >= begin_ns and later.master != one.master for one, later in pairs)


def _terms(view: View, name: str, role: str, terms: Iterable[Mastership], begin_ns: int, room: int) -> Line:
    """Return who led a name-space since a moment, and whether nobody or several lead now."""
    glyphs, span_ns = view.glyphs, view.now_ns - begin_ns
    leaders = _joined(terms)
    ends = [*(one.since_ns for one in leaders[1:]), view.now_ns]
    spans: list[Span] = []
    drawn = 0
    for one, end_ns in zip(leaders, ends, strict=True):
        start = max(0, (one.since_ns - begin_ns) * room // span_ns)
        end = min(room, max(0, (end_ns - begin_ns) * room // span_ns))
        if end_ns == view.now_ns:
            start, end = min(start, room - 1), room
        if end <= max(start, drawn):
            continue
        is_last = one is leaders[-1]
        start = max(start, drawn)
        spans.append(Span(glyphs.bar_empty * (start - drawn), Tone.DIM))
        begins = one.since_ns >= begin_ns and (one is not leaders[0] or one.is_exact)
        said = f"{glyphs.mark if begins else ''}{view.model.name_of(one.master)} "
        if len(said) > end - start:
            said = glyphs.mark if begins else ""
        tone = Tone.PLAIN if is_last else Tone.DIM
        spans += [
            Span(said, tone),
            Span(glyphs.bar_full * (end - start - len(said)), Tone.ACCENT if is_last else tone),
        ]
        drawn = end
    trouble = ""
    if view.health.is_contested(name, role):
        trouble = f"{glyphs.conflict} several masters"
    elif not any(
        one.name_spaces[name].master for one in view.model.holders(name) if one.snapshot.role == role
    ):
        trouble = f"{glyphs.fault} no master"
    if trouble:
        spans = list(fit_line(tuple(spans), room - len(trouble) - 1, glyphs=glyphs))
        spans.append(Span(f" {trouble}", Tone.FAULT))
    return tuple(spans)


def _joined(terms: Iterable[Mastership]) -> list[Mastership]:
    """Return the masterships without those that continue the one before in another epoch."""
    found: list[Mastership] = []
    for one in terms:
        if not found or found[-1].master != one.master:
            found.append(one)
    return found


def _marks(view: View, begin_ns: int, room: int) -> Line:
    """Return a row with a mark where something went wrong."""
    marks: list[tuple[Tone, str]] = [(Tone.DIM, view.glyphs.nothing)] * room
    signs = {Tone.FAULT: view.glyphs.fault, Tone.WARN: view.glyphs.warn}
    for time_ns, tone in moments(view, begin_ns):
        place = (time_ns - begin_ns) * room // (view.now_ns - begin_ns)
        if 0 <= place < room and marks[place][0] is not Tone.FAULT:
            marks[place] = tone, signs[tone]
    runs = itertools.groupby(marks, key=lambda mark: mark[0])
    return tuple(Span("".join(sign for _, sign in run), tone) for tone, run in runs)


def _begin_ns(view: View) -> int:
    """Return when the row of masters begins."""
    told = [terms[0].since_ns for terms in view.model.masterships.values() if terms]
    told += [one.since_ns for one in view.health.every]
    told += [event.time_ns for event in view.model.events[:1]]
    span_ns = view.now_ns - min(told, default=view.now_ns)
    return view.now_ns - next((one for one in SPANS_NS if one >= span_ns), SPANS_NS[-1])


def _clocks(begin_ns: int, now_ns: int, room: int) -> str:
    times = ""
    for step in range(STEPS):
        moment_ns = begin_ns + step * (now_ns - begin_ns) // STEPS
        times = times.ljust(step * room // STEPS) + text.clock(moment_ns)[:5]
    return times.ljust(room - 3) + "now"


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


FIELDS: Final = ("node", "role", "host", "state", "ns")


FOLDED: Final = "folded"
"""The key of the row that stands for the healthy nodes that do not fit."""

MEAN_S: Final = RATE_WINDOW_NS // 1_000_000_000
"""Seconds over which rates are means."""
MINUTE: Final = "1 min"
CURVE: Final = 12
"""Least cells of the small curves of rate and heartbeat, which cover a minute."""
LONGEST_CURVE: Final = 48
CELL_NS: Final = 60_000_000_000 // CURVE
"""Time of one of them."""
MORE: Final = (
    (Column("disk", "disk", 9, right=True), 6),
    (Column("host", "host", 14), 2),
    (Column("up", "up", 6, right=True), 4),
)
"""Columns where there is room, the one that is worth most first, with its place among those before."""
STATE: Final = 10
LONG_STATE: Final = 16
"""Cells for the states of nodes: the longer ones are those of a start."""
LEAST_FIGURE: Final = 14
"""A cell of fewer cells has no room for a figure, which is worth more than curves."""
# A line of an incident needs about 75 cells.
WIDE: Final = 148
"""Cells from which parts are side by side, and nodes have their host and time up."""
ENOUGH: Final = 22
"""A cell of a name-space with more shows nothing more."""


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
        kept: list[Node | UnheardNode] = [
            node for node in view.model.ordered_nodes() if keeps_node(view, node)
        ]
        kept += [one for one in unheard if keeps_node(view, one)]
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
            Column("beats", f"gaps, {MINUTE}", CURVE + 1),
            Column("rate", f"rate, {MEAN_S} s mean, {MINUTE}", CURVE + 10),
        )
        self._curve = CURVE
        if self._share(with_curves, width) >= LEAST_FIGURE:
            fixed = with_curves
            for column, place in MORE:
                longer = (*fixed[:place], column, *fixed[place:])
                is_for_all = column.key == "disk" or width >= WIDE
                if is_for_all and self._share(longer, width) >= ENOUGH and self._is_told(column.key):
                    fixed = longer
            left = self._share(fixed, width) - ENOUGH
            if left > 0:  # curves get half of what name-spaces do not need
                self._curve = min(LONGEST_CURVE, CURVE + left * len(self.name_spaces) // 2)
                fixed = tuple(self._lengthened(column) for column in fixed)
        cell_width = min(max(self._share(fixed, width), 6), 30)
        titles = text.distinct(self.name_spaces, cell_width, ellipsis=self._view.glyphs.ellipsis)
        named = zip(self.name_spaces, titles, strict=True)
        return (*fixed, *(Column(f"ns {name}", title, cell_width) for name, title in named))

    def _is_told(self, key: str) -> bool:
        """Return whether a column has something to say."""
        nodes = [one.snapshot for one in self._nodes if isinstance(one, Node)]
        if key == "disk":
            return any(one.store.disk_bytes for one in nodes)
        return key != "host" or any(one.host != one.name for one in nodes)

    def _lengthened(self, column: Column) -> Column:
        """Return a column of curves with as much of the past as there is room for, five seconds a cell."""
        if column.key not in ("beats", "rate"):
            return column
        past = text.age(self._curve * CELL_NS)
        title = column.title.replace(MINUTE, past)
        return dataclasses.replace(column, title=title, width=column.width + self._curve - CURVE)

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
            return rate_cell(view, node, series, self._curve)
        if key == "beats":
            gaps = series.silences_s(CELL_NS, self._curve, view.now_ns) if series else []
            return (sparks(gaps, view.glyphs, self._curve, least=2 * node.stale_after_ns / 1e9),)
        if key == "host":
            return single(node.snapshot.host, Tone.DIM)
        if key == "disk":
            return single(
                text.size(node.snapshot.store.disk_bytes) if node.snapshot.store.disk_bytes else "", Tone.DIM
            )
        if key == "up":
            up_ns = view.now_ns - node.snapshot.started_ns
            return single("" if view.is_stale(node) else text.age(up_ns), Tone.DIM)
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
        """Return what differs from the master: a set that is equal is quiet."""
        view, glyphs = self._view, self._view.glyphs
        space = node.name_spaces.get(name)
        if space is None:
            return single(glyphs.nothing, Tone.DIM)
        state, fraction = name_space_state(view, node, space)
        signs = master_mark(view, node, space), state, Span(" ")
        room = width - len(signs)
        if not space.complete:
            return (*signs, *self._progress(node, name, fraction, room))
        differs, tone = difference(view, node, space)
        count = text.count(space.count)
        quiet = Tone.PLAIN if signs[0].text.strip() or differs else Tone.DIM
        if width < LEAST_FIGURE:
            return (*signs, Span((differs or (count if len(count) <= room else "="))[:room], quiet))
        return (*signs, Span(f"{count:>8}", quiet), Span(f" {differs}"[: room - 8], tone))

    def _progress(self, node: Node, name: str, fraction: float, room: int) -> Cell:
        """Return a bar, and where there is room the percentage before it and the rest of time after it."""
        rest = ""
        for space, progress in self._view.model.progress(node):
            if space.name == name and progress.left_s is not None and progress.alignment.direction == "from":
                rest = text.age(max(1_000_000_000, int(progress.left_s * 1e9)))
        figure = f"{text.percent(fraction):>8} " if room + 3 >= LEAST_FIGURE else ""
        rest = f" {rest:>6}" if rest and room >= ENOUGH - 3 else ""
        full, empty = self._view.glyphs.bar(fraction, room - len(figure) - len(rest))
        return Span(figure), Span(full, Tone.ACCENT), Span(empty, Tone.DIM), Span(rest)


def _rank(one: Node | UnheardNode, ranked: Mapping[str, Rank]) -> Rank:
    return one.rank if isinstance(one, UnheardNode) else ranked[one.id]


def _key(one: Node | UnheardNode) -> str:
    return one.key if isinstance(one, UnheardNode) else one.id


def _state(view: View, one: Node | UnheardNode) -> str:
    return one.state if isinstance(one, UnheardNode) else node_state(view, one).text


def _name(one: Node | UnheardNode) -> str:
    return one.name if isinstance(one, UnheardNode) else one.snapshot.name


def rate_cell(view: View, node: Node, series: NodeSeries | None, width: int) -> Cell:
    """Samples stored per second now, and lately in a curve; nothing for a node that is not heard."""
    if series is None or view.is_stale(node):
        return single(view.glyphs.nothing, Tone.DIM)
    rate = series.rate_per_s("stored") or 0.0
    lately = series.means("stored", CELL_NS, width)
    return Span(f"{text.count(round(rate)):>7}/s "), sparks(lately, view.glyphs, width)


def nothing_shown(view: View) -> list[Line]:
    """Return the lines shown without a node to explain."""
    if view.faults_only and view.model.nodes and not view.filter:
        number = plural(len(view.model.nodes), "node")
        return [(Span(f" no faults: {number} hidden; f shows all", Tone.DIM),)]
    if view.filter and view.model.nodes:
        number = plural(len(view.model.nodes), "node")
        return [(Span(f" no node matches the filter {view.filter.text!r}; {number} hidden"),)]
    lines: list[Line] = [(Span(" no node heard yet", Tone.DIM),)]
    if view.where and view.model.is_empty:
        lines = [(Span(" no node heard yet; S shows a simulated system, `ospltool demo` starts a real one"),)]
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


MOST_MESH: Final = 16
"""Nodes of the matrix of who hears whom."""
MOST_FLOWS: Final = 30
"""Nodes whose figures are added up: with more, adding takes longer than a key may."""
MOST_NAMED: Final = 2
"""Processes that a line about readers or writers names."""
FLOW_CELL_NS: Final = 5_000_000_000
FLOW_CELLS: Final = 60


def mesh_lines(view: View) -> list[Line]:
    """Return who hears whom, a row for each node that is heard; nothing if all hear each other."""
    heard = {node.id: node for node in view.model.ordered_nodes() if not view.is_stale(node)}
    ids = frozenset(heard)
    lacking = {one: ids - node.fellows.met - {one} for one, node in heard.items()}
    if not any(lacking.values()):  # nearly always
        return []
    unheard = frozenset().union(*lacking.values())
    sick = [one for one in heard if lacking[one] or one in unheard]
    shown = sick[:MOST_MESH]
    names = text.distinct([heard[one].snapshot.name for one in shown], 8, ellipsis=view.glyphs.ellipsis)
    label = max(map(len, names))
    lines: list[Line] = [(Span(f" {'':{label}} hears {' '.join(names)}", Tone.DIM),)]
    for row, name in zip(shown, names, strict=True):
        spans = [Span(f" {name:{label}}       ")]
        for column, other in zip(shown, names, strict=True):
            spans += [_hearing(view, row, column, lacking[row]), Span(" " * len(other))]
        lines.append(tuple(spans))
    left_out = len(sick) - len(shown)
    return [*lines, more_line(left_out)] if left_out else lines


def _hearing(view: View, node: str, other: str, lacking: Collection[str]) -> Span:
    glyphs = view.glyphs
    if node == other:
        return Span(" ")
    return Span(glyphs.fault, Tone.FAULT) if other in lacking else Span(glyphs.ok, Tone.DIM)


def application_lines(view: View, width: int) -> list[Line]:
    """Return what applications write and get: rates, late joiners, and what they do not get, and why."""
    nodes = [node for node in view.model.ordered_nodes() if not view.is_stale(node)]
    every = [one for node in nodes for one in node.snapshot.deliveries]
    told = {
        state: [one for one in every if one.state == state]
        for state in ("done", "running", "waiting", "failed")
    }
    served = f"{plural(len(told['done']), 'late joiner')} served"
    if told["done"]:
        served += f", {plural(sum(one.samples for one in told['done']), 'sample')}"
    line: list[Span] = [Span(f" {served}", Tone.PLAIN if every else Tone.DIM)]
    for state, sign, tone in (
        ("running", view.glyphs.busy, Tone.ACCENT),
        ("waiting", view.glyphs.idle, Tone.PLAIN),
        ("failed", view.glyphs.fault, Tone.FAULT),
    ):
        if told[state]:
            line.append(Span(f"  {sign} {len(told[state])} {state}", tone))
    lines: list[Line] = [*_rates(view, nodes), *_hosts(view), tuple(line)]
    waiting, lacking = readers(view, width, is_noteworthy=True), writers(view, width)
    alike: dict[tuple[Span, str, object], list[str]] = {}
    for row in range(len(waiting.keys)):
        facts = waiting.facts(row)
        said = f"reader of {facts['topic']}, served by {facts['node']}, {facts['state']}"
        alike.setdefault((waiting.cell(row, 0)[0], said, facts["why"]), []).append(str(facts["application"]))
    for row in range(len(lacking.keys)):
        facts = lacking.facts(row)
        said = f"writer of {facts['topic']} not kept"
        alike.setdefault((lacking.cell(row, 0)[0], said, facts["why"]), []).append(str(facts["application"]))
    for (mark, said, why), names in alike.items():
        number = f" {len(names)} times" * (len(names) > 1)
        places = listed([name for name in dict.fromkeys(names) if " " in name], MOST_NAMED)
        where = f", in {places}" if places else ""
        lines.append((Span(" "), mark, Span(f"{number} {said}{where}: {why}")))
    return [fit_line(one, width, glyphs=view.glyphs) for one in lines]


def _hosts(view: View) -> list[Line]:
    """Return how many writers and readers each host has, the most first; none where nobody sees them."""
    hosts = sorted(view.model.applications.hosts.items(), key=lambda one: (-one[1].total(), natural(one[0])))
    told = [
        f"{name or 'unknown host'} {plural(count[True], 'writer')}, {plural(count[False], 'reader')}"
        for name, count in hosts
    ]
    return [(Span(f" {'; '.join(told)}"),)] if told else []


def _rates(view: View, nodes: Sequence[Node]) -> list[Line]:
    """Return what the nodes capture, store and deliver per second in all, where they are not too many."""
    if len(nodes) > MOST_FLOWS:
        return []
    found = []
    for name in ("captured", "stored", "delivered"):
        series = (view.model.series.get(node.id) for node in nodes)
        rate = sum((one.rate_per_s(name) or 0.0) for one in series if one)
        found.append(f"{name} {text.count(round(rate))}/s")
    return [(Span(f" all nodes: {', '.join(found)}", Tone.DIM),)]


def flows(view: View) -> list[tuple[str, list[Point]]]:
    """Return the curves of all nodes together, with their titles; nothing where there are many nodes."""
    nodes = [node for node in view.model.nodes.values() if not view.is_stale(node)]
    if not nodes or len(nodes) > MOST_FLOWS:
        return []
    rates, gaps = [0.0] * FLOW_CELLS, [0.0] * FLOW_CELLS
    longest = 0
    for node in nodes:
        series = view.model.series.get(node.id)
        means = series.means("stored", FLOW_CELL_NS, FLOW_CELLS) if series else []
        silences = series.silences_s(FLOW_CELL_NS, FLOW_CELLS, view.now_ns) if series else []
        longest = max(longest, len(means), len(silences))
        for back, value in enumerate(reversed(means), 1):
            rates[-back] += value
        for back, value in enumerate(reversed(silences), 1):
            gaps[-back] = max(gaps[-back], value)
    times = [view.now_ns - back * FLOW_CELL_NS for back in range(longest - 1, -1, -1)]
    now = text.count(round(rates[-1]))
    return [
        (f"samples stored by all nodes: {now}/s", list(zip(times, rates[-longest:], strict=True))),
        (f"longest wait for a node: {gaps[-1]:.1f} s", list(zip(times, gaps[-longest:], strict=True))),
    ]
