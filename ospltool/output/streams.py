"""The two streams of every command: data on standard output, narration on standard error."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final, NoReturn, TextIO

from ospltool.output.text import visible

if TYPE_CHECKING:
    from collections.abc import Mapping

EXIT_PIPE_CLOSED: Final = 141
"""Exit code when whoever read our output went away, as a shell shows a death by SIGPIPE."""


def put(text: str) -> None:
    """Write data. It must be terminal-safe already; JSON is.

    Raises:
        SystemExit: nobody reads any more; the code is `EXIT_PIPE_CLOSED`.
    """
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        _leave_quietly()


def say(text: str) -> None:
    """Write a line for the person at the terminal; made terminal-safe here, its line ends stay."""
    try:
        sys.stderr.write(visible(text, keep_lines=True) + "\n")
        sys.stderr.flush()
    except BrokenPipeError:
        _leave_quietly()


def prepare() -> None:
    """Let every character through: one that the terminal's encoding lacks becomes an escape."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def wants_colour(stream: TextIO, environ: Mapping[str, str], choice: str = "auto") -> bool:
    """Whether output on `stream` may have colour.

    Args:
        stream: where it goes.
        environ: NO_COLOR and FORCE_COLOR (when not empty) and TERM=dumb are honoured.
        choice: `always`, `never`, or `auto` for the rules above.
    """
    if choice != "auto":
        return choice == "always"
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and environ.get("TERM") != "dumb"


def _leave_quietly() -> NoReturn:
    # The interpreter flushes standard output once more at its end; that must not complain either.
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)
    raise SystemExit(EXIT_PIPE_CLOSED)
