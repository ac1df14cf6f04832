"""What an operator must know is said, once, and when it is so again."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from engine.core.election import NOBODY
from engine.core.name_spaces import Durability, NameSpace
from engine.core.states import ServiceState
from engine.simulator.options import TopicPlan
from tests.simulation.scenarios import EXPIRY_S, LOST_S, NS, Scenario, node


def two(**settings: int) -> Scenario:
    """Nodes a and b, complete; `a=200` is a masterPriority."""
    scenario = Scenario(*(node(name, priority=settings.get(name, 100)) for name in "ab"))
    scenario.start()
    scenario.until(scenario.complete)
    scenario.run(5.0)
    return scenario


def test_clocks_that_differ_are_reported_once_by_both() -> None:
    scenario = Scenario(node("a"), node("b"))
    scenario.cluster.clocks["b"].offset_ns += 90_000_000_000
    scenario.start()
    scenario.run(15.0)
    told = {name: scenario.traced("fellow.clock-skew", name) for name in "ab"}
    assert [len(records) for records in told.values()] == [1, 1]
    assert [round(int(str(told[name][0]["skew_ns"])) / 1e9) for name in "ab"] == [90, -90]


def test_equal_clocks_and_heartbeats_in_time_are_no_news() -> None:
    scenario = two()
    scenario.run(30.0)
    assert not scenario.traced("fellow.clock-skew") + scenario.traced("fellow.late")
    assert not scenario.traced("election.mixed-priorities")


def test_a_heartbeat_that_was_nearly_missed_is_reported() -> None:
    scenario = two()
    scenario.cut("a", "b", both=False)
    scenario.run(0.8 * EXPIRY_S)
    scenario.heal()
    scenario.run(5.0)
    assert [record["fellow"] for record in scenario.traced("fellow.late", "b")] == ["a"]
    assert not scenario.traced("fellow.disconnected")


def test_255_beside_other_values_is_reported_once_on_each_node() -> None:
    scenario = two(a=255)
    for name in "ab":
        assert [each["priorities"] for each in scenario.traced("election.mixed-priorities", name)] == [
            "100, 255"
        ]
    scenario = two(a=255, b=255)
    assert not scenario.traced("election.mixed-priorities")


def test_a_planned_hand_over_is_told_by_the_one_who_hands_over() -> None:
    scenario = Scenario(node("a", priority=100), node("b", priority=200))
    scenario.start("a")
    scenario.until(lambda: scenario.complete("a"))
    scenario.start("b")
    scenario.until(lambda: scenario.master("a") == "b")
    scenario.settle()
    (told,) = scenario.traced("election.hand-over")
    assert (told["fellow"], told["priority"], told["own_priority"]) == ("b", 200, 100)
    assert scenario.traced("election.hand-over", "a")


def test_nobody_who_may_be_master_is_said_and_stays_to_be_seen() -> None:
    scenario = Scenario(node("a", priority=0), node("b", aligner=False))
    scenario.start()
    scenario.run(20.0)
    for name in "ab":
        assert [each["reason"] for each in scenario.traced("election.no-master", name)] == [NOBODY]
        assert scenario.state(name).why == NOBODY
        runtime = scenario.node(name).runtime
        assert runtime is not None
        assert runtime.state is ServiceState.DISCOVER_PERSISTENT_SOURCE


@pytest.mark.parametrize(
    ("partition", "durability", "reason"),
    [
        ("elsewhere", Durability.PERSISTENT, "it is in no name-space of this node"),
        (NS, Durability.VOLATILE, "its policy for name-space ns1 has durability Volatile"),
        (NS, Durability.TRANSIENT_LOCAL, "its policy for name-space ns1 has durability Transient_Local"),
    ],
)
def test_a_group_that_is_not_to_be_kept_is_said_and_counted_once(
    partition: str, durability: Durability, reason: str
) -> None:
    scenario = Scenario(node("a", durability=durability), topics=(TopicPlan(partition, "Reading"),))
    scenario.start()
    for host in ("a", "b"):
        scenario.writer(host)
    runtime = scenario.node("a").runtime
    assert runtime is not None
    assert runtime.counters["outside_groups"] == 1
    (said,) = scenario.traced("group.outside", "a")
    assert (str(said["group"]), said["reason"]) == (f"{partition}.Reading", reason)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"durability": Durability.TRANSIENT}, "its policy for name-space ns1 has durability Transient"),
        ({"has_disk": False}, "it has no store on disk (DurabilityService/Persistent)"),
    ],
)
def test_persistent_data_in_memory_only_is_said_once(options: dict[str, Any], reason: str) -> None:
    """A policy weakens durability on purpose (deployment guide 5.2.3.2), so this is information."""
    scenario = Scenario(node("a", **options))
    scenario.start()
    for host in ("a", "b"):
        scenario.writer(host)
    scenario.write("a", 3)
    scenario.settle()
    runtime = scenario.node("a").runtime
    assert runtime is not None
    assert runtime.counters["memory_only_groups"] == 1
    assert [each["reason"] for each in scenario.traced("group.memory-only", "a")] == [reason]
    assert not scenario.traced("store.group", "a")


def test_the_counter_of_stored_samples_counts_those_that_replace_others_too() -> None:
    """Else the console would show no samples per second while all instances are written again and again."""
    scenario = two()
    counters = []
    for _ in range(5):
        scenario.write("a", 1)
        scenario.run(1.0)
        runtime = scenario.node("b").runtime
        assert runtime is not None
        counters.append(runtime.counters["stored"])
    assert scenario.stored("b") == 1
    assert counters == [1, 2, 3, 4, 5]


def test_learned_name_space_that_its_owner_defines_otherwise_names_the_remedy() -> None:
    first = node("a", spaces=("ns1", "ns2"))
    scenario = Scenario(first, node("b"))
    scenario.start()
    scenario.settle()
    scenario.stop("a")
    spaces = (NameSpace.parse("ns1", "ns1.*"), NameSpace.parse("ns2", "other.*"))
    scenario.configure(
        msgspec.structs.replace(first, settings=msgspec.structs.replace(first.settings, name_spaces=spaces))
    )
    scenario.start("a")
    scenario.run(LOST_S)
    said = scenario.traced("compatibility.outdated")
    assert [(each["namespace"], each["expressions"]) for each in said] == [("ns2", "ns2.*")]
    assert scenario.fellows("b") == set()
    scenario.stop("b")
    scenario.start("b")
    scenario.settle()
    assert scenario.fellows("b") == {"a"}


@pytest.mark.parametrize("is_process", [True, False], ids=["process", "main thread"])
def test_heartbeats_that_waited_for_a_node_that_stood_still_are_no_slow_clock(is_process: bool) -> None:
    scenario = two()
    stopped = scenario.node("b")
    if is_process:
        scenario.cluster.network.freeze(stopped.participant)
    else:
        stopped.is_stalled = True
    scenario.run(3 * EXPIRY_S)
    stopped.is_stalled = False
    if is_process:
        scenario.cluster.network.thaw(stopped.participant)
    stopped.go_on()
    scenario.run(15.0)
    assert scenario.traced("watch.stalled", "b")
    assert not scenario.traced("fellow.clock-skew")
