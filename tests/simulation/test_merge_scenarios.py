"""Sets that evolved apart: what is merged, what is not, and what it costs."""

from __future__ import annotations

import pytest

from engine.core.name_spaces import MergeType
from engine.core.states import Phase
from engine.dataset.groups import KEEP_ALL
from engine.dataset.sample import DATA, DISPOSE
from engine.simulator.options import NetworkPlan, TopicPlan
from tests.simulation.scenarios import LOST_S, NS, SLOW, TOPIC, Scenario, node, policy

FLAPS = 12


def started(scenario: Scenario) -> Scenario:
    """All nodes are complete, and there is a writer on the first and on the last."""
    scenario.start()
    scenario.until(scenario.complete)
    for name in (scenario.names[0], scenario.names[-1]):
        scenario.writer(name)
    return scenario


def sets_of(scenario: Scenario) -> list[set[int]]:
    return [scenario.alive(name) for name in scenario.names]


@pytest.mark.parametrize("seed", [1, 2])
def test_a_storm_of_alike_conflicts_comes_to_rest_and_is_combined(seed: int) -> None:
    scenario = started(Scenario(*(node(name) for name in "abcd"), seed=seed))
    began = scenario.now
    for flap in range(FLAPS):
        scenario.cut("a b", "c d")
        scenario.run(2.3)
        scenario.write("a", flap, wait_s=0.1)
        scenario.write("d", 100 + flap, wait_s=0.1)
        scenario.heal()
        scenario.run(0.9)
    quiet = scenario.now
    scenario.until(scenario.is_settled, within_s=6.0)
    scenario.settle()
    expected = {*range(FLAPS), *range(100, 100 + FLAPS)}
    assert sets_of(scenario) == [expected] * 4
    moved = sum(len(stream.receivers) for stream in scenario.streams(began))
    assert moved <= 8 * FLAPS, "each reconnection gives each pair across the link one reason each way"
    assert sum(len(stream.receivers) for stream in scenario.streams(quiet)) <= 8


def test_one_reconnection_of_many_is_one_merge_for_each_set() -> None:
    scenario = started(Scenario(*(node(name, priority=ord(name)) for name in "abcdef")))
    scenario.split("a b c", "d e f")
    scenario.write("a", 1)
    scenario.write("f", 2)
    healed = scenario.now
    scenario.heal()
    scenario.settle()
    assert sets_of(scenario) == [{1, 2}] * 6
    assert [scenario.received(name, healed) <= 2 for name in "abcde"] == [True] * 5
    givers = [stream.sender for stream in scenario.streams(healed) if "f" in stream.receivers]
    assert len(givers) <= 2 * len(set(givers)), "once for what it had, once for what it may have missed"


@pytest.mark.parametrize("seed", range(1, 6))
def test_a_set_of_another_role_is_not_taken_for_equal_because_it_was_so_before(seed: int) -> None:
    slow = NetworkPlan(delay_min_s=0.01, delay_mean_s=0.1, discovery_s=2.0, lease_s=3.0)
    plans = [node(name, role=role) for name, role in (("a", "Near"), ("c", "Near"), ("b", "Far"))]
    scenario = started(Scenario(*plans, network=slow, seed=seed))
    scenario.split("a", "b c")
    scenario.run(4.0)
    scenario.write("a", 10, 11)
    scenario.write("b", 20, 21)
    scenario.heal()
    scenario.settle()
    assert sets_of(scenario) == [{10, 11, 20, 21}] * 3


@pytest.mark.parametrize("full", ["a", "d"])
def test_merging_with_an_empty_set_changes_nothing_and_moves_nothing_to_those_who_have_it(full: str) -> None:
    scenario = Scenario(*(node(name, priority=ord(name)) for name in "abcd"))
    scenario.cut("a b", "c d")
    started(scenario)
    scenario.write(full, 1, 2)
    had_it = ("a", "b") if full == "a" else ("c", "d")
    healed = scenario.now
    scenario.heal()
    scenario.settle()
    assert sets_of(scenario) == [{1, 2}] * 4
    assert sum(scenario.received(name, healed) for name in had_it if name != "d") == 0


def test_only_what_differs_in_a_name_space_of_many_groups_changes() -> None:
    topics = tuple(TopicPlan(NS, f"Topic{number}") for number in range(3))
    scenario = started(Scenario(node("a"), node("b"), node("c"), topics=topics))
    for topic in range(3):
        scenario.write("a", topic, topic=topic)
    scenario.split("a", "b c")
    scenario.write("a", 10, topic=0)
    scenario.write("c", 11, topic=1)
    scenario.heal()
    scenario.settle()
    assert [scenario.alive("b", topic=topic) for topic in range(3)] == [{0, 10}, {1, 11}, {2}]
    assert sets_of(scenario) == [{0, 1, 2, 10, 11}] * 3


@pytest.mark.parametrize("kind", MergeType)
def test_sets_that_stayed_equal_move_no_data(kind: MergeType) -> None:
    merges = {"*": kind}
    scenario = started(Scenario(*(node(name, merges=merges) for name in "abc")))
    scenario.write("a", 1, 2)
    scenario.split("a", "b c")
    healed = scenario.now
    scenario.heal()
    scenario.run(LOST_S)
    scenario.settle()
    assert scenario.streams(healed) == []


@pytest.mark.parametrize(("kind", "expected"), [("Merge", {2, 3}), ("Catchup", {2, 3}), ("Replace", {2, 3})])
@pytest.mark.parametrize("disposer", ["a", "b"])
def test_what_was_disposed_during_a_disconnect_does_not_come_again(
    kind: str, expected: set[int], disposer: str
) -> None:
    merges = {"*": MergeType(kind)}
    master = node(disposer, priority=200, merges=merges)
    other = node("b" if disposer == "a" else "a", merges=merges)
    scenario = started(Scenario(master, other, node("c", priority=10, merges=merges)))
    scenario.write(disposer, 1, 2)
    scenario.split(disposer, f"{other.name} c")
    scenario.dispose(disposer, 1)
    scenario.write(disposer, 3)
    scenario.heal()
    scenario.settle()
    assert sets_of(scenario) == [expected] * 3
    scenario.run(30.0)
    assert sets_of(scenario) == [expected] * 3


def test_a_tombstone_waits_for_who_is_away_and_is_purged_when_he_has_it() -> None:
    scenario = started(Scenario(node("a", priority=200), node("b"), node("c")))
    scenario.write("a", 1, 2)
    scenario.split("a b", "c")
    scenario.dispose("a", 1)
    scenario.end_writer("a")
    scenario.run(60.0)
    assert scenario.instances("a")[1] & DISPOSE
    scenario.heal()
    scenario.settle()
    assert sets_of(scenario) == [{2}] * 3
    scenario.run(60.0)
    assert [1 in scenario.instances(name) for name in "abc"] == [False] * 3


@pytest.mark.parametrize("failing", "abc")
def test_a_tombstone_waits_until_it_is_on_every_disk(failing: str) -> None:
    """The node whose disk fails has the dispose in memory only, and starts first after a power failure."""
    scenario = started(Scenario(node("a", priority=200), node("b"), node("c")))
    scenario.write("a", 1, 2)
    scenario.settle()
    medium = scenario.node(failing).medium
    medium.failing = True
    scenario.dispose("a", 1)
    scenario.end_writer("a")
    scenario.run(60.0)
    scenario.kill("a", "b", "c")
    medium.failing = False
    scenario.start(failing)
    scenario.until(lambda: scenario.complete(failing))
    scenario.start()
    scenario.settle()
    assert sets_of(scenario) == [{2}] * 3
    scenario.run(60.0)
    assert [1 in scenario.instances(name) for name in "abc"] == [False] * 3


@pytest.mark.parametrize("out_of_hearing", ["a b", "a"])
def test_a_tombstone_waits_for_who_is_away_or_out_of_hearing_of_a_master_that_never_met_him(
    out_of_hearing: str,
) -> None:
    """The master is a node without a disk that was started again: only its fellow knows of the third."""
    scenario = started(Scenario(node("a", priority=200, has_disk=False), node("b"), node("c")))
    scenario.write("b", 1, 2)
    scenario.split(out_of_hearing, "c")
    scenario.kill("a")
    scenario.start("a")
    scenario.until(lambda: scenario.complete("a") and scenario.master("b") == "a")
    scenario.dispose("a", 1)
    scenario.end_writer("a")
    scenario.end_writer("b")
    scenario.run(60.0)
    assert scenario.instances("a")[1] & DISPOSE
    scenario.heal()
    scenario.settle()
    assert sets_of(scenario) == [{2}] * 3


@pytest.mark.parametrize("kind", [MergeType.CATCHUP, MergeType.REPLACE])
def test_what_is_written_while_the_master_s_set_is_on_its_way_stays(kind: MergeType) -> None:
    merges = {"*": kind}
    plans = [node(name, priority=ord(name), merges=merges) for name in "ab"]
    scenario = started(Scenario(*plans, network=SLOW))
    scenario.split("a", "b")
    scenario.write("a", 1)
    scenario.write("b", 2, 3, 4, size=1000)
    scenario.heal()
    scenario.until(lambda: scenario.phase("a") is Phase.MERGE)
    scenario.run(1.5)
    scenario.write("a", 7, wait_s=0.0)
    scenario.write("b", 8, wait_s=0.0)
    assert scenario.phase("a") is Phase.MERGE
    scenario.settle()
    assert sets_of(scenario) == [{2, 3, 4, 7, 8}] * 2


@pytest.mark.parametrize("kind", [MergeType.CATCHUP, MergeType.REPLACE])
def test_what_was_unregistered_is_not_taken_for_disposed(kind: MergeType) -> None:
    merges = {"*": kind}
    plans = [node(name, priority=ord(name), merges=merges) for name in "ab"]
    scenario = started(Scenario(*plans))
    scenario.write("b", 1, 2)
    scenario.split("a", "b")
    scenario.unregister("b", 1)
    scenario.end_writer("b")
    scenario.heal()
    scenario.settle()
    assert sets_of(scenario) == [{1, 2}] * 2


@pytest.mark.parametrize("kind", [MergeType.CATCHUP, MergeType.REPLACE, MergeType.DELETE])
def test_a_policy_that_takes_instances_away_has_no_effect_on_what_is_written_later(kind: MergeType) -> None:
    merges = {"*": kind}
    plans = [node(name, priority=ord(name), merges=merges) for name in "ab"]
    scenario = started(Scenario(*plans))
    scenario.split("a", "b")
    scenario.write("a", 1)
    scenario.write("b", 2)
    scenario.heal()
    scenario.run(LOST_S)
    scenario.writer("a")
    scenario.write("a", 1)
    scenario.write("b", 2)
    scenario.settle()
    assert sets_of(scenario) == [{1, 2}] * 2


def test_three_roles_merge_with_each_other_and_come_to_rest() -> None:
    plans = [
        node(name, role=role) for name, role in (("a", "Air"), ("b", "Air"), ("l", "Land"), ("s", "Sea"))
    ]
    scenario = started(Scenario(*plans))
    scenario.writer("l")
    scenario.cut("a b", "l s")
    scenario.cut("l", "s")
    scenario.run(LOST_S)
    scenario.write("a", 1)
    scenario.write("l", 2)
    scenario.write("s", 3)
    scenario.heal()
    scenario.settle()
    assert sets_of(scenario) == [{1, 2, 3}] * 4


@pytest.mark.parametrize(
    ("near", "far", "expected"),
    [
        (MergeType.MERGE, MergeType.IGNORE, ({1, 2, 3}, {1, 3})),
        (MergeType.IGNORE, MergeType.CATCHUP, ({1, 2}, {1, 2})),
        (MergeType.DELETE, MergeType.IGNORE, (set(), {1, 3})),
        (MergeType.REPLACE, MergeType.REPLACE, ({1, 2}, {1, 3})),
    ],
)
def test_each_role_carries_out_its_own_policy_for_the_other(
    near: MergeType, far: MergeType, expected: tuple[set[int], set[int]]
) -> None:
    scenario = started(
        Scenario(
            node("a", role="Near", merges={"Far": near, "*": MergeType.MERGE}),
            node("b", role="Near", merges={"Far": near, "*": MergeType.MERGE}, priority=10),
            node("c", role="Far", merges={"Near": far, "*": MergeType.MERGE}),
        )
    )
    scenario.write("a", 1)
    scenario.split("a b", "c")
    scenario.write("a", 2)
    scenario.write("c", 3)
    scenario.heal()
    scenario.run(LOST_S)
    scenario.settle()
    assert (scenario.alive("a"), scenario.alive("b"), scenario.alive("c")) == (
        expected[0],
        expected[0],
        expected[1],
    )


def test_a_node_that_joins_during_a_merge_ends_with_the_merged_set_and_never_claims_a_part() -> None:
    plans = [node(name, priority=ord(name)) for name in "abcd"]
    scenario = Scenario(*plans, node("e", priority=1), network=SLOW)
    scenario.start("a", "b", "c", "d")
    scenario.until(lambda: scenario.complete(*"abcd"))
    scenario.writer("a")
    scenario.writer("d")
    scenario.split("a b", "c d")
    scenario.write("a", 1, 2, size=1000)
    scenario.write("d", 3, 4, size=1000)
    scenario.heal()
    scenario.until(lambda: scenario.phase("d") is Phase.MERGE)
    scenario.start("e")
    reader = scenario.reader("e")
    scenario.until(lambda: scenario.complete("e"), within_s=60.0)
    assert scenario.alive("e") == {1, 2, 3, 4}
    scenario.settle()
    assert sets_of(scenario) == [{1, 2, 3, 4}] * 5
    assert scenario.given(reader) == {1, 2, 3, 4}


@pytest.mark.parametrize("host", ["a", "d"])
@pytest.mark.parametrize("seed", range(1, 5))
def test_readers_that_were_served_before_get_what_a_merge_brings(host: str, seed: int) -> None:
    scenario = started(Scenario(*(node(name) for name in "abcd"), seed=seed))
    scenario.write("a", 1)
    reader = scenario.reader(host)
    scenario.run(3.0)
    scenario.split("a b", "c d")
    late = scenario.reader(host)
    scenario.write("a", 2)
    scenario.write("d", 3)
    scenario.heal()
    scenario.settle()
    seen_live = {2} if host == "a" else {3}
    assert scenario.given(reader) | seen_live == {1, 2, 3}
    assert scenario.given(late) | seen_live == {1, 2, 3}


def test_only_the_name_spaces_that_differ_are_merged_and_the_others_stay_complete() -> None:
    spaces = ("ns1", "ns2", "ns3")
    topics = tuple(TopicPlan(space, "Reading") for space in spaces)
    scenario = started(Scenario(*(node(name, spaces=spaces) for name in "ab"), topics=topics, network=SLOW))
    for topic in range(3):
        scenario.write("a", 1, topic=topic)
    scenario.split("a", "b")
    scenario.write("a", 2, topic=0, size=1000)
    scenario.write("b", 3, topic=2, size=1000)
    healed = scenario.now
    scenario.heal()
    scenario.settle()
    assert [scenario.alive("a", space) for space in spaces] == [{1, 2}, {1}, {1, 3}]
    assert [scenario.alive("b", space) for space in spaces] == [{1, 2}, {1}, {1, 3}]
    phases = {(s.name_space, s.now.phase) for s in scenario.seen.steps if s.time_s > healed}
    assert ("ns2", Phase.MERGE) not in phases
    assert {stream.name_space for stream in scenario.streams(healed)} == {"ns1", "ns3"}


def test_a_node_that_aligned_with_a_set_that_was_merged_before_is_not_merged_with_it_again() -> None:
    scenario = Scenario(node("a", priority=200), node("b"), node("c"))
    scenario.start("a", "b")
    scenario.until(lambda: scenario.complete("a", "b"))
    scenario.writer("a")
    scenario.writer("b")
    scenario.split("a", "b")
    scenario.write("a", 1)
    scenario.write("b", 2)
    scenario.heal()
    scenario.until(lambda: scenario.alive("a") == scenario.alive("b") == {1, 2})
    scenario.run(LOST_S)
    began = scenario.now
    scenario.start("c")
    scenario.settle()
    assert [stream.receivers for stream in scenario.streams(began)] == [("c",)]
    assert Phase.MERGE not in {step.now.phase for step in scenario.seen.steps if step.time_s > began}


def test_samples_that_differ_in_their_writer_only_are_two() -> None:
    topic = TopicPlan(NS, "Reading", depth=KEEP_ALL)
    scenario = started(Scenario(node("a"), node("b"), topics=(topic,)))
    scenario.split("a", "b")
    for host in "ab":
        scenario.writer(host).write(0, DATA, 5)  # at one moment by equal clocks
    scenario.run(1.0)
    scenario.heal()
    scenario.settle()
    counts = []
    for name in "ab":
        runtime = scenario.node(name).runtime
        assert runtime is not None
        counts.append(runtime.spaces[NS].working.summary().count)
    assert counts == [2, 2]


@pytest.mark.parametrize("ahead_s", [-3600.0, 0.0, 3600.0])
def test_sets_come_out_equal_whatever_the_clocks_of_the_writers_show(ahead_s: float) -> None:
    scenario = started(Scenario(node("a"), node("b", priority=10)))
    scenario.split("a", "b")
    scenario.cluster.clocks["b"].offset_ns = int(ahead_s * 1e9)
    scenario.write("a", 1, 5)
    scenario.write("b", 2)
    scenario.dispose("b", 5)
    scenario.heal()
    scenario.settle()
    assert sets_of(scenario) == [{1, 2, 5} if ahead_s < 0 else {1, 2}] * 2


@pytest.mark.parametrize("behind", ["a", "b", "a b"])
@pytest.mark.parametrize(
    ("kind", "expected"),
    [(MergeType.CATCHUP, {1, 2}), (MergeType.REPLACE, {1, 2}), (MergeType.DELETE, set())],
)
def test_what_a_policy_takes_away_goes_whatever_the_clock_of_its_node_shows(
    kind: MergeType, expected: set[int], behind: str
) -> None:
    """To a node whose clock is behind, everything looks newer than the merge that has just begun."""
    plans = [node(name, priority=ord(name), merges={"*": kind}) for name in "ab"]
    scenario = started(Scenario(*plans))
    scenario.write("a", 1)
    scenario.split("a", "b")
    scenario.write("a", 3)
    scenario.write("b", 2)
    for name in behind.split():
        scenario.cluster.clocks[name].offset_ns = -int(3600e9)
    scenario.heal()
    scenario.settle()
    assert sets_of(scenario) == [expected] * 2


def test_roles_that_delete_and_catch_up_come_to_rest_with_clocks_that_are_behind() -> None:
    """Found by seed 1600494: what one of a role had not taken away was repaired, and taken away, for ever."""
    near = {"Far": MergeType.DELETE, "*": MergeType.MERGE}
    far = {"Near": MergeType.CATCHUP, "*": MergeType.MERGE}
    plans = [node(name, role="Near", merges=near) for name in "ab"]
    plans += [node(name, role="Far", merges=far) for name in "cd"]
    scenario = started(Scenario(*plans))
    scenario.write("a", 1)
    scenario.split("a b", "c d")
    scenario.write("a", 2)
    scenario.write("c", 3)
    for name in "bd":
        scenario.cluster.clocks[name].offset_ns = -int(3600e9)
    scenario.heal()
    scenario.settle()
    assert scenario.alive("a") == scenario.alive("b")
    assert scenario.alive("c") == scenario.alive("d")


def test_no_merge_policy_for_the_role_moves_nothing_and_is_said() -> None:
    rules = (policy(merges={"Elsewhere": MergeType.MERGE}),)
    scenario = started(Scenario(*(node(name, policies=rules) for name in "ab"), topics=(TOPIC,)))
    scenario.split("a", "b")
    scenario.write("a", 1)
    scenario.write("b", 2)
    healed = scenario.now
    scenario.heal()
    scenario.run(LOST_S)
    assert sets_of(scenario) == [{1}, {2}]
    assert scenario.streams(healed) == []
    assert scenario.traced("merge.no-scope", since_s=healed)


def test_a_fellow_that_is_lost_after_a_part_of_its_set_holds_up_no_merge() -> None:
    scenario = started(Scenario(*(node(name, priority=ord(name)) for name in "abcd"), network=SLOW))
    scenario.split("a b", "c d")
    scenario.write("a", 1, 2, size=1000)
    scenario.write("d", 3, 4, size=1000)
    healed = scenario.now
    scenario.heal()
    scenario.until(lambda: scenario.phase("d") is Phase.MERGE and bool(scenario.streams(healed)))
    scenario.run(1.0)
    lost = next(stream.sender for stream in scenario.streams(healed) if "d" in stream.receivers)
    assert lost in "ab"
    scenario.kill(lost)
    rest = [name for name in "abcd" if name != lost]
    scenario.until(lambda: scenario.complete(*rest) and scenario.masters() == {"d"}, within_s=20.0)
    scenario.until(lambda: all(scenario.alive(name) == {1, 2, 3, 4} for name in rest))
    scenario.start(lost)
    scenario.settle()
    assert sets_of(scenario) == [{1, 2, 3, 4}] * 4
