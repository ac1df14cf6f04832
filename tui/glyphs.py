"""The signs of the console: each has a form that any terminal can show."""

from __future__ import annotations

import dataclasses
from typing import Final


@dataclasses.dataclass(frozen=True, slots=True)
class Glyphs:
    """One set of signs. Every sign is one cell wide."""

    name: str
    ok: str
    busy: str
    idle: str
    warn: str
    fault: str
    conflict: str
    master: str
    unconfirmed: str
    bar_full: str
    bar_half: str
    bar_empty: str
    nothing: str
    arrow: str
    rule: str
    caption: str
    separator: str
    ellipsis: str
    cursor: str
    mark: str
    blocks: str
    rising: str
    falling: str

    def bar(self, fraction: float, width: int) -> tuple[str, str]:
        """The filled and the empty part of a bar; full only when all is done, empty only when nothing is."""
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
    """The set for a terminal with this encoding."""
    if ascii_only or "utf" not in (encoding or "").lower():
        return ASCII
    return UNICODE
