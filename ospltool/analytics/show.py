"""SQL of users: the named queries, and results as text."""

from __future__ import annotations

import csv
import dataclasses
import functools
import importlib.resources
import io
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from ospltool.output import envelope
from ospltool.output.text import table

_SUFFIX: Final = ".sql"


@dataclasses.dataclass(frozen=True, slots=True)
class NamedQuery:
    """A query that comes with the product.

    Attributes:
        name: its name, that of its file.
        about: what it answers, from the comment at its beginning.
        sql: its text.
    """

    name: str
    about: str
    sql: str


@functools.cache
def named_queries() -> dict[str, NamedQuery]:
    """Return all named queries, by name."""
    directory = importlib.resources.files(__package__).joinpath("queries")
    found = {}
    for entry in sorted(directory.iterdir(), key=lambda one: one.name):
        if entry.name.endswith(_SUFFIX):
            sql = entry.read_text(encoding="utf-8")
            name = entry.name.removesuffix(_SUFFIX)
            found[name] = NamedQuery(name, _about(sql), sql)
    return found


def _about(sql: str) -> str:
    """Return the comment at the beginning of a query."""
    lines = []
    for line in sql.splitlines():
        if not line.startswith("--"):
            break
        lines.append(line.removeprefix("--").strip())
    return " ".join(lines)


ROWS_FOR_WIDTHS: Final = 1_000
"""Columns of a table are as wide as the first rows need; the rows after them may be wider. As many rows are
written together."""

Row = tuple[object, ...]


class Limited(Iterator[Row]):
    """The first rows of a result, all of them for None; `left_out` tells whether there were more."""

    def __init__(self, rows: Iterator[Row], limit: int | None) -> None:
        self._rows = rows
        self._left = limit
        self.left_out = False

    def __next__(self) -> Row:
        if self._left == 0:
            self.left_out = next(self._rows, None) is not None
            raise StopIteration
        if self._left is not None:
            self._left -= 1
        return next(self._rows)


def _blocks(rows: Iterable[Row]) -> Iterator[list[Row]]:
    rest = iter(rows)
    while block := list(itertools.islice(rest, ROWS_FOR_WIDTHS)):
        yield block


def as_table(columns: tuple[str, ...], rows: Iterable[Row]) -> Iterator[str]:
    """Render a table with aligned columns, in blocks."""
    first = True
    for block in _blocks(rows):
        text = table(columns, [[_cell(value) for value in row] for row in block])
        yield text if first else text.partition("\n")[2]
        first = False
    if first:
        yield table(columns, [])


def as_csv(columns: tuple[str, ...], rows: Iterable[Row]) -> Iterator[str]:
    """Render CSV with a line of names, in blocks."""
    for block in _blocks(itertools.chain([columns], rows)):
        buffer = io.StringIO()
        csv.writer(buffer, lineterminator="\n").writerows(
            ["" if value is None else _cell(value) for value in row] for row in block
        )
        yield buffer.getvalue()


def as_jsonl(columns: tuple[str, ...], rows: Iterable[Row]) -> Iterator[str]:
    """Render a line of JSON for each row, in blocks."""
    for block in _blocks(rows):
        yield "".join(
            envelope.line("sql-row", dict(zip(columns, map(_plain, row), strict=True))) for row in block
        )


def as_json(columns: tuple[str, ...], rows: Iterable[Row]) -> Iterator[str]:
    """Render one JSON document."""
    data = [dict(zip(columns, map(_plain, row), strict=True)) for row in rows]
    yield envelope.document("sql", {"columns": list(columns), "rows": data})


FORMATS: Final[dict[str, Callable[[tuple[str, ...], Iterable[Row]], Iterator[str]]]] = {
    "table": as_table,
    "csv": as_csv,
    "jsonl": as_jsonl,
    "json": as_json,
}


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.15g}" if isinstance(value, float) else str(value)


def _plain(value: object) -> object:
    """Convert a value to JSON; a value that JSON lacks becomes text."""
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, dict):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return str(value)
