"""Cases that grow: new files, and the new parts of files that grew, once or as long as the files grow.

The case itself is the record of what was read: `case.json` names every part of every file, and is replaced
when the rows of all new parts are in place. So a killed command that is started again gives each row once,
whatever it had begun. A second record of progress, such as the checkpoint of a streaming query, could
contradict the case; and Spark's own source of text reads a file once and never sees that it grew.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import pathlib
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Final

from engine.files import open_private
from ospltool.analytics.case import (
    CaseError,
    files_of,
    is_case_directory,
    keep_private,
    leftovers,
    open_case,
    refuse_links,
    write_meta,
    write_table,
)
from ospltool.analytics.contract import Detail, Table
from ospltool.trace.case.bundles import bundles, write_rows_of
from ospltool.trace.case.local_load import (
    LoadCounts,
    LoadedParts,
    Work,
    described,
    digest_of,
    jobs_of,
    key_of,
    make_case,
    part_name,
    source_rows,
    template_rows,
    traits_of,
    work,
)
from ospltool.trace.reading import damage
from ospltool.trace.reading.ranges import RANGE_BYTES, Range, last_record, ranges
from ospltool.trace.reading.sources import (
    NothingFoundError,
    SourceError,
    TraceFile,
    TraceFormat,
    find_sources,
    named_path,
)

LOCK_FILE: Final = ".lock"


Plan = Callable[["TraceFile", list[dict[str, Any]]], "tuple[list[dict[str, Any]], list[Range]]"]
"""Tells of a file that grew, and its parts in the case, which of these stay and what is to be read."""


def add(
    sources: Sequence[TraceFile],
    target: pathlib.Path,
    detail: Detail,
    *,
    processes: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> LoadCounts:
    """Add files to a case; the result is the same as from loading all of them at once.

    Unchanged files are left alone. Of a plain trace that grew, the last part and the new bytes are read; any
    other changed file replaces its old records. `target`, `processes` and `progress` are as for
    `ospltool.trace.case.loading.load`.

    Raises:
        CaseError: the case has another detail, or is being written.
        SourceError: a source cannot be read.
    """
    with locked(target):
        return add_to_locked(
            sources, target, detail, _last_part_again, lambda jobs: work(jobs, processes, progress)
        )


def add_to_locked(
    sources: Sequence[TraceFile],
    target: pathlib.Path,
    detail: Detail,
    plan: Plan,
    do: Work,
    *,
    removed: Collection[str] = (),
    is_shared: bool = False,
) -> LoadCounts:
    """Do the work of `add` for a caller who has locked the case.

    Args:
        sources: files to add.
        target: the case.
        detail: columns to fill.
        plan: decides what to read of a file that grew.
        do: reads it.
        removed: keys of files whose records are dropped.
        is_shared: other users write the rows, too, as executors of a cluster do.
    """
    case = open_case(target)
    if case.detail is not detail:
        raise CaseError(f"{target}: was loaded with detail {case.detail}, not {detail}; load it alike")
    try:
        with _scratch(target, is_shared=is_shared) as scratch:
            known = files_of(case)
            drop_leftovers(target, known)
            before = _files_by_name(known)
            for key in removed:
                known.pop(key, None)
            parts = _changes(sources, known, plan)
            number = _separate(target, scratch, known, before)
            ledger = LoadedParts(sources, known)
            for name, part, loaded in do(jobs_of(bundles(parts), scratch, detail, number)):
                ledger.note(name, part, loaded)
            _put_in_place(scratch, target)
            write_table(target, Table.SOURCES, source_rows(ledger.summary, detail))
            write_table(target, Table.TEMPLATES, template_rows())
            write_meta(target, detail, ledger.files())  # from here on, the new parts count
            drop_leftovers(target, ledger.files())
    except OSError as cause:
        raise CaseError(f"{cause.filename or target}: {cause.strerror or cause}") from None
    return ledger.summary


def _changes(sources: Sequence[TraceFile], known: dict[str, Any], plan: Plan) -> list[Range]:
    """Return what is to be read, and leave those parts of each file in `known` that stay."""
    parts: list[Range] = []
    for source in sources:
        entry = known.get(key_of(source))
        if entry is None:
            parts += plan(source, [])[1]
            continue
        size = source.path.stat().st_size
        is_same_so_far = size >= entry["size"] and digest_of(source.path, entry["size"]) == entry["digest"]
        is_same_so_far &= all(entry.get(name, value) == value for name, value in traits_of(source).items())
        if is_same_so_far and size == entry["size"]:
            continue
        described_now = described(source)
        kept, more = plan(source, entry["parts"] if is_same_so_far and _can_go_on(source) else [])
        parts += more
        known[key_of(source)] = {**described_now, "parts": kept}
    return parts


def _last_part_again(
    source: TraceFile, parts: list[dict[str, Any]]
) -> tuple[list[dict[str, Any]], list[Range]]:
    """Read the last part again, with what was added."""
    return parts[:-1], list(ranges(source, start=parts[-1]["start"] if parts else 0))


def _can_go_on(source: TraceFile) -> bool:
    """Return whether a file can be read from its middle."""
    return source.format is TraceFormat.TRACE and not source.compressed


def _files_by_name(known: dict[str, Any]) -> dict[str, set[str]]:
    """Return the names of all bundles in a case, with their files."""
    found: dict[str, set[str]] = {}
    for entry in known.values():
        for part in entry["parts"]:
            found.setdefault(part["name"], set()).add(entry["file"])
    return found


def _separate(
    target: pathlib.Path, scratch: pathlib.Path, known: dict[str, Any], before: dict[str, set[str]]
) -> int:
    """Write again what stays of bundles of which files were dropped; return the next number of a bundle.

    The case still has the old rows, which it no longer names.
    """
    number = max((int(name.rpartition("-")[2]) for name in before), default=-1) + 1
    renamed: dict[str, str] = {}
    for name, files in _files_by_name(known).items():
        if files != before[name]:
            renamed[name] = part_name(number)
            number += 1
            write_rows_of(files, target, scratch, (name, renamed[name]))
    for entry in known.values():
        for part in entry["parts"]:
            part["name"] = renamed.get(part["name"], part["name"])
    return number


def drop_leftovers(target: pathlib.Path, known: dict[str, Any]) -> None:
    """Remove parts that the case does not name: replaced ones, and those of a command that was killed."""
    for path in leftovers(target, known):
        path.unlink()


def _put_in_place(scratch: pathlib.Path, target: pathlib.Path) -> None:
    """Move the written files into the case."""
    for path in sorted(scratch.rglob("*.parquet")):
        place = target / path.relative_to(scratch)
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.replace(place)


@contextlib.contextmanager
def locked(target: pathlib.Path) -> Iterator[None]:
    """Lock the case against other commands.

    Raises:
        CaseError: another command has locked it, or it has symbolic links.
    """
    refuse_links(target)
    descriptor = open_private(target / LOCK_FILE, os.O_CREAT | os.O_RDWR)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CaseError(f"{target}: is being written by another command") from None
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _scratch(target: pathlib.Path, *, is_shared: bool) -> Iterator[pathlib.Path]:
    """Make a temporary directory in the case, and remove those of killed commands."""
    for left in target.glob(".partial-*"):
        shutil.rmtree(left, ignore_errors=True)
    scratch = target / f".partial-{os.getpid()}"
    scratch.mkdir(mode=0o777 if is_shared else 0o700)
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


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
        do: reads the new parts.
        is_shared: other users write the rows, too, as executors of a cluster do.
    """

    names: Sequence[str]
    target: pathlib.Path
    detail: Detail
    do: Work = work
    is_shared: bool = False


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
    for name in what.names:
        if not named_path(name)[1].exists():
            raise SourceError(f"{name}: no such file or directory")
    if not is_case_directory(what.target):
        make_case([], what.target, what.detail, what.do, is_shared=what.is_shared)
    with locked(what.target):
        return _follow(what, wait, told)


def _follow(what: Following, wait: Callable[[float], bool], told: Callable[[LoadCounts], None]) -> LoadCounts:
    seen = _Seen()
    failures = 0
    is_over = False
    while True:
        began, took = time.monotonic(), 0.0
        try:
            changed, removed = seen.find_changes(what)
            took = time.monotonic() - began
            if changed or removed:
                told(_add(what, changed, removed))
                seen.note(changed)
            failures = 0
        except SourceError:
            failures += 1
            if failures >= MOST_FAILURES:
                raise
        if is_over and not (seen.has_more or failures):
            return LoadedParts([], files_of(open_case(what.target))).summary
        pause = 0.0 if seen.has_more else max(EVERY_S, 10 * took)
        is_over = wait(pause) or is_over


def _add(what: Following, changed: Sequence[TraceFile], removed: Sequence[str]) -> LoadCounts:
    summary = add_to_locked(
        changed,
        what.target,
        what.detail,
        in_growing_parts,
        what.do,
        removed=removed,
        is_shared=what.is_shared,
    )
    keep_private(what.target)
    return summary


class _Seen:
    """The files as they were at the last look."""

    def __init__(self) -> None:
        self.has_more = False
        """Whether changed files wait for the next look."""
        self._states: dict[str, tuple[int, int, int]] = {}
        self._found: dict[str, tuple[int, int, int]] = {}

    def find_changes(self, what: Following) -> tuple[list[TraceFile], list[str]]:
        """Return changed files, and the keys of files of the case that are gone."""
        damage.collect()  # a file may vanish or be half written; what is loaded is looked at again
        sources: Sequence[TraceFile] = ()
        with contextlib.suppress(NothingFoundError):
            sources = find_sources(what.names).sources
        self._found = {}
        changed, size = [], 0
        self.has_more = False
        for source in sources:
            status = _status(source)
            state = (status.st_ino, status.st_size, status.st_mtime_ns)
            if self._states.get(key_of(source)) == state:
                continue
            if size >= BATCH_BYTES:
                self.has_more = True
                break
            self._found[key_of(source)] = state
            changed.append(source)
            size += status.st_size
        return changed, self._gone(what, {key_of(source) for source in sources})

    def _gone(self, what: Following, there: set[str]) -> list[str]:
        places = [named_path(name)[1] for name in what.names]
        files = files_of(open_case(what.target))
        return [
            key
            for key, entry in files.items()
            if key not in there and any(_is_below(entry["file"], place) for place in places)
        ]

    def note(self, loaded: Sequence[TraceFile]) -> None:
        """Note that files were loaded as they were at the last look."""
        self._states |= {key_of(source): self._found[key_of(source)] for source in loaded}


def _status(source: TraceFile) -> os.stat_result:
    try:
        return source.path.stat()
    except OSError as cause:
        raise SourceError(f"{source.path}: {cause.strerror or cause}") from None


def _is_below(file: str, place: pathlib.Path) -> bool:
    path = type(place)(file)
    return path == place or path.is_relative_to(place)


def in_growing_parts(
    source: TraceFile, parts: list[dict[str, Any]]
) -> tuple[list[dict[str, Any]], list[Range]]:
    """Return the parts of a file that stay, and what to read: its last record as a part of its own.

    A part is read again together with as many new bytes as it has, so that the number of parts grows with
    the logarithm of the file's size, up to the size of a range.
    """
    size = source.path.stat().st_size
    kept = parts[:-1]
    start = parts[-1]["start"] if parts else 0
    while kept and kept[-1]["counts"][0] <= size - start and size - kept[-1]["start"] <= RANGE_BYTES:
        start = kept.pop()["start"]
    *whole, last = [*ranges(source, start=start)] or [Range(source, start, None, 0)]
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
        Range(part.source, part.start, last, last - part.start), Range(part.source, last, None, end - last)
    ]  # fmt: skip
