"""Marks the records of a piece at which something may begin, end or go back in time.

The facts of a trace depend on few records (see `ospltool.trace.case.needed`). Of those that say nothing, a
record counts if it is the first or last of a run or thread, has another state than the one before, or comes
from a clock that went back. These are marked while the trace is loaded, each piece by itself, so the ends of
a piece are marked, too. A marked record that would not have counted changes no fact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ospltool.trace.meaning.trace_facts import STRAGGLER_NS

if TYPE_CHECKING:
    from ospltool.trace.reading.windows import Positions

    Marks = npt.NDArray[np.bool_]
    Codes = npt.NDArray[Any]


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
