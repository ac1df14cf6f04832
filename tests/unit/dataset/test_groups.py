"""What is kept of a group's QoS while more becomes known of its topic."""

from __future__ import annotations

import functools
import json
import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core import untrusted
from engine.dataset.groups import DurabilityKind, GroupQos
from engine.dataset.lifespans import MAX_WRITERS_OF_GROUP, WriterLifespan

KEPT = (DurabilityKind.TRANSIENT, DurabilityKind.PERSISTENT)
WRITERS = st.builds(GroupQos, st.sampled_from(KEPT))
TOPICS = st.builds(GroupQos, st.sampled_from(KEPT), requested=st.sampled_from(KEPT))


def kept(first: GroupQos, told: list[GroupQos]) -> GroupQos:
    return functools.reduce(GroupQos.raised_by, told, first)


@given(st.sampled_from(KEPT), st.lists(TOPICS | WRITERS), st.data())
def test_the_highest_durability_that_topics_request_counts_and_the_rest_stays(
    durability: DurabilityKind, told: list[GroupQos], data: st.DataObject
) -> None:
    """In any order; a writer that offers more durability than its topic says raises nothing."""
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


BOUNDS = st.sampled_from([1, 2, 5])
HISTORIES = st.builds(
    GroupQos,
    st.just(DurabilityKind.TRANSIENT),
    history_depth=BOUNDS | st.just(0),
    max_samples=BOUNDS | st.just(-1),
    max_instances=BOUNDS | st.just(-1),
    max_samples_per_instance=BOUNDS | st.just(-1),
)


@given(st.lists(HISTORIES, min_size=1), st.data())
def test_the_deepest_history_and_the_highest_limits_count_in_any_order(
    told: list[GroupQos], data: st.DataObject
) -> None:
    """Nodes learn of writers in different orders, and end with one QoS."""
    first, *rest = data.draw(st.permutations(told))
    ends = kept(first, rest)
    depths = [qos.history_depth or math.inf for qos in told]
    assert (ends.history_depth or math.inf) == max(depths)
    highest = [
        -1 if -1 in limits else max(limits) for limits in zip(*(qos.limits for qos in told), strict=True)
    ]
    if min(highest[:2]) > 0:  # no instance's share of the samples becomes smaller
        share = max(qos.max_samples // qos.max_instances for qos in told)
        highest[0] = max(highest[0], highest[1] * share)
    assert list(ends.limits) == highest
    assert bool(first.deepened(ends)) == (
        (first.history_depth, first.limits) != (ends.history_depth, ends.limits)
    )


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


def lifespans(*pairs: tuple[int, int]) -> GroupQos:
    """A group with the lifespans of these writers."""
    told = tuple(WriterLifespan(number.to_bytes(16), lifespan_ns) for number, lifespan_ns in pairs)
    return GroupQos(DurabilityKind.PERSISTENT, lifespans=told)


def test_of_two_lifespans_of_a_writer_the_smaller_counts_and_the_last_writers_are_known() -> None:
    known = lifespans((1, 10), (2, 20))
    assert known.raised_by(lifespans((2, 25), (1, 10))) is known
    assert kept(known, [lifespans((2, 5)), lifespans((3, 0))]) == lifespans((1, 10), (2, 5), (3, 0))
    many = kept(known, [lifespans((number, 1)) for number in range(10, MAX_WRITERS_OF_GROUP + 9)])
    assert len(many.lifespans) == MAX_WRITERS_OF_GROUP
    assert many.lifespans[0] == known.lifespans[1]
    assert untrusted.json_reader(GroupQos)(json.dumps(msgspec.to_builtins(many))) == many


@pytest.mark.parametrize(("writer", "lifespan_ns"), [(bytes(15), 1), (bytes(16), -1), (bytes(16), 1 << 63)])
def test_what_is_no_lifespan_of_a_writer_is_refused(writer: bytes, lifespan_ns: int) -> None:
    told = msgspec.to_builtins(lifespans()) | {
        "lifespans": msgspec.to_builtins((WriterLifespan(writer, lifespan_ns),))
    }
    with pytest.raises(untrusted.JsonFault):
        untrusted.json_reader(GroupQos)(json.dumps(told))
