"""The comparison in DuckDB, which uses the disk if memory does not suffice.

Snapshots with digests of ranges are compared without the rows of ranges that all of them have.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from ospltool.analytics.duck import NO_PROGRESS
from ospltool.analytics.engines import literal
from ospltool.stores.diff import sql
from ospltool.stores.diff.sides import DiffError, InstanceDifference, Limits, Side, Wanted
from ospltool.stores.model import SAMPLES_FILE
from ospltool.stores.ranges import differing, rows_of

_MOST_COMPARED: Final = 0.25
"""Share of the rows in ranges that differ up to which the others are left out."""

_ROWS_AT_ONCE: Final = 10_000
_SHARE: Final = 0.6
"""Of the memory; the database takes a quarter more than its limit, and the report takes its part."""


class DuckDiff:
    """See `ospltool.stores.diff.sides.DiffEngine`."""

    def __init__(self, sides: Sequence[Side], limits: Limits) -> None:
        """Open the snapshots of the sides.

        Raises:
            DiffError: DuckDB cannot read them.
        """
        self._sides = len(sides)
        self._is_single = all(side.has_single_rows for side in sides)
        self._scratch = tempfile.TemporaryDirectory(prefix="ospltool-diff-")
        config: dict[str, str | bool | int | float | list[str]] = {
            "temp_directory": self._scratch.name,
            "memory_limit": f"{int(limits.memory_bytes * _SHARE) >> 20}MiB",
            "preserve_insertion_order": False,
            "autoinstall_known_extensions": False,  # nothing is fetched from anywhere
            "autoload_known_extensions": False,
        }
        if limits.threads:
            config["threads"] = limits.threads
        self._connection = duckdb.connect(config=config)
        try:
            self._connection.execute(NO_PROGRESS)
            wanted = _ranges_to_compare(sides)
            for number, side in enumerate(sides):
                chosen = ", ".join(map(str, side.set_numbers)) or "NULL"
                self._connection.execute(
                    f"CREATE VIEW whole_{number} AS SELECT {sql.SIDE_COLUMNS}"  # noqa: S608  # our own names
                    f" FROM {_file_of(side)} WHERE set_number IN ({chosen})"
                )
                self._choose(number, side, None if wanted is None else wanted[number])
        except duckdb.Error as error:
            self.close()
            raise DiffError(str(error)) from error

    def _choose(self, number: int, side: Side, ranges: pa.Table | None) -> None:
        """Make the view of the rows to compare: those of some ranges, or all."""
        view = f"side_{number}"
        if ranges is None:
            self._connection.execute(f"CREATE VIEW {view} AS SELECT * FROM whole_{number}")  # noqa: S608  # a number
            return
        rows = rows_of(ranges)
        first, last = (int(rows[0]), int(rows[-1])) if len(rows) else (0, -1)
        self._connection.register("chosen", pa.table({"row": rows}))
        self._keep(
            view,
            f"SELECT {sql.COMPARED_COLUMNS} FROM {_file_of(side)} SEMI JOIN chosen"  # noqa: S608  # our own names
            f" ON file_row_number = row WHERE file_row_number BETWEEN {first} AND {last}",
        )
        self._connection.unregister("chosen")

    def instances(self) -> Iterator[InstanceDifference]:
        """Yield the instances that differ."""
        try:
            self._keep("odd_rows", sql.odd_rows(self._sides))
            if self._is_single:
                cursor = self._connection.execute(sql.only_rows(self._sides))
            else:
                self._keep("odd_keys", sql.odd_keys(self._sides))
                cursor = self._connection.execute(sql.all_rows(self._sides))
            yield from sql.to_instances(_rows(cursor), self._sides)
        except duckdb.Error as error:
            raise DiffError(str(error)) from error

    def _keep(self, table: str, query: str) -> None:
        self._connection.execute(f"CREATE OR REPLACE TEMP TABLE {table} AS {query}")

    def contents(self, wanted: Sequence[Wanted]) -> Mapping[Wanted, bytes]:
        """Return the payloads of samples."""
        try:
            return sql.found_contents(wanted, self._payloads)
        except duckdb.Error as error:
            raise DiffError(str(error)) from error

    def _payloads(self, side: int, places: list[tuple[int, int, int]]) -> Iterable[tuple[object, ...]]:
        self._connection.execute(
            "CREATE OR REPLACE TEMP TABLE wanted (group_code BIGINT, digest_high BIGINT, digest_low BIGINT)"
        )
        self._connection.executemany("INSERT INTO wanted VALUES (?, ?, ?)", places)
        return _rows(self._connection.execute(sql.contents(side)))

    def close(self) -> None:
        """Close the database and remove its scratch files."""
        self._connection.close()
        self._scratch.cleanup()


def _file_of(side: Side) -> str:
    assert side.snapshot is not None
    path = literal(str(side.snapshot.absolute() / SAMPLES_FILE))
    return f"read_parquet({path}, hive_partitioning = false, file_row_number = true)"


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


def _rows(cursor: duckdb.DuckDBPyConnection) -> Iterable[tuple[object, ...]]:
    while rows := cursor.fetchmany(_ROWS_AT_ONCE):
        yield from rows
