"""The incident report: one self-contained HTML file without scripts, with pictures as SVG.

Every text of foreign origin is escaped.
"""

from __future__ import annotations

import dataclasses
import html
import pathlib
import string
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from ospltool.diagnostics.model import Finding
from ospltool.forensics.attachments import Attachment
from ospltool.forensics.investigation import Investigation
from ospltool.forensics.stored import StoredEvidence
from ospltool.forensics.story import Story
from ospltool.output.text import visible
from ospltool.output.times import SECOND_NS, clock, clock_since, duration, from_to, iso
from ospltool.trace.meaning.alignments import TracedAlignment, line_of
from ospltool.trace.meaning.fact_kinds import SetSize
from ospltool.trace.meaning.lines import RecordPlace
from ospltool.trace.meaning.trace_facts import TraceFacts
from ospltool.trace.rules import SetFate, TraceFinding, grouped
from ospltool.trace.views.conversation import Conversation
from ospltool.trace.views.timeline import START_STATES

# The page is opened in a browser and mailed: these limits keep it below some megabytes. What is left out is
# counted.
MOST_CURVES: Final = 12
MOST_EXCHANGES: Final = 6
MOST_INSTANCES: Final = 50
MOST_NODES: Final = 20
MOST_ROWS: Final = 300
# Some heartbeats: messages that belong to a moment are within it.
AROUND_NS: Final = 5 * SECOND_NS
_DECISIVE: Final = (
    SetFate.LOST,
    SetFate.EMPTIED,
    SetFate.THROWN_AWAY,
    SetFate.SHRANK,
    SetFate.DIVERGED,
    SetFate.DELAYED,
    SetFate.REPLACED,
    SetFate.JOINED,
)


@dataclasses.dataclass(frozen=True, slots=True)
class About:
    """The circumstances of a report.

    Attributes:
        names: arguments of the command.
        nodes: nodes with traces.
        attachments: stores, configurations and recordings beside the traces.
        configurations: findings of `ospltool check`; None without configurations.
        made_by: product and version.
    """

    names: tuple[str, ...]
    nodes: tuple[str, ...]
    attachments: tuple[Attachment, ...]
    configurations: tuple[Finding, ...] | None
    made_by: str


def page(one: Investigation, about: About) -> str:
    """Return the text of the file."""
    template = string.Template(pathlib.Path(__file__).with_name("page.html").read_text(encoding="utf-8"))
    return template.substitute(
        about=_about(one, about),
        verdict=_verdict(one),
        conclusions=_conclusions(one.verdict.conclusions),
        stories=_stories(one.stories),
        time_line=_time_line(one),
        sequence=_sequence(one),
        curves=_curves(one),
        stores=_stores(one.stored),
        configurations=_configurations(about.configurations),
        unknown=_list(one.verdict.unknown) or _nothing("All that these files contain was examined."),
        sources=_sources(one, about),
    )


def _nothing(text: str) -> str:
    return f'<p class="dim">{_text_of(text)}</p>'


def _list(texts: Iterable[str]) -> str:
    items = "".join(f"<li>{_text_of(text)}</li>\n" for text in texts)
    return f"<ul>\n{items}</ul>" if items else ""


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; cells are HTML already."""
    head = "".join(f"<th>{_text_of(cell)}</th>" for cell in header)
    body = "".join(f"<tr>{''.join(row)}</tr>\n" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table>"


def _cell(value: object, kind: str = "") -> str:
    return f'<td class="{kind}">{_text_of(value)}</td>' if kind else f"<td>{_text_of(value)}</td>"


def _about(one: Investigation, about: About) -> str:
    first = min(one.facts.first_ns.values(), default=None)
    last = max(one.facts.last_ns.values(), default=None)
    span = (
        ""
        if first is None or last is None
        else f" From {iso(first, 0)} to {iso(last, 0)} ({duration(last - first)})."
    )
    nodes = ", ".join(about.nodes[:MOST_NODES]) or "none"
    more = len(about.nodes) - MOST_NODES
    left = f" and {more} more" if more > 0 else ""
    return _text_of(f"Nodes: {nodes}{left}.{span} All times are UTC. Made by {about.made_by}.")


def _verdict(one: Investigation) -> str:
    bad = any(not each.is_harmless for each in one.verdict.conclusions)
    return f'<p class="verdict{" bad" if bad else ""}">{_text_of(one.verdict.headline)}</p>'


def _conclusions(conclusions: Sequence[TraceFinding]) -> str:
    if not conclusions:
        return _nothing("No merge, alignment or store shows a loss or a change of the data.")
    rows = [
        [
            _cell(str(each.fate), "what" if each.is_harmless else "what bad"),
            _cell(from_to(each.start_ns, each.end_ns), "when"),
            f"<td>{_text_of(each.title)}{_evidence(each.evidence[:2])}</td>",
        ]
        for each in conclusions
    ]
    return _table(("What", "When", "Which set, where, by which decision"), rows)


def _evidence(places: Iterable[RecordPlace]) -> str:
    items = "".join(
        f"<li>{'' if each.time_ns is None else iso(each.time_ns, 3)} {_text_of(each.node)} "
        f"{_text_of(each.text)}<br>{_text_of(each.file)}, byte {each.offset}</li>"
        for each in places
    )
    return f'<ul class="evidence">{items}</ul>' if items else ""


def _stories(stories: Sequence[Story]) -> str:
    if not stories:
        return _nothing("The rules of `ospltool trace anomalies` found nothing.")
    parts = []
    for number, story in enumerate(stories, 1):
        parts.append(f"<h3>{number}. {_text_of(story.title)}</h3>")
        parts.append(_nothing(f"{from_to(story.start_ns, story.end_ns)}, on {', '.join(story.nodes)}"))
        lost = (one for one in story.conclusions if one.fate in {SetFate.THROWN_AWAY, SetFate.SHRANK})
        rows = [
            [
                _cell("-" if one.start_ns is None else clock_since(story.start_ns, one.start_ns), "when"),
                _cell(f"{one.rule} {one.code}") if one.fate is None else _cell(str(one.fate), "bad"),
                _finding(one) if one.fate is None else _cell(one.title),
            ]
            for one in sorted([*story.findings, *lost], key=lambda each: each.start_ns or 0)
        ]
        parts.append(_table(("When", "What", "How it is known"), rows[:MOST_ROWS]))
        if len(rows) > MOST_ROWS:
            parts.append(_nothing(f"and {len(rows) - MOST_ROWS} more"))
    return "\n".join(parts)


def _finding(one: TraceFinding) -> str:
    told = f"<strong>{_text_of(one.title)}</strong><br>{_text_of(one.explanation)}"
    return f"<td>{told}{_evidence(one.evidence[:3])}</td>"


def _time_line(one: Investigation) -> str:
    drawn = _draw_time_line(list(_rows(one)))
    if not drawn:
        return _nothing("No trace says when a node ran.")
    colours = (
        "Yellow: starting; blue: COMPLETE; grey: stopping; green: master; red: story; triangle: lost fellow."
    )
    return f"{_nothing(colours)}\n{drawn}"


def _rows(one: Investigation) -> Iterator[_TimelineRow]:
    """Yield the rows of the time line: states and losses of each node, masterships, and stories."""
    facts = one.facts
    for node in sorted({run[0] for run in facts.first_ns}):
        spans = tuple(
            _TimelineBar(
                span.start_ns, span.end_ns, _state_kind(span.state),
                f"{node}, run {span.run[1]}: {span.state} from {iso(span.start_ns, 3)} for "
                f"{duration(span.end_ns - span.start_ns)}",
            )
            for span in facts.states
            if span.run[0] == node
        )  # fmt: skip
        marks = tuple(
            (place.at_ns, f"{node} lost {facts.names.node(fellow)} at {iso(place.at_ns, 3)}")
            for run, _, fellow, place in facts.losses
            if run[0] == node
        )
        yield _TimelineRow(node, spans, marks)
    yield from _masters(facts)
    for number, story in enumerate(one.stories, 1):
        if story.start_ns is not None:
            span = _TimelineBar(story.start_ns, story.end_ns or story.start_ns, "story", story.title)
            yield _TimelineRow(f"story {number}", (span,))


def _state_kind(state: str) -> str:
    if state == "COMPLETE":
        return "complete"
    if state.startswith("TERMINAT"):
        return "stopping"
    return "starting" if state in START_STATES else "other"


def _masters(facts: TraceFacts) -> Iterator[_TimelineRow]:
    """Yield rows with the times in which each node was master of a name-space."""
    for (node, namespace), some in grouped(facts.choices, lambda each: (each.run[0], each.namespace)):
        spans: list[_TimelineBar] = []
        for number, choice in enumerate(some):
            start = choice.place.at_ns
            following = some[number + 1] if number + 1 < len(some) else None
            over = facts.last_ns[choice.run]
            end = min(over, following.place.time_ns or over) if following else over
            if choice.master != choice.chooser:
                continue
            if spans and spans[-1].end_ns == start:  # it confirmed itself again
                start = spans.pop().start_ns
            label = f"{node} is master of {namespace} from {iso(start, 3)} to {clock_since(start, end)}"
            spans.append(_TimelineBar(start, end, "master", label))
        if spans:
            yield _TimelineRow(f"{node} master", tuple(spans))


def _sequence(one: Investigation) -> str:
    """Draw the alignment that decided about the data."""
    for kind in _DECISIVE:
        for conclusion in (each for each in one.verdict.conclusions if each.fate is kind):
            found = _exchanges(one.facts, conclusion)
            if found:
                talk = Conversation(found[0].group, tuple(found), one.facts.names)
                drawn = _draw_sequence(talk)
                return f"<p>{_text_of(talk.group)}: {_text_of(conclusion.title)}</p>\n{drawn}"
    return _nothing("The traces show no alignment that decided about data.")


def _exchanges(facts: TraceFacts, conclusion: TraceFinding) -> list[TracedAlignment]:
    """Return the alignments behind a conclusion, and those of the group around it."""
    if conclusion.start_ns is None:
        return []
    lines, time = {(place.file, place.offset) for place in conclusion.evidence}, facts.lines.time
    moments = {place.time_ns for place in conclusion.evidence}
    same = [each for each in facts.book.all() if not conclusion.group or each.group == conclusion.group]
    exact = [
        each
        for each in same
        if any(time(line_of(one)) in moments for one in each.noted)
        and any((place.file, place.offset) in lines for _, place in each.steps)
    ]
    near = [
        each
        for each in same
        if abs((each.end_ns or 0) - conclusion.start_ns) <= AROUND_NS and each not in exact
    ]
    group = (exact or near)[0].group if exact or near else ""
    chosen = [each for each in (*exact, *near) if each.group == group][:MOST_EXCHANGES]
    # Exact ones were chosen first; they are drawn in the order in which they happened.
    return sorted(chosen, key=lambda each: each.number)


def _curves(one: Investigation) -> str:
    groups = sorted(grouped(one.verdict.sizes, lambda each: each.group))
    drawn = [
        f"<h3>{_text_of(group)}</h3>\n{_draw_curves(group, some)}" for group, some in groups[:MOST_CURVES]
    ]
    if not drawn:
        return _nothing("The size of every set is unknown.")
    more = len(groups) - MOST_CURVES
    left = _nothing(f"{more} more groups are not drawn") if more > 0 else ""
    note = _nothing("Samples with data, as alignments, stores and recordings show them; a line is a step.")
    return "\n".join([note, *drawn, left])


def _stores(stored: StoredEvidence | None) -> str:
    if stored is None or not stored.stores:
        return _nothing("No store was examined.")
    rows = [
        [
            _cell(store.node), _cell(store.name), _cell(store.format),
            _cell(f"{one.facts.number}: {one.facts.name_space or '?'} {one.facts.kind}"),
            _cell(group.name),
            *(_cell(each, "n") for each in (count.samples, count.instances, count.damaged)),
        ]
        for store in stored.stores for one in store.sets for group, count in one.groups
    ]  # fmt: skip
    parts = [_table(("Node", "Store", "Format", "Set", "Group", "Samples", "Instances", "Damaged"), rows)]
    if stored.comparison is not None:
        labels = [
            f"{side.label} is {store.node}"
            for side, store in zip(stored.comparison.sides, stored.compared, strict=True)
        ]
        parts.append(f"<h3>Compared in data</h3>\n{_nothing(', '.join(labels))}")
        parts.append(_differences(stored))
    return "\n".join(parts)


def _differences(stored: StoredEvidence) -> str:
    report = stored.comparison
    if report is None or not report.instances:
        return "<p>The same.</p>" if report is not None and not report.differing else ""
    rows = [
        [
            _cell(f"{each.partition}.{each.topic}"), f"<td><code>{_text_of(each.key)}</code></td>",
            _cell(", ".join(map(str, each.counts)), "n"), _cell(each.cause), _cell(each.evidence),
        ]
        for each in report.instances[:MOST_INSTANCES]
    ]  # fmt: skip
    more = report.differing - len(rows)
    left = _nothing(f"{more} more instances differ") if more > 0 else ""
    return _table(("Group", "Key", "Samples in each", "Likely cause", "Evidence"), rows) + left


def _configurations(found: tuple[Finding, ...] | None) -> str:
    if found is None:
        return _nothing("No configuration was examined.")
    if not found:
        return "<p>`ospltool check` finds nothing in them.</p>"
    rows = [
        [
            _cell(each.severity.label, each.severity.label), _cell(each.code),
            _cell(f"{each.place.path}:{each.place.line}"),
            f"<td>{_text_of(each.message)}{f'<br>{_text_of(each.advice)}' if each.advice else ''}</td>",
        ]
        for each in found
    ]  # fmt: skip
    return _table(("Severity", "Rule", "Where", "What"), rows)


def _sources(one: Investigation, about: About) -> str:
    looked = [f"given: {name}" for name in about.names]
    looked += [
        f"{each.what}{f' of {each.node}' if each.node else ''}: {each.name}" for each in about.attachments
    ]
    looked += [f"{number} more {kind} were not examined" for kind, number in one.facts.dropped.items()]
    return _list(looked)


# ------------------------------------------------------------------ pictures

# Fits a page of paper and half a wide screen.
_WIDTH: Final = 960
_LEFT: Final = 110
_RIGHT: Final = 20
_COLOURS: Final = ("#1f6fb2", "#b2521f", "#2c7a3d", "#7a3d8c", "#8c6d1f", "#3d7a78", "#a3261b", "#555c66")
_DASHES: Final = ("", "6 3", "2 3", "8 3 2 3")
"""Dashes of lines, so that they differ on paper without colours, too."""

_ARROW_HEAD: Final = (
    '<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" '
    'orient="auto-start-reverse"><path d="M0 0 L8 4 L0 8 z"/></marker></defs>'
)

# About every third pixel of the width.
_MOST_POINTS: Final = 300
# More dots touch each other.
_MOST_DOTS: Final = 60
# More arrows of 20 pixels would be a drawing of several pages.
_MOST_ARROWS: Final = 60
_MOST_LINES: Final = len(_COLOURS) * len(_DASHES)
_CHAR: Final = 7.5
"""Width of a character of a text, at most on average."""

# Labels with milliseconds have room six times in the width.
_TICKS: Final = 6


def _text_of(value: object) -> str:
    """Return text for HTML and SVG, without markup and control characters."""
    return html.escape(visible(str(value)))


def _note(x: float, y: float, text: object, anchor: str = "start", kind: str = "axis") -> str:
    """Return a text in a _picture.

    Args:
        x: horizontal position in the _picture's units.
        y: vertical position, from the top.
        text: what to write; it is escaped.
        anchor: the part of the text that is at `x`: start, middle or end.
        kind: class in the style sheet.
    """
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{_text_of(text)}</text>'


def _shortened(text: str, width: float) -> str:
    """Return a text that fits into a width, without its middle if it is longer."""
    text = visible(text)
    most = max(3, int(width / _CHAR))
    if len(text) <= most:
        return text
    return f"{text[: most // 2]}…{text[len(text) - (most - 1) // 2 :]}"


@dataclasses.dataclass(frozen=True, slots=True)
class _TimelineBar:
    """A part of a row of a time line.

    Attributes:
        start_ns: its beginning.
        end_ns: its end.
        kind: class of the style sheet.
        label: text shown under the mouse.
    """

    start_ns: int
    end_ns: int
    kind: str
    label: str


@dataclasses.dataclass(frozen=True, slots=True)
class _TimelineRow:
    """A row of a time line: a label, spans that may overlap, and marks (time, label)."""

    label: str
    spans: tuple[_TimelineBar, ...]
    marks: tuple[tuple[int, str], ...] = ()


class _Scale:
    """A mapping of times to horizontal places in a _picture."""

    def __init__(self, times: Iterable[int]) -> None:
        known = [time for time in times if time > 0]
        self.start_ns = min(known, default=0)
        self.end_ns = max(known, default=1)

    def at(self, time_ns: int) -> float:
        """Return the place of a time."""
        length = max(1, self.end_ns - self.start_ns)
        inside = min(max(time_ns, self.start_ns), self.end_ns) - self.start_ns
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * inside / length

    def _tick(self, time_ns: int) -> str:
        """Return the text at a tick: the time of day, or with its date if the axis has several days."""
        is_one_day = iso(self.start_ns, 0)[:10] == iso(self.end_ns, 0)[:10]
        return clock(time_ns, 1) if is_one_day else iso(time_ns, 0)[:16]

    def axis(self, top: int, bottom: int) -> Iterator[str]:
        """Yield vertical lines, with clock times below them."""
        for number in range(_TICKS + 1):
            time = self.start_ns + (self.end_ns - self.start_ns) * number // _TICKS
            x = self.at(time)
            anchor = "start" if number == 0 else "end" if number == _TICKS else "middle"
            yield f'<line class="tick" x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{bottom}"/>'
            yield _note(x, bottom + 14, self._tick(time), anchor)


def _picture(height: int, label: str, parts: Iterable[str]) -> str:
    """Return an SVG element.

    Args:
        height: height; the width is _WIDTH.
        label: text for readers that do not see it.
        parts: SVG elements in drawing order.
    """
    body = "\n".join(parts)
    return (
        f'<svg role="img" aria-label="{_text_of(label)}" viewBox="0 0 {_WIDTH} {height}" '
        f'xmlns="http://www.w3.org/2000/svg">\n{body}\n</svg>'
    )


def _draw_time_line(rows: Sequence[_TimelineRow]) -> str:
    """Draw rows of spans above one axis of time; return an empty text without spans."""
    spans = [span for row in rows for span in row.spans]
    if not spans:
        return ""
    scale = _Scale(time for span in spans for time in (span.start_ns, span.end_ns))
    step = 22
    bottom = 8 + step * len(rows)
    parts = list(scale.axis(4, bottom))
    for number, row in enumerate(rows):
        y = 8 + step * number
        parts.append(_note(_LEFT - 8, y + 12, _shortened(row.label, _LEFT - 8), "end", "label"))
        for span in row.spans:
            x = scale.at(span.start_ns)
            width = max(1.0, scale.at(span.end_ns) - x)
            parts.append(
                f'<rect class="{span.kind}" x="{x:.1f}" y="{y + 2}" width="{width:.1f}" height="14">'
                f"<title>{_text_of(span.label)}</title></rect>"
            )
        for time, label in row.marks:
            x = scale.at(time)
            parts.append(
                f'<path class="mark" d="M{x:.1f} {y} l4 7 h-8 z"><title>{_text_of(label)}</title></path>'
            )
    return _picture(bottom + 20, "Time line of nodes and masters", parts)


def _draw_curves(group: str, sizes: Sequence[SetSize]) -> str:
    """Draw the sizes of one set over time, with a line for each node."""
    timed = [one for one in sizes if one.time_ns > 0]
    if not timed:
        return ""
    scale = _Scale(one.time_ns for one in timed)
    most = max(1, *(one.samples for one in timed))
    bottom = 130

    def height(samples: int) -> float:
        return bottom - 110 * samples / most

    parts = list(scale.axis(15, bottom))
    for share in (0, most // 2, most) if most > 1 else (0, most):
        y = height(share)
        parts.append(f'<line class="tick" x1="{_LEFT}" y1="{y:.1f}" x2="{_WIDTH - _RIGHT}" y2="{y:.1f}"/>')
        parts.append(_note(_LEFT - 8, y + 4, share, "end"))
    x, below = float(_LEFT), bottom + 32
    lines = sorted(grouped(timed, lambda one: one.node))
    for number, (node, some) in enumerate(_most_changed(lines)):
        colour = _COLOURS[number % len(_COLOURS)]
        dash = _DASHES[(number + number // len(_COLOURS)) % len(_DASHES)]
        points = list(_thinned(some))
        path = f"M{scale.at(points[0].time_ns):.1f} {height(points[0].samples):.1f}"
        path += "".join(f" H{scale.at(one.time_ns):.1f} V{height(one.samples):.1f}" for one in points[1:])
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        parts.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>')
        for one in points if len(points) <= _MOST_DOTS else ():
            told = f"{node}: {one.samples} ({one.how}) at {iso(one.time_ns, 3)}"
            parts.append(
                f'<circle cx="{scale.at(one.time_ns):.1f}" cy="{height(one.samples):.1f}" r="2.5" '
                f'fill="{colour}"><title>{_text_of(told)}</title></circle>'
            )
        name = _shortened(node, _WIDTH / 3)
        if x + 30 + _CHAR * len(name) > _WIDTH:
            x, below = float(_LEFT), below + 16
        parts.append(
            f'<line x1="{x:.1f}" y1="{below - 4}" x2="{x + 24:.1f}" y2="{below - 4}" stroke="{colour}" '
            f'stroke-width="2"{dashes}/>'
        )
        parts.append(_note(x + 30, below, name))
        x += 50 + _CHAR * len(name)
    if len(lines) > _MOST_LINES:
        below += 16
        parts.append(
            _note(_LEFT, below, f"{len(lines) - _MOST_LINES} more nodes, which changed less, are not drawn")
        )
    return _picture(below + 8, f"Size of {group} over time", parts)


def _most_changed(lines: Sequence[tuple[str, list[SetSize]]]) -> list[tuple[str, list[SetSize]]]:
    """Return the lines to draw, by node: if there are too many, those that go up and down most."""

    def change(line: tuple[str, list[SetSize]]) -> int:
        samples = [one.samples for one in line[1]]
        return min(samples) - max(samples)

    return sorted(sorted(lines, key=change)[:_MOST_LINES], key=lambda line: line[0])


def _thinned(some: Sequence[SetSize]) -> Iterator[SetSize]:
    """Yield the points of a line; of each bucket of many points the first, lowest, highest and last."""
    if len(some) <= _MOST_POINTS:
        yield from some
        return
    each = len(some) * 4 // _MOST_POINTS + 1
    for first in range(0, len(some), each):
        bucket = list(some[first : first + each])
        low = min(bucket, key=lambda one: one.samples)
        high = max(bucket, key=lambda one: one.samples)
        kept = {id(one) for one in (bucket[0], low, high, bucket[-1])}
        yield from (one for one in bucket if id(one) in kept)


def _draw_sequence(talk: Conversation) -> str:
    """Draw an alignment between nodes, message by message; return an empty text if there is none."""
    nodes, arrows = talk.nodes, list(talk.arrows())
    if not nodes or not arrows:
        return ""
    shown, step = arrows[:_MOST_ARROWS], 20
    gap = (_WIDTH - _LEFT - _RIGHT) / len(nodes)
    place = {node: _LEFT + gap * (number + 0.5) for number, node in enumerate(nodes)}
    bottom = 34 + step * len(shown)
    parts = [_ARROW_HEAD]
    for node, x in place.items():
        parts.append(_note(x, 14, _shortened(node, gap - _CHAR), "middle", "label"))
        parts.append(f'<line class="life" x1="{x:.1f}" y1="20" x2="{x:.1f}" y2="{bottom}"/>')
    for number, arrow in enumerate(shown):
        y = 38 + step * number
        if arrow.time_ns is not None:
            parts.append(_note(0, y + 4, clock(arrow.time_ns, 3)))
        start = place.get(arrow.sender, place.get(arrow.receiver, _LEFT))
        end = place.get(arrow.receiver, start)
        if start == end:
            parts.append(f'<circle class="step" cx="{start:.1f}" cy="{y}" r="3"/>')
            fits = start + 8 + _CHAR * len(arrow.text) <= _WIDTH
            parts.append(_note(start + (8 if fits else -8), y + 4, arrow.text, "start" if fits else "end"))
            continue
        dash = ' stroke-dasharray="5 3"' if arrow.is_answer else ""
        parts.append(
            f'<line class="arrow" x1="{start:.1f}" y1="{y}" x2="{end:.1f}" y2="{y}" '
            f'marker-end="url(#head)"{dash}/>'
        )
        parts.append(_note((start + end) / 2, y - 4, arrow.text, "middle"))
    if len(arrows) > len(shown):
        parts.append(_note(_LEFT, bottom + 14, f"and {len(arrows) - len(shown)} more"))
    return _picture(bottom + 20, f"Alignment of {talk.group}", parts)
