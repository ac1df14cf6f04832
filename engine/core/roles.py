"""Masters of several roles: the choice of the injector at start, and later merges between roles.

At start there is one injector in the whole system: the master with an intact store before one without, then
with the highest masterPriority, the best quality, the highest id. The other masters align from it; merge
policies are only for systems that have been running (deployment guide 5.4.4, 5.4.8).

Afterwards each master applies its own policy for the other's role, once for each lineage that is news to it.
A lineage made only of known ones is no news, so two masters that merge with each other come to rest. Pairs of
policies that contradict each other are reported and treated as Ignore.
"""

from __future__ import annotations

from typing import Final

from engine.core import alignment, joining, merging
from engine.core.context import Context
from engine.core.events import AbandonSet, DeleteSet, LineageAdopted, LoadStored
from engine.core.expressions import matches
from engine.core.fellows import Fellow
from engine.core.messages import DAMAGED, NameSpaceReport
from engine.core.name_space_state import NameSpaceState
from engine.core.name_spaces import MergeType
from engine.core.states import Phase, Trigger

Foreign = tuple[Fellow, NameSpaceReport]

CONTRADICTIONS: Final = frozenset(
    {
        frozenset({MergeType.REPLACE}),
        frozenset({MergeType.REPLACE, MergeType.MERGE}),
        frozenset({MergeType.REPLACE, MergeType.DELETE}),
        frozenset({MergeType.DELETE, MergeType.MERGE}),
    }
)
"""Contradictory pairs of policies between two roles; one type alone stands for a pair of it."""

_MOVES_NOTHING: Final = (MergeType.IGNORE, MergeType.DELETE)


def find_source(context: Context, state: NameSpaceState, now: float) -> None:
    """In phase SOURCE: choose the injector as soon as every role has a master."""
    settings = context.settings
    if not state.source_until_s:
        state.source_until_s = now + 2 * (settings.initial_discovery_s + settings.heartbeat_expiry_s)
    foreign = context.foreign_fellows(state)
    # A set that some node holds has been injected: align from it, even if its holders cannot be master.
    holders = _holders(context, state)
    masters = [one for one in foreign if _is_master(one)]
    if holders:
        complete = [one for one in holders if one[1].complete]
        if not complete and now < state.source_until_s:
            return  # it is merging now
        best = max(
            complete or holders, key=lambda one: (_is_master(one), one[1].master_priority, one[0].node)
        )
        _wait_for(context, state, best[0])
        return
    undecided = {
        fellow.role for fellow, report in foreign if report.aligner and report.master_priority > 0
    } - {fellow.role for fellow, _ in masters}
    if undecided and now < state.source_until_s:
        return
    own = (state.quality_ns != DAMAGED, state.policy.master_priority, state.quality_ns, settings.node)
    better = [one for one in masters if _rank(one) > own]
    if better:
        _wait_for(context, state, max(better, key=_rank)[0])
    else:
        state.source_until_s = 0.0
        state.move(Trigger.INJECTOR_IS_SELF)
        context.changed = True
        context.emit(LoadStored(state.name))


def _holders(context: Context, state: NameSpaceState) -> list[Foreign]:
    """Return the aligners of all roles that hold the set of this run."""
    fellows = [*context.role_fellows(state), *context.foreign_fellows(state)]
    return [one for one in fellows if one[1].holder and one[1].aligner]


def yield_to_holder(context: Context, state: NameSpaceState) -> None:
    """In phase COLLECT: align from a fellow that turns out to hold the set, instead of injecting this one."""
    if state.phase is not Phase.COLLECT:
        return
    holders = _holders(context, state)
    if holders:
        state.outstanding.clear()
        context.emit(AbandonSet(state.name))
        _wait_for(context, state, max(holders, key=lambda one: (one[1].complete, one[0].node))[0])


def _is_master(one: Foreign) -> bool:
    fellow, report = one
    return report.following is not None and report.following.node == fellow.node


def _rank(one: Foreign) -> tuple[bool, int, int, str]:
    fellow, report = one
    return (report.quality_ns != DAMAGED, report.master_priority, report.quality_ns, fellow.node)


def _wait_for(context: Context, state: NameSpaceState, injector: Fellow) -> None:
    state.source_until_s = 0.0
    state.source, state.source_run = injector.node, injector.incarnation
    state.move(Trigger.INJECTOR_IS_OTHER)
    context.changed = True
    context.note("injection.not-mine", namespace=state.name, master=injector.name)


def check_source(context: Context, state: NameSpaceState) -> None:
    """In phase WAIT for another role: choose the injector again if that node is lost or started again."""
    if state.phase is not Phase.WAIT or not state.source:
        return
    fellow = context.fellows.get(state.source)
    is_same = fellow is not None and fellow.incarnation == state.source_run
    if not is_same or context.aligner_report(state) is None:
        state.source = ""
        state.move(Trigger.MASTER_IS_SELF)
        context.changed = True


def meet(context: Context, state: NameSpaceState, now: float) -> None:
    """As complete master: apply the merge policy to lineages of other roles that are news."""
    if state.phase is not Phase.COMPLETE or not state.is_master(context.node) or now < state.not_before_s:
        return
    for fellow, report in context.foreign_fellows(state):
        if not _is_master((fellow, report)) or not report.complete or fellow.conflict:
            continue
        if not fellow.is_current:
            continue  # its roll-up may be that of an earlier set
        came_back = fellow.node in state.rejoined  # then even a known lineage may have changed
        parts = (*report.parents, *report.merged)
        if not came_back and state.has_decided_about(report.lineage):
            continue
        if not came_back and parts and all(state.has_decided_about(part) for part in parts):
            _note(state, report)
            continue
        state.rejoined.discard(fellow.node)
        context.note(
            "conflict.foreign-state", namespace=state.name, fellow=fellow.name, conflict=report.lineage
        )
        _apply(context, state, fellow, report, now)
        if state.outstanding:
            return  # one merge after the other


def _apply(
    context: Context, state: NameSpaceState, fellow: Fellow, report: NameSpaceReport, now: float
) -> None:
    policy = _policy(context, state, fellow, report)
    roll_up = fellow.roll_up(state.name)
    if policy is MergeType.DELETE and state.roll_up.count:
        context.emit(DeleteSet(state.name))
        _settle(context, state, fellow, report)
    elif policy in _MOVES_NOTHING:
        _note(state, report)
    elif roll_up and roll_up.same_content(state.roll_up):
        if merging.show_equal(context, state, policy):
            _settle(context, state, fellow, report)
        else:
            _note(state, report)
    else:
        state.move(Trigger.DIVERGED)
        state.merging, state.merging_role = (report.lineage,), fellow.role
        state.merging_replaces = policy is not MergeType.MERGE
        context.changed = True
        context.note(
            "merge.started",
            fellow=fellow.name,
            namespace=state.name,
            conflict=report.lineage,
            policy=policy,
            role=fellow.role,
        )
        purpose = "collect" if policy is MergeType.MERGE else policy.value.lower()
        alignment.request(context, state, fellow.node, purpose, now)


def _settle(context: Context, state: NameSpaceState, fellow: Fellow, report: NameSpaceReport) -> None:
    """Begin a lineage after a change because of another role; followers apply their policy for it."""
    _note(state, report)
    state.decide_about(
        (report.lineage,), with_data=True, node=context.node, because_of=fellow.role, replaced=True
    )
    context.changed = True
    context.emit(LineageAdopted(state.name, state.lineage))


def _note(state: NameSpaceState, report: NameSpaceReport) -> None:
    state.note_foreign(*report.parents, *report.merged, report.lineage)


def _policy(context: Context, state: NameSpaceState, fellow: Fellow, report: NameSpaceReport) -> MergeType:
    """Return this node's policy for the fellow's role; Ignore if there is none or the two contradict."""
    ours = state.policy.merge_type(fellow.role)
    if ours is None:
        context.note("merge.no-scope", namespace=state.name, role=fellow.role, fellow=fellow.name)
        return MergeType.IGNORE
    own_role = context.settings.role
    theirs = next((rule.type for rule in report.merges if matches(rule.scope, own_role)), None)
    if theirs is not None and frozenset({ours, theirs}) in CONTRADICTIONS:
        context.note(
            "merge.contradiction",
            policy=ours,
            other_policy=theirs,
            role=own_role,
            other_role=fellow.role,
            namespace=state.name,
        )
        return MergeType.IGNORE
    return ours


def open_delayed_set(context: Context, state: NameSpaceState, now: float) -> None:
    """As master of an empty complete set without writers: take the data of a late node (5.2.3.3)."""
    if (
        not state.policy.delayed_alignment
        or state.phase is not Phase.COMPLETE
        or not state.is_master(context.node)
        or state.roll_up.count
        or state.has_writers
    ):
        return
    known = (state.lineage, *state.parents, *state.line)
    late = [
        (report.quality_ns, fellow.node)
        for fellow, report in context.role_fellows(state)
        if report.aligner
        and report.delayed
        and report.quality_ns > 0
        and not report.holder
        and report.phase is Phase.WAIT
        # A related set joins. That of a node that was asked is related, even if nothing of it is kept.
        and not joining.are_related(known, report.delayed_line)
    ]
    if late:
        state.move(Trigger.DIVERGED)
        state.merging, state.merging_replaces = (state.lineage,), False
        context.changed = True
        context.note("namespace.delayed-set", namespace=state.name)
        alignment.request(context, state, max(late)[1], "delayed", now)
