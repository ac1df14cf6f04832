"""Settled content of a set, which can be compared while writers go on.

Two nodes that capture the same writes never have equal sets while writers are active. But samples written a
while ago have reached both, so their sets *as of then* are equal unless one node missed a sample. Each group
therefore dates its recent changes by the source time of the sample that caused them (a sample that came,
together with those that it pushed out). The content as of a source time is the whole without later changes.

All nodes must date a change alike. Writers with a correct clock are dated by their source time. For a wrong
clock, a multiple of `STEP_NS` is added that brings the source time into the present; each node finds the same
multiple. Any other error of dating only delays equality: the date of a change older than `KEPT_NS` does not
matter.
"""

from __future__ import annotations

from typing import Final

# Chosen: a fourth of `SETTLING_NS`. Narrower ones take memory for each interval, wider ones delay the
# comparison.
WIDTH_NS: Final = 250_000_000
"""Length of the intervals in which changes are noted; sets are compared as of their borders."""
# Chosen: above what clocks differ by that nobody has set wrong.
FUTURE_NS: Final = 10_000_000_000
"""Distance in the future from which on source times are reported, and do not raise the quality of a set."""
KEPT_NS: Final = 6_000_000_000
"""Age from which on changes are not distinguished any more."""
# Far above delays, so that each node finds the same multiple.
STEP_NS: Final = 5_000_000_000
"""Step in which wrong clocks are corrected."""
# A sample of a correct clock has an age of its delay, 0 to some hundred ms, and clocks differ by a few: the
# two limits are 1.25 s apart, a fourth of a step.
EARLY_NS: Final = 500_000_000
LATE_NS: Final = 750_000_000
"""Limits of the apparent age of samples from a writer with a correct clock."""
# Shorter, and samples that a slow network delayed would be dated again; longer, and sets of a clock that was
# set wrong differ for longer.
PATIENCE_NS: Final = 3_000_000_000
"""Time of lateness after which a writer that was on time has another clock."""
# Chosen: judging again needs only one more sample of each.
MAX_WRITERS: Final = 10_000
"""Writers whose clocks are known; one more makes the node judge all again."""
_NEVER: Final = 1 << 63


Content = tuple[int, int]
"""Number of samples, and the sum of their digests."""


class SettlingClock:
    """The present and the wrong clocks of writers, shared by all groups of a set.

    Attributes:
        kept_ns: date from which on changes are noted; none are before the first `advance`.
        now_ns: the present, nanoseconds since 1970 by the clock of the name-space's master.
        offset_ns: the master's clock minus this node's; see `follow`.
        era: grows when another clock is followed, which invalidates earlier dates.
        skews: correction of source times, by writer.
    """

    __slots__ = ("_late_since_ns", "era", "kept_ns", "now_ns", "offset_ns", "skews")

    def __init__(self) -> None:
        self.kept_ns = self.now_ns = _NEVER
        self.offset_ns = 0
        self.era = 0
        self.skews: dict[bytes, int] = {}
        self._late_since_ns: dict[bytes, int] = {}

    def follow(self, offset_ns: int) -> None:
        """Date by a clock that is `offset_ns` ahead of this node's, by the latest estimate."""
        if abs(offset_ns - self.offset_ns) > EARLY_NS:
            self.era += 1
            self.skews.clear()
            self._late_since_ns.clear()
        self.offset_ns = offset_ns

    def advance(self, wall_ns: int) -> None:
        """Move the present forward to `wall_ns` of this node's clock, which must not jump."""
        self.now_ns = wall_ns + self.offset_ns
        self.kept_ns = self.now_ns - KEPT_NS

    def saw(self, writer: bytes, time_ns: int, wall_ns: int) -> None:
        """Judge a writer's clock by a sample that came at `wall_ns` of this node's clock.

        A writer whose first sample is not on time has a wrong clock. One that was on time and is late is only
        delayed, unless that lasts for `PATIENCE_NS`.
        """
        now_ns = wall_ns + self.offset_ns
        skew_ns, late_ns = self.skews.get(writer, 0), now_ns - time_ns
        since_ns = self._late_since_ns.get(writer)
        if -EARLY_NS <= late_ns <= LATE_NS:
            if skew_ns:
                del self.skews[writer]
            self._late_since_ns[writer] = 0
        elif skew_ns and -EARLY_NS <= skew_ns - late_ns <= STEP_NS + EARLY_NS:
            self._late_since_ns[writer] = 0
        elif since_ns is None or late_ns < 0 or (since_ns and now_ns - since_ns > PATIENCE_NS):
            self._remember(writer, -(-late_ns // STEP_NS) * STEP_NS)
        elif not since_ns:
            self._late_since_ns[writer] = now_ns

    def knows(self, writer: bytes) -> bool:
        """Whether `saw` has judged a writer's clock."""
        return writer in self._late_since_ns

    def is_right(self, writer: bytes, newest_ns: int, wall_ns: int) -> bool:
        """Whether a writer's clock is right, and a sample of the time `newest_ns` is not of the future.

        `wall_ns` is the present of this node's clock; `now_ns` is as old as the last heartbeat, or as the
        time for which this node was stopped.
        """
        return writer not in self.skews and newest_ns <= wall_ns + self.offset_ns + EARLY_NS

    def _remember(self, writer: bytes, skew_ns: int) -> None:
        if len(self._late_since_ns) >= MAX_WRITERS:
            self.skews.clear()
            self._late_since_ns.clear()
        self.skews[writer] = skew_ns
        self._late_since_ns[writer] = 0


class Recent:
    """The recent changes of one group, by the interval of their date."""

    __slots__ = ("_begin_ns", "_changes", "_end_ns", "_era", "_last", "present")

    def __init__(self, present: SettlingClock) -> None:
        self.present = present
        self._era = present.era
        self._changes: dict[int, list[int]] = {}
        self._last = [0, 0]
        self._begin_ns = self._end_ns = 0

    def add(self, time_ns: int, writer: bytes, count: int, digest: int) -> None:
        """Note a change caused by a sample: the growth of the number and of the sum of digests.

        `count` is the growth of the number of samples, `digest` that of the sum of digests.
        """
        present = self.present
        if present.skews:
            time_ns += present.skews.get(writer, 0)
        if not self._begin_ns <= time_ns < self._end_ns or self._era != present.era:  # seldom
            if time_ns < present.kept_ns:
                return
            # The source time of a sample that was not captured here may be far in the future.
            time_ns = min(time_ns, present.now_ns + STEP_NS)
            self._begin(time_ns // WIDTH_NS)
        last = self._last
        last[0] += count
        last[1] += digest

    def add_now(self, count: int, digest: int) -> None:
        """Note a change without a single cause, such as a purge or an arriving set."""
        if self.present.now_ns < _NEVER:
            self._begin(self.present.now_ns // WIDTH_NS)
            self._last[0] += count
            self._last[1] += digest

    def _begin(self, place: int) -> None:
        """Begin an interval for the next changes."""
        if self._era != self.present.era:
            self.forget()
        self._last = self._changes.setdefault(place, [0, 0])
        self._begin_ns, self._end_ns = place * WIDTH_NS, (place + 1) * WIDTH_NS

    def since(self, time_ns: int) -> Content:
        """Return the sum of the changes dated from `time_ns` on, the border of an interval."""
        if self._era != self.present.era:
            self.forget()
        first = time_ns // WIDTH_NS
        count = digest = 0
        for place, change in self._changes.items():
            if place >= first:
                count += change[0]
                digest += change[1]
        return count, digest

    def forget(self) -> None:
        """Forget changes that are not recent any more."""
        self._begin_ns = self._end_ns = 0
        if self._era != self.present.era:
            self._era = self.present.era
            self._changes.clear()
        first = self.present.kept_ns // WIDTH_NS
        for place in [place for place in self._changes if place < first]:
            del self._changes[place]


def border_before(time_ns: int) -> int:
    """Return the last border of an interval at or before a time."""
    return time_ns // WIDTH_NS * WIDTH_NS
