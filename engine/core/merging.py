"""Merge sets that evolved apart, and keep equal those that did not (guide, 5.2.3.4 and 5.4.8).

Within one lineage sets are joined, without a policy. Their settled content must be equal on all nodes; if it
is not, a node missed a sample. A follower that finds a difference asks the master for the samples it lacks,
and gives all fellows the samples that only it has.

Sets evolve apart when nodes lose each other while they run. The joined system has one master, which goes
first: with policy Merge it takes in the sets of the others. Then it begins a lineage that names all lineages
that it decided about (`engine.core.name_space_state`). The others find their lineage there and carry out
their own policy against the master's set; those that stayed with the master find theirs in the line, and
join. A node whose set is equal to the master's, as heartbeats show, moves no data.

Between roles, each master applies its own policy for the other's role, once for each lineage that is news
to it. A lineage made only of known ones is no news, so two masters that merge with each other come to rest.
Pairs of policies that contradict each other are reported and treated as Ignore.
"""

from __future__ import annotations

from typing import Final

from engine.core import alignment, joining
from engine.core.context import Context
from engine.core.events import DeleteSet, ReplaceShown
from engine.core.expressions import matches
from engine.core.fellows import Fellow
from engine.core.joining import policy_for
from engine.core.messages import Epoch, NameSpaceReport, RollUp
from engine.core.name_space_state import NameSpaceState
from engine.core.name_spaces import MergeType
from engine.core.states import Phase, Trigger

# One may differ by a sample that is on its way; with two, a repair begins two periods after a loss. More
# only delays it.
DIFFERING_HEARTBEATS: Final = 2
"""Successive heartbeats of the aligner with another settled set before a repair begins."""
# A set that is written differs most of the time for that reason alone. Chosen.
PART_PAUSE_S: Final = 30.0
"""Pause between comparisons of a part with its aligner's set while that is written."""
# Comparisons then take at most 5 % of the time.
PART_REST: Final = 20
"""The pause is also this many times the duration of a comparison, which resends withheld samples."""
# A difference that repairs do not mend has a cause outside: one try a minute finds the end of it soon
# enough.
MAX_REPAIR_PAUSE_S: Final = 60.0
"""Longest pause between repairs that did not help."""

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


def advance(context: Context, state: NameSpaceState, now: float) -> None:
    """Start, continue or finish a merge of sets that evolved apart."""
    if state.phase is Phase.MERGE and not state.outstanding:
        _finish(context, state)
    if state.phase is not Phase.COMPLETE or state.following is None or now < state.not_before_s:
        return
    if state.is_master(context.node):
        _as_master(context, state, now)
    else:
        _as_follower(context, state, now)


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
    mergeable = [one for one in foreign if one[1].aligner and not _was_away_too_long(context, one[0])]
    sources = _sources(state, mergeable) if policy is MergeType.MERGE else []
    for fellow, _ in foreign:
        fellow.gap_s = None
    for fellow in sources:
        context.note(
            "conflict.native-state", namespace=state.name, fellow=fellow.name, conflict=state.lineage
        )
    state.rejoined -= {fellow.node for fellow, _ in foreign}
    context.changed = True
    if policy is MergeType.DELETE:
        context.emit(DeleteSet(state.name))
    if not sources:
        deleted = policy is MergeType.DELETE  # on all nodes with the set
        _decide(context, state, lineages, with_data=deleted, replaced=deleted)
        return
    state.move(Trigger.DIVERGED)
    state.merging, state.merging_replaces = lineages, False
    for fellow in sources:
        alignment.request(context, state, fellow.node, "collect", now)


def _is_foreign(state: NameSpaceState, report: NameSpaceReport) -> bool:
    return report.lineage not in (state.lineage, *state.parents, *state.merged)


def _sources(state: NameSpaceState, foreign: list[tuple[Fellow, NameSpaceReport]]) -> list[Fellow]:
    """Choose one source per foreign lineage, its beginner if present; none for a set equal to this one."""
    by_lineage: dict[tuple[Epoch, str], list[Fellow]] = {}
    for fellow, report in foreign:
        own = report.lineage == state.lineage  # it came back without noticing: each such node is a source
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
    """Whether it was away so long that tombstones may be forgotten and its data cannot be merged."""
    return fellow.gap_s is not None and fellow.gap_s > context.settings.absence_bound_s


def _decide(
    context: Context,
    state: NameSpaceState,
    lineages: tuple[Epoch, ...],
    *,
    with_data: bool,
    because_of: str = "",
    replaced: bool = False,
) -> None:
    others = tuple(lineage for lineage in lineages if lineage != state.lineage)
    # A fellow that came back with this very lineage must act on its policy, so this one is decided, too.
    with_data = with_data or len(others) < len(lineages)
    state.decide_about(
        others, with_data=with_data, node=context.node, because_of=because_of, replaced=replaced
    )
    context.changed = True
    context.note_lineage(state)


def _as_follower(context: Context, state: NameSpaceState, now: float) -> None:
    if state.rejoined:
        state.rejoined -= {
            fellow.node for fellow, report in context.role_fellows(state) if report.lineage == state.lineage
        }
    report = context.aligner_report(state)
    if report is None or not report.complete or state.lineage == report.lineage:
        return
    if not context.fellows.is_current(state.aligner):
        return  # its heartbeat, which describes the set of the new lineage, is under way
    if state.lineage in report.parents:
        _adopt(context, state, report.lineage, apart=state.apart)
    elif state.lineage in report.line and not state.apart:
        state.gives = True
        _align(context, state, report, MergeType.MERGE, now)
    elif state.lineage in report.merged:
        policy = policy_for(context, state, report.because_of or context.settings.role)
        if report.because_of and policy is MergeType.IGNORE:
            policy = MergeType.MERGE  # the master took another role's set in: stay with the master
        carry_out(context, state, report, policy, now)
    elif state.is_lazy and state.given_to == state.aligner:
        state.gives = True  # the master began with this part
        _align(context, state, report, MergeType.MERGE, now)
    elif state.is_lazy:  # masters do not know of a part, and decide nothing about it
        carry_out(context, state, report, policy_for(context, state, context.settings.role), now)


def _adopt(context: Context, state: NameSpaceState, lineage: Epoch, *, apart: bool = False) -> None:
    state.adopt(lineage, context.line_of(state, state.aligner))
    state.apart = apart
    context.changed = True
    context.note_lineage(state)


def carry_out(
    context: Context, state: NameSpaceState, report: NameSpaceReport, policy: MergeType, now: float
) -> None:
    """Carry out a merge policy on this set, which evolved apart from the one in the aligner's `report`."""
    fellow = context.fellows.get(state.aligner)
    if policy is MergeType.IGNORE and not state.roll_up.count:
        policy = MergeType.MERGE  # an empty set has nothing to keep apart
    if fellow and policy is MergeType.MERGE and _was_away_too_long(context, fellow):
        policy = MergeType.CATCHUP
    if fellow:
        fellow.gap_s = None
    is_equal = fellow is not None and _has_same_content(fellow, state)
    if policy is MergeType.DELETE:
        theirs = fellow.roll_up(state.name) if fellow else None
        context.emit(DeleteSet(state.name))
        _adopt(context, state, report.lineage, apart=theirs is None or theirs.count > 0)
    elif policy is MergeType.IGNORE:
        _adopt(context, state, report.lineage, apart=not is_equal)
    else:
        role = context.settings.role
        of_master = next((rule.type for rule in report.merges if matches(rule.scope, role)), None)
        state.gives = of_master not in (None, MergeType.IGNORE, MergeType.DELETE)
        _align(context, state, report, policy, now)


def _align(
    context: Context, state: NameSpaceState, report: NameSpaceReport, policy: MergeType, now: float
) -> None:
    """Ask the aligner for its set, to carry out a policy with it, unless the sets are equal."""
    fellow = context.fellows.get(state.aligner)
    if fellow and _has_same_content(fellow, state):
        context.note("merge.equal", group=state.name)
        show_equal(context, state, policy)
        _adopt(context, state, report.lineage)
        return
    state.outstanding.clear()  # repairs under way are obsolete
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
    alignment.request(context, state, state.aligner, policy.value.lower(), now)


def show_equal(context: Context, state: NameSpaceState, policy: MergeType) -> bool:
    """Show readers what Replace does to instances although the sets are equal, if so configured (5.2.3.5)."""
    is_meant = policy is MergeType.REPLACE and state.policy.equality_check is False
    if is_meant and state.roll_up.count:
        context.emit(ReplaceShown(state.name))
    return is_meant


def received(context: Context, state: NameSpaceState, lineage: Epoch) -> None:
    """Take a set that was requested for a merge and has arrived."""
    context.changed = True
    if state.is_master(context.node):
        if not state.outstanding:
            _finish(context, state)
    elif state.phase is Phase.MERGE:
        state.move(Trigger.MERGED)
        _adopt(context, state, lineage)


def _finish(context: Context, state: NameSpaceState) -> None:
    """End a merge of the master, which has all sets that it asked for."""
    lineages, state.merging = state.merging, ()
    role, state.merging_role = state.merging_role, ""
    replaced, state.merging_replaces = state.merging_replaces, False
    state.move(Trigger.MERGED)
    if lineages:
        _decide(context, state, lineages, with_data=True, because_of=role, replaced=replaced)


def compared(
    context: Context, state: NameSpaceState, fellow: Fellow, until_ns: int, now: float, *, is_equal: bool
) -> None:
    """Act on the comparison of settled sets that comes with each heartbeat of a fellow.

    Args:
        context: the core.
        state: the name-space.
        fellow: sender of the heartbeat.
        until_ns: source time as of which the sets were compared.
        now: monotonic time, seconds.
        is_equal: the two settled sets are equal.
    """
    report = fellow.report(state.name)
    same_lineage = report is not None and report.complete and report.lineage == state.lineage
    is_equal = is_equal or _has_same_content(fellow, state)
    is_comparable = state.complete and fellow.approved and fellow.is_current and same_lineage
    if is_comparable and is_equal:
        fellow.in_step[state.name] = until_ns
    else:
        fellow.in_step.pop(state.name, None)
    if state.from_parts and is_comparable and is_equal and report is not None and not report.from_parts:
        joining.found_whole(context, state, fellow)
    if fellow.node != state.aligner or state.is_master(context.node):
        return
    if state.apart or (report is not None and report.apart):
        return
    state.asks = _is_partial(state, report)
    if state.asks:
        if is_comparable:
            _look_at_part(context, state, fellow, until_ns, now)
        return
    if not is_comparable or is_equal:
        state.differs = 0
        state.repairs = 0 if is_equal else state.repairs
        return
    state.differs += 1
    if state.differs < DIFFERING_HEARTBEATS or state.outstanding or now < state.repair_not_before_s:
        return
    theirs = fellow.roll_up(state.name)
    assert theirs is not None
    pair = (state.roll_up, theirs)
    if not state.policy.aligner and state.last_repaired and _same(pair, state.last_repaired):
        return  # a non-aligner keeps to itself what only it has
    state.last_repaired = pair
    state.differs = 0
    state.repair_not_before_s = now + _repair_pause_s(context, state)
    state.gives = True
    context.note(
        "align.reconciling",
        group=state.name,
        fellow=fellow.name,
        samples=state.roll_up.count,
        other_samples=theirs.count,
    )
    alignment.request(context, state, fellow.node, "repair", now)


def _look_at_part(context: Context, state: NameSpaceState, fellow: Fellow, until_ns: int, now: float) -> None:
    """Ask the aligner about a part, which heartbeats cannot compare, when one of the two sets changed.

    The node asks once the sets are at rest, or from time to time while they are written.
    """
    theirs = fellow.roll_up(state.name)
    assert theirs is not None
    pair = (state.roll_up, theirs)
    if state.last_repaired is None or not _same(pair, state.last_repaired):
        state.last_repaired, state.changed_ns = pair, until_ns
    has_rested = until_ns >= state.rests_ns
    if state.is_level or state.outstanding:
        return
    if now < state.repair_not_before_s - (PART_PAUSE_S if has_rested else 0.0):
        return
    state.repair_not_before_s = now + PART_PAUSE_S
    state.asked_until_ns, state.gives = until_ns, True
    context.note("align.part-compared", group=state.name, fellow=fellow.name, samples=state.roll_up.count)
    alignment.request(context, state, fellow.node, "repair", now, state.obtained)


def _is_partial(state: NameSpaceState, theirs: NameSpaceReport | None) -> bool:
    """Whether one of two sets may permanently lack samples: it is filtered, or that of a Lazy node."""
    return state.is_part or (theirs is not None and theirs.filtered)


def repaired(context: Context, state: NameSpaceState, moved: int, now: float) -> None:
    """End a repair; `moved` is a fingerprint of the samples that it moved either way, 0 for none.

    A repair that moved nothing, or the same samples again, did not help: the next one waits twice as long.
    """
    if state.asks:
        state.part_until_ns = max(state.part_until_ns, state.asked_until_ns)
        asked_s = state.repair_not_before_s - PART_PAUSE_S
        state.repair_not_before_s += PART_REST * max(0.0, now - asked_s)
        context.changed = True
        return
    did_help = moved not in (0, state.last_moved)
    state.last_moved = moved
    if did_help:
        state.repairs = 0
    else:
        state.repairs = min(state.repairs + 1, 16)
        state.repair_not_before_s = now + _repair_pause_s(context, state)


def _repair_pause_s(context: Context, state: NameSpaceState) -> float:
    return min(MAX_REPAIR_PAUSE_S, 2 * context.settings.heartbeat_period_s * 2.0**state.repairs)


def _same(pair: tuple[RollUp, RollUp], other: tuple[RollUp, RollUp]) -> bool:
    return all(one.same_content(two) for one, two in zip(pair, other, strict=True))


def surplus_found(context: Context, state: NameSpaceState) -> tuple[str, ...]:
    """Return the fellows to give samples to that an aligner turned out to lack.

    There are none while this set is not whole, or if it stays apart: then this node's policy kept samples
    that the master's policy does not take.
    """
    if not state.complete or state.apart:
        return ()
    if not state.gives:
        state.apart = True
        context.note_lineage(state)
        return ()
    if not state.policy.aligner:
        return ()
    return tuple(
        fellow.node
        for fellow in context.fellows.approved()
        if (report := fellow.report(state.name)) is not None
        and (report.complete or report.part)
        and report.lineage == state.lineage
        and not report.apart
    )


def takes_gift(context: Context, state: NameSpaceState, node: str, lineage: Epoch) -> bool:
    """Whether this set takes samples that a fellow gives because it found them missing here.

    `node` is the id of the giver.
    """
    fellow = context.fellows.get(node)
    is_talked_to = fellow is not None and fellow.approved
    return is_talked_to and state.complete and not state.apart and lineage == state.lineage


# Between roles.


def meet(context: Context, state: NameSpaceState, now: float) -> None:
    """As complete master: apply the merge policy to lineages of other roles that are news."""
    if state.phase is not Phase.COMPLETE or not state.is_master(context.node) or now < state.not_before_s:
        return
    for fellow, report in context.foreign_fellows(state):
        if not fellow.leads(report) or not report.complete or fellow.conflict:
            continue
        if not fellow.is_current:
            continue  # its roll-up may be that of an earlier set
        came_back = fellow.node in state.rejoined  # then even a known lineage may have changed
        parts = (*report.parents, *report.merged)
        if not came_back and state.has_decided_about(report.lineage):
            continue
        if not came_back and parts and all(state.has_decided_about(part) for part in parts):
            _note_foreign(state, report)
            continue
        state.rejoined.discard(fellow.node)
        context.note(
            "conflict.foreign-state", namespace=state.name, fellow=fellow.name, conflict=report.lineage
        )
        _apply_foreign(context, state, fellow, report, now)
        if state.outstanding:
            return  # one merge after the other


def _apply_foreign(
    context: Context, state: NameSpaceState, fellow: Fellow, report: NameSpaceReport, now: float
) -> None:
    policy = _policy_between(context, state, fellow, report)
    if policy is MergeType.DELETE and state.roll_up.count:
        context.emit(DeleteSet(state.name))
        _settle_foreign(context, state, fellow, report)
    elif policy in _MOVES_NOTHING:
        _note_foreign(state, report)
    elif _has_same_content(fellow, state):
        if show_equal(context, state, policy):
            _settle_foreign(context, state, fellow, report)
        else:
            _note_foreign(state, report)
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


def _settle_foreign(context: Context, state: NameSpaceState, fellow: Fellow, report: NameSpaceReport) -> None:
    """Begin a lineage after a change because of another role; followers apply their policy for it."""
    _note_foreign(state, report)
    state.decide_about(
        (report.lineage,), with_data=True, node=context.node, because_of=fellow.role, replaced=True
    )
    context.changed = True
    context.note_lineage(state)


def _note_foreign(state: NameSpaceState, report: NameSpaceReport) -> None:
    state.note_foreign(*report.parents, *report.merged, report.lineage)


def _policy_between(
    context: Context, state: NameSpaceState, fellow: Fellow, report: NameSpaceReport
) -> MergeType:
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
