"""Recordings: JSON lines, each a monitor message, a notice or a caption, with the moment it was heard.

A line is an ordinary monitor message (see `engine.runtime.monitor`) with `heard_ns` beside it, or one of the
kinds below. Lines are in the order of `heard_ns`.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from engine.core import plain
from engine.runtime import monitor
from engine.runtime.monitor import NodeEvent
from ospltool.live.feed import Heard, Inbox, Notice, NoticeKind, Update

MAX_LINE_BYTES: Final = 64 * 1024 * 1024
MAX_LINES_PER_POLL: Final = 20_000
"""A longer stretch of a recording is read in several polls, so that a reader never waits long."""


class RecordingFault(ValueError):
    """A recording that can not be read; the text names file and line."""


@dataclasses.dataclass(frozen=True, slots=True)
class Caption:
    """A sentence for the reader."""

    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """One line of a recording."""

    heard_ns: int
    item: Heard | NodeEvent | Notice | Caption


def encode_line(heard_ns: int, item: Heard | NodeEvent | Notice | Caption) -> bytes:
    """One line with its line end."""
    if isinstance(item, Heard):
        document = json.loads(monitor.encode(item.snapshot))
    elif isinstance(item, NodeEvent):
        document = json.loads(monitor.encode(item))
    else:
        kind = "notice" if isinstance(item, Notice) else "caption"
        document = {
            "format_version": monitor.FORMAT_VERSION,
            "kind": kind,
            "data": plain.to_plain(item),
        }
    document["heard_ns"] = heard_ns
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def decode_line(line: bytes, where: str) -> Entry:
    """The entry in `line`; `where` names file and line in an error.

    Raises:
        RecordingFault: not a line of a recording.
    """
    try:
        document: Any = json.loads(line)
        heard_ns = document["heard_ns"]
        if type(heard_ns) is not int:
            raise TypeError(f"heard_ns {heard_ns!r} is not an integer")
        kind = document["kind"]
        if kind == "notice":
            return Entry(heard_ns, plain.from_plain(Notice, document["data"]))
        if kind == "caption":
            return Entry(heard_ns, plain.from_plain(Caption, document["data"]))
        message = monitor.decode(line)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise RecordingFault(f"{where}: not a line of a recording: {error}") from error
    return Entry(heard_ns, message if isinstance(message, NodeEvent) else Heard(message, heard_ns))


class FileFeed:
    """A recording, played from its beginning at the speed at which it was made.

    `clock` gives the time by which it is played, in ns; `speed` makes it faster or slower. A line that can
    not be read is left out, counted in `Update.dropped` and told in a notice.

    Raises:
        RecordingFault: the file can not be read, or does not begin like a recording.
    """

    def __init__(
        self, path: Path, *, speed: float = 1.0, clock: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self.title = f"recording {path.name}"
        self.mode = "recorded"
        self._path = path
        self._speed = speed
        self._clock = clock
        self._line = 0
        self._inbox = Inbox()
        self._ended = False
        try:
            self._file = path.open("rb")
        except OSError as error:
            raise RecordingFault(f"{path}: {error.strerror or error}") from error
        try:
            self._next = self._read(strict=True)
        except RecordingFault:
            self._file.close()
            raise
        self._begin_ns = self._next.heard_ns if self._next else 0
        self._end_ns = self._begin_ns
        self._started_ns = clock()

    def now_ns(self) -> int:
        """The moment of the recording that is shown; it stops at the end."""
        if self._ended:
            return self._end_ns
        return self._begin_ns + int((self._clock() - self._started_ns) * self._speed)

    def poll(self) -> Update:
        """What the recording holds up to now."""
        now_ns = self.now_ns()
        for _ in range(MAX_LINES_PER_POLL):
            entry = self._next
            if entry is None or entry.heard_ns > now_ns:
                break
            self._end_ns = max(self._end_ns, entry.heard_ns)
            if isinstance(entry.item, Caption):
                self._inbox.say(entry.item.text)
            else:
                self._inbox.put(entry.item)
            self._next = self._read()
        if self._next is None and not self._ended:
            self._ended = True
            self._inbox.put(Notice(NoticeKind.END, self._end_ns, "the recording ends here"))
        return self._inbox.drain()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _read(self, *, strict: bool = False) -> Entry | None:
        """The next line that can be read; None at the end. A broken first line is a fault when `strict`."""
        while line := self._file.readline(MAX_LINE_BYTES):
            self._line += 1
            try:
                return decode_line(line, f"{self._path}:{self._line}")
            except RecordingFault as fault:
                if strict:
                    raise
                self._inbox.dropped += 1
                self._inbox.put(Notice(NoticeKind.FAULT, self._end_ns, str(fault)))
        return None
