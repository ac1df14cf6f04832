"""Many small files are loaded together, and the case is what each of them alone would make."""

from __future__ import annotations

import gzip
import pathlib
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow", reason="cases need the extra `sql`")

import pyarrow.parquet as pq  # noqa: E402 - after the check that it is there

from ospltool.analytics.case import CaseWriter  # noqa: E402 - likewise
from ospltool.analytics.contract import Detail, Table  # noqa: E402 - likewise
from ospltool.trace.case import bundles, growing  # noqa: E402 - likewise
from ospltool.trace.case.loading import load  # noqa: E402 - likewise
from ospltool.trace.reading.ranges import Range  # noqa: E402 - likewise
from ospltool.trace.reading.sources import find_sources  # noqa: E402 - likewise
from tests.analytics.growing import BASE_S, Writer  # noqa: E402 - likewise
from tests.analytics.test_load import HARD, ISO  # noqa: E402 - likewise

REPORT = b"""========================================================================================
Report      : WARNING
Date        : 2026-11-21T01:08:30+0000
Description : something
Node        : n1
Process     : durability (5)
Thread      : main
Internals   : V6.9/d/f/1/2/3

"""
UNTIMED = b"INIT (main) -> Group found: partA.T1 (PERSISTENT)\nCOMPLETE (x) -> Finished solving conflict 3\n"
ODD = {
    "durability.log.90": b"",
    "durability.log.91": HARD,
    "durability.log.92": HARD[:-1],
    "durability.log.93": b"the end of a message\n" + HARD,
    "durability.log.94": HARD.replace(b"gr\xc3\xb6", b"gr\xc3"),
    "durability.log.95": HARD + ISO + b"COMPLETE (t) -> " + b"z" * 3_000_000 + b"\n",
    "durability.log.96.gz": gzip.compress(HARD),
    "durability.log.97.gz": gzip.compress(HARD * 40)[:-50],
    "durability.log.98": UNTIMED,
    "durability.log.99": b"\r\n\n",
    "ospl-info.log": REPORT * 3,
    "trace.log": HARD + b"\n\n",
}
"""Files of all kinds, by name."""


def many(root: pathlib.Path, count: int) -> None:
    """Write rotated traces of three nodes, which are a part of each other's sequence in time."""
    for number, node in enumerate(("n1", "n2", "n3")):
        writer = Writer(root / node / "durability.log", number)
        for place in range(count):
            writer.write(7, 0)
            writer.path.replace(writer.path.with_name(f"durability.log.{place}"))


def rows(case: pathlib.Path) -> list[dict[str, Any]]:
    """The records, in the order of node, file and offset."""
    read: list[dict[str, Any]] = []
    for path in sorted((case / Table.RECORDS).rglob("*.parquet")):
        domain, day, node = (part.partition("=")[2] for part in path.parts[-4:-1])
        with pq.ParquetFile(path) as file:
            read += [{**row, "domain": domain, "day": day, "node": node} for row in file.read().to_pylist()]
    return sorted(read, key=lambda row: (row["node"], row["file"], row["off"], row["length"]))


def parquet_files(case: pathlib.Path) -> list[pathlib.Path]:
    return list((case / Table.RECORDS).rglob("*.parquet"))


def loaded(root: pathlib.Path, case: pathlib.Path, detail: Detail = Detail.FULL) -> Any:
    return load(find_sources([str(root)]).sources, case, detail)


@pytest.mark.parametrize("detail", list(Detail))
def test_together_and_alone_make_one_case(
    detail: Detail, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many(tmp_path / "logs", 20)
    for name, data in ODD.items():
        (tmp_path / "logs" / "n1" / name).write_bytes(data)
    together = loaded(tmp_path / "logs", tmp_path / "together", detail)
    monkeypatch.setattr(growing, "bundles", lambda parts, _: [(part,) for part in parts])
    alone = loaded(tmp_path / "logs", tmp_path / "alone", detail)
    assert together == alone
    assert together.total.damages
    assert rows(tmp_path / "together") == rows(tmp_path / "alone")
    sources = [pq.read_table(tmp_path / case / "sources").to_pylist() for case in ("together", "alone")]
    assert sources[0] == sources[1]


def test_many_small_files_make_few_and_small_ones(tmp_path: pathlib.Path) -> None:
    many(tmp_path / "logs", 300)
    loaded(tmp_path / "logs", tmp_path / "case")
    assert len(parquet_files(tmp_path / "case")) == 3
    written = sum(path.stat().st_size for path in parquet_files(tmp_path / "case"))
    assert written < sum(path.stat().st_size for path in (tmp_path / "logs").rglob("*.log.*")) / 3


def test_records_of_a_bundle_lie_in_the_order_of_their_templates(tmp_path: pathlib.Path) -> None:
    many(tmp_path / "logs", 20)
    (tmp_path / "logs" / "n1" / "durability.log.93").write_bytes(ODD["durability.log.93"])  # read by itself
    loaded(tmp_path / "logs", tmp_path / "case")
    kinds = []
    for path in parquet_files(tmp_path / "case"):
        with pq.ParquetFile(path) as file:
            ids = [one or "" for one in file.read(["template"]).column(0).to_pylist()]
        assert ids == sorted(ids)
        kinds.append(len(set(ids)))
    assert max(kinds) > 5


def test_a_file_that_changes_leaves_its_bundle_and_the_others_stay(tmp_path: pathlib.Path) -> None:
    logs = tmp_path / "logs"
    many(logs, 20)
    loaded(logs, tmp_path / "case")
    changed = logs / "n2" / "durability.log.4"
    changed.write_bytes(f"{BASE_S}.000000001 COMPLETE (x) -> another\n".encode())
    (logs / "n2" / "durability.log.5").write_bytes((logs / "n2" / "durability.log.5").read_bytes() + HARD)
    for place in range(6, 20):  # what the case has of files that are gone is not lost
        (logs / "n2" / f"durability.log.{place}").rename(tmp_path / f"{place}")
    untouched = {path: path.stat().st_mtime_ns for path in parquet_files(tmp_path / "case")}
    loaded(logs, tmp_path / "case")
    for place in range(6, 20):
        (tmp_path / f"{place}").rename(logs / "n2" / f"durability.log.{place}")
    loaded(logs, tmp_path / "expected")
    assert rows(tmp_path / "case") == rows(tmp_path / "expected")
    there = {path: path.stat().st_mtime_ns for path in parquet_files(tmp_path / "case")}
    assert {path for path in untouched if there.get(path) == untouched[path]} == {
        path for path in untouched if "node=n2" not in str(path)
    }


def test_a_killed_load_leaves_the_rows_of_a_changed_bundle(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new files are in place, and the case does not name them yet."""
    logs = tmp_path / "logs"
    many(logs, 20)
    loaded(logs, tmp_path / "case")
    (logs / "n2" / "durability.log.4").write_bytes(HARD)
    with monkeypatch.context() as patched:
        patched.setattr(CaseWriter, "commit", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            loaded(logs, tmp_path / "case")
    loaded(logs, tmp_path / "case")
    loaded(logs, tmp_path / "expected")
    assert rows(tmp_path / "case") == rows(tmp_path / "expected")


def test_parts_of_one_file_are_in_different_bundles(tmp_path: pathlib.Path) -> None:
    """Otherwise the rows of one part could not be told from those of the other."""
    many(tmp_path, 3)
    parts = [
        Range(source, start, None, 100)
        for source in find_sources([str(tmp_path)]).sources
        for start in (0, 50)
    ]
    made = bundles.bundles(parts)
    assert sorted(map(repr, (part for bundle in made for part in bundle))) == sorted(map(repr, parts))
    for bundle in made:
        assert len({part.source.file for part in bundle}) == len(bundle)
        assert len({part.source.node for part in bundle}) == 1
    assert len(made) == 6


def test_a_bundle_has_a_bound(tmp_path: pathlib.Path) -> None:
    many(tmp_path, 40)
    parts = [Range(source, 0, None, 100) for source in find_sources([str(tmp_path)]).sources]
    made = bundles.bundles(parts, 1600)
    assert max(sum(part.size for part in bundle) for bundle in made) == 1600
    assert all(len(bundle) == 1 for bundle in bundles.bundles(parts, 1599))
