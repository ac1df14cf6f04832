"""Findings in each output format: for people, as JSON, and for GitHub, GitLab, JUnit, SARIF and reviewdog."""

from __future__ import annotations

import json
from collections.abc import Callable
from html import escape  # xml.sax imports an HTTP client
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from ospltool.diagnostics.model import Finding, Place, Report, Severity, Target, fingerprints
from ospltool.output import envelope
from ospltool.output.text import Style, paint, visible, width

if TYPE_CHECKING:
    from ospltool.diagnostics.documents import Diagnostic, Diagnostics, FilePlace, Position, SuggestedFix

STYLES = {Severity.ERROR: Style.RED, Severity.WARNING: Style.YELLOW, Severity.INFO: Style.CYAN}


def concise(report: Report, *, colour: bool = False) -> str:
    """Render all findings in order, each as `path:line:column: severity[CODE] message`.

    What matters for one service only says so at the end.
    """
    return "".join(f"{_line(each, colour=colour)}\n" for each in report.diagnostics)


def _line(each: Finding, *, colour: bool) -> str:
    place = each.place
    head = paint(f"{each.severity.label}[{each.code}]", STYLES[each.severity], on=colour)
    where = paint(visible(place.path), Style.BOLD, on=colour)
    only = f" ({_only(each)})" if len(each.targets) == 1 else ""
    return f"{where}:{place.line}:{place.column}: {head} {visible(each.message)}{only}"


def _only(each: Finding) -> str:
    (target,) = each.targets
    return f"matters for {target.label} only"


# A wide terminal; code of applications is seldom wider.
MAX_LINE = 120
"""Widest piece of a source line; what is cut off is marked with an ellipsis."""

# The name of the element before the value, as a rule.
_CONTEXT = 20
"""Columns that stay visible to the left of a caret in a cut line."""

# As editors of XML show it by default; the caret must stand below its text in any case.
_TAB = 4


def full(report: Report, *, colour: bool = False) -> str:
    """Render all findings in order, with an empty line after each."""
    return "".join(f"{_finding(each, colour=colour)}\n\n" for each in report.diagnostics)


def _finding(each: Finding, *, colour: bool) -> str:
    places = (each.place, *each.related)
    gutter = len(str(max(place.line for place in places)))
    head = paint(f"{each.severity.label}[{each.code}]", STYLES[each.severity], on=colour)
    lines = [f"{head}: {paint(visible(each.message), Style.BOLD, on=colour)}"]
    lines += _frame(each.place, "-->", "^", gutter, STYLES[each.severity], colour=colour)
    for place in each.related:
        lines += _frame(place, ":::", "-", gutter, Style.BLUE, colour=colour)
    lines += [f"{' ' * gutter} {paint('=', Style.BLUE, on=colour)} {note}" for note in _notes(each)]
    return "\n".join(lines)


def _notes(each: Finding) -> list[str]:
    notes = []
    if each.advice:
        notes.append(f"help: {visible(each.advice)}")
    if each.fix:
        kind = "--fix" if each.fix.is_safe else "--unsafe-fixes"
        notes.append(f"fix: {visible(each.fix.title)} (with {kind})")
    if each.nodes:
        notes.append(f"node: {visible(', '.join(each.nodes))}")
    if len(each.targets) == 1:
        notes.append(_only(each))
    blocked = [target.label for target in Target if target in each.blocks]
    if blocked:
        verb = "refuse" if len(blocked) > 1 else "refuses"
        notes.append(f"{' and '.join(blocked)} {verb} to start with this")
    return notes


def _frame(place: Place, arrow: str, mark: str, gutter: int, style: Style, *, colour: bool) -> list[str]:
    """Render a place with its source line and the mark under it; without a source, only the place."""
    pad = " " * gutter
    bar = paint("|", Style.BLUE, on=colour)
    head = f"{pad}{paint(arrow, Style.BLUE, on=colour)} {visible(place.path)}:{place.line}:{place.column}"
    if place.source is None:
        return [head]
    text = place.source.line(place.line)
    start = place.column - 1
    end = place.end_column - 1 if place.end_line == place.line else len(text)
    shown, before, size = _cut(text, start, max(end, start))
    marks = paint(mark * max(size, 1), style, on=colour)
    label = f" {visible(place.label)}" if place.label else ""
    number = paint(str(place.line).rjust(gutter), Style.BLUE, on=colour)
    return [
        head,
        f"{pad} {bar}",
        f"{number} {bar} {shown}".rstrip(),
        f"{pad} {bar} {' ' * before}{marks}{paint(label, style, on=colour and bool(label))}",
    ]


def _cut(text: str, start: int, end: int) -> tuple[str, int, int]:
    """Return the printable source line, the columns before the mark, and the width of the mark."""
    left, mark, right = (_safe(text[:start]), _safe(text[start:end]), _safe(text[end:]))
    room = MAX_LINE - 2
    if width(left) + width(mark) > room:
        if width(left) > _CONTEXT:
            left = "…" + left[-_CONTEXT:]
        mark = mark[: room - len(left)] + ("…" if len(mark) > room - len(left) else "")
    rest = room - width(left) - width(mark)
    if width(right) > rest:
        right = right[: max(rest, 0)] + "…"
    return left + mark + right, width(left), width(mark)


def _safe(text: str) -> str:
    return visible(text.replace("\t", " " * _TAB))


def json_document(report: Report, *, colour: bool = False) -> str:
    """Render the whole report: `{"format_version": 1, "kind": "diagnostics", "data": {...}}`."""
    prints = fingerprints(report.diagnostics)
    data: Diagnostics = {
        "valid": not report.count(Severity.ERROR),
        "summary": {
            "errors": report.count(Severity.ERROR),
            "warnings": report.count(Severity.WARNING),
            "infos": report.count(Severity.INFO),
            "files": len(report.files),
            "suppressed": report.suppressed,
            "not_shown": report.not_selected,
            "skipped_files": list(report.skipped),
        },
        "refused_by": {target.value: list(report.blocked_files(target)) for target in Target},
        "files": list(report.files),
        "diagnostics": [
            plain(each, fingerprint) for each, fingerprint in zip(report.diagnostics, prints, strict=True)
        ],
    }
    return envelope.document("diagnostics", data)


def plain(each: Finding, fingerprint: str) -> Diagnostic:
    """Convert a finding to JSON values. Lines and columns count from 1 and in characters, bytes from 0."""
    return {
        "code": each.code,
        "name": each.name,
        "severity": each.severity.label,
        "message": each.message,
        "nodes": list(each.nodes),
        "subject": each.subject,
        **plain_place(each.place),
        "related": [{**plain_place(place), "label": place.label} for place in each.related],
        "help": each.advice,
        "refused_by": sorted(each.blocks),
        "targets": sorted(each.targets),
        "fingerprint": fingerprint,
        "fix": _fix(each),
    }


def plain_place(place: Place) -> FilePlace:
    """Convert a place to JSON values; without bytes if the file could not be read."""
    start: Position = {"line": place.line, "column": place.column}
    end: Position = {"line": place.end_line, "column": place.end_column}
    if place.span:
        start["byte"], end["byte"] = place.span
    return {"file": place.path, "range": {"start": start, "end": end}}


def _fix(each: Finding) -> SuggestedFix | None:
    if each.fix is None:
        return None
    return {
        "title": each.fix.title,
        "applicability": "safe" if each.fix.is_safe else "unsafe",
        "edits": [
            {
                "file": edit.path,
                "byte_start": edit.span.start,
                "byte_end": edit.span.end,
                "replacement": edit.replacement.decode("utf-8", "replace"),
            }
            for edit in each.fix.edits
        ],
    }


def json_lines(report: Report, *, colour: bool = False) -> str:
    """Render all findings in order."""
    prints = fingerprints(report.diagnostics)
    return "".join(
        envelope.line("diagnostic", plain(each, fingerprint))
        for each, fingerprint in zip(report.diagnostics, prints, strict=True)
    )


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
        result["fixes"] = [_sarif_fix(each)]
    return result


def _location(place: Place) -> dict[str, Any]:
    region = {
        "startLine": place.line,
        "startColumn": place.column,
        "endLine": place.end_line,
        "endColumn": place.end_column,
    }
    return {"physicalLocation": {"artifactLocation": {"uri": quote(place.path)}, "region": region}}


def _sarif_fix(each: Finding) -> dict[str, Any]:
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
        "severity": each.severity.name,
        "code": {"value": each.code},
    }
    if each.related:
        found["related_locations"] = [
            {"message": place.label, "location": _byte_location(place)} for place in each.related
        ]
    source = each.place.source
    if each.fix and source and all(edit.path == source.path for edit in each.fix.edits):
        found["suggestions"] = [
            {"range": _range(Place.from_span(source, edit.span)), "text": edit.replacement.decode()}
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


FORMATS: Final[dict[str, Callable[..., str]]] = {
    "full": full,
    "concise": concise,
    "json": json_document,
    "jsonl": json_lines,
    "github": github,
    "gitlab": gitlab,
    "junit": junit,
    "sarif": sarif,
    "rdjson": rdjson,
}
"""The function that renders each format; only those for people use `colour`."""


def render(report: Report, name: str, *, colour: bool = False) -> str:
    """Render a report in one of FORMATS; the text ends with a line end unless it is empty.

    Args:
        report: the findings.
        name: that of the format.
        colour: whether a terminal shows it.
    """
    return FORMATS[name](report, colour=colour)
