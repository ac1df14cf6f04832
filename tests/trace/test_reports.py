"""ospl-info.log and ospl-error.log, of all releases."""

from __future__ import annotations

import io
import pathlib

import pytest

from ospltool.trace.reading import report_logs as reports
from ospltool.trace.reading.reader import read_records
from ospltool.trace.reading.record import RecordKind, TraceRecord
from ospltool.trace.reading.sources import TraceFile, TraceFormat, sniff

RULE = "=" * 88 + "\n"
LINE = "-" * 88 + "\n"
SOURCE = TraceFile(pathlib.Path("ospl-info.log"), "n1", TraceFormat.REPORTS)

PLAIN = (
    f"{RULE}Report      : WARNING\n"
    "Date        : 2026-11-21T01:05:08+0000\n"
    "Description : first line\n"
    "              second line\n\n"
    "              third line\n"
    "Node        : host-1\n"
    "Process     : my app <27749>\n"
    "Thread      : durability 7ff11f5a56c0\n"
    "Internals   : 6.9.210323OSS///Durability Service/src/d_configuration.c/980/0/1795223196.003750223/77\n"
)
OLD = (
    f"{RULE}Report      : INFO\n"
    "Date        : Fri Nov 02 02:42:20 CDT 2018\n"
    "Description : ++ The service is operational.\n"
    "Node        : host-2\n"
    "Process     : durability <12>\n"
    "Thread      : main thread 7f00\n"
    "Internals   : V6.4.140320/abc/def/a::b/u_service.c/1/0/1541144540.123456789\n"
)
STACK = (
    f"{RULE}Context     : DDS::DataWriter::write\n"
    "Date        : 2026-11-21T01:05:08+0000\n"
    "Node        : host-1\n"
    "Process     : app <5>\n"
    "Thread      : main thread 7f\n"
    "Internals   : code/writer.cpp/77/6.9///0\n"
    f"{LINE}Report      : Precondition not met\n"
    "Internals   : write/code/writer.cpp/77/3/1795223196.000000001\n"
    f"{LINE}Report      : Handle was closed\n"
    "Internals   : check/code/entity.cpp/5/3/1795223196.000000002\n"
)


def read(text: bytes) -> list[TraceRecord]:
    return list(reports.read_reports(io.BytesIO(text), SOURCE))


def test_a_report_has_its_parts() -> None:
    (report,) = read(PLAIN.encode())
    assert (report.kind, report.level, report.time_ns) == (RecordKind.REPORT, "WARNING", 1795223196003750223)
    assert report.text == "first line\nsecond line\n\nthird line"
    assert report.fields == {
        "host": "host-1",
        "process": "my app",
        "pid": "27749",
        "thread": "durability",
        "thread_id": "7ff11f5a56c0",
        "version": "6.9.210323OSS",
        "context": "Durability Service/src",
        "source": "d_configuration.c",
        "line": "980",
        "code": "0",
        "domain": "77",
    }


def test_an_older_report_has_its_time_from_the_internals() -> None:
    (report,) = read(OLD.encode())
    assert (report.level, report.time_ns) == ("INFO", 1541144540123456789)
    assert "domain" not in report.fields
    assert report.fields["context"] == "a::b"


def test_a_stack_of_the_api_is_one_error() -> None:
    (report,) = read(STACK.encode())
    assert (report.level, report.time_ns) == ("ERROR", 1795223196000000002)
    assert report.text == "DDS::DataWriter::write\nPrecondition not met\nHandle was closed"


@pytest.mark.parametrize("size", [1, 7, 100, 1 << 18])
def test_reports_do_not_depend_on_blocks(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    data = ("noise before\n" + PLAIN + OLD + STACK + PLAIN).encode()
    whole = read(data)
    monkeypatch.setattr(reports, "BLOCK_BYTES", size)
    assert read(data) == whole
    assert b"".join(report.raw for report in whole) == data
    assert [report.kind for report in whole] == [RecordKind.UNPARSED, *[RecordKind.REPORT] * 4]


@pytest.mark.parametrize(
    "damage",
    [b"\xff\xfe", b"\0\0", b"\r", b"\x1b[31m"],
)
def test_damaged_reports_are_read_as_far_as_they_go(damage: bytes) -> None:
    data = PLAIN.encode().replace(b"second", b"sec" + damage + b"ond")
    (report,) = read(data)
    assert report.time_ns == 1795223196003750223
    assert report.raw == data


def test_windows_line_ends_are_understood() -> None:
    (report,) = read(PLAIN.replace("\n", "\r\n").encode())
    assert report.text == "first line\nsecond line\n\nthird line"
    assert report.fields["domain"] == "77"


def test_real_reports_are_read_whole(samples: pathlib.Path) -> None:
    path = samples / "late-joiner" / "n1" / "ospl-info.log"
    source = sniff(path, "n1")
    assert source.format is TraceFormat.REPORTS
    found = list(read_records(source))
    assert {report.kind for report in found} == {RecordKind.REPORT}
    assert all(report.time_ns for report in found)
    assert b"".join(report.raw for report in found) == path.read_bytes()
    assert any("can be identified by ID: 649285054" in report.text for report in found)
