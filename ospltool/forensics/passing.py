"""Reads large files through a temporary case, many times faster than record after record."""

from __future__ import annotations

import contextlib
import importlib.util
import pathlib
import tempfile
from typing import TYPE_CHECKING, Final, TextIO

from ospltool.trace.reading.sources import SourceError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ospltool.forensics.evidence import Window
    from ospltool.trace.meaning.trace_facts import TraceFacts
    from ospltool.trace.reading.sources import TraceFile

LARGE_BYTES: Final = 16_000_000
"""Size from which a case is worth its start."""

_SHRUNK: Final = 8
"""Least factor, roughly, by which a compressed trace grows."""


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

    Raises:
        SourceError: a source cannot be read, or there is no room for the case.
    """
    from ospltool.analytics.case import CaseError, open_case
    from ospltool.analytics.duck import DuckEngine
    from ospltool.forensics.case import CaseEvidence
    from ospltool.output.progress import ProgressLine
    from ospltool.trace.case.local_load import load

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
