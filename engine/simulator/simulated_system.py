"""A whole system in one thread under virtual time: nodes, applications and network, and who watches them.

Applications are writing processes, and late joiners that read. Nodes and applications know the system as
their `SimulatorHost`. It tells what happens to its watchers, in their order: the checkers, the faults that
follow delicate steps, and a console that shows the run.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Sequence
from typing import ClassVar, Final, NamedTuple

from engine import native
from engine.core.messages import Epoch, Purge, ReaderKey
from engine.core.name_spaces import Group
from engine.core.states import Phase, ServiceState
from engine.dataset.groups import GroupDescription, GroupQos, TypeDescription
from engine.dataset.sample import DATA, DISPOSE, UNREGISTER, Sample, captured_sample
from engine.runtime.name_space_data import Difference
from engine.runtime.startup import StoredContent
from engine.simulator.network import Network, SimulatedParticipant
from engine.simulator.options import Fault, SimulationOptions, TopicPlan
from engine.simulator.run_record import ShortLog, Statistics, Violation
from engine.simulator.schedule import Schedule, SimulatedClock
from engine.simulator.simulated_node import (
    SAMPLE,
    TAP_LEAST_S,
    Committed,
    SharedCodec,
    SimulatedNode,
    SimulatorHost,
    SystemEvents,
)
from engine.simulator.write_ledger import WriteLedger
from engine.store.interface import StoreError
from engine.store.memory import Medium
from engine.tracing.record import EventRecord
from engine.tracing.tracer import Output

KEY_PREFIX: Final = b"\0\1\0\0key"
END_HOLD_S: Final = 1.0
"""Time from a writer's end to its carrying out: samples may be under way (`engine.node.intake`)."""
# Some kilobytes: above the sizes from which samples take other ways (`engine.runtime.capture.WAITS_FROM`).
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


APPROVED: Final = "compatibility.approved"
HEEDED: Final = (APPROVED, "align.reconciling", "align.extending", "align.part-compared")
"""Trace events of a node that begins to talk to a fellow, or requests samples that its set may lack."""
MAX_DRIFT: Final = 200e-6
"""Clocks of computers drift by up to 200 microseconds a second."""


class Standing(NamedTuple):
    """The state of a node in one name-space.

    `is_aligned`: its set came from a fellow, and was not injected by this node.
    """

    phase: Phase
    holder: bool
    following: Epoch | None
    lineage: Epoch
    requests: tuple[int, ...]
    is_aligned: bool


class Watcher(SystemEvents):
    """Gets everything that happens in a system, and ignores it."""

    def __init__(self, cluster: SimulatedSystem) -> None:
        self.cluster = cluster

    def met(self, node: SimulatedNode, fellow: SimulatedNode) -> None:
        """Take in that a node begins to talk to a fellow."""

    def differed(self, node: SimulatedNode, name_space: str) -> None:
        """Take in that a node found an unexplained difference between its set and its aligner's."""

    def stepped(self, node: SimulatedNode, name_space: str, before: Standing | None, now: Standing) -> None:
        """Take in a node's change of state since its last turn; `before` is None in a run's first turn."""

    def committed(self, node: SimulatedNode, transaction: Committed) -> None:
        """Take in a transaction that reached a node's disk."""

    def rotted(self, node: SimulatedNode, name_space: str, digest: bytes) -> None:
        """Take in a flipped bit of a sample on a node's disk."""

    def looked(self) -> None:
        """Check everything, at regular times."""

    def settled(self) -> None:
        """Check everything once all has healed and the system has been quiet for a while."""


class Checker(Watcher):
    """The base of checkers: they watch a run, independent of how nodes work, and report violations.

    Attributes:
        invariant: code of the rule.
        meaning: the rule in words.
    """

    invariant: ClassVar[str]
    meaning: ClassVar[str]

    def fail(self, text: str) -> None:
        """End the run.

        Raises:
            Violation: always.
        """
        raise Violation(self.invariant, text)


class SimulatedSystem(SimulatorHost):
    """The nodes and applications of one run, and what is known of it.

    Everything random comes from generators that are seeded with the options' seed.

    Args:
        options: what happens.
        show: called with each line of the short log.
        outputs: makes the trace outputs of a node's run; none by default.

    Attributes:
        readers: living reader processes by participant.
        all_readers: those, and the ones that have ended.
        by_guid: writing processes, also those that have ended, by the GUIDs of their writers.
    """

    def __init__(
        self,
        options: SimulationOptions,
        show: Callable[[str], None] | None = None,
        outputs: Callable[[SimulatedNode], Sequence[Output]] | None = None,
    ) -> None:
        native.library()  # a run would take its absence for a fault of a node
        self.options = options
        self.schedule = Schedule()
        self.codec = SharedCodec()
        self.statistics = Statistics()
        hosts = frozenset(plan.name for plan in options.nodes)
        self.network = Network(self.schedule, options.network, self.rng("network"), hosts)
        self.nodes: list[SimulatedNode] = []
        self.clocks: dict[str, SimulatedClock] = {}
        self.writers: list[RandomWriter] = []
        self.by_guid: dict[bytes, Writer] = {}
        self.readers: dict[str, Reader] = {}
        self.whole_sets = 0
        self.all_readers: list[Reader] = []
        self.log = ShortLog(self.schedule, self.nodes, show)
        self._outputs = outputs
        self.ledger = WriteLedger()
        self._standings: dict[tuple[SimulatedNode, str], Standing] = {}
        self._started_writers = 0
        self._make_nodes()
        self._by_name = {node.name: node for node in self.nodes}
        self.watchers: list[Watcher] = []

    def rng(self, purpose: str) -> random.Random:
        """Make a separate generator for each purpose, so that one does not change another."""
        return random.Random(f"{self.options.seed} {purpose}")

    def outputs_for(self, node: SimulatedNode) -> Sequence[Output]:
        """Return the outputs for the trace of a run."""
        return self._outputs(node) if self._outputs else ()

    def _make_nodes(self) -> None:
        rng, options = self.rng("nodes"), self.options
        skew_s = options.skew_s if Fault.SKEW in options.faults else 0.0
        for plan in options.nodes:
            clock = SimulatedClock(
                self.schedule,
                origin_s=rng.uniform(0, 1e6),
                rate=1 + rng.uniform(-MAX_DRIFT, MAX_DRIFT),
                offset_ns=int(rng.uniform(-skew_s, skew_s) * 1e9),
            )
            medium = Medium(f"{rng.getrandbits(128):032x}")
            node_rng = self.rng(f"node {plan.name}")
            self.clocks[plan.name] = clock
            self.nodes.append(SimulatedNode(self, plan, medium, clock, node_rng))

    # Applications.

    def start_writer(self) -> None:
        """Start another process that writes at random."""
        rng = self._next_writer()
        name, host = f"app{self._started_writers}", rng.choice(self.nodes).name
        depth, topics = self.options.workload.history, self._topics_of(name)
        fate, plan = self.rng(f"end of {name}"), self.options.workload
        autodispose = fate.random() < plan.autodispose
        place = self._place(name, host)
        writer = RandomWriter(self, name, place, rng, depth, topics, autodispose=autodispose)
        self.writers.append(writer)
        self.by_guid.update(dict.fromkeys(writer.guids, writer))
        writer.begin()
        mortal, in_order = fate.random() < plan.mortal, fate.random() < 0.5
        end_s = fate.uniform(0.0, self.options.fault_s)
        if mortal and end_s > self.schedule.now:
            self.schedule.at(end_s, self._end_writer, writer, in_order)

    def _end_writer(self, writer: RandomWriter, in_order: bool) -> None:
        """End a process for good, in order or not, at its time."""
        if writer.participant.is_alive:
            writer.end(in_order=in_order)
            self.log.line(writer.name, "v", "ends in order" if in_order else "dies")

    def _place(self, name: str, host: str) -> str:
        """Choose the host of a writer: a node's, or a separate one that may not reach some nodes."""
        plan = self.options.workload
        rng = self.rng(f"place {name}")
        if rng.random() >= plan.remote:
            return host
        own = f"host of {name}"
        self.clocks[own] = SimulatedClock(self.schedule, offset_ns=self.clocks[host].offset_ns)
        for node in self.nodes:
            if node.name != host and rng.random() < plan.walled:
                self.network.wall(own, node.name)
        return own

    def _topics_of(self, name: str) -> Sequence[int]:
        """Choose the topic of a narrow writer."""
        rng, plan = self.rng(f"topics of {name}"), self.options.workload
        return (rng.randrange(len(plan.topics)),) if rng.random() < plan.narrow else ()

    def open_writer(
        self, host: str, depth: int = 0, topics: Sequence[int] = (), *, autodispose: bool = False
    ) -> Writer:
        """Start another process on a host, which need not be a node's; it writes on request.

        `depth`, `topics` and `autodispose` are as for `Writer`.
        """
        rng = self._next_writer()
        self.clocks.setdefault(host, SimulatedClock(self.schedule))
        writer = Writer(
            self, f"app{self._started_writers}", host, rng, depth, topics, autodispose=autodispose
        )
        self.by_guid.update(dict.fromkeys(writer.guids, writer))
        writer.begin()
        return writer

    def _next_writer(self) -> random.Random:
        rng = self.rng(f"writer {self._started_writers}")
        self._started_writers += 1
        return rng

    def _start_reader(self) -> None:
        rng = self._next_reader()
        topic = rng.choice(self.options.workload.topics)
        partitions = (topic.partition,) if rng.random() < 0.5 else ("*",)
        participant = rng.randbytes(16).hex()
        self._begin_reader(rng.choice(self.nodes).name, topic.topic, partitions, participant)

    def open_reader(self, host: str, topic: str, *partitions: str) -> Reader:
        """Start a process with a durable reader on a host. Its partitions may be expressions."""
        return self._begin_reader(host, topic, partitions, self._next_reader().randbytes(16).hex())

    def _next_reader(self) -> random.Random:
        return self.rng(f"reader {len(self.all_readers) + 1}")

    def _begin_reader(self, host: str, topic: str, partitions: tuple[str, ...], participant: str) -> Reader:
        number = len(self.all_readers) + 1
        reader = Reader(self, f"reader{number}", host, topic, partitions, participant)
        self.readers[participant] = reader
        self.all_readers.append(reader)
        reader.begin()
        return reader

    # Events of nodes.

    def not_opened(self, node: SimulatedNode, error: StoreError) -> None:
        """Take in that a node could not open its store; it tries again."""
        self.log.line(node.name, "!", f"cannot start: {error}")

    def opened(self, node: SimulatedNode, found: StoredContent) -> None:
        """Take in that a node opened its store."""
        self.statistics.starts += 1
        count = sum(data.summary().count for data, _ in found.sets.values())
        damage = f", damaged: {', '.join(found.damage)}" if found.damage else ""
        self.log.line(node.name, "^", f"start {node.incarnation}, {count} samples stored{damage}")
        node.tracer.subscribe(lambda record: self._traced(node, record), lambda kind: kind.id in HEEDED)
        for watcher in self.watchers:
            watcher.opened(node, found)

    def destroyed(self, node: SimulatedNode) -> None:
        """Take in the loss of a node's disk."""
        self.ledger.forget_meetings(node.id)
        for watcher in self.watchers:
            watcher.destroyed(node)

    def rotted(self, node: SimulatedNode, name_space: str, digest: bytes) -> None:
        """Take in a flipped bit of a sample on a node's disk."""
        for watcher in self.watchers:
            watcher.rotted(node, name_space, digest)

    def ended(self, node: SimulatedNode) -> None:
        """Take in the end of a node's run."""
        for key in [key for key in self._standings if key[0] is node]:
            del self._standings[key]
        for watcher in self.watchers:
            watcher.ended(node)

    def _traced(self, node: SimulatedNode, record: EventRecord) -> None:
        if record.event.id == APPROVED:
            fellow = self._by_name[str(record.fields["fellow"])]
            self.ledger.met(node.id, fellow.id, self.schedule.now)
            for watcher in self.watchers:
                watcher.met(node, fellow)
        else:
            for watcher in self.watchers:
                watcher.differed(node, str(record.fields["group"]))

    def turned(self, node: SimulatedNode) -> None:
        """Take in a turn of a node: report its changes of state."""
        for name, data in node.live.spaces.items():
            state = data.state
            requests = tuple(state.outstanding)
            is_aligned = state.given_by not in ("", node.id)
            now = Standing(state.phase, state.holder, state.following, state.lineage, requests, is_aligned)
            before = self._standings.get((node, name))
            if now != before:
                self._standings[node, name] = now
                self._stepped(node, name, before, now)

    def _stepped(self, node: SimulatedNode, name: str, before: Standing | None, now: Standing) -> None:
        where = f"{name}: " if len(self._standings) > len(self.nodes) else ""
        if before is None or before.phase is not now.phase:
            self.log.line(node.name, ">", f"{where}{now.phase}")
        if before is None or before.following != now.following:
            self.statistics.masters += now.following is not None
            master = f"follows {node.live.core.name_of(now.following.node)}" if now.following else "no master"
            epoch = f", epoch {now.following}" if now.following else ""
            self.log.line(node.name, "*", f"{where}{master}{epoch}")
        if before is not None and before.lineage != now.lineage:
            self.log.line(node.name, "=", f"{where}lineage {now.lineage}")
        for watcher in self.watchers:
            watcher.stepped(node, name, before, now)

    def captured(self, node: SimulatedNode, records: Sequence[Sample]) -> None:
        """Take in samples that a node captured."""
        for record in records:
            for group in node.routes[record.writer]:
                state = node.live.core.name_space_of(group)
                if state is not None:
                    self.ledger.captured(state.name, group, record, self.schedule.now)
        for watcher in self.watchers:
            watcher.captured(node, records)

    def written(self, description: GroupDescription, record: Sample) -> None:
        """Take in a sample that an application wrote."""
        self.statistics.written += 1
        self.statistics.written_bytes += len(record.payload)
        self.ledger.wrote(description.group, record, self.schedule.now)
        for watcher in self.watchers:
            watcher.written(description, record)

    def made(self, node: SimulatedNode, difference: Difference) -> None:
        """Take in samples that a node made of the end or the return of a writer.

        They are told to clients among those that merges bring, which are known.
        """
        for group, samples in difference.items():
            state = node.runtime.core.name_space_of(group) if node.runtime else None
            for sample in samples:
                if state is not None and self.ledger.entry(group, sample) is None:
                    time_ns, guid, _, _, status, key, payload = sample
                    record = captured_sample(time_ns, guid, status, key, payload)
                    self.ledger.wrote(group, record, self.schedule.now)
                    self.ledger.captured(state.name, group, record, self.schedule.now)

    def written_s(self, group: Group, sample: Sample) -> float:
        """Return the true time at which a sample was written, independent of its timestamp."""
        entry = self.ledger.entry(group, sample)
        return entry.written_s if entry else 0.0

    def worked(self, node: SimulatedNode) -> None:
        """Take in transactions that may have reached a node's disk."""
        transactions, node.disk.store.committed = node.disk.store.committed, []
        for transaction in transactions:
            self.statistics.transactions += 1
            for watcher in self.watchers:
                watcher.committed(node, transaction)

    def purged(self, purge: Purge) -> None:
        """Take in that a master tells its fellows to forget instances."""
        self.ledger.purged(purge.group, [one.key for one in purge.instances], self.schedule.now)

    def streaming(self, node: SimulatedNode, name_space: str, fellows: tuple[str, ...], samples: int) -> None:
        """Take in that a node begins to send a set to fellows."""
        data = node.live.spaces[name_space].working
        size = sum(group.payload_bytes for group in data.groups.values())
        self.statistics.streams += len(fellows)
        self.whole_sets += sum(not self._has_part(fellow, name_space) for fellow in fellows)
        self.statistics.stream_bytes += size * len(fellows)
        names = ", ".join(self.name_of(fellow) for fellow in fellows)
        self.log.line(node.name, "+", f"sends {samples} samples of {name_space} to {names}")
        for watcher in self.watchers:
            watcher.streaming(node, name_space, fellows, samples)

    def _has_part(self, fellow: str, name_space: str) -> bool:
        """Tell whether a node is Lazy; such a node checks its part after each purge."""
        datas = [node.space(name_space) for node in self.nodes if node.id == fellow]
        return any(data is not None and data.state.is_lazy for data in datas)

    def serving(self, node: SimulatedNode, reader: ReaderKey, *, whole: bool) -> None:
        """Take in that a node begins to serve a late joiner. It gets the whole set, or a difference."""
        self.statistics.deliveries += 1
        for watcher in self.watchers:
            watcher.serving(node, reader, whole=whole)

    def hand_over(self, node: SimulatedNode, reader: ReaderKey, samples: tuple[Sample, ...]) -> str:
        """Give samples to the process of a late joiner; return why that failed, empty if it did not."""
        process = self.readers.get(reader.process)
        if process is None or not process.participant.is_alive:
            return "its process is gone"
        if not (
            self.network.reaches(node.name, process.host) and self.network.reaches(process.host, node.name)
        ):
            return "its process does not answer"
        process.deliver(reader, samples, node)
        return ""

    def name_of(self, node_id: str) -> str:
        """Return the name of a node."""
        return next((node.name for node in self.nodes if node.id == node_id), node_id[:8])

    def up(self) -> list[SimulatedNode]:
        """Return the nodes that are up."""
        return [node for node in self.nodes if node.is_up]

    def is_operational(self) -> bool:
        """Tell whether all nodes are up and complete."""
        return all(
            node.runtime is not None and node.runtime.state is ServiceState.COMPLETE for node in self.nodes
        )
