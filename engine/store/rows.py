"""Reading and writing the table of samples, many with each statement (see `engine.store.statements`)."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Final

from engine.dataset.group_set import Summary
from engine.dataset.rows import SampleRows
from engine.dataset.sample import Sample
from engine.store import statements
from engine.store.interface import DamageLog

_MASK: Final = (1 << 128) - 1
_STATEMENT_BYTES: Final = 8 << 20
"""Limit for the payload bytes of one statement, unless a single payload is larger."""
_ROWS_PER_PAGE: Final = 4096


class Unexpected(Exception):
    """Samples were present, or missing, against expectation."""


class SampleTable:
    """The sample table of one open file."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def change(self, group_id: int, stored: Summary, added: SampleRows, evicted: SampleRows) -> Summary:
        """Add and remove samples; return the new summary.

        Args:
            group_id: number of the group in the file.
            stored: its summary before.
            added: samples to add, each once.
            evicted: samples to remove; none of `added`.

        Raises:
            Unexpected: one of `added` was present, or one of `evicted` was not. The caller must undo the
                transaction, call `present`, and repeat it.
        """
        inserted = self._insert(group_id, added)
        deleted = self._delete(group_id, evicted)
        if inserted != len(added) or deleted != len(evicted):
            raise Unexpected
        count = stored.count + len(added) - len(evicted)
        digest = stored.digest + added.digest_sum() - evicted.digest_sum()
        return Summary(
            count, digest & _MASK, max(added.newest_ns() if added else stored.newest_ns, stored.newest_ns)
        )

    def present(self, group_id: int, samples: Sequence[Sample]) -> set[bytes]:
        """Return the digests of the samples that are in the table."""
        here: set[bytes] = set()
        for places in _pieces(SampleRows.of(samples)):
            found = self._connection.execute(*statements.present(group_id, places))
            here.update(digest for (digest,) in found.fetchall())
        return here

    def _insert(self, group_id: int, samples: SampleRows) -> int:
        return sum(
            self._connection.execute(*statements.insert(group_id, block)).rowcount
            for block in samples.blocks(_STATEMENT_BYTES)
        )

    def _delete(self, group_id: int, samples: SampleRows) -> int:
        return sum(
            self._connection.execute(*statements.delete(group_id, places)).rowcount
            for places in _pieces(samples)
        )

    def newest_until(self, group_id: int, limit_ns: int) -> int:
        """Return the newest source timestamp of a group up to the limit; 0 if there is none."""
        (newest_ns,) = self._connection.execute(
            "SELECT max(source_time_ns) FROM sample WHERE sample_group = ? AND source_time_ns <= ?",
            (group_id, limit_ns),
        ).fetchone()
        return newest_ns or 0

    def sweep(self, group_id: int, limit: int) -> int:
        """Remove up to `limit` of a dropped group's samples; return their number."""
        return self._connection.execute(
            "DELETE FROM sample WHERE sample_group = ?1 AND (source_time_ns, digest) IN"
            " (SELECT source_time_ns, digest FROM sample WHERE sample_group = ?1 LIMIT ?2)",
            (group_id, limit),
        ).rowcount


def _pieces(samples: SampleRows) -> Iterator[Sequence[tuple[int, bytes]]]:
    """Return the places of the samples, in pieces for one statement each."""
    largest = statements.SIZES[0]
    for places in samples.places(largest):
        done = 0
        for size in statements.SIZES:
            while len(places) - done >= size:
                yield places[done : done + size]
                done += size


def raw_pages(
    connection: sqlite3.Connection, group_id: int, size: int
) -> Iterator[list[tuple[int, bytes, int, bytes, int, bytes, bytes]]]:
    """Read the rows of the group `group_id` unverified, oldest first, in pages of `size` rows.

    Raises:
        sqlite3.DatabaseError: the rest of the table cannot be read.
    """
    cursor = connection.execute(_FORWARD, (group_id,))
    while rows := cursor.fetchmany(size):
        yield rows


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
    for sample in _scan(connection, _FORWARD, group_id, place, damage):
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
    passed = 0
    try:
        cursor = connection.execute(query, (group_id,))
        while rows := cursor.fetchmany(_ROWS_PER_PAGE):
            passed += len(rows)
            yield from (_unsigned(Sample._make(row)) for row in rows)
    except sqlite3.DatabaseError as error:
        damage.add(place, f"part of it cannot be read: {error}")
    else:
        return
    try:  # fetch the rows of the failed page again, one by one
        for number, row in enumerate(connection.execute(query, (group_id,))):
            if number >= passed:
                yield _unsigned(Sample._make(row))
    except sqlite3.DatabaseError:
        return  # noted above


_SELECT: Final = f"SELECT {statements.COLUMNS} FROM sample WHERE sample_group = ?"  # noqa: S608  # constants only
_FORWARD: Final = f"{_SELECT} ORDER BY source_time_ns, digest"
_BACKWARD: Final = f"{_SELECT} ORDER BY source_time_ns DESC, digest DESC"


def _unsigned(sample: Sample) -> Sample:
    if type(sample.sequence) is int and sample.sequence < 0:
        return sample._replace(sequence=sample.sequence + (1 << 64))
    return sample
