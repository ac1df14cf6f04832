"""Long work in the thread of the console, in steps: between them keys are answered, and pictures drawn."""

from __future__ import annotations

import asyncio
import gc
import itertools
import time
from collections.abc import Callable, Iterator
from typing import Final

# Looking takes time with the number of objects, and must not come in the middle of a key; chosen.
YOUNG: Final = 10_000
"""New objects from which a look at them is worth while."""
LOOKS: Final = 4
"""Looks at new objects before all that are left of them are looked at once more."""


def look_for_garbage_less_often() -> None:
    """Make automatic collections rare: with 200 nodes a full one takes a third of a second.

    The console's data has no cycles and is freed when it is replaced; the garbage of Textual is found among
    young objects by `look_for_garbage`.
    """
    gc.freeze()
    gc.set_threshold(5 * YOUNG, 2 * LOOKS, 500)


def look_for_garbage() -> None:
    """Look through the objects that are new, if they are many; takes a few milliseconds."""
    young, looks, _ = gc.get_count()
    if young >= YOUNG:
        gc.collect(1 if looks >= LOOKS else 0)


# Below the time between two frames (16 ms): a key never waits for long.
STEPS_S: Final = 0.004
"""Steps are carried out for this long before everything else has a turn."""
# Any pause would do: it lets the loop look at keys.
TURN_S: Final = 0.001
# Drawing the largest screen takes about that (`make bench AREA=console`).
REST_S: Final = 0.05
"""After a key nothing is done for this long: until then, what it changes is drawn."""
LONGEST_REST_S: Final = 1.0
"""Work goes on after this time although keys are typed all the while."""


class BackgroundWork:
    """One piece of work at a time. `work`: the steps that are left of it."""

    def __init__(self) -> None:
        self.work: Iterator[None] = iter(())
        self._task: asyncio.Task[None] | None = None
        self._rests_until_s = 0.0

    def begin(self, work: Callable[[], Iterator[None]]) -> None:
        """Begin a piece of work; while the one before is not done, go on with that.

        Raises:
            Exception: that of the piece before, if it has failed.
        """
        if self._task is not None:
            if not self._task.done():
                return
            self._task.result()
        self.work = work()
        self._task = asyncio.create_task(self._carry_out(self.work))

    def rest(self) -> None:
        """Let a key, or what the mouse does, come first."""
        self._rests_until_s = time.monotonic() + REST_S

    def end(self) -> None:
        """Leave what is not done."""
        if self._task is not None:
            self._task.cancel()

    async def _carry_out(self, work: Iterator[None]) -> None:
        began_s = turn_s = time.monotonic()
        for _ in itertools.chain(work, (None,)):  # after the last step too, before garbage is looked for
            if time.monotonic() - turn_s >= STEPS_S:
                await asyncio.sleep(TURN_S)
                turn_s = time.monotonic()
            while (left_s := min(self._rests_until_s, began_s + LONGEST_REST_S) - time.monotonic()) > 0:
                await asyncio.sleep(left_s)
                turn_s = time.monotonic()
        look_for_garbage()
