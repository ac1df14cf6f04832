"""Spark finds what DuckDB finds.

`tests/analytics/test_spark_cluster.py` compares on a cluster.
"""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="Spark needs the extra `spark`")
pytest.importorskip("duckdb", reason="the local engine needs the extra `sql`")

from ospltool.cli import app
from ospltool.stores.diff.compare import CompareOptions, compare
from ospltool.stores.diff.report import ReportData
from tests.analytics.java_classes import java_classes
from tests.stores.making import Held, Message, Version, write_kvmt
from tests.stores.own_stores import write_ours
from tests.stores.test_differences import Content, add, change, dispose, fresh, move, remove, swap, truth

__all__ = ["check_equal", "java_classes"]

pytestmark = pytest.mark.timeout(400)  # virtual machines for Java start slowly where others work too


def check_equal(
    stores: list[str], where: str, settings: dict[str, str] | None = None, *, contents: bool
) -> ReportData:
    """Spark says what DuckDB says, to the last sample, and field where contents are wanted."""
    wanted = compare(stores, CompareOptions(None, contents))
    assert compare(stores, CompareOptions(None, contents, "spark", where, settings=settings or {})) == wanted
    return wanted


@pytest.mark.usefixtures("java_classes")
def test_spark_on_this_machine_finds_all_kinds_of_difference_also_such_as_cancel(tmp_path: Path) -> None:
    contents: list[Content] = [fresh() for _ in range(3)]
    for number, plant in enumerate((remove, add, change, dispose, move)):
        plant(contents[1], number % 3, number)
        plant(contents[2], (number + 1) % 3, number + 7)
    swap(contents[2], 0, 1)
    stores = [str(write_ours(tmp_path / str(number), content)) for number, content in enumerate(contents)]
    assert check_equal(stores, "local[2]", contents=False).differing == len(truth(contents)) > 6


def test_a_cluster_that_is_not_there_ends_with_2(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    store = str(write_kvmt(tmp_path, Version((Held((Message(1),)),))))
    assert (
        app.main(["store", "diff", store, store, "--engine", "spark", "--spark-master", "no-such-thing"]) == 2
    )
    said = capfd.readouterr()
    assert "no-such-thing" in said.err
    assert "Traceback" not in said.err
