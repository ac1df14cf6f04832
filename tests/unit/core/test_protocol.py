"""The protocol of several cores: masters, alignment, merging, late joiners."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from engine.core.messages import (
    DAMAGED,
    NO_EPOCH,
    Deliveries,
    Epoch,
    Message,
    NameSpaces,
    ReaderKey,
    Status,
)
from engine.core.name_spaces import Element, MergeType, NameSpace
from engine.core.node import DurabilityNode
from engine.core.states import Phase, ServiceState
from tests.unit.core.cluster import NS, Cluster, check_settles, three


def test_highest_priority_becomes_master_and_says_why() -> None:
    cluster = Cluster()
    three(cluster)
    check_settles(cluster, "a", set())
    basis = cluster.notes("b", "election.basis")[-1]
    assert "a" in str(basis["candidates"])
    assert all(member.core.state is ServiceState.COMPLETE for member in cluster.members.values())


@pytest.mark.parametrize("priorities", [(100, 200, 50), (50, 100, 200), (50, 200, 100)])
@pytest.mark.parametrize("merge", [MergeType.REPLACE, MergeType.CATCHUP, MergeType.MERGE])
def test_three_distinct_priorities_never_live_lock(priorities: tuple[int, ...], merge: MergeType) -> None:
    # The real service compares fellows with its own priority and merges without end (reference run).
    cluster = Cluster()
    for node, priority in zip("abc", priorities, strict=True):
        cluster.start(node, priority=priority, merge=merge)
    expected = "abc"[priorities.index(200)]
    check_settles(cluster, expected, set())
    lineage = cluster.members["a"].core.name_spaces[0].lineage
    cluster.run(60)
    assert cluster.members["a"].core.name_spaces[0].lineage == lineage


def test_best_quality_injects_when_priorities_are_equal_and_the_others_join() -> None:
    cluster = Cluster()
    cluster.start("a", stored={1}, quality=10)
    cluster.start("b", stored={1, 2}, quality=20)
    cluster.start("c", stored={3}, quality=5)
    check_settles(cluster, "b", {1, 2, 3})
    given_by = [cluster.members[node].core.name_spaces[0].given_by for node in "abc"]
    assert given_by == ["b", "b", "b"]


def test_highest_id_decides_between_equals() -> None:
    cluster = Cluster()
    for node in "abc":
        cluster.start(node)
    check_settles(cluster, "c", set())


@pytest.mark.parametrize(
    ("priorities", "wait_s", "first"),
    [((10, 20), 0.0, "a"), ((10, 20), 2.0, "b"), ((255, 255), 2.0, "a")],
    ids=["no wait", "a better candidate comes in time", "the legacy priority does not wait"],
)
def test_election_waits_for_better_candidates(priorities: tuple[int, int], wait_s: float, first: str) -> None:
    """//OpenSplice/DurabilityService/MasterElection/WaitTime."""
    cluster = Cluster()
    a, b = (
        dict[str, Any](
            {"priority": priority, "discovery_s": 0.5, "election_wait_s": wait_s, "stored": {number}}
        )
        for number, priority in enumerate(priorities)
    )
    cluster.start("a", **a)
    cluster.run(1.5)
    cluster.start("b", **b)
    cluster.run_until(cluster.settled)
    # Who becomes master first injects its set and has given it.
    assert cluster.members["a"].core.name_spaces[0].given_by == first


A_DAY_NS = 86_400_000_000_000
OLD, NEW, OTHER = Epoch(1, "a"), Epoch(2, "a"), Epoch(3, "b")
NEWCOMERS = {
    "same lineage": ({"lineage": NEW, "line": ()}, True),
    "an earlier lineage of the master's set": ({"lineage": OLD, "line": ()}, True),
    "a later lineage of the master's set": ({"lineage": OTHER, "line": (OLD, NEW)}, True),
    "a fork of the master's set": ({"lineage": OTHER, "line": (OLD,)}, True),
    "only the beginning of the domain in common": ({"lineage": OTHER, "line": (NO_EPOCH,)}, True),
    "another beginning": ({"lineage": OTHER, "line": ()}, False),
    "another beginning, to be merged": ({"lineage": OTHER, "line": (), "merge": MergeType.MERGE}, True),
    "left different by a policy": ({"lineage": NEW, "apart": True}, False),
    "damaged": ({"lineage": NEW, "quality": DAMAGED}, False),
}


@pytest.mark.parametrize(("newcomer", "joins"), NEWCOMERS.values(), ids=NEWCOMERS)
def test_stored_set_of_a_newcomer_joins_unless_it_evolved_apart(
    newcomer: dict[str, Any], joins: bool
) -> None:
    cluster = Cluster()
    options: dict[str, Any] = {"priority": 10, "stored": {1, 2}, "quality": 1, "merge": MergeType.CATCHUP}
    cluster.start("a", **options, lineage=NEW, line=(NO_EPOCH, OLD))
    cluster.run_until(cluster.settled)
    cluster.start("b", **{**options, "priority": 5, "stored": {9}, "quality": 99, **newcomer})
    check_settles(cluster, "a", {1, 2, 9} if joins else {1, 2})
    cluster.run(5)
    assert cluster.members["a"].working == cluster.members["b"].working


@pytest.mark.parametrize("days", [0.5, 2])
def test_set_of_a_node_that_was_away_for_longer_than_tombstones_are_kept_does_not_join(days: float) -> None:
    cluster = Cluster()
    away = {"b": int(days * A_DAY_NS)}
    cluster.start("a", priority=10, stored={1, 2}, quality=1, away=away)
    cluster.run_until(cluster.settled)
    cluster.start("b", priority=5, stored={9}, quality=99)
    check_settles(cluster, "a", {1, 2, 9} if days < 1 else {1, 2})


def test_difference_is_repaired_both_ways_while_others_write() -> None:
    cluster = Cluster()
    three(cluster, merge=MergeType.REPLACE)
    check_settles(cluster, "a", set())
    cluster.write(1001, "a", "c")
    cluster.write(1002, "b")
    for value in range(100):
        cluster.write(value)
        cluster.run(0.1)
    assert [cluster.members[node].working for node in "abc"] == [{*range(100), 1001, 1002}] * 3


def test_those_who_stayed_with_the_master_join_whatever_its_policy() -> None:
    cluster = Cluster()
    three(cluster, merge=MergeType.CATCHUP)
    check_settles(cluster, "a", set())
    cluster.split("a b", "c")
    cluster.write(1, "a", "b")
    cluster.write(2, "c")
    cluster.write(3, "b")  # not repaired yet when the policy is carried out
    cluster.heal()
    check_settles(cluster, "a", {1, 3})


@pytest.mark.parametrize("policy", [MergeType.IGNORE, MergeType.DELETE])
def test_sets_that_a_policy_left_different_stay_so_and_do_not_join_after_a_restart(policy: MergeType) -> None:
    cluster = Cluster()
    cluster.start("a", priority=200, merge=MergeType.IGNORE)
    cluster.start("b", priority=100, merge=policy)
    check_settles(cluster, "a", set())
    cluster.split("a", "b")
    cluster.write(1, "a")
    cluster.write(2, "b")
    cluster.heal()
    cluster.run(20)
    left = {2} if policy is MergeType.IGNORE else set()
    assert [cluster.members[node].working for node in "ab"] == [{1}, left]
    state = cluster.members["b"].core.name_spaces[0]
    assert state.apart
    cluster.kill("b")
    cluster.start(
        "b", priority=100, merge=policy, incarnation=2, stored={2}, lineage=state.lineage, apart=True
    )
    check_settles(cluster, "a", {1})


def test_set_that_a_policy_left_different_stays_so_under_the_next_master() -> None:
    cluster = Cluster()
    three(cluster, merge=MergeType.IGNORE)
    check_settles(cluster, "a", set())
    cluster.split("a b", "c")
    cluster.write(1, "a", "b")
    cluster.write(2, "c")
    cluster.heal()
    cluster.run(10)
    cluster.kill("a")
    cluster.run(20)
    assert (cluster.master("b"), cluster.master("c")) == ("b", "b")
    assert [cluster.members[node].working for node in "bc"] == [{1}, {2}]


@pytest.mark.parametrize("of_master", MergeType)
def test_what_a_follower_keeps_by_merging_goes_to_a_master_that_does_not_refuse_it(
    of_master: MergeType,
) -> None:
    cluster = Cluster()
    cluster.start("a", priority=200, merge=of_master)
    cluster.start("b", priority=100, merge=MergeType.MERGE)
    check_settles(cluster, "a", set())
    cluster.split("a", "b")
    cluster.write(1, "a")
    cluster.write(2, "b")
    cluster.heal()
    cluster.run(20)
    refused = {MergeType.IGNORE: ({1}, {1, 2}), MergeType.DELETE: (set(), {2})}
    expected = refused.get(of_master, ({1, 2}, {1, 2}))
    assert (cluster.members["a"].working, cluster.members["b"].working) == expected


def test_disposes_are_purged_up_to_what_all_have_while_others_write() -> None:
    cluster = Cluster()
    three(cluster)
    check_settles(cluster, "a", set())
    for value in range(30):
        cluster.write(value)
        cluster.run(0.1)
    assert cluster.members["a"].core.purgeable_until(NS, cluster.now)


def test_a_node_that_filters_is_master_in_the_last_resort_only() -> None:
    cluster = Cluster()
    cluster.start("z", priority=200, filtered=((Element("p", "*"), "f.xml:3:7"),))
    cluster.run_until(cluster.settled)
    assert cluster.master("z") == "z"
    assert [fields["priority"] for fields in cluster.notes("z", "namespace.filtered")] == [1]
    cluster.start("a", priority=2)
    cluster.run_until(lambda: cluster.settled() and cluster.master("z") == "a")
    cluster.start("b", priority=100, filtered=((Element("p", "*"), "f.xml:3:7"),))
    check_settles(cluster, "a", set())


def test_captured_before_there_was_a_master_is_collected() -> None:
    cluster = Cluster()
    three(cluster)
    cluster.write(7, "b")
    cluster.write(8, "c")
    check_settles(cluster, "a", {7, 8})


def test_higher_priority_newcomer_takes_over_once_complete_and_injects_nothing() -> None:
    cluster = Cluster()
    cluster.start("a", priority=10, stored={1}, quality=1)
    cluster.run_until(cluster.settled)
    cluster.start("b", priority=20, stored={9}, quality=99)
    check_settles(cluster, "b", {1, 9})


def test_equal_newcomer_does_not_disturb() -> None:
    cluster = Cluster()
    cluster.start("a", priority=10)
    cluster.run_until(cluster.settled)
    cluster.start("z", priority=10)
    check_settles(cluster, "a", set())


@pytest.mark.parametrize("priority", [0, 10])
def test_nobody_above_zero_or_no_aligner_means_no_master_said_loudly(priority: int) -> None:
    cluster = Cluster()
    for node in "ab":
        cluster.start(node, priority=priority, aligner=priority == 0)
    cluster.run(30)
    assert cluster.master("a") == cluster.master("b") == ""
    assert len(cluster.notes("a", "election.no-master")) == 1


def test_lost_master_is_replaced_and_data_stays() -> None:
    cluster = Cluster()
    three(cluster, stored={1}, quality=1)
    check_settles(cluster, "a", {1})
    cluster.kill("a")
    check_settles(cluster, "b", {1})
    cluster.start("a", priority=200, incarnation=2, stored={5}, quality=99)
    check_settles(cluster, "a", {1, 5})


def said(incarnation: int) -> dict[type[Message], Message]:
    """What node b tells of itself in one of its runs; it hears a."""
    cluster = Cluster()
    latest = cluster.start("b", incarnation=incarnation).latest
    status = latest[Status]
    assert isinstance(status, Status)
    latest[Status] = msgspec.structs.replace(status, heard=("a",), serial=1000)
    return latest


@pytest.mark.parametrize("late", [Status, NameSpaces, Deliveries])
def test_a_late_word_of_a_former_run_does_not_keep_the_present_one_out(late: type[Message]) -> None:
    """The endpoints of the new run are matched before anything is heard of it: they are not the old one's."""
    cluster = Cluster()
    core = cluster.start("a").core
    core.receive(said(1)[late], "b", cluster.now)
    core.fellow_attached("b", cluster.now)
    present = said(2)
    for message in present.values():
        core.receive(message, "b", cluster.now)
    status = present[Status]
    assert isinstance(status, Status)
    for serial in range(1001, 1012):
        cluster.run(0.5)
        core.receive(msgspec.structs.replace(status, serial=serial), "b", cluster.now)
    assert [(fellow.incarnation, fellow.approved) for fellow in core.fellows] == [(2, True)]


def met_again() -> tuple[Cluster, DurabilityNode, dict[type[Message], Message]]:
    """Node a knew b, whose endpoints have gone and come; and what b had said."""
    cluster = Cluster()
    core = cluster.start("a").core
    core.fellow_attached("b", cluster.now)
    present = said(1)
    for message in present.values():
        core.receive(message, "b", cluster.now)
    cluster.run(0.2)
    core.fellow_detached("b", cluster.now)
    assert not core.fellows
    core.fellow_attached("b", cluster.now)
    return cluster, core, present


@pytest.mark.parametrize("again", [False, True], ids=["said once", "said again"])
def test_a_fellow_that_was_lost_on_one_side_only_need_not_say_everything_again(again: bool) -> None:
    """Whether it noticed that it was lost, and so says everything again, is up to it."""
    cluster, core, present = met_again()
    status = present[Status]
    assert isinstance(status, Status)
    heartbeat = msgspec.structs.replace(status, serial=1001)
    for message in (*(present.values() if again else ()), heartbeat):
        core.receive(message, "b", cluster.now)
    cluster.run(0.2)
    assert [fellow.approved for fellow in core.fellows] == [True]


def test_a_fellow_is_not_talked_to_before_its_newest_report_is_here() -> None:
    """What it reported before it was lost is not what it says of itself now."""
    cluster, core, present = met_again()
    status, report = present[Status], present[NameSpaces]
    assert isinstance(status, Status)
    assert isinstance(report, NameSpaces)
    core.receive(msgspec.structs.replace(status, serial=1002, reported=1001), "b", cluster.now)
    cluster.run(0.2)
    assert [fellow.approved for fellow in core.fellows] == [False]
    core.receive(msgspec.structs.replace(report, serial=1001), "b", cluster.now)
    cluster.run(0.2)
    assert [fellow.approved for fellow in core.fellows] == [True]


def test_aligner_lost_in_the_middle_is_replaced() -> None:
    cluster = Cluster()
    three(cluster, stored={1}, quality=1)
    check_settles(cluster, "a", {1})
    cluster.start("d", priority=1)
    cluster.run_until(lambda: cluster.phase("d") is Phase.ALIGN)
    cluster.kill("a")
    check_settles(cluster, "b", {1})


@pytest.mark.parametrize(
    ("merge", "expected"),
    [
        (MergeType.MERGE, {1, 2, 3}),
        (MergeType.REPLACE, {1, 2}),
        (MergeType.CATCHUP, {1, 2}),
    ],
)
def test_split_brain_is_merged_by_policy(merge: MergeType, expected: set[int]) -> None:
    cluster = Cluster()
    for node, priority in (("a", 200), ("b", 100), ("c", 50), ("d", 40)):
        cluster.start(node, priority=priority, merge=merge, stored={1}, quality=1)
    check_settles(cluster, "a", {1})
    cluster.split("a b", "c d")
    cluster.run(5)
    assert cluster.master("d") == "c"
    cluster.write(2, "a", "b")
    cluster.write(3, "c", "d")
    cluster.heal()
    check_settles(cluster, "a", expected)


def test_split_brain_with_ignore_moves_nothing_and_becomes_quiet() -> None:
    cluster = Cluster()
    for node, priority in (("a", 200), ("b", 100)):
        cluster.start(node, priority=priority, merge=MergeType.IGNORE)
    cluster.run_until(cluster.settled)
    cluster.split("a", "b")
    cluster.run(5)
    cluster.write(2, "a")
    cluster.write(3, "b")
    cluster.heal()
    cluster.run_until(cluster.settled)
    assert (cluster.members["a"].working, cluster.members["b"].working) == ({2}, {3})


def test_reconnection_is_merged_however_short_the_gap() -> None:
    cluster = Cluster()
    three(cluster)
    check_settles(cluster, "a", set())
    cluster.split("a b", "c")
    cluster.write(2, "a", "b")
    cluster.write(3, "c")
    cluster.heal()
    check_settles(cluster, "a", {2, 3})


def test_missed_sample_is_repaired_both_ways() -> None:
    cluster = Cluster()
    three(cluster)
    check_settles(cluster, "a", set())
    cluster.write(4, "b", "c")
    cluster.write(5, "a", "c")
    check_settles(cluster, "a", {4, 5})


def test_partly_connected_node_follows_the_master_through_a_fellow() -> None:
    cluster = Cluster()
    cluster.cut.add(frozenset("ac"))
    three(cluster, stored={1}, quality=1)
    check_settles(cluster, "a", {1})
    follower = cluster.members["c"].core.name_spaces[0]
    assert (follower.via, follower.why) == ("b", "the master is out of hearing; a fellow hears it")
    cluster.heal()
    cluster.run(5)
    assert (cluster.master("c"), follower.via) == ("a", "")
    assert follower.why.startswith("confirmed master with masterPriority"), "a reason is one of now"
    assert cluster.members["a"].core.name_spaces[0].why.startswith("highest masterPriority"), "why it leads"


def test_overlapping_name_spaces_are_not_talked_to_and_both_are_named() -> None:
    cluster = Cluster()
    cluster.start("a", name_spaces=(NameSpace.parse(NS, "s.*", "t.*"),))
    cluster.start("b", name_spaces=(NameSpace.parse("other", "s.*", "u.*"),))
    cluster.run(5)
    assert (cluster.master("a"), cluster.master("b")) == ("a", "b")
    conflict = cluster.notes("a", "compatibility.conflict")
    assert len(conflict) == 1
    assert conflict[0]["other_namespace"] == "other"


def test_disjoint_name_space_is_learned_when_a_policy_matches() -> None:
    cluster = Cluster()
    cluster.start("a", name_spaces=(NameSpace.parse(NS, "s.*"),))
    cluster.start("b", name_spaces=(NameSpace.parse(NS, "s.*"), NameSpace.parse("more", "u.*")))
    cluster.run(5)
    assert [state.name for state in cluster.members["a"].core.name_spaces] == [NS, "more"]


READER = ReaderKey("p1", "T", ("*",), NS)


def test_late_joiner_is_served_by_exactly_one_node_even_when_others_join_later() -> None:
    cluster = Cluster()
    three(cluster)
    cluster.run_until(cluster.settled)
    for member in cluster.members.values():
        member.core.reader_seen(READER, frozenset(("h",)), cluster.now)
    cluster.run(1)
    assert [len(cluster.members[node].served) for node in "abc"] == [1, 0, 0]
    newcomer = cluster.start("z", priority=250)
    newcomer.core.reader_seen(READER, frozenset(("h",)), cluster.now)
    cluster.run_until(cluster.settled)
    cluster.run(2)
    assert newcomer.served == []


def test_delivery_is_taken_over_when_the_server_is_lost_before_it_was_done() -> None:
    cluster = Cluster()
    three(cluster)
    cluster.run_until(cluster.settled)
    for member in cluster.members.values():
        member.core.reader_seen(READER, frozenset(("h",)), cluster.now)
    cluster.members["a"].core.handle_timer(cluster.now)
    cluster.kill("a")
    cluster.run(5)
    assert [len(cluster.members[node].served) for node in "bc"] == [1, 0]


def test_reader_waits_until_the_name_space_is_complete() -> None:
    cluster = Cluster()
    member = cluster.start("a")
    member.core.reader_seen(READER, frozenset(("h",)), cluster.now)
    assert member.served == []
    cluster.run_until(cluster.settled)
    cluster.run(1)
    assert member.served == [READER]


def test_lineage_of_the_last_run_never_comes_again() -> None:
    # A node that was cut off before the restart still holds the old lineage and must be merged.
    cluster = Cluster()
    cluster.start("a", lineage=Epoch(7, "a"))
    cluster.run_until(cluster.settled)
    assert cluster.members["a"].core.name_spaces[0].lineage == Epoch(8, "a", 1)
