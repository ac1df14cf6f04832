"""When an instance is forgotten: disposed, without writers, and for longer than service_cleanup_delay."""

from __future__ import annotations

import dataclasses

import pytest

from engine.simulator.options import TopicPlan
from tests.simulation.scenarios import TOPIC, Scenario, node

DELAY_S = 20


def started(delay_s: int = DELAY_S) -> Scenario:
    """Two nodes; the application on a has written 1 and 2, and disposed 1."""
    plan: TopicPlan = dataclasses.replace(TOPIC, cleanup_delay_s=delay_s)
    scenario = Scenario(node("a", priority=200), node("b"), topics=(plan,))
    scenario.start()
    scenario.until(scenario.complete)
    scenario.write("a", 1, 2)
    scenario.dispose("a", 1)
    return scenario


def check_kept(scenario: Scenario, *numbers: int) -> None:
    """What both nodes know of."""
    assert [set(scenario.instances(name)) for name in scenario.names] == [set(numbers)] * 2


def test_a_disposed_instance_is_kept_while_its_writer_is_alive() -> None:
    scenario = started()
    scenario.run(5 * DELAY_S)
    check_kept(scenario, 1, 2)


def test_the_delay_begins_when_the_last_writer_is_gone_and_not_with_the_dispose() -> None:
    scenario = started()
    scenario.run(5 * DELAY_S)
    scenario.end_writer("a")
    scenario.run(DELAY_S - 3)
    check_kept(scenario, 1, 2)
    scenario.run(6)
    check_kept(scenario, 2)


def test_the_writer_of_another_instance_holds_nothing_up_once_it_unregisters() -> None:
    scenario = started()
    scenario.unregister("a", 1)
    scenario.run(DELAY_S - 3)
    check_kept(scenario, 1, 2)
    scenario.run(6)
    check_kept(scenario, 2)


def test_an_instance_that_is_not_disposed_is_kept_without_writers() -> None:
    scenario = started()
    scenario.unregister("a", 2)
    scenario.end_writer("a")
    scenario.run(5 * DELAY_S)
    check_kept(scenario, 2)


def test_after_a_restart_the_delay_begins_anew() -> None:
    scenario = started()
    scenario.end_writer("a")
    scenario.stop("a", "b")
    scenario.run(5 * DELAY_S)
    scenario.start("a", "b")
    scenario.until(scenario.complete)
    check_kept(scenario, 1, 2)
    scenario.run(DELAY_S + 5)
    check_kept(scenario, 2)


@pytest.mark.parametrize(("delay_s", "kept"), [(-1, {1, 2}), (0, {2})], ids=["infinite", "none"])
def test_an_infinite_delay_never_ends_and_none_ends_at_once(delay_s: int, kept: set[int]) -> None:
    scenario = started(delay_s)
    scenario.end_writer("a")
    scenario.run(5.0)
    check_kept(scenario, *kept)
