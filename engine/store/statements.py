"""SQL that passes many samples in few values: SQLite itself splits the columns.

A statement gets the bytes of a block as one value and the source times as a JSON array, and cuts each field
out by its position. A value for each field of each row would cost three times as much processor time, most of
it under the interpreter lock, for which the node's thread waits. Python's sqlite3 also releases that lock at
every step of a statement and waits for it again: one-row statements beside one busy thread reached 1,000 rows
a second.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Sequence
from typing import Any, Final

from engine.dataset.blocks import Block
from engine.dataset.sample import DATA, DIGEST_BYTES

COLUMNS: Final = "source_time_ns, writer, sequence, digest, status, key, payload"

_SIGNED_LIMIT: Final = 1 << 63
_DIGITS: Final = 20
"""The width of a number in a column of numbers."""
_NUMBER: Final = b"%%%dd" % _DIGITS
_WRITER_BYTES: Final = 16
_DIGEST: Final = f"substr(:digests, key * {DIGEST_BYTES} + 1, {DIGEST_BYTES})"
SIZES: Final = tuple(1 << power for power in range(10, -1, -1))
"""Numbers of places in a statement: few different sizes, so that few statements are prepared."""

Statement = tuple[str, dict[str, Any] | list[Any]]
"""SQL and its values."""


def insert(group_id: int, block: Block) -> Statement:
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


def delete(group_id: int, places: Sequence[tuple[int, bytes]]) -> Statement:
    """Make the statement that removes the samples at these places, whose number is one of `SIZES`."""
    return _delete(len(places)), [group_id, *itertools.chain.from_iterable(places)]


def present(group_id: int, places: Sequence[tuple[int, bytes]]) -> Statement:
    """Make the query for the digests present at these places, whose number is one of `SIZES`."""
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
    return f"INSERT OR IGNORE INTO sample (sample_group, {COLUMNS}) {rows}"


def _number(column: str, place: str) -> str:
    return f"CAST(substr(:{column}, ({place}) * {_DIGITS} + 1, {_DIGITS}) AS INTEGER)"


def _text(name: str, *, varies: bool) -> str:
    if not varies:
        return f"substr(:block, :{name}_begin + key * :{name}_size, :{name}_size)"
    begin, end = _number(f"{name}_ends", "key"), _number(f"{name}_ends", "key + 1")
    return f"substr(:block, {begin} + 1, {end} - {begin})"
