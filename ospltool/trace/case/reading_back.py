"""The records of a case as they were in the files, the same with every engine.

The engine chooses and orders the rows, and this module makes records of them. Times, order and fields are
those of the reader of files.

Facts depend on few records. Of most only time, state and thread matter, and only where they change: the first
and the last record of a run and of a thread, another state, a clock that goes back. The engine finds these in
narrow columns, where files, states and threads are numbers; it reads no text or field of the others. A case
that marks such records (see `ospltool.trace.case.columnar`) needs no search, as long as no clock in it went
back. `TraceFacts` are the same from these records as from all of them, except for waits, for which every
record of the main threads is needed.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ospltool.analytics.case import Case
from ospltool.analytics.contract import Detail
from ospltool.analytics.engines import Engine, literal, literals
from ospltool.trace.case import marked
from ospltool.trace.case.marked import IS_HEAD, PHASE, SO_FAR, runs_of
from ospltool.trace.meaning.catalogue import UNKNOWN_LEVEL, Product, Template, catalogue
from ospltool.trace.meaning.matcher import matcher
from ospltool.trace.meaning.trace_facts import EVENTS, JUMP_BACK_NS, MAIN_THREADS, REPORTED
from ospltool.trace.reading.reader import corrected
from ospltool.trace.reading.record import NO_FIELDS, STRAGGLER_NS, RecordKind, TimeBase, TraceRecord

if TYPE_CHECKING:
    import pyarrow as pa

    from ospltool.trace.case.step_columns import StepColumns

_OWN: Final = ("fellow", "namespace", "group_name", "conflict", "samples", "request")
"""Columns of fields."""

_FIELDS: Final = ("fellow", "namespace", "group", "conflict", "samples", "source")
"""The fields that they hold."""

_COLUMNS: Final = (
    "kind", "node", "file", "off", "time_ns", "clock", "state", "thread", "text", "terminated", "stamp",
    "level", "template", *_OWN, "case when event is not null then fields end as fields",
)  # fmt: skip
_NAMES: Final = ", ".join(_COLUMNS)
_VALUES: Final = (*_COLUMNS[:-1], "fields")
"""The names of the columns."""

Columns = tuple[Sequence[Any], ...]
"""The values of each column, of some rows."""

_OF_FILE: Final = "partition by node, file"
_BY_PLACE: Final = "order by off asc nulls first"
_IN_ORDER: Final = (
    "order by coalesce(place_ns, 0) asc nulls first, node asc nulls first, file asc nulls first, "
    "off asc nulls first"
)
_ALL: Final = """
with spoken as (
  select *, max({time}) over ({of_file} {by_place} {so_far}) as place_ns, {is_head}
  from records
),
stated as (
  select *, {phase}
  from spoken
),
{runs}
select {names}, run
from counted{where}
{in_order}
"""
_KINDS: Final = {kind.value: kind for kind in RecordKind}
_CLOCKS: Final = {clock.value: clock for clock in TimeBase}
_TRACE: Final = RecordKind.TRACE.value
_new: Final = tuple.__new__
"""Makes a record in half of the time of its class, which counts for millions."""


@dataclasses.dataclass(frozen=True, slots=True)
class WantedRecords:
    """The wanted records of a case.

    Attributes:
        since_ns: earliest time; None for the beginning.
        until_ns: latest time; None for the end.
        nodes: names of nodes; empty for all.
        always: events that are wanted at any time.
        skews: nanoseconds to add to the times of each node.
        without: files that are left out, by node and path.
    """

    since_ns: int | None = None
    until_ns: int | None = None
    nodes: tuple[str, ...] = ()
    always: tuple[str, ...] = ()
    skews: Mapping[str, int] = dataclasses.field(default_factory=dict)
    without: tuple[tuple[str, str], ...] = ()


def nodes_of(engine: Engine) -> list[str]:
    """Return the nodes of a case."""
    return [
        str(row[0])
        for row in engine.query("select distinct node from sources order by node asc nulls first").rows
    ]


def unparsed_bytes_of(engine: Engine) -> dict[tuple[str, str], int]:
    """Return how many bytes of each file of a case, by node and path, belong to no record."""
    rows = engine.query("select node, file, unparsed_bytes from sources").rows
    return {(str(node), str(file)): int(str(unparsed or 0)) for node, file, unparsed in rows}


def first_time_of(engine: Engine) -> int | None:
    """Return the time of the earliest record of a case."""
    rows = list(engine.query("select min(time_ns) as first_ns from records where kind = 'trace'").rows)
    value = rows[0][0] if rows else None
    return None if value is None else int(str(value))


def records_of(case: Case, engine: Engine, wanted: WantedRecords) -> Iterator[TraceRecord]:
    """Return the records of a case by time, each file in its own order, as in merged files.

    The run of a record counts from the beginning of its file, with any selection. Messages without an event
    lack the fields that have no column of their own: no analysis uses them, and they take time.
    """
    query = _all(wanted, _where(wanted))
    return itertools.chain.from_iterable(_made(case, engine, query, wanted))


def facts_of(
    case: Case, engine: Engine, wanted: WantedRecords, *, with_waits: bool
) -> Iterator[tuple[list[TraceRecord], list[bool], StepColumns | None]]:
    """Return the records that facts depend on, by time, some at a time.

    They are for `TraceFacts.take`; if columns come with them, both are for `take_rows`.

    Args:
        case: the case.
        engine: an engine that is open on it.
        wanted: the records among which they are.
        with_waits: return all records of the main threads, too.
    """
    time, where = _time(wanted.skews), _where(wanted)
    is_overlapping = _overlap(engine)
    is_full = case.detail is Detail.FULL
    if is_full and not where and not is_overlapping and marked.suits(engine):
        return _marked(engine, marked.facts_query(_NAMES, time, with_waits=with_waits), wanted.skews)
    # Without templates all rows are needed, since those that matter are unknown.
    query = needed(time, where, is_overlapping, with_waits=with_waits) if is_full else _all(wanted, where)
    return ((some, [False] * len(some), None) for some in _made(case, engine, query, wanted))


def records_with(
    case: Case, engine: Engine, skews: Mapping[str, int], events: Iterable[str], group: str
) -> Iterator[TraceRecord]:
    """Return the records of some events and of a group, and all reports, by time; others may come, too.

    Args:
        case: the case.
        engine: an engine that is open on it.
        skews: nanoseconds to add to the times of each node.
        events: the events.
        group: the group.
    """
    is_wanted = (
        f"(event in ({literals(events)}) or group_name = {literal(group)} or kind in ('report', 'damaged'))"
    )
    if case.detail is Detail.FULL and marked.suits(engine):
        query = marked.query(_NAMES, _time(skews), f"edge or {is_wanted}")
        return itertools.chain.from_iterable(_records_in(rows, skews) for rows in _placed(engine, query))
    wanted = WantedRecords(skews=skews)
    query = _all(wanted, f" where {is_wanted}" if case.detail is Detail.FULL else "")
    return itertools.chain.from_iterable(_made(case, engine, query, wanted))


def origins_of(engine: Engine) -> set[Product]:
    """Return the products that wrote the files of a case."""
    return set(_origins(engine).values())


def _made(case: Case, engine: Engine, query: str, wanted: WantedRecords) -> Iterator[list[TraceRecord]]:
    make = _records if case.detail is Detail.FULL else _Matcher(_origins(engine)).records
    return (_corrected(make(columns), wanted.skews) for columns in engine.columns(query))


def _marked(
    engine: Engine, query: str, skews: Mapping[str, int]
) -> Iterator[tuple[list[TraceRecord], list[bool], StepColumns | None]]:
    from ospltool.trace.case.step_columns import StepColumns  # its packages come with the extra `sql`

    for rows in _placed(engine, query):
        steps = StepColumns(rows, skews)
        others = steps.others()
        yield _records_in(others, skews), others.column("is_quiet").to_pylist(), steps


def _placed(engine: Engine, query: str) -> Iterator[pa.RecordBatch]:
    from ospltool.trace.case.places import Places  # its packages come with the extra `sql`

    places = Places()
    yield from map(places.add, engine.batches(query))
    yield from places.rest()


def _records_in(rows: pa.RecordBatch, skews: Mapping[str, int]) -> list[TraceRecord]:
    from ospltool.analytics.columns import values_of  # its packages come with the extra `sql`

    return _corrected(_records(tuple(values_of(rows.column(name)) for name in (*_VALUES, "run"))), skews)


def _corrected(records: Iterable[TraceRecord], skews: Mapping[str, int]) -> list[TraceRecord]:
    if not any(skews.values()):
        return list(records)
    return [corrected(record, skews.get(record.node, 0)) for record in records]


def _origins(engine: Engine) -> dict[str, Product]:
    rows = engine.query("select file, origin from sources order by file asc nulls first").rows
    return {str(file): Product(str(origin)) for file, origin in rows}


def _time(skews: Mapping[str, int]) -> str:
    """Return SQL for the corrected time of a record."""
    skew = "".join(f" when node = {literal(node)} then {add}" for node, add in skews.items() if add)
    return f"(time_ns + case{skew} else 0 end)" if skew else "time_ns"


def _where(wanted: WantedRecords) -> str:
    """Return the SQL condition on records, with `where`; empty for all records."""
    time = _time(wanted.skews)
    conditions = []
    if wanted.nodes:
        conditions.append(f"node in ({literals(wanted.nodes)})")
    conditions += [
        f"not (node = {literal(node)} and file = {literal(file)})" for node, file in wanted.without
    ]
    within = []
    if wanted.since_ns is not None:
        within.append(f"{time} >= {wanted.since_ns}")
    if wanted.until_ns is not None:
        within.append(f"{time} <= {wanted.until_ns}")
    if within:
        always = literals(wanted.always) or "''"
        conditions.append(f"(({' and '.join(within)}) or event in ({always}))")
    return f" where {' and '.join(conditions)}" if conditions else ""


def _all(wanted: WantedRecords, where: str) -> str:
    """Return the query for rows in the order in which files are merged, with the runs of each file."""
    return _ALL.format(
        time=_time(wanted.skews),
        names=_NAMES,
        where=where,
        of_file=_OF_FILE,
        by_place=_BY_PLACE,
        so_far=SO_FAR,
        in_order=_IN_ORDER,
        is_head=IS_HEAD,
        phase=PHASE,
        runs=runs_of("stated", _OF_FILE, _BY_PLACE, "time_ns"),
    )


def _records(columns: Columns) -> Iterator[TraceRecord]:
    """Make records of the values of `_COLUMNS` and their runs, column by column, which takes less time.

    Every engine gives the same types.
    """
    (
        kind, node, file, off, time_ns, clock, state, thread, text, _, stamp, level, template,
        *own, others, run,
    ) = columns  # fmt: skip
    templates = _templates()
    found = [templates.get(one) for one in template]
    fields = [one or {} for one in others]
    for name, values in zip(_FIELDS, own, strict=True):
        for known, value in zip(fields, values, strict=True):
            if value is not None:
                known[name] = value if type(value) is str else str(value)
    stated = [
        NO_FIELDS if one is None and what == _TRACE else its
        for one, what, its in zip(found, kind, fields, strict=True)
    ]
    parts = zip(
        map(_KINDS.__getitem__, kind), node, file, off, time_ns, map(_CLOCKS.__getitem__, clock),
        state, thread, text, [b"" if one is None else one.encode("utf-8", "replace") for one in stamp],
        run, found, stated, [UNKNOWN_LEVEL if one is None else one for one in level],
        itertools.repeat(False),
    )  # fmt: skip
    return map(_new, itertools.repeat(TraceRecord), parts)


@functools.cache
def _templates() -> dict[str, Template]:
    return {one.id: one for one in catalogue()}


class _Matcher:
    """Makes records of the rows of a case without templates and fields.

    Args:
        origins: the product that wrote each file.
    """

    def __init__(self, origins: Mapping[str, Product]) -> None:
        self._origins = origins

    def records(self, columns: Columns) -> Iterator[TraceRecord]:
        """Return the records of some rows, with their templates."""
        return map(self._matched, _records(columns), columns[_COLUMNS.index("terminated")])

    def _matched(self, record: TraceRecord, is_terminated: bool) -> TraceRecord:
        if record.kind is not RecordKind.TRACE:
            return record._replace(fields=NO_FIELDS)
        match = matcher(self._origins[record.file]).match(
            record.text, store=not record.state, cut=not is_terminated
        )
        if match is None:
            return record
        level = match.template.level
        return record._replace(template=match.template, fields=match.fields, level=level)


_IN_SOURCE: Final = f"partition by source {_BY_PLACE}"
_IN_PLACES: Final = (
    "order by coalesce(place_ns, 0) asc nulls first, source asc nulls first, off asc nulls first"
)
_SQL: Final = """
with contexts as (
  select node as its_node, file as its_file, state as its_state, thread as its_thread,
    dense_rank() over (order by node asc nulls first, file asc nulls first) as source,
    dense_rank() over (order by node asc nulls first) as node_number,
    dense_rank() over (order by state asc nulls first) as state_number,
    dense_rank() over (order by thread asc nulls first) as thread_number
  from (select distinct node, file, state, thread from records) as places
),
heads as (
  select head_node, head_file, head_off, is_head as head
  from (select node as head_node, file as head_file, off as head_off, {is_head} from records) as headed
  where is_head > 0
),
spoken as (
  select off, time_ns, event, node, file, source, node_number, state_number, thread_number,
    {time} as at_ns,
    case when kind = 'trace' and time_ns is not null then 1 else 0 end as is_timed,
    its_state as state, coalesce(head, 0) as is_head,
    case when template in ({templates}) or level in ({levels}) or stamp is not null
      or kind in ('report', 'damaged'){threads} then 1 else 0 end as is_telling
  from records
    join contexts on node = its_node and file = its_file and state = its_state and thread = its_thread
    left join heads on node = head_node and file = head_file and off = head_off
),
placed as (
  select *, max(at_ns) over ({in_file} {so_far}) as place_ns, {phase}
  from spoken
),
{runs},
seen as (
  select source, off, node_number, state_number, thread_number, at_ns, place_ns, run, is_timed, is_telling,
    case when state <> '' then 1 else 0 end as is_stated
  from counted{where}
),
followed as (
  select *,
    lag(run) over (partition by {lane}) as before_run,
    lead(run) over (partition by {lane}) as next_run,
    lead(at_ns) over ({in_file}) as next_ns,
    lag(at_ns) over (partition by {stated_lane}) as before_ns,
    case when lag(state_number) over (partition by {stated_lane}) = state_number
      and lag(run) over (partition by {stated_lane}) = run then 0 else 1 end as is_changed
  from seen
  where is_timed = 1
),
marked as (
  select *, max(case when is_changed = 1 then at_ns end) over (partition by {stated_lane}
    rows between unbounded preceding and 1 preceding) as changed_ns
  from followed
),
lasts as (
  select source as last_source, max(off) as last_off
  from seen
  where is_timed = 1
  group by source, run, thread_number
),
kept as (
  select source, off as key_off, place_ns, run
  from marked left join lasts on source = last_source and off = last_off
  where is_telling = 1 or at_ns < place_ns or next_ns < at_ns - {jump_ns}
    or before_run is null or before_run <> run or next_run is null or next_run <> run
    or last_off is not null
    or (is_stated = 1 and (is_changed = 1 or before_ns - changed_ns < {straggler_ns}))
  union all
  select source, off as key_off, place_ns, run
  from seen
  where is_timed = 0 and is_telling = 1
),
keys as (
  select its_node as key_node, its_file as key_file, key_off, source, place_ns, run
  from kept join (select distinct its_node, its_file, source as file_source from contexts) as files
    on source = file_source
)
select {names}, run
from keys join records on key_node = node and key_file = file and key_off = off
{in_order}
"""

_SPANS: Final = """
select node, min(time_ns), max(time_ns)
from records
where kind = 'trace' and time_ns is not null
group by node, file
order by 1 asc nulls first, 2 asc nulls first, 3 asc nulls first
"""


def needed(time: str, where: str, is_overlapping: bool, *, with_waits: bool) -> str:
    """Return the query for the records that facts depend on, by time, with the run of each.

    A record that is left out changes nothing. It is as late as all before it in its file, so a clock that
    went back is seen between the same two records. `TraceFacts` ignores a record of the former state just
    after a change as a straggler, and the first later record that counts is kept. The last record of a run is
    kept wherever another run of the node follows.

    Args:
        time: SQL for the corrected time of a record.
        where: SQL condition on records, with `where`; runs are counted in whole files.
        is_overlapping: whether files of one node overlap in time; otherwise each is examined alone.
        with_waits: keep every record of the main threads, too.
    """
    templates = [one.id for one in catalogue() if one.event in EVENTS]
    threads = f" or thread in ({literals(sorted(MAIN_THREADS))})" if with_waits else ""
    lane, order = (
        ("node_number", _IN_PLACES) if is_overlapping else ("source", "order by off asc nulls first")
    )
    return _SQL.format(
        names=_NAMES,
        time=time,
        where=where,
        templates=literals(templates),
        levels=literals(sorted(REPORTED)),
        threads=threads,
        jump_ns=JUMP_BACK_NS,
        straggler_ns=STRAGGLER_NS,
        is_head=IS_HEAD,
        phase=PHASE,
        runs=runs_of("placed", "partition by source", _BY_PLACE, "at_ns"),
        lane=f"{lane} {order}",
        stated_lane=f"{lane}, is_stated {order}",
        in_file=_IN_SOURCE,
        in_order=_IN_PLACES,
        so_far=SO_FAR,
    )


def _overlap(engine: Engine) -> bool:
    """Return whether the times of two files of one node overlap; otherwise each file is examined alone."""
    spans = engine.query(_SPANS).rows
    return any(
        one[0] == other[0] and int(str(other[1])) <= int(str(one[2]))
        for one, other in itertools.pairwise(spans)
    )
