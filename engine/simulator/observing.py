"""A run that is watched: the snapshots and events that each node would publish, at the right times.

The run is the same as without anybody watching: nothing here changes a clock, a generator or a message.
"""

from __future__ import annotations

import collections
import re
import time
from typing import Final

import msgspec

from engine.core.states import ServiceState
from engine.runtime.monitor import DeliveryView, NodeEvent, NodeSnapshot
from engine.runtime.node_snapshot import Identity, snapshot
from engine.runtime.startup import StoredContent
from engine.simulator.cluster import Cluster
from engine.simulator.options import SimulationOptions
from engine.simulator.run_record import RunResult
from engine.simulator.schedule import START_NS
from engine.simulator.simulated_node import SimulatedNode
from engine.simulator.simulated_system import Watcher
from engine.tracing.levels import Level
from engine.tracing.record import EventRecord

SNAPSHOT_PAUSE_S: Final = 0.25
"""Least time between two snapshots of a node; otherwise one in each heartbeat period, as in a live node."""
# As a live node shows (`engine.node.wire.DELIVERIES_SHOWN`).
MAX_DELIVERIES: Final = 100
"""Limit for the shown deliveries of one node; the oldest are forgotten."""
# Chosen: a run must not fill the memory when the console is slower or paused.
MAX_ITEMS: Final = 20_000
"""Limit for items that wait for the watcher; beyond it the run pauses."""

FAILED: Final = "deliver.waiting"
"""Trace event of a failed delivery. Consoles do not get it, but see the failure in the delivery."""

_DELIVERIES: Final = {"deliver.started": "running", "deliver.finished": "done", FAILED: "failed"}
_LOG_LINE: Final = re.compile(r"\s*[\d.]+  \S+Z  \S+  (?P<who>\S+)\s+(?P<sign>\S) (?P<text>.*)", re.DOTALL)
_SIGNS: Final = {"!": "WARNING", "v": "WARNING", "-": "INFO", "#": "INFO"}
"""Lines of the short log that become events: faults, deaths, healing, and messages of checkers."""


class Gone(msgspec.Struct, frozen=True):
    """The end of a node's run, orderly or not."""

    node: str


class Seen(msgspec.Struct, frozen=True):
    """An observation with its time: virtual nanoseconds since 1970 by the true clock."""

    time_ns: int
    item: NodeSnapshot | NodeEvent | Gone


class ObservedRun:
    """One run with the options, watched step by step."""

    def __init__(self, options: SimulationOptions) -> None:
        self.options = options
        self._seen: list[Seen] = []
        self._cluster = Cluster(options, self._logged)
        self._steps = self._cluster.steps()
        self._observer = Observer(self._cluster, self._seen)
        self._cluster.watchers.append(self._observer)

    @property
    def result(self) -> RunResult | None:
        """What the run came to; None while it goes on."""
        return self._cluster.result

    @property
    def now_ns(self) -> int:
        """True time of the run."""
        return self._cluster.schedule.true_ns

    def advance(self, until_ns: int, work_s: float) -> list[Seen]:
        """Go on to a moment, but work no longer than `work_s` seconds; what was seen since the last call.

        What is seen may lie up to `PIECE_S` after the moment.
        """
        until_s, deadline = (until_ns - START_NS) / 1e9, time.monotonic() + work_s
        while self.result is None and self._cluster.schedule.now < until_s:
            next(self._steps, None)
            self._observer.observe()
            if len(self._seen) >= MAX_ITEMS or time.monotonic() >= deadline:
                break
        seen = self._seen[:]
        self._seen.clear()
        return seen

    def _logged(self, line: str) -> None:
        """Show faults and messages of checkers as events of the simulator."""
        found = _LOG_LINE.fullmatch(line)
        if found is None or found["sign"] not in _SIGNS:
            return
        is_violation = found["text"].startswith("VIOLATION")
        self._observer.add_event(
            found["who"], "SEVERE" if is_violation else _SIGNS[found["sign"]], " ".join(found["text"].split())
        )


class Observer(Watcher):
    """Observes the data that nodes would publish on the monitor topics."""

    def __init__(self, cluster: Cluster, seen: list[Seen]) -> None:
        super().__init__(cluster)
        self._seen = seen
        self._due: dict[str, float] = {}
        self._states: dict[str, ServiceState] = {}
        self._identities: dict[str, Identity] = {}
        self._addresses: dict[str, str] = {}
        self._deliveries: dict[str, collections.deque[DeliveryView]] = {}
        self._shown = 0

    def opened(self, node: SimulatedNode, found: StoredContent) -> None:
        """Subscribe to the trace of a new run, as a node does for its consoles."""
        self._due[node.name] = 0.0
        self._deliveries[node.name] = collections.deque(maxlen=MAX_DELIVERIES)
        self._identities[node.name] = Identity(
            host=node.name,
            pid=node.run,
            domain_id=0,
            configuration=f"simulated:{node.name}",
            version="simulated",
            started_ns=node.clock.wall_ns(),
            store_kind="simulated",
            store_path="",
            store_findings=tuple(found.damage),
            addresses=(self._address_of(node.name),),
        )
        run = node.run

        def traced(record: EventRecord) -> None:
            if node.run == run:
                self._traced(node, record)

        node.tracer.subscribe(traced, lambda kind: kind.level >= Level.FINE or kind.id == FAILED)

    def _address_of(self, name: str) -> str:
        """Return the address of a node's host, a loopback address: messages name the host itself then."""
        number = len(self._addresses) + 1
        return self._addresses.setdefault(name, f"127.0.{number // 256}.{number % 256}")

    def ended(self, node: SimulatedNode) -> None:
        """Record the end of a run."""
        self._add(Gone(node.id))

    def add_event(self, who: str, level: str, text: str) -> None:
        """Record an event of the simulation itself.

        `who` is the name of a node, or of another participant, `level` as in a trace, `text` what happened.
        """
        self._shown += 1
        nodes = {node.name: node.id for node in self.cluster.nodes}
        self._add(
            NodeEvent(
                node=nodes.get(who, ""),
                node_name=who,
                number=-self._shown,
                time_ns=self.cluster.schedule.true_ns,
                state="",
                thread="simulator",
                level=level,
                event="simulator",
                text=text,
            )
        )

    def observe(self) -> None:
        """Take the snapshots that are due, but not of stopped nodes."""
        now = self.cluster.schedule.now
        for node in self.cluster.nodes:
            runtime = node.runtime
            if runtime is None or node.is_stalled or node.participant.is_frozen:
                continue
            if now < self._due[node.name] and runtime.state is self._states.get(node.name):
                continue
            self._states[node.name] = runtime.state
            self._due[node.name] = now + max(SNAPSHOT_PAUSE_S, runtime.settings.heartbeat_period_s)
            clock = node.clock
            shown = snapshot(
                runtime,
                self._identities[node.name],
                clock.monotonic(),
                clock.wall_ns(),
                tuple(self._deliveries[node.name]),
            )
            self._add(shown)

    def _add(self, item: NodeSnapshot | NodeEvent | Gone) -> None:
        self._seen.append(Seen(self.cluster.schedule.true_ns, item))

    def _traced(self, node: SimulatedNode, record: EventRecord) -> None:
        kind = record.event
        if kind.id in _DELIVERIES:
            self._delivered(node, record, _DELIVERIES[kind.id])
        if kind.level < Level.FINE:
            return
        self._add(
            NodeEvent(
                node=node.id,
                node_name=node.name,
                number=record.sequence,
                time_ns=record.time_ns,
                state=record.state,
                thread=kind.thread,
                level=kind.level.name,
                event=kind.id,
                text=record.text,
            )
        )

    def _delivered(self, node: SimulatedNode, record: EventRecord, state: str) -> None:
        """Record a delivery for consoles; the final record replaces the running one."""
        topic, participant = str(record.fields["group"]), str(record.fields["reader"])
        partition, _, name = topic.rpartition(".")
        shown = self._deliveries[node.name]
        running = [
            i
            for i, one in enumerate(shown)
            if (one.participant, one.topic, one.partition, one.state)
            == (participant, name, partition, "running")
        ]
        samples = record.fields.get("samples")
        count = samples if isinstance(samples, int) else 0
        if running and state != "running":
            began = shown[running[0]]
            problem = str(record.fields["reason"]) if state == "failed" else ""
            shown[running[0]] = msgspec.structs.replace(
                began, state=state, samples=count, finished_ns=record.time_ns, problem=problem
            )
        elif state == "running":
            shown.append(DeliveryView(participant, name, partition, state, count, record.time_ns, 0))
