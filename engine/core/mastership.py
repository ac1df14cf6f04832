"""Carry out the decision of the election for one name-space (deployment guide, 5.4.3)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from engine.core import election, operator_events
from engine.core.context import Context, Reporting
from engine.core.election import Decision, Stand
from engine.core.events import AbandonSet, NoAligner
from engine.core.messages import Vote
from engine.core.name_space_state import NameSpaceState, stand_of
from engine.core.states import Phase, Trigger

_BEFORE_COMPLETE = (Phase.SOURCE, Phase.INJECT, Phase.COLLECT, Phase.ALIGN)


def elect(context: Context, state: NameSpaceState, now: float) -> None:
    """Choose the master of a name-space whose discovery is over, and act on a change."""
    known = state.decision
    decision = _decide(context, state, now)
    if decision is known and decision.following is not None and state.has_followed(decision):
        state.highest = state.newest
        _look_for_parting(context, state)
        return
    previous_master = state.following.node if state.following else ""
    previous_via, previous_vote = state.via, state.vote
    before, why = state.following, state.why
    if decision.following is None and before is not None:
        decision = _after_loss(context, state, now, before.counter)
    state.follow(decision, context.node)
    if state.vote != previous_vote:
        _note_vote(context, state)
    if state.following != before:
        state.followed_s = now
    if state.following != before or state.vote != previous_vote:
        context.changed = True
    if decision.following is None:
        if previous_master:
            context.note("election.needed", namespace=state.name)
        if not decision.candidates and decision.rule != why:
            context.note("election.no-master", namespace=state.name, reason=decision.rule)
            if not context.settings.waits_for_aligner:
                context.emit(NoAligner(state.name))
    elif decision.following == before and decision is not known and before is not None:
        master = context.name_of(before.node)
        context.note("election.not-needed", namespace=state.name, master=master, confirmed=True)
    _move(context, state, before is not None, previous_master, previous_via)
    _look_for_parting(context, state)
    if state.following and state.following != before:
        _note_master(context, state, decision)
        operator_events.handed_over(context, state, before)


def _look_for_parting(context: Context, state: NameSpaceState) -> None:
    if state.rejoined and state.part_from(context.node, context.aligner_report(state)):
        context.changed = True


def _decide(context: Context, state: NameSpaceState, now: float) -> Decision:
    """Decide; on unchanged grounds, return the last decision."""
    gone = context.fellows.recently_lost(now, within_s=2 * context.settings.heartbeat_expiry_s)
    expects_more = _expects_more(context, state, now)
    own = (state.phase, state.holder, state.quality_ns, state.vote, state.following, state.newest)
    outline = (own, gone, expects_more, context.fellows.version, context.fellows.heard_version)
    if state.decision is not None and outline == state.outline:
        return state.decision
    state.outline = outline
    fellows = context.role_fellows(state)
    grounds = (
        own,
        [(fellow.node, report, fellow.status.heard if fellow.status else ()) for fellow, report in fellows],
        gone,
        expects_more,
    )
    if state.decision is None or grounds != state.grounds:
        operator_events.priorities(context, state, fellows)
        state.decision = _decision(context, state, fellows, gone, expects_more=expects_more)
        state.grounds = grounds
    return state.decision


def _decision(
    context: Context,
    state: NameSpaceState,
    fellows: Sequence[Reporting],
    gone: frozenset[str],
    *,
    expects_more: bool,
) -> Decision:
    own = stand_of(state.report(), context.node, context.settings.name, (), state.newest, state.run)
    if state.is_lazy:
        return _decision_for_part(own, _stands(fellows), gone, expects_more=expects_more)
    return election.decide(own, _stands(fellows), gone, expects_more=expects_more)


def _decision_for_part(
    own: Stand, peers: list[Stand], gone: frozenset[str], *, expects_more: bool
) -> Decision:
    """Decide for a Lazy node: it follows the master of the others, and leads itself if there can be none."""
    has_master = any(peer.following is not None for peer in peers)
    if has_master or (not own.is_master and any(peer.may_be_master for peer in peers)):
        own = dataclasses.replace(own, may_be_master=False, following=None)
        return election.decide(own, peers, gone, expects_more=expects_more)
    return election.decide(own, [], gone, expects_more=expects_more)


def _stands(fellows: Sequence[Reporting]) -> list[Stand]:
    """Return the fellows as the election sees them."""
    return [
        stand_of(
            report,
            fellow.node,
            fellow.name,
            fellow.status.heard if fellow.status else (),
            report.lineage.counter,
        )
        for fellow, report in fellows
    ]


def _expects_more(context: Context, state: NameSpaceState, now: float) -> bool:
    """Whether to wait for a fellow that has not reported everything yet, for one heartbeat expiry at most."""
    if state.following is not None:
        state.masterless_since_s = None
        return False
    if state.masterless_since_s is None:
        state.masterless_since_s = now
    if now >= state.masterless_since_s + context.settings.heartbeat_expiry_s:
        return False
    return any(
        not fellow.approved
        and not fellow.conflict
        and not fellow.leaving
        and fellow.role in ("", context.settings.role)
        for fellow in context.fellows.all()
    )


def _after_loss(context: Context, state: NameSpaceState, now: float, counter: int) -> Decision:
    """Decide again after the loss of a master; the next epoch must be newer than `counter`."""
    state.forget_master()
    state.vote = Vote(max(counter + 1, state.vote.counter if state.vote else 0), "")
    return _decide(context, state, now)


def _move(
    context: Context, state: NameSpaceState, had_master: bool, previous_master: str, previous_via: str
) -> None:
    """Change the phase when the master changed."""
    master = state.following.node if state.following else ""
    if master == previous_master and state.via == previous_via:
        return
    context.changed = True  # even with the same master, requests through another fellow are given up
    state.source, state.source_until_s = "", 0.0
    if state.outstanding or state.phase in _BEFORE_COMPLETE:
        state.outstanding.clear()
        state.merging = ()
        if not state.holder:
            context.emit(AbandonSet(state.name))
    if not master:
        if had_master:
            state.move(Trigger.MASTER_LOST)
    elif master == context.node:
        if master != previous_master:
            state.move(Trigger.MASTER_IS_SELF)
    else:
        state.move(Trigger.MASTER_IS_FELLOW)


def _note_vote(context: Context, state: NameSpaceState) -> None:
    if state.vote and state.vote.choice:
        context.note(
            "election.proposing",
            master=context.name_of(state.vote.choice),
            namespace=state.name,
            role=context.settings.role,
            epoch=state.vote.counter,
        )


def _note_master(context: Context, state: NameSpaceState, decision: Decision) -> None:
    assert state.following is not None
    context.note(
        "election.basis",
        namespace=state.name,
        role=context.settings.role,
        candidates=decision.basis(),
        rule=decision.rule,
    )
    if state.following.node == context.node:
        context.note("election.confirmed-self", namespace=state.name)
    else:
        master = context.name_of(state.following.node)
        context.note("election.confirmed-fellow", namespace=state.name, fellow=master)
