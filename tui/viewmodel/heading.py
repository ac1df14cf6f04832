"""The first lines of every screen: system, screens, what is shown; and the position in a recording."""

from __future__ import annotations

from typing import Final

from rich.cells import cell_len

from ospltool.health.verdict import FAILED, STARTING
from ospltool.live.feed import ReplayPosition
from ospltool.output.text import plural
from tui import text
from tui.cells import Line, Span, Tone, fit_line
from tui.viewmodel.base import ConsoleStatus, Elsewhere, View, verdict_sign

MOST_ELSEWHERE: Final = 3
"""Other systems in trouble that the header names."""

SHORT_NAMES: Final = {
    "overview": "home",
    "node": "node",
    "name-space": "space",
    "alignment": "align",
    "incidents": "trouble",
    "groups": "group",
    "trace": "trace",
    "store": "store",
    "findings": "check",
    "persistence": "pers",
}
"""Short names of screens for a narrow header."""

SECOND_NS: Final = 1_000_000_000


def header(view: View, status: ConsoleStatus, screen: str, heading: str, width: int) -> list[Line]:
    """Return the header: system, screen, and whether it is live, frozen or out of reach; below, the tabs.

    `heading` is the screen's name for people.
    """
    right = _mode(view, status)
    room = max(0, width - sum(len(span.text) for span in right))
    sign, tone = verdict_sign(view, view.health.verdict)
    word = "" if tone is Tone.DIM else f"  {sign} {view.health.verdict.word}"
    if status.ago_ns is not None:
        tone = Tone.DIM
    others = _elsewhere(view, status)
    gap = Span(f" {view.glyphs.separator} ", Tone.DIM)
    at = gap, Span(heading, Tone.STRONG), Span(word, tone)
    source = Span(f" {status.source}", Tone.DIM)
    choices: tuple[Line, ...] = (
        (Span(f" {status.title} ", Tone.STRONG), source, *at, *others),
        (source, *at, *others),
        *([(source, Span(word, tone), *others)] if others else []),
        *([(source, Span(word, tone), *_elsewhere(view, status, 0))] if others else []),
        (Span(f" {heading}", Tone.STRONG), Span(word, tone)),
    )
    fitting = (line for line in choices if sum(cell_len(span.text) for span in line) <= room)
    first = fit_line(next(fitting, choices[-1]), room, glyphs=view.glyphs)
    return [(*first, *right), fit_line(_tabs(status, screen, width), width, glyphs=view.glyphs)]


def _elsewhere(view: View, status: ConsoleStatus, most: int = MOST_ELSEWHERE) -> Line:
    """Return the other systems: those in trouble by name, worst first, the others as a number.

    If none may be named, the number has the sign of the worst.
    """
    gap = f" {view.glyphs.separator} "
    sick = [one for one in status.elsewhere if one.verdict.word != "OK" or one.is_present]
    sick.sort(key=lambda one: (one.verdict.worst is None, one.verdict.worst or 0))
    if sick and not most:
        sign, tone = verdict_sign(view, sick[0].verdict)
        return (Span(f"{gap}{sign} {len(sick)} more", tone),)
    shown = sick[:most]
    spans = [span for one in shown for span in (Span(gap, Tone.DIM), _of_another(view, one))]
    rest = len(status.elsewhere) - len(shown)
    if rest:
        word = "more" if len(sick) > len(shown) else "OK" if sick else "other OK"
        spans.append(Span(f"{gap}{rest} {word}", Tone.DIM))
    return tuple(spans)


def _of_another(view: View, one: Elsewhere) -> Span:
    sign, tone = verdict_sign(view, one.verdict)
    errors, warnings = one.verdict.errors, one.verdict.warnings
    if one.verdict.word == "OK":
        return Span(f"{one.title}: OK", Tone.DIM)
    if one.verdict.word == FAILED:
        return Span(f"{sign} {one.title}: this watch has failed", tone)
    if one.verdict.worst is None:
        return Span(f"{one.title}: {'starting' if one.verdict.word == STARTING else 'nobody heard'}", tone)
    return Span(
        f"{sign} {one.title}: {plural(errors, 'error') if errors else plural(warnings, 'warning')}", tone
    )


def tab_at(line: Line, x: int, screens: tuple[str, ...]) -> str:
    """Return the screen whose tab stands at cell `x` of the tabs; empty where there is none."""
    at = 0
    for span, screen in zip(line, screens, strict=False):
        at += cell_len(span.text)
        if x < at:
            return screen
    return ""


def _tabs(status: ConsoleStatus, screen: str, width: int) -> Line:
    """The screens with their keys and names, as long as those have room; the present one stands out."""
    for names in ({name: name for name in status.screens}, SHORT_NAMES, {}):
        tabs = tuple(
            Span(
                f" {number % 10} {names[name]}" if name in names else f" {number % 10}",
                Tone.STRONG if name == screen else Tone.DIM,
            )
            for number, name in enumerate(status.screens, 1)
        )
        if sum(cell_len(tab.text) for tab in tabs) <= width:
            break
    return tabs


def _mode(view: View, status: ConsoleStatus) -> tuple[Span, ...]:
    glyphs = view.glyphs
    moment = Span(f"  {text.clock(view.now_ns)} UTC ", Tone.DIM)
    if status.ago_ns is not None:
        return (Span(f"  PAST, {text.ago(status.ago_ns)}", Tone.WARN), moment)
    if status.paused:
        behind = f", {text.age(status.behind_ns)} behind" if status.behind_ns >= SECOND_NS else ""
        return (Span(f"  PAUSED{behind}", Tone.WARN), moment)
    if view.model.domain_lost_ns and view.model.all_stopped:
        return (Span("  all nodes stopped", Tone.DIM), moment)
    lost = next((one for one in view.health.every if one.is_open and one.code.cause == "domain"), None)
    if lost is not None and lost.nodes:
        told = f"  {glyphs.fault} DOMAIN LOST {text.ago(view.now_ns - lost.since_ns)}"
        return (Span(told, Tone.FAULT), moment)
    if view.model.ended_ns:
        what = {"recorded": "recording", "simulated": "simulation"}.get(status.mode, status.mode)
        return (Span(f"  end of {what}", Tone.STRONG), moment)
    if status.operates:
        return (Span("  OPERATE", Tone.WARN), Span(f" {status.mode}", Tone.DIM), moment)
    return (Span(f"  {status.mode}", Tone.DIM), moment)


def timebar_lines(view: View, status: ConsoleStatus, width: int) -> list[Line]:
    """Return the position in a recording; [] for a live system."""
    timeline = status.timeline
    if timeline is None:
        return []
    glyphs = view.glyphs
    elapsed_ns, whole_ns = timeline.now_ns - timeline.begin_ns, timeline.end_ns - timeline.begin_ns
    sign = "paused" if timeline.paused else _speed(timeline)
    left = f" {text.moment(timeline.now_ns)[:19]}  {sign:>7}  "
    right = f"  {text.age(elapsed_ns)} of {text.age(whole_ns)}  {plural(len(timeline.marks), 'mark')} "
    room = max(4, width - len(left) - len(right))
    full, empty = glyphs.bar(elapsed_ns / whole_ns if whole_ns > 0 else 1.0, room)
    bar = list(full + empty)
    for mark_ns in timeline.marks:
        if whole_ns > 0 and timeline.begin_ns <= mark_ns <= timeline.end_ns:
            bar[min(room - 1, (mark_ns - timeline.begin_ns) * room // whole_ns)] = glyphs.mark
    return [(Span(left, Tone.STRONG), Span("".join(bar)), Span(right, Tone.DIM))]


def _speed(timeline: ReplayPosition) -> str:
    """Return the speed; of a simulation that cannot keep up, the speed that it reaches."""
    if timeline.reached is None:
        return f"{timeline.speed:g}x"
    return f"{timeline.reached:.2g}x, cannot keep up with {timeline.speed:g}x"
