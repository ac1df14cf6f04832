"""How fast a running alignment goes, from the snapshots that mention it."""

from __future__ import annotations

import collections
import dataclasses
from typing import Final

from engine.runtime.monitor import AlignmentView

POINTS: Final = 240
"""Points kept of one alignment: a minute at four snapshots a second; older ones are forgotten."""

RATE_WINDOW_NS: Final = 10_000_000_000
STALLED_NS: Final = 10_000_000_000
"""An alignment that moved nothing for this long has stalled."""


@dataclasses.dataclass(frozen=True, slots=True)
class Progress:
    """One alignment now: `rate_per_s` in samples, `left_s` None while it cannot be told."""

    alignment: AlignmentView
    fraction: float
    rate_per_s: float
    left_s: float | None
    moved_ns: int


class Tracker:
    """Samples over time of one alignment."""

    __slots__ = ("_points", "moved_ns", "view")

    def __init__(self) -> None:
        self._points: collections.deque[tuple[int, int]] = collections.deque(maxlen=POINTS)
        self.moved_ns = 0
        self.view: AlignmentView | None = None

    def add(self, view: AlignmentView, heard_ns: int) -> None:
        """Note where the alignment stood at `heard_ns`."""
        if self.view is None or view.started_ns != self.view.started_ns:
            self._points.clear()
            self.moved_ns = heard_ns
        elif view.samples != self.view.samples:
            self.moved_ns = heard_ns
        self.view = view
        self._points.append((heard_ns, view.samples))

    def progress(self) -> Progress:
        """Fraction done, rate over the last ten seconds, and the time left at that rate."""
        assert self.view is not None
        newest_ns, samples = self._points[-1]
        first_ns, first = next(p for p in self._points if newest_ns - p[0] <= RATE_WINDOW_NS)
        elapsed_s = (newest_ns - first_ns) / 1e9
        rate = (samples - first) / elapsed_s if elapsed_s > 0 else 0.0
        expected = self.view.expected
        left = max(0, expected - samples) / rate if rate > 0 and expected else None
        fraction = min(1.0, samples / expected) if expected > 0 else 0.0
        return Progress(self.view, fraction, max(0.0, rate), left, self.moved_ns)

    def history(self) -> list[tuple[int, int]]:
        """(time in ns, samples) pairs, oldest first."""
        return list(self._points)
