"""A store that the previous release left behind is opened, verified, compared, restored and written to."""

from __future__ import annotations

import contextlib
import json
import tarfile
import time
from pathlib import Path

import pytest

pytest.importorskip("duckdb", reason="comparing needs the extra `sql`")

from engine.core.name_spaces import Group
from engine.dataset.groups import DurabilityKind, GroupDescription, GroupQos, TypeDescription
from engine.dataset.sample import DATA, DISPOSE, UNREGISTER, Sample, make_sample
from engine.node.disk import open_store
from engine.runtime.startup import read_store
from engine.store.interface import DamageLog, GroupChange, RememberedFellow, SetState
from engine.store.sqlite import SqliteStore
from ospltool.cli import app

FIXTURE = Path(__file__).parent / "fixtures" / "store-7a64475.tar.xz"
"""Written by `python -m tests.stores.write_fixture 7a64475`, which says what is in it."""
NODE_ID = "0123456789abcdef0123456789abcdef"
TIME_NS = 1_700_000_000_000_000_000
TYPE = TypeDescription("Reading", b"information of Reading", b"mapping" * 20, keyed=True)
QOS = GroupQos(DurabilityKind.PERSISTENT, history_depth=2, cleanup_delay_ns=60_000_000_000)
STOCK, SPARE = (
    GroupDescription(Group(name, "Reading", TYPE.type_id), TYPE, QOS) for name in ("stock", "spare")
)
Content = dict[Group, set[Sample]]


def sample(number: int, status: int = DATA) -> Sample:
    key, payload = (number % 10).to_bytes(4), b"reading %d" % number
    time_ns = TIME_NS + number * 1000
    return make_sample(time_ns, number.to_bytes(16), status, key, payload, sequence=number)


def numbered(start: int, end: int) -> set[Sample]:
    return {sample(number) for number in range(start, end)}


COMPLETE: Content = {
    STOCK.group: {*numbered(5, 15), sample(20), sample(21, DISPOSE)} - {sample(10)},
    SPARE.group: {*numbered(5, 15), sample(22, UNREGISTER)},
}
BACKUP: Content = {STOCK.group: numbered(0, 10), SPARE.group: numbered(0, 10)}


@pytest.fixture
def left(tmp_path: Path) -> Path:
    """The store as that release left it when it was killed."""
    directory = tmp_path / "left"
    with tarfile.open(FIXTURE) as packed:
        packed.extractall(directory, filter="data")
    return directory


def content(store: SqliteStore, version: int) -> Content:
    damage = DamageLog()
    found = {
        description.group: {one for rows in pieces for one in rows}
        for description, pieces in store.load("stock", damage, version)
    }
    assert not damage.count, damage.first
    return found


def opened(directory: Path) -> contextlib.closing[SqliteStore]:
    return contextlib.closing(SqliteStore(directory, "n1", lambda: "f" * 32))


def versions(store: SqliteStore) -> dict[SetState, int]:
    return {one.state: one.version for one in store.sets("stock")}


def test_all_that_it_had_is_there(left: Path) -> None:
    with opened(left) as store:
        report = store.report
        assert (report.node_id, report.incarnation, report.clean_shutdown) == (NODE_ID, 2, False)
        assert not report.is_damaged
        assert report.fellows == {"stock": (RememberedFellow("f" * 32, "n2", "Depot"),)}
        assert store.marks("stock") == {"lineage": "3/n1/1"}
        numbers = versions(store)
        assert content(store, numbers[SetState.COMPLETE]) == COMPLETE
        assert content(store, numbers[SetState.KEPT]) == BACKUP
        assert content(store, numbers[SetState.FILLING]) == {STOCK.group: numbered(30, 33)}
        assert {info.description for one in store.sets("stock") for info in one.groups} == {STOCK, SPARE}


def test_a_node_starts_with_it(left: Path) -> None:
    with contextlib.closing(open_store(left, "n1")) as store:
        found = read_store(store, time.time_ns())
        assert found.damage == {}
        assert found.stored["stock"].quality_ns == sample(22).source_time_ns
        assert str(found.stored["stock"].lineage.node) == "n1"
        assert found.parts["stock"].summary().count == 3


def test_it_can_be_written_to(left: Path) -> None:
    with opened(left) as store:
        store.append("stock", [GroupChange(STOCK, sample(40), [sample(20)])])
        writer = store.filling("stock")
        assert writer is not None
        writer.add(STOCK, [sample(33)])
        store.commit_complete(writer, "new", keep_previous="note")
    with opened(left) as store:
        assert content(store, versions(store)[SetState.COMPLETE]) == {STOCK.group: numbered(30, 34)}
        kept = [one.version for one in store.sets("stock") if one.state is SetState.KEPT]
        stock = COMPLETE[STOCK.group] - {sample(20)} | {sample(40)}
        assert [content(store, one) for one in kept] == [BACKUP, {**COMPLETE, STOCK.group: stock}]


def test_the_tools_read_and_compare_it(left: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def run(*arguments: object) -> tuple[int, str]:
        capfd.readouterr()
        code = int(app.main(["store", *map(str, arguments)]))
        return code, capfd.readouterr().out

    with opened(tmp_path / "now") as store:
        writer = store.begin_set("stock")
        for description in (STOCK, SPARE):
            writer.add(description, sorted(COMPLETE[description.group]))
        store.commit_complete(writer)
    assert run("verify", left, "--set", 1, "--set", 2)[0] == 0
    assert run("diff", left, tmp_path / "now")[0] == 0
    assert run("diff", f"{left}@1", tmp_path / "now")[0] == 1
    code, text = run("backups", left, "--json")
    (found,) = json.loads(text)["data"]["stores"]
    assert code == 0
    assert [(one["number"], one["samples"], one["note"]) for one in found["backups"]] == [(1, 20, None)]
    assert run("restore", left)[0] == 0
    with opened(left) as store:
        assert content(store, versions(store)[SetState.COMPLETE]) == BACKUP
        assert content(store, versions(store)[SetState.KEPT]) == COMPLETE
