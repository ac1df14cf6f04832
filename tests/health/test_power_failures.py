"""A power failure is one incident, although its nodes come back one after the other and in new processes."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from engine.runtime.monitor import NodeSnapshot
from ospltool.health.health import Health
from ospltool.live.expectation import Expectation, ExpectedSpace
from ospltool.live.feed import FeedNotice, NoticeKind, ReceivedSnapshot, Update
from ospltool.live.model import SystemModel
from ospltool.live.supervision import SupervisorReport
from tests import fake
from tests.fake import SECOND_NS as S
from tests.fake import START_NS, node_id
from tests.health.looking import incidents, looked


def node(number: int, **changes: int) -> NodeSnapshot:
    return fake.snapshot(number, fake.name_space("Orders", 1), **changes)


@pytest.mark.parametrize("is_power_failure", [False, True])
def test_a_restart_is_told_unless_the_whole_domain_was_away(is_power_failure: bool) -> None:
    model = SystemModel()
    model.apply(Update(snapshots=(ReceivedSnapshot(node(1, pid=1), START_NS),)), START_NS)
    lost, found = (
        FeedNotice(kind, START_NS + S, "") for kind in (NoticeKind.DOMAIN_LOST, NoticeKind.DOMAIN_FOUND)
    )
    if is_power_failure:
        model.apply(Update(notices=(lost,)), START_NS + S)
    again = ReceivedSnapshot(node(1, pid=2, started_ns=START_NS + S), START_NS + 2 * S)
    notices = (found,) if is_power_failure else ()
    model.apply(Update(snapshots=(again,), notices=notices), START_NS + 2 * S)
    codes = [one.code.id for one in incidents(model, START_NS + 2 * S)]
    assert codes == ([] if is_power_failure else ["DUL-NODE-RESTARTED"])


def test_a_node_that_was_lost_with_the_domain_has_time_to_come_back() -> None:
    model = SystemModel()
    model.apply(
        Update(snapshots=tuple(ReceivedSnapshot(node(number), START_NS) for number in (1, 2))), START_NS
    )
    lost, found = (
        FeedNotice(kind, START_NS + S, "") for kind in (NoticeKind.DOMAIN_LOST, NoticeKind.DOMAIN_FOUND)
    )
    gone = FeedNotice(NoticeKind.NODE_LOST, START_NS + S, "", node_id(2))
    model.apply(Update(notices=(lost, gone)), START_NS + S)
    model.apply(Update(notices=(found,)), START_NS + S)
    health = Health(model)
    for seconds in range(2, 12):
        now_ns = START_NS + seconds * S
        model.apply(Update(snapshots=(ReceivedSnapshot(node(1), now_ns),)), now_ns)
        health.update(now_ns)
        codes = ["DUL-NODE-GONE"] if seconds >= 5 else []
        assert [one.code.id for one in health.open] == codes, seconds


EXPECTED = Expectation(("n1", "n2"), (ExpectedSpace("Orders", copies=2, on_disk=2),))


def test_copies_are_counted_anew_when_a_lost_domain_is_found() -> None:
    """Nodes that come back one after the other are no lack of copies before their time is over."""
    model = SystemModel()
    health = Health(model, EXPECTED)
    for second in range(30):
        now_ns = START_NS + second * S
        heard = {1, 2} if second < 3 else set() if second < 20 else {1} if second < 23 else {1, 2}
        kind = {4: NoticeKind.DOMAIN_LOST, 20: NoticeKind.DOMAIN_FOUND}.get(second)
        gone = tuple(FeedNotice(NoticeKind.NODE_LOST, now_ns, "", node_id(n)) for n in (1, 2) if second == 4)
        notices = (*((FeedNotice(kind, now_ns, ""),) if kind else ()), *gone)
        snapshots = tuple(
            ReceivedSnapshot(
                node(
                    one, time_ns=now_ns, pid=one + second // 20, started_ns=START_NS + second // 20 * 19 * S
                ),
                now_ns,
            )
            for one in sorted(heard)
        )
        model.apply(Update(snapshots=snapshots, notices=notices), now_ns)
        health.update(now_ns)
    assert "DUL-DOMAIN-LOST" in {one.code.id for one in health.every}
    assert not [one for one in health.every if "COPIES" in one.code.id]


@pytest.mark.parametrize(
    ("changes", "effect"),
    [
        ({}, "n2 is complete again, nothing lost"),
        ({"count": 990}, "n2 is complete again with 10 samples fewer than before"),
        ({"complete": False, "phase": "align"}, "n2 takes its set again"),
    ],
)
def test_a_restart_is_told_in_words_of_the_operator(changes: dict[str, Any], effect: str) -> None:
    """When, how it ended, how long it was away and what it lost; no process ids."""
    killed = (
        "its supervisor saw at 01:03:20 UTC: the node ended unexpectedly (killed by signal 9) (restart 1)"
    )
    model = SystemModel()
    others = (fake.snapshot(1, fake.name_space("Orders", 1, count=1000), fellows=(fake.fellow(2),)),)
    before = fake.snapshot(2, fake.name_space("Orders", 1, count=1000), pid=1, fellows=(fake.fellow(1),))
    after = fake.snapshot(
        2,
        fake.name_space("Orders", 1, **{"count": 1000, **changes}),
        pid=2,
        started_ns=START_NS + S,
        fellows=(fake.fellow(1),),
    )
    model.apply(Update(tuple(ReceivedSnapshot(one, START_NS) for one in (*others, before))), START_NS)
    now_ns = START_NS + 2 * S + S // 2
    model.apply(Update(tuple(ReceivedSnapshot(one, now_ns) for one in (*others, after))), now_ns)
    found = looked(model, now_ns, reports={"n2": SupervisorReport("", pid=2, failure=killed)}).open[0]
    assert found.code.id == "DUL-NODE-RESTARTED"
    assert re.fullmatch(
        r"n2 failed and was started again: not heard for 2\.5 s, from \d\d:\d\d:\d\d to \d\d:\d\d:\d\d UTC",
        found.what,
    )
    assert found.why == killed
    assert effect in found.effect


def test_a_node_that_was_started_again_and_is_not_heard_yet_is_not_waited_for_in_vain() -> None:
    model = SystemModel()
    heard = (fake.snapshot(1, fellows=(fake.fellow(2),)), fake.snapshot(2, pid=5, fellows=(fake.fellow(1),)))
    model.apply(Update(tuple(ReceivedSnapshot(one, START_NS) for one in heard)), START_NS)
    now_ns = START_NS + 5 * S
    model.apply(Update((ReceivedSnapshot(heard[0], now_ns),)), now_ns)
    (found,) = looked(
        model, now_ns + 2 * S, reports={"n2": SupervisorReport("", is_starting=True, pid=6)}
    ).open
    assert (found.code.id, found.what) == (
        "DUL-NODE-SILENT",
        "n2 failed, was started again, and is not heard yet",
    )
    assert found.next.startswith("Wait: n2 starts.")


def test_all_nodes_that_come_back_before_their_leases_have_ended_are_no_news() -> None:
    """Nobody tells then that the domain was lost: only their silence does."""
    model = SystemModel()
    health = Health(model)
    seen: set[tuple[str, str]] = set()
    for second in range(40):
        now_ns = START_NS + second * S
        numbers = (1, 2, 3) if second < 10 else () if second < 16 else (1,) if second < 19 else (1, 2, 3)
        began_ns = START_NS + 16 * S if second >= 16 else START_NS - 60 * S
        heard = [node(one, time_ns=now_ns, pid=one + second // 16, started_ns=began_ns) for one in numbers]
        shown = [
            msgspec.structs.replace(
                one, fellows=tuple(fake.fellow(n) for n in numbers if node_id(n) != one.id)
            )
            for one in heard
        ]
        model.apply(Update(tuple(ReceivedSnapshot(one, now_ns) for one in shown)), now_ns)
        health.update(now_ns)
        seen.update((one.code.id, one.severity.name) for one in health.every if one.severity.name == "ERROR")
    assert seen == {("DUL-DOMAIN-LOST", "ERROR")}
    assert health.open == []


def test_a_short_silence_has_one_time_of_day() -> None:
    model = SystemModel()
    for tenth, pid in ((0, 1), (7, 2)):
        now_ns = START_NS + tenth * S // 10
        one = fake.snapshot(2, fake.name_space("Orders", 2), pid=pid, started_ns=now_ns)
        model.apply(Update((ReceivedSnapshot(one, now_ns),)), now_ns)
    (told,) = model.remarks.present(fake.node_id(2), START_NS + S)
    assert re.fullmatch(r"not heard for 0\.7 s, at \d\d:\d\d:\d\d UTC", told.text)
