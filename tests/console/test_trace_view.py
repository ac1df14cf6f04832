"""The screen of the trace: its rows, a line in full, and its title."""

from __future__ import annotations

import pytest

from tests import fake
from tests.console.test_screen_views import check_rows, rows_of, text_of, told, view_of
from tests.fake import SECOND_NS, START_NS
from tui.screens import trace

S = SECOND_NS


def test_rows_of_the_trace_show_what_matters() -> None:
    events = [
        fake.event(1, 1, START_NS, "Fellow n2 lost", level="WARNING", thread="d_status"),
        fake.event(2, 1, START_NS + S, "detail", level="FINEST"),
        fake.event(3, 1, START_NS + 2 * S, "no space", level="SEVERE"),
    ]
    view = view_of(after_s=3)
    rows = trace.trace(view, [trace.row_of_event(event) for event in events], 160)
    check_rows(
        rows,
        [
            "01:03:20.000|3 s|▲|n1|WARNING|d_status|complete|Fellow n2 lost",
            "01:03:21.000|2 s||n1|FINEST|ospl_durability|complete|detail",
            "01:03:22.000|1 s|✖|n1|SEVERE|ospl_durability|complete|no space",
        ],
    )
    narrow = trace.trace(view, [trace.row_of_event(event) for event in events], 80)
    assert rows_of(narrow)[0] == "01:03:20.000|3 s|▲|n1|Fellow n2 lost"


def test_a_line_in_full_says_what_it_means() -> None:
    view = view_of()
    event = told(1, "compatibility.approved", fellow="n2")
    lines = text_of(trace.row_lines(view, trace.row_of_event(event), 100))
    assert lines[1] == " Communication with fellow n2 approved."
    text = "No name-space of the fellow conflicts with those of this node."
    assert lines[2] == f" compatibility.approved: {text}"


@pytest.mark.parametrize(
    ("shown", "every", "left_out", "title"),
    [
        (3, 3, 0, "events: 3"),
        (1, 3, 0, "events: 1 of 3"),
        (25_000, 25_000, 7, "events: 25,000, the newest 20,000 of them shown, 7 older ones not kept"),
    ],
)
def test_the_title_of_the_trace_counts_what_is_not_shown(
    shown: int, every: int, left_out: int, title: str
) -> None:
    assert trace.title("events", shown, every, left_out) == title
