"""The protocol of several cores of several roles and with the rarer policies."""

from __future__ import annotations

from typing import Any

import pytest

from engine.core.messages import Epoch
from engine.core.name_spaces import Alignee, Element, MergeRule, MergeType
from engine.core.states import Phase, ServiceState
from tests.unit.core.cluster import NS, Cluster, check_settles


def two_roles(cluster: Cluster, left: MergeType, right: MergeType, stored: int | None = None) -> None:
    for node, role, policy, other in (("a", "L", left, "R"), ("b", "L", left, "R"), ("c", "R", right, "L")):
        merges = (MergeRule(policy, other), MergeRule(MergeType.MERGE, "*"))
        cluster.start(node, role=role, merges=merges, stored={stored or ord(node)}, quality=ord(node))


def quiet(cluster: Cluster) -> bool:
    return all(member.core.name_spaces[0].phase is Phase.COMPLETE for member in cluster.members.values())


def test_one_node_injects_in_the_whole_system_whatever_the_roles_policies_say() -> None:
    cluster = Cluster()
    two_roles(cluster, MergeType.IGNORE, MergeType.IGNORE)
    cluster.run_until(lambda: quiet(cluster))
    assert {cluster.master(node) for node in "ab"} == {"b"}
    assert cluster.master("c") == "c"
    cluster.run(1)
    assert [cluster.members[node].core.name_spaces[0].given_by for node in "abc"] == ["b", "c", "c"]
    assert all(member.working == set(map(ord, "abc")) for member in cluster.members.values())


def test_masters_of_two_roles_do_not_wait_for_each_other() -> None:
    """The one that would give its set is killed, and back without it before the other notices."""
    cluster = Cluster()
    cluster.start("a", role="L", priority=100)
    cluster.start("z", role="R", priority=200)
    cluster.run_until(lambda: quiet(cluster))
    cluster.kill("z")
    cluster.start("z", role="R", priority=200, incarnation=2)
    cluster.run_until(lambda: cluster.members["z"].core.name_spaces[0].source == "a")
    cluster.stall("z")
    del cluster.members["a"]
    cluster.start("a", role="L", priority=100, incarnation=2)
    cluster.run_until(lambda: cluster.members["a"].core.name_spaces[0].source == "z")
    cluster.go_on("z")
    cluster.run_until(lambda: quiet(cluster))


@pytest.mark.parametrize(
    ("left", "right", "expected_left", "expected_right"),
    [
        (MergeType.MERGE, MergeType.MERGE, {99, 1, 2}, {99, 1, 2}),
        (MergeType.MERGE, MergeType.IGNORE, {99, 1, 2}, {99, 2}),
        (MergeType.CATCHUP, MergeType.IGNORE, {99, 2}, {99, 2}),
        (MergeType.IGNORE, MergeType.REPLACE, {99, 1}, {99, 1}),
        (MergeType.DELETE, MergeType.IGNORE, set(), {99, 2}),
        (MergeType.REPLACE, MergeType.REPLACE, {99, 1}, {99, 2}),
        (MergeType.REPLACE, MergeType.MERGE, {99, 1}, {99, 2}),
        (MergeType.DELETE, MergeType.MERGE, {99, 1}, {99, 2}),
    ],
)
def test_roles_that_meet_again_apply_their_policies_once_and_come_to_rest(
    left: MergeType, right: MergeType, expected_left: set[int], expected_right: set[int]
) -> None:
    cluster = Cluster()
    two_roles(cluster, left, right, stored=99)
    cluster.run_until(lambda: quiet(cluster))
    cluster.split("a b", "c")
    cluster.run(5)
    cluster.write(1, "a", "b")
    cluster.write(2, "c")
    cluster.heal()
    cluster.run(10)
    assert quiet(cluster), cluster.describe()
    assert [cluster.members[node].working for node in "abc"] == [expected_left] * 2 + [expected_right]
    lineages = [member.core.name_spaces[0].lineage for member in cluster.members.values()]
    cluster.run(30)
    assert lineages == [member.core.name_spaces[0].lineage for member in cluster.members.values()]


@pytest.mark.parametrize("has_writer", [False, True])
@pytest.mark.parametrize("delayed", [None, False, True])
def test_late_set_of_another_lineage_joins_or_gives_way(delayed: bool | None, has_writer: bool) -> None:
    cluster = Cluster()
    cluster.start("a", priority=10, delayed=delayed).core.writers_known(NS, present=has_writer, now=0.0)
    cluster.run_until(cluster.settled)
    cluster.start("b", priority=5, delayed=delayed, stored={9}, quality=9, lineage=Epoch(3, "b", 1))
    is_used = delayed is None or (delayed and not has_writer)
    check_settles(cluster, "a", {9} if is_used else set())
    assert bool(cluster.notes("a", "namespace.delayed-set")) is (delayed is True and not has_writer)
    given_way = cluster.members["b"].core.why_not_joined(NS, "a")
    assert bool(given_way) is (delayed is False or (delayed is True and has_writer))


@pytest.mark.parametrize(
    "late", [{"aligner": False}, {"role": "other"}, {"apart": True}], ids=["no aligner", "role", "apart"]
)
def test_late_node_that_nobody_asks_for_its_set_does_not_wait(late: dict[str, Any]) -> None:
    cluster = Cluster()
    cluster.start("a", priority=10, delayed=True)
    cluster.run_until(cluster.settled)
    lineage = Epoch(3, "b", 1)
    cluster.start("b", priority=5, delayed=True, stored={9}, quality=9, lineage=lineage, **late)
    cluster.run_until(lambda: cluster.phase("b") is Phase.COMPLETE, seconds=20)


def test_lazy_node_keeps_nothing_until_a_reader_on_its_host_wants_it() -> None:
    cluster = Cluster()
    cluster.start("a", priority=10, stored={1}, quality=1)
    lazy = cluster.start("b", priority=200, alignee=Alignee.LAZY)
    cluster.run(5)
    assert (cluster.phase("b"), cluster.master("a"), lazy.working) == (Phase.PASSIVE, "a", set())
    lazy.core.wanted(NS, [Element("*", "*")], cluster.now)
    check_settles(cluster, "a", {1})


def test_on_request_node_never_keeps_anything() -> None:
    cluster = Cluster()
    cluster.start("a", priority=10, stored={1}, quality=1)
    passive = cluster.start("b", alignee=Alignee.ON_REQUEST)
    passive.core.wanted(NS, [Element("*", "*")], cluster.now)
    cluster.run(5)
    assert (cluster.phase("b"), passive.core.state) == (Phase.PASSIVE, ServiceState.COMPLETE)


@pytest.mark.parametrize(("waits", "given_up"), [(True, []), (False, [NS])])
def test_node_that_is_told_not_to_wait_for_an_aligner_gives_up(waits: bool, given_up: list[str]) -> None:
    cluster = Cluster()
    member = cluster.start("a", aligner=False, waits=waits)
    cluster.run(5)
    assert member.given_up == given_up
