"""Makes a case from traces and logs on this machine, with a process for each core."""

from __future__ import annotations

import concurrent.futures
import contextlib
import ctypes
import dataclasses
import hashlib
import multiprocessing
import os
import pathlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

from engine.workers import WorkerProcesses
from ospltool.analytics.case import CaseError, RecordWriter, write_meta, write_table
from ospltool.analytics.contract import Detail, Table, schema
from ospltool.trace.case.bundles import Bundle, Loaded, bundles, read_bundle
from ospltool.trace.meaning.catalogue import Product, catalogue, pattern_text
from ospltool.trace.reading import damage
from ospltool.trace.reading.ranges import PIECE_BYTES, RANGE_BYTES, Range, ranges
from ospltool.trace.reading.record import no_collection
from ospltool.trace.reading.sources import SourceError, TraceFile, TraceFormat

SMALL_BYTES: Final = 32 << 20
"""Size up to which sources are loaded without further processes, which take longer to start."""

_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
"""Options of mallopt(3)."""

DIGESTED_BYTES: Final = 1 << 16


@dataclasses.dataclass(frozen=True, slots=True)
class LoadCounts:
    """Counts of the loaded records, by source."""

    sources: tuple[tuple[TraceFile, Loaded], ...]

    @property
    def total(self) -> Loaded:
        """Counts of all sources together."""
        return sum((loaded for _, loaded in self.sources), Loaded())


def make_case(
    sources: Sequence[TraceFile],
    target: pathlib.Path,
    detail: Detail,
    do: Work,
    *,
    is_shared: bool = False,
    range_bytes: int = RANGE_BYTES,
) -> LoadCounts:
    """Load sources into a new case, perhaps none; see `new_directory`.

    Args:
        sources: files to load.
        target: directory of the case.
        detail: columns to fill.
        do: does the jobs.
        is_shared: other users write the rows, too, as executors of a cluster do.
        range_bytes: bytes of a file that are one job.
    """
    parts = (part for source in sources for part in ranges(source, range_bytes))
    with new_directory(target, is_shared=is_shared) as directory:
        jobs = jobs_of(bundles(parts, min(range_bytes, PIECE_BYTES)), directory, detail)
        ledger = LoadedParts(sources)
        for name, part, loaded in do(jobs):
            ledger.note(name, part, loaded)
        write_table(directory, Table.SOURCES, source_rows(ledger.summary, detail))
        write_table(directory, Table.TEMPLATES, template_rows())
        write_meta(directory, detail, ledger.files())
    return ledger.summary


class LoadedParts:
    """The loaded parts of files and their counts, as a case keeps them.

    Args:
        sources: the files.
        known: entries of a case by the key of each file.
    """

    def __init__(self, sources: Sequence[TraceFile], known: dict[str, Any] | None = None) -> None:
        self._sources = {key_of(source): source for source in sources}
        self._files: dict[str, Any] = dict(known or {})
        self._damages: dict[str, tuple[damage.FileDamage, ...]] = {}
        for key, source in self._sources.items():
            self._files.setdefault(key, described(source))

    def note(self, name: str, part: Range, loaded: Loaded) -> None:
        """Note a loaded part, whose files begin with `name`."""
        key = key_of(part.source)
        counts = [loaded.bytes, loaded.records, loaded.unparsed_bytes, loaded.unmatched]
        self._files[key]["parts"].append({"name": name, "start": part.start, "counts": counts})
        self._damages[key] = (*self._damages.get(key, ()), *loaded.damages)

    def files(self) -> dict[str, Any]:
        """Return the entries for the case, by the key of each file."""
        for entry in self._files.values():
            entry["parts"].sort(key=lambda part: part["start"])
        return self._files

    @property
    def summary(self) -> LoadCounts:
        """Counts by source, including sources that this load was not given."""
        found = []
        for key, entry in self._files.items():
            source = self._sources.get(key) or source_of(entry)
            counts = [Loaded(*part["counts"]) for part in entry["parts"]]
            total = sum(counts, Loaded(damages=self._damages.get(key, ())))
            found.append((source, total))
        return LoadCounts(tuple(sorted(found, key=lambda one: (one[0].domain, one[0].node, one[0].file))))


def key_of(source: TraceFile) -> str:
    """Return the key of a file in a case."""
    return f"{source.node}={source.file}"


def described(source: TraceFile) -> dict[str, Any]:
    """Return the entry of a file in a case, with which a later load sees that it grew or changed."""
    size = source.path.stat().st_size
    return {
        "node": source.node,
        "file": source.file,
        **traits_of(source),
        "size": size,
        "digest": digest_of(source.path, size),
        "parts": [],
    }


def traits_of(source: TraceFile) -> dict[str, Any]:
    """Return the traits of a file by which all of its records are read and placed.

    A file that is still short may have other ones when it has grown.
    """
    return {
        "domain": source.domain,
        "format": source.format.value,
        "origin": source.origin.value,
        "untimed": source.untimed,
    }


def source_of(entry: dict[str, Any]) -> TraceFile:
    """Return the source that an entry of a case describes."""
    return TraceFile(
        pathlib.Path(entry["file"]),
        entry["node"],
        TraceFormat(entry["format"]),
        origin=Product(entry["origin"]),
        domain=entry["domain"],
    )


def digest_of(path: pathlib.Path, size: int) -> str:
    """Return a digest of a file's first and last bytes up to a size; a file that only grew keeps it."""
    try:
        with path.open("rb") as stream:
            head = stream.read(min(DIGESTED_BYTES, size))
            stream.seek(max(0, size - DIGESTED_BYTES))
            tail = stream.read(min(DIGESTED_BYTES, size))
    except OSError as cause:
        raise SourceError(f"{path}: {cause.strerror or cause}") from None
    return hashlib.blake2b(head + tail, digest_size=16).hexdigest()


@contextlib.contextmanager
def new_directory(target: pathlib.Path, *, is_shared: bool = False) -> Iterator[pathlib.Path]:
    """Make a directory that takes its name when all is written, and is removed after a failure.

    Only its owner can look into it, unless it is shared: executors of a cluster may be other users.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise CaseError(f"{target}: exists already")
    directory = target.with_name(f".{target.name}.partial-{os.getpid()}")
    try:
        directory.mkdir(mode=0o777 if is_shared else 0o700, parents=True)
        yield directory
        if target.exists():
            target.rmdir()
        directory.rename(target)
    except OSError as cause:
        raise CaseError(f"{target}: {cause.strerror or cause}") from None
    finally:
        shutil.rmtree(directory, ignore_errors=True)


Job = tuple[Bundle, "pathlib.Path", str, Detail]
Work = Callable[[list[Job]], Iterator[tuple[str, Range, Loaded]]]
"""Does jobs (see `work`)."""


def jobs_of(bundles: Sequence[Bundle], directory: pathlib.Path, detail: Detail, first: int = 0) -> list[Job]:
    """Return jobs that load each bundle into its own files, numbered from `first`.

    `directory` is that of the case.
    """
    return [(bundle, directory, part_name(number), detail) for number, bundle in enumerate(bundles, first)]


def part_name(number: int) -> str:
    """Return what the names of the files of a bundle begin with."""
    return f"part-{number:05d}"


def work(
    jobs: list[Job], processes: int | None = None, progress: Callable[[int, int], None] | None = None
) -> Iterator[tuple[str, Range, Loaded]]:
    """Do the jobs; yield the name, each part and its counts as each job ends.

    It uses at most `processes`, by default one for each core; `progress` gets bytes done, and of all.
    """
    sizes = [sum(part.size for part in job[0]) for job in jobs]
    size = sum(sizes)
    workers = min(processes or os.cpu_count() or 1, len(jobs)) if size > SMALL_BYTES else 1
    done = 0
    for number, counts in _work(jobs, workers):
        bundle, _, name, _ = jobs[number]
        for part, loaded in zip(bundle, counts, strict=True):
            yield name, part, loaded
        done += sizes[number]
        if progress:
            progress(done, size)


def _work(jobs: list[Job], workers: int) -> Iterator[tuple[int, list[Loaded]]]:
    if workers <= 1:
        for number, job in enumerate(jobs):
            yield number, load_bundle(*job)
        return
    # A process with threads (Arrow's) must not be forked.
    context = multiprocessing.get_context("spawn")
    with WorkerProcesses(workers, context, initializer=_keep_memory) as pool:
        running = {pool.submit(load_bundle, *job): number for number, job in enumerate(jobs)}
        for future in concurrent.futures.as_completed(running):
            yield running[future], future.result()


def _keep_memory() -> None:
    """Keep what this process frees for its next piece.

    The C library would return the columns of each piece to the system, and the system clear as much memory
    for the next one: a tenth to a third of the processor time of a load.
    """
    with contextlib.suppress(AttributeError, OSError):  # not the GNU C library
        set_option = ctypes.CDLL(None).mallopt
        set_option(_MMAP_THRESHOLD, 32 << 20)
        set_option(_TRIM_THRESHOLD, 1 << 30)


def load_bundle(bundle: Bundle, directory: pathlib.Path, name: str, detail: Detail) -> list[Loaded]:
    """Write the records of a bundle; return the counts of each part.

    The files are in `directory`, and begin with `name`.
    """
    writer = RecordWriter(directory, bundle[0].source.domain, bundle[0].source.node, name, detail)
    totals = [Loaded()] * len(bundle)
    with no_collection():
        try:
            for table, days, counts in read_bundle(bundle, detail):
                writer.write(table, days)
                totals = [total + more for total, more in zip(totals, counts, strict=True)]
        finally:
            writer.close()
    return totals


def source_rows(summary: LoadCounts, detail: Detail) -> pa.Table:
    """Return the table of sources."""
    rows = [
        {
            "domain": source.domain,
            "node": source.node,
            "file": source.file,
            "format": source.format.value,
            "origin": source.origin.value,
            "bytes": loaded.bytes,
            "records": loaded.records,
            "unparsed_bytes": loaded.unparsed_bytes,
            "unmatched": loaded.unmatched if detail is Detail.FULL else None,
        }
        for source, loaded in summary.sources
    ]
    return pa.Table.from_pylist(rows, schema=schema(Table.SOURCES))


def template_rows() -> pa.Table:
    """Return the table of templates."""
    rows = [
        {
            "id": template.id,
            "event": template.event,
            "level": template.level,
            "thread": template.thread,
            "origin": template.origin.value,
            "pattern": pattern_text(template.pattern),
            "meaning": template.meaning,
        }
        for template in catalogue()
    ]
    return pa.Table.from_pylist(rows, schema=schema(Table.TEMPLATES))
