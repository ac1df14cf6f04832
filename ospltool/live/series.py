"""Short histories of what one node counts, for rates and plots."""

from __future__ import annotations

import collections
import itertools
from typing import Final

from engine.runtime.monitor import NodeSnapshot

POINTS: Final = 300
"""Points kept of each history: five minutes at one snapshot a second; older ones are forgotten."""

COUNTERS: Final = ("captured", "stored", "delivered", "queued")
"""The counters of a snapshot that are kept over time; the others are shown as they are."""

RATE_WINDOW_NS: Final = 10_000_000_000

LEAST_GAP_NS: Final = 20_000_000
"""Two heartbeats closer than this are one: its time is worked out anew for each snapshot, a little
different while clocks are adjusted."""

Point = tuple[int, float]
"""(time in ns since 1970, value)."""


class NodeSeries:
    """Counters over time, and the gaps between a node's heartbeats as its fellows received them."""

    __slots__ = ("_counters", "_gaps", "_heartbeats")

    def __init__(self) -> None:
        self._counters: collections.deque[tuple[int, ...]] = collections.deque(maxlen=POINTS)
        self._gaps: collections.deque[Point] = collections.deque(maxlen=POINTS)
        self._heartbeats: dict[str, int] = {}

    def add(self, snapshot: NodeSnapshot, heard_ns: int) -> None:
        """Note the counters of a snapshot. Counters that went back belong to a new run: start again."""
        values = tuple(snapshot.counters.get(name, 0) for name in COUNTERS)
        if self._counters and values[0] < self._counters[-1][1]:
            self._counters.clear()
        self._counters.append((heard_ns, *values))

    def add_heartbeat(self, teller: str, heartbeat_ns: int, heard_ns: int) -> None:
        """Note when `teller` had its last heartbeat of this node, by the teller's clock."""
        before = self._heartbeats.get(teller, 0)
        self._heartbeats[teller] = heartbeat_ns
        gap_ns = heartbeat_ns - before
        if before and gap_ns >= LEAST_GAP_NS:
            self._gaps.append((heard_ns, gap_ns / 1e9))

    def counter(self, name: str) -> list[Point]:
        """The values of one counter over time."""
        index = COUNTERS.index(name) + 1
        return [(point[0], float(point[index])) for point in self._counters]

    def rates(self, name: str) -> list[Point]:
        """The change of one counter per second, from point to point."""
        points = self.counter(name)
        return [
            (b[0], max(0.0, (b[1] - a[1]) * 1e9 / (b[0] - a[0])))
            for a, b in itertools.pairwise(points)
            if b[0] > a[0]
        ]

    def rate_per_s(self, name: str) -> float | None:
        """The change per second over the last ten seconds; None before there are two points."""
        points = self.counter(name)
        if len(points) < 2:
            return None
        newest = points[-1]
        oldest = next(point for point in points if newest[0] - point[0] <= RATE_WINDOW_NS)
        if oldest[0] == newest[0]:
            return None
        return max(0.0, (newest[1] - oldest[1]) * 1e9 / (newest[0] - oldest[0]))

    def heartbeat_gaps_s(self, silent_since_ns: int = 0, now_ns: int = 0) -> list[Point]:
        """Seconds between two heartbeats, as any fellow received them.

        With `silent_since_ns`, the time of the last heartbeat of a node that is silent, the gap that has not
        ended is the last point, so it rises with `now_ns`.
        """
        gaps = list(self._gaps)
        if silent_since_ns:
            gaps.append((now_ns, max(0, now_ns - silent_since_ns) / 1e9))
        return gaps
