"""A power failure is one incident, although its nodes come back one after the other and in new processes."""

from __future__ import annotations

import pytest

from engine.runtime.monitor import NodeSnapshot
from ospltool.health.health import Health
from ospltool.live.expectation import Expectation, ExpectedSpace
from ospltool.live.feed import FeedNotice, NoticeKind, ReceivedSnapshot, Update
from ospltool.live.model import SystemModel
from tests import fake
from tests.fake import SECOND_NS as S
from tests.fake import START_NS, node_id
from tests.health.looking import incidents


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
    for seconds, codes in ((2, set()), (12, {"DUL-NODE-GONE"})):
        again = ReceivedSnapshot(node(1), START_NS + seconds * S)
        model.apply(Update(snapshots=(again,)), START_NS + seconds * S)
        assert {one.code.id for one in incidents(model, START_NS + seconds * S)} == codes


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
