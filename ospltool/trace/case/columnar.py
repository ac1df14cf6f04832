"""Pieces of a trace as Arrow tables with the columns of a case.

Processes of the local load and workers of Spark use the same functions. The usual piece is split with NumPy.
A piece with anything unusual (bytes before the first record, a record without end, bytes that are not UTF-8)
and every log other than a durability trace go through the reader, record by record.

The facts of a trace depend on few records (see `ospltool.trace.case.reading_back`). A record whose message
states no fact still counts if it is the first or last of a run or thread, has another state than the one
before, or comes from a clock that went back. Such records are marked as `edge` while the trace is loaded,
each piece by itself, so the ends of a piece are marked, too. A marked record that would not have counted
changes no fact.

These records and those that state a fact are `telling`. So are some more, by which copies of files are known
(see `copies_in` of `ospltool.forensics.evidence`): a copy has the same times, so they are chosen by time.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Sequence
from typing import IO, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from ospltool.analytics.contract import (
    DAY_NS,
    DETAILS,
    LEAST_SAMPLED,
    RECORD_COLUMNS,
    SAMPLED,
    SAMPLED_MOD,
    Detail,
    Table,
    schema,
)
from ospltool.trace.meaning.catalogue import Template
from ospltool.trace.meaning.detail_columns import (
    INTEGERS,
    LONGEST_NUMBER,
    OWN_COLUMNS,
    DetailColumns,
    coded,
    is_own,
)
from ospltool.trace.meaning.trace_facts import EVENTS, REPORTED
from ospltool.trace.reading.headers import LONGEST, RELATIVE_LIMIT_S, SECOND_NS, disagrees
from ospltool.trace.reading.reader import INITIAL, LONGEST_RECORD, RUN_HEAD, STORE_HEAD, TraceParser
from ospltool.trace.reading.record import STRAGGLER_NS, RecordKind, TimeBase, TraceRecord, valid_text
from ospltool.trace.reading.sources import TraceFile
from ospltool.trace.reading.splitter import (
    NO_TIME,
    Positions,
    Split,
    bytes_at,
    split,
    string_views,
)

_NAMES: Final = [name for name, _, _ in RECORD_COLUMNS]
_CLOCKS: Final = list(TimeBase)
_HEADS: Final = {INITIAL: RUN_HEAD, "": STORE_HEAD}
"""The beginnings of texts that only the beginning of a run has, by state; without one, those of the store."""

Marks = npt.NDArray[np.bool_]
Codes = npt.NDArray[Any]


@dataclasses.dataclass(frozen=True, slots=True)
class ColumnarPart:
    """Records of a part of a source as columns.

    Attributes:
        table: the columns of the contract, without those that are directories.
        days: the day of each record since 1970, or -1 without an absolute time.
        unparsed_bytes: bytes that belong to no record.
        unmatched: trace records that no template matches; 0 when templates were not looked for.
        times: the times of each of its files.
    """

    table: pa.Table
    days: Positions
    unparsed_bytes: int
    unmatched: int
    times: tuple[Times, ...]


class Times(NamedTuple):
    """The times of successive records of a file.

    Attributes:
        first_ns: the earliest one of a trace record; None without one.
        last_ns: the latest one.
        has_timed: whether any trace record or report has a time.
        has_untimed: whether any has none.
        go_back: whether a trace record is earlier than one before by more than STRAGGLER_NS.
    """

    first_ns: int | None = None
    last_ns: int | None = None
    has_timed: bool = False
    has_untimed: bool = False
    go_back: bool = False

    @property
    def in_order(self) -> bool:
        """Whether the order of the records is that of their times."""
        return not (self.go_back or (self.has_timed and self.has_untimed))

    def then(self, more: Times) -> Times:
        """Return those of the records together with the next ones."""
        goes_back = self.go_back or more.go_back
        firsts = [one for one in (self.first_ns, more.first_ns) if one is not None]
        lasts = [one for one in (self.last_ns, more.last_ns) if one is not None]
        if self.last_ns is not None and more.first_ns is not None:
            goes_back = goes_back or more.first_ns < self.last_ns - STRAGGLER_NS
        return Times(
            min(firsts, default=None),
            max(lasts, default=None),
            self.has_timed or more.has_timed,
            self.has_untimed or more.has_untimed,
            goes_back,
        )


def times_of(traced_ns: Positions, *, timed: int, untimed: int) -> Times:
    """Return the times of some records.

    Args:
        traced_ns: those of the trace records that have one, in the order of the file.
        timed: number of trace records and reports with a time.
        untimed: number of those without.
    """
    if not traced_ns.size:
        return Times(None, None, timed > 0, untimed > 0)
    late = np.maximum.accumulate(traced_ns) - traced_ns
    span = (int(traced_ns.min()), int(traced_ns.max()))
    return Times(*span, timed > 0, untimed > 0, bool((late > STRAGGLER_NS).any()))


def _states_fact(template: Template | None) -> bool:
    return template is not None and (template.event in EVENTS or template.level in REPORTED)


@dataclasses.dataclass(frozen=True, slots=True)
class PlacedFile:
    """The bytes of a file in a piece, which may hold those of several files.

    Attributes:
        source: the file.
        start: byte offset in the piece.
        offset: byte offset of the same byte in the file.
    """

    source: TraceFile
    start: int
    offset: int


def piece_of_trace(data: bytes, source: TraceFile, offset: int, detail: Detail) -> ColumnarPart:
    """Convert a piece of a durability trace: data from a record, or the file's start, to a record's end."""
    found = split(data, untimed=source.untimed)
    if not is_usual(data, found):
        parser = TraceParser(source, offset)
        return piece_of_records(itertools.chain(parser.feed(data), parser.finish()), detail)
    return usual_piece(data, found, [PlacedFile(source, 0, offset)], detail)


def is_usual(data: bytes, found: Split) -> bool:
    """Return whether a piece needs no look at each of its records."""
    return bool(
        found.start.size
        and not found.head
        and (found.end - found.start <= LONGEST_RECORD).all()
        and b"\r\r\n" not in data
        and is_text(data)
    )


def usual_piece(data: bytes, found: Split, files: Sequence[PlacedFile], detail: Detail) -> ColumnarPart:
    """Convert a usual piece of durability traces.

    Args:
        data: the bytes.
        found: their records.
        files: whose bytes they are, by place; each begins with a record. All of one product.
        detail: columns to fill.
    """
    count = found.start.size
    firsts = np.searchsorted(found.start, [one.start for one in files])
    ends = np.append(firsts[1:], count)
    of_file = [found.time_ns[first:end] for first, end in zip(firsts, ends, strict=True)]
    timed = [some[some != NO_TIME] for some in of_file]
    times = tuple(
        times_of(some, timed=some.size, untimed=all_of.size - some.size)
        for some, all_of in zip(timed, of_file, strict=True)
    )
    stamps = _stamps(data, found)
    starts = np.array([one.start for one in files], np.int64)
    moved = np.array([one.offset for one in files], np.int64) - starts
    file_of = (np.searchsorted(starts, found.start, side="right") - 1).astype(np.int32)
    details = None
    if detail is Detail.FULL:
        store = np.array([not state for state, _ in found.contexts])[found.context]
        details = DetailColumns(
            data, found.body, found.stop, store, found.stop == found.end, files[0].source.origin
        )
        edge = _edges(data, found, firsts)
        telling = edge | details.are(_states_fact) | stamps.is_valid().to_numpy(zero_copy_only=False)
        telling |= _sampled(found.time_ns, (ends - firsts)[file_of])
        order = details.by_template()
        order = order[np.argsort(~telling[order], kind="stable")]
        found, edge, telling, file_of = (
            found.reordered(order), edge[order], telling[order], file_of[order],
        )  # fmt: skip
        stamps = stamps.take(pa.array(order))
        details.reorder(order)
    columns: list[Any] = [
        _constant(RecordKind.TRACE, count),
        coded(file_of, [one.source.file for one in files]),
        pa.array(found.start + moved[file_of]),
        pa.array(found.end - found.start),
        pa.array(found.time_ns, mask=found.time_ns == NO_TIME),
        coded(_clock_codes(found.time_ns), [clock.value for clock in _CLOCKS]),
        coded(found.context, [state for state, _ in found.contexts]),
        coded(found.context, [thread for _, thread in found.contexts]),
        string_views(data, found.body, found.stop),
        pa.array(found.stop < found.end),
        stamps,
    ]
    columns += [pa.array(edge), pa.array(telling), *details.columns()] if details else _no_details(count)
    unmatched = details.unmatched if details else 0
    return ColumnarPart(_table(columns), _days(found.time_ns), 0, unmatched, times)


def piece_of_records(
    records: Iterable[TraceRecord], detail: Detail, *, in_order: bool = False
) -> ColumnarPart:
    """Convert records of any kind to columns.

    Args:
        records: records of one file, in its order.
        detail: columns to fill.
        in_order: keep their order, and mark none (see `edges`); they may be of many files.
    """
    rows = list(records)
    times = _times_of(rows)
    edge: list[bool | None] = [None] * len(rows)
    telling: Sequence[bool | None] = edge
    if detail is Detail.FULL and not in_order:
        marked = _edges_of(rows)
        told = _are_telling(rows, marked)
        order = sorted(range(len(rows)), key=lambda at: (not told[at], rows[at].template_id or ""))
        rows, edge, telling = [rows[at] for at in order], [marked[at] for at in order], sorted(told)[::-1]
    columns: list[Any] = [
        [record.kind.value for record in rows],
        [valid_text(record.file) for record in rows],
        [record.offset for record in rows],
        [record.length for record in rows],
        [record.time_ns for record in rows],
        [record.clock.value for record in rows],
        [valid_text(record.state) for record in rows],
        [valid_text(record.thread) for record in rows],
        [valid_text(record.text) for record in rows],
        [record.terminated for record in rows],
        [_stamp(record.raw) if record.clock is TimeBase.ABSOLUTE else None for record in rows],
    ]
    columns += [edge, telling, *_details_of(rows)] if detail is Detail.FULL else _no_details(len(rows))
    unmatched = sum(record.kind is RecordKind.TRACE and record.template is None for record in rows)
    unmatched = unmatched if detail is Detail.FULL else 0
    unparsed = sum(record.length for record in rows if record.kind is RecordKind.UNPARSED)
    return ColumnarPart(_table(columns), _days(_clock(rows)), unparsed, unmatched, (times,))


def _clock(rows: Sequence[TraceRecord]) -> Positions:
    return np.array([NO_TIME if record.time_ns is None else record.time_ns for record in rows], np.int64)


def _times_of(rows: Sequence[TraceRecord]) -> Times:
    of_time = [record for record in rows if record.kind in {RecordKind.TRACE, RecordKind.REPORT}]
    timed = [record for record in of_time if record.time_ns is not None]
    traced = _clock([record for record in timed if record.kind is RecordKind.TRACE])
    return times_of(traced, timed=len(timed), untimed=len(of_time) - len(timed))


def _are_telling(rows: Sequence[TraceRecord], marked: Sequence[bool | None]) -> list[bool]:
    """Return which records are telling; `marked` are edges."""
    return [
        bool(is_marked)
        or record.kind in {RecordKind.REPORT, RecordKind.DAMAGED}
        or _states_fact(record.template)
        or record.level in REPORTED
        or (record.clock is TimeBase.ABSOLUTE and _stamp(record.raw) is not None)
        or is_sampled
        for record, is_marked, is_sampled in zip(
            rows, marked, _sampled(_clock(rows), len(rows)).tolist(), strict=True
        )
    ]


def _sampled(times: Positions, records: Any) -> Marks:
    """Return which records are chosen by their times, of files with that number of records."""
    below = np.clip(SAMPLED_MOD * SAMPLED // np.maximum(records, 1), LEAST_SAMPLED, SAMPLED_MOD)
    chosen: Marks = (times != NO_TIME) & (times % SAMPLED_MOD < below)
    return chosen


def _details_of(rows: list[TraceRecord]) -> list[Any]:
    """Return the columns from level to fields."""
    fields = [
        {valid_text(name): valid_text(value) for name, value in record.fields.items()} for record in rows
    ]
    return [
        [
            None if record.kind in {RecordKind.UNPARSED, RecordKind.DAMAGED} else record.level
            for record in rows
        ],
        [record.template_id or None for record in rows],
        [record.event or None for record in rows],
        *(
            [_own(name, one, record) for one, record in zip(fields, rows, strict=True)]
            for name in OWN_COLUMNS
        ),
        [
            [(name, value) for name, value in one.items() if not is_own(name, record.template)]
            for one, record in zip(fields, rows, strict=True)
        ],
    ]


def _edges(data: bytes, found: Split, firsts: Positions) -> Any:
    """Return the marks of the records of a piece; `firsts` are the first records of its files."""
    states = [state for state, _ in found.contexts]
    threads = [thread for _, thread in found.contexts]
    heads = np.zeros(found.start.size, np.bool_)
    for state, head in _HEADS.items():
        is_state = np.array([one == state for one in states], np.bool_)
        rows = np.flatnonzero(is_state[found.context])
        if rows.size:
            begins = bytes_at(np.frombuffer(data, np.uint8), found.body[rows], len(head))
            heads[rows] = (begins == np.frombuffer(head.encode(), np.uint8)).all(axis=1)
    columns: tuple[Any, ...] = (
        found.time_ns,
        found.time_ns != NO_TIME,
        _numbers(states)[found.context],
        _numbers(threads)[found.context],
        heads,
    )
    if firsts.size == 1:
        return edges(*columns)
    places = itertools.pairwise([*firsts.tolist(), found.start.size])
    return np.concatenate([edges(*(one[first:end] for one in columns)) for first, end in places])


def _edges_of(rows: list[TraceRecord]) -> list[bool | None]:
    """Return the marks of records of any kind."""
    traced = [record.kind is RecordKind.TRACE for record in rows]
    heads = [
        is_trace and record.text.startswith(_HEADS.get(record.state, "\0"))
        for is_trace, record in zip(traced, rows, strict=True)
    ]
    times = [record.time_ns for record in rows]
    marked = edges(
        np.array([time or 0 for time in times], np.int64),
        np.array(
            [is_trace and time is not None for is_trace, time in zip(traced, times, strict=True)], np.bool_
        ),
        _numbers([record.state for record in rows]),
        _numbers([record.thread for record in rows]),
        np.array(heads, np.bool_),
    )
    return list(marked.tolist())


def _numbers(texts: list[str]) -> Any:
    """Return a number for each text, 0 for an empty one."""
    numbers = {"": 0}
    return np.array([numbers.setdefault(text, len(numbers)) for text in texts], np.int64)


def _stamps(data: bytes, found: Split) -> Any:
    """Return the times of headers whose two timestamps disagree."""
    suspects = found.suspect & (found.time_ns >= RELATIVE_LIMIT_S * SECOND_NS)
    if not suspects.any():
        return pa.nulls(found.start.size, pa.string())
    stamps: list[str | None] = [None] * found.start.size
    for at in np.flatnonzero(suspects).tolist():
        start = int(found.start[at])
        stamps[at] = _stamp(data[start : start + LONGEST])
    return pa.array(stamps, pa.string())


def _stamp(raw: bytes) -> str | None:
    return raw[:LONGEST].partition(b" (")[0].decode("utf-8", "replace") if disagrees(raw) else None


def _own(name: str, fields: dict[str, str], record: TraceRecord) -> str | int | None:
    """Return the value of a field in its own column."""
    if name not in fields or not is_own(name, record.template):
        return None
    return integer(fields[name]) if name in INTEGERS else fields[name]


def integer(text: str) -> int | None:
    """Return a number of at most 18 characters; None for anything else."""
    try:
        return int(text) if len(text) <= LONGEST_NUMBER else None
    except ValueError:
        return None


def _table(columns: list[Any]) -> pa.Table:
    wanted = schema(Table.RECORDS)
    arrays = [
        column if isinstance(column, pa.Array) else pa.array(column, field.type)
        for column, field in zip(columns, wanted, strict=True)
    ]
    return pa.table(arrays, names=_NAMES)


def _no_details(count: int) -> list[Any]:
    return [pa.nulls(count, field.type) for field in list(schema(Table.RECORDS))[-DETAILS:]]


def _constant(value: str, count: int) -> Any:
    return coded(np.zeros(count, np.int32), [value])


def _clock_codes(times: Positions) -> np.ndarray[Any, np.dtype[np.int32]]:
    codes = np.where(
        times < RELATIVE_LIMIT_S * SECOND_NS,
        _CLOCKS.index(TimeBase.RELATIVE),
        _CLOCKS.index(TimeBase.ABSOLUTE),
    )
    return np.where(times == NO_TIME, _CLOCKS.index(TimeBase.NONE), codes).astype(np.int32)


def _days(times: Positions) -> Positions:
    return np.where(times >= RELATIVE_LIMIT_S * SECOND_NS, times // DAY_NS, -1)


def is_text(data: bytes) -> bool:
    """Return whether the bytes are UTF-8."""
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def edges(times: Positions, timed: Marks, states: Codes, threads: Codes, heads: Marks) -> Marks:
    """Return which records of a piece are marked; they come in the order of the file.

    Args:
        times: nanoseconds; anything for records without a time.
        timed: whether each is a trace record with a time.
        states: a number for each state, 0 for none.
        threads: a number for each thread.
        heads: whether each record is one that only the beginning of a run has.
    """
    marked = np.zeros(len(times), np.bool_)
    if not len(times):
        return marked
    stated = np.flatnonzero(states > 0)
    changed = np.append(True, states[stated][1:] != states[stated][:-1])[: stated.size]
    turns = heads.copy()
    turns[stated[changed]] = True
    marked |= turns
    of_time = np.flatnonzero(timed)
    if of_time.size:
        _mark_turns(marked, np.flatnonzero(turns), of_time)
        _mark_clock(marked, times[of_time], of_time)
        _mark_last(marked, turns, threads, of_time)
        of_state = stated[timed[stated]]
        _mark_stragglers(marked, times[of_state], states[of_state], of_state)
    return marked


def _mark_turns(marked: Marks, turns: Positions, of_time: Positions) -> None:
    """Mark the first and the last record, and those beside each turn."""
    marked[of_time[[0, -1]]] = True
    after = np.searchsorted(of_time, turns, side="right")
    before = np.searchsorted(of_time, turns) - 1
    marked[of_time[after[after < of_time.size]]] = True
    marked[of_time[before[before >= 0]]] = True


def _mark_clock(marked: Marks, times: Positions, of_time: Positions) -> None:
    """Mark the records that are earlier than one before, and the latest before them and at the end."""
    latest = np.maximum.accumulate(times)
    late = times < latest
    marked[of_time[late]] = True
    ahead = np.flatnonzero(~late)
    is_followed = np.append(late[1:], True)[ahead]  # a record after it is earlier, or it is the last
    marked[of_time[ahead[is_followed]]] = True
    marked[of_time[ahead[-1]]] = True


def _mark_last(marked: Marks, turns: Marks, threads: Codes, of_time: Positions) -> None:
    """Mark the last record of each thread before each turn, and in the piece."""
    section = np.cumsum(turns)[of_time]
    key = section.astype(np.int64) * (int(threads.max()) + 1) + threads[of_time]
    _, last = np.unique(key[::-1], return_index=True)
    marked[of_time[of_time.size - 1 - last]] = True


def _mark_stragglers(marked: Marks, times: Positions, states: Codes, of_state: Positions) -> None:
    """Mark the records just after a change of the state, or after the first record of the piece.

    The change itself may be in the piece before, and be later by `STRAGGLER_NS` in a file of which the facts
    are taken from marked records.
    """
    if not of_state.size:
        return
    changed = np.append(True, states[1:] != states[:-1])
    marked[of_state[changed]] = True
    before = np.iinfo(np.int64).min // 2
    changed_ns = np.maximum.accumulate(np.where(changed, times, before))
    soon = times[:-1] - changed_ns[:-1] < 2 * STRAGGLER_NS
    marked[of_state[1:][soon]] = True


AT_ONCE: Final = 20_000


def write_parquet(records: Iterable[TraceRecord], stream: IO[bytes]) -> None:
    """Write records with their node, and the columns of a case's table of records."""
    of_records = [field for field in schema(Table.RECORDS) if field.name != "edge"]
    columns = pa.schema([pa.field("node", pa.string()), *of_records])
    rest = iter(records)
    with pq.ParquetWriter(stream, columns, compression="zstd", store_schema=False) as writer:
        while batch := list(itertools.islice(rest, AT_ONCE)):
            table = piece_of_records(batch, Detail.FULL, in_order=True).table.drop_columns("edge")
            nodes = pa.array([record.node for record in batch], pa.string())
            writer.write_table(table.add_column(0, "node", nodes).cast(columns))
