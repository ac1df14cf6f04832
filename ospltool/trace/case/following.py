"""Follows traces and logs that grow, and keeps a case of them complete.

The case itself is the record of what was read: `case.json` names every part of every file, and is replaced
when the rows of all new parts are in place. So a killed command that is started again gives each row once,
whatever it had begun. A second record of progress, such as the checkpoint of a streaming query, could
contradict the case; and Spark's own source of text reads a file once and never sees that it grew.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from ospltool.analytics.case import files_of, is_case_directory, keep_private, open_case
from ospltool.analytics.contract import Detail
from ospltool.trace.case.adding import Work, add_to_locked, locked
from ospltool.trace.case.local_load import LoadCounts, LoadedParts, key_of, make_case, work
from ospltool.trace.reading import damage
from ospltool.trace.reading.headers import last_on_line
from ospltool.trace.reading.ranges import RANGE_BYTES, Range, ranges
from ospltool.trace.reading.reader import LONGEST_RECORD
from ospltool.trace.reading.sources import (
    NothingFoundError,
    SourceError,
    TraceFile,
    TraceFormat,
    find_sources,
    named_path,
)

EVERY_S: Final = 1.0
"""Seconds between two looks at the files; more if finding them takes more than a tenth of that."""

BATCH_BYTES: Final = 1 << 30
"""Size of the files after which the others wait for the next look, so that a killed command loses little."""

MOST_FAILURES: Final = 10
"""Looks in a row that may fail, as when a file is rotated while it is read."""

_WINDOW: Final = 1 << 16


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
        make_case([], what.target, what.detail, is_shared=what.is_shared)
    with locked(what.target):
        return _follow(what, wait, told)


def _follow(what: Following, wait: Callable[[float], bool], told: Callable[[LoadCounts], None]) -> LoadCounts:
    seen = _Seen()
    failures = 0
    is_over = False
    while True:
        began, took = time.monotonic(), 0.0
        try:
            changed, removed = seen.look(what)
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

    def look(self, what: Following) -> tuple[list[TraceFile], list[str]]:
        """Return changed files, and the keys of files of the case that are gone."""
        damage.take()  # a file may vanish or be half written; what is loaded is looked at again
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
    with part.source.path.open("rb") as stream:
        window = _WINDOW
        while True:
            at = max(part.start, end - window)
            stream.seek(at)
            found = at + last_on_line(stream.read(end - at))
            if found > at:
                whole = Range(part.source, part.start, found, found - part.start)
                return [whole, Range(part.source, found, None, end - found)]
            if at == part.start or window > 2 * LONGEST_RECORD:
                return [part]
            window *= 4
