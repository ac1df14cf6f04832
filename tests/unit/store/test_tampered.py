"""A store that somebody changed row by row: nothing of that is ever given to the node, or sent on."""

from __future__ import annotations

import contextlib
import random
import shutil
import sqlite3
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from engine.runtime import stream
from engine.runtime.incoming import IncomingStreams
from engine.runtime.startup import read_store
from engine.store.sqlite import SqliteStore
from engine.store.store_directory import DATABASE
from tests.property.test_streams import BEGIN, NODE, NUMBER
from tests.unit.store.making import description, samples

if TYPE_CHECKING:
    from engine.core.name_spaces import Group
    from engine.dataset.dataset import DataSet
    from engine.dataset.groups import GroupDescription
    from engine.dataset.sample import Sample

SPACE: Final = "space"
GROUPS: Final = (description(0, depth=0), description(1, depth=0))
TAMPERED: Final = 10_000
ROUNDS: Final = 20
COLUMNS: Final = ("source_time_ns", "writer", "sequence", "digest", "status", "key", "payload")
PARTS: Final = (samples(0, 500, 60), samples(500, 1_000, 60))
"""What each group has: no sample of one is in the other."""


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of a node that ended in order."""
    place = tmp_path_factory.mktemp("intact")
    with contextlib.closing(SqliteStore(place, "n1", lambda: "a" * 32)) as store:
        writer = store.begin_set(SPACE)
        for group, part in zip(GROUPS, PARTS, strict=True):
            writer.add(group, part)
        store.commit_complete(writer, "1/a/1")
    return place


def changed(value: int | bytes, chance: random.Random) -> int | bytes:
    """A value with one bit flipped."""
    if isinstance(value, int):
        return value ^ (1 << chance.randrange(40))
    content = bytearray(value)
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    return bytes(content)


def tamper(database: Path, count: int, chance: random.Random) -> int:
    """Flip bits of columns of random rows, and swap columns between rows; return how many were changed."""
    done = 0
    with contextlib.closing(sqlite3.connect(database)) as db:
        keys = db.execute("SELECT sample_group, source_time_ns, digest FROM sample").fetchall()
        chance.shuffle(keys)
        where = "WHERE sample_group = ? AND source_time_ns = ? AND digest = ?"
        for key, other in zip(keys[:count], keys[count:] + keys[:count], strict=False):
            column = chance.choice(COLUMNS)
            (value,) = db.execute(f"SELECT {column} FROM sample {where}", key).fetchone()
            found = db.execute(f"SELECT {column} FROM sample {where}", other).fetchone()
            new = found[0] if found and chance.random() < 0.4 else value
            if new == value:
                new = changed(value, chance)
            with contextlib.suppress(sqlite3.IntegrityError):  # the place of another row
                db.execute(f"UPDATE sample SET {column} = ? {where}", (new, *key))
                done += 1
        db.commit()
    return done


def sent(data: DataSet, descriptions: list[GroupDescription]) -> dict[Group, set[Sample]]:
    """What a fellow receives of a set."""
    by_group = {each.group: each for each in descriptions}
    groups = [
        (stream.GroupBegin(by_group[group], part.floor_ns), part.samples())
        for group, part in data.groups.items()
    ]
    streams = IncomingStreams(NODE)
    for batch in stream.batches(NUMBER, BEGIN, groups):
        incoming = streams.receive(BEGIN.aligner, batch, 0)
    assert incoming is not None
    return {group: {*part.samples()} for group, part in incoming.data.groups.items()}


def test_none_of_ten_thousand_changed_rows_is_sent(intact: Path, tmp_path: Path) -> None:
    chance, done = random.Random(19), 0
    truth = {group.group: {*part} for group, part in zip(GROUPS, PARTS, strict=True)}
    for number in range(ROUNDS):
        place = tmp_path / str(number)
        shutil.copytree(intact, place)
        changed_rows = tamper(place / DATABASE, TAMPERED // ROUNDS + 60, chance)
        done += changed_rows
        with contextlib.closing(SqliteStore(place, "n1", lambda: "b" * 32)) as store:
            found = read_store(store, time.time_ns())
        assert found.report.is_damaged or found.stored[SPACE].quality_ns < 0
        assert any(f"'{SPACE}'" in each for each in found.findings)
        if SPACE in found.sets:
            data, descriptions = found.sets[SPACE]
            for group, received in sent(data, descriptions).items():
                assert received <= truth[group]
                assert received
        shutil.rmtree(place)
    assert done >= TAMPERED


@pytest.mark.parametrize("moves", [[(1, 2)], [(1, 2), (2, 1)], [(2, 1)]], ids=["one", "an exchange", "back"])
def test_samples_that_moved_to_another_group_are_not_sent(
    intact: Path, tmp_path: Path, moves: list[tuple[int, int]]
) -> None:
    """Their digests are right, but the watermark of the group is not."""
    place = tmp_path / "store"
    shutil.copytree(intact, place)
    with contextlib.closing(sqlite3.connect(place / DATABASE)) as db:
        first, second = sorted({group for (group,) in db.execute("SELECT sample_group FROM sample")})
        numbers = {1: first, 2: second}
        rows = {
            group: db.execute(
                "SELECT source_time_ns FROM sample WHERE sample_group = ? LIMIT 1", (numbers[group],)
            ).fetchone()[0]
            for group in numbers
        }
        for source, target in moves:
            db.execute(
                "UPDATE sample SET sample_group = ? WHERE sample_group = ? AND source_time_ns = ?",
                (numbers[target], numbers[source], rows[source]),
            )
        db.commit()
    with contextlib.closing(SqliteStore(place, "n1", lambda: "b" * 32)) as store:
        found = read_store(store, time.time_ns())
    assert found.stored[SPACE].quality_ns < 0
    assert f"name-space '{SPACE}': {found.damage[SPACE]}" in found.findings
    truth = {group.group: {*part} for group, part in zip(GROUPS, PARTS, strict=True)}
    for group, received in sent(*found.sets[SPACE]).items():
        assert received <= truth[group]
