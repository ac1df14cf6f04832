"""How long a node looks for fellows before masters are chosen (5.4.4)."""

from __future__ import annotations

import pytest

from engine.core.states import ServiceState
from tests.unit.core.cluster import Cluster, check_settles


def test_discovery_ends_when_all_remembered_fellows_answered() -> None:
    cluster = Cluster()
    for node in "abc":
        cluster.start(node, remembered=frozenset("abc") - {node}, discovery_s=10.0)
    assert cluster.run_until(cluster.settled) < 1.0


@pytest.mark.parametrize(
    ("discovered", "from_s", "to_s"),
    [("", 0.5, 1.0), ("b", 2.5, 3.0), ("a", 0.5, 1.0)],
    ids=["nobody", "a fellow that is never heard", "a former process of its own"],
)
def test_discovery_waits_an_expiry_longer_for_a_fellow_that_is_there(
    discovered: str, from_s: float, to_s: float
) -> None:
    cluster = Cluster()
    core = cluster.start("a", discovery_s=0.5).core
    if discovered:
        core.fellow_discovered(discovered)
    assert from_s <= cluster.run_until(cluster.settled) < to_s


def test_node_that_has_lost_everything_waits_for_a_busy_fellow_that_is_there() -> None:
    """Otherwise it would say that it is complete, with nothing, and its fellow could be ended next."""
    cluster = Cluster()
    core = cluster.start("a", discovery_s=0.5, remembered=frozenset("b")).core
    core.fellow_discovered("b")
    cluster.run(1.5)
    assert core.state is not ServiceState.COMPLETE
    cluster.start("b", stored={1, 2}, quality=10)
    check_settles(cluster, "b", {1, 2})
    assert core.name_spaces[0].given_by == "b"


@pytest.mark.parametrize("stall_s", [1.0, 3.0, 30.0])
def test_time_in_which_the_node_stood_still_is_no_time_of_looking_for_fellows(stall_s: float) -> None:
    """As on a busy machine: its timer is due before it has looked at what is there."""
    cluster = Cluster()
    cluster.start("b", stored={1, 2}, quality=10, discovery_s=0.5)
    cluster.run_until(cluster.settled)
    cluster.cut.add(frozenset("ab"))
    core = cluster.start("a", discovery_s=0.5).core
    cluster.stall("a")
    cluster.run(stall_s)
    cluster.stalled["a"].clear()  # nothing reached it
    cluster.go_on("a")
    cluster.run(0.3)
    assert not cluster.notes("a", "lifecycle.discovery-ended")
    cluster.heal()
    check_settles(cluster, "b", {1, 2})
    assert core.name_spaces[0].given_by == "b"
