"""Digests of ranges of a snapshot's rows, by which snapshots tell what they have in common.

A group's rows are ordered by source time and digest, as in a store of ospltool. A range begins at each row
whose digest ends with zero bits, so a row that one snapshot lacks changes the range it belongs in and leaves
the others as they are. Rows of a group in another order have no digests, and are always compared.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

Numbers = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

# Larger ranges give smaller files, but of each that differs more rows are read. Not measured closely.
ROWS: Final = 32
"""Rows of a range on average, a power of two."""

_DIGEST_BYTES: Final = 16
_SCHEMA: Final = pa.schema(
    [("set_number", pa.int64()), ("rows", pa.int64()), ("high", pa.uint64()), ("low", pa.uint64())]
)
"""Of each range, in the order of the rows: its set, its number of rows, and the halves of its digest, which
are null in a group without order."""


class RangesWriter:
    """Collects the ranges of a snapshot while its rows are written: 32 bytes for each."""

    def __init__(self) -> None:
        self._tables: list[pa.Table] = []
        self._begin_group()

    def _begin_group(self) -> None:
        self._last: tuple[int, int, int] | None = None
        self._in_order = True
        self._rows: list[int] = []
        self._digests: list[bytes] = []
        self._rest = b""
        """Digests of the rows of the range that has not ended."""

    def add(self, code: int, times_ns: Numbers, highs: Numbers, lows: Numbers) -> None:
        """Add the next rows of the group with a code: their source times and the halves of their digests."""
        if not len(times_ns):
            return
        high, low = highs.view(np.uint64), lows.view(np.uint64)
        first, last = ((int(times_ns[at]), int(high[at]), int(low[at])) for at in (0, -1))
        self._in_order &= (self._last is None or self._last < first) and _are_ascending(times_ns, high, low)
        self._last = last
        rows = self._rest + np.column_stack([high, low]).tobytes()
        before = len(self._rest) // _DIGEST_BYTES
        begins = (np.flatnonzero(low & np.uint64(ROWS - 1) == 0) + before) * _DIGEST_BYTES
        at = 0
        for end in begins.tolist():
            if end > at:
                self._end_range(code, rows[at:end])
            at = end
        self._rest = rows[at:]

    def _end_range(self, code: int, rows: bytes) -> None:
        self._rows.append(len(rows) // _DIGEST_BYTES)
        hashed = hashlib.blake2b(rows, digest_size=_DIGEST_BYTES, salt=code.to_bytes(16, signed=True))
        self._digests.append(hashed.digest())

    def end_group(self, set_number: int, code: int) -> None:
        """End a group."""
        if self._rest:
            self._end_range(code, self._rest)
        rows, digests, in_order = np.array(self._rows, np.int64), self._digests, self._in_order
        self._begin_group()
        if not len(rows):
            return
        if in_order:
            halves = np.frombuffer(b"".join(digests), np.uint64).reshape(-1, 2)
            columns = [pa.array(rows), *(pa.array(np.ascontiguousarray(halves[:, at])) for at in (0, 1))]
        else:
            columns = [pa.array([int(rows.sum())]), pa.nulls(1, pa.uint64()), pa.nulls(1, pa.uint64())]
        sets = pa.array(np.full(len(columns[0]), set_number, np.int64))
        self._tables.append(pa.Table.from_arrays([sets, *columns], schema=_SCHEMA))

    def write(self, path: Path) -> None:
        """Write all ranges."""
        table = pa.concat_tables(self._tables) if self._tables else _SCHEMA.empty_table()
        pq.write_table(table, path, compression="none", use_dictionary=["set_number", "rows"])


def _are_ascending(times_ns: Numbers, high: Words, low: Words) -> bool:
    """Tell whether each row comes after the one before, by time and digest, and none is there twice."""
    later = times_ns[1:] > times_ns[:-1]
    if later.all():
        return True
    greater = (high[1:] > high[:-1]) | ((high[1:] == high[:-1]) & (low[1:] > low[:-1]))
    return bool((later | ((times_ns[1:] == times_ns[:-1]) & greater)).all())


def read_ranges(path: Path, rows: int) -> pa.Table:
    """Return the ranges of a snapshot with `rows` rows, and where each begins in the file (`start`).

    Raises:
        ValueError: they do not cover the rows.
        OSError, pyarrow.ArrowException: they cannot be read.
    """
    table = pq.ParquetFile(path).read()
    counts = table.column("rows").to_numpy()
    if table.schema.names != _SCHEMA.names or (counts <= 0).any() or int(counts.sum()) != rows:
        raise ValueError(f"{path}: its ranges do not cover {rows} rows")
    return table.append_column("start", pa.array(np.cumsum(counts) - counts))


def differing(sides: Sequence[pa.Table]) -> list[pa.Table]:
    """Return for each snapshot its ranges that not all of them have, in the order of its file.

    Args:
        sides: the ranges to compare of each snapshot, in which no group is twice.
    """
    digested = [one.column("low").is_valid().to_numpy() for one in sides]
    lows, highs = (
        np.concatenate([one.column(name).fill_null(0).to_numpy() for one in sides])
        for name in ("low", "high")
    )
    order = np.argsort(lows, kind="stable")
    order = order[np.concatenate(digested)[order]]
    is_same = (lows[order][1:] == lows[order][:-1]) & (highs[order][1:] == highs[order][:-1])
    ends = np.flatnonzero(np.append(~is_same, True))  # of each run of equal digests, one from each side
    lengths = np.diff(ends, prepend=-1)
    everywhere = np.zeros(len(lows), np.bool_)
    everywhere[order] = np.repeat(lengths == len(sides), lengths)
    cuts = np.cumsum([len(one) for one in sides])[:-1]
    return [one.filter(~same) for one, same in zip(sides, np.split(everywhere, cuts), strict=True)]


def rows_of(ranges: pa.Table) -> Numbers:
    """Return the numbers of all rows of ranges in the file."""
    starts, counts = (ranges.column(name).to_numpy() for name in ("start", "rows"))
    before: Any = np.cumsum(counts) - counts
    return np.repeat(starts - before, counts) + np.arange(int(counts.sum()))
