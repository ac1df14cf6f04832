"""A cluster that is led through a scenario step by step, in virtual time, with all checkers looking on."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from engine.core.name_space_state import NameSpaceState
from engine.core.name_spaces import Alignee, Durability, MergeRule, MergeType, NameSpace, Policy
from engine.core.settings import CoreSettings
from engine.core.states import Phase, ServiceState
from engine.dataset.sample import DATA, DISPOSE, UNREGISTER, Sample
from engine.runtime.startup import StoredContent
from engine.simulator.cluster import Cluster
from engine.simulator.options import NetworkPlan, NodePlan, SimulationOptions, TopicPlan, Workload
from engine.simulator.quiet_check import difference, samples_of
from engine.simulator.simulated_node import SimulatedNode
from engine.simulator.simulated_system import KEY_PREFIX, Reader, Standing, Watcher, Writer
from engine.store.interface import SetState
from engine.tracing.record import EventRecord

NS = "ns1"
TOPIC = TopicPlan(NS, "Reading")
SLOW = NetworkPlan(bytes_per_s=1000.0)
"""On this network a set of a few kilobytes takes seconds."""
EXPIRY_S = 2.0
PERIOD_S = 0.4
LOST_S = 6.0
"""After so long everybody has noticed that a link is cut, and has elected anew."""
GAP_S = 0.002
BUSY_KEYS = 50
MERGE = {"*": MergeType.MERGE}


def policy(
    name_space: str = "*",
    *,
    priority: int = 100,
    merges: dict[str, MergeType] | None = None,
    **more: Any,
) -> Policy:
    """A policy, with the merge rules in the order given."""
    rules = tuple(MergeRule(kind, scope) for scope, kind in (MERGE if merges is None else merges).items())
    more.setdefault("durability", Durability.PERSISTENT)
    return Policy(name_space, master_priority=priority, merges=rules, **more)


def node(
    name: str,
    *,
    role: str = "Fleet",
    spaces: Sequence[str] = (NS,),
    policies: Sequence[Policy] = (),
    priority: int = 100,
    merges: dict[str, MergeType] | None = None,
    aligner: bool = True,
    alignee: Alignee = Alignee.INITIAL,
    durability: Durability = Durability.PERSISTENT,
    delayed_alignment: bool | None = None,
    equality_check: bool | None = None,
    has_disk: bool = True,
    **settings: Any,
) -> NodePlan:
    """One node; without `policies` it has one policy for all of its name-spaces."""
    chosen = tuple(policies) or (
        policy(
            priority=priority,
            merges=merges,
            aligner=aligner,
            alignee=alignee,
            durability=durability,
            delayed_alignment=delayed_alignment,
            equality_check=equality_check,
        ),
    )
    usual = {"initial_discovery_s": 0.5, "heartbeat_expiry_s": EXPIRY_S, "heartbeat_period_s": PERIOD_S}
    return NodePlan(
        CoreSettings(
            node="",
            incarnation=0,
            name=name,
            role=role,
            host="",
            name_spaces=tuple(NameSpace.parse(space, f"{space}.*") for space in spaces),
            policies=chosen,
            has_disk=has_disk,
            **(usual | settings),
        ),
        has_disk=has_disk,
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """A transition: where a node stands, since when."""

    time_s: float
    node: str
    name_space: str
    before: Standing | None
    now: Standing


@dataclasses.dataclass(frozen=True, slots=True)
class Stream:
    """A set that a node sends to others."""

    time_s: float
    sender: str
    name_space: str
    receivers: tuple[str, ...]


class Recorder(Watcher):
    """Keeps what happens."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.steps: list[Step] = []
        self.streams: list[Stream] = []
        self.records: list[tuple[float, str, EventRecord]] = []

    def opened(self, node: SimulatedNode, found: StoredContent) -> None:
        def traced(record: EventRecord) -> None:
            self.records.append((self.cluster.schedule.now, node.name, record))

        node.tracer.subscribe(traced, lambda kind: True)

    def stepped(self, node: SimulatedNode, name_space: str, before: Standing | None, now: Standing) -> None:
        self.steps.append(Step(self.cluster.schedule.now, node.name, name_space, before, now))

    def streaming(self, node: SimulatedNode, name_space: str, fellows: tuple[str, ...], size: int) -> None:
        receivers = tuple(self.cluster.name_of(fellow) for fellow in fellows)
        self.streams.append(Stream(self.cluster.schedule.now, node.name, name_space, receivers))


class Scenario:
    """Named nodes, and what happens to them. Nothing starts or writes by itself.

    Args:
        plans: the nodes.
        topics: what can be written; a topic's index names it.
        seed: decides ids and delays; scenarios hold for any.
    """

    def __init__(
        self,
        *plans: NodePlan,
        topics: Sequence[TopicPlan] = (TOPIC,),
        seed: int = 1,
        network: NetworkPlan | None = None,
        disk_delay_s: float = 0.005,
        tap_delay_s: float = 0.02,
    ) -> None:
        options = SimulationOptions(
            seed=seed,
            nodes=plans,
            workload=Workload(tuple(topics), writers=0, readers=0),
            network=network or NetworkPlan(),
            quiet_s=15.0,
            heal_within_s=60.0,
            disk_delay_s=disk_delay_s,
            tap_delay_s=tap_delay_s,
        )
        self.cluster = Cluster(options)
        self.seen = Recorder(self.cluster)
        self.cluster.watchers.append(self.seen)
        self.topics = tuple(topics)
        self.names = tuple(plan.name for plan in plans)
        self._nodes = {node.name: node for node in self.cluster.nodes}
        self._writers: dict[str, Writer] = {}

    # What is done.

    @property
    def now(self) -> float:
        """Virtual seconds since the beginning."""
        return self.cluster.schedule.now

    def run(self, seconds: float) -> None:
        """Let time pass."""
        end = self.now + seconds
        while self.now < end:
            self.cluster.schedule.run_until(min(end, self.now + 1.0))
            self.cluster.check()

    def until(self, condition: Callable[[], bool], within_s: float = 30.0, *, step_s: float = 0.05) -> None:
        """Let time pass until a condition holds."""
        end = self.now + within_s
        while not condition():
            assert self.now < end, f"not within {within_s} s:\n{self.log()}"
            self.cluster.schedule.run_until(self.now + step_s)
        self.cluster.check()

    def settle(self) -> None:
        """The system becomes quiet and equal, stays so, and all checkers agree."""
        self.cluster.settle(self.now)

    def start(self, *names: str, spread_s: float = 0.0) -> None:
        """Start nodes, all by default, in this order."""
        for name in names or self.names:
            self.node(name).start()
            if spread_s:
                self.run(spread_s)

    def configure(self, plan: NodePlan) -> None:
        """The node that has the plan's name will be started with it the next time."""
        self.node(plan.name).plan = plan

    def stop(self, *names: str) -> None:
        """End nodes in order."""
        for name in names:
            self.node(name).stop()

    def kill(self, *names: str) -> None:
        """Kill nodes."""
        for name in names:
            self.node(name).crash()

    def cut(self, one: str, other: str, *, both: bool = True) -> None:
        """Cut all links from the hosts of one part to those of the other; parts are names with blanks."""
        for a in one.split():
            for b in other.split():
                self.cluster.network.cut(a, b)
                if both:
                    self.cluster.network.cut(b, a)

    def split(self, one: str, other: str) -> None:
        """Cut two parts apart, until both have noticed and come to rest."""
        self.cut(one, other)
        self.run(LOST_S)

    def heal(self) -> None:
        """All links work again."""
        for link in self.cluster.network.cuts():
            self.cluster.network.restore(*link)

    def writer(self, host: str, *topics: int, depth: int = 0, autodispose: bool = False) -> Writer:
        """The process that writes on a host; a new one is discovered by all who hear it before it writes.

        It has writers of these topics, all by default; `depth` and `autodispose` are for a new one.
        """
        if host not in self._writers:
            self._writers[host] = self.cluster.open_writer(host, depth, topics, autodispose=autodispose)
            self.run(1.5)
        return self._writers[host]

    def write(
        self, host: str, *numbers: int, topic: int = 0, status: int = DATA, size: int = 0, wait_s: float = 0.5
    ) -> None:
        """Write instances on a host, one after the other, and let them arrive."""
        writer = self.writer(host)
        for number in numbers:
            self.cluster.schedule.run_until(self.now + GAP_S)
            writer.write(topic, status, number, size)
        self.run(wait_s)

    def dispose(self, host: str, *numbers: int, topic: int = 0) -> None:
        """Dispose instances on a host."""
        self.write(host, *numbers, topic=topic, status=DISPOSE)

    def unregister(self, host: str, *numbers: int, topic: int = 0) -> None:
        """Unregister instances on a host."""
        self.write(host, *numbers, topic=topic, status=UNREGISTER)

    def write_when_matched(self, writer: Writer, topic: int, count: int) -> None:
        """A process writes as soon as one node's tap has matched, as applications do that wait for that."""
        if not writer.matched(topic):
            self.cluster.schedule.after(GAP_S / 2, self.write_when_matched, writer, topic, count)
            return

        def write(number: int) -> None:
            writer.write(topic, DATA, number)

        for number in range(count):
            self.cluster.schedule.after(number * GAP_S, write, number)

    def keep_writing(self, writer: Writer, topic: int, pause_s: float) -> None:
        """From now on a process writes one instance of a topic after the other, until it ends."""
        numbers = itertools.cycle(range(BUSY_KEYS))

        def write() -> None:
            if writer.participant.is_alive:
                writer.write(topic, DATA, next(numbers))
                self.cluster.schedule.after(pause_s, write)

        write()

    def end_writer(self, host: str, *, in_order: bool = True) -> None:
        """The process that writes on a host ends."""
        self._writers.pop(host).end(in_order=in_order)
        self.run(0.5)

    def reader(self, host: str, topic: int = 0) -> Reader:
        """A process with a durable reader starts on a host."""
        plan = self.topics[topic]
        return self.cluster.open_reader(host, plan.topic, plan.partition)

    # What can be seen.

    def node(self, name: str) -> SimulatedNode:
        """A node by its name."""
        return self._nodes[name]

    def state(self, name: str, name_space: str = NS) -> NameSpaceState:
        """What the core of a node that is up keeps of a name-space."""
        runtime = self.node(name).runtime
        assert runtime is not None
        return runtime.spaces[name_space].state

    def phase(self, name: str, name_space: str = NS) -> Phase:
        """Where a node is."""
        return self.state(name, name_space).phase

    def complete(self, *names: str, name_space: str = NS) -> bool:
        """Whether nodes, all by default, are complete."""
        return all(self.phase(name, name_space) is Phase.COMPLETE for name in names or self.names)

    def is_operational(self, name: str) -> bool:
        """Whether the service of a node has come to COMPLETE."""
        runtime = self.node(name).runtime
        return runtime is not None and runtime.state is ServiceState.COMPLETE

    def is_settled(self) -> bool:
        """Whether all is quiet and equal at this moment."""
        return not difference(self.cluster)

    def master(self, name: str, name_space: str = NS) -> str:
        """The name of the master that a node follows; empty for none."""
        following = self.state(name, name_space).following
        return self.cluster.name_of(following.node) if following else ""

    def masters(self, name_space: str = NS) -> set[str]:
        """The masters that the nodes that are up follow."""
        return {self.master(node.name, name_space) for node in self.cluster.up()}

    def fellows(self, name: str) -> set[str]:
        """Whom a node talks to."""
        runtime = self.node(name).runtime
        assert runtime is not None
        return {fellow.name for fellow in runtime.core.fellows if fellow.approved}

    def samples(self, name: str, name_space: str = NS) -> list[tuple[int, Sample]]:
        """The samples that a node has, each with the number of its topic."""
        runtime = self.node(name).runtime
        assert runtime is not None
        numbers = {plan.topic: number for number, plan in enumerate(self.topics)}
        working = runtime.spaces[name_space].working
        return [(numbers[group.topic], sample) for group, sample in samples_of(working)]

    def alive(self, name: str, name_space: str = NS, topic: int | None = None) -> set[int]:
        """The numbers of the instances that a node has and that are not disposed."""
        return {n for n, status in self.instances(name, name_space, topic).items() if not status & DISPOSE}

    def instances(self, name: str, name_space: str = NS, topic: int | None = None) -> dict[int, int]:
        """The status of the last sample of each instance that a node has."""
        runtime = self.node(name).runtime
        assert runtime is not None
        return _last(
            (sample.source_time_ns, number_of(sample), sample.status)
            for group, sample in samples_of(runtime.spaces[name_space].working)
            if topic is None or group.topic == self.topics[topic].topic
        )

    def given(self, reader: Reader) -> set[int]:
        """The numbers of the instances that a reader was given and that are not disposed."""
        found = _last(
            (sample.source_time_ns, number_of(sample), sample.status)
            for _, _, samples in reader.served
            for sample in samples
        )
        return {number for number, status in found.items() if not status & DISPOSE}

    def stored(self, name: str) -> int:
        """How many samples the complete sets on a node's disk have."""
        return self._on_disk(name, SetState.COMPLETE)

    def _on_disk(self, name: str, state: SetState) -> int:
        versions = [each for each in self.node(name).medium.versions.values() if each.state is state]
        return sum(len(group.rows) for version in versions for group in version.groups.values())

    def parts(self, name: str) -> int:
        """How many samples a node's disk has of sets that are still arriving."""
        return self._on_disk(name, SetState.FILLING)

    def streams(self, since_s: float = 0.0) -> list[Stream]:
        """The sets that were sent since a moment."""
        return [stream for stream in self.seen.streams if stream.time_s >= since_s]

    def traced(self, event: str, name: str = "", since_s: float = 0.0) -> list[dict[str, object]]:
        """The fields of the records of one event, of all nodes or of one."""
        return [
            dict(record.fields)
            for when, who, record in self.seen.records
            if record.event.id == event and when >= since_s and name in ("", who)
        ]

    def received(self, name: str, since_s: float = 0.0, name_space: str = NS) -> int:
        """How many sets were sent to a node since a moment."""
        return sum(
            stream.receivers.count(name)
            for stream in self.streams(since_s)
            if stream.name_space == name_space
        )

    def log(self) -> str:
        """The last lines of the short log."""
        return "\n".join(self.cluster.log.lines[-40:])


def number_of(sample: Sample) -> int:
    """Which instance a sample is of, as `Writer.write` numbers them."""
    return int.from_bytes(sample.key.removeprefix(KEY_PREFIX))


def _last(samples: Any) -> dict[int, int]:
    return {number: status for _, number, status in sorted(samples)}
