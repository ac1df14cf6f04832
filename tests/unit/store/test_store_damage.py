"""Damage of every kind of page, cut files, lost logs: said at start, and healed by the next set."""

from __future__ import annotations

import contextlib
import random
import shutil
import struct
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from engine.core.messages import DAMAGED
from engine.core.name_spaces import Group
from engine.dataset.dataset import DataSet
from engine.dataset.group_set import Summary
from engine.dataset.sample import Sample
from engine.dataset.sample_rows import SampleRows
from engine.runtime.startup import read_store
from engine.runtime.store_queue import Degraded, Recovered, StoreQueue
from engine.store.interface import DamageLog, GroupChange, RememberedFellow, StoreFailed, StoreRefused
from engine.store.read_only import StoreView
from engine.store.sqlite import SqliteStore
from engine.store.store_directory import DATABASE, LEDGER
from engine.store.tables import PAGE_BYTES
from tests.unit.store.making import description, sample, samples

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.core.name_spaces import Group
    from engine.dataset.sample import Sample

SPACE: Final = "space"
NODE_ID: Final = "0123456789abcdef0123456789abcdef"
GROUPS: Final = (description(0, depth=0), description(1, depth=0))
WAL: Final = f"{DATABASE}-wal"
SMALL, LARGE = 100, 40_000
"""Bytes of payload; the large ones have pages of their own."""
Content = dict["Group", set["Sample"]]


def version(number: int) -> list[Sample]:
    """What each group has in the set of that number."""
    return samples(number * 100, number * 100 + 400, SMALL) + samples(9_000 + number, 9_003 + number, LARGE)


LATER = [sample(5_000 + number, payload_bytes=SMALL) for number in range(20)]
"""What is appended one by one, so that it is in the log only when the node is killed."""
TRUTH: Content = {GROUPS[0].group: {*version(2), *LATER}, GROUPS[1].group: {*version(2)}}
EVER = {one for number in range(3) for one in version(number)}.union(LATER)
WRITTEN = samples(700, 900, SMALL)
"""The set that the node gets from a fellow."""


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The files of a node that ended in order, and of one that was killed."""
    places = {how: tmp_path_factory.mktemp(how) / "store" for how in ("ended", "killed")}
    work = tmp_path_factory.mktemp("work")
    store = SqliteStore(work, "n1", lambda: NODE_ID)
    for number in range(3):
        writer = store.begin_set(SPACE)
        for group in GROUPS:
            writer.add(group, version(number))
        store.commit_complete(writer, "mark", keep_previous="note" if number == 2 else None)
    while store.tidy():
        pass
    store.mark(SPACE, {"lineage": "1/a/1"})
    store.remember_fellows(SPACE, [RememberedFellow("f" * 32, "n2", "role")])
    store.close()
    shutil.copytree(work, places["ended"])
    store = SqliteStore(work, "n1", lambda: NODE_ID)
    for one in LATER:
        store.append(SPACE, [GroupChange(GROUPS[0], one)])
    shutil.copytree(work, places["killed"], ignore=shutil.ignore_patterns("*-shm"))
    for one in LATER:
        store.append(SPACE, [GroupChange(GROUPS[0], one)])
    store.close()
    with contextlib.closing(SqliteStore(places["ended"], "n1", lambda: NODE_ID)) as ended:
        for one in LATER:
            ended.append(SPACE, [GroupChange(GROUPS[0], one)])
    return places


def classes(content: bytes | bytearray) -> dict[str, list[int]]:
    """The numbers of the pages of a database by what they are, from 0 (SQLite's file format, 1.5 and 1.6)."""
    found: dict[str, list[int]] = {"first": [0]}
    names = {13: "table leaf", 5: "table interior", 10: "index leaf", 2: "index interior"}
    (trunk,) = struct.unpack_from(">I", content, 32)
    for number in range(1, len(content) // PAGE_BYTES):
        kind = names.get(content[number * PAGE_BYTES], "overflow or free")
        found.setdefault("free trunk" if number == trunk - 1 else kind, []).append(number)
    return found


def flip(content: bytearray, start: int, size: int, chance: random.Random) -> None:
    content[start + chance.randrange(size)] ^= 1 << chance.randrange(8)


def damage_page(content: bytearray, page: int, how: str, chance: random.Random) -> None:
    start = page * PAGE_BYTES
    if how == "a bit":
        flip(content, start, PAGE_BYTES, chance)
    elif how == "a bit of its header":
        flip(content, start, 12, chance)
    elif how == "a sector of zeros":
        sector = start + 512 * chance.randrange(PAGE_BYTES // 512)
        content[sector : sector + 512] = bytes(512)
    elif how == "the content of another":
        other = PAGE_BYTES * chance.randrange(len(content) // PAGE_BYTES)
        content[start : start + PAGE_BYTES] = content[other : other + PAGE_BYTES]
    else:
        content[start : start + PAGE_BYTES] = chance.randbytes(PAGE_BYTES)


def summary(new: Sequence[Sample]) -> Summary:
    data = DataSet()
    for group in GROUPS:
        data.open_group(group.group, 0).extend(SampleRows.coerce(new))
    return data.summary()


def open_damaged(directory: Path) -> SqliteStore:
    return SqliteStore(directory, "n1", lambda: "f" * 32)


def check_start(store: SqliteStore) -> None:
    """What a node finds: nothing that never was, and all that was or damage that is said."""
    found = read_store(store, time.time_ns())
    assert store.report.node_id == NODE_ID
    quality = found.stored[SPACE].quality_ns if SPACE in found.stored else DAMAGED
    data = found.sets[SPACE][0] if SPACE in found.sets else DataSet()
    content = {group: set(group_set.samples()) for group, group_set in data.groups.items()}
    assert set().union(*content.values()) <= EVER, "invented"
    if quality != DAMAGED:
        assert content == TRUTH, "what is lost is said"
    else:
        assert store.report.is_damaged or found.damage
        assert store.report.is_damaged or store.report.findings or found.damage


def check_healed(store: SqliteStore, directory: Path) -> None:
    """The node aligns: its set, and what is written after it, come to the disk and stay."""
    queue = StoreQueue(store)

    def hand_over() -> None:
        groups = [(group, SampleRows.coerce(WRITTEN)) for group in GROUPS]
        queue.write_set(SPACE, groups, summary(WRITTEN), "2/b/1")

    hand_over()
    for one in LATER[:3]:
        queue.append(SPACE, [GroupChange(GROUPS[0], one)])
    written = False
    while not queue.is_idle:
        assert queue.work(), queue.problem
        for result in queue.results():
            if isinstance(result, Recovered) and result.rewrite and result.name_space == SPACE:
                assert not written, "one new file is enough"
                written = True
                hand_over()
                for one in LATER[:3]:
                    queue.append(SPACE, [GroupChange(GROUPS[0], one)])
    while store.tidy():
        pass
    store.close()
    with contextlib.closing(open_damaged(directory)) as again:
        assert not again.report.is_damaged
        log = DamageLog()
        found = {
            group.group: {one for rows in pieces for one in rows} for group, pieces in again.load(SPACE, log)
        }
        assert not log.count, log.first
        first, second = (group.group for group in GROUPS)
        assert found == {first: {*WRITTEN, *LATER[:3]}, second: {*WRITTEN}}


PAGES = ("first", "table leaf", "index leaf", "index interior", "free trunk", "overflow or free")
DAMAGES = ("a bit", "a bit of its header", "a sector of zeros", "the content of another", "noise")


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("page", PAGES)
def test_a_damaged_page_is_said_and_healed(
    stores: dict[str, Path], tmp_path: Path, page: str, how: str
) -> None:
    chance = random.Random(f"{page} {how}")
    for number in range(4):
        directory = tmp_path / str(number)
        shutil.copytree(stores["ended"], directory)
        content = bytearray((directory / DATABASE).read_bytes())
        damage_page(content, chance.choice(classes(content)[page]), how, chance)
        (directory / DATABASE).write_bytes(content)
        try:
            store = open_damaged(directory)
        except StoreRefused:
            assert page == "first", "a newer format, or somebody else's database"
            continue
        check_start(store)
        check_healed(store, directory)


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        (b"version INTEGER PRIMARY KEY AUTOINCREMENT, name_space", b"name_spacf"),
        (b"sample_group INTEGER NOT NULL, source_time_ns", b"sourse_time_ns"),
        (b"tableset_versionset_version", b"set_versiom"),
        (b"PRIMARY KEY (sample_group, source_time_ns, digest)", b"digess)"),
        (b"INTEGER NOT NULL, closed INTEGER NOT NULL", b"NOT NULK"),
        (b"AUTOINCREMENT, name_space TEXT", b"TEX\xd4"),
    ],
    ids=["a column", "a column of the samples", "a table", "a key", "a keyword", "no UTF-8"],
)
def test_a_flipped_bit_in_the_definition_of_a_table_is_healed(
    stores: dict[str, Path], tmp_path: Path, was: bytes, becomes: bytes
) -> None:
    """SQLite takes another name for what somebody meant; the node could not start again (round 72000007)."""
    directory = tmp_path / "definition"
    shutil.copytree(stores["ended"], directory)
    content = bytearray((directory / DATABASE).read_bytes())
    end = content.index(was) + len(was)
    content[end - len(becomes) : end] = becomes
    (directory / DATABASE).write_bytes(content)
    store = open_damaged(directory)
    assert store.report.is_damaged
    check_start(store)
    check_healed(store, directory)


@pytest.mark.parametrize("where", [0.0, 0.01, 0.3, 0.7, 0.99])
def test_a_cut_database_is_said_and_healed(stores: dict[str, Path], tmp_path: Path, where: float) -> None:
    directory = tmp_path / "cut"
    shutil.copytree(stores["ended"], directory)
    content = (directory / DATABASE).read_bytes()
    (directory / DATABASE).write_bytes(content[: int(len(content) * where)])
    store = open_damaged(directory)
    read_store(store, time.time_ns())
    assert store.report.is_damaged or store.sets(SPACE)
    check_start(store)
    check_healed(store, directory)


def lost(log: bytearray) -> None:
    log.clear()


def half(log: bytearray) -> None:
    del log[len(log) // 2 :]


def without_its_last_frame(log: bytearray) -> None:
    del log[-PAGE_BYTES:]


def flipped_header(log: bytearray) -> None:
    log[17] ^= 1  # of the salt


def flipped_frame(log: bytearray) -> None:
    log[32 + 5] ^= 4


def flipped_content(log: bytearray) -> None:
    log[len(log) * 2 // 3] ^= 4


def noise(log: bytearray) -> None:
    log[:] = random.Random(7).randbytes(len(log))


LOGS = [lost, half, without_its_last_frame, flipped_header, flipped_frame, flipped_content, noise]


@pytest.mark.parametrize("spoil", LOGS, ids=lambda spoil: spoil.__name__)
def test_a_log_that_lost_something_is_noticed_although_the_set_is_sound(
    stores: dict[str, Path], tmp_path: Path, spoil: object
) -> None:
    """An older state that is whole: only the ledger knows that acknowledged transactions are gone."""
    directory = tmp_path / "killed"
    shutil.copytree(stores["killed"], directory)
    log = bytearray((directory / WAL).read_bytes())
    assert callable(spoil)
    spoil(log)
    (directory / WAL).write_bytes(log)
    if not log:
        (directory / WAL).unlink()
    store = open_damaged(directory)
    assert store.report.is_damaged
    assert any("transactions that were on disk are missing" in line for line in store.report.findings)
    found = read_store(store, time.time_ns())
    assert found.damage == {}, "every sample of the older state is sound"
    assert found.stored[SPACE].quality_ns == DAMAGED
    check_start(store)
    check_healed(store, directory)


def test_an_index_of_the_log_that_is_noise_costs_nothing(stores: dict[str, Path], tmp_path: Path) -> None:
    directory = tmp_path / "killed"
    shutil.copytree(stores["killed"], directory)
    (directory / f"{DATABASE}-shm").write_bytes(random.Random(3).randbytes(32_768))
    store = open_damaged(directory)
    assert not store.report.is_damaged
    check_start(store)
    check_healed(store, directory)


def test_without_log_and_ledger_the_set_is_older_and_consistent(
    stores: dict[str, Path], tmp_path: Path
) -> None:
    """What is promised then; the alignment with fellows brings the rest. See docs/stores.md."""
    directory = tmp_path / "killed"
    shutil.copytree(stores["killed"], directory)
    (directory / WAL).unlink()
    (directory / LEDGER).unlink()
    with contextlib.closing(open_damaged(directory)) as store:
        found = read_store(store, time.time_ns())
        assert found.damage == {}
        content = {group: set(each.samples()) for group, each in found.sets[SPACE][0].groups.items()}
        assert content == {group.group: {*version(2)} for group in GROUPS}


def test_a_node_keeps_its_name_when_its_entry_is_damaged(stores: dict[str, Path], tmp_path: Path) -> None:
    directory = tmp_path / "ended"
    shutil.copytree(stores["ended"], directory)
    content = (directory / DATABASE).read_bytes()
    assert content.count(NODE_ID.encode()) == 1
    (directory / DATABASE).write_bytes(content.replace(NODE_ID.encode(), b"1" + NODE_ID.encode()[1:]))
    with contextlib.closing(open_damaged(directory)) as store:
        assert store.report.node_id == NODE_ID
        assert any("the ledger" in finding for finding in store.report.findings)
        assert not store.report.is_damaged
    with contextlib.closing(open_damaged(directory)) as store:
        assert store.report.findings == ()


def test_a_file_whose_header_names_another_format_is_put_aside(
    stores: dict[str, Path], tmp_path: Path
) -> None:
    """SQLite has no error code for it."""
    shutil.copytree(stores["ended"], tmp_path / "store")
    content = bytearray((tmp_path / "store" / DATABASE).read_bytes())
    content[47] = 9  # the schema format number
    (tmp_path / "store" / DATABASE).write_bytes(content)
    store = open_damaged(tmp_path / "store")
    assert "put aside" in " ".join(store.report.findings)
    store.close()


def broken_later(stores: dict[str, Path], directory: Path) -> SqliteStore:
    """A store that opens, and of which a page turns out to be damaged when it is written to."""
    shutil.copytree(stores["ended"], directory)
    content = bytearray((directory / DATABASE).read_bytes())
    for page in classes(content)["index leaf"][4:]:
        content[page * PAGE_BYTES : page * PAGE_BYTES + 64] = bytes(64)
    (directory / DATABASE).write_bytes(content)
    return open_damaged(directory)


def test_a_file_that_fails_while_it_is_written_to_is_put_aside_once(
    stores: dict[str, Path], tmp_path: Path
) -> None:
    directory = tmp_path / "later"
    store = broken_later(stores, directory)
    queue = StoreQueue(store)
    queue.append(SPACE, [GroupChange(GROUPS[0], one) for one in samples(0, 3_000, SMALL)])
    assert queue.work()
    degraded, *recovered = queue.results()
    assert isinstance(degraded, Degraded)
    assert "put aside as store.sqlite.damaged-1" in degraded.cause
    assert recovered == [Recovered(SPACE, rewrite=True)]
    assert queue.is_idle
    assert queue.is_overflowed, "nothing is acknowledged before the set is written anew"
    assert (queue.handed_over, queue.queued_changes) == (queue.carried_out, 0)
    queue.append(SPACE, [GroupChange(GROUPS[0], sample(1))])
    assert queue.is_idle, "it comes with the set"
    assert store.marks(SPACE)["lineage"] == "1/a/1"
    assert store.complete_set(SPACE) is None
    with pytest.raises(StoreFailed, match="damaged again"):
        store.replace_damaged()
    check_healed(store, directory)


def test_changes_that_a_damaged_file_did_not_take_do_not_hold_writers_back_for_ever(
    stores: dict[str, Path], tmp_path: Path
) -> None:
    """They wait no longer once the whole set is written, which has them."""
    directory = tmp_path / "later"
    store = broken_later(stores, directory)
    queue = StoreQueue(store)
    for name_space, payload_bytes in (SPACE, SMALL), ("other", LARGE):
        changes = [GroupChange(GROUPS[0], one) for one in samples(0, 3_000, payload_bytes)]
        queue.append(name_space, changes)
    assert queue.queued_bytes == 3_000 * (SMALL + LARGE)
    while not queue.is_overflowed:
        assert queue.work()
    assert (queue.queued_changes, queue.queued_bytes) == (0, 0)
    check_healed(store, directory)


def test_a_node_that_dies_before_its_set_is_written_anew_knows_that_it_is_missing(
    stores: dict[str, Path], tmp_path: Path
) -> None:
    directory = tmp_path / "later"
    store = broken_later(stores, directory)
    store.replace_damaged()
    copy = tmp_path / "killed"
    shutil.copytree(directory, copy, ignore=shutil.ignore_patterns("*-shm"))
    store.close()
    for _ in range(2):
        with contextlib.closing(open_damaged(copy)) as again:
            assert again.report.is_damaged, "an empty store must not win"
            assert any("was lost with store.sqlite.damaged-1" in line for line in again.report.findings)
            assert again.report.node_id == NODE_ID
            assert again.report.fellows == {SPACE: (RememberedFellow("f" * 32, "n2", "role"),)}
    store = open_damaged(copy)
    check_healed(store, copy)


@pytest.mark.parametrize("how", ["zeros", "noise", "another page size"])
@pytest.mark.parametrize("state", ["ended", "killed"])
def test_whoever_looks_reads_past_a_damaged_header(
    stores: dict[str, Path], tmp_path: Path, state: str, how: str
) -> None:
    directory = tmp_path / "looked"
    shutil.copytree(stores[state], directory)
    with StoreView(directory) as view:
        whole = {info.version: read_view(view, info.version) for info in view.sets(SPACE)}
    content = bytearray((directory / DATABASE).read_bytes())
    content[:100] = {
        "zeros": bytes(100),
        "noise": random.Random(how).randbytes(100),
        "another page size": content[:16] + b"\x10\x00" + content[18:100],
    }[how]
    (directory / DATABASE).write_bytes(content)
    with StoreView(directory) as view:
        assert {info.version: read_view(view, info.version) for info in view.sets(SPACE)} == whole
        is_told = any("its header is damaged" in finding for finding in view.findings)
        assert is_told or 1 in pages_in_log(directory), "that in the log takes precedence"
    assert (directory / DATABASE).read_bytes() == content, "it is only looked at"


def pages_in_log(directory: Path) -> list[int]:
    """The numbers of the pages in the log of a store, from 1 (SQLite's file format, 4.1)."""
    log = directory / WAL
    content = log.read_bytes() if log.exists() else b""
    frames = range(32, len(content), 24 + PAGE_BYTES)
    return [int.from_bytes(content[at : at + 4]) for at in frames]


def read_view(view: StoreView, version: int) -> dict[Group, set[Sample]]:
    log = DamageLog()
    found = {description.group: set(samples) for description, samples in view.load(version, log)}
    assert log.count == 0, log.first
    return found


def test_a_store_that_is_back_in_its_place_has_no_problem_any_more(tmp_path: Path) -> None:
    """Nothing is written meanwhile, so that no job finds it out."""
    place, moved = tmp_path / "store", tmp_path / "moved"
    place.mkdir()
    with contextlib.closing(open_damaged(place)) as store:
        queue = StoreQueue(store)
        queue.append(SPACE, [])
        place.rename(moved)
        place.write_bytes(b"")
        for _ in range(2):
            queue.check()
            assert queue.problem
        place.unlink()
        moved.rename(place)
        queue.check()
        assert not queue.problem
        degraded, recovered = queue.results()
        assert isinstance(degraded, Degraded)
        assert isinstance(recovered, Recovered)
        assert not recovered.rewrite
