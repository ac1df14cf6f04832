"""The choice of the engine that queries a case."""

from __future__ import annotations

from ospltool.analytics.case import Case
from ospltool.analytics.engines import Engine, need


def open_engine(case: Case, engine: str, master: str) -> Engine:
    """Open the engine with a name (`duckdb` or `spark`) for a case. Spark runs on `master`.

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
