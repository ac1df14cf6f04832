"""The SQLite file: its tables, its settings, and the meaning of its errors.

Samples are stored in the order in which they are read and, nearly, written: by group, then source time, then
digest. In a file with large samples only their keys are in that order (`APART`). A group's number belongs to
one set version, so that a version can be dropped by its groups' numbers. Small rows have a check; samples
have their digest.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import sqlite3
from pathlib import Path
from typing import Final

from engine.files import LINK, open_private
from engine.store.interface import (
    StoreDamaged,
    StoreError,
    StoreFailed,
    StoreForbidden,
    StoreFull,
    StoreRefused,
)

APPLICATION_ID: Final = 0x6F73706C
"""Identifies a store of ospltool ("ospl"), for `file` and for `check_format`."""
FORMAT_VERSION: Final = 1

PAGE_BYTES: Final = 16_384
"""Measured: bulk writing is a third faster than with 4 KiB pages."""
CHECKPOINT_PAGES: Final = 4_000
"""Size at which the log of a large file is copied into it, 64 MiB; less costs a third of the speed."""
# A sixteenth of the other: two steps of four.
FIRST_CHECKPOINT_PAGES: Final = 250
"""The same for a small file, 4 MiB."""
CACHE_KIB: Final = 16_384
"""1,024 pages, so that inner pages of large tables stay in memory."""
# A backup copies some pages at a time and lets go in between. Longer would pause the node.
BUSY_MS: Final = 5_000
"""Another process, such as a backup, may hold the file for a moment."""
# One piece of the index of a log (WALINDEX_PGSZ of SQLite).
SHARED_BYTES: Final = 32_768
"""Least space that SQLite needs for its `-shm` file."""

DROPPED: Final = "dropped"
"""State of a version whose samples are being removed; it is never shown."""

_SAMPLE: Final = """
CREATE TABLE sample (
    sample_group INTEGER NOT NULL, source_time_ns INTEGER NOT NULL, digest BLOB NOT NULL,
    writer BLOB NOT NULL, sequence INTEGER NOT NULL, status INTEGER NOT NULL,
    key BLOB NOT NULL, payload BLOB NOT NULL,
    PRIMARY KEY (sample_group, source_time_ns, digest))"""
IN_ORDER: Final = "WITHOUT ROWID"
"""Says of the table of samples that whole rows lie in the order of their keys: fastest for small samples."""
APART: Final = (
    "ALTER TABLE sample RENAME TO former",
    _SAMPLE,
    "INSERT INTO sample SELECT * FROM former",
    "DROP TABLE former",
)
"""Statements after which only the keys are in their order.

To find a place between whole rows, SQLite reads each row that it compares with, to its last byte: a small
sample that was stored beside some of 16 MB took 12 ms of processor time. Small samples alone take a tenth to
a quarter more in this way. All releases read both ways, because the columns are the same.
"""

TABLES: Final = f"""
CREATE TABLE node (
    one INTEGER PRIMARY KEY CHECK (one = 1), id TEXT NOT NULL,
    incarnation INTEGER NOT NULL, commits INTEGER NOT NULL, closed INTEGER NOT NULL);
CREATE TABLE set_version (
    version INTEGER PRIMARY KEY AUTOINCREMENT, name_space TEXT NOT NULL, state TEXT NOT NULL,
    mark TEXT NOT NULL, row_check BLOB NOT NULL);
CREATE TABLE type_description (
    id INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, name TEXT NOT NULL,
    information BLOB NOT NULL, mapping BLOB NOT NULL, keyed INTEGER NOT NULL);
CREATE TABLE sample_group (
    id INTEGER PRIMARY KEY AUTOINCREMENT, version INTEGER NOT NULL REFERENCES set_version,
    partition TEXT NOT NULL, topic TEXT NOT NULL, type_id TEXT NOT NULL,
    type INTEGER NOT NULL REFERENCES type_description, qos TEXT NOT NULL,
    sample_count INTEGER NOT NULL, sample_digest BLOB NOT NULL, newest_ns INTEGER NOT NULL,
    row_check BLOB NOT NULL);
{_SAMPLE} {IN_ORDER};
CREATE TABLE mark (
    name_space TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, row_check BLOB NOT NULL,
    PRIMARY KEY (name_space, key)) WITHOUT ROWID;
CREATE TABLE fellow (
    name_space TEXT NOT NULL, id TEXT NOT NULL, name TEXT NOT NULL, role TEXT NOT NULL,
    row_check BLOB NOT NULL,
    PRIMARY KEY (name_space, id)) WITHOUT ROWID;
"""

SMALL_TABLES: Final = ("node", "set_version", "type_description", "sample_group", "mark", "fellow")
"""All tables but the samples': cheap to check at every unclean start."""


def connect(path: Path) -> sqlite3.Connection:
    """Open for writing with the settings of a store. Only its owner can read a new file.

    Raises:
        StoreFailed: this SQLite has no JSON functions, which `engine.store.sqlite` needs.
        StoreForbidden: it is a link: the lock of its directory would not be that of the file.
        sqlite3.Error: see `typed`.
    """
    if path.is_symlink():  # not by opening it: closing it would release the locks of SQLite on the file
        raise StoreForbidden(f"{path}: {LINK}")
    with contextlib.suppress(OSError):  # it exists, or SQLite reports the error; the logs get its mode
        os.close(open_private(path, os.O_CREAT | os.O_EXCL))
    connection = sqlite3.connect(path, isolation_level=None, timeout=BUSY_MS / 1000)
    try:
        _check_functions(connection, path)
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        limit_log(connection, 0)
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        connection.execute("PRAGMA trusted_schema = OFF")
        # ON, which is Debian's default, writes zeros over all pages of a large sample that is replaced. FAST
        # does so in pages that are written anyway; freed pages keep old content until they are used again.
        connection.execute("PRAGMA secure_delete = FAST")
    except BaseException:
        connection.close()
        raise
    return connection


def checkpoint_pages(pages: int) -> int:
    """Return the size at which the log of a file with this number of pages is copied into it, both in pages.

    So a small set that is overwritten all the time has a short log.
    """
    limit = FIRST_CHECKPOINT_PAGES
    while limit < min(pages, CHECKPOINT_PAGES):
        limit *= 4
    return limit


def limit_log(connection: sqlite3.Connection, pages: int, known: int = 0) -> int:
    """Limit the log of a file with this number of pages; return the limit, `known` is the one that holds."""
    limit = checkpoint_pages(pages)
    if limit != known:
        connection.execute(f"PRAGMA wal_autocheckpoint = {limit}")
        connection.execute(f"PRAGMA journal_size_limit = {limit * PAGE_BYTES}")
    return limit


def check_format(connection: sqlite3.Connection, path: Path) -> bool:
    """Tell whether the file has the tables of a store (False: it is empty).

    Raises:
        StoreRefused: it is another product's database, or a newer format.
        StoreDamaged: its tables have other columns.
        sqlite3.Error: it cannot be read.
    """
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if not tables and not application:
        return False
    if application != APPLICATION_ID:
        raise StoreRefused(f"{path}: this is a database, but not a durability store")
    if version > FORMAT_VERSION:
        raise StoreRefused(
            f"{path}: the store has format {version}, written by a newer ospltool; "
            f"this one reads formats up to {FORMAT_VERSION}"
        )
    if version == FORMAT_VERSION and (other := _columns(connection) ^ _our_columns()):
        table, column = min(other)[:2]
        raise StoreDamaged(f"{path}: table {table!r} is not as it was made, see its column {column!r}")
    return True


def _columns(connection: sqlite3.Connection) -> frozenset[tuple[str, str, str, int, int]]:
    """Read table, name, type, NOT NULL and place in the primary key of all columns of a database."""
    rows = connection.execute(
        'SELECT t.name, c.name, c.type, c."notnull", c.pk'
        " FROM sqlite_schema AS t, pragma_table_info(t.name) AS c"
        " WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
    )
    return frozenset(rows.fetchall())


@functools.cache
def _our_columns() -> frozenset[tuple[str, str, str, int, int]]:
    with contextlib.closing(sqlite3.connect(":memory:")) as memory:
        memory.executescript(TABLES)
        return _columns(memory)


def create(connection: sqlite3.Connection, node_id: str) -> None:
    """Make the tables, inside the caller's transaction."""
    for statement in TABLES.split(";"):
        connection.execute(statement)
    connection.execute("INSERT INTO node VALUES (1, ?, 0, 0, 1)", (node_id,))
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")


def row_check(*fields: str | bytes | int) -> bytes:
    """Compute the check of a small row: 8 bytes over its fields and their boundaries."""
    return hashlib.blake2b(repr(fields).encode(), digest_size=8).digest()


_REFUSALS: Final = {
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_AUTH,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_PROTOCOL,
}


_FORBIDDEN: Final = {
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_AUTH,
}


def _check_functions(connection: sqlite3.Connection, path: Path) -> None:
    try:
        connection.execute("SELECT value FROM json_each('[0]')").fetchall()
    except sqlite3.OperationalError as error:
        if "no such table" not in str(error):
            raise  # the file cannot be read for another reason
        found = f"SQLite {sqlite3.sqlite_version} is built without JSON functions"
        raise StoreFailed(f"{path}: {found}; 3.38 and later have them") from error


def typed(error: sqlite3.Error, path: Path) -> StoreError | None:
    """Return the store error for an SQLite error; None for a bug in ospltool."""
    if isinstance(error, sqlite3.ProgrammingError) and "closed database" in str(error):
        return StoreFailed(f"{path}: it could not be opened again")
    code = getattr(error, "sqlite_errorcode", None)
    primary = None if code is None else code & 0xFF
    may_be_full = primary in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)
    if primary == sqlite3.SQLITE_FULL or (may_be_full and _no_space(path)):
        return StoreFull(f"{path}: no space left")
    if primary in _REFUSALS:
        return (StoreForbidden if primary in _FORBIDDEN else StoreFailed)(f"{path}: {error}")
    if primary in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or _is_unreadable(error):
        return StoreDamaged(f"{path}: {error}")
    return None


def _is_unreadable(error: sqlite3.Error) -> bool:
    """Tell whether a text is not UTF-8, or the header names another format: both have words and no code."""
    return str(error).startswith(("Could not decode to UTF-8", "unsupported file format"))


def _no_space(path: Path) -> bool:
    try:
        state = os.statvfs(path.parent)
    except OSError:
        return False
    no_files = bool(state.f_files) and not state.f_favail  # some file systems do not count files
    return state.f_bavail * state.f_frsize < SHARED_BYTES or no_files
