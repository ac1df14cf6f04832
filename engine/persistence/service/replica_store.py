"""The store of a persistence service: one SQLite file, its rows, and the thread that writes it.

The changes of all parts up to one moment are written in one transaction, which is on disk when it ends. So
the file always has the state of one moment, whenever the process ends.

Each row of a sample has a checksum. If one of the last values is damaged, the numbers no longer describe
them: then all numbers are forgotten, and other replicas send the missing samples again. A damaged sample that
was held for a durable subscription is left out, and another replica sends it again.
"""

from __future__ import annotations

import collections
import contextlib
import hashlib
import json
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from engine.dds.activity import BEAT_S, ThreadActivities
from engine.persistence.core.messages import (
    Change,
    Forgotten,
    KeptSample,
    OriginalSample,
    Released,
    Saved,
    SavedSubscriptions,
)
from engine.persistence.core.sequences import Sequences
from engine.persistence.core.subscription_ledger import LedgerState, Numbers, SubscriptionTerms
from engine.store import tables
from engine.store.interface import StoreDamaged, StoreFailed, StoreRefused
from engine.store.store_directory import LOCK, Lock

if TYPE_CHECKING:
    from engine.persistence.service.links import ServicePart, Write

TABLES: Final = """
CREATE TABLE IF NOT EXISTS kept (
    key BLOB PRIMARY KEY, writer TEXT NOT NULL, sequence BLOB NOT NULL, source_time_ns INTEGER NOT NULL,
    status INTEGER NOT NULL, payload BLOB NOT NULL, late INTEGER NOT NULL, writers TEXT NOT NULL,
    row_check BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS accounted (
    writer TEXT PRIMARY KEY, intervals TEXT NOT NULL, row_check BLOB NOT NULL) WITHOUT ROWID;
"""

_NUMBER_BYTES: Final = 17
"""Numbers go up to 2**128, one more than 16 bytes hold; of one length, they sort as bytes."""
_CHECK_BYTES: Final = 8
"""Against flipped bits, not against an enemy, who could write the check as well."""

_Row = tuple[Any, ...]

KEPT: Final = (bytes, str, bytes, int, int, bytes, int, str, bytes)
"""Types of the columns of `kept`; a flipped bit in a row's header changes one, and no byte of the content."""
_ACCOUNTED: Final = (str, str, bytes)
_HELD: Final = (bytes, str, bytes, bytes, int, int, bytes, bytes)
_SUBSCRIPTION: Final = (bytes, str, int, int, int)
_ACKNOWLEDGED: Final = (str, str, bytes)


def checked(*row: Any) -> _Row:
    """Return a row with its checksum at the end."""
    return (*row, _check(row))


def is_whole(row: _Row, types: tuple[type, ...]) -> bool:
    """Whether a row has these types and matches its checksum."""
    return all(map(isinstance, row, types)) and _check(row[:-1]) == row[-1]


def _check(row: _Row) -> bytes:
    parts = [each if isinstance(each, bytes) else str(each).encode() for each in row]
    parts.append(",".join([str(len(each)) for each in parts]).encode())  # else bytes could change columns
    return hashlib.blake2b(b"".join(parts), digest_size=_CHECK_BYTES).digest()


def _sound(
    rows: Iterable[_Row], types: tuple[type, ...], damaged: list[_Row], *, has_check: bool = True
) -> Iterator[_Row]:
    """Yield the rows that have these types and match their checksum, if any, and collect the others."""
    for row in rows:
        if is_whole(row, types) if has_check else all(map(isinstance, row, types)):
            yield row
        else:
            damaged.append(row)


def _blob(number: int) -> bytes:
    return number.to_bytes(_NUMBER_BYTES, "big")


def writing(saved: Saved) -> Write:
    """Return a function that writes `saved` over the contents of the store."""

    def write(store: sqlite3.Connection) -> None:
        store.executemany("DELETE FROM kept WHERE key = ?", ((key,) for key in saved.gone))
        store.executemany(
            "INSERT OR REPLACE INTO kept VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                checked(
                    one.key,
                    one.writer,
                    _blob(one.sequence),
                    one.source_time_ns,
                    one.status,
                    one.payload,
                    int(one.late),
                    json.dumps(sorted(kept.writers)),
                )
                for kept in saved.kept
                for one in (kept.sample,)
            ),
        )
        store.executemany(
            "INSERT OR REPLACE INTO accounted VALUES (?, ?, ?)",
            (checked(writer, json.dumps(had.intervals)) for writer, had in saved.had),
        )

    return write


def read(store: sqlite3.Connection) -> tuple[Saved, int]:
    """Return the contents of the store, and the number of damaged rows.

    Raises:
        sqlite3.Error: it cannot be read.
    """
    damaged: list[_Row] = []
    kept = [
        KeptSample(
            OriginalSample(writer, int.from_bytes(number), key, time_ns, payload, status, late=bool(late)),
            frozenset(json.loads(writers)),
        )
        for key, writer, number, time_ns, status, payload, late, writers, _ in _sound(
            store.execute("SELECT * FROM kept"), KEPT, damaged
        )
    ]
    had = [
        (writer, Sequences(tuple((first, last) for first, last in json.loads(intervals))))
        for writer, intervals, _ in _sound(store.execute("SELECT * FROM accounted"), _ACCOUNTED, damaged)
    ]
    # Numbers that account for a lost value would keep others from sending it again.
    return Saved(tuple(kept), () if damaged else tuple(had)), len(damaged)


SUBSCRIPTION_TABLES: Final = """
CREATE TABLE IF NOT EXISTS subscription (
    sample_group BLOB, name TEXT, generation INTEGER NOT NULL, is_deleted INTEGER NOT NULL,
    quorum INTEGER NOT NULL, PRIMARY KEY (sample_group, name)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS acknowledged (
    sample_group BLOB, name TEXT, writer TEXT, number BLOB, member TEXT,
    PRIMARY KEY (sample_group, name, writer, number, member)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS held (
    sample_group BLOB, writer TEXT, number BLOB, key BLOB NOT NULL, source_time_ns INTEGER NOT NULL,
    status INTEGER NOT NULL, payload BLOB NOT NULL, row_check BLOB NOT NULL,
    PRIMARY KEY (sample_group, writer, number)) WITHOUT ROWID;
"""
"""In `acknowledged`, an empty member stands for the quorum."""

_FORGET: Final = "DELETE FROM acknowledged WHERE sample_group = ? AND name = ? AND writer = ? AND number = ?"
_QUORUM: Final = ""


def write_subscriptions(store: sqlite3.Connection, changes: Mapping[bytes, Sequence[Change]]) -> None:
    """Write changes, by group, over the contents of the store."""
    for group, each in changes.items():
        held: dict[tuple[str, int], OriginalSample | None] = {}
        for change in each:
            if isinstance(change, LedgerState):
                _write_ledger(store, group, change)
            elif isinstance(change, Forgotten):
                rows = _number_rows(group, change.name, ((change.writer, change.numbers),))
                store.executemany(_FORGET, rows)
            elif isinstance(change, Released):
                held[change.writer, change.number] = None
            else:
                held[change.writer, change.sequence] = change
        store.executemany(
            "DELETE FROM held WHERE sample_group = ? AND writer = ? AND number = ?",
            [(group, writer, _blob(number)) for (writer, number), kept in held.items() if kept is None],
        )
        store.executemany(
            "INSERT OR REPLACE INTO held VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [
                checked(
                    group,
                    one.writer,
                    _blob(one.sequence),
                    one.key,
                    one.source_time_ns,
                    one.status,
                    one.payload,
                )
                for one in held.values()
                if one is not None
            ],
        )


def _write_ledger(store: sqlite3.Connection, group: bytes, state: LedgerState) -> None:
    terms = (state.terms.generation, int(state.terms.is_deleted))
    store.execute(
        "DELETE FROM acknowledged WHERE sample_group = ?1 AND name = ?2 AND EXISTS (SELECT 1 FROM "
        "subscription WHERE sample_group = ?1 AND name = ?2 AND (generation, is_deleted) <> (?3, ?4))",
        (group, state.name, *terms),
    )
    row = (group, state.name, *terms, state.quorum)
    store.execute("INSERT OR REPLACE INTO subscription VALUES (?, ?, ?, ?, ?)", row)
    done = list(_number_rows(group, state.name, state.done))
    store.executemany(_FORGET, done)
    lines = [(*row, _QUORUM) for row in done]
    for member, numbers in state.members:
        lines += [(*row, member) for row in _number_rows(group, state.name, numbers)]
    store.executemany("INSERT OR IGNORE INTO acknowledged VALUES (?, ?, ?, ?, ?)", lines)


def _number_rows(group: bytes, name: str, numbers: Numbers) -> Iterator[tuple[bytes, str, str, bytes]]:
    for writer, each in numbers:
        yield from ((group, name, writer, _blob(number)) for number in each)


def read_subscriptions(store: sqlite3.Connection) -> tuple[dict[bytes, SavedSubscriptions], int]:
    """Return the contents of the store, by group, and the number of damaged rows, which are left out.

    Raises:
        sqlite3.Error: it cannot be read.
    """
    damaged: list[_Row] = []
    held: dict[bytes, list[OriginalSample]] = collections.defaultdict(list)
    for group, writer, number, key, time_ns, status, payload, _ in _sound(
        store.execute("SELECT * FROM held"), _HELD, damaged
    ):
        held[group].append(OriginalSample(writer, int.from_bytes(number), key, time_ns, payload, status))
    ledgers: dict[bytes, list[LedgerState]] = collections.defaultdict(list)
    rows = store.execute("SELECT sample_group, name, generation, is_deleted, quorum FROM subscription")
    for group, name, generation, is_deleted, quorum in _sound(rows, _SUBSCRIPTION, damaged, has_check=False):
        found: dict[str, dict[str, list[int]]] = {}
        lines = store.execute(
            "SELECT member, writer, number FROM acknowledged WHERE sample_group = ? AND name = ?",
            (group, name),
        )
        for member, writer, number in _sound(lines, _ACKNOWLEDGED, damaged, has_check=False):
            found.setdefault(member, {}).setdefault(writer, []).append(int.from_bytes(number))
        members = {
            member: tuple((writer, tuple(numbers)) for writer, numbers in each.items())
            for member, each in found.items()
        }
        terms, done = SubscriptionTerms(generation, bool(is_deleted)), members.pop(_QUORUM, ())
        ledgers[group].append(LedgerState(name, terms, quorum, done, tuple(sorted(members.items()))))
    saved = {each: SavedSubscriptions(tuple(ledgers[each]), tuple(held[each])) for each in {*held, *ledgers}}
    return saved, len(damaged)


DATABASE: Final = "persistence.sqlite"
APPLICATION_ID: Final = 0x6F737070
"""Marks the file as a persistence service's ("ospp")."""
FORMAT_VERSION: Final = 1
RETRY_S: Final = 1.0
"""Pause before a transaction that a full or failing disk refused is tried again."""
# A transaction takes a second at most; the rest is for a disk that pauses, as those of virtual machines
# do.
WRITE_S: Final = 60.0
"""Time after which the store's thread counts as hung in one transaction."""

_ABOUT: Final = "CREATE TABLE about (one INTEGER PRIMARY KEY CHECK (one = 1), id TEXT NOT NULL);"


def connect(path: Path) -> sqlite3.Connection:
    """Open a database; bytes in it that are not UTF-8 become other characters, so that checks find them.

    Raises:
        sqlite3.Error, UnicodeDecodeError: it cannot be read.
    """
    connection = tables.connect(path)
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    return connection


class ReplicaStore:
    """One store directory.

    Args:
        directory: created if it does not exist.
        name: of the replica, for the message to another process that finds the store in use.
        new_id: returns 32 hexadecimal characters; called at the first start only.
        on_written: called on the store's thread after a transaction, and when one has failed.
        activities: the deadlock watch's register of threads.

    Attributes:
        id: of the replica; the same at every start with this store.
        problem: why nothing can be written now; empty if all is well. The thread tries again.
        written: transactions.
        fault: the exception that ended the thread, None while it runs.
    """

    def __init__(
        self,
        directory: Path,
        name: str,
        new_id: Callable[[], str],
        on_written: Callable[[], None],
        activities: ThreadActivities,
    ) -> None:
        self._directory = directory
        self._path = directory / DATABASE
        self._name = name
        self._new_id = new_id
        self._on_written = on_written
        self._work = activities.work("store", WRITE_S)
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._opened = threading.Event()
        self._error: Exception | None = None
        self._batch: Sequence[Write] = ()
        self.id = ""
        self.problem = ""
        self.written = 0
        self.fault: Exception | None = None
        self._thread: threading.Thread | None = None

    def open(self, parts: Sequence[ServicePart]) -> None:
        """Open or create it, let the parts load their data, and begin to write.

        Raises:
            StoreError: it cannot be used; the message says why, and which process uses it if one does.
        """
        self._thread = threading.Thread(target=self._run, args=(parts,), name="store", daemon=True)
        self._thread.start()
        self._opened.wait()
        if self._error is not None:
            raise self._error

    @property
    def is_idle(self) -> bool:
        """Whether everything that was submitted is on disk."""
        return not self._batch

    def submit(self, writes: Sequence[Write]) -> None:
        """Write this in one transaction, and retry until it succeeds. Only when idle."""
        assert self.is_idle
        self._batch = writes
        self._wake.set()

    def close(self, timeout_s: float) -> bool:
        """Finish submitted writes within `timeout_s`; return whether they are on disk."""
        self._stopping.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout_s)
        return self.is_idle

    def _run(self, parts: Sequence[ServicePart]) -> None:
        lock = connection = None
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            lock = Lock(self._directory / LOCK, self._name)
            connection = connect(self._path)
            self._prepare(connection, parts)
            self._opened.set()
            self._write_all(connection)
        except Exception as error:  # of any class: who waits for the opening must hear of it
            self._failed(error)
        finally:
            if connection is not None:
                connection.close()
            if lock is not None:
                lock.release()
            self._opened.set()

    def _failed(self, error: Exception) -> None:
        known: Exception | None = error
        if isinstance(error, UnicodeDecodeError):  # in what SQLite reports of a damaged file
            known = StoreDamaged(f"{self._path}: a text in it is not UTF-8; move it away")
        elif isinstance(error, sqlite3.Error):
            known = tables.typed(error, self._path)
            if isinstance(known, StoreDamaged):
                known = StoreDamaged(f"{known}; move it away, and other replicas give the data again")
        elif isinstance(error, OSError):
            known = StoreFailed(f"{self._directory}: {error.strerror}")
        if self._opened.is_set():
            self.fault = known or error
            self._on_written()
        else:
            self._error = known or error

    def _prepare(self, connection: sqlite3.Connection, parts: Sequence[ServicePart]) -> None:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if (tables or application) and application != APPLICATION_ID:
            raise StoreRefused(f"{self._path}: this is a database, but not of a persistence service")
        if version > FORMAT_VERSION:
            raise StoreRefused(f"{self._path}: the store has format {version}, written by a newer ospltool")
        with _transaction(connection):
            if not application:
                connection.execute(_ABOUT)
                connection.execute("INSERT INTO about VALUES (1, ?)", (self._new_id(),))
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
            for part in parts:
                for statement in filter(str.strip, part.tables.split(";")):
                    connection.execute(statement)
        (self.id,) = connection.execute("SELECT id FROM about").fetchone()
        for part in parts:
            part.restore(connection)

    def _write_all(self, connection: sqlite3.Connection) -> None:
        while True:
            if self._batch:
                with self._work:
                    self._write_batch(connection)
            elif self._stopping.is_set():
                break
            if self.problem:
                if self._stopping.wait(RETRY_S):
                    break
            elif self._wake.wait(BEAT_S):
                self._wake.clear()
            self._work.beat()
        self._work.rest()

    def _write_batch(self, connection: sqlite3.Connection) -> None:
        try:
            with _transaction(connection):
                for write in self._batch:
                    write(connection)
        except sqlite3.Error as error:
            known = tables.typed(error, self._path)
            if known is None or isinstance(known, StoreDamaged):
                raise  # it will not get better; a full or locked disk may, so the batch stays for another try
            self.problem = str(known)
        else:
            self.problem = ""
            self.written += 1
            self._batch = ()
            self._wake.set()
        self._on_written()


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """A transaction; an exception in it rolls it back."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # a failed COMMIT may have ended it, or not
            connection.execute("ROLLBACK")
        raise
