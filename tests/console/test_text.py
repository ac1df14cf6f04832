from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from ospltool.views import text
from ospltool.views.cells import Span, Tone, fit_line, plain

SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("given_text", "shown"),
    [
        ("plain text", "plain text"),
        ("", ""),
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("a\nb\tc\x00", "a\\x0ab\\x09c\\x00"),
        ("\x9b2J", "\\x9b2J"),
        ("abc\u202edcba", "abc\\u202edcba"),
        ("zero\u200bwidth", "zero\\u200bwidth"),
        ("\U000e0041", "\\U000e0041"),
        ("naïve 日本", "naïve 日本"),
        ("[bold]markup[/]", "[bold]markup[/]"),
    ],
)
def test_control_characters_become_visible(given_text: str, shown: str) -> None:
    assert text.visible(given_text) == shown


def test_without_utf_8_everything_else_is_escaped() -> None:
    assert text.visible("naïve 日 ok", ascii_only=True) == "na\\xefve \\u65e5 ok"


@given(st.text())
def test_visible_text_is_always_printable(value: str) -> None:
    assert text.visible(value).isprintable()


@given(st.text(), st.integers(0, 40), st.booleans())
def test_fitted_text_has_exactly_the_width(value: str, width: int, right: bool) -> None:
    assert cell_len(text.fit(value, width, right=right)) == width


@given(st.lists(st.text(max_size=12), max_size=5), st.integers(1, 40))
def test_a_fitted_line_has_exactly_the_width_and_no_control_characters(texts: list[str], width: int) -> None:
    line = fit_line(tuple(Span(t, Tone.WARN) for t in texts), width)
    assert cell_len(plain(line)) == width
    assert plain(line).isprintable()


@pytest.mark.parametrize(
    ("value", "width", "right", "shown"),
    [
        ("abc", 5, False, "abc  "),
        ("abc", 5, True, "  abc"),
        ("abcdef", 4, False, "abc…"),
        ("日本語", 4, False, "日 …"),
        ("abc", 0, False, ""),
        ("abc", 1, False, "…"),
    ],
)
def test_text_is_cut_with_an_ellipsis(value: str, width: int, right: bool, shown: str) -> None:
    assert text.fit(value, width, right=right) == shown


@pytest.mark.parametrize(
    ("value", "width", "lines", "shown"),
    [
        ("", 10, 2, []),
        ("one two", 10, 2, ["one two"]),
        ("one two three", 8, 2, ["one two", "three"]),
        ("one two three four five", 8, 2, ["one two", "three f…"]),
        ("one\x1btwo", 20, 2, ["one\\x1btwo"]),
        ("averyverylongword", 8, 1, ["averyve…"]),
    ],
)
def test_captions_are_wrapped_and_say_when_they_are_cut(
    value: str, width: int, lines: int, shown: list[str]
) -> None:
    assert text.wrap(value, width, lines) == shown


@pytest.mark.parametrize(
    ("nanoseconds", "shown"),
    [
        (0, "now"),
        (SECOND - 1, "now"),
        (SECOND, "1 s"),
        (59 * SECOND, "59 s"),
        (60 * SECOND, "1 min"),
        (119 * SECOND, "1 min"),
        (3599 * SECOND, "59 min"),
        (3600 * SECOND, "1 h"),
        (24 * 3600 * SECOND - 1, "23 h"),
        (48 * 3600 * SECOND, "2 d"),
        (-5, "now"),
    ],
)
def test_ages_are_short(nanoseconds: int, shown: str) -> None:
    assert text.age(nanoseconds) == shown


@pytest.mark.parametrize(
    ("number", "shown"),
    [(0, "0"), (999_999, "999,999"), (1_000_000, "1.0 M"), (10**15, "1.0 P"), (10**18, "1000 P")],
)
def test_counts_are_short(number: int, shown: str) -> None:
    assert text.count(number) == shown


@pytest.mark.parametrize(
    ("fraction", "shown"),
    [(0, "0 %"), (0.0001, "1 %"), (0.5, "50 %"), (0.9999, "99 %"), (1, "100 %"), (7, "100 %")],
)
def test_a_percentage_is_0_or_100_only_when_it_is(fraction: float, shown: str) -> None:
    assert text.percent(fraction) == shown


@pytest.mark.parametrize(
    ("number", "shown"), [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (5 * 1024**3, "5.0 GiB")]
)
def test_sizes_have_binary_units(number: int, shown: str) -> None:
    assert text.size(number) == shown


@pytest.mark.parametrize(
    ("time_ns", "shown"),
    [
        (0, "-"),
        (1_795_223_000_123_000_000, "2026-11-21 01:03:20.123"),
        (10**400, "9999-12-31 23:59:59.000"),
        (-(10**400), "0001-01-01 00:00:00.000"),
    ],
    ids=["never", "now", "far future", "far past"],
)
def test_any_stamp_is_some_moment(time_ns: int, shown: str) -> None:
    assert text.moment(time_ns) == shown
