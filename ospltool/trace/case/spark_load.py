"""Loads a case with Spark, once or as a stream.

Each task reads some parts of files, and writes their files of the case.

The workers run the same modules as the local load on the same parts. So the record boundaries are exact for
every flavour of trace, byte offsets are known, and both loads make the same rows.

Each attempt at a task writes files of its own, and only those of the attempt whose result reaches the driver
count. So a task that Spark repeats leaves nothing twice.

As a stream, Spark's checkpoint is the one record of what was read. An offset of the source is the state of
all files: of each, how many bytes count and a digest by which another file of the same name is known. A batch
reads what differs between two offsets. Spark writes the offset before the batch and repeats a batch that did
not end; the case keeps the number of its last batch, and takes none twice. A file that changes after an
offset was written is not what that says; nothing of it is loaded then, and the next offset has it again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import pickle
import re
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]  # a part of pyspark without types
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from ospltool.analytics.case import CHECKPOINTS, CaseError, CaseWriter, keep_private, newest, writing
from ospltool.analytics.contract import Detail
from ospltool.analytics.spark import (
    end,
    first_line,
    is_connected,
    parallel_tasks,
    session,
    ship_package,
)
from ospltool.output.progress import ProgressLine
from ospltool.trace.case.bundles import Bundle, bundles
from ospltool.trace.case.growing import (
    BATCH_BYTES,
    EVERY_S,
    MOST_FAILURES,
    Following,
    add,
    goes_on,
    gone_files,
    has_middle,
    in_growing_parts,
    own_copy,
    put_in,
    require_there,
    sources_now,
    state_of,
)
from ospltool.trace.case.local_load import (
    Job,
    LoadCounts,
    LoadedBundle,
    LoadedParts,
    described,
    digest_of,
    key_of,
    load_bundle,
    source_of,
)
from ospltool.trace.reading.ranges import RANGE_BYTES, Range
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
            if not jobs:
                return
            used = opened
            if used is None:
                used = session(master)
                stack.callback(end, used)
            ship_package(used)
            for (result,) in _results(used, jobs, progress):
                found = pickle.loads(result)  # noqa: S301 - made by _Jobs
                if isinstance(found, str):
                    raise SourceError(found)
                yield found

        is_shared = not master.startswith("local")
        return add(sources, target, detail, do, range_bytes=range_bytes, is_shared=is_shared)


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

    def __init__(
        self, opened: SparkSession, jobs: list[Job], tasks: int, progress: ProgressLine | None
    ) -> None:
        self._size = sum(map(_size_of, jobs))
        self._count = tasks
        self._progress = progress
        self._over = threading.Event()
        self._tracker = None if is_connected(opened) else opened.sparkContext.statusTracker()
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


def _results(opened: SparkSession, jobs: list[Job], progress: ProgressLine | None) -> list[Any]:
    try:
        opened.dataSource.register(PartWork)
        reader = opened.read.format(PartWork.name())
        shares = _shares(jobs, parallel_tasks(opened))
        for number, share in enumerate(shares):
            some = [
                (for_workers(bundle), directory.absolute(), detail) for bundle, directory, detail in share
            ]
            reader = reader.option(f"{_JOB}{number:08d}", pickle.dumps(some).hex())
        with _Watched(opened, jobs, len(shares), progress):
            return reader.load().collect()
    except PySparkException as cause:
        raise CaseError(f"Spark: {first_line(cause)}") from None
    except (Py4JError, OSError) as cause:
        raise CaseError(f"Spark has ended: {first_line(cause)}") from None


def _size_of(job: Job) -> int:
    return sum(part.size for part in job[0])


def _shares(jobs: Sequence[Job], parallel: int) -> list[list[Job]]:
    """Return the jobs of each task: several small ones, which take less time than the start of a task.

    Args:
        jobs: all of them, at least one.
        parallel: number of tasks that are worth their start even if each has little to do.
    """
    most = min(RANGE_BYTES, sum(map(_size_of, jobs)) // parallel)
    shares: list[list[Job]] = []
    size = most + 1
    for job in jobs:
        if size + _size_of(job) > most:
            shares.append([])
            size = 0
        shares[-1].append(job)
        size += _size_of(job)
    return shares


class PartWork(DataSource):
    """A source for Spark whose partitions are jobs of a task, and whose rows are their results.

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

    def __init__(self, shares: list[str]) -> None:
        self._shares = shares

    def __reduce__(self) -> tuple[type[_Jobs], tuple[list[str]]]:
        """Travel without the jobs: each task has its own, and would read those of all others."""
        return _Jobs, ([],)

    def partitions(self) -> list[InputPartition]:
        """Return a partition for each share."""
        return [InputPartition(share) for share in self._shares]

    def read(self, partition: InputPartition) -> Iterator[tuple[bytes]]:
        """Do the jobs of a share; yield the result of each."""
        jobs: list[Job] = pickle.loads(bytes.fromhex(partition.value))  # noqa: S301 - made by _results
        for job in jobs:
            try:
                found: LoadedBundle | str = load_bundle(*job)
            except SourceError as cause:
                found = str(cause)
            yield (pickle.dumps(found),)


# ------------------------------------------------------------------ as a stream

RETAINED_BATCHES: Final = 10
"""Batches of which Spark keeps the offsets, each of which names all files."""

Offset = dict[str, dict[str, Any]]
"""The state of all files, by key: the entries of a case, with the number of the file among those of its name
in place of the parts."""


def follow_with_spark(
    what: Following,
    master: str,
    opened: SparkSession,
    wait: Callable[[float], bool],
    told: Callable[[LoadCounts], None],
) -> LoadCounts:
    """Keep a case complete as a stream while its files grow (see `ospltool.trace.case.growing.follow`).

    Args:
        what: what to follow; every machine of the cluster must have the files and the case.
        master: the master of the session.
        opened: the session.
        wait: waits for some seconds, or less if following shall end.
        told: called with the counts of the case when there is one.

    Raises:
        CaseError: the case cannot be written, or Spark failed.
        SourceError: files cannot be read.
    """
    require_there(what.names)
    target = what.target.absolute()
    with writing(target, what.detail, is_shared=not master.startswith("local")) as writer:
        stream = writer.contents.stream
        if not (target / CHECKPOINTS / stream).is_dir():
            stream = ""
        batch = _Batch(target, what.detail, stream or secrets.token_hex(8))
        try:
            ship_package(opened)
            query = _started(what, batch, opened)
            try:
                is_known = False
                while query.isActive and not wait(ASK_EVERY_S):
                    if not is_known and (files := newest(target)[1].files):
                        told(LoadedParts([], files).summary)
                        is_known = True
                query.processAllAvailable()
            finally:
                query.stop()
        except (PySparkException, Py4JError, OSError) as cause:
            raise _reason(batch, cause) from None
        keep_private(target)
        return LoadedParts([], newest(target)[1].files).summary


def _started(what: Following, batch: _Batch, opened: SparkSession) -> Any:
    """Start the query."""
    opened.conf.set("spark.sql.streaming.minBatchesToRetain", str(RETAINED_BATCHES))
    opened.dataSource.register(GrowingFiles)
    job = pickle.dumps((str(pathlib.Path.cwd()), tuple(what.names), batch.target, batch.detail))
    rows = opened.readStream.format(GrowingFiles.name()).option(_JOB, job.hex()).load()
    place = (batch.target / CHECKPOINTS / batch.stream).as_uri()
    writer = rows.writeStream.foreachBatch(batch).option("checkpointLocation", place)
    return writer.trigger(processingTime=f"{EVERY_S} seconds").start()


def _reason(batch: _Batch, cause: Exception) -> Exception:
    """Return the error that ended a query."""
    if isinstance(batch.error, CaseError | SourceError):
        return batch.error
    if not isinstance(cause, PySparkException | Py4JJavaError):
        return CaseError(f"Spark has ended: {first_line(cause)}")
    if named := _SOURCE_ERROR.search(str(cause)):
        return SourceError(named[1])
    return CaseError(f"Spark: {first_line(cause)}")


_SOURCE_ERROR: Final = re.compile(r"SourceError: ([^\n]+)")


@dataclasses.dataclass(frozen=True, slots=True)
class _Plan:
    """What a batch does beside reading.

    Attributes:
        changed: the new entries of files, with the parts that stay.
        gone: keys of files whose records are dropped.
    """

    changed: dict[str, Any]
    gone: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class _Unread:
    """Files that are not any more what the offset says; nothing of them is loaded."""

    keys: tuple[str, ...]


class _Batch:
    """Puts what became of each batch into the case, and none twice; runs where Spark's driver does.

    Args:
        target: directory of the case.
        detail: columns to fill.
        stream: name of the checkpoint.
    """

    def __init__(self, target: pathlib.Path, detail: Detail, stream: str) -> None:
        self.target = target
        self.detail = detail
        self.stream = stream
        self.error: Exception | None = None
        self._writer: CaseWriter | None = None

    def __call__(self, rows: DataFrame, number: int) -> None:
        """Put a batch into the case, whose rows are what became of its parts."""
        try:
            if self._writer is None:
                self._writer = CaseWriter(self.target, self.detail, *newest(self.target))
            self._put_in(self._writer, rows, number)
        except Exception as error:
            self.error = error
            raise

    def _put_in(self, writer: CaseWriter, rows: DataFrame, number: int) -> None:
        contents = writer.contents
        if contents.stream == self.stream and contents.batch >= number:
            return  # a command was killed when the case had it, and Spark did not know that yet
        results = [pickle.loads(row[0]) for row in rows.collect()]  # noqa: S301 - made by _GrowingReader
        known = own_copy(contents)
        for plan in (one for one in results if isinstance(one, _Plan)):
            for key in plan.gone:
                known.pop(key, None)
            known |= plan.changed
        for key in {key for one in results if isinstance(one, _Unread) for key in one.keys}:
            known[key]["digest"] = ""  # so the next look finds another file
        loaded = [one for one in results if isinstance(one, LoadedBundle)]
        put_in(writer, LoadedParts([], known), loaded, stream=self.stream, batch=number)
        keep_private(self.target)


class GrowingFiles(DataSource):
    """A source for a stream, whose offsets are the bytes of files, and whose rows are what became of parts.

    Its option is the job, in a private format.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "ospltool-growing-files"

    def schema(self) -> str:
        """Return the column of what became of a part."""
        return "result binary"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return what looks at the files, and reads what is new."""
        return _GrowingReader(*pickle.loads(bytes.fromhex(self.options[_JOB])))  # noqa: S301 - made by _started


class _GrowingReader(DataSourceStreamReader):
    """Looks at files where Spark's driver runs, and reads their new parts on the workers."""

    def __init__(self, place: str, names: tuple[str, ...], target: pathlib.Path, detail: Detail) -> None:
        self._place = place
        self._names = names
        self._target = target
        self._detail = detail
        self._states: dict[str, tuple[int, int, int]] = {}
        self._sources: dict[str, TraceFile] = {}
        self._failures = 0

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Return what the case has of each file."""
        files = newest(self._target)[1].files
        return {key: {**_without_parts(entry), "turn": 0} for key, entry in files.items()}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's name
        """Return the state of the files; if much is new, of some of them."""
        del limit
        os.chdir(self._place)  # names may be relative; this process works for this source alone
        try:
            sources = sources_now(self._names)
            self._failures = 0
        except SourceError:  # as when a file is rotated at this moment
            self._failures += 1
            if self._failures >= MOST_FAILURES:
                raise
            return start
        unread = {key for key, entry in newest(self._target)[1].files.items() if not entry["digest"]}
        end, size = dict(start), 0
        self._sources = {key_of(source): source for source in sources}
        for key, source in self._sources.items():
            if size >= BATCH_BYTES:
                break
            before = None if key in unread else start.get(key)
            try:
                state = state_of(source)
                if before is not None and self._states.get(key) == state:
                    continue
                # In this order: of a file that is replaced in between, the digest does not fit any more.
                now = _without_parts(described(source))
                is_same = before is not None and goes_on(source, before)
            except (OSError, SourceError):  # it is gone, as the next look tells
                continue
            self._states[key] = state
            if before is None or not is_same or now["size"] != before["size"]:
                end[key] = {**now, "turn": start[key]["turn"] + (not is_same) if key in start else 0}
                size += now["size"]
        for key in gone_files(self._names, start, self._sources.keys()):
            del end[key]
        return end

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return what to do between two offsets; it is the same when Spark asks again."""
        files = newest(self._target)[1].files
        plan, parts, states = _Plan({}, tuple(start.keys() - end.keys())), [], {}
        for key, entry in end.items():
            before = start.get(key)
            if before == entry:
                continue
            source = self._source(key, entry)
            goes_on_from = before is not None and before["turn"] == entry["turn"] and has_middle(source)
            there = files[key]["parts"] if goes_on_from and key in files else []
            try:
                kept, more = in_growing_parts(source, there, entry["size"])
            except (OSError, SourceError):  # it is gone, as the worker finds, too
                kept, more = [], [Range(source, 0, None, entry["size"])]
            plan.changed[key] = {**_without_parts(entry), "parts": kept}
            states[key] = (entry["size"], entry["digest"])
            parts += more
        tasks = [
            (
                (for_workers(bundle), self._target, self._detail),
                [states[key_of(one.source)] for one in bundle],
            )
            for bundle in bundles(parts)
        ]
        return [InputPartition(one) for one in (plan, *tasks)]

    def read(self, partition: InputPartition) -> Iterator[tuple[bytes]]:
        """Load a bundle; yield what became of it."""
        yield (pickle.dumps(_done(partition.value)),)

    def _source(self, key: str, entry: dict[str, Any]) -> TraceFile:
        """Return a file with what the offset says of it."""
        told, found = source_of(entry), self._sources.get(key)
        return told if found is None else dataclasses.replace(told, path=found.path, name=found.name)


def _done(value: Any) -> _Plan | _Unread | LoadedBundle:
    """Do what a partition says."""
    if isinstance(value, _Plan):
        return value
    job, states = value
    found: LoadedBundle | SourceError
    try:
        found = load_bundle(*job)
    except SourceError as cause:
        found = cause
    if any(_is_other(part.source.path, *state) for part, state in zip(job[0], states, strict=True)):
        return _Unread(tuple(key_of(part.source) for part in job[0]))
    if isinstance(found, SourceError):
        raise found
    return found


def _is_other(path: pathlib.Path, size: int, digest: str) -> bool:
    """Return whether a file is not the one any more that an offset says."""
    try:
        return digest_of(path, size) != digest
    except SourceError:
        return True


def _without_parts(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if name not in {"parts", "turn"}}
