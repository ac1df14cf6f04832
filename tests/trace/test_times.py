"""Times and durations as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ospltool.output.times import (
    TimeError,
    clock,
    clock_since,
    duration,
    from_to,
    iso,
    parse_around,
    parse_duration,
    parse_time,
)

REFERENCE = 1795223310_294122015


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("500ms", 500_000_000),
        ("2s", 2_000_000_000),
        ("5m", 300_000_000_000),
        ("1h30m", 5_400_000_000_000),
        ("1.5h", 5_400_000_000_000),
        ("-1.3s", -1_300_000_000),
        ("+0.000000001s", 1),
        ("7us", 7_000),
        ("7µs", 7_000),
        ("3d", 259_200_000_000_000),
        ("12ns", 12),
    ],
)
def test_durations_are_exact(text: str, ns: int) -> None:
    assert parse_duration(text) == ns


@pytest.mark.parametrize("text", ["", "s", "1.s", "five", "1x", "--1s", "1e3s"])
def test_other_durations_are_refused(text: str) -> None:
    with pytest.raises(TimeError, match="not a duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("2026-11-21T01:08:30.294122015Z", REFERENCE),
        ("2026-11-21 01:08:30.294122015", REFERENCE),
        ("2026-11-21T03:08:30.294122015+02:00", REFERENCE),
        ("2026-11-21T03:08:30.294122015+0200", REFERENCE),
        ("1795223310.294122015", REFERENCE),
        ("01:08:30.294122015", REFERENCE),
        ("2026-11-21", 1795219200_000000000),
        ("+10s", REFERENCE + 10_000_000_000),
    ],
)
def test_times_are_exact(text: str, ns: int) -> None:
    assert parse_time(text, REFERENCE) == ns


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01", "2026-11-21T25:00:00", "10s"])
def test_other_times_are_refused(text: str) -> None:
    with pytest.raises(TimeError):
        parse_time(text, REFERENCE)


def test_a_time_of_day_needs_a_day() -> None:
    with pytest.raises(TimeError, match="needs a first record"):
        parse_time("01:08:30")


@pytest.mark.parametrize("text", ["01:08:34±2s", "01:08:34+-2s"])
def test_around_reaches_both_ways(text: str) -> None:
    assert parse_around(text, REFERENCE) == (1795223312_000000000, 1795223316_000000000)


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("01:09:00±1s", "2026-11-21T01:08:59Z"),
        ("01:08:30±2s", "2026-11-21T01:08:28Z"),
        ("00:05:10±3s", "2026-11-22T00:05:07Z"),
        ("+1s±0.5s", "2026-11-21T01:08:30.794122015Z"),
    ],
)
def test_a_time_of_day_before_the_first_record_is_of_the_next_day(text: str, first: str) -> None:
    assert parse_around(text, REFERENCE)[0] == parse_time(first)


@pytest.mark.parametrize(
    ("start", "end", "text"),
    [
        ("2026-11-21T01:00:00", "2026-11-21T02:00:00", "2026-11-21T01:00:00.000Z to 02:00:00.000"),
        (
            "2026-11-21T23:00:00",
            "2026-11-22T01:00:00",
            "2026-11-21T23:00:00.000Z to 2026-11-22T01:00:00.000Z",
        ),
        (
            "2025-08-21T01:00:00",
            "2026-11-21T01:05:00",
            "2025-08-21T01:00:00.000Z to 2026-11-21T01:05:00.000Z",
        ),
        ("2026-11-21T01:00:00", "2026-11-21T01:00:00", "2026-11-21T01:00:00.000Z"),
    ],
)
def test_a_span_of_several_days_has_both_dates(start: str, end: str, text: str) -> None:
    assert from_to(parse_time(start), parse_time(end)) == text
    assert clock_since(None, parse_time(end)).startswith("202")


@given(st.integers(0, 4_000_000_000_000_000_000))
def test_a_written_time_is_read_back(ns: int) -> None:
    assert parse_time(iso(ns)) == ns
    assert clock(ns, 9) == iso(ns)[11:-1]


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (1_500, "1.5 µs"),
        (3_200_000, "3.2 ms"),
        (4_500_000_000, "4.50 s"),
        (123_000_000_000, "2 min 03 s"),
        (3_720_000_000_000, "1 h 02 min"),
        (-4_500_000_000, "-4.50 s"),
    ],
)
def test_durations_are_for_people(ns: int, text: str) -> None:
    assert duration(ns) == text
