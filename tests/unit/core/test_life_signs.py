"""Who is taken for lost, and what follows when it is heard again (docs/internals/protocol.md, Life signs)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.fellows import FellowTable
from engine.core.messages import Deliveries, NameSpaces, Status
from engine.core.states import ServiceState
from tests.unit.core.cluster import Cluster, check_settles, three

EXPIRY_S = 2.0
PAIR = ("a", "b")


def settled_pair() -> Cluster:
    cluster = Cluster()
    for node, priority in (("a", 200), ("b", 100)):
        cluster.start(node, priority=priority, stored={1}, quality=1)
    cluster.run_until(cluster.settled)
    return cluster


def check_undisturbed(cluster: Cluster, before: object) -> None:
    """Nobody was lost by anybody, and nothing is merged."""
    assert lineages(cluster) == before
    for node in cluster.members:
        for event in ("fellow.disconnected", "fellow.reconnected", "fellow.resumed", "merge.started"):
            assert not cluster.notes(node, event), (node, event)


def lineages(cluster: Cluster) -> list[object]:
    return [member.core.name_spaces[0].lineage for member in cluster.members.values()]


@pytest.mark.parametrize("stall_s", [0.5, 1.9, 2.5, 30.0])
def test_who_stood_still_does_not_lose_fellows_that_kept_talking(stall_s: float) -> None:
    cluster = settled_pair()
    cluster.stall("b")
    cluster.run(stall_s)
    cluster.go_on("b")
    cluster.run(5)
    reasons = [found["reason"] for found in cluster.notes("b", "fellow.disconnected")]
    assert reasons == (["it does not hear us"] if stall_s > EXPIRY_S else [])


@pytest.mark.parametrize("stall_s", [2.5, 30.0])
def test_who_stood_still_waits_for_what_its_fellows_have_to_say_before_it_judges(stall_s: float) -> None:
    """The process was stopped: not even its queue was filled."""
    cluster = settled_pair()
    before = lineages(cluster)
    cluster.stall("a")
    cluster.stall("b")
    cluster.run(stall_s)
    for node in PAIR:
        cluster.stalled[node].clear()
    for node in PAIR:
        cluster.go_on(node)
    cluster.run(10)
    check_undisturbed(cluster, before)
    for member in cluster.members.values():
        assert member.core.stalls == 1
        assert stall_s - 0.5 <= member.core.longest_stall_s <= stall_s


def test_stall_is_traced_with_its_length() -> None:
    cluster = settled_pair()
    cluster.stall("b")
    cluster.run(1.5)
    cluster.go_on("b")
    (found,) = cluster.notes("b", "watch.stalled")
    assert 1.0e9 <= int(str(found["elapsed_ns"])) <= 1.5e9


def test_fellow_that_is_dead_is_noticed_by_a_node_that_is_always_late() -> None:
    cluster = settled_pair()
    cluster.silent.add(frozenset(PAIR))
    began = cluster.now
    while not cluster.notes("b", "fellow.disconnected"):
        cluster.stall("b")
        cluster.run(0.8)
        cluster.go_on("b")
        assert cluster.now - began < 4 * EXPIRY_S


@pytest.mark.parametrize("silence_s", [2.5, 20.0])
def test_silence_of_a_slave_that_stays_connected_is_no_reconnection(silence_s: float) -> None:
    cluster = settled_pair()
    cluster.stall("b")
    cluster.run(silence_s)
    assert cluster.notes("a", "fellow.disconnected"), "it is silent: nobody can tell why"
    cluster.go_on("b")
    cluster.run_until(cluster.settled)
    cluster.run(5)
    for node in PAIR:
        assert not cluster.notes(node, "fellow.reconnected"), node
        assert not cluster.notes(node, "merge.started"), node
    (found,) = cluster.notes("a", "fellow.resumed")
    assert int(str(found["gap_ns"])) <= silence_s * 1e9


def test_silence_between_two_that_stay_connected_is_no_reconnection_of_either() -> None:
    cluster = settled_pair()
    cluster.silent.add(frozenset(PAIR))
    cluster.run(5)
    cluster.silent.clear()
    cluster.run_until(cluster.settled)
    for node in PAIR:
        assert cluster.notes(node, "fellow.disconnected")
        assert not cluster.notes(node, "fellow.reconnected")


@pytest.mark.parametrize("where", ["a", "b", "a b"])
def test_fellow_whose_connection_ended_during_its_silence_is_reconnected(where: str) -> None:
    """It is enough that one of the two noticed: whoever lost the other missed what was written meanwhile."""
    cluster = settled_pair()
    cluster.silent.add(frozenset(PAIR))
    cluster.run(3)
    for node in where.split():
        other = "b" if node == "a" else "a"
        cluster.members[node].core.fellow_detached(other, cluster.now)
    cluster.write(2, "a")
    cluster.write(3, "b")
    for node in where.split():
        other = "b" if node == "a" else "a"
        cluster.members[node].core.fellow_attached(other, cluster.now)
    cluster.silent.clear()
    check_settles(cluster, "a", {1, 2, 3})
    for node in where.split():
        assert cluster.notes(node, "fellow.reconnected")


def test_reconnection_of_three_is_merged_although_only_one_noticed() -> None:
    cluster = Cluster()
    three(cluster)
    check_settles(cluster, "a", set())
    cluster.silent |= {frozenset("ac"), frozenset("bc")}
    cluster.run(3)
    for other in "ab":
        cluster.members["c"].core.fellow_detached(other, cluster.now)
        cluster.members["c"].core.fellow_attached(other, cluster.now)
    cluster.write(2, "a", "b")
    cluster.write(3, "c")
    cluster.silent.clear()
    check_settles(cluster, "a", {2, 3})


def heartbeat(serial: int, expiry_s: float) -> Status:
    return Status(1, serial, "f", "r", "h", ServiceState.COMPLETE, expiry_s / 8, expiry_s, 0)


def test_heartbeat_that_is_sent_again_is_a_sign_of_life_and_no_news() -> None:
    table = FellowTable("me")
    assert table.receive(heartbeat(7, EXPIRY_S), "f", 0.0)
    assert table.receive(heartbeat(7, EXPIRY_S), "f", 1.5) is None
    assert not table.silent(3.0)
    assert table.receive(heartbeat(6, EXPIRY_S), "f", 3.0) is None, "an older one was only late"
    assert table.silent(3.6)


@pytest.mark.parametrize("is_said_again", [False, True])
@pytest.mark.parametrize("is_lost_again", [False, True])
def test_fellow_that_is_back_was_away_whatever_it_says_first(
    is_said_again: bool, is_lost_again: bool
) -> None:
    """It may send again what was known of it before, and be lost again before anything came of it."""
    table = FellowTable("me")
    table.receive(heartbeat(1, EXPIRY_S), "f", 0.0)
    table.receive(NameSpaces(1, 7, ()), "f", 0.0)
    table.attach("f")
    table.detach("f")
    table.remove("f", 2.0)
    if is_lost_again:
        table.receive(Deliveries(1, 1, ()), "f", 10.0)
        table.attach("f")
        table.remove("f", 12.0)
    taken = table.receive(NameSpaces(1, 7 if is_said_again else 8, ()), "f", 20.0)
    assert taken is not None
    assert taken[1], "it is new"
    assert not table.silent(20.0)
    found = table.receive(heartbeat(2, EXPIRY_S), "f", 20.0)
    assert found is not None
    assert (found[0].gap_s, found[0].silence_s) == (18.0, None)


@given(
    st.lists(
        st.tuples(st.sampled_from(("heard", "stall", "pass")), st.floats(0.0, 5.0)), min_size=1, max_size=30
    ),
    st.floats(0.5, 4.0),
)
def test_only_silence_in_which_this_node_could_hear_is_held_against_a_fellow(
    steps: list[tuple[str, float]], expiry_s: float
) -> None:
    """Against a slow model: time that passed awake since the last sign of life, and the bound on excuses."""
    table = FellowTable("me")
    serial, now = 1, 0.0
    table.receive(heartbeat(serial, expiry_s), "f", now)
    silence, stalls = 0.0, list[float]()
    for kind, length in steps:
        now += length
        silence += length
        if kind == "heard":
            serial += 1
            table.receive(heartbeat(serial, expiry_s), "f", now)
            silence, stalls = 0.0, []
        elif kind == "stall":
            table.excuse(length)
            stalls.append(length)
        is_lost = bool(table.silent(now))
        if is_lost:
            assert silence >= expiry_s - 1e-6
            assert silence - sum(stalls) >= expiry_s - 1e-6 or sum(stalls) > expiry_s
        if silence >= expiry_s + max([expiry_s, *stalls]) + 1e-6:
            assert is_lost, "no excuse lasts for longer than the longest stall, or an expiry"
