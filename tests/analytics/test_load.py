"""What is loaded is what was read."""

from __future__ import annotations

import collections
import contextlib
import json
import os
import pathlib
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow", reason="cases need the extra `sql`")

import pyarrow.parquet as pq  # noqa: E402 - after the check that it is there

from ospltool.analytics.case import (  # noqa: E402 - likewise
    COMPRESSION,
    COMPRESSION_LEVEL,
    ROWS_TOGETHER,
    CaseError,
    open_case,
    partition,
)
from ospltool.analytics.contract import (  # noqa: E402 - likewise
    COLUMNS,
    DETAILS,
    FORMAT_VERSION,
    RECORD_COLUMNS,
    Detail,
    Table,
)
from ospltool.analytics.duck import DuckEngine  # noqa: E402 - likewise
from ospltool.cli.app import main  # noqa: E402 - likewise
from ospltool.trace.case.columnar import piece_of_records, piece_of_trace  # noqa: E402 - likewise
from ospltool.trace.case.loading import load  # noqa: E402 - likewise
from ospltool.trace.reading.ranges import pieces  # noqa: E402 - likewise
from ospltool.trace.reading.reader import read_records  # noqa: E402 - likewise
from ospltool.trace.reading.sources import SourceError, TraceFile, find_sources, sniff  # noqa: E402 - likewise

ISO = b"2026-11-21T01:08:30+0000 1795223310.294122015 "
HARD = b"".join(
    [
        ISO + b"COMPLETE (d_newGroup) -> Group found: partA.T1 (PERSISTENT)\n",
        ISO + b"COMPLETE (d_newGroup) -> Group found: gr\xc3\xb6\xc3\x9fer.T1 (PERSISTENT)\n",
        ISO + b"COMPLETE (x) -> The merge state of my namespace 'ns' has changed after conflict 5 was ",
        b"detected from (R,1) to (R,2), canceling the conflict",
        ISO + b"PersistentStore (KV) -> Group 'p.T' has quality: 12.000000001\n",
        b"1510591395.741573630 INIT (mainThread) -> Adding conflict 3 to the conflict resolver queue\n",
        b"1970-01-01T00:00:01+0000 1.019691753 INIT (t) -> Adding conflict 99999999999999999999 to the ",
        b"conflict resolver queue\n",
        ISO + b"COMPLETE (t) -> Data for group p.T injected from disk. Group is complete now (0).\n",
        ISO + b"COMPLETE (t) -> Data for group p.T injected from disk. Group is complete now (2).\n",
        ISO + b"COMPLETE (t) -> Data for group p.T injected from disk. Group is complete now (7).\n",
        ISO + b"COMPLETE (t) -> Merge action 0x7fab12cd applies to 2 fellows\n",
        ISO + b"COMPLETE (t) -> Merge action 0x7fab12ce applies to 3 fellows\n",
        ISO + b"COMPLETE (t) -> Merge action (nil) applies to 3 fellows\n",
        ISO + b"COMPLETE (t) -> [0x00000002]   Inject msg 0x7fab state=2 time=5.000000001 ",
        b"wrgid=1:2:3 key={1,2}\n",
        ISO + b"COMPLETE (t) -> Current:\nsamplesStored=1\n\n\n",
        ISO + b"COMPLETE (t) -> \n",
        ISO + b"COMPLETE (t) -> no such message " + b"y" * 600 + b"\n",
        ISO + b"COMPLETE (t) -> f(x) -> y\n",
        ISO
        + b"COMPLETE (t) -> Finished solving conflict 12"
        + ISO
        + b"COMPLETE (t) -> Finished solving conflict 13\n",
        b"2026-11-21T01:08:31+0000 1795223310.294122015 COMPLETE (t) -> a second that was changed\n",
        b"2026-11-21T06:38:30+0530 1795223310.294122015 COMPLETE (t) -> another zone\n",
        b"2026-11-20T15:08:30-1000 1795223310.294122015 COMPLETE (t) -> and one in the west\n",
        b"2026-11-20T15:08:30-1100 1795223310.294122015 COMPLETE (t) -> a zone that was changed\n",
        b"2026-11-21T01:08:30+0000 795223310.294122015 COMPLETE (t) -> a digit less\n",
    ]
)


def rows(table: Any) -> list[dict[str, Any]]:
    return [{**row, "fields": sorted(row["fields"] or [])} for row in table.to_pylist()]


def check_columns(data: bytes, path: pathlib.Path) -> None:
    """The fast way gives the columns of the slow one."""
    path.write_bytes(data)
    source = sniff(path, "n1")
    fast = piece_of_trace(data, source, 0, Detail.FULL)
    slow = piece_of_records(read_records(source), Detail.FULL)
    assert rows(fast.table) == rows(slow.table)
    assert fast.days.tolist() == slow.days.tolist()
    assert (fast.unmatched, fast.unparsed_bytes) == (slow.unmatched, slow.unparsed_bytes)


def variants() -> Iterator[tuple[str, bytes]]:
    yield "hard", HARD
    yield "hard, many times", HARD * 50
    yield "bytes before the first record", b"tail of a line\n" + HARD
    yield "not UTF-8", HARD + ISO + b"COMPLETE (t) -> Group found: part\xff.T1 (PERSISTENT)\n"
    yield "no line end at the end", HARD.rstrip(b"\n")
    yield "no record at all", b"nothing\nof the kind\n"
    yield "empty", b""
    yield "without timestamps", b"COMPLETE (a) -> Finished solving conflict 1\nCOMPLETE (b) -> x\n"
    yield "windows line ends", HARD.replace(b"\n", b"\r\n")


@pytest.mark.parametrize(("name", "data"), list(variants()), ids=[name for name, _ in variants()])
def test_the_fast_way_gives_what_the_reader_gives(name: str, data: bytes, tmp_path: pathlib.Path) -> None:
    del name
    check_columns(data, tmp_path / "durability.log")


def test_the_fast_way_agrees_on_real_traces(samples: pathlib.Path, tmp_path: pathlib.Path) -> None:
    for path in sorted((samples / "late-joiner").rglob("durability.log")):
        check_columns(path.read_bytes(), tmp_path / "durability.log")


def test_messages_that_differ_in_digits_only_are_not_confused() -> None:
    """`(0)`, `(1)` and `(2)` are different templates: what is remembered of one is not used for another."""
    text = ISO + b"COMPLETE (t) -> Data for group p.T injected from disk. Group is complete now (%d).\n"
    for order in ((0, 1, 2, 7), (7, 2, 1, 0)):
        data = b"".join(text % number for number in order)
        table = piece_of_trace(data, TraceFile(pathlib.Path("d.log"), "n"), 0, Detail.FULL).table
        numbers = (int(one[-3]) for one in table.column("text").to_pylist())
        found = dict(zip(numbers, table.column("template").to_pylist(), strict=True))
        assert found == {
            0: "d_groupLocalListener:3235",
            1: "d_groupLocalListener:3319",
            2: "d_groupLocalListener:3331",
            7: "injection.group",  # our engine says how many samples it injected
        }


MARKS = {"edge", "telling"}
"""Columns that depend on the pieces."""


def read_case(directory: pathlib.Path) -> list[tuple[Any, ...]]:
    """All rows of the records of a case, in a fixed order, without the marks."""
    table = pq.read_table(directory / "records", partitioning="hive")
    found = [
        tuple(sorted(value) if isinstance(value, list) else value for value in row.values())
        for row in table.select([name for name, _, _ in RECORD_COLUMNS if name not in MARKS]).to_pylist()
    ]
    return sorted(found, key=lambda row: (row[1], row[2]))


def test_many_processes_load_what_one_loads(
    samples: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = find_sources([str(samples / "late-joiner")]).sources
    one = load(sources, tmp_path / "one")
    monkeypatch.setattr("ospltool.trace.case.local_load.SMALL_BYTES", 0)
    seen: list[tuple[int, int]] = []
    many = load(
        sources,
        tmp_path / "many",
        processes=2,
        progress=lambda done, size: seen.append((done, size)),
        range_bytes=30_000,
    )
    assert len(seen) > len(sources)
    assert seen[-1][0] == seen[-1][1]
    assert many == one
    assert read_case(tmp_path / "many") == read_case(tmp_path / "one")


def test_a_case_says_what_is_in_it(case: pathlib.Path) -> None:
    described = json.loads((case / "case.json").read_text())
    assert (described["format_version"], described["kind"]) == (FORMAT_VERSION, "case")
    assert described["data"]["detail"] == "full"
    assert len(open_case(case).contents.files) == pq.read_table(case / "sources").num_rows
    sources = pq.read_table(case / "sources").to_pylist()
    assert sum(row["records"] for row in sources) == pq.read_table(case / "records").num_rows
    assert {row["unparsed_bytes"] for row in sources} == {0}
    names = [name for name, _, _ in COLUMNS[Table.TEMPLATES]]
    assert pq.read_table(case / "templates").column_names == names


def test_records_only_leaves_the_details_null(samples: pathlib.Path, tmp_path: pathlib.Path) -> None:
    load(find_sources([str(samples / "late-joiner")]).sources, tmp_path / "quick", Detail.RECORDS)
    table = pq.read_table(tmp_path / "quick" / "records", partitioning="hive")
    for name, _, _ in RECORD_COLUMNS[-DETAILS:]:
        assert table.column(name).null_count == table.num_rows
    assert table.column("text").null_count == 0
    assert open_case(tmp_path / "quick").detail is Detail.RECORDS


def test_records_lie_with_their_domain_day_and_node(tmp_path: pathlib.Path) -> None:
    lines = [b"1795223310.%09d COMPLETE (t) -> x\n" % nanos for nanos in range(3)]
    lines += [b"1795305600.000000000 COMPLETE (t) -> next day\n", b"12.000000000 COMPLETE (t) -> relative\n"]
    lines += [b"1795223310.999999999 COMPLETE (t) -> late\n"]
    path = tmp_path / "domain=x y%" / "durability.log"
    path.parent.mkdir()
    path.write_bytes(b"".join(lines))
    load(find_sources([f"a b%:c={path}"]).sources, tmp_path / "case")
    root = tmp_path / "case" / "records"
    found: collections.Counter[str] = collections.Counter()
    for file in root.rglob("*.parquet"):
        found[str(file.parent.relative_to(root))] += pq.read_table(file, partitioning=None).num_rows
    domain, node = "domain=x y%25", "node=a b%25%3Ac"
    days = {"2026-11-21": 4, "2026-11-22": 1, "none": 1}
    assert found == {f"{domain}/day={day}/{node}": count for day, count in days.items()}
    assert partition("x y%", -1, "a b%:c") == f"{domain}/day=none/{node}"
    with contextlib.closing(DuckEngine(open_case(tmp_path / "case"))) as opened:
        rows = opened.query("select distinct domain, node from records").rows
        assert list(rows) == [("x y%", "a b%:c")], "the names are escaped in paths only"


def test_records_of_one_template_lie_together(tmp_path: pathlib.Path) -> None:
    """By the statistics of the groups of rows, a query by template reads a few of them."""
    texts = (
        b"Finished solving conflict %d",
        b"Marking kernel group 'p.T%d' COMPLETE",
        b"Group p.T%d is now complete.",
    )
    count = 3 * ROWS_TOGETHER
    lines = [
        ISO + b"COMPLETE (t) -> " + text % number + b"\n" for number in range(count // 3) for text in texts
    ]
    path = tmp_path / "durability.log"
    path.write_bytes(b"".join(lines))
    load([TraceFile(path, "n1")], tmp_path / "case")
    (written,) = (tmp_path / "case" / "records").rglob("*.parquet")
    file = pq.ParquetFile(written)
    place = file.schema_arrow.names.index("template")
    groups = [file.metadata.row_group(number) for number in range(file.num_row_groups)]
    named = set(file.read(["template"]).column(0).to_pylist())
    assert len(named) == len(texts)
    for one in named:
        spans = [(group.column(place).statistics, group.num_rows) for group in groups]
        touched = sum(rows for span, rows in spans if span.min <= one <= span.max)
        assert touched <= ROWS_TOGETHER + 1, "the last record of a file is a piece of its own"


def test_texts_are_compressed_harder_than_the_rest(tmp_path: pathlib.Path) -> None:
    """A case is mostly times and texts; texts of one template in a row become smaller with more search."""
    random = np.random.default_rng(3)
    texts = (
        b"Federation %d (%d) is now complete after request %d",
        b"Marking kernel group 'p.T%d' COMPLETE for fellow %d, %d samples",
    )
    lines = [
        ISO + b"COMPLETE (t) -> " + texts[number % 2] % tuple(random.integers(0, 40, 3).tolist()) + b"\n"
        for number in range(ROWS_TOGETHER)
    ]
    path = tmp_path / "durability.log"
    path.write_bytes(b"".join(lines))
    load([TraceFile(path, "n1")], tmp_path / "case")
    (written,) = (tmp_path / "case" / "records").rglob("*.parquet")
    plain = tmp_path / "plain.parquet"
    pq.write_table(
        pq.ParquetFile(written).read(["text"]),
        plain,
        compression=COMPRESSION,
        compression_level=COMPRESSION_LEVEL,
        use_dictionary=False,
        row_group_size=ROWS_TOGETHER,
    )
    assert _size_of_texts(written) < 0.95 * _size_of_texts(plain)


def _size_of_texts(path: pathlib.Path) -> int:
    file = pq.ParquetFile(path)
    place = file.schema_arrow.names.index("text")
    groups = range(file.num_row_groups)
    return sum(file.metadata.row_group(number).column(place).total_compressed_size for number in groups)


def test_pieces_of_all_kinds_go_into_one_case(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A piece that is not UTF-8 is read another way; its columns lie beside those of the others."""
    monkeypatch.setattr("ospltool.trace.case.bundles.pieces", lambda part: pieces(part, 3_000))
    good = HARD * 3
    bad = ISO + b"COMPLETE (t) -> Group found: part\xff.T1 (PERSISTENT)\n"
    path = tmp_path / "durability.log"
    path.write_bytes(good + bad + good)
    load([TraceFile(path, "n1")], tmp_path / "case")
    found = pq.read_table(tmp_path / "case" / "records", partitioning="hive")
    expected = piece_of_records(read_records(TraceFile(path, "n1")), Detail.FULL).table
    assert sorted(found.column("off").to_pylist()) == sorted(expected.column("off").to_pylist())
    assert r"part\xff.T1" in found.column("group_name").to_pylist()


def test_a_failed_load_leaves_nothing_behind(tmp_path: pathlib.Path) -> None:
    gone = tmp_path / "n1.log"
    gone.write_bytes(HARD * 20)
    sources = find_sources([str(gone)]).sources
    gone.unlink()
    gone.mkdir()
    with pytest.raises(SourceError, match=r"n1\.log"):
        load(sources, tmp_path / "case")
    assert [path.name for path in tmp_path.iterdir()] == ["n1.log"]


def test_what_is_no_case_is_never_written_over(tmp_path: pathlib.Path, samples: pathlib.Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("precious")
    with pytest.raises(CaseError, match="exists already"):
        load(find_sources([str(samples / "late-joiner")]).sources, tmp_path / "mine")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["notes.txt"]


def no_case(path: pathlib.Path) -> None:
    path.mkdir()


def nothing(path: pathlib.Path) -> None:
    assert not path.exists()


def no_json(path: pathlib.Path) -> None:
    path.mkdir()
    (path / "case.json").write_text("{")


def another_version(path: pathlib.Path) -> None:
    path.mkdir()
    (path / "case.json").write_text('{"format_version": 99, "kind": "case", "data": {"detail": "full"}}')


@pytest.mark.parametrize("make", [no_case, nothing, no_json, another_version])
def test_what_is_no_case_is_an_error_that_names_it(
    make: Callable[[pathlib.Path], None], tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "wrong"
    make(path)
    with pytest.raises(CaseError, match="wrong"):
        open_case(path)


def test_a_link_in_the_place_of_a_case_stays(tmp_path: pathlib.Path, samples: pathlib.Path) -> None:
    link = tmp_path / "case.duckdb"
    link.symlink_to("nowhere.duckdb")
    assert main(["trace", "load", str(samples / "late-joiner"), "-o", str(link)]) == 2
    assert link.is_symlink()
    assert not link.exists()


@pytest.mark.parametrize("more", [[], ["--follow"]])
def test_a_case_does_not_grow_through_a_link(
    tmp_path: pathlib.Path, samples: pathlib.Path, more: list[str]
) -> None:
    assert main(["trace", "load", str(samples / "late-joiner"), "-o", str(tmp_path / "case")]) == 0
    (tmp_path / "link").symlink_to("case")
    before = open_case(tmp_path / "case")
    assert main(["trace", "load", str(samples / "own-engine"), "-o", str(tmp_path / "link"), *more]) == 2
    assert open_case(tmp_path / "case") == before


@pytest.mark.parametrize("target", ["case", "case.duckdb"])
def test_the_command_loads_and_says_how_much(
    target: str, samples: pathlib.Path, tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("duckdb", reason="a case in one file needs the extra `sql`")
    path = tmp_path / target
    assert main(["trace", "load", str(samples / "late-joiner"), "-o", str(path), "--json"]) == 0
    answer = json.loads(capfd.readouterr().out)
    assert answer["kind"] == "trace-load"
    records = sum(source["records"] for source in answer["data"]["sources"])
    assert main(["sql", str(path), "select count(*) as n from records", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["data"]["rows"] == [{"n": records}]
    again = main(["trace", "load", str(samples / "late-joiner"), "-o", str(path)])
    assert again == (2 if target.endswith(".duckdb") else 0), "a file is not added to, a directory is"
    assert ("exists already" in capfd.readouterr().err) == bool(again)
    assert [entry.name for entry in tmp_path.iterdir()] == [target]


def test_only_the_owner_can_read_a_case(samples: pathlib.Path, tmp_path: pathlib.Path) -> None:
    case = tmp_path / "case"
    for source in ("late-joiner", "master-livelock"):  # the second one is added
        assert main(["trace", "load", str(samples / source), "-o", str(case), "--json"]) == 0
        found = {path: path.stat().st_mode & 0o777 for path in [case, *case.rglob("*")]}
        assert {mode for path, mode in found.items() if path.is_file()} == {0o600}
        assert {mode for path, mode in found.items() if path.is_dir()} == {0o700}


def test_a_name_that_is_not_unicode_is_loaded_and_added_to(
    samples: pathlib.Path, tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Bytes of names that are not UTF-8 show as escapes, in a case as elsewhere."""
    traces, case = tmp_path / "all", str(tmp_path / "case")
    for node, name in (("n1", b"h\xf6st"), ("n2", b"\xff=\xe2\x80\xae")):
        directory = traces / os.fsdecode(name)
        directory.mkdir(parents=True)
        shutil.copy(samples / "late-joiner" / node / "durability.log", directory)
        shutil.copytree(samples.parent / "stores" / "after-merge" / node, directory / os.fsdecode(b"st\xff"))
    answers = []
    for given in (str(traces), case):
        assert main(["trace", "load", str(traces), "-o", case]) == 0  # the second time, all is there already
        capfd.readouterr()
        assert main(["trace", "anomalies", given, "--json"]) == 0
        answers.append(json.loads(capfd.readouterr().out)["data"])
    assert answers[0]["conclusions"] == answers[1]["conclusions"]
    assert "the stores of \\xff=\u202e, h\\xf6st have the same data" in answers[1]["verdict"]
    assert main(["sql", case, "select distinct node from sources order by node", "--json"]) == 0
    named = json.loads(capfd.readouterr().out)["data"]["rows"]
    assert named == [{"node": "\\xff=\u202e"}, {"node": "h\\xf6st"}]
