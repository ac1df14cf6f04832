"""The order of the files of the tests names files that exist, and puts what waits before what computes."""

from __future__ import annotations

import pathlib
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from tests.order import COMPUTING, LONGEST, in_order


@pytest.mark.parametrize("name", [*LONGEST, *COMPUTING])
def test_what_is_named_exists_once(name: str, root: pathlib.Path) -> None:
    assert (root / "tests" / name).is_file()
    assert [*LONGEST, *COMPUTING].count(name) == 1


@dataclass
class Placed:
    """As much of a test of pytest as has an order."""

    name: str
    path: pathlib.Path
    marks: frozenset[str] = field(default_factory=frozenset)

    def get_closest_marker(self, name: str) -> Any:
        return name if name in self.marks else None


def test_the_longest_come_first_then_what_waits_and_a_file_stays_in_one_piece() -> None:
    def one(name: str, *marks: str) -> Placed:
        file, _, test = name.partition("::")
        return Placed(test, pathlib.Path("/home/tests", file), frozenset(marks))

    tests = [
        one("a.py::1"),
        one("b.py::2"),
        one("b.py::3", "dds"),
        one("b.py::1"),
        one(f"{COMPUTING[0]}::1"),
        one("c.py::1", "netns"),
        one(f"{LONGEST[1]}::1"),
        one(f"{LONGEST[0]}::1"),
        one("other/a.py::1"),
    ]
    ordered = cast("list[Placed]", in_order(cast("list[pytest.Item]", tests)))
    assert [(test.path.name, test.name) for test in ordered] == [
        (pathlib.Path(LONGEST[0]).name, "1"),
        (pathlib.Path(LONGEST[1]).name, "1"),
        ("b.py", "2"),
        ("b.py", "3"),
        ("b.py", "1"),
        ("c.py", "1"),
        (pathlib.Path(COMPUTING[0]).name, "1"),
        ("a.py", "1"),
        ("a.py", "1"),
    ]
