"""Findings for people: a line each, or with source lines, a caret under the exact place, and the remedy."""

from __future__ import annotations

from ospltool.diagnostics.model import Finding, Place, Report, Severity, Target
from ospltool.output.text import Style, paint, visible, width

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


MAX_LINE = 120
"""Widest piece of a source line; what is cut off is marked with an ellipsis."""

_CONTEXT = 20
"""Columns that stay visible to the left of a caret in a cut line."""

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
