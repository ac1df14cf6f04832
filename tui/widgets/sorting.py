"""The order of the rows of a table: that of its source, or by one column."""

from __future__ import annotations

import time
from typing import Final

from tui import text
from tui.cells import CellTable

PAUSE_S: Final = 2.0
"""Rows that are sorted by figures change places no more often than this."""


class Sorting:
    """By which column a table is sorted, and which row then stands where.

    Attributes:
        column: the key of the column; empty for the order of the source.
        falls: the largest comes first.
        keys: the keys of the rows, in the order in which they stand.
    """

    def __init__(self) -> None:
        self.column = ""
        self.falls = False
        self.keys: tuple[str, ...] = ()
        self._order: list[int] = []
        self._source: tuple[str, ...] = ()
        self._due_s = 0.0

    def source_row(self, row: int) -> int:
        """Which row of the source stands there."""
        return self._order[row] if self.column and 0 <= row < len(self._order) else row

    def take(self, table: CellTable) -> None:
        """Take in the new rows and values of the table."""
        keys = table.keys
        if not self.column:
            self.keys = keys
            return
        now_s = time.monotonic()
        if keys != self._source or now_s >= self._due_s:
            self._sort(table)
            self._due_s = now_s + PAUSE_S

    def choose(self, table: CellTable, column: str) -> None:
        """Sort by this column, the other way round when it is already, and no more after that."""
        first = self._falls_first(table, column) if column else False
        if column != self.column:
            self.column, self.falls = column, first
        elif self.falls is first:
            self.falls = not first
        else:
            self.column = ""
        self._due_s = 0.0
        self.take(table)

    def next(self, table: CellTable) -> None:
        """Sort by the next column that has a title; after the last comes the order of the source."""
        titled = ["", *(column.key for column in table.columns if column.title)]
        index = titled.index(self.column) + 1 if self.column in titled else 0
        self.choose(table, titled[index % len(titled)])

    def turn(self, table: CellTable) -> None:
        """Reverse the order; sort an unsorted table by its first column, falling."""
        if not self.column:
            self.column = next((column.key for column in table.columns if column.title), "")
        self.falls = not self.falls
        self._due_s = 0.0
        self.take(table)

    def _column_of(self, table: CellTable, key: str) -> int:
        return next((i for i, column in enumerate(table.columns) if column.key == key), -1)

    def _falls_first(self, table: CellTable, key: str) -> bool:
        """Figures begin with the largest, words with the first of the alphabet."""
        column = self._column_of(table, key)
        values = (table.value(row, column) for row in range(min(len(table.keys), 50)))
        return any(value and text.rank(value)[0] == 0 for value in values)

    def _sort(self, table: CellTable) -> None:
        column = self._column_of(table, self.column)
        rows = [row for row in range(len(table.keys)) if table.line(row) is None]
        others = [row for row in range(len(table.keys)) if table.line(row) is not None]
        if column >= 0:
            ranks = {row: text.rank(table.value(row, column)) for row in rows}
            told = [row for row in rows if ranks[row][0] < 2]
            nothing = [row for row in rows if ranks[row][0] == 2]
            rows = [*sorted(told, key=ranks.__getitem__, reverse=self.falls), *nothing]
        self._order = [*rows, *others]
        self._source = table.keys
        self.keys = tuple(table.keys[row] for row in self._order)
