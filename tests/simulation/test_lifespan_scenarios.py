"""LIFESPAN of writers: samples that are over stay in the sets, and reach no late joiner."""

from __future__ import annotations

import pytest

from engine.core.name_spaces import Alignee, MergeType
from engine.dataset.sample import DATA, DISPOSE
from engine.simulator.options import TopicPlan
from tests.simulation.scenarios import NS, Scenario, node

SHORT, ENDLESS = TopicPlan(NS, "Reading", lifespan_s=20.0), TopicPlan(NS, "Reading")
OVER_S = 21.0


def expired(scenario: Scenario) -> int:
    """How many samples the nodes that are up have withheld."""
    runtimes = [each.runtime for each in scenario.cluster.up()]
    return sum(runtime.counters["expired"] for runtime in runtimes if runtime is not None)


def given(scenario: Scenario, name: str) -> set[int]:
    """What a late joiner on the host of a node gets."""
    reader = scenario.reader(name)
    scenario.run(3.0)
    return scenario.given(reader)


@pytest.mark.parametrize("late", ["stays", "aligns late", "starts again", "is Lazy", "is On_Request"])
def test_each_node_withholds_what_is_over_and_keeps_it(late: str) -> None:
    """Of two writers of one group, one has a lifespan; one of its instances is disposed later."""
    alignee = {"is Lazy": Alignee.LAZY, "is On_Request": Alignee.ON_REQUEST}.get(late, Alignee.INITIAL)
    scenario = Scenario(node("a"), node("b", alignee=alignee, priority=50), topics=(SHORT, ENDLESS))
    scenario.start("a") if late == "aligns late" else scenario.start()
    scenario.until(lambda: scenario.complete("a"))
    scenario.run(2.0)
    short, endless = (scenario.cluster.open_writer("a", topics=(number,)) for number in (0, 1))
    scenario.run(1.5)
    for writer, topic, numbers in ((short, 0, (1, 2, 3)), (endless, 1, (4, 5))):
        for number in numbers:
            writer.write(topic, DATA, number)
            scenario.run(0.1)
    short.write(0, DISPOSE, 3)
    scenario.run(1.0)
    assert given(scenario, "a") == {1, 2, 4, 5}
    short.end(in_order=True)
    scenario.run(OVER_S)
    if late == "aligns late":
        scenario.start("b")
        scenario.run(3.0)
    elif late == "starts again":
        scenario.stop("a", "b")
        scenario.start("b")
        scenario.until(lambda: scenario.complete("b"))
    before = expired(scenario)
    assert given(scenario, "b") == {4, 5}
    assert expired(scenario) - before >= 2
    if late == "starts again":
        scenario.start("a")
    scenario.settle()
    held = scenario.instances("a")
    assert held.keys() == {1, 2, 4, 5}, "the disposed one is purged"
    if alignee is Alignee.INITIAL:
        assert scenario.instances("b") == held, "sets stay equal"
    assert scenario.traced("deliver.expired")


@pytest.mark.parametrize("merge", [MergeType.MERGE, MergeType.REPLACE])
def test_a_merge_delivers_nothing_that_is_over(merge: MergeType) -> None:
    scenario = Scenario(
        node("a", priority=200, merges={"*": merge}), node("b", merges={"*": merge}), topics=(SHORT, ENDLESS)
    )
    scenario.start()
    scenario.until(scenario.complete)
    scenario.run(2.0)
    reader = scenario.reader("b")
    scenario.run(3.0)
    scenario.split("a", "b")
    for topic, number in ((0, 1), (1, 2)):
        writer = scenario.cluster.open_writer("a", topics=(topic,))
        scenario.run(1.5)
        writer.write(topic, DATA, number)
        scenario.run(1.0)
        writer.end(in_order=True)
    scenario.run(OVER_S)
    scenario.heal()
    scenario.settle()
    assert scenario.alive("b") == scenario.alive("a") == {1, 2}
    assert scenario.given(reader) == {2}
    assert expired(scenario) >= 1
