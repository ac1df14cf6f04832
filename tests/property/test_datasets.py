"""Sets: keeping and joining against a slow model, summaries against recomputation."""

from __future__ import annotations

import itertools
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.name_spaces import Group
from engine.dataset.dataset import DataSet
from engine.dataset.group_set import ApplyOutcome, GroupSet
from engine.dataset.sample import DATA, DISPOSE, UNREGISTER, UNTIMED, Sample, is_intact, make_sample, retained
from tests.property.samples import DEPTHS, GROUPS, KEYS, WRITERS, contents, model, samples

depths = pytest.mark.parametrize("depth", DEPTHS)


def group_set(depth: int, arrived: list[Sample]) -> GroupSet:
    """A set into which these samples came in this order."""
    result = GroupSet(depth)
    for sample in arrived:
        result.apply(sample)
    return result


def data_set(depth: int, arrived: list[tuple[Group, Sample]]) -> DataSet:
    """A name-space's set into which these samples came in this order."""
    result = DataSet()
    for group, sample in arrived:
        result.open_group(group, depth).apply(sample)
    return result


def joined(*sets: DataSet) -> DataSet:
    """The MERGE of sets, which stay as they are."""
    result = DataSet()
    for each in sets:
        result.join(each)
    return result


def content(data: DataSet) -> dict[Group, set[Sample]]:
    """What a set holds, empty groups left out."""
    return {group: set(part.samples()) for group, part in data.groups.items() if part.count}


def check_is_sound(data: GroupSet, everything: list[Sample]) -> None:
    """What a set knows of itself is what can be found out by looking at its samples."""
    here = list(data.samples())
    summary = data.summary()
    assert summary.count == len(here) == len(set(here)) == data.count
    assert summary.digest == sum(int.from_bytes(s.digest) for s in here) % 2**128
    assert summary.newest_ns >= max((s.source_time_ns for s in here), default=0)
    assert data.payload_bytes == sum(len(s.payload) for s in here)
    assert data.instance_count == len(data.keys())
    assert data.keys() == sorted({s.key for s in here})
    assert all(is_intact(s) and s in everything for s in here)
    keys = data.keys()
    for key in keys:
        history = data.instance(key)
        assert list(history) == sorted(history)
        said = [s for s in history if s.status != UNREGISTER]
        assert (key in data.disposed) == bool(said and said[-1].status & DISPOSE)
    assert data.disposed <= set(keys)


@depths
@given(arrived=st.lists(samples(), max_size=20))
def test_what_is_kept_is_what_the_rule_says(depth: int, arrived: list[Sample]) -> None:
    everything = sorted({sample for sample in arrived if sample.key == KEYS[0]})
    assert set(retained(everything, depth)) == model(everything, depth)
    assert retained(everything, depth) == sorted(retained(everything, depth))
    assert set(group_set(depth, arrived).samples()) == model(arrived, depth)


@depths
@given(arrived=st.lists(samples(), max_size=12), order=st.randoms(use_true_random=False))
def test_order_and_repetition_of_arrival_mean_nothing(
    depth: int, arrived: list[Sample], order: object
) -> None:
    shuffled = arrived + arrived[: len(arrived) // 2]
    order.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis gives a random.Random
    first, second = group_set(depth, arrived), group_set(depth, shuffled)
    assert set(first.samples()) == set(second.samples())
    assert first.summary() == second.summary()
    assert first.disposed == second.disposed


@depths
@given(arrived=st.lists(samples(), max_size=20))
def test_every_arrival_says_what_it_did(depth: int, arrived: list[Sample]) -> None:
    data = GroupSet(depth)
    for index, sample in enumerate(arrived):
        before = set(data.samples())
        outcome, evicted = data.apply(sample)
        after = set(data.samples())
        assert (outcome is ApplyOutcome.DUPLICATE) == (sample in before)
        assert (outcome is ApplyOutcome.STORED) == (sample in after - before)
        assert len(evicted) == len(set(evicted))
        assert after == (before - set(evicted)) | ({sample} if outcome is ApplyOutcome.STORED else set())
        check_is_sound(data, arrived[: index + 1])


@depths
@given(st.data())
def test_summary_is_right_after_any_operations(depth: int, data: st.DataObject) -> None:
    arrived: list[Sample] = []
    subject = GroupSet(depth)
    for _ in range(data.draw(st.integers(1, 20), label="operations")):
        before = set(subject.samples())
        match data.draw(st.sampled_from(("apply", "apply", "apply", "remove", "floor")), label="operation"):
            case "apply":
                arrived.append(data.draw(samples(), label="sample"))
                subject.apply(arrived[-1])
            case "remove":
                key = data.draw(st.sampled_from(KEYS), label="key")
                assert set(subject.remove_instance(key)) == {s for s in before if s.key == key}
                assert not subject.instance(key)
            case "floor":
                until_ns = data.draw(st.integers(0, 6), label="until")
                gone = {s for s in before if s.source_time_ns <= until_ns}
                assert set(subject.raise_floor(until_ns)) == gone
                assert before - set(subject.samples()) == gone
        check_is_sound(subject, arrived)
        assert subject.summary().newest_ns <= max((s.source_time_ns for s in arrived), default=0)


@depths
@given(parts=st.lists(contents(8), min_size=1, max_size=3))
def test_join_is_the_set_of_everything_in_any_order_and_grouping(
    depth: int, parts: list[list[tuple[Group, Sample]]]
) -> None:
    sets = [data_set(depth, part) for part in parts]
    everything = [one for part in parts for one in part]
    expected = {
        group: wanted
        for group in GROUPS
        if (wanted := model([s for g, s in everything if g == group], depth))
    }
    results = [joined(*order) for order in itertools.permutations(sets)]
    results.append(joined(sets[0], joined(*sets[1:])))
    results.append(joined(*sets, *sets))
    for result in results:
        assert content(result) == expected
        assert result.summary() == results[0].summary()
        for group in result.groups.values():
            check_is_sound(group, [sample for _, sample in everything])


@depths
@given(left=contents(8), right=contents(8), ours_ns=st.integers(0, 6), theirs_ns=st.integers(0, 6))
def test_deleted_history_stays_deleted_whoever_joins_whom(
    depth: int,
    left: list[tuple[Group, Sample]],
    right: list[tuple[Group, Sample]],
    ours_ns: int,
    theirs_ns: int,
) -> None:
    ours, theirs = data_set(depth, left), data_set(depth, right)
    ours.open_group(GROUPS[0], depth).raise_floor(ours_ns)
    theirs.open_group(GROUPS[0], depth).raise_floor(theirs_ns)
    one, other = joined(ours, theirs), joined(theirs, ours)
    everything = [sample for group, sample in left + right if group == GROUPS[0]]
    assert content(one) == content(other)
    assert content(one).get(GROUPS[0], set()) == model(everything, depth, max(ours_ns, theirs_ns))


@depths
@given(left=contents(10), right=contents(10))
def test_join_counts_what_was_new(
    depth: int, left: list[tuple[Group, Sample]], right: list[tuple[Group, Sample]]
) -> None:
    ours, theirs = data_set(depth, left), data_set(depth, right)
    both = joined(ours, theirs)
    gained = sum(len(part - content(ours).get(group, set())) for group, part in content(both).items())
    assert ours.join(theirs) >= gained  # one that a later one pushed out again was new, too
    assert ours.join(theirs) == 0


@depths
@given(left=contents(8), right=contents(8))
def test_digests_are_equal_if_and_only_if_sets_are(
    depth: int, left: list[tuple[Group, Sample]], right: list[tuple[Group, Sample]]
) -> None:
    ours, theirs = data_set(depth, left), data_set(depth, right)
    assert ours.summary().same_content(theirs.summary()) == (content(ours) == content(theirs))


@given(st.lists(samples(), min_size=2, max_size=4, unique=True), st.permutations(range(3)))
def test_differences_that_would_cancel_each_other_show(planted: list[Sample], order: list[int]) -> None:
    a, b = planted[:2]
    here, there = GROUPS[order[0]], GROUPS[order[1]]
    twins = [
        ([(here, a), (there, a)], []),  # what is there twice is not nothing
        ([(here, a)], [(there, a)]),  # the same sample in another group
        ([(here, a), (there, b)], [(here, b), (there, a)]),  # two that changed places
        ([(here, a), (there, a)], [(here, b), (there, b)]),
        ([(here, s) for s in planted], [(there, s) for s in planted]),
    ]
    for left, right in twins:
        assert not data_set(0, left).summary().same_content(data_set(0, right).summary())


@given(samples())
def test_every_field_of_a_sample_is_in_its_digest(sample: Sample) -> None:
    changed = [
        sample._replace(source_time_ns=sample.source_time_ns + 1),
        sample._replace(writer=bytes(16)),
        sample._replace(sequence=sample.sequence + 1),
        sample._replace(status=sample.status ^ DISPOSE),
        sample._replace(key=sample.key + b"+"),
        sample._replace(payload=sample.payload + b"+"),
        sample._replace(key=sample.key + sample.payload, payload=b""),
    ]
    assert is_intact(sample)
    assert not any(is_intact(other) for other in changed if other != sample)


@depths
@given(
    written=st.lists(
        st.tuples(st.sampled_from(WRITERS), st.sampled_from((b"x", b"y"))), min_size=1, max_size=8
    ),
    delays=st.lists(st.lists(st.integers(0, 3), min_size=8, max_size=8), min_size=3, max_size=3),
    order=st.randoms(use_true_random=False),
)
def test_a_sample_without_source_timestamp_is_one_sample_on_all_nodes(
    depth: int, written: list[tuple[bytes, bytes]], delays: list[list[int]], order: Random
) -> None:
    """Three nodes receive it at different times; the earliest counts, in whatever order they hear of it."""
    sets, times = [], dict.fromkeys(range(len(written)), 1_000_000)
    for delayed in delays:
        now_ns, received = 0, []
        for number, ((writer, payload), delay) in enumerate(zip(written, delayed, strict=False)):
            now_ns = max(now_ns + 1, 4 * number + delay)
            times[number] = min(times[number], now_ns)
            received.append(make_sample(now_ns, writer, DATA, b"", payload, UNTIMED | number + 1))
        sets.append(group_set(depth, received))
    for receiver, giver in order.sample([(a, b) for a in range(3) for b in range(3) if a != b] * 2, k=12):
        if order.random() < 0.5:
            sets[receiver].extend(sets[giver].samples())
        else:
            for sample in list(sets[giver].samples()):
                sets[receiver].apply(sample)
    for receiver, giver in [(0, 1), (0, 2), (1, 0), (2, 0)]:
        sets[receiver].extend(sets[giver].samples())
    assert len({(one.summary().count, one.summary().digest) for one in sets}) == 1
    history = sets[0].instance(b"")
    numbers = [one.sequence & ~UNTIMED for one in history]
    assert len(set(numbers)) == len(numbers) == min(len(written), depth or len(written))
    assert all(one.source_time_ns == times[(one.sequence & ~UNTIMED) - 1] for one in history) or depth
    assert sets[0].payload_bytes == len(history)
