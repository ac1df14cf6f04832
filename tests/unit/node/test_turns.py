"""The samples of two types of a topic go to a reader in the order of source time."""

from __future__ import annotations

import itertools

import pytest

from engine.capture import delivery
from engine.dataset.living import DeliveryStep
from engine.dataset.sample import DATA, make_sample


def history(key: str, *times_ns: int) -> list[DeliveryStep]:
    return [
        DeliveryStep(make_sample(time_ns, b"w" * 16, DATA, key.encode(), b""), is_written=False)
        for time_ns in times_ns
    ]


def arrivals(portions: list[list[DeliveryStep]], key: str) -> list[int]:
    """The source times of an instance in the order in which a reader gets them."""
    steps = itertools.chain.from_iterable(
        itertools.chain.from_iterable(zip(*delivery.in_turns(portions), strict=True))
    )
    return [step.sample.source_time_ns for step in steps if step.sample.key == key.encode()]


def test_each_instance_arrives_in_order_of_source_time_over_all_types() -> None:
    old = [*history("a", 1, 4), *history("b", 2, 3, 9), *history("c", 5)]
    new = [*history("a", 2, 3), *history("b", 1, 4), *history("d", 7)]
    newest = history("a", 5)
    assert arrivals([old, new, newest], "a") == [1, 2, 3, 4, 5]
    assert arrivals([old, new, newest], "b") == [1, 2, 3, 4, 9]
    assert arrivals([old, new, newest], "c") == [5]
    assert arrivals([old, new, newest], "d") == [7]


def test_the_last_turn_is_empty_so_that_all_before_is_acknowledged() -> None:
    for turns in (*delivery.in_turns([history("a", 1), history("a", 2)]), *delivery.in_turns([[], []])):
        assert turns[-1] == []


def test_of_a_long_history_the_newest_samples_are_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "MAX_TURNS", 3)
    portions = [history("a", *range(0, 20, 2)), [*history("a", *range(1, 21, 2)), *history("b", 1)]]
    assert {len(turns) for turns in delivery.in_turns(portions)} == {4}
    got = arrivals(portions, "a")
    assert sorted(got) == list(range(20))
    assert got[-4:] == [16, 17, 18, 19]
    assert arrivals(portions, "b") == [1]
