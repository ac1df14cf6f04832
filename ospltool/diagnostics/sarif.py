"""SARIF 2.1.0, the format in which code scanning services take findings."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from ospltool.diagnostics.model import Diagnostic, Place, Report, Severity, fingerprints

_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}


def render(report: Report, *, colour: bool = False) -> str:
    """Render one run with its rules and results."""
    index = {each.code: at for at, each in enumerate(report.rules)}
    rules = [
        {
            "id": each.code,
            "name": each.name,
            "shortDescription": {"text": each.summary},
            "fullDescription": {"text": each.help or each.summary},
            "defaultConfiguration": {"level": _LEVELS[each.severity]},
        }
        for each in report.rules
    ]
    results = [
        _result(each, fingerprint, index.get(each.code, -1))
        for each, fingerprint in zip(report.diagnostics, fingerprints(report.diagnostics), strict=True)
    ]
    run = {
        "tool": {"driver": {"name": "ospltool", "rules": rules}},
        "columnKind": "unicodeCodePoints",
        "results": results,
    }
    document = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [run],
    }
    return json.dumps(document, indent=2) + "\n"


def _result(each: Diagnostic, fingerprint: str, rule_index: int) -> dict[str, Any]:
    text = f"{each.message}. {each.help}" if each.help else each.message
    result: dict[str, Any] = {
        "ruleId": each.code,
        "ruleIndex": rule_index,
        "level": _LEVELS[each.severity],
        "message": {"text": text},
        "locations": [_location(each.place)],
        "partialFingerprints": {"ospltool/v1": fingerprint},
    }
    if each.related:
        result["relatedLocations"] = [
            {"id": at, **_location(place), **({"message": {"text": place.label}} if place.label else {})}
            for at, place in enumerate(each.related)
        ]
    if each.fix:
        result["fixes"] = [_fix(each)]
    return result


def _location(place: Place) -> dict[str, Any]:
    region = {
        "startLine": place.line,
        "startColumn": place.column,
        "endLine": place.end_line,
        "endColumn": place.end_column,
    }
    return {"physicalLocation": {"artifactLocation": {"uri": quote(place.path)}, "region": region}}


def _fix(each: Diagnostic) -> dict[str, Any]:
    assert each.fix is not None, "asked for only where there is one"
    by_file: dict[str, list[dict[str, Any]]] = {}
    for edit in each.fix.edits:
        deleted = {"byteOffset": edit.span.start, "byteLength": edit.span.end - edit.span.start}
        replacement = {"deletedRegion": deleted, "insertedContent": {"text": edit.replacement.decode()}}
        by_file.setdefault(edit.path, []).append(replacement)
    changes = [
        {"artifactLocation": {"uri": quote(path)}, "replacements": found} for path, found in by_file.items()
    ]
    return {"description": {"text": each.fix.title}, "artifactChanges": changes}
