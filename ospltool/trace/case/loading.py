"""Loads a case with the local engine or Spark, into a directory or a DuckDB file."""

from __future__ import annotations

import functools
import pathlib
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from threading import Event
from typing import TYPE_CHECKING

from ospltool.analytics.case import FILE_SUFFIXES, CaseError, open_case
from ospltool.analytics.contract import Detail
from ospltool.analytics.engines import need
from ospltool.output.progress import ProgressLine
from ospltool.trace.case.growing import add
from ospltool.trace.case.local_load import LoadCounts, work
from ospltool.trace.reading.ranges import RANGE_BYTES
from ospltool.trace.reading.sources import TraceFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ospltool.output.documents import LoadedCase


def load_case(
    sources: Sequence[TraceFile],
    target: pathlib.Path,
    detail: Detail,
    spark_master: str | None = None,
    progress: ProgressLine | None = None,
    *,
    range_bytes: int = RANGE_BYTES,
    opened: SparkSession | None = None,
) -> LoadCounts:
    """Load sources into a new case: a directory of Parquet files, or one DuckDB file.

    Args:
        sources: files to load.
        target: the case; a DuckDB file must not exist, a directory may be a case.
        detail: columns to fill.
        spark_master: load with Spark on this master or Connect URL; None loads on this machine.
        progress: shows the progress.
        range_bytes: bytes of a file that one process or task reads.
        opened: a session of Spark that runs already, used in place of a new one.

    Raises:
        CaseError: the target is there already, or cannot be written.
        SourceError: a source cannot be read.
    """
    if target.suffix not in FILE_SUFFIXES:
        _refuse_link(target)
        if spark_master is None:
            return load(sources, target, detail, progress=progress, range_bytes=range_bytes)
        need("pyspark", "spark")
        from ospltool.trace.case.spark_load import load_with_spark

        return load_with_spark(
            sources, target, detail, spark_master, progress, range_bytes=range_bytes, opened=opened
        )
    if target.exists() or target.is_symlink():
        raise CaseError(f"{target}: exists already")
    from ospltool.analytics.duck import pack

    try:
        with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.absolute().parent) as scratch:
            directory = pathlib.Path(scratch)
            summary = load_case(sources, directory / "case", detail, spark_master, progress)
            pack(open_case(directory / "case"), directory / "packed")
            (directory / "packed").chmod(0o600)
            (directory / "packed").rename(target)
    except OSError as cause:
        raise CaseError(f"{target}: {cause.strerror or cause}") from None
    return summary


def _refuse_link(target: pathlib.Path) -> None:
    if target.is_symlink():
        raise CaseError(f"{target}: a symbolic link, which is not followed; name the directory itself")


def load(
    sources: Sequence[TraceFile],
    target: pathlib.Path,
    detail: Detail = Detail.FULL,
    *,
    processes: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    range_bytes: int = RANGE_BYTES,
) -> LoadCounts:
    """Load sources into a new case, or add their new records to a case (see `ospltool.trace.case.growing`).

    Args:
        sources: files to load.
        target: directory of the case; a case is added to, otherwise it must not exist.
        detail: columns to fill.
        processes: number of processes; by default one for each core.
        progress: called with the bytes done and the bytes of all files.
        range_bytes: bytes of a file that one process reads.

    Raises:
        CaseError: the target exists and is not a case, or cannot be written.
        SourceError: a source cannot be read.
    """
    do = functools.partial(work, processes=processes, progress=progress)
    return add(sources, target, detail, do, range_bytes=range_bytes)


def follow_case(
    names: Sequence[str],
    target: pathlib.Path,
    detail: Detail,
    spark_master: str | None,
    until: Callable[[], AbstractContextManager[Event]],
    told: Callable[[LoadCounts], None],
) -> LoadCounts:
    """Load files into a case, and what is added to them, until an event is set (see `growing.follow`).

    Args:
        names: files and directories.
        target: the case, a directory; it need not exist.
        detail: columns to fill.
        spark_master: read with Spark on this master or Connect URL; None reads on this machine.
        until: makes the event.
        told: called with the counts of the case after each change.

    Raises:
        AnalyticsMissingError: Spark is not installed.
        CaseError: the case is one file, or cannot be written; or Spark cannot be reached, or failed.
        SourceError: files cannot be read.
    """
    if target.suffix in FILE_SUFFIXES:
        raise CaseError(f"{target}: a case that grows is a directory; give it another name")
    _refuse_link(target)
    from ospltool.trace.case import growing

    what = growing.Following(names, target, detail)
    if spark_master is None:
        with until() as over:
            return growing.follow(what, over.wait, told)
    need("pyspark", "spark")
    from ospltool.analytics.spark import end, session
    from ospltool.trace.case.spark_load import follow_with_spark

    opened = session(spark_master)
    try:
        with until() as over:  # only now: the session has a handler of its own for Ctrl-C
            return follow_with_spark(what, spark_master, opened, over.wait, told)
    finally:
        end(opened)


def as_value(summary: LoadCounts, target: str) -> LoadedCase:
    """Return the counts for JSON."""
    return {
        "case": target,
        "sources": [
            {
                "domain": source.domain,
                "node": source.node,
                "file": source.file,
                "format": source.format.value,
                "bytes": loaded.bytes,
                "records": loaded.records,
                "unparsed_bytes": loaded.unparsed_bytes,
                "unmatched": loaded.unmatched,
            }
            for source, loaded in summary.sources
        ],
    }
