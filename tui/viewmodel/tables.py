"""Tables made from rows of values: columns that share the width, cells made when they are looked at."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from tui.cells import Cell, Column, Line, value_of

T = TypeVar("T")


class Rows(Generic[T]):
    """A table of items. `render` makes the cell of an item under a column key; `fixed` columns stay.

    `hidden` counts the items that a filter leaves out.
    """

    def __init__(
        self,
        columns: Sequence[Column],
        items: Sequence[tuple[str, T]],
        render: Callable[[T, str], Cell],
        *,
        width: int,
        fixed: int = 1,
        hidden: int = 0,
    ) -> None:
        self.columns = spread(columns, width)
        self.items = items
        self.keys = tuple(key for key, _ in items)
        self.fixed = fixed
        self.hidden = hidden
        self._render = render

    def cell(self, row: int, column: int) -> Cell:
        """Return one cell."""
        return self._render(self.items[row][1], self.columns[column].key)

    def value(self, row: int, column: int) -> str:
        """Return the text of a cell."""
        return value_of(self.cell(row, column))

    def line(self, _row: int) -> Line | None:
        """Return every row is made of cells."""
        return None

    def item(self, row: int) -> T | None:
        """Return the value of a row; None when there is no such row."""
        return self.items[row][1] if 0 <= row < len(self.items) else None


class LineRows(Generic[T]):
    """A table whose rows are lines under one heading. `lines` pairs each with its value."""

    fixed = 0

    def __init__(self, heading: str, rows: Sequence[tuple[str, Line, T]], width: int) -> None:
        self.columns = (Column("line", heading, width),)
        self.keys = tuple(key for key, _, _ in rows)
        self._rows = rows

    def cell(self, row: int, _column: int) -> Cell:
        """Return the line."""
        return self._rows[row][1]

    def value(self, row: int, _column: int) -> str:
        """Return the line without signs."""
        return value_of(self._rows[row][1])

    def line(self, row: int) -> Line | None:
        """Return the line."""
        return self._rows[row][1]

    def item(self, row: int) -> T | None:
        """Return the value of a row; None when there is no such row."""
        return self._rows[row][2] if 0 <= row < len(self._rows) else None


def spread(columns: Sequence[Column], width: int) -> tuple[Column, ...]:
    """Return the columns with the room that is left over shared among those that grow, by their weight."""
    used = sum(column.width + 1 for column in columns) + 1
    weight = sum(column.grow for column in columns)
    room = max(0, width - used)
    if not room or not weight:
        return tuple(columns)
    wider = []
    for column in columns:
        share = min(room * column.grow // weight, max(0, column.most - column.width))
        wider.append(dataclasses.replace(column, width=column.width + share))
    return tuple(wider)
