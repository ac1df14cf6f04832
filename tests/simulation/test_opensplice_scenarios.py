"""What OpenSplice tests of its own durability service on several hosts, each by its meaning."""

from __future__ import annotations

import msgspec
import pytest

from engine.core.name_spaces import Durability, MergeType
from engine.dataset.sample import DATA, DISPOSE
from engine.simulator.options import NetworkPlan
from tests.simulation.scenarios import LOST_S, Scenario, node

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
    scenario.configure(
        msgspec.structs.replace(late, settings=msgspec.structs.replace(late.settings, role="Far"))
    )
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


LATE = {MergeType.MERGE, MergeType.IGNORE, MergeType.REPLACE}
"""Merge policies, none of which acts at the start of a node."""


@pytest.mark.parametrize("merge", sorted(LATE))
@pytest.mark.parametrize("is_of_lineage", [False, True], ids=["another lineage", "one lineage"])
@pytest.mark.parametrize("state", ["empty", "empty, with a writer", "written"])
@pytest.mark.parametrize("setting", [None, False, True])
def test_a_late_set_joins_is_injected_or_is_kept_as_a_back_up(
    setting: bool | None, state: str, merge: MergeType, *, is_of_lineage: bool
) -> None:
    scenario = Scenario(*(node(name, delayed_alignment=setting, merges={"*": merge}) for name in "ab"))
    scenario.start(*(("a", "b") if is_of_lineage else ("b",)))
    scenario.until(lambda: scenario.complete("b"))
    scenario.run(1.0)
    if is_of_lineage:
        scenario.stop("a")
    scenario.write("b", 1, 2)
    scenario.end_writer("b")
    scenario.stop("b")
    scenario.start("a")
    scenario.until(lambda: scenario.complete("a"))
    assert scenario.alive("a") == set()
    if state != "empty":
        scenario.writer("a")
    if state == "written":
        scenario.write("a", 7)
    late = scenario.now
    scenario.start("b")
    scenario.settle()
    written = {7} if state == "written" else set()
    is_used = is_of_lineage or setting is None or (setting and state == "empty")
    assert scenario.alive("a") == scenario.alive("b") == written | ({1, 2} if is_used else set())
    kept = scenario.traced("store.backup", "b", late)
    assert [(one["samples"], one["total"]) for one in kept] == ([] if is_used else [(2, len(written))])
    assert all("another lineage, and delayedAlignment" in str(one["cause"]) for one in kept)
    is_injected = setting is True and state == "empty" and not is_of_lineage
    assert bool(scenario.traced("namespace.delayed-set", "a")) is is_injected
    scenario.stop("a", "b")
    scenario.start()  # what was decided stays: nobody takes the back-up for a set
    scenario.settle()
    assert scenario.alive("a") == scenario.alive("b") == written | ({1, 2} if is_used else set())


def test_of_two_late_sets_of_one_lineage_both_are_used_where_one_is_injected() -> None:
    scenario = Scenario(*(node(name, delayed_alignment=True) for name in "abc"))
    scenario.start("b", "c")
    scenario.until(lambda: scenario.complete("b", "c"))
    scenario.write("b", 1)
    scenario.stop("c")
    scenario.write("b", 2)
    scenario.end_writer("b")
    scenario.stop("b")
    scenario.start("a")
    scenario.until(lambda: scenario.complete("a"))
    scenario.start("b", "c")
    scenario.settle()
    assert {frozenset(scenario.alive(name)) for name in "abc"} == {frozenset({1, 2})}
    assert not scenario.traced("store.backup")


@pytest.mark.parametrize("roles", [("Fleet", "Fleet"), ("L", "R")], ids=["one role", "two roles"])
@pytest.mark.parametrize(
    ("setting", "merge"), [(None, "Replace"), (True, "Replace"), (False, "Replace"), (False, "Catchup")]
)
def test_equal_sets_show_what_replace_does_only_if_the_equality_check_is_off(
    setting: bool | None, merge: str, roles: tuple[str, str]
) -> None:
    own = {"*": MergeType(merge)}
    merges = (own if roles[0] == roles[1] else {"*": MergeType.IGNORE}, own)
    plans = [
        node(name, role=role, priority=priority, merges=rules, equality_check=setting)
        for name, role, priority, rules in zip("ab", roles, (200, 100), merges, strict=True)
    ]
    scenario = Scenario(*plans)
    scenario.start()
    scenario.until(scenario.complete)
    scenario.write("a", 1, 2)
    scenario.end_writer("a")
    reader = scenario.reader("b")
    scenario.run(3.0)
    assert scenario.traced("merge.equal-shown") == [], "not at the start"
    scenario.split("a", "b")
    served, cut = len(reader.served), scenario.now
    scenario.heal()
    scenario.settle()
    assert scenario.streams(cut) == [], "nothing moves"
    again = [sample.status for _, _, samples in reader.served[served:] for sample in samples]
    is_shown = setting is False and merge == "Replace"
    assert len(scenario.traced("merge.equal-shown", "b")) == is_shown
    assert again.count(DISPOSE) == again.count(DATA) == (2 if is_shown else 0)
    assert scenario.alive("a") == scenario.alive("b") == {1, 2}
