"""Lets the console draw on its terminal also when standard error, which Textual draws on, is a file."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from textual.drivers.linux_driver import LinuxDriver

if TYPE_CHECKING:
    from textual.driver import Driver


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
