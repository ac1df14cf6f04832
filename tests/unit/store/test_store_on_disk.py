"""The file itself: who may open it, which formats, what damage is noticed, and what a view leaves behind."""

from __future__ import annotations

import contextlib
import os
import pathlib
import sqlite3
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from engine.dataset.sample import DATA, make_sample
from engine.node.disk import open_store
from engine.runtime.startup import read_store
from engine.store import tables
from engine.store.interface import (
    DamageLog,
    GroupChange,
    LockedStore,
    RememberedFellow,
    Soundness,
    StoreError,
    StoreRefused,
)
from engine.store.memory import Medium, MemoryStore
from engine.store.read_only import StoreView
from engine.store.sqlite import SqliteStore
from engine.store.store_directory import DATABASE, LEDGER
from tests.unit.store.making import BASE_NS, description, sample, samples

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from engine.dataset.sample import Sample

NODE_ID = "00112233445566778899aabbccddeeff"
COUNT = 3000


def open_disk(directory: Path, node: str = "node one") -> SqliteStore:
    return SqliteStore(directory, node, lambda: NODE_ID)


def fill(store: SqliteStore, count: int = COUNT, name: str = "space") -> None:
    writer = store.begin_set(name)
    for number in range(2):
        writer.add(description(number), samples(0, count, payload_bytes=100))
    store.commit_complete(writer, "mark")


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    """A closed store with two groups of samples."""
    with contextlib.closing(open_disk(tmp_path)) as store:
        fill(store)
        store.mark("space", {"elements": "part*.Topic"})
        store.remember_fellows("space", [RememberedFellow("f" * 32, "other", "role")])
    return tmp_path


def read(store: SqliteStore, name: str = "space") -> tuple[list[Sample], DamageLog]:
    damage = DamageLog()
    found = [one for _, pieces in store.load(name, damage) for rows in pieces for one in rows]
    return found, damage


@contextlib.contextmanager
def editing(directory: Path) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(directory / DATABASE)) as database:
        yield database
        database.commit()


def test_the_second_node_is_told_who_has_the_store(tmp_path: Path) -> None:
    with contextlib.closing(open_disk(tmp_path, "node one")):
        with pytest.raises(
            LockedStore, match=rf"node 'node one' \(process {os.getpid()}\) since 20"
        ) as caught:
            open_disk(tmp_path, "node two")
        assert caught.value.pid == os.getpid()
        assert caught.value.node == "node one"
        assert caught.value.since_ns > BASE_NS
    open_disk(tmp_path, "node two").close()


@pytest.mark.parametrize("note", [b"", b"[]", b'{"pid": Infinity}', b"[" * 4096], ids=repr)
def test_a_lock_whose_note_says_nothing_is_still_a_lock(tmp_path: Path, note: bytes) -> None:
    with contextlib.closing(open_disk(tmp_path, "node one")):
        (tmp_path / "store.lock").write_bytes(note)
        with pytest.raises(LockedStore, match="another process, which left no note"):
            open_disk(tmp_path, "node two")


def test_a_store_whose_damage_sqlite_cannot_put_into_words_is_put_aside(filled: Path) -> None:
    with editing(filled) as database:
        database.execute("PRAGMA writable_schema = ON")
        database.execute(
            "UPDATE sqlite_schema SET name = CAST(X'ac61' AS TEXT), sql = 'x' WHERE name = 'mark'"
        )
    with contextlib.closing(open_disk(filled)) as store:
        assert "was put aside" in store.report.findings[0]


def test_the_lock_of_a_dead_process_is_no_obstacle(tmp_path: Path) -> None:
    code = (
        "import os, sys, pathlib; from engine.node.disk import open_store;"
        "open_store(pathlib.Path(sys.argv[1]), 'dead node'); os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert b"dead node" in (tmp_path / "store.lock").read_bytes()
    with contextlib.closing(open_store(tmp_path, "heir")) as store:
        assert not store.report.clean_shutdown
        assert store.report.incarnation == 2


def test_identity_and_memory_survive(filled: Path) -> None:
    with contextlib.closing(SqliteStore(filled, "again", lambda: "another")) as store:
        assert store.report.node_id == NODE_ID
        assert store.report.incarnation == 2
        assert store.report.findings == ()
        assert store.report.fellows == {"space": (RememberedFellow("f" * 32, "other", "role"),)}
        assert store.marks("space") == {"elements": "part*.Topic"}
        info = store.complete_set("space")
        assert info is not None
        assert info.soundness is Soundness.UNVERIFIED
        assert info.quality_ns is None
        found, damage = read(store)
        assert len(found) == 2 * COUNT
        assert not damage.count
        verified = store.complete_set("space")
        assert verified is not None
        assert verified.quality_ns == sample(COUNT - 1).source_time_ns
        assert [group.description for group in info.groups] == [description(0), description(1)]


def test_reading_half_of_a_set_proves_nothing(filled: Path) -> None:
    with contextlib.closing(open_disk(filled)) as store:
        for _, pieces in store.load("space", DamageLog()):
            assert sum(map(len, pieces)) == COUNT
            break
        info = store.complete_set("space")
        assert info is not None
        assert info.soundness is Soundness.UNVERIFIED


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        (f"PRAGMA user_version = {tables.FORMAT_VERSION + 1}", "written by a newer ospltool"),
        ("PRAGMA application_id = 7", "not a durability store"),
    ],
)
def test_a_store_that_is_not_for_us_is_refused_and_left_alone(
    filled: Path, statement: str, message: str
) -> None:
    with editing(filled) as database:
        database.execute(statement)
    before = (filled / DATABASE).read_bytes()
    for _ in range(2):
        with pytest.raises(StoreRefused, match=message):
            open_disk(filled)
    with pytest.raises(StoreRefused, match=message):
        StoreView(filled)
    assert (filled / DATABASE).read_bytes() == before


DAMAGE_OF_SAMPLES = [
    ("UPDATE sample SET payload = zeroblob(length(payload)) WHERE sequence = 5", 2, "does not match"),
    ("UPDATE sample SET payload = 'text' WHERE sequence = 5", 2, "does not match"),
    ("UPDATE sample SET sequence = 'x' WHERE sequence = 5", 2, "does not match"),
    ("UPDATE sample SET writer = 7 WHERE sequence = 5", 2, "does not match"),
    ("UPDATE sample SET status = status | 1 WHERE sequence = 5", 2, "does not match"),
    (
        "UPDATE sample SET source_time_ns = source_time_ns + 4611686018427387904 WHERE sequence = 5",
        2,
        "match",
    ),
    ("UPDATE sample SET digest = zeroblob(16) WHERE sequence = 5", 2, "does not match"),
    ("DELETE FROM sample WHERE sequence = 5", 2, "3000 samples were stored, 2999 are there"),
]


@pytest.mark.parametrize("kind", ["memory", "disk"])
@pytest.mark.parametrize(
    ("ages_s", "expected_s"),
    [
        ((), 0),
        ((-60, -5), -5),
        ((-60, 9), 9),
        ((-60, 11), -60),
        ((-60, 365 * 86_400), -60),
        ((60,), None),
    ],
)
def test_a_sample_of_the_future_does_not_raise_the_quality(
    tmp_path: Path, kind: str, ages_s: tuple[int, ...], expected_s: int | None
) -> None:
    new = [make_sample(BASE_NS + age * 10**9, bytes(16), DATA, b"key", bytes(4)) for age in ages_s]
    expected_ns = 1 if expected_s is None else (BASE_NS + expected_s * 10**9) * bool(ages_s)
    store = MemoryStore(Medium(NODE_ID)) if kind == "memory" else open_disk(tmp_path)
    with contextlib.closing(store):
        writer = store.begin_set("space")
        writer.add(description(depth=10), new)
        store.commit_complete(writer, "mark")
        assert read_store(store, BASE_NS).stored["space"].quality_ns == expected_ns


@pytest.mark.parametrize(("statement", "missing", "reason"), DAMAGE_OF_SAMPLES)
def test_a_damaged_sample_is_reported_and_never_returned(
    filled: Path, statement: str, missing: int, reason: str
) -> None:
    with editing(filled) as database:
        database.execute(statement)
    with contextlib.closing(open_disk(filled)) as store:
        found, damage = read(store)
        assert len(found) == 2 * COUNT - missing
        assert sample(5, payload_bytes=100) not in found
        assert damage.count >= missing
        assert all(reason in str(one) for one in damage.first)
        info = store.complete_set("space")
        assert info is not None
        assert info.soundness is Soundness.DAMAGED
        assert info.quality_ns is None
        assert store.newest_until("space", 1 << 62) is None


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE sample_group SET newest_ns = newest_ns * 2 WHERE partition = 'part0'",
        "UPDATE sample_group SET sample_count = 0 WHERE partition = 'part0'",
        "UPDATE sample_group SET partition = 'Part0' WHERE partition = 'part0'",
        "UPDATE sample_group SET qos = replace(qos, '1', '2') WHERE partition = 'part0'",
    ],
)
def test_a_damaged_group_entry_takes_its_samples_with_it(filled: Path, statement: str) -> None:
    with editing(filled) as database:
        assert database.execute(statement).rowcount == 1
    with contextlib.closing(open_disk(filled)) as store:
        assert any("entry is damaged" in finding for finding in store.report.findings)
        found, damage = read(store)
        assert len(found) == COUNT
        assert damage.count == 1
        info = store.complete_set("space")
        assert info is not None
        assert info.quality_ns is None


def test_a_damaged_type_is_found_and_made_good_by_the_next_set(filled: Path) -> None:
    with editing(filled) as database:
        database.execute("UPDATE type_description SET mapping = x'00'")
    with contextlib.closing(open_disk(filled)) as store:
        found, damage = read(store)
        assert not found
        assert damage.count == 2
        fill(store)
        while store.tidy():
            pass
    with contextlib.closing(open_disk(filled)) as store:
        found, damage = read(store)
        assert len(found) == 2 * COUNT
        assert not damage.count


def test_a_damaged_version_entry_never_counts_as_complete(filled: Path) -> None:
    with editing(filled) as database:
        database.execute("UPDATE set_version SET name_space = 'other'")
    with contextlib.closing(open_disk(filled)) as store:
        assert store.complete_set("other") is None
        assert store.complete_set("space") is None
        assert store.report.is_damaged


def test_a_damaged_remembrance_is_forgotten_and_said(filled: Path) -> None:
    with editing(filled) as database:
        database.execute("UPDATE fellow SET role = 'rolf'")
        database.execute("UPDATE mark SET value = 'rolf'")
    with contextlib.closing(open_disk(filled)) as store:
        assert store.report.fellows == {}
        assert store.marks("space") == {}
        assert any("remembered" in finding for finding in store.report.findings)


def sample_page(path: Path, number: int) -> int:
    """The offset of a page in the middle of the samples: one that has the payload of a given sample."""
    content = path.read_bytes()
    place = content.index(sample(number, payload_bytes=100).payload)
    return place - place % tables.PAGE_BYTES


def test_a_page_that_can_not_be_read_costs_no_more_than_itself(filled: Path) -> None:
    offset = sample_page(filled / DATABASE, COUNT // 2)
    with (filled / DATABASE).open("r+b") as file:
        file.seek(offset)
        file.write(bytes(64))  # the header of the page
    with contextlib.closing(open_disk(filled)) as store:
        found, damage = read(store)
        lost = 2 * COUNT - len(found)
        assert 0 < lost <= 2 * tables.PAGE_BYTES // 150
        assert any("cannot be read" in one.reason for one in damage.first)
        assert any("samples were stored" in one.reason for one in damage.first)


def test_a_file_that_is_no_database_any_more_is_put_aside_and_the_node_keeps_its_id(filled: Path) -> None:
    with (filled / DATABASE).open("r+b") as file:
        file.write(b"garbage" * 100)
    with contextlib.closing(SqliteStore(filled, "node", lambda: "f" * 32)) as store:
        assert store.report.node_id == NODE_ID
        assert store.report.incarnation == 2
        assert store.report.is_damaged
        assert "put aside as store.sqlite.damaged-1" in store.report.findings[0]
        assert store.complete_set("space") is None
    assert (filled / f"{DATABASE}.damaged-1").read_bytes().startswith(b"garbage")


def test_a_log_that_lost_its_tail_is_noticed(tmp_path: Path) -> None:
    store = open_disk(tmp_path / "one")
    fill(store, 10)
    for number in range(100, 120):
        store.append("space", [GroupChange(description(), sample(number), ())])
    copy = tmp_path / "two"
    copy.mkdir()
    log = (tmp_path / "one" / f"{DATABASE}-wal").read_bytes()
    flipped = bytearray(log)
    flipped[len(log) * 3 // 4] ^= 4
    (copy / DATABASE).write_bytes((tmp_path / "one" / DATABASE).read_bytes())
    (copy / LEDGER).write_bytes((tmp_path / "one" / LEDGER).read_bytes())
    (copy / f"{DATABASE}-wal").write_bytes(flipped)
    store.close()
    with contextlib.closing(open_disk(copy)) as damaged:
        assert any("transactions that were on disk are missing" in line for line in damaged.report.findings)
        assert damaged.report.is_damaged
        found, damage = read(damaged)
        assert not damage.count, "what is there is a whole older state"
        assert 20 <= len(found) < 40


def log_bytes(directory: Path) -> int:
    return (directory / f"{DATABASE}-wal").stat().st_size


def test_the_log_of_a_small_store_stays_small(tmp_path: Path) -> None:
    """However often the same samples are overwritten: it had grown to 64 MiB."""
    with contextlib.closing(open_disk(tmp_path)) as store:
        fill(store, 10)
        for number in range(600):
            come, gone = (sample(each, payload_bytes=100) for each in (number + 10, number))
            store.append("space", [GroupChange(description(), come, (gone,))])
            assert log_bytes(tmp_path) <= 8_000_000
        found = store.complete_set("space")
        assert found is not None
        assert found.stored.count == 20
        assert (tmp_path / DATABASE).stat().st_size < 1_000_000


def test_the_log_of_a_large_store_is_copied_seldom() -> None:
    limits = [tables.checkpoint_pages(pages) for pages in (0, 250, 251, 2_000, 4_000, 10**6)]
    assert limits == [250, 250, 1_000, 4_000, 4_000, 4_000]


def test_a_damaged_ledger_is_no_obstacle(filled: Path) -> None:
    (filled / LEDGER).write_bytes(b"?" * 48)
    with contextlib.closing(open_disk(filled)) as store:
        assert store.report.node_id == NODE_ID
        assert not store.report.is_damaged


def files_of(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_a_view_of_a_closed_store_changes_nothing(filled: Path) -> None:
    before = files_of(filled)
    with StoreView(filled) as view:
        assert view.node() == (NODE_ID, 1, True)
        assert view.holder() is None
        assert view.sets()[0].stored.count == 2 * COUNT
        assert view.marks("space") == {"elements": "part*.Topic"}
    assert files_of(filled) == before


def test_a_view_of_a_killed_node_s_store_sees_the_log_and_changes_nothing(tmp_path: Path) -> None:
    store = open_disk(tmp_path / "one")
    fill(store, 10)
    copy = tmp_path / "killed"
    copy.mkdir()
    for name, content in files_of(tmp_path / "one").items():
        if name.endswith(("sqlite", "wal", "ledger")):
            (copy / name).write_bytes(content)
    store.close()
    before = files_of(copy)
    with StoreView(copy) as view:
        damage = DamageLog()
        (info,) = view.sets("space")
        assert sum(len(list(rows)) for _, rows in view.load(info.version, damage)) == 20
        assert view.node() == (NODE_ID, 1, False)
        assert not damage.count
    assert files_of(copy) == before


def test_a_view_of_a_running_node_s_store_is_a_snapshot(filled: Path) -> None:
    with contextlib.closing(open_disk(filled)) as store, StoreView(filled) as view:
        store.append("space", [GroupChange(description(), sample(COUNT + 1), ())])
        (info,) = view.sets("space")
        damage = DamageLog()
        assert sum(len(list(rows)) for _, rows in view.load(info.version, damage)) == 2 * COUNT
        assert not damage.count
        with StoreView(filled) as later:
            assert later.sets()[0].stored.count == 2 * COUNT + 1
            assert (later.holder() or ())[:2] == (os.getpid(), "node one")


def test_appending_while_a_set_is_read_is_not_taken_for_damage(filled: Path) -> None:
    with contextlib.closing(open_disk(filled)) as store:
        damage = DamageLog()
        for number, (_, pieces) in enumerate(store.load("space", damage)):
            first = next(pieces)
            store.append("space", [GroupChange(description(1), sample(COUNT + number), [sample(0)])])
            assert len(first) + sum(map(len, pieces)) == COUNT
        assert damage.count == 0
        info = store.complete_set("space")
        assert info is not None
        assert info.quality_ns == sample(COUNT + 1).source_time_ns


def test_a_missing_store_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(StoreRefused, match="there is no store"):
        StoreView(tmp_path)
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="file"):
        open_disk(tmp_path / "file")


def test_a_sequence_number_beyond_63_bits_is_kept(tmp_path: Path) -> None:
    large = [
        make_sample(BASE_NS + number, bytes(16), DATA, b"key", b"payload", sequence=(1 << 64) - number)
        for number in range(1, 4)
    ]
    with contextlib.closing(open_disk(tmp_path)) as store:
        fill(store, 1)
        store.append("space", [GroupChange(description(), one, ()) for one in large])
        found, damage = read(store)
        assert not damage.count
        assert set(large) < set(found)


def test_a_large_sample_that_is_on_disk_is_not_in_the_store_s_memory_too(tmp_path: Path) -> None:
    """A statement of SQLite would keep its last values."""
    store, size = open_disk(tmp_path), 64_000_000
    fill(store, 0)
    before = resident_bytes()
    store.append("space", [GroupChange(description(), sample(1, payload_bytes=size), [])])
    grown = resident_bytes() - before
    store.close()
    assert grown < size, "its payload, which is let go, or its copy is still there"


def resident_bytes() -> int:
    """The memory of this process."""
    pages = int(pathlib.Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_dropped_sets_give_their_space_back_in_bounded_pieces(tmp_path: Path) -> None:
    with contextlib.closing(open_disk(tmp_path)) as store:
        fill(store, 20_000)
        store.commit_complete(store.begin_set("space"))
        pieces = 0
        while store.tidy():
            pieces += 1
        assert pieces >= 40_000 // 4_000 - 1
        with StoreView(tmp_path) as view:
            assert len(view.sets()) == 1
        size = (tmp_path / DATABASE).stat().st_size
        fill(store, 20_000)
        assert (tmp_path / DATABASE).stat().st_size < size * 1.2
