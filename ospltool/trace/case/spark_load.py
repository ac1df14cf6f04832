"""Makes a case with Spark: each task reads some parts of files, and writes their files of the case.

The workers run the same modules as the local load on the same parts. So the record boundaries are exact for
every flavour of trace, byte offsets are known, and both loads make the same rows.

Each attempt at a task writes files of its own, and only those of the attempt whose result reaches the driver
count. So a task that Spark repeats leaves nothing twice.
"""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import pickle
import threading
from collections.abc import Iterator, Sequence
from typing import Any, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # a part of pyspark without types
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ospltool.analytics.case import CaseError
from ospltool.analytics.contract import Detail
from ospltool.analytics.spark import end, session, ship_package
from ospltool.output.progress import ProgressLine
from ospltool.trace.case.bundles import Bundle
from ospltool.trace.case.growing import add
from ospltool.trace.case.local_load import Job, LoadCounts, LoadedBundle, Work, load_bundle
from ospltool.trace.reading.ranges import RANGE_BYTES
from ospltool.trace.reading.sources import SourceError, TraceFile

ASK_EVERY_S: Final = 0.5


def load_with_spark(
    sources: Sequence[TraceFile],
    target: pathlib.Path,
    detail: Detail,
    master: str,
    progress: ProgressLine | None = None,
    *,
    range_bytes: int = RANGE_BYTES,
    opened: SparkSession | None = None,
) -> LoadCounts:
    """Add sources to a case with Spark (see `ospltool.trace.case.growing`), which need not exist.

    Spark starts when there is something to read.

    Args:
        sources: files to load; every machine of the cluster must have them under the same paths.
        target: directory of the case, which every machine has, too.
        detail: columns to fill.
        master: `local[*]`, `spark://host:port` or `sc://host:port`.
        progress: called with the bytes done and the bytes of all files.
        range_bytes: bytes of a file that a task reads.
        opened: a running session, used as it is instead of a new one with `master`.

    Raises:
        CaseError: the target exists and is no case, or cannot be written, or Spark failed.
        SourceError: a file cannot be read.
    """
    with contextlib.ExitStack() as stack:

        def do(jobs: list[Job]) -> Iterator[LoadedBundle]:
            used = opened
            if jobs and used is None:
                used = session(master)
                stack.callback(end, used)
            return spark_work(used, progress)(jobs) if used is not None else iter(())

        is_shared = not master.startswith("local")
        return add(sources, target, detail, do, range_bytes=range_bytes, is_shared=is_shared)


def is_local(opened: SparkSession) -> bool:
    """Return whether a session runs on this machine, as this user."""
    context = getattr(opened, "sparkContext", None) if hasattr(opened, "_jsparkSession") else None
    return context is not None and str(context.master).startswith("local")


def for_workers(bundle: Bundle) -> Bundle:
    """Return the bundle with absolute paths."""
    return tuple(
        dataclasses.replace(
            part,
            source=dataclasses.replace(part.source, path=part.source.path.absolute(), name=part.source.file),
        )
        for part in bundle
    )


class _Watched:
    """Reports the progress of the tasks while they run."""

    def __init__(self, opened: SparkSession, jobs: list[Job], progress: ProgressLine | None) -> None:
        self._size = sum(part.size for bundle, *_ in jobs for part in bundle)
        self._count = max(len(jobs), 1)
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


_JOB: Final = "job"


def spark_work(opened: SparkSession, progress: ProgressLine | None = None) -> Work:
    """Return a worker that does jobs in a session (see `ospltool.trace.case.local_load.work`).

    It raises SourceError if a file cannot be read, and CaseError if Spark failed; `progress` gets the bytes
    done, and of all.
    """
    ship_package(opened)

    def do(jobs: list[Job]) -> Iterator[LoadedBundle]:
        if not jobs:
            return
        for (result,) in _results(opened, jobs, progress):
            found = pickle.loads(result)  # noqa: S301 - made by _Jobs
            if isinstance(found, str):
                raise SourceError(found)
            yield found

    return do


def _results(opened: SparkSession, jobs: list[Job], progress: ProgressLine | None) -> list[Any]:
    try:
        opened.dataSource.register(PartWork)
        reader = opened.read.format(PartWork.name())
        for number, (bundle, directory, detail) in enumerate(jobs):
            job = pickle.dumps((for_workers(bundle), directory.absolute(), detail))
            reader = reader.option(f"{_JOB}{number:08d}", job.hex())
        with _Watched(opened, jobs, progress):
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
        """Return the column of what became of a bundle, or of the error."""
        return "result binary"

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

    def read(self, partition: InputPartition) -> Iterator[tuple[bytes]]:
        """Do a job; yield its result."""
        job: Job = pickle.loads(bytes.fromhex(partition.value))  # noqa: S301 - made by _results
        try:
            found: LoadedBundle | str = load_bundle(*job)
        except SourceError as cause:
            found = str(cause)
        yield (pickle.dumps(found),)
