"""Rows of the store: last values, and the numbers of each writer that are accounted for.

Each row has a checksum. If one is damaged, the numbers no longer describe the last values: then all numbers
are forgotten, and other replicas send the missing samples again.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from typing import Final

from engine.persistence.core.messages import KeptSample, OriginalSample, Saved
from engine.persistence.core.sequences import Sequences
from engine.persistence.service.parts import Write

TABLES: Final = """
CREATE TABLE IF NOT EXISTS kept (
    key BLOB PRIMARY KEY, writer TEXT NOT NULL, sequence BLOB NOT NULL, source_time_ns INTEGER NOT NULL,
    status INTEGER NOT NULL, payload BLOB NOT NULL, late INTEGER NOT NULL, writers TEXT NOT NULL,
    row_check BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS accounted (
    writer TEXT PRIMARY KEY, intervals TEXT NOT NULL, row_check BLOB NOT NULL) WITHOUT ROWID;
"""

_SEQUENCE_BYTES: Final = 17
_CHECK_BYTES: Final = 8

_Row = tuple[bytes | str | int, ...]


def checked(row: _Row) -> _Row:
    """Return a row with its checksum at the end."""
    return (*row, _check(row))


def is_whole(row: _Row) -> bool:
    """Whether a row matches its checksum."""
    return _check(row[:-1]) == row[-1]


def _check(row: _Row) -> bytes:
    parts = [each if isinstance(each, bytes) else str(each).encode() for each in row]
    parts.append(",".join([str(len(each)) for each in parts]).encode())
    return hashlib.blake2b(b"".join(parts), digest_size=_CHECK_BYTES).digest()


def _kept_row(kept: KeptSample) -> _Row:
    sample = kept.sample
    return checked(
        (
            sample.key,
            sample.writer,
            sample.sequence.to_bytes(_SEQUENCE_BYTES, "big"),
            sample.source_time_ns,
            sample.status,
            sample.payload,
            int(sample.late),
            json.dumps(sorted(kept.writers)),
        )
    )


def writing(saved: Saved) -> Write:
    """Return a function that writes `saved` over the contents of the store."""

    def write(store: sqlite3.Connection) -> None:
        store.executemany("DELETE FROM kept WHERE key = ?", ((key,) for key in saved.gone))
        store.executemany(
            "INSERT OR REPLACE INTO kept VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", map(_kept_row, saved.kept)
        )
        store.executemany(
            "INSERT OR REPLACE INTO accounted VALUES (?, ?, ?)",
            (checked((writer, json.dumps(had.intervals))) for writer, had in saved.had),
        )

    return write


def read(store: sqlite3.Connection) -> tuple[Saved, int]:
    """Return the contents of the store, and the number of damaged rows.

    Raises:
        sqlite3.Error: it cannot be read.
    """
    damaged = 0
    kept: list[KeptSample] = []
    had: list[tuple[str, Sequences]] = []
    for row in store.execute("SELECT * FROM kept"):
        if not is_whole(row):
            damaged += 1
            continue
        key, writer, sequence, time_ns, status, payload, late, writers, _ = row
        number = int.from_bytes(sequence, "big")
        sample = OriginalSample(writer, number, key, time_ns, payload, status, late=bool(late))
        kept.append(KeptSample(sample, frozenset(json.loads(writers))))
    for row in store.execute("SELECT * FROM accounted"):
        if not is_whole(row):
            damaged += 1
            continue
        writer, intervals, _ = row
        had.append((writer, Sequences.checked((first, last) for first, last in json.loads(intervals))))
    return Saved(tuple(kept), () if damaged else tuple(had)), damaged
