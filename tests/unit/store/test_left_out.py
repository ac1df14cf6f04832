"""Large samples that are replaced before they were written: their payloads go, and nothing is lost."""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from engine.dataset.sample import Sample
from engine.node.disk import open_store
from engine.runtime import store_queue
from engine.runtime.store_queue import StoreQueue
from engine.store.interface import LET_GO_BYTES, DamageLog, GroupChange, StoreFull
from engine.store.sqlite import SqliteStore
from tests.unit.store.making import description, sample
from tests.unit.store.replaced_writer import LOADS, SPACE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from engine.core.name_spaces import Group
    from engine.store.interface import Store

ROOT: Final = Path(__file__).parents[3]
SIZE: Final = LET_GO_BYTES
KILLS: Final = 12


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with contextlib.closing(SqliteStore(tmp_path / "store", "n1", lambda: "f" * 32)) as made:
        made.commit_complete(made.begin_set(SPACE))
        yield made


def content(store: Store) -> dict[Group, set[Sample]]:
    """What the set has, sound to the last sample."""
    damage = DamageLog()
    found = {
        group.group: {one for rows in pieces for one in rows} for group, pieces in store.load(SPACE, damage)
    }
    assert not damage.count, damage.first
    return found


def without_empty(groups: Mapping[Group, Collection[Sample]]) -> dict[Group, Collection[Sample]]:
    return {group: samples for group, samples in groups.items() if samples}


def large(number: int) -> Sample:
    return sample(number, payload_bytes=SIZE)


def replacing(new: Sample, *old: Sample) -> GroupChange:
    return GroupChange(description(), new, old)


def test_only_what_will_be_written_waits_with_its_payload(store: SqliteStore) -> None:
    queue = StoreQueue(store)
    queue.append(SPACE, [replacing(large(0))])
    for number in range(1, 100):
        queue.append(SPACE, [replacing(large(number), large(number - 1))])
    assert (queue.queued_changes, queue.queued_bytes) == (100, SIZE)
    assert queue.work()
    assert (queue.carried_out, queue.queued_changes, queue.queued_bytes) == (100, 0, 0)
    assert content(store) == {description().group: {large(99)}}


def test_small_samples_wait_as_they_are(store: SqliteStore) -> None:
    queue = StoreQueue(store)
    queue.append(SPACE, [replacing(sample(0)), replacing(sample(1), sample(0))])
    assert queue.queued_bytes == 16


def test_a_sample_of_two_partitions_goes_where_it_is_replaced_only(store: SqliteStore) -> None:
    """One digest in two groups: what replaces it in one leaves the other one's alone."""
    queue = StoreQueue(store)
    both = description(0), description(1)
    queue.append(SPACE, [GroupChange(group, large(0)) for group in both])
    queue.append(SPACE, [GroupChange(both[0], large(1), [large(0)])])
    assert queue.queued_bytes == 2 * SIZE
    assert queue.work()
    assert content(store) == {both[0].group: {large(1)}, both[1].group: {large(0)}}


def test_what_another_transaction_replaces_is_written(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that dies between the two must find it."""
    monkeypatch.setattr(store_queue, "BATCH_CHANGES", 2)
    queue = StoreQueue(store)
    queue.append(SPACE, [replacing(sample(0)), replacing(large(1)), replacing(large(2), large(1))])
    assert queue.queued_bytes == 8 + 2 * SIZE
    assert queue.work()
    assert content(store) == {description().group: {sample(0), large(1)}}
    queue.append(SPACE, [replacing(large(3), large(2))])
    assert queue.queued_bytes == SIZE, "these two share one"
    assert queue.work()
    assert content(store) == {description().group: {sample(0), large(3)}}


def test_what_is_being_written_keeps_its_payload(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = StoreQueue(store)
    queue.append(SPACE, [replacing(large(0))])
    write = store.append

    def meanwhile(*arguments: object) -> object:
        monkeypatch.undo()
        queue.append(SPACE, [replacing(large(1), large(0))])
        return write(*arguments)  # type: ignore[arg-type]  # they are handed on as they came

    monkeypatch.setattr(store, "append", meanwhile)
    assert queue.work()
    assert content(store) == {description().group: {large(0)}}
    assert queue.queued_bytes == SIZE
    assert queue.work()
    assert content(store) == {description().group: {large(1)}}


@pytest.mark.parametrize("seed", range(20))
def test_any_order_of_changes_and_refusals_leaves_each_transaction_whole(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """KEEP_LAST 1 to 3 in two groups, sizes around the limit, samples that come back, a disk that refuses."""
    chance = random.Random(seed)
    monkeypatch.setattr(store_queue, "BATCH_CHANGES", chance.randrange(1, 12))
    queue = StoreQueue(store)
    groups = description(0, depth=chance.randrange(1, 4)), description(1, depth=1)
    kept: dict[tuple[Group, int], list[Sample]] = {}
    truth = [{group.group: frozenset[Sample]() for group in groups}]
    write = store.append

    def refusing(*arguments: object) -> object:
        if chance.random() < 0.3:
            raise StoreFull("no space")
        return write(*arguments)  # type: ignore[arg-type]  # they are handed on as they came

    monkeypatch.setattr(store, "append", refusing)
    for number in range(80):
        new = sample(number, payload_bytes=chance.choice((8, SIZE - 1, SIZE, 3 * SIZE)))
        for group in groups if chance.random() < 0.3 else groups[:1]:
            own = kept.setdefault((group.group, number % 7), [])
            own.append(new)
            gone = [own.pop(0)] if len(own) > group.qos.history_depth else []
            queue.append(SPACE, [GroupChange(group, new, gone)])
            truth.append({**truth[-1], group.group: (truth[-1][group.group] | {new}) - {*gone}})
        if chance.random() < 0.3:
            queue.work()
            assert content(store) == without_empty(truth[queue.carried_out])
        for each in (group.group for group in groups):
            lacking = truth[-1][each] - truth[queue.carried_out][each] if queue.problem else ()
            assert queue.refused(SPACE, each) == len(lacking), "counted as changes come, and after each write"
    while not queue.is_idle:
        queue.work()
    assert content(store) == without_empty(truth[-1])
    assert (queue.queued_changes, queue.queued_bytes) == (0, 0)


def run_and_kill(directory: Path, load: str, chance: random.Random) -> tuple[int, int]:
    """Let a child write large samples and kill it; what it printed last."""
    command = [sys.executable, "-m", "tests.unit.store.replaced_writer", str(directory), load]
    acknowledged = spared = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as child:
        assert child.stdout is not None
        lines = chance.randrange(1, 12)
        while lines > 0 or (load == "replaced" and not spared):
            acknowledged, spared = map(int, child.stdout.readline().split())
            lines -= 1
        time.sleep(chance.random() * 0.02)  # somewhere inside a transaction or a checkpoint
        child.kill()
        for line in child.stdout:
            acknowledged, spared = map(int, line.split())
    return acknowledged, spared


@pytest.mark.parametrize("load", LOADS)
def test_after_kill_9_everything_acknowledged_or_its_successor_is_there(tmp_path: Path, load: str) -> None:
    """The child is killed while it leaves out what was replaced, or while it writes what is new."""
    chance = random.Random(20261124)
    for number in range(KILLS):
        directory = tmp_path / str(number)
        acknowledged, spared = run_and_kill(directory, load, chance)
        assert spared > 0 or load == "new", "nothing was left out, so nothing was tested"
        with contextlib.closing(open_store(directory, "parent")) as store:
            assert not store.report.is_damaged
            found = content(store).get(description().group, set())
        count = max([one.sequence + 1 for one in found], default=0)
        assert count >= acknowledged
        assert found == LOADS[load].content_after(count), "the state after some change, whole"


@pytest.mark.parametrize("load", LOADS)
def test_the_child_knows_what_it_wrote(load: str) -> None:
    """The model of the kill test: content after n changes, by carrying them out one after another."""
    held: set[Sample] = set()
    for number in range(160 if load == "replaced" else 10):
        for change in LOADS[load].changes_of(number):
            assert change.added is not None
            held = (held | {change.added}) - {*change.evicted}
        assert held == LOADS[load].content_after(number + 1)
