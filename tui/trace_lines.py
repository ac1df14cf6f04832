"""Records of the trace: what nodes send as events, and what their trace files say."""

from __future__ import annotations

import collections
import re
import threading
from collections.abc import Iterable, Sequence
from typing import Final

from engine.runtime.monitor import NodeEvent
from ospltool.trace.meaning.catalogue import Product
from ospltool.trace.meaning.matcher import matcher
from ospltool.trace.reading.follow import FileNotice, GrowingFiles
from ospltool.trace.reading.record import LEVELS, RecordKind, TimeBase, TraceRecord
from ospltool.trace.reading.sources import SourceError, find_sources
from ospltool.trace.views.selection import RecordFilter
from ospltool.views.view import Filter

# Some tens of megabytes; `ospltool trace` has no such limit.
MAX_LINES: Final = 50_000
"""Records of files that are kept; the oldest are dropped and counted."""

# Twenty to forty thousand lines, read within a fraction of a second.
FIRST_BYTES: Final = 4 << 20
"""Bytes at the end of each file that are read at first."""

_NEEDS_FIELDS: Final = frozenset({"fellow", "ns", "group", "conflict"})
# As a tick of the console: nobody sees lines sooner.
_WAIT_S: Final = 0.25


def record_of(event: NodeEvent, *, with_fields: bool = False) -> TraceRecord:
    """Return an event as a record of the trace, so that both can be filtered alike."""
    fields: dict[str, str] = {}
    template = None
    if with_fields:
        found = matcher(Product.ENGINE).match(event.text)
        if found is not None:
            template, fields = found.template, found.fields
    header = f"{event.state} ({event.thread}) -> {event.text}"
    return TraceRecord(
        kind=RecordKind.TRACE,
        node=event.node_name,
        file="",
        offset=event.number,
        time_ns=event.time_ns,
        clock=TimeBase.ABSOLUTE,
        state=event.state,
        thread=event.thread,
        text=event.text,
        raw=header.encode("utf-8", "surrogateescape"),
        template=template,
        fields=fields,
        level=event.level,
    )


def needs_fields(given: Filter) -> bool:
    """Return whether the filter asks for something that must be read out of the message."""
    return any(term.field in _NEEDS_FIELDS for term in given.terms)


def trace_filter(given: Filter) -> RecordFilter:
    """Return the `ospltool trace` filter for the words of `/`. Words without a field are plain text."""
    named: dict[str, tuple[str, ...]] = collections.defaultdict(tuple)
    grep: list[re.Pattern[str]] = []
    exclude: list[re.Pattern[str]] = []
    for term in given.terms:
        if term.field in ("", "node", "event") or term.inverse:
            if term.field in ("node", "event"):
                continue
            pattern = re.compile(re.escape(term.word), re.IGNORECASE)
            (exclude if term.inverse else grep).append(pattern)
        else:
            named[term.field] += (term.raw,)
    return RecordFilter(
        level=_level(named["level"][-1]) if named["level"] else None,
        threads=named["thread"],
        states=tuple(state.upper() for state in named["state"]),
        fellows=named["fellow"],
        namespaces=named["ns"],
        groups=named["group"],
        conflict=named["conflict"][-1] if named["conflict"] else None,
        grep=tuple(grep),
        exclude=tuple(exclude),
    )


def _level(text: str) -> str | None:
    """Return the level that is meant: its name, or the beginning of one."""
    wanted = text.upper()
    found = [wanted] if wanted in LEVELS else [one for one in LEVELS if one.startswith(wanted)]
    return found[-1] if found else None


def wanted_records(records: Iterable[TraceRecord], given: Filter) -> list[TraceRecord]:
    """Return the records that the filter lets through."""
    if not given:
        return list(records)
    accepts = trace_filter(given)
    return [
        record
        for record in records
        if given.matches_field("node", record.node)
        and given.matches_field("event", record.event)
        and accepts(record)
    ]


def wanted_events(events: Iterable[NodeEvent], given: Filter) -> list[NodeEvent]:
    """Return the events that the filter lets through, as if they were records of a trace file."""
    if not given:
        return list(events)
    accepts, with_fields = trace_filter(given), needs_fields(given)
    return [
        event
        for event in events
        if given.matches_field("node", event.node_name)
        and given.matches_field("event", event.event)
        and accepts(record_of(event, with_fields=with_fields))
    ]


class TraceFiles:
    """Follows trace files in a thread of its own and keeps the newest records by time.

    Raises:
        SourceError: a file cannot be read.
    """

    def __init__(self, names: Sequence[str]) -> None:
        sources = find_sources(names).sources
        starts = {
            source.file: max(0, source.path.stat().st_size - FIRST_BYTES)
            for source in sources
            if source.path.exists()
        }
        self._growing = GrowingFiles(sources, starts)
        # The thread that reads files adds, the console reads.
        self._lock = threading.Lock()
        self._records: collections.deque[TraceRecord] = collections.deque(maxlen=MAX_LINES)
        self._seen = 0
        self.notices: collections.deque[str] = collections.deque(maxlen=100)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="trace-files", daemon=True)
        self._thread.start()

    @property
    def seen(self) -> int:
        """Records read since the start; more than are kept when some were dropped."""
        return self._seen

    def records(self) -> list[TraceRecord]:
        """Return the records that are kept, by time; those without a time stand where they came in."""
        with self._lock:
            kept = list(self._records)
        last_ns = 0
        keyed = []
        for record in kept:
            last_ns = record.time_ns if record.time_ns is not None else last_ns
            keyed.append((last_ns, record))
        # Several files are followed; a stable sort keeps the order within each.
        keyed.sort(key=lambda pair: pair[0])
        return [record for _, record in keyed]

    def close(self) -> None:
        """Stop following."""
        self._stopping.set()
        self._thread.join(5.0)
        self._growing.close()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                found = self._growing.poll()
            except (SourceError, OSError) as error:
                self.notices.append(str(error))
                found = []
            with self._lock:
                for one in found:
                    if isinstance(one, FileNotice):
                        self.notices.append(one)
                    else:
                        self._records.append(one)
                        self._seen += 1
            self._stopping.wait(_WAIT_S)
