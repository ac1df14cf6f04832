"""Text from files and networks, made safe, aligned and coloured for a terminal."""

from __future__ import annotations

import enum
import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Final

from engine.tracing.escaping import escape

_GAP = "  "


def visible(text: str, *, keep_lines: bool = False) -> str:
    r"""Replace characters that do not print by escapes such as `\x1b`; backslashes stay.

    Args:
        text: any text.
        keep_lines: keep line ends.
    """
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() or (keep_lines and character == "\n") else escape(character)
        for character in text
    )


_OBEYED: Final = re.compile(
    r"\x1b(?!\[[0-9;]*m)|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)
"""What a terminal obeys, other than ends of lines, tabs and colours."""


def harmless(text: str) -> str:
    """Return output of a command with escapes in the place of what a terminal would obey; colours stay."""
    return _OBEYED.sub(lambda found: escape(found[0]), text)


def width(text: str) -> int:
    """Count the terminal columns of printable text: wide characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(character) else 2 if unicodedata.east_asian_width(character) in "WF" else 1
        for character in text
    )


def plural(number: int, noun: str, several: str = "") -> str:
    """Return a number and its noun.

    Args:
        number: how many.
        noun: what, if it is one.
        several: what, if it is not one; by default the noun with an s.
    """
    return f"{number:,} {noun if number == 1 else several or f'{noun}s'}"


def listed(names: Sequence[str], most: int, more: str = "more", separator: str = ", ") -> str:
    """Return names in a sentence: the first `most`, and the number of the others with the word `more`.

    Between two of them is the `separator`.
    """
    rest = f" and {len(names) - most:,} {more}" if len(names) > most else ""
    return separator.join(names[:most]) + rest


def shortened(text: str, longest: int) -> str:
    """Return text on one line with at most that many characters, cut between words, with `…` at its end."""
    words = " ".join(text.split())
    if len(words) <= longest:
        return words
    cut = words[: longest - 1]
    kept = cut if words[longest - 1] == " " else cut.rpartition(" ")[0]
    return f"{(kept or cut).rstrip()}…"


def durability_service(depth: int, limits: Sequence[int], cleanup_delay_ns: int) -> str:
    """Return the QoS line of an application in Python that sets DURABILITY_SERVICE.

    Args:
        depth: history depth; 0 for KEEP_ALL.
        limits: max_samples, max_instances and max_samples_per_instance; -1 for none.
        cleanup_delay_ns: service_cleanup_delay; -1 for infinite.
    """
    history = f"KeepLast({depth})" if depth else "KeepAll"
    delay = cleanup_delay_ns if cleanup_delay_ns >= 0 else "duration(infinite=True)"
    return f"Policy.DurabilityService({delay}, Policy.History.{history}, {', '.join(map(str, limits))})"


def age(duration_ns: int) -> str:
    """Return a duration in at most six characters: "now", "59 s", "1 min", "23 h", "9 d".

    It is a whole number of the largest unit of which there is at least one.
    """
    seconds = duration_ns // 1_000_000_000
    if seconds < 1:
        return "now"
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min"
    if seconds < 86400:
        return f"{seconds // 3600} h"
    return f"{seconds // 86400} d"


def lasted(duration_ns: int) -> str:
    """Return how long something over lasted: as `age`, and below a second as "0.7 s"."""
    return (
        f"{duration_ns / 1e9:.1f} s"
        if 0 <= duration_ns < 950_000_000
        else age(max(duration_ns, 1_000_000_000))
    )


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Align rows in columns under their header, one line each; cells are made terminal-safe.

    Returns:
        The lines with their line ends; the header alone if there are no rows.
    """
    cells = [list(header), *([visible(str(cell)) for cell in row] for row in rows)]
    widths = [max(width(line[column]) for line in cells) for column in range(len(header))]
    lines = (
        _GAP.join(cell + " " * (size - width(cell)) for cell, size in zip(line, widths, strict=True)).rstrip()
        for line in cells
    )
    return "".join(f"{line}\n" for line in lines)


class Style(enum.Enum):
    """The look of a piece of text; the value is the SGR parameter of the terminal."""

    BOLD = "1"
    DIM = "2"
    RED = "1;31"
    YELLOW = "1;33"
    BLUE = "1;34"
    CYAN = "1;36"
    MAGENTA = "35"


def paint(text: str, style: Style, *, on: bool) -> str:
    """Return `text` in a style, or unchanged if `on` is false."""
    return f"\x1b[{style.value}m{text}\x1b[0m" if on else text
