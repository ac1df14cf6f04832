"""Remembered values by key (marks) and remembered fellows of a store."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping

from engine.store import schema
from engine.store.interface import Marks, RememberedFellow


def read_marks(
    connection: sqlite3.Connection, name_space: str | None = None
) -> list[tuple[str, str, str, bool]]:
    """Read name-space, key and value of the marks of one name-space or all, and whether each is sound."""
    rows = connection.execute(
        "SELECT name_space, key, value, row_check FROM mark WHERE ?1 IS NULL OR name_space = ?1",
        (name_space,),
    ).fetchall()
    return [
        (space, key, value, check == schema.row_check(space, key, value)) for space, key, value, check in rows
    ]


def read_fellows(connection: sqlite3.Connection) -> tuple[dict[str, tuple[RememberedFellow, ...]], int]:
    """Read the remembered fellows by name-space, and the number of damaged entries."""
    fellows: dict[str, list[RememberedFellow]] = {}
    damaged = 0
    for space, id_, name, role, check in connection.execute(
        "SELECT name_space, id, name, role, row_check FROM fellow ORDER BY name_space, id"
    ):
        if check == schema.row_check(space, id_, name, role):
            fellows.setdefault(space, []).append(RememberedFellow(id_, name, role))
        else:
            damaged += 1
    return {space: tuple(known) for space, known in fellows.items()}, damaged


def write_marks(connection: sqlite3.Connection, name_space: str, marks: Marks) -> None:
    """Remember values for a name-space, in the caller's transaction; None forgets one."""
    for key, value in marks.items():
        if value is None:
            connection.execute("DELETE FROM mark WHERE name_space = ? AND key = ?", (name_space, key))
        else:
            check = schema.row_check(name_space, key, value)
            connection.execute(
                "INSERT OR REPLACE INTO mark VALUES (?, ?, ?, ?)", (name_space, key, value, check)
            )


def write_fellows(connection: sqlite3.Connection, known: Mapping[str, Iterable[RememberedFellow]]) -> None:
    """Add the fellows of name-spaces, in the caller's transaction."""
    connection.executemany(
        "INSERT OR REPLACE INTO fellow VALUES (?, ?, ?, ?, ?)",
        [(space, *one, schema.row_check(space, *one)) for space, fellows in known.items() for one in fellows],
    )
