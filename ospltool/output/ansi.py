"""Colours for terminals; `ospltool.output.streams` decides whether to use them."""

from __future__ import annotations

import enum


class Style(enum.Enum):
    """The look of a piece of text; the value is the SGR parameter of the terminal."""

    BOLD = "1"
    RED = "1;31"
    YELLOW = "1;33"
    BLUE = "1;34"
    CYAN = "1;36"


def paint(text: str, style: Style, *, on: bool) -> str:
    """Return `text` in a style, or unchanged if `on` is false."""
    return f"\x1b[{style.value}m{text}\x1b[0m" if on else text
