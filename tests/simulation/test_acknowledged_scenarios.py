"""What was acknowledged stays: through restarts under traffic, and whichever node starts first."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engine.dataset.sample import DATA
from engine.simulator.options import NetworkPlan, TopicPlan
from tests.simulation.scenarios import NS, TOPIC, Scenario, node

NAMES = ("n1", "n2", "n3")
TOPICS = 12
PER_TOPIC = 20
BUSY = TOPICS
"""The topic of the writer that never rests; its samples are not counted."""
BUSY_PAUSE_S = 0.02
REPAIRED_S = 5.0
QUICK = NetworkPlan(discovery_s=0.02)
APART_S = 0.05
"""The taps of a new topic open at most this far apart, as on real nodes."""
SEEDS = (1, 2, 3)

Restart = Callable[[Scenario, str], None]


def orderly(scenario: Scenario, name: str) -> None:
    scenario.stop(name)


def by_crash(scenario: Scenario, name: str) -> None:
    scenario.kill(name)


def counted(scenario: Scenario, name: str) -> int:
    """How many samples of the counted topics a node has."""
    return sum(topic != BUSY for topic, _ in scenario.samples(name))


def holdings(scenario: Scenario) -> list[int]:
    return [counted(scenario, name) for name in NAMES]


def roll(scenario: Scenario, end: Restart, *names: str) -> None:
    """Restart nodes one after the other, each as soon as the one before is complete again."""
    for name in names:
        end(scenario, name)
        scenario.run(1.0)
        scenario.start(name)
        scenario.until(scenario.complete)


def new_topics(seed: int) -> Scenario:
    """Three nodes; an application writes each of 12 new topics as soon as one tap of it has matched.

    Another one writes all the time. Every sample of the 12 topics is on a disk at the end.
    """
    topics = [TopicPlan(NS, f"Topic{number}") for number in range(TOPICS + 1)]
    scenario = Scenario(
        *(node(name) for name in NAMES), topics=topics, seed=seed, network=QUICK, tap_delay_s=APART_S
    )
    scenario.start()
    scenario.until(scenario.complete)
    scenario.keep_writing(scenario.writer("busy"), BUSY, BUSY_PAUSE_S)
    scenario.run(1.0)
    writer = scenario.cluster.open_writer("application")
    for topic in range(TOPICS):
        scenario.write_when_matched(writer, topic, PER_TOPIC)
    scenario.run(0.5)
    union = {sample for name in NAMES for topic, sample in scenario.samples(name) if topic != BUSY}
    assert len(union) == TOPICS * PER_TOPIC, "each sample was captured by a node"
    assert min(holdings(scenario)) < TOPICS * PER_TOPIC, "not every node captured all"
    return scenario


@pytest.mark.parametrize("seed", SEEDS)
def test_what_late_taps_missed_is_repaired_while_others_write(seed: int) -> None:
    scenario = new_topics(seed)
    scenario.until(lambda: holdings(scenario) == [TOPICS * PER_TOPIC] * 3, within_s=REPAIRED_S)


@pytest.mark.parametrize("end", [orderly, by_crash])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_rolling_restart_under_traffic_keeps_what_one_node_captured(seed: int, end: Restart) -> None:
    scenario = new_topics(seed)
    roll(scenario, end, *NAMES)
    scenario.until(lambda: holdings(scenario) == [TOPICS * PER_TOPIC] * 3, within_s=REPAIRED_S)


def missed_by_the_master() -> Scenario:
    """100 samples that all nodes but the master captured, because their writer was cut from it for 4 s."""
    scenario = Scenario(*(node(name) for name in NAMES), topics=[TopicPlan(NS, f"Topic{n}") for n in (1, 2)])
    scenario.start()
    scenario.until(scenario.complete)
    scenario.keep_writing(scenario.writer("busy"), 1, BUSY_PAUSE_S)
    scenario.writer("application")
    scenario.cut("application", scenario.master("n1"))
    scenario.run(3.0)
    scenario.write("application", *range(100))
    scenario.run(0.8)
    scenario.heal()
    return scenario


def others(scenario: Scenario) -> list[str]:
    return [name for name in NAMES if name != scenario.master("n1")]


def captured(scenario: Scenario, name: str) -> int:
    return sum(topic == 0 for topic, _ in scenario.samples(name))


def test_what_the_master_missed_is_repaired_while_others_write() -> None:
    scenario = missed_by_the_master()
    scenario.until(lambda: [captured(scenario, name) for name in NAMES] == [100] * 3, within_s=REPAIRED_S)


@pytest.mark.parametrize("end", [orderly, by_crash])
def test_what_the_master_missed_survives_the_restart_of_all_who_have_it(end: Restart) -> None:
    scenario = missed_by_the_master()
    roll(scenario, end, *others(scenario))
    scenario.until(lambda: [captured(scenario, name) for name in NAMES] == [100] * 3, within_s=REPAIRED_S)


@pytest.mark.parametrize("cut_from_master", [False, True])
@pytest.mark.parametrize("expiry_s", [2.0, 10.0])
def test_a_node_that_hears_nothing_of_a_writer_stays_close_behind(
    expiry_s: float, cut_from_master: bool
) -> None:
    """Each repair brings something, so the next one waits no longer than the one before."""
    period_s = 0.2 * expiry_s
    scenario = Scenario(
        *(node(name, heartbeat_expiry_s=expiry_s, heartbeat_period_s=period_s) for name in NAMES),
        topics=[TopicPlan(NS, f"Topic{n}") for n in (1, 2)],
    )
    scenario.start()
    scenario.until(scenario.complete)
    behind = scenario.master("n1") if cut_from_master else others(scenario)[0]
    writer = scenario.writer("application")
    scenario.cut("application", behind)
    scenario.run(3.0)
    scenario.keep_writing(writer, 1, 0.1)
    for _ in range(12):
        scenario.run(10.0)
        newest = {
            name: max(sample.source_time_ns for _, sample in scenario.samples(name)) / 1e9 for name in NAMES
        }
        assert max(newest.values()) - newest[behind] <= REPAIRED_S + 3 * period_s, newest


OLD, NEW = range(200), range(200, 700)
DISPOSED = range(100)


def with_a_stale_node(stale: str) -> Scenario:
    """A node is off while 500 samples and 100 disposes are stored by the two others; then all are off."""
    scenario = Scenario(*(node(name) for name in NAMES))
    living = [name for name in NAMES if name != stale]
    scenario.start()
    scenario.until(scenario.complete)
    scenario.write("application", *OLD)
    scenario.settle()
    scenario.stop(stale)
    scenario.run(5.0)
    scenario.write("application", *NEW)
    scenario.dispose("application", *DISPOSED)
    scenario.run(2.0)
    assert [scenario.stored(name) for name in living] == [len(OLD) + len(NEW) + len(DISPOSED)] * 2
    scenario.end_writer("application")
    scenario.kill(*living)
    scenario.run(5.0)
    return scenario


@pytest.mark.parametrize(
    ("stale", "first", "alone_s"),
    [
        *((name, name, 8.0) for name in NAMES),
        *((name, name, 0.1) for name in NAMES),
        *((stale, first, 8.0) for stale in NAMES for first in NAMES if first != stale),
    ],
)
def test_whichever_node_starts_first_nothing_is_lost_and_nothing_comes_back(
    stale: str, first: str, alone_s: float
) -> None:
    scenario = with_a_stale_node(stale)
    scenario.start(first, spread_s=alone_s)
    scenario.start(*(name for name in NAMES if name != first))
    scenario.settle()
    assert [scenario.alive(name) for name in NAMES] == [{*OLD, *NEW} - {*DISPOSED}] * 3


def test_a_stale_node_that_starts_first_and_is_written_to_loses_nothing_of_the_others() -> None:
    scenario = with_a_stale_node("n3")
    scenario.start("n3")
    scenario.until(lambda: scenario.complete("n3"))
    scenario.write("other", 700, 701)
    scenario.start("n1", "n2")
    scenario.settle()
    assert [scenario.alive(name) for name in NAMES] == [{*OLD, *NEW, 700, 701} - {*DISPOSED}] * 3


@pytest.mark.parametrize("end", [orderly, by_crash])
def test_a_dispose_waits_for_a_node_that_was_known_before_the_last_restart(end: Restart) -> None:
    scenario = Scenario(*(node(name) for name in NAMES))
    scenario.start()
    scenario.until(scenario.complete)
    scenario.write("application", 1, 2)
    scenario.settle()
    scenario.kill(*NAMES)
    scenario.start("n1", "n2")
    scenario.until(lambda: scenario.complete("n1", "n2"))
    scenario.dispose("application", 1)
    scenario.run(2.0)
    for name in ("n1", "n2"):
        end(scenario, name)
    scenario.start("n1", "n2")
    scenario.until(lambda: scenario.complete("n1", "n2"))
    scenario.end_writer("application")
    scenario.run(10.0)
    assert [set(scenario.instances(name)) for name in ("n1", "n2")] == [{1, 2}] * 2, "the dispose is kept"
    scenario.start("n3")
    scenario.settle()
    assert [scenario.alive(name) for name in NAMES] == [{2}] * 3


def test_a_writer_with_history_of_one_keeps_the_last_sample_of_an_instance_for_a_cut_node() -> None:
    scenario = Scenario(node("n1"), node("n2"), topics=[TopicPlan(NS, TOPIC.topic, depth=0)])
    scenario.start()
    scenario.until(scenario.complete)
    writer = scenario.cluster.open_writer("application", depth=1)
    scenario.run(1.5)
    scenario.cut("application", "n2")
    for number in (1, 2, 1, 2, 1):
        scenario.run(0.1)
        writer.write(0, DATA, number)
    scenario.run(0.2)
    assert len(scenario.samples("n2")) == 0
    scenario.heal()
    scenario.run(0.05)
    assert len(scenario.samples("n1")) == 5
    assert len(scenario.samples("n2")) == 2
    scenario.settle()
    assert len(scenario.samples("n2")) == 5
