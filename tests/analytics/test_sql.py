"""Questions to a case, with DuckDB."""

from __future__ import annotations

import csv
import io
import json
import shutil
from typing import Any, Final

import pytest

pytest.importorskip("duckdb", reason="SQL needs the extra `sql`")

import pathlib
from collections.abc import Iterator

import pyarrow as pa

from ospltool.analytics.case import CaseError, open_case
from ospltool.analytics.columns import texts_of
from ospltool.analytics.duck import DuckEngine, pack
from ospltool.analytics.engines import AnalyticsMissingError, QueryError, literal, need
from ospltool.analytics.show import named_queries
from ospltool.cli.app import main


@pytest.fixture(scope="module")
def engine(case: pathlib.Path) -> Iterator[DuckEngine]:
    opened = DuckEngine(open_case(case))
    yield opened
    opened.close()


def ask(engine: DuckEngine, sql: str) -> list[dict[str, Any]]:
    result = engine.query(sql)
    return [dict(zip(result.columns, row, strict=True)) for row in result.rows]


def is_of_judged(sql: str) -> bool:
    """Whether a query reads what `ospltool pipeline` fills; see test_pipeline.py."""
    return "from facts" in sql or "from verdicts" in sql


@pytest.mark.parametrize("name", named_queries())
def test_a_named_query_answers_and_says_what(name: str, engine: DuckEngine) -> None:
    query = named_queries()[name]
    assert query.about.endswith(".")
    assert ask(engine, query.sql) or name == "unknown" or is_of_judged(query.sql)


def test_a_slow_query_prints_nothing_but_its_answer(engine: DuckEngine) -> None:
    (row,) = ask(engine, "select current_setting('enable_progress_bar') as shown")
    assert row == {"shown": False}


def test_rows_that_nobody_reads_are_no_matter_for_the_next_query(engine: DuckEngine) -> None:
    """As those of the times of more than 5,000 files, of which two overlap: the first is enough."""
    many = "select * from range(20_000)"
    assert next(iter(engine.query(many).rows)) == (0,)
    ((numbers,),) = engine.columns("select 7")
    assert list(numbers) == [7]
    older, newer = (iter(engine.query(many).rows) for _ in range(2))
    assert next(newer) == (0,)
    with pytest.raises(QueryError, match="another query was asked"):
        next(older)
    assert sum(1 for _ in newer) == 19_999


def test_masters_are_those_of_the_live_lock(engine: DuckEngine) -> None:
    rows = ask(engine, "select * from (" + named_queries()["masters"].sql + ") where times > 5")
    assert {(row["node"], row["master"]) for row in rows} == {
        ("n1", "992001269"),
        ("n2", "itself"),
        ("n3", "1250527713"),
    }


def test_states_have_the_lengths_of_the_timeline(engine: DuckEngine) -> None:
    rows = ask(engine, named_queries()["states"].sql)
    discovery = [row["length_ns"] for row in rows if row["state"] == "DISCOVER_FELLOWS_GROUPS"]
    assert len(discovery) == 6
    assert all(3.0e9 < length < 3.2e9 for length in discovery)


def test_runs_are_counted_in_sql_as_by_the_reader(engine: DuckEngine) -> None:
    rows = ask(engine, named_queries()["runs"].sql)
    assert {row["run"] for row in rows} == {1}
    assert (
        sum(row["records"] for row in rows)
        == ask(engine, "select count(*) n from records where kind = 'trace'")[0]["n"]
    )


@pytest.fixture(scope="module")
def own(samples: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DuckEngine]:
    """A case of traces of our engine: a node is killed and comes back, then all are."""
    from ospltool.trace.case.loading import load
    from ospltool.trace.reading.sources import find_sources

    target = tmp_path_factory.mktemp("own") / "case"
    load(find_sources([str(samples / "own-engine")]).sources, target)
    opened = DuckEngine(open_case(target))
    yield opened
    opened.close()


def test_named_queries_know_our_engine_too(own: DuckEngine) -> None:
    def answer(name: str) -> list[dict[str, Any]]:
        return ask(own, named_queries()[name].sql)

    assert {(row["node"], row["fellow"], row["answers"]) for row in answer("latency")} == {
        ("n2", "n1", 2),
        ("n3", "n1", 3),
    }
    assert [row["node"] for row in answer("readers") if row["waited_ns"]] == ["n1", "n1"]
    assert ("n2", "n1") in {(row["node"], row["master"]) for row in answer("masters")}
    assert {row["group_name"] for row in answer("transfers")} == {"harbour"}


def test_a_state_in_which_a_node_was_killed_has_no_length(own: DuckEngine) -> None:
    rows = [row for row in ask(own, named_queries()["states"].sql) if row["node"] == "n3"]
    complete = [row["length_ns"] for row in rows if row["state"] == "COMPLETE"]
    assert [length is None for length in complete] == [True, True, False]


REFUSED = [
    "copy records to 'out.csv'",
    "create table t as select 1",
    "drop view records",
    "insert into records select * from records",
    "attach 'other.duckdb'",
    "install httpfs",
    "set memory_limit = '1GB'",
    "pragma database_list",
    "select 1; select 2",
    "select * from read_csv('/etc/passwd')",
    "select * from read_text('/etc/hostname')",
    "select * from glob('/*')",
    "select * from 'https://example.org/x.parquet'",
    "selec 1",
    "select nothing from records",
    "",
]


@pytest.mark.parametrize("sql", REFUSED)
def test_a_query_reads_the_case_and_nothing_else(sql: str, engine: DuckEngine) -> None:
    with pytest.raises(QueryError):
        list(engine.query(sql).rows)


def test_a_case_may_be_one_file(case: pathlib.Path, engine: DuckEngine, tmp_path: pathlib.Path) -> None:
    target = tmp_path / "it's one.duckdb"
    pack(open_case(case), target)
    packed = DuckEngine(open_case(target))
    for name, query in named_queries().items():
        assert ask(packed, query.sql) == ask(engine, query.sql), name
    with pytest.raises(QueryError):
        packed.query("drop table records")
    packed.close()


@pytest.mark.parametrize("name", ["o'hara's [case]", "*", "a?", "day=5/node=n9/case"])
def test_any_path_is_a_path(
    name: str, case: pathlib.Path, engine: DuckEngine, tmp_path: pathlib.Path
) -> None:
    """Brackets were a pattern; below `node=n9` all records were of n9."""
    target = tmp_path / name
    shutil.copytree(case, target)
    opened = DuckEngine(open_case(target))
    counted = "select day, node, count(*) as n from records group by day, node order by day, node"
    assert ask(opened, counted) == ask(engine, counted)
    with pytest.raises(QueryError):
        opened.query(f"select * from read_text({literal(str(tmp_path / '**'))})")
    opened.close()


EXPLAINED: Final = (
    "explain analyze copy (select 42 as x) to {}",
    "explain\n analyze copy (select 42 as x) to {}",
    "explain(analyze) copy (select 42 as x) to {}",
    "explain (analyze, format json) copy (select 42 as x) to {}",
    "explain (analyze /* ) select 1 -- */ ) copy (select 42 as x) to {}",
    "/* */ explain analyze copy (select 42 as x) to {}",
    "explain analyze create table t as select 1",
)


@pytest.mark.parametrize("sql", EXPLAINED)
def test_what_is_explained_only_reads(sql: str, case: pathlib.Path, engine: DuckEngine) -> None:
    """`explain analyze` runs its statement: it wrote a file into the case, which then could not be read."""
    target = case / "records" / "foreign.parquet"
    try:
        with pytest.raises(QueryError):
            list(engine.query(sql.format(literal(str(target)))).rows)
        assert not target.exists()
    finally:
        target.unlink(missing_ok=True)


@pytest.mark.parametrize(
    "sql", ["explain select 1", " EXPLAIN ANALYZE\nselect 1", "explain (format json) from records"]
)
def test_a_query_can_be_explained(sql: str, engine: DuckEngine) -> None:
    assert ask(engine, sql)


def test_another_file_is_no_case(tmp_path: pathlib.Path) -> None:
    import duckdb

    other = tmp_path / "other.duckdb"
    duckdb.connect(str(other)).close()
    text = tmp_path / "text.duckdb"
    text.write_text("no database")
    for path in (other, text):
        with pytest.raises(CaseError, match=path.name):
            DuckEngine(open_case(path))


def test_answers_have_four_forms(case: pathlib.Path, capfd: pytest.CaptureFixture[str]) -> None:
    query = (
        "select node, count(*) as n, null as nothing, fields from records where event = 'lifecycle.address' "
        "group by node, fields order by node, fields['node']"
    )
    answers: dict[str, Any] = {}
    for form in ("table", "csv", "jsonl"):
        assert main(["sql", str(case), query, "--format", form]) == 0
        answers[form] = capfd.readouterr().out
    assert main(["sql", str(case), query, "--json"]) == 0
    rows = json.loads(capfd.readouterr().out)["data"]["rows"]
    assert [json.loads(line)["data"] for line in answers["jsonl"].splitlines()] == rows
    assert [row["node"] for row in csv.DictReader(io.StringIO(answers["csv"]))] == [
        row["node"] for row in rows
    ]
    assert answers["table"].splitlines()[0].split() == ["node", "n", "nothing", "fields"]
    assert len(answers["table"].splitlines()) == len(rows) + 1


def test_a_limit_says_what_it_left_out(case: pathlib.Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", str(case), "select * from templates", "--format", "csv", "--limit", "3"]) == 0
    captured = capfd.readouterr()
    assert "--limit 3" in captured.err
    assert len(list(csv.reader(io.StringIO(captured.out)))) == 4
    assert main(["sql", str(case), "select 1 as one", "--limit", "3"]) == 0
    assert capfd.readouterr().err == ""


def test_control_characters_of_a_trace_do_not_reach_the_terminal(
    tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "durability.log"
    path.write_text("1795223310.000000001 COMPLETE (t) -> \x1b]0;owned\x07\n")
    assert main(["trace", "load", f"n1={path}", "-o", str(tmp_path / "case")]) == 0
    capfd.readouterr()
    assert main(["sql", str(tmp_path / "case"), "select text from records"]) == 0
    assert "\x1b" not in capfd.readouterr().out


def test_queries_and_tables_are_listed(case: pathlib.Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", str(case), "--list"]) == 0
    output = capfd.readouterr().out
    assert all(name in output for name in named_queries())
    assert "TABLE records" in output
    assert main(["sql", str(case), "masters", "--show"]) == 0
    assert capfd.readouterr().out == named_queries()["masters"].sql


@pytest.mark.parametrize(
    "arguments",
    [
        ["masterz"],
        ["select 1", "--engine", "oracle"],
        ["select 1", "--format", "xml"],
        ["select nothing from nowhere"],
    ],
)
def test_wrong_usage_is_code_2(
    arguments: list[str], case: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["sql", str(case), *arguments]) == 2
    captured = capfd.readouterr()
    assert captured.out == ""
    assert "Traceback" not in captured.err


def test_a_missing_package_is_named_with_its_extra() -> None:
    with pytest.raises(AnalyticsMissingError, match=r"\[spark\]"):
        need("no_such_module", "spark")


def test_texts_that_are_often_equal_are_one_object() -> None:
    often = ["a", None, "ß", "", "a" * 300] * 500
    once = [None if number % 7 == 0 else f"text {number}" for number in range(3_000)]
    late = ["same"] * 300 + once  # what its beginning tells is not true
    for texts in (often, once, late, [], [None] * 10, ["x"]):
        for kind in (pa.string(), pa.large_string()):
            assert texts_of(pa.array(texts, kind)) == texts
            assert texts_of(pa.array([*texts, "end"], kind).slice(0, len(texts))) == texts
    read = texts_of(pa.array(often, pa.string()))
    assert len({id(text) for text in read}) == 5
