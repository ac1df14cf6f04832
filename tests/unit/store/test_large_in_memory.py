"""A store that reads large samples has few of them in memory at once, however many there are."""

from __future__ import annotations

import contextlib
import tracemalloc
from typing import TYPE_CHECKING, Final

import pytest

from engine.store.interface import DamageLog, GroupChange
from engine.store.read_only import StoreView
from engine.store.sqlite import SqliteStore
from tests.unit.store.making import description, sample, samples

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SPACE: Final = "space"
LARGE: Final = 16 << 20
COUNT: Final = 6
SMALL: Final = 100


def in_blocks(directory: Path) -> int:
    """Read as a node does at its start."""
    with contextlib.closing(SqliteStore(directory, "n1", lambda: "f" * 32)) as store:
        return sum(len(rows) for _, pieces in store.load(SPACE, DamageLog()) for rows in pieces)


def one_by_one(directory: Path) -> int:
    """Read as commands do."""
    with StoreView(directory) as view:
        (version,) = view.sets(SPACE)
        return sum(1 for _, found in view.load(version.version, DamageLog()) for _ in found)


@pytest.mark.parametrize("read", [in_blocks, one_by_one])
@pytest.mark.parametrize("small", [0, SMALL], ids=["large ones only", "behind small ones"])
def test_reading_needs_memory_for_few_samples(
    tmp_path: Path, read: Callable[[Path], int], small: int
) -> None:
    with contextlib.closing(SqliteStore(tmp_path, "n1", lambda: "f" * 32)) as store:
        store.commit_complete(store.begin_set(SPACE))
        new = [*samples(0, small), *(sample(1_000 + each, payload_bytes=LARGE) for each in range(COUNT))]
        store.append(SPACE, [GroupChange(description(depth=0), one, []) for one in new])
        del new
    tracemalloc.start()
    try:
        assert read(tmp_path) == small + COUNT
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4.5 * LARGE, peak / LARGE
