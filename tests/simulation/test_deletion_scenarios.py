"""Deleted data stays deleted, wherever the power is cut after `delete_historical_data`."""

from __future__ import annotations

import pytest

from tests.simulation.scenarios import LOST_S, Scenario, node

NAMES = ("n1", "n2", "n3")
SAMPLES = 20
SLOW = 10_000.0
"""A disk that is slower by this factor carries out nothing before the power is cut."""


def filled(*names: str) -> Scenario:
    """Some of three nodes are up and have the same samples on their disks."""
    scenario = Scenario(*map(node, NAMES))
    scenario.start(*names)
    scenario.until(lambda: scenario.complete(*names))
    scenario.write("application", *range(SAMPLES))
    scenario.until(lambda: [scenario.stored(name) for name in names] == [SAMPLES] * len(names))
    return scenario


def delete(scenario: Scenario, name: str) -> None:
    """A client asks a node to delete everything."""
    runtime = scenario.node(name).runtime
    assert runtime is not None
    runtime.core.delete_data("*", "*", scenario.cluster.clocks[name].wall_ns())
    runtime.turn()


def check_nothing_comes_back(scenario: Scenario, *names: str) -> None:
    """Nodes start, the first of them alone, and have nothing in the end, in memory and on disk."""
    scenario.start(names[0])
    scenario.until(lambda: scenario.complete(names[0]))
    scenario.start(*names[1:])
    scenario.until(lambda: scenario.complete(*names))
    scenario.run(LOST_S)
    assert [scenario.samples(name) for name in names] == [[]] * len(names)
    scenario.settle()
    assert [scenario.stored(name) for name in names] == [0] * len(names)


@pytest.mark.parametrize("first", NAMES)
@pytest.mark.parametrize("quick", [("n1",), ("n1", "n2")], ids="-".join)
def test_what_one_disk_has_deleted_stays_deleted_whoever_starts_first(
    quick: tuple[str, ...], first: str
) -> None:
    scenario = filled(*NAMES)
    for name in {*NAMES} - {*quick}:
        scenario.node(name).disk.slowness = SLOW
    delete(scenario, quick[0])
    scenario.until(lambda: not any(map(scenario.stored, quick)), step_s=0.0001)
    scenario.kill(*NAMES)
    assert [scenario.stored(name) for name in NAMES] == [0 if name in quick else SAMPLES for name in NAMES]
    check_nothing_comes_back(scenario, first, *(name for name in NAMES if name != first))


def test_a_deletion_that_a_node_heard_of_later_survives_the_power_cut_too() -> None:
    scenario = filled(*NAMES)
    scenario.split("n3", "n1 n2 application")
    scenario.node("n2").disk.slowness = SLOW
    delete(scenario, "n1")
    scenario.heal()
    scenario.until(lambda: not scenario.stored("n3"), step_s=0.0001)
    scenario.kill(*NAMES)
    scenario.node("n1").lose_disk()
    check_nothing_comes_back(scenario, "n2", "n3", "n1")


@pytest.mark.parametrize("first", ["n2", "n3"])
def test_a_node_that_came_after_the_deletion_remembers_it(first: str) -> None:
    scenario = filled("n1", "n2")
    scenario.node("n2").disk.slowness = SLOW
    delete(scenario, "n1")
    scenario.start("n3")
    scenario.until(lambda: scenario.complete("n3"))
    scenario.run(1.0)
    assert [scenario.stored(name) for name in NAMES] == [0, SAMPLES, 0]
    scenario.kill(*NAMES)
    scenario.node("n1").lose_disk()
    others = sorted({"n2", "n3"}, key=lambda name: name != first)
    check_nothing_comes_back(scenario, *others, "n1")
