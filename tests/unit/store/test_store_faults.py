"""kill -9, a full disk, a write that fails, a read-only disk: nothing acknowledged is lost or half."""

from __future__ import annotations

import contextlib
import random
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from engine.node.disk import open_store
from engine.store import tables
from engine.store.interface import DamageLog, GroupChange, StoreFailed, StoreFull
from engine.store.memory import Medium, MemoryStore
from engine.store.store_directory import DATABASE
from tests.disks import small_disk
from tests.unit.store.making import description, sample, samples
from tests.unit.store.writer_process import SPACE, content_after

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.dataset.sample import Sample
    from engine.store.interface import Store

ROOT = Path(__file__).parents[3]
KILLS = 15


def content(store: Store, name: str = SPACE) -> set[Sample]:
    """What the complete set holds, sound to the last sample."""
    damage = DamageLog()
    found = [one for _, pieces in store.load(name, damage) for rows in pieces for one in rows]
    assert not damage.count, damage.first
    assert len(set(found)) == len(found)
    return set(found)


def run_and_kill(directory: Path, step: int, chance: random.Random) -> int:
    """Let a child write from a step on and kill it somewhere; returns the last step it acknowledged."""
    command = [sys.executable, "-m", "tests.unit.store.writer_process", str(directory), str(step)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as child:
        assert child.stdout is not None
        acknowledged = step - 1
        for _ in range(chance.randrange(1, 25)):
            acknowledged = int(child.stdout.readline())
        time.sleep(chance.random() * 0.004)  # somewhere inside a transaction, wherever that is
        child.kill()
        for line in child.stdout:
            acknowledged = int(line)
    return acknowledged


def test_after_kill_9_the_acknowledged_state_or_the_next_is_there_whole(tmp_path: Path) -> None:
    chance = random.Random(20260101)
    step = 0
    next_was_there = 0
    for _ in range(KILLS):
        acknowledged = run_and_kill(tmp_path, step, chance)
        with contextlib.closing(open_store(tmp_path, "parent")) as store:
            assert not store.report.clean_shutdown
            assert not store.report.is_damaged
            found = content(store)
        assert found in (content_after(acknowledged), content_after(acknowledged + 1))
        next_was_there += found == content_after(acknowledged + 1)
        step = acknowledged + 1 + (found == content_after(acknowledged + 1))
    assert step > KILLS


def append_until_refused(store: Store, start: int) -> int:
    """Append in small transactions until one fails for want of space; returns the first that is not there."""
    for number in range(start, start + 100_000, 50):
        try:
            store.append(
                SPACE, [GroupChange(description(), one, ()) for one in samples(number, number + 50, 200)]
            )
        except StoreFull:
            return number
    raise AssertionError("the disk never filled")


def test_a_full_disk_loses_nothing_and_is_usable_again(tmp_path: Path) -> None:
    with small_disk(tmp_path, "6m") as disk:
        ballast = disk / "ballast"
        ballast.write_bytes(bytes(2_000_000))
        with contextlib.closing(open_store(disk, "node")) as store:
            store.commit_complete(store.begin_set(SPACE))
            end = append_until_refused(store, 0)
            assert end > 0
            with pytest.raises(StoreFull, match=r"\d MiB of space are too few, [\d.]+ MiB are needed"):
                store.append(
                    SPACE, [GroupChange(description(), one, ()) for one in samples(end, end + 50, 200)]
                )
            assert content(store) == set(samples(0, end, 200))
            with pytest.raises(StoreFull):
                store.begin_set(SPACE).add(description(), samples(0, 5000, 200))
            assert content(store) == set(samples(0, end, 200))
            ballast.unlink()
            further = append_until_refused(store, end)
            assert further > end, "the store works again once there is room"
            assert content(store) == set(samples(0, further, 200))
            info = store.complete_set(SPACE)
            assert info is not None
            assert info.stored.count == further
        open_store(disk, "node").close()  # the store leaves itself the room for that
        with contextlib.suppress(OSError):
            ballast.write_bytes(bytes(6_000_000))
        with pytest.raises(StoreFull):
            open_store(disk, "node")
        ballast.unlink()
        subprocess.run(["mount", "-o", "remount,size=16m", str(disk)], check=True)
        with contextlib.closing(open_store(disk, "node")) as store:
            assert content(store) == set(samples(0, further, 200))


def leave_room(disk: Path, room_bytes: int) -> Path:
    """Fill a file system but for some bytes; returns the file that fills it."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        with contextlib.suppress(OSError):
            while True:
                file.write(bytes(4096))
        file.truncate(max(0, ballast.stat().st_size - room_bytes))
    return ballast


@pytest.mark.parametrize("is_new", [True, False], ids=["new", "killed"])
def test_opening_on_a_full_disk_is_refused_as_such_and_changes_nothing(tmp_path: Path, is_new: bool) -> None:
    image, expected = tmp_path / "image", set() if is_new else set(samples(0, 500, 200))
    image.mkdir()
    if not is_new:
        with contextlib.closing(open_store(tmp_path / "made", "node")) as store:
            store.commit_complete(store.begin_set(SPACE))
            store.append(SPACE, [GroupChange(description(), one, ()) for one in samples(0, 500, 200)])
            for name in (DATABASE, f"{DATABASE}-wal", "store.ledger"):
                shutil.copy(tmp_path / "made" / name, image)  # what a SIGKILL leaves
    mounted = tmp_path / "disk"
    mounted.mkdir()
    refused = 0
    with small_disk(mounted, "6m") as disk:
        for pages in (*range(16), 20, 32, 64, 128, 256, 300, 600):
            shutil.copytree(image, disk / "store")
            ballast = leave_room(disk, 4096 * pages)
            try:
                open_store(disk / "store", "node").close()
            except StoreFull:
                refused += 1
            ballast.unlink()
            with contextlib.closing(open_store(disk / "store", "node")) as store:
                assert not store.report.is_damaged
                assert is_new or content(store) == expected
            shutil.rmtree(disk / "store")
    assert 16 < refused < 23, "some were refused and some were not"


@pytest.mark.parametrize("inodes", range(1, 7))
def test_a_disk_that_takes_no_further_file_is_a_full_one(tmp_path: Path, inodes: int) -> None:
    with small_disk(tmp_path, f"16m,nr_inodes={inodes}") as disk:
        with pytest.raises(StoreFull):
            open_store(disk / "store", "node")
        subprocess.run(["mount", "-o", "remount,nr_inodes=20", str(disk)], check=True)
        with contextlib.closing(open_store(disk / "store", "node")) as store:
            assert not store.report.findings


def test_a_disk_that_turns_read_only_is_a_typed_failure(tmp_path: Path) -> None:
    with small_disk(tmp_path, "16m") as disk:
        with contextlib.closing(open_store(disk, "node")) as store:
            store.commit_complete(store.begin_set(SPACE))
            store.append(SPACE, [GroupChange(description(), sample(1), ())])
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        with pytest.raises(StoreFailed):
            open_store(disk, "node")
        subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
        with contextlib.closing(open_store(disk, "node")) as store:
            assert content(store) == {sample(1)}


@contextlib.contextmanager
def file_size_limit(limit_bytes: int) -> Iterator[None]:
    """Writing beyond the limit fails with EFBIG, for this process and this moment."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_write_that_fails_at_any_length_of_the_log_is_taken_back_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "FIRST_CHECKPOINT_PAGES", tables.CHECKPOINT_PAGES)  # the log only grows
    first, second = samples(0, 400, 200), samples(1000, 1400, 200)
    failures = 0
    with contextlib.closing(open_store(tmp_path, "node")) as store:
        log = tmp_path / f"{DATABASE}-wal"
        limit = 0
        while True:
            store.commit_complete(store.begin_set(SPACE))
            store.append(SPACE, [GroupChange(description(), one, ()) for one in first])
            before = store.complete_set(SPACE)
            limit = max(limit, 4096) + 4096
            allowed = log.stat().st_size // 4096 * 4096 + limit if log.exists() else limit
            try:
                with file_size_limit(allowed):
                    store.append(
                        SPACE,
                        [
                            GroupChange(description(), new, [old])
                            for new, old in zip(second, first, strict=True)
                        ],
                    )
            except (StoreFailed, StoreFull):
                failures += 1
                assert content(store) == set(first)
                now = store.complete_set(SPACE)
                assert before is not None
                assert now is not None
                assert now.stored == before.stored
            else:
                assert content(store) == set(second)
                break
    assert failures > 10


def test_the_memory_store_fails_in_the_same_words() -> None:
    medium = Medium("0" * 32, capacity_bytes=10_000)
    store = MemoryStore(medium)
    store.commit_complete(store.begin_set(SPACE))
    end = append_until_refused(store, 0)
    assert content(store) == set(samples(0, end, 200))
    medium.capacity_bytes = 50_000
    further = append_until_refused(store, end)
    assert further > end
    medium.failing = True
    with pytest.raises(StoreFailed):
        store.mark(SPACE, {"key": "value"})
    with pytest.raises(StoreFailed):
        store.begin_set(SPACE)
    medium.failing = False
    assert content(store) == set(samples(0, further, 200))


def test_a_flipped_bit_in_memory_is_found_like_one_on_disk() -> None:
    medium = Medium("0" * 32)
    store = MemoryStore(medium)
    store.commit_complete(store.begin_set(SPACE))
    store.append(SPACE, [GroupChange(description(), one, ()) for one in samples(0, 10)])
    assert medium.flip(SPACE, sample(3).digest)
    assert not medium.flip(SPACE, bytes(16))
    damage = DamageLog()
    found = [one for _, pieces in MemoryStore(medium).load(SPACE, damage) for rows in pieces for one in rows]
    assert len(found) == 9
    assert damage.count == 1
