"""Discover, compare, approve and lose fellows (deployment guide, 5.4.1 to 5.4.4)."""

from __future__ import annotations

import math
import operator
from typing import Final

from engine.core import alignment, operator_events, purging
from engine.core.autodispose import AutodisposeWriters
from engine.core.context import Context
from engine.core.events import (
    FellowAway,
    FellowsKnown,
    NameSpaceDoubted,
    NameSpaceLearned,
    RunsSeen,
    StoreOutdated,
)
from engine.core.fellows import LEAVING, MAX_REMEMBERED, Fellow
from engine.core.messages import (
    COMMITS_STEP,
    COUNTER_STEP,
    DAMAGED,
    INCARNATION_STEP,
    LIFE_BITS,
    MAX_COUNTER,
    MAX_INCARNATION,
    MAX_SERIAL,
    Deliveries,
    NameSpaces,
    Outdated,
    RollUp,
    Status,
    Vote,
    is_unknown_run,
)
from engine.core.name_space_state import NameSpaceState
from engine.core.name_spaces import MAX_PRIORITY, DefinitionConflict, NameSpace, compare, find_policy, overlap
from engine.core.settings import RunSeen
from engine.core.states import ServiceState

# One heartbeat may just have been sent or get lost; the second one comes then. More delays each start.
PATIENCE_PERIODS: Final = 2.0
"""Heartbeat periods in which a process of this node's id that was discovered is heard, and a fellow whose
endpoints are matched tells what it remembers of this node."""
# Absence counts in hours (`absence_bound_s`), so a crash loses little of it; each note is a write.
AWAY_S: Final = 600.0
"""Seconds between two notes in the store on how long fellows have been away."""


_is_steady: Final = operator.attrgetter("is_steady")


def add_name_space(context: Context, name_space: NameSpace) -> bool:
    """Take part in a configured or learned name-space; False if no policy matches its name."""
    policy = find_policy(context.settings.policies, name_space.name)
    if policy is None:
        return False
    if place := _filter_of(context, name_space):
        policy = policy.with_filter()
        priority = policy.master_priority
        context.note("namespace.filtered", place=place, namespace=name_space.name, priority=priority)
    stored = context.settings.stored.get(name_space.name)
    is_learned = not _is_configured(context, name_space)
    state = NameSpaceState(name_space, policy, context.settings.run, is_learned)
    state.autodispose = AutodisposeWriters(
        context.settings.autodispose.get(name_space.name, ()), context.started_s
    )
    state.want(context.settings.wanted.get(name_space.name, ()) if state.is_lazy else ())
    if stored:
        state.stored, state.quality_ns, state.whole = stored, stored.quality_ns, stored.whole
        state.purges = stored.purges
        if stored.part and not state.is_lazy:  # it is joined, but loses to a whole set
            state.from_parts, state.quality_ns = True, DAMAGED
        if stored.restored:  # likewise: a fellow's set is newer
            state.quality_ns = DAMAGED
        state.vote = Vote(stored.lineage.counter + 1, "")  # epochs of the last run must not recur
        context.note("election.quality", namespace=name_space.name, quality_ns=max(0, stored.quality_ns))
    context.states[name_space.name] = state
    context.emit(NameSpaceLearned(name_space, policy, not is_learned))
    context.changed = True
    return True


def _filter_of(context: Context, name_space: NameSpace) -> str:
    """Return the place of the first content filter for a group of a name-space; empty for none."""
    filtered = context.settings.filtered
    found = (place for one, place in filtered if overlap(name_space, NameSpace("", (one,))))
    return next(found, "")


def _is_configured(context: Context, name_space: NameSpace) -> bool:
    return name_space.name in {configured.name for configured in context.settings.name_spaces}


def add_remembered(context: Context, name_space: NameSpace) -> None:
    """Take part again in a name-space that was learned in a former run (5.2.3.6).

    A name-space that conflicts with the configuration, or that no policy matches, is left out with a trace
    line. A configured name-space of the same name takes its place.
    """
    ours = [state.name_space for state in context.states.values()]
    if name_space in ours:
        return
    reason = next((str(found) for one in ours if (found := compare(one, name_space))), "")
    if not reason and not add_name_space(context, name_space):
        reason = "no policy matches its name"
    if reason:
        context.note("namespace.left-out", namespace=name_space.name, reason=reason)
    else:
        context.note("namespace.remembered", namespace=name_space.name, expressions=str(name_space))


def status(context: Context, state: ServiceState, serial: int, reported: int, now: float) -> Status:
    """Return the heartbeat of this node; `reported` is the serial of its last `NameSpaces`."""
    settings = context.settings
    return Status(
        incarnation=settings.incarnation,
        serial=serial,
        name=settings.name,
        role=settings.role,
        host=settings.host,
        state=state,
        period_s=settings.heartbeat_period_s,
        expiry_s=settings.heartbeat_expiry_s,
        wall_ns=context.wall_ns(now),
        heard=context.fellows.heard(),
        away=tuple(sorted(purging.away(context, now))),
        roll_ups=tuple(map(_roll_up, context.states.values())),
        reported=reported,
        further_hosts=settings.further_hosts,
        life=settings.life,
        began_at=settings.began_at,
    )


def _roll_up(state: NameSpaceState) -> RollUp:
    """Return the roll-up to tell; the part of a Lazy node is never complete."""
    is_complete, known = state.complete and not state.is_lazy, state.roll_up
    if known.complete is is_complete:
        return known
    return RollUp(state.name, is_complete, known.count, known.digest)


def is_repetition(context: Context, status: Status, sender: str) -> bool:
    """Whether a heartbeat repeats the one before and no name-space waits for anything.

    Most messages are such heartbeats; evaluating everything at this node's own heartbeats is enough.
    """
    fellow = context.fellows.get(sender)
    if fellow is None or not fellow.approved or fellow.status is None or not status.repeats(fellow.status):
        return False
    return all(map(_is_steady, context.states.values()))


def receive(context: Context, message: Status | NameSpaces | Deliveries, sender: str, now: float) -> None:
    """Take a state message of a fellow."""
    if not _is_in_range(context, message, sender, now):
        return
    later = context.fellows.outdated(message, sender)
    if later is not None:
        _tell_outdated(context, message, sender, later, now)
        return
    known = context.fellows.get(sender)
    if known and known.incarnation < message.incarnation:
        lose(context, known, now, "it was restarted")
    silence_s = now - known.last_heard_s - known.excused_s - context.behind_s if known else 0.0
    taken = context.fellows.receive(message, sender, now)
    if taken is None:
        return
    fellow, new = taken
    if known is fellow and isinstance(message, Status):
        operator_events.heartbeat(context, fellow, silence_s)
    if new:
        context.greeting_due = True
        context.note("fellow.discovered", fellow=fellow.node, state="known" if fellow.status else "unknown")
        fellow.forgotten = _was_forgotten(context, fellow, now)
    if isinstance(message, Status):
        _receive_status(context, fellow, message, now)
    elif isinstance(message, NameSpaces):
        _find_own_epochs(context, message, fellow.node, now)
        _compare(context, fellow, fellow.name_spaces or message)
    elif context.readers.take_claims(fellow.deliveries or message, sender):
        context.readers_changed = True


def _is_in_range(
    context: Context, message: Status | NameSpaces | Deliveries, sender: str, now: float
) -> bool:
    """Whether the counters of a message are possible; if not, its sender is not heard until they are.

    Counters only grow, and each new one is above all known ones. So one absurd counter would spread to all
    nodes and to their stores.
    """
    reason = _why_out_of_range(context, message, sender)
    _note_range(context, message, sender, reason)
    if not reason:
        return True
    fellow = context.fellows.get(sender)
    if fellow is not None and isinstance(message, NameSpaces):
        fellow.name_spaces = None  # its former report must not stand for it in elections
        if fellow.approved:
            _give_up(context, fellow, now, f"it has {reason}")
        context.fellows.judge(fellow, approved=False)
    return False


def _note_range(
    context: Context, message: Status | NameSpaces | Deliveries | Outdated, sender: str, reason: str
) -> None:
    """Note once that a node has impossible counters, for a reason, and that it has possible ones again.

    Possible counters in one kind of message say nothing of those in another.
    """
    kind, before = type(message).__name__, context.out_of_range.get(sender)
    if not reason and before is not None and before[0] == kind:
        note_in_range(context, sender)
    elif reason and before is None and len(context.out_of_range) < MAX_REMEMBERED:
        context.out_of_range[sender] = kind, context.name_of(sender)
        context.note("fellow.out-of-range", fellow=context.name_of(sender), cause=reason)


def note_in_range(context: Context, sender: str) -> None:
    """Note that a node whose counters were impossible is gone, or has others."""
    if (before := context.out_of_range.pop(sender, None)) is not None:
        context.note("fellow.in-range", fellow=before[1])


def _why_out_of_range(context: Context, message: Status | NameSpaces | Deliveries, sender: str) -> str:
    known = context.fellows.runs.get(sender)
    highest = MAX_INCARNATION if known is None else min(MAX_INCARNATION, known.incarnation + INCARNATION_STEP)
    if not 0 <= message.incarnation <= highest:
        return f"incarnation {message.incarnation}, above {highest}"
    numbers = [message.serial, message.life]
    if isinstance(message, Status):
        numbers += message.began_at, message.commits, message.reported
    if min(numbers) < 0 or max(numbers) > MAX_SERIAL or message.life >> LIFE_BITS:
        return f"a message number, or a count of transactions, that is negative or above {MAX_SERIAL}"
    for report in message.reports if isinstance(message, NameSpaces) else ():
        epochs, vote = report.epochs(), report.vote
        counters = [report.purges, *(epoch.counter for epoch in epochs)]
        counters += [] if vote is None else [vote.counter]
        highest = _highest_counter(context, report.name)
        if max(counters) > highest:
            return f"counter {max(counters)} in name-space '{report.name}', above {highest}"
        if min(counters) < 0 or not all(0 <= epoch.run < 1 << 2 * LIFE_BITS for epoch in epochs):
            return f"an epoch in name-space '{report.name}' that no node can begin"
    return ""


def _highest_counter(context: Context, name_space: str) -> int:
    """Return the highest counter that a fellow may have; any up to half the limit if none is known."""
    state = context.states.get(name_space)
    newest = 0 if state is None else max(state.newest, state.vote.counter if state.vote else 0)
    return min(newest + COUNTER_STEP, MAX_COUNTER) if newest else MAX_COUNTER // 2


def _tell_outdated(
    context: Context, message: Status | NameSpaces | Deliveries, sender: str, later: RunSeen, now: float
) -> None:
    """Tell a fellow that its store is older than this node remembers; it is not heard until a new run."""
    if not isinstance(message, Status):
        return
    early = context.fellows.refuse(sender, (message.incarnation, message.life))
    if early is not None:
        _give_up(context, early, now, "its store is older than is remembered")
    if message.state in LEAVING:
        return
    incarnation = max(message.incarnation, later.incarnation)
    context.send(Outdated(incarnation, later.life, later.commits, later.incarnation), sender)
    if sender not in context.outdated:
        context.outdated.add(sender)
        context.note(
            "fellow.outdated",
            fellow=message.name,
            incarnation=message.incarnation,
            known=later.incarnation,
        )


def found_outdated(context: Context, message: Outdated, sender: str, now: float, wait_s: float = 0.0) -> None:
    """Begin a new run above all that a fellow remembers of this node, whose store was put back from a copy.

    The message may be meant for a former run of this node, or name a number that no store can have. If
    another process with this node's id is there, one of the two runs on a copy of the other's store: then
    their heartbeats must decide first which of them ends (`engine.runtime.protocol_tracer.SharedIdentity`).

    Args:
        context: of the core.
        message: what the fellow remembers.
        sender: its id.
        now: seconds of the monotonic clock.
        wait_s: seconds in which a fellow that remembers more may tell it.
    """
    settings = context.settings
    is_over = context.outlived is not None and context.outlived_due_s is None
    if is_over or message.life == settings.life or message.incarnation < settings.incarnation:
        return
    highest = min(MAX_INCARNATION, settings.incarnation + INCARNATION_STEP)
    if message.incarnation > highest or not 0 <= message.commits <= MAX_SERIAL:
        reason = f"incarnation {message.incarnation} of this node, above {highest}"
        _note_range(context, message, sender, reason)
        return
    _note_range(context, message, sender, "")
    if settings.node in context.fellows.discovered and message.life not in context.doubles:
        wait_s = PATIENCE_PERIODS * settings.heartbeat_period_s
    before, due_s = context.outlived, context.outlived_due_s
    context.outlived_due_s = now + wait_s if due_s is None else min(due_s, now + wait_s)
    if before is None or (before.incarnation, before.commits) < (message.incarnation, message.commits):
        context.outlived, context.outlived_by = message, sender
    begin_new_run(context, now)


def begin_new_run(context: Context, now: float) -> None:
    """Begin the new run that `found_outdated` wants, if it is time for it."""
    message, due_s = context.outlived, context.outlived_due_s
    if message is None or due_s is None or now < due_s:
        return
    context.outlived_due_s = None
    settings, fellow, known = context.settings, context.name_of(context.outlived_by), message.known
    known, is_restored = known or message.incarnation, message.life not in context.doubles
    if is_restored:
        context.note("lifecycle.outdated", fellow=fellow, incarnation=settings.incarnation, known=known)
    else:
        context.note("identity.outlived", fellow=fellow, known=known)
    commits = max(message.commits, settings.began_at) + COMMITS_STEP
    context.emit(StoreOutdated(message.incarnation, commits, is_restored))


def _find_own_epochs(context: Context, message: NameSpaces, sender: str, now: float) -> None:
    """Recognise that this node's store was put back, by epochs that it began and has forgotten.

    The run of an epoch need not be the last one. A fellow that remembers that tells it at the next heartbeat.
    """
    settings = context.settings
    if not settings.life:
        return
    runs = [
        epoch.run
        for report in message.reports
        for epoch in report.epochs()
        if epoch.node == settings.node and is_unknown_run(epoch.run, settings.incarnation, settings.life)
    ]
    if runs:
        number = max(run & (1 << LIFE_BITS) - 1 for run in runs)
        fellow = context.fellows.get(sender)
        is_attached = fellow is not None and fellow.attached
        wait_s = PATIENCE_PERIODS * settings.heartbeat_period_s
        found_outdated(
            context,
            Outdated(number, 0, 0),
            sender,
            now,
            wait_s if is_attached else 2 * settings.heartbeat_expiry_s,
        )


def attached(context: Context, node: str, now: float) -> None:
    """Note that a fellow's endpoints and this node's are matched: it can tell what it remembers now."""
    context.fellows.attach(node)
    if context.outlived_due_s is not None and context.outlived_by == node:
        wait_s = PATIENCE_PERIODS * context.settings.heartbeat_period_s
        context.outlived_due_s = min(context.outlived_due_s, now + wait_s)


def _was_forgotten(context: Context, fellow: Fellow, now: float) -> bool:
    """Whether nodes ran without it for longer than tombstones are kept, in this or former runs."""
    away_s = context.away_s(fellow.node, now)
    return away_s is not None and away_s > context.settings.absence_bound_s


def _receive_status(context: Context, fellow: Fellow, status: Status, now: float) -> None:
    fellow.note_skew(status.wall_ns - context.wall_ns(now), now)
    operator_events.clock(context, fellow)
    if fellow.leaving:
        lose(context, fellow, now, "it is terminating")
        return
    if fellow.approved and not fellow.hears_us:
        context.note("fellow.asymmetric", fellow=fellow.name)
        _part(context, fellow, now)


def _compare(context: Context, fellow: Fellow, message: NameSpaces) -> None:
    """Determine compatibility (5.4.2) and learn name-spaces that a policy matches (5.2.3.6)."""
    theirs = [NameSpace(report.name, report.elements) for report in message.reports]
    ours = [state.name_space for state in context.states.values()]
    conflicts = [conflict for a in ours for b in theirs if (conflict := compare(a, b))]
    before = fellow.conflict
    context.fellows.compared(fellow, conflicts[0] if conflicts else None)
    if fellow.conflict and not before:
        _refuse(context, fellow, fellow.conflict)
    if fellow.conflict:
        return
    if fellow.node in context.refused:
        context.refused.discard(fellow.node)
        context.note("compatibility.resolved", fellow=fellow.name)
    for report in message.reports:
        if (state := context.states.get(report.name)) is not None:
            purging.count(context, state, report.purges)
    for name_space in theirs:
        if name_space.name not in context.states and add_name_space(context, name_space):
            context.note(
                "namespace.learned",
                namespace=name_space.name,
                fellow=fellow.name,
                expressions=str(name_space),
            )


def _refuse(context: Context, fellow: Fellow, conflict: DefinitionConflict) -> None:
    context.fellows.judge(fellow, approved=False)
    context.refused.add(fellow.node)
    if not _is_configured(context, conflict.ours):
        context.emit(NameSpaceDoubted(conflict.ours.name))  # after a restart the fellows' definition counts
        context.note(
            "compatibility.outdated",
            fellow=fellow.name,
            namespace=conflict.ours.name,
            expressions=str(conflict.ours),
        )
    context.note(
        "compatibility.conflict",
        fellow=fellow.name,
        namespace=conflict.ours.name,
        expressions=str(conflict.ours),
        other_namespace=conflict.theirs.name,
        other_expressions=str(conflict.theirs),
    )


def lose(context: Context, fellow: Fellow, now: float, reason: str) -> None:
    """Remove a fellow that left or was lost, and give up its requests and deliveries.

    The reason is for the trace.
    """
    context.fellows.remove(fellow.node, now)
    _give_up(context, fellow, now, reason)


def _part(context: Context, fellow: Fellow, now: float) -> None:
    """Stop talking to a fellow that does not hear this node, until it does.

    This node goes on reporting that it hears the fellow. Otherwise the fellow would take that for a loss in
    turn, and the two would alternate for ever.
    """
    _give_up(context, fellow, now, "it does not hear us")
    context.fellows.judge(fellow, approved=False)
    fellow.deaf_since_s = now


def _give_up(context: Context, fellow: Fellow, now: float, reason: str) -> None:
    context.requests.drop(fellow.node)
    context.readers.lost(fellow.node)
    context.status_due = True
    if fellow.approved:
        context.emit(FellowAway(fellow.node, 0))
        context.note("fellow.disconnected", fellow=fellow.name, reason=reason)
    for state in context.states.values():
        for item in [item for item in state.outstanding.values() if item.aligner == fellow.node]:
            context.note("align.aligner-lost", fellow=fellow.name, count=1)
            alignment.give_up(context, state, item.request, now)


def approve(context: Context, now: float) -> None:
    """Approve the fellows that are attached, known and compatible, and that hear this node.

    None while a new run is about to begin: the present one may be on an older store.
    """
    if context.outlived_due_s is not None:
        return
    is_news = False
    for fellow in context.fellows.pending():
        if not (fellow.attached and fellow.answered and fellow.hears_us):
            continue
        context.fellows.judge(fellow, approved=True)
        assert fellow.status is not None
        context.note(
            "fellow.name", fellow=fellow.node, name=fellow.name, role=fellow.role, host=fellow.status.host
        )
        context.note("fellow.confirmed", fellow=fellow.name, state=fellow.status.state)
        context.note("compatibility.approved", fellow=fellow.name)
        context.outdated.discard(fellow.node)
        _back_again(context, fellow, now)
        is_news = True
    if is_news:
        for state in context.states.values():
            state.autodispose.tell_all()
        context.writers_due = True
        known = tuple((f.node, f.name, f.role) for f in context.fellows.approved())
        context.emit(FellowsKnown(known))
        note_runs(context)
        _note_absent(context, now)


def _note_absent(context: Context, now: float) -> None:
    """Store that missing fellows of the last run are away, for the next run, which does not know them."""
    here = {fellow.node for fellow in context.fellows.all()}
    for node in sorted(context.settings.remembered - here - context.settings.away.keys() - context.absent):
        context.absent.add(node)
        context.emit(FellowAway(node, 0))


def note_away(context: Context, now: float) -> None:
    """Store from time to time how long each fellow has been away."""
    if now < context.away_due_s:
        return
    context.away_due_s = now + AWAY_S
    for node in sorted(purging.away(context, now)):
        context.emit(FellowAway(node, int((context.away_s(node, now) or 0.0) * 1e9)))
    note_runs(context)


def note_runs(context: Context) -> None:
    """Store the runs of the fellows, by which a later run of this node recognises an older store."""
    runs = {
        fellow.node: seen
        for fellow in context.fellows.all()
        if (seen := context.fellows.runs.get(fellow.node))
    }
    if runs:
        context.emit(RunsSeen(runs))


def _back_again(context: Context, fellow: Fellow, now: float) -> None:
    """Act on the absence or deafness of a fellow that is back.

    The node that did not hear the other knows whether the connection ended, and acts on it: a master takes
    the other's set in; any other node leaves the lineage and is merged. Between roles, silence counts as an
    absence, because nothing else would find a difference.
    """
    fellow.is_back = True
    silence_s, fellow.silence_s = fellow.silence_s, None
    if fellow.deaf_since_s is not None:
        silence_s, fellow.deaf_since_s = now - fellow.deaf_since_s, None
        context.note("fellow.reestablished", fellow=fellow.name)
    if fellow.gap_s is None and fellow.role != context.settings.role:
        fellow.gap_s = silence_s
    if fellow.gap_s is not None:
        _reconnected(context, fellow, fellow.gap_s)
    elif silence_s is not None:
        context.note("fellow.resumed", fellow=fellow.name, gap_ns=int(silence_s * 1e9))


def _reconnected(context: Context, fellow: Fellow, gap_s: float) -> None:
    """Act on a reconnection after a gap, in which samples may have reached only one of the two nodes."""
    context.note("fellow.reconnected", fellow=fellow.name, gap_ns=int(gap_s * 1e9))
    for state in context.states.values():
        report = fellow.report(state.name)
        if not state.holder or report is None:
            continue
        if state.is_master(context.node) or fellow.role == context.settings.role:
            state.rejoined.add(fellow.node)
        if state.part_from(context.node, context.aligner_report(state)):
            context.changed = True


def is_reconnecting(context: Context, hosts: frozenset[str], now: float) -> bool:
    """Whether a reader on that host may have come together with fellows that this node does not hear yet."""
    settings, fellows = context.settings, context.fellows
    if settings.hosts & hosts:
        return False
    return bool(fellows.pending()) or bool(fellows.absent(now, settings.absence_bound_s, frozenset()))


class DiscoveryEnd:
    """The end of discovery, after which masters are chosen (5.4.4, steps 3 and 4).

    For one name-space it ends when a fellow of this role is its confirmed master. For all it ends when every
    fellow of the last run has answered, or when the InitialDiscoveryPeriod is over and every fellow that was
    discovered has answered; one that does not answer delays it by at most one heartbeat expiry. Then a
    name-space whose masterPriority is not 255 waits for MasterElection/WaitTime.
    """

    def __init__(self, context: Context, now: float) -> None:
        settings = context.settings
        self._context = context
        self._started = now
        self._patience = (
            settings.initial_discovery_s,
            settings.initial_discovery_s + settings.heartbeat_expiry_s,
        )
        self._ended_s = math.inf

    def next_check(self, now: float) -> float | None:
        """Return when time alone may end discovery."""
        if self._ended_s < math.inf:
            end = self._ended_s + self._context.settings.election_wait_s
            return end if end > now else None
        return min([end for each in self._patience if (end := self._due_s(each)) > now], default=None)

    def _due_s(self, patience_s: float) -> float:
        """Return when it has waited so long, without the time in which this node stood still."""
        return self._started + patience_s + self._context.fellows.excused_s

    def is_over(self, state: NameSpaceState, now: float) -> bool:
        """Whether the name-space may elect a master."""
        for fellow, report in self._context.role_fellows(state):
            if report.holder and fellow.leads(report):
                if now < self._ended_s:
                    self._note(now, f"{fellow.name} is the confirmed master of '{state.name}'")
                return True
        is_legacy = state.policy.master_priority == MAX_PRIORITY
        wait_s = 0.0 if is_legacy else self._context.settings.election_wait_s
        return self._is_over_for_all(now) and now >= self._ended_s + wait_s

    def _is_over_for_all(self, now: float) -> bool:
        if now >= self._ended_s:
            return True
        fellows = self._context.fellows
        settled = not fellows.pending()
        remembered = self._context.settings.remembered
        if settled and remembered and remembered.issubset(fellows.heard()):
            return self._end(now, "every fellow of the last run has answered")
        if now >= self._due_s(self._patience[0 if settled and not fellows.unheard() else 1]):
            return self._end(now, "the initial discovery period is over")
        return False

    def _end(self, now: float, reason: str) -> bool:
        self._ended_s = now
        self._note(now, reason)
        return True

    def _note(self, now: float, reason: str) -> None:
        elapsed = int((now - self._started) * 1e9)
        self._context.note("lifecycle.discovery-ended", elapsed_ns=elapsed, reason=reason)
        self._context.note("lifecycle.fellows-known", count=len(self._context.fellows.approved()))
