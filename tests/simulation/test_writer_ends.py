"""The ends of autodispose writers, whoever hears of them, and the return of those that were only cut off."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from engine.core.autodispose import PATIENCE_S
from engine.dataset.groups import DurabilityKind
from engine.dataset.sample import DISPOSE, UNREGISTER
from engine.simulator.options import TopicPlan
from tests.simulation.scenarios import LOST_S, NS, Scenario, node

NAMES: Final = ("n1", "n2", "n3")
APP: Final = "app"
WRITTEN: Final = frozenset(range(5))
KEPT_S: Final = 60
"""A service_cleanup_delay in which all that happens here happens, so that nothing is purged."""
DECIDED_S: Final = PATIENCE_S + LOST_S + 5.0
"""The end of a lost writer is in the sets within this time after it."""


def begin(cleanup_s: int = KEPT_S, *, seed: int = 1) -> Scenario:
    """Three nodes, and one writer that has written five instances."""
    topics = [TopicPlan(NS, "T", cleanup_delay_s=cleanup_s)]
    scenario = Scenario(*(node(name) for name in NAMES), topics=topics, seed=seed)
    scenario.start()
    scenario.until(scenario.complete)
    scenario.writer(APP, autodispose=True)
    scenario.write(APP, *sorted(WRITTEN))
    assert alive(scenario) == [set(WRITTEN)] * 3
    return scenario


def alive(scenario: Scenario) -> list[set[int]]:
    return [scenario.alive(name) for name in NAMES]


def held(scenario: Scenario) -> list[int]:
    return [len(scenario.samples(name)) for name in NAMES]


def others(scenario: Scenario) -> list[str]:
    return [name for name in NAMES if name != scenario.master("n1")]


# Ends that are heard.


def ends_in_order(scenario: Scenario) -> None:
    scenario.end_writer(APP)


def ends_unheard_by_one(scenario: Scenario) -> None:
    scenario.cut(APP, others(scenario)[0])
    scenario.end_writer(APP)


def ends_heard_by_one_that_is_not_master(scenario: Scenario) -> None:
    scenario.cut(APP, f"{scenario.master('n1')} {others(scenario)[0]}")
    scenario.end_writer(APP)


def ends_while_a_node_is_down(scenario: Scenario) -> None:
    down = others(scenario)[0]
    scenario.kill(down)
    scenario.end_writer(APP)
    scenario.run(1.0)
    scenario.start(down)
    scenario.until(scenario.complete)


SAID = [ends_in_order, ends_unheard_by_one, ends_heard_by_one_that_is_not_master, ends_while_a_node_is_down]


@pytest.mark.parametrize("end", SAID)
def test_an_end_that_a_node_hears_is_a_dispose_at_that_time_on_all(end: Callable[[Scenario], None]) -> None:
    scenario = begin()
    ended_ns = scenario.cluster.clocks[APP].wall_ns()
    end(scenario)
    scenario.heal()
    scenario.until(lambda: alive(scenario) == [set()] * 3, within_s=DECIDED_S)
    ends = {s for name in NAMES for _, s in scenario.samples(name) if s.status == DISPOSE | UNREGISTER}
    assert len(ends) == len(WRITTEN), "each node made the same, or has that of another one"
    assert all(0 <= end.source_time_ns - ended_ns < 5e9 for end in ends)
    scenario.run(DECIDED_S)  # who has not heard it finds the writer missing, which changes nothing
    assert held(scenario) == [2 * len(WRITTEN)] * 3


# Ends that no node hears.


def dies(scenario: Scenario) -> None:
    scenario.end_writer(APP, in_order=False)


def ends_cut_off(scenario: Scenario) -> None:
    scenario.cut(APP, " ".join(NAMES))
    scenario.end_writer(APP)


def dies_with_the_master(scenario: Scenario) -> None:
    scenario.kill(scenario.master("n1"))
    scenario.end_writer(APP, in_order=False)


def dies_while_all_are_down(scenario: Scenario) -> None:
    scenario.run(1.0)
    scenario.kill(*NAMES)
    scenario.end_writer(APP, in_order=False)
    scenario.run(LOST_S)


def the_master_dies_when_it_should_decide(scenario: Scenario) -> None:
    scenario.end_writer(APP, in_order=False)
    scenario.run(PATIENCE_S + 1.0)
    scenario.kill(scenario.master("n1"))


LOST = [
    dies,
    ends_cut_off,
    dies_with_the_master,
    dies_while_all_are_down,
    the_master_dies_when_it_should_decide,
]


@pytest.mark.parametrize("end", LOST)
def test_a_lost_writer_ends_once_all_have_missed_it_long_enough(end: Callable[[Scenario], None]) -> None:
    scenario = begin(cleanup_s=0)
    until_s = scenario.now + PATIENCE_S
    end(scenario)
    while scenario.now < until_s:
        up = [name for name in NAMES if scenario.node(name).is_up]
        assert all(scenario.alive(name) == set(WRITTEN) for name in up), "it may come back"
        scenario.run(1.0)
    for name in NAMES:
        scenario.start(name)
    scenario.until(scenario.complete)
    scenario.until(lambda: alive(scenario) == [set()] * 3, within_s=2 * DECIDED_S)
    scenario.until(lambda: held(scenario) == [0] * 3)
    scenario.settle()


def test_a_delay_longer_than_that_is_waited_for() -> None:
    scenario = begin(cleanup_s=30)
    scenario.end_writer(APP, in_order=False)
    scenario.run(25.0)
    assert alive(scenario) == [set(WRITTEN)] * 3
    scenario.until(lambda: alive(scenario) == [set()] * 3, within_s=DECIDED_S)


# Writers that come back.


def test_a_writer_that_one_node_has_has_not_ended() -> None:
    scenario = begin(cleanup_s=0)
    scenario.cut(APP, " ".join(NAMES[1:]))
    scenario.run(3 * PATIENCE_S)
    assert alive(scenario) == [set(WRITTEN)] * 3


def test_a_writer_was_there_before_its_name_space_was_learned() -> None:
    topics = (TopicPlan(NS, "T"), TopicPlan("ns2", "T"))
    scenario = Scenario(node("n1"), node("n2", spaces=(NS, "ns2")), topics=topics)
    scenario.start("n1")
    scenario.until(lambda: scenario.complete("n1"))
    scenario.writer(APP, 1, autodispose=True)
    scenario.start("n2")
    scenario.run(2.0)
    scenario.write(APP, *sorted(WRITTEN), topic=1)
    scenario.kill("n2")
    scenario.run(DECIDED_S)
    assert scenario.alive("n1", "ns2") == WRITTEN
    assert not scenario.traced("writer.ended"), "and came back at once"


def cut_off_from_all(scenario: Scenario) -> None:
    scenario.cut(APP, " ".join(NAMES))


def cut_off_with_a_node(scenario: Scenario) -> None:
    near = others(scenario)[0]
    scenario.cut(f"{APP} {near}", " ".join(name for name in NAMES if name != near))


def cut_off_with_the_master(scenario: Scenario) -> None:
    near = scenario.master("n1")
    scenario.cut(f"{APP} {near}", " ".join(name for name in NAMES if name != near))


@pytest.mark.parametrize("back_s", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("cut", [cut_off_from_all, cut_off_with_a_node, cut_off_with_the_master])
def test_the_return_of_a_writer_takes_its_end_back(cut: Callable[[Scenario], None], back_s: float) -> None:
    """It comes back when the end has just been decided, or later; what it wrote apart stays."""
    scenario = begin(cleanup_s=20)
    far = others(scenario)[1]
    cut(scenario)
    scenario.run(LOST_S)
    scenario.write(APP, 4, 9)
    scenario.until(lambda: not scenario.alive(far), within_s=30 + DECIDED_S)
    scenario.run(back_s)
    scenario.heal()
    scenario.run(5.0)
    scenario.write(APP, 4, 9)
    scenario.until(lambda: alive(scenario) == [WRITTEN | {9}] * 3, within_s=DECIDED_S)
    scenario.settle()
    assert alive(scenario) == [WRITTEN | {9}] * 3


@pytest.mark.parametrize("clock_s", [-3600, 3600])
def test_a_wrong_clock_does_not_keep_out_what_a_writer_writes_after_its_return(clock_s: int) -> None:
    scenario = begin(cleanup_s=0)
    scenario.end_writer(APP)
    scenario.writer("late", autodispose=True)
    scenario.cluster.clocks["late"].offset_ns = clock_s * 1_000_000_000
    scenario.write("late", 7, 8)
    scenario.cut("late", " ".join(NAMES))
    scenario.until(lambda: alive(scenario) == [set()] * 3, within_s=2 * DECIDED_S)
    scenario.heal()
    scenario.run(2.0)
    scenario.write("late", 7)
    assert [7 in each for each in alive(scenario)] == [True] * 3


# What only nodes knew that are gone.


def restarts_in_turn(scenario: Scenario) -> None:
    scenario.end_writer(APP, in_order=False)
    for name in NAMES:
        scenario.kill(name)
        scenario.run(0.5)
        scenario.start(name)
        scenario.until(scenario.complete)


def lose(scenario: Scenario, *names: str) -> None:
    """Kill nodes, and destroy their disks."""
    scenario.kill(*names)
    for name in names:
        scenario.node(name).lose_disk()


def dies_when_it_has_given_its_set(scenario: Scenario) -> None:
    scenario.end_writer(APP, in_order=False)
    lose(scenario, *NAMES[1:])
    scenario.run(LOST_S)
    scenario.start("n2")
    scenario.until(lambda: scenario.complete("n1", "n2"), step_s=0.001)
    lose(scenario, "n1")


def returns_to_one(scenario: Scenario) -> None:
    scenario.cut(APP, " ".join(NAMES))
    scenario.until(lambda: alive(scenario) == [set()] * 3, within_s=DECIDED_S)
    scenario.heal()
    scenario.cut(APP, " ".join(NAMES[1:]))
    scenario.until(lambda: alive(scenario) == [WRITTEN] * 3)
    scenario.run(LOST_S)
    scenario.end_writer(APP, in_order=False)
    lose(scenario, "n1")
    scenario.heal()


@pytest.mark.parametrize("durability", [DurabilityKind.TRANSIENT, DurabilityKind.PERSISTENT])
@pytest.mark.parametrize("change", [restarts_in_turn, dies_when_it_has_given_its_set, returns_to_one])
def test_who_has_samples_of_a_writer_finds_its_end(
    change: Callable[[Scenario], None], durability: DurabilityKind
) -> None:
    topics = [TopicPlan(NS, "T", durability)]
    scenario = Scenario(*(node(name, heartbeat_period_s=1.5) for name in NAMES), topics=topics)
    scenario.start()
    scenario.until(scenario.complete)
    scenario.writer(APP, autodispose=True)
    scenario.write(APP, *sorted(WRITTEN))
    change(scenario)
    scenario.start()
    scenario.until(scenario.complete)
    assert alive(scenario) == [WRITTEN] * 3
    scenario.until(lambda: alive(scenario) == [set()] * 3, within_s=DECIDED_S)
