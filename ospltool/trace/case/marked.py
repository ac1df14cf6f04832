"""The records that facts depend on, in a case whose records are marked (`ospltool.trace.case.columnar`).

No search is needed: the marks and the templates choose the records. The engine orders them by their own
times, and `Places` puts those that a thread wrote a little late where the order of their file has them, which
takes a fraction of the time that SQL would take for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from ospltool.analytics.engines import Engine, literals
from ospltool.trace.meaning.catalogue import catalogue
from ospltool.trace.meaning.trace_facts import EVENTS, MAIN_THREADS, REPORTED, STRAGGLER_NS

if TYPE_CHECKING:
    import numpy as np
else:
    from engine.dataset.numpy_later import np

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
        same=_SAME,
    )


def run_in(in_file: str) -> str:
    """Return SQL for the run of records with `phase`, `before_phase` and `is_head`; `in_file` is a window."""
    return _RUN_IN.format(in_file=in_file, so_far=SO_FAR)


Columns = tuple[Sequence[Any], ...]
"""The values of each column, of some rows."""


class Places:
    """Puts records in the order in which files are merged, and gives them their runs.

    They come by time, and a record is at most `STRAGGLER_NS` earlier than one before it in its file. So those
    that are older than the last one by that much are in their final places.

    Args:
        file_columns: positions of node, file and offset among the columns of `query`.
    """

    def __init__(self, file_columns: tuple[int, int, int]) -> None:
        self._node, self._file, self._offset = file_columns
        self._waiting: Columns = ()
        self._files: dict[tuple[str, str], int] = {}
        self._names: list[tuple[str, str]] = []
        self._latest: dict[int, int] = {}
        """The place of the last record of each file."""
        self._run: dict[int, int] = {}
        """The run of the last record of each file."""

    def add(self, columns: Columns) -> tuple[Columns, list[int]]:
        """Take in the next rows, at least one.

        Returns:
            The columns of rows whose places are known now, and of others, with all runs; and the positions of
            the former in order.
        """
        if self._waiting:
            columns = tuple([*ours, *new] for ours, new in zip(self._waiting, columns, strict=True))
        return self._placed(columns, columns[-1][-1] - STRAGGLER_NS)

    def rest(self) -> Iterator[tuple[Columns, list[int]]]:
        """Yield the rows that are still waiting in the end."""
        if self._waiting:
            yield self._placed(self._waiting, _FOREVER)

    def _placed(self, columns: Columns, until_ns: int) -> tuple[Columns, list[int]]:
        numbers = self._numbers(columns)
        file, offset = np.array(numbers), np.array(columns[self._offset], np.int64)
        places, runs = np.array(columns[-1], np.int64), np.array(columns[_RUN], np.int64)
        in_files = np.lexsort((offset, file))
        starts = np.flatnonzero(np.diff(file[in_files], prepend=-1)).tolist()
        present = [numbers[in_files[start]] for start in starts]
        for number, start, end in zip(present, starts, [*starts[1:], len(numbers)], strict=True):
            some = in_files[start:end]
            latest = self._latest.get(number, _LONG_AGO)
            places[some] = np.maximum(np.maximum.accumulate(places[some]), latest)
            runs[some] = _continued(runs[some], self._run.get(number, 0))
        ranks = np.zeros(len(self._names), np.int64)
        ranks[sorted(present, key=self._names.__getitem__)] = np.arange(len(present))
        order = np.lexsort((offset, ranks[file], places))
        done = order[: np.searchsorted(places[order], until_ns, side="right")]
        of_file = file[done].tolist()
        self._latest.update(zip(of_file, places[done].tolist(), strict=True))
        self._run.update(zip(of_file, runs[done].tolist(), strict=True))
        later = order[done.size :].tolist()
        self._waiting = tuple([one[at] for at in later] for one in columns) if later else ()
        return (*columns[:_RUN], runs.tolist(), *columns[_RUN + 1 :]), done.tolist()

    def _numbers(self, columns: Columns) -> list[int]:
        """Return a number for the file of each row."""
        nodes, files = columns[self._node], columns[self._file]
        try:
            return list(map(self._files.__getitem__, zip(nodes, files, strict=True)))
        except KeyError:
            for pair in dict.fromkeys(zip(nodes, files, strict=True)):
                if pair not in self._files:
                    self._files[pair] = len(self._files)
                    self._names.append(pair)
            return self._numbers(columns)


def _continued(runs: np.ndarray[Any, np.dtype[np.int64]], before: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the runs of rows of a file, where `_SAME` stands for that of the row before."""
    last = np.maximum.accumulate(np.where(runs == _SAME, -1, np.arange(runs.size)))
    return np.where(last < 0, before, runs[last])


_SAME: Final = -1
_RUN: Final = -3
"""The position of the run among the columns of `query`."""

_LONG_AGO: Final = -(1 << 63)
_FOREVER: Final = (1 << 63) - 1
