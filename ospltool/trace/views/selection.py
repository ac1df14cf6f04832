"""Selects the records to show: conditions, in time order, with their surroundings."""

from __future__ import annotations

import collections
import dataclasses
import fnmatch
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from ospltool.trace.meaning.names import Names
from ospltool.trace.meaning.skew import Skew, SkewEstimator
from ospltool.trace.reading.ranges import Range, first_record, last_record, matching_pieces
from ospltool.trace.reading.reader import TraceParser, merged, read_records
from ospltool.trace.reading.record import LEVELS, RecordKind, TimeBase, TraceRecord
from ospltool.trace.reading.sources import TraceFile, TraceFormat, open_stream

REPORT_LEVELS: Final = {
    "DEBUG": "FINE",
    "INFO": "INFO",
    "API_INFO": "INFO",
    "REPAIRED": "INFO",
    "WARNING": "WARNING",
    "ERROR": "SEVERE",
    "CRITICAL": "SEVERE",
    "FATAL": "SEVERE",
}
"""Level of a trace that each type of report counts as."""

_RANKS: Final = {level: rank for rank, level in enumerate(LEVELS)}
_NODE_FIELDS: Final = frozenset(
    {
        "fellow",
        "fellows",
        "other_fellow",
        "master",
        "other_master",
        "node",
        "origin",
        "provider",
        "before",
        "after",
    }
)


@dataclasses.dataclass(frozen=True, slots=True)
class RecordFilter:
    """Conditions on a record. Several values of one attribute are alternatives; all attributes must hold."""

    level: str | None = None
    """Least level. A record of uncertain level passes if it may be of that level."""
    threads: tuple[str, ...] = ()
    """Patterns of threads (`d_*`)."""
    states: tuple[str, ...] = ()
    """Service states."""
    fellows: tuple[str, ...] = ()
    """Addresses of nodes; a field of the record must name one."""
    namespaces: tuple[str, ...] = ()
    """Patterns of name-spaces."""
    groups: tuple[str, ...] = ()
    """Patterns of partition.topic."""
    conflict: str | None = None
    """Number of a conflict."""
    run: int | None = None
    """Number of the run in the file."""
    grep: tuple[re.Pattern[str], ...] = ()
    """Expressions that must all match in the record, header included."""
    exclude: tuple[re.Pattern[str], ...] = ()
    """Expressions that must not match in the record."""
    since_ns: int | None = None
    """Earliest time. Records without a time pass."""
    until_ns: int | None = None
    """Latest time."""

    @property
    def is_empty(self) -> bool:
        """Whether every record passes."""
        return self == RecordFilter()

    @property
    def needle(self) -> bytes | None:
        """Bytes that every wanted record contains; None without such a condition."""
        for pattern in self.grep:
            if not pattern.flags & re.IGNORECASE and is_literal(pattern.pattern):
                return pattern.pattern.encode()
        return None

    @property
    def only_needle(self) -> bytes | None:
        """The needle, if it is the only condition; else None."""
        needle = self.needle
        return (
            needle
            if needle is not None and self == RecordFilter(grep=self.grep) and len(self.grep) == 1
            else None
        )

    def __call__(self, record: TraceRecord) -> bool:
        """Return whether a record is wanted."""
        time = record.time_ns
        if time is not None:
            if self.since_ns is not None and time < self.since_ns:
                return False
            if self.until_ns is not None and time > self.until_ns:
                return False
        if self.run is not None and record.run != self.run:
            return False
        if self.level is not None and not _reaches(record, self.level):
            return False
        if self.states and record.state not in self.states:
            return False
        if self.threads and not _any_glob(record.thread, self.threads):
            return False
        return self._fields_pass(record) and self._text_passes(record)

    def _fields_pass(self, record: TraceRecord) -> bool:
        fields = record.fields
        if self.fellows and not any(
            one.strip() in self.fellows
            for name in _NODE_FIELDS & fields.keys()
            for one in fields[name].split(",")
        ):
            return False
        if self.namespaces and not _any_glob(fields.get("namespace", ""), self.namespaces):
            return False
        if self.groups and not _any_glob(fields.get("group", ""), self.groups):
            return False
        return self.conflict is None or self.conflict in {
            value for name, value in fields.items() if name in {"conflict", "other_conflict", "discarded"}
        }

    def _text_passes(self, record: TraceRecord) -> bool:
        if not self.grep and not self.exclude:
            return True
        text = record.raw.decode("utf-8", "surrogateescape")
        if not all(pattern.search(text) for pattern in self.grep):
            return False
        return not any(pattern.search(text) for pattern in self.exclude)


def is_literal(pattern: str) -> bool:
    """Return whether a regular expression is plain text."""
    return (
        bool(pattern)
        and not any(character in r"\.^$*+?{}[]|()" for character in pattern)
        and "\n" not in pattern
    )


def _any_glob(value: str, patterns: tuple[str, ...]) -> bool:
    return bool(value) and any(fnmatch.fnmatchcase(value, pattern) for pattern in patterns)


def _reaches(record: TraceRecord, least: str) -> bool:
    """Return whether a record is of a level, or above."""
    rank = _RANKS[least]
    if record.kind in {RecordKind.UNPARSED, RecordKind.DAMAGED}:
        return False
    level = REPORT_LEVELS.get(record.level, "") if record.kind is RecordKind.REPORT else record.level
    if level in _RANKS:
        return _RANKS[level] >= rank
    if record.template is None:
        return True
    return any(_RANKS[one] >= rank for one in record.template.levels)


# Clocks drift little within them, and more would delay the first line of the output by seconds.
RECORDS_FOR_SKEW: Final = 200_000
"""Records of each source from which the skew is estimated."""

_ADDRESS: Final = b"My address is: '"
# More than a thousand lines: `--lines 10` needs one step.
_TAIL_BYTES: Final = 1 << 18


@dataclasses.dataclass(slots=True)
class RecordTally:
    """Counts of the records read, so that everything left out is reported."""

    records: int = 0
    unparsed_bytes: int = 0
    unmatched: int = 0
    out_of_order: int = 0
    untimed: int = 0
    relative: set[str] = dataclasses.field(default_factory=set)

    def count(self, record: TraceRecord) -> None:
        """Count a record."""
        self.records += 1
        if record.kind is RecordKind.UNPARSED:
            self.unparsed_bytes += record.length
        elif record.kind is RecordKind.TRACE:
            self.unmatched += record.template is None
            self.out_of_order += record.out_of_order
            self.untimed += record.time_ns is None
            if record.clock is TimeBase.RELATIVE:
                self.relative.add(record.node)


@dataclasses.dataclass(frozen=True, slots=True)
class SelectedRecord:
    """A record to show.

    Attributes:
        record: the record.
        wanted: whether the filter wants it; otherwise it surrounds a wanted one.
        apart: whether records before it were left out, if surroundings are shown.
    """

    record: TraceRecord
    wanted: bool = True
    apart: bool = False


def select(
    sources: Sequence[TraceFile],
    wanted: RecordFilter,
    *,
    skews_ns: Mapping[str, int] | None = None,
    before: int = 0,
    after: int = 0,
    tally: RecordTally | None = None,
    whole: bool = True,
) -> Iterator[SelectedRecord]:
    """Select the wanted records of the sources by time.

    Args:
        sources: files to read.
        wanted: conditions on records.
        skews_ns: nanoseconds to add to the times of each node.
        before: number of records to show before a wanted one.
        after: number of records to show after a wanted one.
        tally: counts the records read.
        whole: read every record. Otherwise records that cannot be wanted may be skipped, which is much
            faster, but leaves the runs of records and the counts of `tally` wrong.
    """
    needle = None if whole or before or after else wanted.needle

    def read(source: TraceFile) -> Iterator[TraceRecord]:
        records = read_matching(source, needle) if needle is not None else read_records(source)
        if tally is None:
            return iter(records)
        return _counted(records, tally)

    records = merged(sources, skews_ns, read)
    if not before and not after:
        return (SelectedRecord(record) for record in records if wanted(record))
    return _with_surroundings(records, wanted, before, after)


def _counted(records: Iterable[TraceRecord], tally: RecordTally) -> Iterator[TraceRecord]:
    for record in records:
        tally.count(record)
        yield record


def _with_surroundings(
    records: Iterable[TraceRecord], wanted: RecordFilter, before: int, after: int
) -> Iterator[SelectedRecord]:
    waiting: collections.deque[TraceRecord] = collections.deque(maxlen=before)
    left = 0
    skipped = False
    any_shown = False
    for record in records:
        if wanted(record):
            for earlier in waiting:
                yield SelectedRecord(earlier, wanted=False, apart=skipped and any_shown)
                any_shown, skipped = True, False
            waiting.clear()
            yield SelectedRecord(record, apart=skipped and any_shown)
            any_shown, skipped, left = True, False, after
        elif left:
            left -= 1
            yield SelectedRecord(record, wanted=False)
        else:
            skipped = skipped or len(waiting) == before
            waiting.append(record)


def read_matching(source: TraceFile, needle: bytes) -> Iterator[TraceRecord]:
    """Yield the records of a source that contain `needle`, without parsing the others."""
    if source.format is not TraceFormat.TRACE:
        yield from (
            record
            for record in read_records(source)
            if needle in record.raw or record.kind is RecordKind.DAMAGED
        )
        return
    parser = TraceParser(source)
    for offset, data in matching_pieces(Range(source, 0, None, 0), needle):
        yield from parser.parse(data, offset)


def last(
    sources: Sequence[TraceFile],
    wanted: RecordFilter,
    count: int,
    skews_ns: Mapping[str, int],
    ends: Mapping[TraceFile, int] | None = None,
) -> list[SelectedRecord]:
    """Return the last `count` wanted records by time.

    Args:
        sources: files to read.
        wanted: conditions on records.
        count: most records to return.
        skews_ns: nanoseconds to add to the times of each node.
        ends: byte offset of the record to stop at, by source; None for the end.
    """
    if not count:
        return []
    tails = {source: list(_tail(source, wanted, count, (ends or {}).get(source))) for source in sources}
    records = list(merged(sources, skews_ns, lambda source: tails[source]))
    return [SelectedRecord(record) for record in records[-count:]]


def _tail(source: TraceFile, wanted: RecordFilter, count: int, end: int | None) -> Iterable[TraceRecord]:
    """Return the last wanted records of a source. A trace is read backwards, in growing steps."""
    if source.format is not TraceFormat.TRACE or source.compressed or wanted.run is not None:
        return collections.deque(filter(wanted, read_records(source, 0, end)), maxlen=count)
    size = source.path.stat().st_size if end is None else end
    step = _TAIL_BYTES
    while True:
        start = tail_start(source, max(0, size - step))
        found = collections.deque(filter(wanted, read_records(source, start, end)), maxlen=count)
        if start == 0 or len(found) >= count:
            return found
        step *= 4


def seen_whole_from(source: TraceFile) -> int:
    """Return the offset of the last record of a source, from which a follower sees it whole."""
    if source.format is not TraceFormat.TRACE or source.compressed:
        return source.path.stat().st_size
    return last_record(source)


def tail_start(source: TraceFile, wanted: int) -> int:
    """Return the offset of the first record at or after a byte offset; 0 if there is none."""
    size = source.path.stat().st_size
    if not wanted:
        return 0
    with open_stream(source.path) as stream:
        found = first_record(stream, wanted, size)
    return found if found < size else 0


def first_time(sources: Sequence[TraceFile]) -> int | None:
    """Return the earliest first time of the sources."""
    times = []
    for source in sources:
        for record in itertools.islice(read_records(source), 1000):
            if record.time_ns is not None:
                times.append(record.time_ns)
                break
    return min(times, default=None)


def find_names(sources: Sequence[TraceFile]) -> Names:
    """Find the addresses of the nodes of the sources."""
    names = Names()
    for source in sources:
        for record in itertools.islice(read_records(source), 1):  # the configuration may name the node
            names.learn(record)
        for record in read_matching(source, _ADDRESS):
            names.learn(record)
    return names


def estimate_skews(sources: Sequence[TraceFile]) -> list[Skew]:
    """Estimate the corrections of the nodes from the beginning of each source."""
    estimator = SkewEstimator()
    for source in sources:
        for record in itertools.islice(read_records(source), RECORDS_FOR_SKEW):
            estimator.add(record)
    return estimator.estimate()
