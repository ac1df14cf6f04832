"""The wiring of one node: the core decides, the runtime moves the data between wire, sets and store.

It has no threads: its owner calls one method at a time and then `turn`. Input enters by a method of this
class; output leaves by the ports.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from engine.core import events
from engine.core.election import NOBODY_REMEDY
from engine.core.fellows import Fellow
from engine.core.messages import DeleteData, Message, Outgoing, Purge, RollUp, Settled, Status, WritersEnded
from engine.core.name_spaces import Element, Group
from engine.core.settings import CoreSettings, StoredSet
from engine.core.states import ServiceState
from engine.core.untrusted import json_reader
from engine.dataset.dataset import DataSet
from engine.dataset.groups import GroupDescription
from engine.dataset.settling import border_before
from engine.runtime import codec
from engine.runtime.capture import CapturePath
from engine.runtime.deletions import Deletions
from engine.runtime.housekeeping import Housekeeping
from engine.runtime.late_joiners import LateJoinerDelivery
from engine.runtime.name_space_data import NameSpaceData
from engine.runtime.pending_writers import PendingWriters
from engine.runtime.ports import Clock, Codec, Filters, NoFilters, Wire
from engine.runtime.protocol_tracer import ProtocolTracer, SharedIdentity
from engine.runtime.shared_state import LEARNED, RESTORED, SharedState
from engine.runtime.startup import StoredContent, autodispose_mark, away_mark, run_mark
from engine.runtime.steps import Steps
from engine.runtime.store_queue import Degraded, Recovered, SetStored, StoredGroups, StoreQueue
from engine.runtime.transfers import Transfers, malformed
from engine.runtime.writer_ends import WriterEnds
from engine.store.interface import RememberedFellow
from engine.tracing.tracer import Tracer

_read_description: Final = json_reader(GroupDescription)
SERVES: Final = "complete, and the first in the order of those on its host, or of all if there is none"


# Four intervals of `engine.dataset.settling.WIDTH_NS`. Shorter, and sets differ by samples on their way;
# longer only delays the sight of a loss.
SETTLING_NS: Final = 1_000_000_000
"""Age at which a sample should have reached every node."""


class Agreement:
    """Compares the settled content of this node's sets with that of its fellows, while others write.

    For each name-space a heartbeat states the sender's set as of a moment ago (`SETTLING_NS`), by the clock
    of the master. A receiver computes its own set as of the same moment and tells the core whether the two
    are equal. A node that is behind with its samples neither states nor compares anything, because
    comparisons must not add work on a busy machine. See `engine.dataset.settling`.
    """

    def __init__(self, shared: SharedState, pending: PendingWriters) -> None:
        self._shared = shared
        self._pending = pending
        self._heard: dict[str, Status] = {}

    def announced(self, outgoing: Outgoing) -> Outgoing:
        """Return the message to send: complete a heartbeat (`Status`), and leave any other as it is.

        A heartbeat gets the count and digest of the settled part of each set, the seconds that the disk is
        behind, the transactions of its store, and the writers whose pending samples clients may hand over.
        """
        message = outgoing.message
        if not isinstance(message, Status):
            return outgoing
        roll_ups = tuple(map(self._with_settled, message.roll_ups))
        unstored_s = self._shared.store_queue.unstored_s(self._shared.clock.monotonic())
        message = msgspec.structs.replace(
            message,
            roll_ups=roll_ups,
            unstored_s=round(unstored_s, 3),
            pending=self._pending.for_heartbeat(),
            commits=self._shared.store_queue.commits,
        )
        return Outgoing(message, outgoing.to)

    def _with_settled(self, roll_up: RollUp) -> RollUp:
        data = self._shared.spaces.get(roll_up.name_space)
        if data is None:
            return roll_up
        self._advance(data)
        if self._shared.is_behind:
            return roll_up
        until_ns = border_before(data.present.now_ns - SETTLING_NS)
        return msgspec.structs.replace(roll_up, settled=Settled(until_ns, *data.settled(until_ns)))

    def _advance(self, data: NameSpaceData) -> None:
        """Advance the time of a name-space, and settle the samples that are old enough by then.

        Every node estimates the clock of the master, so that all settle the same samples. A node without a
        master uses its own clock.
        """
        following = data.state.following
        master = self._shared.core.fellow(following.node) if following is not None else None
        data.present.follow(master.skew_ns if master is not None else 0)
        data.present.advance(self._shared.steady_ns())
        data.applied.settle_with(data.present)

    def heard(self, message: Message, sender: str) -> bool:
        """Queue a received heartbeat for comparison; True if it differs from the sets here.

        `work` compares it later, once the samples written before it have been taken in.
        """
        if not isinstance(message, Status):
            return False
        self._heard[sender] = message
        spaces = self._shared.spaces
        for theirs in message.roll_ups:
            data = spaces.get(theirs.name_space)
            if data is not None:
                ours = data.applied.summary() if data.has_changed else data.state.roll_up
                if theirs.digest != ours.digest or theirs.count != ours.count:
                    return True
        return False

    def work(self, now: float) -> None:
        """Compare with the heartbeats that have come since the last call."""
        if not self._heard:
            return
        heard, self._heard = self._heard, {}
        if self._shared.is_behind:
            return
        for sender, message in heard.items():
            fellow = self._shared.core.fellow(sender)
            if fellow is not None and fellow.status is message:  # otherwise a newer one has come
                self._compare(fellow, message, now)

    def _compare(self, fellow: Fellow, message: Status, now: float) -> None:
        core = self._shared.core
        for theirs in message.roll_ups:
            data = self._shared.spaces.get(theirs.name_space)
            if data is None or not theirs.complete or not data.state.complete:
                continue
            settled = theirs.settled
            if settled is not None and settled.until_ns > data.present.kept_ns:
                is_equal = data.settled(settled.until_ns) == (settled.count, settled.digest)
                core.compared(theirs.name_space, fellow.node, settled.until_ns, now, is_equal=is_equal)


class Runtime:
    """The durability service of one node, without process, threads and DDS."""

    def __init__(
        self,
        settings: CoreSettings,
        store_queue: StoreQueue,
        make_wire: Callable[[Runtime], Wire],
        clock: Clock,
        tracer: Tracer,
        loaded: Mapping[str, tuple[DataSet, Sequence[GroupDescription]]],
        parts: Mapping[str, DataSet],
        message_codec: Codec = codec,
        secret: bytes = b"",
        filters: Filters | None = None,
    ) -> None:
        """Begin a run.

        Args:
            settings: settings of the core.
            store_queue: queue to the store.
            make_wire: makes the way to fellows and readers, which may call this runtime later only.
            clock: the two clocks.
            tracer: writes the trace.
            loaded: verified complete sets of the store, by name-space, which have passed the filters.
            parts: samples in the store of sets whose alignment broke off.
            message_codec: encoding of protocol messages.
            secret: bytes that no other node knows, for salts; random by default.
            filters: content filters of this node.
        """
        stored = {name: data for name, (data, _) in loaded.items()}
        self._wire = wire = make_wire(self)
        ports = store_queue, wire, clock, tracer
        gates = filters or NoFilters()
        self.shared = shared = SharedState(settings, *ports, stored, parts, gates, self._opened)
        self.settings, self.core, self.store_queue = settings, shared.core, store_queue
        self.spaces, self.descriptions, self.counters = shared.spaces, shared.descriptions, shared.counters
        self._clock, self._tracer, self._codec = clock, tracer, message_codec
        self.refusal, self._core_due_s, self._degraded_ns = "", -math.inf, 0
        self._unsupported: set[tuple[str, str]] = set()
        self._attached: dict[str, set[str]] = {}
        self._injecting: dict[str, int] = {}
        self._away = set(settings.away)
        self._identity, self._protocol_tracer = SharedIdentity(shared), ProtocolTracer(shared)
        self.late_joiners, self.pending = LateJoinerDelivery(shared), PendingWriters(shared)
        self.deletions = Deletions(shared, stored)
        self.housekeeping = Housekeeping(shared, self.pending)
        self._capture = CapturePath(shared, self.late_joiners, self.housekeeping.registered)
        self.capture = self._capture.receive
        self.agreement = Agreement(shared, self.pending)
        steps = Steps(clock, functools.partial(malformed, shared))
        self.writer_ends = WriterEnds(shared, self.late_joiners, steps, self.housekeeping.registered)
        self.transfers = Transfers(
            shared,
            self.late_joiners,
            self._protocol_tracer,
            self.deletions,
            self.housekeeping.tombstones,
            steps,
            self.writer_ends,
            secret or os.urandom(16),
        )
        self._begin(loaded)

    def _begin(self, loaded: Mapping[str, tuple[DataSet, Sequence[GroupDescription]]]) -> None:
        """Take in what is stored."""
        self.turn()  # the name-spaces come with the first events of the core
        self.shared.want_stored()
        for name, (held, descriptions) in loaded.items():
            if name in self.spaces:
                self.writer_ends.forget_unwritten(name, held)
            for description in descriptions:
                self.shared.open_group(description, announce=False)
        for data in self.spaces.values():
            data.leave_out(self.shared.descriptions)

    # In: from the wire.

    def message(self, topic: str, sender: str, payload: bytes) -> bool:
        """Take a protocol message; False if no turn is needed."""
        try:
            envelope = self._codec.decode(payload)
        except codec.UnsupportedMessage as error:  # told once for each sender, whatever it repeats
            is_told = (sender, error.version) in self._unsupported
            if not is_told and len(self._unsupported) < 1000:  # anybody can invent senders
                self._unsupported.add((sender, error.version))
                self._tracer.event(
                    "message.unsupported",
                    topic=topic,
                    sender=sender,
                    fellow=error.name or self.core.name_of(sender),
                    name=self.settings.name,
                    version=error.version,
                    known=codec.VERSION,
                )
        except codec.PeerFault as error:
            self.shared.malformed(topic, sender, str(error))
        else:
            if sender == self.settings.node:
                self.refusal = self.refusal or self._identity.heard(envelope.message)
            elif not envelope.to or self.settings.node in envelope.to:
                self._protocol_tracer.receives(envelope.message, sender)
                follows = self.core.receive(envelope.message, sender, self._clock.monotonic())
                return self.agreement.heard(envelope.message, sender) or follows
        return False

    def fellow_attached(self, node: str, participant: str) -> None:
        """Note that a fellow's endpoints and this node's are matched; `participant` is its process."""
        self._attached.setdefault(node, set()).add(participant)
        self.core.fellow_attached(node, self._clock.monotonic())

    def fellow_detached(self, node: str, participant: str) -> None:
        """Note that the endpoints of one of a fellow's processes went away.

        A node that was killed and restarted at once is attached as another participant before the lease of
        the former one runs out; then it is not lost.
        """
        attached = self._attached.get(node, set())
        attached.discard(participant)
        if not attached:
            self._attached.pop(node, None)
            if node == self.settings.node:
                self._identity.ended()
            self.core.fellow_detached(node, self._clock.monotonic())

    def group_seen(self, description: GroupDescription) -> bool:
        """Keep the group of a durable writer; False if this node does not keep it."""
        return self.shared.open_group(description, announce=True)

    def writer_seen(self, writer: bytes, groups: tuple[Group, ...], *, autodispose: bool) -> None:
        """Note a living durable writer of these groups.

        Args:
            writer: its GUID.
            groups: its groups, one for each partition.
            autodispose: its end disposes its instances (WRITER_DATA_LIFECYCLE).
        """
        self.housekeeping.writers(writer, groups)
        if autodispose:
            self.writer_ends.met(writer, groups)

    def writer_gone(self, writer: bytes) -> None:
        """Note that a durable writer is not there any more: it was deleted, or lost."""
        self.housekeeping.writers(writer, ())
        self.writer_ends.lost(writer)

    def count_unrouted(self, count: int) -> None:
        """Count samples that were dropped because discovery never found their writers."""
        self.counters["unrouted"] += count
        self._tracer.event(
            "group.ignored", group="?", reason=f"{count} samples of unknown writers were dropped"
        )

    @property
    def has_waiting(self) -> bool:
        """Whether captured samples wait for newer ones of their instances."""
        return self._capture.is_waiting

    def settle_captured(self, waiting_s: float = -math.inf) -> None:
        """Apply captured samples that wait, in groups where some have waited for longer than `waiting_s`."""
        self._capture.settle(until_s=self._clock.monotonic() - waiting_s)

    def hurry(self) -> int:
        """Make everything captured so far urgent for the store; return what `StoreQueue.hurry` returns."""
        self.settle_captured()
        return self.store_queue.hurry()

    def stop(self, *, finished: bool = False) -> None:
        """Announce that this node terminates, or with `finished` has terminated."""
        self.core.stop(finished=finished)
        self.turn()

    # Turn.

    def turn(self) -> float:
        """Carry out everything that is due; return when the next turn is due."""
        now = self._clock.monotonic()
        self.take_results()
        self.agreement.work(now)
        if now >= self._core_due_s:
            self.shared.tell_changes()
            self.core.handle_timer(now)
        if self.transfers.steps.are_left:
            self.transfers.steps.work()
        while (event := self.core.next_event()) is not None:
            self._carry_out(event)
        if self.writer_ends.is_due or self.shared.late_writers:
            self.writer_ends.work()
        self.deletions.work(now)
        self.housekeeping.work(now)
        self.late_joiners.work(now)
        self.shared.tell_changes()
        self.transfers.work(now)
        for message in self.core.messages_to_send(now):
            self._protocol_tracer.sends(message.message)
            outgoing = self.transfers.announced(self.agreement.announced(message))
            self._wire.send(codec.topic_of(outgoing), self._codec.encode(outgoing))
        self.transfers.keep_wanted()
        self._tracer.enter(self.core.state)
        self._core_due_s = self.core.next_timer()
        earliest = self._core_due_s
        for due in (self.housekeeping.next_s, self.late_joiners.next_s, self.transfers.next_s):
            if due is not None and due < earliest:
                earliest = due
        return earliest

    def take_results(self) -> bool:
        """Take the results of the store; False if no turn is needed."""
        needs_turn = False
        for result in self.store_queue.results():
            needs_turn = needs_turn or not isinstance(result, StoredGroups)
            data = self.spaces.get(result.name_space)
            if isinstance(result, StoredGroups) and data:
                for group in filter(data.state.is_wanted, result.watermarks.keys() - data.stored.keys()):
                    if self.settings.has_disk:
                        self._tracer.event("store.group", group=group)
                data.stored.update(result.watermarks)
                self.counters["stored"] += result.changes
            elif isinstance(result, Degraded):
                self._degraded_ns = self._clock.wall_ns()
                self._tracer.event("store.degraded", namespace=result.name_space, cause=result.cause)
            elif isinstance(result, Recovered) and data:
                self._recovered(result, data)
            elif isinstance(result, SetStored):
                self._set_stored(result)
        return needs_turn

    def _recovered(self, result: Recovered, data: NameSpaceData) -> None:
        """Tell what the disk takes now, changes that have waited or the whole set, and after which time."""
        sets = data.working.groups.values()
        samples = sum(one.summary().count for one in sets) if result.rewrite else result.waited
        elapsed_ns = max(0, self._clock.wall_ns() - self._degraded_ns)
        self._tracer.event(
            "store.recovered", namespace=result.name_space, samples=samples, elapsed_ns=elapsed_ns
        )
        if result.rewrite and data.is_switched:
            self.shared.write_set(data)

    def _set_stored(self, result: SetStored) -> None:
        self.counters["stored"] += result.written
        began_ns = self.shared.set_handed_over_ns.pop(result.name_space, 0)
        elapsed_ns = max(1, self._clock.wall_ns() - began_ns) if began_ns else 0
        rate = int(result.written * 1e9 / elapsed_ns) if elapsed_ns else 0
        self._tracer.event("store.statistics", actions=result.written, elapsed_ns=elapsed_ns, rate=rate)

    def _carry_out(self, event: events.Event) -> None:
        match event:
            case events.Note():
                self._tracer.event(event.event, **event.fields)
            case events.NameSpaceLearned():
                self.shared.add_name_space(event)
            case events.LoadStored():
                self._inject(event.name_space)
            case events.AbandonSet():
                self._injecting.pop(event.name_space, None)
                self.spaces[event.name_space].stage_nothing()
            case events.Completed():
                self._complete(event)
            case events.SendSet():
                self.transfers.send(event)
            case events.ExpectSet():
                self.transfers.expect(event)
            case events.ReplaceShown():
                self.transfers.show_equal(event.name_space)
            case events.DeleteSet():
                self.transfers.delete_set(event.name_space)
            case DeleteData():
                self.deletions.deleted(event.partition, event.topic, event.until_ns)
            case Purge():
                self.housekeeping.purged(event.group, event.instances)
            case WritersEnded():
                self.writer_ends.decided(event.name_space, event.writers)
            case events.GroupAnnounced():
                self._group_announced(event)
            case events.Deliver():
                self._tracer.event(
                    "deliver.chosen",
                    reader=event.reader.process,
                    group=event.reader.text,
                    node=self.settings.name,
                    reason=SERVES,
                )
                self.late_joiners.deliver(event.reader, is_begun=event.is_begun)
            case events.TakenOver():
                process, text = event.reader.process, event.reader.text
                self._tracer.event("deliver.taken-over", reader=process, group=text)
                self.late_joiners.taken_over(event.reader)
            case events.HandedOver():
                self._wire.alive.handed_over(event.reader)
            case events.NoAligner():
                subject = f"no node may be master of name-space '{event.name_space}'"
                self.refusal = f"{subject}, and TimeToWaitForAligner forbids waiting; {NOBODY_REMEDY}"
            case _:
                self._remember(event)

    def _remember(self, event: events.Event) -> None:
        """Store what the core wants to know in the next run; each name-space has its own marks."""
        store = self.store_queue
        match event:
            case events.NameSpaceDoubted():
                store.mark(event.name_space, {LEARNED: ""})
            case events.StoreMarks():
                self.shared.remember_lineage(self.spaces[event.name_space])
            case events.AutodisposeWritersKnown():
                marks = {autodispose_mark(one.writer): str(one.patience_s) for one in event.writers}
                store.mark(event.name_space, marks)
            case events.FellowsKnown():
                fellows = tuple(map(RememberedFellow._make, event.fellows))
                for name in self.spaces:
                    store.remember_fellows(name, fellows)
                for fellow in fellows if self._away else ():
                    self._remember_away(fellow.id, None)
            case events.FellowAway():
                self._remember_away(event.node, event.away_ns)
            case events.RunsSeen():
                marks = {run_mark(node): " ".join(map(str, seen)) for node, seen in event.runs.items()}
                for name in self.spaces:
                    store.mark(name, marks)
            case events.StoreOutdated():
                # The store counts on above what the fellow remembers; the process then begins a new run. If
                # the store was put back from a copy, its sets rank behind those of the fellows then, and
                # join them.
                self.shared.is_outdated, self.shared.is_restored = True, event.is_restored
                for name in self.spaces if event.is_restored else ():
                    store.mark(name, {RESTORED: "yes"})
                store.outlive(next(iter(self.spaces), ""), event.incarnation, event.commits)

    # The parts.

    def _opened(self, group: Group) -> None:
        """Take in that this node keeps a group from now on."""
        self.writer_ends.opened(group)

    @property
    def is_outdated(self) -> bool:
        """Whether this run must end, and a new one begin, as fellows remember a later run of this node."""
        return self.shared.is_outdated

    def _remember_away(self, node: str, away_ns: int | None) -> None:
        """Store how long a fellow has been away, or with None that it is back."""
        if away_ns is not None or node in self._away:
            (self._away.discard if away_ns is None else self._away.add)(node)
            for name in self.spaces:
                self.store_queue.mark(name, {away_mark(node): "" if away_ns is None else str(away_ns)})

    def _group_announced(self, event: events.GroupAnnounced) -> None:
        fellow = self.core.name_of(event.fellow)
        self._tracer.event("group.remote", group=event.group, fellow=fellow)
        try:
            description: GroupDescription = _read_description(event.description)
        except ValueError as error:
            self.shared.malformed(codec.MESSAGE_TOPIC, event.fellow, str(error))
            return
        if description.group in self.descriptions:
            self.shared.improve_group(description, announce=False)
        elif self.shared.open_group(description, announce=False):
            self._tracer.event("group.created", group=event.group, quality_ns=0)

    def _inject(self, name: str) -> None:
        data = self.spaces[name]
        self._injecting[name] = self._clock.wall_ns()
        samples = data.stage_loaded().summary().count
        self._tracer.event("injection.started", namespace=name, samples=samples)
        self.core.injected(name, self._clock.monotonic())

    def _complete(self, event: events.Completed) -> None:
        data = self.spaces[event.name_space]
        conversion, keeps, data.keeps = data.complete(self.descriptions), data.keeps, ""
        self.shared.withhold_rest(data)
        self.writer_ends.joined(event.name_space, None)
        self.shared.write_set(data, conversion, keeps=keeps)
        began_ns = self._injecting.pop(event.name_space, None)
        for group, group_set in data.working.groups.items():
            if not data.state.is_wanted(group):
                continue  # a Lazy node knows the group, but keeps none of its samples
            if began_ns is not None:
                self._tracer.event("injection.group", group=group, samples=group_set.count)
            self._tracer.event("group.complete", group=group)
        if began_ns is not None:
            self._tracer.event(
                "injection.finished",
                namespace=event.name_space,
                merge_state=event.lineage,
                elapsed_ns=self._clock.wall_ns() - began_ns,
            )

    @property
    def state(self) -> ServiceState:
        """State of the service."""
        return self.core.state


class CarriedSets(msgspec.Struct, frozen=True):
    """Complete sets that a node takes along in memory, by name-space."""

    sets: dict[str, tuple[DataSet, list[GroupDescription]]] = msgspec.field(default_factory=dict)
    stored: dict[str, StoredSet] = msgspec.field(default_factory=dict)
    wanted: dict[str, tuple[Element, ...]] = msgspec.field(default_factory=dict)

    @classmethod
    def collected(cls, runtime: Runtime) -> CarriedSets:
        """Collect the sets of a runtime at its end."""
        carried = cls()
        for name, data in runtime.spaces.items():
            state = data.state
            carried.wanted[name] = state.wanted
            if not data.is_switched:
                continue
            groups = data.working.groups
            descriptions = [runtime.descriptions[group] for group in groups if group in runtime.descriptions]
            carried.sets[name] = data.working, descriptions
            carried.stored[name] = StoredSet(
                data.working.summary().newest_ns,
                state.lineage,
                state.line,
                apart=state.apart,
                role=runtime.settings.role,
                part=state.may_lack,
                whole=state.whole,
                restored=runtime.shared.is_restored,
                purges=state.purges,
            )
        return carried

    def added_to(self, found: StoredContent) -> StoredContent:
        """Return the content of a store with these sets in place of its own."""
        parts = {name: part for name, part in found.parts.items() if name not in self.sets}
        return msgspec.structs.replace(
            found,
            sets={**found.sets, **self.sets},
            stored={**found.stored, **self.stored},
            parts=parts,
            wanted={**found.wanted, **self.wanted},
        )
