"""Keeps off a terminal what libraries in C print on standard error, as Cyclone DDS does if a link is down."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING, Final

from ospltool.output import streams

if TYPE_CHECKING:
    from collections.abc import Iterator

_STDERR: Final = 2
# What a pipe of Linux holds.
MOST_BYTES: Final = 1 << 16
"""What libraries may print meanwhile; the rest is dropped."""


@contextlib.contextmanager
def kept_for_the_end() -> Iterator[None]:
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
        # Nothing was printed: the pipe is read without waiting.
        with contextlib.suppress(BlockingIOError), os.fdopen(kept, "rb", buffering=0) as file:
            printed = (file.read(MOST_BYTES) or b"").decode("utf-8", "replace").rstrip()
            if printed:
                streams.notify("Printed by libraries meanwhile:", *printed.splitlines())
