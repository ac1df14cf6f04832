"""Stores of every layout, read: the same writes give the same samples."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import shutil
import sqlite3
import stat
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("lxml", reason="stores of OpenSplice need the extra `sql`")
pytest.importorskip("cyclonedds", reason="fields of our stores need the extra `dds`")

from engine.dataset.sample import DATA, DISPOSE, UNREGISTER, Sample
from engine.store.interface import DamageLog
from ospltool.stores import opensplice_stores
from ospltool.stores.describe import SampleSelection, count_sets, fields_of, instances, verify_problems
from ospltool.stores.model import SetKind, StoreFormat, StoreReader, StoreUnreadable
from ospltool.stores.opening import open_reader
from ospltool.stores.ours import OurStore
from tests.stores.making import (
    BASE_NS,
    LAYOUTS,
    Compression,
    Held,
    Message,
    Version,
    write_kv,
    write_kvmt,
    write_xml,
)
from tests.stores.own_stores import described, write_ours

SAMPLES = Path(__file__).parents[2] / "samples" / "stores"
MESSAGES = (
    Message(1),
    Message(2, text="", flag=255, value=-0.0, sequence=2**32 - 1),
    Message(-3, text="a<b>&c 'é' \x7f", value=1e-300, time_ns=BASE_NS + 1),
    Message(4, status=DISPOSE, time_ns=BASE_NS + 2),
    Message(5, status=DATA | DISPOSE, time_ns=BASE_NS + 3),
    Message(6, status=UNREGISTER, time_ns=BASE_NS + 4),
)


def read(reader: StoreReader, number: int) -> tuple[list[Sample], DamageLog]:
    damage = DamageLog()
    return [sample for _, samples in reader.read(number, damage) for sample in samples], damage


@pytest.fixture
def opened(request: pytest.FixtureRequest) -> Callable[[Path], StoreReader]:
    def opening(path: Path) -> StoreReader:
        reader = open_reader(path)
        request.addfinalizer(reader.close)
        return reader

    return opening


def check_samples(reader: StoreReader, expected: tuple[Message, ...] = MESSAGES) -> None:
    """The current set has exactly these, with their fields."""
    (current,) = reader.facts.current()
    damage = DamageLog()
    found = {
        sample: fields_of(reader, group, sample)[0]
        for group, samples in reader.read(current.number, damage)
        for sample in samples
    }
    assert not damage.count, damage.first
    assert set(found) == {message.sample() for message in expected}
    for message in expected:
        key = {"id": message.id}
        whole = {"flag": message.flag, "id": message.id, "value": message.value, "text": message.text}
        assert found[message.sample()] == (whole if message.status & DATA else key)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_same_writes_give_the_samples_that_a_capture_of_them_gives(
    layout: str, tmp_path: Path, opened: Callable[[Path], StoreReader]
) -> None:
    check_samples(opened(LAYOUTS[layout](tmp_path, Version((Held(MESSAGES),)))))


@pytest.mark.parametrize("compression", Compression)
@pytest.mark.parametrize("text", ["x", "y" * 500, "abcd" * 40, "é" * 77])
def test_a_compressed_store_reads_like_any_other(
    compression: Compression, text: str, tmp_path: Path, opened: Callable[[Path], StoreReader]
) -> None:
    messages = (Message(1, text=text), Message(2))
    reader = opened(write_kv(tmp_path, Version((Held(messages),)), compression=compression))
    check_samples(reader, messages)
    assert dict(reader.facts.detail)["compression"] == compression.name.lower()


@pytest.mark.parametrize("padding", [0, 0x0D, 0xFF])
def test_padding_and_allocation_times_are_no_part_of_a_sample(
    padding: int, tmp_path: Path, opened: Callable[[Path], StoreReader]
) -> None:
    changed = tuple(
        dataclasses.replace(message, padding=padding, allocated_ns=99_000_000_000) for message in MESSAGES
    )
    check_samples(opened(write_kv(tmp_path, Version((Held(changed),)))))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_version_of_before_is_the_back_up_and_both_can_be_seen(
    layout: str, tmp_path: Path, opened: Callable[[Path], StoreReader]
) -> None:
    before, now = Version((Held(MESSAGES[:2]),)), Version((Held(MESSAGES),), version=1)
    reader = opened(LAYOUTS[layout](tmp_path, before, now))
    assert [one.kind for one in reader.facts.sets] == [SetKind.BACKUP, SetKind.CURRENT]
    assert [len(read(reader, one.number)[0]) for one in reader.facts.sets] == [2, 6]
    check_samples(reader)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_set_that_was_still_being_aligned_is_not_complete(
    layout: str, tmp_path: Path, opened: Callable[[Path], StoreReader]
) -> None:
    reader = opened(LAYOUTS[layout](tmp_path, Version((Held(MESSAGES),), complete=False)))
    (one,) = reader.facts.sets
    assert (one.kind, one.complete) == (SetKind.FILLING, False)
    (counted,) = count_sets(reader)
    assert any("not complete" in problem for problem in verify_problems(reader, counted))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_a_topic_says_of_its_groups_is_read(
    layout: str, tmp_path: Path, opened: Callable[[Path], StoreReader]
) -> None:
    held = Held(MESSAGES, partition="a.b", topic="T", depth=0, cleanup_s=20)
    if layout == "xml":
        held = dataclasses.replace(held, partition="ab", topic="T.U")
    reader = opened(LAYOUTS[layout](tmp_path, Version((held,), name_space="stock")))
    (one,) = reader.facts.sets
    (group,) = one.groups
    assert one.name_space == "stock"
    assert group.name == (held.partition, held.topic, "depot::Item")
    assert (group.history_depth, group.cleanup_delay_ns, group.key_list) == (0, 20_000_000_000, "id")
    if layout != "xml":
        assert one.quality_ns == BASE_NS


def test_instances_are_listed_by_key_and_what_is_beyond_the_limit_is_counted(
    tmp_path: Path, opened: Callable[[Path], StoreReader]
) -> None:
    twice = (*MESSAGES, Message(1, text="later", time_ns=BASE_NS + 9))
    reader = opened(write_xml(tmp_path, Version((Held(twice),))))
    found, total = instances(reader, SampleSelection(group="depot.I*"), 2, DamageLog())
    assert total == 6
    assert [(one.key_fields, len(one.samples)) for one in found] == [({"id": 1}, 2), ({"id": 2}, 1)]
    assert instances(reader, SampleSelection(group="other.*"), 2, DamageLog()) == ([], 0)


# Damage.


def check_damage(reader: StoreReader, kept: int, *places: str) -> None:
    """What is damaged is named with its place, and the rest is read."""
    (current,) = reader.facts.current()
    samples, damage = read(reader, current.number)
    assert len(samples) == kept
    assert set(samples) < {message.sample() for message in MESSAGES}
    assert damage.count == len(places)
    for one, place in zip(damage.first, places, strict=True):
        assert place in str(one)


def test_a_damaged_message_is_named_and_the_rest_is_read(
    tmp_path: Path, opened: Callable[[Path], StoreReader]
) -> None:
    reader = opened(write_kv(tmp_path, Version((Held(MESSAGES),)), damaged=2))
    check_damage(reader, 4, "message 0:0:0", "message 0:1:0")


@pytest.mark.parametrize("most", [0, opensplice_stores.MOST_IN_MEMORY], ids=["copied", "in memory"])
def test_an_xml_store_that_its_service_writes_again_is_read_as_it_was(
    tmp_path: Path, opened: Callable[[Path], StoreReader], monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """A mapped file that becomes shorter kills who reads it (SIGBUS)."""
    monkeypatch.setattr(opensplice_stores, "MOST_IN_MEMORY", most)
    reader = opened(write_xml(tmp_path, Version((Held(MESSAGES),))))
    damage = DamageLog()
    found = []
    for _, samples in reader.read(reader.facts.current()[0].number, damage):
        for one in samples:
            os.truncate(tmp_path / "depot" / "Items.xml", 0)
            found.append(one)
    assert (len(found), damage.count) == (len(MESSAGES), 0)


@pytest.mark.parametrize(
    ("before", "after", "kept", "places"),
    [
        (b"<seconds>1795000000</seconds>", b"<seconds>17950000x0</seconds>", 0, [1, 2, 3, 4, 5, 6]),
        (b"<text>a</text></userData></object>", b"<text>a</text></us", 4, [1, 5]),
        (b"<nodeState>4</nodeState>", b"<nodeState>2</nodeState>", 5, [4]),
        (b"<id>-3</id>", b"<id>minus</id>", 5, [3]),
        (b"<id>-3</id>", b"", 5, [3]),
        (b"\n</TOPIC>", b"", 6, ["the end of the file is missing"]),
        (b'version="6"', b'version="7"', 0, ["message version 7"]),
    ],
    ids=["time", "cut off", "state", "field", "no field", "end", "version"],
)
def test_a_damaged_record_of_an_xml_store_is_named_by_its_byte(
    before: bytes, after: bytes, kept: int, places: list[int | str], tmp_path: Path
) -> None:
    write_xml(tmp_path, Version((Held(MESSAGES),)))
    file = tmp_path / "depot" / "Items.xml"
    assert before in file.read_bytes()
    file.write_bytes(file.read_bytes().replace(before, after))
    reader = open_reader(tmp_path)
    samples, damage = read(reader, reader.facts.current()[0].number)
    assert len(samples) == kept
    for place, one in zip(places, damage.first, strict=True):
        assert (f"record {place} at byte" if isinstance(place, int) else place) in str(one)
    assert set(samples) <= {message.sample() for message in MESSAGES}


def test_a_damaged_row_of_the_readable_store_is_named(
    tmp_path: Path, opened: Callable[[Path], StoreReader]
) -> None:
    write_kvmt(tmp_path, Version((Held(MESSAGES),)))
    with sqlite3.connect(tmp_path / "kvmt.sqlite") as connection:
        connection.execute("UPDATE messages SET data = substr(data, 1, 300) WHERE instance_id = 3")
    connection.close()
    check_damage(opened(tmp_path), 5, "message 0:3:0")


@pytest.mark.parametrize("layout", ["kv", "kvmt"])
def test_of_a_torn_database_as_much_is_read_as_there_is(layout: str, tmp_path: Path) -> None:
    many = tuple(Message(number, text="t" * 100) for number in range(2_000))
    path = LAYOUTS[layout](tmp_path, Version((Held(many),))) / f"{layout}.sqlite"
    data = bytearray(path.read_bytes())
    middle = len(data) * 2 // 3 // 4096 * 4096
    data[middle : middle + 4096] = b"\xa5" * 4096
    path.write_bytes(data)
    reader = open_reader(tmp_path)
    samples, damage = read(reader, reader.facts.current()[0].number)
    reader.close()
    assert 1_000 < len(samples) < 2_000
    assert {many[0].sample(), many[-1].sample()} <= set(samples), "both sides of the damage are read"
    assert len(set(samples)) == len(samples)
    assert damage.count


def test_a_group_whose_topic_is_gone_is_damage_and_the_other_groups_are_read(
    tmp_path: Path, opened: Callable[[Path], StoreReader]
) -> None:
    write_xml(tmp_path, Version((Held(MESSAGES), Held(MESSAGES[:1], topic="Lost"))))
    (tmp_path / "depot" / "Lost_meta.xml").unlink()
    check_damage_of_one_group = read(opened(tmp_path), 2)
    assert len(check_damage_of_one_group[0]) == 6
    assert "Lost" in str(check_damage_of_one_group[1].first[0])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no such table"),
        (b"not a database at all, but long enough to be looked at" * 20, "not a database"),
    ],
    ids=["empty", "text"],
)
def test_what_is_no_store_is_refused_with_its_name(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "kv.sqlite").write_bytes(content)
    with pytest.raises(StoreUnreadable, match=message) as caught:
        open_reader(tmp_path)
    assert "kv.sqlite" in str(caught.value)


@pytest.mark.parametrize("entry", [(1, 3), (0, 1), (0, 2), (0, 9)])
def test_an_encoding_that_is_not_known_is_refused(entry: tuple[int, int], tmp_path: Path) -> None:
    write_kv(tmp_path, Version((Held(MESSAGES),)))
    with sqlite3.connect(tmp_path / "kv.sqlite") as connection:
        connection.execute("UPDATE data SET v = ? WHERE k = ?", (struct.pack(">II", *entry), bytes(16)))
    connection.close()
    with pytest.raises(StoreUnreadable, match=r"not known|not supported"):
        open_reader(tmp_path)


def test_other_places_are_refused_with_a_reason(tmp_path: Path) -> None:
    (tmp_path / "level" / "kv.leveldb").mkdir(parents=True)
    (tmp_path / "file.txt").write_text("x")
    for name, reason in (
        ("level", "LevelDB"),
        ("file.txt", "not a store"),
        ("nothing", "no such file or directory"),
    ):
        with pytest.raises(StoreUnreadable, match=reason):
            open_reader(tmp_path / name)


# Our own, one by one and in columns.

DAMAGES = {
    "none": "SELECT 1",
    "content": "UPDATE sample SET payload = x'00010000ff' WHERE sequence = 1500",
    "digest": "UPDATE sample SET digest = zeroblob(16) WHERE sequence = 1500",
    "type of a field": "UPDATE sample SET writer = 'text' WHERE sequence = 1500",
    "number out of range": "UPDATE sample SET status = -5 WHERE sequence = 1500",
    "gone": "DELETE FROM sample WHERE sequence = 1500",
    "two are gone": "DELETE FROM sample WHERE sequence IN (3, 2999)",
    "more than there were": "INSERT INTO sample SELECT sample_group, source_time_ns + 1, writer, sequence,"
    " x'00112233445566778899aabbccddeeff', status, key, payload FROM sample WHERE sequence = 7",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_store_of_ours_gives_the_same_samples_and_the_same_damage_either_way(
    damage: str, tmp_path: Path
) -> None:
    group = described("p")
    samples = [Message(number, sequence=number, time_ns=BASE_NS + number).sample() for number in range(3_000)]
    path = write_ours(tmp_path, {group: samples, described("q"): samples[:5]})
    with sqlite3.connect(path / "store.sqlite") as connection:
        connection.execute(DAMAGES[damage])
    connection.close()
    reader = OurStore(path)
    (one,) = reader.facts.sets
    by_one, by_column = DamageLog(), DamageLog()
    expected = [(found.name, list(rows)) for found, rows in reader.read(one.number, by_one)]
    columns = [
        (found.name, [Sample(*row) for piece in pieces for row in zip(*piece, strict=True)])
        for found, pieces in reader.read_columns(one.number, by_column)
    ]
    reader.close()
    assert columns == expected
    assert (by_column.count, by_column.first) == (by_one.count, by_one.first)
    assert bool(by_one.count) == (damage != "none")


# Only read.


def fingerprint(directory: Path) -> dict[str, tuple[str, int]]:
    return {
        str(path): (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Callable[[Path], None]]:
    """Takes the permission to write from a directory and all in it."""
    taken: list[Path] = []

    def take(directory: Path) -> None:
        for path in (*directory.rglob("*"), directory):
            path.chmod(path.stat().st_mode & ~(stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH))
            taken.append(path)

    yield take
    for path in taken:
        path.chmod(path.stat().st_mode | stat.S_IWUSR)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_reading_leaves_a_store_and_its_directory_as_they_were(
    layout: str, tmp_path: Path, read_only: Callable[[Path], None]
) -> None:
    path = LAYOUTS[layout](tmp_path / "store", Version((Held(MESSAGES),)))
    read_only(path)
    before = fingerprint(path)
    reader = open_reader(path)
    check_samples(reader)
    reader.close()
    assert fingerprint(path) == before


def test_a_store_that_its_node_has_locked_is_read_from_a_copy_with_its_log(
    tmp_path: Path, opened: Callable[[Path], StoreReader]
) -> None:
    path = write_kv(tmp_path, Version((Held(MESSAGES[:3]),))) / "kv.sqlite"
    owner = sqlite3.connect(path, isolation_level=None)
    owner.execute("PRAGMA locking_mode = EXCLUSIVE")
    owner.execute("PRAGMA journal_mode = WAL")
    owner.execute("DELETE FROM data WHERE k >= ? AND k < ?", (bytes([7]), bytes([8])))
    assert path.with_name("kv.sqlite-wal").stat().st_size
    before = fingerprint(tmp_path)
    reader = opened(path)
    assert dict(reader.facts.detail)["copied"] == "yes"
    assert read(reader, reader.facts.sets[0].number)[0] == []
    assert fingerprint(tmp_path) == before
    owner.close()


# Real ones.


@pytest.mark.parametrize("when", ["after-merge", "after-restart"])
@pytest.mark.parametrize(
    ("node", "format_"),
    [("n1", StoreFormat.KV), ("n2", StoreFormat.XML), ("n3", StoreFormat.KVMT)],
    ids=["n1", "n2", "n3"],
)
def test_the_sample_stores_of_opensplice_are_sound(
    when: str, node: str, format_: StoreFormat, opened: Callable[[Path], StoreReader]
) -> None:
    reader = opened(SAMPLES / when / node)
    assert reader.facts.format is format_
    for counted in count_sets(reader):
        assert counted.samples >= 42
        assert not counted.damage.count
        assert verify_problems(reader, counted) == []


def test_a_sample_of_opensplice_has_its_fields(opened: Callable[[Path], StoreReader]) -> None:
    for node in ("n1", "n2", "n3"):
        reader = opened(SAMPLES / "after-merge" / node)
        found, _ = instances(reader, SampleSelection(group="partA.T1", key="d0070000"), 10, DamageLog())
        (instance,) = found
        fields, problem = fields_of(reader, instance.group, instance.samples[-1])
        assert not problem
        assert fields is not None
        assert (fields["key"], fields["seq"]) == (2000, 2)
        assert str(fields["payload"]).startswith("T1/partA key=002000 seq=2 ")


def test_a_copy_that_can_not_be_made_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_kv(tmp_path, Version((Held(MESSAGES),)))
    (tmp_path / "kv.sqlite-wal").write_bytes(b"log")

    def full(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(StoreUnreadable, match="No space left"):
        open_reader(tmp_path)
