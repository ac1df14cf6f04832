"""A store read with the compiled library gives the samples, and notes the damage, that Python does."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from engine.dataset.sample import DATA, DISPOSE, UNREGISTER, Sample, make_sample
from engine.store import verification
from engine.store.interface import DamageLog
from engine.store.sqlite import SqliteStore
from engine.store.store_directory import DATABASE
from engine.store.verification import Unsound, compiled_pages, is_available
from tests.unit.store.making import description
from tests.unit.store.test_tampered import SPACE, tamper

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.dataset.sample_rows import SampleRows

pytestmark = pytest.mark.skipif(not is_available(), reason="Python has its SQLite inside")
GROUP = description(0, depth=0)
STATUSES = (DATA, DISPOSE, UNREGISTER, DATA | DISPOSE | UNREGISTER)


def various(count: int, writers: int, sizes: tuple[int, ...], statuses: tuple[int, ...]) -> list[Sample]:
    """Samples that differ in whatever a row has."""
    chance = random.Random(count)
    return [
        make_sample(
            chance.randrange(1, 1 << 62),
            chance.randrange(writers).to_bytes(16),
            chance.choice(statuses),
            chance.randbytes(chance.choice(sizes) % 90),
            chance.randbytes(chance.choice(sizes)),
            chance.choice((0, 1, (1 << 63) + number)) if writers > 1 else 0,
        )
        for number in range(count)
    ]


def stored(place: Path, content: list[Sample]) -> None:
    """Make a store with a set."""
    with contextlib.closing(SqliteStore(place, "n1", lambda: "a" * 32)) as store:
        writer = store.begin_set(SPACE)
        writer.add(GROUP, content)
        store.commit_complete(writer, "1/a/1")


def loaded(
    place: Path, patch: pytest.MonkeyPatch, *, is_compiled: bool
) -> tuple[list[SampleRows], DamageLog]:
    """What a store gives, and the damage that it notes."""
    patch.setattr(verification, "is_available", lambda: is_compiled)
    patch.setattr(verification, "MIN_ROWS", 1)
    log = DamageLog()
    with contextlib.closing(SqliteStore(place, "n1", lambda: "a" * 32)) as store:
        return [piece for _, pieces in store.load(SPACE, log) for piece in pieces], log


def check_both_ways(place: Path, patch: pytest.MonkeyPatch) -> tuple[list[SampleRows], DamageLog]:
    """Compare them; return what Python found."""
    compiled, its_log = loaded(place, patch, is_compiled=True)
    plain, log = loaded(place, patch, is_compiled=False)
    assert [sample for rows in compiled for sample in rows] == [sample for rows in plain for sample in rows]
    assert (its_log.count, its_log.first, its_log.strange) == (log.count, log.first, log.strange)
    for rows in compiled:
        (block,) = rows.parts
        assert rows.digest_sum() % (1 << 128) == sum(map(int.from_bytes, rows.each_digest())) % (1 << 128)
        assert rows.newest_ns() == max(block.times_ns())
    return plain, log


@pytest.mark.parametrize(
    "content",
    [
        various(1, 1, (9,), (DATA,)),
        various(4_097, 1, (8,), (DATA,)),
        various(9_000, 9_000, (0, 1, 100), STATUSES),
        various(500, 3, (0,), (DATA,)),
        various(40, 2, (70_000, 3), STATUSES),
        various(3, 2, ((1 << 20) + 1, 5), (DATA,)),
    ],
    ids=[
        "one",
        "more than a page",
        "all columns",
        "empty payloads",
        "large payloads",
        "too large for a page",
    ],
)
def test_whatever_a_row_has(content: list[Sample], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored(tmp_path, content)
    plain, log = check_both_ways(tmp_path, monkeypatch)
    assert sum(map(len, plain)) == len(content)
    assert not log.count


@pytest.mark.parametrize("name", [b"h\xf6st", b"100% of?it#1"], ids=["no Unicode", "characters of a URI"])
def test_a_directory_of_any_name(name: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / os.fsdecode(name)
    stored(place, various(40, 3, (1, 5, 40), STATUSES))
    plain, log = check_both_ways(place, monkeypatch)
    assert (sum(map(len, plain)), log.count) == (40, 0)


def test_a_changed_row_is_noted_and_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored(tmp_path / "intact", various(400, 3, (1, 5, 40), STATUSES))
    chance, damaged = random.Random(20), 0
    for turn in range(40):
        place = tmp_path / str(turn)
        shutil.copytree(tmp_path / "intact", place)
        tamper(place / DATABASE, chance.choice((1, 1, 20)), chance)
        _, log = check_both_ways(place, monkeypatch)
        damaged += bool(log.count)
    assert damaged > 35


@pytest.mark.parametrize("value", ["'text'", "NULL", "3.5", "x'00'", "x''"])
@pytest.mark.parametrize(
    "column", ["source_time_ns", "writer", "sequence", "digest", "status", "key", "payload"]
)
def test_a_value_of_another_type(
    column: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(tmp_path, various(60, 3, (0, 5, 40), STATUSES))
    with contextlib.closing(sqlite3.connect(tmp_path / DATABASE)) as db, contextlib.suppress(sqlite3.Error):
        db.execute("PRAGMA ignore_check_constraints = ON")
        newest = "(SELECT max(source_time_ns) FROM sample)"
        db.execute(f"UPDATE sample SET {column} = {value} WHERE source_time_ns = {newest}")
        db.commit()
    check_both_ways(tmp_path, monkeypatch)


def test_pages_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored(tmp_path / "intact", various(2_000, 3, (200,), STATUSES))
    size = (tmp_path / "intact" / DATABASE).stat().st_size
    for turn, at in enumerate(range(size // 3, size, size // 6)):
        place = tmp_path / str(turn)
        shutil.copytree(tmp_path / "intact", place)
        with (place / DATABASE).open("r+b") as file:
            file.seek(at)
            file.write(b"\xff" * 16_384)
        _, log = check_both_ways(place, monkeypatch)
        assert log.count


def test_another_state_of_the_file_is_not_read(tmp_path: Path) -> None:
    stored(tmp_path, various(50, 1, (5,), (DATA,)))
    with contextlib.closing(SqliteStore(tmp_path, "n1", lambda: "a" * 32)), pytest.raises(Unsound):
        next(compiled_pages(tmp_path / DATABASE, 1, commits=999))


def test_a_reader_that_stops_early_leaves_nothing_behind(tmp_path: Path) -> None:
    stored(tmp_path, various(40_000, 1, (5,), (DATA,)))
    with contextlib.closing(SqliteStore(tmp_path, "n1", lambda: "a" * 32)) as store:
        with contextlib.closing(sqlite3.connect(tmp_path / DATABASE)) as db:
            (commits,) = db.execute("SELECT commits FROM node").fetchone()
        pages = compiled_pages(tmp_path / DATABASE, 1, commits)
        assert sum(block.count for _, block in pages) == 40_000
        threads = len(list(Path("/proc/self/task").iterdir()))
        files = len(list(Path("/proc/self/fd").iterdir()))
        blocks: Iterator[object] = compiled_pages(tmp_path / DATABASE, 1, commits)
        assert next(blocks)
        assert len(list(Path("/proc/self/task").iterdir())) == threads + 1
        del blocks
        assert len(list(Path("/proc/self/task").iterdir())) == threads
        assert len(list(Path("/proc/self/fd").iterdir())) == files
        store.name_spaces()
