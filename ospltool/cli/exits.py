"""How commands end: exit codes, the exception that ends one with a message, and interrupts as a flag.

| code | `start` `stop` `status` `list` (as `ospl`)       | every other command                  |
|------|--------------------------------------------------|--------------------------------------|
| 0    | good                                             | good                                 |
| 1    | recoverable: already running, died, not in time  | findings, differences, anomalies     |
| 2    | not recoverable: wrong configuration or usage    | wrong usage, or input not readable   |
| 3    |                                                  | node not reachable                   |
| 70   | a fault of ospltool itself                       | likewise                             |
| 74   | the output cannot be written: the disk is full   | likewise                             |
| 130  | interrupted                                      | likewise                             |
| 141  | the reader of the output has closed the pipe     | likewise                             |
"""

from __future__ import annotations

import contextlib
import enum
import importlib.util
import signal
import threading
from collections.abc import Callable, Iterable, Iterator

from ospltool.output import streams
from ospltool.output.installation import extra_command


class Exit(enum.IntEnum):
    """The exit codes of all commands."""

    GOOD = 0
    RECOVERABLE = 1
    FINDINGS = 1
    UNRECOVERABLE = 2
    USAGE = 2
    UNREACHABLE = 3
    FAULT = 70
    INTERRUPTED = 130


class CommandError(Exception):
    """Ends a command: the message goes to standard error, terminal-safe, and the process exits.

    Args:
        message: its text, or several lines.
        exit_code: that of the process; most errors are wrong usage or input.
    """

    def __init__(self, message: str | Iterable[object], exit_code: Exit = Exit.USAGE) -> None:
        self.lines = (message,) if isinstance(message, str) else tuple(map(str, message))
        super().__init__("\n".join(self.lines))
        self.exit_code = exit_code

    def notify(self) -> None:
        """Write it to standard error."""
        first, *others = self.lines
        streams.notify(f"ospltool: {first}", *others)


def not_installed(extra: str, error: ImportError) -> CommandError:
    """Make the error for an optional part that is not installed; `extra` is the name of its pip extra."""
    return CommandError(f"{error}; `{extra_command(extra)}` installs it")


def require_cyclone() -> None:
    """Require the package with Cyclone DDS.

    Raises:
        CommandError: it is not installed; the message has the command that installs it.
    """
    if importlib.util.find_spec("cyclonedds") is None:
        raise not_installed("dds", ImportError("the package cyclonedds is not installed"))


@contextlib.contextmanager
def interrupt_flag(*numbers: signal.Signals) -> Iterator[threading.Event]:
    """Set an event on these signals while the context lasts; then restore the former handlers.

    An exception from a signal handler might never leave a call into Cyclone DDS.
    """
    over = threading.Event()
    before = {number: signal.signal(number, lambda *_: over.set()) for number in numbers}
    try:
        yield over
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def late_interrupt() -> Iterator[Callable[[], None]]:
    """Let SIGINT interrupt only where the yielded function is called, and at the end of the context.

    Raises:
        KeyboardInterrupt: SIGINT came.
    """
    with interrupt_flag(signal.SIGINT) as over:

        def check() -> None:
            if over.is_set():
                raise KeyboardInterrupt

        yield check
        check()
