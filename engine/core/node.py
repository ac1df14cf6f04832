"""The core's face: messages, timers and commands in; messages and events out.

The caller passes `now`, seconds on any monotonic clock, with everything it says. After each call it sends
what `messages_to_send` returns, carries out what `next_event` returns until there is no more, and calls
`handle_timer` when `next_timer` has come. Nothing else ever happens by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.core import alignment, mastership, merging, roles
from engine.core.context import Context
from engine.core.events import (
    Deliver,
    FellowsKnown,
    GroupAnnounced,
    NameSpaceLearned,
    SendSet,
    Target,
)
from engine.core.messages import (
    Deliveries,
    NameSpaces,
    NewGroup,
    Outgoing,
    ReaderKey,
    Refusal,
    RollUp,
    SampleRequest,
    Status,
    Vote,
)
from engine.core.namespace import NameSpaceState
from engine.core.namespaces import Alignee, Conflict, NameSpace, compare, find_policy
from engine.core.readers import ReaderTable, Server, choose_server
from engine.core.requests import RequestQueue
from engine.core.states import LocalFault, Phase, ServiceState, Trigger, service_state

if TYPE_CHECKING:
    from engine.core.events import Event
    from engine.core.fellows import Fellow
    from engine.core.messages import Epoch, Message
    from engine.core.namespaces import Group
    from engine.core.settings import CoreSettings


class DurabilityNode:
    """The durability protocol of one node."""

    def __init__(self, settings: CoreSettings, now: float, wall_ns: int) -> None:
        """Begin a run; the first messages and events are ready at once.

        Raises:
            LocalFault: a name-space without a policy; configurations are refused before they come here.
        """
        self._context = context = Context(settings)
        self._started = now
        self._discovery_over = False
        patience = settings.initial_discovery_s
        self._discovery_checks = [now + patience, now + patience + settings.heartbeat_expiry_s]
        self._stopping: ServiceState | None = None
        self._next_status = now
        self._serial = 0
        self._status_due = True
        self._wall_offset_ns = wall_ns - int(now * 1e9)
        self._requests = RequestQueue()
        self._readers = ReaderTable(settings.node)
        self._readers_changed = True
        self._state = ServiceState.INIT
        for name_space in settings.name_spaces:
            policy = find_policy(settings.policies, name_space.name)
            if policy is None:
                raise LocalFault(f"name-space '{name_space.name}' has no policy")
            self._add_name_space(name_space)
        context.note("lifecycle.address", node=settings.node)
        context.note("lifecycle.incarnation", node=settings.node, incarnation=settings.incarnation)
        context.note("lifecycle.waiting-for-fellows")
        self._evaluate(now)

    # What the runtime may look at.

    @property
    def state(self) -> ServiceState:
        """The service's state."""
        return self._stopping or self._state

    @property
    def name_spaces(self) -> list[NameSpaceState]:
        """All name-spaces, in the order in which they were configured or learned."""
        return list(self._context.states.values())

    @property
    def fellows(self) -> list[Fellow]:
        """All fellows present."""
        return self._context.fellows.all()

    def name_of(self, node: str) -> str:
        """A node's human name where it is known."""
        return self._context.name_of(node)

    def name_space_of(self, group: Group) -> NameSpaceState | None:
        """The first name-space that contains a group."""
        return next((s for s in self._context.states.values() if s.name_space.contains(group)), None)

    # Out.

    def messages_to_send(self, now: float) -> list[Outgoing]:
        """The messages that are due, state messages first."""
        if self._context.changed:
            self._context.changed = False
            self._status_due = True
            reports = tuple(state.report() for state in self._context.states.values())
            self._context.send(NameSpaces(self._context.settings.incarnation, self._next_serial(), reports))
        if self._readers_changed:
            self._readers_changed = False
            self._context.send(self._readers.message(self._context.settings.incarnation))
        if self._status_due:
            self._status_due = False
            self._next_status = now + self._context.settings.heartbeat_period_s
            self._context.outbox.appendleft(Outgoing(self._status(now)))
        messages = list(self._context.outbox)
        self._context.outbox.clear()
        return messages

    def next_event(self) -> Event | None:
        """The next thing for the runtime to do or to know, None when there is nothing."""
        return self._context.events.popleft() if self._context.events else None

    def next_timer(self) -> float:
        """When `handle_timer` must be called at the latest."""
        times = [self._next_status]
        times += [state.source_until_s for state in self._context.states.values() if state.source_until_s]
        retry = self._readers.next_retry()
        if retry is not None:
            times.append(retry)
        times += self._discovery_checks
        times += [self._context.fellows.expires_at(fellow) for fellow in self._context.fellows.all()]
        times += [
            item.deadline_s for state in self._context.states.values() for item in state.outstanding.values()
        ]
        due = self._requests.next_due(self._ready())
        return min(times if due is None else [*times, due])

    # In.

    def handle_timer(self, now: float) -> None:
        """Do whatever is due."""
        if now >= self._next_status:
            self._status_due = True
        self._discovery_checks = [when for when in self._discovery_checks if when > now]
        for fellow in self._context.fellows.silent(now):
            self._lose(fellow, now, "its heartbeat is overdue")
        for state in self._context.states.values():
            alignment.check_deadlines(self._context, state, now)
        self._evaluate(now)

    def receive(self, message: Message, sender: str, now: float) -> None:
        """A message of a fellow has arrived."""
        if sender == self._context.node or self._stopping is ServiceState.TERMINATED:
            return
        if isinstance(message, Status | NameSpaces | Deliveries):
            self._receive_state(message, sender, now)
        elif isinstance(message, SampleRequest):
            self._receive_request(message, sender, now)
        elif isinstance(message, Refusal):
            state = self._context.states.get(message.name_space)
            if state:
                self._context.note(
                    "align.refused",
                    fellow=self.name_of(sender),
                    group=message.name_space,
                    reason=message.reason,
                )
                alignment.give_up(self._context, state, message.request, now)
        elif isinstance(message, NewGroup):
            fellow = self._context.fellows.get(sender)
            if fellow is None or fellow.conflict is None:
                self._context.emit(GroupAnnounced(message.group, message.description, sender))
        self._evaluate(now)

    def fellow_attached(self, node: str, now: float) -> None:
        """A fellow's endpoints are matched with ours, both ways (wait-for-attachment)."""
        self._context.fellows.attach(node)
        self._status_due = True
        self._evaluate(now)

    def fellow_detached(self, node: str, now: float) -> None:
        """A fellow's endpoints went away."""
        fellow = self._context.fellows.get(node)
        if fellow:
            self._lose(fellow, now, "it left" if fellow.leaving else "its endpoints are gone")
        self._context.fellows.detach(node, now)
        self._evaluate(now)

    def roll_up(self, name_space: str, count: int, digest: int) -> None:
        """The set of a name-space has this content now; fellows are told with the next heartbeat."""
        state = self._context.states[name_space]
        state.roll_up = RollUp(name_space, complete=state.complete, count=count, digest=digest)

    def injected(self, name_space: str, now: float) -> None:
        """The stored set is loaded (answer to `LoadStored`)."""
        state = self._context.states[name_space]
        if state.phase is Phase.INJECT:
            alignment.start_collecting(self._context, state, now)
        self._evaluate(now)

    def writers_known(self, name_space: str, *, present: bool, now: float) -> None:
        """Whether a live DataWriter of some group of the name-space is known (5.2.3.3)."""
        state = self._context.states[name_space]
        if state.has_writers != present:
            state.has_writers = present
            self._context.changed = True
            self._evaluate(now)

    def wanted(self, name_space: str, now: float) -> None:
        """A durable reader on this node's host wants the data: a Lazy alignee begins to keep it (5.2.3.1)."""
        state = self._context.states[name_space]
        if state.is_wanted or state.policy.alignee is Alignee.ON_REQUEST:
            return
        state.is_wanted = True
        if state.phase is Phase.PASSIVE:
            state.move(Trigger.WANTED)
            self._context.changed = True
        self._evaluate(now)

    def set_received(self, name_space: str, request: int, lineage: Epoch, now: float) -> None:
        """The set asked for by `request` is here, whole and verified."""
        state = self._context.states[name_space]
        purpose = alignment.received(self._context, state, request, lineage, now)
        if purpose and state.phase is Phase.MERGE:
            merging.received(self._context, state, lineage)
        self._evaluate(now)

    def expects(self, name_space: str, request: int) -> bool:
        """Whether an answer to `request` is still wanted."""
        state = self._context.states.get(name_space)
        return state is not None and request in state.outstanding

    def set_failed(self, name_space: str, request: int, now: float) -> None:
        """The stream for `request` broke off or was damaged."""
        alignment.give_up(self._context, self._context.states[name_space], request, now)
        self._evaluate(now)

    def set_progress(self, name_space: str, request: int, now: float) -> None:
        """Data for `request` is arriving: the aligner is not silent."""
        item = self._context.states[name_space].outstanding.get(request)
        if item:
            item.deadline_s = now + self._context.settings.request_patience_s

    def group_found(self, group: Group, description: bytes) -> None:
        """A group of ours became known on this node: tell the fellows (d_newGroup)."""
        self._context.send(NewGroup(group, description))

    def reader_seen(self, reader: ReaderKey, host: str, now: float) -> None:
        """A durable reader appeared in a process on `host`."""
        if self._readers.seen(reader, host):
            self._readers_changed = True
        self._evaluate(now)

    def reader_gone(self, reader: ReaderKey) -> None:
        """A durable reader went away with the last of its kind in its process."""
        self._readers.gone(reader)
        self._readers_changed = True

    def delivered(self, reader: ReaderKey, now: float, *, done: bool) -> None:
        """The answer to `Deliver`: the reader's process has acknowledged everything, or it failed."""
        if done:
            self._readers.done(reader)
        else:
            self._readers.failed(reader, now)
        self._readers_changed = True
        self._evaluate(now)

    def stop(self, *, finished: bool = False) -> None:
        """Begin to terminate, or with `finished` say good-bye; fellows are told in the next messages."""
        self._stopping = ServiceState.TERMINATED if finished else ServiceState.TERMINATING
        self._status_due = True

    # The parts.

    def _next_serial(self) -> int:
        self._serial += 1
        return self._serial

    def _status(self, now: float) -> Status:
        settings = self._context.settings
        return Status(
            incarnation=settings.incarnation,
            serial=self._next_serial(),
            name=settings.name,
            role=settings.role,
            host=settings.host,
            state=self.state,
            period_s=settings.heartbeat_period_s,
            expiry_s=settings.heartbeat_expiry_s,
            wall_ns=self._wall_offset_ns + int(now * 1e9),
            heard=tuple(fellow.node for fellow in self._context.fellows.all()),
            roll_ups=tuple(
                RollUp(state.name, state.complete, state.roll_up.count, state.roll_up.digest)
                for state in self._context.states.values()
            ),
        )

    def _receive_state(self, message: Status | NameSpaces | Deliveries, sender: str, now: float) -> None:
        known = self._context.fellows.get(sender)
        if known and known.incarnation < message.incarnation:
            self._lose(known, now, "it was restarted")
        taken = self._context.fellows.receive(message, sender, now)
        if taken is None:
            return
        fellow, new = taken
        if new:
            self._status_due = True  # it must learn soon that it is heard
            self._context.note("fellow.discovered", fellow=fellow.node, state=str(fellow.status and "known"))
        if isinstance(message, Status):
            self._receive_status(fellow, message, now)
        elif isinstance(message, NameSpaces):
            self._compare(fellow, message)
        elif self._readers.take_claims(message):
            self._readers_changed = True

    def _receive_status(self, fellow: Fellow, status: Status, now: float) -> None:
        fellow.skew_ns = status.wall_ns - (self._wall_offset_ns + int(now * 1e9))
        if fellow.leaving:
            self._lose(fellow, now, "it is terminating")
            return
        if fellow.approved and not fellow.hears(self._context.node):
            self._context.note("fellow.asymmetric", fellow=fellow.name)
            self._lose(fellow, now, "it does not hear us")
            return
        for state in self._context.states.values():
            if state.aligner == fellow.node:
                merging.watch_difference(self._context, state, now)

    def _compare(self, fellow: Fellow, message: NameSpaces) -> None:
        """Determine compatibility (5.4.2) and learn name-spaces that a policy of ours matches (5.2.3.6)."""
        theirs = [NameSpace(report.name, report.elements) for report in message.reports]
        ours = [state.name_space for state in self._context.states.values()]
        conflicts = [conflict for a in ours for b in theirs if (conflict := compare(a, b))]
        before, fellow.conflict = fellow.conflict, conflicts[0] if conflicts else None
        if fellow.conflict and not before:
            self._refuse(fellow, fellow.conflict)
        elif before and not fellow.conflict:
            self._context.note("compatibility.resolved", fellow=fellow.name)
        if fellow.conflict:
            return
        for name_space in theirs:
            if name_space.name not in self._context.states and self._add_name_space(name_space):
                self._context.note(
                    "namespace.learned",
                    namespace=name_space.name,
                    fellow=fellow.name,
                    expressions=str(name_space),
                )

    def _add_name_space(self, name_space: NameSpace) -> bool:
        policy = find_policy(self._context.settings.policies, name_space.name)
        if policy is None:
            return False
        stored = self._context.settings.stored.get(name_space.name)
        state = NameSpaceState(name_space, policy)
        if stored:
            state.quality_ns = stored.quality_ns
            state.vote = Vote(stored.lineage.counter + 1, "")  # epochs of the last run must not come again
        self._context.states[name_space.name] = state
        self._context.emit(NameSpaceLearned(name_space, policy))
        self._context.changed = True
        return True

    def _refuse(self, fellow: Fellow, conflict: Conflict) -> None:
        fellow.approved = False
        self._context.note(
            "compatibility.conflict",
            fellow=fellow.name,
            namespace=conflict.ours.name,
            expressions=str(conflict.ours),
            other_namespace=conflict.theirs.name,
            other_expressions=str(conflict.theirs),
        )

    def _lose(self, fellow: Fellow, now: float, reason: str) -> None:
        self._context.fellows.remove(fellow.node, now)
        self._requests.drop(fellow.node)
        self._readers.lost(fellow.node)
        self._status_due = True
        if fellow.approved:
            self._context.note("fellow.disconnected", fellow=fellow.name, reason=reason)
        for state in self._context.states.values():
            for item in [i for i in state.outstanding.values() if i.aligner == fellow.node]:
                self._context.note("align.aligner-lost", fellow=fellow.name, count=1)
                alignment.give_up(self._context, state, item.request, now)

    def _receive_request(self, message: SampleRequest, sender: str, now: float) -> None:
        state = self._context.states.get(message.name_space)
        fellow = self._context.fellows.get(sender)
        reason = ""
        if state is None:
            reason = "this name-space is not known here"
        elif not state.policy.aligner:
            reason = "this node is not an aligner for the name-space"
        elif fellow is None or fellow.conflict:
            reason = "the sender is not an approved fellow"
        if state is None or reason:
            self._context.send(Refusal(message.request, message.name_space, reason), sender)
            return
        self._context.note(
            "align.request-received",
            group=message.name_space,
            fellow=self.name_of(sender),
            source=message.request,
        )
        target = Target(sender, message.request, message.purpose)
        if message.purpose in ("collect", "delayed"):
            self._context.emit(SendSet(state.name, state.lineage, (target,)))
            return
        settings = self._context.settings
        operational = self.state is ServiceState.COMPLETE
        combine = settings.combine_operational_s if operational else settings.combine_initial_s
        if not self._requests.add(state.name, target, now, combine):
            self._context.send(Refusal(message.request, state.name, "too many requests wait"), sender)

    def _ready(self) -> frozenset[str]:
        return frozenset(state.name for state in self._context.states.values() if state.complete)

    def _evaluate(self, now: float) -> None:
        """Bring everything that follows from what is known up to date."""
        if self._stopping:
            return
        self._approve()
        for state in list(self._context.states.values()):
            if state.phase is Phase.DISCOVER:
                if not self._discovered(state, now):
                    continue
                wanted = state.policy.alignee is Alignee.INITIAL or state.is_wanted
                state.move(Trigger.DISCOVERED if wanted else Trigger.NOT_WANTED)
                self._context.changed = True
            if state.phase is Phase.PASSIVE:
                continue
            mastership.elect(self._context, state, now)
            if state.phase is Phase.SOURCE:
                roles.find_source(self._context, state, now)
            roles.check_source(self._context, state)
            alignment.advance(self._context, state, now)
            merging.advance(self._context, state, now)
            roles.open_delayed_set(self._context, state, now)
            roles.meet(self._context, state, now)
        for name, targets in self._requests.due(now, self._ready()):
            self._context.emit(SendSet(name, self._context.states[name].lineage, targets))
        for reader in self._readers.open(self._server_for, now):
            self._readers_changed = True
            self._context.emit(Deliver(reader))
        self._update_state()

    def _approve(self) -> None:
        for fellow in self._context.fellows.all():
            if fellow.approved or fellow.conflict or not (fellow.attached and fellow.answered):
                continue
            if not fellow.hears(self._context.node):
                continue
            fellow.approved = True
            assert fellow.status is not None
            self._context.note(
                "fellow.name",
                fellow=fellow.node,
                name=fellow.name,
                role=fellow.role,
                host=fellow.status.host,
            )
            self._context.note("compatibility.approved", fellow=fellow.name)
            if fellow.reconnected:
                self._reconnected(fellow)
            known = tuple((f.node, f.name, f.role) for f in self._context.fellows.approved())
            self._context.emit(FellowsKnown(known))

    def _reconnected(self, fellow: Fellow) -> None:
        """Same incarnation after a gap: what was written meanwhile may have reached only one of us."""
        self._context.note("fellow.reconnected", fellow=fellow.name, gap_ns=0)
        for state in self._context.states.values():
            report = fellow.report(state.name)
            if not state.holder or report is None:
                continue
            if state.is_master(self._context.node):
                state.rejoined.add(fellow.node)
            elif fellow.role == self._context.settings.role:
                state.diverge(self._context.node)
                self._context.changed = True

    def _discovered(self, state: NameSpaceState, now: float) -> bool:
        """Whether enough is known to choose a master (5.4.4, steps 3 and 4)."""
        if self._discovery_over:
            return True
        context, settings = self._context, self._context.settings
        for fellow, report in context.role_fellows(state):
            if report.holder and report.following and report.following.node == fellow.node:
                return self._end_discovery(now, f"{fellow.name} is the confirmed master of '{state.name}'")
        present = {fellow.node: fellow for fellow in context.fellows.all()}
        settled = all(f.approved or f.conflict for f in present.values())
        if settled and settings.remembered and settings.remembered <= present.keys():
            return self._end_discovery(now, "every fellow of the last run has answered")
        patience = settings.initial_discovery_s + (0 if settled else settings.heartbeat_expiry_s)
        if now >= self._started + patience:
            return self._end_discovery(now, "the initial discovery period is over")
        return False

    def _end_discovery(self, now: float, reason: str) -> bool:
        self._discovery_over = True
        self._discovery_checks = []
        elapsed = int((now - self._started) * 1e9)
        self._context.note("lifecycle.discovery-ended", elapsed_ns=elapsed, reason=reason)
        self._context.note("lifecycle.fellows-known", count=len(self._context.fellows.approved()))
        return True

    def _server_for(self, reader: ReaderKey, host: str) -> str | None:
        state = self._context.states.get(reader.name_space)
        if state is None:
            return None
        servers: list[Server] = []
        if state.complete:
            settings = self._context.settings
            is_master = state.is_master(settings.node)
            servers.append(Server(settings.node, settings.host, is_master, state.policy.master_priority))
        for fellow in self._context.fellows.approved():
            report = fellow.report(state.name)
            if report and report.complete and fellow.status:
                is_master = report.following is not None and report.following.node == fellow.node
                servers.append(Server(fellow.node, fellow.status.host, is_master, report.master_priority))
        return choose_server(servers, host)

    def _update_state(self) -> None:
        phases = [state.phase for state in self._context.states.values()]
        reached = service_state(phases) if phases else ServiceState.COMPLETE
        order = tuple(ServiceState)
        if order.index(reached) > order.index(self._state):
            self._state = reached
            self._status_due = True
            if reached is ServiceState.COMPLETE:
                self._context.note("lifecycle.operational")
