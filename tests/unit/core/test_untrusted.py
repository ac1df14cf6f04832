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


PYTHON = re.compile(
    r"object|attribute|subscript|indices|iterable|codec|Error|NoneType|__|\b(str|int|dict|bool)\b"
)
CASES = {
    b"": "not JSON at line 1, column 1",
    b'{"name":\n "a",}': "not JSON at line 2, column 6",
    b'"\xff"': "not UTF-8 at byte 1",
    b"[" * 100_000: "values within values without end",
    b'{"name": "a", "count": ' + b"9" * 5_000 + b"}": "a number of too many digits",
    b"{}": "does not fit Thing: a value of another kind",
    b"[]": "does not fit Thing: a value of another kind",
    b"null": "does not fit Thing: a value of another kind",
    b'{"name": 1}': "1 is not a text",
    b'{"name": "\\ud800"}': "does not fit Thing: a text with half of a character",
    b'{"name": "a", "count": "1"}': "'1' is not a whole number",
    b'{"name": "a", "count": 1e3}': "1000.0 is not a whole number",
    b'{"name": "a", "colour": "green"}': "'green' is none of red, blue",
    b'{"name": "a", "colour": []}': "[] is none of red, blue",
    b'{"name": "a", "parts": 3}': "3 is not a list",
    b'{"name": "a", "sizes": {"x": "y"}}': "'y' is not a number",
    b'{"name": "a", "sizes": [1]}': "does not fit Thing: a value of another kind",
    b'{"name": "a", "data": 1}': "does not fit Thing: a value of another kind",
}


@pytest.mark.parametrize("text", CASES, ids=lambda text: text[:40])
def test_what_does_not_fit_is_said_in_plain_words(text: bytes) -> None:
    with pytest.raises(untrusted.JsonFault) as refused:
        untrusted.from_json(Thing, text)
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
