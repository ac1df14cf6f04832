"""The progress of reading records, on a terminal."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TextIO

from ospltool.output.progress import ProgressLine
from ospltool.trace.reading.record import TraceRecord
from ospltool.trace.reading.sources import TraceFile

EVERY_RECORDS: Final = 5_000


def watched(
    records: Iterable[TraceRecord], sources: Sequence[TraceFile], stream: TextIO
) -> Iterator[TraceRecord]:
    """Pass records on, and show on a terminal how much of their sources was read."""
    if not stream.isatty():
        yield from records
        return
    size = sum(source.path.stat().st_size for source in sources if not source.compressed)
    done = 0
    with contextlib.closing(ProgressLine("reading", stream, in_bytes=True)) as progress:
        for number, record in enumerate(records):
            done += record.length
            if number % EVERY_RECORDS == 0:
                progress(done, size or None)
            yield record
