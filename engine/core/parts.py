"""Sets made of the parts that Lazy nodes had kept, because no node with a whole set was there (5.2.3.1).

Such a set may be the only one in the system, so its node gives it like any other. It says where it comes
from, loses to a whole set, and becomes whole by joining one.
"""

from __future__ import annotations

from engine.core import joining
from engine.core.context import Context
from engine.core.events import WholeKnown
from engine.core.fellows import Fellow
from engine.core.name_space_state import NameSpaceState


def comes_from_parts(context: Context, state: NameSpaceState, giver: str) -> bool:
    """Whether the set that completes now is, to this node's knowledge, only what Lazy nodes had kept.

    A whole stored set makes it whole, and so does a whole set of the giver.
    """
    if state.is_lazy:
        return False
    has_whole = state.quality_ns > 0
    if giver != context.node:
        report = context.report_of(state, giver)
        joins = has_whole and not joining.why_not_joined(context, state, giver)
        return report is not None and report.from_parts and not joins
    others = any(report.from_parts for _, report in context.role_fellows(state))
    return state.from_parts or (others and not has_whole)


def found_whole(context: Context, state: NameSpaceState, fellow: Fellow) -> None:
    """Note that the set is whole, because a fellow with the same set knows that."""
    state.from_parts, state.whole = False, ()
    context.changed = True
    context.emit(WholeKnown(state.name))
    note_whole(context, state, fellow.node)


def note_whole(context: Context, state: NameSpaceState, fellow: str) -> None:
    """Trace that the set has joined the whole set of a fellow."""
    context.note("store.parts-completed", namespace=state.name, fellow=context.name_of(fellow))
