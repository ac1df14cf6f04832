"""The signs of the console: each has a form that any terminal can show."""

from __future__ import annotations

import dataclasses
from typing import Final


@dataclasses.dataclass(frozen=True, slots=True)
class Glyphs:
    """One set of signs. Every sign is one cell wide."""

    name: str
    """Name of the set."""
    ok: str
    """Complete."""
    busy: str
    """Aligning, or starting."""
    idle: str
    """Not complete."""
    warn: str
    """Needs a look."""
    fault: str
    """Needs action."""
    conflict: str
    """Contradicting facts."""
    master: str
    """Confirmed master."""
    unconfirmed: str
    """Master without confirmation."""
    bar_full: str
    """Full cell of a bar."""
    bar_half: str
    """Half cell of a bar."""
    bar_empty: str
    """Empty cell of a bar."""
    nothing: str
    """Not on this node."""
    arrow: str
    """Direction from one node to another."""
    rule: str
    """Cell of a horizontal line."""
    caption: str
    """Left edge of a caption."""
    separator: str
    """Separator of parts of a line."""
    ellipsis: str
    """End of a text that was cut."""
    cursor: str
    """Row under the cursor."""
    mark: str
    """Mark of a moment."""
    blocks: str
    """Blocks of eight heights, lowest first."""
    rising: str
    """Column sorted with the least value first."""
    falling: str
    """Column sorted with the largest value first."""

    def bar(self, fraction: float, width: int) -> tuple[str, str]:
        """Return the filled and the empty part of a bar; only 1 is all filled, only 0 all empty."""
        halves = round(fraction * width * 2)
        if fraction < 1:
            halves = min(halves, width * 2 - 1)
        if fraction > 0:
            halves = max(halves, 1)
        halves = min(max(halves, 0), width * 2)
        full = self.bar_full * (halves // 2) + self.bar_half * (halves % 2)
        return full, self.bar_empty * (width - len(full))


UNICODE: Final = Glyphs(
    name="unicode",
    ok="●",
    busy="◐",
    idle="○",
    warn="▲",
    fault="✖",
    conflict="≠",
    master="★",
    unconfirmed="☆",
    bar_full="━",
    bar_half="╸",
    bar_empty="╌",
    nothing="·",
    arrow="→",
    rule="─",
    caption="▌",
    separator="·",
    ellipsis="…",
    cursor="▸",
    mark="◆",
    blocks="▁▂▃▄▅▆▇█",
    rising="↑",
    falling="↓",
)

ASCII: Final = Glyphs(
    name="ascii",
    ok="*",
    busy="~",
    idle="o",
    warn="!",
    fault="X",
    conflict="#",
    master="M",
    unconfirmed="?",
    bar_full="=",
    bar_half="-",
    bar_empty=".",
    nothing=".",
    arrow=">",
    rule="-",
    caption="|",
    separator="|",
    ellipsis="~",
    cursor=">",
    mark="+",
    blocks="_.-=+*%#",
    rising="^",
    falling="v",
)


def choose(encoding: str | None, *, ascii_only: bool) -> Glyphs:
    """Return the set for a terminal with this encoding."""
    if ascii_only or "utf" not in (encoding or "").lower():
        return ASCII
    return UNICODE
