"""Findings in the formats of other tools: GitHub, GitLab, JUnit, SARIF and reviewdog."""

from __future__ import annotations

import json
from html import escape  # xml.sax imports an HTTP client
from typing import Any
from urllib.parse import quote

from ospltool.diagnostics.model import Finding, Place, Report, Severity, fingerprints
from ospltool.output.text import visible

_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}


def github(report: Report, *, colour: bool = False) -> str:
    """Render a workflow command for each finding, which GitHub shows on the changed lines."""
    return "".join(f"{_command(each)}\n" for each in report.diagnostics)


def _command(each: Finding) -> str:
    place = each.place
    properties = [
        f"title=ospltool ({each.code})",
        f"file={_property(place.path)}",
        f"line={place.line}",
        f"endLine={place.end_line}",
    ]
    if place.line == place.end_line:  # GitHub ignores the line when columns span several
        properties += [f"col={place.column}", f"endColumn={place.end_column}"]
    text = f"{each.message}\n{each.advice}" if each.advice else each.message
    return f"::{_COMMANDS[each.severity]} {','.join(properties)}::{_data(text)}"


def _data(text: str) -> str:
    """Encode a text for a command: line ends stay, other control characters become visible."""
    return visible(text, keep_lines=True).replace("%", "%25").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


_GRADES = {Severity.ERROR: "major", Severity.WARNING: "minor", Severity.INFO: "info"}


def gitlab(report: Report, *, colour: bool = False) -> str:
    """Render a Code Quality report, one JSON list, as GitLab reads it."""
    entries = [
        {
            "check_name": each.code,
            "description": f"{each.code} {each.name}: {each.message}",
            "severity": _GRADES[each.severity],
            "fingerprint": fingerprint,
            "location": {
                "path": each.place.path,
                "positions": {
                    "begin": {"line": each.place.line, "column": each.place.column},
                    "end": {"line": each.place.end_line, "column": each.place.end_column},
                },
            },
        }
        for each, fingerprint in zip(report.diagnostics, fingerprints(report.diagnostics), strict=True)
    ]
    return json.dumps(entries, indent=2) + "\n"


def junit(report: Report, *, colour: bool = False) -> str:
    """Render JUnit XML: a suite for each file, with a case for each finding, or a passed one."""
    by_file: dict[str, list[Finding]] = {path: [] for path in report.files}
    for each in report.diagnostics:
        by_file.setdefault(each.place.path, []).append(each)
    failures = len(report.diagnostics)
    tests = sum(max(len(found), 1) for found in by_file.values())
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<testsuites name="ospltool check" tests="{tests}" failures="{failures}" errors="0">',
    ]
    for path, found in by_file.items():
        count = max(len(found), 1)
        lines.append(
            f'  <testsuite name={_attribute(path)} tests="{count}" failures="{len(found)}" errors="0">'
        )
        lines += [line for each in found for line in _case(each)]
        if not found:
            lines.append(f'    <testcase name="no findings" classname={_attribute(path)}/>')
        lines.append("  </testsuite>")
    lines.append("</testsuites>")
    return "\n".join(lines) + "\n"


def _case(each: Finding) -> list[str]:
    place = each.place
    text = f"{place.path}:{place.line}:{place.column}: {each.message}"
    if each.advice:
        text += f"; {each.advice}"
    name, path = _attribute(f"{each.code} {each.name}"), _attribute(place.path)
    kind, message = _attribute(each.severity.label), _attribute(each.message)
    return [
        f'    <testcase name={name} classname={path} line="{place.line}" column="{place.column}">',
        f"      <failure type={kind} message={message}>{escape(visible(text), quote=False)}</failure>",
        "    </testcase>",
    ]


def _attribute(text: str) -> str:
    return '"' + escape(visible(text), quote=False).replace('"', "&quot;") + '"'


_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}


def sarif(report: Report, *, colour: bool = False) -> str:
    """Render SARIF 2.1.0, which code scanning services read: one run with its rules and results."""
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


def _result(each: Finding, fingerprint: str, rule_index: int) -> dict[str, Any]:
    text = f"{each.message}. {each.advice}" if each.advice else each.message
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


def _fix(each: Finding) -> dict[str, Any]:
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


_SEVERITIES = {Severity.ERROR: "ERROR", Severity.WARNING: "WARNING", Severity.INFO: "INFO"}


def rdjson(report: Report, *, colour: bool = False) -> str:
    """Render the diagnostic format of reviewdog, one result; its columns count bytes of UTF-8."""
    result = {
        "source": {"name": "ospltool"},
        "diagnostics": [_diagnostic(each) for each in report.diagnostics],
    }
    return json.dumps(result, indent=2) + "\n"


def _diagnostic(each: Finding) -> dict[str, Any]:
    text = f"{each.message}. {each.advice}" if each.advice else each.message
    found: dict[str, Any] = {
        "message": text,
        "location": _byte_location(each.place),
        "severity": _SEVERITIES[each.severity],
        "code": {"value": each.code},
    }
    if each.related:
        found["related_locations"] = [
            {"message": place.label, "location": _byte_location(place)} for place in each.related
        ]
    source = each.place.source
    if each.fix and source and all(edit.path == source.path for edit in each.fix.edits):
        found["suggestions"] = [
            {"range": _range(Place.of(source, edit.span)), "text": edit.replacement.decode()}
            for edit in each.fix.edits
        ]
    return found


def _byte_location(place: Place) -> dict[str, Any]:
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
