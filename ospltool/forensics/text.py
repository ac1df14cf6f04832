"""An investigation as text and as JSON values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from ospltool.forensics.investigation import Investigation
from ospltool.forensics.story import Story
from ospltool.output.times import clock_since, from_to
from ospltool.trace.meaning.lines import RecordPlace
from ospltool.trace.reading.record import one_line, valid_text
from ospltool.trace.rules import SetFate, TraceFinding

if TYPE_CHECKING:
    from ospltool.output.documents import ConclusionData, InvestigationData, RuleFinding, TracePlace

# The summary and one story fit on a screen.
SHOWN_CONCLUSIONS: Final = 8
# A story that is longer is read in the page or as JSON.
SHOWN_FINDINGS: Final = 12
SHOWN_STORIES: Final = 20

_TOLD_IN_STORIES: Final = frozenset({SetFate.THROWN_AWAY, SetFate.SHRANK, SetFate.REPLACED, SetFate.JOINED})
"""Conclusions shown in stories; the others are findings of rules, which stories contain."""


def as_text(one: Investigation) -> Iterator[str]:
    """Yield the verdict, further conclusions, what is unknown, the stories, and each finding in full."""
    yield f"Verdict: {one_line(one.verdict.headline)}"
    bad = [each for each in one.verdict.conclusions if not each.is_harmless]
    rest = [each for each in one.verdict.conclusions if each.is_harmless]
    for each in (*bad[1:], *rest)[:SHOWN_CONCLUSIONS]:
        yield f"  {each.fate}: {one_line(each.dated)}"
    left = len(bad[1:]) + len(rest) - SHOWN_CONCLUSIONS
    if left > 0:
        yield f"  and {left} more (--json has all)"
    for unknown in one.verdict.unknown:
        yield f"  unknown: {one_line(unknown)}"
    yield ""
    for number, story in enumerate(one.stories[:SHOWN_STORIES], 1):
        yield from _story(number, len(one.stories), story)
    if len(one.stories) > SHOWN_STORIES:
        yield f"and {len(one.stories) - SHOWN_STORIES} more stories (--json has all)"
        yield ""
    yield from _finding_lines(one.findings)


def _story(number: int, count: int, story: Story) -> Iterator[str]:
    when = from_to(story.start_ns, story.end_ns)
    yield f"Story {number} of {count}, {when}, on {one_line(', '.join(story.nodes))}"
    yield f"  {one_line(story.title)}"
    of_sets = (one for one in story.conclusions if one.fate in _TOLD_IN_STORIES)
    told = sorted([*story.findings, *of_sets], key=lambda one: one.start_ns or 0)
    for one in told[:SHOWN_FINDINGS]:
        when = "" if story.start_ns is None else f"{clock_since(story.start_ns, one.start_ns or 0)}  "
        what = (
            f"* {one.fate}" if one.fate is not None else f"{one.rule} ({one.code})" if one.code else one.rule
        )
        yield f"    {when}{one_line(f'{what}: {one.title}')}"
    if len(told) > SHOWN_FINDINGS:
        yield f"    and {len(told) - SHOWN_FINDINGS} more"
    yield ""


def as_value(one: Investigation) -> InvestigationData:
    """Return an investigation for JSON. `stories` refer to findings by their index in `findings`."""
    place = {id(each): number for number, each in enumerate(one.findings)}
    return {
        "verdict": valid_text(one.verdict.headline),
        "conclusions": [_conclusion(each) for each in one.verdict.conclusions],
        "unknown": [valid_text(each) for each in one.verdict.unknown],
        "stories": [
            {
                "title": valid_text(story.title),
                "start_ns": story.start_ns,
                "end_ns": story.end_ns,
                "nodes": list(story.nodes),
                "findings": [place[id(each)] for each in story.findings],
            }
            for story in one.stories
        ],
        "findings": [{**finding_value(each), "code": each.code or None} for each in one.findings],
    }


def _conclusion(one: TraceFinding) -> ConclusionData:
    return {
        "kind": one.fate,
        "text": valid_text(one.title),
        "start_ns": one.start_ns,
        "end_ns": one.end_ns,
        "nodes": list(one.nodes),
        "group": valid_text(one.group),
        "is_harmless": one.is_harmless,
        "facts": {name: _valid(each) for name, each in one.facts.items()},
        "evidence": [_place_value(place) for place in one.evidence],
    }


def _finding_lines(findings: Sequence[TraceFinding]) -> Iterator[str]:
    """Yield findings as lines of text, with their evidence."""
    for one in findings:
        yield f"{from_to(one.start_ns)}  {one.rule}: {one_line(one.title)}"
        yield f"    {one_line(one.explanation)}"
        for place in one.evidence:
            time = "" if place.time_ns is None else f"{clock_since(one.start_ns, place.time_ns, 6)} "
            yield f"    > {time}{one_line(place.node)}  {one_line(place.text)}"
            yield f"      {one_line(valid_text(place.file))}, byte {place.offset}"
        if one.count > len(one.evidence):
            yield f"    > and {one.count - len(one.evidence)} more lines"
        yield ""


def finding_value(one: TraceFinding) -> RuleFinding:
    """Return a finding for JSON."""
    return {
        "rule": one.rule,
        "title": valid_text(one.title),
        "explanation": valid_text(one.explanation),
        "nodes": list(one.nodes),
        "start_ns": one.start_ns,
        "end_ns": one.end_ns,
        "facts": {name: _valid(each) for name, each in one.facts.items()},
        "evidence_lines": one.count,
        "evidence": [_place_value(place) for place in one.evidence],
    }


def _place_value(place: RecordPlace) -> TracePlace:
    """Return a line of evidence for JSON."""
    return {
        "node": place.node,
        "file": valid_text(place.file),
        "offset": place.offset,
        "time_ns": place.time_ns,
        "text": valid_text(place.text),
    }


def _valid(value: object) -> object:
    """Return details with all of their texts as `valid_text`, as a case has them."""
    match value:
        case str():
            return valid_text(value)
        case dict():
            return {_valid(name): _valid(each) for name, each in value.items()}
        case list() | tuple():
            return [_valid(each) for each in value]
    return value
