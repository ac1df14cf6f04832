"""The output of a node over Cyclone DDS. Blocking calls run on threads of this module.

The node's thread must never wait for a peer. Heartbeats go out on the pulse's thread, ahead of all else, as
their absence would mean that the node is dead. Protocol messages keep their order and have one thread; one
that a slow fellow holds up goes to the end of the queue, and costs the others nothing. Streams, deliveries
and look-ups, which wait for acknowledgements, share a few workers. Results come back through the node's
mailbox.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import socket
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from engine.capture.delivery import Directed
from engine.capture.tap_registry import TapRegistry
from engine.dds.activity import BEAT_S, ThreadActivities, Workers, moved
from engine.dds.bulk import TOPIC as BULK_TOPIC
from engine.dds.bulk import BulkSender
from engine.dds.channel import ChannelTopic
from engine.dds.errors import DdsError, DdsTimeout
from engine.node.alive_instances import KeptInstances
from engine.node.pulse import PublishSchedule
from engine.runtime import monitor
from engine.runtime.codec import STATUS_TOPIC
from engine.runtime.monitor import DeliveryView, UnkeptView, UnprovedView
from engine.runtime.node_snapshot import Identity, snapshot
from engine.runtime.ports import Delivered, Wire
from engine.tracing.version import product_version

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from engine.capture.neighbourhood import Neighbourhood
    from engine.capture.unkept import Unkept
    from engine.config.settings import Configuration
    from engine.core.messages import ReaderKey
    from engine.core.name_spaces import Group
    from engine.dataset.groups import GroupDescription
    from engine.dataset.sample_rows import SampleRows
    from engine.dds.channel import Announced, Channel
    from engine.dds.participant import NodeParticipant
    from engine.dds.waiting import Signal
    from engine.node.pulse import Pulse
    from engine.runtime.past import Past
    from engine.runtime.ports import Clock, ReplacingDelivery, RevivingDelivery
    from engine.runtime.runtime import Runtime
    from engine.runtime.startup import StoredContent
    from engine.tracing.record import EventRecord

_MEMORY: Final = Path("/proc/self/statm")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


def resident_bytes() -> int:
    """Return how much memory of this process is in RAM, as Linux tells it; 0 if it does not."""
    try:
        return int(_MEMORY.read_bytes().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return 0


# Threads that mostly wait for other processes. Fewer let slow receivers delay fast ones; with more, the
# processor is the limit before they are.
WORKERS: Final = 8
"""Limit for concurrent streams, deliveries and type look-ups; more wait for a free thread."""
# Chosen: only a wire that is blocked fills it. Protocol messages are kept even then, since each counts.
MAX_UNSENT: Final = 20_000
"""Protocol and monitor messages that may wait; beyond it monitor messages are dropped."""
# Each heartbeat carries them to each console; a person needs the kind, not all.
MAX_UNKEPT_SHOWN: Final = 100
"""Limit for the writers that consoles show as not kept."""
# A screenful, as `engine.capture.intake.MAX_SHOWN`.
MAX_UNPROVED_SHOWN: Final = 20
"""Limit for the participants with refused messages that consoles show."""
# As long as the pause between two traces of them (`REFUSED_S`), so that they do not flicker.
UNPROVED_S: Final = 60.0
"""Time for which consoles show a participant after the last message of it that was refused."""
# One batch of 127 MiB at 5 MB/s takes 27 s. A receiver that hangs holds a worker this long.
BATCH_TIMEOUT_S: Final = 30.0
"""Time for which a lone receiver may stay behind before its stream ends; it may be writing to a slow disk."""
# The other fellows of the stream wait for the slow one; it loses nothing by asking alone.
SHARED_TIMEOUT_S: Final = 2.0
"""A stream to several fellows ends if one stays behind for this time; each then requests the rest alone."""
# A fellow that requested a stream has discovered us, so matching takes milliseconds; the rest is for a
# loaded machine.
MATCH_TIMEOUT_S: Final = 5.0
"""Time for receivers to match the writer of a stream; one that does not is away, and asks again."""
# A worker that returns a little late from a time-out of Cyclone DDS must not count as hung.
MARGIN_S: Final = 10.0
"""Time that the deadlock watch grants a worker beyond the time-outs of its work."""
# A few screenfuls; each heartbeat carries them to each console.
DELIVERIES_SHOWN: Final = 100
"""Limit for the deliveries that consoles show; older ones are in the trace."""


class ShownDeliveries:
    """The last deliveries, for consoles.

    Args:
        is_present: tells whether there are readers of a kind.
    """

    def __init__(self, is_present: Callable[[ReaderKey], bool]) -> None:
        self._is_present = is_present
        self._shown: list[tuple[ReaderKey, DeliveryView]] = []

    def put(self, reader: ReaderKey, view: DeliveryView) -> None:
        """Add a delivery, or replace what was known of it; the oldest makes room.

        One whose readers lack their history does not, as long as there is another: they must not seem to
        have been served because others came after them.
        """
        for place, (_, known) in enumerate(self._shown):
            if known.started_ns == view.started_ns:
                self._shown[place] = reader, view
                return
        if len(self._shown) >= DELIVERIES_SHOWN:
            spare = (
                i for i, (one, old) in enumerate(self._shown) if not old.problem or not self._is_present(one)
            )
            del self._shown[next(spare, 0)]
        self._shown.append((reader, view))

    def views(self) -> tuple[DeliveryView, ...]:
        """Return the deliveries, oldest first, each with whether its readers are gone."""
        return tuple(
            view if self._is_present(reader) else msgspec.structs.replace(view, is_gone=True)
            for reader, view in self._shown
        )


class DdsWire(Wire):
    """The wire of a node on Cyclone DDS.

    Args:
        runtime: takes the results.
        participant: the node's participant in the applications' domain.
        channel: sends the protocol messages.
        neighbourhood: knows the participants of fellows and readers.
        signal: set when a tap has records.
        post: runs a callable on the node's thread; all results go through it.
        node: id of the node, as hexadecimal text.
        partition: partition of the protocol; those of streams begin with it.
        interface: the interface for late joiners without a route.
        tag: the domain tag of the applications.
        pulse: sends heartbeats, ahead of all other messages.
        announced: name and TRANSPORT_PRIORITY of the writers of streams.
        activities: registers the work of its threads for the deadlock watch.
    """

    def __init__(
        self,
        runtime: Runtime,
        participant: NodeParticipant,
        channel: Channel,
        neighbourhood: Neighbourhood,
        signal: Signal,
        post: Callable[[Callable[[], None]], None],
        *,
        node: str,
        partition: str,
        interface: str,
        tag: str,
        pulse: Pulse,
        announced: Announced,
        activities: ThreadActivities,
    ) -> None:
        self._runtime = runtime
        self._participant = participant
        self._channel = channel
        self._neighbourhood = neighbourhood
        self._post = post
        self._node = node
        self._partition = partition
        self._pulse = pulse
        self._announced = announced
        directed = Directed(participant, bytes.fromhex(node), interface, tag)
        self.alive: KeptInstances = KeptInstances(runtime, directed, neighbourhood, self.submit)
        self._unsent: queue.SimpleQueue[tuple[str, bytes] | None] = queue.SimpleQueue()
        self._workers = Workers(activities, WORKERS, "worker")
        self._sender = threading.Thread(target=self._send_all, name="sender", daemon=True)
        self.tap_bell = signal.bell()
        self.taps = TapRegistry(participant, self.tap_bell)
        self.monitor_dropped = 0
        """Number of monitor messages that were dropped because `MAX_UNSENT` messages waited."""
        self._activities = activities
        self._sending = activities.work("statusThread")
        self.fault: Exception | None = None
        self._deliveries = ShownDeliveries(self.alive.is_present)
        self._sender.start()

    @property
    def beats(self) -> int:
        """Number of heartbeats that the node provided."""
        return self._pulse.beats

    # engine.runtime.ports.Wire

    def send(self, topic: str, payload: bytes) -> None:
        """Queue a protocol message for the sender thread, which keeps the order; send heartbeats at once."""
        if topic == STATUS_TOPIC:
            self._pulse.beat(payload)
        else:
            self._unsent.put((topic, payload))

    def publish(self, topic: str, payload: bytes) -> None:
        """Queue a monitor message, unless `MAX_UNSENT` messages wait."""
        if self._unsent.qsize() < MAX_UNSENT:
            self._unsent.put((topic, payload))
        else:
            self.monitor_dropped += 1

    def send_stream(
        self, name_space: str, fellows: tuple[str, ...], batches: Iterator[bytes], samples: int
    ) -> None:
        """Stream batches to fellows, on a worker thread; see `Wire.send_stream`."""
        participants = [self._neighbourhood.participant_of(fellow) for fellow in fellows]
        targets = [participant for participant in participants if participant is not None]
        what = f"sampleRequestHandler (set of {name_space} to {', '.join(fellows)})"
        self._submit(what, BATCH_TIMEOUT_S, self._stream, name_space, fellows, targets, batches, samples)

    def send_note(self, fellow: str, note: bytes) -> None:
        """Send a note to a fellow, on a worker thread."""
        target = self._neighbourhood.participant_of(fellow)
        if target is not None:
            what = f"sampleRequestHandler (what is held, to {fellow})"
            self._submit(what, BATCH_TIMEOUT_S, self._note, fellow, target, note)

    def open_group(self, description: GroupDescription, partitions: tuple[str, ...]) -> None:
        """Capture the group."""
        self.taps.open(description, partitions)

    def deliver(
        self,
        reader: ReaderKey,
        groups: list[tuple[GroupDescription, SampleRows]],
        *,
        whole: bool,
        how: RevivingDelivery | ReplacingDelivery | None = None,
    ) -> None:
        """Deliver samples to a reader's process, on a worker thread; see `Wire.deliver`."""
        members = self._neighbourhood.members(bytes.fromhex(reader.process))
        if not groups:
            self._show(reader, time.time_ns(), Delivered())
            self._post(lambda: self._runtime.late_joiners.delivered(reader, Delivered(), whole=whole))
        elif not members or not members[0].addresses:
            gone = Delivered(problem="its process is gone")
            self._post(lambda: self._runtime.late_joiners.delivered(reader, gone, whole=whole))
        else:
            began_ns = time.time_ns()
            self._show(reader, began_ns, None)

            def done(result: Delivered) -> None:
                self._post(lambda: show(result))

            def show(result: Delivered) -> None:
                self._show(reader, began_ns, result)
                self._runtime.late_joiners.delivered(reader, result, whole=whole)

            def rejected(group: Group, attempt: int) -> None:
                self._post(lambda: tell_rejected(group, attempt))

            def tell_rejected(group: Group, attempt: int) -> None:
                self._show(reader, began_ns, None, f"RESOURCE_LIMITS of the reader reject samples of {group}")
                self._runtime.late_joiners.rejected(group, attempt)

            self.alive.deliver(
                reader,
                members[0].addresses,
                groups,
                done,
                is_whole=whole,
                how=how,
                on_rejected=rejected,
            )

    def deliveries(self) -> tuple[DeliveryView, ...]:
        """Return the last deliveries, oldest first."""
        return self._deliveries.views()

    def unkept(self, is_meant: Callable[[Unkept], bool]) -> tuple[UnkeptView, ...]:
        """Return the durable writers that are not kept but `is_meant` to be, at most `MAX_UNKEPT_SHOWN`."""
        return tuple(
            UnkeptView(one.writer, one.topic, ", ".join(one.partitions), one.why.value, one.text)
            for one in itertools.islice(filter(is_meant, self._neighbourhood.unkept), MAX_UNKEPT_SHOWN)
        )

    def asked(self, group: Group) -> int:
        """Return the deepest HISTORY of the durable readers of a group; 0 for KEEP_ALL."""
        return self._neighbourhood.asked(group)

    def unproved(self) -> tuple[UnprovedView, ...]:
        """Return the participants of which messages were refused lately, at most `MAX_UNPROVED_SHOWN`.

        Those that have left are not among them: the log names them, and nothing is left to be done.
        """
        refused = self._participant.proofs.refused_since(time.monotonic() - UNPROVED_S)
        return tuple(
            UnprovedView(
                guid.hex(),
                self._neighbourhood.name_of(guid),
                {str(why): n for why, n in counts.items()},
                self._neighbourhood.node_of(guid) or "",
            )
            for guid, counts in itertools.islice(refused.items(), MAX_UNPROVED_SHOWN)
        )

    def secret(self) -> tuple[str, str]:
        """Return the path of the domain's secret, empty for none, and why it cannot be read again."""
        secret = self._participant.proofs.secret
        return (secret.path, secret.problem) if secret is not None else ("", "")

    def _show(self, reader: ReaderKey, began_ns: int, result: Delivered | None, problem: str = "") -> None:
        """Record a delivery for consoles; the final record replaces the running one."""
        shown = DeliveryView(
            participant=",".join(self.alive.participants(reader)),
            topic=reader.topic,
            partition=",".join(reader.partitions),
            state="running" if result is None else "failed" if result.problem else "done",
            samples=result.samples if result else 0,
            started_ns=began_ns,
            finished_ns=began_ns + result.elapsed_ns if result else 0,
            problem=(result.problem or "; ".join(result.refused)) if result else problem,
        )
        self._deliveries.put(reader, shown)

    # Threads.

    def submit(self, work: Callable[[], None], name: str, patience_s: float) -> None:
        """Run blocking work on a worker thread.

        Args:
            work: the work; it calls `engine.dds.activity.moved` if it takes longer than its patience.
            name: the activity's name for the deadlock watch.
            patience_s: limit for blocking.
        """
        self._submit(name, patience_s, work)

    def _submit(self, name: str, patience_s: float, work: Callable[..., None], *arguments: object) -> None:
        """Run work on a worker thread; an unexpected error ends the node, which would wait for ever."""

        def run() -> None:
            try:
                with self._activities.job(name, patience_s + MARGIN_S):
                    work(*arguments)
            except Exception as error:  # of any class: nobody else would ever answer the node
                if not self._participant.closed:
                    self.fault = error
                    self._post(_nothing)

        self._workers.submit(run)

    def _send_all(self) -> None:
        while True:
            self._sending.beat()
            try:
                item = self._unsent.get(timeout=BEAT_S)
            # Nothing to send: only the beat of the thread was due.
            except queue.Empty:
                continue
            if item is None:
                self._sending.rest()
                return
            topic, payload = item
            try:
                with self._sending:
                    self._channel.publish(topic, self._node, payload)
            except DdsTimeout:
                self._unsent.put(item)  # a slow fellow must not cost the others a message
            except DdsError as error:
                if not self._participant.closed:
                    self.fault = error
                return

    def _stream(
        self,
        name_space: str,
        fellows: tuple[str, ...],
        targets: list[bytes],
        batches: Iterator[bytes],
        samples: int,
    ) -> None:
        partitions = [receiver_partition(self._partition, fellow) for fellow in fellows]
        sent = 0
        patience_s = SHARED_TIMEOUT_S if len(targets) > 1 else BATCH_TIMEOUT_S
        try:
            sender = self._bulk_sender(partitions, targets)
            try:
                sender.wait_targets(MATCH_TIMEOUT_S)  # missing fellows ask again
                for batch in batches:
                    sender.send(batch, patience_s)
                    moved()
                    sent += len(batch)
                sender.finish(BATCH_TIMEOUT_S)
            finally:
                sender.close()
        except (DdsError, ValueError):  # of these, a batch too large for the wire
            samples = sent = 0  # the alignee gets nothing more and asks again
        self._post(lambda: self._runtime.transfers.sent(name_space, fellows, samples, sent))

    def _note(self, fellow: str, target: bytes, note: bytes) -> None:
        with contextlib.suppress(DdsError):  # a fellow that waits in vain requests the whole set
            sender = self._bulk_sender([receiver_partition(self._partition, fellow)], [target])
            try:
                sender.wait_targets(MATCH_TIMEOUT_S)
                sender.send(note, BATCH_TIMEOUT_S)
                sender.finish(BATCH_TIMEOUT_S)
            finally:
                sender.close()

    def _bulk_sender(self, partitions: list[str], targets: list[bytes]) -> BulkSender:
        announced = self._announced
        priority = announced.priorities.get(BULK_TOPIC, announced.priority)
        return BulkSender(self._participant, partitions, targets, name=announced.writer, priority=priority)

    def close(self, timeout_s: float) -> None:
        """Send the queued messages, for at most `timeout_s`, and end the threads."""
        self._unsent.put(None)
        self._sender.join(timeout_s)
        self._pulse.close(timeout_s)
        self._workers.close()
        self.taps.close()


def _nothing() -> None:
    """Do nothing: the task that only wakes the node."""


def receiver_partition(partition: str, node: str) -> str:
    """Return the partition in which a node receives streams."""
    return f"{partition}.{node}"


MONITOR_TOPIC: Final = "d_monitor"
EVENTS_TOPIC: Final = "d_monitorEvents"
PAST_TOPIC: Final = "d_past"
TOPICS: Final = (
    ChannelTopic(MONITOR_TOPIC, is_state=True, reads=False),
    ChannelTopic(EVENTS_TOPIC, is_state=False, reads=False),
    ChannelTopic(PAST_TOPIC, is_state=True, reads=False),
)
"""The topics for consoles."""
SNAPSHOT_PAUSE_S: Final = 0.25
"""Least time between two snapshots: people see no more, and each costs milliseconds."""
PAST_PAUSE_S: Final = 1.0
"""Least time between two publications of the past; consoles that are connected get the events anyway."""


class ConsolePublisher:
    """Publishes snapshots, events and the past.

    Args:
        runtime: has the state.
        wire: publishes it.
        identity: the facts of the process that do not change.
        clock: the node's.
        disk_bytes: returns the size of the store on disk.
        past: remembered events.

    Attributes:
        times: when the next snapshot is due.
    """

    def __init__(
        self,
        runtime: Runtime,
        wire: DdsWire,
        identity: Identity,
        clock: Clock,
        disk_bytes: Callable[[], int],
        past: Past,
    ) -> None:
        self._runtime = runtime
        self._wire = wire
        self._identity = identity
        self._clock = clock
        self._disk_bytes = disk_bytes
        self._past = past
        self._past_due_s = 0.0
        self._past_shown = -1
        self.times = PublishSchedule(SNAPSHOT_PAUSE_S, runtime.settings.heartbeat_period_s)

    def is_due(self, now: float) -> bool:
        """Tell whether a snapshot is due: with each heartbeat, or when one is late."""
        return self.times.is_due(now, self._wire.beats)

    def show(self, now: float) -> None:
        """Publish a snapshot."""
        self.times.done(now, self._wire.beats)
        if self._wire.monitor_dropped:
            self._runtime.counters["monitor_dropped"] = self._wire.monitor_dropped
        shown = snapshot(
            self._runtime,
            self._identity,
            now,
            self._clock.wall_ns(),
            self._wire.deliveries(),
            self._disk_bytes(),
            self._wire.unkept(lambda writer: self._runtime.shared.is_meant(writer.groups)),
            self._wire.asked,
            self._wire.unproved(),
            self._wire.secret(),
        )
        shown = msgspec.structs.replace(shown, memory_bytes=resident_bytes())
        self._wire.publish(MONITOR_TOPIC, monitor.encode(shown))
        self._past.masters(shown)
        if now >= self._past_due_s and self._past.revision != self._past_shown:
            self._past_due_s, self._past_shown = now + PAST_PAUSE_S, self._past.revision
            self._wire.publish(PAST_TOPIC, monitor.encode(self._past.shown(shown.id, shown.name)))

    def event(self, record: EventRecord) -> None:
        """Publish an event; the tracer calls this on the thread that traces."""
        event = monitor.NodeEvent(
            node=self._runtime.settings.node,
            node_name=self._runtime.settings.name,
            number=record.sequence,
            time_ns=record.time_ns,
            state=record.state,
            thread=record.event.thread,
            level=record.event.level.name,
            event=record.event.id,
            text=record.text,
        )
        self._wire.publish(EVENTS_TOPIC, monitor.encode(event))


def identity_of(
    configuration: Configuration,
    store_kind: str,
    found: StoredContent,
    started_ns: int,
    addresses: tuple[str, ...],
) -> Identity:
    """Return the facts of the process and its configuration that do not change.

    Args:
        configuration: the node's.
        store_kind: `memory` or `sqlite`.
        found: the content of the store.
        started_ns: start of the node, nanoseconds since 1970 UTC.
        addresses: addresses of its interfaces.
    """
    persistent = configuration.persistent
    return Identity(
        host=socket.gethostname(),
        pid=os.getpid(),
        domain_id=configuration.domain.id,
        configuration=str(Path(configuration.path).resolve()),  # its readers have other directories
        version=product_version(),
        started_ns=started_ns,
        store_kind=store_kind,
        store_path=str(Path(persistent.store_directory).absolute()) if persistent else "",
        store_findings=found.findings,
        has_disk=store_kind != "memory",
        addresses=addresses,
    )
