"""Deleted data stays deleted, wherever the power is cut after `delete_historical_data`."""

from __future__ import annotations

import pytest

from engine.core.messages import DeleteData, Message, Purge, WritersEnded
from engine.core.name_spaces import Group
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


def delete(scenario: Scenario, name: str) -> str:
    """A client asks a node to delete up to the time of its clock; return whose clock bounds that."""
    runtime = scenario.node(name).runtime
    assert runtime is not None
    _, slow = runtime.deletions.delete("*", "*", scenario.cluster.clocks[name].wall_ns())
    runtime.turn()
    return slow


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


YEAR_NS = 365 * 86_400 * 10**9
HOUR_NS = 3600 * 10**9
WRONG = {"a year ahead": YEAR_NS, "an hour behind": -HOUR_NS, "never set": -56 * YEAR_NS}


def turn(scenario: Scenario, name: str, offset_ns: int) -> None:
    """Put the clock of a host that is up to another time."""
    scenario.cluster.clocks[name].offset_ns = offset_ns


def check_takes_in(scenario: Scenario, *names: str, besides: int = 0) -> None:
    """What a writer with the right clock writes now is on all disks, and so many other samples."""
    scenario.write("application", *range(100, 100 + SAMPLES))
    scenario.settle()
    for name in names:
        assert scenario.alive(name) >= set(range(100, 100 + SAMPLES)), name
        assert scenario.stored(name) == len(scenario.samples(name)) == SAMPLES + besides, name


@pytest.mark.parametrize("offset_ns", WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("deleter", NAMES[:2])
def test_a_wrong_clock_keeps_no_later_samples_out(deleter: str, offset_ns: int) -> None:
    scenario = Scenario(*map(node, NAMES))
    turn(scenario, "n1", offset_ns)
    scenario.start(*NAMES)
    scenario.until(lambda: scenario.complete(*NAMES))
    scenario.write("application", *range(SAMPLES))
    scenario.run(LOST_S)
    slow = delete(scenario, deleter)
    is_own = deleter == "n1"
    assert bool(slow) == (offset_ns > 0 if is_own else offset_ns == -HOUR_NS)
    stays = offset_ns < 0 and (
        is_own or offset_ns == -HOUR_NS
    )  # what is newer than the oldest clock that is set
    check_takes_in(scenario, *NAMES, besides=SAMPLES if stays else 0)


def test_a_deletion_of_an_earlier_release_is_bounded_where_it_arrives() -> None:
    scenario = filled(*NAMES)
    runtime = scenario.node("n1").runtime
    assert runtime is not None
    runtime.core.delete_data("*", "*", scenario.cluster.clocks["n1"].wall_ns() + YEAR_NS)
    runtime.turn()
    check_takes_in(scenario, *NAMES)
    assert len(scenario.traced("delete.bounded")) == 3


@pytest.mark.parametrize("is_corrected", [False, True], ids=["wrong", "corrected"])
def test_a_deletion_in_the_future_does_not_spread_from_a_set(is_corrected: bool) -> None:
    """A node deletes while nobody else hears it; then it meets the others."""
    scenario = Scenario(*map(node, NAMES))
    turn(scenario, "n1", YEAR_NS)
    scenario.start(*NAMES)
    scenario.until(lambda: scenario.complete(*NAMES))
    scenario.write("application", *range(SAMPLES))
    scenario.split("n1", "n2 n3 application")
    delete(scenario, "n1")
    scenario.run(1.0)
    assert not scenario.samples("n1")
    if is_corrected:
        turn(scenario, "n1", 0)
    scenario.heal()
    check_takes_in(scenario, *NAMES, besides=SAMPLES)
    assert scenario.traced("delete.future")


def test_a_deletion_in_the_future_ends_with_the_next_start_of_a_right_clock() -> None:
    scenario = Scenario(node("n1"))
    turn(scenario, "n1", YEAR_NS)
    scenario.start("n1")
    scenario.until(lambda: scenario.complete("n1"))
    scenario.write("application", *range(SAMPLES))
    delete(scenario, "n1")
    scenario.until(lambda: not scenario.stored("n1"))
    for told in (1, 0):
        scenario.stop("n1")
        turn(scenario, "n1", 0)
        before = len(scenario.traced("delete.future"))
        scenario.start("n1")
        scenario.until(lambda: scenario.complete("n1"))
        scenario.run(2.0)
        assert len(scenario.traced("delete.future")) - before == told
    scenario.write("application", *range(SAMPLES))
    scenario.until(lambda: scenario.stored("n1") == SAMPLES)


@pytest.mark.parametrize(
    "message",
    [DeleteData("*", "*", (1 << 63) - 1), Purge(Group("ns1", "Reading"), ()), WritersEnded("ns1", ())],
)
def test_a_stranger_deletes_nothing(message: Message) -> None:
    scenario = filled(*NAMES)
    for name in NAMES:
        runtime = scenario.node(name).runtime
        assert runtime is not None
        runtime.core.receive(message, "5" * 32, runtime.shared.clock.monotonic())
        runtime.turn()
    assert len(scenario.traced("delete.refused")) == 3
    assert not scenario.traced("purge.done")
    check_takes_in(scenario, *NAMES, besides=SAMPLES)

    # Nor does a fellow that the others have lost, but it is no stranger: nobody is warned of it.
    runtime = scenario.node("n3").runtime
    assert runtime is not None
    sender = runtime.settings.node
    scenario.kill("n3")
    scenario.run(LOST_S)
    for name in ("n1", "n2"):
        runtime = scenario.node(name).runtime
        assert runtime is not None
        assert sender not in {fellow.node for fellow in runtime.core.fellows}
        runtime.core.receive(message, sender, runtime.shared.clock.monotonic())
        runtime.turn()
    assert len(scenario.traced("delete.left-out")) == 2
    assert len(scenario.traced("delete.refused")) == 3
