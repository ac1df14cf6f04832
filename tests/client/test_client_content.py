from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any

import pytest

from ospltool.client import ContentFilter, InvalidFilter


class Colour(enum.Enum):
    RED = 1


@dataclass
class Place:
    x: float = 1.5
    name: str = "Pier 7"


@dataclass
class Thing:
    number: int = 5
    text: str = "it's a pier"
    flag: bool = True
    place: Place = field(default_factory=Place)
    colour: Colour = Colour.RED
    missing: Any = None


@pytest.mark.parametrize(
    ("expression", "parameters", "holds"),
    [
        ("number = 5", (), True),
        ("number <> 5", (), False),
        ("number != 4 and number >= 5", (), True),
        ("NUMBER = 5", (), False),
        ("number = 4 or text = 'it''s a pier'", (), True),
        ("not number = 4", (), True),
        ("not (number = 5 or number = 6)", (), False),
        ("not not number = 5", (), True),
        ("number = 4 and number = 5 or number = 5", (), True),
        ("number = 4 and (number = 5 or number = 5)", (), False),
        ("number between 5 and 6", (), True),
        ("number not between 5 and 6", (), False),
        ("place.x > 1.4 and place.x < 15e-1", (), False),
        ("place.x = 1.5", (), True),
        ("place.name like 'Pier _'", (), True),
        ("place.name like '%ie%'", (), True),
        ("place.name not like 'pier%'", (), True),
        ("text like '%'", (), True),
        ("number like '5'", (), False),
        ("flag = TRUE", (), True),
        ("flag = false", (), False),
        ("colour = 'RED'", (), True),
        ("number > %0 and place.name = %1", ("4", "'Pier 7'"), True),
        ("place.name = %0", ("Pier 7",), True),
        ("number = -5", (), False),
        ("missing = 5", (), False),
        ("place.nothing = 5", (), False),
        ("text > 5", (), False),
        ("number < number", (), False),
        ('place.name = "Pier 7"', (), True),
        ("not missing = 5", (), False),
        ("not missing = 5 or number = 5", (), True),
        ("number = 5 and not place.nothing = 5", (), False),
        ("not text > 5", (), False),
    ],
)
def test_a_condition_holds_or_not(expression: str, parameters: tuple[str, ...], holds: bool) -> None:
    assert ContentFilter(expression, parameters).accepts(Thing()) is holds


@pytest.mark.parametrize(
    ("expression", "column"),
    [
        ("", 1),
        ("number", 7),
        ("number =", 9),
        ("number = 5 5", 12),
        ("number ~ 5", 8),
        ("(number = 5", 12),
        ("number = 5)", 11),
        ("(number = 5 or", 15),
        ("number between 5 or 6", 18),
        ("number not = 5", 12),
        ("number = %0", 11),
        ("= 5", 1),
        ("number = 'open", 10),
        ("and", 1),
        ("(" * 60 + "number = 5" + ")" * 60, 51),
        ("number = 5 order by number", 12),
    ],
)
def test_what_is_not_understood_is_refused_with_its_column(expression: str, column: int) -> None:
    with pytest.raises(InvalidFilter, match=rf"column {column}\b"):
        ContentFilter(expression)


def test_a_pattern_made_to_be_slow_is_not() -> None:
    thing = Thing(text="a" * 5_000)
    assert not ContentFilter(f"text like '{'%a' * 200}%b'").accepts(thing)


def test_a_very_long_expression_is_refused() -> None:
    with pytest.raises(InvalidFilter, match="characters"):
        ContentFilter("number = 5 or " * 1000)
