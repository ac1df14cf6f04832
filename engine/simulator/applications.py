"""The applications of a simulated cluster: writing processes, and late joiners that read."""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence
from typing import Final

from engine.core.messages import ReaderKey
from engine.core.name_spaces import Group
from engine.dataset.groups import GroupDescription, GroupQos, TypeDescription
from engine.dataset.sample import DATA, DISPOSE, UNREGISTER, Sample, captured_sample
from engine.simulator.network import SimulatedParticipant
from engine.simulator.options import TopicPlan
from engine.simulator.simulated_node import SAMPLE, TAP_LEAST_S, SimulatedNode, SimulatorHost

KEY_PREFIX: Final = b"\0\1\0\0key"
END_HOLD_S: Final = 1.0
"""Time from a writer's end to its carrying out: samples may be under way (`engine.node.intake`)."""
LARGE_SAMPLE: Final = 100
"""Size of a few samples, as a multiple of the others'."""


@functools.cache
def describe(plan: TopicPlan) -> GroupDescription:
    """Describe the group of a planned topic."""
    name = f"{plan.topic}Type"
    kind = TypeDescription(name, b"information of " + name.encode(), b"mapping", keyed=True)
    delay_ns = plan.cleanup_delay_s * 1_000_000_000 if plan.cleanup_delay_s >= 0 else -1
    qos = GroupQos(plan.durability, plan.depth, delay_ns, by_source_timestamp=True)
    return GroupDescription(Group(plan.partition, plan.topic, kind.type_id), kind, qos)


class Application:
    """An application's process on one of the hosts. The name is in the log, too."""

    def __init__(self, cluster: SimulatorHost, name: str, host: str) -> None:
        self.cluster = cluster
        self.name = name
        self.host = host
        self.participant = SimulatedParticipant(name, name, host, None, application=self)

    def begin(self) -> None:
        """Start the process."""
        self.cluster.network.join(self.participant)

    def end(self, *, in_order: bool) -> None:
        """End the process."""
        (self.cluster.network.leave if in_order else self.cluster.network.kill)(self.participant)

    def discovered_by(self, node: SimulatedNode) -> None:
        """Do what follows when a node discovers this process."""

    def lost_by(self, node: SimulatedNode) -> None:
        """Do what follows when a node loses this process."""


class Writer(Application):
    """A process with one writer for each of its topics; it writes on request.

    Its host may be a node's or a separate one. A node captures no samples from before its tap has matched.
    While the link to a node is cut, the writers keep the samples that the node has not acknowledged, with
    `depth` only the last `depth` of each instance; once the node has lost the process, they send it nothing
    more.

    Args:
        cluster: the system that it belongs to.
        name: name of the process.
        host: its host.
        rng: draws its random choices.
        depth: number of unacknowledged samples to keep for each instance; 0 keeps all.
        topics: the numbers of the planned topics for which it has a writer; all by default.
        autodispose: its writers' end disposes their instances.

    Attributes:
        autodispose: the same.
        guids: the GUIDs of its writers, with their groups.
        ended_ns: when it ended, by its own clock; 0 while it runs.
    """

    def __init__(
        self,
        cluster: SimulatorHost,
        name: str,
        host: str,
        rng: random.Random,
        depth: int = 0,
        topics: Sequence[int] = (),
        *,
        autodispose: bool = False,
    ) -> None:
        super().__init__(cluster, name, host)
        self.autodispose = autodispose
        self.ended_ns = 0
        self._depth = depth
        self.participant.overwrite = self._overwrite if depth else None
        self._rng = rng
        self._plan = cluster.options.workload
        self._count = 0
        prefix = rng.randbytes(12)
        self._topics = tuple(topics or range(len(self._plan.topics)))
        self._endpoints = {
            number: (prefix + (number + 1).to_bytes(4), describe(self._plan.topics[number]))
            for number in self._topics
        }
        self._lifespans_ns = {
            self._endpoints[number][0]: int(self._plan.topics[number].lifespan_s * 1e9)
            for number in self._topics
        }
        self._taps: dict[SimulatedNode, tuple[int, float]] = {}
        self.guids = {guid: description.group for guid, description in self._endpoints.values()}

    def end(self, *, in_order: bool) -> None:
        """End the process. In order, each writer says that it is deleted."""
        self.ended_ns = self.cluster.clocks[self.host].wall_ns()
        super().end(in_order=in_order)

    def write(self, topic: int, status: int, number: int, size: int = 0) -> Sample:
        """Write, dispose or unregister the instance `number`, up to 65,535, of the planned topic `topic`.

        The payload of a write is `size` bytes longer than the least.
        """
        guid, description = self._endpoints[topic]
        self._count += 1
        if status == UNREGISTER and self.autodispose:
            status |= DISPOSE
        key = payload = KEY_PREFIX + number.to_bytes(1 if number < 256 else 2)
        if status == DATA:
            payload = b"\0\1\0\0" + guid[8:] + self._count.to_bytes(4) + bytes(size)
        wall_ns = self.cluster.clocks[self.host].wall_ns()
        record = captured_sample(wall_ns, guid, status, key, payload)
        self.cluster.written(description, record)
        self._send(description, record)
        return record

    def discovered_by(self, node: SimulatedNode) -> None:
        """Tell the node of the writers; its taps match them soon."""
        runtime = node.live
        for guid, description in self._endpoints.values():
            node.routes[guid] = (description.group,)
            runtime.group_seen(description)
            if lifespan_ns := self._lifespans_ns[guid]:
                runtime.shared.learn_lifespan((description.group,), guid, lifespan_ns)
            runtime.writer_seen(guid, (description.group,), autodispose=self.autodispose)
        delay = self._rng.uniform(TAP_LEAST_S, self.cluster.options.tap_delay_s)
        self._taps[node] = (node.run, self.cluster.schedule.now + delay)

    def lost_by(self, node: SimulatedNode) -> None:
        """Tell the node that the writers are gone; their routes stay for queued samples."""
        self._taps.pop(node, None)
        for guid, _ in self._endpoints.values():
            node.live.writer_gone(guid)
            if self.autodispose and node.participant in self.participant.heard_leaving:
                node.run_later(END_HOLD_S, self._said, node, guid)

    def _said(self, node: SimulatedNode, guid: bytes) -> None:
        node.live.writer_ends.end_writer(guid, self.ended_ns)

    def matched(self, topic: int) -> list[SimulatedNode]:
        """Return the nodes whose taps have matched the writer of a planned topic."""
        _, description = self._endpoints[topic]
        return self._matched(description)

    def _matched(self, description: GroupDescription) -> list[SimulatedNode]:
        now = self.cluster.schedule.now
        key = (description.group.topic, description.group.type_id)
        return [
            node
            for node, (run, matched_at) in self._taps.items()
            if node.run == run
            and node.is_up
            and now >= max(matched_at, node.wire.taps.get(key, now + 1))
            and node.participant in self.participant.matched
        ]

    def _send(self, description: GroupDescription, record: Sample) -> None:
        for node in self._matched(description):
            self.cluster.network.send(self.participant, node.participant, SAMPLE, record)

    def _overwrite(self, held: list[tuple[str, object]]) -> None:
        """Drop the oldest sample of the newest one's instance, if a cut link holds more than `depth`."""
        _, newest = held[-1]
        assert isinstance(newest, Sample)
        same = [
            number
            for number, (_, item) in enumerate(held)
            if isinstance(item, Sample) and (item.writer, item.key) == (newest.writer, newest.key)
        ]
        if len(same) > self._depth:
            del held[same[0]]


class RandomWriter(Writer):
    """A writer that writes at random until `finish`."""

    _is_writing = False

    def begin(self) -> None:
        """Start the process, which writes first a little later."""
        super().begin()
        self._is_writing = True
        self._write_later()

    def finish(self) -> None:
        """Stop writing, but stay."""
        self._is_writing = False

    def end(self, *, in_order: bool) -> None:
        """End the process."""
        self._is_writing = False
        super().end(in_order=in_order)

    def _write_later(self) -> None:
        pause = self._rng.expovariate(1.0) * self._plan.write_pause_s
        self.cluster.schedule.after(pause, self._write)

    def _write(self) -> None:
        if not self._is_writing:
            return
        rng = self._rng
        topic = rng.choice(self._topics)
        draw = rng.random()
        status = DATA if draw < 0.75 else DISPOSE if draw < 0.93 else UNREGISTER
        number = rng.randrange(self._plan.keys)
        size = 0
        if status == DATA:
            size = self._plan.payload_bytes * (LARGE_SAMPLE if rng.random() < 0.01 else 1)
        self.write(topic, status, number, size)
        self._write_later()


class Reader(Application):
    """A process with one durable reader, a late joiner.

    Its name and host are those of the process, `participant_id` is that of its participant.

    Attributes:
        seen_by: the nodes that see it, with their runs.
        served: the deliveries in order: reader key, node and samples.
    """

    def __init__(
        self,
        cluster: SimulatorHost,
        name: str,
        host: str,
        topic: str,
        partitions: tuple[str, ...],
        participant_id: str,
    ) -> None:
        super().__init__(cluster, name, host)
        self.topic = topic
        self.partitions = partitions
        self.participant_id = participant_id
        self.seen_by: dict[SimulatedNode, int] = {}
        self.served: list[tuple[ReaderKey, SimulatedNode, tuple[Sample, ...]]] = []

    def discovered_by(self, node: SimulatedNode) -> None:
        """Tell the node of the reader."""
        runtime = node.live
        self.seen_by[node] = node.run
        for key in runtime.late_joiners.reader_keys(self.participant_id, self.topic, self.partitions):
            runtime.late_joiners.seen(key, frozenset((self.host,)))

    def lost_by(self, node: SimulatedNode) -> None:
        """Tell the node that the reader is gone."""
        runtime = node.live
        self.seen_by.pop(node, None)
        for key in runtime.late_joiners.reader_keys(self.participant_id, self.topic, self.partitions):
            runtime.late_joiners.gone(key)

    def deliver(self, key: ReaderKey, samples: tuple[Sample, ...], node: SimulatedNode) -> None:
        """Note a delivery of a node."""
        self.served.append((key, node, samples))
