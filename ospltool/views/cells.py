"""The parts of views: signs, each with a form for any terminal, spans with a tone, cells, and tables."""

from __future__ import annotations

import dataclasses
import enum
import functools
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from rich.cells import cell_len

from ospltool.output.text import plural
from ospltool.views import text


@dataclasses.dataclass(frozen=True, slots=True)
class Glyphs:
    """One set of signs. Every sign is one cell wide."""

    name: str
    """Name of the set."""
    ok: str
    """Complete."""
    busy: str
    """Aligning, or starting."""
    idle: str
    """Not complete."""
    warn: str
    """Needs a look."""
    fault: str
    """Needs action."""
    conflict: str
    """Contradicting facts."""
    master: str
    """Confirmed master."""
    unconfirmed: str
    """Master without confirmation."""
    bar_full: str
    """Full cell of a bar."""
    bar_half: str
    """Half cell of a bar."""
    bar_empty: str
    """Empty cell of a bar."""
    nothing: str
    """Not on this node."""
    arrow: str
    """Direction from one node to another."""
    rule: str
    """Cell of a horizontal line."""
    caption: str
    """Left edge of a caption."""
    separator: str
    """Separator of parts of a line."""
    ellipsis: str
    """End of a text that was cut."""
    cursor: str
    """Row under the cursor."""
    mark: str
    """Mark of a moment."""
    blocks: str
    """Blocks of eight heights, lowest first."""
    rising: str
    """Column sorted with the least value first."""
    falling: str
    """Column sorted with the largest value first."""

    def bar(self, fraction: float, width: int) -> tuple[str, str]:
        """Return the filled and the empty part of a bar; only 1 is all filled, only 0 all empty."""
        halves = round(fraction * width * 2)
        if fraction < 1:
            halves = min(halves, width * 2 - 1)
        if fraction > 0:
            halves = max(halves, 1)
        halves = min(max(halves, 0), width * 2)
        full = self.bar_full * (halves // 2) + self.bar_half * (halves % 2)
        return full, self.bar_empty * (width - len(full))


UNICODE: Final = Glyphs(
    name="unicode",
    ok="●",
    busy="◐",
    idle="○",
    warn="▲",
    fault="✖",
    conflict="≠",
    master="★",
    unconfirmed="☆",
    bar_full="━",
    bar_half="╸",
    bar_empty="╌",
    nothing="·",
    arrow="→",
    rule="─",
    caption="▌",
    separator="·",
    ellipsis="…",
    cursor="▸",
    mark="◆",
    blocks="▁▂▃▄▅▆▇█",
    rising="↑",
    falling="↓",
)

ASCII: Final = Glyphs(
    name="ascii",
    ok="*",
    busy="~",
    idle="o",
    warn="!",
    fault="X",
    conflict="#",
    master="M",
    unconfirmed="?",
    bar_full="=",
    bar_half="-",
    bar_empty=".",
    nothing=".",
    arrow=">",
    rule="-",
    caption="|",
    separator="|",
    ellipsis="~",
    cursor=">",
    mark="+",
    blocks="_.-=+*%#",
    rising="^",
    falling="v",
)


def choose(encoding: str | None, *, ascii_only: bool) -> Glyphs:
    """Return the set for a terminal with this encoding."""
    if ascii_only or "utf" not in (encoding or "").lower():
        return ASCII
    return UNICODE


class Tone(enum.StrEnum):
    """Meaning of the look of a text; the theme chooses the look."""

    PLAIN = "plain"
    DIM = "dim"
    STRONG = "strong"
    ACCENT = "accent"
    WARN = "warn"
    FAULT = "fault"
    CONFLICT = "conflict"


class Span(NamedTuple):
    """Text in one tone."""

    text: str
    tone: Tone = Tone.PLAIN


_DRAWN = frozenset(
    f"{UNICODE.bar_full}{UNICODE.bar_half}{UNICODE.bar_empty}{UNICODE.blocks}{UNICODE.master}{UNICODE.unconfirmed}"
)
"""Characters that only draw something."""

Cell = tuple[Span, ...]
Line = tuple[Span, ...]


def plain(line: Line) -> str:
    """Return the text of a line without its tones."""
    return "".join([span.text for span in line])


def single(value: str, tone: Tone = Tone.PLAIN) -> Cell:
    """Return a cell of one span."""
    return (Span(value, tone),)


def dimmed(line: Line) -> Line:
    """Return the line as stale data: without emphasis, except for warnings."""
    urgent = (Tone.WARN, Tone.FAULT, Tone.CONFLICT)
    return tuple(span if span.tone in urgent else Span(span.text, Tone.DIM) for span in line)


def value_of(cell: Cell) -> str:
    """Return the text of a cell without signs and bars."""
    kept = "".join(character for character in plain(cell) if character not in _DRAWN)
    return " ".join(kept.split())


def fit_line(line: Line, width: int, *, right: bool = False, glyphs: Glyphs = UNICODE) -> Line:
    """Fit the line into exactly `width` cells, with every control character made visible.

    All drawn text passes through here, so no control sequence from a file or a network reaches the terminal.
    With `right`, a short line goes to the right.
    """
    whole = plain(line)
    shown = text.visible(whole, ascii_only=glyphs is ASCII)
    if shown is not whole:
        line = tuple(Span(text.visible(span.text, ascii_only=glyphs is ASCII), span.tone) for span in line)
    length = cell_len(shown)
    if length <= width:
        filler = Span(" " * (width - length))
        return (filler, *line) if right else (*line, filler)
    kept: list[Span] = []
    room = width
    for span in line:
        needed = cell_len(span.text)
        if needed < room:
            kept.append(span)
            room -= needed
            continue
        kept.append(Span(text.fit(span.text + glyphs.ellipsis, room, ellipsis=glyphs.ellipsis), span.tone))
        break
    return tuple(kept)


def note_width(hidden: int) -> int:
    """Return the room at the right edge of a header that tells how many columns are out of view."""
    return len(f" {hidden}> ") if hidden else 0


@dataclasses.dataclass(frozen=True, slots=True)
class Column:
    """One column: `key` is stable, `width` in cells without the gap; `right` aligns numbers.

    A column with a `grow` above 0 takes that share of the room that is left over, up to `most` cells in all.
    One with `cut`, a sign for what is cut, has names: those that do not fit keep what tells them apart, also
    from those of `among`; with `texts` it has sentences, which neighbours are told apart from. Where not all
    columns fit and none can scroll, the one that is most `spare` is left out first.
    """

    key: str
    title: str
    width: int
    right: bool = False
    grow: int = 0
    most: int = 1000
    cut: str = ""
    among: tuple[str, ...] = ()
    texts: bool = False
    spare: int = 0


class CellTable(Protocol):
    """Rows of cells that are made only when they are shown."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """All columns, the fixed ones first."""
        ...

    @property
    def fixed(self) -> int:
        """Number of columns that stay in view when the others scroll sideways."""
        ...

    @property
    def keys(self) -> tuple[str, ...]:
        """The key of each row, in order of display."""
        ...

    def cell(self, row: int, column: int) -> Cell:
        """Return a cell."""
        ...

    def value(self, row: int, column: int) -> str:
        """Return the text of a cell without signs and bars, for the clipboard and for sorting."""
        ...

    def line(self, row: int) -> Line | None:
        """Return a row that is one line across all columns; None for a row of cells."""
        ...


Facts = Mapping[str, object]
"""Values by name. Times are in ns since 1970, 0 for never."""

T = TypeVar("T")


class Rows(Generic[T]):
    """A table of items. `render` makes the cell of an item under a column key; `fixed` columns stay.

    `facts` gives the values of an item; `plan` has the columns as wide as they must be, `columns` as wide as
    they are; `hidden` counts the items that a filter leaves out.
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
        facts: Callable[[T], Facts] = lambda _: {},
    ) -> None:
        self.plan = tuple(columns)
        self.columns = spread(columns, width)
        self.items = items
        self._facts = facts
        self.keys = tuple(key for key, _ in items)
        self.fixed = fixed
        self.hidden = hidden
        self._render = render
        self._cut: dict[str, dict[str, str]] = {}
        self._texts: dict[str, list[str]] = {}

    def cell(self, row: int, column: int) -> Cell:
        """Return one cell."""
        place = self.columns[column]
        cell = self._render(self.items[row][1], place.key)
        if not place.cut or sum(cell_len(span.text) for span in cell) <= place.width:
            return cell
        if place.texts:
            return single(self._told_apart(place)[row], cell[0].tone)
        if place.key not in self._cut:
            names = [plain(self._render(item, place.key)) for _, item in self.items]
            names = list(dict.fromkeys((*names, *place.among)))
            shown = text.distinct(names, place.width, ellipsis=place.cut)
            self._cut[place.key] = dict(zip(names, shown, strict=True))
        return single(self._cut[place.key][plain(cell)], cell[0].tone)

    def whole(self, row: int, column: int) -> Cell:
        """Return one cell, cut by nothing."""
        return self._render(self.items[row][1], self.columns[column].key)

    def _told_apart(self, place: Column) -> list[str]:
        if place.key not in self._texts:
            told = [plain(self._render(item, place.key)) for _, item in self.items]
            rooms = [place.width] * len(told)
            self._texts[place.key] = text.apart(told, rooms, ellipsis=place.cut)
        return self._texts[place.key]

    def value(self, row: int, column: int) -> str:
        """Return the text of a cell, also of one that does not fit."""
        return value_of(self.whole(row, column))

    def facts(self, row: int) -> Facts:
        """Return the values of a row, by the keys of columns and of what no column shows."""
        return self._facts(self.items[row][1])

    def line(self, _row: int) -> Line | None:
        """Return None: every row is made of cells."""
        return None

    def item(self, row: int) -> T | None:
        """Return the value of a row; None when there is no such row."""
        return self.items[row][1] if 0 <= row < len(self.items) else None


class LineRows(Generic[T]):
    """A table whose rows are lines, without names of columns: `rows` has the key, line and value of each."""

    fixed = 0

    def __init__(self, rows: Sequence[tuple[str, Line, T]], width: int) -> None:
        self.columns = (Column("line", "", width),)
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


def table_title(parts: Iterable[str], hidden: int) -> str:
    """Return the title of a table: its parts that are not empty, and the number of hidden rows."""
    return ", ".join([*filter(None, parts), *([f"{hidden:,} hidden by the filter"] if hidden else [])])


def widest(texts: Iterable[str], least: int, most: int) -> int:
    """Return the width of a column that has these texts, from `least` to `most`."""
    return min(max([least, *map(len, texts)]), most)


def spread(columns: Sequence[Column], width: int) -> tuple[Column, ...]:
    """Return the columns with the room that is left over shared among those that grow, by their weight.

    Where not all columns fit, those that are in view first share what the next one leaves free.
    """
    return _spread(tuple(columns), width)


@functools.lru_cache(maxsize=100)
def _spread(columns: tuple[Column, ...], width: int) -> tuple[Column, ...]:
    ends = list(itertools.accumulate((column.width + 1 for column in columns), initial=1))
    seen, room = len(columns), width
    while seen and ends[seen] > room + 1:  # what does not fit makes the note longer
        seen -= 1
        room = width - note_width(len(columns) - seen)
    width = room
    given = [0] * seen
    for _ in range(width - ends[seen]):
        growing = [
            i for i in range(seen) if columns[i].grow and columns[i].width + given[i] < columns[i].most
        ]
        if not growing:
            break
        given[min(growing, key=lambda i: (given[i] + 1) / columns[i].grow)] += 1
    wider = [dataclasses.replace(columns[i], width=columns[i].width + more) for i, more in enumerate(given)]
    return (*wider, *columns[seen:])


def more_line(number: int) -> Line:
    """Return the last line of a part that does not fit."""
    return (Span(f"   and {plural(number, 'more line')}", Tone.DIM),)
