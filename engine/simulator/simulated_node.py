"""One simulated node: the live node's runtime on simulated clock, wire and disk.

Its disk is a medium that survives, and a store on it that may die at any moment. What happens it tells its
`SimulatorHost`, as applications do.
"""

from __future__ import annotations

import abc
import collections
import contextlib
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from engine.core.expressions import matches
from engine.core.messages import Outgoing, Purge, ReaderKey
from engine.core.name_spaces import Group
from engine.dataset.group_set import Summary
from engine.dataset.groups import GroupDescription
from engine.dataset.sample import Sample
from engine.dataset.sample_rows import SampleRows
from engine.runtime import codec
from engine.runtime.codec import STATE_TOPICS, Envelope
from engine.runtime.name_space_data import Difference, NameSpaceData
from engine.runtime.ports import AliveInstances, Delivered, ReplacingDelivery, RevivingDelivery, Wire
from engine.runtime.runtime import Runtime
from engine.runtime.startup import StoredContent, read_store
from engine.runtime.store_queue import StoreQueue
from engine.simulator.network import CROWD, GATHER_S, LOOPBACK_S, Network, SimulatedParticipant
from engine.simulator.options import NodePlan, SimulationOptions
from engine.simulator.schedule import Schedule, SimulatedClock
from engine.store.interface import (
    NO_MARKS,
    GroupChange,
    Marks,
    NetChanges,
    OpenReport,
    SetInfo,
    SetState,
    SetWriter,
    StoreError,
)
from engine.store.memory import Medium, MemoryStore, PowerCut
from engine.tracing.levels import Level
from engine.tracing.tracer import Output, Tracer

RETRY_S: Final = 1.0
"""As `engine.node.disk` waits before it tries a refusing disk again."""
# Below `heal_within_s`, so that a run can end.
LONGEST_S: Final = 30.0
"""Limit for a transaction on the slowest disk, also if it began before everything healed."""


class Committed(msgspec.Struct, frozen=True):
    """A transaction that is on the disk: changes to a set, or (with `whole`) another set in its place."""

    name_space: str
    added: tuple[tuple[Group, Sample], ...]
    evicted: tuple[tuple[Group, Sample], ...] = ()
    whole: bool = False


class WatchedStore(MemoryStore):
    """A store that reports its transactions.

    Attributes:
        committed: transactions since somebody looked last.
    """

    def __init__(self, medium: Medium) -> None:
        self.committed: list[Committed] = []
        super().__init__(medium)

    def commit_complete(
        self,
        writer: SetWriter,
        mark: str = "",
        *,
        keep_previous: str | None = None,
        marks: Marks = NO_MARKS,
    ) -> SetInfo:
        """As in the store below."""
        info = super().commit_complete(writer, mark, keep_previous=keep_previous, marks=marks)
        groups = self._medium.versions[info.version].groups.items()
        samples = tuple((key, row) for key, group in groups for row in group.rows.values())
        self.committed.append(Committed(writer.name_space, samples, whole=True))
        return info

    def append(
        self, name_space: str, changes: NetChanges | Sequence[GroupChange], marks: Marks = NO_MARKS
    ) -> dict[Group, Summary]:
        """As in the store below."""
        net = changes if isinstance(changes, NetChanges) else NetChanges(changes)
        watermarks = super().append(name_space, net, marks)
        nets = net.groups.items()
        added = tuple((group, sample) for group, each in nets for sample in each.added.values())
        gone = ((group, {**each.evicted, **each.passing}) for group, each in nets)
        evicted = tuple((group, sample) for group, each in gone for sample in each.values())
        self.committed.append(Committed(name_space, added, evicted))
        return watermarks


class SimulatedDisk:
    """Carries out what a runtime puts into its store queue, one transaction after the other.

    A transaction takes `delay_s` seconds on average, times the slowness; `on_result` is called after each.

    Attributes:
        slowness: factor on the time of a transaction, for slow disks.
    """

    def __init__(
        self,
        schedule: Schedule,
        medium: Medium,
        rng: random.Random,
        delay_s: float,
        on_result: Callable[[], None],
    ) -> None:
        self._medium = medium
        self.store = WatchedStore(medium)
        self.store_queue = StoreQueue(self.store)
        self.slowness = 1.0
        self._schedule = schedule
        self._rng = rng
        self._delay_s = delay_s
        self._on_result = on_result
        self._is_working = False
        self._is_dead = False

    @property
    def report(self) -> OpenReport:
        """Result of opening the store."""
        return self.store.report

    def wake(self) -> None:
        """Start to work if there are changes."""
        if not self._is_working and not self._is_dead and not self.store_queue.is_idle:
            self._is_working = True
            pause = RETRY_S if self.store_queue.problem else self._pause()
            self._schedule.after(pause, self._work)

    def _pause(self) -> float:
        return min(self._rng.expovariate(1.0) * self._delay_s * self.slowness, LONGEST_S)

    def _work(self) -> None:
        if self._is_dead:
            return
        self._is_working = False
        refused = bool(self.store_queue.problem)
        if self.store_queue.work() or not refused:
            self._on_result()
        self.wake()

    def flush(self) -> None:
        """Write the queued changes, as an orderly end does, and close; refused changes are lost."""
        while self.store_queue.work():
            pass
        self._is_dead = True
        self.store.close()

    def die(self, *, torn: bool) -> None:
        """Kill the process; with `torn` in the middle of a waiting transaction, if there is one."""
        if torn and not self._is_dead:
            self._medium.writes_left = self._rng.randrange(4)
            # The power cut is what was wanted.
            with contextlib.suppress(PowerCut):
                while self.store_queue.work():
                    pass
            self._medium.writes_left = None  # the next run has power
        self._is_dead = True


PROBE_EVERY: Final = 64
"""Seldom enough to cost nothing, and a run has thousands of messages."""
MAX_REMEMBERED: Final = 100_000
"""Limit for messages under way; a simulated cluster never reaches it."""


class SharedCodec:
    """Replaces `engine.runtime.codec`: the bytes on the wire are the number of a remembered message.

    Writing and reading JSON would take most of a simulation's time. So that the real codec is still part of
    it, one message of N goes through it and must come back the same.
    """

    def __init__(self) -> None:
        self._count = 0
        self._envelopes: collections.OrderedDict[bytes, Envelope] = collections.OrderedDict()

    def encode(self, outgoing: Outgoing) -> bytes:
        """Remember a message; return its number."""
        self._count += 1
        envelope = Envelope(outgoing.message, outgoing.to)
        if self._count % PROBE_EVERY == 0:
            assert codec.decode(codec.encode(outgoing)) == envelope, "the codec changes a message"
        number = self._count.to_bytes(8)
        self._envelopes[number] = envelope
        if len(self._envelopes) > MAX_REMEMBERED:
            self._envelopes.popitem(last=False)
        return number

    def decode(self, data: bytes) -> Envelope:
        """Return the message with that number.

        Raises:
            PeerFault: not a number that was given.
        """
        envelope = self._envelopes.get(data)
        if envelope is None:
            raise codec.PeerFault("not a message of this simulation")
        return envelope


RESTART_S: Final = 1.0
"""Pause before the next attempt to open a store."""
# Shorter than a live node's (`engine.node.intake.GATHER_S`): more orders of captures and messages occur.
CAPTURE_S: Final = 0.003
"""Period in which a node drains its taps."""
SAMPLE: Final = "sample"
TAP_LEAST_S: Final = 0.001
"""Shortest time from opening a tap, or discovering a writer, to the first sample."""
BATCH: Final = "batch"
"""The topic of streams."""


class SystemEvents:
    """Gets what happens in a simulated system, and ignores it unless a subclass overrides a method."""

    def opened(self, node: SimulatedNode, found: StoredContent) -> None:
        """Take in that a node opened and verified its store; its run begins."""

    def ended(self, node: SimulatedNode) -> None:
        """Take in the end of a node's run, orderly or not."""

    def destroyed(self, node: SimulatedNode) -> None:
        """Take in the loss of the disk of a node that is down."""

    def captured(self, node: SimulatedNode, records: Sequence[Sample]) -> None:
        """Take in samples that a node captured."""

    def written(self, description: GroupDescription, record: Sample) -> None:
        """Take in a sample that an application wrote."""

    def streaming(self, node: SimulatedNode, name_space: str, fellows: tuple[str, ...], samples: int) -> None:
        """Take in that a node begins to send a set to fellows."""

    def serving(self, node: SimulatedNode, reader: ReaderKey, *, whole: bool) -> None:
        """Take in that a node begins to serve a late joiner. It gets the whole set, or a difference."""


class SimulatorHost(SystemEvents, abc.ABC):
    """What nodes and applications need of the system around them, and tell it."""

    options: SimulationOptions
    schedule: Schedule
    network: Network
    codec: SharedCodec
    clocks: dict[str, SimulatedClock]

    @abc.abstractmethod
    def outputs_for(self, node: SimulatedNode) -> Sequence[Output]:
        """Return the outputs for the trace of a run."""

    @abc.abstractmethod
    def not_opened(self, node: SimulatedNode, error: StoreError) -> None:
        """Take in that a node could not open its store; it tries again."""

    @abc.abstractmethod
    def turned(self, node: SimulatedNode) -> None:
        """Take in a turn of a node: report its changes of state."""

    @abc.abstractmethod
    def worked(self, node: SimulatedNode) -> None:
        """Take in transactions that may have reached a node's disk."""

    @abc.abstractmethod
    def made(self, node: SimulatedNode, difference: Difference) -> None:
        """Take in samples that a node made of the end or the return of a writer."""

    @abc.abstractmethod
    def purged(self, purge: Purge) -> None:
        """Take in that a master tells its fellows to forget instances."""

    @abc.abstractmethod
    def hand_over(self, node: SimulatedNode, reader: ReaderKey, samples: tuple[Sample, ...]) -> str:
        """Give samples to the process of a late joiner; return why that failed, empty if it did not."""


MATCH_TIMEOUT_S: Final = 5.0
"""Limit for matching the readers of a stream's targets; the same as on Cyclone DDS."""


class SimulatedWire(Wire):
    """The output of one run of a node.

    Attributes:
        taps: when samples of each (topic, type) can be seen first.
        bytes_sent: of all streams, counted once for each target.
        messages: protocol messages, each counted once, as by multicast.
        published: monitor messages.
        is_closed: the run has ended.
    """

    def __init__(self, node: SimulatedNode) -> None:
        self.node = node
        self.system = node.cluster
        self._codec = node.cluster.codec  # that of this run: a later one may speak another version
        self.alive = AliveInstances()
        self.is_closed = False
        self.taps: dict[tuple[str, str], float] = {}
        self.bytes_sent = self.messages = 0
        self.published = 0

    def close(self) -> None:
        """End the run's streams."""
        self.is_closed = True

    def send(self, topic: str, payload: bytes) -> None:
        """Send a protocol message to all fellows."""
        self.messages += 1
        network, is_state = self.system.network, topic in STATE_TOPICS
        envelope = self._codec.decode(payload)
        if isinstance(envelope.message, Purge):
            self.system.purged(envelope.message)
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
        problem = self.system.hand_over(self.node, reader, samples)
        result = (
            Delivered(problem=problem) if problem else Delivered(samples=len(samples), elapsed_ns=1_000_000)
        )
        runtime = self.node.runtime
        if runtime is not None and not self.is_closed:
            runtime.late_joiners.delivered(reader, result, whole=whole)


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


class SimulatedNode:
    """A node through all its runs, which its disk survives.

    Attributes:
        runtime: the present run's; None while the node is down.
        incarnation: of the present or last run.
        run: counts the runs, also of a node without a disk.
        is_stalled: the main thread stands still, the process does not.
        is_catching_up: the turn is for many inputs that had waited; several steps may look like one.
        is_comparing: a step of a comparison takes its time.
        cost_s: time that each input takes.
        pause_s: time for which inputs wait for each other; then they share a turn.
        routes: the groups of each writer that was discovered in this run.
    """

    def __init__(
        self,
        cluster: SimulatorHost,
        plan: NodePlan,
        medium: Medium,
        clock: SimulatedClock,
        rng: random.Random,
    ) -> None:
        self.cluster = cluster
        self.plan = plan
        self.name = plan.name
        self.medium = medium
        self.clock = clock
        self.rng = rng
        self.id = medium.node_id
        self.runtime: Runtime | None = None
        self.disk: SimulatedDisk
        self.tracer: Tracer
        self.wire: SimulatedWire
        self.participant: SimulatedParticipant
        self.incarnation = 0
        self.run = 0
        self.is_stalled = False
        self.is_comparing = False
        self.is_catching_up = False
        self.cost_s = 0.0
        self.routes: dict[bytes, tuple[Group, ...]] = {}
        self._inputs: collections.deque[tuple[Callable[..., None], tuple[object, ...]]] = collections.deque()
        self._captured: list[Sample] = []
        self._is_busy = False
        self._needs_turn = True
        self._timer_at = 0.0
        self.pause_s = GATHER_S if len(cluster.options.nodes) > CROWD else 0.0

    @property
    def is_up(self) -> bool:
        """Whether the node is running."""
        return self.runtime is not None

    @property
    def live(self) -> Runtime:
        """The present run's runtime; only while the node is up."""
        assert self.runtime is not None, f"{self.name} is down"
        return self.runtime

    def space(self, name: str) -> NameSpaceData | None:
        """Return the data of a name-space; None if the node is down or does not know it."""
        return self.runtime.spaces.get(name) if self.runtime else None

    # Life.

    def start(self) -> None:
        """Open the store, with repeated attempts, and begin a run."""
        if self.is_up:
            return
        schedule, options = self.cluster.schedule, self.cluster.options
        try:
            disk = SimulatedDisk(schedule, self.medium, self.rng, options.disk_delay_s, self._disk_result)
            found = read_store(disk.store, self.clock.wall_ns())
        except StoreError as error:
            self.cluster.not_opened(self, error)
            schedule.after(RESTART_S, self.start)
            return
        self.disk = disk
        self._begin(found)

    def _begin(self, found: StoredContent) -> None:
        report = found.report
        self.incarnation = report.incarnation
        self.run += 1
        self.is_stalled = self.is_comparing = self._is_busy = False
        self.cost_s = 0.0
        options = self.cluster.options
        self.routes = {}
        self._inputs.clear()
        self._captured.clear()
        self._timer_at = float("inf")
        self.participant = SimulatedParticipant(f"{self.id} {self.run}", self.name, self.name, self, self.id)
        self.wire = SimulatedWire(self)
        fellows = frozenset(fellow.id for known in report.fellows.values() for fellow in known)
        settings = msgspec.structs.replace(
            self.plan.settings,
            node=report.node_id,
            incarnation=report.incarnation,
            host=self.name,
            remembered=fellows,
            stored=found.stored,
            away=found.away,
            learned=found.learned,
            pending=found.pending,
            wanted=found.wanted,
            life=random.Random(f"{self.id} {self.run}").getrandbits(31) + 1,
            began_at=found.began_at,
            runs=found.runs,
            autodispose=found.autodispose,
        )
        self.tracer = Tracer(self.clock.wall_ns, self.cluster.outputs_for(self), recent_level=Level.NONE)
        self.cluster.opened(self, found)
        self.runtime = Runtime(
            settings,
            self.disk.store_queue,
            lambda _: self.wire,
            self.clock,
            self.tracer,
            found.sets,
            found.parts,
            self.cluster.codec,
            secret=f"{self.id} {self.run}".encode(),
        )
        self.runtime.late_joiners.on_difference = lambda _, difference: self.cluster.made(self, difference)
        if options.step_s:
            self.runtime.transfers.steps.budget_s = 0.0
        self.cluster.network.join(self.participant)
        self._turn()

    def crash(self, *, torn: bool = False) -> None:
        """Kill the process."""
        if self.is_up:
            self.disk.die(torn=torn)
            self.cluster.worked(self)
            self._end()
            self.cluster.network.kill(self.participant)
            if not self.plan.has_disk:
                self._forget()

    def stop(self) -> None:
        """End the node in order, as `engine.node.process` does."""
        runtime = self.runtime
        if runtime is None:
            return
        runtime.stop()
        runtime.stop(finished=True)
        self.disk.flush()
        self.cluster.worked(self)
        self._end()
        self.cluster.network.leave(self.participant)
        if not self.plan.has_disk:
            self._forget()

    def _end(self) -> None:
        self.live.shared.tracer.close()
        self.runtime = None
        self.wire.close()
        self._inputs.clear()
        self.cluster.ended(self)

    def lose_disk(self) -> None:
        """Kill the process, and lose its disk."""
        self.crash()
        self._forget()
        self.cluster.destroyed(self)

    def put_back(self, copy: Medium) -> None:
        """Kill the process, and put a copy of its disk, of some age, in the disk's place."""
        self.crash()
        self.cluster.destroyed(self)
        self.medium = copy
        self.medium.failing, self.medium.capacity_bytes = False, None
        for version in copy.versions.values():
            if version.state is SetState.COMPLETE:
                groups = version.groups.items()
                samples = tuple((group, row) for group, rows in groups for row in rows.rows.values())
                self.disk.store.committed.append(Committed(version.name_space, samples))
        self.cluster.worked(self)

    def _forget(self) -> None:
        """Give a node without a store directory, or with an empty one, a new id."""
        self.medium = Medium(f"{self.rng.getrandbits(128):032x}")
        self.id = self.medium.node_id

    # Inputs.

    def post(self, task: Callable[..., None], *arguments: object) -> None:
        """Add an input, which the node takes in at once, or when it has time."""
        if self.runtime is None:
            return
        if self.is_stalled or self.participant.is_frozen or self._is_busy:
            self._inputs.append((task, arguments))
            return
        self._needs_turn = True
        task(*arguments)
        if self._needs_turn:
            self._turn()
        if (self.cost_s or self.pause_s) and not self._is_busy:
            self._be_busy()

    def _be_busy(self, duration_s: float = 0.0) -> None:
        self._is_busy = True
        duration_s = duration_s or self.cost_s or self.pause_s
        self.cluster.schedule.after(duration_s, self._work_off, self.run)

    def _work_off(self, run: int) -> None:
        """Take in the next waiting input."""
        if run == self.run and self.is_up:
            self._is_busy = self.is_comparing = False
            self.go_on()

    def go_on(self) -> None:
        """Take in the inputs that waited while the node stood still."""
        had_inputs = bool(self._inputs)
        while self._inputs and not (self.is_stalled or self.participant.is_frozen or self._is_busy):
            task, arguments = self._inputs.popleft()
            task(*arguments)
            if self.cost_s:
                self._be_busy()
        if self.is_up and not (self.is_stalled or self.participant.is_frozen):
            self.is_catching_up = True
            self._turn()
            self.is_catching_up = False
            if had_inputs and self.pause_s and not self._is_busy:
                self._be_busy()

    def run_later(self, delay_s: float, task: Callable[..., None], *arguments: object) -> None:
        """Add an input after a delay, if this run still lasts then.

        The input calls `task` with the arguments.
        """
        self.cluster.schedule.after(delay_s, self._later, self.run, task, arguments)

    def _later(self, run: int, task: Callable[..., None], arguments: tuple[object, ...]) -> None:
        if self.run == run:
            self.post(task, *arguments)

    def _turn(self) -> None:
        runtime = self.runtime
        if runtime is None:
            return
        steps = runtime.transfers.steps
        done = steps.done
        due = runtime.turn()
        if self.cluster.options.step_s and steps.done > done and not self._is_busy:
            self.is_comparing = True
            self._be_busy(self.cluster.options.step_s)
        self.disk.wake()
        self.cluster.turned(self)
        if runtime.is_outdated:
            self.cluster.schedule.after(0.0, self._begin_next, self.run)
            return
        when = self.clock.virtual(due)
        if when < self._timer_at:
            self._timer_at = max(when, self.cluster.schedule.now + 1e-6)
            self.cluster.schedule.at(self._timer_at, self._timer, self._timer_at, self.run)

    def _begin_next(self, run: int) -> None:
        """End in order, and begin a run above all that fellows remember, as `engine.node.process` does."""
        if run == self.run and self.is_up:
            self.stop()
            self.cluster.schedule.after(RESTART_S, self.start)

    def _timer(self, planned: float, run: int) -> None:
        if planned == self._timer_at and run == self.run and self.is_up:
            self._timer_at = float("inf")
            self.post(_nothing)

    def _disk_result(self) -> None:
        self.cluster.worked(self)
        self.post(self._take_results)

    def _take_results(self) -> None:
        self._needs_turn = self.live.take_results()

    # engine.simulator.network.Handler

    def receive(self, sender: SimulatedParticipant, topic: str, item: object) -> None:
        """Take in a protocol message, a batch of a stream, or a sample of an application."""
        if self.runtime is None:
            return
        if topic == SAMPLE:
            assert isinstance(item, Sample)
            if not self._captured:
                self.cluster.schedule.after(CAPTURE_S, self._drain, self.run)
            self._captured.append(item)
        elif topic == BATCH:
            self.post(self.runtime.transfers.batch, sender.node, item)
        else:
            self.post(self._message, topic, sender.node, item)

    def _message(self, topic: str, sender: str, payload: bytes) -> None:
        self._needs_turn = self.live.message(topic, sender, payload)

    def _drain(self, run: int) -> None:
        if run == self.run and self.is_up:
            self.post(self._take_captured)

    def _take_captured(self) -> None:
        captured, self._captured = self._captured, []
        if captured:
            unrouted = self.live.capture(captured, self.routes)
            assert not unrouted, "a sample came before its writer was discovered"
            self.cluster.captured(self, captured)

    def attached(self, peer: SimulatedParticipant) -> None:
        """Take in an attached fellow."""
        if self.runtime is not None:
            self.post(self.runtime.fellow_attached, peer.node, peer.id)

    def detached(self, peer: SimulatedParticipant) -> None:
        """Take in a detached fellow."""
        if self.runtime is not None:
            self.post(self.runtime.fellow_detached, peer.node, peer.id)

    def appeared(self, peer: SimulatedParticipant) -> None:
        """Take in a discovered participant."""
        if self.runtime is not None and peer.node:
            self.post(self.runtime.core.fellow_discovered, peer.node)
        elif peer.application is not None:
            self.post(peer.application.discovered_by, self)

    def vanished(self, peer: SimulatedParticipant) -> None:
        """Take in a lost participant; for a node, both discovery and the channel report it."""
        if self.runtime is None:
            return
        if peer.node:
            self.post(self.runtime.fellow_detached, peer.node, peer.id)
        elif peer.application is not None:
            self.post(peer.application.lost_by, self)


def _nothing() -> None:
    """Do nothing: the input that only makes the node take its turn."""
