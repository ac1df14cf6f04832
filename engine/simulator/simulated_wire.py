"""`engine.runtime.ports.Wire` of one run of a simulated node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from engine.core.expressions import matches
from engine.core.messages import Purge, ReaderKey
from engine.dataset.groups import GroupDescription
from engine.dataset.sample import Sample
from engine.dataset.sample_rows import SampleRows
from engine.runtime.codec import STATE_TOPICS
from engine.runtime.ports import AliveInstances, Delivered, ReplacingDelivery, RevivingDelivery, Wire
from engine.simulator.network import LOOPBACK_S, SimulatedParticipant
from engine.simulator.simulated_node import BATCH, TAP_LEAST_S, SimulatedNode
from engine.simulator.simulated_system import SimulatedSystem

MATCH_TIMEOUT_S: Final = 5.0
"""Limit for matching the readers of a stream's targets; the same as on Cyclone DDS."""


class SimulatedWire(Wire):
    """The output of one run of a node.

    Attributes:
        taps: when samples of each (topic, type) can be seen first.
        bytes_sent: of all streams, counted once for each target.
        messages: protocol messages, each counted once, as by multicast.
        published: monitor messages.
    """

    def __init__(self, system: SimulatedSystem, node: SimulatedNode) -> None:
        self.node = node
        self.system = system
        self.alive = AliveInstances()
        self._is_closed = False
        self.taps: dict[tuple[str, str], float] = {}
        self.bytes_sent = self.messages = 0
        self.published = 0

    def close(self) -> None:
        """End the run's streams."""
        self._is_closed = True

    def send(self, topic: str, payload: bytes) -> None:
        """Send a protocol message to all fellows."""
        self.messages += 1
        network, is_state = self.system.network, topic in STATE_TOPICS
        envelope = self.system.codec.decode(payload)
        if isinstance(envelope.message, Purge):
            keys = [one.key for one in envelope.message.instances]
            self.system.ledger.purged(envelope.message.group, keys, self.system.schedule.now)
        to = envelope.to if network.is_crowd and not is_state else ()
        network.broadcast(self.node.participant, topic, payload, is_state=is_state, to=to)

    def publish(self, topic: str, payload: bytes) -> None:
        """Ignore monitor messages."""
        self.published += bool(topic and payload)

    def open_group(self, description: GroupDescription, partitions: tuple[str, ...]) -> None:
        """Open the tap of the group's topic and type, which matches a little later."""
        assert any(matches(each, description.group.partition) for each in partitions)
        key = (description.group.topic, description.group.type_id)
        if key not in self.taps:
            delay = self.node.rng.uniform(TAP_LEAST_S, self.system.options.tap_delay_s)
            self.taps[key] = self.system.schedule.now + delay

    def send_stream(
        self, name_space: str, fellows: tuple[str, ...], batches: Iterator[bytes], samples: int
    ) -> None:
        """Send the batches in order, at the planned speed."""
        self.system.streaming(self.node, name_space, fellows, samples)
        stream = _Stream(self, name_space, fellows, batches, samples)
        self.system.schedule.after(self.node.rng.uniform(0.001, 0.02), stream.begin)

    def send_note(self, fellow: str, note: bytes) -> None:
        """Send a note to a fellow, if it is matched then."""
        self.bytes_sent += len(note)
        self.node.run_later(self.node.rng.uniform(0.001, 0.02), self._send_note, fellow, note)

    def _send_note(self, fellow: str, note: bytes) -> None:
        for peer in list(self.node.participant.matched):
            if peer.node == fellow:
                self.system.network.send(self.node.participant, peer, BATCH, note)

    def deliver(
        self,
        reader: ReaderKey,
        groups: list[tuple[GroupDescription, SampleRows]],
        *,
        whole: bool,
        # applications here have no states of instances
        how: RevivingDelivery | ReplacingDelivery | None = None,
    ) -> None:
        """Deliver samples to the reader's process after a delay, if it can be reached then."""
        self.system.serving(self.node, reader, whole=whole)
        samples = tuple(sample for _, group in groups for sample in group)
        delay = LOOPBACK_S + len(samples) * 1e-5 + self.node.rng.expovariate(20.0)
        self.node.run_later(delay, self._give, reader, samples, whole)

    def _give(self, reader: ReaderKey, samples: tuple[Sample, ...], whole: bool) -> None:
        network, host = self.system.network, self.node.name
        process = self.system.readers.get(reader.process)
        if process is None or not process.participant.is_alive:
            result = Delivered(problem="its process is gone")
        elif not (network.reaches(host, process.host) and network.reaches(process.host, host)):
            result = Delivered(problem="its process does not answer")
        else:
            process.take(reader, samples, self.node)
            result = Delivered(samples=len(samples), elapsed_ns=1_000_000)
        runtime = self.node.runtime
        if runtime is not None and not self._is_closed:
            runtime.late_joiners.delivered(reader, result, whole=whole)

    @property
    def is_closed(self) -> bool:
        """Whether the run has ended."""
        return self._is_closed


class _Stream:
    """A stream under way."""

    def __init__(
        self,
        wire: SimulatedWire,
        name_space: str,
        fellows: tuple[str, ...],
        batches: Iterator[bytes],
        samples: int,
    ) -> None:
        self._wire = wire
        self._node = wire.node
        self._system = wire.system
        self._name_space = name_space
        self._fellows = fellows
        self._batches = batches
        self._samples = samples
        self._sent = 0
        self._patience_until = self._system.schedule.now + MATCH_TIMEOUT_S
        self._targets: list[SimulatedParticipant] = []

    def begin(self) -> None:
        """Wait, up to a limit, until the readers of all targets match: missing ones ask again."""
        if self._wire.is_closed:
            return
        now = self._system.schedule.now
        matched = {peer.node: peer for peer in self._node.participant.matched if peer.node}
        if any(fellow not in matched for fellow in self._fellows) and now < self._patience_until:
            self._system.schedule.after(0.1, self.begin)
            return
        self._targets = [matched[fellow] for fellow in self._fellows if fellow in matched]
        self._next()

    def _next(self) -> None:
        if self._wire.is_closed:
            return
        batch = next(self._batches, None)
        if batch is None:
            self._node.run_later(0.001, self._finished)
            return
        pause = len(batch) / self._system.options.network.bytes_per_s
        self._system.schedule.after(pause, self._send, batch)

    def _send(self, batch: bytes) -> None:
        if self._wire.is_closed:
            return
        for target in self._targets:
            self._system.network.send(self._node.participant, target, BATCH, batch)
        self._sent += len(batch)
        self._wire.bytes_sent += len(batch) * len(self._targets)
        self._next()

    def _finished(self) -> None:
        runtime = self._node.runtime
        if runtime is not None:
            runtime.transfers.sent(self._name_space, self._fellows, self._samples, self._sent)
