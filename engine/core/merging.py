"""Merging sets that evolved apart, after every reconnection (deployment guide, 5.2.3.4 and 5.4.8).

The joined system has one master. The master goes first: where its policy says Merge it takes in what the
others have, and then it begins a lineage that names all lineages it decided about. Everybody else finds its
own lineage in that list and carries out its own policy against the master's set. A node whose set is equal to
the master's moves no data (equality is known from the heartbeats).

A difference that stays while nothing is written is a sample that somebody missed: it is repaired the same
way, and reported. Nobody was apart, so both sides give what the other misses, whatever policy makes them
equal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from engine.core import alignment
from engine.core.events import DeleteSet, LineageAdopted
from engine.core.namespaces import MergeType
from engine.core.states import Phase, Trigger

if TYPE_CHECKING:
    from engine.core.context import Context
    from engine.core.fellows import Fellow
    from engine.core.messages import Epoch, NameSpaceReport, RollUp
    from engine.core.namespace import NameSpaceState

UNCHANGED_HEARTBEATS: Final = 2
"""A difference that stayed the same for so many heartbeats more is no sample under way."""
EQUALIZING: Final = frozenset({MergeType.MERGE, MergeType.REPLACE, MergeType.CATCHUP})
"""The policies that make sets equal."""
MAX_REPAIR_PAUSE_S: Final = 300.0
"""The pause between repairs that did not help grows up to this."""


def advance(context: Context, state: NameSpaceState, now: float) -> None:
    """Start, continue or finish merging where sets evolved apart."""
    if state.phase is Phase.MERGE and not state.outstanding:
        _finish(context, state)
    if state.phase is not Phase.COMPLETE or state.following is None or now < state.not_before_s:
        return
    if state.is_master(context.node):
        _as_master(context, state, now)
    else:
        _as_slave(context, state, now)


def _as_master(context: Context, state: NameSpaceState, now: float) -> None:
    foreign = [
        (fellow, report)
        for fellow, report in context.role_fellows(state)
        if report.complete
        and fellow.is_current
        and (_is_foreign(state, report) or fellow.node in state.rejoined)
    ]
    if not foreign:
        return
    lineages = tuple(sorted({report.lineage for _, report in foreign}))
    policy = policy_for(context, state, context.settings.role)
    is_repair = all(report.is_repair and fellow.node not in state.rejoined for fellow, report in foreign)
    if is_repair and policy in EQUALIZING:
        policy = MergeType.MERGE
    mergeable = [one for one in foreign if one[1].aligner and not _was_away_too_long(context, one[0])]
    sources = _sources(state, mergeable) if policy is MergeType.MERGE else []
    for fellow, _ in foreign:
        fellow.gap_s = None
    for fellow in sources:
        context.note(
            "conflict.native-state", namespace=state.name, fellow=fellow.name, conflict=state.lineage
        )
    state.is_repair = is_repair
    state.rejoined -= {fellow.node for fellow, _ in foreign}
    context.changed = True
    if policy is MergeType.DELETE:
        context.emit(DeleteSet(state.name))
    if not sources:
        _decide(context, state, lineages, with_data=False)
        return
    state.move(Trigger.DIVERGED)
    state.merging = lineages
    for fellow in sources:
        alignment.request(context, state, fellow.node, "repair" if is_repair else "collect", now)


def _is_foreign(state: NameSpaceState, report: NameSpaceReport) -> bool:
    return report.lineage not in (state.lineage, *state.parents, *state.merged)


def _sources(state: NameSpaceState, foreign: list[tuple[Fellow, NameSpaceReport]]) -> list[Fellow]:
    """One source for each foreign lineage, the node that began it if it is there; none for equal sets."""
    by_lineage: dict[tuple[Epoch, str], list[Fellow]] = {}
    for fellow, report in foreign:
        own = report.lineage == state.lineage  # came back without noticing: stands for itself
        by_lineage.setdefault((report.lineage, fellow.node if own else ""), []).append(fellow)
    sources = [
        next((f for f in fellows if f.node == lineage.node), fellows[-1])
        for (lineage, _), fellows in sorted(by_lineage.items())
    ]
    return [fellow for fellow in sources if not _has_same_content(fellow, state)]


def _has_same_content(fellow: Fellow, state: NameSpaceState) -> bool:
    roll_up = fellow.roll_up(state.name)
    return roll_up is not None and roll_up.same_content(state.roll_up)


def _was_away_too_long(context: Context, fellow: Fellow) -> bool:
    """Whether disposes may have been forgotten while it was away, so that its data cannot be merged."""
    return fellow.gap_s is not None and fellow.gap_s > context.settings.absence_bound_s


def _decide(
    context: Context,
    state: NameSpaceState,
    lineages: tuple[Epoch, ...],
    *,
    with_data: bool,
    because_of: str = "",
) -> None:
    others = tuple(lineage for lineage in lineages if lineage != state.lineage)
    # A fellow that came back with our own lineage must act on its policy, so that lineage is decided, too.
    with_data = with_data or len(others) < len(lineages)
    state.decide_about(others, with_data=with_data, node=context.node, because_of=because_of)
    context.changed = True
    context.emit(LineageAdopted(state.name, state.lineage))


def _as_slave(context: Context, state: NameSpaceState, now: float) -> None:
    report = context.aligner_report(state)
    if report is None or not report.complete or state.lineage == report.lineage:
        return
    if not context.fellows.is_current(state.aligner):
        return  # its heartbeat, which says what the new lineage consists of, is under way
    if state.lineage in report.parents:
        _adopt(context, state, report.lineage)
    elif state.lineage in report.merged:
        policy = policy_for(context, state, report.because_of or context.settings.role)
        if report.because_of and policy is MergeType.IGNORE:
            policy = MergeType.MERGE  # the master's policy took something in; stay with the master
        carry_out(context, state, report, policy, now)


def _adopt(context: Context, state: NameSpaceState, lineage: Epoch) -> None:
    state.adopt(lineage)
    context.changed = True
    context.emit(LineageAdopted(state.name, lineage))


def carry_out(
    context: Context, state: NameSpaceState, report: NameSpaceReport, policy: MergeType, now: float
) -> None:
    """Let a policy act on our set, against the set that the aligner reports."""
    fellow = context.fellows.get(state.aligner)
    roll_up = fellow.roll_up(state.name) if fellow else None
    if policy is MergeType.IGNORE and not state.roll_up.count:
        policy = MergeType.MERGE  # there is nothing to keep apart: an empty set is aligned
    if report.is_repair and policy in EQUALIZING:
        policy = MergeType.MERGE
    if fellow and policy is MergeType.MERGE and _was_away_too_long(context, fellow):
        policy = MergeType.CATCHUP
    if fellow:
        fellow.gap_s = None
    if policy is MergeType.DELETE:
        context.emit(DeleteSet(state.name))
        _adopt(context, state, report.lineage)
    elif policy is MergeType.IGNORE or (roll_up and roll_up.same_content(state.roll_up)):
        if policy is not MergeType.IGNORE:
            context.note("merge.equal", group=state.name)
        _adopt(context, state, report.lineage)
    else:
        state.move(Trigger.DIVERGED)
        context.changed = True
        context.note(
            "merge.started",
            fellow=context.name_of(state.aligner),
            namespace=state.name,
            conflict=report.lineage,
            policy=policy,
            role=context.settings.role,
        )
        purpose = "repair" if report.is_repair else policy.value.lower()
        alignment.request(context, state, state.aligner, purpose, now)


def policy_for(context: Context, state: NameSpaceState, role: str) -> MergeType:
    """The merge type for a role; no matching scope is Ignore, said once for each merge."""
    policy = state.policy.merge_type(role)
    if policy is None:
        context.note("merge.no-scope", namespace=state.name, role=role, fellow=role)
        return MergeType.IGNORE
    return policy


def received(context: Context, state: NameSpaceState, lineage: Epoch) -> None:
    """A set that was asked for while merging is here."""
    context.changed = True
    if state.is_master(context.node):
        if not state.outstanding:
            _finish(context, state)
    elif state.phase is Phase.MERGE:
        state.move(Trigger.MERGED)
        _adopt(context, state, lineage)


def _finish(context: Context, state: NameSpaceState) -> None:
    """The master has everything it asked for."""
    lineages, state.merging = state.merging, ()
    role, state.merging_role = state.merging_role, ""
    state.move(Trigger.MERGED)
    if lineages:
        _decide(context, state, lineages, with_data=True, because_of=role)


def watch_difference(context: Context, state: NameSpaceState, now: float) -> None:
    """With each heartbeat of the aligner: one lineage but two sets that stay as they are need a repair."""
    fellow = context.fellows.get(state.aligner)
    report = context.aligner_report(state)
    if not state.complete or state.is_master(context.node) or not report or report.lineage != state.lineage:
        return
    theirs = fellow.roll_up(state.name) if fellow else None
    if state.policy.merge_type(context.settings.role) not in EQUALIZING:
        return  # sets that a conflict left different stay different
    if theirs is None or not theirs.complete or theirs.same_content(state.roll_up):
        state.differs_since = None
        if theirs is not None and theirs.complete:
            state.repairs = 0
        return
    pair = (state.roll_up, theirs)
    unchanged, state.differs_since = pair == state.differs_since, pair
    state.differs_count = state.differs_count + 1 if unchanged else 0
    if not state.policy.aligner and state.last_repaired and _same(pair, state.last_repaired):
        return  # what only a non-aligner has stays its own
    if state.differs_count >= UNCHANGED_HEARTBEATS and now >= state.repair_not_before_s:
        state.last_repaired = pair
        period = context.settings.heartbeat_period_s
        state.repair_not_before_s = now + min(MAX_REPAIR_PAUSE_S, 4 * period * 2**state.repairs)
        state.repairs = min(state.repairs + 1, 16)
        state.differs_since = None
        state.diverge(context.node, is_repair=True)
        context.changed = True
        context.note(
            "align.reconciling",
            group=state.name,
            fellow=context.name_of(state.aligner),
            samples=state.roll_up.count,
            other_samples=theirs.count,
        )


def _same(pair: tuple[RollUp, RollUp], other: tuple[RollUp, RollUp]) -> bool:
    return all(one.same_content(two) for one, two in zip(pair, other, strict=True))
