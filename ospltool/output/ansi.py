"""Colours for terminals; `ospltool.output.streams` decides whether to use them."""

from __future__ import annotations

import enum


class Style(enum.Enum):
    """What a piece of text looks like; the value is the number of the terminal's attribute."""

    BOLD = "1"
    RED = "1;31"
    YELLOW = "1;33"
    GREEN = "32"
    BLUE = "1;34"
    CYAN = "1;36"


def paint(text: str, style: Style, *, on: bool) -> str:
    """`text` in a style, or as it is."""
    return f"\x1b[{style.value}m{text}\x1b[0m" if on else text
