"""What OpenSplice tests of its own durability service on several hosts, each by its meaning."""

from __future__ import annotations

import dataclasses

import pytest

from engine.core.name_spaces import Durability, MergeType
from engine.core.states import Phase
from engine.simulator.options import NetworkPlan
from tests.simulation.scenarios import LOST_S, NS, Scenario, node

NETWORKS = {
    "one subnet": NetworkPlan(),
    "two subnets": NetworkPlan(delay_min_s=0.01, delay_mean_s=0.02, discovery_s=2.0, lease_s=3.0),
}


def check_merged(scenario: Scenario, expected: set[int]) -> None:
    """All nodes come to rest with everything, one master for each role, and so do late joiners."""
    scenario.settle()
    roles = {scenario.node(name).plan.settings.role for name in scenario.names}
    assert len(scenario.masters()) == len(roles)
    for name in scenario.names:
        assert scenario.alive(name) == expected
    readers = [scenario.reader(name) for name in scenario.names]
    scenario.run(3.0)
    assert [scenario.given(reader) for reader in readers] == [expected] * len(readers)


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("writers", [("a",), ("b",), ("a", "b")], ids=" and ".join)
@pytest.mark.parametrize(
    "roles",
    [
        {"a": "Near", "b": "Near"},
        {"a": "Near", "b": "Near", "c": "Near"},
        {"a": "Near", "b": "Far", "c": "Far"},
        {"a": "Near", "c": "Near", "b": "Far"},
    ],
    ids=lambda roles: " ".join(f"{name}:{role}" for name, role in roles.items()),
)
def test_what_was_written_while_one_node_was_alone_is_everywhere_afterwards(
    roles: dict[str, str], writers: tuple[str, ...], network: str
) -> None:
    plans = [node(name, role=role, priority=ord(name)) for name, role in roles.items()]
    scenario = Scenario(*plans, network=NETWORKS[network])
    scenario.start()
    scenario.until(scenario.complete)
    scenario.write("a", 1)
    scenario.write("b", 2)
    scenario.split("a", " ".join(sorted(roles.keys() - {"a"})))
    expected = {1, 2}
    for host, numbers in (("a", (10, 11)), ("b", (20, 21))):
        if host in writers:
            scenario.write(host, *numbers)
            expected |= {*numbers}
    apart = scenario.masters()
    assert "a" in apart
    assert len(apart) >= 2
    scenario.heal()
    check_merged(scenario, expected)


def test_a_node_aligns_from_the_nodes_of_its_role_also_after_it_has_changed_its_role() -> None:
    merges = {"*": MergeType.IGNORE}
    near, far = (node(name, role=role, merges=merges) for name, role in (("a", "Near"), ("b", "Far")))
    late = node("c", role="Near", merges=merges, priority=1)
    scenario = Scenario(near, far, late)
    scenario.start("a", "b")
    scenario.until(lambda: scenario.complete("a", "b"))
    scenario.split("a", "b")
    scenario.write("a", 1)
    scenario.write("b", 2)
    scenario.heal()
    scenario.run(LOST_S)
    assert (scenario.alive("a"), scenario.alive("b")) == ({1}, {2})

    scenario.start("c")
    scenario.settle()
    assert (scenario.master("c"), scenario.alive("c")) == ("a", {1})
    scenario.stop("c")
    scenario.configure(dataclasses.replace(late, settings=dataclasses.replace(late.settings, role="Far")))
    scenario.start("c")
    scenario.settle()
    assert (scenario.master("c"), scenario.alive("c")) == ("b", {2})
    assert {stream.sender for stream in scenario.streams() if "c" in stream.receivers} == {"a", "b"}


def test_a_non_aligner_alone_has_no_historical_data_and_gets_it_when_the_aligner_starts() -> None:
    scenario = Scenario(
        node("a"), node("b", aligner=False, durability=Durability.TRANSIENT, initial_discovery_s=0.5)
    )
    scenario.start("a")
    scenario.until(lambda: scenario.complete("a"))
    scenario.write("a", 1, 2)
    scenario.end_writer("a")
    scenario.stop("a")
    scenario.start("b")
    reader = scenario.reader("b")
    scenario.run(60.0)
    assert not scenario.is_operational("b")
    assert not reader.served, "a wait for historical data would have to time out"
    scenario.start("a")
    scenario.settle()
    assert scenario.alive("b") == scenario.given(reader) == {1, 2}


def test_persistent_data_is_injected_by_one_source_and_a_late_node_injects_nothing() -> None:
    scenario = Scenario(node("a"), node("b"), node("c"))
    scenario.start()
    scenario.until(scenario.complete)
    scenario.write("a", 1, 2)
    scenario.stop("c")
    scenario.write("a", 2, 3)
    scenario.stop("a", "b")
    restart = scenario.now
    scenario.start("a", "b")
    scenario.until(lambda: scenario.complete("a", "b"))
    injected = scenario.traced("injection.started", since_s=restart)
    assert [record["samples"] for record in injected] == [3]
    scenario.dispose("a", 3)
    scenario.start("c")
    scenario.settle()
    assert scenario.traced("injection.started", "c", restart) == []
    assert {frozenset(scenario.alive(name)) for name in "abc"} == {frozenset({1, 2})}


@pytest.mark.parametrize(("is_written", "expected"), [(False, {1, 2}), (True, {1, 2, 7})])
def test_a_late_persistent_set_is_injected_or_joins_what_was_written(
    is_written: bool, expected: set[int]
) -> None:
    scenario = Scenario(*(node(name, delayed_alignment=True) for name in "ab"))
    scenario.start("b")
    scenario.until(lambda: scenario.complete("b"))
    scenario.write("b", 1, 2)
    scenario.end_writer("b")
    scenario.stop("b")
    scenario.start("a")
    scenario.until(lambda: scenario.complete("a"))
    assert scenario.alive("a") == set()
    if is_written:
        scenario.write("a", 7)
    scenario.start("b")
    scenario.settle()
    assert scenario.alive("a") == scenario.alive("b") == expected
    assert scenario.phase("b", NS) is Phase.COMPLETE
    assert bool(scenario.traced("namespace.delayed-set", "a")) is not is_written
