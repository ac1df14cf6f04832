"""Adds new files, and the new parts of files that grew, to a case."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from typing import TYPE_CHECKING, Any, Final

from ospltool.analytics.case import CaseError, files_of, open_case, write_meta, write_table
from ospltool.analytics.contract import FORMAT_VERSION, Detail, Table
from ospltool.trace.case.load import (
    Ledger,
    Summary,
    described,
    digest_of,
    jobs_of,
    key_of,
    source_rows,
    template_rows,
    work,
)
from ospltool.trace.reading.ranges import ranges
from ospltool.trace.reading.sources import Format

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Callable, Iterator, Sequence

    from ospltool.trace.reading.ranges import Range
    from ospltool.trace.reading.sources import Source

LOCK_FILE: Final = ".lock"


def add(
    sources: Sequence[Source],
    target: pathlib.Path,
    detail: Detail,
    *,
    processes: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Summary:
    """Add files to a case; the result is the same as from loading all of them at once.

    Unchanged files are left alone. Of a plain trace that grew, the last part and the new bytes are read; any
    other changed file replaces its old records.

    Raises:
        CaseError: the case has another detail, is of an older version, or is being written.
        SourceError: a source cannot be read.
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
        with _locked(target), _scratch(target) as scratch:
            known = files_of(case)
            _drop_leftovers(target, known)
            parts, gone = _changes(sources, known)
            jobs = jobs_of(parts, scratch, detail, _next_number(known, gone))
            ledger = Ledger(sources, known)
            for name, part, loaded in work(jobs, processes, progress):
                ledger.note(name, part, loaded)
            _put_in_place(scratch, target, gone)
            write_table(target, Table.SOURCES, source_rows(ledger.summary, detail))
            write_table(target, Table.TEMPLATES, template_rows())
            write_meta(target, detail, ledger.files())
    except OSError as cause:
        raise CaseError(f"{cause.filename or target}: {cause.strerror or cause}") from None
    return ledger.summary


def _changes(sources: Sequence[Source], known: dict[str, Any]) -> tuple[list[Range], set[str]]:
    """Return the parts to load, and the names of the parts that they replace; remove these from `known`."""
    parts: list[Range] = []
    gone: set[str] = set()
    for source in sources:
        entry = known.get(key_of(source))
        if entry is None:
            parts += ranges(source)
            continue
        size = source.path.stat().st_size
        is_same_so_far = size >= entry["size"] and digest_of(source.path, entry["size"]) == entry["digest"]
        if is_same_so_far and size == entry["size"]:
            continue
        if any(not part["name"] for part in entry["parts"]):
            raise CaseError(
                f"{source.file}: changed, and was loaded by Spark: load all files into a new case"
            )
        kept = entry["parts"][:-1] if is_same_so_far and _can_go_on(source) else []
        start = entry["parts"][len(kept)]["start"] if kept else 0
        gone |= {part["name"] for part in entry["parts"][len(kept) :]}
        parts += ranges(source, start=start)
        known[key_of(source)] = {**described(source), "parts": kept}
    return parts, gone


def _can_go_on(source: Source) -> bool:
    """Return whether a file can be read from its middle."""
    return source.format is Format.TRACE and not source.compressed


def _next_number(known: dict[str, Any], gone: set[str]) -> int:
    return max((int(name.rpartition("-")[2]) for name in (_names(known) | gone)), default=-1) + 1


def _names(known: dict[str, Any]) -> set[str]:
    """Return the names of all parts in a case that were loaded on this machine."""
    return {part["name"] for entry in known.values() for part in entry["parts"] if part["name"]}


def _drop_leftovers(target: pathlib.Path, known: dict[str, Any]) -> None:
    """Remove parts that a killed command had put in place and not noted."""
    names = _names(known)
    for path in (target / Table.RECORDS).rglob("part-?????-*.parquet"):
        name = path.name.rpartition("-")[0]
        if name.count("-") == 1 and name not in names:
            path.unlink()


def _put_in_place(scratch: pathlib.Path, target: pathlib.Path, gone: set[str]) -> None:
    """Move the written files into the case, and remove those that they replace."""
    for path in sorted(scratch.rglob("*.parquet")):
        place = target / path.relative_to(scratch)
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.replace(place)
    for path in (target / Table.RECORDS).rglob("*.parquet"):
        if path.name.rpartition("-")[0] in gone:
            path.unlink()


@contextlib.contextmanager
def _locked(target: pathlib.Path) -> Iterator[None]:
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
def _scratch(target: pathlib.Path) -> Iterator[pathlib.Path]:
    """Make a temporary directory in the case, and remove those of killed commands."""
    for left in target.glob(".partial-*"):
        shutil.rmtree(left, ignore_errors=True)
    scratch = target / f".partial-{os.getpid()}"
    scratch.mkdir(mode=0o700)
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
