"""A set that is replaced stays as a back-up: how many, what is said of it, and what a full disk does."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from engine.dataset.dataset import DataSet
from engine.dataset.group_set import Summary
from engine.dataset.sample_rows import SampleRows
from engine.runtime.store_queue import (
    PATIENCE,
    BackupDropped,
    BackupKept,
    BackupMissing,
    Conversion,
    Degraded,
    Recovered,
    StoreQueue,
)
from engine.store.interface import MAX_BACKUPS, DamageLog, GroupChange, Replaced, SetState, note_of
from engine.store.memory import Medium, MemoryStore
from engine.store.sqlite import SqliteStore
from tests.disks import small_disk
from tests.unit.store.making import description, sample, samples

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from engine.dataset.sample import Sample
    from engine.store.interface import SetInfo, Store

SPACE = "space"
NODE_ID = "0123456789abcdef0123456789abcdef"
PAYLOAD = 200
GROUP = description(depth=0)


class Place:
    """A store that can be opened again, with its queue."""

    def __init__(self, open_store: Callable[[], Store]) -> None:
        self._open = open_store
        self.open()

    def open(self) -> None:
        self.store = self._open()
        self.store_queue = StoreQueue(self.store)

    def append(self, new: Sequence[Sample]) -> None:
        self.store_queue.append(SPACE, [GroupChange(GROUP, one) for one in new])
        self.work()

    def write(self, new: Sequence[Sample], *, why: str = "", conversion: Conversion | None = None) -> None:
        """Hand a whole set over."""
        note = Replaced("node n1", 77, why) if why else None
        rows = SampleRows.coerce(new)
        self.store_queue.write_set(SPACE, [(GROUP, rows)], summary(new), "lineage", conversion, keeps=note)

    def work(self) -> None:
        while self.store_queue.work():
            pass

    def of(self, state: SetState) -> list[SetInfo]:
        return [one for one in self.store.sets(SPACE) if one.state is state]

    def content(self, version: int | None = None) -> set[Sample]:
        damage = DamageLog()
        loaded = self.store.load(SPACE, damage, version)
        found = {one for _, pieces in loaded for rows in pieces for one in rows}
        assert not damage.count, damage.first
        return found

    def backups(self) -> list[set[Sample]]:
        return [self.content(one.version) for one in self.of(SetState.KEPT)]


def summary(new: Sequence[Sample]) -> Summary:
    """What a node tells of a set."""
    data = DataSet()
    data.open_group(GROUP.group, 0).extend(SampleRows.coerce(new))
    return data.summary()


def numbered(start: int, end: int) -> list[Sample]:
    return samples(start, end, PAYLOAD)


@pytest.fixture(params=["memory", "sqlite"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    medium = Medium(NODE_ID)
    made = Place(
        lambda: (
            MemoryStore(medium)
            if request.param == "memory"
            else SqliteStore(tmp_path, "backups", lambda: NODE_ID)
        )
    )
    made.write([])
    made.work()
    yield made
    made.store.close()


def test_the_replaced_set_stays_with_a_note_and_survives(place: Place) -> None:
    old, new = numbered(0, 30), numbered(20, 60)
    place.append(old)
    place.write(new, why="merge policy Replace")
    place.work()
    for _ in range(2):
        assert place.content() == set(new)
        assert place.backups() == [set(old)]
        (kept,) = place.of(SetState.KEPT)
        note = Replaced("node n1", 77, "merge policy Replace", before=30, after=40, mark="lineage")
        assert note_of(kept.mark) == note
        assert kept.stored.count == 30
        place.store.close()
        place.open()
    place.append(numbered(60, 61))
    assert place.backups() == [set(old)], "what is written later is not for the back-up"


def test_it_is_reported_once_with_counts(place: Place) -> None:
    place.append(numbered(0, 30))
    (before,) = place.of(SetState.COMPLETE)
    place.write(numbered(20, 60), why="because")
    place.work()
    (kept,) = place.store_queue.backup_reports()
    assert isinstance(kept, BackupKept)
    assert (kept.name_space, kept.version) == (SPACE, before.version)
    assert (kept.note.before, kept.note.after, kept.note.why) == (30, 40, "because")
    assert place.store_queue.backup_reports() == []


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [((0, 30), (20, 60), ""), ((0, 30), (0, 30), "because"), ((0, 0), (0, 30), "because")],
    ids=["no reason", "equal", "empty"],
)
def test_without_a_reason_or_a_difference_nothing_is_kept(
    place: Place, before: tuple[int, int], after: tuple[int, int], why: str
) -> None:
    place.append(numbered(*before))
    place.write(numbered(*after), why=why)
    place.work()
    assert place.content() == set(numbered(*after))
    assert place.backups() == []
    assert place.store_queue.backup_reports() == []


def test_where_no_set_was_there_none_is_kept(tmp_path: Path) -> None:
    with contextlib.closing(SqliteStore(tmp_path, "new", lambda: NODE_ID)) as store:
        place = Place(lambda: store)
        place.write(numbered(0, 3), why="because")
        place.work()
        assert place.content() == set(numbered(0, 3))
        assert place.backups() == []


def test_a_set_that_is_kept_is_not_changed_in_place(place: Place) -> None:
    old = numbered(0, 100)
    place.append(old)
    new = [*old[1:], sample(500, payload_bytes=PAYLOAD)]
    conversion = Conversion([GroupChange(GROUP, new[-1], [old[0]])], before=summary(old))
    place.write(new, why="because", conversion=conversion)
    place.work()
    assert place.content() == set(new)
    assert place.backups() == [set(old)]


def test_a_set_that_came_as_a_stream_leaves_a_backup_too(place: Place) -> None:
    old, new = numbered(0, 30), numbered(20, 60)
    place.append(old)
    place.store_queue.fill(SPACE, b"stream", GROUP, SampleRows.coerce(new[:-1]))
    place.write(new, why="because", conversion=Conversion([GroupChange(GROUP, new[-1])], b"stream"))
    place.work()
    assert place.content() == set(new)
    assert place.backups() == [set(old)]


def test_the_oldest_backup_goes_when_there_are_too_many(place: Place) -> None:
    sets = [numbered(10 * number, 10 * number + 20) for number in range(MAX_BACKUPS + 3)]
    for each in sets:
        place.write(each, why="because")
    place.work()
    assert place.content() == set(sets[-1])
    assert place.backups() == [set(each) for each in sets[-1 - MAX_BACKUPS : -1]]
    dropped = [one for one in place.store_queue.backup_reports() if isinstance(one, BackupDropped)]
    assert [one.samples for one in dropped] == [20, 20]


def test_a_backup_is_taken_back_at_one_stroke(place: Place) -> None:
    sets = [numbered(10 * number, 10 * number + 20) for number in range(MAX_BACKUPS + 1)]
    for each in sets:
        place.write(each, why="because")
    place.work()
    kept = place.of(SetState.KEPT)
    place.store.restore_backup(kept[0].version, "taken back", "put aside")
    assert place.content() == set(sets[0])
    complete = place.store.complete_set(SPACE)
    assert complete is not None
    assert complete.mark == "taken back"
    assert place.backups() == [set(each) for each in sets[1:]], "none of the others goes for it"
    assert place.of(SetState.KEPT)[-1].mark == "put aside"
    with pytest.raises(LookupError):
        place.store.restore_backup(complete.version, "", "")
    place.store.close()
    place.open()
    assert place.content() == set(sets[0])


# A full disk.


def filled_medium(backups: int) -> tuple[Medium, Place]:
    """A medium that has no room for more, with back-ups of 20 samples and a complete set of 20."""
    medium = Medium(NODE_ID)
    place = Place(lambda: MemoryStore(medium))
    for number in range(backups + 1):
        place.write(numbered(100 * number, 100 * number + 20), why="because")
    place.work()
    place.store_queue.backup_reports()
    medium.capacity_bytes = medium.used_bytes
    return medium, place


def test_a_disk_that_is_full_for_a_moment_costs_no_backup() -> None:
    medium, place = filled_medium(2)
    place.append(numbered(900, 901))
    for _ in range(PATIENCE - 2):
        assert not place.store_queue.work()
    assert isinstance(place.store_queue.results()[-1], Degraded)
    medium.capacity_bytes = None
    place.append(numbered(901, 904))
    place.work()
    assert [one for one in place.store_queue.results() if isinstance(one, Recovered)] == [
        Recovered(SPACE, rewrite=False, waited=4)
    ]
    assert place.content() == set(numbered(200, 220) + numbered(900, 904))
    assert len(place.backups()) == 2
    assert place.store_queue.backup_reports() == []


def test_on_a_disk_that_stays_full_the_oldest_backup_goes_for_what_is_written() -> None:
    _, place = filled_medium(2)
    place.append(numbered(900, 901))
    for _ in range(PATIENCE):
        place.store_queue.work()
    assert place.store_queue.is_idle
    assert place.content() == set(numbered(200, 220) + numbered(900, 901))
    assert place.backups() == [set(numbered(100, 120))]
    (report,) = place.store_queue.backup_reports()
    assert isinstance(report, BackupDropped)
    assert (report.name_space, report.samples) == (SPACE, 20)


def test_where_both_do_not_fit_the_new_set_is_stored_and_the_old_one_is_said_to_be_gone() -> None:
    medium, place = filled_medium(0)
    medium.capacity_bytes = medium.used_bytes + 30 * PAYLOAD
    large = numbered(0, 1)
    place.write(large, why="merge policy Replace")
    place.work()
    assert len(place.backups()) == 1, "one fits"
    place.append(numbered(500, 529))
    old, new = place.content(), [*numbered(500, 529), *numbered(600, 601)]
    conversion = Conversion([GroupChange(GROUP, new[-1], large)], before=summary(sorted(old)))
    place.write(new, why="merge policy Replace", conversion=conversion)
    for _ in range(PATIENCE + 3):
        place.store_queue.work()
    assert place.store_queue.is_idle
    assert place.content() == set(new)
    assert place.backups() == []
    reports = place.store_queue.backup_reports()
    assert [type(one) for one in reports] == [BackupKept, BackupDropped, BackupMissing]
    assert isinstance(reports[-1], BackupMissing)
    note = msgspec.structs.replace(reports[-1].note, at_ns=0)
    assert note == Replaced("node n1", 0, "merge policy Replace", before=30, after=30, mark="lineage")


def test_backups_on_a_small_disk_never_stop_new_sets(tmp_path: Path) -> None:
    with (
        small_disk(tmp_path, "7m") as disk,
        contextlib.closing(SqliteStore(disk, "node", lambda: NODE_ID)) as store,
    ):
        place = Place(lambda: store)
        kinds = set()
        for number in range(8):
            new = samples(10_000 * number, 10_000 * number + 6_000, PAYLOAD)
            place.write(new, why="because")
            for _ in range(PATIENCE + MAX_BACKUPS + 3):
                place.store_queue.work()
            assert place.store_queue.is_idle, place.store_queue.problem
            assert place.content() == set(new)
            kinds |= {type(one) for one in place.store_queue.backup_reports()}
        assert kinds >= {BackupKept, BackupDropped}, "the disk was too large for this test"
        subprocess.run(["mount", "-o", "remount,size=32m", str(disk)], check=True)
        place.write(numbered(0, 5), why="because")
        place.work()
        assert place.backups()[-1] == set(new)
