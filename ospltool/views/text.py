"""Turns values into short text (ages, counts, bars), and makes text from the network harmless."""

from __future__ import annotations

import datetime
import functools
import itertools
import os.path
import re
from collections.abc import Sequence
from typing import Final

from rich.cells import cell_len, set_cell_size

from ospltool.live.nodes import natural
from ospltool.output import text as output

_UNITS: Final = (
    {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
    | {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
    | {"KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "TiB": 2.0**40, "PiB": 2.0**50}
)
_NUMBER: Final = re.compile(r"[<>~]?\s*(-?\+?[\d,]+(?:\.\d+)?)\s*([A-Za-z]*)")


def visible(text: str, *, ascii_only: bool = False) -> str:
    r"""Return `text` with control and invisible characters as escapes.

    Control characters, direction marks, zero-width and private characters become `\x1b` or `\u202e`. A
    backslash stays as it is: this is for reading, not for getting the original back. With `ascii_only` the
    same happens to everything that a terminal without UTF-8 cannot show.
    """
    if text.isprintable() and (not ascii_only or text.isascii()):
        return text
    return "".join(_escape(c) if ascii_only and not c.isascii() else _visible(c) for c in text)


def _visible(character: str) -> str:
    return character if character.isprintable() else _escape(character)


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def fit(text: str, width: int, *, right: bool = False, ellipsis: str = "…") -> str:
    """Return visible `text` in exactly `width` cells, cut with an ellipsis if it is longer.

    With `right`, a short text goes to the right.
    """
    text = visible(text)
    if width <= 0:
        return ""
    length = cell_len(text)
    if length > width:
        room = width - cell_len(ellipsis)
        return set_cell_size(text, room) + ellipsis if room >= 0 else set_cell_size(text, width)
    return " " * (width - length) + text if right else text + " " * (width - length)


def wrap(text: str, width: int, max_lines: int, *, ellipsis: str = "…") -> list[str]:
    """Break `text` at blanks into at most `max_lines` lines; the last one shows if text was cut.

    The ellipsis is the sign for that.
    """
    lines: list[str] = []
    line = ""
    for word in visible(" ".join(text.split())).split():
        longer = f"{line} {word}" if line else word
        if line and cell_len(longer) > width:
            lines.append(line)
            line = word
        else:
            line = longer
    if line:
        lines.append(line)
    if len(lines) > max_lines:
        cut = " ".join(lines[max_lines - 1 :])
        lines[max_lines - 1 :] = [cut]
    return [fit(line, width, ellipsis=ellipsis).rstrip() for line in lines]


age: Final = output.age
"""The age rule of all outputs."""


def ago(duration_ns: int) -> str:
    """Return an age as part of a sentence: "now", "3 s ago"."""
    shown = age(duration_ns)
    return shown if shown == "now" else f"{shown} ago"


class Times:
    """In which zone times are shown: UTC, as nodes write them, or that of this machine (`is_local`)."""

    def __init__(self) -> None:
        self.is_local = False

    def shown(self, time_ns: int) -> datetime.datetime:
        """Return a moment in that zone."""
        moment = _moment(time_ns)
        return moment.astimezone() if self.is_local and 2 < moment.year < 9998 else moment

    @property
    def name(self) -> str:
        """The name of the zone, now."""
        return datetime.datetime.now().astimezone().tzname() or "local" if self.is_local else "UTC"


TIMES: Final = Times()
"""The choice of the person who looks; one for the process, as there is one person."""


def clock(time_ns: int) -> str:
    """Return the time of day, to the second."""
    return TIMES.shown(time_ns).strftime("%H:%M:%S")


def clock_in_zone(time_ns: int) -> str:
    """Return the time of day, to the second, and the zone."""
    return f"{clock(time_ns)} {TIMES.name}"


def moment(time_ns: int) -> str:
    """Return date and time, to the millisecond; a dash for 0, which means never."""
    if not time_ns:
        return "-"
    whole = TIMES.shown(time_ns).replace(tzinfo=None).isoformat(sep=" ")
    return f"{whole}.{time_ns // 1_000_000 % 1000:03d}"


def _moment(time_ns: int) -> datetime.datetime:
    """Return the date of a time; for one outside the calendar, the nearest end of the calendar."""
    seconds = min(max(time_ns // 1_000_000_000, -62_135_596_800), 253_402_300_799)
    return datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(seconds=seconds)


def count(number: int) -> str:
    """Return a number in at most eight characters: 999,999, then 1.2 M, 3.4 G."""
    if abs(number) < 1_000_000:
        return f"{number:,}"
    value = float(number)
    for unit in ("k", "M", "G", "T", "P"):
        value /= 1000
        if abs(value) < 999.95:
            return f"{value:.1f} {unit}"
    return f"{value:.0f} P"


def size(number_bytes: int) -> str:
    """Return a size with a binary unit, in at most nine characters."""
    if number_bytes < 1024:
        return f"{number_bytes} B"
    value = float(number_bytes)
    for unit in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        value /= 1024
        if value < 1023.95:
            return f"{value:.1f} {unit}"
    return f"{value:.0f} PiB"


def percent(fraction: float) -> str:
    """Return a fraction as a percentage that says 0 only for nothing and 100 only for all."""
    if fraction <= 0:
        return "0 %"
    if fraction >= 1:
        return "100 %"
    return f"{min(99, max(1, round(fraction * 100)))} %"


def rank(text: str) -> tuple[int, float, tuple[object, ...]]:
    """Return a sort key for a column: numbers by value with unit, then words, then empty cells."""
    if text == "now":
        return 0, 0.0, ()
    found = _NUMBER.match(text)
    if found:
        return 0, float(found[1].replace(",", "")) * _UNITS.get(found[2], 1.0), ()
    return (1, 0.0, tuple(natural(text))) if text else (2, 0.0, ())


def distinct(names: Sequence[str], width: int, *, ellipsis: str = "…") -> list[str]:
    """Return the names in at most `width` cells each, cut where that leaves them different.

    A name is cut at its end; where several then look the same, each keeps its end, or its middle where only
    that differs. The ellipsis stands for what is cut.
    """
    return [*_distinct(tuple(names), width, ellipsis)]


@functools.lru_cache(maxsize=20)
def _distinct(names: tuple[str, ...], width: int, ellipsis: str) -> Sequence[str]:
    if all(cell_len(name) <= width for name in names):
        return names
    shared = len(os.path.commonprefix(names))  # noqa: RUF071  # of characters, not of paths
    shown = [
        [fit(name, width, ellipsis=ellipsis).rstrip() for name in names],
        [_end_of(name, width, ellipsis) for name in names],
        [fit(ellipsis + name[shared:], width, ellipsis=ellipsis).rstrip() for name in names],
    ]
    shown = [[n if cell_len(n) <= width else s for n, s in zip(names, way, strict=True)] for way in shown]
    return max(shown, key=lambda cut: len(set(cut)))


def apart(texts: Sequence[str], rooms: Sequence[int], *, ellipsis: str = "…") -> list[str]:
    """Return the texts so that neighbours which would be cut alike are told apart.

    They lose the end of what they share, from a word on, instead of what differs. `rooms` are the cells that
    each text has; `ellipsis` stands for what is cut.
    """
    shown = list(texts)
    cut = [fit(one, room, ellipsis=ellipsis) for one, room in zip(texts, rooms, strict=True)]
    for _, run in itertools.groupby(range(len(texts)), key=cut.__getitem__):
        alike = list(run)
        different = list(dict.fromkeys(texts[i] for i in alike))
        if len(different) < 2:
            continue
        shared = len(os.path.commonprefix(different))  # noqa: RUF071  # of characters, not of paths
        shared = different[0].rfind(" ", 0, shared) + 1
        longest = max(cell_len(one[shared:]) for one in different)
        for i in alike:
            kept = max(rooms[i] // 2, rooms[i] - longest - cell_len(ellipsis))
            shown[i] = texts[i][: min(kept, shared)] + ellipsis + texts[i][shared:]
    return shown


def _end_of(name: str, width: int, ellipsis: str) -> str:
    kept = name
    while kept and cell_len(kept) > width - cell_len(ellipsis):
        kept = kept[1:]
    return ellipsis + kept if width > cell_len(ellipsis) else name[:width]
