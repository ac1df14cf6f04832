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

from engine.core import events
from engine.core.election import NOBODY_REMEDY
from engine.core.messages import DeleteData, Purge, WritersEnded
from engine.core.name_spaces import Group
from engine.core.settings import CoreSettings, RunSeen
from engine.core.states import ServiceState
from engine.core.untrusted import json_reader
from engine.dataset.dataset import DataSet
from engine.dataset.groups import GroupDescription
from engine.runtime import codec
from engine.runtime.agreement import Agreement
from engine.runtime.capture import CapturePath
from engine.runtime.deletions import Deletions
from engine.runtime.housekeeping import Housekeeping
from engine.runtime.late_joiners import LateJoinerDelivery
from engine.runtime.name_space_data import NameSpaceData
from engine.runtime.pending_writers import PendingWriters
from engine.runtime.ports import Clock, Codec, Filters, NoFilters, Wire
from engine.runtime.protocol_tracer import ProtocolTracer, SharedIdentity
from engine.runtime.shared_state import LEARNED, RESTORED, SharedState
from engine.runtime.startup import autodispose_mark, away_mark, run_mark
from engine.runtime.steps import Steps
from engine.runtime.store_queue import Degraded, Recovered, SetStored, StoredGroups, StoreQueue
from engine.runtime.transfers import Transfers, malformed
from engine.runtime.writer_ends import WriterEnds
from engine.store.interface import RememberedFellow
from engine.tracing.tracer import Tracer

_read_description: Final = json_reader(GroupDescription)
SERVES: Final = "complete, and the first in the order of those on its host, or of all if there is none"


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
        self.shared = shared = SharedState(
            settings, store_queue, wire, clock, tracer, stored, parts, filters or NoFilters(), self._opened
        )
        self.settings, self.core, self.store_queue = settings, shared.core, store_queue
        self.spaces, self.descriptions, self.counters = (
            shared.spaces,
            shared.descriptions,
            shared.counters,
        )
        self._clock, self._tracer, self._codec = clock, tracer, message_codec
        self.refusal = ""
        self._core_due_s = float("-inf")
        self._unsupported: set[tuple[str, str]] = set()
        self._attached: dict[str, set[str]] = {}
        self._injecting: dict[str, int] = {}
        self._degraded_ns = 0
        self._away = set(settings.away)
        self._identity = SharedIdentity(shared)
        self.late_joiners = LateJoinerDelivery(shared)
        self.pending = PendingWriters(shared)
        self.deletions = Deletions(shared, stored)
        self.housekeeping = Housekeeping(shared, self.pending)
        self._capture = CapturePath(shared, self.late_joiners, self.housekeeping.registered)
        self.capture = self._capture.take
        self.agreement = Agreement(shared, self.pending)
        self._protocol_tracer = ProtocolTracer(shared)
        steps = Steps(clock, functools.partial(malformed, shared))
        registered = self.housekeeping.registered
        self.writer_ends = WriterEnds(shared, self.late_joiners, steps, registered)
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
        self.turn()  # the name-spaces come with the first events of the core
        shared.want_stored()
        for name, (held, descriptions) in loaded.items():
            if name in self.spaces:
                self.writer_ends.forget_unwritten(name, held)
            for description in descriptions:
                shared.open_group(description, announce=False)
        for data in self.spaces.values():
            data.leave_out(shared.descriptions)

    # In: from the wire.

    def message(self, topic: str, sender: str, payload: bytes) -> bool:
        """Take a protocol message; False if no turn is needed."""
        try:
            envelope = self._codec.decode(payload)
        except codec.UnsupportedMessage as error:
            if (sender, error.version) not in self._unsupported and len(self._unsupported) < 1000:
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
            case events.NameSpaceDoubted():
                self.store_queue.mark(event.name_space, {LEARNED: ""})
            case events.LoadStored():
                self._inject(event.name_space)
            case events.AbandonSet():
                self._injecting.pop(event.name_space, None)
                self.spaces[event.name_space].stage_nothing()
            case events.Completed():
                self._complete(event)
            case events.StoreMarks():
                self.shared.remember_lineage(self.spaces[event.name_space])
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
            case events.AutodisposeWritersKnown():
                marks = {autodispose_mark(one.writer): str(one.patience_s) for one in event.writers}
                self.store_queue.mark(event.name_space, marks)
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
            case events.FellowsKnown():
                self._remember_fellows(tuple(map(RememberedFellow._make, event.fellows)))
            case events.FellowAway():
                self._remember_away(event.node, event.away_ns)
            case events.RunsSeen():
                self._remember_runs(event.runs)
            case events.StoreOutdated():
                self._outlive(event)

    # The parts.

    def _opened(self, group: Group) -> None:
        """Take in that this node keeps a group from now on."""
        self.writer_ends.opened(group)

    def _outlive(self, event: events.StoreOutdated) -> None:
        """Let the store count on above what the fellow remembers; the process then begins a new run.

        If the store was put back from a copy, its sets rank behind those of the fellows then, and join them.
        """
        self.shared.is_outdated, self.shared.is_restored = True, event.is_restored
        for name in self.spaces if event.is_restored else ():
            self.store_queue.mark(name, {RESTORED: "yes"})
        self.store_queue.outlive(next(iter(self.spaces), ""), event.incarnation, event.commits)

    @property
    def is_outdated(self) -> bool:
        """Whether this run must end, and a new one begin, as fellows remember a later run of this node."""
        return self.shared.is_outdated

    def _remember_fellows(self, fellows: tuple[RememberedFellow, ...]) -> None:
        """Store the fellows that are here now."""
        for name in self.spaces:
            self.store_queue.remember_fellows(name, fellows)
        for fellow in fellows if self._away else ():
            self._remember_away(fellow.id, None)

    def _remember_runs(self, runs: Mapping[str, RunSeen]) -> None:
        marks = {run_mark(node): " ".join(map(str, seen)) for node, seen in runs.items()}
        for name in self.spaces:
            self.store_queue.mark(name, marks)

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
