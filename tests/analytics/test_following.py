"""A case that follows growing files is at each look what loading the files would make of them."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable

import pytest

pytest.importorskip("duckdb", reason="SQL needs the extra `sql`")

from hypothesis import given, settings
from hypothesis import strategies as st

from ospltool.analytics.case import CaseError, locked
from ospltool.analytics.contract import Detail
from ospltool.cli.app import main
from ospltool.trace.case.growing import Following, follow
from ospltool.trace.case.loading import load
from ospltool.trace.reading.sources import SourceError, find_sources
from tests.analytics.growing import (
    BASE_S,
    PATIENCE_S,
    Writer,
    check_is_loaded,
    content_of,
    following,
    killed_in_a_look,
)

SPARK = ("--engine", "spark", "--spark-master", "local[2]")
steps = st.tuples(
    st.sampled_from(["write"] * 6 + ["rotate", "truncate", "remove", "nothing"]),
    st.integers(0, 2),
    st.integers(0, 40),
    st.integers(0, 60),
)


@settings(max_examples=settings().max_examples // 4)
@given(st.lists(steps, max_size=10), st.integers(0, 2**32))
def test_a_followed_case_is_a_loaded_case_at_each_look(
    plan: list[tuple[str, int, int, int]], seed: int
) -> None:
    with tempfile.TemporaryDirectory() as name:
        logs, case = pathlib.Path(name, "logs"), pathlib.Path(name, "case")
        writers = [Writer(logs / node / "durability.log", seed) for node in ("n1", "n2", "n3")]
        writers[0].write(20, 5)
        left = iter(plan)

        def next_step(_: float) -> bool:
            check_is_loaded(case, logs)
            step = next(left, None)
            if step is None:
                return True
            what, number, lines, cut = step
            if what == "write":
                writers[number].write(lines, cut)
            elif what != "nothing":
                getattr(writers[number], what)()
            writers[0].write(1, 0)  # there is always a trace to compare with
            return False

        follow(Following([str(logs)], case, Detail.FULL), next_step)
        check_is_loaded(case, logs)


def test_a_file_that_grows_has_few_parts(tmp_path: pathlib.Path) -> None:
    """Two hundred looks do not leave two hundred parts."""
    writer = Writer(tmp_path / "logs" / "n1" / "durability.log", 1)
    left = iter(range(200))

    def grow(_: float) -> bool:
        writer.write(5, 3)
        return next(left, None) is None

    case = tmp_path / "case"
    writer.write(5, 3)
    follow(Following([str(tmp_path / "logs")], case, Detail.FULL), grow)
    check_is_loaded(case, tmp_path / "logs")
    assert len(list((case / "records").rglob("*.parquet"))) <= 20


def test_an_empty_directory_is_waited_for(tmp_path: pathlib.Path) -> None:
    logs, case = tmp_path / "logs", tmp_path / "case"
    logs.mkdir()
    writer = Writer(logs / "n1" / "durability.log", 1)
    lines = iter([0, 9])

    def wait(_: float) -> bool:
        found = next(lines, None)
        if found:
            writer.write(found, 0)
        return found is None

    assert follow(Following([str(logs)], case, Detail.FULL), wait).total.records > 0
    check_is_loaded(case, logs)


def test_what_the_beginning_tells_may_change_as_a_file_grows(tmp_path: pathlib.Path) -> None:
    """Only the third record shows that ospltool wrote the trace: all of them are read as its own."""
    path = tmp_path / "logs" / "n1" / "durability.log"
    path.parent.mkdir(parents=True)
    line = f"{BASE_S}.000000001 COMPLETE (ospl_durability) -> "
    path.write_text(f"{line}Group found: p.T (PERSISTENT)\n{line}x\n")
    case = tmp_path / "case"
    load(find_sources([str(path.parent)]).sources, case)
    with path.open("a") as stream:
        stream.write(f"{line}My address is: 'n1-4711'\n")
    load(find_sources([str(path.parent)]).sources, case)
    check_is_loaded(case, path.parent)
    assert content_of(case)[1][0]["origin"] == "engine"


KILLED = """
import os, pathlib, signal, sys
from ospltool.analytics.case import CaseWriter
from ospltool.analytics.contract import Detail
from ospltool.trace.case import growing, local_load
from ospltool.trace.case.growing import Following, follow

count = int(sys.argv[4])
owner, name = sys.argv[3].split(".")
owner = {"growing": growing, "local_load": local_load, "CaseWriter": CaseWriter, "Path": pathlib.Path}[owner]
usual = getattr(owner, name)

def deadly(*arguments, **named):
    global count
    count -= 1
    if count < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return usual(*arguments, **named)

setattr(owner, name, deadly)
follow(Following([sys.argv[1]], pathlib.Path(sys.argv[2]), Detail.FULL), lambda _: True)
"""


@pytest.mark.parametrize(
    ("place", "count"),
    [
        ("growing.bundles", 0),
        ("local_load.load_bundle", 1),
        ("CaseWriter.write", 1),
        ("CaseWriter.commit", 0),
        ("Path.replace", 0),
        ("Path.unlink", 1),
        ("CaseWriter.sweep", 1),
    ],
)
def test_a_killed_command_leaves_nothing_twice(place: str, count: int, tmp_path: pathlib.Path) -> None:
    """Killed at each step of a look, and started again: each record is there once."""
    logs, case = tmp_path / "logs", tmp_path / "case"
    writers = [Writer(logs / node / "durability.log", 7) for node in ("n1", "n2")]
    for writer in writers:
        writer.write(40, 9)
    follow(Following([str(logs)], case, Detail.FULL), lambda _: True)
    for writer in writers:
        writer.write(60, 11)
    writers[1].rotate()
    writers[1].write(5, 2)
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(logs), str(case), place, str(count)], check=False, timeout=100
    )
    assert killed.returncode == -signal.SIGKILL
    writers[0].write(30, 0)
    follow(Following([str(logs)], case, Detail.FULL), lambda _: True)
    check_is_loaded(case, logs)


def test_one_command_follows_into_a_case(tmp_path: pathlib.Path) -> None:
    Writer(tmp_path / "n1" / "durability.log", 1).write(9, 0)
    load(find_sources([str(tmp_path / "n1")]).sources, tmp_path / "case")
    with locked(tmp_path / "case"), pytest.raises(CaseError, match="by another command"):
        follow(Following([str(tmp_path / "n1")], tmp_path / "case", Detail.FULL), lambda _: True)


def test_files_that_do_not_exist_are_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(SourceError, match="no such file"):
        follow(Following([str(tmp_path / "no")], tmp_path / "case", Detail.FULL), lambda _: True)
    assert not (tmp_path / "case").exists()


REFUSED = {
    "one file": (["-o", "case.duckdb"], "a case that grows is a directory"),
    "no names": ([], "name the files"),
    "no cluster": (["--engine", "spark", "--spark-master", "spark://127.0.0.1:1"], "cannot be reached"),
    "no Spark": (["--engine", "spark"], "[spark]'`"),
}


def starts(builder: object) -> None:
    """Stands in for the start of Spark, which would try for minutes."""
    raise AssertionError("Spark is started")


@pytest.mark.parametrize("name", REFUSED)
def test_what_can_not_be_followed_is_refused_at_once(
    name: str,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    options, said = REFUSED[name]
    if name == "no Spark":
        usual = importlib.util.find_spec
        monkeypatch.setattr(
            "importlib.util.find_spec", lambda module: None if module == "pyspark" else usual(module)
        )
    elif "spark" in options:
        pytest.importorskip("pyspark", reason="Spark needs the extra `spark`")
        monkeypatch.setattr("pyspark.sql.SparkSession.Builder.getOrCreate", starts)
    monkeypatch.chdir(tmp_path)
    Writer(tmp_path / "logs" / "durability.log", 1).write(9, 0)
    names = [] if name == "no names" else ["logs"]
    assert main(["trace", "load", "--follow", *names, *options]) == 2
    assert said in capfd.readouterr().err
    assert not (tmp_path / "case").exists()


@pytest.mark.timeout(800)
def test_a_command_that_was_killed_goes_on_and_ends_in_order(tmp_path: pathlib.Path) -> None:
    """Files grow in the middle of lines, appear and are rotated; SIGKILL, and the same command again.

    `tests/analytics/test_spark_cluster.py` does the same with Spark.
    """
    logs, case = tmp_path / "logs", tmp_path / "case"
    writers = killed_in_a_look(logs, case)
    with following(logs, case) as command:
        writers[1].rotate()
        for writer in writers:
            writer.write(80, 0)
        assert command.end() == 0, command.said
    assert "Traceback" not in command.said
    check_is_loaded(case, logs)
    assert len(content_of(case)[0]) > 1_000


def offsets_of(case: pathlib.Path) -> set[str]:
    return {path.name for path in case.glob("checkpoints/*/offsets/*")}


def commits_of(case: pathlib.Path) -> set[str]:
    return {path.name for path in case.glob("checkpoints/*/commits/*")}


def records_of(case: pathlib.Path) -> set[str]:
    return {path.name for path in case.glob("records/**/*.parquet")}


def versions_of(case: pathlib.Path) -> set[str]:
    return {path.name for path in case.glob("versions/*.json")}


def workers_of(pid: int) -> list[int]:
    """The Python processes of Spark that do tasks, below a process."""
    parents, daemons = {}, set()
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                if b"pyspark.daemon" in (entry / "cmdline").read_bytes():
                    daemons.add(int(entry.name))

    def is_below(one: int) -> bool:
        return one == pid or (one in parents and is_below(parents[one]))

    return [one for one in daemons if parents[one] in daemons and is_below(one)]


STEPS: dict[str, Callable[[pathlib.Path], object]] = {
    "an offset is written": offsets_of,
    "a file of records is written": records_of,
    "a version is in place": versions_of,
    "a batch is committed": commits_of,
    "nothing in particular": lambda _: random.random(),
}


def _has_come(step: Callable[[pathlib.Path], object], case: pathlib.Path, before: object) -> bool:
    return step(case) != before


@pytest.mark.timeout(1500)
@pytest.mark.parametrize("seed", range(10))
def test_a_stream_gives_each_row_once_wherever_it_is_killed(seed: int, tmp_path: pathlib.Path) -> None:
    """Five times, the driver or the workers get SIGKILL at a step of a batch; files grow and are replaced."""
    pytest.importorskip("pyspark", reason="Spark needs the extra `spark`")
    from tests.analytics.java_classes import JAVA_VARIABLE, java_options

    drawn = random.Random(seed)
    logs, case = tmp_path / "logs", tmp_path / "case"
    writers = [Writer(logs / node / "durability.log", seed) for node in ("n1", "n2", "n3")]
    writers[0].write(90, 7)
    victims = ["driver", "workers", *drawn.choices(("driver", "workers"), k=3)]
    drawn.shuffle(victims)
    options = (*SPARK[:-1], "local[2,4]")  # a task may fail three times
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(JAVA_VARIABLE, java_options())
        while victims:
            with following(logs, case, *options) as command:
                while victims:
                    step = STEPS[drawn.choice(list(STEPS))]
                    before = step(case)
                    for _ in range(drawn.randint(1, 4)):
                        writer = drawn.choice(writers)
                        writer.write(drawn.randint(1, 60), drawn.randint(0, 60))
                        change = drawn.choice(["rotate", "truncate", "remove", *["nothing"] * 5])
                        if change != "nothing":
                            getattr(writer, change)()
                    writers[0].write(1, 0)
                    command.wait_for(functools.partial(_has_come, step, case, before))
                    if victims.pop() == "driver":
                        os.killpg(command.process.pid, signal.SIGKILL)
                        break
                    for pid in workers_of(command.process.pid):
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGKILL)
        with following(logs, case, *options) as command:
            for writer in writers:
                writer.write(20, 0)
            assert command.end() == 0, command.said
    assert "Traceback" not in command.said
    check_is_loaded(case, logs)


@pytest.mark.timeout(400)
def test_the_end_of_spark_is_an_error_and_the_command_can_be_started_again(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyspark", reason="Spark needs the extra `spark`")
    from tests.analytics.java_classes import JAVA_VARIABLE, java_options

    monkeypatch.setenv(JAVA_VARIABLE, java_options())
    logs, case = tmp_path / "logs", tmp_path / "case"
    writer = Writer(logs / "n1" / "durability.log", 3)
    writer.write(50, 7)
    with following(logs, case, *SPARK) as command:
        pid = command.process.pid
        for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            os.kill(int(child), signal.SIGKILL)
        writer.write(50, 0)
        assert command.process.wait(PATIENCE_S) == 2
    assert "Spark has ended" in command.said
    assert "bug in ospltool" not in command.said
    assert main(["trace", "load", str(logs), "-o", str(case)]) == 0, "either engine goes on"
    check_is_loaded(case, logs)
