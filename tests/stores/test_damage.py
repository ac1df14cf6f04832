"""Damaged stores are read as far as they can be; the rest is counted and named."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import pathlib
import sqlite3
import struct

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engine.dataset.sample import Sample
from engine.store.interface import DamageLog
from ospltool.cli.app import main
from ospltool.stores.model import StoreUnreadable
from ospltool.stores.opening import open_reader
from tests.fuzzing import faults
from tests.stores.fuzz_stores import targets
from tests.stores.making import (
    BASE_NS,
    LAYOUTS,
    Held,
    Message,
    Version,
    binary_message,
    write_kv,
    write_kvmt,
)

SEEDS = range(1, 16)
SECOND_NS = 1_000_000_000
YEAR_2038 = 0x100000
MESSAGES = tuple(Message(number, time_ns=BASE_NS + number) for number in range(4))
PAIR = ("kv", "kvmt")


def read(path: pathlib.Path) -> tuple[list[Sample], list[str]]:
    """The samples of the current set, and what is damaged."""
    reader, damage = open_reader(path), DamageLog()
    with contextlib.closing(reader):
        (one,) = reader.facts.current()
        samples = [sample for _, some in reader.read(one.number, damage) for sample in some]
    return samples, [*map(str, damage.first), *reader.facts.findings]


def put(path: pathlib.Path, sql: str, *values: object) -> None:
    connection = sqlite3.connect(path)
    connection.execute(sql, values)
    connection.commit()
    connection.close()


def message_key(number: int) -> bytes:
    return struct.pack(">IIQ", 7 << 24, number, 0)


@pytest.mark.parametrize(
    ("raw", "time_ns"),
    [
        (BASE_NS, BASE_NS),
        ((2_200_000_000 << 32) | 5, 2_200_000_000 * SECOND_NS + 5),
        ((2_200_000_000 << 32) | 3_000_000_000, None),
        ((1 << 64) - 1, None),
    ],
)
def test_a_message_with_a_time_after_2038_is_read_or_named(
    tmp_path: pathlib.Path, raw: int, time_ns: int | None
) -> None:
    path = write_kv(tmp_path / "kv", Version((Held(MESSAGES),)))
    data = bytearray(binary_message(MESSAGES[1]))
    data[:4] = struct.pack(">I", 1 | YEAR_2038)
    data[24:32] = struct.pack(">Q", raw)
    put(path / "kv.sqlite", "UPDATE data SET v = ? WHERE k = ?", bytes(data), message_key(1))
    samples, damage = read(path)
    others = [one.time_ns for one in MESSAGES if one.id != 1]
    assert sorted(one.source_time_ns for one in samples) == sorted([*others, *([time_ns] if time_ns else [])])
    assert len(damage) == (0 if time_ns else 1)
    assert main(["store", "verify", str(path)]) == (0 if time_ns else 1)


def test_a_time_in_xml_beyond_64_bits_costs_its_message_only(tmp_path: pathlib.Path) -> None:
    late = dataclasses.replace(MESSAGES[1], time_ns=10**30)
    for layout in ("kvmt", "xml"):
        path = LAYOUTS[layout](tmp_path / layout, Version((Held((MESSAGES[0], late)),)))
        samples, damage = read(path)
        assert len(samples) == 1
        assert len(damage) == 1


@pytest.mark.parametrize("cell", [None, 5, 1.5, "text", b"", b"\0"])
def test_crafted_cells_of_kv_cost_their_entries_only(tmp_path: pathlib.Path, cell: object) -> None:
    path = write_kv(tmp_path / "kv", Version((Held(MESSAGES),)))
    put(path / "kv.sqlite", "UPDATE data SET v = ? WHERE k = ?", cell, message_key(1))
    put(path / "kv.sqlite", "INSERT INTO data VALUES (?, x'00')", message_key(9)[:6])
    samples, damage = read(path)
    assert len(samples) == 3
    assert len(damage) >= 2


@pytest.mark.parametrize("cell", [None, b"\xff\xfe", "9" * 5000, 1.5])
@pytest.mark.parametrize(
    ("table", "column"),
    [
        ("messages", "data"),
        ("messages", "instance_id"),
        ("namespaces_quality", "quality_sec"),
        ("topics", "data"),
    ],
)
def test_crafted_cells_of_kvmt_cost_their_rows_only(
    tmp_path: pathlib.Path, cell: object, table: str, column: str
) -> None:
    path = write_kvmt(tmp_path / "kvmt", Version((Held(MESSAGES), Held(MESSAGES, topic="Other"))))
    first = "group_id = 0 AND instance_id = 1" if table == "messages" else "rowid = 1"
    put(path / "kvmt.sqlite", f"UPDATE {table} SET {column} = ? WHERE {first}", cell)
    samples, damage = read(path)
    assert len(samples) >= len(MESSAGES)
    assert damage or len(samples) == 2 * len(MESSAGES)


def test_a_snapshot_whose_payloads_are_corrupt_is_not_the_same(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = write_kv(tmp_path / "kv", Version((Held(MESSAGES),)))
    for name in ("sound", "corrupt"):
        assert main(["store", "export", str(store), "-o", str(tmp_path / name)]) == 0
    assert main(["store", "diff", str(tmp_path / "sound"), str(tmp_path / "corrupt")]) == 0
    samples = tmp_path / "corrupt" / "samples.parquet"
    table = pq.read_table(samples)
    payloads = [payload[:-1] + b"\x55" for payload in table.column("payload").to_pylist()]
    column = table.schema.get_field_index("payload")
    pq.write_table(table.set_column(column, table.schema[column], pa.array(payloads, pa.binary())), samples)
    capsys.readouterr()
    assert main(["store", "diff", str(tmp_path / "sound"), str(tmp_path / "corrupt")]) == 1
    assert "the content does not match its digest" in capsys.readouterr().out
    meta = tmp_path / "corrupt" / "snapshot.json"
    document = json.loads(meta.read_text())
    del document["data"]["crc32"]
    meta.write_text(json.dumps(document))
    assert main(["store", "diff", str(tmp_path / "sound"), str(tmp_path / "corrupt")]) == 1
    meta.write_text("[" * 100_000)
    with pytest.raises(StoreUnreadable):
        open_reader(tmp_path / "corrupt")


def test_no_damage_ends_in_anything_but_an_answer(tmp_path: pathlib.Path) -> None:
    for target in targets(tmp_path):
        assert [fault.what for fault in faults(target, SEEDS)] == [], target.name


def test_a_snapshot_with_a_column_of_another_type_is_named(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = write_kv(tmp_path / "kv", Version((Held(MESSAGES),)))
    assert main(["store", "export", str(store), "-o", str(tmp_path / "snapshot")]) == 0
    samples = tmp_path / "snapshot" / "samples.parquet"
    table = pq.read_table(samples)
    column = table.schema.get_field_index("source_time_ns")
    days = table.column(column).cast(pa.duration("s"))
    pq.write_table(table.set_column(column, "source_time_ns", days), samples)
    capsys.readouterr()
    assert main(["store", "ls", str(tmp_path / "snapshot")]) == 2
    assert "the types of its columns are int64, int64, binary, duration[s]" in capsys.readouterr().err


def test_a_snapshot_with_endless_damage_is_named(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = write_kv(tmp_path / "kv", Version((Held(MESSAGES),)))
    assert main(["store", "export", str(store), "-o", str(tmp_path / "snapshot")]) == 0
    meta = tmp_path / "snapshot" / "snapshot.json"
    document = json.loads(meta.read_text())
    document["data"]["damage"] = float("inf")
    meta.write_text(json.dumps(document))
    capsys.readouterr()
    assert main(["store", "ls", str(tmp_path / "snapshot")]) == 2
    assert str(meta.parent) in capsys.readouterr().err
