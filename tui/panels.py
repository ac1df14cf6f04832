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
    Span,
    Tone,
    fit_line,
)
from ospltool.views.curves import LEAST_HEIGHT, MOST_HEIGHT
from ospltool.views.view import View, verdict_sign


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
    is_kiosk: bool = False
    """Whether the console hangs on a wall: nobody presses keys."""
    ago_ns: int | None = None
    """How long ago the shown moment of a live system was; None for its present."""


# They fit into a header of 100 cells.
MOST_ELSEWHERE: Final = 3
"""Other systems in trouble that the header names."""


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
    """The screens with their keys; the present one stands out.

    A screen has one name at all widths: where there is no room for all, the last ones have their keys only.
    """
    room = width - 2 * len(status.screens)
    named: set[str] = set()
    for name in sorted(status.screens, key=lambda one: one != screen):
        if cell_len(name) + 1 > room:
            break
        named.add(name)
        room -= cell_len(name) + 1
    return tuple(
        Span(
            f" {number % 10} {name}" if name in named else f" {number % 10}",
            Tone.STRONG if name == screen else Tone.DIM,
        )
        for number, name in enumerate(status.screens, 1)
    )


def _mode(view: View, status: ConsoleStatus) -> tuple[Span, ...]:
    glyphs = view.glyphs
    moment = Span(f"  {text.clock_in_zone(view.now_ns)} ", Tone.DIM)
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
LEAST_FOR_HOUR: Final = 28
# The same for the explanation.
LEAST_FOR_EXPLANATION: Final = 17
LEAST_EVENTS: Final = 3
MORE_EVENTS: Final = 5
"""Events beyond the least that come before curves."""
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


def nothing_lines(view: View, what: str) -> list[Line]:
    """Return the line that stands in place of an empty table of `what`, in the plural, and says why."""
    if not view.is_anybody_heard:
        return [(Span(f" no node is heard, so there are no {what} to show", Tone.DIM),)]
    if view.filter:
        return [(Span(f" the filter {view.filter.text!r} matches no {what}", Tone.DIM),)]
    return [(Span(f" no {what} yet", Tone.DIM),)]


def counted(title: str, lines: Sequence[object], height: int) -> str:
    """Return the title of a panel of `height` lines, which counts what does not fit."""
    left_out = len(lines) - height
    return f"{title}, {left_out} more than fit" if left_out > 0 else title


@dataclasses.dataclass(slots=True)
class Shares:
    """Lines within each part of the overview; 0 hides it."""

    attention: int = 0
    about: int = 0
    matrix: int = 0
    detail: int = 0
    hour: int = 0
    applications: int = 0
    flows: int = 0
    events: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Wanted:
    """Lines that parts of the overview would fill: incidents, explanation, nodes, masters, applications."""

    attention: int
    about: int
    nodes: int
    hour: int
    applications: int


def share_height(room: int, frame: int, wanted: Wanted, *, is_wide: bool = False) -> Shares:
    """Share `room` lines: attention gets what it needs up to a third, events three at least, nodes the rest.

    What has room after that comes in this order: the last hour, applications, curves, more events.

    Args:
        room: the lines of the screen that are left.
        frame: lines of the edge of a panel: 1, or 2 where panels are boxes.
        wanted: what the parts would fill.
        is_wide: parts are side by side: attention and explanation, last hour and applications.
    """
    given = Shares(detail=2)
    has_about = wanted.attention and room >= LEAST_FOR_EXPLANATION
    given.about = wanted.about if has_about else 0
    left = room - given.detail - (0 if is_wide else given.about)
    if wanted.attention:
        given.attention = min(wanted.attention, max(1, left // 3 - frame))
        if is_wide:
            given.attention = given.about = max(given.attention, given.about)
        left -= given.attention + frame
    edge = 2 * (frame == 2)  # without a box the names of columns are edge enough
    has_hour = room >= LEAST_FOR_HOUR
    hour = min(wanted.hour, max(2, left // 4)) if has_hour else 0
    for_hour = hour + frame if has_hour else 0
    given.matrix = max(2, min(wanted.nodes + 1, left - edge - for_hour - LEAST_EVENTS - frame))
    left -= given.matrix + edge + for_hour + LEAST_EVENTS + frame
    given.hour = hour
    if has_hour and left >= (0 if is_wide else wanted.applications + frame):
        given.applications = wanted.applications
        more = max(0, given.applications - hour) if is_wide else given.applications + frame
        if is_wide:
            given.hour = given.applications = max(hour, min(wanted.applications, hour + max(0, left)))
            more = given.hour - hour
        left -= more
    if left >= LEAST_HEIGHT + MORE_EVENTS:
        given.flows = min(MOST_HEIGHT, left - MORE_EVENTS)
        left -= given.flows
    given.events = max(0, LEAST_EVENTS + left)
    return given
