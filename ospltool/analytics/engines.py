"""The interface of engines that query a case."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from ospltool.output.installation import extra_command

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

ROWS_AT_ONCE: Final = 5_000

MOST_TASKS: Final = 10_000
"""Tasks of one stage of Spark, whose scheduler takes milliseconds for each."""

TASK_RECORDS: Final = 1_500_000
"""Records of small domains that a task judges: some seconds, as a task of the load takes."""


class AnalyticsMissingError(Exception):
    """A package that an engine needs is not installed; the message says how to install it."""


class QueryError(Exception):
    """An engine refused a query; the message is the engine's."""


@dataclasses.dataclass(frozen=True, slots=True)
class Result:
    """The result of a query.

    Attributes:
        columns: names of the columns.
        rows: the rows, as they come.
    """

    columns: tuple[str, ...]
    rows: Iterator[tuple[object, ...]]


class Engine(Protocol):
    """An engine that queries the tables of a case."""

    def query(self, sql: str) -> Result:
        """Run a query.

        Raises:
            QueryError: the engine refused it.
        """

    def columns(self, sql: str) -> Iterator[tuple[Sequence[Any], ...]]:
        """Run a query of texts, integers, truth values and maps; fast for many rows.

        It returns some rows at a time, as the values of each column.

        Raises:
            QueryError: the engine refused it.
        """

    def batches(self, sql: str) -> Iterator[pa.RecordBatch]:
        """Run such a query; return some rows at a time as columns of Arrow, at least one.

        Raises:
            QueryError: the engine refused it.
        """

    def own_query(self, sql: str) -> Result:
        """Run a query of our own, which is not checked and may have hints for Spark.

        Raises:
            QueryError: the engine failed.
        """

    def show_domain(self, domain: str) -> None:
        """Show only the rows of one domain to the queries that follow."""

    def close(self) -> None:
        """Close the engine."""


Columns = Mapping[str, Sequence[Any]]
"""Rows as columns, by name."""

DomainWork = Callable[[str, "Iterator[pa.RecordBatch]"], Iterator[Columns]]
"""Makes rows of the name of a domain and of its rows."""


@runtime_checkable
class FleetEngine(Engine, Protocol):
    """An engine of many machines, which do the work of each domain."""

    @property
    def page(self) -> str:
        """The address of its own page about its work; empty if there is none."""

    def by_domain(
        self, query: str, order: Sequence[str], sizes: Mapping[str, int], work: DomainWork, schema: str
    ) -> Iterator[tuple[Any, ...]]:
        """Yield the rows that a function makes of those of each domain that has any.

        Args:
            query: SQL of our own, whose rows have a column `domain`.
            order: columns by which the rows are sorted, nothing first, `domain` being the first.
            sizes: records of each domain, by which tasks get about equal shares.
            work: travels to the machines that do it.
            schema: the columns of what it makes, as `name type, ...`.

        Raises:
            QueryError: the engine failed.
        """


class Tables(Protocol):
    """SQL of our own on Parquet files, on this machine or on a cluster.

    Attributes:
        row_number: expression for the number of a row in its file; empty if there is none.
    """

    row_number: str

    def parquet(self, path: Path) -> str:
        """Return a file as a part of FROM."""

    def view(self, name: str, query: str) -> None:
        """Name a query.

        Raises:
            QueryError: the engine refused it; likewise below.
        """

    def keep(self, name: str, query: str) -> None:
        """Make a table of the result of a query, so that it is not asked again."""

    def fill(self, name: str, rows: pa.Table) -> None:
        """Make a table of rows."""

    def rows(self, query: str) -> Iterator[tuple[Any, ...]]:
        """Yield the result of a query."""

    def close(self) -> None:
        """Forget all tables."""


_UNLIKE: Final = re.compile(r"(['\\\\$])")


def literal(text: str) -> str:
    """Return a text as an expression of SQL that is the same for every engine.

    Quotes, backslashes and dollar signs come as their numbers: Spark takes two quotes for the end of a text
    and the beginning of the next, a backslash before a quote for an escape, and a dollar sign for a variable.
    """
    parts = [part for part in _UNLIKE.split(text) if part]
    written = [f"chr({ord(part)})" if _UNLIKE.fullmatch(part) else f"'{part}'" for part in parts]
    return f"concat({', '.join(written)})" if len(written) > 1 else "".join(written) or "''"


def literals(texts: Iterable[str]) -> str:
    """Return texts as a list in SQL, without brackets."""
    return ", ".join(map(literal, texts))


def need(module: str, extra: str) -> None:
    """Check that a module is installed.

    Raises:
        AnalyticsMissingError: it is not.
    """
    if importlib.util.find_spec(module) is None:
        raise AnalyticsMissingError(f"this needs {module}: `{extra_command(extra)}`")
