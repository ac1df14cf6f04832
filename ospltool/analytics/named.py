"""The named queries: SQL files in the subset that DuckDB and Spark share."""

from __future__ import annotations

import dataclasses
import functools
import importlib.resources
from typing import Final

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
