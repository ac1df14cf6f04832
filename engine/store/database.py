"""Opening the database file: a damaged one is put aside, and an unclean end is checked.

SQLite refuses a file whose first bytes are damaged, although all samples may be sound. The header is equal in
all stores but for counters, so a command that only reads a store uses a copy with a new one. For its layout
see the SQLite file format, section 1.3.
"""

from __future__ import annotations

import sqlite3
import struct
from pathlib import Path
from typing import Final

from engine.store import tables
from engine.store.catalog import read_catalog, read_fellows, read_marks
from engine.store.interface import StoreDamaged, StoreFailed, refused
from engine.store.store_directory import DAMAGED, StoreProgress
from engine.store.tables import APPLICATION_ID, FORMAT_VERSION, PAGE_BYTES

# A damaged table gives a line for each of its pages.
_MAX_LINES: Final = 10
"""Limit for the reported lines of SQLite's structure check of each table."""
# Chosen: damage that returns a hundred times is a broken disk, and each file takes its space.
_MAX_SET_ASIDE: Final = 100
"""Limit for damaged files that are kept under another name; then opening fails."""


def open_database(path: Path, findings: list[str]) -> sqlite3.Connection:
    """Connect; put aside a file that is not a readable database, because a fellow has the data."""
    try:
        return _probe(path)
    except StoreDamaged as damage:
        findings.append(f"the store could not be read ({damage}); it was put aside as {put_aside(path)}")
        return _probe(path)


def _probe(path: Path) -> sqlite3.Connection:
    connection = None
    try:
        connection = tables.connect(path)
        if tables.check_format(connection, path):
            read_catalog(connection)
            read_fellows(connection)
            read_marks(connection)
    except BaseException as error:
        if connection is not None:
            connection.close()
        if isinstance(error, UnicodeDecodeError):  # a text in it, also in what SQLite reports of it
            raise StoreDamaged(f"{path}: a text in it is not UTF-8") from error
        known = tables.typed(error, path) if isinstance(error, sqlite3.Error) else None
        if known is None:
            raise
        raise known from error
    return connection


def put_aside(path: Path) -> str:
    """Rename a damaged database, which is not open, and its log; return the new name, "" if it is gone.

    Raises:
        StoreFull: there is no space for another name.
        StoreFailed: it cannot be renamed, or too many were put aside before.
    """
    if not path.exists():
        return ""
    for number in range(1, _MAX_SET_ASIDE + 1):
        aside = path.with_name(f"{DAMAGED}{number}")
        if aside.exists():
            continue
        try:
            path.rename(aside)
            for suffix in ("-wal", "-shm"):
                log = path.with_name(path.name + suffix)
                if log.exists():
                    log.rename(aside.with_name(aside.name + suffix))
        except OSError as error:
            raise refused(path, error, "cannot be put aside: ") from error
        return aside.name
    raise StoreFailed(f"{path}: {_MAX_SET_ASIDE} damaged stores lie beside it already; remove some")


def lost_tail(record: StoreProgress, commits: int) -> list[str]:
    """Return the finding about transactions that are in the ledger but not in the database."""
    missing = record.commits - commits
    if missing <= 0:
        return []
    where = "are missing at the end of the write-ahead log; the sets are those of before"
    return [f"{missing} transactions that were on disk {where}"]


def check_structure(connection: sqlite3.Connection) -> list[str]:
    """Check the small tables after an unclean end; samples are checked when they are loaded."""
    findings = ["the last run did not close the store"]
    for table in tables.SMALL_TABLES:
        for (line,) in connection.execute(f"PRAGMA quick_check('{table}')").fetchmany(_MAX_LINES):
            if line != "ok":
                findings.append(f"table {table}: {line}")
    return findings


# The file format of SQLite: the header is 100 bytes, and these three fractions are its only values.
_HEADER_BYTES: Final = 100
_LAYOUT: Final = struct.Struct(">16sHBBBBBB12I20x2I")
_MAGIC: Final = b"SQLite format 3\0"
_FRACTIONS: Final = (64, 32, 32)
# The newest format, which SQLite writes by default since 3.7.10.
_SCHEMA_FORMAT: Final = 4
_UTF_8: Final = 1
_ROLLBACK, _LOG = 1, 2


def is_header_damaged(path: Path) -> bool:
    """Tell whether the constant part of the header differs."""
    with path.open("rb") as file:
        content = file.read(_HEADER_BYTES)
    if len(content) < _HEADER_BYTES:
        return False
    magic, page, _, _, *reserved = _LAYOUT.unpack(content)[:8]
    numbers = _LAYOUT.unpack(content)[8:]
    expected = (_MAGIC, PAGE_BYTES, [0, *_FRACTIONS], _SCHEMA_FORMAT, _UTF_8)
    return (magic, page, reserved, numbers[5], numbers[8]) != expected


def mend_header(path: Path, *, has_log: bool) -> None:
    """Write a new header into a copy of a store; if there is a log, a header in it takes precedence."""
    with path.open("r+b") as file:
        pages = file.seek(0, 2) // PAGE_BYTES
        how = _LOG if has_log else _ROLLBACK
        counter = 1
        numbers = (counter, pages, 0, 0, 1, _SCHEMA_FORMAT, 0, 0, _UTF_8, FORMAT_VERSION, 0, APPLICATION_ID)
        header = _LAYOUT.pack(_MAGIC, PAGE_BYTES, how, how, 0, *_FRACTIONS, *numbers, counter, 0)
        file.seek(0)
        file.write(header)
