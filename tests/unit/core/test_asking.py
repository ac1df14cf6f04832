"""Sets that heartbeats cannot compare, because one of the two is filtered: they are compared by asking."""

from __future__ import annotations

import types
from typing import cast

import pytest

from engine.core import merging
from engine.core.context import Context
from engine.core.name_space_state import NameSpaceState
from engine.core.name_spaces import Element, NameSpace, Policy
from tests.unit.core.cluster import NS, Cluster, check_settles


def test_a_filtered_set_asks_from_time_to_time_and_holds_up_no_purge() -> None:
    cluster = Cluster()
    cluster.start("a", priority=20)
    cluster.start("b", priority=10, filtered=((Element("*", "T"), "f.xml:3:7"),))
    check_settles(cluster, "a", set())
    for value in range(30):
        cluster.write(value, "a")
        cluster.run(0.3)
    assert len(cluster.members["a"].working) == 30
    assert cluster.notes("b", "align.reconciling") == []
    assert 1 <= len(cluster.notes("b", "align.part-compared")) <= 2
    assert cluster.members["a"].core.purgeable_until(NS, cluster.now)


@pytest.mark.parametrize("filters", ["a", "b"], ids=["the master filters", "its fellow does"])
def test_a_master_remembers_disposes_until_a_fellow_has_asked(
    monkeypatch: pytest.MonkeyPatch, filters: str
) -> None:
    monkeypatch.setattr(merging, "_look_at_part", lambda *_: None)
    cluster = Cluster()
    for node, priority in (("a", 20), ("b", 0)):
        filtered = ((Element("*", "T"), "f.xml:3:7"),) if node == filters else ()
        cluster.start(node, priority=priority, filtered=filtered)
    check_settles(cluster, "a", set())
    cluster.write(1, "a")
    cluster.run(30)
    assert cluster.members["a"].core.purgeable_until(NS, cluster.now) is None


def test_a_set_that_takes_long_to_compare_by_asking_is_compared_more_seldom() -> None:
    state = NameSpaceState(NameSpace.parse(NS, "p.*"), Policy(NS))
    state.asks, asked_s, took_s = True, 100.0, 2.0
    state.repair_not_before_s = asked_s + merging.PART_PAUSE_S
    context = cast("Context", types.SimpleNamespace())
    merging.repaired(context, state, 0, asked_s + took_s)
    assert state.repair_not_before_s == asked_s + merging.PART_PAUSE_S + merging.PART_REST * took_s
