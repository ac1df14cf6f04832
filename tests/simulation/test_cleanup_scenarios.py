"""When an instance is forgotten: disposed, without writers, and for longer than service_cleanup_delay."""

from __future__ import annotations

import msgspec
import pytest

from engine.dataset.sample import DATA, DISPOSE, UNREGISTER
from engine.simulator.options import TopicPlan
from tests.simulation.scenarios import BUSY_KEYS, TOPIC, Scenario, node

DELAY_S = 20


def started(delay_s: int = DELAY_S, writer: str = "a", skew_s: float = 0.0) -> Scenario:
    """Two nodes; an application, whose clock is wrong by `skew_s`, has written 1 and 2, and disposed 1."""
    plan: TopicPlan = msgspec.structs.replace(TOPIC, cleanup_delay_s=delay_s)
    scenario = Scenario(node("a", priority=200), node("b"), topics=(plan,))
    scenario.start()
    scenario.until(scenario.complete)
    scenario.writer(writer)
    scenario.cluster.clocks[writer].offset_ns += int(skew_s * 1e9)
    scenario.write(writer, 1, 2)
    scenario.dispose(writer, 1)
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


@pytest.mark.parametrize("skew_s", [-3600.0, 30.0], ids=["slow by 1 h", "fast by 30 s"])
@pytest.mark.parametrize("unregisters", [True, False], ids=["unregistered", "writer ended"])
def test_the_delay_is_that_of_the_service_whatever_the_clock_of_the_writer(
    skew_s: float, unregisters: bool
) -> None:
    scenario = started(writer="elsewhere", skew_s=skew_s)
    if unregisters:
        scenario.run(DELAY_S)
        scenario.unregister("elsewhere", 1)
    else:
        scenario.end_writer("elsewhere")
    scenario.run(DELAY_S - 4)
    check_kept(scenario, 1, 2)
    scenario.run(8)
    check_kept(scenario, 2)


@pytest.mark.parametrize("skew_s", [-3600.0, 30.0], ids=["slow by 1 h", "fast by 30 s"])
def test_traffic_does_not_keep_what_a_writer_with_a_wrong_clock_disposed(skew_s: float) -> None:
    scenario = started(delay_s=2, writer="elsewhere", skew_s=skew_s)
    scenario.keep_writing(scenario.writer("b"), 0, pause_s=0.02)
    other = BUSY_KEYS + 1
    for status in (DATA, DISPOSE, UNREGISTER):
        scenario.write("elsewhere", other, status=status)
    assert other in scenario.instances("a")
    scenario.until(lambda: other not in scenario.instances("a"), within_s=20.0)


def test_a_new_master_does_not_begin_to_count_anew() -> None:
    scenario = started()
    scenario.end_writer("a")
    scenario.run(DELAY_S - 8)
    scenario.stop("a")
    scenario.until(lambda: scenario.master("b") == "b")
    scenario.configure(node("a", priority=50))
    scenario.start("a")
    scenario.until(scenario.complete)
    scenario.run(12)
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


@pytest.mark.parametrize("unregisters", [True, False], ids=["unregisters", "ends"])
def test_a_writer_whose_sample_another_one_replaced_holds_the_instance(unregisters: bool) -> None:
    scenario = started()
    scenario.writer("elsewhere")
    for writer in ("elsewhere", "b"):
        scenario.writer(writer)
        scenario.write(writer, 3)
    scenario.dispose("b", 3)
    scenario.end_writer("b")
    scenario.run(2 * DELAY_S)
    check_kept(scenario, 1, 2, 3)
    if unregisters:
        scenario.unregister("elsewhere", 3)
    else:
        scenario.end_writer("elsewhere")
    scenario.run(DELAY_S - 3)
    check_kept(scenario, 1, 2, 3)
    scenario.run(6)
    check_kept(scenario, 1, 2)


@pytest.mark.parametrize(("delay_s", "kept"), [(-1, {1, 2}), (0, {2})], ids=["infinite", "none"])
def test_an_infinite_delay_never_ends_and_none_ends_at_once(delay_s: int, kept: set[int]) -> None:
    scenario = started(delay_s)
    scenario.end_writer("a")
    scenario.run(5.0)
    check_kept(scenario, *kept)


@pytest.mark.parametrize("lacks", ["the data", "the dispose"])
def test_samples_under_way_do_not_undo_a_purge(lacks: str) -> None:
    plan = msgspec.structs.replace(TOPIC, cleanup_delay_s=0, depth=3)
    plans = [node(name, priority=ord(name), heartbeat_expiry_s=10.0) for name in "mbc"]
    scenario = Scenario(*plans, topics=(plan,))
    scenario.start()
    scenario.until(scenario.complete)
    writer = scenario.writer("app", depth=1)
    if lacks == "the dispose":
        scenario.write("app", 1)
    scenario.cut("app", "m", both=False)
    if lacks == "the data":
        scenario.write("app", 1, wait_s=0.1)
    writer.write(0, DISPOSE, 1)
    scenario.run(0.1)
    if lacks == "the data":
        scenario.heal()  # the writer has kept only the dispose for the master
        scenario.run(0.1)
    scenario.end_writer("app")
    scenario.heal()
    # Both others give the master what it lacks, but what the first gives is held up until after the purge.
    scenario.until(lambda: "m" in scenario.streams()[-1].receivers, step_s=0.0005)
    first = scenario.streams()[-1].sender
    scenario.cut(first, "m", both=False)
    scenario.until(lambda: len(scenario.samples("m")) == 2, within_s=8.0, step_s=0.001)
    while scenario.instances("m"):  # without a look: the checkers see what a purge and a gift made together
        scenario.cluster.schedule.run_until(scenario.now + 0.001)
    scenario.heal()
    scenario.run(0.2)
    assert scenario.instances("m")
    assert not scenario.alive("m")
    scenario.settle()
    assert not any(scenario.instances(name) for name in scenario.names)
