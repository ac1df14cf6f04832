"""The opening of a foreign SQLite file without changing it or its directory."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import tempfile
from pathlib import Path

from engine.core.untrusted import words_of
from engine.store.store_directory import file_uri
from ospltool.stores.model import StoreUnreadable


class SqliteFile:
    """A database opened for reading, or a copy of it if its log holds data that the file lacks.

    OpenSplice keeps its database locked while it runs, so its log can only be read from a copy. The copy may
    lack data that is written during the copying.
    """

    def __init__(self, path: Path) -> None:
        """Open the file.

        Raises:
            StoreUnreadable: it cannot be opened or copied.
        """
        self.path = path
        self._scratch = contextlib.ExitStack()
        log = path.with_name(f"{path.name}-wal")
        self.is_copy = log.exists() and log.stat().st_size > 0
        try:
            if self.is_copy:
                source = file_uri(self._copied(log))
            else:
                source = f"{file_uri(path.absolute())}?mode=ro&immutable=1"
            self.connection = sqlite3.connect(source, uri=True, isolation_level=None)
            self.connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        except (sqlite3.Error, OSError, ValueError) as error:  # ValueError: a name in it is no text
            self._scratch.close()
            raise StoreUnreadable(f"{path}: {words_of(error)}") from error
        self._scratch.callback(self.connection.close)

    def _copied(self, log: Path) -> Path:
        directory = Path(self._scratch.enter_context(tempfile.TemporaryDirectory(prefix="ospltool-store-")))
        copy = directory / self.path.name
        shutil.copyfile(
            log, copy.with_name(log.name)
        )  # the log first: a checkpoint meanwhile then harms less
        shutil.copyfile(self.path, copy)
        return copy

    def close(self) -> None:
        """Close the file and remove the copy."""
        self._scratch.close()
