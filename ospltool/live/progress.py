"""The progress and speed of a running alignment, from the snapshots that report it."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable
from typing import Final

from engine.runtime.monitor import AlignmentView, NameSpaceView

POINTS: Final = 240
"""Points kept of one alignment: a minute at four snapshots a second; older ones are forgotten."""

RATE_WINDOW_NS: Final = 10_000_000_000
STALLED_NS: Final = 10_000_000_000
"""An alignment that moved nothing for this long has stalled."""


@dataclasses.dataclass(frozen=True, slots=True)
class AlignmentProgress:
    """One alignment now: `rate_per_s` in samples, `left_s` None while it is unknown."""

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
        """Note the state of the alignment at `heard_ns`."""
        if self.view is None or view.started_ns != self.view.started_ns:
            self._points.clear()
            self.moved_ns = heard_ns
        elif view.samples != self.view.samples:
            self.moved_ns = heard_ns
        self.view = view
        self._points.append((heard_ns, view.samples))

    def progress(self) -> AlignmentProgress:
        """Return the fraction done, the rate over the last ten seconds, and the time left at that rate."""
        assert self.view is not None
        newest_ns, samples = self._points[-1]
        first_ns, first = next(p for p in self._points if newest_ns - p[0] <= RATE_WINDOW_NS)
        elapsed_s = (newest_ns - first_ns) / 1e9
        rate = (samples - first) / elapsed_s if elapsed_s > 0 else 0.0
        expected = self.view.expected
        left = max(0, expected - samples) / rate if rate > 0 and expected else None
        fraction = min(1.0, samples / expected) if expected > 0 else 0.0
        return AlignmentProgress(self.view, fraction, max(0.0, rate), left, self.moved_ns)

    def history(self) -> list[tuple[int, int]]:
        """Return (time in ns, samples) pairs, oldest first."""
        return list(self._points)


class Trackers:
    """The alignments that nodes report as running."""

    def __init__(self) -> None:
        self._trackers: dict[tuple[str, str, str, str], Tracker] = {}

    def apply(self, node: str, aligning: Iterable[NameSpaceView], heard_ns: int) -> None:
        """Take in the alignments of a node; forget those that it no longer reports.

        The report was `heard_ns`, by the clock of the feed.
        """
        running = set()
        for view in aligning:
            for alignment in view.alignments:
                key = (node, view.name, alignment.fellow, alignment.direction)
                running.add(key)
                self._trackers.setdefault(key, Tracker()).add(alignment, heard_ns)
        for key in [key for key in self._trackers if key[0] == node and key not in running]:
            del self._trackers[key]

    def progress(self, key: tuple[str, str, str, str]) -> AlignmentProgress:
        """Return the progress of a running alignment."""
        return self._trackers[key].progress()

    def history(self, key: tuple[str, str, str, str]) -> list[tuple[int, int]]:
        """Return (time in ns, samples) points of an alignment; empty if it is not running."""
        tracker = self._trackers.get(key)
        return tracker.history() if tracker else []
