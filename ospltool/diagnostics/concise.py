"""One line for each finding: `path:line:column: severity[CODE] message`."""

from __future__ import annotations

from ospltool.diagnostics.model import Diagnostic, Report, Severity
from ospltool.output.text import Style, paint, visible

STYLES = {Severity.ERROR: Style.RED, Severity.WARNING: Style.YELLOW, Severity.INFO: Style.CYAN}


def render(report: Report, *, colour: bool = False) -> str:
    """Render all findings in order."""
    return "".join(f"{_line(each, colour=colour)}\n" for each in report.diagnostics)


def _line(each: Diagnostic, *, colour: bool) -> str:
    place = each.place
    head = paint(f"{each.severity.label}[{each.code}]", STYLES[each.severity], on=colour)
    where = paint(visible(place.path), Style.BOLD, on=colour)
    return f"{where}:{place.line}:{place.column}: {head} {visible(each.message)}"
