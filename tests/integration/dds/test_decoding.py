"""Fields of types that are known by their description only, and conditions on them."""

from __future__ import annotations

import pytest

from engine.dataset.content import Expression, ExpressionFault
from engine.dataset.sample import DATA, DISPOSE
from engine.dds.decoding import decode, kinds_of
from engine.dds.topics import description_of
from tests.integration.dds.sample_types import SAMPLES, TYPES

FITS = {
    "Plain": "number = 7 AND amount BETWEEN 1 AND 2",
    "Growing": "place.row = 7 AND name LIKE 'n%' AND short = 'bounded'",
    "Loose": "NOT maybe = 7 OR second = 3",
    "Perhaps": "place.label = 'q' OR colour = 'GREEN'",
    "Flagged": "flags.heavy = TRUE",
    "ByColour": "colour <> 'RED'",
}


@pytest.mark.parametrize(("name", "text"), FITS.items())
def test_conditions_on_fields_of_every_kind(name: str, text: str) -> None:
    description = description_of(TYPES[name])
    expression = Expression(text)
    expression.check(kinds_of(description))
    fields = decode(description, DATA, SAMPLES[TYPES[name]](7).serialize())
    assert expression.accepts(fields), fields


@pytest.mark.parametrize(
    ("name", "text", "column", "reason"),
    [
        ("Plain", "number = 1 AND other = 2", 16, "the type has no field 'other'"),
        ("Plain", "number.x = 1", 1, "the type has no field 'number.x'"),
        ("Plain", "number = 'x'", 10, "a text cannot be compared with a number"),
        ("Plain", "number LIKE 'x'", 1, "a number cannot be compared with a text"),
        ("Growing", "places = 1", 1, "'places' is not a single value"),
        ("Growing", "name BETWEEN 'a' AND row", 22, "the type has no field 'row'"),
        ("Choice", "value = 1", 1, "'value' is not a single value"),
        ("Flagged", "flags.heavy = 1", 15, "a number cannot be compared with TRUE or FALSE"),
        ("Plain", "number.__class__ = 'x'", 1, "the type has no field"),
    ],
)
def test_what_a_type_does_not_have_is_refused(name: str, text: str, column: int, reason: str) -> None:
    with pytest.raises(ExpressionFault, match=reason) as raised:
        Expression(text).check(kinds_of(description_of(TYPES[name])))
    assert raised.value.column == column


def test_a_dispose_has_its_key_fields() -> None:
    description = description_of(TYPES["Plain"])
    key = b"\x00\x07\x00\x00" + SAMPLES[TYPES["Plain"]](7).serialize_key(use_version_2=True)[4:]
    assert decode(description, DISPOSE, key) == {"number": 7}


@pytest.mark.parametrize(
    ("text", "column"),
    [("number LIKE 5", 13), ("5 = 'x'", 5), ("1 LIKE name", 1), ("name BETWEEN 'a' AND 5", 22)],
)
def test_what_no_type_could_satisfy_is_refused_before_there_is_one(text: str, column: int) -> None:
    with pytest.raises(ExpressionFault, match="cannot be compared with a") as raised:
        Expression(text)
    assert raised.value.column == column
