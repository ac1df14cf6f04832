"""Makes a case with Spark: each task reads a part of a file as columns.

The workers run the same modules as the local load on the same parts. So the record boundaries are exact for
every flavour of trace, byte offsets are known, and both loads make the same rows. Spark repeats a lost task
and discards its output.

For a case that grows, each task writes the files of one part into a directory of its own attempt, and only
the attempt whose result reaches the driver counts. So a task that Spark repeats leaves nothing twice.
"""

from __future__ import annotations

import dataclasses
import pathlib
import pickle
import shutil
import threading
import uuid
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # a part of pyspark without types
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ospltool.analytics.case import CaseError, write_meta, write_table
from ospltool.analytics.contract import NO_HOUR, PARTITIONS, RECORD_COLUMNS, Detail, Table, hour_of, schema
from ospltool.analytics.spark import SQL_TYPES, session, ship_package
from ospltool.output.progress import ProgressLine
from ospltool.trace.case.bundles import Bundle, Loaded, bundles, read_bundle
from ospltool.trace.case.growing import Work
from ospltool.trace.case.local_load import (
    Job,
    LoadCounts,
    LoadedParts,
    load_bundle,
    new_directory,
    source_rows,
    template_rows,
)
from ospltool.trace.reading.damage import FileDamage
from ospltool.trace.reading.ranges import PIECE_BYTES, Range, ranges
from ospltool.trace.reading.record import no_collection
from ospltool.trace.reading.sources import SourceError, TraceFile

RANGE_BYTES: Final = 64 << 20
ASK_EVERY_S: Final = 0.5

DETAIL: Final = "detail"
PART: Final = "part"


def load_with_spark(
    sources: Sequence[TraceFile],
    target: pathlib.Path,
    detail: Detail,
    master: str,
    progress: ProgressLine | None = None,
    *,
    settings: dict[str, str] | None = None,
    range_bytes: int = RANGE_BYTES,
    opened: SparkSession | None = None,
) -> LoadCounts:
    """Load sources into a new case with Spark.

    Args:
        sources: files to load; every machine of the cluster must have them under the same paths.
        target: directory of the case, which every machine has, too. It must not exist, or be empty.
        detail: columns to fill.
        master: `local[*]`, `spark://host:port` or `sc://host:port`.
        progress: called with the bytes done and the bytes of all files.
        settings: further settings for Spark.
        range_bytes: bytes of a file that a task reads.
        opened: a running session, used as it is instead of a new one with `master` and `settings`.

    Raises:
        CaseError: the target exists, or Spark failed.
    """
    if opened is not None:
        return _load(opened, sources, target, detail, progress, range_bytes)
    opened = session(master, settings)
    try:
        return _load(opened, sources, target, detail, progress, range_bytes)
    finally:
        opened.stop()


def _load(
    opened: SparkSession,
    sources: Sequence[TraceFile],
    target: pathlib.Path,
    detail: Detail,
    progress: ProgressLine | None,
    range_bytes: int,
) -> LoadCounts:
    parts = bundles(
        (part for source in sources for part in ranges(source, range_bytes)), min(range_bytes, PIECE_BYTES)
    )
    with new_directory(target, is_shared=not is_local(opened)) as directory:
        try:
            ship_package(opened)
            with _Watched(opened, parts, progress):
                _write_records(opened, parts, directory, detail)
            found = _what_was_found(opened, directory)
        except PySparkException as cause:
            raise CaseError(f"{target}: {str(cause).strip().partition(chr(10))[0]}") from None
        summary = LoadCounts(
            tuple((source, found.get((source.node, source.file), Loaded())) for source in sources)
        )
        write_table(directory, Table.SOURCES, source_rows(summary, detail))
        write_table(directory, Table.TEMPLATES, template_rows())
        ledger = LoadedParts(sources)
        for source, loaded in summary.sources:
            ledger.note("", Range(source, 0, None, 0), loaded)
        write_meta(directory, detail, ledger.files())
    return summary


def is_local(opened: SparkSession) -> bool:
    """Return whether a session runs on this machine, as this user."""
    context = getattr(opened, "sparkContext", None) if hasattr(opened, "_jsparkSession") else None
    return context is not None and str(context.master).startswith("local")


def _write_records(
    opened: SparkSession, parts: list[Bundle], directory: pathlib.Path, detail: Detail
) -> None:
    opened.dataSource.register(TraceSource)
    reader = opened.read.format(TraceSource.name()).option(DETAIL, detail.value)
    for number, part in enumerate(parts):
        reader = reader.option(f"{PART}{number:08d}", pickle.dumps(for_workers(part)).hex())
    writer = reader.load().write.partitionBy(*PARTITIONS[Table.RECORDS]).mode("append")
    writer.parquet((directory.absolute() / Table.RECORDS).as_uri())


def for_workers(bundle: Bundle) -> Bundle:
    """Return the bundle with absolute paths."""
    return tuple(
        dataclasses.replace(
            part,
            source=dataclasses.replace(part.source, path=part.source.path.absolute(), name=part.source.file),
        )
        for part in bundle
    )


class TraceSource(DataSource):
    """A source of records for Spark: `spark.read.format("ospltool-trace")`.

    Its options are the parts to read, in a private format.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "ospltool-trace"

    def schema(self) -> str:
        """Return node, hour, and the columns of a case."""
        names = ", ".join(f"`{name}` {SQL_TYPES[kind]}" for name, kind, _ in RECORD_COLUMNS)
        return f"node string, hour string, {names}"

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of all parts, each as a partition."""
        names = sorted(name for name in self.options if name.startswith(PART))
        return _PartReader([self.options[name] for name in names], Detail(self.options[DETAIL]))


class _PartReader(DataSourceReader):
    """Reads parts of sources. Its objects travel to the workers."""

    def __init__(self, parts: list[str], detail: Detail) -> None:
        self._parts = parts
        self._detail = detail

    def partitions(self) -> list[InputPartition]:
        """Return a partition for each part."""
        return [InputPartition(part) for part in self._parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of a bundle."""
        bundle: Bundle = pickle.loads(bytes.fromhex(partition.value))  # noqa: S301 - made by _write_records
        with no_collection():
            for table, hours, _ in read_bundle(bundle, self._detail):
                if len(hours):
                    yield from with_partitions(table, hours, bundle[0].source.node)


def with_partitions(table: pa.Table, hours: Any, node: str) -> list[pa.RecordBatch]:
    """Return the columns of a piece after node and hour, with the types of a case."""
    names = {hour: hour_of(hour) if hour >= 0 else NO_HOUR for hour in set(hours.tolist())}
    columns = [
        pa.array([node] * len(hours), pa.string()),
        pa.array([names[hour] for hour in hours.tolist()], pa.string()),
        *(table.column(field.name).cast(field.type) for field in schema(Table.RECORDS)),
    ]
    whole = pa.table(columns, names=[*PARTITIONS[Table.RECORDS], *(name for name, _, _ in RECORD_COLUMNS)])
    return whole.combine_chunks().to_batches()  # type: ignore[no-any-return]  # pyarrow has no types


def _what_was_found(opened: SparkSession, directory: pathlib.Path) -> dict[tuple[str, str], Loaded]:
    """Count the written records of each source."""
    path = directory / Table.RECORDS
    if not any(path.glob("node=*")):
        return {}
    opened.read.parquet(path.absolute().as_uri()).createOrReplaceTempView("written")
    damages = {
        (row[0], row[1]): FileDamage(row[1], row[2], row[3].partition(": ")[2])
        for row in opened.sql("select node, file, off, text from written where kind = 'damaged'").collect()
    }
    rows = opened.sql(
        "select node, file, sum(length), count(*), sum(case when kind = 'unparsed' then length else 0 end), "
        "sum(case when kind = 'trace' and template is null and level is not null then 1 else 0 end) "
        "from written group by node, file"
    ).collect()
    return {
        (row[0], row[1]): Loaded(
            row[2], row[3], row[4], row[5], (damages[row[0], row[1]],) if (row[0], row[1]) in damages else ()
        )
        for row in rows
    }


class _Watched:
    """Reports the progress of the tasks while they run."""

    def __init__(self, opened: SparkSession, parts: list[Bundle], progress: ProgressLine | None) -> None:
        self._size = sum(part.size for bundle in parts for part in bundle)
        self._count = max(len(parts), 1)
        self._progress = progress
        self._over = threading.Event()
        tracker = getattr(opened, "sparkContext", None) if hasattr(opened, "_jsparkSession") else None
        self._tracker = tracker.statusTracker() if tracker is not None else None
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> None:
        if self._progress is not None and self._tracker is not None:
            self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def _watch(self) -> None:
        assert self._progress is not None  # see __enter__
        assert self._tracker is not None
        while not self._over.wait(ASK_EVERY_S):
            stages = [self._tracker.getStageInfo(stage) for stage in self._tracker.getActiveStageIds()]
            done = sum(stage.numCompletedTasks for stage in stages if stage)
            self._progress(min(done * self._size // self._count, self._size), self._size)


_ATTEMPT: Final = "attempt-"
_JOB: Final = "job"


def spark_work(opened: SparkSession) -> Work:
    """Return a worker that does jobs in a session (see `ospltool.trace.case.local_load.work`).

    It raises SourceError if a file cannot be read, and CaseError if Spark failed.
    """
    ship_package(opened)

    def do(jobs: list[Job]) -> Iterator[tuple[str, Range, Loaded]]:
        if not jobs:
            return
        for number, place, result in _results(opened, jobs):
            bundle, directory, name, _ = jobs[number]
            found = pickle.loads(result)  # noqa: S301 - made by _Jobs
            if isinstance(found, str):
                raise SourceError(found)
            _take(directory / place, directory)
            for part, loaded in zip(bundle, found, strict=True):
                yield name, part, loaded
        for left in jobs[0][1].glob(f"{_ATTEMPT}*"):
            shutil.rmtree(left, ignore_errors=True)

    return do


def _results(opened: SparkSession, jobs: list[Job]) -> list[Any]:
    try:
        opened.dataSource.register(PartWork)
        reader = opened.read.format(PartWork.name())
        for number, (bundle, directory, name, detail) in enumerate(jobs):
            job = pickle.dumps((number, for_workers(bundle), str(directory.absolute()), name, detail))
            reader = reader.option(f"{_JOB}{number:08d}", job.hex())
        return reader.load().collect()
    except PySparkException as cause:
        raise CaseError(f"Spark: {str(cause).strip().partition(chr(10))[0]}") from None
    except (Py4JError, OSError) as cause:
        raise CaseError(f"Spark has ended: {str(cause).strip().partition(chr(10))[0]}") from None


class PartWork(DataSource):
    """A source for Spark whose partitions are jobs, and whose rows are their results.

    Its options are the jobs, in a private format.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "ospltool-work"

    def schema(self) -> str:
        """Return the number of the job, the directory of the attempt, and the counts or the error."""
        return "number bigint, place string, result binary"

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what does the jobs, each as a partition."""
        return _Jobs([self.options[name] for name in sorted(self.options) if name.startswith(_JOB)])


class _Jobs(DataSourceReader):
    """Does jobs. Its objects travel to the workers."""

    def __init__(self, jobs: list[str]) -> None:
        self._jobs = jobs

    def partitions(self) -> list[InputPartition]:
        """Return a partition for each job."""
        return [InputPartition(job) for job in self._jobs]

    def read(self, partition: InputPartition) -> Iterator[tuple[int, str, bytes]]:
        """Do a job; yield its result."""
        number, bundle, directory, name, detail = pickle.loads(  # noqa: S301 - made by _results
            bytes.fromhex(partition.value)
        )
        place = f"{_ATTEMPT}{uuid.uuid4().hex}"
        try:
            found: list[Loaded] | str = load_bundle(bundle, pathlib.Path(directory, place), name, detail)
        except SourceError as cause:
            found = str(cause)
        yield number, place, pickle.dumps(found)


def _take(attempt: pathlib.Path, directory: pathlib.Path) -> None:
    """Move the files of an attempt to where those of other loads are."""
    for path in attempt.rglob("*.parquet"):
        place = directory / path.relative_to(attempt)
        place.parent.mkdir(parents=True, exist_ok=True)
        path.replace(place)
