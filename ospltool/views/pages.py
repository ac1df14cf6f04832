"""Pages without a screen: what one looks at, as sections of lines and tables that fit a width.

A page has no cursor and does not scroll, so its tables show what there is in the width that it needs: columns
without a value are left out, names are cut, and where that is not enough the columns that are most spare go.
"""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from rich.cells import cell_len

from ospltool.live.nodes import Node, natural
from ospltool.output.text import plural
from ospltool.views import (
    alignment,
    applications,
    events,
    groups,
    incidents,
    name_space,
    node,
    overview,
    text,
    topics,
)
from ospltool.views.cells import Cell, Column, Line, Rows, Span, Tone, fit_line, plain, single
from ospltool.views.view import AGES, View, shown, unheard_nodes, verdict_sign

GAP: Final = 2
"""Cells between two columns; where there is no room, one."""
WIDE: Final = 10_000
"""Cells of a page on which nothing is cut."""
LEAST_TEXT: Final = 12
"""Cells of a text that goes on below itself where all else has been cut."""
EXPLAINED: Final = 2
"""Incidents that are explained on the page of the whole system; the others have a line each."""
LAST_EVENTS: Final = 8
"""Events on a page that shows more than events."""
MOST_LINES: Final = 20
"""Lines of one text, which may be of anybody."""
MOST_EVENTS: Final = 10_000

Table = Rows[Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Section:
    """A part of a page: lines, then a table, then notes. Without a title it needs none."""

    key: str
    title: str = ""
    lines: Sequence[Line] = ()
    table: Table | None = None
    empty: Sequence[Line] = ()
    """The lines in place of a table without rows if no filter hides any."""
    notes: Sequence[Line] = ()
    data: Table | None = None
    """What other formats than text have in place of the table."""

    @property
    def rows(self) -> Table | None:
        """What other formats than text have; None for nothing."""
        return self.table if self.data is None else self.data


class UnknownName(LookupError):
    """There is nothing of this name.

    Args:
        noun: what it would be, such as "node".
        name: what was asked for.
        known: the names that there are.
    """

    def __init__(self, noun: str, name: str, known: Sequence[str]) -> None:
        super().__init__(f"no {noun} {name!r}")
        self.name = name
        self.known = tuple(dict.fromkeys(known))


def summary(view: View, width: int) -> list[Section]:
    """Return the whole system: the verdict, incidents, nodes, name-spaces, masters, and what is under way."""
    verdict = view.health.verdict
    sign, tone = verdict_sign(view, verdict)
    strong = Tone.STRONG if tone is Tone.DIM else tone
    lines: list[Line] = [(Span(f"{sign} ", tone), Span(verdict.text, strong))]
    if verdict.why:
        lines += [
            (Span("  why:  ", Tone.DIM), Span(verdict.why)),
            (Span("  next: ", Tone.DIM), Span(verdict.next)),
        ]
    found = [Section("verdict", lines=lines)]
    told: list[Line] = []
    for number, one in enumerate(view.health.open):
        told.append(incidents.incident_line(view, one))
        if number < EXPLAINED:
            told += incidents.explanation(view, one, width, MOST_LINES)
    if len(view.health.open) > EXPLAINED:
        told.append((Span(" `ospltool health` explains all of them", Tone.DIM),))
    found.append(Section("incidents", lines=told, data=incidents.incidents(view, width)))
    if view.model.is_empty:
        return found
    found += [
        Section("nodes", "nodes", table=node.nodes(view, width)),
        Section("name-spaces", "name-spaces", table=name_space.every_name_space(view, width)),
        Section("masters", "masters", table=name_space.masters(view, width)),
    ]
    running = alignment.alignments(view, alignment.LEAST_WITH_BAR)
    if running.keys:
        found.append(Section("alignment", "alignments", table=running))
    readers = applications.readers(view, width, is_noteworthy=True)
    if readers.keys:
        found.append(Section("readers", "readers", table=readers))
    writers = applications.writers(view, width)
    if writers.keys:
        found.append(Section("writers", "writers whose data is not kept", table=writers))
    newest = events.newest_events(view, LAST_EVENTS)
    return [*found, Section("events", "last events", table=events.events_table(view, newest, width))]


def _nodes(view: View, name: str, width: int) -> list[Section]:
    if not name:
        return [Section("nodes", table=node.nodes(view, width))]
    unheard = [one for one in unheard_nodes(view) if one.name == name]
    found = [Section("node", lines=one.detail(view), data=node.nodes(view, width, [one])) for one in unheard]
    named = [] if unheard else _named_nodes(view, name)
    for one in named:
        number = len(one.snapshot.fellows)
        own = [event for event in view.model.events if event.node == one.id]
        found += [
            Section("node", lines=node.card(view, one, width), data=node.nodes(view, width, named)),
            Section("fellows", plural(number, "fellow"), table=node.fellows(view, one, width)),
            Section(
                "name-spaces",
                plural(len(one.name_spaces), "name-space"),
                table=node.name_spaces(view, one, width),
            ),
            Section("readers", "late joiners", table=alignment.deliveries(view, [one], width)),
            Section(
                "events",
                "last events",
                table=events.events_table(view, events.newest_of(view, reversed(own), LAST_EVENTS), width),
            ),
        ]
    return found


def _named_nodes(view: View, name: str) -> list[Node]:
    """Return the nodes of a name, or of the beginning of an id."""
    every = view.model.ordered_nodes()
    found = [one for one in every if name in (one.snapshot.name, one.id)]
    if not found:
        raise UnknownName("node", name, view.node_names)
    return found


def _fellows(view: View, name: str, width: int) -> list[Section]:
    if not name:
        return [Section("fellows", table=node.fellows_by_node(view, width))]
    return [
        Section("fellows", f"fellows of {one.snapshot.name}", table=node.fellows(view, one, width))
        for one in _named_nodes(view, name)
    ]


def _name_spaces(view: View, name: str, width: int) -> list[Section]:
    if not name:
        return [Section("name-spaces", table=name_space.every_name_space(view, width))]
    _require_name_space(view, name)
    holders = name_space.holders(view, name, width)
    trouble = name_space.trouble_lines(view, name, view.health.open)
    return [
        Section(
            "name-space",
            lines=[*name_space.definition_lines(view, name), *name_space.master_lines(view, name)],
        ),
        Section("nodes", plural(len(holders.keys), "node"), table=holders),
        *_titled("incidents", "incidents", trouble),
        *_titled("history", "masters so far", name_space.history_lines(view, name)),
    ]


def _titled(key: str, title: str, lines: Sequence[Line]) -> list[Section]:
    return [Section(key, title, lines=lines)] if lines else []


def _require_name_space(view: View, name: str) -> None:
    known = view.model.name_space_names()
    if name not in known:
        raise UnknownName("name-space", name, known)


def _masters(view: View, name: str, width: int) -> list[Section]:
    table = name_space.masters(view, width, name)
    if not name:
        return [Section("masters", table=table)]
    _require_name_space(view, name)
    return [
        Section("masters", table=table),
        *_titled("history", "masters so far", name_space.history_lines(view, name)),
    ]


def _alignment(view: View, name: str, width: int) -> list[Section]:
    """Return who gives what to whom, then who serves which late joiner."""
    if name:
        _require_name_space(view, name)
    table = alignment.alignments(view, alignment.LEAST_WITH_BAR, name)
    joiners = applications.readers(view, width, is_noteworthy=True)
    requests = [(Span(f" {alignment.counts(view)}", Tone.DIM),)] if view.model.events else []
    return [
        Section("alignment", table=table, empty=alignment.idle_lines(view, name), notes=requests),
        *([Section("readers", "readers", table=joiners)] if joiners.keys and not name else []),
    ]


def _groups(view: View, name: str, width: int) -> list[Section]:
    if not name:
        return [Section("groups", table=groups.groups(view, width))]
    every = view.model.groups.ordered()
    found = [key for key in every if name in (key.topic, str(key), key.id)]
    if not found:
        raise UnknownName("topic", name, [key.topic for key in every])
    lines = [line for key in found for line in groups.group_lines(view, key)]
    return [Section("groups", lines=lines, data=groups.groups(view, width, found))]


def _readers(view: View, name: str, width: int) -> list[Section]:
    nothing = "no durable reader{of} has been served, waits or sees other samples than the set has"
    return _endpoints(view, "readers", name, applications.readers(view, width, name), nothing)


def _writers(view: View, name: str, width: int) -> list[Section]:
    nothing = "no node reports a durable writer{of} whose data is not kept"
    return _endpoints(view, "writers", name, applications.writers(view, width, name), nothing)


def _topic_page(view: View, name: str, width: int) -> list[Section]:
    """Return every topic, or one with the groups of the nodes, and its readers and writers."""
    if not name:
        nothing = [(Span(" no node has a group, and no application reads or writes", Tone.DIM),)]
        return [Section("topics", table=topics.topics(view, width), empty=nothing)]
    found = [one for one in topics.by_topic(view) if one.name == name]
    if not found:
        raise UnknownName("topic", name, [one.name for one in topics.by_topic(view)])
    used = found[0].uses
    return [
        Section(
            "topics",
            lines=topics.topic_lines(view, name),
            data=topics.topics(view, width, found),
            notes=[(Span(f" `ospltool cat {shlex.quote(name)}` prints its samples", Tone.DIM),)],
        ),
        Section(
            "endpoints",
            applications.use_title(used),
            table=applications.use_rows(view, used, width),
            notes=applications.unknown_lines(view),
        ),
    ]


def _application_page(view: View, name: str, width: int) -> list[Section]:
    """Return every process with readers or writers, or one with all of them."""
    every = applications.by_application(view)
    if not name:
        nothing = [(Span(" no application reads or writes", Tone.DIM),)]
        table, notes = applications.applications(view, width), applications.unknown_lines(view)
        return [Section("applications", table=table, empty=nothing, notes=notes)]
    found = [one for one in every if name in applications.application_names(one.application)] or [
        one for one in every if one.application.key.startswith(name)
    ]
    if not found:
        known = [word for one in every for word in applications.application_names(one.application)]
        raise UnknownName("application", name, known)
    return [
        Section(
            "endpoints",
            f"{one.application.place}: {applications.use_title(one.uses)}",
            table=applications.use_rows(view, one.uses, width, has_topic=True),
            notes=applications.unknown_lines(view),
        )
        for one in found
    ]


def _endpoints(view: View, key: str, topic: str, table: Table, nothing: str) -> list[Section]:
    """Return readers or writers, perhaps of one topic; the nodes that are heard may know of none."""
    known = topics.topic_names(view)
    if topic and not table.keys and not view.filter and topic not in known:
        raise UnknownName("topic", topic, known)
    told = Span(f" {nothing.format(of=' of this topic' if topic else '')}", Tone.DIM)
    return [Section(key, table=table, empty=[(told,)] if view.is_anybody_heard else [])]


def _incidents(view: View, name: str, width: int) -> list[Section]:
    if not name:
        table = incidents.incidents(view, width)
        return [
            Section(
                "incidents",
                table=table,
                empty=incidents.none_lines(view),
                notes=incidents.mute_lines(view),
            )
        ]
    every = view.health.every
    found = [one for one in every if name.casefold() in (one.code.id.casefold(), one.who.casefold())]
    if not found:
        raise UnknownName("incident", name, [word for one in every for word in (one.code.id, one.who)])
    return [
        Section(
            "incidents",
            lines=[incidents.head(view, one, width), *incidents.about(view, one, width)],
            table=incidents.events(view, one, width),
            data=incidents.incidents(view, width, found),
        )
        for one in found
    ]


def _events(view: View, name: str, width: int) -> list[Section]:
    if name:
        ids = {one.id for one in _named_nodes(view, name)}
        own = [event for event in view.model.events if event.node in ids]
        newest = events.newest_of(view, reversed(own), MOST_EVENTS)
    else:
        newest = events.newest_events(view, MOST_EVENTS)
    nothing = [(Span(f" {events.no_events(view)}", Tone.DIM),)]
    return [Section("events", table=events.events_table(view, newest, width), empty=nothing)]


@dataclasses.dataclass(frozen=True, slots=True)
class Page:
    """What one can look at: `sections` makes it, `fields` are those of its filter, `names` what it knows."""

    sections: Callable[[View, str, int], list[Section]]
    fields: tuple[str, ...] = ()
    names: Callable[[View], list[str]] = lambda _: []


def _node_names(view: View) -> list[str]:
    return list(view.node_names)


def _space_names(view: View) -> list[str]:
    return view.model.name_space_names()


def _topics(view: View) -> list[str]:
    return list(dict.fromkeys(key.topic for key in view.model.groups.ordered()))


PAGES: Final[Mapping[str, Page]] = {
    "nodes": Page(_nodes, overview.FIELDS, _node_names),
    "fellows": Page(_fellows, ("node", "fellow", "role", "host", "state"), _node_names),
    "name-spaces": Page(_name_spaces, ("ns", "node", "role", "state"), _space_names),
    "masters": Page(_masters, tuple(name_space.MASTER_FIELDS), _space_names),
    "alignment": Page(_alignment, alignment.FIELDS, _space_names),
    "groups": Page(_groups, groups.GROUP_FIELDS, _topics),
    "topics": Page(_topic_page, topics.TOPIC_FIELDS, topics.topic_names),
    "applications": Page(
        _application_page,
        applications.USE_FIELDS,
        lambda view: [one.application.key for one in applications.by_application(view)],
    ),
    "readers": Page(_readers, applications.FIELDS, topics.topic_names),
    "writers": Page(_writers, applications.FIELDS, topics.topic_names),
    "incidents": Page(
        _incidents,
        incidents.FIELDS,
        lambda view: [word for one in view.health.every for word in (one.code.id, one.who)],
    ),
    "events": Page(_events, ("node", "text", "event", "level"), _node_names),
}


_WORDS: Final = re.compile(r"\s*\S+|\s+")


def wrapped(line: Line, width: int) -> list[Line]:
    """Return a line in as many lines as it needs; it goes on below its last span."""
    if cell_len(text.visible(plain(line))) <= width:
        return [line]
    indent = cell_len(plain(line[:-1]))
    indent = indent if indent <= width // 2 else 3
    lines, used = list[list[Span]]([[]]), 0
    for span in line:
        for word in _WORDS.findall(text.visible(span.text)) or [span.text]:
            if used + cell_len(word) > width and used > indent:
                lines.append([Span(" " * indent)])
                word, used = word.lstrip(), indent
            word = text.fit(word, width - used).rstrip() if used + cell_len(word) > width else word
            lines[-1].append(Span(word, span.tone))
            used += cell_len(word)
    return [tuple(each) for each in lines[:MOST_LINES]]


@dataclasses.dataclass(frozen=True, slots=True)
class Layout:
    """The columns of a table, by key, title or name in JSON, and the one to sort by, descending after "-"."""

    columns: tuple[str, ...] = ()
    sort: str = ""
    has_header: bool = True


NAMES: Final = {
    **{age: f"{age}_ns" for age in AGES},
    "rate": "rate_per_s",
    "left": "left_s",
    "percent": "fraction",
    "space": "name_space",
    "leads": "master_of",
}
"""Names of values in JSON and CSV where they are others than the keys of columns."""


def records(table: Table, layout: Layout) -> list[dict[str, object]]:
    """Return the rows of a table as values by name.

    Raises:
        UnknownName: there is no such column.
    """
    rows = [
        {NAMES.get(key, key): value for key, value in table.facts(row).items()}
        for row in _order(table, layout)
    ]
    if not layout.columns:
        return rows
    keys = [_key(table, name) for name in layout.columns]
    names = [NAMES.get(key, key) for key in keys]
    return [{name: row.get(name) for name in names} for row in rows]


def _key(table: Table, name: str) -> str:
    """Return the key of a column or value by its key, its title or its name in JSON."""
    facts = list(table.facts(0)) if table.keys else []
    keys = [*facts, *(one.key for one in table.columns)]
    by_name = {NAMES.get(key, key): key for key in keys} | {
        one.title: one.key for one in table.columns if one.title
    }
    found = name if name in keys else by_name.get(name)
    if found is None:
        raise UnknownName("column", name, [name for name in by_name if name not in ("mark", "bar")])
    return found


def _order(table: Table, layout: Layout) -> Sequence[int]:
    """Return the rows in the order that is asked for; those without the value come last."""
    rows = range(len(table.keys))
    if not layout.sort:
        return rows
    key = _key(table, layout.sort.removeprefix("-"))
    values = {row: table.facts(row).get(key) for row in rows}
    nothing: tuple[object, ...] = (None, "", [])
    known = [row for row in rows if values[row] not in nothing]
    known.sort(key=lambda row: _rank(values[row]), reverse=layout.sort.startswith("-"))
    return [*known, *(row for row in rows if values[row] in nothing)]


def _rank(value: object) -> tuple[int, float, tuple[object, ...]]:
    if isinstance(value, int | float):
        return 0, float(value), ()
    return 1, 0.0, natural(", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value))


def sections(view: View, page: str, name: str, width: int) -> list[Section]:
    """Return a page, a key of `PAGES`, empty for the whole system; `name` is what is shown in full.

    Raises:
        UnknownName: there is nothing of this name.
    """
    return PAGES[page].sections(view, name, width) if page else summary(view, width)


def document(view: View, every: Sequence[Section], layout: Layout) -> dict[str, object]:
    """Return the page of the whole system as values: the verdict, and the rows of each section."""
    verdict = view.health.verdict
    return {
        "time_ns": view.now_ns,
        "verdict": verdict.word.lower(),
        "text": verdict.text,
        "why": verdict.why,
        **{one.key: records(one.rows, layout) for one in every if one.rows},
    }


def place(view: View, title: str) -> str:
    """Return which system a page shows, and at which moment."""
    return f"{title}, {text.moment(view.now_ns)[:19]} {text.TIMES.name}"


def page_lines(
    view: View, every: Sequence[Section], width: int, layout: Layout, place: str = ""
) -> list[Line]:
    """Return a page as lines of at most `width` cells; `place` is its first line, empty for none."""
    lines: list[Line] = [(Span(place, Tone.DIM),)] if place else []
    for section in every:
        own = [part for line in section.lines for part in wrapped(line, width)]
        if section.table is not None and section.table.keys:
            own += table_lines(view, section.table, width, layout)
        elif section.table is not None and not own:
            own = [] if view.filter else list(section.empty)
            own = own or [(Span(f" {_nothing(view, section)}", Tone.DIM),)]
        if section.title and layout.has_header:
            lines += [*([()] if lines else []), (Span(section.title, Tone.ACCENT),)]
        lines += [*own, *(section.notes if layout.has_header else ())]
    return lines


def _nothing(view: View, section: Section) -> str:
    """Return the line that replaces an empty table."""
    what = section.title or section.key
    if view.filter:
        return f"the filter {view.filter.text!r} matches no {what}"
    return f"no {what}" if view.is_anybody_heard else f"no node is heard, so there are no {what} to show"


def table_lines(view: View, table: Table, width: int, layout: Layout) -> list[Line]:
    """Return a table as lines of at most `width` cells: the heading, then its rows.

    Raises:
        UnknownName: there is no such column.
    """
    order = _order(table, layout)
    by_key = {one.key: index for index, one in enumerate(table.columns)}
    keys = [_key(table, name) for name in layout.columns] or list(by_key)
    columns = [table.plan[by_key[key]] if key in by_key else Column(key, key, 4, grow=1) for key in keys]
    cells = [
        [
            table.whole(row, by_key[key]) if key in by_key
            else single(shown(view, key, table.facts(row).get(key)))
            for key in keys
        ]
        for row in order
    ]  # fmt: skip
    if not layout.columns:
        used = [number for number in range(len(keys)) if any(plain(line[number]).strip() for line in cells)]
        columns, cells = [columns[n] for n in used], [[line[n] for n in used] for line in cells]
    lengths = [
        max([cell_len(one.title), *(cell_len(text.visible(plain(line[n]))) for line in cells)])
        for n, one in enumerate(columns)
    ]
    kept = _that_fit(columns, lengths, width, may_drop=not layout.columns)
    least = sum(_least(columns[n], lengths[n]) for n in kept)
    gap = GAP if least + GAP * (len(kept) - 1) <= width else 1
    columns, widths = (
        [columns[n] for n in kept],
        _shrunk(columns, lengths, kept, width - gap * (len(kept) - 1)),
    )
    cells = [[line[n] for n in kept] for line in cells]
    for number, column in enumerate(columns):
        _cut(cells, number, column, widths[number], view)
    header = [[single(one.title, Tone.DIM) for one in columns]] if layout.has_header else []
    lines = [
        _joined(part, columns, widths, gap, view)
        for line in (*header, *cells)
        for part in _with_text_below(line, columns, widths)
    ]
    is_wider = sum(widths) + gap * (len(kept) - 1) > width
    return [fit_line(line, width, glyphs=view.glyphs) for line in lines] if is_wider else lines


def _with_text_below(cells: list[Cell], columns: Sequence[Column], widths: Sequence[int]) -> list[list[Cell]]:
    """Return a row in as many lines as its last cell needs, if that is a text: no end of it is lost."""
    if not columns or not _goes_on(columns, len(columns) - 1) or len(cells[-1]) != 1:
        return [cells]
    first, *below = wrapped(cells[-1], widths[-1])
    blank: list[Cell] = [()] * (len(cells) - 1)
    return [[*cells[:-1], first], *([*blank, line] for line in below)]


def _least(column: Column, length: int) -> int:
    may_be_cut = column.grow and column.key != "bar"
    return min(length, max(column.width, cell_len(column.title))) if may_be_cut else length


def _that_fit(columns: Sequence[Column], lengths: Sequence[int], width: int, *, may_drop: bool) -> list[int]:
    """Return the columns that have room if those that may be cut are; the most spare ones go first."""
    kept = list(range(len(columns)))
    while may_drop and sum(_least(columns[n], lengths[n]) + GAP for n in kept) - GAP > width:
        spare = max(kept, key=lambda n: columns[n].spare, default=None)
        if spare is None or not columns[spare].spare:
            break
        kept.remove(spare)
    return kept


def _shrunk(columns: Sequence[Column], lengths: Sequence[int], kept: Sequence[int], room: int) -> list[int]:
    """Return the width of each kept column: first the text at the end gives what is too much."""
    widths = {n: lengths[n] for n in kept}
    excess = sum(widths.values()) - room
    while excess > 0:
        may = [n for n in kept if widths[n] > _least(columns[n], lengths[n])]
        last = kept[-1]
        # A text at the end goes on below itself, a name that is cut does not.
        if _goes_on(columns, last) and (last in may or (not may and widths[last] > LEAST_TEXT)):
            widths[last] -= 1
        elif may:
            widths[max(may, key=lambda n: widths[n])] -= 1
        else:
            break
        excess -= 1
    return [widths[n] for n in kept]


def _goes_on(columns: Sequence[Column], number: int) -> bool:
    """Return whether a column is the last one, with a text that may go on below itself."""
    return number == len(columns) - 1 and not columns[number].cut and not columns[number].right


def _cut(cells: list[list[Cell]], number: int, column: Column, width: int, view: View) -> None:
    """Cut the names or texts of a column so that different ones stay different."""
    whole = [plain(line[number]) for line in cells]
    if not column.cut or all(cell_len(one) <= width for one in whole):
        return
    cut = view.glyphs.ellipsis
    if column.texts:
        told = text.apart(whole, [width] * len(whole), ellipsis=cut)
    else:
        names = list(dict.fromkeys((*whole, *column.among)))
        known = dict(zip(names, text.distinct(names, width, ellipsis=cut), strict=True))
        told = [known[one] for one in whole]
    for line, one in zip(cells, told, strict=True):
        line[number] = single(one, line[number][0].tone if line[number] else Tone.PLAIN)


def _joined(
    cells: Sequence[Cell], columns: Sequence[Column], widths: Sequence[int], gap: int, view: View
) -> Line:
    """Return one line of cells, without blanks at its end."""
    spans: list[Span] = []
    for cell, column, width in zip(cells, columns, widths, strict=True):
        spans += [*fit_line(cell, width, right=column.right, glyphs=view.glyphs), Span(" " * gap)]
    while spans and not spans[-1].text.strip():
        spans.pop()
    return (*spans[:-1], Span(spans[-1].text.rstrip(), spans[-1].tone)) if spans else ()
