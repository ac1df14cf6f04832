"""The last hour as one row of marks: when something went wrong, and how bad it was."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ospltool.health.codes import HealthSeverity
from tui import text
from tui.cells import Line, Span, Tone
from tui.viewmodel.base import View, plural
from tui.viewmodel.panels import URGENT_LEVELS, rule_line

SPAN_NS: Final = 3_600_000_000_000
STEPS: Final = 6
"""Moments that are named below the row."""


def timeline_lines(view: View, width: int) -> list[Line]:
    """Return a rule, the row of marks, and below it the times of day."""
    room = max(10, width - 2)
    marks: list[tuple[Tone, str]] = [(Tone.DIM, view.glyphs.nothing)] * room
    begin_ns = view.now_ns - SPAN_NS
    signs = {Tone.FAULT: view.glyphs.fault, Tone.WARN: view.glyphs.warn}
    for time_ns, tone in moments(view, begin_ns):
        place = (time_ns - begin_ns) * room // SPAN_NS
        if 0 <= place < room and marks[place][0] is not Tone.FAULT:
            marks[place] = tone, signs[tone]
    health = view.health
    begun = sum(one.since_ns >= begin_ns for one in health.every)
    title = f"last hour, {plural(begun, 'incident')} seen" if begun else "last hour"
    row: list[Span] = [Span(" ")]
    for tone, sign in marks:
        if len(row) > 1 and row[-1].tone is tone:
            row[-1] = Span(row[-1].text + sign, tone)
        else:
            row.append(Span(sign, tone))
    return [rule_line(view, title, width), tuple(row), _clock_line(begin_ns, room)]


def moments(view: View, begin_ns: int) -> Iterator[tuple[int, Tone]]:
    """Return when incidents began and nodes reported grave events, also before the console's start."""
    health = view.health
    for one in health.every:
        if one.since_ns >= begin_ns and one.severity is not HealthSeverity.NOTICE:
            yield one.since_ns, Tone.FAULT if one.severity is HealthSeverity.ERROR else Tone.WARN
    for event in reversed(view.model.events):
        if event.time_ns < begin_ns:
            return
        if event.level in URGENT_LEVELS:
            yield event.time_ns, URGENT_LEVELS[event.level]


def _clock_line(begin_ns: int, room: int) -> Line:
    times = ""
    for step in range(STEPS):
        times = times.ljust(step * room // STEPS) + text.clock(begin_ns + step * SPAN_NS // STEPS)[:5]
    return (Span(" " + times.ljust(room - 3) + "now", Tone.DIM),)
