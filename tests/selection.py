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
    "analytics/test_following.py": 0,
    "analytics/test_pipeline.py::test_spark_carries_out_what_this_machine_carries_out": 0,
    "analytics/test_remote.py": 4,
    "analytics/test_spark.py": 1,
    "analytics/test_spark_cluster.py": 0,
    "chaos/test_rounds.py": 0,
    "check/test_check_hostile.py::test_200_files_of_5_kb_take_little_time": 0,
    "check/test_rules_cyclone.py::test_the_table_agrees_with_cyclone_on_every_setting_and_value": 0,
    "check/test_rules_cyclone.py::"
    "test_what_cyclone_refuses_here_is_found_and_placed_however_it_is_written": 5,
    "commands/test_show.py::test_200_nodes_with_5000_groups_are_shown_in_two_seconds_and_150_megabytes": 0,
    "console/test_keys.py::test_every_key_on_every_screen_is_survived_at_any_size_and_without_colours": 1,
    "console/test_keys.py::test_the_cursor_walks_over_the_matrix": 4,
    "console/test_kiosk.py::test_old_data_on_a_wall_is_no_picture_of_now": 2,
    "console/test_operate.py::test_without_operate_or_off_line_nothing_can_be_done": 3,
    "console/test_persistence_view.py::test_hostile_text_is_shown_and_never_obeyed_at_any_size": 2,
    "console/test_persistence_view.py::test_where_there_is_none_the_screen_says_why": 3,
    "console/test_pictures.py::test_the_overview_of_a_system_in_trouble_at_each_size_in_each_theme": 2,
    "console/test_pictures.py::test_what_stands_where_on_every_other_screen": 1,
    "console/test_repaint.py::test_a_screen_that_was_left_shows_what_changes_after_its_return": 2,
    "console/test_screens.py::test_every_key_of_every_screen_does_something": 1,
    "console/test_screens.py::test_every_screen_survives_any_size_and_an_empty_system": 2,
    "console/test_screens.py::test_jumps_lead_to_what_is_under_the_cursor_and_back": 3,
    "console/test_screens.py::test_no_screen_obeys_text_from_the_network": 3,
    "console/test_simulated.py::test_top_says_each_screen_as_json": 3,
    "console/test_speed.py::test_a_tick_over_a_large_system_leaves_room_for_everything_else": 0,
    "console/test_speed.py::test_two_hundred_nodes_and_fifty_name_spaces_stay_responsive": 0,
    "forensics/test_cases.py::test_a_case_is_analysed_as_its_files_are": 9,
    "forensics/test_cases.py::test_large_files_are_looked_at_through_a_case_and_alike": 2,
    "forensics/test_damaged_evidence.py::test_a_copied_store_is_not_that_of_another_node": 2,
    "forensics/test_damaged_evidence.py::test_a_copy_of_a_trace_counts_once": 2,
    "forensics/test_damaged_evidence.py::test_all_views_correct_a_wrong_clock": 2,
    "forensics/test_damaged_evidence.py::test_exchanged_files_are_told": 2,
    "forensics/test_damaged_evidence.py::test_missing_lines_are_no_evidence": 2,
    "forensics/test_needed.py::test_a_conversation_of_a_case_is_that_of_its_files": 1,
    "forensics/test_needed.py::test_a_conversation_of_the_needed_records_is_that_of_all": 1,
    "forensics/test_needed.py::test_facts_of_the_needed_records_are_those_of_all": 2,
    "forensics/test_needed.py::test_marks_are_used_where_they_suffice": 2,
    "health/test_drawn_faults.py::test_after_recovery_all_incidents_have_ended_and_none_was_told_twice": 2,
    "health/test_only_what_changed.py::test_looking_at_what_changed_finds_what_looking_at_all_does": 2,
    "health/test_replayed_health.py::test_a_gap_of_the_recording_is_no_silence_of_the_nodes": 3,
    "health/test_winding.py::test_every_way_to_a_moment_shows_the_same": 0,
    "integration/test_durability_page.py": 2,
    "property/test_packed.py::test_many_instances_are_packed_and_those_touched_are_not": 2,
    "property/test_packed.py::test_packed_histories_make_no_difference": 2,
    "property/test_reconciliation.py::test_any_difference_is_made_good": 8,
    "property/test_reconciliation.py::test_the_way_back_tells_what_the_first_way_found": 1,
    "redundancy/test_rehearsal.py::test_a_rehearsal_ends_with_the_same_values_everywhere": 3,
    "redundancy/test_rehearsal.py::"
    "test_readers_of_durable_subscriptions_get_everything_once_wherever_they_come": 3,
    "simulation/test_acknowledged_scenarios.py::"
    "test_a_node_that_hears_nothing_of_a_writer_stays_close_behind": 1,
    "simulation/test_acknowledged_scenarios.py::"
    "test_a_rolling_restart_under_traffic_keeps_what_one_node_captured": 2,
    "simulation/test_acknowledged_scenarios.py::"
    "test_whichever_node_starts_first_nothing_is_lost_and_nothing_comes_back": 4,
    "simulation/test_mutations.py::test_a_broken_node_is_caught": 4,
    "simulation/test_seeds.py::test_invariants_hold_under_the_faults_of_a_seed": 3,
    "simulation/test_seeds.py::test_invariants_hold_where_sets_are_packed": 1,
    "simulation/test_seeds.py::test_what_was_found_once_stays_mended": 3,
    "simulation/test_start_up.py": 0,
    "stores/test_spark_differences.py": 1,
    "trace/test_damage.py::test_a_line_without_end_takes_little_memory_and_is_counted": 0,
    "unit/store/test_large_in_memory.py::test_reading_needs_memory_for_few_samples": 1,
    "unit/store/test_left_out.py::test_after_kill_9_everything_acknowledged_or_its_successor_is_there": 0,
    "unit/store/test_store_damage.py::test_a_damaged_page_is_said_and_healed": 10,
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
