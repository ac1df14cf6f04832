"""The two streams of every command: data on standard output, narration on standard error."""

from __future__ import annotations

import errno
import os
import sys
from typing import TYPE_CHECKING, Final, TextIO

from ospltool.output.text import visible

if TYPE_CHECKING:
    from collections.abc import Mapping

EXIT_PIPE_CLOSED: Final = 141
"""Exit code when whoever read our output went away, as a shell shows a death by SIGPIPE."""
EXIT_NOT_WRITTEN: Final = 74
"""Exit code when the output cannot be written, such as to a full disk; EX_IOERR of sysexits.h."""
_CANNOT_BE_WRITTEN: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def put(text: str) -> None:
    """Write data. It must be terminal-safe already; JSON is.

    Raises:
        SystemExit: nobody reads any more, or the output cannot be written; the code is `EXIT_PIPE_CLOSED` or
            `EXIT_NOT_WRITTEN`.
    """
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        raise SystemExit(_give_up(error)) from None


def put_bytes(data: bytes) -> None:
    """Write data as it is, after `put("")`; it is on its way at the next `put`. Raises as `put` does."""
    try:
        sys.stdout.buffer.write(data)
    except OSError as error:
        raise SystemExit(_give_up(error)) from None


def say(text: str) -> None:
    """Write a line for the person at the terminal; made terminal-safe here, its line ends stay.

    A line that cannot be written, for want of room, is dropped: it is no reason to end.
    """
    try:
        sys.stderr.write(visible(text, keep_lines=True) + "\n")
        sys.stderr.flush()
    except BrokenPipeError:
        _silence(sys.stdout)
        raise SystemExit(EXIT_PIPE_CLOSED) from None
    except OSError:
        pass


def finish(code: int) -> int:
    """Write what is still to be written at the end of a command; its exit code is `code` if that works."""
    try:
        sys.stdout.flush()
    except OSError as error:
        code = _give_up(error)
    try:
        sys.stderr.flush()
    except OSError:
        _silence(sys.stderr)
    return code


def not_written(error: OSError) -> int:
    """End after output that was not written by `put`; returns the exit code, 0 for an error of another kind.

    That is a full disk or a reader that has gone, whether of standard output or of a file that was asked for.
    """
    if not isinstance(error, BrokenPipeError) and error.errno not in _CANNOT_BE_WRITTEN:
        return 0
    return _give_up(error)


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


def _give_up(error: OSError) -> int:
    """Write no more; say why, unless nobody reads. Returns the exit code."""
    _silence(sys.stdout)
    if isinstance(error, BrokenPipeError):
        return EXIT_PIPE_CLOSED
    place = f"{error.filename}: " if error.filename else ""
    say(f"ospltool: the output cannot be written: {place}{error.strerror}")
    return EXIT_NOT_WRITTEN


def _silence(stream: TextIO) -> None:
    # The interpreter flushes its streams once more at its end; that must not complain either.
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, stream.fileno())
    os.close(nothing)
