"""The diagnostic format of reviewdog; its columns count bytes of UTF-8."""

from __future__ import annotations

import json
from typing import Any

from ospltool.diagnostics.model import Diagnostic, Place, Report, Severity

_SEVERITIES = {Severity.ERROR: "ERROR", Severity.WARNING: "WARNING", Severity.INFO: "INFO"}


def render(report: Report, *, colour: bool = False) -> str:
    """Render all findings as one result."""
    result = {
        "source": {"name": "ospltool"},
        "diagnostics": [_diagnostic(each) for each in report.diagnostics],
    }
    return json.dumps(result, indent=2) + "\n"


def _diagnostic(each: Diagnostic) -> dict[str, Any]:
    text = f"{each.message}. {each.help}" if each.help else each.message
    found: dict[str, Any] = {
        "message": text,
        "location": _location(each.place),
        "severity": _SEVERITIES[each.severity],
        "code": {"value": each.code},
    }
    if each.related:
        found["related_locations"] = [
            {"message": place.label, "location": _location(place)} for place in each.related
        ]
    source = each.place.source
    if each.fix and source and all(edit.path == source.path for edit in each.fix.edits):
        found["suggestions"] = [
            {"range": _range(Place.of(source, edit.span)), "text": edit.replacement.decode()}
            for edit in each.fix.edits
        ]
    return found


def _location(place: Place) -> dict[str, Any]:
    return {"path": place.path, "range": _range(place)}


def _range(place: Place) -> dict[str, Any]:
    return {
        "start": {"line": place.line, "column": _byte_column(place, place.line, place.column)},
        "end": {"line": place.end_line, "column": _byte_column(place, place.end_line, place.end_column)},
    }


def _byte_column(place: Place, line: int, column: int) -> int:
    if place.source is None:
        return column
    return len(place.source.line(line)[: column - 1].encode()) + 1
