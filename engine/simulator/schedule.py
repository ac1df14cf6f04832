"""Virtual time: a queue of actions."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Final

START_NS: Final = 1_767_225_600_000_000_000
"""Wall clock at the start of every run: 2026-01-01T00:00:00Z."""


class Schedule:
    """Actions in the order of their times; those of one time in the order in which they were planned.

    Attributes:
        now: virtual seconds since the run began.
        done: how many actions have been carried out.
    """

    __slots__ = ("_count", "_heap", "done", "now")

    def __init__(self) -> None:
        self.now = 0.0
        self.done = 0
        self._heap: list[tuple[float, int, Callable[..., None], tuple[object, ...]]] = []
        self._count = 0

    @property
    def true_ns(self) -> int:
        """True wall clock, nanoseconds since 1970 UTC."""
        return START_NS + round(self.now * 1e9)

    def at(self, when: float, action: Callable[..., None], *arguments: object) -> None:
        """Plan an action with its arguments for `when`, in virtual seconds; at once if that is past."""
        self._count += 1
        if when < self.now:
            when = self.now
        heapq.heappush(self._heap, (when, self._count, action, arguments))

    def after(self, delay_s: float, action: Callable[..., None], *arguments: object) -> None:
        """Plan an action with its arguments after a delay."""
        self.at(self.now + delay_s, action, *arguments)

    def run_until(self, end: float) -> None:
        """Carry out all actions until `end`, and set the time to `end`."""
        heap = self._heap
        while heap and heap[0][0] <= end:
            when, _, action, arguments = heapq.heappop(heap)
            assert when >= self.now, "time goes on"
            self.now = when
            self.done += 1
            action(*arguments)
        self.now = end


class SimulatedClock:
    """The clocks of one host.

    Its monotonic clock runs a little fast or slow and began at any moment; its wall clock is off by
    `offset_ns`, which faults may change at any time. Virtual time 0 is `origin_s` on the monotonic clock,
    which advances by `rate` seconds a second.
    """

    __slots__ = ("_origin_s", "_rate", "_schedule", "offset_ns")

    def __init__(
        self, schedule: Schedule, *, origin_s: float = 0.0, rate: float = 1.0, offset_ns: int = 0
    ) -> None:
        self._schedule = schedule
        self._origin_s = origin_s
        self._rate = rate
        self.offset_ns = offset_ns

    def monotonic(self) -> float:
        """Return the monotonic time in seconds."""
        return self._origin_s + self._schedule.now * self._rate

    def wall_ns(self) -> int:
        """Return the host's wall clock, nanoseconds since 1970 UTC."""
        return self._schedule.true_ns + self.offset_ns

    def virtual(self, monotonic: float) -> float:
        """Return the virtual time at which this host's monotonic clock shows `monotonic`."""
        return (monotonic - self._origin_s) / self._rate
