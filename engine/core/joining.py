"""Decide whether two sets are joined, and which merge policy acts if not (guide, 5.4.8)."""

from __future__ import annotations

from engine.core.context import Context
from engine.core.messages import DAMAGED
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
    if stored.apart:
        return "a merge policy had left it different from the others"
    was_elsewhere = stored.role not in ("", context.settings.role)
    if was_elsewhere and policy_for(context, state, stored.role) is not MergeType.MERGE:
        return f"it is the set of role {stored.role}, in which this node was before"
    theirs = {report.lineage, *report.parents, *context.line_of(state, node)}
    if not theirs.isdisjoint((stored.lineage, *stored.line)):
        return ""
    if policy_for(context, state, fellow.role) is MergeType.MERGE:
        return ""
    return "the set to which it belonged has been replaced or deleted since"
