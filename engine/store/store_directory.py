"""The directory of a store: its lock, the ledger that counts its transactions, and the room on its disk.

Committed data must fit into the database file at any time. If the write-ahead log filled the disk, it could
not be copied into the file any more, and dropping data from the file would not free space.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import sqlite3
import struct
import time
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote

from engine.files import open_private
from engine.store.interface import LockedStore, StoreDamaged, StoreFailed, refused
from engine.store.tables import PAGE_BYTES

DATABASE: Final = "store.sqlite"
DAMAGED: Final = f"{DATABASE}.damaged-"
"""Prefix of the names of databases that were put aside; a number follows."""
LOCK: Final = "store.lock"
LEDGER: Final = "store.ledger"

_MAX_NOTE_BYTES: Final = 4096
"""A note is one write of less than a page; whatever else is in the file is none."""
_FLOCK: Final = struct.Struct("hhqqi4x")
"""`struct flock` of 64-bit Linux: kind, whence, start, length, pid."""
_WHOLE_FILE: Final = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)


def file_uri(path: Path) -> str:
    """Return the URI by which SQLite opens a file, whose name may be no Unicode."""
    return f"file:{quote(os.fsencode(path))}"


class Lock:
    """Holds a store directory for one process; the kernel releases it when the process dies.

    The lock is on the open file, so a second opening in the same process fails, too, and a file that a dead
    process left is no obstacle. Its content names the holder, for the error message of a second opener.
    """

    def __init__(self, path: Path, node: str) -> None:
        """Take the lock.

        Raises:
            LockedStore: a living process has it.
            StoreFull: there is no space to make the file.
            StoreFailed: the file cannot be made or locked.
        """
        try:
            self._file = open_private(path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise refused(path, error) from error
        try:
            fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, _WHOLE_FILE)
        except BlockingIOError:
            holder = _holder(os.pread(self._file, _MAX_NOTE_BYTES, 0))
            os.close(self._file)
            raise _locked(path, *holder) from None
        except OSError as error:
            os.close(self._file)
            raise StoreFailed(f"{path}: {error.strerror}") from error
        note = {"pid": os.getpid(), "node": node, "since_ns": time.time_ns()}
        with contextlib.suppress(OSError):  # on a full disk the lock holds without its note
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, json.dumps(note).encode(), 0)

    def release(self) -> None:
        """Release the lock; the file stays, because removing it would race with an opener."""
        # The note tells people who holds the lock; the lock itself goes with the descriptor.
        with contextlib.suppress(OSError):
            os.ftruncate(self._file, 0)
        os.close(self._file)


def lock_holder(path: Path) -> tuple[int, str, int] | None:
    """Return pid, node name and opening time (ns since 1970 UTC) of a lock's holder; None if it is free.

    This never takes the lock.

    Raises:
        StoreFailed: the file exists and cannot be read.
    """
    try:
        file = open_private(path, os.O_RDONLY)
    except FileNotFoundError:  # nobody has ever opened the store
        return None
    except OSError as error:
        raise StoreFailed(f"{path}: {error.strerror}") from error
    try:
        (kind, *_) = _FLOCK.unpack(fcntl.fcntl(file, fcntl.F_OFD_GETLK, _WHOLE_FILE))
        return None if kind == fcntl.F_UNLCK else _holder(os.pread(file, _MAX_NOTE_BYTES, 0))
    except OSError as error:
        raise StoreFailed(f"{path}: {error.strerror}") from error
    finally:
        os.close(file)


def _holder(note: bytes) -> tuple[int, str, int]:
    try:
        fields = json.loads(note)
        return int(fields["pid"]), str(fields["node"]), int(fields["since_ns"])
    except (
        ValueError,
        KeyError,
        TypeError,
        OverflowError,
        RecursionError,
    ):  # the holder is about to write it
        return 0, "", 0


def _locked(path: Path, pid: int, node: str, since_ns: int) -> LockedStore:
    who = f"node {node!r} (process {pid})" if pid else "another process, which left no note"
    since = ""
    if since_ns:
        since = time.strftime(" since %Y-%m-%d %H:%M:%S UTC", time.gmtime(since_ns / 1e9))
    return LockedStore(f"{path.parent}: the store is in use by {who}{since}", pid, node, since_ns)


class StoreProgress(NamedTuple):
    """Progress of a store: its node's id, the number of its opening, its committed transactions."""

    node_id: str
    incarnation: int
    commits: int


_RECORD: Final = struct.Struct(">8s16sQQ")
_MAGIC: Final = b"ospltool"
_CHECK_BYTES: Final = 16


class CommitCounter:
    """Counts commits outside the database.

    A database whose write-ahead log lost its tail to a flipped bit opens without those transactions. The
    count here shows that they existed. It is written after each commit and not synchronised: after a power
    failure it may lag behind the database, which is harmless, but it is never ahead of a sound one.
    """

    def __init__(self, path: Path) -> None:
        """Open or make the file.

        Raises:
            StoreFull: there is no space to make it.
            StoreFailed: it cannot be made.
        """
        try:
            self._file = open_private(path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise refused(path, error) from error

    def read(self) -> StoreProgress | None:
        """Return the last record; None if there is none or it is damaged."""
        raw = os.pread(self._file, _RECORD.size + _CHECK_BYTES, 0)
        body, check = raw[: _RECORD.size], raw[_RECORD.size :]
        if len(body) < _RECORD.size or _check(body) != check:
            return None
        magic, node_id, incarnation, commits = _RECORD.unpack(body)
        return StoreProgress(node_id.hex(), incarnation, commits) if magic == _MAGIC else None

    def write(self, record: StoreProgress) -> None:
        """Write a record. A failure is ignored: the commit itself is safe."""
        body = _RECORD.pack(_MAGIC, bytes.fromhex(record.node_id), record.incarnation, record.commits)
        with contextlib.suppress(OSError):
            os.pwrite(self._file, body + _check(body), 0)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def _check(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=_CHECK_BYTES).digest()


class StorePlace:
    """Holds a directory, and notices that files of it were removed or replaced by others.

    Args:
        directory: made if it does not exist.
        node: name of the node, shown to another process that finds the store locked.

    Raises:
        LockedStore: another node has it open.
        StoreFull: no space for its files.
        StoreFailed: the directory cannot be used.
    """

    def __init__(self, directory: Path, node: str) -> None:
        self._directory = directory
        self._node = node
        self._known: dict[str, tuple[int, int] | None] = {}
        self._lock: Lock | None = None
        self._ledger: CommitCounter | None = None
        try:
            self.renew()
        except BaseException:
            self.close()
            raise

    @property
    def ledger(self) -> CommitCounter:
        """The count of transactions outside the database."""
        assert self._ledger is not None
        return self._ledger

    def renew(self) -> None:
        """Take the directory again, if it or its lock or ledger is gone; the arguments' errors apply."""
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise refused(self._directory, error) from error
        if not self._is_there(LOCK):
            lock = Lock(self._directory / LOCK, self._node)
            if self._lock is not None:
                self._lock.release()
            self._lock = lock
        if not self._is_there(LEDGER):
            ledger = CommitCounter(self._directory / LEDGER)
            if self._ledger is not None:
                self._ledger.close()
            self._ledger = ledger
        self._known = {name: self._identity(name) for name in (LOCK, LEDGER)}

    def opened(self) -> None:
        """Note the files of the database, which SQLite has open now."""
        for name in (DATABASE, f"{DATABASE}-wal"):
            self._known[name] = self._identity(name)

    def check(self) -> None:
        """Look whether other processes, and the next run, find the files that are written.

        Raises:
            StoreDamaged: one was removed, or another one is in its place.
        """
        for name in self._known:
            if not self._is_there(name):
                path = self._directory / name
                raise StoreDamaged(f"{path}: the file was removed or replaced while it was in use")

    def close(self) -> None:
        """Release the directory."""
        if self._ledger is not None:
            self._ledger.close()
        if self._lock is not None:
            self._lock.release()

    def _is_there(self, name: str) -> bool:
        known = self._known.get(name)
        return known is not None and self._identity(name) == known

    def _identity(self, name: str) -> tuple[int, int] | None:
        """Return what tells a file from another one of its name; None if there is none."""
        try:
            found = (self._directory / name).stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino


# 64 pages: a deletion changes a few of them, and only then there is room again.
RESERVE_BYTES: Final = 1 << 20
"""Space that a transaction that lets the file grow leaves for those that remove something."""


class Room(NamedTuple):
    """The growth that the file still needs, with the open transaction, and the free space."""

    growth_bytes: int
    free_bytes: int
    pages: int = 0
    """Pages of the database with the open transaction."""

    @property
    def is_enough(self) -> bool:
        """Whether the open transaction may be committed: it goes to the log now and to the file later."""
        return not self.growth_bytes or self.free_bytes >= 2 * self.growth_bytes + RESERVE_BYTES

    @property
    def shortage(self) -> str:
        """What is free and what is needed, in words."""
        needed = 2 * self.growth_bytes + RESERVE_BYTES
        return f"{self.free_bytes / 2**20:.1f} MiB of space are too few, {needed / 2**20:.1f} MiB are needed"

    @property
    def is_ample(self) -> bool:
        """Whether the log need not be copied into the file now."""
        return self.free_bytes >= 4 * self.growth_bytes + 2 * RESERVE_BYTES


def room_on_disk(connection: sqlite3.Connection, path: Path) -> Room:
    """Return the room for a transaction that is about to be committed; ample if it cannot be found out."""
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    try:
        disk = os.statvfs(path.parent)
        growth = pages * PAGE_BYTES - path.stat().st_size
    except OSError:
        return Room(0, 1 << 62, pages)
    return Room(max(0, growth), disk.f_bavail * disk.f_frsize, pages)


def has_room_for_copy(path: Path, pages: int) -> bool:
    """Tell whether the disk has room for `pages` twice: in a temporary file and in the log."""
    try:
        disk = os.statvfs(path.parent)
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize >= 2 * pages * PAGE_BYTES + RESERVE_BYTES
