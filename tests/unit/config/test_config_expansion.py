from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config.expansion import MAX_EXPANDED_CHARS, MAX_NESTING, ExpansionFault, Use, expand

ENVIRON = {"HOME": "/home/x", "EMPTY": "", "INNER": "HOME", "DOLLAR": "${HOME}"}


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("plain", "plain"),
        ("", ""),
        ("$HOME", "$HOME"),
        ("$", "$"),
        ("a{b}c", "a{b}c"),
        ("${HOME}", "/home/x"),
        ("${HOME}/store", "/home/x/store"),
        ("a${UNSET}b", "ab"),
        ("${EMPTY}", ""),
        ("${UNSET:-x}", "x"),
        ("${EMPTY:-x}", "x"),
        ("${HOME:-x}", "/home/x"),
        ("${UNSET:-}", ""),
        ("${HOME:+x}", "x"),
        ("${EMPTY:+x}", ""),
        ("${UNSET:+x}", ""),
        ("${HOME:?needed}", "/home/x"),
        ("${UNSET:-${EMPTY:-deep}}", "deep"),
        ("${UNSET:-${HOME}}", "/home/x"),
        ("${UNSET:-a{b}c}", "a{b}c"),
        ("${UNSET:-a\\}b}", "a}b"),
        ("\\${HOME}", "${HOME}"),
        ("a\\\\b", "a\\b"),
        ("${DOLLAR}", "${HOME}"),
        ("${HOME}${HOME}", "/home/x/home/x"),
    ],
)
def test_expansion_follows_the_rules_of_opensplice(raw: str, text: str) -> None:
    assert expand(raw, ENVIRON).text == text


@pytest.mark.parametrize(
    ("raw", "offset", "words"),
    [
        ("ab${HOME", 2, "not closed"),
        ("${UNSET:-${HOME}", 0, "not closed"),
        ("${}", 0, "cannot be expanded"),
        ("x${HOME:=1}", 1, "cannot be expanded"),
        ("${HOME:}", 0, "cannot be expanded"),
        ("${UNSET:?the port}", 0, "the port"),
        ("${EMPTY:?}", 0, "must be set"),
        ("a${UNSET:-${ALSO:?deep}}", 10, "deep"),
        ("C:\\", 2, "escapes nothing"),
    ],
)
def test_a_broken_expansion_names_its_place(raw: str, offset: int, words: str) -> None:
    with pytest.raises(ExpansionFault, match=words) as caught:
        expand(raw, ENVIRON)
    assert caught.value.offset == offset


def test_uses_are_recorded_with_place_operator_and_whether_they_are_set() -> None:
    uses = expand("a${HOME}${UNSET}${OTHER:-${INNER}}", ENVIRON).uses
    assert [(use.name, use.operator, use.start, use.end, use.is_set) for use in uses] == [
        ("HOME", "", 1, 8, True),
        ("UNSET", "", 8, 16, False),
        ("OTHER", "-", 16, 34, False),
        ("INNER", "", 25, 33, True),
    ]
    assert [use.vanishes for use in uses] == [False, True, False, False]


def test_nesting_and_length_are_bounded() -> None:
    deep = "${U:-" * (MAX_NESTING + 2) + "}" * (MAX_NESTING + 2)
    with pytest.raises(ExpansionFault, match="nested"):
        expand(deep, {})
    with pytest.raises(ExpansionFault, match="more than"):
        expand("${A}" * 2, {"A": "x" * (MAX_EXPANDED_CHARS - 1)})


@given(st.text(st.characters(exclude_characters="$\\", codec="utf-8")), st.dictionaries(st.text(), st.text()))
def test_a_text_without_dollar_and_backslash_is_left_alone(raw: str, environ: dict[str, str]) -> None:
    expanded = expand(raw, environ)
    assert expanded.text == raw
    assert not expanded.uses


@given(st.text(alphabet="ab${}:-+?\\", max_size=60))
def test_expansion_ends_in_a_text_or_in_a_fault_with_a_place_inside(raw: str) -> None:
    offset = 0
    uses: tuple[Use, ...] = ()
    try:
        uses = expand(raw, {"a": "A", "b": ""}).uses
    except ExpansionFault as fault:
        offset = fault.offset
    assert 0 <= offset < max(len(raw), 1)
    assert all(raw.startswith("${", use.start) and raw[use.end - 1] == "}" for use in uses)


@given(st.text(max_size=40))
def test_an_escaped_text_reads_as_itself(text: str) -> None:
    escaped = "".join("\\" + char for char in text)
    assert expand(escaped, {}).text == text


@given(st.text(alphabet="AB", min_size=1, max_size=4), st.text(max_size=20))
def test_a_value_is_not_expanded_again(name: str, value: str) -> None:
    assert expand("${" + name + "}", {name: value}).text == value
