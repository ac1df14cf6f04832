"""What two readers of the same writers got counts once, whoever of them was ahead."""

from __future__ import annotations

import collections

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.capture.tap import TapHandover
from engine.dataset.sample import DATA, Sample, captured_sample

WRITERS = (b"1" * 16, b"2" * 16)


@given(st.data())
def test_every_sample_counts_once_and_in_order(data: st.DataObject) -> None:
    """The former reader has the first samples of each writer, the present one the last, and some both."""
    former: list[Sample] = []
    present: list[Sample] = []
    counts = {}
    for writer in WRITERS:
        counts[writer] = count = data.draw(st.integers(0, 12))
        ends = data.draw(st.integers(0, count), label="the former one had so many")
        begins = data.draw(st.integers(0, ends), label="the present one has from there")
        samples = [captured_sample(number, writer, DATA, b"key", b"payload") for number in range(count)]
        former, present = _mix(data, former, samples[:ends]), _mix(data, present, samples[begins:])
    seam, found = TapHandover(), []
    heard = data.draw(st.integers(0, len(present)), label="of the present one before it takes the place")
    first, rest = list(former), present[:heard]
    while first or rest:
        count = data.draw(st.integers(1, 5))
        if first and (not rest or data.draw(st.booleans(), label="the former one is drained")):
            found += first[:count]
            seam.give(first[:count])
            del first[:count]
        else:
            seam.hear(rest[:count])
            del rest[:count]
    found += seam.rest() + seam.fresh(present[heard:])
    numbers = collections.defaultdict(list)
    for record in found:
        numbers[record.writer].append(record.source_time_ns)
    assert numbers == {writer: list(range(count)) for writer, count in counts.items() if count}


def _mix(data: st.DataObject, one: list[Sample], other: list[Sample]) -> list[Sample]:
    """Both, each in its order."""
    one, other, mixed = list(one), list(other), []
    while one and other:
        mixed.append((one if data.draw(st.booleans()) else other).pop(0))
    return mixed + one + other


def test_the_present_one_is_in_step_when_it_has_heard_the_last_of_each_writer_that_matches_it() -> None:
    records = [captured_sample(number, writer, DATA, b"", b"") for number in range(3) for writer in WRITERS]
    seam = TapHandover()
    seam.give(records[:2], both=False)  # before it listened
    assert seam.is_in_step(WRITERS)
    seam.give(records[2:])
    assert not seam.is_in_step(WRITERS)
    assert seam.is_in_step(())
    seam.hear(records[2:5])
    assert seam.is_in_step(WRITERS[:1])
    assert not seam.is_in_step(WRITERS)
    seam.hear(records[5:])
    assert seam.is_in_step(WRITERS)
    assert (seam.rest(), seam.fresh([]), seam.is_closed) == ([], [], False)


def records(text: str) -> list[Sample]:
    """One for each letter, of one writer; equal letters are equal samples."""
    return [captured_sample(ord(letter), WRITERS[0], DATA, b"key", b"payload") for letter in text]


@pytest.mark.parametrize(
    ("former", "heard", "later", "rest", "fresh"),
    [
        ("ab", "ba", "", "a", ""),
        ("a", "b", "a", "b", "a"),
        ("a", "", "ba", "", "ba"),
        ("aa", "a", "", "", ""),
        ("aa", "aaa", "", "a", ""),
    ],
)
def test_a_sample_that_is_written_again_as_it_was_counts_again(
    former: str, heard: str, later: str, rest: str, fresh: str
) -> None:
    """What follows what only the present reader has heard is later than all that the former one had."""
    seam = TapHandover()
    seam.give(records(former))
    seam.hear(records(heard))
    assert seam.rest() == records(rest)
    assert seam.fresh(records(later)) == records(fresh)


@pytest.mark.parametrize(("known", "later"), [(WRITERS, ""), (WRITERS[1:], "")])
def test_a_present_one_that_is_far_behind_brings_nothing_twice(known: tuple[bytes, ...], later: str) -> None:
    """It still gets what the former one had long before that was remembered."""
    seam = TapHandover(known)
    seam.give(records("efg"))
    seam.hear(records("abcde"))
    found = seam.rest() + seam.fresh(records("fgh"))
    expected = "h" if WRITERS[0] in known else "abcdfgh"
    assert "".join(chr(one.source_time_ns) for one in found) == expected


def test_what_only_the_present_one_has_counts_also_of_a_known_writer() -> None:
    seam = TapHandover(WRITERS)
    seam.hear(records("abcd"))
    seam.give(records("bc"))
    assert "".join(chr(one.source_time_ns) for one in seam.rest()) == "d"


def test_a_busy_writer_that_gave_nothing_to_both_is_waited_for() -> None:
    """Its cache may be full because the present reader is behind: nothing shows how far."""
    seam = TapHandover()
    assert seam.is_in_step(WRITERS)
    assert not seam.is_in_step(WRITERS, WRITERS[:1])
