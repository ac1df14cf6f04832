"""What has settled of a set: two nodes agree on it while what is newer reaches them in different orders."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.messages import Outgoing, RollUp, Settled, Status
from engine.core.name_spaces import Group
from engine.core.states import ServiceState
from engine.dataset.dataset import DataSet
from engine.dataset.group_set import GroupSet
from engine.dataset.sample import DATA, DISPOSE, Sample, make_sample
from engine.dataset.settling import KEPT_NS, STEP_NS, WIDTH_NS, SettlingClock, border_before
from engine.runtime import codec

NOW_NS = 1_800_000_000_000_000_000
SECOND_NS = 1_000_000_000


def present(wall_ns: int = NOW_NS) -> SettlingClock:
    made = SettlingClock()
    made.advance(wall_ns)
    return made


def sample(time_ns: int, key: int, status: int = DATA, writer: bytes = b"W" * 16) -> Sample:
    return make_sample(time_ns, writer, status, bytes([key]), b"" if status == DISPOSE else b"data")


writes = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 3), st.sampled_from((DATA, DATA, DISPOSE))),
    max_size=40,
)


@given(
    history=writes,
    seen=st.tuples(st.integers(0, 40), st.integers(0, 40)),
    depth=st.sampled_from((0, 1, 3)),
    joined=st.booleans(),
)
def test_nodes_agree_on_what_both_have_seen_whatever_each_has_seen_since(
    history: list[tuple[int, int, int]], seen: tuple[int, int], depth: int, joined: bool
) -> None:
    """Samples come in the order of their times; one node is further than the other."""
    start_ns = NOW_NS - 5 * SECOND_NS
    everything = [sample(start_ns + n * 100_000_000, key, kind) for n, key, kind in sorted(history)]
    sets = [GroupSet(depth, present()), GroupSet(depth, present())]
    for group_set, count in zip(sets, seen, strict=True):
        if joined:
            group_set.extend(everything[:count])
        else:
            for one in everything[:count]:
                group_set.apply(one)
    both = everything[: min(seen)]
    if not both or joined:
        return  # what comes in bulk is dated later; that it ends well is the next test
    until_ns = border_before(both[-1].source_time_ns)
    assert sets[0].settled(until_ns) == sets[1].settled(until_ns)


@given(order=st.permutations(range(12)), depth=st.sampled_from((0, 1, 2)), bulk=st.integers(0, 12))
def test_once_all_are_old_every_order_and_way_of_arrival_is_equal(
    order: list[int], depth: int, bulk: int
) -> None:
    everything = [sample(NOW_NS - n * 300_000_000, n % 4, DISPOSE if n == 5 else DATA) for n in range(12)]
    clock = present()
    straight, mixed = GroupSet(depth, clock), GroupSet(depth, clock)
    for one in reversed(everything):
        straight.apply(one)
    mixed.extend([everything[place] for place in order[:bulk]])
    for place in order[bulk:]:
        mixed.apply(everything[place])
    clock.advance(NOW_NS + KEPT_NS + 2 * STEP_NS)
    for group_set in (straight, mixed):
        group_set.settle_with(clock)
        until_ns = border_before(clock.now_ns - SECOND_NS)
        assert group_set.settled(until_ns) == group_set.settled(until_ns + 2 * STEP_NS)
    assert straight.settled(until_ns) == mixed.settled(until_ns)


@given(
    batches=st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=6, unique=True), max_size=8),
    until=st.integers(-4, 40),
)
def test_batches_are_dated_like_single_samples(batches: list[list[int]], until: int) -> None:
    singly, batched = GroupSet(1, present()), GroupSet(1, present())
    times = itertools.count(NOW_NS - 2 * SECOND_NS, 37_000_000)
    for keys in batches:
        fresh = [sample(next(times), key) for key in keys]
        batched.renew(fresh)
        for one in fresh:
            singly.apply(one)
    until_ns = border_before(NOW_NS - 2 * SECOND_NS) + until * WIDTH_NS
    assert singly.settled(until_ns) == batched.settled(until_ns)


@pytest.mark.parametrize("wrong_s", [-86_400.0, -3_600.5, -2.0, 0.0, 0.3, 9.9, 3_600.0, 86_400.0])
def test_writers_with_wrong_clocks_are_dated_alike_and_near_the_present(wrong_s: float) -> None:
    """Two nodes get each sample within some milliseconds of each other, and one is behind."""
    chance = random.Random(7)
    nodes = [present(), present()]
    sets = [GroupSet(1, node) for node in nodes]
    agreed = 0
    for n in range(400):
        now_ns = NOW_NS + n * 20_000_000
        one = sample(now_ns + int(wrong_s * 1e9) - 1_000_000, n % 5)
        for node, group_set in zip(nodes, sets, strict=True):
            node.advance(now_ns)
            node.saw(one.writer, one.source_time_ns, now_ns + chance.randrange(8_000_000))
            if n < 398 or group_set is sets[0]:
                group_set.apply(one)
            group_set.settle_with(node)
        if n > 100:
            until_ns = border_before(now_ns - SECOND_NS)
            agreed += sets[0].settled(until_ns) == sets[1].settled(until_ns)
    assert agreed == 299
    lead_ns = nodes[0].skews.get(b"W" * 16, 0) + int(wrong_s * 1e9)
    assert -SECOND_NS <= lead_ns <= STEP_NS + SECOND_NS


@pytest.mark.parametrize("offset_s", [-3_600, 3_600])
def test_what_was_dated_by_the_clock_of_a_former_master_hides_nothing(offset_s: int) -> None:
    clock = present()
    nodes = [GroupSet(1, clock), GroupSet(1, clock)]
    for n in range(10):
        clock.saw(b"W" * 16, NOW_NS + n, NOW_NS + n)
        for group_set in nodes[n == 7 :]:
            group_set.apply(sample(NOW_NS + n, n))
    clock.follow(offset_s * SECOND_NS)
    clock.advance(NOW_NS + SECOND_NS)
    until_ns = border_before(clock.now_ns - SECOND_NS)
    assert nodes[0].settled(until_ns) != nodes[1].settled(until_ns)
    assert nodes[1].settled(until_ns) == (10, nodes[1].summary().digest)


def test_changes_are_forgotten_so_that_a_busy_group_stays_small() -> None:
    group_set, clock = GroupSet(1, present()), present()
    for n in range(2_000):
        clock.advance(NOW_NS + n * 50_000_000)
        group_set.settle_with(clock)
        group_set.apply(sample(clock.now_ns, n % 7))
    assert len(group_set._recent._changes) <= (KEPT_NS + 2 * STEP_NS) // WIDTH_NS


def test_purges_and_deletions_are_dated_by_the_present() -> None:
    data, clock = DataSet(), present()
    data.settle_with(clock)
    group_set = data.open_group(Group("p", "T"), 1)
    for n in range(10):
        group_set.apply(sample(NOW_NS - 4 * SECOND_NS + n, n))
    before = data.settled(border_before(NOW_NS - SECOND_NS))
    group_set.remove_instance(bytes([3]))
    group_set.raise_floor(NOW_NS - 4 * SECOND_NS + 4)
    assert data.settled(border_before(NOW_NS - SECOND_NS)) == before
    clock.advance(NOW_NS + 2 * SECOND_NS)
    assert data.settled(border_before(clock.now_ns - SECOND_NS)) == (5, data.summary().digest)


def test_heartbeats_grow_by_less_than_200_bytes_whatever_the_number_of_groups() -> None:
    data, clock = DataSet(), present()
    data.settle_with(clock)
    for n in range(1_000):
        data.open_group(Group(f"partition {n}", "T"), 1).apply(sample(NOW_NS - 2 * SECOND_NS, 1))
    until_ns = border_before(NOW_NS - SECOND_NS)
    settled = Settled(until_ns, *data.settled(until_ns))
    assert settled.count == 1_000
    sizes = []
    for each in (None, settled):
        roll_up = RollUp("all", complete=True, count=1_000, digest=data.summary().digest, settled=each)
        status = Status(1, 1, "n1", "r", "h", ServiceState.COMPLETE, 1.0, 4.0, NOW_NS, roll_ups=(roll_up,))
        sizes.append(len(codec.encode(Outgoing(status))))
    assert sizes[1] - sizes[0] <= 200
