from __future__ import annotations

import dataclasses
import enum
import io
import json
import math
import pathlib
import re
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ospltool.output import envelope
from ospltool.output.envelope import document, line, plain
from ospltool.output.streams import wants_colour
from ospltool.output.text import harmless, table, visible, width

ANY_TEXT = st.text(st.characters(exclude_categories=()))


@given(ANY_TEXT)
def test_visible_text_is_harmless_and_plain_text_stays(text: str) -> None:
    assert visible(text).isprintable()
    if text.isprintable():
        assert visible(text) == text


@pytest.mark.parametrize(
    ("text", "keep_lines", "expected"),
    [
        ("\x1b[31mred", False, r"\x1b[31mred"),
        ("C:\\temp\x07", False, r"C:\temp\x07"),
        ("a\nb\r", True, "a\nb\\r"),
        ("a\nb", False, "a\\nb"),
        ("\u202eevil", False, "\\u202eevil"),
        ("\x9b2J", False, "\\x9b2J"),
        ("ß…漢", False, "ß…漢"),
    ],
)
def test_what_does_not_print_is_shown_as_an_escape(text: str, keep_lines: bool, expected: str) -> None:
    assert visible(text, keep_lines=keep_lines) == expected


@given(ANY_TEXT)
def test_a_terminal_obeys_nothing_but_colours_and_line_ends(text: str) -> None:
    shown = harmless(f"\x1b[1;31m{text}\x1b[0m\n")
    assert shown.startswith("\x1b[1;31m")
    assert shown.endswith("\x1b[0m\n")
    rest = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert not any(character in "\x1b\r\x07\x9b\u202e" for character in rest)


def test_tables_are_aligned_whatever_is_in_them() -> None:
    assert table(("NAME", "N"), [("漢字", 1), ("a\tb", 22), ("é", "")]) == (
        "NAME  N\n漢字  1\na\\tb  22\né\n"
    )
    assert table(("A",), []) == "A\n"


def test_the_width_of_text_is_counted_in_columns() -> None:
    assert [width(text) for text in ("abc", "漢字", "e\u0301", "")] == [3, 4, 1, 0]


class Colour(enum.StrEnum):
    RED = "red"


class Pair(NamedTuple):
    left: int
    right: int


@dataclasses.dataclass
class Thing:
    time_ns: int
    id: int
    pair: Pair


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (2**53, "9007199254740992"),
        (2**53 - 1, 2**53 - 1),
        (-(2**70), str(-(2**70))),
        (True, True),
        (None, None),
        (math.inf, "inf"),
        (0.5, 0.5),
        (b"\x00\xff", "00ff"),
        (Colour.RED, "red"),
        (pathlib.PurePosixPath("/a"), "/a"),
        (frozenset({"b", "a"}), ["a", "b"]),
        ({"at_ns": 2**60, 3: 2**60}, {"at_ns": 2**60, "3": str(2**60)}),
        (
            Thing(2**60, 2**60, Pair(1, 2**60)),
            {"time_ns": 2**60, "id": str(2**60), "pair": {"left": 1, "right": str(2**60)}},
        ),
    ],
)
def test_values_have_one_json_form(value: object, expected: object) -> None:
    assert plain(value) == expected


def test_a_value_without_json_form_is_refused() -> None:
    with pytest.raises(TypeError, match="socket has no JSON form"):
        plain({"socket": object()})


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | ANY_TEXT,
    lambda some: st.lists(some, max_size=4) | st.dictionaries(ANY_TEXT, some, max_size=4),
)


@given(ANY_JSON)
def test_large_documents_are_indented_like_small_ones(value: object) -> None:
    with pytest.MonkeyPatch.context() as patch:
        small = document("kind", value)
        patch.setattr(envelope, "_LARGE", 0)
        assert document("kind", value) == small


def test_documents_and_lines_are_the_same_envelope() -> None:
    data = {"text": "\x1b\u2028é"}
    expected = {"format_version": 1, "kind": "k", "data": data}
    for text in (document("k", data), line("k", data)):
        assert text.endswith("\n")
        assert text.rstrip("\n").replace("\n", "").isascii()
        assert "\x1b" not in text
        assert json.loads(text) == expected
    assert line("k", data).count("\n") == 1


class Stream(io.StringIO):
    def __init__(self, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


@pytest.mark.parametrize(
    ("is_terminal", "environ", "choice", "expected"),
    [
        (True, {}, "auto", True),
        (False, {}, "auto", False),
        (True, {"NO_COLOR": "1"}, "auto", False),
        (True, {"NO_COLOR": ""}, "auto", True),
        (True, {"TERM": "dumb"}, "auto", False),
        (False, {"FORCE_COLOR": "1"}, "auto", True),
        (True, {"FORCE_COLOR": "1", "NO_COLOR": "1"}, "auto", False),
        (False, {"NO_COLOR": "1"}, "always", True),
        (True, {"FORCE_COLOR": "1"}, "never", False),
    ],
)
def test_colour_only_where_it_is_wanted(
    is_terminal: bool, environ: dict[str, str], choice: str, expected: bool
) -> None:
    assert wants_colour(Stream(is_terminal), environ, choice) is expected
