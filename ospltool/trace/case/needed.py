"""Selects the few records of a case that the facts depend on.

Of most records only time, state and thread matter, and only where they change: the first and the last record
of a run and of a thread, another state, a clock that goes back. The engine finds these in narrow columns,
where files, states and threads are numbers; it reads no text or field of the others. A case that marks such
records (see `ospltool.trace.case.edges`) needs no search, as long as no clock in it went back.
`TraceFacts` are the same from these records as from all of them, except for waits, for which every record of
the main threads is needed.
"""

from __future__ import annotations

import itertools
from typing import Final

from ospltool.analytics.engines import Engine
from ospltool.trace.meaning.catalogue import catalogue
from ospltool.trace.meaning.trace_facts import EVENTS, JUMP_BACK_NS, MAIN_THREADS, REPORTED, STRAGGLER_NS

_OF_FILE: Final = "partition by {0}node, {0}file order by {0}off asc nulls first"
_IN_FILE: Final = "partition by source order by off asc nulls first"
_IN_ORDER: Final = (
    "order by coalesce(place_ns, 0) asc nulls first, source asc nulls first, off asc nulls first"
)
SO_FAR: Final = "rows between unbounded preceding and current row"
BEGINS_RUN: Final = "substr(text, 1, 14) = 'Configuration:'"
"""Condition for the text of state INIT that only the beginning of a run has."""
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
  select node as head_node, file as head_file, off as head_off
  from records
  where state = 'INIT' and {begins_run}
),
spoken as (
  select off, time_ns, event, node, source, node_number, state_number, thread_number,
    {time} as at_ns,
    case when kind = 'trace' and time_ns is not null then 1 else 0 end as is_timed,
    case when state = '' then 0 when state = 'INIT' then 2 else 1 end as phase,
    case when head_off is null then 0 else 1 end as is_head,
    case when template in ({templates}) or level in ({levels}) or stamp is not null
      or kind in ('report', 'damaged'){threads} then 1 else 0 end as is_telling
  from records
    join contexts on node = its_node and file = its_file and state = its_state and thread = its_thread
    left join heads on node = head_node and file = head_file and off = head_off
),
placed as (
  select *, max(at_ns) over ({in_file} {so_far}) as place_ns,
    lag(phase) over (partition by source, case when phase > 0 then 1 else 0 end
      order by off asc nulls first) as before_phase
  from spoken
),
counted as (
  select *, cast(sum(case when phase = 2 and (before_phase is null or before_phase <> 2 or is_head = 1)
    then 1 else 0 end) over ({in_file} {so_far}) as bigint) as run
  from placed
),
seen as (
  select source, off, node_number, state_number, thread_number, at_ns, place_ns, run, is_timed, is_telling,
    case when phase > 0 then 1 else 0 end as is_stated
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


_TELLING: Final = """edge or template in ({templates}) or level in ({levels}) or stamp is not null
    or kind in ('report', 'damaged'){threads}"""
_MARKED: Final = """
with picked as (
  select node as key_node, file as key_file, off as key_off, {time} as at_ns,
    case when state = '' then 0 when state = 'INIT' then 2 else 1 end as phase,
    case when state = 'INIT' and {begins_run} then 1 else 0 end as is_head
  from records
  where {telling}
),
placed as (
  select *, max(at_ns) over ({in_file} {so_far}) as place_ns,
    lag(phase) over (partition by key_node, key_file, case when phase > 0 then 1 else 0 end
      order by key_off asc nulls first) as before_phase
  from picked
),
counted as (
  select *, cast(sum(case when phase = 2 and (before_phase is null or before_phase <> 2 or is_head = 1)
    then 1 else 0 end) over ({in_file} {so_far}) as bigint) as run
  from placed
)
select {names}, run
from counted join (select * from records where {telling}) as told
  on key_node = node and key_file = file and key_off = off
order by coalesce(place_ns, 0) asc nulls first, node asc nulls first, file asc nulls first,
  off asc nulls first
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
_SPANS: Final = """
select node, min(time_ns), max(time_ns)
from records
where kind = 'trace' and time_ns is not null
group by node, file
order by 1 asc nulls first, 2 asc nulls first, 3 asc nulls first
"""


def needed(engine: Engine, names: str, time: str, where: str, *, with_waits: bool) -> str:
    """Return the query for the records that facts depend on, by time, with the run of each.

    A record that is left out changes nothing. It is as late as all before it in its file, so a clock that
    went back is seen between the same two records. `TraceFacts` ignores a record of the former state just
    after a change as a straggler, and the first later record that counts is kept. The last record of a run is
    kept wherever another run of the node follows.

    Args:
        engine: an engine that is open on the case.
        names: columns, separated by commas.
        time: SQL for the corrected time of a record.
        where: SQL condition on records, with `where`; runs are counted in whole files.
        with_waits: keep every record of the main threads, too.
    """
    templates = [one.id for one in catalogue() if one.event in EVENTS]
    threads = f" or thread in ({_texts(sorted(MAIN_THREADS))})" if with_waits else ""
    is_overlapping = _overlap(engine)
    if not where and not is_overlapping and _is_marked(engine):
        return _MARKED.format(
            names=names,
            time=time,
            telling=_TELLING.format(
                templates=_texts(templates), levels=_texts(sorted(REPORTED)), threads=threads
            ),
            in_file=_OF_FILE.format("key_"),
            so_far=SO_FAR,
            begins_run=BEGINS_RUN,
        )
    lane, order = ("node_number", _IN_ORDER) if is_overlapping else ("source", "order by off asc nulls first")
    return _SQL.format(
        names=names,
        time=time,
        where=where,
        templates=_texts(templates),
        levels=_texts(sorted(REPORTED)),
        threads=threads,
        jump_ns=JUMP_BACK_NS,
        straggler_ns=STRAGGLER_NS,
        lane=f"{lane} {order}",
        stated_lane=f"{lane}, is_stated {order}",
        in_file=_IN_FILE,
        in_order=_IN_ORDER,
        so_far=SO_FAR,
        begins_run=BEGINS_RUN,
    )


def _overlap(engine: Engine) -> bool:
    """Return whether the times of two files of one node overlap; otherwise each file is examined alone."""
    spans = engine.query(_SPANS).rows
    return any(
        one[0] == other[0] and int(str(other[1])) <= int(str(one[2]))
        for one, other in itertools.pairwise(spans)
    )


def _is_marked(engine: Engine) -> bool:
    """Return whether all records are marked, and no clock went back so far that marks do not suffice."""
    query = _UNSUITABLE.format(in_file=_OF_FILE.format(""), so_far=SO_FAR, straggler_ns=STRAGGLER_NS)
    return next(iter(engine.query(query).rows))[0] == 0


def _texts(texts: list[str]) -> str:
    return ", ".join(f"'{text}'" for text in texts)
