"""Reading and writing the table of samples, many with each statement: SQLite itself splits the columns.

What is written is the net effect of the changes of a transaction (`engine.store.interface.Net`).

A statement gets the bytes of a block as one value and the source times as a JSON array, and cuts each field
out by its position. A value for each field of each row would cost three times as much processor time, most of
it under the interpreter lock, for which the node's thread waits. Python's sqlite3 also releases that lock at
every step of a statement and waits for it again: one-row statements beside one busy thread reached 1,000 rows
a second.
"""

from __future__ import annotations

import functools
import itertools
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from engine.dataset.blocks import Block
from engine.dataset.group_set import Summary
from engine.dataset.sample import DATA, DIGEST_BYTES, LARGE_BYTES, Sample
from engine.dataset.sample_rows import ObjectRows, Part, SampleRows, has_large
from engine.store.interface import DamageLog, Net
from engine.store.tables import APART, CHECKPOINT_PAGES, IN_ORDER

_COLUMNS: Final = "source_time_ns, writer, sequence, digest, status, key, payload"

_SIGNED_LIMIT: Final = 1 << 63
_DIGITS: Final = 20
"""The width of a number in a column of numbers."""
_NUMBER: Final = b"%%%dd" % _DIGITS
_WRITER_BYTES: Final = 16
_DIGEST: Final = f"substr(:digests, key * {DIGEST_BYTES} + 1, {DIGEST_BYTES})"
_SIZES: Final = tuple(1 << power for power in range(10, -1, -1))
"""Numbers of places in a statement: few different sizes, so that few statements are prepared."""

_Statement = tuple[str, dict[str, Any] | list[Any]]
"""SQL and its values."""


def _insertion(group_id: int, block: Block) -> _Statement:
    """Make the statement that adds the missing samples of a block.

    A sequence number beyond SQLite's integers is kept as its signed twin.
    """
    keys, payloads = block.key_texts, block.payload_texts
    values: dict[str, Any] = {"group_id": group_id, "times": f"[{','.join(map(str, block.times_ns()))}]"}
    values |= {"digests": block.digests, "block": block.data, "writers": block.writer_bytes()}
    values["writer_step"] = _WRITER_BYTES if len(values["writers"]) > _WRITER_BYTES else 0
    values |= {"key_begin": keys.begin + 1, "key_size": keys.size}
    values |= {"payload_begin": payloads.begin + 1, "payload_size": payloads.size}
    if block.has_sequences:
        signed = [number - (number >= _SIGNED_LIMIT) * 2 * _SIGNED_LIMIT for number in block.sequences()]
        values["sequences"] = _numbers(signed)
    if not block.is_plain:
        values["statuses"] = _numbers(block.statuses())
    for name, texts in (("key", keys), ("payload", payloads)):
        if texts.size < 0:
            values[f"{name}_ends"] = _numbers(texts.ends)
    columns = frozenset(values.keys() & {"sequences", "statuses", "key_ends", "payload_ends"})
    return _insert(columns), values


_INSERT_LARGE: Final = f"INSERT OR IGNORE INTO sample (sample_group, {_COLUMNS}) VALUES (?,?,?,?,?,?,?,?)"  # noqa: S608  # constants


def _large_insertion(group_id: int, sample: Sample, payload: bytes | memoryview) -> _Statement:
    """Make the statement that adds one sample with this payload, not its own, if it is missing."""
    signed = sample.sequence - (sample.sequence >= _SIGNED_LIMIT) * 2 * _SIGNED_LIMIT
    values = [
        group_id,
        sample.source_time_ns,
        sample.writer,
        signed,
        sample.digest,
        sample.status,
        sample.key,
    ]
    return _INSERT_LARGE, [*values, payload]


def _deletion(group_id: int, places: Sequence[tuple[int, bytes]]) -> _Statement:
    """Make the statement that removes the samples at these places, whose number is one of `_SIZES`."""
    return _delete(len(places)), [group_id, *itertools.chain.from_iterable(places)]


def _presence(group_id: int, places: Sequence[tuple[int, bytes]]) -> _Statement:
    """Make the query for the digests present at these places, whose number is one of `_SIZES`."""
    return _present(len(places)), [group_id, *itertools.chain.from_iterable(places)]


@functools.cache
def _delete(count: int) -> str:
    return f"DELETE FROM sample WHERE {_in_places(count)}"  # noqa: S608  # placeholders only


@functools.cache
def _present(count: int) -> str:
    return f"SELECT digest FROM sample WHERE {_in_places(count)}"  # noqa: S608  # placeholders only


def _in_places(count: int) -> str:
    """Name the places by values: with a JSON array, SQLite 3.40 takes twice as long to delete."""
    pairs = ",".join(f"(?{2 * number + 2},?{2 * number + 3})" for number in range(count))
    # with IN (VALUES ...) alone SQLite scans the whole group
    places = f"SELECT column1, column2 FROM (VALUES {pairs})"  # noqa: S608  # placeholders only
    return f"sample_group = ?1 AND (source_time_ns, digest) IN ({places})"


def _numbers(numbers: Iterable[int]) -> bytes:
    """Pack numbers into a column in which each is found by its position."""
    column = tuple(numbers)
    return (_NUMBER * len(column)) % column


@functools.cache
def _insert(columns: frozenset[str]) -> str:
    """Make the statement for a block with these columns; others have equal entries and are not passed."""
    fields = (
        "value",
        f"substr(:writers, key * :writer_step + 1, {_WRITER_BYTES})",
        _number("sequences", "key") if "sequences" in columns else "0",
        _DIGEST,
        _number("statuses", "key") if "statuses" in columns else str(DATA),
        _text("key", varies="key_ends" in columns),
        _text("payload", varies="payload_ends" in columns),
    )
    rows = f"SELECT :group_id, {', '.join(fields)} FROM json_each(:times)"  # noqa: S608  # constants
    return f"INSERT OR IGNORE INTO sample (sample_group, {_COLUMNS}) {rows}"


def _number(column: str, place: str) -> str:
    return f"CAST(substr(:{column}, ({place}) * {_DIGITS} + 1, {_DIGITS}) AS INTEGER)"


def _text(name: str, *, varies: bool) -> str:
    if not varies:
        return f"substr(:block, :{name}_begin + key * :{name}_size, :{name}_size)"
    begin, end = _number(f"{name}_ends", "key"), _number(f"{name}_ends", "key + 1")
    return f"substr(:block, {begin} + 1, {end} - {begin})"


_MASK: Final = (1 << 128) - 1
_STATEMENT_BYTES: Final = 8 << 20
"""Limit for the payload bytes of one statement, unless a single payload is larger."""
_FEW_BYTES: Final = 1 << 18
"""Payload bytes of samples that one statement adds, however large each of them is."""
MOVED_PAGES: Final = CHECKPOINT_PAGES
"""Size of a file, 64 MiB, up to which its samples are moved for the first large one: that takes a second."""
_TRIES: Final = 3
"""Attempts at that in one run, because the disk may be full."""


class Unexpected(Exception):
    """Samples were present, or missing, against expectation."""


class SampleTable:
    """The sample table of one open file."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._tries = _TRIES

    def change(self, group_id: int, stored: Summary, net: Net) -> Summary:
        """Add and remove samples; return the new summary.

        Args:
            group_id: number of the group in the file.
            stored: its summary before.
            net: the changes.

        Raises:
            Unexpected: one of the samples to add was present, or one of the others was not. The caller must
                undo the transaction, sort the changes out, and repeat it.
        """
        added = SampleRows((*net.rows.parts, ObjectRows([*net.added.values()])))
        evicted = SampleRows((ObjectRows([*net.evicted.values()]),))
        inserted = self._insert(group_id, added)
        deleted = sum(
            self._connection.execute(*_deletion(group_id, places)).rowcount for places in _pieces(evicted)
        )
        if inserted != len(added) or deleted != len(evicted):
            raise Unexpected
        if net.passing and self.present(group_id, [*net.passing.values()]):
            raise Unexpected
        count = stored.count + len(added) - len(evicted)
        digest = stored.digest + added.digest_sum() - evicted.digest_sum()
        return Summary(count, digest & _MASK, max(added.newest_ns(), stored.newest_ns))

    def present(self, group_id: int, samples: Sequence[Sample]) -> set[bytes]:
        """Return the digests of the samples that are in the table."""
        here: set[bytes] = set()
        for places in _pieces(SampleRows.of(samples)):
            found = self._connection.execute(*_presence(group_id, places))
            here.update(digest for (digest,) in found.fetchall())
        return here

    def _insert(self, group_id: int, samples: SampleRows) -> int:
        count, is_large = 0, False
        for part in samples.parts:
            if self._tries and has_large(part):
                self._move_apart()
            for statement, values in _inserts(group_id, part):
                count += self._connection.execute(statement, values).rowcount
                is_large = is_large or statement is _INSERT_LARGE
        if is_large:
            # A statement keeps a copy of its last values until it gets others. These are no row.
            self._connection.execute(_INSERT_LARGE, [None] * _INSERT_LARGE.count("?"))
        return count

    def _move_apart(self) -> None:
        """Keep rows apart from their keys from now on, in the caller's transaction; see `APART`."""
        (how,) = self._connection.execute("SELECT sql FROM sqlite_schema WHERE name = 'sample'").fetchone()
        (pages,) = self._connection.execute("PRAGMA page_count").fetchone()
        if IN_ORDER not in how or pages > MOVED_PAGES:
            self._tries = 0
            return
        self._tries -= 1
        for statement in APART:
            self._connection.execute(statement)

    def sweep(self, group_id: int, limit: int) -> int:
        """Remove up to `limit` of a dropped group's samples; return their number."""
        return self._connection.execute(
            "DELETE FROM sample WHERE sample_group = ?1 AND (source_time_ns, digest) IN"
            " (SELECT source_time_ns, digest FROM sample WHERE sample_group = ?1 LIMIT ?2)",
            (group_id, limit),
        ).rowcount


def _inserts(group_id: int, part: Part) -> Iterator[_Statement]:
    """Make the statements that add samples; a large one has its own, which copies its payload less often."""
    if part.payload_bytes < _FEW_BYTES:
        yield from (_insertion(group_id, block) for block in SampleRows((part,)).blocks(_STATEMENT_BYTES))
    elif isinstance(part, Block) and part.count == 1:
        yield _large_insertion(group_id, part.sample_with(0, b""), part.payload_view())
    else:
        small = []
        for sample in part.samples():
            if len(sample.payload) < LARGE_BYTES:
                small.append(sample)
            else:
                yield _large_insertion(group_id, sample, sample.payload)
        for block in SampleRows.of(small).blocks(_STATEMENT_BYTES):
            yield _insertion(group_id, block)


def _pieces(samples: SampleRows) -> Iterator[Sequence[tuple[int, bytes]]]:
    """Return the places of the samples, in pieces for one statement each."""
    largest = _SIZES[0]
    for places in samples.places(largest):
        done = 0
        for size in _SIZES:
            while len(places) - done >= size:
                yield places[done : done + size]
                done += size


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
    left_bytes = _STATEMENT_BYTES
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


_SELECT: Final = f"SELECT {_COLUMNS} FROM sample WHERE sample_group = ?"  # noqa: S608  # constants only
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
