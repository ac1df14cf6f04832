"""A recording as a feed: play it, pause it, step through it, or jump to any moment. It is only read.

A recording that a recorder still writes can be followed: its end moves on, and at the end it is as live as
the recorder is.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from engine.core.plain import PlainFault
from engine.runtime.monitor import NodeEvent, NodePast
from ospltool.live.feed import (
    FeedNotice,
    HeardReplica,
    Inbox,
    NoticeKind,
    ReceivedSnapshot,
    ReplayPosition,
    Update,
)
from ospltool.live.moments import Marks
from ospltool.live.record_file import (
    Caption,
    Delta,
    PatchFault,
    RecordedState,
    RecordingFault,
    RecordingLine,
    Shown,
    Snapshots,
)
from ospltool.live.recording_files import RecordingFiles

MAX_LINES_PER_POLL: Final = 5_000
"""Most lines read in one poll, so that the console stays responsive."""

LEAD_NS: Final = 600_000_000_000
"""Time before the target of a jump that is read too, so that events and histories lead up to it."""

THIN_NS: Final = 5_000_000_000
"""Least time between two snapshots of one node in that lead."""

MAX_LEAD: Final = 2_000
"""Approximate number of snapshots in a lead; with many nodes they are further apart."""

NEAR_NS: Final = 20_000_000_000
"""Time before the target in which none is left out, so that the gaps between snapshots are true."""

MAX_NEAR: Final = 1_000
"""Approximate number of snapshots in that time; with many nodes it is shorter."""

QUIET_NS: Final = 5_000_000_000
"""Time without growth after which a followed recording has ended; more may follow all the same."""

MAX_JUMP_LINES: Final = 2_000_000
"""The most lines read after a jump."""


class ReplayFeed:
    """A recording, and the moment that is shown.

    Args:
        path: the recorder's file; its older parts (`.1`, `.2`...) are read too.
        speed: factor; 1 plays in real time.
        clock: paces the replay, in ns.
        paused: do not play at first.
        follow: take in what a recorder adds.

    Raises:
        RecordingFault: the file cannot be read, or does not begin like a recording.
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
        self.marks = Marks(path)
        self._clock = clock
        self._files = RecordingFiles(path, follow=follow)
        self._snapshots = Snapshots()
        self._inbox = Inbox()
        self._lead: list[ReceivedSnapshot | HeardReplica] = []
        self._passed_over: dict[Shown, int] = {}
        self._lines: Iterator[RecordingLine | None] = iter(())
        self._next: RecordingLine | None = None
        self._restart = False
        self._ended = False
        self._paused = paused
        self._faults = 0
        self._grown_ns = clock() - QUIET_NS
        first = self._rewind(0)
        self.begin_ns = first.heard_ns if first else 0
        self.end_ns = max(self.begin_ns, self._files.last_moment())
        self._shown_ns = self.begin_ns
        self._anchor_ns = clock()

    def now_ns(self) -> int:
        """Return the shown moment of the recording; it stops at the end."""
        if self._paused or self._ended:
            return self._shown_ns
        elapsed = int((self._clock() - self._anchor_ns) * self.speed)
        return min(self._shown_ns + elapsed, self.end_ns)

    def poll(self) -> Update:
        """Return what was recorded between the last poll and now."""
        self._grow()
        if not self._paused:
            self._advance(self.now_ns())
        return self._drain()

    def close(self) -> None:
        """Close the files."""
        self._files.close()

    @property
    def timeline(self) -> ReplayPosition:
        """Current position."""
        marks = tuple(mark.time_ns for mark in self.marks.all)
        begin_ns = min(self.begin_ns, self._shown_ns)  # the recorder may have removed what is shown
        return ReplayPosition(begin_ns, self.end_ns, self.now_ns(), self._paused, self.speed, marks)

    def pause(self, *, paused: bool) -> None:
        """Pause, or continue from the shown moment."""
        self._hold(self.now_ns())
        self._paused = paused

    def set_speed(self, speed: float) -> None:
        """Change the speed from now on."""
        self._hold(self.now_ns())
        self.speed = speed

    def seek(self, moment_ns: int) -> None:
        """Jump to a moment; outside the recording, to its nearest end."""
        moment_ns = min(max(moment_ns, self.begin_ns), self.end_ns)
        self._inbox = Inbox()
        self._restart = True
        self._ended = False
        self._rewind(self._files.key_before(moment_ns - LEAD_NS))
        self._passed_over = {}
        self._read_until(moment_ns, thinned=True)
        for key, heard_ns in self._passed_over.items():
            self._hand_on(key, heard_ns)
        self._hold(moment_ns)

    def step(self, direction: int) -> bool:
        """Pause at the next event, or at the previous one; return False if there is none."""
        self.pause(paused=True)
        if direction > 0:
            return self._step_forward()
        moment_ns = self._files.event_before(self._shown_ns)
        if moment_ns is None:
            return False
        self.seek(moment_ns)
        return True

    def mark(self, text: str) -> None:
        """Mark the shown moment.

        Raises:
            RecordingFault: the mark cannot be kept.
        """
        self.marks.add(self.now_ns(), text)

    def notes(self) -> tuple[tuple[int, str], ...]:
        """Return (moment, note) of every mark, oldest first."""
        return tuple((mark.time_ns, mark.text) for mark in self.marks.all)

    def _grow(self) -> None:
        """Take in what a recorder has added."""
        try:
            if not self._files.grow():
                return
        except RecordingFault as fault:
            self._fault(self._shown_ns, str(fault))
            return
        self._grown_ns = self._clock()
        was_empty = not self.begin_ns
        self.begin_ns = self._files.begin_ns
        self.end_ns = max(self.begin_ns, self.end_ns, self._files.last_moment())
        if was_empty:
            self._hold(self.begin_ns)
        elif self._ended:
            self._hold(self.end_ns)
        self._ended = False
        self._next = self._next or next(self._lines, None)

    def _hold(self, moment_ns: int) -> None:
        self._shown_ns = moment_ns
        self._anchor_ns = self._clock()

    def _rewind(self, key: int) -> RecordingLine | None:
        self._snapshots.clear()
        self._lead = []
        self._lines = self._files.entries(key)
        self._next = next(self._lines, None)
        return self._next

    def _step_forward(self) -> bool:
        for _ in range(MAX_JUMP_LINES):
            entry = self._next
            if entry is None:
                return False
            self._take(entry)
            self._next = next(self._lines, None)
            self._hold(max(self._shown_ns, entry.heard_ns))
            if isinstance(entry.item, NodeEvent):
                self._read_until(entry.heard_ns)
                return True
        return False

    def _advance(self, moment_ns: int) -> None:
        done = self._read_until(moment_ns, most=MAX_LINES_PER_POLL)
        if not done and self._next is not None:
            self._hold(self._next.heard_ns)  # the clock waits for the reader, not the other way round
        is_quiet = self._clock() - self._grown_ns >= QUIET_NS
        if self._next is None and not self._ended and is_quiet and moment_ns >= self.end_ns:
            self._hold(self.end_ns)
            self._ended = True
            self._inbox.put(FeedNotice(NoticeKind.END, self.end_ns, "the recording ends here"))

    def _read_until(self, moment_ns: int, *, most: int = MAX_JUMP_LINES, thinned: bool = False) -> bool:
        """Take everything up to a moment; return False if there were more lines than allowed."""
        shown_ns: dict[Shown, int] = {}
        for _ in range(most):
            entry = self._next
            if entry is None or entry.heard_ns > moment_ns:
                return True
            near_ns = min(NEAR_NS, MAX_NEAR * 1_000_000_000 // max(1, len(self._snapshots)))
            is_thinned = thinned and entry.heard_ns < moment_ns - near_ns
            self._take(entry, shown_ns if is_thinned else None, lead=thinned)
            self._next = next(self._lines, None)
        return False

    def _take(
        self, entry: RecordingLine, shown_ns: dict[Shown, int] | None = None, *, lead: bool = False
    ) -> None:
        """Hand on one entry, or with `lead` keep it for after the jump.

        With `shown_ns`, skip states that follow too soon after the sender's last.
        """
        item = entry.item
        if isinstance(item, Caption):
            self._inbox.say(item.text)
        elif isinstance(item, NodeEvent | NodePast | FeedNotice):
            self._inbox.put(item)
        elif isinstance(item, RecordedState | Delta):
            try:
                key = self._snapshots.take(item)
            except PatchFault as fault:
                self._fault(entry.heard_ns, str(fault))
                return
            if shown_ns is None:
                self._passed_over.pop(key, None)
                self._hand_on(key, entry.heard_ns, lead=lead)
            elif entry.heard_ns - shown_ns.get(key, 0) >= self._apart_ns():
                shown_ns[key] = entry.heard_ns
                self._passed_over.pop(key, None)
                self._hand_on(key, entry.heard_ns, lead=True)
            else:
                self._passed_over[key] = entry.heard_ns

    def _hand_on(self, key: Shown, heard_ns: int, *, lead: bool = False) -> None:
        """Hand on the newest state of a node or a replica."""
        try:
            heard = self._snapshots.decode(key, heard_ns)
        except PlainFault as fault:
            self._fault(heard_ns, f"{key[0]} {key[1]}: {fault}")
            return
        if lead:
            self._lead.append(heard)
        else:
            self._inbox.put(heard)

    def _apart_ns(self) -> int:
        """Return the least time between snapshots of one node or replica in a lead."""
        return max(THIN_NS, LEAD_NS * len(self._snapshots) // MAX_LEAD)

    def _fault(self, moment_ns: int, text: str) -> None:
        self._faults += 1
        self._inbox.put(FeedNotice(NoticeKind.FAULT, moment_ns, text))

    def _drain(self) -> Update:
        for fault in self._files.take_faults():
            self._fault(self._shown_ns, fault)
        restart, self._restart = self._restart, False
        self._inbox.dropped += self._faults
        self._faults = 0
        update = self._inbox.drain(restart=restart)
        lead, self._lead = self._lead, []
        if not lead:
            return update
        snapshots = [heard for heard in lead if isinstance(heard, ReceivedSnapshot)]
        replicas = [heard for heard in lead if isinstance(heard, HeardReplica)]
        return dataclasses.replace(
            update,
            snapshots=(*snapshots, *update.snapshots),
            replicas=(*replicas, *update.replicas),
        )
