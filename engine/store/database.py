"""Opening the database file: a damaged one is put aside, and an unclean end is checked."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Final

from engine.store import schema
from engine.store.catalog import read_catalog
from engine.store.files import DAMAGED, StoreProgress
from engine.store.interface import StoreDamaged, StoreFailed, refused
from engine.store.remembered import read_fellows, read_marks

_MAX_LINES: Final = 10
"""Limit for the reported lines of SQLite's structure check of each table."""
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
        connection = schema.connect(path)
        if schema.check_format(connection, path):
            read_catalog(connection)
            read_fellows(connection)
            read_marks(connection)
    except BaseException as error:
        if connection is not None:
            connection.close()
        if isinstance(error, UnicodeDecodeError):  # a text in it, also in what SQLite reports of it
            raise StoreDamaged(f"{path}: a text in it is not UTF-8") from error
        known = schema.typed(error, path) if isinstance(error, sqlite3.Error) else None
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
    for table in schema.SMALL_TABLES:
        for (line,) in connection.execute(f"PRAGMA quick_check('{table}')").fetchmany(_MAX_LINES):
            if line != "ok":
                findings.append(f"table {table}: {line}")
    return findings
