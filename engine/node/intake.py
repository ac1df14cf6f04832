"""News from discovery and fellows, on its way to the runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.dds.interfaces import beyond_loopback
from engine.dds.typeinfo import LOOK_UP_S, resolve_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from engine.capture.neighbourhood import DiscoveryChanges, HistoryReader, Neighbourhood, Offer
    from engine.capture.unkept import Unkept
    from engine.core.messages import ReaderKey
    from engine.dds.discovery import EndpointSeen
    from engine.dds.participant import NodeParticipant
    from engine.node.wire import DdsWire
    from engine.runtime.runtime import Runtime
    from engine.tracing.tracer import Tracer


class NodeIntake:
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
        self._participant = participant
        self._neighbourhood = neighbourhood
        self._wire = wire
        self._runtime = runtime
        self._tracer = tracer
        self._post = post
        self._undecodable: dict[str, int] = {}

    def turn(self) -> None:
        """Continue the moves of taps, and check the writers of taps that request more."""
        for topic, type_id in self._wire.taps.take_raised():
            self._check_offers(self._neighbourhood.offers(topic, type_id))
        for moved in self._wire.taps.turn():
            self._tracer.event(
                "capture.moved",
                topic=moved.topic,
                before=moved.before.name,
                requested=moved.requested.name,
                elapsed_ns=moved.elapsed_ns,
            )

    def topics_seen(self, batch: Sequence[Any]) -> None:
        """Take in a batch of topic discovery."""
        self._writers_seen(self._neighbourhood.topics_seen(batch))

    def discovered(self, batch: Sequence[Any]) -> None:
        """Take in a batch of discovery and of attachments."""
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
                self._runtime.serving.seen(key, self._hosts(reader))
        for reader, end, is_further in changes.ends_seen:
            for key in self._reader_keys(reader) if is_further else ():
                self._runtime.serving.joined(key, end)
        self._wire.keeping.processes_gone(changes.processes_gone)

    def _writers_seen(self, changes: DiscoveryChanges) -> None:
        """Take in durable writers that came and went, and groups that are known better."""
        for description in changes.groups:
            self._runtime.group_seen(description)
        for writer, groups in changes.writers:
            self._runtime.housekeeping.writers(writer, groups)
        self._check_offers(changes.offers)
        for unkept in changes.unkept:
            self._not_kept(unkept)
        self._wire.keeping.changed(changes)

    def _check_offers(self, offers: Iterable[Offer]) -> None:
        for offer in offers:
            policies = self._wire.taps.refusals(offer.groups[0], offer.endpoint.endpoint_qos)
            if policies and self._neighbourhood.refuse(offer, policies) is not None:
                self._runtime.counters["unkept_writers"] += 1
                for group in offer.groups:
                    self._runtime.shared.refuse_writer(group, offer.endpoint.guid.hex(), policies)

    def _not_kept(self, unkept: Unkept) -> None:
        self._runtime.counters["unkept_writers"] += 1
        self._tracer.event(
            "group.not-kept",
            topic=unkept.topic,
            partitions=", ".join(unkept.partitions) or "the default partition",
            writer=unkept.writer,
            cause=unkept.text,
        )

    def _hosts(self, reader: HistoryReader) -> frozenset[str]:
        """Return the addresses of a reader's host; a reader with loopback addresses only is on this host."""
        network = beyond_loopback(reader.hosts)
        return frozenset(network) if network else reader.hosts | self._runtime.settings.hosts

    def _reader_keys(self, reader: HistoryReader) -> list[ReaderKey]:
        return self._runtime.serving.reader_keys(reader.participant.hex(), reader.topic, reader.partitions)

    def _look_up(self, endpoint: EndpointSeen) -> None:
        reference = endpoint.type
        assert reference is not None

        def look_up() -> None:
            resolution = resolve_type(self._participant, reference)
            self._post(lambda: resolved(resolution.type, resolution.reason))

        def resolved(description: Any, reason: str) -> None:
            self._writers_seen(self._neighbourhood.resolved(reference, description, reason))
            if description is None:
                self._tracer.event(
                    "group.creation-failed", group=f"*.{endpoint.topic}", retries=3, cause=reason
                )

        self._wire.submit(look_up, f"groupCreationThread (type of topic {endpoint.topic})", LOOK_UP_S)

    def messages(self, batch: Sequence[Any]) -> None:
        """Take in protocol messages, each only from the node that it names."""
        for received in batch:
            if self._neighbourhood.may_speak_for(received.participant, received.sender_id):
                self._runtime.message(received.topic, received.sender_id, received.payload)
            else:
                cause = f"participant {received.participant.hex()} is not this node"
                self._runtime.shared.malformed(received.topic, received.sender_id, cause)

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
