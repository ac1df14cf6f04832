"""The interface of the core: messages, timers and commands in; messages and events out.

The caller passes `now`, seconds on any monotonic clock. After each call it sends the messages of
`messages_to_send`, carries out the events of `next_event` until there is none, and calls `handle_timer` at
the time of `next_timer`. Nothing happens by itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from engine.core import alignment, joining, mastership, membership, merging, operator_events, purging
from engine.core.context import Context
from engine.core.events import (
    AligneeRequest,
    AutodisposeWritersKnown,
    Deliver,
    Event,
    GroupAnnounced,
    HandedOver,
    SendSet,
    TakenOver,
)
from engine.core.fellows import Fellow
from engine.core.messages import (
    AutodisposeWriter,
    DeleteData,
    Deliveries,
    Epoch,
    Message,
    NameSpaces,
    NewGroup,
    Outdated,
    Outgoing,
    Purge,
    PurgedInstance,
    ReaderKey,
    Refusal,
    RollUp,
    SampleRequest,
    Status,
    WritersEnded,
    WriterView,
)
from engine.core.name_space_state import NameSpaceState
from engine.core.name_spaces import Alignee, Element, Group
from engine.core.readers import choose_server
from engine.core.settings import CoreSettings
from engine.core.states import InvariantError, Phase, ServiceState, Trigger, service_state

_ORDER: Final = {state: place for place, state in enumerate(ServiceState)}
# Chosen: with N fellows, N answers to one newcomer come at once, and this leaves each its time.
GREETING_S: Final = 0.005
"""Pause between two heartbeats for newcomers, for each fellow that is present, seconds."""
# Above the turns of a busy node (up to 30 ms) and the jitter of a loaded machine, below what makes fellows
# impatient.
STALL_S: Final = 0.1
"""Lateness of a timer, in seconds, that shows a stall of this node."""
# Only to bound the trace and the memory; all of them are counted.
MAX_STRANGERS: Final = 100
"""Senders whose deletions were refused that are traced; a forger could use a new id for each message."""
# So a newcomer hears from everybody within its second heartbeat.
GREETING_PART: Final = 0.25
"""Longest pause of that kind, in heartbeat periods."""


class DurabilityNode:
    """The durability protocol of one node.

    Attributes:
        stalls: times that this node stood still for `STALL_S` or longer.
        longest_stall_s: longest such time.
        fellow: returns the fellow with an id, None if it is not present.
        fellow_discovered: notes that a node is there, which may be too busy to be heard yet.
        name_space_of: returns the first name-space that contains a group, None if none does.
    """

    def __init__(self, settings: CoreSettings, now: float, wall_ns: int) -> None:
        """Begin a run; the first messages and events are ready at once.

        `wall_ns` is the wall clock at `now`, in nanoseconds since 1970.

        Raises:
            InvariantError: a name-space has no policy, which the configuration checks exclude.
        """
        self._context = context = Context(settings, wall_ns - int(now * 1e9), now)
        self.fellow, self.name_space_of = context.fellows.get, context.space_of
        self.fellow_discovered = context.fellows.discovered.add
        self._discovery = membership.DiscoveryEnd(context, now)
        self._discovery_check = self._discovery.next_check(now)
        self._stopping: ServiceState | None = None
        self._next_status = self._greets_from = now
        self._serial = self._reported = 0
        self._state = ServiceState.INIT
        self._timer_s: float | None = None
        self._promised_s = self._seen_s = now
        self.stalls, self.longest_stall_s = 0, 0.0
        self._heard_s: float | None = None
        self._strangers: set[str] = set()
        for name_space in settings.name_spaces:
            if not membership.add_name_space(context, name_space):
                raise InvariantError(f"name-space '{name_space.name}' has no policy")
        for name_space in settings.learned:
            membership.add_remembered(context, name_space)
        context.note("lifecycle.address", node=settings.node)
        context.note("lifecycle.incarnation", node=settings.node, incarnation=settings.incarnation)
        context.note("lifecycle.requesting-namespaces")
        context.note("lifecycle.waiting-for-fellows")
        self._evaluate(now)

    # State for the runtime.

    @property
    def state(self) -> ServiceState:
        """State of the service."""
        return self._stopping or self._state

    @property
    def name_spaces(self) -> list[NameSpaceState]:
        """Name-spaces in the order in which they were configured or learned."""
        return list(self._context.states.values())

    @property
    def fellows(self) -> tuple[Fellow, ...]:
        """Present fellows."""
        return self._context.fellows.all()

    @property
    def away(self) -> tuple[Fellow, ...]:
        """Fellows of this run that left or were lost and are not back."""
        return self._context.fellows.away()

    def wall_ns(self, now: float) -> int:
        """Return the wall clock at monotonic time `now`, as in heartbeats: it never jumps."""
        return self._context.wall_ns(now)

    def name_of(self, node: str) -> str:
        """Return a node's human name, or the beginning of its id."""
        return self._context.name_of(node)

    # Out.

    def messages_to_send(self, now: float) -> list[Outgoing]:
        """Return the messages that are due, state messages first."""
        self._seen_s = now
        if self._heard_s is not None:
            self._evaluate(self._heard_s)
        context = self._context
        if context.changed:
            context.changed = False
            context.status_due = True
            reports = tuple(state.report_to_fellows() for state in context.states.values())
            self._reported = self._next_serial()
            settings = context.settings
            context.send(NameSpaces(settings.incarnation, self._reported, reports, settings.life))
        if context.writers_due:
            context.writers_due = False
            self._tell_of_writers(now)
        if context.readers_changed and now >= context.readers.tells_from_s:
            context.readers_changed = False
            context.send(context.readers.message(context.settings.incarnation, now, context.settings.life))
        elif context.readers_changed:
            self._timer_s = None
        if context.status_due or (context.greeting_due and now >= self._greets_from):
            context.status_due = context.greeting_due = False
            self._next_status = now + context.settings.heartbeat_period_s
            self._greets_from = now + self._greeting_pause()
            self._timer_s = None
            status = membership.status(context, self.state, self._next_serial(), self._reported, now)
            context.outbox.appendleft(Outgoing(status))
        if not context.outbox:
            return []
        messages = list(context.outbox)
        context.outbox.clear()
        return messages

    def next_event(self) -> Event | None:
        """Return the next event for the runtime; None if there is none."""
        if self._heard_s is not None:
            self._evaluate(self._heard_s)
        events = self._context.events
        return events.popleft() if events else None

    def next_timer(self) -> float:
        """Return when to call `handle_timer` at the latest.

        Repeated heartbeats of fellows do not move it, so it may be earlier than necessary.
        """
        if self._heard_s is not None:
            self._evaluate(self._heard_s)
        if self._timer_s is None:
            self._timer_s = self._earliest()
        self._promised_s = max(self._timer_s, self._seen_s)
        return self._timer_s

    def _earliest(self) -> float:
        context = self._context
        earliest = self._greets_from if context.greeting_due else self._next_status
        for due in (
            self._discovery_check,
            context.outlived_due_s,
            context.readers.tells_from_s if context.readers_changed else None,
            context.readers.next_retry(),
            context.requests.next_due(self._is_ready),
        ):
            if due is not None and due < earliest:
                earliest = due
        earliest = min(earliest, context.fellows.next_expiry())
        for state in context.states.values():
            if state.source_until_s:
                earliest = min(earliest, state.source_until_s)
            for item in state.outstanding.values():
                earliest = min(earliest, item.deadline_s)
        return earliest

    # In.

    def handle_timer(self, now: float) -> None:
        """Do everything that is due; the caller has taken in all that has arrived.

        A late call shows that this node stood still, which does not count as silence of its fellows.
        """
        if now - self._promised_s >= STALL_S:
            self._stood_still(now - self._promised_s)
        self._promised_s = self._seen_s = now
        # The stall is excused above, before anybody is judged silent below.
        if now >= self._next_status:
            self._context.status_due = self._context.writers_due = True
            self._judge_lost_writers(now)
        membership.note_away(self._context, now)
        membership.begin_new_run(self._context, now)
        for fellow in self._context.fellows.silent(now):
            membership.lose(self._context, fellow, now, "its heartbeat is overdue")
        self._context.fellows.claim_attachments(now)
        for state in self._context.states.values():
            alignment.check_deadlines(self._context, state, now)
        self._evaluate(now)

    def _stood_still(self, stall_s: float) -> None:
        """Count and trace a stall of this node, and extend all deadlines by it."""
        self.stalls += 1
        self.longest_stall_s = max(self.longest_stall_s, stall_s)
        self._context.note("watch.stalled", elapsed_ns=int(stall_s * 1e9))
        self._context.fellows.excuse(stall_s)
        for state in self._context.states.values():
            for item in state.outstanding.values():
                item.deadline_s += stall_s

    def receive(self, message: Message, sender: str, now: float) -> bool:
        """Take a message of a fellow; False if it only repeats known facts.

        The core evaluates it when the runtime next asks for messages, events or the timer.
        """
        if sender == self._context.node or self._stopping is ServiceState.TERMINATED:
            return False
        context = self._context
        match message:
            case Status() | NameSpaces() | Deliveries():
                is_repetition = isinstance(message, Status) and membership.is_repetition(
                    context, message, sender
                )
                context.behind_s = max(0.0, now - self._promised_s)
                membership.receive(context, message, sender, now)
                if is_repetition and not context.has_output:
                    return False
            case SampleRequest():
                is_operational = self.state is ServiceState.COMPLETE
                alignment.asked(context, message, sender, now, is_operational=is_operational)
            case Refusal():
                alignment.refused(context, message, sender, now)
            case DeleteData() | Purge() | WritersEnded() if not self._is_approved(sender):
                # A fellow that is lost for a moment is no stranger: what it deleted comes with its set.
                if context.fellows.has_met(sender):
                    context.note("delete.left-out", origin=context.name_of(sender))
                elif sender not in self._strangers and len(self._strangers) < MAX_STRANGERS:
                    self._strangers.add(sender)
                    context.note("delete.refused", origin=context.name_of(sender))
            case DeleteData() | Purge():
                context.emit(message)
            case Outdated():
                membership.found_outdated(context, message, sender, now)
            case WriterView():
                state = context.states.get(message.name_space)
                new = state.autodispose.heard(message, sender, now) if state is not None else []
                if new:
                    context.emit(AutodisposeWritersKnown(message.name_space, tuple(new)))
            case WritersEnded():
                state = context.states.get(message.name_space)
                if state is not None:
                    state.autodispose.ended(message.writers, now)
                    context.emit(message)
            case NewGroup():
                fellow = context.fellows.get(sender)
                if fellow is None or fellow.conflict is None:
                    context.emit(GroupAnnounced(message.group, message.description, sender))
        self._heard_s = now
        return True

    def double_heard(self, life: int) -> None:
        """Note that another process with this node's id, which must end, was heard; `life` is of its run."""
        if life and len(self._context.doubles) < MAX_STRANGERS:
            self._context.doubles.add(life)

    def fellow_attached(self, node: str, now: float) -> None:
        """Note that a fellow's endpoints and this node's are matched both ways (wait-for-attachment)."""
        membership.attached(self._context, node, now)
        self._context.greeting_due = True
        self._heard_s = now

    def fellow_detached(self, node: str, now: float) -> None:
        """Note that a fellow's endpoints went away, and lose the fellow."""
        fellow = self._context.fellows.get(node)
        if fellow and self._context.fellows.is_attached(fellow):
            if not fellow.leaving:
                self._context.note("fellow.non-responsive", fellow=fellow.name)
            reason = "it left" if fellow.leaving else "its endpoints are gone"
            membership.lose(self._context, fellow, now, reason)
        self._context.fellows.detach(node)
        membership.note_in_range(self._context, node)
        self._evaluate(now)

    def roll_up(self, name_space: str, count: int, digest: int) -> None:
        """Take count and digest of a name-space's set, for the next heartbeat."""
        state = self._context.states[name_space]
        state.roll_up = RollUp(name_space, complete=state.complete, count=count, digest=digest)

    def compared(self, name_space: str, fellow: str, until_ns: int, now: float, *, is_equal: bool) -> bool:
        """Take the result of a comparison of settled sets; True if messages or events follow.

        Args:
            name_space: its name.
            fellow: id of the fellow whose heartbeat was compared.
            until_ns: source time as of which the sets were compared.
            now: monotonic time, seconds.
            is_equal: the settled sets are equal.
        """
        state, known = self._context.states[name_space], self._context.fellows.get(fellow)
        if known is not None:
            merging.compared(self._context, state, known, until_ns, now, is_equal=is_equal)
        return self._context.has_output

    def why_not_joined(self, name_space: str, giver: str) -> str:
        """Say why the stored set gives way to that of `giver` at the start of a run; empty if joined."""
        return joining.why_not_joined(self._context, self._context.states[name_space], giver)

    def surplus_found(self, name_space: str) -> tuple[str, ...]:
        """Return the fellows to give samples to that an aligner turned out to lack."""
        return merging.surplus_found(self._context, self._context.states[name_space])

    def takes_gift(self, name_space: str, giver: str, lineage: Epoch) -> bool:
        """Whether this set takes samples that a fellow, `giver`, gives without a request, of its lineage."""
        state = self._context.states.get(name_space)
        return state is not None and merging.takes_gift(self._context, state, giver, lineage)

    def injected(self, name_space: str, now: float) -> None:
        """Note that the stored set is loaded (answer to `LoadStored`)."""
        state = self._context.states[name_space]
        if state.phase is Phase.INJECT:
            state.move(Trigger.INJECTED)
            self._context.changed = True
            mastership.yield_to_holder(self._context, state)  # a holder may have appeared meanwhile
        if state.phase is Phase.COLLECT and not state.outstanding:
            alignment.start_collecting(self._context, state, now)
        self._evaluate(now)

    def writers_known(self, name_space: str, *, present: bool, now: float) -> None:
        """Take whether a live DataWriter of some group of the name-space is present (5.2.3.3)."""
        state = self._context.states[name_space]
        if state.has_writers != present:
            state.has_writers = present
            self._context.changed = True
            self._evaluate(now)

    def autodispose_writer_met(self, name_space: str, writer: AutodisposeWriter) -> None:
        """Take that this node has a writer with autodispose, whose end will be a dispose of its instances."""
        if self._context.states[name_space].autodispose.met(writer):
            self._context.emit(AutodisposeWritersKnown(name_space, (writer,)))

    def autodispose_writer_lost(self, name_space: str, writer: bytes, now: float) -> None:
        """Take that this node does not have a writer any more, which may only be cut off."""
        self._context.states[name_space].autodispose.lost(writer, now)

    def autodispose_writers_ended(self, name_space: str, writers: Iterable[bytes], now: float) -> None:
        """Forget writers whose end is in the set."""
        self._context.states[name_space].autodispose.ended(writers, now)

    def _tell_of_writers(self, now: float) -> None:
        """Tell of autodispose writers that fellows may not know, and which this node misses."""
        context = self._context
        approved = [fellow.node for fellow in context.fellows.approved()]
        for state in context.states.values():
            view = state.autodispose.view(state.name, approved, now)
            if view is not None:
                context.send(view)

    def _judge_lost_writers(self, now: float) -> None:
        """As master, decide which autodispose writers have ended."""
        context = self._context
        for state in context.states.values():
            if not (state.complete and state.is_master(context.node)):
                continue
            concerned = [
                fellow.node
                for fellow in context.fellows.all()
                if fellow.name_spaces is None or fellow.report(state.name) is not None
            ]
            ended = state.autodispose.decide(concerned, context.settings.heartbeat_expiry_s, now)
            if ended:
                state.autodispose.ended(ended, now)
                self._everywhere(WritersEnded(state.name, ended))

    def wanted(self, name_space: str, elements: Iterable[Element], now: float) -> None:
        """Keep, if Lazy, groups that a durable reader on this node's host wants (5.2.3.1)."""
        state = self._context.states[name_space]
        if not state.is_lazy or not state.want(elements):
            return
        if state.phase is Phase.PASSIVE:
            state.move(Trigger.WANTED)
            self._context.changed = True
        self._evaluate(now)

    def set_received(
        self, name_space: str, request: int, lineage: Epoch, now: float, *, moved: int = 0
    ) -> None:
        """Take the set of a request, whole and verified; see `merging.repaired` for `moved`."""
        state = self._context.states[name_space]
        purpose = alignment.received(self._context, state, request, lineage, now)
        if purpose == "repair":
            merging.repaired(self._context, state, moved, now)
        if purpose and state.phase is Phase.MERGE:
            merging.received(self._context, state, lineage)
        self._evaluate(now)

    def expects(self, name_space: str, request: int, aligner: str | None = None) -> bool:
        """Whether a request still waits for its answer, from a certain `aligner` if one is given."""
        state = self._context.states.get(name_space)
        asked = None if state is None else state.outstanding.get(request)
        return asked is not None and aligner in (None, asked.aligner)

    def set_failed(self, name_space: str, request: int, now: float) -> None:
        """Give up a request whose stream broke off or was damaged."""
        alignment.give_up(self._context, self._context.states[name_space], request, now)
        self._evaluate(now)

    def refuse(self, name_space: str, target: AligneeRequest, reason: str) -> None:
        """Refuse the request of a target, which then asks again. The reason is for its trace."""
        self._context.send(Refusal(target.request, name_space, reason), target.node)

    def set_progress(self, name_space: str, request: int, now: float) -> None:
        """Extend the deadline of a request, because data for it is arriving."""
        item = self._context.states[name_space].outstanding.get(request)
        if item:
            item.deadline_s = now + self._context.settings.request_patience_s

    def group_found(self, group: Group, description: bytes) -> None:
        """Announce a group that appeared on this node (d_newGroup)."""
        self._context.send(NewGroup(group, description))

    def reader_seen(self, reader: ReaderKey, hosts: frozenset[str], now: float) -> None:
        """Note a durable reader that appeared in a process on the host with these addresses."""
        not_before = now + self._context.settings.heartbeat_expiry_s
        waits = membership.is_reconnecting(self._context, hosts, now)
        if self._context.readers.seen(reader, hosts, not_before if waits else None):
            self._context.readers_changed = True
        self._heard_s = now

    def reader_gone(self, reader: ReaderKey) -> None:
        """Forget a durable reader, the last of its kind in its process."""
        self._context.readers.gone(reader)
        self._context.readers_changed = True

    def delivered(self, reader: ReaderKey, now: float, *, done: bool) -> None:
        """Take the result of `Deliver`: `done` once the reader's process has acknowledged everything."""
        if done:
            self._context.readers.done(reader)
        else:
            self._context.readers.failed(reader, now)
        self._context.readers_changed = True
        self._heard_s = now

    def in_charge_of(self, name_space: str) -> list[ReaderKey]:
        """Return the served readers of a name-space to which this node delivers what merges bring."""
        return self._context.readers.in_charge_of(name_space)

    def serve_again(self, reader: ReaderKey, now: float) -> None:
        """Serve a reader again later, because it did not get what a merge brought."""
        self._context.readers.serve_again(reader, now)
        self._timer_s = None
        self._context.readers_changed = True

    def reader_joined(self, reader: ReaderKey, now: float) -> None:
        """Note another durable reader of a kind in a process that may have been served already."""
        self._context.readers.joined(reader, now)
        self._timer_s = None
        self._evaluate(now)

    def delete_data(self, partition: str, topic: str, until_ns: int) -> None:
        """Delete historical data everywhere (delete_historical_data; 5.5.18 d_deleteData)."""
        self._everywhere(DeleteData(partition, topic, until_ns))

    def oldest_clock(self, wall_ns: int, now: float) -> tuple[str, int]:
        """Return the node whose clock is the furthest behind, and its time: no deletion reaches beyond it.

        Args:
            wall_ns: the wall clock of this node as it is now.
            now: monotonic time.
        """
        clocks = self._context.clocks_ns(wall_ns, now)
        return min(clocks.items(), key=lambda one: (one[1], one[0]))

    def middle_clock_ns(self, wall_ns: int, now: float) -> int:
        """Return the wall clock in the middle of those of this node and its fellows, `wall_ns` at this node.

        Of two clocks, and among the two in the middle, this node's counts: a single one that is wrong, be it
        fast or slow, changes nothing.

        Args:
            wall_ns: the wall clock of this node as it is now.
            now: monotonic time.
        """
        clocks = self._context.clocks_ns(wall_ns, now)
        times = sorted(clocks.values())
        lower, upper = times[(len(times) - 1) // 2], times[len(times) // 2]
        return min(max(clocks.get(self._context.node, lower), lower), upper)

    def purgeable_until(self, name_space: str, now: float) -> int | None:
        """Return the source time up to which tombstones may go; see `engine.core.purging`."""
        return purging.purgeable_until(self._context, self._context.states[name_space], now)

    def purge(self, group: Group, instances: tuple[PurgedInstance, ...]) -> None:
        """Tell the fellows which disposed instances to forget."""
        self._context.send(Purge(group, instances))
        state = self._context.space_of(group)
        if state is not None:
            purging.count(self._context, state, state.purges + 1)

    def stop(self, *, finished: bool = False) -> None:
        """Announce in the next messages that this node terminates, or with `finished` has terminated."""
        self._stopping = ServiceState.TERMINATED if finished else ServiceState.TERMINATING
        if not finished:
            membership.note_runs(self._context)
        self._context.status_due = True

    # The parts.

    def _everywhere(self, message: DeleteData | WritersEnded) -> None:
        """Tell the fellows to do something, and do it here."""
        self._context.send(message)
        self._context.emit(message)

    def _is_approved(self, node: str) -> bool:
        fellow = self._context.fellows.get(node)
        return fellow is not None and fellow.approved

    def _next_serial(self) -> int:
        self._serial += 1
        return self._serial

    def _greeting_pause(self) -> float:
        """Return how many seconds to wait for more newcomers, which bounds the heartbeats of a start."""
        longest_s = GREETING_PART * self._context.settings.heartbeat_period_s
        return min(longest_s, GREETING_S * len(self._context.fellows.all()))

    def _is_ready(self, name_space: str) -> bool:
        return self._context.states[name_space].complete

    def _evaluate(self, now: float) -> None:
        """Derive all consequences of the known facts."""
        self._timer_s = self._heard_s = None
        if self._stopping:
            return
        membership.approve(self._context, now)  # first, because all that follows counts approved fellows only
        for state in list(self._context.states.values()):
            if state.phase is Phase.DISCOVER:
                if not self._discovery.is_over(state, now):
                    continue
                wanted = state.policy.alignee is Alignee.INITIAL or state.wanted
                state.move(Trigger.DISCOVERED if wanted else Trigger.NOT_WANTED)
                self._context.changed = True
            if state.phase is Phase.PASSIVE:
                continue
            # Each step acts on what the one before has decided: the master, then who injects, then the set,
            # then sets of the role that evolved apart, and those of other roles last, because these take the
            # result of the role.
            mastership.elect(self._context, state, now)
            if state.phase is Phase.SOURCE:
                mastership.find_source(self._context, state, now)
            mastership.yield_to_holder(self._context, state)
            mastership.check_source(self._context, state)
            alignment.advance(self._context, state, now)
            merging.advance(self._context, state, now)
            merging.open_delayed_set(self._context, state, now)
            merging.meet(self._context, state, now)
            self._context.settle(state, now)
            operator_events.phase(self._context, state)
        for name, targets in self._context.requests.due(now, self._is_ready):
            self._context.emit(SendSet(name, self._context.states[name].lineage, targets))
            self._context.writers_due = True
        for reader in self._context.readers.take_over(self._server_for):
            self._context.readers_changed = True
            self._context.emit(TakenOver(reader))
        for reader in self._context.readers.take_handed_over(now):
            self._context.emit(HandedOver(reader))
        for reader in self._context.readers.open(self._server_for, now):
            self._context.readers_changed = True
            self._context.emit(Deliver(reader, self._context.readers.is_begun(reader)))
        self._discovery_check = self._discovery.next_check(now)
        self._update_state()

    def _server_for(self, reader: ReaderKey, hosts: frozenset[str]) -> str | None:
        state = self._context.states.get(reader.name_space)
        if state is None:
            return None
        in_charge = self._context.readers.node_at(reader.place)
        server = choose_server(self._context.servers_of(state), hosts, in_charge)
        is_ours = server == self._context.node
        return None if is_ours and not state.has(reader.elements) else server

    def _update_state(self) -> None:
        if self._state is ServiceState.COMPLETE:
            return  # the last one that a running service reaches
        phases = [state.phase for state in self._context.states.values()]
        reached = service_state(phases) if phases else ServiceState.COMPLETE
        if _ORDER[reached] > _ORDER[self._state]:
            self._state = reached
            self._context.status_due = True
            if reached is ServiceState.COMPLETE:
                self._context.note("lifecycle.operational")
