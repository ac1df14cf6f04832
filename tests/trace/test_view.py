"""`ospltool trace`: what is shown, what is said about what is not, and what never reaches a terminal."""

from __future__ import annotations

import gzip
import io
import json
import pathlib
import re

import pytest

from ospltool.cli.app import main
from ospltool.output.times import iso
from ospltool.trace.reading.reader import merged
from ospltool.trace.reading.sources import find_sources
from ospltool.trace.views.render import RenderError, by_template
from ospltool.trace.views.selection import estimate_skews
from tests.trace.making import Traces

REQUEST = "Write samplerequest for group partA.T1 to fellow {} using source (0,0,0)"
RECEIVED = (
    "Received sample request for group partA.T1 from fellow {} using source (0,0,0), adding it to queue."
)
MASTER = "Confirming master: Fellow '{}' is the master for nameSpace '{}'."


def shown(capfd: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> list[str]:
    """The texts of the records that a command shows."""
    assert main(["trace", *arguments, "--format", "template={line}"]) == code
    return capfd.readouterr().out.splitlines()


@pytest.fixture
def two(traces: Traces) -> str:
    first, second = traces.node("n1", "1001").begin(0), traces.node("n2", "1002").begin(0.5)
    first.line(1, REQUEST.format(1002)).line(3, "Finished solving conflict 7").line(3, "no such message 1")
    second.line(2, RECEIVED.format(1001), "d_sampleRequest")
    second.line(2.5, MASTER.format(1001, "nsA"), state="FETCH_INITIAL")
    second.line(4, "Namespace 'nsA' is incomplete, trying to restore backup.", "ospl_durability")
    return traces.write()


def test_nodes_are_merged_by_time(two: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", two, "--format", "template={node} {clock}"]) == 0
    lines = capfd.readouterr().out.splitlines()
    times = [line.split()[1] for line in lines]
    assert times == sorted(times)
    assert {line.split()[0] for line in lines} == {"n1", "n2"}


FILTERS = {
    "level": (
        ["--level", "warning"],
        ["no such message 1", "Namespace 'nsA' is incomplete, trying to restore backup."],
    ),
    "thread": (["--thread", "d_*"], [RECEIVED.format(1001)]),
    "state": (["--state", "fetch_initial"], [MASTER.format(1001, "nsA")]),
    "fellow by address": (["--fellow", "1002"], ["My address is: '1002'", REQUEST.format(1002)]),
    "fellow by name": (["--fellow", "n2"], ["My address is: '1002'", REQUEST.format(1002)]),
    "namespace": (
        ["--name-space", "ns?"],
        [MASTER.format(1001, "nsA"), "Namespace 'nsA' is incomplete, trying to restore backup."],
    ),
    "group": (["--group", "partA.*"], [REQUEST.format(1002), RECEIVED.format(1001)]),
    "conflict": (["--conflict", "7"], ["Finished solving conflict 7"]),
    "grep": (["--grep", "solving"], ["Finished solving conflict 7"]),
    "grep with a pattern": (["--grep", "solv.ng conflict [0-9]$"], ["Finished solving conflict 7"]),
    "grep sees the header": (["--grep", "FETCH_INITIAL"], [MASTER.format(1001, "nsA")]),
    "grep without case": (["-i", "--grep", "SOLVING"], ["Finished solving conflict 7"]),
    "two greps": (["--grep", "conflict", "--grep", "solving"], ["Finished solving conflict 7"]),
    "since": (["--since", "+3.5s"], ["Namespace 'nsA' is incomplete, trying to restore backup."]),
    "around": (["--around", "+1s±0.1s"], [REQUEST.format(1002)]),
    "lines": (["--lines", "1"], ["Namespace 'nsA' is incomplete, trying to restore backup."]),
}


@pytest.mark.parametrize("name", FILTERS)
def test_filters_let_pass_what_they_should(name: str, two: str, capfd: pytest.CaptureFixture[str]) -> None:
    arguments, expected = FILTERS[name]
    assert shown(capfd, two, *arguments) == expected


def test_exclude_and_until_leave_out(two: str, capfd: pytest.CaptureFixture[str]) -> None:
    found = shown(capfd, two, "--exclude", "address|Configuration|such", "--until", "+3s")
    assert found == [
        REQUEST.format(1002),
        RECEIVED.format(1001),
        MASTER.format(1001, "nsA"),
        "Finished solving conflict 7",
    ]


def test_filters_agree_whether_records_are_passed_over_or_read(
    two: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """With a literal to look for, most records are never parsed; what is shown must be the same."""
    assert main(["trace", two, "--grep", "conflict"]) == 0
    fast = capfd.readouterr().out
    assert main(["trace", two, "--grep", "conflic[t]"]) == 0
    assert capfd.readouterr().out == fast != ""


def test_a_run_is_picked_from_a_file_with_several(traces: Traces, capfd: pytest.CaptureFixture[str]) -> None:
    trace = traces.node("n1").begin(0).line(1, "first run").begin(10).line(11, "second run")
    trace.write()
    assert shown(capfd, str(trace.path), "--run", "2")[-1] == "second run"
    assert "second run" not in shown(capfd, str(trace.path), "--run", "1")


def test_context_shows_what_stands_around(traces: Traces, capfd: pytest.CaptureFixture[str]) -> None:
    trace = traces.node("n1")
    for number in range(20):
        trace.line(number, f"line {number}")
    trace.write()
    assert shown(capfd, str(trace.path), "--grep", "line (5|6|15)$", "-C", "1") == [
        "line 4", "line 5", "line 6", "line 7", "--", "line 14", "line 15", "line 16",
    ]  # fmt: skip
    assert shown(capfd, str(trace.path), "--grep", "line 0$", "-B", "2", "-A", "1") == ["line 0", "line 1"]


def test_gaps_are_marked(traces: Traces, capfd: pytest.CaptureFixture[str]) -> None:
    path = traces.node("n1").line(0, "a").line(1, "b").line(11.5, "c").write()
    assert shown(capfd, str(path), "--gaps", "2s") == ["a", "b", "-- 10.50 s of silence --", "c"]


def test_skew_is_corrected(two: str, capfd: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "trace",
        two,
        "--skew",
        "n2=-1.5s",
        "--group",
        "partA.T1",
        "--format",
        "template={node} {clock}",
    ]
    assert main(arguments) == 0
    assert capfd.readouterr().out.splitlines() == ["n2 01:03:20.500000", "n1 01:03:21.000000"]


def test_skew_is_estimated_from_requests_and_answers(traces: Traces) -> None:
    """n2 is 1.3 s ahead; messages take 1 ms there and 3 ms back."""
    first, second = traces.node("n1", "1001").begin(0), traces.node("n2", "1002").begin(0)
    for number in range(1, 30):
        at = number * 0.7 + number * number * 0.01
        first.line(at, REQUEST.format(1002))
        second.line(at + 1.3 + 0.001, RECEIVED.format(1001), "d_sampleRequest")
        second.line(
            at + 1.3 + 0.1, f"Sent {number} samples for group partA.T1 to fellow 1001 (1 fellows total)."
        )
        link = f"Received link from fellow 1002 for group partA.T1 containing {number} samples. #links == 1"
        first.line(at + 0.103, link, "d_sampleChain")
    reference, other = estimate_skews(find_sources([traces.write()]).sources)
    assert (reference.node, reference.add_ns) == ("n1", 0)
    assert other.uncertainty_ns is not None
    assert abs(other.add_ns + 1_299_000_000) < 1_000  # half of the difference of the two ways
    assert abs(other.uncertainty_ns - 2_000_000) < 1_000  # half of the round trip
    assert other.pairs >= 50


def test_skew_that_can_not_be_estimated_says_so(traces: Traces, capfd: pytest.CaptureFixture[str]) -> None:
    traces.node("n1", "1001").begin(0)
    traces.node("n2", "1002").begin(0)
    assert main(["trace", traces.write(), "--skew", "auto"]) == 0
    assert "skew of n2: 0 ns (no messages both ways" in capfd.readouterr().err


def test_each_file_keeps_its_own_order(traces: Traces) -> None:
    """A clock that was set back, or a thread that was late: nothing changes places within a file."""
    first, second = traces.node("n1"), traces.node("n2")
    first.line(1, "a").line(3, "b").line(2.9999, "c").line(7, "d").line(4, "e").line(8, "f")
    second.line(2, "1").line(5, "2").line(7.5, "3")
    found = [record.text for record in merged(find_sources([traces.write()]).sources)]
    assert found == ["a", "1", "b", "c", "2", "d", "e", "3", "f"]


def test_counts_by_span_and_template(two: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", two, "--hist", "1s"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines] == ["4", "1", "2", "2", "1"]
    assert "W" in lines[-1]
    assert main(["trace", two, "--templates"]) == 0
    assert "d_sampleChainListener:1855" in capfd.readouterr().out
    assert main(["trace", two, "--unknown"]) == 0
    assert "no such message #" in capfd.readouterr().out


def test_counting_counts_records(two: str, capfd: pytest.CaptureFixture[str]) -> None:
    for arguments, count in (
        (["--grep", "conflict "], "1"),
        (["--grep", "c.nflict "], "1"),
        ([], "10"),
        (["-l", "WARNING"], "2"),
    ):
        assert main(["trace", two, "--count", *arguments]) == 0
        assert capfd.readouterr().out == f"{count}\n"


def test_what_was_not_understood_is_said(traces: Traces, capfd: pytest.CaptureFixture[str]) -> None:
    trace = traces.node("n1").line(0, "Group partA.T1 is now complete.").line(1, "never heard of")
    trace.write()
    trace.path.write_bytes(b"tail of a rotated file\n" + trace.path.read_bytes())
    assert main(["trace", str(trace.path)]) == 0
    error = capfd.readouterr().err
    assert "23 bytes belong to no record" in error
    assert "1 of 3 records match no template" in error


def test_relative_times_are_said_to_be_so(tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "n1.log"
    path.write_text("1970-01-01T00:00:01+0000 1.500000000 INIT (t) -> x\n", encoding="utf-8")
    assert main(["trace", str(path)]) == 0
    assert "times of n1 count from the start of the service" in capfd.readouterr().err
    assert main(["trace", str(path), "--skew", "n1=+1795223310s", "--format", "template={time}"]) == 0
    captured = capfd.readouterr()
    assert captured.out == f"{iso(1795223311_500000000)}\n"
    assert "count from the start" not in captured.err


HOSTILE = "partA.\x1b]0;owned\x07\x1b[31m\x9b2J\r\u202eT1"


@pytest.mark.parametrize("output", ["short", "full", "template={text} {line} {group}", "jsonl"])
@pytest.mark.parametrize("mode", [[], ["--templates"], ["--unknown"], ["--hist", "1s"], ["-C", "1"]])
def test_control_characters_never_reach_the_terminal(
    output: str, mode: list[str], traces: Traces, capfd: pytest.CaptureFixture[str]
) -> None:
    trace = traces.node("n1").line(0, f"Group {HOSTILE} is now complete.").line(1, f"{HOSTILE} \x00")
    trace.line(2, "x", "thr\x1b[1mead").write()
    assert main(["trace", f"evil={trace.path}", "--format", output, *mode, "--color", "never"]) == 0
    captured = capfd.readouterr()
    assert re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", captured.out + captured.err) is None


def test_colour_only_where_it_is_wanted(two: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", two, "--highlight", "conflict", "--color", "always"]) == 0
    coloured = capfd.readouterr().out
    assert main(["trace", two, "--highlight", "conflict"]) == 0
    plain = capfd.readouterr().out
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == plain


def test_raw_is_every_byte(traces: Traces, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    trace = traces.node("n1").line(0, f"Group {HOSTILE} is now complete.").line(1, "two\nlines\n\n")
    trace.write()
    trace.path.write_bytes(trace.path.read_bytes() + b"\xff\xfe no text")
    assert main(["trace", str(trace.path), "--format", "raw"]) == 0
    assert capfdbinary.readouterr().out == trace.path.read_bytes()


def test_json_forms_agree(two: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", two, "--format", "jsonl"]) == 0
    lines = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert {(line["format_version"], line["kind"]) for line in lines} == {(1, "trace-record")}
    assert main(["trace", two, "--json"]) == 0
    whole = json.loads(capfd.readouterr().out)
    assert whole["kind"] == "trace-records"
    assert whole["data"] == [line["data"] for line in lines]
    assert all(isinstance(one["time_ns"], int) for one in whole["data"])


def test_json_of_nothing_is_an_empty_list(two: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", two, "--json", "--grep", "not there"]) == 0
    assert json.loads(capfd.readouterr().out)["data"] == []


def test_parquet_has_the_same_records(two: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="the output parquet needs the extra `sql`")
    assert main(["trace", two, "--format", "parquet"]) == 0
    table = parquet.read_table(io.BytesIO(capfdbinary.readouterr().out))
    assert main(["trace", two, "--format", "jsonl"]) == 0
    records = [json.loads(line)["data"] for line in capfdbinary.readouterr().out.splitlines()]
    assert table.column("text").to_pylist() == [record["text"] for record in records]
    assert table.column("node").to_pylist() == [record["node"] for record in records]


@pytest.mark.parametrize(
    "template", ["{", "{text", "{text!r}", "{text.__class__}", "{0}", "{text:%x}", "{text[0]}", "{nosuch}"]
)
def test_a_template_only_names_fields(template: str) -> None:
    with pytest.raises(RenderError):
        by_template(template)


WRONG = {
    "no file": [],
    "a level that is none": ["--level", "LOUD"],
    "a pattern that is none": ["--grep", "("],
    "a time that is none": ["--since", "yesterday"],
    "a node that is none": ["--skew", "n9=1s"],
    "a skew that is none": ["--skew", "n1"],
    "an output that is none": ["--format", "xml"],
    "a document that has no end": ["--follow", "--json"],
    "a table that has no end": ["--follow", "--format", "parquet"],
    "a colour that is none": ["--color", "red"],
    "spans that are too short": ["--hist", "1ns"],
    "two answers at once": ["--count", "--hist", "1s"],
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_usage_is_code_2_with_a_reason(name: str, two: str, capfd: pytest.CaptureFixture[str]) -> None:
    files = [] if name == "no file" else [two]
    assert main(["trace", *files, *WRONG[name]]) == 2
    captured = capfd.readouterr()
    assert captured.err.strip()
    assert "Traceback" not in captured.err


def test_what_can_not_be_followed_is_said_before_anything_is_shown(
    tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "durability.log.gz"
    path.write_bytes(gzip.compress(b"1795223310.000000000 INIT (t) -> x\n"))
    assert main(["trace", str(path), "--follow"]) == 2
    captured = capfd.readouterr()
    assert captured.out == ""
    assert "cannot be followed" in captured.err


def test_a_missing_file_is_code_2(tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", str(tmp_path / "none.log")]) == 2
    assert "none.log: no such file or directory" in capfd.readouterr().err


def test_the_last_lines_of_a_large_file_are_found_from_its_end(
    traces: Traces, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ospltool.trace.views.selection._TAIL_BYTES", 200)
    trace = traces.node("n1")
    for number in range(300):
        trace.line(number, f"line {number}{' odd' if number % 2 else ''}")
    trace.write()
    assert shown(capfd, str(trace.path), "-n", "3") == ["line 297 odd", "line 298", "line 299 odd"]
    assert shown(capfd, str(trace.path), "-n", "2", "--grep", "line [0-9] odd") == [
        "line 7 odd",
        "line 9 odd",
    ]
    assert shown(capfd, str(trace.path), "-n", "0") == []
