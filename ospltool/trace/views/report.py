"""Findings as text and as JSON values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ospltool.trace.reading.record import one_line, valid_text
from ospltool.trace.views.times import clock, from_to

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ospltool.trace.meaning.exchanges import RecordPlace
    from ospltool.trace.rules import Anomaly


def as_text(findings: Sequence[Anomaly]) -> Iterator[str]:
    """Yield findings as lines of text, with their evidence."""
    for one in findings:
        yield f"{from_to(one.start_ns)}  {one.rule}: {one_line(one.title)}"
        yield f"    {one_line(one.explanation)}"
        for place in one.evidence:
            time = "" if place.time_ns is None else f"{clock(place.time_ns)} "
            yield f"    > {time}{one_line(place.node)}  {one_line(place.text)}"
            yield f"      {one_line(valid_text(place.file))}:{place.offset}"
        if one.count > len(one.evidence):
            yield f"    > and {one.count - len(one.evidence)} more lines"
        yield ""


def as_value(one: Anomaly) -> dict[str, object]:
    """Return a finding for JSON."""
    return {
        "rule": one.rule,
        "title": valid_text(one.title),
        "explanation": valid_text(one.explanation),
        "nodes": list(one.nodes),
        "start_ns": one.start_ns,
        "end_ns": one.end_ns,
        "facts": one.facts,
        "evidence_lines": one.count,
        "evidence": [place_value(place) for place in one.evidence],
    }


def place_value(place: RecordPlace) -> dict[str, object]:
    """Return a line of evidence for JSON."""
    return {
        "node": place.node,
        "file": valid_text(place.file),
        "offset": place.offset,
        "time_ns": place.time_ns,
        "text": valid_text(place.text),
    }
