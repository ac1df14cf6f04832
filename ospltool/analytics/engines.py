"""One face for every engine that answers queries on a case."""

from __future__ import annotations

import dataclasses
import importlib.util
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ospltool.analytics.case import Case

ROWS_AT_ONCE: Final = 5_000


class AnalyticsMissingError(Exception):
    """Something that an engine needs is not installed; the message says what to install."""


class QueryError(Exception):
    """An engine refused a query; the message is the engine's."""


@dataclasses.dataclass(frozen=True, slots=True)
class Result:
    """The answer to a query.

    Attributes:
        columns: names of the columns.
        rows: the rows, as they come.
    """

    columns: tuple[str, ...]
    rows: Iterator[tuple[object, ...]]


class Engine(Protocol):
    """Answers queries on the tables of one case."""

    def query(self, sql: str) -> Result:
        """The answer to a query.

        Raises:
            QueryError: the engine refused it.
        """

    def lines(self, sql: str) -> Iterator[tuple[Any, ...]]:
        """The rows of the answer to a query of texts, integers, truth values and maps; for many rows.

        Raises:
            QueryError: the engine refused it.
        """

    def close(self) -> None:
        """Gives back what the engine holds."""


def open_engine(case: Case, engine: str, master: str) -> Engine:
    """The engine of a name (`duckdb` or `spark`) for a case.

    Raises:
        AnalyticsMissingError: it is not installed.
        CaseError: it cannot read this case.
    """
    if engine == "spark":
        need("pyspark", "spark")
        from ospltool.analytics.spark import SparkEngine

        return SparkEngine(case, master)
    need("duckdb", "sql")
    from ospltool.analytics.duck import DuckEngine

    return DuckEngine(case)


def need(module: str, extra: str) -> None:
    """Checks that a module is installed.

    Raises:
        AnalyticsMissingError: it is not.
    """
    if importlib.util.find_spec(module) is None:
        raise AnalyticsMissingError(f"this needs {module}: pip install 'ospltool[{extra}]'")
