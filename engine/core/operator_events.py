"""Conditions that operators must know although they change no decision, traced once when they begin.

They are clocks that differ, late heartbeats, a mixture of legacy and other masterPriorities (deployment guide
5.4.3), and planned hand-overs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from engine.core.context import Context, Reporting
from engine.core.fellows import Fellow
from engine.core.messages import Epoch
from engine.core.name_space_state import NameSpaceState
from engine.core.name_spaces import MAX_PRIORITY
from engine.core.states import Phase

# Machines with NTP differ by milliseconds; below a second nothing that we do depends on it (`SETTLING_NS`).
MAX_SKEW_NS: Final = 1_000_000_000
"""Largest difference of clocks that is not reported."""
# Half: a person can still look before the fellow counts as lost.
LATE: Final = 0.5
"""Part of the expiry time after which a heartbeat is late, if that is more than two periods."""


def clock(context: Context, fellow: Fellow) -> None:
    """Report a clock that differs from this node's, as a fellow's heartbeats show."""
    skew_ns = fellow.least_skew_ns
    is_off = abs(skew_ns) > MAX_SKEW_NS
    if is_off and not fellow.is_clock_off:
        context.note("fellow.clock-skew", fellow=fellow.name, skew_ns=skew_ns)
    fellow.is_clock_off = is_off


def heartbeat(context: Context, fellow: Fellow, silence_s: float) -> None:
    """Report a late heartbeat; `silence_s` excludes the time in which this node stood still."""
    status = fellow.status
    if status is None:
        return
    is_late = silence_s > max(LATE * status.expiry_s, 2 * status.period_s)
    if is_late and not fellow.is_late:
        context.note(
            "fellow.late",
            fellow=fellow.name,
            elapsed_ns=int(silence_s * 1e9),
            period_ns=int(status.period_s * 1e9),
            expiry_ns=int(status.expiry_s * 1e9),
        )
    fellow.is_late = is_late


def priorities(context: Context, state: NameSpaceState, fellows: Sequence[Reporting]) -> None:
    """Report masterPriority 255 (the legacy rule) beside other values."""
    used = {report.master_priority for _, report in fellows if report.aligner}
    if state.policy.aligner:
        used.add(state.policy.master_priority)
    used.discard(0)
    mixed = tuple(sorted(used)) if MAX_PRIORITY in used and len(used) > 1 else ()
    if mixed and mixed != state.mixed:
        text = ", ".join(map(str, mixed))
        context.note("election.mixed-priorities", namespace=state.name, priorities=text)
    state.mixed = mixed


def handed_over(context: Context, state: NameSpaceState, before: Epoch | None) -> None:
    """Report that this master has handed over to a fellow with a higher masterPriority."""
    following = state.following
    if before is None or following is None or before.node != context.node or following.node == context.node:
        return
    fellow = context.fellows.get(following.node)
    report = fellow.report(state.name) if fellow else None
    if fellow and report and report.master_priority > state.policy.master_priority:
        context.note(
            "election.hand-over",
            namespace=state.name,
            fellow=fellow.name,
            priority=report.master_priority,
            own_priority=state.policy.master_priority,
        )


def phase(context: Context, state: NameSpaceState) -> None:
    """Trace a change of phase since the last call."""
    before, state.noted_phase = state.noted_phase, state.phase
    if before is state.phase:
        return
    if state.phase is Phase.MERGE:
        context.note("conflict.resolving", conflict=state.lineage, run=state.run)
    elif before is Phase.MERGE:
        context.note("conflict.resolved", conflict=state.lineage)
    elif state.phase is Phase.WAIT:
        context.note("align.waiting-for-master", group=state.name)
