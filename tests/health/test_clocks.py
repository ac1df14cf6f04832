"""Which differences of clocks are told: those that both sides see, or that last."""

from __future__ import annotations

import pytest

from ospltool.health.health import Health
from ospltool.live.feed import ReceivedSnapshot, Update
from ospltool.live.model import SystemModel
from tests import fake
from tests.fake import SECOND_NS as S
from tests.fake import START_NS
from tests.health.looking import node


@pytest.mark.parametrize("back_s", [0, None], ids=["seen otherwise", "not met"])
def test_heartbeats_that_a_node_read_late_are_no_slow_clock(back_s: int | None) -> None:
    """A node that was stopped reads them late. The others see its clock as it is, or have lost it."""
    late = (fake.fellow(1, skew_ns=-3_300_000_000), fake.fellow(2, skew_ns=-3_300_000_000))
    back = () if back_s is None else (fake.fellow(3, skew_ns=back_s * S),)
    heard = [
        node(1, fellows=(fake.fellow(2), *back)),
        node(2, fellows=(fake.fellow(1), *back)),
        node(3, fellows=late),
    ]
    model = SystemModel()
    health = Health(model)
    for second in range(8):
        now_ns = START_NS + second * S
        model.apply(Update(tuple(ReceivedSnapshot(each, now_ns) for each in heard)), now_ns)
        health.update(now_ns)
        assert "DUL-CLOCK-SKEW" not in [one.code.id for one in health.open]


@pytest.mark.parametrize("ahead_ns", [5 * S, 6 * S // 10], ids=["at once", "over a slow link"])
def test_a_clock_that_both_sides_see_off_is_told_at_once(ahead_ns: int) -> None:
    model = SystemModel()
    heard = [
        node(1, fellows=(fake.fellow(2, skew_ns=ahead_ns),)),
        node(2, fellows=(fake.fellow(1, skew_ns=-5 * S),)),
    ]
    model.apply(Update(tuple(ReceivedSnapshot(each, START_NS) for each in heard)), START_NS)
    health = Health(model)
    health.update(START_NS)
    assert [one.code.id for one in health.open] == ["DUL-CLOCK-SKEW"]
