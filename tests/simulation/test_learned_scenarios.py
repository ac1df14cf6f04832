"""Name-spaces that a node learns from its fellows: they outlive restarts, and give way to configurations."""

from __future__ import annotations

import msgspec
import pytest

from engine.core.name_spaces import NameSpace
from engine.simulator.options import NodePlan, TopicPlan
from tests.simulation.scenarios import LOST_S, TOPIC, Scenario, node, policy


def test_name_spaces_that_are_learned_late_become_complete_with_their_data() -> None:
    plan = node("a", spaces=("ns1", "ns2", "ns3"))
    topics = tuple(TopicPlan(space, "Reading") for space in ("ns1", "ns2", "ns3"))
    scenario = Scenario(plan, node("b", priority=10), node("c", aligner=False), topics=topics)
    scenario.start("b", "c")
    scenario.until(lambda: scenario.complete("b", "c"))
    scenario.start("a")
    scenario.until(lambda: scenario.complete("a"))
    for topic in range(3):
        scenario.write("a", topic, topic=topic)
    scenario.settle()
    for name in "abc":
        assert [scenario.alive(name, space) for space in ("ns1", "ns2", "ns3")] == [{0}, {1}, {2}]


def test_a_learned_name_space_outlives_the_fellow_that_it_was_learned_from() -> None:
    topics = (TOPIC, TopicPlan("ns2", "Reading"))
    scenario = Scenario(node("a", spaces=("ns1", "ns2")), node("b"), node("c"), topics=topics)
    scenario.start()
    scenario.settle()
    scenario.write("a", 5, topic=1)
    scenario.kill("a")
    scenario.run(LOST_S)
    assert scenario.alive("b", "ns2") == scenario.alive("c", "ns2") == {5}
    assert scenario.complete("b", "c", name_space="ns2")
    scenario.start("a")
    scenario.settle()
    assert scenario.alive("a", "ns2") == {5}


def with_a_learner() -> Scenario:
    """b has learned ns2 from a, and what was written there; both have ended."""
    topics = (TOPIC, TopicPlan("ns2", "Reading"))
    scenario = Scenario(node("a", spaces=("ns1", "ns2")), node("b"), topics=topics)
    scenario.start()
    scenario.write("a", *range(20), topic=1)
    scenario.settle()
    scenario.stop("a", "b")
    return scenario


def test_a_learned_name_space_outlives_the_restart_of_the_learner() -> None:
    scenario = with_a_learner()
    for _ in range(2):  # what was learned is remembered once more
        scenario.start("b")
        scenario.until(lambda: scenario.complete("b", name_space="ns2"))
        assert scenario.alive("b", "ns2") == set(range(20))
        reader = scenario.reader("b", topic=1)
        scenario.run(5.0)
        assert scenario.given(reader) == set(range(20))
        scenario.stop("b")
    assert len(scenario.traced("namespace.remembered", "b")) == 2


@pytest.mark.parametrize(
    "changed",
    [node("b", policies=[policy("ns1")]), node("b", spaces=("ns1", "*"))],
    ids=["no policy", "another name-space contains it"],
)
def test_a_learned_name_space_gives_way_to_the_configuration(changed: NodePlan) -> None:
    scenario = with_a_learner()
    scenario.configure(changed)
    scenario.start("b")
    scenario.until(lambda: scenario.complete("b"))
    assert [fields["namespace"] for fields in scenario.traced("namespace.left-out", "b")] == ["ns2"]
    assert scenario.stored("b") == 20


def test_a_learned_name_space_that_is_defined_anew_is_learned_anew_after_one_restart() -> None:
    scenario = with_a_learner()
    settings = node("a", spaces=("ns1", "ns2")).settings
    spaces = (NameSpace.parse("ns1", "ns1.*"), NameSpace.parse("ns2", "ns2.*", "more.*"))
    scenario.configure(NodePlan(msgspec.structs.replace(settings, name_spaces=spaces)))
    scenario.start()
    scenario.until(lambda: bool(scenario.traced("compatibility.conflict", "b")))
    scenario.stop("b")
    scenario.start("b")
    scenario.until(lambda: "a" in scenario.fellows("b"))
    scenario.until(lambda: scenario.complete("b", name_space="ns2"))
    assert scenario.alive("b", "ns2") == scenario.alive("a", "ns2") == set(range(20))
