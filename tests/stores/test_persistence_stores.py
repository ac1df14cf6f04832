"""The stores of persistence services are read as the others are."""

from __future__ import annotations

import pathlib
import sqlite3

import pytest

from engine.persistence.service.replica_store import DATABASE
from ospltool.cli.app import main
from tests.stores.persistence_stores import ID, write_persistence
from tests.stores.test_damage import read


def test_values_are_samples_of_their_groups(tmp_path: pathlib.Path) -> None:
    store = write_persistence(tmp_path / "a", range(5))
    for path in (store, store / DATABASE):
        samples, damage = read(path)
        assert damage == []
        assert [(one.source_time_ns, one.writer, one.sequence, one.key) for one in samples] == [
            (10**18 + key, bytes(range(16)), key + 1, key.to_bytes(4)) for key in range(5)
        ]


def test_stores_of_two_replicas_are_compared(tmp_path: pathlib.Path) -> None:
    one, same, other = (
        write_persistence(tmp_path / name, range(size)) for name, size in (("a", 5), ("b", 5), ("c", 4))
    )
    assert main(["store", "diff", str(one), str(same)]) == 0
    assert main(["store", "diff", str(one), str(other)]) == 1
    assert main(["store", "info", str(one)]) == 0


def test_a_damaged_value_costs_itself(tmp_path: pathlib.Path) -> None:
    store = write_persistence(tmp_path / "a", range(5))
    connection = sqlite3.connect(store / DATABASE)
    connection.execute("UPDATE kept SET payload = x'00' WHERE key = ?", (ID + (2).to_bytes(4),))
    connection.execute("INSERT INTO sample_group VALUES (x'01', 'no description')")
    connection.commit()
    connection.close()
    samples, damage = read(store)
    assert len(samples) == 4
    assert len(damage) == 2
    assert main(["store", "verify", str(store)]) == 1


@pytest.mark.parametrize(
    "verb",
    [
        "info",
        "verify",
        "backups",
        "ls",
        "ls --samples",
        "show --key 0",
        "export -o OUT",
        "export --format jsonl -o OUT",
        "watch --looks 1",
    ],
)
def test_every_verb_opens_them(verb: str, tmp_path: pathlib.Path) -> None:
    store = write_persistence(tmp_path / "a", range(5))
    name, *options = verb.replace("OUT", str(tmp_path / "out")).split()
    assert main(["store", name, str(store), *options]) == 0


def test_their_values_can_be_imported(tmp_path: pathlib.Path) -> None:
    store = write_persistence(tmp_path / "a", range(5))
    assert main(["store", "import", str(store), str(tmp_path / "node"), "--name-space", "depot"]) == 0
    assert main(["store", "diff", str(store), str(tmp_path / "node"), "--data-only"]) == 0
