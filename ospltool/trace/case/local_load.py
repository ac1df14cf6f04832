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
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

from engine.workers import WorkerProcesses
from ospltool.analytics.case import RecordWriter, new_name
from ospltool.analytics.contract import Detail, Table, schema
from ospltool.output.locations import located
from ospltool.trace.case.bundles import Bundle, Loaded, read_bundle
from ospltool.trace.case.columnar import Times
from ospltool.trace.meaning.catalogue import Product, catalogue, pattern_text
from ospltool.trace.reading import damage
from ospltool.trace.reading.ranges import Range
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
            if key not in self._files:
                self._files[key] = described(source)

    def note(self, bundle: LoadedBundle) -> None:
        """Note what was loaded."""
        for part, loaded in bundle.parts:
            key = key_of(part.source)
            counts = [loaded.bytes, loaded.records, loaded.unparsed_bytes, loaded.unmatched]
            self._files[key]["parts"].append(
                {"name": bundle.name, "start": part.start, "counts": counts, "times": [*loaded.times]}
            )
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
            counts = [Loaded(*(*part["counts"], Times(*part["times"]))) for part in entry["parts"]]
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
        located(entry["file"]),
        entry["node"],
        TraceFormat(entry["format"]),
        untimed=entry["untimed"],
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


@dataclasses.dataclass(frozen=True, slots=True)
class LoadedBundle:
    """What became of a bundle.

    Attributes:
        name: what the names of its Parquet files begin with.
        places: these files, from the directory of the case.
        parts: its parts with what was found in them.
    """

    name: str
    places: tuple[str, ...]
    parts: tuple[tuple[Range, Loaded], ...]


Job = tuple[Bundle, "pathlib.Path", Detail]
"""A bundle to load, the directory of the case, and the columns to fill."""

Work = Callable[[list[Job]], Iterator[LoadedBundle]]
"""Does jobs (see `work`)."""


def work(
    jobs: list[Job], processes: int | None = None, progress: Callable[[int, int], None] | None = None
) -> Iterator[LoadedBundle]:
    """Do the jobs; yield what became of each as it ends.

    It uses at most `processes`, by default one for each core; `progress` gets bytes done, and of all.
    """
    sizes = [sum(part.size for part in job[0]) for job in jobs]
    size = sum(sizes)
    workers = min(processes or os.cpu_count() or 1, len(jobs)) if size > SMALL_BYTES else 1
    done = 0
    for number, loaded in _work(jobs, workers):
        yield loaded
        done += sizes[number]
        if progress:
            progress(done, size)


def _work(jobs: list[Job], workers: int) -> Iterator[tuple[int, LoadedBundle]]:
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


def load_bundle(bundle: Bundle, directory: pathlib.Path, detail: Detail) -> LoadedBundle:
    """Write the records of a bundle into a case, under names that no other attempt at it has.

    The case is in `directory`, and `detail` tells the columns to fill. What is written counts when a version
    of the case names it.
    """
    name = new_name()
    writer = RecordWriter(directory, bundle[0].source.domain, bundle[0].source.node, name, detail)
    totals = [Loaded()] * len(bundle)
    with no_collection():
        try:
            for table, days, counts in read_bundle(bundle, detail):
                writer.write(table, days)
                totals = [total + more for total, more in zip(totals, counts, strict=True)]
        finally:
            writer.close()
    return LoadedBundle(name, tuple(writer.places), tuple(zip(bundle, totals, strict=True)))


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
            "first_ns": loaded.times.first_ns,
            "last_ns": loaded.times.last_ns,
            "in_order": loaded.times.in_order,
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
