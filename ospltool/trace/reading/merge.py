"""Merges the records of several files by time, each file in its own order."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from ospltool.trace.reading.reader import read_records
from ospltool.trace.reading.record import TimeBase, TraceRecord
from ospltool.trace.reading.sources import TraceFile


def ordered(records: Iterable[TraceRecord], skew_ns: int = 0) -> Iterator[tuple[int, TraceRecord]]:
    """Yield the records of one file, each with the time of its place among other files.

    The order of the file is kept: a record that is older than one before it, or has no time, takes the time
    of that one. (Threads write out of order by less than a millisecond; after a clock was set back, all
    records do until the old time is reached again.)
    """
    at: int | None = None
    for record in records:
        if record.time_ns is not None:
            time = record.time_ns + skew_ns
            at = time if at is None else max(at, time)
        yield at or 0, record


def merged(
    sources: Sequence[TraceFile],
    skews_ns: Mapping[str, int] | None = None,
    read: Callable[[TraceFile], Iterable[TraceRecord]] = read_records,
) -> Iterator[TraceRecord]:
    """Yield the records of several sources by time, corrected by the skew of their nodes.

    Args:
        sources: the files.
        skews_ns: nanoseconds to add to the times of each node.
        read: returns the records of a source.
    """
    skews = skews_ns or {}
    if len(sources) == 1 and not skews.get(sources[0].node):
        yield from read(sources[0])
        return

    def keyed(number: int, source: TraceFile) -> Iterator[tuple[int, int, int, TraceRecord]]:
        skew = skews.get(source.node, 0)
        for position, (at, record) in enumerate(ordered(read(source), skew)):
            yield at, number, position, corrected(record, skew)

    for *_, record in heapq.merge(*(keyed(number, source) for number, source in enumerate(sources))):
        yield record


def corrected(record: TraceRecord, skew_ns: int) -> TraceRecord:
    """Return the record with its time corrected; a skew that is a date makes relative times absolute."""
    if not skew_ns or record.time_ns is None:
        return record
    clock = TimeBase.ABSOLUTE if record.clock is TimeBase.RELATIVE and skew_ns > 10**18 else record.clock
    return record._replace(time_ns=record.time_ns + skew_ns, clock=clock)
