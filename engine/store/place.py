"""The directory of an open store: its lock, its ledger, and whether its files are still there."""

from __future__ import annotations

from pathlib import Path

from engine.store.files import DATABASE, LEDGER, LOCK, CommitCounter, Lock
from engine.store.interface import StoreDamaged, refused


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
