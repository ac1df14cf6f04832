"""A node comes back with samples of a topic that its fellow has never heard of."""

from __future__ import annotations

import pytest

from engine.core.name_spaces import MergeType
from engine.simulator.options import TopicPlan
from tests.simulation.scenarios import NS, Scenario, node

OLD, NEW = 0, 1
COMMON = 200
"""Enough for the aligner to send what differs instead of its whole set."""


@pytest.mark.parametrize("policy", [MergeType.REPLACE, MergeType.CATCHUP, MergeType.MERGE])
@pytest.mark.parametrize("priorities", [(100, 100), (200, 100), (100, 200)], ids=str)
def test_what_a_node_stored_alone_of_a_new_topic_is_not_lost(
    policy: MergeType, priorities: tuple[int, int]
) -> None:
    plans = [
        node(name, priority=priority, merges={"*": policy}, initial_discovery_s=3.0)
        for name, priority in zip("ab", priorities, strict=True)
    ]
    scenario = Scenario(*plans, topics=[TopicPlan(NS, "Old"), TopicPlan(NS, "New")])
    scenario.start()
    scenario.until(scenario.complete)
    scenario.writer("a", OLD)
    scenario.write("a", *range(COMMON), topic=OLD)
    scenario.end_writer("a")
    scenario.stop("b")
    scenario.writer("a", NEW)
    scenario.write("a", *range(21), topic=NEW)
    scenario.end_writer("a")
    scenario.kill("a")
    scenario.start("b")
    scenario.until(lambda: scenario.complete("b"))
    scenario.writer("b", OLD)
    scenario.write("b", COMMON, topic=OLD)
    scenario.start("a")
    scenario.settle()
    for name in "ab":
        assert scenario.instances(name, topic=NEW).keys() == set(range(21))
        assert scenario.instances(name, topic=OLD).keys() == set(range(COMMON + 1))
