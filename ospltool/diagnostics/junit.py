"""JUnit XML: a suite for each file, a failed case for each finding, a passed one for a clean file."""

from __future__ import annotations

from xml.sax.saxutils import escape, quoteattr

from ospltool.diagnostics.model import Diagnostic, Report
from ospltool.output.text import visible


def render(report: Report, *, colour: bool = False) -> str:
    """Render the report of a run."""
    by_file: dict[str, list[Diagnostic]] = {path: [] for path in report.files}
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


def _case(each: Diagnostic) -> list[str]:
    place = each.place
    text = f"{place.path}:{place.line}:{place.column}: {each.message}"
    if each.help:
        text += f"; {each.help}"
    name, path = _attribute(f"{each.code} {each.name}"), _attribute(place.path)
    kind, message = _attribute(each.severity.label), _attribute(each.message)
    return [
        f'    <testcase name={name} classname={path} line="{place.line}" column="{place.column}">',
        f"      <failure type={kind} message={message}>{escape(visible(text))}</failure>",
        "    </testcase>",
    ]


def _attribute(text: str) -> str:
    return quoteattr(visible(text))
