"""Resource limits of groups: keeping and joining against a slow model, and the settled comparison."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.dataset.dataset import DataSet, LimitedSet, make_set
from engine.dataset.group_set import ApplyOutcome, GroupSet
from engine.dataset.groups import NO_LIMITS, GroupLimits, loosest
from engine.dataset.sample import DATA, Sample
from engine.dataset.settling import KEPT_NS, STEP_NS, WIDTH_NS, SettlingClock, border_before
from tests.property.samples import GROUPS, model, samples
from tests.property.test_datasets import check_is_sound
from tests.property.test_settling import NOW_NS, SECOND_NS, present, sample

KEYS = (b"", b"a", b"b", b"k", b"long key")
LIMITS = (
    GroupLimits(max_samples=3),
    GroupLimits(max_samples=1),
    GroupLimits(max_instances=2),
    GroupLimits(max_samples_per_instance=2),
    GroupLimits(max_samples=5, max_instances=2, max_samples_per_instance=3),
    GroupLimits(max_samples=4, max_instances=2),
    GroupLimits(max_samples=2, max_instances=3),
    GroupLimits(max_samples=4, max_samples_per_instance=1),
    GroupLimits(max_instances=1, max_samples_per_instance=1),
)
limits_and_depths = pytest.mark.parametrize(
    ("depth", "limits"), list(itertools.product((0, 1, 2), LIMITS)), ids=str
)
share = settings(max_examples=settings().max_examples // 3)
"""27 combinations share the examples of nine laws."""
arrivals = st.lists(samples(KEYS), max_size=20)


def made(depth: int, limits: GroupLimits, arrived: list[Sample]) -> GroupSet:
    """A set into which these samples came in this order."""
    result = make_set(depth, limits)
    for one in arrived:
        result.apply(one)
    return result


def slow(arrived: list[Sample], depth: int, limits: GroupLimits) -> set[Sample]:
    """What the documentation says is kept, sample by sample."""
    everything = set(arrived)
    depths = [each for each in (depth, limits.max_samples_per_instance) if each > 0]
    instances = sorted({one.key for one in everything})
    if limits.max_instances > 0:
        most = limits.max_instances
        if limits.max_samples > 0:
            most = min(most, limits.max_samples)
            depths.append(limits.max_samples // most)
        everything = {one for one in everything if one.key in instances[:most]}
    there = model(sorted(everything), min(depths, default=0))
    writes = sorted((one for one in there if one.status & DATA), reverse=True)
    if limits.max_instances <= 0 < limits.max_samples <= len(writes):
        there = {one for one in there if one >= writes[limits.max_samples - 1]}
    return there


@limits_and_depths
@share
@given(arrived=arrivals)
def test_what_is_kept_is_what_the_rule_says(depth: int, limits: GroupLimits, arrived: list[Sample]) -> None:
    subject = made(depth, limits, arrived)
    assert isinstance(subject, LimitedSet)
    assert set(subject.samples()) == slow(arrived, depth, limits)
    writes = [one for one in subject.samples() if one.status & DATA]
    assert limits.max_samples < 0 or len(writes) <= limits.max_samples
    assert limits.max_instances < 0 or subject.instance_count <= limits.max_instances
    for key in subject.keys() if limits.max_samples_per_instance > 0 else ():
        assert sum(1 for one in writes if one.key == key) <= limits.max_samples_per_instance


@limits_and_depths
@share
@given(arrived=arrivals, order=st.randoms(use_true_random=False), bulk=st.integers(0, 20))
def test_order_repetition_and_bulk_mean_nothing(
    depth: int, limits: GroupLimits, arrived: list[Sample], order: random.Random, bulk: int
) -> None:
    shuffled = arrived + arrived[: len(arrived) // 2]
    order.shuffle(shuffled)
    first, second = made(depth, limits, arrived), make_set(depth, limits)
    second.extend(shuffled[:bulk])
    for one in shuffled[bulk:]:
        second.apply(one)
    assert set(first.samples()) == set(second.samples())
    assert first.summary().same_content(second.summary())
    assert first.disposed == second.disposed


@limits_and_depths
@share
@given(arrived=arrivals)
def test_every_arrival_says_what_it_did_and_is_counted(
    depth: int, limits: GroupLimits, arrived: list[Sample]
) -> None:
    subject = make_set(depth, limits)
    for index, one in enumerate(arrived):
        before, counted = set(subject.samples()), subject.rejected.total()
        has_no_place = subject.has_no_place(one)
        outcome, evicted = subject.apply(one)
        after = set(subject.samples())
        assert (outcome is ApplyOutcome.DUPLICATE) == (one in before)
        assert (outcome is ApplyOutcome.STORED) == (one in after - before)
        assert len(evicted) == len(set(evicted))
        assert after == (before - set(evicted)) | ({one} if outcome is ApplyOutcome.STORED else set())
        assert has_no_place == (outcome in (ApplyOutcome.OLDER, ApplyOutcome.LIMITED))
        if has_no_place:
            assert subject.rejected.total() == counted + (outcome is ApplyOutcome.LIMITED)
        check_is_sound(subject, arrived[: index + 1])
        if outcome is ApplyOutcome.STORED and not depth:
            out = sum(1 for other in evicted if other.status & DATA)
            assert subject.rejected.total() == counted + out
    if not depth:  # then nothing but a limit pushes writes out
        written = {one for one in arrived if one.status & DATA}
        gone = len(written - set(subject.samples()))
        assert subject.rejected.total() >= gone
        assert subject.rejected.keys() <= limits._asdict().keys()


@example(  # an instance had a share of two samples, and of one with more instances
    bounds=(0, GroupLimits(5, 2, 3)),
    more=(0, GroupLimits(2, 3)),
    arrived=[sample(NOW_NS, 0), sample(NOW_NS + 1, 0)],
    later=[sample(NOW_NS, 0)],
)
@given(
    bounds=st.tuples(st.sampled_from((0, 1, 2)), st.sampled_from((NO_LIMITS, *LIMITS))),
    more=st.tuples(st.sampled_from((0, 1, 2, 3)), st.sampled_from((NO_LIMITS, *LIMITS))),
    arrived=arrivals,
    later=arrivals,
)
def test_a_set_that_may_keep_more_goes_on_like_a_new_one_with_what_it_has(
    bounds: tuple[int, GroupLimits], more: tuple[int, GroupLimits], arrived: list[Sample], later: list[Sample]
) -> None:
    subject = made(*bounds, arrived)
    depth, limits = loosest(bounds[0], more[0]), bounds[1].loosened_by(more[1])
    subject.loosen(*more)
    other = made(depth, limits, list(subject.samples()))
    for one in later:
        assert subject.apply(one) == other.apply(one)
    assert (subject.depth, subject.limits) == (other.depth, other.limits)
    check_is_sound(subject, arrived + later)
    assert subject.summary().same_content(other.summary())


@limits_and_depths
@share
@given(parts=st.lists(arrivals, min_size=1, max_size=3))
def test_a_join_is_the_set_of_everything_in_any_order_and_grouping(
    depth: int, limits: GroupLimits, parts: list[list[Sample]]
) -> None:
    sets = []
    for part in parts:
        each = DataSet()
        for one in part:
            each.open_group(GROUPS[0], depth, limits).apply(one)
        sets.append(each)

    def joined(*some: DataSet) -> DataSet:
        result = DataSet()
        for each in some:
            result.join(each)
        return result

    results = [joined(*order) for order in itertools.permutations(sets)]
    results += [joined(sets[0], joined(*sets[1:])), joined(*sets, *sets)]
    expected = slow([one for part in parts for one in part], depth, limits)
    for result in results:
        held = result.groups.get(GROUPS[0])
        assert set(held.samples() if held else ()) == expected


@limits_and_depths
@share
@given(st.data())
def test_what_is_taken_out_makes_room(depth: int, limits: GroupLimits, data: st.DataObject) -> None:
    subject = make_set(depth, limits)
    arrived: list[Sample] = []
    for _ in range(data.draw(st.integers(1, 20), label="operations")):
        before = set(subject.samples())
        match data.draw(st.sampled_from(("apply", "apply", "apply", "remove", "floor")), label="operation"):
            case "apply":
                arrived.append(data.draw(samples(KEYS), label="sample"))
                subject.apply(arrived[-1])
                above = {one for one in (*before, arrived[-1]) if one.source_time_ns > subject.floor_ns}
                assert set(subject.samples()) == slow(sorted(above), depth, limits)
            case "remove":
                key = data.draw(st.sampled_from(KEYS), label="key")
                assert set(subject.remove_instance(key)) == {one for one in before if one.key == key}
            case "floor":
                subject.raise_floor(data.draw(st.integers(0, 6), label="until"))
        check_is_sound(subject, arrived)


@pytest.mark.parametrize("limits", LIMITS, ids=str)
@given(order=st.permutations(range(12)))
def test_once_all_are_old_every_order_is_equal(limits: GroupLimits, order: list[int]) -> None:
    everything = [sample(NOW_NS - n * 300_000_000, n % 4) for n in range(12)]
    clock = present()
    straight, mixed = make_set(0, limits, clock), make_set(0, limits, clock)
    for one in reversed(everything):
        straight.apply(one)
    for place in order:
        mixed.apply(everything[place])
    clock.advance(NOW_NS + KEPT_NS + 2 * STEP_NS)
    for group_set in (straight, mixed):
        group_set.settle_with(clock)
    until_ns = border_before(clock.now_ns - SECOND_NS)
    assert straight.settled(until_ns) == mixed.settled(until_ns)


@pytest.mark.parametrize("limits", LIMITS, ids=str)
@given(
    history=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 5)), max_size=40),
    seen=st.tuples(st.integers(0, 40), st.integers(0, 40)),
)
def test_nodes_agree_on_what_both_have_seen(
    limits: GroupLimits, history: list[tuple[int, int]], seen: tuple[int, int]
) -> None:
    """Samples come in the order of their times; one node is further than the other."""
    everything = [sample(NOW_NS - 5 * SECOND_NS + n * 100_000_000, key) for n, key in sorted(history)]
    sets = [make_set(0, limits, present()), make_set(0, limits, present())]
    for group_set, count in zip(sets, seen, strict=True):
        for one in everything[:count]:
            group_set.apply(one)
    both = everything[: min(seen)]
    if both:
        until_ns = border_before(both[-1].source_time_ns)
        assert sets[0].settled(until_ns) == sets[1].settled(until_ns)


def test_who_comes_late_and_pushes_out_what_is_newer_is_dated_by_the_newer() -> None:
    """Two nodes hear two writers in different orders; nothing of it shows before both have written."""
    limits, clock = GroupLimits(max_instances=1), SettlingClock()
    clock.advance(NOW_NS)
    early, late = sample(NOW_NS - 3 * SECOND_NS, 1), sample(NOW_NS - SECOND_NS, 2)
    sets = [make_set(0, limits, clock), make_set(0, limits, clock)]
    for group_set, order in zip(sets, ((late, early), (early, late)), strict=True):
        for one in order:
            group_set.apply(one)
    for until_ns in range(border_before(NOW_NS - 4 * SECOND_NS), NOW_NS + SECOND_NS, WIDTH_NS):
        assert sets[0].settled(until_ns) == sets[1].settled(until_ns)


def test_a_busy_instance_beside_a_quiet_one_takes_no_memory() -> None:
    subject = make_set(1, GroupLimits(max_samples=100))
    subject.apply(sample(NOW_NS, 1))
    for n in range(20_000):
        subject.apply(sample(NOW_NS + n, 2))
    subject.apply(sample(NOW_NS + 50_000, 3))
    assert isinstance(subject, LimitedSet)
    assert len(subject._by_age) <= 10_000
