"""Cases that grow: new files, and the new parts of files that grew, once or as long as the files grow.

The case itself is the record of what was read: its newest version names every part of every file, and is put
in place when the rows of all new parts are there. So a killed command that is started again gives each row
once, whatever it had begun. Where Spark follows, the checkpoint of its query is that record instead
(`ospltool.trace.case.spark_load`).
"""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from ospltool.analytics.case import (
    CaseWriter,
    Contents,
    bundle_of,
    keep_private,
    new_name,
    writing,
)
from ospltool.analytics.contract import Detail, Table
from ospltool.output.locations import located
from ospltool.trace.case.bundles import bundles, write_rows_of
from ospltool.trace.case.local_load import (
    LoadCounts,
    LoadedBundle,
    LoadedParts,
    Work,
    described,
    digest_of,
    key_of,
    source_rows,
    template_rows,
    traits_of,
    work,
)
from ospltool.trace.reading import damage
from ospltool.trace.reading.ranges import PIECE_BYTES, RANGE_BYTES, Range, last_record, ranges
from ospltool.trace.reading.sources import (
    NothingFoundError,
    SourceError,
    TraceFile,
    TraceFormat,
    find_sources,
    named_path,
)

Plan = Callable[["TraceFile", list[dict[str, Any]]], "tuple[list[dict[str, Any]], list[Range]]"]
"""Tells of a file that grew, and its parts in the case, which of these stay and what is to be read."""


def add(
    sources: Sequence[TraceFile],
    target: pathlib.Path,
    detail: Detail,
    do: Work,
    *,
    range_bytes: int = RANGE_BYTES,
    is_shared: bool = False,
) -> LoadCounts:
    """Add files to a case, which need not exist; the result is the same as from loading all of them at once.

    Unchanged files are left alone. Of a plain trace that grew, the last part and the new bytes are read; any
    other changed file replaces its old records.

    Args:
        sources: files to add.
        target: directory of the case.
        detail: columns to fill.
        do: reads the new parts.
        range_bytes: bytes of a file that are one job.
        is_shared: other users write the rows, too, as executors of a cluster do.

    Raises:
        CaseError: the case has another detail, or is being written, or cannot be written.
        SourceError: a source cannot be read.
    """
    plan = functools.partial(_last_part_again, range_bytes)
    with writing(target, detail, is_shared=is_shared) as writer:
        return add_to(writer, sources, plan, do, piece_bytes=min(range_bytes, PIECE_BYTES))


def add_to(
    writer: CaseWriter,
    sources: Sequence[TraceFile],
    plan: Plan,
    do: Work,
    *,
    removed: Collection[str] = (),
    piece_bytes: int = PIECE_BYTES,
) -> LoadCounts:
    """Do the work of `add` for a caller who writes a case.

    Args:
        writer: the writer.
        sources: files to add.
        plan: decides what to read of a file that grew.
        do: reads it.
        removed: keys of files whose records are dropped.
        piece_bytes: bytes of small files that are one job.
    """
    known = own_copy(writer.contents)
    for key in removed:
        known.pop(key, None)
    parts = _changes(sources, known, plan)
    jobs = [(bundle, writer.path, writer.detail) for bundle in bundles(parts, piece_bytes)]
    return put_in(writer, LoadedParts(sources, known), do(jobs))


def own_copy(contents: Contents) -> dict[str, Any]:
    """Return the entries of the files of a case, to be changed."""
    # All that changes is the parts, and a copy of everything takes seconds for ten thousand files.
    return {
        key: {**entry, "parts": [{**part} for part in entry["parts"]]}
        for key, entry in contents.files.items()
    }


def put_in(
    writer: CaseWriter, ledger: LoadedParts, bundles: Iterable[LoadedBundle], **others: Any
) -> LoadCounts:
    """Make the next version of a case, if it differs.

    Args:
        writer: the writer.
        ledger: the files, with those of their parts that stay.
        bundles: what is loaded in addition.
        others: further attributes of the contents.
    """
    places = _separate(writer, ledger.files())
    for loaded in bundles:
        ledger.note(loaded)
        places[loaded.name] = list(loaded.places)
    files = ledger.files()
    tables = {
        **writer.contents.tables,
        Table.RECORDS.value: sorted(place for name in _files_by_name(files) for place in places[name]),
        Table.SOURCES.value: [writer.write(Table.SOURCES, source_rows(ledger.summary, writer.detail))],
        Table.TEMPLATES.value: [writer.write(Table.TEMPLATES, template_rows())],
    }
    known = writer.contents
    # Without a change, the checkpoint of a query that fed the case stays true, and the case names it still.
    if others or (files, tables) != (known.files, known.tables):
        writer.commit(Contents(files, tables, **others))
    return ledger.summary


def _changes(sources: Sequence[TraceFile], known: dict[str, Any], plan: Plan) -> list[Range]:
    """Return what is to be read, and leave those parts of each file in `known` that stay."""
    parts: list[Range] = []
    for source in sources:
        entry = known.get(key_of(source))
        if entry is None:
            parts += plan(source, [])[1]
            continue
        described_now = described(source)
        if all(described_now[name] == value for name, value in entry.items() if name != "parts"):
            continue
        is_same_so_far = goes_on(source, entry)
        kept, more = plan(source, entry["parts"] if is_same_so_far and has_middle(source) else [])
        parts += more
        known[key_of(source)] = {**described_now, "parts": kept}
    return parts


def _last_part_again(
    range_bytes: int, source: TraceFile, parts: list[dict[str, Any]]
) -> tuple[list[dict[str, Any]], list[Range]]:
    """Read the last part again, with what was added."""
    return parts[:-1], list(ranges(source, range_bytes, parts[-1]["start"] if parts else 0))


def goes_on(source: TraceFile, entry: Mapping[str, Any]) -> bool:
    """Return whether a file is the one that an entry describes, perhaps with more at its end."""
    traits = traits_of(source).items()
    return (
        source.path.stat().st_size >= entry["size"]
        and digest_of(source.path, entry["size"]) == entry["digest"]
        and all(entry.get(name, value) == value for name, value in traits)
    )


def has_middle(source: TraceFile) -> bool:
    """Return whether a file can be read from its middle."""
    return source.format is TraceFormat.TRACE and not source.compressed


def _files_by_name(known: dict[str, Any]) -> dict[str, set[str]]:
    """Return the names of all bundles in a case, with their files."""
    found: dict[str, set[str]] = {}
    for entry in known.values():
        for part in entry["parts"]:
            found.setdefault(part["name"], set()).add(entry["file"])
    return found


def _separate(writer: CaseWriter, known: dict[str, Any]) -> dict[str, list[str]]:
    """Write again what stays of bundles of which files were dropped; return the places of all bundles."""
    before = _files_by_name(writer.contents.files)
    places: dict[str, list[str]] = {name: [] for name in before}
    for place in writer.contents.tables.get(Table.RECORDS, ()):
        places[bundle_of(place)].append(place)
    renamed: dict[str, str] = {}
    for name, files in _files_by_name(known).items():
        if files != before[name]:
            renamed[name] = new_name()
            places[renamed[name]] = write_rows_of(files, writer.path, places[name], renamed[name])
    for entry in known.values():
        for part in entry["parts"]:
            part["name"] = renamed.get(part["name"], part["name"])
    return places


EVERY_S: Final = 1.0
"""Seconds between two looks at the files; more if finding them takes more than a tenth of that."""

BATCH_BYTES: Final = 1 << 30
"""Size of the files after which the others wait for the next look, so that a killed command loses little."""

MOST_FAILURES: Final = 10
"""Looks in a row that may fail, as when a file is rotated while it is read."""


@dataclasses.dataclass(frozen=True, slots=True)
class Following:
    """What to follow, and how.

    Attributes:
        names: files, directories and `NODE=FILE`; directories are searched again at each look.
        target: directory of the case, which need not exist.
        detail: columns to fill.
    """

    names: Sequence[str]
    target: pathlib.Path
    detail: Detail


def follow(
    what: Following, wait: Callable[[float], bool], told: Callable[[LoadCounts], None] = lambda _: None
) -> LoadCounts:
    """Keep a case complete while its files grow, until `wait(seconds)` returns True; then look once more.

    After each look the case is what `load` of the same files would make. Files that are gone are dropped.

    Args:
        what: what to follow.
        wait: waits for some seconds, or less if following shall end.
        told: called with the counts of the case after each change.

    Raises:
        CaseError: the case cannot be written, or is being written.
        SourceError: files cannot be read.
    """
    require_there(what.names)
    with writing(what.target, what.detail) as writer:
        return _follow(what, writer, wait, told)


def require_there(names: Sequence[str]) -> None:
    """Require that there is something under each name.

    Raises:
        SourceError: there is not.
    """
    for name in names:
        if not named_path(name)[1].exists():
            raise SourceError(f"{name}: no such file or directory")


def _follow(
    what: Following,
    writer: CaseWriter,
    wait: Callable[[float], bool],
    told: Callable[[LoadCounts], None],
) -> LoadCounts:
    seen = _Seen()
    failures = 0
    is_over = False
    while True:
        began, took = time.monotonic(), 0.0
        try:
            changed, removed = seen.find_changes(what, writer.contents)
            took = time.monotonic() - began
            if changed or removed:
                told(add_to(writer, changed, in_growing_parts, work, removed=removed))
                keep_private(what.target)
                seen.note(changed)
            failures = 0
        except SourceError:
            failures += 1
            if failures >= MOST_FAILURES:
                raise
        if is_over and not (seen.has_more or failures):
            return LoadedParts([], writer.contents.files).summary
        pause = 0.0 if seen.has_more else max(EVERY_S, 10 * took)
        is_over = wait(pause) or is_over


class _Seen:
    """The files as they were at the last look."""

    def __init__(self) -> None:
        self.has_more = False
        """Whether changed files wait for the next look."""
        self._states: dict[str, tuple[int, int, int]] = {}
        self._found: dict[str, tuple[int, int, int]] = {}

    def find_changes(self, what: Following, known: Contents) -> tuple[list[TraceFile], list[str]]:
        """Return changed files, and the keys of files in the case that are gone."""
        sources = sources_now(what.names)
        self._found = {}
        changed, size = [], 0
        self.has_more = False
        for source in sources:
            state = state_of(source)
            if self._states.get(key_of(source)) == state:
                continue
            if size >= BATCH_BYTES:
                self.has_more = True
                break
            self._found[key_of(source)] = state
            changed.append(source)
            size += state[1]
        return changed, gone_files(what.names, known.files, {key_of(source) for source in sources})

    def note(self, loaded: Sequence[TraceFile]) -> None:
        """Note that files were loaded as they were at the last look."""
        self._states |= {key_of(source): self._found[key_of(source)] for source in loaded}


def gone_files(names: Sequence[str], known: Mapping[str, Any], there: Collection[str]) -> list[str]:
    """Return the keys of known files that are below the names and are not there any more."""
    places = [named_path(name)[1] for name in names]
    return [
        key
        for key, entry in known.items()
        if key not in there and any(_is_below(entry["file"], place) for place in places)
    ]


def sources_now(names: Sequence[str]) -> Sequence[TraceFile]:
    """Return the files below the names, none if there are none yet."""
    damage.collect()  # a file may vanish or be half written; what is loaded is looked at again
    try:
        return find_sources(names).sources
    except NothingFoundError:
        return ()


def state_of(source: TraceFile) -> tuple[int, int, int]:
    """Return number, size and time of a file, by which it is known to be unchanged."""
    try:
        status = source.path.stat()
    except OSError as cause:
        raise SourceError(f"{source.path}: {cause.strerror or cause}") from None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _is_below(file: str, place: pathlib.Path) -> bool:
    path = located(file)
    return path == place or (type(path) is type(place) and path.is_relative_to(place))


def in_growing_parts(
    source: TraceFile, parts: list[dict[str, Any]], until: int | None = None
) -> tuple[list[dict[str, Any]], list[Range]]:
    """Return the parts of a file that stay, and what to read: its last record as a part of its own.

    A part is read again together with as many new bytes as it has, so that the number of parts grows with
    the logarithm of the file's size, up to the size of a range. The file is read to its end, or `until` an
    offset.
    """
    size = source.path.stat().st_size if until is None else until
    kept = parts[:-1]
    start = parts[-1]["start"] if parts else 0
    while kept and kept[-1]["counts"][0] <= size - start and size - kept[-1]["start"] <= RANGE_BYTES:
        start = kept.pop()["start"]
    *whole, last = [*ranges(source, start=start, until=until)] or [Range(source, start, until, 0)]
    return kept, [*whole, *_without_last_record(last)]


def _without_last_record(part: Range) -> list[Range]:
    """Split a part of a growing trace before its last record, which may not be whole."""
    if part.source.format is not TraceFormat.TRACE or part.source.compressed:
        return [part]
    end = part.start + part.size
    last = last_record(part.source, part.start, end)
    if last == part.start:
        return [part]
    return [
        Range(part.source, part.start, last, last - part.start),
        Range(part.source, last, part.end, end - last),
    ]
