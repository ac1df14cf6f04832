"""A real cluster on this machine: a master, two workers, and an executor that dies in the middle."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time

import pytest

pytest.importorskip("pyspark", reason="Spark needs the extra `spark`")
pytest.importorskip("duckdb", reason="SQL needs the extra `sql`")

from collections.abc import Iterator

import pyspark

from ospltool.analytics.case import open_case
from ospltool.analytics.contract import Detail, Table
from ospltool.analytics.duck import DuckEngine
from ospltool.analytics.engines import QueryError
from ospltool.analytics.show import named_queries
from ospltool.analytics.spark import SparkEngine, java_home, session
from ospltool.stores.diff.report import Verdict
from ospltool.trace.case.loading import load
from ospltool.trace.case.spark_load import load_with_spark
from ospltool.trace.reading.sources import find_sources
from tests.analytics.growing import (
    check_is_loaded,
    content_of,
    following,
    killed_in_a_look,
    writes_a_part,
)
from tests.analytics.java_classes import JAVA_VARIABLE, SHORT_START, java_classes
from tests.analytics.test_spark import SECOND_BARRIER
from tests.stores.making import BASE_NS, Held, Message, Version, write_kv, write_xml
from tests.stores.test_spark_differences import check_equal

__all__ = ["java_classes"]

pytestmark = pytest.mark.timeout(400)  # virtual machines for Java start slowly where others work too

PATIENCE_S = 180.0
WORKERS = 2
SETTINGS = {
    # The load begins when all executors are there: the one that dies leaves another behind.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{PATIENCE_S:.0f}s",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.sql.shuffle.partitions": "2",
}


class Daemon:
    """A process of the cluster, with what it says."""

    def __init__(self, arguments: list[str], environ: dict[str, str], ready: str) -> None:
        root = pathlib.Path(pyspark.__path__[0])
        self.process = subprocess.Popen(
            [str(root / "bin" / "spark-class"), *arguments],
            env={**environ, "SPARK_HOME": str(root)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.said: list[str] = []
        self._is_ready = False
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._listen, args=(ready,), daemon=True)
        self._thread.start()

    def _listen(self, ready: str) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line)
            if ready in line:
                self._is_ready = True
                self._ready.set()
        self._ready.set()  # it has ended: nothing will come any more

    def wait_ready(self) -> None:
        self._ready.wait(PATIENCE_S)
        assert self._is_ready, "".join(line for line in self.said if not line.startswith("\tat "))[-4000:]

    def found(self, pattern: str) -> str:
        """What the first line that matches says."""
        return next(match[1] for line in self.said if (match := re.search(pattern, line)))

    def end(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._thread.join(10)
        if self.process.stdout is not None:
            self.process.stdout.close()


@pytest.fixture(scope="module")
def environ(java_classes: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of the processes of the cluster, which hand it on to executors."""
    found = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path_factory.mktemp("home")),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        JAVA_VARIABLE: f"{SHORT_START} {java_classes}",
        "PYSPARK_PYTHON": sys.executable,
    }
    home = java_home(os.environ)
    return found if home is None else {**found, "JAVA_HOME": home}


@pytest.fixture(scope="module")
def master(environ: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A standalone master with two workers of one core each, on loopback."""
    directory = tmp_path_factory.mktemp("cluster")
    with contextlib.ExitStack() as stack:
        listen = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        main = Daemon(
            ["org.apache.spark.deploy.master.Master", *listen], environ, "I have been elected leader"
        )
        stack.callback(main.end)
        main.wait_ready()
        url = main.found(r"Starting Spark master at (spark://\S+)")
        size = ["--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--webui-port", "0"]
        workers = []
        for number in range(WORKERS):
            place = {**environ, "SPARK_WORKER_DIR": str(directory / f"worker{number}")}
            command = ["org.apache.spark.deploy.worker.Worker", *size, url]
            workers.append(Daemon(command, place, "Successfully registered with master"))
            stack.callback(workers[-1].end)
        for worker in workers:
            worker.wait_ready()
        yield url


@pytest.fixture
def connect(environ: dict[str, str], master: str) -> Iterator[str]:
    """A Connect server in front of the cluster."""
    if importlib.util.find_spec("grpc") is None:
        pytest.skip("Spark Connect needs pyspark[connect]")
    settings = {
        **SETTINGS,
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.ui.enabled": "false",
    }
    options = [one for name, value in settings.items() for one in ("--conf", f"{name}={value}")]
    server = "org.apache.spark.sql.connect.service.SparkConnectServer"
    command = ["org.apache.spark.deploy.SparkSubmit", "--master", master, *options, "--class", server]
    larger = {**environ, "SPARK_DAEMON_MEMORY": "512m"}
    daemon = Daemon([*command, "spark-internal"], larger, "Spark Connect server started")
    try:
        daemon.wait_ready()
        yield "sc://127.0.0.1:" + daemon.found(r"Spark Connect server started at: .*:(\d+)")
    finally:
        daemon.end()


def executors(worker_directory: str) -> list[int]:
    """The processes of executors whose working directories lie below a directory."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                command = (entry / "cmdline").read_bytes()
                if b"CoarseGrainedExecutorBackend" in command and worker_directory in str(
                    (entry / "cwd").readlink()
                ):
                    found.append(int(entry.name))
    return sorted(found)


class Killer:
    """Kills one executor as soon as some tasks have written something, which is in the middle of the load."""

    def __init__(self, target: pathlib.Path, worker_directory: str) -> None:
        self.killed: int | None = None
        self._target, self._workers = target, worker_directory
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Killer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not self._over.wait(0.05) and time.monotonic() < deadline:
            if not writes_a_part(self._target):
                continue
            alive = executors(self._workers)
            if len(alive) == WORKERS:
                os.kill(alive[0], signal.SIGKILL)
                self.killed = alive[0]
                return


def test_a_load_survives_the_death_of_an_executor(
    master: str, samples: pathlib.Path, tmp_path: pathlib.Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The case is that of the local load, and queries on the cluster give DuckDB's answers."""
    one = (samples / "late-joiner" / "n1" / "durability.log").read_bytes()
    for node in ("n1", "n2"):
        path = tmp_path / "traces" / node / "durability.log"
        path.parent.mkdir(parents=True)
        path.write_bytes(one * 4)
    sources = find_sources([str(tmp_path / "traces")]).sources
    local = load(sources, tmp_path / "local")
    target = tmp_path / "spark"
    with contextlib.ExitStack() as stack:
        opened = session(master, SETTINGS)
        stack.callback(opened.stop)
        with Killer(target, str(tmp_path_factory.getbasetemp())) as killer:
            summary = load_with_spark(
                sources, target, Detail.FULL, master, range_bytes=100_000, opened=opened
            )
        assert killer.killed is not None, "the load was over before an executor could be killed"
        assert summary == local
        duck = stack.enter_context(contextlib.closing(DuckEngine(open_case(tmp_path / "local"))))
        spark = SparkEngine(open_case(target), master, opened=opened)
        everything = (
            "select count(*), count(distinct file || off), sum(length), sum(off), count(template), "
            "sum(conflict), "
            "sum(samples), min(time_ns), max(time_ns) from records"
        )
        for sql in [everything, named_queries()["transfers"].sql]:
            assert [tuple(row) for row in spark.query(sql).rows] == [
                tuple(row) for row in duck.query(sql).rows
            ]


@pytest.mark.timeout(800)
@pytest.mark.parametrize("way", ["master", "connect"])
def test_a_case_is_followed_on_a_cluster(
    way: str,
    request: pytest.FixtureRequest,
    tmp_path: pathlib.Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """The command is killed in a look, and an executor in another; each record is there once."""
    options = ("--engine", "spark", "--spark-master", request.getfixturevalue(way))
    logs, case = tmp_path / "logs", tmp_path / "case"
    writers = killed_in_a_look(logs, case, *options)
    with following(logs, case, *options) as command:
        writers[1].rotate()
        writers[1].write(80, 4)
        command.wait_for(lambda: writes_a_part(case))
        alive = executors(str(tmp_path_factory.getbasetemp()))
        os.kill(alive[0], signal.SIGKILL)
        for writer in writers:
            writer.write(80, 0)
        assert command.end() == 0, command.said
    assert "Traceback" not in command.said
    check_is_loaded(case, logs)
    assert len(content_of(case)[0]) > 1_000


def test_what_is_planned_is_compared_through_connect_too(
    connect: str, samples: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the check of the text did not see what Spark sees."""
    (tmp_path / "file").write_text("a secret")
    load(find_sources([str(samples / "late-joiner")]).sources, tmp_path / "case")
    opened = session(connect)
    try:
        spark = SparkEngine(open_case(tmp_path / "case"), connect, opened=opened)
        monkeypatch.setattr("ospltool.analytics.spark.check_reading", lambda sql, _: sql)
        count = "select count(*) from records where node in (select node from sources)"
        assert [tuple(row) for row in spark.query(count).rows] == [(2162,)]
        alone = opened.sql(SECOND_BARRIER[0].format(file=tmp_path / "file")).collect()
        assert [row[0] for row in alone] == ["a secret"], "Spark itself does not refuse it"
        for sql in SECOND_BARRIER:
            text = sql.format(file=tmp_path / "file", out=tmp_path / "out")
            with pytest.raises(QueryError, match=r"not run|CORRUPT|PARSE") as caught:
                list(spark.query(text).rows)
            assert "secret" not in str(caught.value), sql
            assert not (tmp_path / "out").exists(), sql
        there = {one.name for one in opened.catalog.listTables()}
        assert there == {table.value for table in Table}
    finally:
        opened.stop()


def test_stores_differ_on_a_cluster_as_on_this_machine_with_their_fields(
    master: str, tmp_path: pathlib.Path
) -> None:
    writes = tuple(Message(number, text=f"text {number}", time_ns=BASE_NS + number) for number in range(9))
    stores = [
        str(write_kv(tmp_path / "a", Version((Held(writes[:-1]), Held(writes, topic="Equal"))))),
        str(write_xml(tmp_path / "b", Version((Held(writes[1:]), Held(writes, topic="Equal"))))),
    ]
    report = check_equal(stores, master, SETTINGS, contents=True)
    assert report.differing == 2
    assert {group.topic: group.verdict for group in report.groups} == {
        "Items": Verdict.DIFFER,
        "Equal": Verdict.EQUAL,
    }
    assert report.instances[0].samples[0].fields is not None
