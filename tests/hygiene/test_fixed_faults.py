"""The table of OpenSplice's known faults is sound: each has a scenario that exists, or a reason."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
TABLE = tomllib.loads((TESTS / "simulation" / "fixed_faults.toml").read_text())
LONGEST_REASON = 120


def scenarios() -> set[str]:
    """The names of all test functions of the project."""
    return {
        name
        for path in TESTS.rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)
    }


@pytest.fixture(scope="module")
def known() -> set[str]:
    return scenarios()


def problem(fault: str, entry: dict[str, str], known: set[str]) -> str:
    """What is wrong with an entry; empty when nothing is."""
    if not re.fullmatch(r"(OSPL-|dds)\d+(-\d)?", fault):
        return "no such id"
    if entry.keys() == {"scenario"}:
        return "" if entry["scenario"] in known else "no such test"
    if entry.keys() == {"reason"}:
        return "" if 20 <= len(entry["reason"]) <= LONGEST_REASON else "a reason is one short line"
    return "one of scenario and reason"


def test_each_known_fault_has_a_scenario_that_exists_or_a_reason(known: set[str]) -> None:
    problems = {fault: problem(fault, entry, known) for fault, entry in TABLE.items()}
    assert {fault: text for fault, text in problems.items() if text} == {}


def test_the_table_is_about_all_that_was_looked_at() -> None:
    assert len(TABLE) == 178
    assert sum("scenario" in entry for entry in TABLE.values()) > len(TABLE) / 2


@pytest.mark.parametrize(
    "entry",
    [
        {"scenario": "test_that_does_not_exist"},
        {"reason": "no"},
        {"reason": "it is so " * 20},
        {"scenario": "test_x", "reason": "both of them at the same time"},
        {},
    ],
)
def test_an_unsound_entry_is_noticed(entry: dict[str, str]) -> None:
    assert problem("OSPL-1", entry, {"test_x"})
