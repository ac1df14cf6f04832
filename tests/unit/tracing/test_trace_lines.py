from __future__ import annotations

import datetime
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.tracing.catalogue import EventType, catalogue
from engine.tracing.escaping import escape, unescape
from engine.tracing.record import EventRecord, TextFormat, Timestamps, fill_in, json_format, message
from tests.trace_lines import Line, read_line

EVENTS = sorted(catalogue().values(), key=lambda kind: kind.id)
START_NS = 1_795_222_798_472_989_470
ANY_TEXT = st.text(st.characters(exclude_categories=()))  # lone surrogates and control characters included


def record_of(kind: EventType, fields: dict[str, object], time_ns: int = START_NS) -> EventRecord:
    return EventRecord(1, time_ns, "COMPLETE", kind, fields, message(kind, fields))


@given(ANY_TEXT)
def test_escaped_text_prints_on_one_line_and_can_be_had_back(text: str) -> None:
    escaped = escape(text)
    assert escaped.isprintable()
    assert unescape(escaped) == text


@given(st.data())
def test_a_written_line_reads_back(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(EVENTS))
    fields: dict[str, object] = {name: data.draw(ANY_TEXT) for name in kind.fields}
    time_ns = data.draw(st.integers(-(10**9), 253_402_214_400 * 10**9))
    record = record_of(kind, fields, time_ns)

    line = TextFormat(zone=datetime.UTC)(record)

    assert line.isprintable()
    assert read_line(line) == Line(time_ns, "COMPLETE", kind.thread, record.text)
    found = catalogue().match(record.text)
    assert found is not None
    assert fill_in(found[0].text, found[1]) == record.text


@given(st.sampled_from(EVENTS), st.integers(0, 10**18))
def test_json_has_every_field_as_it_was(kind: EventType, number: int) -> None:
    fields: dict[str, object] = {name: f"\x1b]0;{name}\x07" for name in kind.fields}
    fields |= {name: number for name in kind.fields if name.endswith("_ns")}
    line = json_format(record_of(kind, fields))

    assert line.isprintable()
    read = json.loads(line)
    assert (read["format_version"], read["kind"]) == (1, "trace-event")
    assert read["data"]["fields"] == fields
    assert read["data"]["event"] == kind.id
    assert read["data"]["level"] == kind.level.name


def test_json_writes_large_integers_as_strings_and_times_as_integers() -> None:
    kind = catalogue()["message.unsupported"]
    names = {"topic": "t", "name": "n", "fellow": "m"}
    fields: dict[str, object] = {**names, "sender": 2**127, "version": 3, "known": (1, 2**64)}
    read = json.loads(json_format(record_of(kind, fields)))
    assert read["data"]["fields"] == {**names, "sender": str(2**127), "version": 3, "known": [1, str(2**64)]}
    assert read["data"]["time_ns"] == START_NS


@pytest.mark.parametrize(
    ("timestamps", "expected"),
    [
        (
            Timestamps.ABSOLUTE,
            "2026-11-21T00:59:58+0000 1795222798.472989470 COMPLETE (ospl_durability) -> Durability destroyed",  # noqa: E501 - a whole line
        ),
        (
            Timestamps.RELATIVE,
            "1970-01-01T00:00:01+0000 1.019691753 COMPLETE (ospl_durability) -> Durability destroyed",
        ),
        (Timestamps.OFF, "COMPLETE (ospl_durability) -> Durability destroyed"),
    ],
)
def test_timestamps_are_written_as_configured(timestamps: Timestamps, expected: str) -> None:
    start_ns = START_NS - 1_019_691_753
    write = TextFormat(timestamps, start_ns, datetime.UTC)
    assert write(record_of(catalogue()["lifecycle.stopped"], {})) == expected


def test_the_local_column_follows_the_second() -> None:
    write = TextFormat(zone=datetime.timezone(datetime.timedelta(hours=5, minutes=30)))
    kind = catalogue()["lifecycle.stopped"]
    columns = [write(record_of(kind, {}, second * 10**9)).split(" ")[0] for second in (0, 59, 60, 60, 0)]
    assert columns == [
        f"1970-01-01T05:{clock}+0530" for clock in ("30:00", "30:59", "31:00", "31:00", "30:00")
    ]


@pytest.mark.parametrize("line", ["", "- Role    : x", "INIT ospl_durability -> x", "a INIT (t) -> x"])
def test_a_line_without_header_is_a_continuation(line: str) -> None:
    assert read_line(line) is None
