"""Files as evidence; large ones are read through a temporary case, many times faster."""

from __future__ import annotations

import contextlib
import importlib.util
import pathlib
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TextIO

from ospltool.forensics.attachments import AttachmentKind, find_attachments, what_is
from ospltool.forensics.evidence import Window
from ospltool.trace.meaning.trace_facts import TraceFacts
from ospltool.trace.reading.merge import merged
from ospltool.trace.reading.record import TraceRecord
from ospltool.trace.reading.sources import MOST_AT_ONCE, SourceError, TraceFile, find_sources, named_path
from ospltool.trace.reading.watched import watched
from ospltool.trace.views.selection import first_time
from ospltool.trace.views.view import skews_of

LARGE_BYTES: Final = 16_000_000
"""Size from which a case is worth its start."""

_SHRUNK: Final = 8
"""Least factor, roughly, by which a compressed trace grows."""


class RawEvidence:
    """Files and directories as evidence.

    Args:
        names: files, directories, and `NODE=PATH`.
        stream: shows the progress if it is a terminal.

    Raises:
        SourceError: a name leads to no readable file.
    """

    def __init__(self, names: Sequence[str], stream: TextIO) -> None:
        self._stream = stream
        paths = {name: named_path(name)[1] for name in names}
        for name, path in paths.items():
            if not path.exists():
                raise SourceError(f"{name}: no such file or directory")
        plain = [name for name, path in paths.items() if what_is(path) is None]
        self.sources: tuple[TraceFile, ...] = ()
        cause: SourceError | None = None
        try:
            self.sources = find_sources(plain).sources if plain else ()
        except SourceError as error:
            cause = error
        self.nodes = tuple(sorted({source.node for source in self.sources}))
        self.attachments = tuple(find_attachments(names, self.nodes))
        if cause is not None and not any(
            one.what is not AttachmentKind.CONFIGURATION for one in self.attachments
        ):
            raise cause

    def first_ns(self) -> int | None:
        """Return the time of the first record."""
        return first_time(self.sources)

    def records(self, window: Window, skews: Mapping[str, int]) -> Iterator[TraceRecord]:
        """Yield the records by time.

        Raises:
            SourceError: there are too many files.
        """
        if len(self.sources) > MOST_AT_ONCE:
            raise SourceError(
                f"{len(self.sources)} files cannot be read at once; load them into a case "
                "(`ospltool trace load`)"
            )
        for record in watched(merged(self.sources, skews), self.sources, self._stream):
            if window.has(record):
                yield record

    def facts(self, window: Window, skews: Mapping[str, int], *, with_waits: bool) -> TraceFacts:
        """Collect the facts from the records; for large files through a temporary case."""
        if len(self.sources) <= MOST_AT_ONCE and is_worth_a_case(self.sources):
            return facts_through_a_case(self.sources, window, skews, self._stream, with_waits=with_waits)
        return TraceFacts.of(self.records(window, skews), with_waits=with_waits)

    def skews(self, wishes: Iterable[str]) -> dict[str, int]:
        """Parse or estimate corrections of clocks."""
        return skews_of(self.sources, wishes)


def is_worth_a_case(sources: Sequence[TraceFile]) -> bool:
    """Return whether files are read faster through a case, and its packages are installed."""
    size = sum(one.path.stat().st_size * (_SHRUNK if one.compressed else 1) for one in sources)
    return size >= LARGE_BYTES and all(map(importlib.util.find_spec, ("duckdb", "pyarrow")))


def facts_through_a_case(
    sources: Sequence[TraceFile],
    window: Window,
    skews: Mapping[str, int],
    stream: TextIO,
    *,
    with_waits: bool,
) -> TraceFacts:
    """Collect the facts from files through a case that is deleted afterwards.

    Window, `skews` and `with_waits` are as for `Evidence.facts`.

    Raises:
        SourceError: a source cannot be read, or there is no room for the case.
    """
    from ospltool.analytics.case import CaseError, open_case
    from ospltool.analytics.duck import DuckEngine
    from ospltool.forensics.case import CaseEvidence
    from ospltool.output.progress import ProgressLine
    from ospltool.trace.case.loading import load

    try:
        with tempfile.TemporaryDirectory(prefix="ospltool-case-") as scratch:
            with contextlib.closing(ProgressLine("loading", stream, in_bytes=True)) as progress:
                load(sources, pathlib.Path(scratch) / "case", progress=progress)
            case = open_case(pathlib.Path(scratch) / "case")
            with contextlib.closing(DuckEngine(case)) as engine:
                return CaseEvidence(case, engine).facts(window, skews, with_waits=with_waits)
    except CaseError as cause:
        raise SourceError(str(cause)) from None
    except OSError as cause:
        raise SourceError(f"{tempfile.gettempdir()}: {cause.strerror or cause}") from None
