"""The title of the terminal's window, which tells the verdict also while the console is out of view."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tui.text import visible

MOST_CHARACTERS: Final = 200
_KEEP: Final = "\x1b[22;2t"
_GIVE_BACK: Final = "\x1b[23;2t"


class WindowTitle:
    """The title of the window: set when it changes, and given back at the end.

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
