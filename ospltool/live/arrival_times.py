"""When messages arrived, also those that waited while their reader stood still."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from engine.runtime.monitor import NodeSnapshot

# Three looks.
PAUSE_S: Final = 1.5
"""Time without a look after which messages have waited; the reader looks twice a second at least."""

# Chosen: the queue of a reader is emptied within two looks; too short would date messages by when they were
# read.
BACKLOG_S: Final = 3.0
"""Time after a pause in which what waited still comes."""

# Twice `model.MAX_NODES`: nodes that come back have new ids.
MAX_SENDERS: Final = 2_000


def boot_s() -> float:
    """Return the time in seconds since the machine started, the time in which it slept included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class ArrivalTimes:
    """Dates snapshots. One that waited is dated by what its node said of the time, never before the pause.

    Args:
        clock: returns seconds that go on in a pause.
    """

    def __init__(self, clock: Callable[[], float] = boot_s) -> None:
        self._clock = clock
        self._looked_s = clock()
        self._looked_ns = self._paused_ns = 0
        self._resumed_s = -BACKLOG_S
        self._delays_ns: dict[str, int] = {}

    def note_reading(self, now_ns: int) -> None:
        """Take in that the reader takes messages at `now_ns`, by its wall clock."""
        before_s, self._looked_s = self._looked_s, self._clock()
        before_ns, self._looked_ns = self._looked_ns, now_ns
        if before_ns and self._looked_s - before_s > PAUSE_S:
            self._paused_ns, self._resumed_s = before_ns, self._looked_s

    def heard_ns(self, snapshot: NodeSnapshot, now_ns: int) -> int:
        """Return when a snapshot arrived that was taken at `now_ns`, by the wall clock of the reader."""
        known_ns = self._delays_ns.get(snapshot.id)
        if self._looked_s - self._resumed_s < BACKLOG_S:
            return (
                now_ns if known_ns is None else min(now_ns, max(self._paused_ns, snapshot.time_ns + known_ns))
            )
        if known_ns is not None or len(self._delays_ns) < MAX_SENDERS:
            self._delays_ns[snapshot.id] = now_ns - snapshot.time_ns
        return now_ns
