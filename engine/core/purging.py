"""Decide when a disposed instance may be forgotten (service_cleanup_delay; tombstones)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from engine.core.states import Phase

if TYPE_CHECKING:
    from engine.core.context import Context
    from engine.core.namespace import NameSpaceState


FOREVER_NS: Final = 1 << 63


def purgeable_until(context: Context, state: NameSpaceState, now: float) -> int | None:
    """Return the source time up to which tombstones may go; None while none may.

    Only the master decides, and only up to the time as of which every known fellow's settled set is equal to
    this node's.

    A fellow that is away may still hold samples that a tombstone ends. The master waits for it up to the
    absence bound; after that the fellow takes the master's set when it comes back. The same holds for nodes
    that only a fellow hears or misses, because this node may never have met them.
    """
    if not state.complete or not state.is_master(context.node) or away(context, now):
        return None
    until_ns = FOREVER_NS
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
        if is_part or report.filtered or state.policy.filtered:
            until_ns = min(until_ns, max(0, report.part_until_ns))  # such sets are never equal
        elif roll_up is None or not roll_up.same_content(state.roll_up):
            until_ns = min(until_ns, fellow.in_step.get(state.name, 0))
    return until_ns or None


def away(context: Context, now: float) -> frozenset[str]:
    """Return the known fellows that have been away for at most the absence bound."""
    settings = context.settings
    stored = {*settings.away, *context.absent}
    given_up = {node for node in stored if (context.away_s(node, now) or 0.0) > settings.absence_bound_s}
    known = (settings.remembered | stored) - given_up
    return context.fellows.absent(now, settings.absence_bound_s, frozenset(known))
