"""Rows of the store: last values, what is accounted for, and durable subscriptions.

Each row of a sample has a checksum. If one of the last values is damaged, the numbers no longer describe
them: then all numbers are forgotten, and other replicas send the missing samples again. A damaged sample that
was held for a durable subscription is left out, and another replica sends it again.
"""

from __future__ import annotations

import collections
import hashlib
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

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
from engine.persistence.service.service_part import Write

TABLES: Final = """
CREATE TABLE IF NOT EXISTS kept (
    key BLOB PRIMARY KEY, writer TEXT NOT NULL, sequence BLOB NOT NULL, source_time_ns INTEGER NOT NULL,
    status INTEGER NOT NULL, payload BLOB NOT NULL, late INTEGER NOT NULL, writers TEXT NOT NULL,
    row_check BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS accounted (
    writer TEXT PRIMARY KEY, intervals TEXT NOT NULL, row_check BLOB NOT NULL) WITHOUT ROWID;
"""

_NUMBER_BYTES: Final = 17
_CHECK_BYTES: Final = 8

_Row = tuple[bytes | str | int, ...]


def checked(row: _Row) -> _Row:
    """Return a row with its checksum at the end."""
    return (*row, _check(row))


KEPT: Final = (bytes, str, bytes, int, int, bytes, int, str, bytes)
"""Types of the columns of `kept`; a flipped bit in a row's header changes one, and no byte of the content."""
_ACCOUNTED: Final = (str, str, bytes)
_HELD: Final = (bytes, str, bytes, bytes, int, int, bytes, bytes)
_SUBSCRIPTION: Final = (bytes, str, int, int, int)
_ACKNOWLEDGED: Final = (str, str, bytes)


def is_whole(row: _Row, types: tuple[type, ...]) -> bool:
    """Whether a row has these types and matches its checksum."""
    return _has(row, types) and _check(row[:-1]) == row[-1]


def _has(row: _Row, types: tuple[type, ...]) -> bool:
    return all(map(isinstance, row, types))


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
            _blob(sample.sequence),
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
        if not is_whole(row, KEPT):
            damaged += 1
            continue
        key, writer, sequence, time_ns, status, payload, late, writers, _ = row
        number = int.from_bytes(sequence, "big")
        sample = OriginalSample(writer, number, key, time_ns, payload, status, late=bool(late))
        kept.append(KeptSample(sample, frozenset(json.loads(writers))))
    for row in store.execute("SELECT * FROM accounted"):
        if not is_whole(row, _ACCOUNTED):
            damaged += 1
            continue
        writer, intervals, _ = row
        had.append((writer, Sequences(tuple((first, last) for first, last in json.loads(intervals)))))
    return Saved(tuple(kept), () if damaged else tuple(had)), damaged


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
            [_held_row(group, kept) for kept in held.values() if kept is not None],
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


def _blob(number: int) -> bytes:
    return number.to_bytes(_NUMBER_BYTES, "big")


def _held_row(group: bytes, sample: OriginalSample) -> tuple[bytes | str | int, ...]:
    return checked(
        (
            group,
            sample.writer,
            _blob(sample.sequence),
            sample.key,
            sample.source_time_ns,
            sample.status,
            sample.payload,
        )
    )


def read_subscriptions(store: sqlite3.Connection) -> tuple[dict[bytes, SavedSubscriptions], int]:
    """Return the contents of the store, by group, and the number of damaged rows, which are left out.

    Raises:
        sqlite3.Error: it cannot be read.
    """
    damaged = 0
    held: dict[bytes, list[OriginalSample]] = collections.defaultdict(list)
    for row in store.execute("SELECT * FROM held"):
        if not is_whole(row, _HELD):
            damaged += 1
            continue
        group, writer, number, key, time_ns, status, payload, _ = row
        held[group].append(
            OriginalSample(writer, int.from_bytes(number, "big"), key, time_ns, payload, status)
        )
    ledgers: dict[bytes, list[LedgerState]] = collections.defaultdict(list)
    for row in store.execute("SELECT sample_group, name, generation, is_deleted, quorum FROM subscription"):
        if not _has(row, _SUBSCRIPTION):
            damaged += 1
            continue
        group, name, generation, is_deleted, quorum = row
        members, lost = _members(store, group, name)
        damaged += lost
        terms = SubscriptionTerms(generation, bool(is_deleted))
        done = members.pop(_QUORUM, ())
        ledgers[group].append(LedgerState(name, terms, quorum, done, tuple(sorted(members.items()))))
    groups = {*held, *ledgers}
    return {each: SavedSubscriptions(tuple(ledgers[each]), tuple(held[each])) for each in groups}, damaged


def _members(store: sqlite3.Connection, group: bytes, name: str) -> tuple[dict[str, Numbers], int]:
    """Return what each member has acknowledged, and the number of damaged rows."""
    found: dict[str, dict[str, list[int]]] = {}
    damaged = 0
    for row in store.execute(
        "SELECT member, writer, number FROM acknowledged WHERE sample_group = ? AND name = ?", (group, name)
    ):
        if not _has(row, _ACKNOWLEDGED):
            damaged += 1
            continue
        member, writer, number = row
        found.setdefault(member, {}).setdefault(writer, []).append(int.from_bytes(number, "big"))
    numbers = {
        member: tuple((writer, tuple(numbers)) for writer, numbers in lines.items())
        for member, lines in found.items()
    }
    return numbers, damaged
