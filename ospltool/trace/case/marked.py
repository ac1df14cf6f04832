"""The records that facts depend on, in a case whose records are marked (`ospltool.trace.case.columnar`).

No search is needed: the marks and the templates choose the records. The engine orders them by their own
times, and `ospltool.trace.case.places` puts those that a thread wrote a little late where the order of their
file has them, which takes a fraction of the time that SQL would take for it.
"""

from __future__ import annotations

from typing import Final

from ospltool.analytics.engines import Engine, literal, literals
from ospltool.trace.meaning.catalogue import catalogue
from ospltool.trace.meaning.trace_facts import EVENTS, MAIN_THREADS, REPORTED
from ospltool.trace.reading.reader import INITIAL, RUN_HEAD, STORE_HEAD
from ospltool.trace.reading.record import STRAGGLER_NS

SO_FAR: Final = "rows between unbounded preceding and current row"
IS_HEAD: Final = f"""case
    when state = '{INITIAL}' and substr(text, 1, {len(RUN_HEAD)}) = {literal(RUN_HEAD)} then 1
    when kind = 'trace' and state = '' and substr(text, 1, {len(STORE_HEAD)}) = {literal(STORE_HEAD)} then 2
    else 0 end as is_head"""
"""Column of a record: 1 for a text in INIT, 2 for one of the store, that only the beginning of a run has."""

PHASE: Final = f"""case
    when is_head = 2 or state = '{INITIAL}' then 2 when state = '' then 0 else 1 end as phase"""
"""Column of a record with `is_head`: 0 without a state, 2 for INIT, 1 for others."""

_RUNS: Final = """phased as (
  select *, lag(phase) over ({of_file}, case when phase > 0 then 1 else 0 end {by_place}) as before_phase
  from {records}
),
turned as (
  select *,
    case when phase > 0 and (before_phase is null or before_phase <> phase) then 1 else 0 end as is_turn
  from phased
),
timed_turns as (
  select *, lag({time}) over ({of_file}, is_turn {by_place}) as turned_ns
  from turned
),
counted as (
  select *, cast(sum(case
    when phase = 2 and is_head = 1 then 1
    when phase = 2 and is_turn = 1
      and (before_phase is null or not coalesce(abs({time} - turned_ns) < {straggler_ns}, false)) then 1
    else 0 end) over ({of_file} {by_place} {so_far}) as bigint) as run
  from timed_turns
)"""

_OF_FILE: Final = "partition by node, file order by off asc nulls first"
_OF_TURNS: Final = ("partition by turn_node, turn_file", "order by turn_off asc nulls first")
_TELLING: Final = """template in ({templates}) or level in ({levels}) or edge or stamp is not null
    or kind in ('report', 'damaged'){threads}"""
_QUIET: Final = """kind = 'trace' and time_ns is not null and not edge and stamp is null
    and level not in ({levels}){threads}"""
"""Of telling records, those that are told for their template alone."""
_MARKED: Final = """
with turns as (
  select node as turn_node, file as turn_file, off as turn_off, {time} as turn_ns, state, {is_head}
  from records
  where edge or kind <> 'trace' or time_ns is null
),
stated as (
  select *, max(turn_ns) over ({of_file} {by_place} {so_far}) as place_ns, {phase}
  from turns
),
{runs},
told as (
  select *, {time} as own_ns, coalesce({quiet}, false) as is_quiet
  from records
  where {telling}
)
select {names}, coalesce(run, {same}) as run, is_quiet, coalesce(place_ns, own_ns, 0) as at_ns
from told
  left join (select turn_node, turn_file, turn_off, place_ns, run from counted) as numbered
    on node = turn_node and file = turn_file and off = turn_off
order by at_ns asc nulls first, node asc nulls first, file asc nulls first, off asc nulls first
"""
_UNSUITABLE: Final = """
select count(*)
from (
  select time_ns, edge, max(time_ns) over ({in_file} {so_far}) as latest_ns
  from records
  where edge is null or edge
) as marked
where edge is null or time_ns < latest_ns - {straggler_ns}
"""
_MIXED: Final = """
select count(*)
from (
  select count(*) as traced, count(time_ns) as timed
  from records
  where kind = 'trace'
  group by node, file
) as files
where timed > 0 and timed < traced
"""


def suits(engine: Engine) -> bool:
    """Return whether all records are marked, and marks suffice.

    They do not if a clock went back far, or if some records of a file have no time.
    """
    late = _UNSUITABLE.format(in_file=_OF_FILE, so_far=SO_FAR, straggler_ns=STRAGGLER_NS)
    return all(next(iter(engine.query(query).rows))[0] == 0 for query in (late, _MIXED))


def facts_query(names: str, time: str, *, with_waits: bool) -> str:
    """Return the query for the records that facts depend on; see `query`.

    Args:
        names: columns, separated by commas.
        time: SQL for the corrected time of a record.
        with_waits: keep every record of the main threads, too.
    """
    threads = literals(sorted(MAIN_THREADS))
    levels = literals(sorted(REPORTED))
    telling = _TELLING.format(
        templates=literals(one.id for one in catalogue() if one.event in EVENTS),
        levels=levels,
        threads=f" or thread in ({threads})" if with_waits else "",
    )
    quiet = _QUIET.format(levels=levels, threads=f" and thread not in ({threads})" if with_waits else "")
    return query(names, time, telling, quiet)


def query(names: str, time: str, telling: str, quiet: str = "true") -> str:
    """Return the query for marked and other records, almost in order.

    After the columns of `names` come the run (-1 if it is that of the record before in the file), whether
    the record is quiet (see `TraceFacts.take`), and the time by which it is ordered.

    Args:
        names: columns, separated by commas.
        time: SQL for the corrected time of a record.
        telling: SQL condition on records; it holds for all marked ones.
        quiet: SQL that tells which of them are quiet.
    """
    of_file, by_place = _OF_TURNS
    return _MARKED.format(
        names=names,
        time=time,
        telling=telling,
        quiet=quiet,
        is_head=IS_HEAD,
        phase=PHASE,
        runs=runs_of("stated", of_file, by_place, "turn_ns"),
        of_file=of_file,
        by_place=by_place,
        so_far=SO_FAR,
        same=SAME,
    )


def runs_of(records: str, of_file: str, by_place: str, time: str) -> str:
    """Return SQL that ends with the table `counted`: records with their `run`, as the reader counts runs.

    Args:
        records: table of records with `is_head` and `phase`.
        of_file: window of the records of a file.
        by_place: order of the records in the file.
        time: column of the time.
    """
    return _RUNS.format(
        records=records,
        of_file=of_file,
        by_place=by_place,
        time=time,
        so_far=SO_FAR,
        straggler_ns=STRAGGLER_NS,
    )


SAME: Final = -1
"""The run of a row that is in that of the record before."""
