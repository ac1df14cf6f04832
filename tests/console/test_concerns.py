from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from engine.core.election import NOBODY
from engine.runtime.monitor import (
    AlignmentView,
    DeliveryView,
    DeviationView,
    GroupView,
    NodeSnapshot,
    StoreView,
)
from ospltool.live import fake
from ospltool.live.complaints import Severity
from ospltool.live.concerns import concerns
from ospltool.live.fake import SECOND_NS, START_NS, node_id
from ospltool.live.feed import Heard, Notice, NoticeKind, Update
from ospltool.live.model import SystemModel

S = SECOND_NS
GROUP = GroupView("Orders", "Orders", "Trade", "T", "Persistent", 1, 1, 1, "d", START_NS, 1, 0)


def node(number: int = 1, **changes: Any) -> NodeSnapshot:
    return fake.snapshot(number, fake.name_space("Orders", 1), **changes)


def space(number: int, **changes: Any) -> NodeSnapshot:
    return fake.snapshot(number, fake.name_space("Orders", changes.pop("master_node", 1), **changes))


def check_concerns(
    snapshots: list[NodeSnapshot],
    expected: list[tuple[Severity, str]],
    *,
    after_s: float = 1,
    notices: tuple[Notice, ...] = (),
    dropped: int = 0,
) -> None:
    model = SystemModel()
    heard = tuple(Heard(snapshot, START_NS) for snapshot in snapshots)
    model.apply(Update(snapshots=heard, notices=notices, dropped=dropped), START_NS)
    found = concerns(model, START_NS + int(after_s * S))
    assert [(c.severity, c.text) for c in found] == expected


def test_a_healthy_system_is_quiet() -> None:
    check_concerns([node(1, fellows=(fake.fellow(2),)), node(2, fellows=(fake.fellow(1),))], [])


CASES: dict[str, tuple[NodeSnapshot, Severity, str]] = {
    "store": (
        node(store=StoreView("sqlite", "/x", problem="no space left")),
        Severity.FAULT,
        "n1 store: no space left",
    ),
    "slow start": (
        node(state="FETCH_INITIAL", started_ns=START_NS - 61 * S),
        Severity.WARNING,
        "n1 still in fetch initial",
    ),
    "incompatible": (
        node(fellows=(fake.fellow(2, communication="incompatible", problem="Orders: {a} and {b}"),)),
        Severity.CONTRADICTION,
        "n1 and n2 do not communicate: Orders: {a} and {b}",
    ),
    "skew": (
        node(fellows=(fake.fellow(2, skew_ns=-2 * S),)),
        Severity.WARNING,
        "clock of n2 is -2.0 s off, as n1 sees it",
    ),
    "no master": (
        space(1, master="", confirmed=False, why="every masterPriority is 0"),
        Severity.FAULT,
        "Orders has no master on n1: every masterPriority is 0",
    ),
    "nobody may be master": (
        fake.snapshot(
            1,
            fake.name_space("Orders", 1, master="", confirmed=False, phase="elect", why=NOBODY),
            state="DISCOVER_PERSISTENT_SOURCE",
            started_ns=START_NS,
        ),
        Severity.FAULT,
        f"Orders has no master on n1: {NOBODY}; give an aligner a masterPriority above 0",
    ),
    "lost samples": (
        node(groups=(dataclasses.replace(GROUP, lost=3),)),
        Severity.WARNING,
        "n1 lost 3 samples",
    ),
    "reader not served": (
        node(deliveries=(DeliveryView("p", "Trade", "Orders", "failed", 0, 1, START_NS - 2 * S, "QoS"),)),
        Severity.WARNING,
        "n1 could not serve a reader of Trade: QoS",
    ),
    "reader deviates": (
        node(deviations=(DeviationView("p", "Trade", "Orders", {"other": 1_200}),)),
        Severity.WARNING,
        "a reader of Trade deviates from the set of n1: 1,200 other",
    ),
}


def test_255_beside_other_values_is_named_with_who_has_them() -> None:
    text = "Orders, role DefaultRole: masterPriority 255 beside other values: 100 (n1), 255 (n2)"
    snapshots = [space(1, master_priority=100), space(2, master_priority=255)]
    role = snapshots[0].role
    expected = [(Severity.WARNING, text.replace("DefaultRole", role))]
    check_concerns(snapshots, expected)
    check_concerns([space(1, master_priority=255), space(2, master_priority=255)], [])


@pytest.mark.parametrize(
    "later",
    [
        DeliveryView("p", "Trade", "Orders", "failed", 0, 1, START_NS - 301 * S, "its process is gone"),
        DeliveryView("p", "Trade", "Orders", "done", 7, START_NS - S, START_NS),
        DeliveryView("p", "Trade", "Orders", "running", 0, START_NS - S, 0),
    ],
    ids=["long ago", "served since", "tried again"],
)
def test_a_reader_that_was_served_after_all_or_is_long_gone_is_nobodys_concern(later: DeliveryView) -> None:
    failed = DeliveryView("p", "Trade", "Orders", "failed", 0, 1, START_NS - 302 * S, "its process is gone")
    check_concerns([node(deliveries=(failed, later))], [])


@pytest.mark.parametrize("name", CASES)
def test_one_node_tells_what_is_wrong(name: str) -> None:
    snapshot, severity, text = CASES[name]
    check_concerns([snapshot], [(severity, text)])


def test_a_node_that_does_not_start_for_long_is_left_alone_within_a_minute() -> None:
    check_concerns([node(state="FETCH_INITIAL", started_ns=START_NS - 50 * S)], [])


def test_a_silent_node_hides_what_it_said_before() -> None:
    check_concerns([CASES["store"][0]], [(Severity.WARNING, "n1 is silent")], after_s=2.5)


def test_a_lost_node_and_a_lost_domain_are_faults() -> None:
    notices = (
        Notice(NoticeKind.NODE_LOST, START_NS, "", node_id(1)),
        Notice(NoticeKind.DOMAIN_LOST, START_NS - S, ""),
    )
    expected = [(Severity.FAULT, "the domain is out of reach"), (Severity.FAULT, "n1 is gone")]
    check_concerns([node()], expected, notices=notices)


def test_what_only_a_non_aligner_holds_is_named_with_what_to_do() -> None:
    snapshots = [
        dataclasses.replace(one, update_period_ns=S)
        for one in (space(1), space(2, digest="else", aligner=False, count=5))
    ]
    model = SystemModel()
    for moment in (0, 10 * S):
        heard = tuple(Heard(one, START_NS + moment) for one in snapshots)
        model.apply(Update(snapshots=heard), START_NS + moment)
    (found,) = concerns(model, START_NS + 10 * S)
    assert found.text.startswith(
        "Orders on n2 differs from its master n1: it is no aligner, so what only it holds"
    )
    assert "(5 samples, n1 has " in found.text
    assert "make it an aligner" in found.text


def test_a_set_that_stays_different_is_named_with_its_master() -> None:
    snapshots = [
        dataclasses.replace(space(1), update_period_ns=100 * S),
        dataclasses.replace(space(2, digest="else"), update_period_ns=100 * S),
    ]
    expected = [(Severity.WARNING, "Orders on n2 differs from its master n1")]
    check_concerns(snapshots, [], after_s=150)
    check_concerns([dataclasses.replace(s, update_period_ns=S // 2) for s in snapshots], [], after_s=1)
    model = SystemModel()
    for moment in (0, 10 * S):
        heard = tuple(Heard(dataclasses.replace(s, update_period_ns=S), START_NS + moment) for s in snapshots)
        model.apply(Update(snapshots=heard), START_NS + moment)
    found = concerns(model, START_NS + 10 * S)
    assert [(c.severity, c.text) for c in found] == expected
    assert found[0].since_ns == START_NS


def test_an_alignment_that_stands_still_is_named() -> None:
    alignment = AlignmentView("from", node_id(1), 5, 10, 0, START_NS)
    waiting = dataclasses.replace(space(2, complete=False, alignments=(alignment,)), update_period_ns=100 * S)
    check_concerns([waiting], [], after_s=10)
    stands = "Orders on n2: alignment from 00000001 stands still"
    check_concerns([waiting], [(Severity.WARNING, stands)], after_s=11)


def test_two_confirmed_masters_contradict_each_other() -> None:
    text = "Orders, role DefaultRole: 2 masters: n1 (says n1), n2 (says n2)"
    check_concerns([space(1), space(2, master_node=2)], [(Severity.CONTRADICTION, text)])


def test_masters_of_different_roles_do_not() -> None:
    other = dataclasses.replace(space(2, master_node=2), role="Other")
    check_concerns([space(1), other], [])


def test_what_was_dropped_is_said() -> None:
    check_concerns(
        [node()], [(Severity.WARNING, "1,200 messages did not fit and are not shown")], dropped=1200
    )


def test_faults_come_first_and_the_oldest_before_the_newer() -> None:
    model = SystemModel()
    model.apply(Update(snapshots=tuple(Heard(node(n), START_NS + n * S) for n in (2, 3, 1))), START_NS)
    model.apply(Update(notices=(Notice(NoticeKind.NODE_LOST, START_NS + 9 * S, "", node_id(3)),)), START_NS)
    found = concerns(model, START_NS + 60 * S)
    assert [c.text for c in found] == ["n3 is gone", "n1 is silent", "n2 is silent"]
