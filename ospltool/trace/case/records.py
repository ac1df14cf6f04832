"""The records of a case as they were in the files, the same with every engine.

The engine chooses and orders the rows, and this module makes records of them. Times, order and fields are
those of the reader of files.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ospltool.analytics.case import Case
from ospltool.analytics.contract import Detail
from ospltool.analytics.engines import Engine
from ospltool.trace.case.needed import BEGINS_RUN, SO_FAR, needed
from ospltool.trace.meaning.catalogue import UNKNOWN_LEVEL, Product, catalogue
from ospltool.trace.meaning.matcher import matcher
from ospltool.trace.reading.merge import corrected
from ospltool.trace.reading.record import NO_FIELDS, RecordKind, TimeBase, TraceRecord

_OWN: Final = ("fellow", "namespace", "group_name", "conflict", "samples", "request")
"""Columns of fields."""

_COLUMNS: Final = (
    "kind", "node", "file", "off", "time_ns", "clock", "state", "thread", "text", "terminated", "stamp",
    "level", "template", *_OWN, "case when event is not null then fields end as fields",
)  # fmt: skip
_IN_FILE: Final = "partition by node, file order by off asc nulls first"
_IN_ORDER: Final = (
    "order by coalesce(place_ns, 0) asc nulls first, node asc nulls first, file asc nulls first, "
    "off asc nulls first"
)
_ALL: Final = """
with spoken as (
  select *,
    max({time}) over ({in_file} {so_far}) as place_ns,
    lag(state) over (partition by node, file, case when state <> '' then 1 else 0 end
      order by off asc nulls first) as before_state
  from records
),
counted as (
  select *, cast(sum(case when state = 'INIT' and (before_state is null or before_state <> 'INIT' or
    {begins_run}) then 1 else 0 end) over ({in_file} {so_far}) as bigint) as run
  from spoken
)
select {names}, run
from counted{where}
{in_order}
"""
_KINDS: Final = {kind.value: kind for kind in RecordKind}
_CLOCKS: Final = {clock.value: clock for clock in TimeBase}


@dataclasses.dataclass(frozen=True, slots=True)
class WantedRecords:
    """The wanted records of a case.

    Attributes:
        since_ns: earliest time; None for the beginning.
        until_ns: latest time; None for the end.
        nodes: names of nodes; empty for all.
        always: events that are wanted at any time.
        skews: nanoseconds to add to the times of each node.
        for_facts: only records that facts depend on (see `ospltool.trace.case.needed`).
        with_waits: with `for_facts`, all records of the main threads, too.
    """

    since_ns: int | None = None
    until_ns: int | None = None
    nodes: tuple[str, ...] = ()
    always: tuple[str, ...] = ()
    skews: Mapping[str, int] = dataclasses.field(default_factory=dict)
    for_facts: bool = False
    with_waits: bool = True


def nodes_of(engine: Engine) -> list[str]:
    """Return the nodes of a case."""
    return [
        str(row[0])
        for row in engine.query("select distinct node from sources order by node asc nulls first").rows
    ]


def first_time_of(engine: Engine) -> int | None:
    """Return the time of the earliest record of a case."""
    rows = list(engine.query("select min(time_ns) as first_ns from records where kind = 'trace'").rows)
    value = rows[0][0] if rows else None
    return None if value is None else int(str(value))


def records_of(case: Case, engine: Engine, wanted: WantedRecords) -> Iterator[TraceRecord]:
    """Yield the records of a case by time, each file in its own order, as `merged` does for files.

    The run of a record counts from the beginning of its file, with any selection. Messages without an event
    lack the fields that have no column of their own: no analysis uses them, and they take time.
    """
    origins = _origins(engine)
    is_full = case.detail is Detail.FULL
    make = _Maker(origins, is_full=is_full)
    for row in engine.lines(_query(engine, wanted, is_full=is_full)):
        record = make.record(row)
        skew = wanted.skews.get(record.node, 0)
        yield corrected(record, skew) if skew else record


def _origins(engine: Engine) -> dict[str, Product]:
    rows = engine.query("select file, origin from sources order by file asc nulls first").rows
    return {str(file): Product(str(origin)) for file, origin in rows}


def _query(engine: Engine, wanted: WantedRecords, *, is_full: bool) -> str:
    """Return the query for rows in the order in which files are merged, with the runs of each file.

    Without templates all rows are needed, since those that matter are unknown.
    """
    skew = "".join(f" when node = {_quoted(node)} then {add}" for node, add in wanted.skews.items() if add)
    time = f"(time_ns + case{skew} else 0 end)" if skew else "time_ns"
    conditions = []
    if wanted.nodes:
        conditions.append(f"node in ({', '.join(map(_quoted, wanted.nodes))})")
    within = []
    if wanted.since_ns is not None:
        within.append(f"{time} >= {wanted.since_ns}")
    if wanted.until_ns is not None:
        within.append(f"{time} <= {wanted.until_ns}")
    if within:
        always = ", ".join(map(_quoted, wanted.always)) or "''"
        conditions.append(f"(({' and '.join(within)}) or event in ({always}))")
    where = f" where {' and '.join(conditions)}" if conditions else ""
    names = ", ".join(_COLUMNS)
    if is_full and wanted.for_facts:
        return needed(engine, names, time, where, with_waits=wanted.with_waits)
    return _ALL.format(
        time=time,
        names=names,
        where=where,
        in_file=_IN_FILE,
        so_far=SO_FAR,
        in_order=_IN_ORDER,
        begins_run=BEGINS_RUN,
    )


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


class _Maker:
    """Makes records of rows."""

    def __init__(self, origins: Mapping[str, Product], *, is_full: bool) -> None:
        self._origins = origins
        self._is_full = is_full
        self._templates = catalogue()

    def record(self, row: Any) -> TraceRecord:
        """Return the record of a row of `_COLUMNS` and its run; every engine gives the same types."""
        (
            kind, node, file, off, time_ns, clock, state, thread, text, terminated, stamp, level, template,
            *own, others, run,
        ) = row  # fmt: skip
        found = None if template is None else self._templates.get(template)
        fields: Mapping[str, str] = NO_FIELDS
        if self._is_full:
            if found is not None or kind != RecordKind.TRACE.value:
                fields = _fields(own, others)
        elif kind == RecordKind.TRACE.value:
            match = matcher(self._origins[file]).match(text, store=not state, cut=not terminated)
            if match is not None:
                found, fields, level = match.template, match.fields, match.template.level
        return TraceRecord(
            _KINDS[kind], node, file, off, time_ns, _CLOCKS[clock], state, thread, text,
            b"" if stamp is None else stamp.encode("utf-8", "replace"), run, found, fields,
            UNKNOWN_LEVEL if level is None else level,
        )  # fmt: skip


def _fields(own: list[Any], others: dict[str, str] | None) -> Mapping[str, str]:
    """Return all fields from the columns in the order of `_OWN`, and the rest."""
    fellow, namespace, group, conflict, samples, source = own
    fields = others or {}
    if fellow is not None:
        fields["fellow"] = fellow
    if namespace is not None:
        fields["namespace"] = namespace
    if group is not None:
        fields["group"] = group
    if conflict is not None:
        fields["conflict"] = str(conflict)
    if samples is not None:
        fields["samples"] = str(samples)
    if source is not None:
        fields["source"] = source
    return fields
