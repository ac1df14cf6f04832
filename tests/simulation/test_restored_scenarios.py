"""Stores that are put back from copies: of every age, alone or together, before and after purging."""

from __future__ import annotations

import copy

import msgspec
import pytest

from engine.store.memory import Medium
from tests.simulation.scenarios import TOPIC, Scenario, node

NAMES = ("n1", "n2", "n3")
PRIORITIES = (200, 100, 50)
BACK_S = 10.0
DELAY_S = 5


def started(cleanup_delay_s: int = 0) -> Scenario:
    """Three nodes with samples 1 to 3 on their disks; n1 is master."""
    topic = msgspec.structs.replace(TOPIC, cleanup_delay_s=cleanup_delay_s)
    plans = [node(name, priority=one) for name, one in zip(NAMES, PRIORITIES, strict=True)]
    scenario = Scenario(*plans, topics=(topic,))
    scenario.start()
    scenario.until(lambda: scenario.complete(*NAMES))
    scenario.write("application", 1, 2, 3)
    scenario.until(lambda: [scenario.stored(name) for name in NAMES] == [3, 3, 3])
    return scenario


def copied(scenario: Scenario, name: str, *, is_down: bool) -> Medium:
    """A copy of a node's disk, made while the node is down or while it runs."""
    if is_down:
        scenario.stop(name)
    found = copy.deepcopy(scenario.node(name).medium)
    if is_down:
        scenario.start(name)
        scenario.until(lambda: scenario.complete(*NAMES))
    return found


def write_on(scenario: Scenario, *numbers: int) -> None:
    scenario.write("application", *numbers)
    scenario.until(lambda: all(set(numbers) <= scenario.alive(name) for name in NAMES))
    scenario.run(1.0)


def check_back(scenario: Scenario, *numbers: int, within_s: float = BACK_S) -> None:
    """All nodes are complete, equal and on one master soon."""
    scenario.until(
        lambda: (
            all(scenario.node(name).is_up for name in NAMES)
            and scenario.complete(*NAMES)
            and len(scenario.masters()) == 1
            and all(scenario.alive(name) == {*numbers} for name in NAMES)
        ),
        within_s,
    )
    scenario.settle()


@pytest.mark.parametrize("is_down", [True, False], ids=["stopped", "running"])
@pytest.mark.parametrize("restarts", [0, 1, 4])
@pytest.mark.parametrize("name", ["n1", "n3"])
def test_a_copy_is_recognised_on_both_sides_and_joins(name: str, restarts: int, *, is_down: bool) -> None:
    scenario = started()
    older = copied(scenario, name, is_down=is_down)
    write_on(scenario, 4, 5)
    for _ in range(restarts):
        scenario.kill(name)
        scenario.start(name)
        scenario.until(lambda: scenario.complete(*NAMES))
    assert not scenario.traced("lifecycle.outdated"), "a restart alone is no copy"
    since_s = scenario.now
    scenario.node(name).put_back(older)
    scenario.start(name)
    check_back(scenario, 1, 2, 3, 4, 5)
    assert scenario.traced("lifecycle.outdated", name, since_s)
    if not restarts:  # else its fellows' lineages may tell it before they have heard it
        others = [other for other in NAMES if other != name]
        assert any(scenario.traced("fellow.outdated", other, since_s) for other in others)
    scenario.kill(name)
    again_s = scenario.now
    scenario.start(name)
    check_back(scenario, 1, 2, 3, 4, 5)
    assert not scenario.traced("lifecycle.outdated", since_s=again_s), "its store is up to date again"


def test_a_copy_that_starts_alone_is_recognised_by_those_that_come_later() -> None:
    scenario = started()
    older = copied(scenario, "n1", is_down=True)
    write_on(scenario, 4)
    scenario.stop("n1", "n2", "n3")
    scenario.node("n1").put_back(older)
    scenario.start("n1")
    scenario.until(lambda: scenario.complete("n1"), 60.0)
    scenario.run(2.0)  # until the application has found it
    scenario.write("application", 5)
    scenario.until(lambda: 5 in scenario.alive("n1"))
    scenario.start("n2", "n3")
    check_back(scenario, 1, 2, 3, 4, 5, within_s=20.0)
    assert scenario.traced("lifecycle.outdated", "n1")


def test_copies_of_all_nodes_and_of_several_ages_join() -> None:
    scenario = started()
    copies = {}
    for number, name in enumerate(NAMES):
        copies[name] = copied(scenario, name, is_down=name == "n2")
        write_on(scenario, 10 + number)
    for name in NAMES:
        scenario.node(name).put_back(copies[name])
    scenario.start()
    check_back(scenario, 1, 2, 3, 10, 11, within_s=30.0)


def test_what_was_purged_since_the_copy_was_made_does_not_come_back() -> None:
    scenario = started(DELAY_S)
    older = copied(scenario, "n1", is_down=True)
    scenario.dispose("application", 1)
    write_on(scenario, 4)
    scenario.end_writer("application")
    scenario.until(lambda: all(1 not in scenario.instances(name) for name in NAMES), 60.0)
    scenario.run(2.0)
    scenario.node("n1").put_back(older)
    scenario.start("n1")
    check_back(scenario, 2, 3, 4)
    assert scenario.traced("store.backup", "n1"), "the older set is kept aside, and said"
