"""Writes the updates of a feed to a recording of bounded size.

The current file is `FILE`; full ones become `FILE.1`, `FILE.2` and so on. The oldest has the highest
number, and is removed when there are too many.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Final

from engine.persistence.service.replica_view import ReplicaView
from engine.runtime.monitor import NodePast, NodeSnapshot
from ospltool.live.expectation import NOTHING, Expectation
from ospltool.live.feed import ENDING, FeedNotice, NoticeKind, Update
from ospltool.live.nodes import outline
from ospltool.live.record_file import (
    PAUSE_NS,
    Caption,
    Item,
    Key,
    RecordingFault,
    RecordingHeader,
    SenderKind,
    Shown,
    Snapshots,
    encode_line,
    key_of,
)
from ospltool.live.supervision import LocalView
from ospltool.output.streams import new_bytes

MAX_FILE_BYTES: Final = 64 * 1024 * 1024
MAX_FILES: Final = 16
KEY_EVERY_NS: Final = 60_000_000_000
"""Time between two keys: the most that a reader who jumps must read before the moment it wants."""

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
    """Limits of a recording: size and number of files, least time between snapshots of one sender."""

    max_file_bytes: int = MAX_FILE_BYTES
    max_files: int = MAX_FILES
    every_ns: int = 1_000_000_000


@dataclasses.dataclass(slots=True)
class RecordingTally:
    """Counts of what was written, and of what was not: `thinned` snapshots came too soon after another.

    `failures` counts how often the feed failed, so that for a while nothing was heard. `messages_left_out`
    counts what the feed received and did not pass on: refused, not readable, or too much. `heard` counts
    views of nodes and of persistence services; `refused` says why those of others do not count.
    """

    lines: int = 0
    bytes: int = 0
    files: int = 0
    thinned: int = 0
    lost: int = 0
    failures: int = 0
    messages_left_out: int = 0
    heard: int = 0
    refused: str = ""


class Recorder:
    """A recording that grows.

    Args:
        path: the file; an existing one is rotated, not overwritten.
        source: name of the recorded system, for the header.
        made_by: name and version of the program.
        limits: size and thinning.
        expected: what should be there, for the header.

    Raises:
        RecordingFault: the file cannot be written.
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
        self._snapshots = Snapshots()
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
        self._size = 0
        self._broken_until_ns = 0
        self._pending = bytearray()
        self._torn = False
        self.problem = ""
        self.tally = RecordingTally()
        try:
            if path.exists() and path.stat().st_size:
                self._rotate()
            self._file = new_bytes(path, force=True, buffering=0)
        except OSError as error:
            raise RecordingFault(f"{path}: {error.strerror or error}") from error
        self.tally.files += 1

    def write(self, update: Update, now_ns: int) -> None:
        """Append an update. A failed write does not end the recording: `problem` describes it."""
        self.tally.messages_left_out = max(self.tally.messages_left_out, update.dropped)
        self.tally.heard += len(update.snapshots) + len(update.replicas)
        for notice in update.notices:
            if notice.kind is NoticeKind.UNPROVED:
                self.tally.refused = notice.text
        self.tally.failures += sum(one.kind is NoticeKind.WATCH_FAILED for one in update.notices)
        if now_ns < self._broken_until_ns:
            shown = len(update.snapshots) + len(update.replicas)
            self.tally.lost += shown + len(update.events) + len(update.notices)
            return
        if now_ns - self._written_ns > PAUSE_NS:
            self._key_due_ns = 0
        try:
            self._write(update, now_ns)
            self._flush()
            self.problem, self._written_ns = "", now_ns
        except OSError as error:
            self.problem = f"{self._path}: {error.strerror or error}"
            self.tally.lost += self._pending.count(b"\n")
            self._pending.clear()
            self._broken_until_ns = now_ns + RETRY_NS
            self._key_due_ns = 0

    def close(self) -> None:
        """Finish the file. A second call does nothing."""
        if not self._file.closed:
            try:
                self._file.close()
            except OSError as error:
                self.problem = f"{self._path}: {error.strerror or error}"

    def _write(self, update: Update, now_ns: int) -> None:
        self._note(update)
        if self._size >= self._limits.max_file_bytes:
            self._file.close()
            self._rotate()
            self._file = new_bytes(self._path, force=True, buffering=0)
            self.tally.files += 1
            self._torn = False
            self._size = 0
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
        self._line(heard_ns, self._snapshots.encode(shown))

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
        if not self._size:
            self._line(now_ns, self._header)
        states = self._snapshots.states()
        nodes = sum(1 for state in states if state.of is SenderKind.NODE)
        is_resumed = now_ns - self._written_ns > PAUSE_NS
        self._line(now_ns, Key(nodes, len(states) - nodes, is_resumed))
        for state in states:
            heard_ns = self._last_ns.get((state.of, state.plain["id"]), now_ns)
            self._line(min(heard_ns, now_ns), state)
        repeated: list[Item] = [*self._gone.values(), *self._lasting.values(), *self._pasts.values()]
        repeated += [self._local] if self._local != LocalView() else []
        for item in repeated:
            self._line(now_ns, item)
        if self._caption:
            self._line(now_ns, Caption(self._caption))
        self._key_due_ns = now_ns + KEY_EVERY_NS

    def _line(self, heard_ns: int, item: Item) -> None:
        line = encode_line(heard_ns, item)
        self._pending += line
        self._size += len(line)

    def _flush(self) -> None:
        """Write the pending lines. After a write that failed within a line, end that line first."""
        if not self._pending:
            return
        if self._torn:
            self._pending[:0] = b"\n"
        whole = len(self._pending)
        lines = self._pending.count(b"\n")
        while self._pending:
            self._torn = True
            written = self._file.write(self._pending)
            del self._pending[:written]
        self._torn = False
        self.tally.lines += lines
        self.tally.bytes += whole

    def _rotate(self) -> None:
        """Give every file the next number, and remove the oldest if there are too many."""
        part_of(self._path, self._limits.max_files - 1).unlink(missing_ok=True)
        for number in range(self._limits.max_files - 2, -1, -1):
            part = part_of(self._path, number)
            if part.exists():
                part.replace(part_of(self._path, number + 1))


def _form(shown: NodeSnapshot | ReplicaView) -> tuple[object, ...]:
    """Return what is written as soon as it changes: all but how much there is of everything."""
    if isinstance(shown, ReplicaView):
        return (shown.ending,)
    talks = tuple([(one.id, one.communication) for one in shown.fellows])
    return shown.started_ns, shown.state, shown.store.problem, talks, outline(shown, ())


def part_of(path: Path, number: int) -> Path:
    """Return the file with this number; 0 is the current one."""
    return path.with_name(f"{path.name}.{number}") if number else path


def parts_of(path: Path) -> list[Path]:
    """Return all files of a recording, oldest first. A path that ends in a number has only itself."""
    older = []
    for number in range(1, MAX_FILES * 100):
        part = part_of(path, number)
        if not part.exists():
            break
        older.append(part)
    return [*reversed(older), path]
