"""Analyses of a case say what those of its files say, and a case grows with its files."""

from __future__ import annotations

import json
import pathlib
import shutil
from typing import Any

import pytest

pytest.importorskip("duckdb", reason="cases need the extra `sql`")

from ospltool.analytics.case import CaseError
from ospltool.cli.app import main
from ospltool.forensics import attachments
from tests.stores.making import Message
from tests.stores.own_stores import described, write_ours
from tests.trace.making import Traces

SAMPLES = ("late-joiner", "master-livelock", "own-engine")
ANALYSES = (
    ("anomalies",),
    ("timeline",),
    ("conversation", "partA.T1"),
    ("anomalies", "--since", "+3s", "--until", "+5s"),
    ("anomalies", "--node", "n1"),
    ("timeline", "--since", "+4s"),
    ("anomalies", "--skew", "n1=+2s"),
)


def answer(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any]:
    """The exit code and the answer in JSON; None where there is none."""
    code = main(["trace", *arguments, "--json"])
    out = capfd.readouterr().out
    return code, json.loads(out)["data"] if out else None


ELSEWHERE = ("../../x.xml", "/etc/hostname", "..", "", "a/b", "a\0b")
"""Names of files that are not in the directory of attachments."""


def _entry(place: str) -> bytes:
    entry = {"what": "configuration", "node": "n1", "place": place, "name": "x.xml"}
    return json.dumps({"data": {"configuration:x.xml": entry}}).encode()


LISTS = (
    *(b"[", b"[" * 100_000, b"{}", b'{"data": [1]}', b'{"data": {"store:a": {"what": "store"}}}'),
    *map(_entry, ELSEWHERE),
)


@pytest.mark.parametrize("content", LISTS, ids=[str(number) for number in range(len(LISTS))])
def test_a_damaged_list_of_attachments_is_named(tmp_path: pathlib.Path, content: bytes) -> None:
    path = tmp_path / attachments.DIRECTORY / attachments.LIST_FILE
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(CaseError, match=r"attached\.json"):
        attachments.kept_in(tmp_path)


def test_a_link_in_a_case_is_not_followed(tmp_path: pathlib.Path) -> None:
    place = tmp_path / attachments.DIRECTORY / "configuration-1.xml"
    place.parent.mkdir()
    place.symlink_to("/etc/hostname")
    (place.parent / attachments.LIST_FILE).write_bytes(_entry(place.name))
    with pytest.raises(CaseError, match="symbolic link"):
        attachments.kept_in(tmp_path)


def load(capfd: pytest.CaptureFixture[str], case: pathlib.Path, *names: str) -> None:
    assert main(["trace", "load", *names, "-o", str(case)]) == 0
    capfd.readouterr()


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("analysis", ANALYSES, ids=" ".join)
def test_a_case_is_analysed_as_its_files_are(
    sample: str, analysis: tuple[str, ...], samples: pathlib.Path, tmp_path: pathlib.Path,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    files = str(samples / "traces" / sample)
    load(capfd, tmp_path / "case", files)
    name, *rest = analysis
    group, options = (rest[:1], rest[1:]) if name == "conversation" else ([], rest)
    expected = answer(capfd, name, *group, files, *options)
    assert answer(capfd, name, *group, str(tmp_path / "case"), *options) == expected


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("analysis", [("anomalies",), ("timeline", "--since", "+3s")], ids=" ".join)
def test_large_files_are_looked_at_through_a_case_and_alike(
    sample: str, analysis: tuple[str, ...], samples: pathlib.Path, tmp_path: pathlib.Path,
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    name, *options = analysis
    files = str(samples / "traces" / sample)
    expected = answer(capfd, name, files, *options)
    monkeypatch.setattr("ospltool.forensics.evidence.LARGE_BYTES", 0)
    monkeypatch.setattr("ospltool.forensics.evidence.merged", None)  # reads record after record
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert answer(capfd, name, files, *options) == expected
    assert list(tmp_path.iterdir()) == [], "the case is gone"


def test_no_room_for_the_case_of_large_files_is_said(
    samples: pathlib.Path, tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("ospltool.forensics.evidence.LARGE_BYTES", 0)
    with monkeypatch.context() as patch:
        patch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
        assert main(["trace", "anomalies", str(samples / "traces" / "late-joiner")]) == 2
    assert f"{tmp_path / 'gone'}: No such file or directory" in capfd.readouterr().err


def test_a_case_that_is_one_file_is_analysed_alike(
    samples: pathlib.Path, tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    files = str(samples / "traces" / "late-joiner")
    load(capfd, tmp_path / "case.duckdb", files)
    assert answer(capfd, "timeline", str(tmp_path / "case.duckdb")) == answer(capfd, "timeline", files)


def test_records_without_details_are_understood_when_they_are_looked_at(
    samples: pathlib.Path, tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    files = str(samples / "traces" / "late-joiner")
    assert main(["trace", "load", files, "--records-only", "-o", str(tmp_path / "case")]) == 0
    capfd.readouterr()
    assert answer(capfd, "timeline", str(tmp_path / "case")) == answer(capfd, "timeline", files)


def records(case: pathlib.Path) -> list[tuple[object, ...]]:
    import pyarrow.parquet as pq

    table = pq.read_table(case / "records", partitioning="hive")
    rows = table.select(["node", "file", "off", "length", "time_ns", "text", "event"]).to_pylist()
    return sorted(tuple(map(str, row.values())) for row in rows)


def cut(path: pathlib.Path, share: float) -> bytes:
    """Cuts a file in the middle of a line, and returns all of it."""
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    return whole


def test_a_case_grows_with_its_files(
    samples: pathlib.Path, tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("ospltool.trace.reading.ranges.ranges.__defaults__", (30_000, 0, None))
    logs = tmp_path / "logs"
    shutil.copytree(samples / "traces" / "late-joiner", logs)
    traces = sorted(logs.rglob("durability*.log"))
    whole = {path: cut(path, 0.6) for path in traces[:2]}
    third = traces[2].read_bytes()
    traces[2].unlink()
    case = tmp_path / "case"
    load(capfd, case, str(logs))
    for path, data in whole.items():  # two files grew
        path.write_bytes(data)
    traces[2].write_bytes(third)  # and a node is new
    load(capfd, case, str(logs))
    load(capfd, tmp_path / "anew", str(logs))
    assert records(case) == records(tmp_path / "anew")
    assert answer(capfd, "timeline", str(case)) == answer(capfd, "timeline", str(logs))


def test_what_did_not_change_is_left_alone(
    samples: pathlib.Path, tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    case = tmp_path / "case"
    load(capfd, case, str(samples / "traces" / "late-joiner"))
    before = {path: path.stat().st_mtime_ns for path in (case / "records").rglob("*.parquet")}
    load(capfd, case, str(samples / "traces" / "late-joiner"))
    assert {path: path.stat().st_mtime_ns for path in (case / "records").rglob("*.parquet")} == before


def test_another_file_of_the_same_name_takes_the_place(
    tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log, case = tmp_path / "n1.log", tmp_path / "case"
    log.write_text("1795223310.000000000 COMPLETE (t) -> one\n" * 3)
    load(capfd, case, str(log))
    log.write_text("1795223310.000000000 COMPLETE (t) -> two\n" * 5)
    load(capfd, case, str(log))
    assert [row[5] for row in records(case)] == ["two"] * 5


def test_what_a_killed_load_left_goes(tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]) -> None:
    log, case = tmp_path / "n1.log", tmp_path / "case"
    log.write_text("1795223310.000000000 COMPLETE (t) -> one\n" * 3)
    load(capfd, case, str(log))
    (part,) = (case / "records").rglob("*.parquet")
    shutil.copy(part, part.with_name("part-0123456789abcdef-0.parquet"))
    assert main(["sql", str(case), "select count(*) as n from records", "--format", "csv"]) == 0
    assert capfd.readouterr().out == "n\n3\n"
    load(capfd, case, str(log))
    assert list((case / "records").rglob("*.parquet")) == [part]


class KilledError(BaseException):
    """Stands for SIGKILL: nothing catches it."""


def killed(*_: object, **__: object) -> None:
    raise KilledError


@pytest.mark.parametrize(
    ("place", "name"),
    [
        ("ospltool.analytics.case.CaseWriter", "commit"),
        ("ospltool.forensics.attachments", "replacing"),
        ("ospltool.stores.snapshot", "write_snapshot"),
    ],
)
def test_a_killed_load_leaves_the_case_as_it_was(
    place: str, name: str, samples: pathlib.Path, tmp_path: pathlib.Path,
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Rows of a killed load counted until the next one, and a store that had changed could not be read."""
    logs, case = tmp_path / "logs", tmp_path / "case"
    shutil.copytree(samples / "traces" / "late-joiner", logs)
    shutil.copytree(samples / "stores" / "after-merge" / "n1", logs / "store-n1")
    trace = next(logs.rglob("durability*.log"))
    whole = cut(trace, 0.6)
    load(capfd, case, str(logs))
    count = "select node, count(*) as n from records group by node order by node"
    queried = ("sql", str(case), count, "--json"), ("store", "verify", str(case), "--json")
    before = [(main(list(each)), capfd.readouterr().out) for each in queried]
    trace.write_bytes(whole)
    shutil.rmtree(logs / "store-n1")
    shutil.copytree(samples / "stores" / "after-restart" / "n1", logs / "store-n1")
    with monkeypatch.context() as patch:
        patch.setattr(f"{place}.{name}", killed)
        with pytest.raises(KilledError):
            main(["trace", "load", str(logs), "-o", str(case)])
    capfd.readouterr()
    after = [(main(list(each)), capfd.readouterr().out) for each in queried]
    if name == "commit":
        assert after == before
    assert [code for code, _ in after] == [code for code, _ in before]
    load(capfd, case, str(logs))
    load(capfd, tmp_path / "again", str(logs))
    assert records(case) == records(tmp_path / "again")
    assert len(list((case / "attached").iterdir())) == 2, "the store and the list"


@pytest.mark.parametrize(
    "name", [".lock", ".case.json.new", "versions/x", "sources/x.parquet", "attached", "records/x"]
)
def test_nothing_is_written_through_a_link_in_a_case(
    name: str, samples: pathlib.Path, tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A case may come from others, and lead anywhere."""
    outside, case = tmp_path / "outside", tmp_path / "case"
    load(capfd, case, str(samples / "traces" / "late-joiner" / "n1"))
    place = case / name
    place.unlink(missing_ok=True)
    place.symlink_to(outside)
    names = [str(samples / "traces" / "late-joiner"), str(samples / "stores" / "after-merge" / "n1")]
    assert main(["trace", "load", *names, "-o", str(case)]) == 2
    assert f"{place}: a symbolic link" in capfd.readouterr().err
    assert not outside.exists()


def test_a_case_holds_stores_configurations_and_recordings(
    traces: Traces, samples: pathlib.Path, tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for node, address in (("a", "1001"), ("b", "1002")):
        traces.node(node, address).begin(0).line(9, "end")
    directory = traces.write()
    group = described("p", "T", 1)
    write_ours(traces.directory / "a" / "store", {group: [Message(key).sample() for key in range(5)]})
    write_ours(traces.directory / "b" / "store", {group: [Message(key).sample() for key in range(3)]})
    shutil.copy(samples / "three-nodes" / "n1.xml", traces.directory / "a")
    case = tmp_path / "case"
    load(capfd, case, directory)
    _, expected = answer(capfd, "anomalies", directory)
    _, found = answer(capfd, "anomalies", str(case))
    assert found == expected
    assert main(["sql", str(case), "select node, samples from stored order by node", "--format", "csv"]) == 0
    assert capfd.readouterr().out.splitlines() == ["node,samples", "a,5", "b,3"]
    shutil.rmtree(traces.directory / "b" / "store")
    write_ours(traces.directory / "b" / "store", {group: [Message(key).sample() for key in range(5)]})
    load(capfd, case, directory)
    _, later = answer(capfd, "anomalies", str(case))
    assert "equal" in [one["kind"] for one in later["conclusions"]]


def test_a_store_that_cannot_be_read_is_named_as_unknown(
    traces: Traces, tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    traces.node("a", "1001").begin(0).line(9, "end")
    directory = traces.write()
    (traces.directory / "a" / "pstore" / "kv.leveldb").mkdir(parents=True)
    _, found = answer(capfd, "anomalies", directory)
    assert any("a LevelDB store of OpenSplice" in one for one in found["unknown"])
    assert main(["trace", "load", directory, "-o", str(tmp_path / "case")]) == 0
    assert "a LevelDB store of OpenSplice" in capfd.readouterr().err
    _, kept = answer(capfd, "anomalies", str(tmp_path / "case"))
    assert kept == found


def test_what_is_given_to_a_node_is_looked_at_as_what_it_is(
    samples: pathlib.Path, tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    traces, configuration = samples / "traces" / "own-engine", samples / "three-nodes" / "n1.xml"
    load(capfd, tmp_path / "plain", str(traces))
    load(capfd, tmp_path / "case", str(traces), f"n7={configuration}")
    assert records(tmp_path / "case") == records(tmp_path / "plain"), "a configuration is no trace"
    listed = json.loads((tmp_path / "case" / "attached" / "attached.json").read_text())["data"]
    assert [(one["what"], one["node"]) for one in listed.values()] == [("configuration", "n7")]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--engine", "spark"), "--engine spark needs a case"),
        (("--engine", "other"), "is not one of 'duckdb', 'spark'"),
        (("--node", "n9"), "no node n9"),
        (("--since", "soon"), "is not a time"),
    ],
)
def test_wrong_usage_says_what_to_do(
    arguments: tuple[str, ...], said: str, samples: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["trace", "anomalies", str(samples / "traces" / "late-joiner"), *arguments]) == 2
    assert said in capfd.readouterr().err


def test_the_verbs_of_stores_take_a_case(
    traces: Traces, tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    traces.node("a", "1001").begin(0)
    directory, group, case = traces.write(), described("p", "T", 1), tmp_path / "case"
    for node, count in (("a", 5), ("b", 3)):
        write_ours(traces.directory / node / "s", {group: [Message(key).sample() for key in range(count)]})
    load(capfd, case, directory)
    assert main(["store", "info", str(case), "--json"]) == 0
    stores = json.loads(capfd.readouterr().out)["data"]["stores"]
    assert sorted(one["sets"][0]["samples"] for one in stores) == [3, 5]
    assert main(["store", "verify", str(case)]) == 0
    assert main(["store", "diff", str(case)]) == 1
    load(capfd, tmp_path / "bare", directory + "/a/durability.log")
    assert main(["store", "verify", str(tmp_path / "bare")]) == 2
    assert "holds no store" in capfd.readouterr().err


def test_many_files_are_looked_at_in_a_case(
    tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ospltool.forensics.evidence.MOST_AT_ONCE", 20)
    logs = tmp_path / "logs"
    logs.mkdir()
    for number in range(21):
        (logs / f"n{number}.log").write_text(f"{1795223310 + number}.000000000 COMPLETE (t) -> x\n")
    assert main(["trace", "conversation", "p.T", str(logs)]) == 1
    assert "no alignment of this group" in capfd.readouterr().err
    _, through_a_case = answer(capfd, "timeline", str(logs))
    load(capfd, tmp_path / "case", str(logs))
    _, found = answer(capfd, "timeline", str(tmp_path / "case"))
    assert len(found["runs"]) == 21
    assert found == through_a_case


def test_a_case_beside_its_files_is_not_looked_at_as_one_of_them(
    traces: Traces, capfd: pytest.CaptureFixture[str]
) -> None:
    traces.node("a", "1001").begin(0)
    directory, group = traces.write(), described("p", "T", 1)
    write_ours(traces.directory / "a" / "s", {group: [Message(1).sample()]})
    before = answer(capfd, "anomalies", directory)
    load(capfd, traces.directory / "case", directory)
    assert answer(capfd, "anomalies", directory) == before
    load(capfd, traces.directory / "case", directory)
    assert main(["store", "info", str(traces.directory / "case"), "--json"]) == 0
    assert len(json.loads(capfd.readouterr().out)["data"]["stores"]) == 1
