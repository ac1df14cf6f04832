"""From a key to the changed screen, by the clock: a program in a terminal of its own, typed into.

The terminal is a pseudo-terminal that says that it takes whole frames, as terminals do that people use. The
time of a key ends when the last byte of the frame has arrived that shows what the key did.

`python -m benchmarks.terminal console` (or `empty`) runs what is measured; it needs a terminal.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import pty
import random
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from textual.app import App, ComposeResult
from textual.widgets import Static

from tests.fake import SECOND_NS, FakeFeed, ScriptedFeed
from tui.app import TICK_S, run_console

NODES, SPACES, GROUPS_OF_A_NODE = 200, 50, 25
SIZE: Final = (120, 40)
ROOT: Final = Path(__file__).parents[1]

KEYS: Final = {
    "down": b"\x1b[B",
    "up": b"\x1b[A",
    "right": b"\x1b[C",
    "left": b"\x1b[D",
    "end": b"\x1b[F",
    "home": b"\x1b[H",
    "pagedown": b"\x1b[6~",
    "pageup": b"\x1b[5~",
    "tab": b"\t",
}
"""What a terminal sends for keys that are no characters."""

MOVES: Final = ("down", "right", "pagedown", "left", "end", "up", "pageup", "home")
"""Each of them moves the cursor, one after the other."""
SCREENS: Final = "23456789"

ASKS_FOR_FRAMES: Final = b"\x1b[?2026$p"
HAS_FRAMES: Final = b"\x1b[?2026;2$y"
BEGIN, END = b"\x1b[?2026h", b"\x1b[?2026l"
"""Of a frame: mode 2026, synchronized output."""

COLOURS: Final = re.compile(rb"\x1b\[[0-9;]*m")
CELL: Final = re.compile(rb" (space-\d+ on n\d+) ")
"""The cell under the cursor, as the overview explains it."""
TITLE: Final = re.compile(rb"\d nodes \xc2\xb7 ([a-z-]+)")
"""The name of the screen, in the first line of the console."""
COUNT: Final = re.compile(rb"keys: (\d+)")
"""What the empty program shows."""

PATIENCE_S: Final = 30.0
START_S: Final = 300.0
"""What the system shows is worked out before the console opens."""
READY_S: Final = 6.0
"""In this time a console has seen every node, and numpy is loaded."""
ROUND_S: Final = 8.0
"""A round of keys in both programs takes no longer on a machine that has time for it."""
PAUSE_S: Final = (0.06, 0.24)
"""Between two keys of a person, so that keys and updates of the picture come in any order."""


@dataclasses.dataclass(frozen=True, slots=True)
class Latency:
    """The seconds from a key to what it changes.

    `clock_s` in all, `waited_s` of those while other processes had the processors, `worked_s` on a processor.
    """

    clock_s: float
    waited_s: float
    worked_s: float

    @property
    def own_s(self) -> float:
        """What an idle machine would take."""
        return max(0.0, self.clock_s - self.waited_s)


class Terminal:
    """A program in a pseudo-terminal.

    Args:
        program: `console` or `empty`.
        rounds: of keys that it has updates for.
    """

    def __init__(self, program: str, rounds: int) -> None:
        self._near, far = pty.openpty()
        fcntl.ioctl(far, termios.TIOCSWINSZ, struct.pack("HHHH", SIZE[1], SIZE[0], 0, 0))
        environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", "LC_ALL": "C.UTF-8"}
        environment.pop("NO_COLOR", None)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.terminal", program, str(rounds)],
            cwd=ROOT,
            env=environment,
            stdin=far,
            stdout=far,
            stderr=far,
            start_new_session=True,
        )
        os.close(far)
        self._shown: dict[re.Pattern[bytes], bytes] = {}
        self._pending = b""

    def frames(self, until_s: float) -> Iterator[tuple[float, bytes]]:
        """Each frame that arrives until then, without colours, with the moment of its last byte."""
        while (left_s := until_s - time.perf_counter()) > 0:
            if not select.select([self._near], [], [], left_s)[0]:
                return
            try:
                data = os.read(self._near, 1 << 16)
            except OSError:
                raise AssertionError(f"the program has ended: {self._pending[-2000:]!r}") from None
            moment = time.perf_counter()
            if ASKS_FOR_FRAMES in data:
                os.write(self._near, HAS_FRAMES)
            *whole, self._pending = (self._pending + data).split(END)
            for frame in whole:
                yield moment, COLOURS.sub(b"", frame.rpartition(BEGIN)[2])

    def watch(self, seconds: float, *sights: re.Pattern[bytes]) -> None:
        """Take in what is shown for so long."""
        for _, frame in self.frames(time.perf_counter() + seconds):
            for sight in sights:
                self._look(sight, frame)

    def wait_for(self, sight: re.Pattern[bytes]) -> None:
        """Wait until it is shown for the first time."""
        for _, frame in self.frames(time.perf_counter() + START_S):
            if self._look(sight, frame):
                return
        raise AssertionError(f"not shown in {START_S:g} s: {sight.pattern!r}")

    def _look(self, sight: re.Pattern[bytes], frame: bytes) -> bool:
        """Whether this frame changes what there is to see."""
        found = sight.findall(frame)
        is_new = bool(found) and found[-1] != self._shown.get(sight)
        if is_new:
            self._shown[sight] = found[-1]
        return is_new

    def type(self, key: str) -> None:
        """Press a key."""
        os.write(self._near, KEYS.get(key, key.encode()))

    def schedule_s(self) -> tuple[float, float]:
        """How long the program worked; and was ready, but other processes had the processors.

        Of all its threads: one reads keys, one works, and one writes, each after the other.
        """
        threads = Path(f"/proc/{self._process.pid}/task").glob("*/schedstat")
        stats = [thread.read_text(encoding="ascii").split() for thread in threads]
        return sum(int(stat[0]) for stat in stats) / 1e9, sum(int(stat[1]) for stat in stats) / 1e9

    def press(self, key: str, sight: re.Pattern[bytes]) -> Latency:
        """Press a key; returns the time until what it changes has arrived."""
        began, (worked_s, waited_s) = time.perf_counter(), self.schedule_s()
        self.type(key)
        for moment, frame in self.frames(began + PATIENCE_S):
            if self._look(sight, frame):
                then_worked_s, then_waited_s = self.schedule_s()
                return Latency(moment - began, then_waited_s - waited_s, then_worked_s - worked_s)
        raise AssertionError(f"key {key!r} changed nothing in {PATIENCE_S:g} s; shown: {self._shown}")

    def close(self) -> None:
        """End the program."""
        self._process.kill()
        self._process.wait()
        os.close(self._near)


@dataclasses.dataclass(frozen=True)
class Latencies:
    """The times of all keys of each kind."""

    moves: list[Latency]
    screens: list[Latency]
    empty: list[Latency]


def latencies(rounds: int, seed: int = 1) -> Latencies:
    """Type into the console and into an empty program, in turns, so that both meet the same machine."""
    chance = random.Random(seed)
    with (
        contextlib.closing(Terminal("empty", rounds)) as empty,
        contextlib.closing(Terminal("console", rounds)) as console,
    ):
        empty.wait_for(COUNT)  # before it has shown its only frame, it must hear that frames are understood
        console.wait_for(CELL)
        console.watch(READY_S, CELL, TITLE)
        console.type("tab")  # from the incidents to the nodes
        moves: list[Latency] = []
        screens: list[Latency] = []
        nothing: list[Latency] = []
        for _ in range(rounds + 1):  # in the first, screens are made and modules are loaded
            console.type("z")  # no node is folded
            console.watch(0.5, CELL, TITLE)
            moves += typed(console, MOVES, CELL, chance)
            nothing += typed(empty, ("x",) * len(MOVES), COUNT, chance)
            screens += typed(console, (*SCREENS, "1"), TITLE, chance)
        return Latencies(moves[len(MOVES) :], screens[len(SCREENS) + 1 :], nothing[len(MOVES) :])


def typed(
    terminal: Terminal,
    keys: Sequence[str],
    sight: re.Pattern[bytes],
    chance: random.Random,
) -> list[Latency]:
    """The time of each key, with the pauses of a person between them."""
    found = []
    for key in keys:
        found.append(terminal.press(key, sight))
        terminal.watch(chance.uniform(*PAUSE_S), CELL, TITLE, COUNT)
    return found


class Empty(App[None]):
    """Shows how many keys were pressed, and nothing else."""

    count = 0

    def compose(self) -> ComposeResult:
        """Yield the only line."""
        yield Static("keys: 0")

    def on_key(self) -> None:
        """Count a key."""
        self.count += 1
        self.query_one(Static).update(f"keys: {self.count}")


def main(program: str, rounds: int) -> int:
    """Run what is measured. The updates are worked out first: their cost is not the console's."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # so that it ends with its terminal
    if program == "empty":
        Empty().run()
        return 0
    source = FakeFeed(NODES, SPACES, GROUPS_OF_A_NODE, period_ns=2 * SECOND_NS, own_groups=True)
    polls = round((READY_S + (rounds + 1) * ROUND_S) / TICK_S)
    feed = ScriptedFeed([(source.now_ns(), source.poll()) for _ in range(polls)], title=source.title)
    return run_console(feed, title="ospltool")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
