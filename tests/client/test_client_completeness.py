"""What clients are told of a name-space while it merges."""

from __future__ import annotations

from engine.client_service.service import Answers
from engine.core.name_spaces import Group, Interest, MergeType
from engine.core.states import Phase
from engine.dds.client_protocol.messages import Completeness
from tests.simulation.scenarios import SLOW, TOPIC, Scenario, node


def completeness(scenario: Scenario, name: str) -> list[Completeness]:
    runtime = scenario.node(name).runtime
    assert runtime is not None
    held = Answers(runtime, lambda _: (), lambda _: ())
    interest = Interest(TOPIC.topic, (TOPIC.partition,))
    return [
        held.completeness(state, Group(TOPIC.partition, TOPIC.topic)) for state in held.name_spaces(interest)
    ]


def test_a_set_that_is_being_merged_is_not_complete_and_is_when_it_is_done() -> None:
    merges = {"*": MergeType.MERGE}
    scenario = Scenario(*(node(name, priority=ord(name), merges=merges) for name in "ab"), network=SLOW)
    scenario.start()
    scenario.until(scenario.complete)
    assert completeness(scenario, "a") == [Completeness.COMPLETE]
    scenario.split("a", "b")
    scenario.write("a", 1)
    scenario.write("b", 2, 3, 4, size=1000)
    scenario.heal()
    scenario.until(lambda: scenario.phase("a") is Phase.MERGE)
    assert completeness(scenario, "a") == [Completeness.INCOMPLETE]
    scenario.settle()
    assert completeness(scenario, "a") == [Completeness.COMPLETE]
    assert scenario.alive("a") == {1, 2, 3, 4}
