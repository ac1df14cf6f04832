"""What of a set has settled, so that it can be compared while everything else is being written.

Two nodes that capture the same writes never hold the same samples at one moment while anybody writes. But
what was written a while ago has reached both, so their sets *as of then* are equal unless one of them missed
something. Each group therefore notes its recent changes by the source time of the sample that caused them (a
sample that came, together with those that it pushed out). The content as of a source time is the whole less
the changes that were caused later.

All nodes must date a change alike. Writers whose clock is right are dated by their source time. A writer
whose clock is wrong is dated by its source time plus a whole number of `STEP_NS`, as many as bring it into
the present; each node finds the same number. Every other error of dating only delays equality: once a change
is older than `KEPT_NS`, its date counts no more.
"""

from __future__ import annotations

from typing import Final

WIDTH_NS: Final = 250_000_000
"""Changes are noted in intervals of this length; sets are compared as of their borders."""
KEPT_NS: Final = 6_000_000_000
"""Changes dated earlier than this before the present are not told apart any more."""
STEP_NS: Final = 5_000_000_000
"""Writers whose clock is wrong are dated in steps of this."""
EARLY_NS: Final = 500_000_000
LATE_NS: Final = 750_000_000
"""A writer's clock is right if its samples seem to come no earlier and no later than this."""
PATIENCE_NS: Final = 3_000_000_000
"""A writer that was on time and is late for longer than this has another clock now."""
MAX_WRITERS: Final = 10_000
"""Writers of which it is known whether their clock is right; with one more, all are found out anew."""
_NEVER: Final = 1 << 63


Content = tuple[int, int]
"""How many samples, and the sum of their digests."""


class Present:
    """What all groups of a set share: when the present is, and which writers' clocks are wrong.

    Attributes:
        kept_ns: changes dated from here on are noted. Before `advance` is called, none are.
        now_ns: the present, nanoseconds since 1970 by the clock of the name-space's master.
        offset_ns: what must be added to this node's clock for that; see `follow`.
        era: grows when another clock is followed. Dates of an earlier one mean nothing any more.
        skews: by writer, what must be added to its source times.
    """

    __slots__ = ("_late_since_ns", "era", "kept_ns", "now_ns", "offset_ns", "skews")

    def __init__(self) -> None:
        self.kept_ns = self.now_ns = _NEVER
        self.offset_ns = 0
        self.era = 0
        self.skews: dict[bytes, int] = {}
        self._late_since_ns: dict[bytes, int] = {}

    def follow(self, offset_ns: int) -> None:
        """Date by a clock that shows so much more than this node's, as well as that is known by now."""
        if abs(offset_ns - self.offset_ns) > EARLY_NS:
            self.era += 1
            self.skews.clear()
            self._late_since_ns.clear()
        self.offset_ns = offset_ns

    def advance(self, wall_ns: int) -> None:
        """It is later now, by this node's clock, which must not jump."""
        self.now_ns = wall_ns + self.offset_ns
        self.kept_ns = self.now_ns - KEPT_NS

    def saw(self, writer: bytes, time_ns: int, wall_ns: int) -> None:
        """A sample with that source time came at `wall_ns` by this node's clock.

        A writer that is not on time from its first sample on has a wrong clock. One that was on time and is
        late now has been kept waiting, unless that lasts for `PATIENCE_NS`.
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

    def _remember(self, writer: bytes, skew_ns: int) -> None:
        if len(self._late_since_ns) >= MAX_WRITERS:
            self.skews.clear()
            self._late_since_ns.clear()
        self.skews[writer] = skew_ns
        self._late_since_ns[writer] = 0


class Recent:
    """The recent changes of one group, by the interval of their date."""

    __slots__ = ("_begin_ns", "_changes", "_end_ns", "_era", "_last", "present")

    def __init__(self, present: Present) -> None:
        self.present = present
        self._era = present.era
        self._changes: dict[int, list[int]] = {}
        self._last = [0, 0]
        self._begin_ns = self._end_ns = 0

    def add(self, time_ns: int, writer: bytes, count: int, digest: int) -> None:
        """A sample caused a change: how many samples more, and the sum of their digests."""
        present = self.present
        if present.skews:
            time_ns += present.skews.get(writer, 0)
        if not self._begin_ns <= time_ns < self._end_ns or self._era != present.era:  # seldom
            if time_ns < present.kept_ns:
                return
            # The stamp of a sample that was not captured here may be far in the future.
            time_ns = min(time_ns, present.now_ns + STEP_NS)
            self._begin(time_ns // WIDTH_NS)
        last = self._last
        last[0] += count
        last[1] += digest

    def add_now(self, count: int, digest: int) -> None:
        """A change that no sample caused, such as a purge, or that samples which came in bulk caused."""
        if self.present.now_ns < _NEVER:
            self._begin(self.present.now_ns // WIDTH_NS)
            self._last[0] += count
            self._last[1] += digest

    def _begin(self, place: int) -> None:
        """What comes now belongs to that interval."""
        if self._era != self.present.era:
            self.forget()
        self._last = self._changes.setdefault(place, [0, 0])
        self._begin_ns, self._end_ns = place * WIDTH_NS, (place + 1) * WIDTH_NS

    def since(self, time_ns: int) -> Content:
        """What all changes dated from `time_ns`, the border of an interval, come to."""
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
        """Forget what is not recent any more."""
        self._begin_ns = self._end_ns = 0
        if self._era != self.present.era:
            self._era = self.present.era
            self._changes.clear()
        first = self.present.kept_ns // WIDTH_NS
        for place in [place for place in self._changes if place < first]:
            del self._changes[place]


def border_before(time_ns: int) -> int:
    """The last border of an interval at or before a time."""
    return time_ns // WIDTH_NS * WIDTH_NS
