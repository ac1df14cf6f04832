"""Recordings: a SQLite file with what a recorder heard, in the order in which it heard it.

Table `line` has one row for each item: the moment at which it was heard (ns since 1970 UTC), its kind, and
the item itself, a JSON document compressed with zlib. Table `mark` has the moments that a reader marked.

| kind      | document                                                                  |
|-----------|---------------------------------------------------------------------------|
| recording | a block begins: the recorded system, and the recorder's version            |
| key       | all that is known follows: reading can begin here                          |
| node      | a snapshot, as on the monitor topic                                        |
| replica   | what a replica of a persistence service shows of itself                    |
| event     | an event, as on the monitor topic                                          |
| past      | masterships and runs that a node remembers, as on its topic                |
| notice    | a message from the feed itself                                             |
| local     | what supervisors of the recorder's machine tell, and its addresses         |
| caption   | a sentence for the reader                                                  |

Every line is whole: none needs an earlier one. What follows a key is a repetition, so a node below it may
have been heard before the key. What a moment shows is read from a block on, and the recorder removes what is
oldest in blocks.

A recorder writes in SQLite's WAL mode, so that readers do not block it, and each update in one transaction:
what a killed recorder leaves is whole up to its last transaction. A recording may come from anybody, so it is
opened for reading only, and refused unless its schema is the one below, letter by letter: no view, trigger or
virtual table of a stranger is ever used.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import gc
import sqlite3
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import quote

from engine.core.untrusted import json_reader, words_of
from engine.persistence.service.replica_view import ReplicaView
from engine.runtime import monitor
from engine.runtime.monitor import NodeEvent, NodePast, NodeSnapshot
from ospltool.live.expectation import NOTHING, Expectation
from ospltool.live.feed import FeedNotice
from ospltool.live.supervision import LocalView
from ospltool.output.text import plural
from ospltool.output.times import SECOND_NS, parse_time

APPLICATION_ID: Final = int.from_bytes(b"OSPR")
"""Number in the head of a SQLite file that says whose it is; at byte 68."""
FORMAT_VERSION: Final = 1
"""PRAGMA user_version."""

_COLUMNS: Final = "heard_ns INTEGER NOT NULL, kind TEXT NOT NULL, data BLOB NOT NULL"
SCHEMA: Final = (
    f"CREATE TABLE line (id INTEGER PRIMARY KEY, {_COLUMNS}) STRICT",
    "CREATE INDEX line_by_kind ON line (kind, heard_ns)",
    "CREATE TABLE mark (time_ns INTEGER NOT NULL, text TEXT NOT NULL) STRICT",
)

# A key of 1,000 nodes is below; a compressed block may claim any size.
MAX_LINE_BYTES: Final = 16 * 1024 * 1024
"""A longer document is not one of a recording. Its values take ten times as much memory at most."""

# A person sets tens; a script must not fill the file.
MAX_MARKS: Final = 10_000

LAST_ID: Final = (1 << 63) - 1
"""Largest id of a row in SQLite."""

# As `health.system.PAUSE_S`.
PAUSE_NS: Final = 2_000_000_000
"""Time without a look at the system after which a recorder counts as having stood still."""

_BUSY_S: Final = 5.0
"""Time for which the recorder, or somebody who marks a moment, may hold the file."""


class RecordingFault(ValueError):
    """A recording that cannot be read or written; the text names file and line."""


class SenderKind(enum.StrEnum):
    """Kind of a sender."""

    NODE = "node"
    REPLICA = "replica"


Shown = tuple[SenderKind, str]
"""Identity of a sender: kind and id."""


@dataclasses.dataclass(frozen=True, slots=True)
class RecordingHeader:
    """The beginning of a block. `expected` is what the recorder's fleet file says should be there."""

    source: str
    made_by: str
    expected: Expectation = NOTHING


@dataclasses.dataclass(frozen=True, slots=True)
class Key:
    """A place from which the recording can be read."""

    is_resumed: bool = False
    """Whether nothing was recorded before, as the recorder begins, stood still, or could not write."""


@dataclasses.dataclass(frozen=True, slots=True)
class Caption:
    """A sentence for the reader."""

    text: str


Item = (
    RecordingHeader
    | Key
    | NodeSnapshot
    | ReplicaView
    | NodeEvent
    | NodePast
    | FeedNotice
    | LocalView
    | Caption
)

_NAMES: Final[dict[type[Any], str]] = {
    RecordingHeader: "recording",
    Key: "key",
    NodeSnapshot: "node",
    ReplicaView: "replica",
    NodeEvent: "event",
    NodePast: "past",
    FeedNotice: "notice",
    LocalView: "local",
    Caption: "caption",
}
_READERS: Final = {name: json_reader(kind) for kind, name in _NAMES.items()}


class RecordingLine(NamedTuple):
    """One line of a recording."""

    heard_ns: int
    item: Item


def key_of(shown: NodeSnapshot | ReplicaView) -> Shown:
    """Return the identity of the sender."""
    return (SenderKind.REPLICA if isinstance(shown, ReplicaView) else SenderKind.NODE, shown.id)


def encoded(item: Item) -> tuple[str, bytes]:
    """Return the kind and the data of an item, as a line has them."""
    kind = _NAMES[type(item)]
    # Level 1: a snapshot with 200 fellows becomes 4 kB in place of 75 in 0.2 ms; 6 takes four times as long.
    return kind, zlib.compress(monitor.written(kind, item), 1)


def decoded(data: bytes) -> Item:
    """Return the item of a line.

    Raises:
        RecordingFault: it is none; the text says why, without the place.
    """
    try:
        unpacked = zlib.decompressobj()
        text = unpacked.decompress(data, MAX_LINE_BYTES)
        if unpacked.unconsumed_tail or not unpacked.eof:
            raise ValueError(f"not a whole document of at most {plural(MAX_LINE_BYTES, 'byte')}")
        with _uncollected():
            item: Item = monitor.read(text, _READERS)
    except Exception as error:  # of any class: a file may contain anything
        raise RecordingFault(f"not a line of a recording: {words_of(error)}") from error
    return item


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Make objects that are in no cycle without the garbage collector.

    A snapshot of a large system is hundreds of them, and the collector would look at each several times,
    which is a quarter of the time of reading it.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class ReadLine(NamedTuple):
    """A line with its id, the id from which the next one is read, and what could not be read before it."""

    line: RecordingLine | None
    id: int
    after: int
    faults: tuple[str, ...]


_T = TypeVar("_T")


class Recording:
    """A recording that is read. A line has an id; those of later lines are larger.

    Args:
        path: the file.
        follow: `grow` takes in what a recorder adds.

    Raises:
        RecordingFault: it cannot be read, or is not a recording.
    """

    def __init__(self, path: Path, *, follow: bool = False) -> None:
        self.path = path
        self._follow = follow
        self._file = self._opened()
        try:
            self._check()
            self._last = self._found("SELECT max(id) FROM line", damaged=LAST_ID)
        except BaseException:
            self._file.close()
            raise

    def close(self) -> None:
        """Close the file. A second call does nothing."""
        self._file.close()

    def grow(self) -> bool:
        """Take in what was added since; return whether there is more."""
        before = self._last
        if self._follow:
            self._last = self._found("SELECT max(id) FROM line", damaged=before)
        return self._last > before

    @property
    def header(self) -> RecordingHeader | None:
        """The recorded system, as the newest block tells it; None while nothing is recorded."""
        query = "SELECT id FROM line WHERE kind = 'recording' ORDER BY heard_ns DESC LIMIT 1"
        found = self.read(self._found(query)).line
        return found.item if found is not None and isinstance(found.item, RecordingHeader) else None

    @property
    def begin_ns(self) -> int:
        """The moment of the first line that is still there; 0 without any."""
        return self._found("SELECT heard_ns FROM line WHERE id <= ? ORDER BY id LIMIT 1", self._last)

    @property
    def end_ns(self) -> int:
        """The moment of the last line; 0 without any."""
        query = "SELECT heard_ns FROM line WHERE id <= ? ORDER BY id DESC LIMIT 1"
        found = self._found(query, self._last, damaged=-1)
        if found >= 0:
            return found
        return max((read.line.heard_ns for read in self.lines() if read.line is not None), default=0)

    def block_before(self, moment_ns: int) -> int:
        """Return where reading begins for what a moment shows: the id of the block before that of the moment.

        So what leads up to a moment depends on the recording only.
        """
        query = (
            "SELECT min(id) FROM (SELECT id FROM line WHERE kind = 'recording' AND heard_ns <= ? "
            "ORDER BY heard_ns DESC, id DESC LIMIT 2)"
        )
        return self._found(query, moment_ns) or self._found("SELECT min(id) FROM line")

    def read(self, place: int) -> ReadLine:
        """Return the next readable line from an id on, if there is one (yet), and what could not be read."""
        faults: list[str] = []
        query = (
            "SELECT id, heard_ns, CASE WHEN length(data) <= ? THEN data END FROM line "
            "WHERE id BETWEEN ? AND ? ORDER BY id LIMIT 1"
        )
        while place <= self._last:
            try:
                row = self._file.execute(query, (MAX_LINE_BYTES, place, self._last)).fetchone()
                number, heard_ns, data = row or (place, 0, None)
                if row is None:
                    break
                where = f"{self.path}, line {number}"
                # In a damaged file, rows may come in any order: going back would never end.
                if type(number) is not int or number < place or type(heard_ns) is not int:
                    raise sqlite3.DatabaseError("database disk image is malformed")
            except sqlite3.Error as error:
                faults.append(f"{self.path}, line {place}: {error}")
                further = self._key_after(place)
                if not further:
                    self._last = place - 1  # what cannot be read is told once
                    return ReadLine(None, place, place, tuple(faults))
                place = further
                continue
            place = number + 1
            try:
                if type(data) is not bytes:
                    raise RecordingFault("a line that is too long is skipped")
                return ReadLine(RecordingLine(heard_ns, decoded(data)), number, place, tuple(faults))
            except RecordingFault as fault:
                faults.append(f"{where}: {fault}")
        return ReadLine(None, place, place, tuple(faults))

    def lines(self) -> Iterator[ReadLine]:
        """Yield all lines; the last one is None, with what is unreadable at the end."""
        place = 0
        while True:
            read = self.read(place)
            yield read
            if read.line is None:
                return
            place = read.after

    def event_before(self, moment_ns: int) -> int:
        """Return the moment of the last event before a moment; 0 if there is none."""
        query = "SELECT max(heard_ns) FROM line WHERE kind = 'event' AND heard_ns < ?"
        return self._found(query, moment_ns)

    def event_after(self, moment_ns: int) -> int:
        """Return the moment of the first event after a moment; 0 if there is none."""
        query = "SELECT min(heard_ns) FROM line WHERE kind = 'event' AND heard_ns > ? AND id <= ?"
        return self._found(query, moment_ns, self._last)

    def marks(self) -> tuple[tuple[int, str], ...]:
        """Return (moment in ns, note) of every mark, oldest first."""
        query = "SELECT time_ns, substr(text, 1, 1000) FROM mark ORDER BY time_ns, text LIMIT ?"
        rows = self._said(lambda: self._file.execute(query, (MAX_MARKS,)).fetchall())
        return tuple((moment, text) for moment, text in rows if type(moment) is int and type(text) is str)

    def mark(self, time_ns: int, text: str) -> None:
        """Mark a moment, in the file.

        Raises:
            RecordingFault: the file cannot be written, or there are too many marks.
        """
        if len(self.marks()) >= MAX_MARKS:
            raise RecordingFault(f"{self.path}: there are {MAX_MARKS:,} marks already")

        def write() -> None:
            with contextlib.closing(_connected(self.path, "rw")) as file:
                file.execute("INSERT INTO mark VALUES (?, ?)", (time_ns, text))

        self._said(write)
        self._file.close()
        self._file = self._opened()  # a file without a log is read as one that never changes

    def _opened(self) -> sqlite3.Connection:
        """Open the file. A log that is there is read, too; without one nothing is made beside the file."""
        try:
            if not self.path.stat().st_size:
                raise RecordingFault(f"{self.path}: not a recording: the file is empty")
        except OSError as error:
            raise RecordingFault(f"{self.path}: {error.strerror or error}") from error
        log = self.path.with_name(f"{self.path.name}-wal")
        is_written = self._follow or (log.exists() and log.stat().st_size)
        return self._said(lambda: _connected(self.path, "ro" if is_written else "ro&immutable=1"))

    def _check(self) -> None:
        """Refuse what no recorder of this version made.

        Raises:
            RecordingFault: it has another version, or another schema.
        """
        if self._one("PRAGMA application_id") != APPLICATION_ID:
            raise RecordingFault(f"{self.path}: not a recording")
        version = self._one("PRAGMA user_version")
        if version != FORMAT_VERSION:
            raise RecordingFault(f"{self.path}: a recording of version {version}, not {FORMAT_VERSION}")
        query = "SELECT substr(sql, 1, 1000) FROM sqlite_schema LIMIT 10"
        found = self._said(lambda: self._file.execute(query).fetchall())
        if sorted(map(str, found)) != sorted(str((one,)) for one in SCHEMA):
            raise RecordingFault(f"{self.path}: not a recording: it has other tables")

    def _one(self, query: str, *values: int) -> int:
        """Return the only number of a query; 0 for none."""
        row = self._said(lambda: self._file.execute(query, values).fetchone())
        return row[0] if row and type(row[0]) is int else 0

    def _found(self, query: str, *values: int, damaged: int = 0) -> int:
        """Return what `_one` does; `damaged` if the page that tells it cannot be read."""
        try:
            return self._one(query, *values)
        except RecordingFault:  # `read` tells of the page when it comes to it
            return damaged

    def _key_after(self, place: int) -> int:
        """Return the id of the next place from which a damaged file may be read again; 0 for none."""
        query = (
            "SELECT min(id) FROM line INDEXED BY line_by_kind WHERE kind IN ('recording', 'key') AND id > ?"
        )
        return self._found(query, place)

    def _said(self, call: Callable[[], _T]) -> _T:
        """Return what a call of SQLite returns; its errors become those of a recording."""
        try:
            return call()
        except (sqlite3.Error, UnicodeError) as error:
            raise RecordingFault(f"{self.path}: {error}") from error


def is_recording(path: Path) -> bool:
    """Return whether a file begins like a recording.

    It must not be open in this process: closing it here would release the locks that SQLite has on it.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        head = file.read(72)
    return head.startswith(b"SQLite format 3\0") and head[68:] == APPLICATION_ID.to_bytes(4)


def header_of(path: Path) -> RecordingHeader | None:
    """Return what a recording says of the recorded system; None while nothing is recorded yet.

    Raises:
        RecordingFault: it cannot be read, or is not a recording.
    """
    with contextlib.closing(Recording(path)) as recording:
        return recording.header


def _connected(path: Path, mode: str) -> sqlite3.Connection:
    """Open a recording of anybody: nothing in it is executed, and no row takes more memory than a line."""
    uri = f"file:{quote(str(path.absolute()))}?mode={mode}"
    file = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=_BUSY_S)
    try:
        file.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 2 * MAX_LINE_BYTES)
        file.execute("PRAGMA trusted_schema = OFF")
        file.execute("PRAGMA cell_size_check = ON")
        file.execute("PRAGMA mmap_size = 0")  # a file that somebody cuts short would end the process
        if mode != "rw":  # else SQLite reads nothing of a file that was cut; the schema is checked anyway
            file.execute("PRAGMA writable_schema = ON")
    except BaseException:
        file.close()
        raise
    return file


def created(path: Path) -> sqlite3.Connection:
    """Make an empty file a recording, or open the recording that is there, to write to it.

    Raises:
        RecordingFault: there is another file.
        OSError, sqlite3.Error: it cannot be written.
    """
    if path.stat().st_size:
        Recording(path, follow=True).close()  # it says what is wrong with a file that is none
    file = _connected(path, "rw")
    try:
        if not path.stat().st_size:
            # Before the log is used, so that the head of the file says what it is from the beginning.
            file.execute("BEGIN IMMEDIATE")
            file.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            file.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
            for statement in SCHEMA:
                file.execute(statement)
            file.execute("COMMIT")
        file.execute("PRAGMA journal_mode = WAL")
        # If the machine fails, the last seconds may be lost, and the file stays whole.
        file.execute("PRAGMA synchronous = NORMAL")
    except BaseException:
        file.close()
        raise
    return file


def moment_of(text: str, begin_ns: int, now_ns: int) -> int:
    """Parse a moment; return it in ns since 1970.

    `+90` and `-90s` are from now; `12:30` and `12:30:05` a time of day (UTC) on the day on which the
    recording begins or after it; `2026-11-21 12:30:05` says the day too.

    Raises:
        TimeError: the text has none of these forms.
    """
    is_from_now = text.strip().startswith(("+", "-"))
    return parse_time(text, now_ns if is_from_now else begin_ns // SECOND_NS * SECOND_NS, is_later=True)
