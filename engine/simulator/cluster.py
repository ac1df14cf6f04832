"""A whole system in one thread: nodes, applications, network, faults and checkers under virtual time."""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable, Sequence
from typing import Final

from engine import native
from engine.core.messages import Epoch, ReaderKey
from engine.core.name_spaces import Group
from engine.core.states import Phase, ServiceState
from engine.dataset.captured import CapturedSample
from engine.dataset.groups import GroupDescription
from engine.dataset.sample import Sample
from engine.runtime.name_space_data import Difference
from engine.runtime.startup import StoredContent
from engine.simulator.applications import RandomWriter, Reader, Writer
from engine.simulator.checkers.bounds import Bounds, Traffic
from engine.simulator.checkers.checker import Checker, Standing
from engine.simulator.checkers.kept_samples import Ended, Invented, KeptSetsChecker, Resurrection
from engine.simulator.checkers.promises import DeliveryChecker, Promised, Repaired
from engine.simulator.checkers.whole_sets import Masters, Sources, Whole
from engine.simulator.fault_injection import FaultInjector
from engine.simulator.network import Network
from engine.simulator.options import Fault, SimulationOptions
from engine.simulator.quiet_check import difference, unsettled
from engine.simulator.run_record import RunResult, ShortLog, Statistics, Violation
from engine.simulator.schedule import Schedule, SimulatedClock
from engine.simulator.simulated_node import SharedCodec, SimulatedNode
from engine.simulator.simulated_wire import SimulatedWire
from engine.simulator.write_ledger import WriteLedger
from engine.store.interface import StoreError
from engine.store.memory import Medium
from engine.tracing.record import EventRecord
from engine.tracing.tracer import Output

CHECKERS: Final[tuple[type[Checker], ...]] = (
    Invented,
    Ended,
    Resurrection,
    KeptSetsChecker,
    Masters,
    Whole,
    Traffic,
    Bounds,
    Sources,
    DeliveryChecker,
    Promised,
    Repaired,
)
"""All rules but I3, which `engine.simulator.quiet_check` decides, and I8, which takes two runs."""
LOOK_S: Final = 10.0
"""Period of complete checks."""
STEP_S: Final = 0.25
LAST_WRITES_S: Final = 3.0
"""Time in which applications still write after everything has healed."""
APPROVED: Final = "compatibility.approved"
HEEDED: Final = (APPROVED, "align.reconciling", "align.extending", "align.part-compared")
"""Trace events of a node that begins to talk to a fellow, or requests samples that its set may lack."""
ARRIVES_S: Final = 1.0
"""Time for the last samples to arrive everywhere; sets are compared only after that."""
MAX_DRIFT: Final = 200e-6


class Cluster:
    """One run. Everything random comes from generators that are seeded with the options' seed.

    Args:
        options: what happens.
        show: called with each line of the short log.
        outputs: makes the trace outputs of a node's run; none by default.

    Attributes:
        readers: living reader processes by participant.
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
        self._whole_sets = 0
        self.all_readers: list[Reader] = []
        self.log = ShortLog(self.schedule, self.nodes, show)
        self._outputs = outputs
        self.ledger = WriteLedger()
        self._standings: dict[tuple[SimulatedNode, str], Standing] = {}
        self._started_writers = 0
        self._is_over = False
        self._make_nodes()
        self._by_name = {node.name: node for node in self.nodes}
        self.faults = FaultInjector(self, self.rng("faults"))
        self.checkers: list[Checker] = [kind(self) for kind in CHECKERS]

    def rng(self, purpose: str) -> random.Random:
        """Make a separate generator for each purpose, so that one does not change another."""
        return random.Random(f"{self.options.seed} {purpose}")

    def outputs_for(self, node: SimulatedNode) -> Sequence[Output]:
        """Return the outputs for the trace of a run."""
        return self._outputs(node) if self._outputs else ()

    def wire_for(self, node: SimulatedNode) -> SimulatedWire:
        """Make the wire of a run."""
        return SimulatedWire(self, node)

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

    # A run.

    def run(self) -> RunResult:
        """Run both phases; the result has any violation."""
        violation: Violation | None = None
        try:
            self._run()
        except Violation as found:
            violation = found
        except Exception as error:
            lines = traceback.format_exc().strip().splitlines()
            violation = Violation("fault", f"{type(error).__name__}: {error}\n" + "\n".join(lines[-8:]))
        if violation:
            self.log.line("run", "#", f"VIOLATION {violation}")
        self.statistics.carried = self.network.carried
        self.statistics.steps = self.schedule.done
        return RunResult(self.options, violation, self.schedule.now, self.statistics, self.log.text())

    def _run(self) -> None:
        options, rng = self.options, self.rng("start")
        self.log.header()
        for node in self.nodes:
            self.schedule.at(rng.uniform(0, options.start_spread_s), node.start)
        for _ in range(options.workload.writers):
            self.schedule.at(rng.uniform(0, options.fault_s / 2), self.start_writer)
        for _ in range(options.workload.readers):
            self.schedule.at(rng.uniform(0, options.fault_s), self._start_reader)
        self.schedule.at(LOOK_S, self._look)
        self.faults.begin()
        self.schedule.run_until(options.fault_s)
        self.faults.heal()
        self.log.line("all", "-", "everything heals")
        self.schedule.run_until(options.fault_s + LAST_WRITES_S)
        if Fault.BUSY in options.faults:
            self._settle_busy()
        for writer in self.writers:
            writer.finish()
        self.schedule.run_until(self.schedule.now + ARRIVES_S)
        self.settle(options.fault_s)

    def _settle_busy(self) -> None:
        """Continue, while applications write, until all nodes have the samples from before everything healed.

        Raises:
            Violation: that did not happen in time.
        """
        healed_s = self.options.fault_s
        end = self.schedule.now + self.options.heal_within_s
        reason = self._unsettled(healed_s)
        while reason:
            if self.schedule.now >= end:
                raise Violation("busy", f"after {self.options.heal_within_s} s of writing: {reason}")
            self.schedule.run_until(self.schedule.now + STEP_S)
            reason = self._unsettled(healed_s)
        self.statistics.equal_s = round(self.schedule.now - healed_s, 3)
        self.log.line("all", "-", f"equal {self.statistics.equal_s} s after healing, while writing goes on")

    def _unsettled(self, until_s: float) -> str:
        """Return a difference between nodes, without samples written after `until_s`; empty for none."""
        for node in self.nodes:
            if node.runtime is None:
                return f"{node.name} is down"
            for state in node.runtime.core.name_spaces:
                if not (state.holder or state.phase is Phase.PASSIVE):
                    return f"{node.name} does not hold '{state.name}'"
        return unsettled(self, until_s)

    def settle(self, healed_s: float) -> None:
        """Continue until the system is quiet and equal; check that it stays so and that all checkers agree.

        Args:
            healed_s: when the last fault was over.

        Raises:
            Violation: the system did not settle in time, or a checker objects.
        """
        end = self.schedule.now + self.options.heal_within_s
        reason = difference(self)
        while reason:
            if self.schedule.now >= end:
                raise Violation("quiet", f"after {self.options.heal_within_s} s: {reason}")
            self.schedule.run_until(self.schedule.now + STEP_S)
            reason = difference(self)
        self.statistics.settled_s = round(self.schedule.now - healed_s, 3)
        self.log.line("all", "-", f"settled {self.statistics.settled_s} s after healing")
        before = self._fingerprint()
        half_s = self.options.quiet_s / 2
        self.schedule.run_until(self.schedule.now + half_s)
        whole = self._whole_sets  # before, nodes may have compared samples that one had just purged
        self.schedule.run_until(self.schedule.now + half_s)
        if self._fingerprint() != before:
            raise Violation("quiet", f"not quiet after it had settled: {before} became {self._fingerprint()}")
        if self._whole_sets != whole:
            raise Violation("quiet", "sets were sent after it had settled")
        reason = difference(self)
        if reason:  # a part may be asking its aligner at this moment
            self.schedule.run_until(self.schedule.now + STEP_S)
            reason = difference(self)
        if reason:
            raise Violation("quiet", f"unsettled again: {reason}")
        self.look()
        for checker in self.checkers:
            checker.settled()
        self.log.line("all", "#", "all checkers agree")

    def _fingerprint(self) -> list[tuple[str, str, Epoch | None, Epoch]]:
        """Return masters and lineages, which do not change in a quiet system."""
        return [
            (node.name, state.name, state.following, state.lineage)
            for node in self.nodes
            if node.runtime
            for state in node.runtime.core.name_spaces
        ]

    def _has_part(self, fellow: str, name_space: str) -> bool:
        """Tell whether a node is Lazy; such a node checks its part after each purge."""
        runtime = next((node.runtime for node in self.nodes if node.id == fellow), None)
        data = runtime.spaces.get(name_space) if runtime else None
        return data is not None and data.state.is_lazy

    def look(self) -> None:
        """Let all checkers check everything."""
        for checker in self.checkers:
            checker.looked()

    def _look(self) -> None:
        self.look()
        self.schedule.after(LOOK_S, self._look)

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
        for checker in self.checkers:
            checker.opened(node, found)

    def destroyed(self, node: SimulatedNode) -> None:
        """Take in the loss of a node's disk."""
        self.ledger.forget_meetings(node.id)
        for checker in self.checkers:
            checker.destroyed(node)

    def rotted(self, node: SimulatedNode, name_space: str, digest: bytes) -> None:
        """Take in a flipped bit of a sample on a node's disk."""
        for checker in self.checkers:
            checker.rotted(node, name_space, digest)

    def ended(self, node: SimulatedNode) -> None:
        """Take in the end of a node's run."""
        for key in [key for key in self._standings if key[0] is node]:
            del self._standings[key]
        for checker in self.checkers:
            checker.ended(node)

    def _traced(self, node: SimulatedNode, record: EventRecord) -> None:
        if record.event.id == APPROVED:
            fellow = self._by_name[str(record.fields["fellow"])]
            self.ledger.met(node.id, fellow.id, self.schedule.now)
            for checker in self.checkers:
                checker.met(node, fellow)
        else:
            for checker in self.checkers:
                checker.differed(node, str(record.fields["group"]))

    def turned(self, node: SimulatedNode) -> None:
        """Take in a turn of a node: report its changes of state."""
        assert node.runtime is not None
        for name, data in node.runtime.spaces.items():
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
            assert node.runtime is not None
            master = (
                f"follows {node.runtime.core.name_of(now.following.node)}" if now.following else "no master"
            )
            epoch = f", epoch {now.following}" if now.following else ""
            self.log.line(node.name, "*", f"{where}{master}{epoch}")
        if before is not None and before.lineage != now.lineage:
            self.log.line(node.name, "=", f"{where}lineage {now.lineage}")
        for checker in self.checkers:
            checker.stepped(node, name, before, now)
        self.faults.stepped(node, before, now)

    def captured(self, node: SimulatedNode, records: Sequence[CapturedSample]) -> None:
        """Take in samples that a node captured."""
        assert node.runtime is not None
        for record in records:
            for group in node.routes[record.writer]:
                state = node.runtime.core.name_space_of(group)
                if state is not None:
                    self.ledger.captured(state.name, group, record, self.schedule.now)
        for checker in self.checkers:
            checker.captured(node, records)

    def written(self, description: GroupDescription, record: CapturedSample) -> None:
        """Take in a sample that an application wrote."""
        self.statistics.written += 1
        self.statistics.written_bytes += len(record.payload)
        self.ledger.wrote(description.group, record, self.schedule.now)
        for checker in self.checkers:
            checker.written(description, record)

    def made(self, node: SimulatedNode, difference: Difference) -> None:
        """Take in samples that a node made of the end or the return of a writer.

        They are told to clients among those that merges bring, which are known.
        """
        for group, samples in difference.items():
            state = node.runtime.core.name_space_of(group) if node.runtime else None
            for sample in samples:
                if state is not None and self.ledger.entry(group, sample) is None:
                    time_ns, guid, _, _, status, key, payload = sample
                    record = CapturedSample(time_ns, guid, status, key, payload)
                    self.ledger.wrote(group, record, self.schedule.now)
                    self.ledger.captured(state.name, group, record, self.schedule.now)

    def written_s(self, group: Group, sample: Sample | CapturedSample) -> float:
        """Return the true time at which a sample was written, independent of its timestamp."""
        entry = self.ledger.entry(group, sample)
        return entry.written_s if entry else 0.0

    def committed(self, node: SimulatedNode) -> None:
        """Take in transactions that may have reached a node's disk."""
        transactions, node.disk.store.committed = node.disk.store.committed, []
        for transaction in transactions:
            self.statistics.transactions += 1
            for checker in self.checkers:
                checker.committed(node, transaction)

    def streaming(self, node: SimulatedNode, name_space: str, fellows: tuple[str, ...], samples: int) -> None:
        """Take in that a node begins to send a set to fellows."""
        assert node.runtime is not None
        data = node.runtime.spaces[name_space].working
        size = sum(group.payload_bytes for group in data.groups.values())
        self.statistics.streams += len(fellows)
        self._whole_sets += sum(not self._has_part(fellow, name_space) for fellow in fellows)
        self.statistics.stream_bytes += size * len(fellows)
        names = ", ".join(self.name_of(fellow) for fellow in fellows)
        self.log.line(node.name, "+", f"sends {samples} samples of {name_space} to {names}")
        for checker in self.checkers:
            checker.streaming(node, name_space, fellows, size)

    def serving(self, node: SimulatedNode, reader: ReaderKey, *, whole: bool) -> None:
        """Take in that a node begins to serve a late joiner. It gets the whole set, or a difference."""
        self.statistics.deliveries += 1
        for checker in self.checkers:
            checker.serving(node, reader, whole=whole)

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
