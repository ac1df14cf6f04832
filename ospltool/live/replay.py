"""A recording as a feed: play it, pause it, step through it, or jump to any moment. It is only read.

What is shown at a moment is a function of the recording and that moment, however one came there: every line
counts, one after the other, from the block before that of the moment (`Recording.block_before`), and
health is examined at fixed moments in between. `played` tells both; a reader who keeps what it had at a
`Bookmark` needs not begin with the block again.

A recording that a recorder still writes can be followed: its end moves on, and at the end it is as live as
the recorder is.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from engine.persistence.service.replica_view import ReplicaView
from engine.runtime.monitor import NodeEvent, NodePast, NodeSnapshot
from ospltool.live.feed import (
    FeedNotice,
    HeardReplica,
    NoticeKind,
    ReceivedSnapshot,
    ReplayPosition,
    Update,
)
from ospltool.live.recording import (
    PAUSE_NS,
    Caption,
    Key,
    ReadLine,
    Recording,
    RecordingHeader,
    RecordingLine,
)
from ospltool.live.supervision import LocalView

# A tenth of a second, after which keys are answered.
MAX_LINES_PER_POLL: Final = 2_000
"""Most lines read, and moments examined, in one poll, so that the console stays responsive."""

SECOND_NS: Final = 1_000_000_000

# As `health.health.UPDATE_NS`.
LOOK_NS: Final = SECOND_NS // 4
"""Time between two looks at the health, as at that of a live system."""

# As `health.system.MEETING_S`.
MEETING_NS: Final = 3 * SECOND_NS
"""Time after a gap of the recording in which the recorder met the nodes again."""

# A gap of a night would otherwise take a hundred thousand looks at nothing.
LONG_NS: Final = 60 * SECOND_NS
"""Time without a line after which the examinations are that far apart."""

# A recorder writes each second; several of its pauses.
QUIET_NS: Final = 5_000_000_000
"""Time without growth after which a followed recording has ended; more may follow all the same."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Bookmark:
    """A place in a recording, and what reading on from there needs.

    Attributes:
        begun: id of the line with which reading had begun for it.
        place: id of its own line.
        reached_ns: the latest moment of the lines before it.
        line_ns: the same, without examinations.
        examined_ns: the moment of the last examination.
        faults: number of lines before it that were unreadable.
    """

    begun: int
    place: int
    reached_ns: int = 0
    line_ns: int = 0
    examined_ns: int = 0
    faults: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Played:
    """One step of a replay: a line as an update, or a moment at which health is to be examined.

    `bookmark` is given with lines from which one may want to read again. `is_resumed` says that nothing was
    recorded until this moment.
    """

    moment_ns: int
    update: Update | None = None
    bookmark: Bookmark | None = None
    is_resumed: bool = False


class ReplayFeed:
    """A recording, and the moment that is shown.

    Args:
        path: the recorder's file.
        speed: factor; 1 plays in real time.
        clock: paces the replay, in ns.
        paused: do not play at first.
        follow: take in what a recorder adds.

    Raises:
        RecordingFault: the file cannot be read, or is no recording.
    """

    mode = "recorded"

    def __init__(
        self,
        path: Path,
        *,
        speed: float = 1.0,
        clock: Callable[[], int] = time.monotonic_ns,
        paused: bool = False,
        follow: bool = False,
    ) -> None:
        self.title = f"recording {path.name}"
        self.speed = speed
        self._clock = clock
        self._recording = Recording(path, follow=follow)
        self._notes = self._recording.marks()
        self._ended = False
        self._paused = paused
        self._goal_ns: int | None = None
        self._grown_ns = clock() - QUIET_NS
        self.begin_ns = self._recording.begin_ns
        self.end_ns = max(self.begin_ns, self._recording.end_ns)
        self._shown_ns = self.begin_ns
        self._anchor_ns = clock()
        self._next: ReadLine | None = None
        self._begun = self._place = self._recording.block_before(0)
        self._reached_ns = self._line_ns = self._examined_ns = 0
        self._resume(None)

    def now_ns(self) -> int:
        """Return the shown moment of the recording: on the way to a target, how far it has come."""
        if self._goal_ns is not None:
            return max(self.begin_ns, self._reached_ns)
        return self._by_clock()

    def poll(self) -> Update:
        """Return what was recorded between the last poll and now, or on the way to a target."""
        restart = self.must_wind_back()
        if restart:
            self.wind_back(None)
        updates = [played.update for played in self.played() if played.update is not None]
        return _joined(updates, restart=restart)

    def close(self) -> None:
        """Close the file."""
        self._recording.close()

    @property
    def timeline(self) -> ReplayPosition:
        """Current position; on the way to a target, that target."""
        marks = tuple(moment_ns for moment_ns, _ in self.notes())
        begin_ns = min(self.begin_ns, self._shown_ns)  # the recorder may have removed what is shown
        now_ns = self.now_ns() if self._goal_ns is None else self._goal_ns
        return ReplayPosition(begin_ns, self.end_ns, now_ns, self._paused, self.speed, marks)

    def pause(self, *, paused: bool) -> None:
        """Pause, or continue from the shown moment."""
        self._hold(self._by_clock())
        self._paused = paused

    def set_speed(self, speed: float) -> None:
        """Change the speed from now on."""
        self._hold(self._by_clock())
        self.speed = speed

    def seek(self, moment_ns: int) -> None:
        """Go to a moment; outside the recording, to its nearest end."""
        self._goal_ns = min(max(moment_ns, self.begin_ns), self.end_ns)

    def step(self, direction: int) -> bool:
        """Pause at the next event, or at the previous one; return False if there is none."""
        now_ns = self.timeline.now_ns
        self.pause(paused=True)
        find = self._recording.event_after if direction > 0 else self._recording.event_before
        moment_ns = find(now_ns)
        if not moment_ns:
            return False
        self.seek(moment_ns)
        return True

    def mark(self, text: str) -> None:
        """Mark the shown moment.

        Raises:
            RecordingFault: the mark cannot be kept.
        """
        self._recording.mark(self.now_ns(), text)
        self._notes = self._recording.marks()

    def notes(self) -> tuple[tuple[int, str], ...]:
        """Return (moment, note) of every mark, oldest first."""
        return self._notes

    @property
    def is_winding(self) -> bool:
        """Whether it is on the way to a target of `seek`."""
        return self._goal_ns is not None

    def must_wind_back(self) -> bool:
        """Return whether what is to be shown does not follow from what was read: `wind_back` comes first."""
        self._grow()
        wanted_ns = self._wanted_ns()
        return wanted_ns < self._reached_ns or self._recording.block_before(wanted_ns) > self._begun

    def wind_back(self, bookmarks: Iterator[Bookmark] | None) -> Bookmark | None:
        """Go to the last of the bookmarks that leads to what is to be shown, else to the begin of its block.

        Returns:
            That bookmark; None if the reader has to forget everything.
        """
        wanted_ns = self._wanted_ns()
        begun = self._recording.block_before(wanted_ns)
        fit = [one for one in bookmarks or () if one.begun == begun and one.reached_ns <= wanted_ns]
        last = max(fit, key=lambda one: one.place, default=None)
        self._goal_ns = wanted_ns
        self._resume(last)
        return last

    def played(self) -> Iterator[Played]:
        """Go on to the moment that is to be shown, or some way if it is far; yield each step."""
        wanted_ns = self._wanted_ns()
        # Bounded, because keys of the console are answered between two polls only.
        for _ in range(MAX_LINES_PER_POLL):
            read = self._next = self._next or self._recording.read(self._place)
            for problem in read.faults:
                yield self._fault(problem)
            self._next, self._place = read._replace(faults=()), read.id
            line = read.line
            until_ns = wanted_ns if line is None else min(wanted_ns, line.heard_ns)
            due_ns = self._due_ns()
            if due_ns < until_ns and not (due_ns > self._line_ns + LOOK_NS and self._is_after_gap(line)):
                self._examined_ns = due_ns
                self._reached_ns = max(self._reached_ns, due_ns)
                yield Played(due_ns)
            elif line is None or line.heard_ns > wanted_ns:
                self._next = self._next if line is not None else None
                yield from self._arrive(wanted_ns)
                return
            else:
                yield from self._take(line)
                self._place, self._next = read.after, None
        if self._goal_ns is None:
            self._hold(self._reached_ns)  # the clock waits for the reader, not the other way round

    def _arrive(self, wanted_ns: int) -> Iterator[Played]:
        if self._goal_ns == wanted_ns:  # unless there was another jump meanwhile
            self._hold(wanted_ns)
            self._goal_ns = None
        self._reached_ns = max(self._reached_ns, wanted_ns)
        is_quiet = self._clock() - self._grown_ns >= QUIET_NS
        if self._next is None and not self._ended and is_quiet and wanted_ns >= self.end_ns:
            self._hold(self.end_ns)
            self._ended = True
            yield self._said(FeedNotice(NoticeKind.END, self.end_ns, "the recording ends here"))

    def _wanted_ns(self) -> int:
        return self._by_clock() if self._goal_ns is None else self._goal_ns

    def _by_clock(self) -> int:
        if self._paused or self._ended:
            return self._shown_ns
        elapsed = int((self._clock() - self._anchor_ns) * self.speed)
        return min(self._shown_ns + elapsed, self.end_ns)

    def _due_ns(self) -> int:
        """Return the moment of the next look at the health."""
        if not self._line_ns:
            return self.end_ns
        due_ns = (self._examined_ns // LOOK_NS + 1) * LOOK_NS
        return due_ns if due_ns - self._line_ns <= LONG_NS else (self._examined_ns // LONG_NS + 1) * LONG_NS

    def _resume(self, bookmark: Bookmark | None) -> None:
        begun = self._recording.block_before(self._wanted_ns())
        mark = bookmark or Bookmark(begun, begun)
        self._begun, self._place = mark.begun, mark.place
        self._reached_ns, self._line_ns, self._examined_ns = mark.reached_ns, mark.line_ns, mark.examined_ns
        self._faults = mark.faults
        self._next = None
        self._ended = False

    def _is_after_gap(self, line: RecordingLine | None) -> bool:
        """Return whether a line is the first one after a time in which nothing was recorded."""
        if line is None or not self._line_ns or line.heard_ns - self._line_ns <= PAUSE_NS:
            return False
        if isinstance(line.item, FeedNotice) and line.item.kind is NoticeKind.WATCH_BACK:
            return True
        return isinstance(line.item, RecordingHeader) or (isinstance(line.item, Key) and line.item.is_resumed)

    def _take(self, line: RecordingLine) -> Iterator[Played]:
        """Take in one line."""
        item, is_resumed = line.item, self._is_after_gap(line)
        if is_resumed:
            self._examined_ns = line.heard_ns + MEETING_NS
        bookmark = None
        if isinstance(item, Key):
            bookmark = Bookmark(
                self._begun, self._place, self._reached_ns, self._line_ns, self._examined_ns, self._faults
            )
        self._examined_ns = self._examined_ns or line.heard_ns
        self._line_ns = max(self._line_ns, line.heard_ns)
        self._reached_ns = max(self._reached_ns, line.heard_ns)
        if is_resumed:
            yield Played(self._reached_ns, is_resumed=True)
        if bookmark is not None:
            yield Played(self._reached_ns, bookmark=bookmark)
        elif isinstance(item, FeedNotice):
            yield self._said(item)
        elif isinstance(item, Caption):
            yield self._told(Update(caption=item.text))
        elif isinstance(item, NodeEvent):
            yield self._told(Update(events=(item,)))
        elif isinstance(item, NodePast):
            yield self._told(Update(pasts=(item,)))
        elif isinstance(item, LocalView):
            yield self._told(Update(local=item))
        elif isinstance(item, NodeSnapshot):
            yield self._told(Update((ReceivedSnapshot(item, line.heard_ns),)))
        elif isinstance(item, ReplicaView):
            yield self._told(Update(replicas=(HeardReplica(item, line.heard_ns),)))

    def _told(self, update: Update) -> Played:
        return Played(self._reached_ns, update)

    def _said(self, notice: FeedNotice) -> Played:
        return self._told(Update(notices=(notice,), dropped=self._faults))

    def _fault(self, text: str) -> Played:
        self._faults += 1
        return self._said(FeedNotice(NoticeKind.FAULT, max(self.begin_ns, self._reached_ns), text))

    def _grow(self) -> None:
        """Take in what a recorder has added."""
        if not self._recording.grow():
            return
        self._grown_ns = self._clock()
        was_empty = not self.begin_ns
        self.begin_ns = self._recording.begin_ns
        self.end_ns = max(self.begin_ns, self.end_ns, self._recording.end_ns)
        if was_empty:
            self._hold(self.begin_ns)
        elif self._ended:
            self._hold(self.end_ns)
        self._ended = False

    def _hold(self, moment_ns: int) -> None:
        self._shown_ns = moment_ns
        self._anchor_ns = self._clock()


def _joined(updates: list[Update], *, restart: bool) -> Update:
    captions = [one.caption for one in updates if one.caption is not None]
    snapshots: list[ReceivedSnapshot] = [heard for one in updates for heard in one.snapshots]
    return Update(
        snapshots=tuple(snapshots),
        events=tuple(event for one in updates for event in one.events),
        notices=tuple(notice for one in updates for notice in one.notices),
        caption=captions[-1] if captions else None,
        dropped=max((one.dropped for one in updates), default=0),
        restart=restart,
        replicas=tuple(heard for one in updates for heard in one.replicas),
        pasts=tuple(past for one in updates for past in one.pasts),
        local=next((one.local for one in reversed(updates) if one.local is not None), None),
    )
