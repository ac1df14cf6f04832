"""A query for Spark reads the tables of the case: no files, no programs, no Java, and it writes nothing."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="Spark needs the extra `spark`")

from ospltool.analytics.engines import QueryError
from ospltool.analytics.show import named_queries
from ospltool.analytics.spark import check_reading

TABLES = frozenset({"records", "sources", "templates", "facts", "verdicts", "stories"})
GOOD = (
    "select 1",
    "select * from records",
    "-- a comment\nselect text from records where text like 'insert into %' -- more",
    "with q as (select node from records), r(a) as (select * from q) select a from r join q on a = node",
    "select r.node, t.level from records r, templates as t where r.template = t.id",
    "select count(*) filter (where level = 'INFO') over (partition by node) from records",
    "select extract(year from current_date), trim(both 'x' from text) from records",
    "select * from (select * from records) q where a is distinct from b",
    "select count(*) from (select distinct node from records) q",
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
    "with recursive q(n) as (select 1 union all select n + 1 from q where n < 5) select * from q",
    "select * from records r join sources s on r.node is not distinct from s.node and r.file = s.file",
    "select node, count(*) from records where a <> '' group by node, file having count(*) > 1 order by 1, 2",
    "select sum(off) over w from records window w as (partition by node order by off)",
    "select distinct node from records where node in (select node from sources where kind = 'a' limit 1)",
    "select window(stamp, '5 minutes'), left(node, 1) from records where left(node, 1) = 'n'",
    "select listagg(node, ',') within group (order by node) from records",
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
    "select * from (select distinct from text.passwd)",
    "select * from (select distinct join text.passwd)",
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
    "select /*+ broadcast(x) */ 1",
    "select 1 /* ' */ , reflect('a') -- '",
    "select * from other",
    "select * from spark_catalog.default.records",
    "select * from records |> join text.passwd",
    "select ''' || reflect('a') --'",
    "select to_json(struct(*)) distinct from text.passwd",
    "select 1 distinct from other",
    "select not distinct from other",
    "select to_json(struct(*)) as is, is distinct from text.passwd",
    "select is not distinct from other",
    "select is distinct from other",
    "select * from records r join sources s on r.a is distinct from s.a join text.passwd",
    "select * from records where, text.passwd",
    "select * from records where (a), text.passwd",
    "select * from records as where, text.passwd",
    "select * from records limit, text.passwd",
    "select * from records having (a, b), text.passwd",
    "select * from records qualify (a), text.passwd",
    "select * from records group, text.passwd",
    "select * from records order (a), text.passwd",
    "select * from records window, text.passwd",
    "select * from records window (a), text.passwd",
    "select * from records select, text.passwd",
    "select * from records select (a), text.passwd",
    "from (select 1) select (a), text.passwd",
    "select * from records where join text.passwd",
    "select * from records offset left join text.passwd",
    "select * from records where lateral join text.passwd",
    "with other as (select * from other) select * from other",
    "with a as (select * from other), other as (select 1) select * from a",
    "with recursive q as (select 1) select * from (with other as (select * from other) select * from other)",
    "select * from (select 1 where exists (with other as (select 1) select * from other)) x, other",
    "with select as (select 1) select * from (select (a), text.passwd)",
    "with where as (select 1) select * from (where, text.passwd)",
    "select * from lateral other",
    "select * from records, lateral other",
    "select * from records join lateral text.passwd",
    "select * from records join join",
    "",
    "select REFLECT('a', 'b')",
    "select /**/reflect/**/('a', 'b')",
    "select 1 /* /* */ */ , reflect('a') /* */",
    "select * replace (reflect('a', 'b') as node) from records",
    "select node from records order by reflect('a', 'b')",
    "select count(*) filter (where reflect('a', 'b')) from records",
    "select sum(off) over (partition by reflect('a', 'b')) from records",
    "select * from records pivot (reflect('a') for node in ('x'))",
    "select interval (reflect('a', 'b')) day",
    "select cast(reflect('a', 'b') as date format 'x')",
    "select transform_values(fields, (k, v) -> reflect(k, v)) from records",
    "select fields[reflect('a', 'b')] from records",
    "select case when reflect('a', 'b') then 1 end",
    "select * from (values (reflect('a', 'b'))) t(a)",
    "select * from range(reflect('a', 'b'))",
    "select * from records, lateral reflect('a')",
    "select * from records lateral view reflect('a') t as x",
    "select r.reflect('a') from records r",
    "select session.reflect('a')",
    "select refle\ufb06('a')",
    "select input_file_name()",
    "select raise_error('a')",
    "select from_avro(text, 'a') from records",
    "with function f() returns int return 1 select f()",
    "select * from read_files('/etc/passwd')",
    "select * from stream(records)",
    "select * from records version as of 1",
    "select * from records for update",
    "select * from `text`.`passwd`",
    "select * from `text.passwd`",
    "select * from 'text.passwd'",
    "select text.passwd from records r",
    "select (select 1 from text.passwd)",
    "select 1 union select * from text.passwd",
    "with q as (delete from records) select 1",
    "select * into outfile 'x' from records",
    "execute immediate 'select 1'",
    "call system.x()",
    "declare x int",
    "cache table x as select 1",
    "select :p",
    "select ?",
    "select @x",
    "select \x00 1",
    "select 'a' -- \\\n 'b'",
    "explain explain select 1",
    "explain analyze table records compute statistics",
    "select " + "(" * 3_000 + "1" + ")" * 3_000,
)


@pytest.mark.parametrize("sql", [*GOOD, *(one.sql.strip().rstrip(";") for one in named_queries().values())])
def test_what_reads_the_case_is_allowed(sql: str) -> None:
    check_reading(sql, TABLES)


@pytest.mark.parametrize("sql", BAD)
def test_what_may_do_more_is_refused(sql: str) -> None:
    with pytest.raises(QueryError):
        check_reading(sql, TABLES)


@pytest.mark.parametrize(
    ("sql", "sent"),
    [
        ("-- \\\nselect 1", "select 1"),
        ("select 1 -- \\\n /* \n , reflect('a') -- */", "select 1"),
        ("select 1 /* /* */ , reflect('a') */", "select 1"),
        ("explain -- a\n select 1L, 'a'", "explain select 1L, 'a'"),
        ("-- a\nEXPLAIN extended select  1 /**/", "EXPLAIN extended select 1"),
    ],
)
def test_comments_are_not_sent(sql: str, sent: str) -> None:
    """Spark ends some of them elsewhere: a backslash before the end of a line goes on with the comment."""
    assert check_reading(sql, TABLES).split() == sent.split()


@pytest.mark.parametrize(
    "master", ["spark://127.0.0.1:9", "sc://127.0.0.1:9", "spark://no.such.host.invalid:7077"]
)
def test_a_cluster_that_cannot_be_reached_is_said_before_spark_starts(
    master: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ospltool.analytics.case import CaseError
    from ospltool.analytics.spark import session

    def starts(builder: object) -> None:
        raise AssertionError("Spark would try for a minute")

    monkeypatch.setattr("pyspark.sql.SparkSession.Builder.getOrCreate", starts)
    with pytest.raises(CaseError, match="cannot be reached"):
        session(master)
