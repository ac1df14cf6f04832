"""The small tables of a store: set versions, their groups and watermarks, and the types of the groups."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from engine.core.name_spaces import Group
from engine.core.untrusted import json_reader
from engine.dataset.group_set import EMPTY, Summary
from engine.dataset.groups import GroupDescription, GroupQos, TypeDescription
from engine.store import tables
from engine.store.interface import (
    GroupRow,
    Marks,
    RememberedFellow,
    SetState,
    SetVersion,
    Soundness,
    StoreDamage,
    StoreDamaged,
)
from engine.store.tables import DROPPED, row_check

# Counters stay below it (`engine.core.messages`), so that one more never leaves the 64 bits of SQLite.
_TOO_LARGE: Final = 1 << 62
_read_qos: Final = json_reader(GroupQos)
"""Bound of plausible counters: no store is opened or written more often."""


class Catalog(msgspec.Struct):
    """All versions by number, the numbers of dropped groups to sweep, and findings.

    `unusable` has the numbers of the versions with a damaged entry.
    """

    versions: dict[int, SetVersion] = msgspec.field(default_factory=dict)
    dropped: list[int] = msgspec.field(default_factory=list)
    findings: list[str] = msgspec.field(default_factory=list)
    unusable: list[int] = msgspec.field(default_factory=list)


def read_node(connection: sqlite3.Connection, path: Path) -> tuple[str, int, int, bool]:
    """Read id and incarnation of the node, transactions so far, and whether the last run closed the store.

    Raises:
        StoreDamaged: the entry is missing or impossible.
    """
    row = connection.execute("SELECT id, incarnation, commits, closed FROM node").fetchone()
    if row is None:
        raise StoreDamaged(f"{path}: the entry of the node is missing")
    node_id, *numbers = row
    is_id = isinstance(node_id, str) and len(node_id) == 32 and not node_id.strip("0123456789abcdef")
    if not is_id or not all(isinstance(one, int) and 0 <= one < _TOO_LARGE for one in numbers):
        raise StoreDamaged(f"{path}: the entry of the node is damaged")
    return node_id, numbers[0], numbers[1], bool(numbers[2])


def read_catalog(connection: sqlite3.Connection) -> Catalog:
    """Read the small tables; a row that fails its check becomes a finding, or damage of its version."""
    catalog = Catalog()
    for number, name_space, state, mark, check in connection.execute(
        "SELECT version, name_space, state, mark, row_check FROM set_version ORDER BY version"
    ):
        if check != row_check(number, name_space, state, mark):
            catalog.findings.append(f"set version {number}: its entry is damaged; the version is not used")
            catalog.unusable.append(number)
        elif state != DROPPED:
            catalog.versions[number] = SetVersion(number, name_space, SetState(state), mark)
    types = _read_types(connection)
    for row in connection.execute(
        "SELECT id, version, partition, topic, type_id, type, qos, sample_count, sample_digest, newest_ns,"
        " row_check FROM sample_group ORDER BY id"
    ):
        _take_group(catalog, types, row)
    return catalog


def _read_types(connection: sqlite3.Connection) -> dict[int, TypeDescription]:
    types = {}
    for number, digest, name, information, mapping, keyed in connection.execute(
        "SELECT id, digest, name, information, mapping, keyed FROM type_description"
    ):
        if digest == row_check(name, information, mapping, keyed):
            types[number] = TypeDescription(name, information, mapping, bool(keyed))
    return types


_GroupFields = tuple[int, int, str, str, str, int, str, int, bytes, int, bytes]


def _take_group(catalog: Catalog, types: dict[int, TypeDescription], row: _GroupFields) -> None:
    number, version_number, partition, topic, type_id, type_number, qos_text, count, digest, newest, check = (
        row
    )
    version = catalog.versions.get(version_number)
    if version is None:
        catalog.dropped.append(number)
        return
    group = Group(partition, topic, type_id)
    place = f"group {group}"
    if check != row_check(*row[:-1]):
        version.damage.append(StoreDamage(place, "its entry is damaged; its samples are not read"))
    elif type_number not in types:
        version.damage.append(
            StoreDamage(place, "the description of its type is damaged; its samples are not read")
        )
    else:
        qos: GroupQos = _read_qos(qos_text)
        description = GroupDescription(group, types[type_number], qos)
        stored = Summary(count, int.from_bytes(digest), newest)
        version.groups[group] = GroupRow(description, stored, number, type_number, qos_text)


def new_version(connection: sqlite3.Connection, name_space: str) -> SetVersion:
    """Write the entry of a version that begins to fill."""
    number = connection.execute(
        "INSERT INTO set_version (name_space, state, mark, row_check) VALUES ('', '', '', x'')"
    ).lastrowid
    assert number is not None
    version = SetVersion(number, name_space, SetState.FILLING, soundness=Soundness.INTACT)
    write_version(connection, version, version.state)
    return version


def write_version(connection: sqlite3.Connection, version: SetVersion, state: str, mark: str = "") -> None:
    """Write the state and the mark of a version's entry."""
    connection.execute(
        "UPDATE set_version SET name_space = ?, state = ?, mark = ?, row_check = ? WHERE version = ?",
        (
            version.name_space,
            state,
            mark,
            row_check(version.number, version.name_space, str(state), mark),
            version.number,
        ),
    )


def write_group(
    connection: sqlite3.Connection, version: int, row: GroupRow | None, description: GroupDescription
) -> GroupRow:
    """Write the description of a group, new or changed; `write_watermark` must follow.

    `version` is the id of the stored set.
    """
    group = description.group
    type_ = description.type
    content = (type_.name, type_.information, type_.mapping, int(type_.keyed))
    digest = row_check(*content)
    connection.execute(  # this repairs a damaged entry of the same type
        "INSERT INTO type_description (digest, name, information, mapping, keyed) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT (digest) DO UPDATE SET name = excluded.name, information = excluded.information,"
        " mapping = excluded.mapping, keyed = excluded.keyed",
        (digest, *content),
    )
    found = connection.execute("SELECT id FROM type_description WHERE digest = ?", (digest,)).fetchone()
    type_number = int(found[0])
    qos_text = msgspec.json.encode(description.qos).decode()
    if row is not None:
        connection.execute(
            "UPDATE sample_group SET type = ?, qos = ? WHERE id = ?", (type_number, qos_text, row.id)
        )
        return GroupRow(description, row.stored, row.id, type_number, qos_text)
    number = connection.execute(
        "INSERT INTO sample_group (version, partition, topic, type_id, type, qos, sample_count,"
        " sample_digest, newest_ns, row_check) VALUES (?, ?, ?, ?, ?, ?, 0, x'', 0, x'')",
        (version, *group, type_number, qos_text),
    ).lastrowid
    assert number is not None
    return GroupRow(description, EMPTY, number, type_number, qos_text)


def write_watermark(connection: sqlite3.Connection, version: int, row: GroupRow) -> None:
    """Write the watermark of a group, with the check of the whole entry.

    `version` is the id of the stored set.
    """
    stored = row.stored
    watermark = (stored.count, stored.digest.to_bytes(16), stored.newest_ns)
    check = row_check(row.id, version, *row.description.group, row.type_number, row.qos_text, *watermark)
    connection.execute(
        "UPDATE sample_group SET sample_count = ?, sample_digest = ?, newest_ns = ?, row_check = ?"
        " WHERE id = ?",
        (*watermark, check, row.id),
    )


def read_marks(
    connection: sqlite3.Connection, name_space: str | None = None
) -> list[tuple[str, str, str, bool]]:
    """Read name-space, key and value of the marks of one name-space or all, and whether each is sound."""
    rows = connection.execute(
        "SELECT name_space, key, value, row_check FROM mark WHERE ?1 IS NULL OR name_space = ?1",
        (name_space,),
    ).fetchall()
    return [
        (space, key, value, check == tables.row_check(space, key, value)) for space, key, value, check in rows
    ]


def read_fellows(connection: sqlite3.Connection) -> tuple[dict[str, tuple[RememberedFellow, ...]], int]:
    """Read the remembered fellows by name-space, and the number of damaged entries."""
    fellows: dict[str, list[RememberedFellow]] = {}
    damaged = 0
    for space, id_, name, role, check in connection.execute(
        "SELECT name_space, id, name, role, row_check FROM fellow ORDER BY name_space, id"
    ):
        if check == tables.row_check(space, id_, name, role):
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
            check = tables.row_check(name_space, key, value)
            connection.execute(
                "INSERT OR REPLACE INTO mark VALUES (?, ?, ?, ?)", (name_space, key, value, check)
            )


def write_fellows(connection: sqlite3.Connection, known: Mapping[str, Iterable[RememberedFellow]]) -> None:
    """Add the fellows of name-spaces, in the caller's transaction."""
    connection.executemany(
        "INSERT OR REPLACE INTO fellow VALUES (?, ?, ?, ?, ?)",
        [(space, *one, tables.row_check(space, *one)) for space, fellows in known.items() for one in fellows],
    )
