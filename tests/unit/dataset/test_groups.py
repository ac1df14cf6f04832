"""What is kept of a group's QoS while more becomes known of its topic."""

from __future__ import annotations

import functools

from hypothesis import given
from hypothesis import strategies as st

from engine.dataset.groups import DurabilityKind, GroupQos

KEPT = (DurabilityKind.TRANSIENT, DurabilityKind.PERSISTENT)
WRITERS = st.builds(GroupQos, st.sampled_from(KEPT))
TOPICS = st.builds(GroupQos, st.sampled_from(KEPT), requested=st.sampled_from(KEPT))


def kept(first: GroupQos, told: list[GroupQos]) -> GroupQos:
    return functools.reduce(GroupQos.raised_by, told, first)


@given(st.sampled_from(KEPT), st.lists(TOPICS | WRITERS), st.data())
def test_the_highest_durability_that_topics_request_counts_and_the_rest_stays(
    durability: DurabilityKind, told: list[GroupQos], data: st.DataObject
) -> None:
    """In any order; a writer that offers more than its topic says raises nothing."""
    first = GroupQos(durability, history_depth=7, requested=durability)
    asked = max(durability, *(qos.requested for qos in told), durability)
    assert kept(first, told) == kept(first, data.draw(st.permutations(told)))
    assert kept(first, told) == GroupQos(asked, history_depth=7, requested=asked)


@given(st.sampled_from(KEPT), st.lists(WRITERS))
def test_the_highest_durability_of_the_writers_counts_while_no_topic_is_known(
    durability: DurabilityKind, told: list[GroupQos]
) -> None:
    highest = max([durability, *(qos.durability for qos in told)])
    assert kept(GroupQos(durability), told) == GroupQos(highest)


def test_a_writer_that_differs_is_told_with_both_values_of_each_policy() -> None:
    stays = GroupQos(DurabilityKind.PERSISTENT)
    offered = GroupQos(DurabilityKind.TRANSIENT, history_depth=0, max_samples=5, representations=(2,))
    assert stays.differences(offered) == (
        "DURABILITY: offered TRANSIENT, kept as PERSISTENT",
        "history: offered KEEP_ALL, kept as KEEP_LAST 1",
        "max_samples: offered 5, kept as unlimited",
        "DATA_REPRESENTATION: offered XCDR2, kept as XCDR1+XCDR2",
    )
    assert stays.differences(GroupQos(DurabilityKind.PERSISTENT, requested=DurabilityKind.TRANSIENT)) == ()
