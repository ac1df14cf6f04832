"""The records of a case as they were in the files, the same with every engine.

The engine chooses the rows, and this module makes records of them, in the order and with the runs that the
reader of files gives them. An analysis takes these records as it takes those of files.

Facts depend on few records. Of most only time, state and thread matter, and only where they change: the first
and the last record of a run and of a thread, another state, a clock that goes back. Such records are marked
while a case is loaded (`ospltool.trace.case.columnar`), so the rows that an analysis asks for and the marked
ones suffice, as long as no clock went back and no two files of a node overlap, as the table of sources tells;
else all rows are read.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ospltool.analytics.case import Case
from ospltool.analytics.contract import Detail
from ospltool.analytics.engines import Engine, literal, literals
from ospltool.trace.meaning.catalogue import UNKNOWN_LEVEL, Product, Template, catalogue
from ospltool.trace.meaning.matcher import matcher
from ospltool.trace.meaning.trace_facts import MAIN_THREADS, REPORTED
from ospltool.trace.reading.reader import RunCounter, corrected
from ospltool.trace.reading.record import NO_FIELDS, STRAGGLER_NS, RecordKind, TimeBase, TraceRecord

if TYPE_CHECKING:
    import pyarrow as pa

_OWN: Final = ("fellow", "namespace", "group_name", "conflict", "samples", "request")
"""Columns of fields."""

_FIELDS: Final = ("fellow", "namespace", "group", "conflict", "samples", "source")
"""The fields that they hold."""

_COLUMNS: Final = (
    "kind", "node", "file", "off", "time_ns", "clock", "state", "thread", "text", "terminated", "stamp",
    "level", "template", *_OWN, "telling",
    "case when event is not null or kind = 'report' then fields end as fields",
)  # fmt: skip
_NAMES: Final = ", ".join(_COLUMNS)
_VALUES: Final = (*_COLUMNS[:-2], "fields", "run")

_SO_FAR: Final = (
    "over (partition by domain, node, file order by off asc nulls first "
    "rows between unbounded preceding and current row)"
)
_QUERY: Final = """
select domain, {names}, edge, {quiet} as is_quiet, {place} as place_ns
from records{where}
"""
IN_ORDER: Final = ("domain", "place_ns", "node", "file", "off")
"""The columns by which rows are sorted, nothing first, before they become records."""

_KINDS: Final = {kind.value: kind for kind in RecordKind}
_CLOCKS: Final = {clock.value: clock for clock in TimeBase}
_TRACE: Final = RecordKind.TRACE.value
_new: Final = tuple.__new__
"""Makes a record in half of the time of its class, which counts for millions."""


@dataclasses.dataclass(frozen=True, slots=True)
class Window:
    """The selection of records.

    Attributes:
        since_ns: earliest time; None for the beginning.
        until_ns: latest time; None for the end.
        nodes: names of nodes; empty for all.
    """

    since_ns: int | None = None
    until_ns: int | None = None
    nodes: tuple[str, ...] = ()

    def has(self, record: TraceRecord) -> bool:
        """Return whether a record is selected; events that identify nodes are, at any time."""
        if self.nodes and record.node not in self.nodes:
            return False
        if (self.since_ns is None and self.until_ns is None) or record.event in IDENTITY:
            return True
        time = record.time_ns
        if time is None:
            return False
        return (self.since_ns is None or time >= self.since_ns) and (
            self.until_ns is None or time <= self.until_ns
        )


@dataclasses.dataclass(frozen=True, slots=True)
class CaseFile:
    """A file of a case.

    Attributes:
        node: its node.
        file: its path as it was given.
        origin: the product that wrote it.
        records: records found in it.
        unparsed_bytes: bytes that belong to no record.
        span_ns: the earliest and the latest time of a trace record; None without one.
        in_order: no clock went back far, and its records have a time throughout, or none has.
    """

    node: str
    file: str
    origin: Product
    records: int
    unparsed_bytes: int
    span_ns: tuple[int, int] | None
    in_order: bool


IDENTITY: Final = frozenset({"lifecycle.address", "lifecycle.configuration"})
"""Events that tell which node has which address."""


@dataclasses.dataclass(frozen=True, slots=True)
class WantedRecords:
    """The wanted records of a case.

    Attributes:
        window: their times and nodes. Records of other times may come, too.
        skews: nanoseconds to add to the times of each node.
        without: files that are left out, by node and path.
        telling: SQL of the rows that an analysis needs; empty for all rows.
        quiet: SQL of those of them that are told for their template alone: steps of alignments may be.
        domain: their domain; None for all that the engine shows.
    """

    window: Window = Window()
    skews: Mapping[str, int] = dataclasses.field(default_factory=dict)
    without: tuple[tuple[str, str], ...] = ()
    telling: str = ""
    quiet: str = "false"
    domain: str | None = None

    @property
    def is_part(self) -> bool:
        """Whether some rows suffice. Rows without a time, which belong to no record, are in none of them."""
        return bool(self.telling) or self.window.since_ns is not None or self.window.until_ns is not None


def telling_of_facts(*, with_waits: bool) -> tuple[str, str]:
    """Return `WantedRecords.telling` and `quiet` for facts; with waits, all records of the main threads."""
    levels, threads = literals(sorted(REPORTED)), literals(sorted(MAIN_THREADS))
    telling = "telling = true"  # without a comparison, Spark takes `records where (telling)` for names
    quiet = (
        f"kind = 'trace' and time_ns is not null and not edge and stamp is null and level not in ({levels})"
    )
    if not with_waits:
        return telling, quiet
    return f"{telling} or thread in ({threads})", f"{quiet} and thread not in ({threads})"


def telling_of_alignments(events: Iterable[str], group: str) -> str:
    """Return what `WantedRecords.telling` is for some events and for a group."""
    named = f"event in ({literals(events)}) or group_name = {literal(group)}"
    return f"edge or {named} or kind in ('report', 'damaged')"


def first_time_of(engine: Engine) -> int | None:
    """Return the time of the earliest record of a case."""
    rows = list(engine.query("select min(first_ns) as first_ns from sources").rows)
    value = rows[0][0] if rows else None
    return None if value is None else int(str(value))


def files_by_domain(engine: Engine) -> dict[str, tuple[CaseFile, ...]]:
    """Return the files of each domain of a case."""
    query = (
        "select domain, node, file, origin, records, unparsed_bytes, in_order, first_ns, last_ns "
        "from sources order by domain asc nulls first, node asc nulls first, file asc nulls first"
    )
    found: dict[str, list[CaseFile]] = {}
    rows: Iterator[tuple[Any, ...]] = engine.own_query(query).rows
    for domain, node, file, origin, records, unparsed, in_order, first_ns, last_ns in rows:
        span_ns = None if first_ns is None else (first_ns, last_ns)
        one = CaseFile(node, file, Product(origin), records, unparsed, span_ns, in_order)
        found.setdefault(domain, []).append(one)
    return {domain: tuple(files) for domain, files in found.items()}


def origins_of(engine: Engine) -> dict[str, Product]:
    """Return the products that wrote the files of a case, by path."""
    return {one.file: one.origin for files in files_by_domain(engine).values() for one in files}


def rows_of(case: Case, engine: Engine, wanted: WantedRecords) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a case by time, each file in its own order, as in merged files; some at a time.

    They have the columns of `records_in`, and `is_quiet`: whether the row is told for its template alone.
    """
    is_rough = case.detail is Detail.FULL and wanted.is_part and not uncalm_domains(files_by_domain(engine))
    order = ", ".join(f"{name} asc nulls first" for name in IN_ORDER)
    query = f"{rows_query([wanted], is_rough=is_rough)} order by {order}"
    yield from rows_in_order(engine.batches(query), is_rough=is_rough)


def rows_in_order(batches: Iterable[pa.RecordBatch], *, is_rough: bool) -> Iterator[pa.RecordBatch]:
    """Yield rows that come by `IN_ORDER` in the order of their files, with the run of each.

    Args:
        batches: rows of one `rows_query`.
        is_rough: as for that query.
    """
    import pyarrow as pa  # comes with the extra `sql`

    runs: collections.defaultdict[tuple[str, str], RunCounter] = collections.defaultdict(RunCounter)
    for rows in _in_file_order(batches) if is_rough else batches:
        yield rows.append_column("run", pa.array(_runs_of(rows, runs), pa.int64()))


def _runs_of(rows: pa.RecordBatch, runs: Mapping[tuple[str, str], RunCounter]) -> list[int]:
    """Return the run of each row. It changes only at marked rows, if rows are marked."""
    from ospltool.analytics.columns import values_of  # its packages come with the extra `sql`

    values = (values_of(rows.column(name)) for name in ("node", "file", "kind", "edge"))
    found = []
    for row, (node, file, kind, edge) in enumerate(zip(*values, strict=True)):
        counter = runs[node, file]
        if kind == _TRACE and edge is not False:
            counter.count(*(rows.column(name)[row].as_py() for name in ("state", "text", "time_ns")))
        found.append(counter.run)
    return found


def records_of(case: Case, engine: Engine, wanted: WantedRecords) -> Iterator[list[TraceRecord]]:
    """Yield the records of a case by time, each file in its own order, as in merged files; some at a time.

    Messages without an event lack the fields that have no column of their own: no analysis uses them, and
    they take time.
    """
    origins = {} if case.detail is Detail.FULL else origins_of(engine)
    for rows in rows_of(case, engine, wanted):
        yield records_in(rows, wanted.skews, origins)


def rows_query(wishes: Sequence[WantedRecords], *, is_rough: bool) -> str:
    """Return a query for the rows of some domains, in no order.

    Args:
        wishes: what is wanted of each domain; they differ in `domain`, `skews` and `without` only.
        is_rough: the marks suffice for all of them: only the rows that are wanted come.
    """
    wanted = wishes[0]
    skew = "".join(
        f" when {_is_domain(one)}node = {literal(node)} then {add}"
        for one in wishes
        for node, add in one.skews.items()
        if add
    )
    time = f"(time_ns + case{skew} else 0 end)" if skew else "time_ns"
    conditions = [
        f"not ({_is_domain(one)}node = {literal(node)} and file = {literal(file)})"
        for one in wishes
        for node, file in one.without
    ]
    if wanted.domain is not None:
        conditions.append(f"domain in ({literals(one.domain or '' for one in wishes)})")
    window = wanted.window
    if window.nodes:
        conditions.append(f"node in ({literals(window.nodes)})")
    if is_rough:  # with the marked rows, from which runs are counted
        within = [f"{time} >= {window.since_ns}"] if window.since_ns is not None else []
        within += [f"{time} <= {window.until_ns}"] if window.until_ns is not None else []
        always = f"event in ({literals(sorted(IDENTITY))})"
        conditions += [f"(edge or {' and '.join(within)} or {always})"] if within else []
        conditions += [f"({wanted.telling})"] if wanted.telling else []
    # Where no clock went back, only rows that a thread wrote a little late are not in their places by their
    # times. Ordering those afterwards takes a fraction of the time that a window over all columns takes.
    place = time if is_rough else f"max({time}) {_SO_FAR}"
    quiet = f"coalesce({wanted.quiet}, false)" if is_rough else "false"
    where = f" where {' and '.join(conditions)}" if conditions else ""
    return _QUERY.format(names=_NAMES, place=f"coalesce({place}, 0)", quiet=quiet, where=where)


def _is_domain(wanted: WantedRecords) -> str:
    return "" if wanted.domain is None else f"domain = {literal(wanted.domain)} and "


def uncalm_domains(files: Mapping[str, Iterable[CaseFile]]) -> set[str]:
    """Return the domains of which marked records and those that tell something do not suffice for facts.

    They do not if a clock went back far, if some records of a file have no time, or if two files of a node
    overlap: its states then change where they meet.
    """
    return {domain for domain, some in files.items() if not _are_calm(some)}


def _are_calm(files: Iterable[CaseFile]) -> bool:
    spans: dict[str, list[tuple[int, int]]] = {}
    for one in files:
        if not one.in_order:
            return False
        if one.span_ns is not None:
            spans.setdefault(one.node, []).append(one.span_ns)
    for some in spans.values():
        some.sort()
        if any(after[0] <= before[1] for before, after in itertools.pairwise(some)):
            return False
    return True


def _in_file_order(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Put rows that come by time in the order in which files are merged.

    A row is at most STRAGGLER_NS earlier than one before it in its file. So those that are older than the
    last one by more are in their final places.
    """
    import numpy as np  # these come with the extra `sql`
    import pyarrow as pa

    from ospltool.analytics.columns import texts_of

    waiting: pa.RecordBatch | None = None
    files: dict[tuple[str, str], int] = {}
    latest: dict[int, int] = {}
    for some in batches:
        rows = some if waiting is None else pa.concat_batches([waiting, some])
        until_ns = some.column("place_ns")[-1].as_py() - STRAGGLER_NS
        names = zip(*(texts_of(rows.column(name)) for name in ("node", "file")), strict=True)
        file_of = [files.setdefault(name, len(files)) for name in names]
        offsets, places = rows.column("off").to_numpy(), rows.column("place_ns").to_pylist()
        for row in np.lexsort((offsets, file_of)).tolist():
            file = file_of[row]
            places[row] = latest[file] = max(places[row], latest.get(file, places[row]))
        ranks = np.argsort(np.array(sorted(range(len(files)), key=list(files).__getitem__)))
        order = np.lexsort((offsets, ranks[file_of], places))
        done = np.searchsorted(np.array(places)[order], until_ns)
        yield rows.take(pa.array(order[:done]))
        waiting = rows.take(pa.array(order[done:]))
    if waiting is not None:
        yield waiting


def records_in(
    rows: pa.RecordBatch, skews: Mapping[str, int], origins: Mapping[str, Product]
) -> list[TraceRecord]:
    """Make records of rows, column by column, which takes less time; every engine gives the same types.

    Args:
        rows: the rows.
        skews: nanoseconds to add to the times of each node.
        origins: the product that wrote each file, if the case has no templates and fields; else empty.
    """
    from ospltool.analytics.columns import values_of  # its packages come with the extra `sql`

    (
        kind, node, file, off, time_ns, clock, state, thread, text, terminated, stamp, level, template,
        *own, others, run,
    ) = (values_of(rows.column(name)) for name in _VALUES)  # fmt: skip
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
    made: Iterable[TraceRecord] = map(_new, itertools.repeat(TraceRecord), parts)
    if origins:
        made = map(functools.partial(_matched, origins), made, terminated)
    if any(skews.values()):
        made = (corrected(record, skews.get(record.node, 0)) for record in made)
    return list(made)


@functools.cache
def _templates() -> dict[str, Template]:
    return {one.id: one for one in catalogue()}


def _matched(origins: Mapping[str, Product], record: TraceRecord, is_terminated: bool) -> TraceRecord:
    """Return a record of a case without templates and fields with its own."""
    if record.kind is not RecordKind.TRACE:
        return record._replace(fields=NO_FIELDS)
    match = matcher(origins[record.file]).match(record.text, store=not record.state, cut=not is_terminated)
    if match is None:
        return record
    return record._replace(template=match.template, fields=match.fields, level=match.template.level)
