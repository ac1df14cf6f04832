"""Who is master of a name-space in a role, and which of the masters of all roles injects.

Within a role the election decides (`engine.core.election`), and this module carries that out (deployment
guide 5.4.3). At start there is one injector in the whole system: the master with an intact store before one
without, then with the highest masterPriority, the best quality, the highest id. The other masters align from
it; merge policies are only for systems that have been running (5.4.4, 5.4.8).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from engine.core import election, operator_events
from engine.core.context import Context, Reporting
from engine.core.election import Decision, Stand
from engine.core.events import AbandonSet, LoadStored, NoAligner
from engine.core.fellows import Fellow
from engine.core.messages import DAMAGED, Vote
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
        own = msgspec.structs.replace(own, may_be_master=False, following=None)
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


# The injector.


def find_source(context: Context, state: NameSpaceState, now: float) -> None:
    """In phase SOURCE: choose the injector as soon as every role has a master."""
    settings = context.settings
    if not state.source_until_s:
        state.source_until_s = now + 2 * (settings.initial_discovery_s + settings.heartbeat_expiry_s)
    foreign = context.foreign_fellows(state)
    # A set that some node holds has been injected: align from it, even if its holders cannot be master.
    holders = _holders(context, state)
    masters = [one for one in foreign if _leads(one)]
    if holders:
        complete = [one for one in holders if one[1].complete]
        if not complete and now < state.source_until_s:
            return  # it is merging now
        best = max(complete or holders, key=lambda one: (_leads(one), one[1].master_priority, one[0].node))
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


def _holders(context: Context, state: NameSpaceState) -> list[Reporting]:
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


def _rank(one: Reporting) -> tuple[bool, int, int, str]:
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


def _leads(one: Reporting) -> bool:
    return one[0].leads(one[1])
