"""DuckDB: answers queries on this machine, and keeps a case in one file."""

from __future__ import annotations

import contextlib
import dataclasses
import glob
import pathlib
import re
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any, Final

import duckdb
import pyarrow as pa

from ospltool.analytics.case import Case, CaseError
from ospltool.analytics.columns import values_of
from ospltool.analytics.contract import PARTITIONS, Table, columns_of, no_rows, schema, tables_by_domain
from ospltool.analytics.engines import ROWS_AT_ONCE, QueryError, Result, literal
from ospltool.output.locations import is_remote, of_arrow

_SETTINGS: Final = {
    "autoinstall_known_extensions": "false",  # nothing is fetched from anywhere
    "autoload_known_extensions": "false",
    "memory_limit": "600MB",
}
_FRUGAL: Final = {"memory_limit": "200MB", "threads": "1"}
"""For queries whose rows Python takes one by one: more threads wait for it, and keep what they have freed."""

SQL_TYPES: Final = {
    "string": "varchar",
    "int64": "bigint",
    "bool": "boolean",
    "map": "map(varchar, varchar)",
}

NO_PROGRESS: Final = "set enable_progress_bar = false"
"""A query that takes more than two seconds would print its progress into the answer."""

COLUMNS_AT_ONCE: Final = 20_000
"""Rows."""
_EXPLAIN: Final = re.compile(r"\s*explain(?:\s+analyze)?(?:\s*\([\w\s,]*\))?(?=\s)", re.IGNORECASE)
"""What begins a statement that is explained; comments would hide where it ends."""
_SPECIAL: Final = re.compile(r"[*?\[=]")
"""Characters of a path that are a pattern, or name a partition."""


class DuckEngine:
    """Queries a case, and only reads it.

    A query can reach nothing but the case: no other files, no network, no settings.

    Args:
        case: the case.
        is_frugal: whether to take half of the memory and one processor.

    Raises:
        CaseError: the case cannot be opened.
    """

    def __init__(self, case: Case, *, is_frugal: bool = False) -> None:
        self._scratch = tempfile.TemporaryDirectory(prefix="ospltool-sql-")
        self._queries = 0
        try:
            self._connection = _opened(case, self._scratch.name, is_frugal=is_frugal)
        except BaseException:
            self._scratch.cleanup()
            raise

    def query(self, sql: str) -> Result:
        """Run a query.

        Raises:
            QueryError: DuckDB refused it.
        """
        try:
            cursor = self._connection.execute(self._one(sql))
        except duckdb.Error as cause:
            raise QueryError(str(cause)) from None
        columns = tuple(str(column[0]) for column in cursor.description or ())
        self._queries += 1
        return Result(columns, self._rows(cursor, self._queries))

    def _rows(self, cursor: duckdb.DuckDBPyConnection, number: int) -> Iterator[tuple[object, ...]]:
        """Yield the rows of the query with that number; who stops early leaves the connection free."""
        try:
            while number == self._queries and (rows := cursor.fetchmany(ROWS_AT_ONCE)):
                yield from rows
        except duckdb.Error as cause:
            raise QueryError(str(cause)) from None
        except GeneratorExit:
            if number == self._queries:
                cursor.abort()
            raise
        if number != self._queries:
            raise QueryError("another query was asked before all rows of this one were read")

    def columns(self, sql: str) -> Iterator[tuple[Sequence[Any], ...]]:
        """Run a query and return its columns through Arrow, in a tenth of the time of `query`.

        Raises:
            QueryError: DuckDB refused it.
        """
        for rows in self.batches(sql):
            yield tuple(values_of(column) for column in rows.columns)

    own_query = query

    def batches(self, sql: str) -> Iterator[pa.RecordBatch]:
        """Run a query and return its rows as columns of Arrow, some at a time.

        Raises:
            QueryError: DuckDB refused it.
        """
        try:
            with contextlib.closing(
                self._connection.sql(self._one(sql)).to_arrow_reader(COLUMNS_AT_ONCE)
            ) as batches:
                yield from batches
        except duckdb.Error as cause:
            raise QueryError(str(cause)) from None

    def _one(self, sql: str) -> duckdb.Statement:
        """Return the statement of a text that is one query, or explains one: `explain analyze` runs it."""
        statements = self._connection.extract_statements(sql)
        read = statements
        if len(read) == 1 and read[0].type is duckdb.StatementType.EXPLAIN:
            told = _EXPLAIN.match(sql)
            read = self._connection.extract_statements(sql[told.end() :]) if told else []
        if len(read) != 1 or read[0].type is not duckdb.StatementType.SELECT:
            raise QueryError("one query at a time, and only what reads: a case is not changed")
        return statements[0]

    def show_domain(self, domain: str) -> None:
        """Show only the rows of one domain; temporary views hide the tables of the case."""
        name = str(self._connection.execute("select current_database()").fetchall()[0][0])
        database = '"' + name.replace('"', '""') + '"'
        for table in tables_by_domain():
            rows = f"select * from {database}.main.{table} where domain = {literal(domain)}"  # noqa: S608 - made of our own names
            self._connection.execute(f"create or replace temp view {table} as {rows}")

    def close(self) -> None:
        """Close the case."""
        self._connection.close()
        self._scratch.cleanup()


def _opened(case: Case, scratch: str, *, is_frugal: bool) -> duckdb.DuckDBPyConnection:
    """Open a connection that can reach only the case and its own scratch space."""
    try:
        if case.is_directory:
            connection = duckdb.connect(config=_config(is_frugal=is_frugal))
        else:
            connection = duckdb.connect(str(case.path), read_only=True, config=_config(is_frugal=is_frugal))
    except duckdb.Error as cause:
        raise CaseError(f"{case.path}: {_first_line(cause)}") from None
    try:
        if case.is_directory:
            case = _plainly_named(case, scratch)
            _make_views(connection, case)
        else:
            _check_tables(connection, case)
        places = [scratch] if is_remote(case.path) else [str(case.path.absolute()), scratch]
        connection.execute(NO_PROGRESS)
        connection.execute(f"set temp_directory = {literal(scratch)}")
        connection.execute(f"set allowed_directories = [{', '.join(map(literal, places))}]")
        connection.execute("set enable_external_access = false")
        connection.execute("set lock_configuration = true")
    except duckdb.Error as cause:
        connection.close()
        raise CaseError(f"{case.path}: {_first_line(cause)}") from None
    except CaseError:
        connection.close()
        raise
    return connection


def _plainly_named(case: Case, scratch: str) -> Case:
    """Return a case under a name that is no pattern and has no partitions, such as `day=5`."""
    if is_remote(case.path) or not _SPECIAL.search(str(case.path)):
        return case
    link = pathlib.Path(scratch, "case")
    link.symlink_to(case.path.absolute())
    return dataclasses.replace(case, path=link)


def _config(*, is_frugal: bool = False) -> dict[str, str | bool | int | float | list[str]]:
    return {**_SETTINGS, **(_FRUGAL if is_frugal else {})}


def _make_views(connection: duckdb.DuckDBPyConnection, case: Case) -> None:
    for table in Table:
        if is_remote(case.path) and case.files(table):
            connection.register(f"{table}_files", _dataset(case, table))
            query = f"select {', '.join(columns_of(table))} from {table}_files"  # noqa: S608 - our own names
            connection.execute(f"create temp view {table} as {query}")
        else:
            connection.execute(f"create view {table} as {_select(case, table)}")


def _dataset(case: Case, table: Table) -> Any:
    """Return the Parquet files of a table on another file system, of which DuckDB reads what it needs."""
    from pyarrow import dataset  # only for these

    places = [of_arrow(path) for path in case.files(table)]
    names = pa.schema([(name, pa.string()) for name in PARTITIONS.get(table, ())])
    return dataset.dataset(
        [place for place, _ in places],
        schema=pa.unify_schemas([schema(table), names]),
        filesystem=places[0][1],
        format="parquet",
        partitioning=dataset.partitioning(names, flavor="hive"),
    )


def _select(case: Case, table: Table) -> str:
    """Return SQL that reads a table of Parquet files; the values of its partitions are text."""
    paths = case.files(table)
    if not paths:
        return no_rows(table, SQL_TYPES)
    files = f"[{', '.join(literal(glob.escape(str(path))) for path in paths)}]"
    parts = PARTITIONS.get(table, ())
    types = ", ".join(f"{literal(name)}: 'VARCHAR'" for name in parts)
    hive = f", hive_partitioning = true, hive_types = {{{types}}}" if parts else ", hive_partitioning = false"
    names = ", ".join(columns_of(table))
    return f"select {names} from read_parquet({files}{hive})"  # noqa: S608 - made of our own names


def _check_tables(connection: duckdb.DuckDBPyConnection, case: Case) -> None:
    found = connection.execute("select table_name, column_name from duckdb_columns()").fetchall()
    there = {(str(table), str(column)) for table, column in found}
    for table in Table:
        missing = [name for name in columns_of(table) if (table.value, name) not in there]
        if missing:
            raise CaseError(f"{case.path}: no case, table {table} has no column {', '.join(missing)}")


class DuckTables:
    """See `ospltool.analytics.engines.Tables`; it uses the disk if memory does not suffice.

    Args:
        memory_bytes: most memory that it takes.
    """

    row_number = "file_row_number"

    def __init__(self, memory_bytes: int) -> None:
        self._scratch = tempfile.TemporaryDirectory(prefix="ospltool-sql-")
        config = _config() | {
            "temp_directory": self._scratch.name,
            "memory_limit": f"{memory_bytes >> 20}MiB",
            "preserve_insertion_order": False,
        }
        self._connection = duckdb.connect(config=config)
        self._run(NO_PROGRESS)

    def parquet(self, path: pathlib.Path) -> str:
        """Return a file as a part of FROM."""
        name = literal(glob.escape(str(path.absolute())))
        return f"read_parquet({name}, hive_partitioning = false, file_row_number = true)"

    def view(self, name: str, query: str) -> None:
        """Name a query."""
        self._run(f"create or replace temp view {name} as {query}")

    def keep(self, name: str, query: str) -> None:
        """Make a table of the result of a query."""
        self._run(f"create or replace temp table {name} as {query}")

    def fill(self, name: str, rows: pa.Table) -> None:
        """Make a table of rows."""
        self._connection.register(name, rows)

    def rows(self, query: str) -> Iterator[tuple[Any, ...]]:
        """Yield the result of a query."""
        cursor = self._run(query)
        try:
            while rows := cursor.fetchmany(ROWS_AT_ONCE):
                yield from rows
        except duckdb.Error as cause:
            raise QueryError(str(cause)) from None

    def _run(self, sql: str) -> duckdb.DuckDBPyConnection:
        try:
            return self._connection.execute(sql)
        except duckdb.Error as cause:
            raise QueryError(str(cause)) from None

    def close(self) -> None:
        """Close the database, and remove its scratch files."""
        self._connection.close()
        self._scratch.cleanup()


def pack(case: Case, target: pathlib.Path) -> None:
    """Write a case of Parquet files as one DuckDB file.

    Raises:
        CaseError: it cannot be written.
    """
    try:
        with contextlib.closing(duckdb.connect(str(target), config=_config())) as connection:
            connection.execute(NO_PROGRESS)
            for table in Table:
                connection.execute(f"create table {table} as {_select(case, table)}")
    except duckdb.Error as cause:
        raise CaseError(f"{target}: {_first_line(cause)}") from None


def _first_line(cause: Exception) -> str:
    return str(cause).partition("\n")[0]
