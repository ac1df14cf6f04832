"""A table in any order that draws only what is in view: hundreds of rows cost no more than a screenful."""

from __future__ import annotations

import time
from typing import ClassVar, Final

from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from ospltool.views import text
from ospltool.views.cells import CellTable, Column, Line, Span, Tone, fit_line, note_width, plain
from tui.widgets.lines import Toned

# A person must be able to point at a row.
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

    def update(self, table: CellTable) -> None:
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
        self.update(table)

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
        self.update(table)

    def _column_of(self, table: CellTable, key: str) -> int:
        return next((i for i, column in enumerate(table.columns) if column.key == key), -1)

    def _falls_first(self, table: CellTable, key: str) -> bool:
        """Figures begin with the largest, words with the first of the alphabet."""
        column = self._column_of(table, key)
        rows = (row for row in range(min(len(table.keys), 50)) if table.line(row) is None)
        values = (table.value(row, column) for row in rows)
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


HEADER: Final = 1
GAP: Final = 1


class _Nothing:
    """A table without rows, until the first one is shown."""

    columns: tuple[Column, ...] = ()
    fixed = 0
    keys: tuple[str, ...] = ()

    def cell(self, row: int, column: int) -> Line:
        """Never asked for."""
        raise IndexError(row, column)

    def value(self, row: int, column: int) -> str:
        """Never asked for."""
        raise IndexError(row, column)

    def line(self, row: int) -> Line | None:
        """Never asked for."""
        raise IndexError(row)


class Sheet(ScrollView, Toned, can_focus=True, inherit_bindings=False):
    """Rows and columns with a cursor that stays on its row and column when the table changes.

    When its row is gone, the cursor goes to the one that follows, or to the last.

    The first columns stay in view when the others move sideways; how many are out of view is written in the
    header.

    Args:
        cells: whether the cursor walks over cells or over whole rows.
        id: Textual's name of it.
        classes: Textual's classes of it.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1, 0)", "row up", show=False),
        Binding("down,j", "move(1, 0)", "row down", show=False),
        Binding("left,h", "move(0, -1)", "column left", show=False),
        Binding("right,l", "move(0, 1)", "column right", show=False),
        Binding("pageup", "page(-1)", "page up", show=False),
        Binding("pagedown", "page(1)", "page down", show=False),
        Binding("home,g", "edge(-1)", "first row", show=False),
        Binding("end,G", "edge(1)", "last row", show=False),
        Binding("enter", "choose", "open", show=False),
        Binding("o", "sort", "sort by the next column", show=False),
        Binding("O", "turn", "sort the other way", show=False),
        Binding("y", "copy", "copy", show=False),
        Binding("Y", "copy_row", "copy row", show=False),
    ]
    COMPONENT_CLASSES = {"sheet--row", "sheet--cursor", "sheet--header"} | Toned.COMPONENT_CLASSES

    class Moved(Message):
        """The cursor stands on another cell: the reader moved it (`by_hand`), or the table changed."""

        def __init__(self, sheet: Sheet, *, by_hand: bool = False) -> None:
            super().__init__()
            self.sheet = sheet
            self.by_hand = by_hand

        @property
        def control(self) -> Sheet:
            """The table that sent it."""
            return self.sheet

    class Chosen(Moved):
        """Enter was pressed, or the cell under the cursor was clicked."""

    class Left(Message):
        """The cursor would leave the table, upwards (-1) or downwards (1)."""

        def __init__(self, sheet: Sheet, direction: int) -> None:
            super().__init__()
            self.sheet = sheet
            self.direction = direction

    class Copied(Message):
        """Something of the table is to be copied."""

        def __init__(self, value: str) -> None:
            super().__init__()
            self.value = value

    def __init__(
        self,
        *,
        cells: bool = False,
        id: str | None = None,  # noqa: A002 - Textual's name
        classes: str | None = None,
    ) -> None:
        super().__init__(id=id, classes=classes)
        self._table: CellTable = _Nothing()
        self._cells = cells
        self.sorting = Sorting()
        self._row_key = ""
        self._column_key = ""
        self._row = -1
        self._first = 0
        self._drawn: dict[int, Strip] = {}
        self.is_touched = False
        """Whether the reader has moved the cursor: true at once, before any message tells it."""

    @property
    def head(self) -> int:
        """Lines for the names of columns; rows that are lines have none."""
        return HEADER if self._table.fixed else 0

    @property
    def row(self) -> int:
        """The row of the table that is under the cursor; -1 when there is none."""
        return self.sorting.source_row(self._place)

    @property
    def _place(self) -> int:
        """Where the row under the cursor stands."""
        keys = self.sorting.keys
        if not 0 <= self._row < len(keys) or keys[self._row] != self._row_key:
            known = self._row_key in keys
            self._row = keys.index(self._row_key) if known else min(max(0, self._row), len(keys) - 1)
        return self._row

    @property
    def column(self) -> int:
        """The column under the cursor."""
        columns = self._table.columns
        found = [i for i, column in enumerate(columns) if column.key == self._column_key]
        return found[0] if found else min(self._table.fixed, len(columns) - 1)

    @property
    def row_key(self) -> str:
        """The key of the row under the cursor; empty when there is none."""
        return self.sorting.keys[self._place] if self.sorting.keys else ""

    @property
    def column_key(self) -> str:
        """The key of the column under the cursor; empty when there is none."""
        return self._table.columns[self.column].key if self._table.columns else ""

    def show(self, table: CellTable) -> None:
        """Show this table instead; lines that look the same are not drawn again."""
        before = self.row_key, self.column_key
        self._table = table
        self.sorting.update(table)
        if self.sorting.keys and self._row_key and self._row_key not in self.sorting.keys:
            self._row_key = self.row_key  # the row is gone: the next one has the cursor, or the last
        size = Size(self.size.width, len(table.keys) + self.head)
        if size != self.virtual_size:
            self.virtual_size = size
        if before != (self.row_key, self.column_key):
            self._settle()
        drawn, self._drawn = self._drawn, {}
        columns, size, changed = self._shown_columns(), self.size, []
        for y in range(size.height):
            row = self._row_at(y)
            fresh = self._drawn[row] = self._draw(row, columns)
            if fresh != drawn.get(row):  # Textual keeps lines in view of which nothing is known here
                changed.append(Region(0, y, size.width, 1))
        if changed:
            self.refresh(*changed)

    def go_to(self, row_key: str, column_key: str = "") -> None:
        """Put the cursor on the row with this key, if it is there."""
        self._row_key = row_key
        self._column_key = column_key or self._column_key
        self._settle()

    def render_line(self, y: int) -> Strip:
        """Return the header, or the row that is scrolled to this line."""
        row = self._row_at(y)
        if row not in self._drawn:
            self._drawn[row] = self._draw(row, self._shown_columns())
        return self._drawn[row]

    def _row_at(self, y: int) -> int:
        """Return which row is scrolled to this line; negative for the header."""
        return y - self.head + (round(self.scroll_y) if y >= self.head else 0)

    def redraw(self) -> None:
        """Draw every line again."""
        self._drawn.clear()
        self.refresh()

    def _redraw_rows(self, *places: int) -> None:
        """Draw only these rows again; the others look as before."""
        for place in set(places):
            self._drawn.pop(place, None)
            y = place - round(self.scroll_y) + self.head
            self.refresh(Region(0, y, self.size.width, 1))

    def on_resize(self, _event: events.Resize) -> None:
        """Lines have another width now, and the cursor may be out of view."""
        self.redraw()
        self._show_row()

    def notify_style_update(self) -> None:
        """Draw the table again after a change of theme or focus."""
        self._drawn.clear()
        super().notify_style_update()

    def action_move(self, rows: int, columns: int) -> None:
        """Move the cursor; without a cell cursor, sideways scrolls."""
        keys, table_columns = self.sorting.keys, self._table.columns
        if not keys:
            return
        self.is_touched = True
        if not 0 <= self._place + rows < len(keys) and abs(rows) == 1:
            self.post_message(self.Left(self, rows))
            return
        before, left_out = self._place, self._first
        row = min(max(before + rows, 0), len(keys) - 1)
        self._row_key = keys[row]
        fixed = self._table.fixed
        if columns and len(table_columns) > fixed:
            if self._cells:
                column = min(max(self.column + columns, fixed), len(table_columns) - 1)
                self._column_key = table_columns[column].key
            elif self._first or len(self._in_view()) < len(table_columns) - fixed:
                self._first = min(max(self._first + columns, 0), len(table_columns) - fixed - 1)
        self._bring_into_view()
        if self._first != left_out:
            self.redraw()
        else:
            self._redraw_rows(before, row)
        self.post_message(self.Moved(self, by_hand=True))

    def action_page(self, pages: int) -> None:
        """Move the cursor by what fits on the screen."""
        self.action_move(pages * max(1, self.size.height - self.head - 1), 0)

    def action_edge(self, direction: int) -> None:
        """Move the cursor to the first or the last row."""
        self.action_move(direction * len(self._table.keys), 0)

    def action_choose(self) -> None:
        """Say that this cell was chosen."""
        if self._table.keys:
            self.post_message(self.Chosen(self))

    def action_sort(self) -> None:
        """Sort by the next column; after the last comes the order that the table has of itself."""
        self.sorting.next(self._table)
        self._settle(by_hand=True)

    def action_turn(self) -> None:
        """Sort the other way round."""
        self.sorting.turn(self._table)
        self._settle(by_hand=True)

    def action_copy(self) -> None:
        """Copy the cell under the cursor, or what names the row."""
        columns = self._table.columns
        named = next((index for index, column in enumerate(columns) if column.title), 0)
        if self._table.keys:
            self.post_message(self.Copied(self._values()[self.column if self._cells else named]))

    def action_copy_row(self) -> None:
        """Copy the row under the cursor, with tabs between its cells."""
        if self._table.keys:
            self.post_message(self.Copied("\t".join(filter(None, self._values()))))

    def _values(self) -> list[str]:
        """Return the cells of the row under the cursor, or its line as often as there are columns."""
        columns = range(len(self._table.columns))
        line = self._table.line(self.row)
        if line is not None:
            return [plain(line).strip(), *[""] * (len(columns) - 1)]
        return [self._table.value(self.row, column) for column in columns]

    def on_click(self, event: events.Click) -> None:
        """Put the cursor where the mouse is, and choose what it was on; a heading sorts by its column."""
        at = event.get_content_offset(self)
        if at is None:  # the edge of the panel
            return
        row = at.y - self.head + round(self.scroll_y)
        if at.y < self.head:
            self.sorting.choose(self._table, self._heading_at(at.x))
            self._settle(by_hand=True)
            return
        if not 0 <= row < len(self.sorting.keys):
            return
        key, column_key = self.sorting.keys[row], self._column_at(at.x)
        if (key, column_key) == (self.row_key, self.column_key):
            self.post_message(self.Chosen(self))
            return
        self._row_key, self._column_key = key, column_key
        self._settle(by_hand=True)

    def _settle(self, *, by_hand: bool = False) -> None:
        """After rows or columns changed under the cursor: bring it into view, draw all again, and tell."""
        self.is_touched = self.is_touched or by_hand
        self._bring_into_view()
        self.redraw()
        self.post_message(self.Moved(self, by_hand=by_hand))

    def _bring_into_view(self) -> None:
        if self._table.keys:
            self._row_key, self._column_key = self.row_key, self.column_key
            self._show_column()
            self._show_row()
            self.call_after_refresh(self._show_row)  # when the size is not settled yet

    def _show_row(self) -> None:
        height = max(1, self.size.height - self.head)
        top, place = round(self.scroll_y), self._place
        if place < top:
            self.scroll_to(y=max(0, place), animate=False)
        elif place >= top + height:
            self.scroll_to(y=place - height + 1, animate=False)

    def _show_column(self) -> None:
        if not self._cells:
            return
        index = self.column - self._table.fixed
        self._first = min(self._first, max(index, 0))
        while index > self._first and index not in dict(self._in_view()):
            self._first += 1

    def _in_view(self) -> list[tuple[int, int]]:
        """(index among the moving columns, x) of each moving column that fits, from the first one on."""
        table = self._table
        x = sum(column.width + GAP for column in table.columns[: table.fixed]) + GAP
        shown: list[tuple[int, int]] = []
        moving = table.columns[table.fixed :]
        for index in range(self._first, len(moving)):
            if x > self.size.width and shown:
                break
            shown.append((index, x))
            x += moving[index].width + GAP
        while len(shown) > 1:
            index, x = shown[-1]
            if x + moving[index].width <= self.size.width - note_width(len(moving) - len(shown)):
                break
            shown.pop()
        return shown

    def _column_at(self, x: int) -> str:
        for index, left in reversed(self._in_view()):
            if x >= left:
                return self._table.columns[self._table.fixed + index].key
        return self.column_key

    def _heading_at(self, x: int) -> str:
        left = GAP
        for column in self._table.columns[: self._table.fixed]:
            left += column.width + GAP
            if x < left:
                return column.key if column.title else ""
        return self._column_at(x)

    def _shown_columns(self) -> list[int]:
        """Return the columns in view, the fixed ones first."""
        return [*range(self._table.fixed), *(self._table.fixed + index for index, _ in self._in_view())]

    def _draw(self, place: int, shown: list[int]) -> Strip:
        """Draw these columns of the row that stands there; the header for a negative place."""
        width = self.size.width
        if place >= len(self.sorting.keys):
            return self.strip((Span(" " * width),))
        if place < 0:
            return self._header(shown)
        overlay = "sheet--row" if place == self._place else ""
        row = self.sorting.source_row(place)
        line = self._table.line(row)
        if line is not None:
            return Strip(self.segments(fit_line(line, width, glyphs=self.glyphs), overlay), width)
        cursor = self.column if overlay and self._cells else -1
        glyphs, segments, spans = self.glyphs, [], [Span(" ")]
        used = 1
        for column in shown:
            definition = self._table.columns[column]
            cell = fit_line(
                self._table.cell(row, column), definition.width, right=definition.right, glyphs=glyphs
            )
            if column == cursor:
                segments = [*self.segments(spans, overlay), *self.segments(cell, "sheet--cursor")]
                spans = []
            else:
                spans += cell
            spans.append(Span(" " * GAP))
            used += definition.width + GAP
        spans.append(Span(" " * max(0, width - used)))
        segments += self.segments(spans, overlay)
        return Strip(segments, max(used, width)).crop(0, width)

    def _header(self, shown: list[int]) -> Strip:
        columns = self._table.columns
        spans = [Span(" ", Tone.DIM)]
        for column in shown:
            definition = columns[column]
            title = (Span(self._sorted_sign(definition) + definition.title, Tone.DIM),)
            spans += fit_line(title, definition.width, right=definition.right, glyphs=self.glyphs)
            spans.append(Span(" " * GAP, Tone.DIM))
        spans.pop()  # nothing follows the last title, which may end where the note begins
        hidden = len(columns) - len(shown)
        left = f" <{self._first}" if self._first and hidden else ""
        right = f" {hidden - self._first}>" if hidden > self._first else ""
        note = f"{left}{right} " if hidden > 0 else ""
        line = fit_line(tuple(spans), max(0, self.size.width - len(note)), glyphs=self.glyphs)
        dim = tuple(Span(span.text, Tone.DIM) for span in line)
        return self.strip((*dim, Span(note, Tone.STRONG)))

    def _sorted_sign(self, column: Column) -> str:
        if column.key != self.sorting.column:
            return ""
        return self.glyphs.falling if self.sorting.falls else self.glyphs.rising
