"""Each row of what others can and cannot do is tried by a test."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pathlib

TRIED: Final = {
    "a participant of the domain, without a secret being set": (
        "adversary/test_impostors.py::test_nobody_gives_samples_in_the_name_of_a_node",
        "integration/test_hostile.py::test_nonsense_on_the_protocol_topics_is_counted_and_reported_and_the_nodes_go_on",
        "adversary/test_watches.py::test_no_stranger_takes_away_what_is_told_of_nodes",
    ),
    "the same, which announces itself under the id of a node": (
        "integration/test_shared_identity.py::test_of_two_nodes_on_copies_of_one_store_the_later_one_ends",
        "integration/test_shared_identity.py::test_a_copy_of_a_living_store_ends_and_the_node_that_it_is_of_is_not_blamed",
    ),
    "a participant that does not know the secret": (
        "adversary/test_secret.py::test_no_forged_message_has_an_effect",
        "property/test_proofs.py::test_a_message_passes_as_it_was_sent_and_once",
    ),
    "a participant that knows the secret": (
        "adversary/test_secret.py::test_nodes_with_the_secret_are_alone_with_each_other",
    ),
    "a participant that is no node, and sends messages of nodes, or malformed ones": (
        "adversary/test_deletions.py::test_a_node_a_year_ahead_and_a_stranger_delete",
        "integration/test_hostile.py::test_nonsense_on_the_protocol_topics_is_counted_and_reported_and_the_nodes_go_on",
    ),
    "a participant that writes to the topics of consoles": (
        "adversary/test_watches.py::test_no_stranger_ends_a_watch_and_one_that_fails_by_itself_says_so",
    ),
    "a client with odd requests": ("adversary/test_services.py::test_odd_requests_of_a_client",),
    "a local user without rights to the files": (
        "commands/test_supervisor.py::test_files_of_the_run_directory_are_ours_alone",
    ),
    "who changes rows of a store": (
        "unit/store/test_tampered.py::test_none_of_ten_thousand_changed_rows_is_sent",
    ),
    "a file of a configuration": (
        "check/test_check_hostile.py::test_an_enemy_is_an_error_with_a_place_at_once_and_within_50_mb",
    ),
    "a recording": (
        "console/test_recording.py::test_a_file_with_another_schema_is_refused",
        "console/test_recording.py::test_a_hostile_line_costs_bounded_memory_and_is_told",
    ),
    "a file of a trace": (
        "trace/test_damage.py::test_no_damage_ends_in_anything_but_an_answer",
        "trace/test_damage.py::test_a_line_without_end_takes_little_memory_and_is_counted",
    ),
    "a wrong clock": (
        "adversary/test_clocks.py::test_a_node_waits_for_a_right_clock_and_goes_on_when_it_is_wrong_again",
    ),
}


def test_what_the_page_says_of_others_is_tried(root: pathlib.Path) -> None:
    page = (root / "docs" / "security.md").read_text("utf-8")
    table = page.partition("| Who | Can | Cannot |\n|---|---|---|\n")[2].partition("\n\n")[0]
    assert [row.split("|")[1].strip() for row in table.splitlines()] == [*TRIED]
    for tests in TRIED.values():
        for test in tests:
            path, _, name = test.partition("::")
            text = (root / "tests" / path).read_text("utf-8")
            assert re.search(rf"^def {name}\(", text, re.MULTILINE), test
