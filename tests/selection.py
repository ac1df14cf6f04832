"""Which tests `make test` leaves to `make test-all`: the marker `slow` is put here, and nowhere else.

A test that starts processes waits for seconds, so of those that one file holds, the first is run before each
commit: every feature keeps one on real nodes. The others are run before a release and each night.
"""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence
from typing import Final

import pytest

RUN: Final[Mapping[str, int]] = {
    "analytics/test_fleet.py": 1,
    "analytics/test_pipeline.py::test_spark_carries_out_what_this_machine_carries_out": 0,
    "analytics/test_following.py": 0,
    "analytics/test_remote.py": 4,
    "analytics/test_spark.py": 1,
    "analytics/test_spark_cluster.py": 0,
    "console/test_repaint.py::test_a_screen_that_was_left_shows_what_changes_after_its_return": 2,
    "console/test_screens.py::test_every_key_of_every_screen_does_something": 3,
    "console/test_screens.py::test_every_screen_survives_any_size_and_an_empty_system": 3,
    "console/test_screens.py::test_jumps_lead_to_what_is_under_the_cursor_and_back": 5,
    "console/test_screens.py::test_no_screen_obeys_text_from_the_network": 3,
    "console/test_simulated.py::test_top_says_each_screen_as_json": 3,
    "forensics/test_needed.py::test_facts_of_the_needed_records_are_those_of_all": 3,
    "forensics/test_needed.py::test_marks_are_used_where_they_suffice": 2,
    "health/test_drawn_faults.py::test_after_recovery_all_incidents_have_ended_and_none_was_told_twice": 2,
    "integration/test_durability_page.py": 2,
    "redundancy/test_rehearsal.py::test_a_rehearsal_ends_with_the_same_values_everywhere": 3,
    "simulation/test_seeds.py::test_invariants_hold_under_the_faults_of_a_seed": 8,
    "simulation/test_seeds.py::test_invariants_hold_where_sets_are_packed": 2,
    "simulation/test_seeds.py::test_what_was_found_once_stays_mended": 8,
    "stores/test_spark_differences.py": 1,
    "trace/test_damage.py::test_a_line_without_end_takes_little_memory_and_is_counted": 0,
    "unit/store/test_left_out.py::test_after_kill_9_everything_acknowledged_or_its_successor_is_there": 0,
}
"""How many are run before each commit: of the tests of a file, or of the cases of a test.

Where nothing is said: all, but one of the tests of a file that start processes. 0 is for what takes many
times longer than the rest of its feature together.
"""


def mark_slow(items: Sequence[pytest.Item]) -> None:
    """Mark the tests that are not run before each commit."""
    met: collections.Counter[str] = collections.Counter()
    for item in items:
        test = item.nodeid.removeprefix("tests/").partition("[")[0]
        file = test.partition("::")[0]
        waits = item.get_closest_marker("dds") or item.get_closest_marker("netns")
        group = test if test in RUN else file
        if group in RUN or waits:
            met[group] += 1
            if met[group] > RUN.get(group, 1):
                item.add_marker(pytest.mark.slow)
