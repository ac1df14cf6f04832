"""Decide whether two sets are joined, and which merge policy acts if not (guide, 5.4.8).

A set may be made of the parts that Lazy nodes had kept, because no node with a whole set was there (5.2.3.1).
It may be the only one in the system, so its node gives it like any other. It says where it comes from, loses
to a whole set, and becomes whole by joining one.
"""

from __future__ import annotations

from collections.abc import Collection

from engine.core.context import Context
from engine.core.events import StoreMarks
from engine.core.fellows import Fellow
from engine.core.messages import DAMAGED, NO_EPOCH, Epoch
from engine.core.name_space_state import NameSpaceState
from engine.core.name_spaces import MergeType


def policy_for(context: Context, state: NameSpaceState, role: str) -> MergeType:
    """Return the merge type for a role; Ignore, and a trace line, if no scope matches."""
    policy = state.policy.merge_type(role)
    if policy is None:
        context.note("merge.no-scope", namespace=state.name, role=role, fellow=role)
        return MergeType.IGNORE
    return policy


def why_not_joined(context: Context, state: NameSpaceState, node: str) -> str:
    """Say why this node's stored set gives way to the set of a fellow at the start of a run.

    Normally it is empty and the sets are joined, so that stored data survives any order of starts.
    """
    fellow = context.fellows.get(node)
    report = fellow.report(state.name) if fellow else None
    stored = state.stored
    if stored is None or fellow is None or report is None:
        return "nothing is known of either set"
    if stored.quality_ns == DAMAGED:
        return "it is damaged"
    if stored.restored and stored.purges < report.purges:
        return "it comes from a copy of the store, and instances have been purged since that was made"
    if stored.apart:
        return "a merge policy had left it different from the others"
    was_elsewhere = stored.role not in ("", context.settings.role)
    if was_elsewhere and policy_for(context, state, stored.role) is not MergeType.MERGE:
        return f"it is the set of role {stored.role}, in which this node was before"
    theirs = {report.lineage, *report.parents, *context.line_of(state, node)}
    ours = {stored.lineage, *stored.line}
    is_delayed = state.policy.delayed_alignment
    if is_delayed is not None and not are_related(theirs, ours):
        if is_delayed:
            return "it is of another lineage, and delayedAlignment met data, a writer, or a refusing master"
        return "it is of another lineage, and delayedAlignment is false"
    if not theirs.isdisjoint(ours):
        return ""
    if policy_for(context, state, fellow.role) is MergeType.MERGE:
        return ""
    return "the set to which it belonged has been replaced or deleted since"


def are_related(lineages: Collection[Epoch], others: Collection[Epoch]) -> bool:
    """Whether two lines have a lineage in common; each begins with `NO_EPOCH`, in whichever domain."""
    return not {NO_EPOCH}.issuperset({*lineages}.intersection(others))


def comes_from_parts(context: Context, state: NameSpaceState, giver: str) -> bool:
    """Whether the set that completes now is, to this node's knowledge, only what Lazy nodes had kept.

    A whole stored set makes it whole, and so does a whole set of the giver.
    """
    if state.is_lazy:
        return False
    has_whole = state.quality_ns > 0
    if giver != context.node:
        report = context.report_of(state, giver)
        joins = has_whole and not why_not_joined(context, state, giver)
        return report is not None and report.from_parts and not joins
    others = any(report.from_parts for _, report in context.role_fellows(state))
    return state.from_parts or (others and not has_whole)


def found_whole(context: Context, state: NameSpaceState, fellow: Fellow) -> None:
    """Note that the set is whole, because a fellow with the same set knows that."""
    state.from_parts, state.whole = False, ()
    context.changed = True
    context.emit(StoreMarks(state.name))
    note_whole(context, state, fellow.node)


def note_whole(context: Context, state: NameSpaceState, fellow: str) -> None:
    """Trace that the set has joined the whole set of a fellow."""
    context.note("store.parts-completed", namespace=state.name, fellow=context.name_of(fellow))
