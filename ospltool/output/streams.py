"""The two streams of every command, data and messages, and output files."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import pathlib
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import IO, Final, TextIO

from engine.files import open_private
from ospltool.output.text import harmless, table, visible

EXIT_PIPE_CLOSED: Final = 141
"""Exit code if the reader of the output has closed the pipe, as a shell shows a death by SIGPIPE."""
EXIT_NOT_WRITTEN: Final = 74
"""Exit code if the output cannot be written, such as to a full disk; EX_IOERR of sysexits.h."""
_TO_EMPTY_LINE: Final = "\r\x1b[2K"
_waited_for = [""]
"""What the line on the terminal tells now."""
_CANNOT_BE_WRITTEN: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EBADF)
"""The last is a stream that was closed when the command began (see `prepare`)."""


def put(text: str) -> None:
    """Write data. It should be terminal-safe already; what is not is escaped if a terminal would obey it.

    Raises:
        SystemExit: the reader has closed the pipe, or the output cannot be written; the code is
            `EXIT_PIPE_CLOSED` or `EXIT_NOT_WRITTEN`.
    """
    try:
        wait_for("")
        sys.stdout.write(harmless(text) if sys.stdout.isatty() else text)
        sys.stdout.flush()
    except OSError as error:
        raise SystemExit(_give_up(error)) from None


def put_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a table: plain text, or on a terminal one that wraps its cells to the width of the terminal.

    Cells are made terminal-safe. Raises as `put` does.
    """
    if not sys.stdout.isatty() or os.environ.get("TERM") == "dumb":
        put(table(header, rows))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in header:
        drawn.add_column(Text(visible(name)), overflow="fold")
    for row in rows:
        drawn.add_row(*(Text(visible(str(cell))) for cell in row))
    console = Console(file=sys.stdout)
    with console.capture() as captured:
        console.print(drawn)
    put(captured.get())


def put_bytes(data: bytes) -> None:
    """Write bytes after `put("")`; the next `put` flushes them. Raises as `put` does."""
    try:
        sys.stdout.buffer.write(data)
    except OSError as error:
        raise SystemExit(_give_up(error)) from None


def notify(*lines: str) -> None:
    """Write a message for the user, of one line or more.

    Each line is made terminal-safe here, line ends within it, too: names from files and networks must not
    look like messages. A message that cannot be written (disk full) is dropped, and the command continues.
    """
    wait_for("")
    try:
        sys.stderr.write("".join(f"{visible(line)}\n" for line in lines))
        sys.stderr.flush()
    except BrokenPipeError:
        _silence(sys.stdout)
        raise SystemExit(EXIT_PIPE_CLOSED) from None
    # A closed or full stderr: a message that nobody can read must not change the result.
    except OSError:
        pass


def wait_for(what: str) -> None:
    """Tell on standard error what the command waits for, in one line, if that is a terminal.

    The next call replaces the line, an empty text or any other output removes it.
    """
    if what == _waited_for[-1]:
        return
    _waited_for[:] = [what]
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        return
    width = shutil.get_terminal_size().columns - 1
    # The line only says what is waited for.
    with contextlib.suppress(OSError):
        sys.stderr.write(_TO_EMPTY_LINE + visible(what)[:width])
        sys.stderr.flush()


def finish(code: int) -> int:
    """Flush both streams at the end of a command; return `code`, or another exit code if that fails."""
    wait_for("")
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
    """Handle an error of output outside `put`; return the exit code, or 0 if it is an error of another kind.

    Such errors are a full disk and a closed pipe, of standard output or of an output file.
    """
    if not isinstance(error, BrokenPipeError) and error.errno not in _CANNOT_BE_WRITTEN:
        return 0
    return _give_up(error)


def prepare() -> None:
    """Make characters that the encoding of a stream lacks escapes, not errors, and open closed streams.

    Output to a stream that was closed (`>&-`) is an error of output, as on a full disk; messages are dropped.
    """
    for descriptor in range(3):
        with contextlib.suppress(OSError):
            os.fstat(descriptor)
            continue
        # No file that is opened later may get the number of a stream. The system gives the lowest free
        # number, which is this one; the null device is opened for what the stream is not for.
        os.open(os.devnull, os.O_RDONLY if descriptor else os.O_WRONLY)
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(descriptor, "w" if descriptor else "r", closefd=False))
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def wants_colour(stream: TextIO, environ: Mapping[str, str], choice: str = "auto") -> bool:
    """Tell whether output on `stream` may have colour.

    Args:
        stream: the stream of the output.
        environ: the variables; NO_COLOR and FORCE_COLOR (if not empty) and TERM=dumb count.
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
    """Stop writing; say why unless the pipe is closed. Return the exit code."""
    _silence(sys.stdout)
    if isinstance(error, BrokenPipeError):
        return EXIT_PIPE_CLOSED
    place = f"{error.filename}: " if error.filename else ""
    why = "standard output is closed" if error.errno == errno.EBADF else error.strerror
    notify(f"ospltool: the output cannot be written: {place}{why}")
    return EXIT_NOT_WRITTEN


def _silence(stream: TextIO) -> None:
    # The interpreter flushes its streams once more at its end, which must not fail either.
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, stream.fileno())
    os.close(nothing)


def new_bytes(path: pathlib.Path, *, force: bool = False, buffering: int = -1) -> IO[bytes]:
    """Create a file for writing.

    Args:
        path: the file; it must not exist.
        force: overwrite a file that exists. A link is refused all the same.
        buffering: as for `open`; 0 writes at once.

    Raises:
        OSError: the file exists, or cannot be created; the text says what to do.
    """
    try:
        descriptor = open_private(path, os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if force else os.O_EXCL))
    except FileExistsError as error:
        raise OSError(error.errno, "the file exists; --force overwrites it", str(path)) from None
    return os.fdopen(descriptor, "wb", buffering)


def new_text(path: pathlib.Path, *, force: bool = False) -> TextIO:
    """Create a text file in UTF-8, with line ends and what UTF-8 cannot say as they are (see `new_bytes`)."""
    return io.TextIOWrapper(new_bytes(path, force=force), "utf-8", "backslashreplace", newline="")
