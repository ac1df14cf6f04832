"""In which order the files of the tests run: what takes long and waits comes first, so that the end is short.

A worker of pytest-xdist takes whole files in this order. Tests that start processes wait more than they
compute, so that four of them keep two processors busy. Tests that only compute fill them at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pytest

LONGEST: Final = (
    "analytics/test_spark_cluster.py",
    "client/test_durable_writer.py",
    "integration/test_store.py",
    "console/test_domains.py",
    "analytics/test_following.py",
    "client/test_client_parts.py",
    "integration/test_filters_apart.py",
    "analytics/test_spark.py",
    "integration/test_health_faults.py",
    "integration/test_timelines.py",
    "chaos/test_rounds.py",
    "integration/test_merge_table.py",
    "integration/test_tutorial.py",
    "integration/test_large_samples.py",
)
"""Files of more than 25 s, those of processes; about the longest first."""

COMPUTING: Final = ("forensics/test_needed.py", "console/test_screens.py", "simulation/test_seeds.py")
"""The longest of those that start no process."""


def in_order(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Put the tests into the order of their files; those of one file stay as they are."""
    seen: dict[str, int] = {}
    waits: set[str] = set()
    for item in items:
        file = str(item.path)
        seen.setdefault(file, len(seen))
        if item.get_closest_marker("dds") or item.get_closest_marker("netns"):
            waits.add(file)

    def rank(file: str) -> tuple[int, int]:
        for phase, long in ((0, LONGEST), (2, COMPUTING)):
            for place, end in enumerate(long):
                if file.endswith(f"/tests/{end}"):
                    return phase, place
        return 1 if file in waits else 3, seen[file]

    ranks = {file: rank(file) for file in seen}
    return sorted(items, key=lambda item: ranks[str(item.path)])
