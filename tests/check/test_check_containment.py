"""Whether one expression contains another: against all names up to a length."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core import expressions
from engine.core.expressions import covers

NAMES = ["".join(chars) for length in range(5) for chars in itertools.product("abz", repeat=length)]
EXPRESSIONS = st.text(alphabet="ab*?", max_size=4)


@pytest.mark.parametrize(
    ("wide", "narrow", "expected"),
    [
        ("*", "anything*?", True),
        ("a*", "ab*", True),
        ("ab*", "a*", False),
        ("?", "*", False),
        ("?*", "*", False),
        ("*", "?*", True),
        ("*?", "?*", True),
        ("a?c", "abc", True),
        ("abc", "a?c", False),
        ("*a*", "ba*", True),
        ("", "", True),
        ("", "*", False),
        ("**", "", True),
    ],
)
def test_known_cases(wide: str, narrow: str, expected: bool) -> None:
    assert covers(wide, narrow) is expected


@given(EXPRESSIONS, EXPRESSIONS)
def test_it_agrees_with_trying_all_short_names(wide: str, narrow: str) -> None:
    counter = [
        name for name in NAMES if expressions.matches(narrow, name) and not expressions.matches(wide, name)
    ]
    if counter:
        assert not covers(wide, narrow)
    elif len(wide) + len(narrow) <= 4:  # a shortest counterexample is then among the names
        assert covers(wide, narrow)


@given(EXPRESSIONS, EXPRESSIONS, EXPRESSIONS)
def test_it_is_an_order(a: str, b: str, c: str) -> None:
    assert covers(a, a)
    if covers(a, b) and covers(b, c):
        assert covers(a, c)


def test_contrived_expressions_end_in_time() -> None:
    wide, narrow = "*a?" * 30, "*?" * 40
    assert covers(wide, narrow) is False
