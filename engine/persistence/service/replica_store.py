"""The store of a persistence service: one SQLite file, and the thread that writes it.

The changes of all parts up to one moment are written in one transaction, which is on disk when it ends. So
the file always has the state of one moment, whenever the process ends.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from engine.dds.activity import BEAT_S, ThreadActivities
from engine.persistence.service.service_part import ServicePart, Write
from engine.store import tables
from engine.store.interface import StoreDamaged, StoreFailed, StoreRefused
from engine.store.store_directory import LOCK, Lock

DATABASE: Final = "persistence.sqlite"
APPLICATION_ID: Final = 0x6F737070
"""Marks the file as a persistence service's ("ospp")."""
FORMAT_VERSION: Final = 1
RETRY_S: Final = 1.0
"""Pause before a transaction that a full or failing disk refused is tried again."""
WRITE_S: Final = 60.0
"""Time after which the store's thread counts as hung in one transaction."""

_TABLES: Final = "CREATE TABLE about (one INTEGER PRIMARY KEY CHECK (one = 1), id TEXT NOT NULL);"


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
        except Exception as error:
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
                connection.execute(_TABLES)
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
                raise
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
