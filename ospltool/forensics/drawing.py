"""Pictures of an investigation, as self-contained SVG. Every text of foreign origin is escaped."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from ospltool.output.text import visible
from ospltool.trace.meaning.fact_kinds import SetSize
from ospltool.trace.rules import grouped
from ospltool.trace.views.conversation import Conversation
from ospltool.trace.views.times import clock, iso

WIDTH: Final = 960
LEFT: Final = 110
RIGHT: Final = 20
COLOURS: Final = ("#1f6fb2", "#b2521f", "#2c7a3d", "#7a3d8c", "#8c6d1f", "#3d7a78", "#a3261b", "#555c66")
DASHES: Final = ("", "6 3", "2 3", "8 3 2 3")
"""Dashes of lines, so that they differ on paper without colours, too."""

_ARROW_HEAD: Final = (
    '<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" '
    'orient="auto-start-reverse"><path d="M0 0 L8 4 L0 8 z"/></marker></defs>'
)

MOST_POINTS: Final = 300
MOST_DOTS: Final = 60
MOST_ARROWS: Final = 60
MOST_LINES: Final = len(COLOURS) * len(DASHES)
CHAR: Final = 7.5
"""Width of a character of a text, at most on average."""

TICKS: Final = 6


def text_of(value: object) -> str:
    """Return text for HTML and SVG, without markup and control characters."""
    return html.escape(visible(str(value)))


def note(x: float, y: float, text: object, anchor: str = "start", kind: str = "axis") -> str:
    """Return a text in a picture.

    Args:
        x: horizontal position in the picture's units.
        y: vertical position, from the top.
        text: what to write; it is escaped.
        anchor: the part of the text that is at `x`: start, middle or end.
        kind: class in the style sheet.
    """
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text_of(text)}</text>'


def shortened(text: str, width: float) -> str:
    """Return a text that fits into a width, without its middle if it is longer."""
    text = visible(text)
    most = max(3, int(width / CHAR))
    if len(text) <= most:
        return text
    return f"{text[: most // 2]}…{text[len(text) - (most - 1) // 2 :]}"


@dataclasses.dataclass(frozen=True, slots=True)
class TimelineBar:
    """A part of a row of a time line.

    Attributes:
        start_ns: its beginning.
        end_ns: its end.
        kind: class of the style sheet.
        label: text shown under the mouse.
    """

    start_ns: int
    end_ns: int
    kind: str
    label: str


@dataclasses.dataclass(frozen=True, slots=True)
class TimelineRow:
    """A row of a time line: a label, spans that may overlap, and marks (time, label)."""

    label: str
    spans: tuple[TimelineBar, ...]
    marks: tuple[tuple[int, str], ...] = ()


class Scale:
    """A mapping of times to horizontal places in a picture."""

    def __init__(self, times: Iterable[int]) -> None:
        known = [time for time in times if time > 0]
        self.start_ns = min(known, default=0)
        self.end_ns = max(known, default=1)

    def at(self, time_ns: int) -> float:
        """Return the place of a time."""
        length = max(1, self.end_ns - self.start_ns)
        inside = min(max(time_ns, self.start_ns), self.end_ns) - self.start_ns
        return LEFT + (WIDTH - LEFT - RIGHT) * inside / length

    def _tick(self, time_ns: int) -> str:
        """Return the text at a tick: the time of day, or with its date if the axis has several days."""
        is_one_day = iso(self.start_ns, 0)[:10] == iso(self.end_ns, 0)[:10]
        return clock(time_ns, 1) if is_one_day else iso(time_ns, 0)[:16]

    def axis(self, top: int, bottom: int) -> Iterator[str]:
        """Yield vertical lines, with clock times below them."""
        for number in range(TICKS + 1):
            time = self.start_ns + (self.end_ns - self.start_ns) * number // TICKS
            x = self.at(time)
            anchor = "start" if number == 0 else "end" if number == TICKS else "middle"
            yield f'<line class="tick" x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{bottom}"/>'
            yield note(x, bottom + 14, self._tick(time), anchor)


def picture(height: int, label: str, parts: Iterable[str]) -> str:
    """Return an SVG element.

    Args:
        height: height; the width is WIDTH.
        label: text for readers that do not see it.
        parts: SVG elements in drawing order.
    """
    body = "\n".join(parts)
    return (
        f'<svg role="img" aria-label="{text_of(label)}" viewBox="0 0 {WIDTH} {height}" '
        f'xmlns="http://www.w3.org/2000/svg">\n{body}\n</svg>'
    )


def time_line(rows: Sequence[TimelineRow]) -> str:
    """Draw rows of spans above one axis of time; return an empty text without spans."""
    spans = [span for row in rows for span in row.spans]
    if not spans:
        return ""
    scale = Scale(time for span in spans for time in (span.start_ns, span.end_ns))
    step = 22
    bottom = 8 + step * len(rows)
    parts = list(scale.axis(4, bottom))
    for number, row in enumerate(rows):
        y = 8 + step * number
        parts.append(note(LEFT - 8, y + 12, shortened(row.label, LEFT - 8), "end", "label"))
        for span in row.spans:
            x = scale.at(span.start_ns)
            width = max(1.0, scale.at(span.end_ns) - x)
            parts.append(
                f'<rect class="{span.kind}" x="{x:.1f}" y="{y + 2}" width="{width:.1f}" height="14">'
                f"<title>{text_of(span.label)}</title></rect>"
            )
        for time, label in row.marks:
            x = scale.at(time)
            parts.append(
                f'<path class="mark" d="M{x:.1f} {y} l4 7 h-8 z"><title>{text_of(label)}</title></path>'
            )
    return picture(bottom + 20, "Time line of nodes and masters", parts)


def curves(group: str, sizes: Sequence[SetSize]) -> str:
    """Draw the sizes of one set over time, with a line for each node."""
    timed = [one for one in sizes if one.time_ns > 0]
    if not timed:
        return ""
    scale = Scale(one.time_ns for one in timed)
    most = max(1, *(one.samples for one in timed))
    bottom = 130

    def height(samples: int) -> float:
        return bottom - 110 * samples / most

    parts = list(scale.axis(15, bottom))
    for share in (0, most // 2, most) if most > 1 else (0, most):
        y = height(share)
        parts.append(f'<line class="tick" x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}"/>')
        parts.append(note(LEFT - 8, y + 4, share, "end"))
    x, below = float(LEFT), bottom + 32
    lines = sorted(grouped(timed, lambda one: one.node))
    for number, (node, some) in enumerate(_most_changed(lines)):
        colour = COLOURS[number % len(COLOURS)]
        dash = DASHES[(number + number // len(COLOURS)) % len(DASHES)]
        points = list(_thinned(some))
        path = f"M{scale.at(points[0].time_ns):.1f} {height(points[0].samples):.1f}"
        path += "".join(f" H{scale.at(one.time_ns):.1f} V{height(one.samples):.1f}" for one in points[1:])
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        parts.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>')
        for one in points if len(points) <= MOST_DOTS else ():
            told = f"{node}: {one.samples} ({one.how}) at {iso(one.time_ns, 3)}"
            parts.append(
                f'<circle cx="{scale.at(one.time_ns):.1f}" cy="{height(one.samples):.1f}" r="2.5" '
                f'fill="{colour}"><title>{text_of(told)}</title></circle>'
            )
        name = shortened(node, WIDTH / 3)
        if x + 30 + CHAR * len(name) > WIDTH:
            x, below = float(LEFT), below + 16
        parts.append(
            f'<line x1="{x:.1f}" y1="{below - 4}" x2="{x + 24:.1f}" y2="{below - 4}" stroke="{colour}" '
            f'stroke-width="2"{dashes}/>'
        )
        parts.append(note(x + 30, below, name))
        x += 50 + CHAR * len(name)
    if len(lines) > MOST_LINES:
        below += 16
        parts.append(
            note(LEFT, below, f"{len(lines) - MOST_LINES} more nodes, which changed less, are not drawn")
        )
    return picture(below + 8, f"Size of {group} over time", parts)


def _most_changed(lines: Sequence[tuple[str, list[SetSize]]]) -> list[tuple[str, list[SetSize]]]:
    """Return the lines to draw, by node: if there are too many, those that go up and down most."""

    def change(line: tuple[str, list[SetSize]]) -> int:
        samples = [one.samples for one in line[1]]
        return min(samples) - max(samples)

    return sorted(sorted(lines, key=change)[:MOST_LINES], key=lambda line: line[0])


def _thinned(some: Sequence[SetSize]) -> Iterator[SetSize]:
    """Yield the points of a line; of each bucket of many points the first, lowest, highest and last."""
    if len(some) <= MOST_POINTS:
        yield from some
        return
    each = len(some) * 4 // MOST_POINTS + 1
    for first in range(0, len(some), each):
        bucket = list(some[first : first + each])
        low = min(bucket, key=lambda one: one.samples)
        high = max(bucket, key=lambda one: one.samples)
        kept = {id(one) for one in (bucket[0], low, high, bucket[-1])}
        yield from (one for one in bucket if id(one) in kept)


def sequence(talk: Conversation) -> str:
    """Draw an alignment between nodes, message by message; return an empty text if there is none."""
    nodes, arrows = talk.nodes, list(talk.arrows())
    if not nodes or not arrows:
        return ""
    shown, step = arrows[:MOST_ARROWS], 20
    gap = (WIDTH - LEFT - RIGHT) / len(nodes)
    place = {node: LEFT + gap * (number + 0.5) for number, node in enumerate(nodes)}
    bottom = 34 + step * len(shown)
    parts = [_ARROW_HEAD]
    for node, x in place.items():
        parts.append(note(x, 14, shortened(node, gap - CHAR), "middle", "label"))
        parts.append(f'<line class="life" x1="{x:.1f}" y1="20" x2="{x:.1f}" y2="{bottom}"/>')
    for number, arrow in enumerate(shown):
        y = 38 + step * number
        if arrow.time_ns is not None:
            parts.append(note(0, y + 4, clock(arrow.time_ns, 3)))
        start = place.get(arrow.sender, place.get(arrow.receiver, LEFT))
        end = place.get(arrow.receiver, start)
        if start == end:
            parts.append(f'<circle class="step" cx="{start:.1f}" cy="{y}" r="3"/>')
            fits = start + 8 + CHAR * len(arrow.text) <= WIDTH
            parts.append(note(start + (8 if fits else -8), y + 4, arrow.text, "start" if fits else "end"))
            continue
        dash = ' stroke-dasharray="5 3"' if arrow.is_answer else ""
        parts.append(
            f'<line class="arrow" x1="{start:.1f}" y1="{y}" x2="{end:.1f}" y2="{y}" '
            f'marker-end="url(#head)"{dash}/>'
        )
        parts.append(note((start + end) / 2, y - 4, arrow.text, "middle"))
    if len(arrows) > len(shown):
        parts.append(note(LEFT, bottom + 14, f"and {len(arrows) - len(shown)} more"))
    return picture(bottom + 20, f"Alignment of {talk.group}", parts)
