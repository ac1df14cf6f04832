"""The past of a process: its last events, masterships and runs, for consoles that come late.

A small file beside the store keeps them over a restart. A separate thread writes it and no other waits for
it: a disk that is full, slow or broken costs memory of the past and nothing else.
"""

from __future__ import annotations

import collections
import contextlib
import operator
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, Protocol, TypeVar

import msgspec

from engine.core.untrusted import JsonFault, json_reader
from engine.files import open_private, replacing
from engine.runtime.monitor import Masterhood, NodeEvent, NodePast, NodeSnapshot, Run, read, written
from engine.tracing.levels import Level
from engine.tracing.record import EventRecord

FILE: Final = "store.past"
"""Name of the file in the directory of the store."""
# Chosen: a few screenfuls. The whole is in the trace.
MAX_CALM: Final = 200
"""Events of INFO that are kept."""
MAX_GRAVE: Final = 100
"""Events of WARNING and above that are kept: a flood of INFO does not push them out.

Nor does a flood of one kind push out others, so that a stranger who provokes warnings cannot hide any.
"""
MAX_MASTERSHIPS: Final = 50
"""Changes of masters that are kept: enough for hours of trouble, and few kilobytes of each publication."""
# Chosen: enough to see that a node starts again and again.
MAX_RUNS: Final = 20
"""Runs of the node whose beginning and end are kept."""
# A few lines of a terminal; a reason may quote a text of somebody else.
MAX_TEXT: Final = 400
"""Characters kept of an event's text and of the reason of a mastership."""
# `MAX_CALM` and `MAX_GRAVE` events of the longest text have about a fifth of it, so it is rewritten seldom.
MAX_FILE_BYTES: Final = 1 << 20
"""Size at which the file is rewritten with only what is kept."""
RETRY_S: Final = 10.0
"""Pause after the disk refused the file. Nobody waits for it, and the store needs the disk more."""
BEAT_S: Final = 1.0
"""Longest time for which the writing thread waits before it beats."""
CLOSE_S: Final = 1.0
"""Seconds that the end of the process waits for the file."""
IN_ORDER: Final = "in order"
UNKNOWN_END: Final = "without a word: killed, crashed, or its host went down"


class Busy(Protocol):
    """What a deadlock watch wants to know of the writing thread (`engine.dds.activity.Work`)."""

    def __enter__(self) -> object:
        """Begin a piece of work."""

    def __exit__(self, *_: object) -> None:
        """End it."""

    def beat(self) -> None:
        """Show that the thread is alive while it has no work."""


ACTIVITY: Final = "past (writes store.past)"
"""Name of the thread for the deadlock watch, which reports its hang and keeps the lease."""

_VERSION: Final = 1
Entry = NodeEvent | Masterhood | Run
_NAMES: Final[dict[type[Entry], str]] = {NodeEvent: "event", Masterhood: "master", Run: "run"}
_READERS: Final = {name: json_reader(kind) for kind, name in _NAMES.items()}
_EVENT: Final = operator.attrgetter("event")
T = TypeVar("T")


def without_surplus(items: Sequence[T], most: int, sort_of: Callable[[T], object]) -> list[T]:
    """Return the newest items up to a number; those of which there are most give way, the oldest first.

    Args:
        items: the oldest first.
        most: the number that may stay.
        sort_of: returns what tells the items apart: who sent them, or what they are about.
    """
    if len(items) <= most:
        return list(items)
    counts = collections.Counter(map(sort_of, items))
    room, sorts, each = most, len(counts), 0
    for count in sorted(counts.values()):
        each = room // sorts
        if count > each:
            break
        room, sorts = room - count, sorts - 1
    rest, kept, seen = room - each * sorts, list[T](), collections.Counter[object]()
    for item in reversed(items):
        sort = sort_of(item)
        is_one_more = seen[sort] == each and rest > 0
        if seen[sort] < each or counts[sort] <= each or is_one_more:
            rest -= is_one_more and counts[sort] > each
            seen[sort] += 1
            kept.append(item)
    return kept[::-1]


class Past:
    """The memory of one process. Safe to call from any thread; nothing here waits for the disk.

    Args:
        path: the file; None keeps the past in memory only.
        clock: wall clock, nanoseconds since 1970 UTC.
        pid: id of the process.
        version: version of the program.
    """

    def __init__(self, path: Path | None, clock: Callable[[], int], *, pid: int, version: str) -> None:
        self._clock = clock
        self._lock = threading.Lock()  # any thread that traces an event calls `event`
        self._calm: list[NodeEvent] = []
        self._grave: list[NodeEvent] = []
        self._masterships: collections.deque[Masterhood] = collections.deque(maxlen=MAX_MASTERSHIPS)
        self._runs: collections.deque[Run] = collections.deque(maxlen=MAX_RUNS)
        self._run = Run(clock(), pid, version)
        self._runs.append(self._run)
        self._masters: dict[str, tuple[str, str]] = {}
        self._writer = _Writer(path, self._all) if path else None
        self.revision = 0

    def open(self, busy: Busy | None = None) -> Run | None:
        """Read the past of former runs and begin to write; return the previous run, if known.

        This process must own the store by now. A second call only changes `busy` and returns None.

        Args:
            busy: takes note of each piece of work of the writing thread, for a deadlock watch.
        """
        if self._writer is None:
            return None
        self._writer.busy = busy
        if self._writer.is_open:
            return None
        former = dict.fromkeys(_read(self._writer.path))  # a line may occur twice
        with self._lock:
            recent = [*self._calm, *self._grave]
            self._calm.clear()
            self._grave.clear()
            self._runs.clear()
            events = [one for one in former if isinstance(one, NodeEvent)]
            for event in (*events, *recent):
                self._remember(event)
            self._masterships.extend(one for one in former if isinstance(one, Masterhood))
            last_ns = max((event.time_ns for event in events), default=0)
            runs = {one.started_ns: one for one in former if isinstance(one, Run)}
            for run in runs.values():
                self._runs.append(_ended(run, last_ns))
            before = self._runs[-1] if self._runs else None
            self._runs.append(self._run)
            self.revision += 1
        self._writer.open()
        return before

    def event(self, record: EventRecord) -> None:
        """Keep a traced event of INFO or above."""
        if record.event.level >= Level.INFO:
            kind = record.event
            self._add(
                NodeEvent(
                    "", "", record.sequence, record.time_ns, record.state, kind.thread, kind.level.name,
                    kind.id, record.text[:MAX_TEXT],
                )
            )  # fmt: skip

    def note(self, text: str, event: str) -> None:
        """Keep a sentence of a process without a trace, as an event of INFO."""
        with self._lock:
            number = self.revision + 1
        self._add(NodeEvent("", "", number, self._clock(), "", "", Level.INFO.name, event, text[:MAX_TEXT]))

    def masters(self, shown: NodeSnapshot) -> None:
        """Keep the masters that a snapshot confirms, if they have changed."""
        for view in shown.name_spaces:
            now = view.master, view.epoch
            if not view.confirmed or not view.master or self._masters.get(view.name) == now:
                continue
            self._masters[view.name] = now
            since_ns = view.master_since_ns or shown.time_ns
            self._add(
                Masterhood(since_ns, view.name, shown.role, view.master, view.epoch, view.why[:MAX_TEXT])
            )

    def end(self, how: str) -> None:
        """Note the end of this run: "in order", or the reason."""
        with self._lock:
            ended = msgspec.structs.replace(self._run, ended_ns=self._clock(), end=how[:MAX_TEXT])
            self._runs[-1] = self._run = ended
            self.revision += 1
        self._write(ended)

    def shown(self, node: str, name: str) -> NodePast:
        """Return everything, in the name of a node or service."""
        with self._lock:
            # Calm and grave ones are kept apart; the number decides where a clock was set back or two have
            # one time.
            events = sorted((*self._calm, *self._grave), key=lambda event: (event.time_ns, event.number))
            return NodePast(
                node,
                name,
                tuple(msgspec.structs.replace(event, node=node, node_name=name) for event in events),
                tuple(self._masterships),
                tuple(self._runs),
            )

    def close(self) -> None:
        """Write the rest, waiting for the disk at most `CLOSE_S`."""
        if self._writer:
            self._writer.close()

    def _add(self, entry: NodeEvent | Masterhood) -> None:
        with self._lock:
            if isinstance(entry, NodeEvent):
                self._remember(entry)
            else:
                self._masterships.append(entry)
            self.revision += 1
        self._write(entry)

    def _remember(self, event: NodeEvent) -> None:
        if event.level == Level.INFO.name:
            self._calm = without_surplus([*self._calm, event], MAX_CALM, _EVENT)
        else:
            self._grave = without_surplus([*self._grave, event], MAX_GRAVE, _EVENT)

    def _write(self, entry: Entry) -> None:
        if self._writer:
            self._writer.put(_line(entry))

    def _all(self) -> bytes:
        with self._lock:
            kept: Iterable[Entry] = (*self._runs, *self._masterships, *self._calm, *self._grave)
            return b"".join(map(_line, kept))


class _Writer:
    """The thread that appends to the file; `whole` returns its whole content."""

    def __init__(self, path: Path, whole: Callable[[], bytes]) -> None:
        self.path = path
        self._whole = whole
        self._lines: collections.deque[bytes] = collections.deque()
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self.busy: Busy | None = None

    @property
    def is_open(self) -> bool:
        return self._thread is not None

    def open(self) -> None:
        self._thread = threading.Thread(target=self._run, name="past", daemon=True)
        self._thread.start()

    def put(self, line: bytes) -> None:
        if self._thread is not None and len(self._lines) <= MAX_CALM:  # beyond, the file is rewritten
            self._lines.append(line)
            self._wake.set()

    def close(self) -> None:
        self._closing.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(CLOSE_S)

    def _run(self) -> None:
        is_whole = False
        while True:
            is_last = self._closing.is_set()
            self._wake.clear()
            lines = [self._lines.popleft() for _ in range(len(self._lines))]
            try:
                with self.busy or contextlib.nullcontext():
                    if not is_whole or len(lines) > MAX_CALM or self.path.stat().st_size > MAX_FILE_BYTES:
                        self._replace()
                    elif lines:
                        self._append(b"".join(lines))
                is_whole = True
            except OSError:  # the next rewrite has the missing lines
                is_whole = False
            if is_last:
                return
            if is_whole:
                self._wait(self._wake, None)
            else:
                self._wait(self._closing, RETRY_S)

    def _wait(self, event: threading.Event, timeout_s: float | None) -> None:
        until_s = None if timeout_s is None else time.monotonic() + timeout_s
        while until_s is None or time.monotonic() < until_s:
            if self.busy:
                self.busy.beat()
            if event.wait(BEAT_S):
                return

    def _append(self, data: bytes) -> None:
        with os.fdopen(open_private(self.path, os.O_WRONLY | os.O_APPEND), "ab", buffering=0) as file:
            if file.write(data) != len(data):
                raise OSError("no room for all of it")

    def _replace(self) -> None:
        with replacing(self.path) as file:
            file.write(self._whole())


def _line(entry: Entry) -> bytes:
    return written(_NAMES[type(entry)], entry) + b"\n"


def _read(path: Path) -> Iterable[Entry]:
    """Yield the entries of a file; skip lines that are damaged or of another version."""
    try:
        with path.open("rb") as file:
            data = file.read(2 * MAX_FILE_BYTES)
    except OSError:  # the past is for people: a node starts without it
        return
    for line in data.splitlines():
        # A line that was torn by a crash: the others are readable.
        with contextlib.suppress(JsonFault):
            entry: Entry = read(line, _READERS)
            yield entry


def _ended(run: Run, last_ns: int) -> Run:
    """Return a former run; one without a noted end ended with the last known event."""
    if run.ended_ns:
        return run
    return msgspec.structs.replace(run, ended_ns=max(run.started_ns, last_ns), end=UNKNOWN_END)
