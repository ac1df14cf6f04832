"""Stores of persistence services, made up."""

from __future__ import annotations

import json
import pathlib
import sqlite3

import msgspec

from engine.dataset.sample import DATA
from engine.persistence.core.messages import KeptSample, OriginalSample, Saved
from engine.persistence.service import kept_groups as groups
from engine.persistence.service import replica_store as rows
from engine.persistence.service.replica_store import DATABASE
from tests.stores.own_stores import described

TABLES = rows.TABLES + groups.TABLES
GROUP = described("depot", "Items", 1)
ID = groups.group_id(GROUP.group)
WRITER = groups.writer_name(bytes(range(16)), ID)


def write_persistence(directory: pathlib.Path, keys: range) -> pathlib.Path:
    """A store with a value for each key."""
    directory.mkdir()
    connection = sqlite3.connect(directory / DATABASE)
    connection.executescript("CREATE TABLE about (one INTEGER PRIMARY KEY, id TEXT NOT NULL);" + TABLES)
    connection.execute("INSERT INTO about VALUES (1, 'service')")
    connection.execute("INSERT INTO sample_group VALUES (?, ?)", (ID, json.dumps(msgspec.to_builtins(GROUP))))
    kept = tuple(
        KeptSample(
            OriginalSample(WRITER, key + 1, ID + key.to_bytes(4), 10**18 + key, b"\0\1\0\0value", DATA),
            frozenset(),
        )
        for key in keys
    )
    rows.writing(Saved(kept, ()))(connection)
    connection.commit()
    connection.close()
    return directory
