"""Values over time, drawn with blocks: in a cell of a table, or as an area with its axes.

The height always begins at 0, unlike in Textual's `Sparkline`, whose lowest bar is the least value: 150
samples a second without change would look like none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ospltool.views import text
from ospltool.views.cells import Glyphs, Line, Span, Tone

if TYPE_CHECKING:
    from ospltool.live.series import Point

LEAST_HEIGHT: Final = 6
"""With fewer lines, axis and frame included, an area shows nothing that figures do not show better."""
MOST_HEIGHT: Final = 10
"""An area does not get better above this height."""
_MARGIN: Final = 8
"""Cells for the figures of the axis."""
_LEAST_SPAN_NS: Final = 10_000_000_000


def sparks(values: Sequence[float], glyphs: Glyphs, width: int, *, least: float = 0.0) -> Span:
    """The newest values as blocks, the last on the right; the highest block stands for `least` or more."""
    newest = list(values)[-width:]
    most = max([*newest, least], default=0.0)
    top = len(glyphs.blocks) - 1
    drawn = "".join(glyphs.blocks[round(max(0.0, v) / most * top) if most > 0 else 0] for v in newest)
    return Span(drawn.rjust(width), Tone.ACCENT if most > least else Tone.DIM)


def area(
    points: Sequence[Point], now_ns: int, width: int, height: int, glyphs: Glyphs, *, least: float = 0.0
) -> list[Line]:
    """Return the values until now as lines, with the greatest value and the time at the axes.

    Nothing without a point: the title of the panel says that nothing is known.

    Args:
        points: what is drawn, oldest first.
        now_ns: the right end.
        width: cells.
        height: lines, that of the times included.
        glyphs: the signs.
        least: the top is this value or a greater one, so that what is normal looks low.
    """
    room, rows = width - _MARGIN - 1, height - 1
    if not points or room < 1 or rows < 1:
        return []
    span_ns = max(_LEAST_SPAN_NS, now_ns - points[0][0])
    columns = _columns(points, now_ns - span_ns, span_ns, room)
    most = max(least, *(value for _, value in points))
    steps = len(glyphs.blocks)
    heights = [None if v is None else round(v / most * rows * steps) if most else 0 for v in columns]
    lines: list[Line] = []
    for row in range(rows - 1, -1, -1):
        drawn = "".join(_block(one, row, glyphs) for one in heights)
        label = _figure(most) if row == rows - 1 and most else "0" if not row else ""
        lines.append((Span(f"{label:>{_MARGIN}} ", Tone.DIM), Span(drawn, Tone.ACCENT)))
    begin = f"{text.age(span_ns)} ago"
    gap = " " * max(1, room - len(begin) - 3)
    return [*lines, (Span(f"{'':{_MARGIN}} {begin}{gap}now", Tone.DIM),)]


def _columns(points: Sequence[Point], begin_ns: int, span_ns: int, room: int) -> list[float | None]:
    """Return the greatest value within each cell's time; one without a value has that of the cell before."""
    found: list[float | None] = [None] * room
    for time_ns, value in points:
        place = min(max((time_ns - begin_ns) * room // span_ns, 0), room - 1)
        found[place] = max(value, found[place] or 0.0)
    last = None
    for place, one in enumerate(found):
        last = found[place] = one if one is not None else last
    return found


def _block(height: int | None, row: int, glyphs: Glyphs) -> str:
    steps = len(glyphs.blocks)
    if height is None or height <= row * steps:
        return glyphs.blocks[0] if height == 0 == row else " "
    return glyphs.blocks[min(height - row * steps, steps) - 1]


def _figure(value: float) -> str:
    return text.count(round(value)) if value >= 100 else f"{value:.3g}"
