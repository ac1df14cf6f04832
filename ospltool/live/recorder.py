"""Writes the updates of a feed to a recording of bounded size (see `ospltool.live.recording`)."""

from __future__ import annotations

import dataclasses
import os
import sqlite3
from pathlib import Path
from typing import Final

from engine.files import lock_file
from engine.persistence.service.replica_view import ReplicaView
from engine.runtime.monitor import NodePast, NodeSnapshot
from ospltool.live.expectation import NOTHING, Expectation
from ospltool.live.feed import ENDING, FeedNotice, NoticeKind, Update
from ospltool.live.nodes import outline
from ospltool.live.recording import (
    PAUSE_NS,
    Caption,
    Item,
    Key,
    RecordingFault,
    RecordingHeader,
    SenderKind,
    Shown,
    created,
    encoded,
    key_of,
)
from ospltool.live.supervision import LocalView

# Some days of three nodes. The oldest is dropped at this size, so a forgotten recorder fills no disk.
MAX_BYTES: Final = 1024 * 1024 * 1024

# Dropping and compressing go by blocks; smaller ones compress worse.
BLOCK_BYTES: Final = 4 * 1024 * 1024
"""Size of a block: a quarter of an hour of three nodes, and seconds to read."""

# So that never more than an eighth of the time is lost at once.
LEAST_BLOCKS: Final = 8
"""Blocks that a recording has at least when it is full: the oldest is removed whole."""

# A key holds all nodes: more often makes the file larger, more seldom makes winding back slower.
KEY_EVERY_NS: Final = 60_000_000_000
"""Time between two keys: the most that a reader who winds back reads again."""

# A full disk is full for longer; each attempt may block.
RETRY_NS: Final = 10_000_000_000
"""Time until the next attempt after a failed write; updates in between are counted as lost."""

_ENDED_BY: Final = {
    NoticeKind.DOMAIN_LOST: NoticeKind.DOMAIN_FOUND,
    NoticeKind.LINK_LOST: NoticeKind.LINK_FOUND,
    NoticeKind.ROUTE_LOST: NoticeKind.ROUTE_FOUND,
    NoticeKind.WATCH_FAILED: NoticeKind.WATCH_BACK,
}
"""Notices that a key repeats until another one ends what they say."""

_LOST: Final = {NoticeKind.NODE_LOST: SenderKind.NODE, NoticeKind.REPLICA_LOST: SenderKind.REPLICA}


@dataclasses.dataclass(frozen=True, slots=True)
class RecordingLimits:
    """Limits of a recording: size of the file, least time between snapshots of one sender."""

    max_bytes: int = MAX_BYTES
    # As nodes send; less is not new.
    every_ns: int = 1_000_000_000

    @property
    def block_bytes(self) -> int:
        """Size from which a block is full."""
        return min(BLOCK_BYTES, self.max_bytes // LEAST_BLOCKS)


@dataclasses.dataclass(slots=True)
class RecordingTally:
    """Counts of what was written, and of what was not: `thinned` snapshots came too soon after another.

    `failures` counts how often the feed failed, so that for a while nothing was heard. `messages_left_out`
    counts what the feed received and did not pass on: refused, not readable, or too much. `heard` counts
    views of nodes and of persistence services; `refused` says why those of others do not count.
    """

    lines: int = 0
    bytes: int = 0
    thinned: int = 0
    lost: int = 0
    failures: int = 0
    messages_left_out: int = 0
    heard: int = 0
    refused: str = ""


class Recorder:
    """A recording that grows.

    Args:
        path: the file; an existing recording is continued.
        source: name of the recorded system, for the header.
        made_by: name and version of the program.
        limits: size and thinning.
        expected: what should be there, for the header.

    Raises:
        RecordingFault: the file cannot be written, is no recording, or another recorder writes it.
    """

    def __init__(
        self,
        path: Path,
        *,
        source: str,
        made_by: str,
        limits: RecordingLimits | None = None,
        expected: Expectation = NOTHING,
    ) -> None:
        self._path = path
        self._header = RecordingHeader(source, made_by, expected)
        self._limits = limits or RecordingLimits()
        self._states: dict[Shown, tuple[int, str, bytes]] = {}
        self._gone: dict[Shown, FeedNotice] = {}
        self._ending: set[str] = set()
        self._said_ns: dict[str, int] = {}
        self._pasts: dict[str, NodePast] = {}
        self._last_ns: dict[Shown, int] = {}
        self._forms: dict[Shown, tuple[object, ...]] = {}
        self._held: dict[Shown, tuple[NodeSnapshot | ReplicaView, int]] = {}
        self._lasting: dict[NoticeKind, FeedNotice] = {}
        self._local = LocalView()
        self._caption = ""
        self._key_due_ns = 0
        self._written_ns = 0
        self._block_left = 0
        self._broken_until_ns = 0
        self._pending: list[tuple[int, str, bytes]] = []
        self.problem = ""
        self.tally = RecordingTally()
        try:
            self._lock = lock_file(path)
        except BlockingIOError:
            raise RecordingFault(f"{path}: another recorder writes it") from None
        except OSError as error:
            raise RecordingFault(f"{path}: {error.strerror or error}") from error
        try:
            self._file: sqlite3.Connection | None = created(path)
        except BaseException as error:
            os.close(self._lock)
            if isinstance(error, sqlite3.Error | OSError):
                raise RecordingFault(f"{path}: {error}") from error
            raise

    def write(self, update: Update, now_ns: int) -> None:
        """Append an update. A failed write does not end the recording: `problem` describes it."""
        self.tally.messages_left_out = max(self.tally.messages_left_out, update.dropped)
        self.tally.heard += len(update.snapshots) + len(update.replicas)
        for notice in update.notices:
            if notice.kind is NoticeKind.UNPROVED:
                self.tally.refused = notice.text
        self.tally.failures += sum(one.kind is NoticeKind.WATCH_FAILED for one in update.notices)
        self._note(update)
        if now_ns < self._broken_until_ns:
            shown = len(update.snapshots) + len(update.replicas)
            self.tally.lost += shown + len(update.events) + len(update.notices)
            return
        if now_ns - self._written_ns > PAUSE_NS:
            self._key_due_ns = 0
        self._write(update, now_ns)
        try:
            self._flush()
        except sqlite3.Error as error:
            self.problem = f"{self._path}: {error}"
            self.tally.lost += len(self._pending)
            self._broken_until_ns = now_ns + RETRY_NS
            self._key_due_ns = self._block_left = 0
        else:
            self.problem, self._written_ns = "", now_ns
        self._pending.clear()

    def close(self) -> None:
        """Finish the file, which then needs no log beside it. A second call does nothing."""
        file, self._file = self._file, None
        if file is None:
            return
        try:
            file.execute("PRAGMA journal_mode = DELETE")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:  # somebody reads it: the log stays, and is read
                self.problem = f"{self._path}: {error}"
        finally:
            file.close()
            os.close(self._lock)  # not before: closing it releases the locks of SQLite on the file, too

    def _write(self, update: Update, now_ns: int) -> None:
        if self._block_left <= 0:
            self._key_due_ns = 0
        if now_ns >= self._key_due_ns:
            self._write_key(now_ns)
        for heard in update.snapshots:
            self._show(heard.snapshot, heard.heard_ns)
        for replica in update.replicas:
            self._show(replica.view, replica.heard_ns)
        self._show_last(now_ns)
        local = () if update.local is None else (update.local,)
        told: tuple[Item, ...] = (*local, *update.pasts, *update.notices, *update.events)  # as a model does
        for item in told:
            self._line(now_ns, item)
        if update.caption is not None:
            self._line(now_ns, Caption(update.caption))

    def _show(self, shown: NodeSnapshot | ReplicaView, heard_ns: int) -> None:
        key, form = key_of(shown), _form(shown)
        is_soon = heard_ns - self._last_ns.get(key, 0) < self._limits.every_ns
        if is_soon and form == self._forms.get(key):
            self._held[key] = shown, heard_ns
            self.tally.thinned += 1
            return
        self._held.pop(key, None)
        self._forms[key] = form
        self._put(key, shown, heard_ns)

    def _show_last(self, now_ns: int) -> None:
        """Write what came too soon after another, if nothing followed it: nobody is silent any sooner."""
        for key, (shown, heard_ns) in list(self._held.items()):
            if now_ns - heard_ns >= self._limits.every_ns * 3 // 4:
                del self._held[key]
                self.tally.thinned -= 1
                self._put(key, shown, heard_ns)

    def _put(self, key: Shown, shown: NodeSnapshot | ReplicaView, heard_ns: int) -> None:
        self._last_ns[key] = heard_ns
        self._line(heard_ns, shown)
        self._states[key] = self._pending[-1]

    def _note(self, update: Update) -> None:
        """Remember what the next key must repeat."""
        for heard in update.snapshots:
            self._gone.pop(key_of(heard.snapshot), None)
            self._ending.discard(heard.snapshot.id)
            self._said_ns[heard.snapshot.id] = heard.snapshot.time_ns
            if heard.snapshot.state in ENDING:
                self._ending.add(heard.snapshot.id)
        for event in update.events:
            if event.state in ENDING and event.time_ns >= self._said_ns.get(event.node, 0):
                self._ending.add(event.node)
        for notice in update.notices:
            if notice.kind in _ENDED_BY:
                self._lasting[notice.kind] = notice
            for kind in [one for one in self._lasting if _ENDED_BY[one] is notice.kind]:
                del self._lasting[kind]
            if notice.kind in _LOST:
                in_order = notice.in_order or notice.node in self._ending
                self._gone[_LOST[notice.kind], notice.node] = dataclasses.replace(notice, in_order=in_order)
        for replica in update.replicas:
            self._gone.pop(key_of(replica.view), None)
        self._local = update.local or self._local
        self._pasts.update({past.id: past for past in update.pasts})
        if update.caption is not None:
            self._caption = update.caption

    def _write_key(self, now_ns: int) -> None:
        if self._block_left <= 0:
            self._block_left = self._limits.block_bytes
            self._line(now_ns, self._header)
        self._line(now_ns, Key(is_resumed=now_ns - self._written_ns > PAUSE_NS))
        for heard_ns, kind, data in self._states.values():
            self._append((min(heard_ns, now_ns), kind, data))
        repeated: list[Item] = [*self._gone.values(), *self._lasting.values(), *self._pasts.values()]
        repeated += [self._local] if self._local != LocalView() else []
        repeated += [Caption(self._caption)] if self._caption else []
        for item in repeated:
            self._line(now_ns, item)
        self._key_due_ns = now_ns + KEY_EVERY_NS

    def _line(self, heard_ns: int, item: Item) -> None:
        self._append((heard_ns, *encoded(item)))

    def _append(self, row: tuple[int, str, bytes]) -> None:
        self._pending.append(row)
        self._block_left -= len(row[2])

    def _flush(self) -> None:
        """Write the pending lines in one transaction, and remove the oldest block if there are too many."""
        assert self._file is not None, "a recorder that is closed writes nothing"
        if not self._pending:
            return
        try:
            self._file.execute("BEGIN IMMEDIATE")
            if any(kind == "recording" for _, kind, _ in self._pending):
                self._make_room()
            self._file.executemany("INSERT INTO line (heard_ns, kind, data) VALUES (?, ?, ?)", self._pending)
            self._file.execute("COMMIT")
        except BaseException:
            if self._file.in_transaction:  # SQLite has ended it itself if the disk is full
                self._file.execute("ROLLBACK")
            raise
        self.tally.lines += len(self._pending)
        self.tally.bytes += sum(len(data) for _, _, data in self._pending)

    def _make_room(self) -> None:
        """Remove the oldest blocks while what there is and another block are more than the limit.

        SQLite uses their pages again, so the file does not grow.
        """
        assert self._file is not None, "as in `_flush`"
        begin = "SELECT min(id) FROM line WHERE kind = 'recording'"
        while self._used_bytes() + self._limits.block_bytes > self._limits.max_bytes:
            (second,) = self._file.execute(f"{begin} AND id > ({begin})").fetchone()
            if second is None:
                return
            self._file.execute("DELETE FROM line WHERE id < ?", (second,))

    def _used_bytes(self) -> int:
        assert self._file is not None, "as in `_flush`"
        pages, free, size = (
            int(self._file.execute(f"PRAGMA {name}").fetchone()[0])
            for name in ("page_count", "freelist_count", "page_size")
        )
        return (pages - free) * size


def _form(shown: NodeSnapshot | ReplicaView) -> tuple[object, ...]:
    """Return what is written as soon as it changes: all but how much there is of everything."""
    if isinstance(shown, ReplicaView):
        return (shown.ending,)
    talks = tuple([(one.id, one.communication) for one in shown.fellows])
    return shown.started_ns, shown.state, shown.store.problem, talks, outline(shown, ())
