"""The terminal of the console: one without colours, standard error elsewhere, the title of the window."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from rich.segment import Segment
from rich.style import Style
from textual.drivers.linux_driver import LinuxDriver
from textual.filter import Monochrome

from tui.text import visible

if TYPE_CHECKING:
    from textual.color import Color
    from textual.driver import Driver

MOST_CHARACTERS: Final = 200
_KEEP: Final = "\x1b[22;2t"
_GIVE_BACK: Final = "\x1b[23;2t"


class Colourless(Monochrome):
    """Textual's filter for NO_COLOR, which by itself fails at text without a style, such as a chart's."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Return the segments with greys in place of colours."""
        styled = [one if one.style else Segment(one.text, Style.null(), one.control) for one in segments]
        return super().apply(styled, background)


class StandardOutputDriver(LinuxDriver):
    """The driver of a Linux terminal that draws on standard output."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        assert sys.__stdout__ is not None
        self._file = sys.__stdout__


def drawing(driver: type[Driver]) -> type[Driver]:
    """Return the driver in place of Textual's choice: another one only if standard error is no terminal."""
    stderr = sys.__stderr__
    is_away = stderr is None or stderr.closed or not stderr.isatty()
    return StandardOutputDriver if driver is LinuxDriver and is_away else driver


class WindowTitle:
    """The title of the window tells the verdict also while the console is out of view.

    It is set when it changes, and given back at the end.

    `write` sends control codes to the terminal.
    """

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._shown = ""

    def show(self, text: str) -> None:
        """Set the title, if it is another one."""
        title = visible(text)[:MOST_CHARACTERS]
        if title != self._shown:
            self._write(f"{'' if self._shown else _KEEP}\x1b]2;{title}\x1b\\")
            self._shown = title

    def close(self) -> None:
        """Let the terminal have the title that it had before."""
        if self._shown:
            self._write(_GIVE_BACK)
            self._shown = ""
