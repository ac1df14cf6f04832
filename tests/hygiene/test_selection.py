"""What is run before each commit: what is quick, and the first test on real processes of each file."""

from __future__ import annotations

import pathlib
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from tests.selection import RUN, mark_slow


@pytest.mark.parametrize("name", RUN)
def test_what_is_named_exists(name: str, root: pathlib.Path) -> None:
    file, _, test = name.partition("::")
    assert f"def {test}" in (root / "tests" / file).read_text(encoding="utf-8")


@dataclass
class Collected:
    """As much of a test of pytest as is marked."""

    nodeid: str
    marks: list[str] = field(default_factory=list)

    def get_closest_marker(self, name: str) -> Any:
        return name if name in self.marks else None

    def add_marker(self, mark: pytest.MarkDecorator) -> None:
        self.marks.append(mark.name)


def test_the_first_on_processes_of_each_file_are_run_and_what_is_quick(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tests.selection.RUN", {"c.py": 1, "d.py::test": 2})
    run = [
        Collected("tests/a.py::quick"),
        Collected("tests/a.py::first", ["dds"]),
        Collected("tests/a.py::quick_too[1]"),
        Collected("tests/b.py::first[1]", ["netns"]),
        Collected("tests/c.py::quick"),
        Collected("tests/d.py::test[1]"),
        Collected("tests/d.py::test[2]", ["dds"]),
        Collected("tests/d.py::first", ["dds"]),
    ]
    slow = [
        Collected("tests/a.py::second", ["netns"]),
        Collected("tests/b.py::first[2]", ["netns"]),
        Collected("tests/c.py::quick_too"),
        Collected("tests/d.py::test[3]"),
    ]
    mark_slow(cast("list[pytest.Item]", run + slow))
    assert [test.nodeid for test in run + slow if "slow" in test.marks] == [test.nodeid for test in slow]
