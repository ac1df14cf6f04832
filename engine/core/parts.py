"""Sets that come from parts: what Lazy nodes had kept, where nobody with a whole set was there (5.2.3.1).

Such a set may be the only one that there is, so its node gives it like any other. It never wins over a whole
one, says where it comes from, and is whole as soon as it has joined one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.core import joining
from engine.core.events import WholeKnown

if TYPE_CHECKING:
    from engine.core.context import Context
    from engine.core.fellows import Fellow
    from engine.core.namespace import NameSpaceState


def comes_from_parts(context: Context, state: NameSpaceState, giver: str) -> bool:
    """Whether the set that is complete now is only what Lazy nodes had kept, as far as is known here.

    A stored set that is whole makes it whole, and so does that of the giver. A node that begins with
    nothing beside such parts has no more than they have.
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
    """A fellow has the same set, and knows that it is whole."""
    state.from_parts, state.whole = False, ()
    context.changed = True
    context.emit(WholeKnown(state.name))
    note_whole(context, state, fellow.node)


def note_whole(context: Context, state: NameSpaceState, fellow: str) -> None:
    """Say that the set has joined a whole one, that of a fellow."""
    context.note("store.parts-completed", namespace=state.name, fellow=context.name_of(fellow))
