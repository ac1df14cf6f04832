"""Short histories of one node's counters, for rates and plots, and the progress of running alignments."""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Iterable, Mapping
from typing import Final

from engine.runtime.monitor import AlignmentView, NameSpaceView, NodeSnapshot
from ospltool.live.nodes import Fellows

POINTS: Final = 300
"""Points kept of each history: five minutes at one snapshot a second; older ones are forgotten."""

COUNTERS: Final = ("captured", "stored", "delivered", "queued")
"""The counters of a snapshot that are kept over time; the others are shown as they are."""

# Long enough that a rate does not jump with each transaction, short enough to show what goes on now.
RATE_WINDOW_NS: Final = 10_000_000_000

LEAST_GAP_NS: Final = 20_000_000
"""Two heartbeats closer than this are one: its time is computed again for each snapshot, a little
different while clocks are adjusted."""

# Some heartbeats: a short cut does not change the witness, which would break the curve.
WITNESS_NS: Final = 10_000_000_000
"""Time after which a fellow that reports no heartbeats is replaced by another one."""

# Searching looks at all nodes; with 200 it takes milliseconds.
SEARCH_NS: Final = 1_000_000_000
"""Nodes whose witness is silent are searched for this often."""

Point = tuple[int, float]
"""(time in ns since 1970, value)."""


class NodeSeries:
    """Counters over time, and the gaps between a node's heartbeats as one fellow, the witness, received them.

    There is one witness because the clocks of several fellows cannot be compared.
    """

    __slots__ = ("_counters", "_gaps", "_heard_ns", "_heartbeat_ns", "_witness")

    def __init__(self) -> None:
        self._counters: collections.deque[tuple[int, ...]] = collections.deque(maxlen=POINTS)
        self._gaps: collections.deque[Point] = collections.deque(maxlen=POINTS)
        self._witness = ""
        self._heartbeat_ns = 0
        self._heard_ns = 0

    def add(self, snapshot: NodeSnapshot, heard_ns: int) -> None:
        """Note the counters of a snapshot. If they went back, a new run has begun: forget the old ones."""
        values = [snapshot.counters.get(name, 0) for name in COUNTERS]
        if self._counters and values[0] < self._counters[-1][1]:
            self._counters.clear()
        elif self._counters and self._counters[-1][0] == heard_ns:  # a recording repeats it
            self._counters.pop()
        self._counters.append((heard_ns, *values))

    def is_without_witness(self, heard_ns: int) -> bool:
        """Return whether the witness has reported nothing for so long that another fellow may replace it."""
        return heard_ns - self._heard_ns >= WITNESS_NS

    def listens_to(self, teller: str, heard_ns: int) -> bool:
        """Return whether this fellow is the witness; it becomes the witness if the former one is silent."""
        if teller == self._witness:
            return True
        if not self.is_without_witness(heard_ns):
            return False
        self._witness, self._heartbeat_ns = teller, 0
        return True

    def add_heartbeat(self, heartbeat_ns: int, heard_ns: int) -> None:
        """Note when the witness received its last heartbeat of this node, by the witness's clock."""
        gap_ns = heartbeat_ns - self._heartbeat_ns
        if self._heartbeat_ns and gap_ns >= LEAST_GAP_NS:
            self._gaps.append((heard_ns, gap_ns / 1e9))
        self._heartbeat_ns, self._heard_ns = heartbeat_ns, heard_ns

    def counter(self, name: str) -> list[Point]:
        """Return the values of one counter over time."""
        index = COUNTERS.index(name) + 1
        return [(point[0], float(point[index])) for point in self._counters]

    def rates(self, name: str, newest: int = POINTS) -> list[Point]:
        """Return the change of one counter per second, from point to point; the newest N."""
        index = COUNTERS.index(name) + 1
        last = list(itertools.islice(reversed(self._counters), newest + 1))
        points = [(point[0], float(point[index])) for point in reversed(last)]
        return [
            (b[0], max(0.0, (b[1] - a[1]) * 1e9 / (b[0] - a[0])))
            for a, b in itertools.pairwise(points)
            if b[0] > a[0]
        ]

    def rate_per_s(self, name: str) -> float | None:
        """Return the change per second over the last ten seconds; None before there are two points."""
        if len(self._counters) < 2:
            return None
        index = COUNTERS.index(name) + 1
        newest = oldest = self._counters[-1]
        for point in reversed(self._counters):
            if newest[0] - point[0] > RATE_WINDOW_NS:
                break
            oldest = point
        if oldest[0] == newest[0]:
            return None
        return max(0.0, (newest[index] - oldest[index]) * 1e9 / (newest[0] - oldest[0]))

    def means(self, name: str, part_ns: int, parts: int) -> list[float]:
        """Return the mean change per second of the counter `name` in each of the last parts, oldest first.

        Parts end at whole multiples of `part_ns`, so that a finished part keeps its mean. The last one has
        the newest point, and those before the first point are left out.
        """
        index = COUNTERS.index(name) + 1
        found: dict[int, tuple[int, float]] = {}
        oldest = (self._counters[-1][0] - 1) // part_ns - parts if self._counters else 0
        for point in reversed(self._counters):
            part = (point[0] - 1) // part_ns
            found.setdefault(part, (point[0], float(point[index])))  # the last point of each part
            if part <= oldest:
                break
        lasts = [*reversed(found.items())]
        if len(lasts) < 2:  # what there is, is in one part
            rate = self.rate_per_s(name)
            return [] if rate is None else [rate]
        means: list[float] = []
        for (before, a), (part, b) in itertools.pairwise(lasts):
            rate = max(0.0, (b[1] - a[1]) * 1e9 / (b[0] - a[0])) if b[0] > a[0] else 0.0
            means += [rate] * min(part - before, parts)
        return means[-parts:]

    def silences_s(self, part_ns: int, parts: int, now_ns: int) -> list[float]:
        """Return the longest time without a snapshot, as they were heard, in each of the last parts of time.

        The parts are those of `means` until `now_ns`. A silence that goes on through several parts rises from
        one to the next, and the one that has not ended is the last.
        """
        newest = now_ns // part_ns
        longest: dict[int, int] = {}
        end_ns = now_ns
        for point in reversed(self._counters):
            begin_ns = point[0]
            for part in range(max(begin_ns // part_ns, newest - parts + 1), end_ns // part_ns + 1):
                silent_ns = min(end_ns, (part + 1) * part_ns) - begin_ns
                longest[part] = max(longest.get(part, 0), silent_ns)
            end_ns = begin_ns
            if begin_ns // part_ns <= newest - parts:
                break
        return [silent_ns / 1e9 for _, silent_ns in sorted(longest.items())]

    def heartbeat_gaps_s(self, silent_since_ns: int = 0, now_ns: int = 0) -> list[Point]:
        """Return the seconds between heartbeats, as the witness received them.

        With `silent_since_ns`, the time of the last heartbeat of a node that is silent, the gap that has not
        ended is the last point, so it rises with `now_ns`.
        """
        gaps = list(self._gaps)
        if silent_since_ns:
            gaps.append((now_ns, max(0, now_ns - silent_since_ns) / 1e9))
        return gaps


class Witnesses:
    """Notes the heartbeats that fellows report, without looking at all of them in each snapshot.

    In a large system every node reports every other one, and one report of each is kept.

    Args:
        series: the history of each node by id.
    """

    def __init__(self, series: Mapping[str, NodeSeries]) -> None:
        self._series = series
        self._witnessed: dict[str, set[str]] = {}
        self._without: set[str] = set()
        self._searched_ns = 0

    def note(self, teller: str, fellows: Fellows, heard_ns: int) -> None:
        """Note what the node `teller` reports of its `fellows`; it was heard at `heard_ns` of the feed."""
        if not 0 <= heard_ns - self._searched_ns < SEARCH_NS:
            self._searched_ns = heard_ns
            self._without = {node for node, one in self._series.items() if one.is_without_witness(heard_ns)}
        mine = self._witnessed.setdefault(teller, set())
        for fellow in (mine | self._without) & fellows.places.keys():
            last_ns, series = fellows.heartbeat_ns(fellow), self._series[fellow]
            if last_ns and series.listens_to(teller, heard_ns):
                series.add_heartbeat(last_ns, heard_ns)
                mine.add(fellow)
            elif last_ns:
                mine.discard(fellow)

    def forget(self, teller: str) -> None:
        """Forget what a node reported."""
        self._witnessed.pop(teller, None)


ALIGNMENT_POINTS: Final = 240
"""Points kept of one alignment: a minute at four snapshots a second; older ones are forgotten."""
# Half of `core.settings.request_patience_s`.
STALLED_NS: Final = 5_000_000_000
"""An alignment that moved nothing for this long has stalled; after twice that time the alignee asks again."""


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
        self._points: collections.deque[tuple[int, int]] = collections.deque(maxlen=ALIGNMENT_POINTS)
        self.moved_ns = 0
        self.view: AlignmentView | None = None

    def add(self, view: AlignmentView, heard_ns: int, elapsed_ns: int) -> None:
        """Note the state of the alignment at `heard_ns`, `elapsed_ns` after it began."""
        if self.view is None or view.started_ns != self.view.started_ns:
            self._points.clear()
            self.moved_ns = heard_ns
            if view.started_ns and elapsed_ns > 0:  # so who comes late knows a rate at once
                self._points.append((heard_ns - elapsed_ns, 0))
        elif view.samples != self.view.samples:
            self.moved_ns = heard_ns
        self.view = view
        self._points.append((heard_ns, view.samples))

    def progress(self) -> AlignmentProgress:
        """Return the fraction done, the rate over the last ten seconds, and the time left at that rate.

        Of one that was told of once in that time, it is the rate since the time before, or since it began.
        """
        assert self.view is not None
        newest_ns, samples = first_ns, first = self._points[-1]
        for point in reversed(self._points):
            if newest_ns - point[0] > RATE_WINDOW_NS and first_ns < newest_ns:
                break
            first_ns, first = point
        elapsed_s = (newest_ns - first_ns) / 1e9
        rate = (samples - first) / elapsed_s if elapsed_s > 0 else 0.0
        expected = self.view.expected
        left = max(0, expected - samples) / rate if rate > 0 and expected else None
        fraction = min(1.0, samples / expected) if expected > 0 else 0.0
        return AlignmentProgress(self.view, fraction, max(0.0, rate), left, self.moved_ns)

    def history(self) -> list[tuple[int, int]]:
        """Return (time in ns, samples) pairs, oldest first."""
        return list(self._points)


AlignmentKey = tuple[str, str, str]
"""(name-space, id of the fellow, direction) of an alignment that a node reports."""


class Trackers:
    """The alignments that nodes report as running."""

    def __init__(self) -> None:
        self._trackers: dict[str, dict[AlignmentKey, Tracker]] = {}

    def apply(self, node: str, aligning: Iterable[NameSpaceView], heard_ns: int, ahead_ns: int = 0) -> None:
        """Take in the alignments of a node; forget those that it no longer reports.

        Args:
            node: its id.
            aligning: its name-spaces with alignments.
            heard_ns: when the report came, by the clock of the feed.
            ahead_ns: by how much the node's clock is ahead of that.
        """
        before = self._trackers.pop(node, {})
        running: dict[AlignmentKey, Tracker] = {}
        for view in aligning:
            for alignment in view.alignments:
                key = view.name, alignment.fellow, alignment.direction
                tracker = running[key] = running.get(key) or before.get(key) or Tracker()
                tracker.add(alignment, heard_ns, heard_ns + ahead_ns - alignment.started_ns)
        if running:
            self._trackers[node] = running

    def progress(self, node: str, key: AlignmentKey) -> AlignmentProgress:
        """Return the progress of a running alignment."""
        return self._trackers[node][key].progress()

    def history(self, node: str, key: AlignmentKey) -> list[tuple[int, int]]:
        """Return (time in ns, samples) points of an alignment; empty if it is not running."""
        tracker = self._trackers.get(node, {}).get(key)
        return tracker.history() if tracker else []
