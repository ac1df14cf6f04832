"""Workflow commands that GitHub shows as annotations on the changed lines."""

from __future__ import annotations

from ospltool.diagnostics.model import Diagnostic, Report, Severity
from ospltool.output.text import visible

_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}


def render(report: Report, *, colour: bool = False) -> str:
    """Render one command for each finding."""
    return "".join(f"{_command(each)}\n" for each in report.diagnostics)


def _command(each: Diagnostic) -> str:
    place = each.place
    properties = [
        f"title=ospltool ({each.code})",
        f"file={_property(place.path)}",
        f"line={place.line}",
        f"endLine={place.end_line}",
    ]
    if place.line == place.end_line:  # GitHub ignores the line when columns span several
        properties += [f"col={place.column}", f"endColumn={place.end_column}"]
    text = f"{each.message}\n{each.help}" if each.help else each.message
    return f"::{_COMMANDS[each.severity]} {','.join(properties)}::{_data(text)}"


def _data(text: str) -> str:
    """Encode a text for a command: line ends stay, other control characters become visible."""
    return visible(text, keep_lines=True).replace("%", "%25").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
