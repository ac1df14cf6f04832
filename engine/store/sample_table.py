"""Reading the table of samples."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterable, Iterator
from typing import Final

from engine.dataset.sample import Sample
from engine.store.interface import DamageLog

COLUMNS: Final = "source_time_ns, writer, sequence, digest, status, key, payload"
# Chosen: with `engine.store.verification.ROWS` or more rows a page stays below it for payloads of up to 8
# KiB.
_PAGE_BYTES: Final = 8 << 20
"""Limit for the payload bytes of one page, unless a single payload is larger."""


def raw_pages(
    connection: sqlite3.Connection, group_id: int, size: int
) -> Iterator[list[tuple[int, bytes, int, bytes, int, bytes, bytes]]]:
    """Read the rows of the group `group_id` unverified, oldest first, in pages of at most `size` rows.

    A page ends with the row that makes it large, so that not many large ones are in memory twice.

    Raises:
        TypeError: a payload in a damaged file is not bytes.
        sqlite3.DatabaseError: the rest of the table cannot be read.
    """
    cursor = connection.execute(FORWARD, (group_id,))
    while rows := list(_page(cursor, size)):
        yield rows
        rows.clear()  # the next page is read before this name has another list


def _page(cursor: sqlite3.Cursor, size: int) -> Iterator[tuple[int, bytes, int, bytes, int, bytes, bytes]]:
    left_bytes = _PAGE_BYTES
    for row in itertools.islice(cursor, size):
        yield row
        left_bytes -= len(row[6])
        if left_bytes <= 0:
            return


def read_group(
    connection: sqlite3.Connection, group_id: int, expected: int, place: str, damage: DamageLog
) -> Iterator[Sample]:
    """Read all samples of a group, oldest first.

    If the table becomes unreadable before `expected` samples were seen, the rest is read from the other end,
    newest first, up to the damage.

    Args:
        connection: the file.
        group_id: number of the group in the file.
        expected: number of samples by the watermark.
        place: the group's name in `damage`.
        damage: collects damage.
    """
    seen = 0
    last = b""
    for sample in _scan(connection, FORWARD, group_id, place, damage):
        seen += 1
        last = sample.digest
        yield sample
    if seen >= expected:
        return
    for sample in _scan(connection, _BACKWARD, group_id, place, damage):
        if sample.digest == last or seen >= expected:
            return
        seen += 1
        yield sample


def _scan(
    connection: sqlite3.Connection, query: str, group_id: int, place: str, damage: DamageLog
) -> Iterator[Sample]:
    try:
        for row in connection.execute(query, (group_id,)):
            yield _unsigned(Sample._make(row))
    except sqlite3.DatabaseError as error:
        damage.add(place, f"part of it cannot be read: {error}")


_SELECT: Final = f"SELECT {COLUMNS} FROM sample WHERE sample_group = ?"  # noqa: S608  # constants only
FORWARD: Final = f"{_SELECT} ORDER BY source_time_ns, digest"
_BACKWARD: Final = f"{_SELECT} ORDER BY source_time_ns DESC, digest DESC"


def _unsigned(sample: Sample) -> Sample:
    if type(sample.sequence) is int and sample.sequence < 0:
        return sample._replace(sequence=sample.sequence + (1 << 64))
    return sample


def newest_until(connection: sqlite3.Connection, group_ids: Iterable[int], limit_ns: int) -> int:
    """Return the newest source time that is not later than the limit; 0 if there is none.

    `group_ids` are the numbers of the groups in the file.
    """
    newest = (
        connection.execute(
            "SELECT max(source_time_ns) FROM sample WHERE sample_group = ? AND source_time_ns <= ?",
            (group_id, limit_ns),
        ).fetchone()[0]
        for group_id in group_ids
    )
    return max((time_ns or 0 for time_ns in newest), default=0)
