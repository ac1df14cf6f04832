"""Lets the console draw on every terminal: without colours, and with standard error elsewhere."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from rich.segment import Segment
from rich.style import Style
from textual.drivers.linux_driver import LinuxDriver
from textual.filter import Monochrome

if TYPE_CHECKING:
    from textual.color import Color
    from textual.driver import Driver


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
