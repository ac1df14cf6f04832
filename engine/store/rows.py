"""Samples in and out of the table, many to a statement.

Python's sqlite3 gives up the interpreter lock at every step of a statement and waits to get it back. A loop
of one-row statements beside one busy thread was measured at 1,000 rows a second; the same rows in
statements of a thousand, at 150,000. So every statement here carries as many rows as it can.
"""

from __future__ import annotations

import functools
import itertools
import sqlite3
from typing import TYPE_CHECKING, Final

from engine.dataset.blocks import Row
from engine.dataset.dataset import Summary
from engine.dataset.rows import Rows
from engine.dataset.sample import Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from engine.store.interface import DamageLog

_MASK: Final = (1 << 128) - 1
_ROWS_PER_STATEMENT: Final = 1024
_ROWS_PER_PAGE: Final = 4096
_SIGNED_LIMIT: Final = 1 << 63
_COLUMNS: Final = "source_time_ns, writer, sequence, digest, status, key, payload"


class Unexpected(Exception):
    """Samples were there, or not there, against expectation."""


class SampleTable:
    """The sample table of one open file."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        variables = connection.getlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER)
        largest = min(_ROWS_PER_STATEMENT, (variables - 1) // len(Sample._fields))
        self._sizes = [1 << power for power in reversed(range(largest.bit_length()))]

    def change(self, group_id: int, stored: Summary, added: Rows, evicted: Rows) -> Summary:
        """Put samples in and take samples out; returns the summary after it.

        Args:
            group_id: number of the group in the file.
            stored: its summary before.
            added: samples to put in, each once.
            evicted: samples to take out; none of `added`.

        Raises:
            Unexpected: one of `added` was there already, or one of `evicted` was not. The caller must
                undo the transaction, ask `present`, and do it again.
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
        """The digests of those samples that are in the table."""
        here: set[bytes] = set()
        for piece in self._pieces(samples):
            query = _present_statement(len(piece))
            found = self._connection.execute(query, [group_id, *_places(piece)])
            here.update(digest for (digest,) in found.fetchall())
        return here

    def _insert(self, group_id: int, samples: Rows) -> int:
        flatten = itertools.chain.from_iterable
        try:
            return self._run(_insert_statement, group_id, samples, flatten)
        except OverflowError:  # a sequence number beyond what SQLite's integers hold: kept as its signed twin
            return self._run(_insert_statement, group_id, Rows.of(map(_signed, samples)), flatten)

    def _delete(self, group_id: int, samples: Rows) -> int:
        return self._run(_delete_statement, group_id, samples, _places)

    def _run(
        self,
        statement: Callable[[int], str],
        group_id: int,
        samples: Rows,
        flatten: Callable[[Sequence[Row]], Iterator[object]],
    ) -> int:
        affected = 0
        for chunk in samples.chunks(self._sizes[0]):
            for piece in self._pieces(chunk):
                cursor = self._connection.execute(statement(len(piece)), [group_id, *flatten(piece)])
                affected += cursor.rowcount
        return affected

    def _pieces(self, samples: Sequence[Row]) -> Iterator[Sequence[Row]]:
        """Pieces of few different sizes, so that few statements are prepared."""
        done = 0
        for size in self._sizes:
            while len(samples) - done >= size:
                yield samples[done : done + size]
                done += size

    def newest_until(self, group_id: int, limit_ns: int) -> int:
        """Newest source timestamp of a group that is not later than the limit; 0 when there is none."""
        (newest_ns,) = self._connection.execute(
            "SELECT max(source_time_ns) FROM sample WHERE sample_group = ? AND source_time_ns <= ?",
            (group_id, limit_ns),
        ).fetchone()
        return newest_ns or 0

    def sweep(self, group_id: int, limit: int) -> int:
        """Remove up to `limit` of a dropped group's samples; returns how many."""
        return self._connection.execute(
            "DELETE FROM sample WHERE sample_group = ?1 AND (source_time_ns, digest) IN"
            " (SELECT source_time_ns, digest FROM sample WHERE sample_group = ?1 LIMIT ?2)",
            (group_id, limit),
        ).rowcount


def raw_pages(
    connection: sqlite3.Connection, group_id: int, size: int
) -> Iterator[list[tuple[int, bytes, int, bytes, int, bytes, bytes]]]:
    """The rows of a group as they are in the table, oldest first, not looked at, `size` at once.

    Raises:
        sqlite3.DatabaseError: the table can not be followed any further.
    """
    cursor = connection.execute(_FORWARD, (group_id,))
    while rows := cursor.fetchmany(size):
        yield rows


def read_group(
    connection: sqlite3.Connection, group_id: int, expected: int, place: str, damage: DamageLog
) -> Iterator[Sample]:
    """All samples of a group, oldest first.

    Where the table can not be followed any further before `expected` samples were seen, the rest is read
    from the other end, newest first, as far as that goes.
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
        damage.add(place, f"a part of it can not be read: {error}")
    else:
        return
    try:  # what was fetched together with the fault is fetched again, one by one
        for number, row in enumerate(connection.execute(query, (group_id,))):
            if number >= passed:
                yield _unsigned(Sample._make(row))
    except sqlite3.DatabaseError:
        return  # it is noted


_SELECT: Final = f"SELECT {_COLUMNS} FROM sample WHERE sample_group = ?"  # noqa: S608  # constants only
_FORWARD: Final = f"{_SELECT} ORDER BY source_time_ns, digest"
_BACKWARD: Final = f"{_SELECT} ORDER BY source_time_ns DESC, digest DESC"


@functools.cache
def _insert_statement(rows: int) -> str:
    columns = len(Sample._fields)
    row = itertools.count(2)
    values = ",".join(f"(?1,{','.join(f'?{next(row)}' for _ in range(columns))})" for _ in range(rows))
    return f"INSERT OR IGNORE INTO sample (sample_group, {_COLUMNS}) VALUES {values}"  # noqa: S608  # placeholders only


@functools.cache
def _delete_statement(rows: int) -> str:
    return f"DELETE FROM sample WHERE {_in_places(rows)}"  # noqa: S608  # placeholders only


@functools.cache
def _present_statement(rows: int) -> str:
    return f"SELECT digest FROM sample WHERE {_in_places(rows)}"  # noqa: S608  # placeholders only


def _in_places(rows: int) -> str:
    pairs = ",".join(f"(?{2 * row + 2},?{2 * row + 3})" for row in range(rows))
    # IN (VALUES ...) alone makes SQLite walk through the whole group
    places = f"SELECT column1, column2 FROM (VALUES {pairs})"  # noqa: S608  # placeholders only
    return f"sample_group = ?1 AND (source_time_ns, digest) IN ({places})"


def _places(samples: Sequence[Row]) -> Iterator[object]:
    return itertools.chain.from_iterable((row[0], row[3]) for row in samples)


def _signed(sample: Sample) -> Sample:
    if sample.sequence < _SIGNED_LIMIT:
        return sample
    return sample._replace(sequence=sample.sequence - (1 << 64))


def _unsigned(sample: Sample) -> Sample:
    if type(sample.sequence) is int and sample.sequence < 0:
        return sample._replace(sequence=sample.sequence + (1 << 64))
    return sample
