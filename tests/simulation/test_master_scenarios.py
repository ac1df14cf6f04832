"""Masters: who becomes one, who stays one, and what happens when they are lost or meet."""

from __future__ import annotations

import functools

import pytest

from engine.core.name_spaces import MAX_PRIORITY, Alignee
from engine.core.states import Phase
from engine.simulator.options import NodePlan
from engine.simulator.schedule import SimulatedClock
from tests.simulation.scenarios import LOST_S, NS, SLOW, Scenario, node, policy

ALL = ("a", "b", "c", "d", "e")


def in_order_of_ids(scenario: Scenario) -> list[str]:
    """The names of the nodes, the lowest id first."""
    return sorted(scenario.names, key=lambda name: scenario.node(name).id)


def leads(scenario: Scenario, name: str) -> bool:
    """Whether a node is complete, and master of all that are up."""
    return scenario.complete(name) and scenario.masters() == {name}


@pytest.mark.parametrize("priority", [MAX_PRIORITY, 100])
def test_a_newcomer_with_the_highest_id_follows_the_living_master_at_once(priority: int) -> None:
    plans = [node(name, priority=priority, initial_discovery_s=8.0) for name in "abc"]
    scenario = Scenario(*plans)
    first, second, newcomer = in_order_of_ids(scenario)
    scenario.start(first, second)
    scenario.until(lambda: scenario.complete(first, second))
    master = scenario.master(first)
    scenario.start(newcomer)
    scenario.until(lambda: scenario.complete(newcomer), within_s=3.0)
    scenario.settle()
    assert scenario.masters() == {master}
    followed = {s.now.following.node for s in scenario.seen.steps if s.node == newcomer and s.now.following}
    assert followed == {scenario.node(master).id}


def test_among_equals_without_stored_data_the_highest_id_is_master() -> None:
    scenario = Scenario(*(node(name, has_disk=name == "a") for name in "abc"))
    scenario.start()
    scenario.settle()
    assert scenario.masters() == {in_order_of_ids(scenario)[-1]}


@pytest.mark.parametrize(("ahead_s", "wins"), [(5, True), (365 * 86_400, False)])
def test_among_equals_samples_of_the_future_do_not_go_before_newer_data(ahead_s: int, wins: bool) -> None:
    """The second node's data is newer; the first one's comes from a writer whose clock is ahead."""
    scenario = Scenario(node("a"), node("b"))
    first, second = in_order_of_ids(scenario)
    if not wins:  # without the mend, only the quality would make it master
        first, second = second, first
    for name, offset_s in ((first, ahead_s), (second, 0)):
        scenario.start(name)
        scenario.until(functools.partial(scenario.complete, name))
        scenario.cluster.clocks[f"app {name}"] = SimulatedClock(
            scenario.cluster.schedule, offset_ns=offset_s * 1_000_000_000
        )
        scenario.write(f"app {name}", 1)
        scenario.end_writer(f"app {name}")
        scenario.stop(name)
    scenario.start()
    scenario.settle()
    assert scenario.masters() == {first if wins else second}
    qualities = [scenario.state(name).quality_ns for name in (first, second)]
    assert min(qualities) > 0, "a set is there, whatever its times"
    assert (qualities[0] > qualities[1]) is wins


def test_among_equals_stored_data_goes_before_the_id() -> None:
    scenario = Scenario(*(node(name) for name in "abc"))
    best = in_order_of_ids(scenario)[0]
    scenario.start(best)
    scenario.until(lambda: scenario.complete(best))
    scenario.write(best, 1)
    scenario.stop(best)
    scenario.start()
    scenario.settle()
    assert scenario.masters() == {best}
    assert scenario.alive("a") == scenario.alive("b") == {1}


@pytest.mark.parametrize("seed", range(1, 5))
def test_stored_data_goes_before_the_id_beside_a_holder_that_gives_nothing(seed: int) -> None:
    """A non-aligner that holds the set injects nothing: what is injected beside it should be the best."""
    # Discovery lasts longer than it takes two nodes to find each other at most.
    plans = [node(name, aligner=name != "x", initial_discovery_s=1.0) for name in ("a", "b", "x")]
    scenario = Scenario(*plans, seed=seed)
    scenario.start()
    scenario.until(scenario.complete)
    scenario.stop("b")
    scenario.write("a", 1, 2)
    scenario.stop("a")
    scenario.run(LOST_S)
    scenario.start("b", "a")
    scenario.settle()
    assert scenario.masters() == {"a"}
    assert scenario.alive("b") == {1, 2}


def test_nodes_that_may_not_be_master_do_not_align_from_each_other() -> None:
    scenario = Scenario(node("a", priority=0), node("b", priority=0), node("c"))
    scenario.start("a")
    scenario.run(15.0)
    scenario.start("b")
    scenario.run(15.0)
    assert not scenario.streams()
    assert not scenario.is_operational("a")
    assert not scenario.is_operational("b")
    scenario.start("c")
    scenario.settle()
    assert scenario.masters() == {"c"}


def test_nobody_follows_a_node_that_is_gone() -> None:
    scenario = Scenario(node("a", priority=200), node("b"), node("c", priority=50), node("d", priority=10))
    scenario.start("a", "b", "c")
    scenario.until(lambda: scenario.complete("a", "b", "c"))
    scenario.kill("a")
    dead = scenario.now
    scenario.run(1.0)  # nobody has noticed
    scenario.start("d")
    scenario.run(LOST_S + 4.0)
    assert scenario.masters() == {"b"}
    scenario.start("a")
    scenario.settle()
    taken = [s.node for s in scenario.seen.steps if s.time_s > dead and s.now.phase is Phase.SOURCE]
    assert taken == []


def test_many_isolated_masters_that_meet_at_once_become_one_and_sets_move_once() -> None:
    scenario = Scenario(*(node(name, priority=10 + number) for number, name in enumerate(ALL)))
    for name in ALL:
        scenario.cut(name, " ".join(ALL))
    scenario.start()
    for number, name in enumerate(ALL):
        scenario.until(functools.partial(scenario.complete, name))
        scenario.write(name, number)
    assert scenario.masters() == set(ALL)
    healed = scenario.now
    scenario.heal()
    scenario.settle()
    assert scenario.masters() == {"e"}
    assert all(scenario.alive(name) == set(range(len(ALL))) for name in ALL)
    moved = sum(len(stream.receivers) for stream in scenario.streams(healed))
    assert moved <= len(ALL) * (len(ALL) - 1), "one set each way for each pair that meets at its own time"


@pytest.mark.parametrize("seed", range(1, 5))
def test_changes_of_topology_that_come_together_end_with_one_master(seed: int) -> None:
    scenario = Scenario(*(node(name) for name in ALL), seed=seed)
    scenario.start(spread_s=0.2)
    scenario.cut("a b", "c d e")
    scenario.kill("e")
    scenario.run(1.9)
    scenario.heal()
    scenario.cut("a c", "b d e")
    scenario.start("e")
    scenario.run(2.1)
    scenario.heal()
    scenario.stop("c")
    scenario.cut("d", "a", both=False)
    scenario.run(1.0)
    scenario.start("c")
    scenario.heal()
    scenario.settle()
    assert len(scenario.masters()) == 1


@pytest.mark.parametrize("gap_s", [0.1, 0.7, 1.6, 1.9, 2.1, 2.5, 3.5, 5.0, 9.0])
@pytest.mark.parametrize("priority", [MAX_PRIORITY, 100])
def test_a_fellow_that_returns_after_any_gap_has_everything(gap_s: float, priority: int) -> None:
    scenario = Scenario(*(node(name, priority=priority) for name in "abc"))
    scenario.start()
    scenario.until(scenario.complete)
    scenario.writer("a")
    scenario.writer("b")
    scenario.cut("a", "b c")
    scenario.run(gap_s / 2)
    scenario.write("a", 1, wait_s=0.0)
    scenario.write("b", 2, wait_s=gap_s / 2)
    scenario.heal()
    scenario.settle()
    assert [scenario.alive(name) for name in "abc"] == [{1, 2}] * 3
    assert len(scenario.masters()) == 1


DEPENDENT = {
    "a non-aligner": node("b", aligner=False),
    "never a master": node("b", priority=0),
    "a lazy non-aligner": node("b", aligner=False, alignee=Alignee.LAZY),
}


@pytest.mark.parametrize("kind", DEPENDENT)
@pytest.mark.parametrize("gap_s", [1.5, 2.2, 4.0, 12.0])
def test_who_depends_on_the_master_has_everything_after_it_reconnects(kind: str, gap_s: float) -> None:
    scenario = Scenario(node("a"), DEPENDENT[kind])
    scenario.start()
    scenario.reader("b")
    scenario.until(scenario.complete)
    scenario.write("a", 1)
    scenario.cut("a", "b")
    scenario.run(gap_s)
    scenario.write("a", 2, 3, wait_s=0.0)
    scenario.dispose("a", 1)
    scenario.heal()
    scenario.settle()
    assert scenario.alive("b") == {2, 3}


@pytest.mark.parametrize("kind", DEPENDENT)
def test_who_depends_on_the_master_has_everything_after_it_was_started_again(kind: str) -> None:
    scenario = Scenario(node("a"), DEPENDENT[kind])
    scenario.start()
    scenario.reader("b")
    scenario.until(scenario.complete)
    scenario.write("a", 1)
    scenario.kill("a")
    scenario.run(LOST_S)
    assert scenario.master("b") == ""
    scenario.start("a")
    scenario.settle()
    late = scenario.reader("b")
    scenario.settle()
    assert scenario.alive("b") == scenario.given(late) == {1}


def test_the_loss_of_a_fellow_that_is_not_master_disturbs_nobody() -> None:
    scenario = Scenario(node("a"), node("b", priority=0), node("c", aligner=False), node("d", priority=1))
    scenario.start()
    scenario.settle()
    before = scenario.now
    scenario.kill("d")
    scenario.run(20.0)
    assert [s for s in scenario.seen.steps if s.time_s > before and s.node != "d"] == []
    assert scenario.streams(before) == []
    scenario.start("d")
    scenario.settle()


def test_a_better_master_that_joins_takes_over_and_injects_nothing() -> None:
    scenario = Scenario(node("a", priority=10), node("b", priority=20), node("c", priority=30))
    for name in "abc":
        scenario.start(name)
        scenario.until(functools.partial(leads, scenario, name))
        scenario.write(name, ord(name))
    scenario.settle()
    assert len(scenario.traced("injection.started")) <= 1
    assert scenario.alive("c") == {ord(name) for name in "abc"}


def test_each_name_space_has_the_master_that_its_own_priorities_say() -> None:
    def plan(name: str, first: int, second: int) -> NodePlan:
        policies = (policy("ns1", priority=first), policy("ns2", priority=second))
        return node(name, spaces=("ns1", "ns2"), policies=policies)

    scenario = Scenario(plan("a", 200, MAX_PRIORITY), plan("b", 100, MAX_PRIORITY), plan("c", 50, 255))
    scenario.start()
    scenario.settle()
    assert scenario.masters("ns1") == {"a"}
    assert scenario.masters("ns2") == {in_order_of_ids(scenario)[-1]}


def test_a_master_that_is_lost_while_it_merges_is_replaced_and_the_rest_is_whole() -> None:
    scenario = Scenario(*(node(name, priority=ord(name)) for name in "abcd"), network=SLOW)
    scenario.start()
    scenario.until(scenario.complete)
    scenario.writer("a")
    scenario.writer("d")
    scenario.split("a b", "c d")
    scenario.write("a", 1, 2, size=1000)
    scenario.write("d", 3, 4, size=1000)
    scenario.heal()
    scenario.until(lambda: scenario.phase("d") is Phase.MERGE)
    scenario.run(0.5)
    scenario.kill("d")
    scenario.until(lambda: scenario.masters() == {"c"} and scenario.complete("a", "b", "c"))
    scenario.until(lambda: all(scenario.alive(name) == {1, 2, 3, 4} for name in "abc"))
    scenario.start("d")
    scenario.settle()
    assert scenario.alive("d") == {1, 2, 3, 4}


def test_masters_of_data_that_may_still_be_injected_agree_when_they_meet() -> None:
    scenario = Scenario(*(node(name, delayed_alignment=True) for name in "abc"))
    scenario.start()
    scenario.until(scenario.complete)
    scenario.write("a", 1)
    scenario.stop("a", "b", "c")
    scenario.cut("a", "b c")
    scenario.start()
    scenario.run(LOST_S)
    assert len(scenario.masters()) == 2
    scenario.heal()
    scenario.settle()
    assert len(scenario.masters(NS)) == 1
    assert scenario.alive("a") == scenario.alive("b") == scenario.alive("c") == {1}
