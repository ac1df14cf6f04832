"""Samples without sequence numbers: what stands for these, and what follows from it."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.dataset.sample import DATA, DISPOSE, UNREGISTER
from engine.persistence.core import replica as replica_module
from engine.persistence.core.positions import Positions, position_of, span, time_of
from engine.persistence.core.provider_selection import SynchronizationSettings
from tests.redundancy.laws import TriedCluster, check_converged

ON = SynchronizationSettings(enable=True)
PERIOD_MS = ON.period_ms
PIECES = st.binary(max_size=3)
CONTENTS = st.tuples(PIECES, st.integers(-3, 3), st.sampled_from([DATA, DISPOSE, DATA | DISPOSE]), PIECES)


@given(CONTENTS, CONTENTS)
def test_positions_follow_time_and_tell_samples_apart(
    one: tuple[bytes, int, int, bytes], other: tuple[bytes, int, int, bytes]
) -> None:
    left, right = position_of(*one), position_of(*other)
    assert (left == right) == (one == other)
    assert one[1] >= other[1] or left < right
    assert (time_of(left), time_of(left + span(5))) == (one[1], one[1] + 5)
    assert left > 0


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 5), PIECES), max_size=12))
def test_a_match_accounts_for_each_number_once_and_never_for_one_that_came_late(
    arrivals: list[tuple[str, int, bytes]],
) -> None:
    positions = Positions()
    claimed: dict[str, set[tuple[int, int]]] = {}
    for writer, time_ns, payload in arrivals:
        before = claimed.setdefault(writer, set())
        sample = positions.sample(writer, b"k", time_ns, DATA, payload)
        assert sample.sequence == position_of(b"k", time_ns, DATA, payload)
        ((first, last),) = sample.numbers.intervals
        highest = max((end for _, end in before), default=None)
        assert sample.late == (highest is not None and last <= highest)
        if sample.late:
            assert (first, sample.stream) == (last, f"{writer}-late")
        else:
            assert (first, sample.stream) == (last if highest is None else highest + 1, writer)
            before.add((first, last))


def test_a_new_match_accounts_only_for_what_comes() -> None:
    positions = Positions()
    first = positions.sample("w", b"k", 1, DATA, b"")
    positions.unmatched("w")
    second = positions.sample("w", b"k", 9, DATA, b"")
    assert (first.numbers.count, second.numbers.count) == (1, 1)
    assert positions.sample("w", b"k", 9, DATA, b"").late, "written twice"


def test_an_unregister_is_not_part_of_a_sample() -> None:
    both = Positions().sample("w", b"k", 1, DISPOSE | UNREGISTER, b"")
    assert both.status == DISPOSE
    assert both == Positions().sample("w", b"k", 1, DISPOSE, b"")


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["write", "write", "write", "match", "unmatch", "cut", "join"]),
        st.integers(0, 2),
        st.integers(0, 7),
    ),
    max_size=30,
)
BEFORE_IT_MATCHED = [
    ("cut", 0, 1),
    ("match", 0, 0),
    ("write", 0, 1),
    ("write", 0, 6),
    ("unmatch", 0, 0),
    ("match", 1, 0),
    ("write", 1, 2),
    ("write", 1, 3),
]
"""i0 has accounted for the stamps 1 to 6 when the writer goes back; i1 cannot know that."""


@given(st.sampled_from([2, 3]), STEPS)
@example(2, BEFORE_IT_MATCHED)
def test_all_end_with_the_same_whatever_stamps_an_application_gives(
    count: int, steps: list[tuple[str, int, int]]
) -> None:
    cluster = TriedCluster(count, 1, ON)
    numbers = itertools.count()
    for kind, one, other in steps:
        here, there = f"i{one % count}", f"i{other % count}"
        if kind == "write":
            cluster.write("w", b"%d" % (next(numbers) % 4), time_ns=other)
        elif kind == "match":
            cluster.attach("w", here)
        elif kind == "unmatch":
            cluster.detach("w", here)
        elif here != there:
            (cluster.cut if kind == "cut" else cluster.join)(here, there)
        cluster.run(one * 100)
    cluster.heal()
    cluster.run(12 * PERIOD_MS)
    check_converged(cluster)
    settled = cluster.payloads_between
    cluster.run(6 * PERIOD_MS)
    assert cluster.payloads_between == settled, "nothing moves between equals"


def test_what_came_before_others_matched_is_found_by_the_audit(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = {}
    for patience in (0, 100):
        monkeypatch.setattr(replica_module, "MARGIN_PERIODS", patience)
        cluster = TriedCluster(2, 1, ON)
        cluster.cut("i0", "i1")
        cluster.attach("w", "i0")
        for stamp in (1, 6):
            cluster.write("w", b"0", time_ns=stamp)
            cluster.run(1_000)
        cluster.detach("w", "i0")
        cluster.attach("w", "i1")
        for stamp in (2, 3):
            cluster.write("w", b"1", time_ns=stamp)
            cluster.run(1_000)
        cluster.heal()
        cluster.run(10 * PERIOD_MS)
        counted[patience] = (cluster.has_converged, cluster.replicas["i0"].counters["applied"])
    assert counted == {0: (True, 3), 100: (False, 2)}
