"""Traces and cases on other file systems: what is loaded there is what is loaded on this machine."""

from __future__ import annotations

import contextlib
import functools
import pathlib
import shutil
import socket
from collections.abc import Iterator

import pytest

pytest.importorskip("duckdb", reason="cases need the extra `sql`")
pytest.importorskip("requests", reason="other file systems need the extra `remote`")
pytest.importorskip("fsspec", reason="other file systems need the extra `remote`")

from ospltool.analytics import case as cases
from ospltool.analytics.case import CaseError, locked, open_case
from ospltool.analytics.contract import Detail, Table
from ospltool.analytics.duck import DuckEngine
from ospltool.cli.app import main
from ospltool.output.locations import located
from ospltool.trace.case.growing import Following, follow
from ospltool.trace.case.loading import load
from ospltool.trace.case.local_load import LoadCounts
from ospltool.trace.reading.sources import find_sources
from tests.analytics.growing import Writer
from tests.analytics.webhdfs import Server, serving

DOMAIN = "it's a [livelock]%"
COUNT = "select node, kind, template, count(*), sum(off) from records group by 1, 2, 3 order by 1, 2, 3"


@pytest.fixture
def server(tmp_path: pathlib.Path, samples: pathlib.Path) -> Iterator[Server]:
    shutil.copytree(samples / "late-joiner", tmp_path / "served" / "logs")
    with serving(tmp_path / "served") as found:
        yield found


def answer(capfd: pytest.CaptureFixture[str], *words: str) -> str:
    assert main([*words]) == 0, capfd.readouterr().err
    return capfd.readouterr().out


def check_case_elsewhere(
    base: str, samples: pathlib.Path, tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """It is loaded, grows, is queried and analysed as one of this machine."""
    here, there = str(tmp_path / "here"), f"{base}/case"
    given = [(there, f"{base}/traces"), (here, str(tmp_path / "traces"))]
    for part in (0.5, 1.0):
        for path in sorted((samples / "late-joiner").rglob("durability.log")):
            lines = path.read_bytes().splitlines(keepends=True)
            for _, logs in given:
                place = located(f"{logs}/{path.parent.name}")
                place.mkdir(parents=True, exist_ok=True)
                (place / path.name).write_bytes(b"".join(lines[: int(len(lines) * part)]))
        for target, logs in given:
            answer(capfd, "trace", "load", logs, "-o", target)
        found = [answer(capfd, "sql", one, COUNT, "--format", "csv") for one, _ in given]
        assert found[0] == found[1]
    for verb in ("timeline", "anomalies"):
        ended = [(main(["trace", verb, one, "--json"]), capfd.readouterr().out) for one, _ in given]
        assert (ended[0][0], ended[0][1].replace(given[0][1], given[1][1])) == ended[1]
    assert main(["sql", f"{base}/none", COUNT]) == 2
    assert "no such case" in capfd.readouterr().err


def test_a_case_elsewhere_is_that_of_this_machine(
    server: Server, samples: pathlib.Path, tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """No file is moved there. What such a case cannot keep is named."""
    check_case_elsewhere(server.uri, samples, tmp_path, capfd)
    names = [f"{server.uri}/logs", str(samples.parent / "stores" / "after-merge" / "n1")]
    plan = tmp_path / "plan.toml"
    plan.write_text(f'sources = {names}\ntarget = "{server.uri}/kept"\nstages = ["records"]\n')
    assert main(["pipeline", "run", str(plan)]) == 0
    assert "1 stores, configurations and recordings need" in capfd.readouterr().err
    assert not server.calls["RENAME"]


def test_a_case_elsewhere_is_followed(server: Server, tmp_path: pathlib.Path) -> None:
    """Files grow, are rotated and deleted."""
    logs, target = tmp_path / "served" / "growing", located(f"{server.uri}/followed")
    writers = [Writer(logs / node / "durability.log", 5) for node in ("n1", "n2")]
    writers[0].write(50, 9)
    steps = iter(["write", "rotate", "remove"])

    def next_step(_: float) -> bool:
        step = next(steps, None)
        writers[0].write(20, 3)
        writers[1].write(5, 0)
        if step == "rotate":
            writers[0].rotate()
        elif step == "remove":
            writers[1].remove()
        return step is None

    follow(Following([f"{server.uri}/growing"], target, Detail.FULL), next_step)
    load(find_sources([f"{server.uri}/growing"]).sources, tmp_path / "expected")
    contents = [open_case(one).contents.files for one in (target, tmp_path / "expected")]
    sizes = [{key: (one["size"], one["digest"]) for key, one in files.items()} for files in contents]
    assert sizes[0] == sizes[1]
    named = {path.name for path in open_case(target).files(Table.RECORDS)}
    assert named == {path.name for path in (tmp_path / "served" / "followed" / "records").rglob("*.parquet")}


def test_one_writes_where_there_are_no_locks(
    server: Server, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one sees the first; what a killed one left does not stop it for ever."""
    monkeypatch.setattr(cases, "RENEWED_S", 0.2)
    target = located(f"{server.uri}/case")
    load(find_sources([f"{server.uri}/logs/n1"]).sources, target)
    with locked(target), pytest.raises(CaseError, match="by another command"), locked(target):
        pass
    left = tmp_path / "served" / "case" / "writers" / "0123456789abcdef"
    left.write_text("7")
    monkeypatch.setattr(cases, "LEASE_S", 0.5)
    with locked(target):
        assert not left.exists()
    assert not list(left.parent.iterdir())


def test_a_file_system_that_does_not_answer_is_named(
    samples: pathlib.Path, tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Whatever is asked of it, that is one sentence."""
    with socket.socket() as silent:  # it does not listen
        silent.bind(("127.0.0.1", 0))
        base, logs = f"webhdfs://127.0.0.1:{silent.getsockname()[1]}", str(samples / "late-joiner")
        plans = []
        for number, (source, target) in enumerate([(f"{base}/x", "case"), (logs, f"{base}/x")]):
            plans.append(["pipeline", "run", str(tmp_path / f"{number}.toml")])
            (tmp_path / f"{number}.toml").write_text(f'sources = ["{source}"]\ntarget = "{target}"\n')
        commands = [["sql", f"{base}/x", COUNT], ["top", "--case", f"{base}/x"], ["report", f"{base}/x"]]
        loads = [["trace", "load", logs, "-o", f"{base}/x"], ["pipeline", "run", f"{base}/x"]]
        for command in (*plans, *commands, *loads):
            assert main(command) == 2
            assert capfd.readouterr() == ("", f"ospltool: {base}/x: Connection refused\n"), command


def test_a_version_that_is_not_whole_does_not_count(server: Server, tmp_path: pathlib.Path) -> None:
    """As where a file is seen while it is written."""
    target = located(f"{server.uri}/case")
    load(find_sources([f"{server.uri}/logs/n1"]).sources, target)
    before = open_case(target)
    for text in ("", '{"kind": "case-version", "data": {"files"'):
        (tmp_path / "served" / "case" / "versions" / "000000000009.json").write_text(text)
        assert open_case(target) == before


def test_a_case_in_an_object_store_is_that_of_this_machine(
    samples: pathlib.Path,
    tmp_path: pathlib.Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    moto = pytest.importorskip("moto.server", reason="the object store of the tests")
    import pyarrow.fs

    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        for name, value in (
            ("AWS_ENDPOINT_URL", f"http://{host}:{port}"),
            ("AWS_ACCESS_KEY_ID", "a"),
            ("AWS_SECRET_ACCESS_KEY", "b"),
            ("AWS_DEFAULT_REGION", "us-east-1"),
        ):
            monkeypatch.setenv(name, value)
        store = pyarrow.fs.S3FileSystem(endpoint_override=f"http://{host}:{port}", allow_bucket_creation=True)
        store.create_dir("bucket")
        check_case_elsewhere("s3a://bucket", samples, tmp_path, capfd)
        check_plan_elsewhere("s3a://bucket/plans", samples, tmp_path, capfd, "duckdb")
    finally:
        server.stop()


def _is_seen(seen: list[LoadCounts], number: int, _: float) -> bool:
    return len(seen) > number


def check_plan_elsewhere(
    base: str, samples: pathlib.Path, tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str], first: str
) -> None:
    """A plan there, whose relative paths begin there, does what it does on this machine, and that once."""
    capfd.readouterr()
    done = []
    for where in (str(tmp_path / "planned"), base):
        for log in (samples / "master-livelock").rglob("durability.log.gz"):
            place = located(f"{where}/logs/domain={DOMAIN}/{log.parent.name}")
            place.mkdir(parents=True, exist_ok=True)
            (place / log.name).write_bytes(log.read_bytes())
        runs = []
        for engine in (first, "duckdb"):  # either goes on where the other ended
            located(f"{where}/plan.toml").write_text(
                f'sources = ["logs"]\ntarget = "judged"\nengine = "{engine if where == base else "duckdb"}"\n'
                'spark.master = "local[2]"\n'
            )
            code = main(["pipeline", "run", f"{where}/plan.toml"])
            said = capfd.readouterr()
            runs.append((code, said.out, said.err.rpartition("records; ")[2]))
        for columns in ("* from facts", "* exclude (judged) from verdicts", "* from stories"):
            query = f"select {columns} order by all"
            runs.append((0, answer(capfd, "sql", f"{where}/judged", query, "--format", "csv"), ""))
        done.append([(code, out.replace(where, ""), said) for code, out, said in runs])
    assert done[0] == done[1]
    (code, alerts, _), again, *_ = done[1]
    assert (code, again) == (1, (0, "", "0 domains judged, 1 unchanged; 0 new alerts\n"))
    assert DOMAIN in alerts


@pytest.mark.timeout(600)
def test_spark_loads_queries_and_follows_where_no_path_is_shared(
    server: Server,
    samples: pathlib.Path,
    tmp_path: pathlib.Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Workers, driver and Spark's own reader meet at the URI alone; the checkpoint lies there, too."""
    pytest.importorskip("pyspark", reason="Spark needs the extra `spark`")
    from ospltool.analytics.spark import SparkEngine, end, session
    from ospltool.trace.case.spark_load import follow_with_spark, load_with_spark
    from tests.analytics.java_classes import JAVA_VARIABLE, java_options

    monkeypatch.setenv(JAVA_VARIABLE, java_options())
    check_plan_elsewhere(f"{server.uri}/plans", samples, tmp_path, capfd, "spark")
    logs, target, master = f"{server.uri}/logs", located(f"{server.uri}/case"), "local[2]"
    opened = session(master)
    try:
        sources = find_sources([logs]).sources
        assert load_with_spark(sources, target, Detail.FULL, master, opened=opened) == load(
            sources, tmp_path / "here"
        )
        with contextlib.closing(DuckEngine(open_case(tmp_path / "here"))) as duck:
            expected = [*duck.query(COUNT).rows]
        asked = SparkEngine(open_case(target), master, opened=opened).query(COUNT).rows
        assert sorted(map(repr, asked)) == sorted(map(repr, expected))
        writer = Writer(tmp_path / "served" / "growing" / "n1" / "durability.log", 3)
        what = Following([f"{server.uri}/growing"], located(f"{server.uri}/followed"), Detail.FULL)
        seen: list[LoadCounts] = []
        for number, lines in enumerate((90, 30)):  # the second time, it goes on from its checkpoint
            writer.write(lines, 4)
            found = follow_with_spark(
                what, master, opened, functools.partial(_is_seen, seen, number), seen.append
            )
        assert found == load(find_sources([f"{server.uri}/growing"]).sources, tmp_path / "expected")
    finally:
        end(opened)
