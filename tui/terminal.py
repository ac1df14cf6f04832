"""Keeps the terminal to the console: it draws there also when standard error is a file, and libraries do not.

Textual draws on standard error. What libraries in C print there, as Cyclone DDS does when an interface is
down, would stay on the screen.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING, Any, Final

from textual.drivers.linux_driver import LinuxDriver

from ospltool.output import streams

if TYPE_CHECKING:
    from collections.abc import Iterator

    from textual.driver import Driver

_STDERR: Final = 2
MOST_BYTES: Final = 1 << 16
"""What libraries may print while the console draws; the rest is dropped."""


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


@contextlib.contextmanager
def to_itself() -> Iterator[None]:
    """Keep what libraries print on standard error for the end, if standard error is the terminal.

    Python's own standard error stays where it is.
    """
    stderr, shown = sys.stderr, sys.__stderr__
    if shown is None or shown.closed or not shown.isatty() or shown.fileno() != _STDERR:
        yield
        return
    terminal = os.fdopen(os.dup(_STDERR), "w", encoding=shown.encoding, errors=shown.errors, buffering=1)
    kept, given = os.pipe()
    os.set_blocking(kept, False)
    os.set_blocking(given, False)
    os.dup2(given, _STDERR)
    os.close(given)
    sys.__stderr__ = terminal  # type: ignore[misc]  # Textual draws on it
    sys.stderr = terminal
    try:
        yield
    finally:
        sys.stderr, sys.__stderr__ = stderr, shown  # type: ignore[misc]  # as above
        os.dup2(terminal.fileno(), _STDERR)
        terminal.close()
        with contextlib.suppress(BlockingIOError), os.fdopen(kept, "rb", buffering=0) as file:
            printed = (file.read(MOST_BYTES) or b"").decode("utf-8", "replace").rstrip()
            if printed:
                streams.say(f"Printed by libraries meanwhile:\n{printed}")
