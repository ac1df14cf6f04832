"""Each event of the catalogue is traced: here by simulated nodes, or in a test that looks for it."""

from __future__ import annotations

import ast
import functools
import re
import string
from collections import Counter
from pathlib import Path

from engine.core.events import AligneeRequest
from engine.core.messages import ReaderKey
from engine.core.name_spaces import MergeType
from engine.dataset.sample_rows import SampleRows
from engine.runtime.ports import Delivered, GivenGroup, RevivingDelivery
from engine.simulator.campaign import Campaign
from engine.simulator.cluster import Cluster
from engine.tracing.catalogue import EventType, catalogue
from tests.simulation.scenarios import LOST_S, SLOW, Recorder, Scenario, node

TESTS = Path(__file__).parent.parent


LEAST_WORDS = 15
"""Characters of a message by which a test may know it."""
MAX_CHARACTERS = 1_000
NODES = (
    "adversary",
    "integration",
    "commands",
    "client",
    "simulation",
    "unit/node",
    "unit/runtime",
    "unit/tracing",
)
"""Where tests of nodes and of their parts are; those of other commands look at traces that they make."""
SEEDS = (
    ("all", 3),
    ("any", 10),
    ("any", 14),
    ("any", 1),
    ("any", 5),
    ("any", 2),
    ("any", 6),
    ("all", 8),
    ("classic", 7),
)


def drawn(faults: str, seed: int) -> Counter[str]:
    """What the nodes of a drawn system say."""
    cluster = Cluster(Campaign(faults).options(seed))
    recorder = Recorder(cluster)
    cluster.watchers.append(recorder)
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
    runtime.core.refuse("ns1", AligneeRequest(scenario.node("b").id, 1, "initial"), "it is busy")
    runtime.core.delete_data("ns1", "*", scenario.cluster.clocks["a"].wall_ns())
    broken = ReaderKey(32 * "0", "Reading", ("ns1",), "ns1")
    runtime.late_joiners.delivered(broken, Delivered(samples=3, problem="its process is gone"), whole=True)
    (description,) = [each for group, each in runtime.descriptions.items() if group.topic == "Reading"]
    rows = SampleRows.coerce([])
    runtime.late_joiners.show_again(broken, [(description, rows)], RevivingDelivery(b""))
    ends = frozenset((bytes(16),))
    given = GivenGroup(description.group, 3, 0, ends, ends)
    runtime.late_joiners.delivered(broken, Delivered(samples=3, given=(given,)), whole=False)
    scenario.run(1.0)
    scenario.split("a b", "c")
    scenario.start("c")
    scenario.run(LOST_S)
    scenario.write("c", 1)
    scenario.heal()
    scenario.run(LOST_S)
    return scenario


def sending() -> Scenario:
    """One stream for two nodes breaks off, as it does where one of them takes nothing."""
    scenario = Scenario(node("a", combine_operational_s=1.0), node("b"), node("c"), network=SLOW)
    scenario.start("a")
    scenario.until(lambda: scenario.complete("a"))
    scenario.write("a", *range(20), size=500)
    scenario.start("b", "c")
    scenario.until(lambda: any(len(each.receivers) > 1 for each in scenario.seen.streams))
    shared = next(each for each in scenario.seen.streams if len(each.receivers) > 1)
    runtime = scenario.node(shared.sender).runtime
    assert runtime is not None
    fellows = tuple(scenario.node(name).id for name in shared.receivers)
    runtime.transfers.sent("ns1", fellows, 20, 0)
    scenario.run(1.0)
    return scenario


@functools.cache
def seen() -> Counter[str]:
    """How often each event was traced."""
    found = sum((drawn(faults, seed) for faults, seed in SEEDS), Counter[str]())
    for scenario in (learning(), reading(), sending()):
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


def test_each_event_is_traced() -> None:
    assert [event.id for event in catalogue().values() if not is_shown(event)] == []
