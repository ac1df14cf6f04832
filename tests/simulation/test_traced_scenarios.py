"""Each event of the catalogue is traced: here by simulated nodes, or in a test that looks for it."""

from __future__ import annotations

import ast
import functools
import re
import string
from collections import Counter
from pathlib import Path

import pytest

from engine.core.events import Target
from engine.core.namespaces import MergeType
from engine.simulator.campaign import Campaign
from engine.simulator.cluster import Cluster
from engine.tracing.catalogue import EventType, catalogue
from tests.simulation.scenarios import LOST_S, Recorder, Scenario, node

TESTS = Path(__file__).parent.parent


LEAST_WORDS = 15
"""Characters of a message by which a test may know it."""
MAX_CHARACTERS = 1_000
NODES = ("integration", "commands", "client", "simulation", "unit/node", "unit/runtime", "unit/tracing")
"""Where tests of nodes and of their parts are; those of other commands look at traces that they make."""
SEEDS = (("all", 3), ("any", 10), ("any", 1), ("any", 5), ("any", 2), ("any", 6), ("all", 8))


RARE = {
    "align.slow": "two alignees of which one is slower than a stream is long",
    "client.handed-over": "a DurableWriter whose node died, see tests/client/test_durable_cuts.py",
    "deliver.repeated": "a delivery that broke off in the middle",
    "filter.applies": "a node with content filters, see tests/integration/test_filters.py",
    "group.creation-failed": "a type that nobody can tell, see tests/integration/test_types.py",
    "lifecycle.bad-configuration": "a node that ends, see tests/commands/test_real_node.py",
    "lifecycle.daemon-lost": "a supervisor that is killed, see tests/commands/test_real_node.py",
    "lifecycle.setting-unknown": "a misspelt element, see tests/unit/config and engine/config/strangers.py",
    "lifecycle.unrecoverable": "a node that ends, see tests/commands/test_real_node.py",
    "namespace.filtered": "a node with content filters, see tests/unit/core/test_protocol.py",
    "store.backup-dropped": "three back-ups, see tests/simulation/test_backup_scenarios.py",
    "store.not-flushed": "a disk that takes longer than 70 % of the ServiceTerminatePeriod",
    "store.not-kept": "a disk that stays full, see tests/unit/store/test_backups.py",
    "store.waiting": "a disk that is full at the start, see tests/integration/test_store.py",
}
"""Events whose words no test of the trace looks for, and what it takes for them to come."""


def drawn(faults: str, seed: int) -> Counter[str]:
    """What the nodes of a drawn system say."""
    cluster = Cluster(Campaign(faults).options(seed))
    recorder = Recorder(cluster)
    cluster.checkers.append(recorder)
    cluster.run()
    return Counter(record.event.id for _, _, record in recorder.records)


def learning() -> Scenario:
    """b learns a name-space, and is started with one that conflicts with a's, and then without."""
    scenario = Scenario(node("a", spaces=("ns1", "ns2")), node("b"))
    scenario.start()
    scenario.settle()
    scenario.stop("b")
    scenario.configure(node("b", spaces=("ns*",)))
    scenario.start("b")
    scenario.run(LOST_S)
    scenario.stop("a")
    scenario.configure(node("a", spaces=("ns*",)))
    scenario.start("a")
    scenario.run(LOST_S)
    return scenario


def reading() -> Scenario:
    """Readers come and go, data is deleted, and roles contradict each other."""
    merges = {"*": MergeType.REPLACE}
    scenario = Scenario(
        node("a", merges=merges), node("b"), node("c", role="Other", merges=merges), tap_delay_s=0.02
    )
    scenario.start("a", "b")
    scenario.until(lambda: scenario.complete("a", "b"))
    scenario.write("a", *range(50), size=1_000)
    reader = scenario.reader("a")
    scenario.until(lambda: bool(scenario.traced("deliver.started")), step_s=0.001)
    reader.end(in_order=True)
    runtime = scenario.node("a").runtime
    assert runtime is not None
    runtime.count_unrouted(1)
    runtime.core.refuse("ns1", Target(scenario.node("b").id, 1, "initial"), "it is busy")
    runtime.core.delete_data("ns1", "*", scenario.cluster.clocks["a"].wall_ns())
    scenario.run(1.0)
    scenario.split("a b", "c")
    scenario.start("c")
    scenario.run(LOST_S)
    scenario.write("c", 1)
    scenario.heal()
    scenario.run(LOST_S)
    return scenario


@functools.cache
def seen() -> Counter[str]:
    """How often each event was traced."""
    found = sum((drawn(faults, seed) for faults, seed in SEEDS), Counter[str]())
    for scenario in (learning(), reading()):
        found.update(record.event.id for _, _, record in scenario.seen.records)
    return found


@functools.cache
def words() -> str:
    """Everything that other tests of nodes look for: ids of events, and words of their messages."""
    modules = (module for folder in NODES for module in (TESTS / folder).rglob("*.py"))
    return "\n".join(
        item.value
        for module in modules
        if module != Path(__file__)
        for item in ast.walk(ast.parse(module.read_bytes()))
        if isinstance(item, ast.Constant) and isinstance(item.value, str) and len(item.value) < MAX_CHARACTERS
    )


def is_shown(event: EventType) -> bool:
    """Whether simulated nodes trace it, or another test looks for its id or for a good part of its words."""
    parts = [part for part, _, _, _ in string.Formatter().parse(event.text + event.report_text)]
    return bool(
        seen()[event.id]
        or re.search(rf"^{re.escape(event.id)}$", words(), re.MULTILINE)
        or any(len(part) >= LEAST_WORDS and part.strip() in words() for part in parts)
    )


@pytest.mark.parametrize("event", catalogue(), ids=[kind.id for kind in catalogue()])
def test_each_event_is_traced(event: EventType) -> None:
    assert is_shown(event) or event.id in RARE


def test_what_is_called_rare_is_in_the_catalogue() -> None:
    assert [event for event in RARE if event not in catalogue()] == []
