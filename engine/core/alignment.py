"""Obtain the whole set of a name-space: collect as master, align as follower (guide, 5.4.6)."""

from __future__ import annotations

from engine.core import joining
from engine.core.context import Context
from engine.core.events import AbandonSet, AligneeRequest, Completed, ExpectSet, SendSet, StoreMarks
from engine.core.fellows import Fellow
from engine.core.messages import DAMAGED, MERGE_PURPOSES, NO_EPOCH, Epoch, Refusal, SampleRequest
from engine.core.name_space_state import NameSpaceState, Outstanding, lengthened
from engine.core.name_spaces import Element
from engine.core.states import Phase, Trigger


def request(
    context: Context,
    state: NameSpaceState,
    aligner: str,
    purpose: str,
    now: float,
    elements: tuple[Element, ...] = (),
) -> None:
    """Ask a fellow for its set.

    Args:
        context: the core.
        state: the name-space.
        aligner: id of the fellow.
        purpose: see `SampleRequest`.
        now: monotonic time, seconds.
        elements: ask only for the groups in them; by default for the whole set, or if Lazy for all wanted.
    """
    number = context.next_request()
    deadline = now + context.settings.request_patience_s
    elements = elements or (state.wanted if state.is_lazy else ())
    state.outstanding[number] = Outstanding(number, aligner, purpose, deadline, elements)
    context.send(SampleRequest(number, state.name, purpose, elements=elements), aligner)
    context.emit(ExpectSet(state.name, number, aligner, purpose, elements))
    context.note("align.request", group=state.name, fellow=context.name_of(aligner), source=number)


def advance(context: Context, state: NameSpaceState, now: float) -> None:
    """Take the next step towards a complete set, if one is due."""
    may_ask = now >= state.not_before_s
    if state.phase is Phase.WAIT and state.aligner and may_ask and not _may_be_delayed(context, state):
        report = context.aligner_report(state)
        if report is not None and report.complete and report.aligner:
            state.move(Trigger.REQUESTED)
            state.gives = True
            request(context, state, state.aligner, "initial", now)
            context.changed = True
    elif state.phase is Phase.COLLECT and not state.outstanding:
        assert state.following is not None
        complete(context, state, state.following, context.node)
    elif state.phase is Phase.COMPLETE and state.is_lazy and may_ask and not state.outstanding:
        _extend(context, state, now)


def _extend(context: Context, state: NameSpaceState, now: float) -> None:
    """Ask for the groups of a Lazy name-space that readers want and that are missing."""
    missing = tuple(element for element in state.wanted if element not in state.obtained)
    report = context.aligner_report(state)
    if not missing:
        return
    asked: list[tuple[str, str]] = []
    if report is not None and report.complete and report.aligner:
        asked = [(state.aligner, "extend")]
    elif state.is_master(context.node):
        asked = [(fellow.node, "collect") for fellow in _parts(context, state)]
        if not asked:
            _obtain(context, state, missing)
    if asked:
        context.note("align.extending", group=state.name, elements=",".join(map(str, missing)))
    for node, purpose in asked:
        request(context, state, node, purpose, now, missing)


def _obtain(
    context: Context, state: NameSpaceState, elements: tuple[Element, ...], *, whole: bool = False
) -> None:
    before, were_whole = state.obtained, state.whole
    state.obtain(elements, whole=whole)
    context.changed = True
    if state.holder and state.whole != were_whole:
        context.emit(StoreMarks(state.name))
    if state.obtained != before:
        context.note("align.obtained", group=state.name, elements=",".join(map(str, elements)))


def _parts(context: Context, state: NameSpaceState) -> list[Fellow]:
    """Return the fellows of this role with a part of the name-space that they kept for their readers."""
    return [
        fellow
        for fellow in context.fellows.approved()
        if fellow.role == context.settings.role
        and (report := fellow.report(state.name)) is not None
        and report.part
        and report.aligner
        and (roll_up := fellow.roll_up(state.name)) is not None
        and roll_up.count
    ]


def _may_be_delayed(context: Context, state: NameSpaceState) -> bool:
    """Whether this node's stored data may still be injected into an empty set without writers (5.2.3.3).

    The master, which holds the empty set, asks for the data; until then this node does not align to that. It
    must be sure to be asked: `merging.open_delayed_set` has the same conditions.
    """
    report = context.aligner_report(state)
    fellow = context.fellows.get(state.aligner)
    roll_up = fellow.roll_up(state.name) if fellow else None
    return bool(
        state.policy.delayed_alignment
        and state.policy.aligner
        and not state.is_lazy
        and state.is_master(state.aligner)  # it does not hear of this node through a fellow, or another role
        and state.quality_ns > 0
        and not state.has_writers
        and report
        and report.complete
        and report.delayed
        and not joining.are_related((report.lineage, *report.parents, *report.line), state.delayed_line)
        and not report.has_writers
        and roll_up
        and not roll_up.count
    )


def asked(context: Context, message: SampleRequest, sender: str, now: float, *, is_operational: bool) -> None:
    """Refuse a fellow's request, or queue it to answer several at once (5.3.4 RequestCombinePeriod).

    A node that is not operational yet refuses.
    """
    state = context.states.get(message.name_space)
    fellow = context.fellows.get(sender)
    reason = ""
    if state is None:
        reason = "this name-space is not known here"
    elif not state.policy.aligner:
        reason = "this node is not an aligner for the name-space"
    elif fellow is None or fellow.conflict:
        reason = "the sender is not an approved fellow"
    elif _waits_for(state, sender) and message.purpose in MERGE_PURPOSES and context.node > sender:
        reason = "this node waits for the set of the sender"  # of two that ask each other, one goes first
    if state is None or reason:
        context.send(Refusal(message.request, message.name_space, reason), sender)
        return
    name, number = context.name_of(sender), message.request
    context.note("align.request-received", group=state.name, fellow=name, source=number)
    forgotten = fellow is not None and fellow.forgotten
    target = AligneeRequest(sender, number, message.purpose, message.compares, forgotten, message.elements)
    if state.is_lazy and message.purpose == "collect":
        state.given_to = sender
    if message.purpose in ("collect", "repair", "delayed"):
        context.emit(SendSet(state.name, state.lineage, (target,)))
        context.writers_due = True
        return
    settings = context.settings
    combine_s = settings.combine_operational_s if is_operational else settings.combine_initial_s
    if context.requests.waits(state.name):
        context.note("align.combined", group=state.name, fellow=name)
    if not context.requests.add(state.name, target, now, combine_s):
        context.send(Refusal(number, state.name, "too many requests wait"), sender)


def _waits_for(state: NameSpaceState, node: str) -> bool:
    """Whether a merge here waits for the set of a fellow."""
    return state.phase is Phase.MERGE and any(one.aligner == node for one in state.outstanding.values())


def start_collecting(context: Context, state: NameSpaceState, now: float) -> None:
    """Ask the fellows that captured samples before there was a master (5.2.3.7); the stored set is loaded."""
    sources = [
        fellow
        for fellow, report in context.role_fellows(state)
        if report.aligner
        and not report.holder
        and (roll_up := fellow.roll_up(state.name)) is not None
        and roll_up.count
    ] + _parts(context, state)
    if sources:
        context.note("conflict.combine", namespace=state.name, count=len(sources))
    else:
        context.note("align.no-aligner-needed", group=state.name)
    for fellow in sources:
        request(context, state, fellow.node, "collect", now)
    stored = state.stored
    state.obtain(state.wanted, whole=stored is not None and not stored.part and stored.quality_ns != DAMAGED)
    advance(context, state, now)


def complete(context: Context, state: NameSpaceState, lineage: Epoch, giver: str) -> None:
    """Complete the set; `giver` is the fellow that gave it, or this node if it injected it."""
    state.move(Trigger.COLLECTED if state.phase is Phase.COLLECT else Trigger.ALIGNED)
    state.holder = True
    state.given_by = giver
    stored = state.stored
    if giver != context.node:
        line = context.line_of(state, giver)
    elif stored is not None:
        line = lengthened(stored.line, stored.lineage)
    else:
        line = (NO_EPOCH,)
    came_from_parts, state.from_parts = state.from_parts, joining.comes_from_parts(context, state, giver)
    if not state.may_lack:
        state.whole = ()
    state.adopt(lineage, line)
    state.apart = False
    context.changed = True
    context.emit(Completed(state.name, lineage))
    context.note("store.complete", namespace=state.name, samples=state.roll_up.count)
    if state.from_parts:
        context.note("store.from-parts", namespace=state.name)
    elif came_from_parts:
        joining.note_whole(context, state, giver)


def received(context: Context, state: NameSpaceState, number: int, lineage: Epoch, now: float) -> str:
    """Take a requested set that has arrived, whole and verified; return the purpose of the request.

    `number` is that of the request, from `Context.next_request`.
    """
    outstanding = state.outstanding.pop(number, None)
    if outstanding is None:
        return ""
    if outstanding.elements and not (state.is_master(context.node) and state.outstanding):
        report = context.report_of(state, outstanding.aligner)
        is_whole = report is not None and report.complete and not report.from_parts
        whole = is_whole and outstanding.purpose != "collect"
        _obtain(context, state, outstanding.elements, whole=whole)
    if state.phase is Phase.ALIGN:
        complete(context, state, lineage, outstanding.aligner)
    elif state.phase is Phase.COLLECT:
        advance(context, state, now)
    elif outstanding.purpose == "delayed":
        report = context.report_of(state, outstanding.aligner)
        # Other nodes that have a stored set of these lineages join, because this set has become theirs.
        for epoch in report.delayed_line if report else ():
            state.line = lengthened(state.line, epoch)
    return outstanding.purpose


def refused(context: Context, refusal: Refusal, sender: str, now: float) -> None:
    """Give up a request that a fellow refuses; ask again after the next heartbeat."""
    state = context.states.get(refusal.name_space)
    if state is None:
        return
    context.note(
        "align.refused",
        fellow=context.name_of(sender),
        group=refusal.name_space,
        reason=refusal.reason,
    )
    state.not_before_s = now + context.settings.heartbeat_period_s  # before, it would refuse again
    give_up(context, state, refusal.request, now)


def give_up(context: Context, state: NameSpaceState, number: int, now: float) -> None:
    """Drop a request that its aligner will not answer, and leave the phase that waited for it.

    `number` is that of the request, from `Context.next_request`.
    """
    item = state.outstanding.pop(number, None)
    if item is None:
        return
    context.changed = True
    if state.phase is Phase.COMPLETE and state.is_master(context.node) and not state.outstanding:
        state.obtain(item.elements)  # the system has no more of them
    if state.phase is Phase.ALIGN:
        state.move(Trigger.FAILED)
        context.emit(AbandonSet(state.name))
    elif state.phase is Phase.COLLECT:
        advance(context, state, now)
    elif state.phase is Phase.MERGE and not state.outstanding:
        state.merging = ()
        state.move(Trigger.FAILED)


def check_deadlines(context: Context, state: NameSpaceState, now: float) -> None:
    """Give up requests whose aligner has been silent for too long; later steps make them again."""
    for item in [item for item in state.outstanding.values() if now >= item.deadline_s]:
        context.note(
            "align.timed-out",
            fellow=context.name_of(item.aligner),
            group=state.name,
            source=item.request,
            waited_ns=int(context.settings.request_patience_s * 1e9),
            attempt=item.attempts,
        )
        give_up(context, state, item.request, now)
