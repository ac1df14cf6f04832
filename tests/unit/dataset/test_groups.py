"""What is kept of a group's QoS while more becomes known of its topic."""

from __future__ import annotations

import functools

from hypothesis import given
from hypothesis import strategies as st

from engine.dataset.groups import DurabilityKind, GroupQos

KEPT = (DurabilityKind.TRANSIENT, DurabilityKind.PERSISTENT)
TOLD = st.builds(GroupQos, st.sampled_from(KEPT), requested=st.sampled_from(DurabilityKind))


@given(st.sampled_from(KEPT), st.lists(TOLD))
def test_the_highest_durability_that_is_told_is_requested_and_the_rest_stays(
    durability: DurabilityKind, told: list[GroupQos]
) -> None:
    first = GroupQos(durability, history_depth=7)
    asked = max((qos.requested for qos in told), default=first.requested)
    kept = functools.reduce(GroupQos.raised_by, told, first)
    assert kept == GroupQos(max(durability, asked), history_depth=7, requested=asked)
