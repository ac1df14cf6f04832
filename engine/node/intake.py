"""Everything that arrives at a node, on its way to the runtime: samples, streams, messages, discovery.

Samples come in bulk or hardly at all, so `CaptureDrain` trades time for work. While many come, it looks at
the taps every `GATHER_S` and takes all at once: to look costs more than one sample, and of many writes to
one instance only the newest is made an object. While none come, a bell rings for the next one, so that an
idle node does nothing, and a lone sample waits for nobody. A tap that fills up shortens the pause, since a
full one holds its writers back; that is also how a slow disk slows writers down: the taps are not drained
then.

Streams and messages count only for the node whose participant sent them. Discovery has its turn before
them, because it says whose a participant is; a message that overtakes it waits for it.
"""

from __future__ import annotations

import collections
import math
import time
from typing import TYPE_CHECKING, Any, Final

from engine.capture.intake import DiscoveryIntake
from engine.capture.tap_registry import UnroutedSamples
from engine.core.untrusted import Newest
from engine.dds.abi import INFINITE_NS, participant_of
from engine.dds.discovery import EndpointGone, ParticipantGone
from engine.dds.interfaces import beyond_loopback
from engine.dds.proofs import ProofFault
from engine.dds.typeinfo import LOOK_UP_S
from engine.runtime.capture import WAIT_S

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from engine.capture.intake import MatchWatch
    from engine.capture.neighbourhood import DiscoveryChanges, HistoryReader, Neighbourhood, Offer
    from engine.capture.tap import TapMove
    from engine.capture.tap_registry import TapRegistry
    from engine.capture.unkept import Unkept
    from engine.client_service.service import ClientService
    from engine.core.messages import ReaderKey
    from engine.dds.bulk import BulkReceiver, ReceivedBatch
    from engine.dds.channel import ReceivedMessage
    from engine.dds.discovery import EndpointSeen
    from engine.dds.participant import NodeParticipant
    from engine.dds.proofs import Proofs
    from engine.dds.typeinfo import Resolution
    from engine.dds.waiting import Bell
    from engine.node.alive_instances import KeptInstances
    from engine.node.wire import DdsWire
    from engine.runtime.ports import Clock
    from engine.runtime.runtime import Runtime
    from engine.runtime.store_queue import StoreQueue
    from engine.tracing.tracer import Tracer

# About a second of what the disk takes (`make bench AREA=align`). Larger is memory, and data that a crash
# loses; smaller holds writers back at each stall of the disk.
MAX_BACKLOG: Final = 200_000
"""Samples that may wait for the disk before capture pauses and writers are held back, if not configured."""
# One sample of the largest default size, or about two seconds of what the disk takes (55 to 69 MB/s of 1
# KB, `make bench AREA=align`).
MAX_BACKLOG_BYTES: Final = 128 << 20
"""Bytes of payloads that may wait for the disk before capture pauses."""
# Chosen: then the node looks at everything else. Smaller costs more turns for the same samples.
DRAIN: Final = 20_000
# Chosen: fewer samples cost less than a pause delays them.
BUSY: Final = 500
"""Samples in one go from which on there is a pause before the next, so that there are more in one go."""
# Chosen: longer spares more that is overwritten, but fills the tap, so `ROOMY` shortens it.
DRAIN_PAUSE_S: Final = 0.05
"""Pause of a busy drain, in which more samples of the same instances come; only the newest is made."""
# At a quarter the tap has three times the room of what came since the last look.
ROOMY: Final = 0.25
"""A tap that was fuller than this makes the pause shorter, so that writers are not held back."""
# As long as a turn may take (`engine.runtime.steps.BUDGET_S`); the disk has no way to ring.
TICK_S: Final = 0.005
"""Time between two looks whether the disk has taken some: writers are held back meanwhile."""
# As the store gathers, so a sample waits for the disk and not for the tap. Longer is felt by fellows,
# shorter costs processor time (benchmark `trickle`).
GATHER_S: Final = 0.05
"""Time that a sample may wait in a tap for others: draining all taps costs more than one sample."""
# Half the looks of `GATHER_S`; what comes meanwhile must fit into the tap, hence `CALM`.
CALM_S: Final = 0.1
"""The same while few samples come. Each turn drains the taps, so it delays no answer."""
# A sixteenth: even a writer that becomes ten times faster does not fill the tap within `CALM_S`.
CALM: Final = 0.0625
"""A tap that was fuller than this is not calm: its queue may be full before the next look."""
LONE_S: Final = 1.5 * CALM_S
"""After a sample that came so long after the one before, waiting for others would be in vain."""


class CaptureDrain:
    """Drains the taps of a node. All methods are called on the node's thread.

    Args:
        taps: what is captured.
        neighbourhood: knows the groups of every writer.
        runtime: takes the samples.
        store_queue: says how many wait for the disk.
        clients: the service for clients, which looks at the same samples; None without one.
        alive: hears which instances writers unregister.
        watch: hears of which writers something was captured.
        clock: the node's.
        bell: rings when a tap has something.
        max_waiting: samples that may wait for the disk (Persistent/QueueSize); 0 for `MAX_BACKLOG`.
    """

    def __init__(
        self,
        taps: TapRegistry,
        neighbourhood: Neighbourhood,
        runtime: Runtime,
        store_queue: StoreQueue,
        clients: ClientService | None,
        alive: KeptInstances,
        watch: MatchWatch,
        clock: Clock,
        *,
        max_waiting: int = 0,
        bell: Bell,
    ) -> None:
        self._bell = bell
        self._look_s = 0.0
        self._taken_s = float("-inf")
        self._max_waiting = max_waiting or MAX_BACKLOG
        self._taps = taps
        self._neighbourhood = neighbourhood
        self._runtime = runtime
        self._store_queue = store_queue
        self._clients = clients
        self._alive = alive
        self._watch = watch
        self._clock = clock
        self._unrouted_samples = UnroutedSamples()
        self._due_s = 0.0
        self._held_since_ns: int | None = None

    @property
    def _room(self) -> int:
        """Samples that may be taken from the taps before the disk must have taken some."""
        queue = self._store_queue
        if queue.problem:
            return DRAIN  # what the disk does not take stays in memory and is written later
        return 0 if queue.queued_bytes >= MAX_BACKLOG_BYTES else self._max_waiting - queue.queued_changes

    def patience_s(self, now: float) -> float:
        """Seconds from now until the taps must be looked at although they did not ask; may be infinite."""
        patience_s = self._taps.patience_s
        if self._room <= 0:
            return min(patience_s, TICK_S)  # taps wait for the disk; look again soon
        if not self._bell.is_armed:
            patience_s = min(patience_s, max(0.0, max(self._look_s, self._due_s) - now))
        elif self._due_s > now:
            patience_s = min(patience_s, self._due_s - now)
        return patience_s

    def found_nothing(self, now: float) -> bool:
        """Look at the taps, if that is all that is due; return whether they have nothing.

        While samples come, the taps are looked at every `GATHER_S` or `CALM_S`. Once they have nothing, or
        after a lone sample, their bell rings for the next one.
        """
        if self._bell.is_armed or now < max(self._look_s, self._due_s) or self._taps.is_moving:
            return False
        if self._runtime.has_waiting:
            return False
        return self._room > 0 and self._bell.arm(self._taps.has_news)

    def urged(self) -> None:
        """Let the next turn drain the taps, because the bell rang: one of them is half full, perhaps."""
        self._due_s = self._look_s = 0.0

    def turn(self) -> None:
        """Drain the taps, unless it is too early for that."""
        if self._clock.monotonic() >= self._due_s:
            self.drain(waits=True)

    def drain(self, *, waits: bool = False) -> None:
        """Take from every tap what it has, up to a bound, unless too much waits for the disk.

        With `waits`, large samples of busy taps may wait for newer ones.
        """
        tracer = self._runtime.shared.tracer
        room = self._room
        if room <= 0:
            self._runtime.shared.is_behind = True
            if self._held_since_ns is None:
                self._held_since_ns = self._clock.wall_ns()
                tracer.event("capture.back-pressure", samples=self._store_queue.queued_changes)
            return
        if self._held_since_ns is not None:
            elapsed_ns, self._held_since_ns = self._clock.wall_ns() - self._held_since_ns, None
            tracer.event("capture.relieved", elapsed_ns=elapsed_ns)
        most = min(DRAIN, room)
        routes = self._neighbourhood.routes
        count, fill, is_behind = 0, 0.0, False
        is_followed = bool(self._runtime.late_joiners.tails)
        waits = waits and not is_followed
        self._bell.forget()
        for tap in self._taps:
            is_busy = (tap_fill := tap.fill) >= ROOMY or self._runtime.has_waiting
            fill = max(fill, tap_fill)
            some, taken = tap.drain_runs(most)
            count += some
            is_behind = is_behind or some >= most
            if self._unrouted_samples:
                taken = [*self._unrouted_samples.before(tap), *taken]
            if tap in self._taps.further:
                taken = self._taps.once(tap, taken, routes)
            if not taken:
                continue
            unrouted = self._runtime.capture(taken, routes, waits=waits and is_busy)
            self._alive.unregistered(taken)
            self._watch.heard(taken)
            if self._clients:
                self._clients.captured(taken, unrouted, routes)
            if unrouted:
                self._unrouted_samples.wait(tap, unrouted)
                if dropped := self._unrouted_samples.drop_surplus():
                    self._runtime.count_unrouted(dropped)
        self._runtime.shared.is_behind = is_behind or bool(self._unrouted_samples)
        self._runtime.settle_captured(WAIT_S if waits and count else -math.inf)
        is_hurried, haste = count >= BUSY, max(1.0, fill / ROOMY)
        now = self._clock.monotonic()
        self._due_s = now + (DRAIN_PAUSE_S / haste if is_hurried and not is_followed else 0.0)
        if count:
            is_calm = fill <= CALM and not (is_hurried or is_followed)
            self._look_s = now + (CALM_S if is_calm else GATHER_S / haste)
            is_lone, self._taken_s = now - self._taken_s >= LONE_S, now
            if is_lone and not self._taps.is_moving and not self._runtime.has_waiting:
                self._bell.arm(self._taps.has_news)


# Some tens of batches, so that the node's thread never waits for the wire; more would be memory in place of
# DDS's flow control.
MAX_BYTES_WAITING: Final = 32 << 20
"""Limit for the bytes of streams that wait for the node's thread."""
# Twice `engine.runtime.steps.BUDGET_S`: unpacking is worth a turn, and a heartbeat may be this late.
TURN_S: Final = 0.01
"""Time for streams in one turn of the node."""
# The trace of a node under forged messages grows by a line a minute for each of them.
REFUSED_S: Final = 60.0
"""Time between two traces of what was refused of one participant."""
# A message comes before its participant's discovery by milliseconds; a thousand are more than any start
# makes.
MAX_UNDISCOVERED: Final = 1_000
"""Messages that wait for the discovery of their participant; more are refused."""


class Streams:
    """Streams from fellows to this node.

    Args:
        receiver: receives the batches.
        neighbourhood: knows whose they are.
        proofs: count those of participants that are no nodes.
        runtime: takes them.
        clock: the node's.
    """

    def __init__(
        self,
        receiver: BulkReceiver,
        neighbourhood: Neighbourhood,
        proofs: Proofs,
        runtime: Runtime,
        clock: Clock,
    ) -> None:
        self._receiver = receiver
        self._neighbourhood = neighbourhood
        self._proofs = proofs
        self._runtime = runtime
        self._clock = clock
        self._bytes_taken = 0  # the pump's thread counts
        self._bytes_done = 0  # the node's thread counts
        self._waiting: collections.deque[tuple[bytes, bytes]] = collections.deque()

    def take(self) -> list[ReceivedBatch]:
        """Take batches on the pump's thread, unless too many wait; the rest makes senders wait."""
        if self._bytes_taken - self._bytes_done >= MAX_BYTES_WAITING:
            return []
        taken = self._receiver.take()
        self._bytes_taken += sum(len(received.payload or b"") for received in taken)
        return taken

    # On the node's thread.

    @property
    def is_waiting(self) -> bool:
        """Whether `turn` has something to do."""
        return bool(self._waiting)

    def arrived(self, batch: Sequence[Any]) -> None:
        """Keep batches of the pump until `turn`."""
        self._waiting.extend((one.participant, one.payload) for one in batch if one.payload is not None)

    def turn(self) -> None:
        """Pass batches to the runtime for at most `TURN_S`, so that heartbeats are not delayed."""
        until = self._clock.monotonic() + TURN_S
        while self._waiting and self._clock.monotonic() < until:
            participant, payload = self._waiting.popleft()
            sender = self._neighbourhood.speaker(participant)
            if sender is None:
                self._proofs.refuse(participant, ProofFault.IMPOSTOR)
            else:
                self._runtime.transfers.batch(sender, payload)
            self._bytes_done += len(payload)
            assert self._bytes_done <= self._bytes_taken, "a batch is done once"
            self._receiver.wake()


SAID_S: Final = 1.0
"""Time from the end of a writer until it counts as said: by then its last samples have been captured, and the
end of its participant has been discovered if it was lost with it."""
# A turn takes milliseconds, a standstill of the process seconds: anything between does.
TURN_COUNTS_S: Final = 0.25
"""Most that one turn counts of that time: after a standstill, discovery must have its turn first."""


class SaidEnds:
    """Distinguishes writers that were deleted from those that were lost with their participants."""

    def __init__(self) -> None:
        self._waiting: dict[bytes, tuple[int, float]] = {}
        self._looked_s = 0.0

    def changed(self, changes: DiscoveryChanges) -> None:
        """Take in the ends of writers and participants, and writers that are back."""
        for writer, groups in changes.writers:
            if groups:
                self._waiting.pop(writer, None)
        for end in changes.ends:
            if isinstance(end, EndpointGone) and end.time_ns:
                self._waiting[end.guid] = end.time_ns, SAID_S
            elif isinstance(end, ParticipantGone):
                lost = [
                    writer
                    for writer, (time_ns, _) in self._waiting.items()
                    if participant_of(writer) == end.guid and time_ns == end.time_ns
                ]
                for writer in lost:
                    del self._waiting[writer]

    def ended_writers(self, now_s: float) -> list[tuple[bytes, int]]:
        """Return the writers that have said that they end, with the times that they said."""
        # By turns, not by the clock: after a standstill, ends of participants wait in the mailbox.
        passed_s, self._looked_s = min(TURN_COUNTS_S, now_s - self._looked_s), now_s
        if not self._waiting:
            return []
        left = {writer: (time_ns, s - passed_s) for writer, (time_ns, s) in self._waiting.items()}
        self._waiting = {writer: one for writer, one in left.items() if one[1] > 0}
        return [(writer, time_ns) for writer, (time_ns, s) in left.items() if s <= 0]


def _partitions(writer: Unkept) -> str:
    return ", ".join(writer.partitions) or "the default partition"


class NodeIntake(DiscoveryIntake):
    """Passes news to the runtime. All methods are called on the node's thread.

    Args:
        participant: looks up types.
        neighbourhood: turns discovery into changes.
        wire: has the taps, and threads for blocking work.
        runtime: takes the news.
        tracer: takes the events.
        post: runs a callable on the node's thread.
    """

    def __init__(
        self,
        participant: NodeParticipant,
        neighbourhood: Neighbourhood,
        wire: DdsWire,
        runtime: Runtime,
        tracer: Tracer,
        post: Callable[[Callable[[], None]], None],
    ) -> None:
        super().__init__(participant, neighbourhood, wire.taps, runtime.counters)
        self._wire = wire
        self._runtime = runtime
        self._tracer = tracer
        self._post = post
        self._undecodable: dict[str, int] = {}
        self._undiscovered: list[ReceivedMessage] = []
        self._refused_told: Newest[bytes, float] = Newest(MAX_UNDISCOVERED)
        self._secret_problem = ""
        self._ends = SaidEnds()

    def turn(self, now_s: float) -> None:
        """Ask again for types, move taps, and check the writers of taps that request more.

        Args:
            now_s: the node's monotonic time.
        """
        if not self._runtime.shared.is_behind:
            for writer, time_ns in self._ends.ended_writers(now_s):
                self._runtime.writer_ends.end_writer(writer, time_ns)
        self.review(now_s)

    def moved(self, move: TapMove) -> None:
        """Trace that another reader has taken the place of a tap's."""
        self._tracer.event(
            "capture.moved",
            topic=move.topic,
            before=move.before.name,
            requested=move.requested.name,
            elapsed_ns=move.elapsed_ns,
        )

    def discovered(self, batch: Sequence[Any]) -> None:
        """Take in a batch of discovery and of attachments."""
        if any(isinstance(one, ParticipantGone) for one in batch):
            self.tell_unproved(time.monotonic())  # while its name is known: a stranger may come for a moment
        changes = self.neighbourhood.apply(batch)
        for gone in changes.ends:
            if isinstance(gone, ParticipantGone):
                self._participant.proofs.forget(gone.guid)
        for node in changes.nodes_seen:
            self._runtime.core.fellow_discovered(node)
        for node, participant, is_attached in changes.fellows:
            if is_attached:
                self._runtime.fellow_attached(node, participant.hex())
            else:
                self._runtime.fellow_detached(node, participant.hex())
        for endpoint in changes.unresolved:
            self.look_up(endpoint)
        self.changed(changes)
        for reader in changes.readers_gone:
            for key in self._reader_keys(reader):
                self._runtime.late_joiners.gone(key)
        for reader in changes.readers_seen:
            for key in self._reader_keys(reader):
                self._runtime.late_joiners.seen(key, self._hosts(reader))
        for reader, end in changes.ends_gone:
            for key in self._reader_keys(reader):
                self._runtime.late_joiners.end_gone(key, end)
        for reader, end, is_further in changes.ends_seen:
            for key in self._reader_keys(reader):
                self._runtime.late_joiners.end_seen(key, end, is_further=is_further)
        self._wire.alive.processes_gone(changes.processes_gone)
        undiscovered, self._undiscovered = self._undiscovered, []
        self.messages(undiscovered)

    def changed(self, changes: DiscoveryChanges) -> None:
        """Take in durable writers that came and went, and groups that are known better."""
        for description in changes.groups:
            self._runtime.group_seen(description)
        autodispose = {one.endpoint.guid: one.endpoint.endpoint_qos.autodispose for one in changes.offers}
        for offer in changes.offers:  # after their groups, before a sample of theirs can be applied
            if offer.endpoint.endpoint_qos.lifespan_ns != INFINITE_NS:
                lifespan_ns = offer.endpoint.endpoint_qos.lifespan_ns
                self._runtime.shared.learn_lifespan(offer.groups, offer.endpoint.guid, lifespan_ns)
        for writer, groups in changes.writers:
            if groups:
                self._runtime.writer_seen(writer, groups, autodispose=autodispose.get(writer, False))
            else:
                self._runtime.writer_gone(writer)
        self._ends.changed(changes)
        for offer in changes.offers:
            self.is_refused(offer)
        self.watch.watch(changes.offers)
        for unkept in changes.unkept:
            self.not_kept(unkept)
        self._wire.alive.changed(changes)

    def mismatched(self, offer: Offer, policies: Sequence[str]) -> None:
        """Report a writer whose policies do not match those of its tap, for each group that is meant here."""
        meant = [group for group in offer.groups if self._runtime.shared.is_meant((group,))]
        self.counters["unkept_writers"] += bool(meant)
        for group in meant:
            self._runtime.shared.refuse_writer(group, offer.endpoint.guid.hex(), policies)

    def not_kept(self, unkept: Unkept) -> None:
        """Report a writer that is not kept; what is not to be kept here is information only."""
        self._runtime.shared.tell_outside(unkept.groups)
        if not self._runtime.shared.is_meant(unkept.groups):
            return
        self.counters["unkept_writers"] += 1
        self._tracer.event(
            "group.not-kept",
            topic=unkept.topic,
            partitions=_partitions(unkept),
            writer=unkept.writer,
            cause=unkept.text,
        )

    def kept_after_all(self, unkept: Unkept) -> None:
        """Trace a writer that is kept now, as it was reported before."""
        if self._runtime.shared.is_meant(unkept.groups):
            self._tracer.event(
                "group.kept-after-all",
                topic=unkept.topic,
                partitions=_partitions(unkept),
                writer=unkept.writer,
                cause=unkept.text,
            )

    def _hosts(self, reader: HistoryReader) -> frozenset[str]:
        """Return the addresses of a reader's host; a reader with loopback addresses only is on this host."""
        network = beyond_loopback(reader.hosts)
        return frozenset(network) if network else reader.hosts | self._runtime.settings.hosts

    def _reader_keys(self, reader: HistoryReader) -> list[ReaderKey]:
        return self._runtime.late_joiners.reader_keys(reader.process.hex(), reader.topic, reader.partitions)

    def submit(
        self, endpoint: EndpointSeen, work: Callable[[], Resolution], done: Callable[[Resolution], None]
    ) -> None:
        """Look up the type of a writer on a thread of the wire."""

        def look_up() -> None:
            resolution = work()
            self._post(lambda: done(resolution))

        self._wire.submit(look_up, f"groupCreationThread (type of topic {endpoint.topic})", LOOK_UP_S)

    def messages(self, batch: Sequence[Any]) -> None:
        """Take in protocol messages, each only from the node that it names.

        A message may overtake the discovery of its participant, and waits for it.
        """
        for received in batch:
            participant = received.participant
            if not self.neighbourhood.knows(participant) and len(self._undiscovered) < MAX_UNDISCOVERED:
                self._undiscovered.append(received)
            elif self.neighbourhood.speaker(participant) == received.sender_id:
                self._runtime.message(received.topic, received.sender_id, received.payload)
            else:
                self._participant.proofs.refuse(participant, ProofFault.IMPOSTOR)

    def tell_unproved(self, now: float) -> None:
        """Trace whose messages are refused for their proofs: at once, and then once a minute."""
        proofs = self._participant.proofs
        secret = proofs.secret
        if secret is not None and secret.problem != self._secret_problem:
            self._secret_problem = secret.problem
            if secret.problem:
                self._tracer.event("proof.secret-kept", cause=secret.problem)
        for guid, counts in proofs.refused_since(now - REFUSED_S).items():
            if now - self._refused_told.get(guid, -math.inf) < REFUSED_S:
                continue
            self._refused_told[guid] = now
            name = self.neighbourhood.name_of(guid) or "a participant"
            cause = ", ".join(f"{count:,} {why}" for why, count in counts.items())
            self._tracer.event("proof.refused", name=name, participant=guid.hex(), cause=cause)

    def count_undecodable(self, totals: Mapping[str, int]) -> None:
        """Count and report the samples that the transport could not decode.

        Args:
            totals: their number since the start of the node, by topic.
        """
        for topic, total in totals.items():
            count = total - self._undecodable.get(topic, 0)
            if count:
                self._undecodable[topic] = total
                self._runtime.shared.malformed(
                    topic, "?", f"{count} samples are not what the topic carries", count
                )
