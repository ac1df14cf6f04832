"""One node: everything put together, and the one thread on which the runtime lives."""

from __future__ import annotations

import collections
import contextlib
import os
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from engine.clients.service import ClientService
from engine.dds.bulk import TOPIC as BULK_TOPIC
from engine.dds.bulk import BulkReceiver, Received
from engine.dds.channel import Channel, ChannelTopic
from engine.dds.discovery import Discovery, TopicDiscovery
from engine.dds.interfaces import address_of, first_interface
from engine.dds.participant import NodeParticipant
from engine.dds.pump import Pump
from engine.dds.selfcheck import check_layouts
from engine.dds.typeinfo import resolve_type
from engine.dds.uri import cyclone_uri, domain_tag
from engine.node.disk import Disk
from engine.node.mailbox import Handler, Mailbox, ignore
from engine.node.neighbourhood import Neighbourhood
from engine.node.watch import Watch, Work
from engine.node.wire import DdsWire, receiver_partition
from engine.runtime import codec, monitor
from engine.runtime.runtime import CapturedSample, Runtime
from engine.runtime.startup import core_settings
from engine.runtime.view import Identity, snapshot
from engine.tracing.levels import Level
from engine.tracing.version import product_version

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from engine.config.settings import Configuration
    from engine.core.messages import ReaderKey
    from engine.dds.discovery import EndpointSeen
    from engine.node.neighbourhood import Changes, DurableReader
    from engine.runtime.startup import Found
    from engine.tracing.record import Record
    from engine.tracing.tracer import Tracer

MONITOR_TOPIC: Final = "d_monitor"
EVENTS_TOPIC: Final = "d_monitorEvents"
TOPICS: Final = (
    *(ChannelTopic(name, is_state=True) for name in codec.STATE_TOPICS),
    ChannelTopic(codec.MESSAGE_TOPIC, is_state=False),
    ChannelTopic(MONITOR_TOPIC, is_state=True, reads=False),
    ChannelTopic(EVENTS_TOPIC, is_state=False, reads=False),
)
MAX_BACKLOG: Final = 200_000
"""Samples that may wait for the disk before capture pauses and writers are held back."""
DRAIN: Final = 20_000
BUSY: Final = 500
"""Samples in one go from which on there is a pause before the next, so that there are more in one go."""
DRAIN_PAUSE_S: Final = 0.05
ROOMY: Final = 0.25
"""A tap that was fuller than this makes the pause shorter, so that writers are not held back."""
MAX_BATCH_BYTES_WAITING: Final = 32 << 20
"""Octets of streams that may wait for the node's thread."""
MAX_ORPHANS: Final = 200_000
"""Samples that may wait for discovery to tell of their writer; beyond that they are dropped and counted."""
SNAPSHOT_PAUSE_S: Final = 0.25
TICK_S: Final = 0.005
STREAMS_S: Final = 0.05
"""So long streams are taken in before the node looks at everything else again."""


class ConfigurationRefused(Exception):
    """The node cannot run with this configuration in this system; starting it again would not help."""


class NodeFault(Exception):
    """A part of the node ended by itself; the node cannot go on without it."""


class Lease(Protocol):
    """What a supervised node owes its supervisor (see `engine.supervisor.link`)."""

    def renew(self) -> None:
        """The node is alive."""

    def report(self, state: str, **details: object) -> None:
        """The node is in another state."""

    def is_lost(self, timeout_s: float = 0) -> bool:
        """The supervisor is gone."""


class SystemClock:
    """The real clocks."""

    def monotonic(self) -> float:
        """Seconds since any moment."""
        return time.monotonic()

    def wall_ns(self) -> int:
        """Nanoseconds since 1970 UTC."""
        return time.time_ns()


class Node:
    """One running durability service.

    Args:
        configuration: what the file says.
        name: the human name of the node.
        tracer: where events go; the node publishes them for consoles, too.
        environ: where CYCLONEDDS_URI is looked up.
        lease: the supervisor's side, None without a supervisor.

    Raises:
        StoreError: the store cannot be used.
        DdsError, UnsupportedCyclone: Cyclone DDS cannot be used.
    """

    def __init__(
        self,
        configuration: Configuration,
        name: str,
        tracer: Tracer,
        environ: Mapping[str, str],
        lease: Lease | None = None,
    ) -> None:
        self._configuration = configuration
        self._tracer = tracer
        self._lease = lease
        self._clock = SystemClock()
        self._mailbox = Mailbox()
        self._batch_bytes_taken = 0  # the pump's thread counts
        self._batch_bytes_done = 0  # the node's thread counts
        self._batches_waiting: collections.deque[bytes] = collections.deque()
        self._stop_reason: str | None = None
        self._stack = contextlib.ExitStack()
        self._orphans: list[CapturedSample] = []
        self._started = self._clock.monotonic()
        self._started_ns = self._clock.wall_ns()
        self._snapshot_due = 0.0
        self._drain_due = 0.0
        self._undecodable: dict[str, int] = {}
        self._work = Work()
        self._shown_state = ""
        check_layouts()
        directory = configuration.persistent.store_directory if configuration.persistent else None
        self._disk = Disk(Path(directory) if directory else None, name, self._mailbox.wake)
        self._uri = uri_of(configuration, environ)
        self._interface = first_interface(self._uri) or "lo"
        try:
            self._begin(name)
        except BaseException:
            self._stack.close()
            raise

    def _begin(self, name: str) -> None:
        configuration = self._configuration
        self._found = found = self._disk.open()
        self._stack.callback(self._disk.close, configuration.domain.service_terminate_period_s * 0.7)
        self._trace_store(found)
        node = found.report.node_id
        self._participant = self._stack.enter_context(
            NodeParticipant(configuration.domain.id, self._uri, name, bytes.fromhex(node))
        )
        self._neighbourhood = Neighbourhood()
        self._pump = Pump(self._participant, self._from_pump)
        self._stack.callback(self._pump.stop)
        signal, partition = self._pump.signal, configuration.entity_names.partition
        self._discovery = Discovery(self._participant, signal)
        self._topics = TopicDiscovery(self._participant, signal)
        self._channel = Channel(self._participant, partition, topics=TOPICS, signal=signal)
        self._receiver = BulkReceiver(self._participant, receiver_partition(partition, node), signal=signal)
        self._wire = DdsWire(
            self._participant,
            self._channel,
            self._neighbourhood,
            signal,
            self._mailbox.post,
            node=node,
            partition=partition,
            interface=self._interface,
            tag=domain_tag(self._uri),
        )
        self._runtime = Runtime(
            core_settings(configuration, name, address_of(self._interface), found),
            self._disk.persistence,
            self._wire,
            self._clock,
            self._tracer,
            found.sets,
            found.parts,
        )
        is_loopback = address_of(self._interface).startswith("127.")
        reach = "which reaches this machine only" if is_loopback else "which leaves this machine"
        self._tracer.event("lifecycle.interface", interface=self._interface, reach=reach)
        self._wire.on_stream_sent = self._runtime.transfers.sent
        self._wire.on_delivered = self._runtime.serving.delivered
        self._clients: ClientService | None = None
        if configuration.client_durability is not None:
            names = configuration.client_durability
            self._clients = ClientService(
                self._participant, self._runtime, names.partition, signal, self._mailbox.post
            )
            self._stack.callback(self._clients.close)
            self._pump.add("clients", self._clients.take)
            self._stack.callback(self._pump.remove, "clients")
        self._identity = self._make_identity()
        self._tracer.subscribe(self._publish_event, Level.FINE)
        self._listen()
        watch = Watch(
            {
                "ospl_durability": self._work,
                "persistentDataListener": self._disk.work,
                "statusThread": self._wire.work,
            },
            self._tracer,
            self._renew,
            min(1.0, configuration.domain.lease.period_s),
            detects=configuration.watchdog.deadlock_detection,
        )
        self._stack.callback(watch.close)
        watch.start()

    def _listen(self) -> None:
        self._pump.add("topics", self._topics.take)  # before the writers of these topics
        self._pump.add("discovery", self._discovery.take)
        self._pump.add("channel", self._channel.take)
        self._pump.add("attachment", self._channel.take_changes)
        self._pump.add("streams", self._take_batches)
        self._pump.add("taps", lambda: [True] if self._wire.taps.has_news() else [])
        self._pump.start()

    # Other threads.

    def _from_pump(self, source: str, batch: Sequence[Any]) -> None:
        handlers: dict[str, Handler] = {
            "topics": self._neighbourhood.topics_seen,
            "discovery": self._discovered,
            "channel": self._messages,
            "attachment": self._discovered,
            "streams": self._batches,
            "taps": ignore,  # the turn itself looks at the taps
            "clients": self._clients.handle if self._clients else ignore,
        }
        self._mailbox.post_batch(handlers[source], batch)

    def _take_batches(self) -> list[Received]:
        """No more than can be dealt with soon; what stays in the queue pushes senders back."""
        if self._batch_bytes_taken - self._batch_bytes_done >= MAX_BATCH_BYTES_WAITING:
            return []
        taken = self._receiver.take()
        self._batch_bytes_taken += sum(len(received.payload or b"") for received in taken)
        return taken

    def request_stop(self, reason: str) -> None:
        """End in order. May be called from a signal handler and from any thread."""
        if self._stop_reason is None:
            self._stop_reason = reason
            self._mailbox.wake()

    # The node's thread.

    def run(self) -> None:
        """Serve until `request_stop` or until the supervisor is gone; returns when all is closed.

        Raises:
            ConfigurationRefused: the system around this node makes its configuration impossible.
            NodeFault: a part of the node ended by itself.
        """
        try:
            due = 0.0
            while self._stop_reason is None:
                self._mailbox.wait(self._patience_s(min(due, self._snapshot_due)))
                with self._work:
                    self._carry_out()
                    self._take_batches_in()
                    if self._clock.monotonic() >= self._drain_due:
                        self._drain()
                    due = self._runtime.turn()
                    if self._clients:
                        due = min(due, self._clients.work())
                    self._disk.wake()
                    self._duties()
                    if self._runtime.refusal:
                        raise ConfigurationRefused(self._runtime.refusal)
            self._tracer.event("lifecycle.stop-requested", signal=self._stop_reason)
            self._runtime.stop()
            self._duties()
            self._drain()
            self._tracer.event("lifecycle.stopping")
            self._runtime.stop(finished=True)
            self._wire.close(timeout_s=1.0)
        finally:
            self._stack.close()
            self._tracer.event("lifecycle.stopped")
            if self._lease:
                self._lease.report("TERMINATED", node=self._found.report.node_id)

    def _patience_s(self, due: float) -> float:
        """Seconds to wait for news until the next turn."""
        if self._batches_waiting:
            return 0.0
        now = self._clock.monotonic()
        patience_s = max(0.0, due - now)
        if self._disk.persistence.queued_changes > MAX_BACKLOG:
            patience_s = min(patience_s, TICK_S)  # taps wait for the disk; look again soon
        if self._drain_due > now:
            patience_s = min(patience_s, self._drain_due - now)
        return patience_s

    def _carry_out(self) -> None:
        self._mailbox.carry_out()
        for part in (self._disk, self._wire, self._pump):
            if part.fault is not None:
                raise NodeFault(f"a thread of the node ended: {part.fault!r}") from part.fault

    def _drain(self) -> None:
        persistence = self._disk.persistence
        if persistence.queued_changes > MAX_BACKLOG and not persistence.problem:
            return
        routes = self._neighbourhood.routes
        count, fill = 0, ROOMY
        for tap in self._wire.taps:
            fill = max(fill, tap.fill)
            drained: tuple[int, list[Any]] = tap.drain_runs(DRAIN)
            some, taken = drained
            count += some
            if self._orphans:
                taken = [*self._orphans, *taken]
            # Samples whose writer discovery has not told of yet wait; the pump brings it within moments.
            self._orphans = self._runtime.capture(taken, routes) if taken else []
            if self._clients:
                self._clients.captured(taken, self._orphans)
            if len(self._orphans) > MAX_ORPHANS:
                self._runtime.count_unrouted(len(self._orphans))
                self._orphans = []
        pause_s = 0.0 if count < BUSY or self._runtime.serving.tails else DRAIN_PAUSE_S * ROOMY / fill
        self._drain_due = self._clock.monotonic() + pause_s
        if self._clients:
            self._clients.drained()

    def _discovered(self, batch: Sequence[Any]) -> None:
        changes = self._neighbourhood.take(batch)
        for node, participant, is_attached in changes.fellows:
            if is_attached:
                self._runtime.fellow_attached(node, participant.hex())
            else:
                self._runtime.fellow_detached(node, participant.hex())
        for endpoint in changes.unresolved:
            self._look_up(endpoint)
        self._writers_seen(changes)
        for reader in changes.readers_gone:
            for key in self._reader_keys(reader):
                self._runtime.serving.gone(key)
        for reader in changes.readers_seen:
            for key in self._reader_keys(reader):
                self._runtime.serving.seen(key, reader.host)
        for reader, end, is_further in changes.ends_seen:
            for key in self._reader_keys(reader) if is_further else ():
                self._runtime.serving.joined(key, end)

    def _writers_seen(self, changes: Changes) -> None:
        """Durable writers came and went."""
        for description in changes.groups:
            self._runtime.group_seen(description)
        for writer, groups in changes.writers:
            self._runtime.housekeeping.writers(writer, groups)
        for endpoint, groups in changes.offers:
            for group in groups:
                policies = self._wire.taps.refusals(group, endpoint.endpoint_qos)
                if policies:
                    self._runtime.holdings.refuse_writer(group, endpoint.guid.hex(), policies)

    def _reader_keys(self, reader: DurableReader) -> list[ReaderKey]:
        return self._runtime.serving.reader_keys(reader.participant.hex(), reader.topic, reader.partitions)

    def _look_up(self, endpoint: EndpointSeen) -> None:
        reference = endpoint.type
        assert reference is not None

        def look_up() -> None:
            resolution = resolve_type(self._participant, reference)
            self._mailbox.post(lambda: resolved(resolution.type, resolution.reason))

        def resolved(description: Any, reason: str) -> None:
            self._writers_seen(self._neighbourhood.resolved(reference, description))
            if description is None:
                self._tracer.event(
                    "group.creation-failed", group=f"*.{endpoint.topic}", retries=3, cause=reason
                )

        self._wire.submit(look_up)

    def _messages(self, batch: Sequence[Any]) -> None:
        for received in batch:
            if self._neighbourhood.may_speak_for(received.participant, received.sender_id):
                self._runtime.message(received.topic, received.sender_id, received.payload)
            else:
                cause = f"participant {received.participant.hex()} is not this node"
                self._runtime.holdings.malformed(received.topic, received.sender_id, cause)

    def _batches(self, batch: Sequence[Any]) -> None:
        self._batches_waiting.extend(received.payload for received in batch if received.payload is not None)

    def _take_batches_in(self) -> None:
        """Take in what has come of streams, for a moment: heartbeats must come and go meanwhile."""
        until = self._clock.monotonic() + STREAMS_S
        while self._batches_waiting and self._clock.monotonic() < until:
            payload = self._batches_waiting.popleft()
            self._runtime.transfers.batch(payload)
            self._batch_bytes_done += len(payload)
            self._receiver.wake()

    # Duties towards supervisor and consoles.

    def _duties(self) -> None:
        now = self._clock.monotonic()
        state = self._runtime.state.value
        if state != self._shown_state:
            self._shown_state = state
            self._snapshot_due = now
            if self._lease:
                self._lease.report(state, node=self._found.report.node_id)
        if now >= self._snapshot_due:
            self._snapshot_due = now + max(SNAPSHOT_PAUSE_S, self._runtime.settings.heartbeat_period_s)
            self._tell_undecodable()
            shown = snapshot(
                self._runtime, self._identity, now, self._clock.wall_ns(), self._wire.deliveries()
            )
            self._wire.publish(MONITOR_TOPIC, monitor.encode(shown))

    def _tell_undecodable(self) -> None:
        """Count and report the samples that the transport could not even take apart."""
        totals = {**self._channel.malformed, BULK_TOPIC: self._receiver.malformed}
        for topic, total in totals.items():
            count = total - self._undecodable.get(topic, 0)
            if count:
                self._undecodable[topic] = total
                self._runtime.holdings.malformed(
                    topic, "?", f"{count} samples are not what the topic carries", count
                )

    def _renew(self) -> None:
        """Renew the lease, on the watch's thread; a supervisor that is gone ends the node."""
        if self._lease is None:
            return
        self._lease.renew()
        if self._stop_reason is None and self._lease.is_lost():
            self._tracer.event("lifecycle.daemon-lost")
            self.request_stop("the supervisor is gone")

    def _publish_event(self, record: Record) -> None:
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

    def _make_identity(self) -> Identity:
        persistent = self._configuration.persistent
        return Identity(
            host=socket.gethostname(),
            pid=os.getpid(),
            domain_id=self._configuration.domain.id,
            configuration=self._configuration.path,
            version=product_version(),
            started_ns=self._started_ns,
            store_kind=self._disk.kind,
            store_path=persistent.store_directory if persistent else "",
            store_findings=self._found.report.findings,
        )

    def _trace_store(self, found: Found) -> None:
        persistent = self._configuration.persistent
        if persistent is None or not persistent.store_directory:
            self._tracer.event("store.disabled")
            return
        self._tracer.event("store.opened", directory=persistent.store_directory)
        for name, (data, descriptions) in found.sets.items():
            self._tracer.event(
                "store.namespace",
                namespace=name,
                samples=data.summary().count,
                groups=len(descriptions),
                completeness="complete",
                quality_ns=max(0, found.stored[name].quality_ns),
            )
        if found.report.is_damaged:
            self._tracer.event("store.corrupt", namespace="*", cause="; ".join(found.report.findings))
        for name, cause in found.damage.items():
            self._tracer.event("store.corrupt", namespace=name, cause=cause)


def uri_of(configuration: Configuration, environ: Mapping[str, str]) -> str:
    """The Cyclone settings: CYCLONEDDS_URI, else from the DDSI2 part, else loopback."""
    ddsi = configuration.ddsi
    if not ddsi.is_configured or ddsi.network_interface.lower() == "auto":
        return cyclone_uri(environment=environ)
    multicast = ddsi.allow_multicast.lower()
    return cyclone_uri(
        interfaces=(ddsi.network_interface,),
        multicast=multicast,
        peers=ddsi.peers if ddsi.peers or multicast != "false" else ("localhost",),
        environment=environ,
    )
