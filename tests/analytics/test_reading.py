"""A query for Spark reads the tables of the case: no files, no programs, no Java, and it writes nothing."""

from __future__ import annotations

import time

import pytest

from ospltool.analytics.engines import QueryError
from ospltool.analytics.query_check import check_reading
from ospltool.analytics.show import named_queries

TABLES = frozenset({"records", "sources", "templates"})
GOOD = (
    "select 1",
    "select * from records",
    "-- a comment\nselect text from records where text like 'insert into %' -- more",
    "with q as (select node from records), r(a) as (select * from q) select a from r join q on a = node",
    "select r.node, t.level from records r, templates as t where r.template = t.id",
    "select count(*) filter (where level = 'INFO') over (partition by node) from records",
    "select extract(year from current_date), trim(both 'x' from text) from records",
    "select * from (select * from records) q where a is distinct from b",
    "select * from records where node in (select node from sources) and exists (select 1 from templates)",
    "select fields['policy'], transform_values(fields, (k, v) -> v) from records",
    "select * from records lateral view explode(map_keys(fields)) f as name",
    "from records select node",
    "select `group_name` from records union all select text from templates order by 1 nulls last",
    "explain select * from records",
    "(select node from records) union (select node from sources)",
    "values (1), (2)",
    "select cast(a as decimal(10, 2)) from (values (1)) as t(a)",
    "select regexp_extract(text, 'conflict (\\d+)', 1) from records",
)
BAD = (
    "select * from parquet.`/etc/passwd`",
    "select * from text.`/etc/passwd`",
    "select * from csv.passwd",
    "select * from records, text.`/etc/passwd`",
    "select * from records, text.passwd",
    "select * from records r join json.secrets s",
    "select * from records text, text.passwd",
    "select * from (text.passwd)",
    "select * from (records, text.passwd)",
    "select * from ((text.passwd))",
    "select * from records cross join ((select 1) q, (text.passwd))",
    "select * from records, lateral (select * from text.passwd)",
    "with q as (select * from text.passwd) select * from q",
    "with reflect as (select 1) select reflect('a', 'b') from reflect",
    "with q as (select 1), reflect('a') as (select 1) select 1",
    "with text as (select 1) select * from text.passwd",
    "select java_method('java.lang.System', 'exit', 'x')",
    "select reflect('java.lang.Runtime', 'getRuntime')",
    "select `reflect`('java.lang.Runtime', 'getRuntime')",
    "select system.builtin.reflect('java.lang.Runtime', 'getRuntime')",
    "select try_reflect('a', 'b')",
    "from records insert overwrite directory '/tmp/x' using parquet select *",
    "with q as (select 1) insert into records select * from q",
    "select transform(text) using 'sh -c id' as (x) from records",
    "from records map text using 'sh' as x",
    "select * from identifier('text.passwd')",
    "select * from table(range(3))",
    "table text.passwd",
    "select 1; drop table records",
    "create table x as select 1",
    "set spark.x = 1",
    "select '${env:HOME}'",
    "select $$a$$",
    "select 'a\\', reflect('x', 'y') -- '",
    "select r'\\', reflect('x', 'y') -- '",
    "-- \\\nselect 1",
    "select /*+ broadcast(x) */ 1",
    "select 1 /* ' */ , reflect('a') -- '",
    "select * from other",
    "select * from spark_catalog.default.records",
    "select * from records |> join text.passwd",
    "select ''' || reflect('a') --'",
    "",
)


@pytest.mark.parametrize("sql", [*GOOD, *(one.sql.strip().rstrip(";") for one in named_queries().values())])
def test_what_reads_the_case_is_allowed(sql: str) -> None:
    check_reading(sql, TABLES)


@pytest.mark.parametrize("sql", BAD)
def test_what_may_do_more_is_refused(sql: str) -> None:
    with pytest.raises(QueryError):
        check_reading(sql, TABLES)


@pytest.mark.parametrize(
    "master", ["spark://127.0.0.1:9", "sc://127.0.0.1:9", "spark://no.such.host.invalid:7077"]
)
def test_a_cluster_that_cannot_be_reached_is_said_soon(master: str) -> None:
    pytest.importorskip("pyspark", reason="Spark needs the extra `spark`")
    from ospltool.analytics.case import CaseError
    from ospltool.analytics.spark import session

    begun = time.monotonic()
    with pytest.raises(CaseError, match="cannot be reached"):
        session(master)
    assert time.monotonic() - begun < 30
