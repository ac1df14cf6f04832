"""The bell, and a command that runs, when severe incidents begin."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from ospltool.health.codes import joined
from ospltool.views.text import visible

# By then each node has been heard twice; what was wrong before is on the screen, and nobody needs a bell
# for it.
GRACE_NS: Final = 5_000_000_000
"""Time after the console's start in which incidents do not count as new."""
# A machine that starts thirty nodes takes about half of it.
MISSING_NS: Final = 30_000_000_000
"""Time after the console's start in which expected nodes may come that are missing from the beginning."""
MISSING: Final = frozenset({"DUL-NODE-ABSENT", "DUL-DOMAIN-LOST"})
"""Codes of missing nodes, which ring later; other troubles from the beginning do not ring."""
# A command may hang; the processes of a person's shell must not add up.
MAX_RUNNING: Final = 4
"""Most commands that run at once; further incidents only ring the bell."""
# Some hundred bytes each; of a forgotten one the bell rings once more.
MAX_KNOWN: Final = 10_000
# Losses are noticed within one lease of each other; longer would delay the first ring.
GATHER_NS: Final = 1_000_000_000
"""Time after the first new incident in which others join its ring: one power failure is one ring."""
AT_ONCE: Final = frozenset({"DUL-DOMAIN-LOST"})
"""Codes that need not wait for others: nothing worse can come."""
# Chosen: one that flickers rings once a minute.
AGAIN_NS: Final = 60_000_000_000
"""An incident that comes back within this time does not ring again."""


class AlarmError(ValueError):
    """A malformed command for alarms."""


class Alarm:
    """An alarm that reports each new severe incident once, together with those that begin within a second.

    The command runs once for each code. What another incident takes in meanwhile is not reported.

    Args:
        ring: sounds the bell.
        command: runs without a shell, with the arguments given to `look` at its end; empty for none. One
            that begins with a dash begins with its escape: the name of a node must not be an option.
        say: shows a sentence to the user.

    Raises:
        AlarmError: the command has an open quotation.
    """

    def __init__(self, ring: Callable[[], None], command: str, say: Callable[[str], None]) -> None:
        self._ring = ring
        self._say = say
        try:
            self._command = shlex.split(command)
        except ValueError as error:
            raise AlarmError(f"--notify {command!r}: {error}") from error
        self._running: list[subprocess.Popen[bytes]] = []
        self._known: dict[str, int] = {}
        self._awaited: set[str] = set()
        self._begun: dict[str, tuple[str, ...]] = {}
        self._gathers_ns = 0
        self._began_ns = 0
        self.is_on = True

    def update(self, severe: Mapping[str, tuple[str, ...]], now_ns: int) -> None:
        """Take in what is severe at `now_ns`: the arguments for the command by key."""
        self._began_ns = self._began_ns or now_ns
        if now_ns - self._began_ns < GRACE_NS:
            self._awaited.update(key for key, said in severe.items() if said[0] in MISSING)
        is_early = now_ns - self._began_ns < MISSING_NS
        self._awaited.intersection_update(severe if is_early else ())
        counted = [key for key in severe if key not in self._awaited]
        fresh = [key for key in counted if key not in self._known or now_ns - self._known[key] > AGAIN_NS]
        for key in counted:
            self._known.pop(key, None)
            self._known[key] = now_ns
        while len(self._known) > MAX_KNOWN:
            del self._known[next(iter(self._known))]
        if now_ns - self._began_ns < GRACE_NS or not self.is_on:
            return
        if fresh and not self._begun:
            self._gathers_ns = now_ns
        self._begun.update({key: severe[key] for key in fresh})
        is_due = not 0 <= now_ns - self._gathers_ns < GATHER_NS
        if self._begun and (is_due or any(severe[key][0] in AT_ONCE for key in fresh)):
            last = {key: said for key, said in self._begun.items() if key in severe} or self._begun
            self._begun = {}
            self._ring()
            for arguments in _by_code(last.values()):
                self._run(arguments)

    def _run(self, arguments: tuple[str, ...]) -> None:
        self._running = [process for process in self._running if process.poll() is None]
        if not self._command or len(self._running) >= MAX_RUNNING:
            return
        try:
            self._running.append(
                subprocess.Popen(
                    [*self._command, *map(_argument, arguments)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
            )
        except OSError as error:
            self._say(f"--notify {self._command[0]}: {error.strerror}")


def _argument(text: str) -> str:
    shown = visible(text)
    return f"\\x2d{shown[1:]}" if shown.startswith("-") else shown


def _by_code(every: Iterable[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return code, subjects and observations, once for each code."""
    found: dict[str, list[tuple[str, ...]]] = {}
    for one in every:
        found.setdefault(one[0], []).append(one)
    return [
        (code, *map(joined, zip(*(one[1:] for one in same), strict=True))) for code, same in found.items()
    ]
