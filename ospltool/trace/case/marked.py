"""The records that facts depend on, in a case whose records are marked (`ospltool.trace.case.columnar`).

No search is needed: the marks and the templates choose the records. The engine orders them by their own
times, and `ospltool.trace.case.places` puts those that a thread wrote a little late where the order of their
file has them, which takes a fraction of the time that SQL would take for it.
"""

from __future__ import annotations

from typing import Final

from ospltool.analytics.engines import Engine, literals
from ospltool.trace.meaning.catalogue import catalogue
from ospltool.trace.meaning.trace_facts import EVENTS, MAIN_THREADS, REPORTED, STRAGGLER_NS

SO_FAR: Final = "rows between unbounded preceding and current row"
BEGINS_RUN: Final = "substr(text, 1, 14) = 'Configuration:'"
"""Condition for the text of state INIT that only the beginning of a run has."""

PHASE: Final = "case when state = '' then 0 when state = 'INIT' then 2 else 1 end as phase"
"""Column of a record: 0 without a state, 2 for INIT, 1 for others."""

_RUN_IN: Final = """cast(sum(case
    when phase = 2 and (before_phase is null or before_phase <> 2 or is_head = 1) then 1 else 0
    end) over ({in_file} {so_far}) as bigint) as run"""

_OF_FILE: Final = "partition by {0}node, {0}file order by {0}off asc nulls first"
_TELLING: Final = """template in ({templates}) or level in ({levels}) or edge or stamp is not null
    or kind in ('report', 'damaged'){threads}"""
_QUIET: Final = """kind = 'trace' and time_ns is not null and not edge and stamp is null
    and level not in ({levels}){threads}"""
"""Of telling records, those that are told for their template alone."""
_MARKED: Final = """
with turns as (
  select node as turn_node, file as turn_file, off as turn_off, {time} as turn_ns,
    {phase},
    case when state = 'INIT' and {begins_run} then 1 else 0 end as is_head
  from records
  where edge or kind <> 'trace' or time_ns is null
),
phased as (
  select *, max(turn_ns) over ({in_file} {so_far}) as place_ns,
    lag(phase) over (partition by turn_node, turn_file, case when phase > 0 then 1 else 0 end
      order by turn_off asc nulls first) as before_phase
  from turns
),
counted as (
  select *, {run}
  from phased
),
told as (
  select *, {time} as own_ns, coalesce({quiet}, false) as is_quiet
  from records
  where {telling}
)
select {names}, coalesce(run, {same}) as run, is_quiet, coalesce(place_ns, own_ns, 0) as at_ns
from told left join counted on node = turn_node and file = turn_file and off = turn_off
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
    late = _UNSUITABLE.format(in_file=_OF_FILE.format(""), so_far=SO_FAR, straggler_ns=STRAGGLER_NS)
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
    in_file = _OF_FILE.format("turn_")
    return _MARKED.format(
        names=names,
        time=time,
        telling=telling,
        quiet=quiet,
        phase=PHASE,
        run=run_in(in_file),
        in_file=in_file,
        so_far=SO_FAR,
        begins_run=BEGINS_RUN,
        same=SAME,
    )


def run_in(in_file: str) -> str:
    """Return SQL for the run of records with `phase`, `before_phase` and `is_head`; `in_file` is a window."""
    return _RUN_IN.format(in_file=in_file, so_far=SO_FAR)


SAME: Final = -1
"""The run of a row that is in that of the record before."""
