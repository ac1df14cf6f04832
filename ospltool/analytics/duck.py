"""DuckDB: answers queries on this machine, and keeps a case in one file."""

from __future__ import annotations

import contextlib
import tempfile
from typing import TYPE_CHECKING, Final

import duckdb

from ospltool.analytics.case import Case, CaseError
from ospltool.analytics.contract import COLUMNS, PARTITIONS, Table
from ospltool.analytics.engines import ROWS_AT_ONCE, QueryError, Result

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterator

_SETTINGS: Final = {
    "autoinstall_known_extensions": "false",  # nothing is fetched from anywhere
    "autoload_known_extensions": "false",
}

_READING: Final = (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN)


class DuckEngine:
    """Queries on a case, which is only read.

    A query can reach nothing but the case: no other files, no network, no settings.

    Raises:
        CaseError: the case cannot be opened.
    """

    def __init__(self, case: Case) -> None:
        self._scratch = tempfile.TemporaryDirectory(prefix="ospltool-sql-")
        try:
            self._connection = _opened(case, self._scratch.name)
        except BaseException:
            self._scratch.cleanup()
            raise

    def query(self, sql: str) -> Result:
        """The answer to a query.

        Raises:
            QueryError: DuckDB refused it.
        """
        try:
            statements = self._connection.extract_statements(sql)
            if len(statements) != 1 or statements[0].type not in _READING:
                raise QueryError("one query at a time, and only what reads: a case is not changed")
            cursor = self._connection.execute(statements[0])
        except duckdb.Error as cause:
            raise QueryError(str(cause)) from None
        columns = tuple(str(column[0]) for column in cursor.description or ())
        return Result(columns, _rows(cursor))

    def close(self) -> None:
        """Closes the case."""
        self._connection.close()
        self._scratch.cleanup()


def _opened(case: Case, scratch: str) -> duckdb.DuckDBPyConnection:
    """A connection that reaches the case and its own scratch space, and no more."""
    try:
        if case.is_directory:
            connection = duckdb.connect(config=_config())
        else:
            connection = duckdb.connect(str(case.path), read_only=True, config=_config())
    except duckdb.Error as cause:
        raise CaseError(f"{case.path}: {_first_line(cause)}") from None
    try:
        if case.is_directory:
            _make_views(connection, case)
        else:
            _check_tables(connection, case)
        directory = _quoted(str(case.path.absolute()))
        connection.execute(f"set temp_directory = {_quoted(scratch)}")
        connection.execute(f"set allowed_directories = [{directory}, {_quoted(scratch)}]")
        connection.execute("set enable_external_access = false")
        connection.execute("set lock_configuration = true")
    except duckdb.Error as cause:
        connection.close()
        raise CaseError(f"{case.path}: {_first_line(cause)}") from None
    except CaseError:
        connection.close()
        raise
    return connection


def _rows(cursor: duckdb.DuckDBPyConnection) -> Iterator[tuple[object, ...]]:
    try:
        while rows := cursor.fetchmany(ROWS_AT_ONCE):
            yield from rows
    except duckdb.Error as cause:
        raise QueryError(str(cause)) from None


def _config() -> dict[str, str | bool | int | float | list[str]]:
    return dict(_SETTINGS)


def _make_views(connection: duckdb.DuckDBPyConnection, case: Case) -> None:
    for table in Table:
        connection.execute(f"create view {table} as {_select(case, table)}")


def _select(case: Case, table: Table) -> str:
    """What reads a table of Parquet files. The values of its partitions are text."""
    files = _quoted(case.files(table))
    parts = PARTITIONS.get(table, ())
    types = ", ".join(f"{_quoted(name)}: 'VARCHAR'" for name in parts)
    hive = f", hive_partitioning = true, hive_types = {{{types}}}" if parts else ", hive_partitioning = false"
    names = ", ".join((*parts, *(name for name, _, _ in COLUMNS[table])))
    return f"select {names} from read_parquet({files}{hive})"  # noqa: S608 - made of our own names


def _check_tables(connection: duckdb.DuckDBPyConnection, case: Case) -> None:
    there = {str(name) for (name,) in connection.execute("select table_name from duckdb_tables()").fetchall()}
    missing = [table.value for table in Table if table.value not in there]
    if missing:
        raise CaseError(f"{case.path}: no case, it has no table {', '.join(missing)}")


def pack(case: Case, target: pathlib.Path) -> None:
    """Writes a case of Parquet files as one DuckDB file.

    Raises:
        CaseError: it cannot be written.
    """
    try:
        with contextlib.closing(duckdb.connect(str(target), config=_config())) as connection:
            for table in Table:
                connection.execute(f"create table {table} as {_select(case, table)}")
    except duckdb.Error as cause:
        raise CaseError(f"{target}: {_first_line(cause)}") from None


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _first_line(cause: Exception) -> str:
    return str(cause).partition("\n")[0]
