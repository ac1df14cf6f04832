"""Spark finds what the engines of one machine find: here, and on a cluster of two workers."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="Spark needs the extra `spark`")
pytest.importorskip("duckdb", reason="the local engine needs the extra `sql`")

from ospltool.cli import app
from ospltool.stores.diff.compare import CompareOptions, compare
from ospltool.stores.diff.report import ReportData, Verdict
from tests.analytics.test_spark_cluster import SETTINGS, environ, master
from tests.stores.making import BASE_NS, Held, Message, Version, write_kv, write_kvmt, write_xml
from tests.stores.own_stores import write_ours
from tests.stores.test_differences import Content, add, change, dispose, fresh, move, remove, swap, truth

__all__ = ["environ", "master"]  # the cluster of the other tests

pytestmark = pytest.mark.timeout(400)  # virtual machines for Java start slowly where others work too


def check_equal(
    stores: list[str], where: str, settings: dict[str, str] | None = None, *, contents: bool
) -> ReportData:
    """Spark says what DuckDB and the merge say, to the last sample, and field where contents are wanted."""
    wanted = compare(stores, CompareOptions(None, contents))
    assert compare(stores, CompareOptions(None, contents, "merge")) == wanted
    assert compare(stores, CompareOptions(None, contents, "spark", where, settings=settings or {})) == wanted
    return wanted


def test_spark_on_this_machine_finds_all_kinds_of_difference_also_such_as_cancel(tmp_path: Path) -> None:
    contents: list[Content] = [fresh() for _ in range(3)]
    for number, plant in enumerate((remove, add, change, dispose, move)):
        plant(contents[1], number % 3, number)
        plant(contents[2], (number + 1) % 3, number + 7)
    swap(contents[2], 0, 1)
    stores = [str(write_ours(tmp_path / str(number), content)) for number, content in enumerate(contents)]
    assert check_equal(stores, "local[2]", contents=False).differing == len(truth(contents)) > 6


def test_a_cluster_gives_the_same_report_with_the_fields(master: str, tmp_path: Path) -> None:
    writes = tuple(Message(number, text=f"text {number}", time_ns=BASE_NS + number) for number in range(9))
    stores = [
        str(write_kv(tmp_path / "a", Version((Held(writes[:-1]), Held(writes, topic="Equal"))))),
        str(write_xml(tmp_path / "b", Version((Held(writes[1:]), Held(writes, topic="Equal"))))),
    ]
    report = check_equal(stores, master, SETTINGS, contents=True)
    assert report.differing == 2
    assert {group.topic: group.verdict for group in report.groups} == {
        "Items": Verdict.DIFFER,
        "Equal": Verdict.EQUAL,
    }
    assert report.instances[0].samples[0].fields is not None


def test_a_cluster_that_is_not_there_ends_with_2(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    store = str(write_kvmt(tmp_path, Version((Held((Message(1),)),))))
    assert app.main(["store", "diff", store, store, "--engine", "spark", "--master", "no-such-thing"]) == 2
    said = capfd.readouterr()
    assert "no-such-thing" in said.err
    assert "Traceback" not in said.err
