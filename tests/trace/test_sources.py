"""Which files are read, and whose they are."""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import sys
from collections.abc import Callable

import pytest

from ospltool.trace.meaning.catalogue import Product
from ospltool.trace.reading import reader, report_logs, sources
from ospltool.trace.reading.ranges import count_records
from ospltool.trace.reading.sources import SourceError, TraceFormat, find_sources, sniff
from tests.trace.making import Traces

LINE = "1795223310.000000001 COMPLETE (t) -> x\n"


def write(path: pathlib.Path, text: str = LINE) -> pathlib.Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "node"),
    [
        ("n1/durability.log", "n1"),
        ("x/durability-n2.log", "n2"),
        ("x/durability_n2.log", "n2"),
        ("n3/durability.log.1", "n3"),
        ("n3/ospl-info.log", "n3"),
        ("x/host7.log", "host7"),
        ("x/host7.txt", "host7"),
    ],
)
def test_nodes_are_named_by_their_files(name: str, node: str, tmp_path: pathlib.Path) -> None:
    write(tmp_path / name)
    (source,) = find_sources([str(tmp_path / name)]).sources
    assert source.node == node


def test_a_name_may_be_given(tmp_path: pathlib.Path) -> None:
    path = write(tmp_path / "a.log")
    (source,) = find_sources([f"left={path}"]).sources
    assert (source.node, source.path) == ("left", path)


def test_a_path_with_an_equals_sign_is_a_path(tmp_path: pathlib.Path) -> None:
    path = write(tmp_path / "case=7" / "durability.log")
    assert find_sources([str(path)]).sources[0].path == path


def test_directories_are_searched_and_other_files_passed_over(tmp_path: pathlib.Path) -> None:
    write(tmp_path / "n1" / "durability.log")
    write(tmp_path / "n2" / "durability.log")
    write(tmp_path / "n2" / "store.xml", "<a/>")
    write(tmp_path / "n2" / "empty", "")
    write(tmp_path / ".hidden" / "durability.log")
    found = find_sources([str(tmp_path)])
    assert [source.node for source in found.sources] == [".hidden", "n1", "n2"]
    assert sorted(path.name for path in found.skipped) == ["empty", "store.xml"]


def test_a_file_is_read_once_however_often_it_is_named(tmp_path: pathlib.Path) -> None:
    path = write(tmp_path / "n1" / "durability.log")
    assert len(find_sources([str(path), str(tmp_path), str(path)]).sources) == 1


def test_a_named_file_is_read_whatever_it_holds(tmp_path: pathlib.Path) -> None:
    path = write(tmp_path / "other.txt", "no trace at all\n")
    (source,) = find_sources([str(path)]).sources
    assert source.format is TraceFormat.UNKNOWN


@pytest.mark.parametrize("name", ["missing.log", "n1=missing.log", "=x.log", "n1="])
def test_what_is_not_there_is_an_error(
    name: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SourceError):
        find_sources([name])


def test_a_directory_without_traces_is_an_error(tmp_path: pathlib.Path) -> None:
    write(tmp_path / "a" / "b.xml", "<a/>")
    with pytest.raises(SourceError, match="no trace or log found"):
        find_sources([str(tmp_path)])


def test_a_file_that_may_not_be_read_is_an_error(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "loop.log"
    path.symlink_to(path)
    with pytest.raises(SourceError):
        find_sources([str(path)])


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ({"log": LINE, "stream": "stdout"}, "`jq -rj .log FILE`"),
        ({"_PID": "7", "MESSAGE": LINE.strip()}, "`jq -r .MESSAGE FILE`"),
    ],
)
def test_lines_within_json_are_no_records(line: dict[str, str], advice: str, tmp_path: pathlib.Path) -> None:
    path = write(tmp_path / "n1.log", (json.dumps(line) + "\n") * 2)
    with pytest.raises(SourceError, match=re.escape(advice)):
        find_sources([str(path)])


def test_what_a_file_holds_is_seen_from_its_beginning(tmp_path: pathlib.Path, traces: Traces) -> None:
    assert sniff(write(tmp_path / "a.log", "COMPLETE (t) -> x\n")).untimed
    assert not sniff(write(tmp_path / "b.log")).untimed
    ours = (
        LINE
        + "1795223310.000000001 INIT (ospl_durability) -> My address is: '00ff00ff00ff00ff00ff00ff00ff00ff'\n"
    )
    assert sniff(write(tmp_path / "c.log", ours)).origin is Product.ENGINE
    assert sniff(traces.node("n1").begin().write()).origin is Product.OPENSPLICE


A_THREAD = "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()"


@pytest.mark.parametrize("before", ["", "import pyarrow", A_THREAD])
def test_counting_in_processes_counts_what_one_counts(before: str, samples: pathlib.Path) -> None:
    """Processes are made in one way or the other, by what this one has loaded and runs."""
    if "pyarrow" in before:
        pytest.importorskip("pyarrow", reason="Parquet needs the extra `sql`")
    sources = find_sources([str(samples / "late-joiner")]).sources
    code = (
        f"import sys, pathlib; from ospltool.trace.reading import ranges, sources; {before}\n"
        "found = sources.find_sources(sys.argv[1:]).sources\n"
        "if __name__ == '__main__':\n"
        "    ranges.SMALL_BYTES = 0\n"
        "    print(ranges.count_records(found, b'Waiting', 2))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(samples / "late-joiner")],
        capture_output=True, text=True, check=False, cwd=samples.parents[1], timeout=120,
    )  # fmt: skip
    assert done.stdout.strip() == str(count_records(sources, b"Waiting", 1)), done.stderr


PASSED_ON: dict[str, Callable[[int, bytes], bytes]] = {
    "colours": lambda _, line: b"\x1b[01;31m\x1b[K" + line[:9] + b"\x1b[m\x1b[K" + line[9:-1] + b"\x1b[0m\n",
    "docker compose": lambda number, line: b"%-7s | " % (b"n%d-1" % (number // 7)) + line,
    "docker compose, coloured": lambda _, line: b"\x1b[36mn1-1  | \x1b[0m" + line,
    "docker logs -t": lambda number, line: b"2025-04-04T07:12:%02d.2999Z " % (number % 60) + line,
    "kubectl --prefix --timestamps": lambda _, line: b"[pod/ospl-0/ospl] 2025-04-04T07:12:42+02:00 " + line,
    "journalctl": lambda number, line: b"Nov %2d 13:27:43 host ospl[%d]: " % (1 + number % 30, number) + line,
    "journalctl -o short-iso": lambda _, line: b"2025-04-04T07:12:42+0000 host.a ospl[2828]: " + line,
    "a quotation": lambda _, line: b"> " + line if line.strip() else b">\n",
    "an indent": lambda _, line: b"    " + line if line.strip() else line,
    "grep -n": lambda number, line: b"a/b-c.log:%d:" % number + line,
    "the mark of UTF-8": lambda number, line: line if number else b"\xef\xbb\xbf" + line,
}
"""What other tools do to lines, by what they are."""


@pytest.mark.parametrize("size", [7, 1 << 18])
@pytest.mark.parametrize("sample", ["durability.log", "ospl-info.log"])
@pytest.mark.parametrize("tool", PASSED_ON)
def test_what_tools_put_into_lines_changes_no_record_and_no_place(
    tool: str,
    size: int,
    sample: str,
    samples: pathlib.Path,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reader, "BLOCK_BYTES", size)
    monkeypatch.setattr(report_logs, "BLOCK_BYTES", size)
    monkeypatch.setattr(sources, "SNIFFED_BYTES", 1000)  # so that a block has ends and beginnings of lines
    lines = (samples / "late-joiner" / "n1" / sample).read_bytes().splitlines(keepends=True)[:300]
    path, plain = tmp_path / f"passed-on-{sample}", tmp_path / sample
    path.write_bytes(b"".join(PASSED_ON[tool](number, line) for number, line in enumerate(lines)))
    plain.write_bytes(b"".join(lines))
    found, expected = [list(reader.read_records(sniff(one, "n"))) for one in (path, plain)]
    keys = [(one.kind, one.time_ns, one.level, one.text, one.fields, one.event) for one in found]
    assert keys == [(one.kind, one.time_ns, one.level, one.text, one.fields, one.event) for one in expected]
    data = path.read_bytes()
    assert all(one.offset == 0 or data[one.offset - 1 : one.offset] == b"\n" for one in found)
    assert b"".join(sources.as_written(path, one.offset, one.raw) for one in found) == data
    assert [len(one.raw) for one in found] == [
        after - one.offset
        for one, after in zip(found, [*(one.offset for one in found[1:]), len(data)], strict=True)
    ]
