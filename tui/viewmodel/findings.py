"""Findings of the check's rules about the advertised system."""

from __future__ import annotations

from collections.abc import Sequence

from ospltool.diagnostics.model import Diagnostic, Severity
from tui import text
from tui.cells import Cell, Column, Line, Span, Tone, single
from tui.viewmodel.base import View, plural
from tui.viewmodel.tables import Rows

FIELDS = ("code", "name", "node", "severity")

_TONES = {Severity.ERROR: Tone.FAULT, Severity.WARNING: Tone.WARN, Severity.INFO: Tone.PLAIN}


def findings(view: View, found: Sequence[Diagnostic], width: int) -> Rows[Diagnostic]:
    """Return the findings, the worst first."""
    columns = (
        Column("mark", "", 1),
        Column("code", "rule", 7),
        Column("nodes", "nodes", 10, grow=1, most=30),
        Column("message", "finding", 30, grow=5),
    )

    def render(one: Diagnostic, key: str) -> Cell:
        tone = _TONES[one.severity]
        glyphs = view.glyphs
        if key == "mark":
            sign = {Tone.FAULT: glyphs.fault, Tone.WARN: glyphs.warn}.get(tone, glyphs.nothing)
            return (Span(sign, tone),)
        if key == "message":
            return single(one.message, tone)
        return single(one.code if key == "code" else ", ".join(one.nodes), Tone.DIM)

    kept = [
        (f"{one.code}/{number}", one)
        for number, one in enumerate(found)
        if view.filter.matches(
            {
                "code": one.code,
                "name": one.name,
                "node": " ".join(one.nodes),
                "severity": one.severity.label,
                "message": one.message,
            }
        )
    ]
    return Rows(columns, kept, render, width=width, fixed=2, hidden=len(found) - len(kept))


def finding_lines(view: View, one: Diagnostic, width: int) -> list[Line]:
    """Return one finding in full, what to do about it, and the command that explains the rule."""
    ellipsis = view.glyphs.ellipsis
    room = max(20, width - 2)
    lines: list[Line] = [
        (Span(f" {one.code} {one.name}", Tone.STRONG), Span(f"  {one.severity.label}", Tone.DIM))
    ]
    lines += [(Span(f" {part}"),) for part in text.wrap(one.message, room, 3, ellipsis=ellipsis)]
    if one.help:
        lines += [(Span(f" {part}"),) for part in text.wrap(one.help, room, 3, ellipsis=ellipsis)]
    lines.append((Span(f" more: ospltool explain {one.code}", Tone.DIM),))
    return lines


def title(view: View, found: Sequence[Diagnostic], hidden: int, *, running: bool) -> str:
    """Return the title with the numbers of findings by severity.

    Of these the filter hides `hidden`; none is known yet while the check is running.
    """
    heard = sum(map(view.is_heard, view.model.nodes))
    if not heard:
        return "no node is heard, so nothing can be compared"
    if running:
        return "findings, being worked out"
    worst = [
        plural(sum(1 for one in found if one.severity is severity), severity.label)
        for severity in (Severity.ERROR, Severity.WARNING, Severity.INFO)
        if any(one.severity is severity for one in found)
    ]
    who = f"{heard:,} nodes advertise" if heard > 1 else "the node advertises"
    parts = [", ".join(worst) or f"no findings: what {who} fits together"]
    if hidden:
        parts.append(f"{hidden} hidden by the filter")
    return ", ".join(parts)
