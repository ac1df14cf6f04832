"""What comes from outside and does not fit is refused in words for people, not for programmers of Python."""

from __future__ import annotations

import dataclasses
import enum
import re
from collections.abc import Callable

import pytest

from engine.core import untrusted


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass(frozen=True)
class Thing:
    name: str
    count: int = 0
    colour: Colour = Colour.RED
    parts: tuple[int, ...] = ()
    sizes: dict[str, float] = dataclasses.field(default_factory=dict)
    data: bytes = b""


PYTHON = re.compile(r"attribute|subscript|indices|iterable|codec|Error|NoneType|__|\b(str|int|dict|bool)\b")
CASES = {
    b"": "not JSON: Input data was truncated",
    b'{"name":\n "a",}': "not JSON: trailing comma in object (byte 14)",
    b'{"name": "\xff"}': "not UTF-8 at byte 0",
    b'{"name": "a", "newer": ' + b"[" * 100_000: "values within values without end",
    b'{"name": "a", "count": ' + b"9" * 5_000 + b"}": "a number of too many digits",
    b'{"name": "a", "count": ' + b"8" * 50 + b"}": "a number of 166 bits",
    b"{}": "Object missing required field name",
    b"[]": "Expected an object, got a list",
    b"null": "Expected an object, got nothing",
    b'{"name": 1}': "Expected a text, got a whole number - at $.name",
    b'{"name": "\\ud800 and more"}': "not JSON: unexpected end of escaped utf-16 surrogate pair (byte 16)",
    b'{"name": "a", "count": "1"}': "Expected a whole number, got a text - at $.count",
    b'{"name": "a", "count": 1e3}': "Expected a whole number, got a number - at $.count",
    b'{"name": "a", "colour": "green"}': "Invalid enum value 'green' - at $.colour",
    b'{"name": "a", "colour": []}': "Expected a text, got a list - at $.colour",
    b'{"name": "a", "parts": 3}': "Expected a list, got a whole number - at $.parts",
    b'{"name": "a", "sizes": {"x": "y"}}': "Expected a number, got a text - at $.sizes[...]",
    b'{"name": "a", "sizes": [1]}': "Expected an object, got a list - at $.sizes",
    b'{"name": "a", "data": 1}': "Expected bytes in base64, got a whole number - at $.data",
}


@pytest.mark.parametrize("text", CASES, ids=lambda text: text[:40])
def test_what_does_not_fit_is_said_in_plain_words(text: bytes) -> None:
    with pytest.raises(untrusted.JsonFault) as refused:
        untrusted.json_reader(Thing)(text)
    assert str(refused.value) == CASES[text]
    assert not PYTHON.search(str(refused.value))


OPERATIONS: dict[str, Callable[[], object]] = {
    "attribute": lambda: [].encode(),  # type: ignore[attr-defined]  # it fails
    "key": lambda: dict[str, int]()["x"],
    "number": lambda: int("x"),
    "text": lambda: b"\xff".decode(),
    "object": lambda: dict(["x"]),  # type: ignore[arg-type]  # likewise
    "division": lambda: 1 / 0,
    "large": lambda: float(10**400),
    "hash": lambda: hash([]),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_no_operation_of_python_is_quoted(operation: str) -> None:
    with pytest.raises(Exception) as failed:
        OPERATIONS[operation]()
    words = untrusted.words_of(failed.value)
    assert words
    assert not PYTHON.search(words)
