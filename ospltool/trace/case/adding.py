"""Adds new files, and the new parts of files that grew, to a case."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import shutil
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Final

from ospltool.analytics.case import CaseError, files_of, open_case, write_meta, write_table
from ospltool.analytics.contract import FORMAT_VERSION, Detail, Table
from ospltool.trace.case.local_load import (
    Job,
    LoadCounts,
    Loaded,
    LoadedParts,
    described,
    digest_of,
    jobs_of,
    key_of,
    source_rows,
    template_rows,
    traits_of,
    work,
)
from ospltool.trace.reading.ranges import Range, ranges
from ospltool.trace.reading.sources import TraceFile, TraceFormat

LOCK_FILE: Final = ".lock"


Plan = Callable[["TraceFile", list[dict[str, Any]]], "tuple[list[dict[str, Any]], list[Range]]"]
"""Tells of a file that grew, and its parts in the case, which of these stay and what is to be read."""

Work = Callable[[list["Job"]], "Iterator[tuple[str, Range, Loaded]]"]
"""Does jobs (see `local_load.work`)."""


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
    other changed file replaces its old records. `target`, `processes` and `progress` are as for `load`.

    Raises:
        CaseError: the case has another detail, is of an older version, or is being written.
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
    if case.version != FORMAT_VERSION:
        raise CaseError(
            f"{target}: made by an older release: it can be read, but not added to; load all of its files "
            "into a new case"
        )
    if case.detail is not detail:
        raise CaseError(f"{target}: was loaded with detail {case.detail}, not {detail}; load it alike")
    try:
        with _scratch(target, is_shared=is_shared) as scratch:
            known = files_of(case)
            drop_leftovers(target, known)
            before = _names(known)
            for key in removed:
                known.pop(key, None)
            parts = _changes(sources, known, plan)
            ledger = LoadedParts(sources, known)
            for name, part, loaded in do(jobs_of(parts, scratch, detail, _next_number(before))):
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
        if any(not part["name"] for part in entry["parts"]):
            raise CaseError(
                f"{source.file}: changed, and was loaded by Spark: load all files into a new case"
            )
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


def _next_number(names: set[str]) -> int:
    return max((int(name.rpartition("-")[2]) for name in names), default=-1) + 1


def _names(known: dict[str, Any]) -> set[str]:
    """Return the names of all parts in a case that were loaded on this machine."""
    return {part["name"] for entry in known.values() for part in entry["parts"] if part["name"]}


def drop_leftovers(target: pathlib.Path, known: dict[str, Any]) -> None:
    """Remove parts that the case does not name: replaced ones, and those of a command that was killed."""
    names = _names(known)
    for path in (target / Table.RECORDS).rglob("part-*.parquet"):
        name = path.name.rpartition("-")[0]
        if name.count("-") == 1 and name not in names:  # Spark's own names have more
            path.unlink()


def _put_in_place(scratch: pathlib.Path, target: pathlib.Path) -> None:
    """Move the written files into the case."""
    for path in sorted(scratch.rglob("*.parquet")):
        place = target / path.relative_to(scratch)
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.replace(place)


@contextlib.contextmanager
def locked(target: pathlib.Path) -> Iterator[None]:
    """Lock the case against other commands."""
    descriptor = os.open(target / LOCK_FILE, os.O_CREAT | os.O_RDWR, 0o600)
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
