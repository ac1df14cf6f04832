"""`ospltool sql`: query a case with SQL."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ospltool.analytics import show
from ospltool.analytics.case import open_case
from ospltool.analytics.contract import COLUMNS, PARTITIONS, Table
from ospltool.analytics.show import named_queries
from ospltool.cli.exits import CommandError
from ospltool.cli.options import AsJson
from ospltool.cli.trace import EngineOptions, needs_analytics
from ospltool.output import envelope, progress, streams
from ospltool.output.locations import located

if TYPE_CHECKING:
    from ospltool.analytics.engines import Result


def sql(
    case: Annotated[
        str, typer.Argument(metavar="CASE", help="Query this case, made by `ospltool trace load`.")
    ],
    query: Annotated[
        str | None, typer.Argument(metavar="SQL|NAME", help="Run this SQL, or the query with this name.")
    ] = None,
    *,
    list_queries: Annotated[
        bool, typer.Option("--list", help="List the named queries and the tables.")
    ] = False,
    show_query: Annotated[bool, typer.Option("--show", help="Show the SQL of a named query.")] = False,
    reader: EngineOptions,
    form: Annotated[
        Literal["table", "csv", "jsonl"], typer.Option("--format", help="Set the output format.")
    ] = "table",
    limit: Annotated[
        int | None, typer.Option("--limit", min=0, metavar="N", help="Print at most N rows.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Query a case with SQL or a named query. The case does not change.

    Exit codes: 0 success, 2 wrong usage, no such case, or a query that the engine refuses.
    """
    named = named_queries()
    if list_queries or query is None:
        with needs_analytics():
            open_case(located(case))
        _put_list(as_json)
        return
    text = named[query].sql if query in named else query
    if show_query:
        streams.put(text if text.endswith("\n") else f"{text}\n")
        return
    if " " not in query.strip() and query not in named:
        raise CommandError(f"{query!r} is not a named query: see --list")
    streams.wait_for(f"opening {case}")
    with needs_analytics():
        from ospltool.output import progress

        with contextlib.closing(reader.open(open_case(located(case)))) as opened:
            with progress.shown("querying", unit=""):
                result = opened.query(text)
            _put_result(result, "json" if as_json else form, limit)


def put_fleet(case: str, *, as_json: bool) -> None:
    """Print the judged domains of a case by day."""
    sql(case, "fleet", reader=EngineOptions(), as_json=as_json)


def _put_list(as_json: bool) -> None:
    if as_json:
        queries = [{"name": one.name, "about": one.about, "sql": one.sql} for one in named_queries().values()]
        tables = {
            one.value: [
                *({"name": name, "type": "string", "about": "partition"} for name in PARTITIONS.get(one, ())),
                *({"name": name, "type": kind, "about": about} for name, kind, about in COLUMNS[one]),
            ]
            for one in Table
        }
        streams.put(envelope.document("sql-list", {"queries": queries, "tables": tables}))
        return
    streams.put_table(("QUERY", "ANSWERS"), [(one.name, one.about) for one in named_queries().values()])
    for one in Table:
        columns = [(name, "string", "partition") for name in PARTITIONS.get(one, ())] + list(COLUMNS[one])
        streams.put("\n")
        streams.put_table((f"TABLE {one.value}", "TYPE", "MEANING"), columns)


def _put_result(result: Result, form: str, limit: int | None) -> None:
    rows = show.Limited(result.rows, limit)
    pieces = show.FORMATS[form](result.columns, progress.counted(rows))
    with contextlib.closing(progress.awaited(pieces, "querying", "rows")) as awaited:
        for piece in awaited:
            streams.put(piece)
    if rows.left_out:
        streams.notify(f"--limit {limit} left out the other rows")
