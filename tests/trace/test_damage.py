"""Damaged traces and logs are shown as far as they can be read; nothing is concluded from half a message."""

from __future__ import annotations

import functools
import gzip
import pathlib
import random
import subprocess
import sys
import time

import pytest

from ospltool.cli.app import main
from ospltool.trace.meaning.catalogue import catalogue, pieces
from ospltool.trace.meaning.trace_facts import TraceFacts
from ospltool.trace.reading.headers import headers
from ospltool.trace.reading.reader import merged
from ospltool.trace.reading.sources import find_sources
from ospltool.trace.rules import anomalies
from ospltool.trace.views import timeline
from tests.fuzzing import Target, faults
from tests.machine import ROOT, check_ratio
from tests.trace.fuzz_trace import targets
from tests.trace.making import Traces

VALUES = {"addr": "1002", "int": "7", "num": "1.5", "time": "10.000000000", "hex": "ff", "ptr": "0x1f"}
VALUES |= {"triple": "0,0,0", "pair": "12, 34", "group": "p.T"}
SEEDS = range(1, 26)


def facts_of(path: str) -> TraceFacts:
    return TraceFacts.from_records(merged(find_sources([path]).sources))


def messages() -> list[str]:
    """A message of every event."""
    found = [
        "".join(
            part.literal + (VALUES.get(part.kind, f"some {part.field}") if part.field else "")
            for part in pieces(template.pattern)
        )
        for template in catalogue()
        if template.event
    ]
    return [text for text in found if "\n" not in text]


def test_a_log_that_ends_anywhere_in_a_message_can_be_analysed(traces: Traces) -> None:
    for number, text in enumerate(messages()):
        for cut in range(1, len(text) + 1, 5):  # every node's log ends there, as if its disk was full
            trace = traces.node("n1").begin() if not traces.traces else traces.traces["n1"]
            trace.line(number + cut / 1000, text[:cut])
    trace = traces.traces["n1"].line(1e6, "Confirming master: I am the master for nameSpace 'ns'.")
    glued = "".join(line.rstrip("\n") for line in trace.lines)
    path = trace.write()
    path.write_text(glued, encoding="utf-8")  # without line ends, every one of them is a cut message
    facts = facts_of(str(path))
    anomalies(facts)
    assert list(timeline.as_text(timeline.timeline(facts)))
    assert facts.choices, "the whole ones among them are still facts"


def test_half_a_name_is_nobodys(traces: Traces) -> None:
    trace = traces.node("n1").begin()
    whole = "Confirming master: Fellow '123456789' is the master for nameSpace 'ns'."
    for cut in range(len("Confirming master: Fellow '1"), len(whole)):
        trace.line(cut, whole[:cut])
    trace.line(100, whole)
    trace.path.parent.mkdir(parents=True)
    trace.path.write_text("".join(line.rstrip("\n") for line in trace.lines), encoding="utf-8")
    choices = facts_of(str(trace.path)).choices
    assert {(one.master, one.namespace) for one in choices} == {("123456789", "ns")}


@pytest.mark.parametrize("digits", ["9795223310", "9999999999", "9223372037"])
def test_a_time_that_cannot_be_one_ends_no_load(traces: Traces, digits: str, tmp_path: pathlib.Path) -> None:
    trace = traces.node("n1").begin()
    for at in range(20):
        trace.line(at, "Initializing administration...")
    trace.lines[5] = trace.lines[5].replace(trace.lines[5].split(" ")[1].split(".")[0], digits)
    path = trace.write()
    assert main(["trace", "load", str(path), "-o", str(tmp_path / "case")]) == 0
    times = [record.time_ns for record in merged(find_sources([str(path)]).sources)]
    assert times.count(None) == 1
    assert times[5] is None


@pytest.mark.parametrize("packer", ["gz", "zst"])
def test_a_cut_compressed_file_is_shown_as_far_as_it_can_be_read(
    samples: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], packer: str
) -> None:
    data = gzip.decompress((samples / "master-livelock" / "n1" / "durability.log.gz").read_bytes())
    if packer == "gz":
        packed = gzip.compress(data)
    else:
        zstd = pytest.importorskip("backports.zstd")
        packed = zstd.compress(data)
    path = tmp_path / f"durability.log.{packer}"
    path.write_bytes(packed[: len(packed) * 2 // 3])
    assert main(["trace", str(path), "--format", "raw"]) == 1
    shown, said = capsys.readouterr()
    assert len(shown) > len(data) // 3
    assert data.startswith(shown.encode("utf-8", "surrogateescape"))
    assert f"{path}: cannot be read beyond byte {len(shown)}" in said
    for verb in ("anomalies", "timeline"):
        assert main(["trace", verb, str(path)]) == 1
        assert "cannot be read beyond byte" in capsys.readouterr().err
    assert main(["trace", "load", str(path), "-o", str(tmp_path / "case")]) == 1
    assert "cannot be read beyond byte" in capsys.readouterr().err
    assert (
        main(["sql", str(tmp_path / "case"), "select off from records where kind = 'damaged'", "--json"]) == 0
    )
    assert str(len(shown)) in capsys.readouterr().out


@pytest.mark.parametrize("packer", ["gz", "zst"])
def test_a_file_that_cannot_be_read_at_all_does_not_stop_its_directory(
    traces: Traces, capsys: pytest.CaptureFixture[str], packer: str
) -> None:
    traces.node("n1").begin().line(1, "Initializing administration...")
    directory = traces.write()
    (traces.directory / f"durability-n2.log.{packer}").write_bytes(random.Random(1).randbytes(5000))
    assert main(["trace", directory]) == 1
    shown, said = capsys.readouterr()
    assert "Initializing administration" in shown
    assert f"durability-n2.log.{packer}: cannot be read beyond byte 0" in said


@pytest.mark.parametrize("target", targets(), ids=lambda one: one.name)
def test_no_damage_ends_in_anything_but_an_answer(target: Target) -> None:
    assert [fault.what for fault in faults(target, SEEDS)] == []


def test_a_line_without_end_takes_little_memory_and_is_counted(tmp_path: pathlib.Path) -> None:
    """A compressed file of 1 MB may hold a line of hundreds."""
    path, size = tmp_path / "n1.log.gz", 120 << 20
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b"2026-11-28T10:00:00+0000 1795860000.000000000 COMPLETE (ospl_durability) -> one ")
        for _ in range(size >> 20):
            file.write(b"x" * (1 << 20))
    program = (
        "import sys; from ospltool.cli.app import main; from tests.machine import peak_bytes; "
        "code = main(['trace', 'anomalies', sys.argv[1]]); print(peak_bytes()); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    said, _, peak = done.stdout.rstrip().rpartition("\n")
    assert "bytes say that belong to no record, or are too many for one" in said
    assert int(peak) < 300 << 20, "it was twice the line, and what the command takes without it"


def test_ends_of_headers_without_a_header_take_no_search() -> None:
    """A damaged compressed file may be megabytes of them; the reference is as many whole headers."""

    def reading_s(piece: bytes) -> float:
        buffer = piece * 5_000
        began = time.process_time()
        found = sum(1 for _ in headers(buffer))
        assert found == (5_000 if piece[:1] == b"1" else 0)
        return time.process_time() - began

    whole = b"1700000000.000000000 INIT (ospl_durability) -> "
    for piece in (b"(x) -> ", b"e (x) -> ", b"no INIT (x) -> "):
        check_ratio(functools.partial(reading_s, piece), functools.partial(reading_s, whole), 0.5)
