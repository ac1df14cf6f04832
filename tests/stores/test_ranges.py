"""Snapshots with digests of ranges are compared by fewer rows, with the same report."""

from __future__ import annotations

import dataclasses
import json
import random
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("duckdb", reason="the local engine needs the extra `sql`")

from engine.dataset.groups import GroupDescription
from engine.dataset.sample import DATA, DISPOSE, Sample, make_sample
from engine.store.interface import DamageLog
from ospltool.stores.diff.compare import CompareOptions, compare
from ospltool.stores.diff.report import ReportData, Verdict
from ospltool.stores.model import META_FILE, RANGES_FILE, SAMPLES_FILE
from ospltool.stores.opening import open_reader
from ospltool.stores.ranges import differing, rows_of
from ospltool.stores.snapshot import SnapshotStore, write_snapshot
from tests.stores.making import BASE_NS, Held, Message, Version, write_kv
from tests.stores.own_stores import described, write_ours

GROUPS = (described("a"), described("b"))
Content = dict[GroupDescription, set[Sample]]


def sample(key: int, at: int, payload: int = 0, status: int = DATA) -> Sample:
    return make_sample(BASE_NS + at, bytes(16), status, key.to_bytes(2), payload.to_bytes(4), sequence=at)


def snapshot_of(store: Path, target: Path) -> Path:
    reader = open_reader(store)
    write_snapshot(reader, target, reader.facts.sets, DamageLog())
    reader.close()
    return target


def ours(directory: Path, content: Content) -> Path:
    return snapshot_of(write_ours(directory / "store", content), directory / "snapshot")


def without_ranges(snapshot: Path) -> Path:
    """The same as a release without ranges would have written it: only the first checksum is there."""
    target = snapshot.with_name(f"{snapshot.name}-old")
    shutil.copytree(snapshot, target, dirs_exist_ok=True)
    (target / RANGES_FILE).unlink()
    meta = json.loads((target / META_FILE).read_text())
    del meta["data"]["crc32"]
    (target / META_FILE).write_text(json.dumps(meta))
    return target


def report_of(*snapshots: Path, contents: bool = False) -> ReportData:
    return compare([str(one) for one in snapshots], CompareOptions(None, contents))


def check_same_report(*snapshots: Path, contents: bool = False) -> ReportData:
    """What is said by ranges is what is said without."""
    found = report_of(*snapshots, contents=contents)
    expected = report_of(*map(without_ranges, snapshots), contents=contents)
    facts = dataclasses.replace(found, sides=()), dataclasses.replace(expected, sides=())
    assert facts[0] == facts[1]
    assert [one.samples for one in found.sides] == [one.samples for one in expected.sides]
    return found


def rows_compared(*snapshots: Path) -> int:
    """Number of rows that are not in equal ranges."""
    found = []
    for one in snapshots:
        store = SnapshotStore(one)
        ranges = store.ranges()
        assert ranges is not None
        found.append(ranges)
        store.close()
    return sum(len(rows_of(one)) for one in differing(found))


changes = st.tuples(
    st.sampled_from(["remove", "add", "change", "dispose", "same time"]),
    st.integers(0, 1),
    st.integers(0, 10**6),
)


def changed(base: Content, plan: list[tuple[str, int, int]]) -> Content:
    content = {group: set(held) for group, held in base.items()}
    for what, group, pick in plan:
        held = content[GROUPS[group]]
        chosen = sorted(held)[pick % len(held)]
        if what in {"remove", "change"}:
            held.remove(chosen)
        key, at = int.from_bytes(chosen.key), chosen.source_time_ns - BASE_NS
        if what == "change":
            held.add(sample(key, at, 1_000 + pick % 7))
        elif what == "add":
            held.add(sample(pick % 400, pick % 2_000, 5))
        elif what == "dispose":
            held.add(sample(key, at + 1, status=DISPOSE))
        elif what == "same time":
            held.add(sample(key + 1, at, pick % 11))
    return content


@settings(max_examples=settings().max_examples // 3)
@given(
    st.integers(0, 2**32),
    st.sampled_from([1, 3]),
    st.lists(st.lists(changes, max_size=6), min_size=1, max_size=2),
)
def test_a_comparison_by_ranges_is_that_of_all_rows(
    seed: int, depth: int, plans: list[list[tuple[str, int, int]]]
) -> None:
    rows = random.Random(seed)
    base = {
        group: {
            sample(key, rows.randrange(2_000) if depth > 1 else key, rows.randrange(50))
            for key in range(300)
            for _ in range(depth)
        }
        for group in GROUPS
    }
    contents = [base, *(changed(base, plan) for plan in plans)]
    with tempfile.TemporaryDirectory() as name:
        snapshots = [ours(Path(name, str(number)), one) for number, one in enumerate(contents)]
        report = check_same_report(*snapshots, contents=True)
    differ = any(one != base for one in contents)
    assert (report.verdict is Verdict.DIFFER) == differ
    expected = {
        (group.group.partition, one.key.hex())
        for group in GROUPS
        for one in set.union(*(each[group] for each in contents))
        if any(one not in each[group] for each in contents)
    }
    assert {(one.partition, one.key) for one in report.instances} == expected


def test_rows_of_equal_ranges_are_left_out(tmp_path: Path) -> None:
    """One row more at the beginning shifts all the others, and changes only the range that it is in."""
    base = {GROUPS[0]: {sample(key, 10 + key) for key in range(5_000)}}
    left = ours(tmp_path / "left", base)
    right = ours(tmp_path / "right", {GROUPS[0]: {*base[GROUPS[0]], sample(9_000, 1)}})
    assert 1 <= rows_compared(left, right) < 1_000
    assert check_same_report(left, right).differing == 1
    assert rows_compared(left, ours(tmp_path / "again", base)) == 0
    other = ours(tmp_path / "other", {GROUPS[1]: base[GROUPS[0]]})
    assert rows_compared(left, other) == 10_000, "the rows of another group are other rows"
    assert check_same_report(left, other).differing == 10_000


def test_sets_are_compared_by_the_ranges_of_their_own(tmp_path: Path) -> None:
    many = tuple(Message(number, time_ns=BASE_NS + number) for number in range(100))
    both = Version((Held(many),)), Version((Held(many[:-1]),), version=1)
    snapshot = snapshot_of(write_kv(tmp_path / "kv", *both), tmp_path / "snapshot")
    assert report_of(Path(f"{snapshot}@0"), Path(f"{snapshot}@1")).differing == 1
    assert report_of(Path(f"{snapshot}@0"), Path(f"{snapshot}@0")).verdict is Verdict.EQUAL


def test_rows_in_another_order_are_always_compared(tmp_path: Path) -> None:
    """Stores of OpenSplice have an order of their own, in which a row may be there twice."""
    many = tuple(Message(number, time_ns=BASE_NS - number) for number in range(100))
    left = snapshot_of(write_kv(tmp_path / "a", Version((Held(many),))), tmp_path / "left")
    right = snapshot_of(write_kv(tmp_path / "b", Version((Held((many[5], *many)),))), tmp_path / "right")
    assert rows_compared(left, left) == 200
    check_same_report(left, right)


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << at % 8
    path.write_bytes(data)


def test_a_damaged_payload_is_found_in_an_equal_range(tmp_path: Path) -> None:
    """The digests say that all is equal; a flipped bit anywhere in the rows is damage nevertheless."""
    base = {GROUPS[0]: {sample(key, key, key) for key in range(3_000)}}
    left, right = (ours(tmp_path / name, base) for name in ("left", "right"))
    assert report_of(left, right).verdict is Verdict.EQUAL
    size = (right / SAMPLES_FILE).stat().st_size
    for at in range(100, size, size // 8):
        damaged = tmp_path / f"damaged-{at}"
        shutil.copytree(right, damaged)
        flip(damaged / SAMPLES_FILE, at)
        store = SnapshotStore(damaged)
        assert not store.is_sealed()
        store.close()
    payloads = (right / SAMPLES_FILE).read_bytes()
    flip(right / SAMPLES_FILE, payloads.rindex(b"\x28\xb5\x2f\xfd") + 40)  # in the last column, the payloads
    report = report_of(left, right)
    assert report.verdict is not Verdict.EQUAL
    assert report.sides[1].damaged > 0


@pytest.mark.parametrize("harm", ["flipped", "cut", "gone", "another's"])
def test_damaged_ranges_are_not_used(harm: str, tmp_path: Path) -> None:
    base = {GROUPS[0]: {sample(key, key) for key in range(500)}}
    left = ours(tmp_path / "left", base)
    right = ours(tmp_path / "right", changed(base, [("change", 0, 77)]))
    expected = report_of(left, right)
    path = right / RANGES_FILE
    if harm == "flipped":
        flip(path, path.stat().st_size // 3)
    elif harm == "cut":
        path.write_bytes(path.read_bytes()[:-50])
    elif harm == "gone":
        path.unlink()
    else:
        shutil.copyfile(left / RANGES_FILE, path)
    store = SnapshotStore(right)
    assert store.ranges() is None
    store.close()
    assert report_of(left, right) == expected
    assert expected.differing == 1
