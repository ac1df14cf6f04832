"""A simulated run as a feed. The same seed gives the same run, so jumping back means to run it again."""

from __future__ import annotations

import bisect
import collections
import time
from collections.abc import Callable
from typing import Final

from engine.runtime.monitor import NodeEvent, NodeSnapshot
from engine.simulator.observing import Gone, ObservedRun, Seen
from engine.simulator.options import SimulationOptions
from engine.simulator.schedule import START_NS
from ospltool.live.feed import FeedNotice, NoticeKind, ReceivedSnapshot, ReplayPosition, Update
from ospltool.live.recording import MAX_MARKS, RecordingFault

# Keys of the console are answered between two polls.
WORK_S: Final = 0.1
"""Most seconds that one poll simulates; a run slower than the wanted speed falls behind."""

# A person waits no longer for a key; the search goes on with the next one.
STEP_S: Final = 5.0
"""Most seconds that a step looks for the next event."""

# Long enough to level out busy moments of a run.
MEASURED_NS: Final = 5_000_000_000
"""Time over which the speed of a run is measured."""

# A tenth less is not seen by a person.
KEEPS_UP: Final = 0.9
"""A run that reaches less than this part of the wanted speed cannot keep up."""

# Some megabytes.
MAX_MOMENTS: Final = 200_000
"""Moments of events remembered for stepping back; of a longer run, the first ones."""


class SimulatedFeed:
    """A run of the simulator that can be paused, stepped through and moved in time.

    Args:
        options: describe the run.
        title: name for a header.
        about: a sentence about the run, for the reader.
        speed: virtual seconds per second.
        clock: paces the run, in ns.
    """

    mode = "simulated"

    def __init__(
        self,
        options: SimulationOptions,
        *,
        title: str,
        about: str = "",
        speed: float = 1.0,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.title = title
        self._options = options
        self._about = about
        self._speed = speed
        self._clock = clock
        self._paused = False
        self._run = ObservedRun(options)
        self._ahead: collections.deque[Seen] = collections.deque()
        self._released: list[Seen] = []
        self._shown_ns = START_NS
        self._wanted_ns = 0
        self._anchor_ns = clock()
        self._restart = False
        self._caption: str | None = about
        self._said_end = False
        self._end_ns = 0
        self._reached: collections.deque[tuple[int, int]] = collections.deque()
        self._moments: list[int] = []
        self._marks: list[tuple[int, str]] = []

    def now_ns(self) -> int:
        """Return the shown moment of the run."""
        if self._paused or self._wanted_ns or self._is_over:
            return self._shown_ns
        return self._shown_ns + int((self._clock() - self._anchor_ns) * self._speed)

    def poll(self) -> Update:
        """Return what happened between the last poll and now."""
        if self._wanted_ns:
            self._show_until(self._wanted_ns)
            if self._shown_ns >= self._wanted_ns or self._is_over:
                self._wanted_ns = 0
        elif not self._paused:
            self._show_until(self.now_ns())
            self._measure()
        return self._drain()

    def close(self) -> None:
        """Do nothing: the run goes on only while it is polled."""

    @property
    def timeline(self) -> ReplayPosition:
        """The shown moment, or the target of a jump. The end is an estimate until it was reached once."""
        planned_s = self._options.fault_s + self._options.quiet_s
        end_ns = self._end_ns or max(START_NS + int(planned_s * 1e9), self._wanted_ns, self.now_ns())
        marks = tuple(moment_ns for moment_ns, _ in self._marks)
        return ReplayPosition(
            START_NS,
            end_ns,
            self._wanted_ns or self.now_ns(),
            self._paused,
            self._speed,
            marks,
            self._speed_reached(),
        )

    def pause(self, *, paused: bool) -> None:
        """Pause, or continue from the shown moment."""
        self._hold(self.now_ns())
        self._reached.clear()
        self._paused = paused

    def set_speed(self, speed: float) -> None:
        """Change the speed from now on."""
        self._hold(self.now_ns())
        self._reached.clear()
        self._speed = speed

    def seek(self, moment_ns: int) -> None:
        """Jump to a moment; the next polls get there. Before the shown moment, the run begins again."""
        self._hold(self.now_ns())
        self._reached.clear()
        moment_ns = max(moment_ns, START_NS)
        if moment_ns < self._shown_ns:
            self._begin_again()
        self._wanted_ns = moment_ns

    def step(self, direction: int) -> bool:
        """Pause at the next event, or at the previous one; return False if there is none."""
        self.pause(paused=True)
        self._wanted_ns = 0
        if direction > 0:
            return self._step_forward()
        index = bisect.bisect_left(self._moments, self._shown_ns) - 1
        if index < 0:
            return False
        self.seek(self._moments[index])
        return True

    def mark(self, text: str) -> None:
        """Mark the shown moment; marks of a simulation live as long as its feed.

        Raises:
            RecordingFault: there are too many marks.
        """
        if len(self._marks) >= MAX_MARKS:
            raise RecordingFault(f"there are {MAX_MARKS:,} marks already")
        bisect.insort(self._marks, (self.now_ns(), text))

    def notes(self) -> tuple[tuple[int, str], ...]:
        """Return (moment, note) of every mark, oldest first."""
        return tuple(self._marks)

    @property
    def _is_over(self) -> bool:
        return self._run.result is not None and not self._ahead

    def _measure(self) -> None:
        """Note how far the run has come by now; forget what is older than the measured time."""
        now_ns = self._clock()
        self._reached.append((now_ns, self._shown_ns))
        while len(self._reached) > 2 and now_ns - self._reached[1][0] >= MEASURED_NS:
            self._reached.popleft()

    def _speed_reached(self) -> float | None:
        """Return the measured speed if it is too low; None without one, or if the run keeps up."""
        if len(self._reached) < 2 or self._is_over:
            return None
        (begin_ns, first_ns), (end_ns, last_ns) = self._reached[0], self._reached[-1]
        if end_ns - begin_ns < MEASURED_NS:
            return None
        speed = (last_ns - first_ns) / (end_ns - begin_ns)
        return speed if speed < KEEPS_UP * self._speed else None

    def _hold(self, moment_ns: int) -> None:
        self._shown_ns = moment_ns
        self._anchor_ns = self._clock()

    def _begin_again(self) -> None:
        self._run = ObservedRun(self._options)
        self._ahead.clear()
        self._released.clear()
        self._restart = True
        self._said_end = False
        self._caption = self._about
        self._hold(START_NS)

    def _simulate(self, until_ns: int, work_s: float) -> None:
        """Continue the run, and remember the moments of its events."""
        for seen in self._run.advance(until_ns, work_s):
            self._ahead.append(seen)
            if (
                isinstance(seen.item, NodeEvent)
                and len(self._moments) < MAX_MOMENTS
                and (not self._moments or seen.time_ns > self._moments[-1])
            ):
                self._moments.append(seen.time_ns)

    def _show_until(self, moment_ns: int) -> None:
        """Show everything up to a moment; the clock waits for the run, not the other way round."""
        self._simulate(moment_ns, WORK_S)
        self._hold(min(moment_ns, self._run.now_ns))
        self._release()

    def _release(self) -> None:
        """Hand on everything up to the shown moment."""
        while self._ahead and self._ahead[0].time_ns <= self._shown_ns:
            self._released.append(self._ahead.popleft())

    def _step_forward(self) -> bool:
        end = time.monotonic() + STEP_S
        while True:
            for seen in self._ahead:
                if isinstance(seen.item, NodeEvent) and seen.time_ns > self._shown_ns:
                    self._hold(seen.time_ns)
                    self._release()
                    return True
            if self._run.result is not None or time.monotonic() >= end:
                self._hold(max(self._shown_ns, self._run.now_ns))
                self._release()
                return False
            self._simulate(self._run.now_ns + 1_000_000_000, WORK_S)

    def _drain(self) -> Update:
        restart, self._restart = self._restart, False
        caption, self._caption = self._caption, None
        notices: list[FeedNotice] = []
        snapshots: list[ReceivedSnapshot] = []
        events: list[NodeEvent] = []
        for time_ns, item in ((seen.time_ns, seen.item) for seen in self._released):
            if isinstance(item, NodeSnapshot):
                snapshots.append(ReceivedSnapshot(item, time_ns))
            elif isinstance(item, Gone):
                notices.append(FeedNotice(NoticeKind.NODE_LOST, time_ns, "its run has ended", item.node))
            else:
                events.append(item)
        self._released.clear()
        if self._is_over and not self._said_end:
            self._said_end = True
            self._end_ns = self._shown_ns
            notices.append(FeedNotice(NoticeKind.END, self._end_ns, "the run is over"))
            caption = self._verdict()
        return Update(tuple(snapshots), tuple(events), tuple(notices), caption, restart=restart)

    def _verdict(self) -> str:
        result = self._run.result
        assert result is not None
        first = f"{self._about} " if self._about else ""
        if result.violation is not None:
            return f"{first}It broke an invariant: {str(result.violation).splitlines()[0]}"
        return f"{first}It settled {result.statistics.settled_s:g} s after healing, and all checkers agree."
