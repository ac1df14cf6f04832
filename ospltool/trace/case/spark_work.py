"""Reads the parts of files with Spark, for a case that grows: each task writes the files of one part.

A task writes into a directory of its own attempt, and only the attempt whose result reaches the driver
counts. So a task that Spark repeats leaves nothing twice.
"""

from __future__ import annotations

import pathlib
import pickle
import shutil
import uuid
from collections.abc import Iterator
from typing import Any, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # a part of pyspark without types
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ospltool.analytics.case import CaseError
from ospltool.analytics.spark import ship_package
from ospltool.trace.case.adding import Work
from ospltool.trace.case.local_load import Job, Loaded, load_range
from ospltool.trace.case.spark_load import for_workers
from ospltool.trace.reading.ranges import Range
from ospltool.trace.reading.sources import SourceError

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
            part, directory, name, _ = jobs[number]
            found = pickle.loads(result)  # noqa: S301 - made by _Jobs
            if isinstance(found, str):
                raise SourceError(found)
            _take(directory / place, directory)
            yield name, part, found
        for left in jobs[0][1].glob(f"{_ATTEMPT}*"):
            shutil.rmtree(left, ignore_errors=True)

    return do


def _results(opened: SparkSession, jobs: list[Job]) -> list[Any]:
    try:
        opened.dataSource.register(PartWork)
        reader = opened.read.format(PartWork.name())
        for number, (part, directory, name, detail) in enumerate(jobs):
            job = pickle.dumps((number, for_workers(part), str(directory.absolute()), name, detail))
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
        number, part, directory, name, detail = pickle.loads(  # noqa: S301 - made by _results
            bytes.fromhex(partition.value)
        )
        place = f"{_ATTEMPT}{uuid.uuid4().hex}"
        try:
            found: Loaded | str = load_range(part, pathlib.Path(directory, place), name, detail)
        except SourceError as cause:
            found = str(cause)
        yield number, place, pickle.dumps(found)


def _take(attempt: pathlib.Path, directory: pathlib.Path) -> None:
    """Move the files of an attempt to where those of other loads are."""
    for path in attempt.rglob("*.parquet"):
        place = directory / path.relative_to(attempt)
        place.parent.mkdir(parents=True, exist_ok=True)
        path.replace(place)
