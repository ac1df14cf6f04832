"""What `health --watch` tells of incidents: an effect that changes is told again once it stands, seldom."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from engine.runtime.monitor import StoreStatus
from ospltool.health.health import Health
from ospltool.health.incidents import Incident
from ospltool.health.news import IncidentNews
from ospltool.live.feed import ReceivedSnapshot, Update
from ospltool.live.model import SystemModel
from tests import fake
from tests.fake import SECOND_NS as S
from tests.fake import START_NS
from tests.health.looking import looked, node
from tests.health.test_incidents import Ward
from tests.simulation.scenarios import node as planned

SETTLED_S = 5.0


def sick() -> Health:
    """One node whose disk is full."""
    model = SystemModel()
    full = node(store=StoreStatus("sqlite", "/x", problem="no space left on device"))
    model.apply(Update((ReceivedSnapshot(full, START_NS),)), START_NS)
    return looked(model, START_NS + 1)


def told_over(seconds: int, effect: Callable[[int], str], **changes: Any) -> list[tuple[int, str, str]]:
    """(second, what, effect) of all that is told of one incident whose effect is that in each second."""
    health, news = sick(), IncidentNews(SETTLED_S)
    (one,) = health.open
    found = []
    for second in range(seconds):
        shown: list[Incident] = [dataclasses.replace(one, effect=effect(second), **changes)]
        health.open, health.muted = ([], shown) if shown[0].muted_until_ns else (shown, [])
        found += [(second, what, each.effect) for what, each in news.changes(health, float(second))]
    return found


def test_an_effect_is_told_again_when_it_has_stood_for_a_while() -> None:
    told = told_over(60, lambda second: "n2 is master" if second < 2 else "n1 is master")
    assert told == [(0, "began", "n2 is master"), (7, "changed", "n1 is master")]


def test_a_master_that_is_elected_is_told_soon_and_no_change_of_masters_flaps() -> None:
    told = told_over(60, lambda second: "no master" if second < 4 else "n1 is master")
    assert told == [(0, "began", "no master"), (5, "changed", "n1 is master")]
    told = told_over(60, lambda second: "n1 is master" if second < 4 else "no master")
    assert told[1:] == [(9, "changed", "no master")]
    told = told_over(600, lambda second: "n1 is master" if second % 6 > 2 else "no master")
    assert [second for second, _, _ in told] == [0, 4]
    told = told_over(600, lambda second: "n1 is master" if second % 12 > 5 else "no master")
    assert [second for second, _, _ in told] == [0, 7, 17, 19]


def test_an_effect_that_comes_back_soon_is_not_told_again() -> None:
    told = told_over(60, lambda second: "no master" if 2 <= second < 6 else "n1 is master")
    assert told == [(0, "began", "n1 is master")]


def test_an_effect_that_was_true_before_the_node_came_back_is_not_told() -> None:
    """The incident stays open for a moment without being seen: there is one copy, and were two of three."""
    told = told_over(60, lambda second: "1 copy" if second < 2 else "2 of 3 copies")
    assert told == [(0, "began", "1 copy")]


def test_an_effect_that_never_stands_is_not_told_again() -> None:
    told = told_over(60, lambda second: f"{second} samples in memory only")
    assert [second for second, _, _ in told] == [0]


def test_an_effect_that_changes_again_and_again_is_told_less_and_less_often() -> None:
    """It stands for six seconds each time, so it is told once: next time it has to stand for ten."""
    told = told_over(600, lambda second: f"n{second // 6 % 2 + 1} is master")
    assert [second for second, _, _ in told] == [0, 11]
    told = told_over(600, lambda second: f"{second // 25} samples more")
    assert [second for second, _, _ in told] == [0, 30, 60, 95]


def test_the_effect_of_a_muted_incident_is_not_told() -> None:
    told = told_over(60, lambda second: f"{second // 20} samples", muted_until_ns=1)
    assert [second for second, _, _ in told] == [0]


def test_the_new_master_is_told_of_an_incident_that_was_told_with_the_old_one() -> None:
    """Simulated nodes: the master is killed; the incident begins before another one is elected."""
    ward = Ward()
    ward.start()
    ward.scenario.write("n1", 1, 2, 3)
    ward.run(3)
    news, told = IncidentNews(SETTLED_S), []
    master = ward.scenario.master("n1")
    ward.scenario.kill(master)
    for _ in range(120):
        ward.run(0.25)
        told += [(what, one.effect) for what, one in news.changes(ward.health, ward.watched.now_ns / 1e9)]
    (found,) = ward.health.open
    assert "no master" in told[0][1]
    assert "is master, nothing lost" in found.effect
    assert told[-1] == ("changed", found.effect)
    assert len(told) == len(set(told)) <= 3


def test_an_incident_that_becomes_part_of_another_one_is_told_so() -> None:
    """Each node is silent first; then the domain is lost, which is their cause."""
    ward = Ward()
    ward.start()
    ward.run(3)
    news = IncidentNews(5.0)
    for name in ("n1", "n2", "n3"):
        ward.scenario.kill(name)
    open_ones: set[str] = set()
    for second in range(12):
        ward.run(1)
        for what, one in news.changes(ward.health, float(second)):
            (open_ones.add if what in ("began", "changed") else open_ones.discard)(one.key)
    assert open_ones == {one.key for one in ward.health.open}
    assert [one.code.id for one in ward.health.open] == ["DUL-DOMAIN-LOST"]


@pytest.mark.parametrize(
    ("last", "is_told"),
    [
        ("1 copy, 10 samples fewer", True),
        ("2 of 3 copies, n1 is master", False),
        ("n1 is master", True),
        ("n1 and n2 are masters, their sets are equal", False),
        ("n1 and n2 are masters", True),
    ],
)
def test_an_effect_that_changed_shortly_before_the_end_is_told_with_it_if_it_is_still_true(
    last: str, *, is_told: bool
) -> None:
    """There is one copy; an effect on others was that of a moment ago."""
    health, news = sick(), IncidentNews(SETTLED_S)
    (one,) = health.open
    found = []
    for second, effect in enumerate(("1 of 3 copies", last, last)):
        health.open = [dataclasses.replace(one, effect=effect)]
        found += [(what, each.effect) for what, each in news.changes(health, float(second))]
    health.open, health.closed = [], [dataclasses.replace(health.open[0], until_ns=START_NS + 2)]
    found += [(what, each.effect) for what, each in news.changes(health, 3.0)]
    assert found == [("began", "1 of 3 copies"), ("ended", last if is_told else "")]


def test_a_cause_that_becomes_known_is_told_at_once() -> None:
    health, news = sick(), IncidentNews(SETTLED_S)
    (one,) = health.open
    found = []
    for second, is_known in enumerate((False, False, True, True)):
        health.open = [dataclasses.replace(one, is_cause_known=is_known)]
        found += [(second, what) for what, _ in news.changes(health, float(second))]
    assert found == [(0, "began"), (2, "changed")]


@pytest.mark.parametrize(
    ("nodes", "apart", "pause_s"),
    [(3, ("n1 n2",), 0.0), (4, ("n1 n3", "n2 n3"), 0.0), (4, ("n1 n3", "n2 n3"), 0.75)],
    ids=["a pair", "one of two others", "one of two others, one after the other"],
)
def test_a_cut_link_gets_no_worse_while_a_node_comes_to_follow_the_master_that_others_hear(
    nodes: int, apart: tuple[str, ...], pause_s: float
) -> None:
    ward = Ward(*(planned(f"n{n}", priority=210 - 50 * n) for n in range(1, nodes + 1)))
    news = IncidentNews(SETTLED_S)
    ward.start()
    for pair in apart:
        ward.scenario.cut(*pair.split())
        ward.run(pause_s)
    told: list[tuple[str, Incident]] = []
    for step in range(92):
        if step == 48:
            ward.scenario.heal()
        ward.run(0.25)
        told += news.changes(ward.health, step / 4)
    told = [(what, one) for what, one in told if one.code.id == "DUL-PARTIAL-MESH"]
    assert len({one.who for _, one in told}) == 1
    assert {one.severity.label for _, one in told} == {"warning"}
    assert told[-1][0] == "ended"


def test_a_cut_link_that_leaves_a_node_without_master_gets_worse_once_says_why_and_gets_better() -> None:
    """Nobody tells n3 of a master, and none is elected: that is no matter of a moment."""
    model, news = SystemModel(), IncidentNews(SETTLED_S)
    health = Health(model)
    told: list[tuple[int, str, Incident]] = []
    for second in range(40):
        now_ns = START_NS + second * S
        met = {1: (2,), 2: (1, 3), 3: (2,)} if second >= 5 else {1: (2, 3), 2: (1, 3), 3: (1, 2)}
        shown = [
            fake.snapshot(
                n,
                fake.name_space("ns1", 1 if n < 3 or second < 5 or second > 20 else 0, why="an election"),
                fellows=tuple(fake.fellow(o, now_ns) for o in met[n]),
                time_ns=now_ns,
            )
            for n in met
        ]
        model.apply(Update(tuple(ReceivedSnapshot(one, now_ns) for one in shown)), now_ns)
        health.update(now_ns)
        told += [(second, what, one) for what, one in news.changes(health, float(second))]
    assert {one.code.id for *_, one in told} == {"DUL-PARTIAL-MESH"}
    steps = itertools.groupby(told, lambda item: item[2].severity.label)
    assert [severity for severity, _ in steps] == ["warning", "error", "warning"]
    fell = next(second for second, _, one in reversed(told) if one.severity.label == "error"), told[-1][0]
    assert fell[0] < 30 <= fell[1] <= 31, "there is a master again from 21 s on"
    ((second, worse),) = [(second, one) for second, what, one in told if what == "worse"]
    assert (second, worse.worse) == (13, "ns1 has no master on n3: an election")
