"""Differences found range by range: exactly, in few rounds, whatever the sets; nonsense is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.dataset import ranges
from engine.dataset.ranges import Ask, IdentityIndex, Search
from engine.dataset.rateless import Words

NEAR = st.integers(0, 40) | st.integers(2**64 - 40, 2**64 - 1)
"""Identities with many first bits in common."""
BLIND = int(ranges._KEY)
"""The one identity of 2**64 that leaves no trace in a fingerprint; values are drawn from constants, too."""
WORDS = st.sets((st.integers(0, 2**64 - 1) | NEAR).filter(lambda value: value != BLIND), max_size=60)


def words(values: set[int]) -> Words:
    return np.array(sorted(values), dtype=np.uint64)


def check_found(ours: set[int], theirs: set[int], expected: int) -> int:
    """The difference is found; returns the bytes that it took."""
    search, held = Search(words(ours), expected), IdentityIndex(words(theirs))
    sent = rounds = 0
    while search.asked is not None:
        fingerprints, identities = held.answer(search.asked)
        sent += 4 * (len(search.asked.split) + len(search.asked.listed))
        sent += 8 * (len(fingerprints) + len(identities))
        search.take(fingerprints, identities)
        rounds += 1
    found = search.difference()
    assert set(found.only_ours.tolist()) == ours - theirs
    assert set(found.only_theirs.tolist()) == theirs - ours
    assert len(found.only_ours) == len(ours - theirs)
    assert len(found.only_theirs) == len(theirs - ours)
    assert rounds <= ranges.MAX_ROUNDS
    return sent


@given(WORDS, WORDS, WORDS, st.integers(0, 10_000))
def test_the_difference_is_found_exactly_whatever_was_expected(
    ours: set[int], theirs: set[int], common: set[int], expected: int
) -> None:
    check_found(ours | common, theirs | common, expected)


@pytest.mark.parametrize("expected", [1, 100, 10_000])
def test_a_small_difference_of_large_sets_costs_a_part_of_a_list(expected: int) -> None:
    draw = np.random.default_rng(1)
    common = set(draw.integers(0, 2**64 - 1, 50_000, dtype=np.uint64).tolist())
    sent = check_found(common | {1, 2, 3}, common | {4, 5}, expected)
    assert sent < 8 * len(common) / (1 if expected > 100 else 20)


@given(
    WORDS,
    st.integers(-1, 66),
    st.integers(-1, 30),
    st.lists(st.integers(0, 2**32), max_size=4),
    st.lists(st.integers(0, 2**32), max_size=4),
)
def test_any_question_is_answered_or_refused(
    ours: set[int], bits: int, deeper: int, split: list[int], listed: list[int]
) -> None:
    ask = Ask(bits, deeper, np.array(split, dtype=np.uint64), np.array(listed, dtype=np.uint64))
    try:
        fingerprints, identities = IdentityIndex(words(ours)).answer(ask)
    except ValueError:
        return
    assert len(fingerprints) == len(split) << deeper <= ranges.MAX_FINGERPRINTS
    assert len(identities) <= len(ours)


@given(WORDS, st.lists(st.integers(0, 2**64 - 1), max_size=40), st.lists(NEAR, max_size=10))
def test_any_answer_is_taken_or_refused(ours: set[int], sums: list[int], named: list[int]) -> None:
    search = Search(words(ours), 3)
    try:
        for _ in range(ranges.MAX_ROUNDS):
            ask = search.asked
            if ask is None:
                return
            length = len(ask.children())
            search.take(
                np.array((sums * length)[:length] or [0] * length, dtype=np.uint64),
                np.array(named if len(ask.listed) else [], dtype=np.uint64),
            )
    except ValueError:
        return
    assert search.asked is None, "it has an end, whatever is answered"
