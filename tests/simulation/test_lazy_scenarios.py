"""Nodes whose alignee is Lazy: they keep what readers on their host want, and nothing else (5.2.3.1)."""

from __future__ import annotations

import pytest

from engine.core.name_spaces import Alignee, Element, MergeType
from engine.core.states import Phase
from engine.simulator.options import NodePlan, TopicPlan
from tests.simulation.scenarios import NS, Scenario, node

TOPICS = (TopicPlan(NS, "Wanted"), TopicPlan(NS, "Other"))
FIRST, OTHER = 0, 1

DISCOVERY_S = 5.0
"""A node that starts beside others has heard them when its discovery ends."""


def system(*, aligner: bool = True, priority: int = 100, **more: object) -> Scenario:
    """A node that keeps everything, and a Lazy one."""
    lazy = node("lazy", priority=priority, alignee=Alignee.LAZY, aligner=aligner, **more)  # type: ignore[arg-type]  # forwarded options
    return Scenario(node("keeper", priority=50), lazy, topics=TOPICS)


def test_lazy_node_obtains_what_a_reader_on_its_host_wants_and_nothing_else() -> None:
    scenario = system()
    scenario.start()
    scenario.write("keeper", 1, 2, topic=FIRST)
    scenario.write("keeper", 3, 4, topic=OTHER)
    assert scenario.phase("lazy") is Phase.PASSIVE
    assert scenario.alive("lazy") == set()
    reader = scenario.reader("lazy", FIRST)
    scenario.until(lambda: bool(reader.served))
    scenario.settle()
    scenario.write("keeper", 5, topic=FIRST)
    scenario.write("keeper", 6, topic=OTHER)
    scenario.settle()
    assert scenario.alive("lazy", topic=FIRST) == {1, 2, 5}
    assert scenario.alive("lazy", topic=OTHER) == set()
    assert scenario.given(reader) == {1, 2}
    assert {server.name for _, server, _ in reader.served} == {"lazy"}


def test_further_readers_extend_the_part_by_what_they_want() -> None:
    scenario = system()
    scenario.start()
    scenario.write("keeper", *range(1, 31), topic=FIRST)
    scenario.write("keeper", *range(31, 61), topic=OTHER)
    scenario.reader("lazy", FIRST)
    scenario.until(lambda: scenario.complete("lazy"))
    scenario.settle()
    before = scenario.now
    late = scenario.reader("lazy", OTHER)
    scenario.until(lambda: bool(late.served))
    scenario.settle()
    assert scenario.alive("lazy", topic=OTHER) == set(range(31, 61))
    assert scenario.given(late) == set(range(31, 61))
    assert {server.name for _, server, _ in late.served} == {"lazy"}
    asked = [fields["elements"] for fields in scenario.traced("align.extending", "lazy", before)]
    assert asked == [f"{NS}.Other"]


def test_lazy_node_is_no_source_and_no_master_for_anybody() -> None:
    scenario = system(priority=255)
    scenario.start("lazy")
    scenario.reader("lazy", FIRST)
    scenario.until(lambda: scenario.complete("lazy"))
    scenario.write("lazy", 1, 2, topic=FIRST)
    scenario.write("lazy", 3, topic=OTHER)
    scenario.start("keeper")
    scenario.settle()
    assert scenario.masters() == {"keeper"}
    assert scenario.alive("keeper", topic=FIRST) == {1, 2}
    assert scenario.traced("conflict.combine", "keeper"), "it began with what the Lazy node had"


def test_readers_on_other_hosts_get_nothing_from_a_part() -> None:
    scenario = system()
    scenario.start()
    scenario.reader("lazy", FIRST)
    scenario.write("keeper", 1, topic=FIRST)
    scenario.settle()
    scenario.kill("keeper")
    scenario.run(10)
    near, far = scenario.reader("lazy", FIRST), scenario.reader("elsewhere", FIRST)
    scenario.run(5)
    assert scenario.given(near) == {1}
    assert not far.served


@pytest.mark.parametrize(
    ("of_keeper", "of_lazy", "kept_by_keeper", "kept_by_lazy"),
    [
        (MergeType.MERGE, MergeType.MERGE, {1, 2, 3}, {1, 2, 3}),
        (MergeType.MERGE, MergeType.IGNORE, {1, 2}, {1, 3}),
        (MergeType.MERGE, MergeType.REPLACE, {1, 2}, {1, 2}),
        (MergeType.MERGE, MergeType.CATCHUP, {1, 2}, {1, 2}),
        (MergeType.IGNORE, MergeType.MERGE, {1, 2}, {1, 2, 3}),
        (MergeType.MERGE, MergeType.DELETE, {1, 2}, set()),
    ],
)
def test_part_that_evolved_apart_follows_the_policies(
    of_keeper: MergeType, of_lazy: MergeType, kept_by_keeper: set[int], kept_by_lazy: set[int]
) -> None:
    scenario = Scenario(
        node("keeper", merges={"*": of_keeper}),
        node("lazy", alignee=Alignee.LAZY, merges={"*": of_lazy}),
        topics=TOPICS,
    )
    scenario.start()
    scenario.reader("lazy", FIRST)
    scenario.write("keeper", 1, topic=FIRST)
    scenario.write("keeper", 9, topic=OTHER)
    scenario.settle()
    scenario.split("keeper", "lazy")
    scenario.write("keeper", 2, topic=FIRST)
    scenario.write("lazy", 3, topic=FIRST)
    scenario.heal()
    scenario.settle()
    assert scenario.alive("keeper", topic=FIRST) == kept_by_keeper
    assert scenario.alive("lazy", topic=FIRST) == kept_by_lazy
    assert scenario.alive("lazy", topic=OTHER) == set()
    assert scenario.alive("keeper", topic=OTHER) == {9}


def test_stored_part_is_maintained_after_a_restart_and_what_only_it_has_comes_to_all() -> None:
    scenario = system()
    scenario.start()
    scenario.reader("lazy", FIRST)
    scenario.settle()
    scenario.kill("keeper")
    scenario.run(10)
    scenario.write("lazy", 1, 2, topic=FIRST)
    scenario.until(lambda: scenario.stored("lazy") == 2)
    scenario.kill("lazy")
    scenario.start("keeper")
    scenario.run(10)
    scenario.write("keeper", 3, topic=FIRST)
    scenario.write("keeper", 4, topic=OTHER)
    scenario.start("lazy")
    scenario.settle()
    assert scenario.alive("keeper", topic=FIRST) == {1, 2, 3}
    assert scenario.alive("lazy") == {1, 2, 3}


def test_stored_part_is_never_injected_as_the_set_of_a_node_that_is_lazy_no_more() -> None:
    scenario = system()
    scenario.start()
    scenario.reader("lazy", FIRST)
    scenario.write("keeper", 1, topic=FIRST)
    scenario.write("keeper", 2, topic=OTHER)
    scenario.settle()
    scenario.write("keeper", 3, topic=FIRST)
    scenario.settle()
    scenario.stop("lazy", "keeper")
    for name in ("keeper", "lazy"):
        scenario.configure(node(name, priority=255, initial_discovery_s=DISCOVERY_S))
    scenario.start()
    scenario.settle()
    assert scenario.masters() == {"keeper"}
    assert scenario.alive("lazy") == scenario.alive("keeper") == {1, 2, 3}


def test_lazy_nodes_among_themselves_give_each_other_what_they_have() -> None:
    lazy = {"alignee": Alignee.LAZY}
    scenario = Scenario(node("a", **lazy), node("b", **lazy), topics=TOPICS)  # type: ignore[arg-type]  # forwarded options
    scenario.start()
    scenario.reader("a", FIRST)
    scenario.until(lambda: scenario.complete("a"))
    scenario.write("a", 1, topic=FIRST)
    scenario.write("a", 2, topic=OTHER)
    reader = scenario.reader("b", FIRST)
    other = scenario.reader("b", OTHER)
    scenario.run(10)
    assert scenario.given(reader) == {1}
    assert other.served, "of what nobody kept there is nothing, and that is said"
    assert scenario.given(other) == set()


def has_all(scenario: Scenario, name: str, topic: int) -> bool:
    """Whether a node knows that it has all that there is of a topic."""
    plan = TOPICS[topic]
    return scenario.state(name).has_all([Element(plan.partition, plan.topic)])


def alone_with_a_part(*later: NodePlan) -> Scenario:
    """The Lazy node has obtained one topic, and is the only one that is left. Others are for later."""
    lazy = node("lazy", alignee=Alignee.LAZY)
    scenario = Scenario(
        node("keeper", priority=50, initial_discovery_s=DISCOVERY_S), lazy, *later, topics=TOPICS
    )
    scenario.start("keeper", "lazy")
    scenario.write("keeper", 1, 2, topic=FIRST)
    scenario.write("keeper", 3, 4, topic=OTHER)
    scenario.reader("lazy", FIRST)
    scenario.until(lambda: scenario.complete("lazy") and scenario.stored("lazy") == 2)
    scenario.run(10)
    scenario.kill("keeper")
    scenario.run(10)
    return scenario


def test_part_is_whole_in_what_came_from_a_whole_set_and_in_nothing_else() -> None:
    scenario = alone_with_a_part()
    late = scenario.reader("lazy", OTHER)
    scenario.until(lambda: bool(late.served))
    assert has_all(scenario, "lazy", FIRST)
    assert not has_all(scenario, "lazy", OTHER), "nobody can tell whether nothing is all that there is"
    scenario.kill("lazy")
    scenario.start("lazy")
    scenario.until(lambda: scenario.complete("lazy"))
    assert has_all(scenario, "lazy", FIRST)
    assert not has_all(scenario, "lazy", OTHER)
    scenario.start("keeper")
    scenario.settle()
    assert has_all(scenario, "lazy", OTHER)


def test_what_was_wanted_is_remembered_although_there_was_no_sample_of_it() -> None:
    scenario = system()
    scenario.start()
    reader = scenario.reader("lazy", OTHER)
    scenario.settle()
    reader.end(in_order=True)
    scenario.kill("lazy")
    scenario.write("keeper", 1, topic=OTHER)
    scenario.start("lazy")
    scenario.settle()
    assert scenario.alive("lazy") == {1}


def test_set_of_a_former_initial_node_stays_whole_when_it_is_lazy() -> None:
    scenario = Scenario(node("keeper"), node("lazy"), topics=TOPICS)
    scenario.start()
    scenario.write("keeper", 1, topic=FIRST)
    scenario.settle()
    scenario.stop("keeper", "lazy")
    scenario.configure(node("lazy", alignee=Alignee.LAZY))
    scenario.start("lazy")
    scenario.until(lambda: scenario.complete("lazy"))
    assert has_all(scenario, "lazy", FIRST)


def test_set_that_comes_from_parts_says_so_until_it_has_joined_a_whole_one() -> None:
    scenario = alone_with_a_part()
    scenario.kill("lazy")
    scenario.configure(node("lazy", priority=255))
    scenario.start("lazy")
    scenario.until(lambda: scenario.complete("lazy"))
    assert scenario.traced("store.from-parts", "lazy") == [{"namespace": NS}]
    assert has_all(scenario, "lazy", FIRST)
    assert not has_all(scenario, "lazy", OTHER)
    scenario.kill("lazy")
    scenario.start("lazy")
    scenario.until(lambda: scenario.complete("lazy"))
    assert scenario.state("lazy").from_parts, "it is remembered"

    scenario.start("keeper")
    scenario.settle()
    assert scenario.alive("lazy") == {1, 2, 3, 4}
    assert scenario.traced("store.parts-completed", "lazy") == [{"namespace": NS, "fellow": "keeper"}]
    assert has_all(scenario, "lazy", OTHER)
    scenario.stop("lazy", "keeper")
    scenario.start("lazy")
    scenario.until(lambda: scenario.complete("lazy"))
    assert not scenario.state("lazy").from_parts
    assert len(scenario.traced("store.from-parts")) == 2


def test_node_that_takes_a_set_that_comes_from_parts_does_not_call_it_whole() -> None:
    scenario = alone_with_a_part(node("fresh", initial_discovery_s=DISCOVERY_S))
    scenario.kill("lazy")
    scenario.configure(node("lazy", priority=255))
    scenario.start("lazy")
    scenario.until(lambda: scenario.complete("lazy"))
    scenario.start("fresh")
    scenario.until(lambda: scenario.complete("fresh"))
    assert scenario.state("lazy").from_parts
    assert scenario.state("fresh").from_parts
    scenario.stop("fresh", "lazy")
    scenario.start("fresh", "lazy")
    scenario.until(lambda: scenario.complete("fresh", "lazy"))
    scenario.run(10)
    assert scenario.state("lazy").from_parts
    assert scenario.state("fresh").from_parts


def test_part_wins_over_no_whole_set_whatever_its_priority() -> None:
    scenario = alone_with_a_part()
    scenario.kill("lazy")
    scenario.configure(node("lazy", priority=255, initial_discovery_s=DISCOVERY_S))
    scenario.start("lazy", "keeper")
    scenario.settle()
    injected = scenario.traced("injection.started")
    assert [fields["samples"] for fields in injected][-1] == 4, "the keeper's"
    assert scenario.alive("lazy") == scenario.alive("keeper") == {1, 2, 3, 4}
    assert not scenario.traced("store.from-parts")
