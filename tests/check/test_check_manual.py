"""The documentation of the rules, and what `explain` says."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from docs import rule_pages as manual
from engine.config.schema import Item, documented, schema
from ospltool.check import explain
from ospltool.check.registry import SECTIONS, Rule
from ospltool.check.rule_book import all_rules, find_rules


def rules() -> Iterator[Rule]:
    yield from all_rules().values()


def test_codes_and_names_are_unique_and_well_formed() -> None:
    names = [each.name for each in rules()]
    assert len(set(names)) == len(names) >= 60
    assert all(name == name.lower() and " " not in name and "_" not in name for name in names)
    assert all(code.startswith("DUR") and len(code) == 6 and code[3:].isdigit() for code in all_rules())


def test_every_rule_is_documented_in_all_sections() -> None:
    for each in rules():
        sections = each.sections()
        assert each.summary.endswith("."), each.code
        assert list(sections) == ["", *SECTIONS], each.code
        assert all(sections.values()), each.code
        assert each.blocks <= each.targets, each.code


def test_the_manual_is_what_the_rules_say() -> None:
    for name, text in manual.pages().items():
        assert (manual.DIRECTORY / name).read_text("utf-8") == text, "run: python -m docs.rule_pages"


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("DUR605", ["DUR605"]),
        ("dur605", ["DUR605"]),
        ("temporary-store", ["DUR605"]),
        ("DUR90", ["DUR901", "DUR902", "DUR903"]),
    ],
)
def test_rules_are_found_by_code_beginning_and_name(selector: str, expected: list[str]) -> None:
    assert [each.code for each in find_rules(selector)] == expected


@pytest.mark.parametrize("selector", ["", "DUR9999", "nonsense"])
def test_an_unknown_rule_is_refused(selector: str) -> None:
    with pytest.raises(KeyError):
        find_rules(selector)


@pytest.mark.parametrize("subject", ["DUR201", "dur201", "overlapping-name-spaces"])
def test_a_rule_is_explained(subject: str) -> None:
    found = explain.find(subject)
    assert isinstance(found, Rule)
    text = explain.as_text(found)
    assert text.startswith("DUR201 overlapping-name-spaces (error, since 0.1)\n")
    assert "What OpenSplice does:" in text
    assert json.loads(explain.as_json(found))["data"]["code"] == "DUR201"


@pytest.mark.parametrize(
    "subject",
    [
        "//OpenSplice/DurabilityService/NameSpaces/Policy[@masterPriority]",
        "OpenSplice/DurabilityService/NameSpaces/Policy/@masterPriority",
        "DurabilityService/NameSpaces/Policy@masterPriority",
        "masterPriority",
    ],
)
def test_a_setting_is_explained_in_any_notation(subject: str) -> None:
    found = explain.find(subject)
    assert isinstance(found, Item)
    text = explain.as_text(found)
    assert text.startswith("//OpenSplice/DurabilityService/NameSpaces/Policy[@masterPriority]\n")
    assert "range:       0 to 255" in text
    assert "default:     255" in text


def test_every_setting_of_the_service_can_be_explained() -> None:
    for path in [each for each in schema().paths() if each.startswith("DurabilityService")]:
        found = explain.find(documented(path))
        assert isinstance(found, Item)
        assert found.path == path
        assert explain.as_text(found), path
        assert json.loads(explain.as_json(found))["kind"] == "setting"


@pytest.mark.parametrize(
    ("subject", "words"),
    [
        ("DUR20", "did you mean DUR"),
        ("lazy-mastre", "did you mean lazy-master?"),
        (
            "//OpenSplice/DurabilityService/NameSpace/Policy",
            "did you mean //OpenSplice/DurabilityService/NameSpaces",
        ),
        ("ExpiryTime", "no rule and no setting"),
        ("Priority", "ambiguous"),
        ("\x1b[31m", "no rule"),
    ],
)
def test_an_unknown_subject_says_what_may_have_been_meant(subject: str, words: str) -> None:
    if subject == "ExpiryTime":
        assert isinstance(explain.find(subject), Item)
        return
    with pytest.raises(explain.UnknownSubject, match=words.replace("?", r"\?").replace("[", r"\[")) as caught:
        explain.find(subject)
    assert str(caught.value).isprintable()


def test_the_list_has_a_line_for_each_rule() -> None:
    assert explain.as_text(None).count("\n") == len(all_rules())
    assert len(json.loads(explain.as_json(None))["data"]) == len(all_rules())
