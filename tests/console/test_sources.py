from __future__ import annotations

import time
from pathlib import Path

import pytest

from engine.runtime.monitor import NodeEvent
from engine.tracing.catalogue import catalogue
from ospltool.diagnostics.model import Severity
from ospltool.trace.reading.sources import SourceError
from ospltool.views.view import Filter
from tests import fake
from tests.fake import START_NS
from tui import trace_lines as sources
from tui.advertised import advertised, document, findings_of
from tui.screens.trace import FIELDS
from tui.trace_lines import TraceFiles, trace_filter, wanted_events, wanted_records

EVENTS = (
    fake.event(1, 1, START_NS, "Fellow n2 lost", level="WARNING", thread="d_status", event="fellow.lost"),
    fake.event(2, 2, START_NS, "Write samplerequest", level="FINE", state="FETCH_INITIAL"),
    fake.event(
        3,
        1,
        START_NS,
        catalogue()["compatibility.approved"].text.format(fellow="n7"),
        level="FINER",
        event="compatibility.approved",
    ),
)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("", [1, 2, 3]),
        ("lost", [1]),
        ("LOST", [1]),
        ("!lost", [2, 3]),
        ("d_status", [1]),
        ("level:warning", [1]),
        ("level:fine", [1, 2]),
        ("thread:d_*", [1]),
        ("state:fetch_initial", [2]),
        ("node:n1", [1, 3]),
        ("!node:n1", [2]),
        ("event:fellow", [1]),
        ("fellow:n7", [3]),
        ("node:n1 approved", [3]),
        ("a(b", []),
    ],
)
def test_events_are_filtered_as_the_trace_command_filters_records(text: str, numbers: list[int]) -> None:
    kept = wanted_events(EVENTS, Filter.parse(text, FIELDS))
    assert [event.number for event in kept] == numbers


def test_words_become_the_filter_of_the_trace_command() -> None:
    made = trace_filter(
        Filter.parse("level:WARN thread:d_* group:P.T ns:Orders conflict:7 fellow:1 x !y", FIELDS)
    )
    assert made.level == "WARNING"
    assert (made.threads, made.groups, made.namespaces) == (("d_*",), ("P.T",), ("Orders",))
    assert (made.fellows, made.conflict) == (("1",), "7")
    assert [p.pattern for p in made.grep] == ["x"]
    assert [p.pattern for p in made.exclude] == ["y"]


TRACE = """\
2026-11-21T01:03:20+0000 1795223000.000000000 INIT (ospl_durability) -> Configuration:
2026-11-21T01:03:21+0000 1795223001.000000000 COMPLETE (d_status) -> Fellow one
2026-11-21T01:03:23+0000 1795223003.000000000 COMPLETE (d_status) -> Fellow three
"""
OTHER = """\
2026-11-21T01:03:22+0000 1795223002.000000000 COMPLETE (d_status) -> Fellow two
2026-11-21T01:03:24+0000 1795223004.000000000 COMPLETE (d_status) -> Fellow four
"""


def wait_for(files: TraceFiles, number: int) -> None:
    deadline = time.monotonic() + 20
    while files.seen < number:
        assert time.monotonic() < deadline, f"{files.seen} of {number} records after 20 s"
        time.sleep(0.05)


def test_trace_files_are_merged_by_time_and_followed(tmp_path: Path) -> None:
    first, second = tmp_path / "durability-a.log", tmp_path / "durability-b.log"
    first.write_text(TRACE)
    second.write_text(OTHER)
    files = TraceFiles([f"a={first}", f"b={second}"])
    try:
        wait_for(files, 5)
        texts = [record.text for record in files.records()]
        assert texts == ["Configuration:", "Fellow one", "Fellow two", "Fellow three", "Fellow four"]
        assert {record.node for record in files.records()} == {"a", "b"}
        with first.open("a") as file:
            file.write("2026-11-21T01:03:25+0000 1795223005.000000000 COMPLETE (d_status) -> Fellow five\n")
        wait_for(files, 6)
        kept = wanted_records(files.records(), Filter.parse("node:a five", FIELDS))
        assert [record.text for record in kept] == ["Fellow five"]
    finally:
        files.close()


def test_a_trace_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no such file"):
        TraceFiles([str(tmp_path / "none.log")])


def test_records_of_files_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "MAX_LINES", 2)
    path = tmp_path / "durability.log"
    path.write_text(TRACE)
    files = TraceFiles([str(path)])
    try:
        wait_for(files, 3)
        assert [record.text for record in files.records()] == ["Fellow one", "Fellow three"]
        assert files.seen == 3
    finally:
        files.close()


# What nodes advertise.


def test_a_system_that_fits_together_has_no_findings_that_matter() -> None:
    spaces = [fake.name_space("Orders", 1, master_priority=priority) for priority in (200, 100, 50)]
    found = findings_of(fake.snapshot(n, space) for n, space in enumerate(spaces, 1))
    assert [one.code for one in found if one.severity is not Severity.INFO] == []


@pytest.mark.parametrize(
    ("first", "second", "code"),
    [
        ({"master_priority": 0}, {"master_priority": 0}, "DUR321"),
        ({"elements": ("Orders.*",)}, {"elements": ("Orders.Trade",)}, "DUR230"),
        ({"aligner": False}, {"aligner": False}, "DUR320"),
        ({"merges": ("Replace *",)}, {"merges": ("Ignore *",)}, "DUR421"),
    ],
)
def test_what_does_not_fit_is_found_in_what_nodes_advertise(
    first: dict[str, object], second: dict[str, object], code: str
) -> None:
    snapshots = (
        fake.snapshot(1, fake.name_space("Orders", 1, **first)),
        fake.snapshot(2, fake.name_space("Orders", 1, **second)),
    )
    assert code in {one.code for one in findings_of(snapshots)}


def test_nodes_that_advertise_the_same_share_a_finding() -> None:
    whole, twice = fake.name_space("Orders", 1), fake.name_space("More", 1, elements=("Orders.*",))
    alike = [fake.snapshot(n, whole, twice) for n in (1, 3)]
    found = findings_of((alike[0], fake.snapshot(2, whole), alike[1]))
    assert [one.nodes for one in found if one.code == "DUR201"] == [("n1", "n3")]


def test_findings_depend_on_definitions_and_not_on_figures() -> None:
    one = fake.snapshot(1, fake.name_space("Orders", 1, count=1), time_ns=1)
    same = fake.snapshot(1, fake.name_space("Orders", 1, count=2), time_ns=2)
    other = fake.snapshot(1, fake.name_space("Orders", 1, master_priority=7))
    assert advertised([one]) == advertised([same])
    assert advertised([one]) != advertised([other])


def test_hostile_names_stay_text() -> None:
    name = "\"/><Policy x='&lt;${HOME}\x1b\x00"
    hostile = fake.snapshot(1, fake.name_space(name, 1, merges=(f"{name} {name}",)), name=name, role=name)
    content = document(hostile)
    assert b"\x1b" not in content
    assert b"${" not in content
    assert findings_of([hostile]) is not None


def test_an_event_is_found_again_as_a_record() -> None:
    event: NodeEvent = EVENTS[2]
    record = sources.record_of(event, with_fields=True)
    assert (record.node, record.text, record.fields) == ("n1", event.text, {"fellow": "n7"})
