"""Large samples in one store with small ones: neither slows the other down, and both are kept."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from typing import TYPE_CHECKING, Final

import pytest

from engine.dataset.sample import LARGE_BYTES, Sample
from engine.node.disk import open_store
from engine.store import sqlite
from engine.store.interface import DamageLog, GroupChange, Store, StoreFull
from engine.store.sqlite import SqliteStore
from engine.store.store_directory import DATABASE
from engine.store.tables import IN_ORDER
from tests.unit.store.making import description, sample, samples

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

SPACE: Final = "space"
FEW: Final = 200
LARGE: Final = sample(10_000, payload_bytes=LARGE_BYTES)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with contextlib.closing(SqliteStore(tmp_path, "n1", lambda: "f" * 32)) as made:
        made.commit_complete(made.begin_set(SPACE))
        yield made


def add(store: Store, new: Sequence[Sample], old: Sequence[Sample] = ()) -> None:
    changes = [GroupChange(description(depth=0), one, []) for one in new]
    store.append(SPACE, [*changes, *(GroupChange(description(depth=0), None, [one]) for one in old)])


def content(store: Store) -> list[Sample]:
    damage = DamageLog()
    found = [one for _, pieces in store.load(SPACE, damage) for rows in pieces for one in rows]
    assert not damage.count, damage.first
    return found


def is_in_order(directory: Path) -> bool:
    """Whether the rows of a store lie in the order of their keys."""
    with contextlib.closing(sqlite3.connect(directory / DATABASE)) as db:
        (how,) = db.execute("SELECT sql FROM sqlite_schema WHERE name = 'sample'").fetchone()
        return IN_ORDER in how


def test_small_samples_beside_large_ones_cost_hardly_more_than_alone(store: SqliteStore) -> None:
    """Before, each was compared with megabytes: the store of a node stayed behind and held writers back."""

    def cost_s(first: int) -> float:
        new = samples(first, first + FEW)
        began_s = time.process_time()
        add(store, new)
        add(store, [], old=new)
        return time.process_time() - began_s

    alone_s = min(cost_s(0) for _ in range(3))
    for number in range(4):
        add(store, [sample(1_000 * number + FEW, payload_bytes=2 << 20)])
    assert min(cost_s(1_000 * number) for number in range(3)) < 5 * alone_s


@pytest.mark.parametrize("before", [0, 100])
def test_the_first_large_sample_moves_rows_apart_and_all_are_there(
    store: SqliteStore, tmp_path: Path, before: int
) -> None:
    small = samples(0, before)
    if small:
        add(store, small)
    assert is_in_order(tmp_path)
    add(store, [LARGE])
    assert not is_in_order(tmp_path)
    more = samples(before, before + 100)
    add(store, more, old=small)
    assert content(store) == [*more, LARGE]
    store.close()
    with contextlib.closing(open_store(tmp_path, "n1")) as again:
        assert not again.report.findings
        assert content(again) == [*more, LARGE]
        add(again, [], old=[LARGE, more[0]])
        assert content(again) == more[1:]


def test_a_change_that_meets_what_is_there_moves_them_all_the_same(
    store: SqliteStore, tmp_path: Path
) -> None:
    add(store, samples(0, 10))
    add(store, [*samples(0, 10), LARGE])  # undone, looked at, and done once more
    assert content(store) == [*samples(0, 10), LARGE]
    assert not is_in_order(tmp_path)


def test_a_large_file_stays_as_it_is(
    store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "MOVED_PAGES", 0)
    add(store, [*samples(0, 10), LARGE])
    assert content(store) == [*samples(0, 10), LARGE]
    assert is_in_order(tmp_path)


def test_a_disk_without_room_for_both_keeps_the_sample_and_moves_nothing(
    store: SqliteStore, tmp_path: Path
) -> None:
    add(store, samples(0, 1_000, 1_000))
    connection = store._connection
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages + 10}")
    tries = 0
    while True:
        tries += 1
        with contextlib.suppress(StoreFull):
            add(store, [LARGE])
            break
    assert tries > 1
    assert content(store) == [*samples(0, 1_000, 1_000), LARGE]
    assert is_in_order(tmp_path)
