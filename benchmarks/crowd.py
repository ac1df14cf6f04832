"""The start of many nodes at once, in virtual time: what they say to each other, and how long it takes them.

All nodes are equal, have empty stores and one name-space, and start within a tenth of a second. A message is
counted once, however many hear it, as by multicast.
"""

from __future__ import annotations

import gc
import time
from typing import Final, NamedTuple

from benchmarks.rows import Bar, Is, Row
from engine.core.name_spaces import Durability, MergeRule, MergeType, NameSpace, Policy
from engine.core.settings import CoreSettings
from engine.simulator.cluster import Cluster
from engine.simulator.options import NodePlan, SimulationOptions, TopicPlan, Workload

AREA: Final = "crowd"
NODES: Final = (10, 100, 300, 1_000)
LARGE: Final = 300
"""Nodes from which one repetition is enough: the same seed gives the same figures but processor time."""
STEP_S: Final = 0.05
PATIENCE_S: Final = 60.0
MESSAGES: Final = Bar(Is.AT_MOST, 30)
PROCESSOR_S: Final = {1_000: Bar(Is.AT_MOST, 60)}
FLAT: Final = Bar(Is.AT_MOST, 1.25, of_ratio=True)
_POLICY: Final = Policy(
    "*", master_priority=100, durability=Durability.PERSISTENT, merges=(MergeRule(MergeType.MERGE, "*"),)
)


class StartUp(NamedTuple):
    """What the start of a crowd took."""

    messages: int
    virtual_s: float
    processor_s: float


def run(repeat: int) -> list[Row]:
    """For each number of nodes: messages of each, virtual time, processor time."""
    rows: list[Row] = []
    first: tuple[float, ...] = ()
    for nodes in NODES:
        times = 1 if nodes >= LARGE else min(repeat, 3)
        runs = [start_up(nodes, seed) for seed in range(1, times + 1)]
        each = tuple(one.messages / nodes for one in runs)
        virtual = tuple(one.virtual_s for one in runs)
        first = first or virtual
        label = f"{nodes:,} nodes"
        rows += [
            Row(AREA, f"{label}, messages of each", "", each, bar=MESSAGES),
            Row(
                AREA,
                f"{label}, until all are complete, virtual",
                "s",
                virtual,
                f"{NODES[0]} nodes",
                first[:times],
                FLAT,
            ),
            Row(
                AREA,
                f"{label}, processor time of the simulation",
                "s",
                tuple(one.processor_s for one in runs),
                bar=PROCESSOR_S.get(nodes),
            ),
        ]
    return rows


def start_up(nodes: int, seed: int = 1) -> StartUp:
    """Start N nodes and let time pass until all are complete."""
    options = SimulationOptions(
        seed=seed,
        nodes=tuple(_plan(number) for number in range(nodes)),
        workload=Workload((TopicPlan("ns1", "Reading"),), writers=0, readers=0),
        start_spread_s=0.1,
    )
    gc.collect()
    gc.disable()  # millions of small objects that all stay
    try:
        return _start_up(Cluster(options))
    finally:
        gc.enable()


def _start_up(cluster: Cluster) -> StartUp:
    cluster.watchers.clear()
    rng = cluster.rng("start")
    for node in cluster.nodes:
        cluster.schedule.at(rng.uniform(0, cluster.options.start_spread_s), node.start)
    began = time.process_time()
    while not cluster.is_operational():
        if cluster.schedule.now > PATIENCE_S:
            raise RuntimeError(f"not complete after {PATIENCE_S} s of virtual time")
        cluster.schedule.run_until(cluster.schedule.now + STEP_S)
    messages = sum(node.wire.messages for node in cluster.nodes)
    return StartUp(messages, cluster.schedule.now, time.process_time() - began)


def _plan(number: int) -> NodePlan:
    settings = CoreSettings(
        node="",
        incarnation=0,
        name=f"n{number + 1}",
        role="Crowd",
        host="",
        name_spaces=(NameSpace.parse("ns1", "ns1.*"),),
        policies=(_POLICY,),
        heartbeat_expiry_s=4.0,
        heartbeat_period_s=0.8,
        initial_discovery_s=1.0,
    )
    return NodePlan(settings)
