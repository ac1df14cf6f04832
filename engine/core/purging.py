"""Decide when a disposed instance may be forgotten (service_cleanup_delay; tombstones)."""

from __future__ import annotations

from typing import Final

from engine.core.context import Context
from engine.core.events import StoreMarks
from engine.core.fellows import Fellow
from engine.core.messages import Status
from engine.core.name_space_state import NameSpaceState
from engine.core.states import Phase

# Beyond all source times, which have 64 bits with a sign.
FOREVER_NS: Final = 1 << 63


def purgeable_until(context: Context, state: NameSpaceState, now: float) -> int | None:
    """Return the source time up to which tombstones may go; None while none may.

    Only the master decides, and only up to the time as of which every known fellow's settled set is equal to
    this node's, and on that fellow's disk: a tombstone that only memory has does not survive a power failure,
    and then older data of that disk would come back. The caller looks at this node's own disk.

    A fellow that is away may still hold samples that a tombstone ends. The master waits for it up to the
    absence bound; after that the fellow takes the master's set when it comes back. The same holds for nodes
    that only a fellow hears or misses, because this node may never have met them.
    """
    if not state.complete or not state.is_master(context.node) or away(context, now):
        return None
    until_ns = FOREVER_NS  # alone, with nobody to wait for
    present = {context.node, *(fellow.node for fellow in context.fellows.all())}
    for fellow in context.fellows.all():
        if fellow.name_spaces is None:
            return None  # it has not reported yet whether it takes part
        if fellow.status is None or not present.issuperset((*fellow.status.heard, *fellow.status.away)):
            return None
        report, roll_up = fellow.report(state.name), fellow.roll_up(state.name)
        if report is None or (report.phase is Phase.PASSIVE and report.part_until_ns < 0):
            continue
        is_part = report.phase is Phase.PASSIVE
        if report.lineage != state.lineage or not (is_part or (fellow.approved and report.complete)):
            return None
        is_unequal = is_part or report.filtered or state.policy.filtered  # such sets are never equal
        equal_ns = max(0, report.part_until_ns) if is_unequal else fellow.in_step.get(state.name, 0)
        if state.policy.persists:
            equal_ns = _stored_until(fellow, fellow.status, state.name, equal_ns)
        is_behind = state.policy.persists and fellow.status.unstored_s > 0
        if not (is_unequal or is_behind) and roll_up is not None and roll_up.same_content(state.roll_up):
            equal_ns = FOREVER_NS
        until_ns = min(until_ns, equal_ns)
    return until_ns or None


def _stored_until(fellow: Fellow, status: Status, name_space: str, equal_ns: int) -> int:
    """Return the source time as of which a fellow's disk has a set equal to this node's; 0 if never.

    A disk that is behind has it once it has everything that the fellow had at an earlier heartbeat.

    Args:
        fellow: the fellow.
        status: its last heartbeat.
        name_space: the name-space.
        equal_ns: source time as of which its set is equal, by that heartbeat.
    """
    if not equal_ns:
        fellow.stored.pop(name_space, None)
        fellow.storing.pop(name_space, None)
        return 0
    heard_ns, waiting_ns = fellow.storing.pop(name_space, (status.wall_ns, equal_ns))
    if not status.unstored_s:
        fellow.stored[name_space] = equal_ns
    elif heard_ns <= status.wall_ns - int(status.unstored_s * 1e9):
        fellow.stored[name_space] = waiting_ns
    else:
        fellow.storing[name_space] = heard_ns, waiting_ns
    return min(equal_ns, fellow.stored.get(name_space, 0))


def count(context: Context, state: NameSpaceState, purges: int) -> None:
    """Note how often instances were purged from sets of this history, if that is news.

    A set from a copy of a store that counts fewer may have what was purged since (`engine.core.joining`).
    """
    if purges > state.purges:
        state.purges = purges
        context.changed = True
        if state.holder:
            context.emit(StoreMarks(state.name))


def away(context: Context, now: float) -> frozenset[str]:
    """Return the known fellows that have been away for at most the absence bound."""
    settings = context.settings
    stored = {*settings.away, *context.absent}
    given_up = {node for node in stored if (context.away_s(node, now) or 0.0) > settings.absence_bound_s}
    known = (settings.remembered | stored) - given_up
    return context.fellows.absent(now, settings.absence_bound_s, frozenset(known))
