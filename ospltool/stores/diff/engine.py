"""The comparison as SQL, the same text for DuckDB and Spark (`ospltool.analytics.engines.Tables`).

An instance is a key of a group. It is the same in two stores if its samples have the same digests. Rows that
are not in every store are found by group number and digest alone, which are numbers. Keys and times are read
only of the instances that these rows belong to. Where each instance has one row at most, as with a history of
depth 1, that is one pass less.

Of each store there is a view `side_0`, `side_1`, ... with the rows to compare, and a view `whole_0`,
`whole_1`, ... with all rows. They differ where snapshots have digests of ranges (`ospltool.stores.ranges`):
rows of ranges that all of them have need not be compared.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ospltool.analytics.engines import Tables
from ospltool.stores.diff.sides import InstanceDifference, Row, Side, Wanted
from ospltool.stores.ranges import differing, rows_of

_COMPARED: Final = "group_code, key, source_time_ns, writer, sequence, status, digest_high, digest_low"
_MOST_COMPARED: Final = 0.25
"""Share of the rows in ranges that differ up to which the others are left out."""
_UNSIGNED: Final = 1 << 64


class DiffEngine:
    """Compares the snapshots of sides.

    Args:
        sides: the stores.
        tables: where the SQL runs; closed by the caller.
    """

    def __init__(self, sides: Sequence[Side], tables: Tables) -> None:
        self._sides = len(sides)
        self._tables = tables
        self._has_single_rows = all(side.has_single_rows for side in sides)
        wanted = _ranges_to_compare(sides) if tables.row_number else None
        for number, side in enumerate(sides):
            file = tables.parquet(side.samples_path)
            sets = ", ".join(map(str, side.set_numbers)) or "NULL"
            whole = f"SELECT {_COMPARED}, payload FROM {file} WHERE set_number IN ({sets})"  # noqa: S608  # our own names
            tables.view(f"whole_{number}", whole)
            if wanted is None:
                tables.view(f"side_{number}", f"SELECT * FROM whole_{number}")  # noqa: S608  # a number
                continue
            rows, at = rows_of(wanted[number]), tables.row_number
            first, last = (int(rows[0]), int(rows[-1])) if len(rows) else (0, -1)
            tables.fill("chosen", pa.table({"row": rows}))
            # The span of the rows beside them: DuckDB leaves out the parts of the file before and behind it.
            chosen = f"{at} IN (SELECT row FROM chosen) AND {at} BETWEEN {first} AND {last}"  # noqa: S608  # numbers
            tables.keep(f"side_{number}", f"SELECT {_COMPARED} FROM {file} WHERE {chosen}")  # noqa: S608  # our own names

    def instances(self) -> Iterator[InstanceDifference]:
        """Yield the instances that differ, ordered by group number and key."""
        self._tables.keep("odd_rows", _odd_rows(self._sides))
        if self._has_single_rows:  # then those in `odd_rows` are all
            query = _rows(self._sides, "side", f"odd_rows AS o ON {_same('s', 'o')}")
        else:
            self._tables.keep("odd_keys", _odd_keys(self._sides))
            query = _rows(
                self._sides, "whole", "odd_keys AS k ON s.key = k.key AND s.group_code = k.group_code"
            )
        yield from _instances(self._tables.rows(query), self._sides)

    def contents(self, wanted: Sequence[Wanted]) -> dict[Wanted, bytes]:
        """Return the payloads of samples."""
        found: dict[Wanted, bytes] = {}
        for side in sorted({one.side for one in wanted}):
            places = [(one.code, *_halves_of(one.digest)) for one in wanted if one.side == side]
            names = ("group_code", "digest_high", "digest_low")
            self._tables.fill("wanted", pa.table(list(map(pa.array, zip(*places, strict=True))), names=names))
            query = f"""
                SELECT s.group_code, s.digest_high, s.digest_low, s.payload
                FROM whole_{side} AS s JOIN wanted AS w ON {_same("s", "w")}"""  # noqa: S608  # a number
            for code, high, low, payload in self._tables.rows(query):
                found[Wanted(side, code, _digest_of(high, low))] = bytes(payload)
        return found


def _ranges_to_compare(sides: Sequence[Side]) -> list[pa.Table] | None:
    """Return the ranges of each side that are not in every side; None to compare all rows."""
    if any(side.ranges is None for side in sides):
        return None
    chosen = [
        side.ranges.filter(pc.is_in(side.ranges.column("set_number"), pa.array(side.set_numbers, pa.int64())))
        for side in sides
    ]
    found = differing(chosen)
    rows, wanted = (sum(pc.sum(one.column("rows")).as_py() or 0 for one in some) for some in (chosen, found))
    return found if wanted <= rows * _MOST_COMPARED else None


def _same(left: str, right: str) -> str:
    """Return the condition that two rows have the same digest and group.

    Half of the digest is what is hashed, the rest is held against it where that half is equal: a third
    faster than hashing all three, and no less exact.
    """
    rest = (
        f"{left}.{name} BETWEEN {right}.{name} AND {right}.{name}" for name in ("digest_high", "group_code")
    )
    return f"{left}.digest_low = {right}.digest_low AND {' AND '.join(rest)}"


def _odd_rows(sides: int) -> str:
    """Return the query for the rows, by group and digest, that are not in every store."""
    if sides == 2:  # a join is faster than counting
        return f"""
            SELECT coalesce(a.group_code, b.group_code) AS group_code,
                   coalesce(a.digest_high, b.digest_high) AS digest_high,
                   coalesce(a.digest_low, b.digest_low) AS digest_low
            FROM side_0 AS a FULL OUTER JOIN side_1 AS b
              ON {_same("a", "b")}
            WHERE a.group_code IS NULL OR b.group_code IS NULL"""  # noqa: S608  # our own text
    rows = " UNION ALL ".join(
        f"SELECT group_code, digest_high, digest_low, {1 << number} AS side FROM side_{number}"  # noqa: S608  # numbers
        for number in range(sides)
    )
    return f"""
        SELECT group_code, digest_high, digest_low FROM ({rows}) AS r
        GROUP BY group_code, digest_high, digest_low HAVING bit_or(side) <> {(1 << sides) - 1}"""  # noqa: S608  # numbers


def _odd_keys(sides: int) -> str:
    """Return the query for the instances that the rows in table `odd_rows` belong to."""
    return " UNION ".join(
        f"""
        SELECT s.group_code, s.key FROM side_{number} AS s JOIN odd_rows AS o ON {_same("s", "o")}"""  # noqa: S608  # numbers
        for number in range(sides)
    )


def _rows(sides: int, view: str, join: str) -> str:
    """Return the query for the rows that a join chooses, in order."""
    rows = " UNION ALL ".join(
        f"""
        SELECT {number} AS side, s.group_code, s.key, s.source_time_ns, s.writer, s.sequence, s.status,
               s.digest_high, s.digest_low
        FROM {view}_{number} AS s JOIN {join}"""  # noqa: S608  # numbers, and our own text
        for number in range(sides)
    )
    return f"SELECT * FROM ({rows}) AS r ORDER BY group_code, key, side"  # noqa: S608  # numbers


def _digest_of(high: int, low: int) -> bytes:
    """Return a digest from its halves."""
    return (high % _UNSIGNED << 64 | low % _UNSIGNED).to_bytes(16)


def _halves_of(digest: bytes) -> tuple[int, int]:
    """Return the halves of a digest, as a snapshot has them."""
    return int.from_bytes(digest[:8], signed=True), int.from_bytes(digest[8:], signed=True)


def _instances(rows: Iterable[tuple[Any, ...]], sides: int) -> Iterator[InstanceDifference]:
    """Yield the answer to `_rows` as instances."""
    for (code, key), some in itertools.groupby(rows, key=lambda row: (row[1], bytes(row[2]))):
        held: list[dict[bytes, Row]] = [{} for _ in range(sides)]
        for side, _, _, time_ns, writer, sequence, status, high, low in some:
            digest = _digest_of(high, low)
            held[side][digest] = Row(time_ns, bytes(writer), sequence % _UNSIGNED, digest, status)
        yield InstanceDifference(code, key, tuple(tuple(sorted(each.values())) for each in held))
