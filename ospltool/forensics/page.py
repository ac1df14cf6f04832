"""The incident report: one self-contained HTML file without scripts."""

from __future__ import annotations

import dataclasses
import pathlib
import string
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from ospltool.diagnostics.model import Finding
from ospltool.forensics import drawing
from ospltool.forensics.attachments import Attachment
from ospltool.forensics.conclusion import Conclusion, SetFate, code_of
from ospltool.forensics.drawing import text_of
from ospltool.forensics.investigation import Investigation
from ospltool.forensics.stored import StoredEvidence
from ospltool.forensics.story import Story
from ospltool.trace.meaning.alignments import TracedAlignment, line_of
from ospltool.trace.meaning.lines import RecordPlace
from ospltool.trace.meaning.trace_facts import TraceFacts
from ospltool.trace.rules import Anomaly, grouped
from ospltool.trace.views.conversation import Conversation
from ospltool.trace.views.timeline import START_STATES
from ospltool.trace.views.times import SECOND_NS, clock_since, duration, from_to, iso

MOST_CURVES: Final = 12
MOST_EXCHANGES: Final = 6
MOST_INSTANCES: Final = 50
MOST_NODES: Final = 20
MOST_ROWS: Final = 300
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
    return f'<p class="dim">{text_of(text)}</p>'


def _list(texts: Iterable[str]) -> str:
    items = "".join(f"<li>{text_of(text)}</li>\n" for text in texts)
    return f"<ul>\n{items}</ul>" if items else ""


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; cells are HTML already."""
    head = "".join(f"<th>{text_of(cell)}</th>" for cell in header)
    body = "".join(f"<tr>{''.join(row)}</tr>\n" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table>"


def _cell(value: object, kind: str = "") -> str:
    return f'<td class="{kind}">{text_of(value)}</td>' if kind else f"<td>{text_of(value)}</td>"


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
    return text_of(f"Nodes: {nodes}{left}.{span} All times are UTC. Made by {about.made_by}.")


def _verdict(one: Investigation) -> str:
    bad = any(not each.is_harmless for each in one.verdict.conclusions)
    return f'<p class="verdict{" bad" if bad else ""}">{text_of(one.verdict.headline)}</p>'


def _conclusions(conclusions: Sequence[Conclusion]) -> str:
    if not conclusions:
        return _nothing("No merge, alignment or store shows a loss or a change of the data.")
    rows = [
        [
            _cell(each.kind, "what" if each.is_harmless else "what bad"),
            _cell(from_to(each.start_ns, each.end_ns), "when"),
            f"<td>{text_of(each.text)}{_evidence(each.places[:2])}</td>",
        ]
        for each in conclusions
    ]
    return _table(("What", "When", "Which set, where, by which decision"), rows)


def _evidence(places: Iterable[RecordPlace]) -> str:
    items = "".join(
        f"<li>{'' if each.time_ns is None else iso(each.time_ns, 3)} {text_of(each.node)} "
        f"{text_of(each.text)}<br>{text_of(each.file)}, byte {each.offset}</li>"
        for each in places
    )
    return f'<ul class="evidence">{items}</ul>' if items else ""


def _stories(stories: Sequence[Story]) -> str:
    if not stories:
        return _nothing("The rules of `ospltool trace anomalies` found nothing.")
    parts = []
    for number, story in enumerate(stories, 1):
        parts.append(f"<h3>{number}. {text_of(story.title)}</h3>")
        parts.append(_nothing(f"{from_to(story.start_ns, story.end_ns)}, on {', '.join(story.nodes)}"))
        entries = [
            (
                one.start_ns or 0,
                [
                    _cell("-" if one.start_ns is None else clock_since(story.start_ns, one.start_ns), "when"),
                    _cell(f"{one.rule} {code_of(one)}"),
                    _finding(one),
                ],
            )
            for one in story.findings
        ]
        entries += [
            (
                one.start_ns or 0,
                [
                    _cell(clock_since(story.start_ns, one.start_ns or 0), "when"),
                    _cell(one.kind, "bad"),
                    _cell(one.text),
                ],
            )
            for one in story.conclusions
            if one.kind in {SetFate.THROWN_AWAY, SetFate.SHRANK}
        ]
        rows = [row for _, row in sorted(entries, key=lambda each: each[0])]
        parts.append(_table(("When", "What", "How it is known"), rows[:MOST_ROWS]))
        if len(rows) > MOST_ROWS:
            parts.append(_nothing(f"and {len(rows) - MOST_ROWS} more"))
    return "\n".join(parts)


def _finding(one: Anomaly) -> str:
    told = f"<strong>{text_of(one.title)}</strong><br>{text_of(one.explanation)}"
    return f"<td>{told}{_evidence(one.evidence[:3])}</td>"


def _time_line(one: Investigation) -> str:
    drawn = drawing.time_line(list(_rows(one)))
    if not drawn:
        return _nothing("No trace says when a node ran.")
    colours = (
        "Yellow: starting; blue: COMPLETE; grey: stopping; green: master; red: story; triangle: lost fellow."
    )
    return f"{_nothing(colours)}\n{drawn}"


def _rows(one: Investigation) -> Iterator[drawing.TimelineRow]:
    """Yield the rows of the time line: states and losses of each node, masterships, and stories."""
    facts = one.facts
    for node in sorted({run[0] for run in facts.first_ns}):
        spans = tuple(
            drawing.TimelineBar(
                span.start_ns, span.end_ns, _state_kind(span.state),
                f"{node}, run {span.run[1]}: {span.state} from {iso(span.start_ns, 3)} for "
                f"{duration(span.end_ns - span.start_ns)}",
            )
            for span in facts.states
            if span.run[0] == node
        )  # fmt: skip
        marks = tuple(
            (place.time_ns or 0, f"{node} lost {facts.names.node(fellow)} at {iso(place.time_ns or 0, 3)}")
            for run, _, fellow, place in facts.losses
            if run[0] == node
        )
        yield drawing.TimelineRow(node, spans, marks)
    yield from _masters(facts)
    for number, story in enumerate(one.stories, 1):
        if story.start_ns is not None:
            span = drawing.TimelineBar(story.start_ns, story.end_ns or story.start_ns, "story", story.title)
            yield drawing.TimelineRow(f"story {number}", (span,))


def _state_kind(state: str) -> str:
    if state == "COMPLETE":
        return "complete"
    if state.startswith("TERMINAT"):
        return "stopping"
    return "starting" if state in START_STATES else "other"


def _masters(facts: TraceFacts) -> Iterator[drawing.TimelineRow]:
    """Yield rows with the times in which each node was master of a name-space."""
    for (node, namespace), some in grouped(facts.choices, lambda each: (each.run[0], each.namespace)):
        spans: list[drawing.TimelineBar] = []
        for number, choice in enumerate(some):
            start = choice.place.time_ns or 0
            following = some[number + 1] if number + 1 < len(some) else None
            over = facts.last_ns[choice.run]
            end = min(over, following.place.time_ns or over) if following else over
            if choice.master != choice.chooser:
                continue
            if spans and spans[-1].end_ns == start:  # it confirmed itself again
                start = spans.pop().start_ns
            label = f"{node} is master of {namespace} from {iso(start, 3)} to {clock_since(start, end)}"
            spans.append(drawing.TimelineBar(start, end, "master", label))
        if spans:
            yield drawing.TimelineRow(f"{node} master", tuple(spans))


def _sequence(one: Investigation) -> str:
    """Draw the alignment that decided about the data."""
    for kind in _DECISIVE:
        for conclusion in (each for each in one.verdict.conclusions if each.kind is kind):
            found = _exchanges(one.facts, conclusion)
            if found:
                talk = Conversation(found[0].group, tuple(found), one.facts.names)
                drawn = drawing.sequence(talk)
                return f"<p>{text_of(talk.group)}: {text_of(conclusion.text)}</p>\n{drawn}"
    return _nothing("The traces show no alignment that decided about data.")


def _exchanges(facts: TraceFacts, conclusion: Conclusion) -> list[TracedAlignment]:
    """Return the alignments behind a conclusion, and those of the group around it."""
    if conclusion.start_ns is None:
        return []
    lines, time = {(place.file, place.offset) for place in conclusion.places}, facts.lines.time
    moments = {place.time_ns for place in conclusion.places}
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
    return sorted(chosen, key=lambda each: each.number)


def _curves(one: Investigation) -> str:
    groups = sorted(grouped(one.verdict.sizes, lambda each: each.group))
    drawn = [
        f"<h3>{text_of(group)}</h3>\n{drawing.curves(group, some)}" for group, some in groups[:MOST_CURVES]
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
            _cell(f"{each.partition}.{each.topic}"), f"<td><code>{text_of(each.key)}</code></td>",
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
            f"<td>{text_of(each.message)}{f'<br>{text_of(each.advice)}' if each.advice else ''}</td>",
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
