"""What the console draws around its tables: header, tabs, position in time, titles, shares of height."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

from rich.cells import cell_len

from ospltool.health.codes import joined
from ospltool.health.verdict import FAILED, NOBODY, STARTING, SystemVerdict
from ospltool.live.feed import ReplayPosition
from ospltool.output.text import plural
from ospltool.views import text
from ospltool.views.alignment import SECOND_NS
from ospltool.views.cells import (
    Line,
    LineRows,
    Span,
    Tone,
    fit_line,
    plain,
)
from ospltool.views.incidents import Notable
from ospltool.views.view import View, rule_line, verdict_sign


@dataclasses.dataclass(frozen=True, slots=True)
class Elsewhere:
    """A system that is watched too, and how it is."""

    title: str
    verdict: SystemVerdict
    is_present: bool = False
    """Whether it is the present of the system whose past is shown."""


@dataclasses.dataclass(frozen=True, slots=True)
class ConsoleStatus:
    """The console's own state for the header."""

    title: str
    """Title of the console."""
    source: str
    """Name of the watched system."""
    mode: str
    """Mode of the feed: "live", "recorded" or "simulated"."""
    paused: bool = False
    """Whether the picture is frozen."""
    behind_ns: int = 0
    """Time for which the picture has been frozen."""
    timeline: ReplayPosition | None = None
    """Position in a recording or simulation; None for a live system."""
    screens: tuple[str, ...] = ()
    """Names of the screens with tabs."""
    operates: bool = False
    """Whether the console may change nodes."""
    elsewhere: tuple[Elsewhere, ...] = ()
    """Other watched systems."""
    ago_ns: int | None = None
    """How long ago the shown moment of a live system was; None for its present."""


# They fit into a header of 100 cells.
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
    # The gravest first; one without an incident, but not OK, comes last.
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
    if view.model.domain_lost_ns and view.health.all_stopped:
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


# With fewer lines the table below would have less than half of the screen.
LEAST_FOR_TIMELINE: Final = 28
# The same for the explanation.
LEAST_FOR_EXPLANATION: Final = 17
MAX_CAPTION_LINES: Final = 2


def caption_lines(view: View, width: int) -> list[Line]:
    """Return the sentence for the reader, at most two lines; none when there is nothing to say."""
    glyphs = view.glyphs
    caption, verdict = view.model.caption, view.health.verdict
    if not caption and verdict.why and verdict.why != NOBODY:
        caption = f"{verdict.why}. {verdict.next}"
    elif not caption and view.model.is_empty and view.where:
        awaited = view.health.awaited
        caption = f"no node heard{view.where}" + (f"; expected: {joined(awaited)}" if awaited else "")
    lines = text.wrap(caption, max(10, width - 4), MAX_CAPTION_LINES, ellipsis=glyphs.ellipsis)
    return [(Span(f" {glyphs.caption} ", Tone.ACCENT), Span(line, Tone.STRONG)) for line in lines]


def attention(view: View, every: Sequence[Notable], height: int, width: int) -> LineRows[Notable]:
    """Return a table of what to look at, of `height` lines; its heading counts what does not fit."""
    left_out = len(every) - (height - 1)
    title = f"attention, {left_out} below" if left_out > 0 else "attention"
    return LineRows(plain(rule_line(view, title, width)), [(one.key, one.line, one) for one in every], width)


def nothing_lines(view: View, what: str) -> list[Line]:
    """Return the line that stands in place of an empty table of `what`, in the plural, and says why."""
    if not view.is_anybody_heard:
        return [(Span(f" no node is heard, so there are no {what} to show", Tone.DIM),)]
    if view.filter:
        return [(Span(f" no {what} match the filter {view.filter.text!r}", Tone.DIM),)]
    return [(Span(f" no {what} yet", Tone.DIM),)]


def titled(
    title: str, lines: list[Line], height: int, view: View, width: int, *, note: bool = True
) -> list[Line]:
    """Return a rule with a title, and below it what fits in `height` lines; a note counts what does not."""
    if height < 1:
        return []
    left_out = len(lines) - (height - 1)
    if note and left_out > 0:
        title = f"{title}, {left_out} more than fit"
    return [rule_line(view, title, width), *lines[: height - 1]]


@dataclasses.dataclass(frozen=True, slots=True)
class Shares:
    """Lines of each part of the overview, titles included; 0 hides it."""

    attention: int
    about: int
    matrix: int
    detail: int
    timeline: int
    events: int


def share_height(room: int, nodes: int, attention: int, *, events_only: bool, explained: int = 0) -> Shares:
    """Share `room` lines: attention gets what it needs up to a third, events four at least, nodes the rest.

    Where there is room, the last hour gets three, and the explanation of an incident what it needs.

    Args:
        room: the lines of the screen that are left.
        nodes: number of nodes.
        attention: number of incidents and of running work.
        events_only: give the events everything.
        explained: number of lines that explain an incident, 0 without one.
    """
    if events_only:
        return Shares(0, 0, 0, 0, 0, max(2, room))
    about = explained if room >= LEAST_FOR_EXPLANATION else 0
    room -= about
    detail = 2
    timeline = 3 if room >= LEAST_FOR_TIMELINE else 0
    wanted = attention + 1 if attention else 0
    watched = min(wanted, max(2, room // 3)) if wanted else 0
    matrix = max(2, min(nodes + 1, max(3, room - detail - watched - timeline - 4)))
    events = max(0, room - matrix - detail - watched - timeline)
    return Shares(watched, about, matrix, detail, timeline, events)
