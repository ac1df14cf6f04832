"""A plan may run again, be killed, and be done by either engine: the case and the alerts are the same."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import sys
import urllib.parse
from typing import Any

import pytest

pytest.importorskip("duckdb", reason="SQL needs the extra `sql`")
pytest.importorskip("pyspark", reason="Spark needs the extra `spark`")

import pyarrow as pa
import pyarrow.parquet as pq

from ospltool.analytics.case import CHECKPOINTS, CaseWriter, open_case, write_rows, writing
from ospltool.analytics.contract import COLUMNS, Detail, Table
from ospltool.analytics.show import named_queries
from ospltool.analytics.spark import LOG_VARIABLE
from ospltool.cli.app import main
from ospltool.forensics.pipeline import part_bytes
from tests.analytics.test_fleet import DOMAINS, java_classes, logs
from tests.forensics.test_damaged_evidence import log_of

__all__ = ["java_classes", "logs"]

JUDGED = (Table.FACTS, Table.VERDICTS, Table.STORIES)
SPARK = '[spark]\nmaster = "local[2]"\nsettings = {"spark.app.name" = "a test"}\n'


def plan_of(directory: pathlib.Path, source: pathlib.Path, target: str = "case", more: str = "") -> str:
    path = directory / f"{target}.toml"
    path.write_text(f"sources = [{json.dumps(str(source))}]\ntarget = {json.dumps(target)}\n{more}")
    return str(path)


def ran(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[dict[str, Any]], str]:
    """The exit code of a run, its alerts, and what it says."""
    capfd.readouterr()
    code = main(["pipeline", "run", *arguments])
    said = capfd.readouterr()
    return code, [json.loads(line)["data"] for line in said.out.splitlines()], said.err


def stages_of(case: pathlib.Path) -> dict[str, list[dict[str, Any]]]:
    """The rows of the judged stages, without what tells loads apart."""
    opened = open_case(case)
    found = {}
    for table in JUDGED:
        rows: list[dict[str, Any]] = []
        for path in opened.files(table):
            part = pq.read_table(path, partitioning=None)
            assert part.column_names == [name for name, _, _ in COLUMNS[table]], (
                "a schema that is written down"
            )
            starts = part.column("start_ns").to_pylist()
            assert starts == sorted(starts, key=lambda one: one or 0), "sorted by time"
            domain, day = (one.partition("=")[2] for one in path.parts[-3:-1])
            rows += [{"domain": domain, "day": day, **row, "judged": ""} for row in part.to_pylist()]
        found[table.value] = sorted(rows, key=str)
    return found


def asked(capfd: pytest.CaptureFixture[str], case: pathlib.Path, query: str) -> list[dict[str, Any]]:
    capfd.readouterr()
    assert main(["sql", str(case), query, "--json"]) == 0
    rows: list[dict[str, Any]] = json.loads(capfd.readouterr().out)["data"]["rows"]
    return rows


def test_a_plan_runs_again_and_judges_what_changed(
    logs: pathlib.Path,
    tmp_path: pathlib.Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, case = tmp_path / "logs", tmp_path / "case"
    shutil.copytree(logs, source)
    plan = plan_of(tmp_path, source)
    sink = tmp_path / "alerts"

    # A run that is killed between the alerts and the verdicts delivers the alerts again.
    def killed(self: CaseWriter, contents: Any) -> None:
        if any(contents.tables.get(table) for table in JUDGED):
            raise KeyboardInterrupt
        commit(self, contents)

    commit = CaseWriter.commit
    monkeypatch.setattr(CaseWriter, "commit", killed)
    code, before, _ = ran(capfd, plan)
    assert (code, bool(before)) == (130, True)
    monkeypatch.setattr(CaseWriter, "commit", commit)
    code, alerts, said = ran(capfd, plan, "--alert", f"false; cat >> {sink}; exit 3")
    assert (code, alerts) == (2, []), "not delivered"
    assert "ended with 3" in said
    code, alerts, said = ran(capfd, plan, "--alert", f"cat > {sink}")
    assert (code, alerts) == (1, before)
    assert [json.loads(line)["data"] for line in sink.read_text().splitlines()] == before
    assert {one["domain"] for one in alerts} >= {"own", "it's a [livelock]%"}
    assert "DUL-NODE-GONE" in {one["code"] for one in alerts}
    assert f"{len(DOMAINS)} domains judged, 0 unchanged" in said
    assert {urllib.parse.unquote(row["domain"]) for row in stages_of(case)["verdicts"]} == {*DOMAINS}
    versions = sorted((case / "versions").iterdir())

    code, alerts, said = ran(capfd, plan)
    assert (code, alerts) == (0, []), "the damaged file was told when it was read"
    assert f"0 domains judged, {len(DOMAINS)} unchanged" in said
    assert sorted((case / "versions").iterdir()) == versions, "what changes nothing makes no version"

    # As a query of Spark leaves a case: it goes on from its checkpoint.
    with writing(case, Detail.FULL) as writer:
        (case / CHECKPOINTS / "ab").mkdir(parents=True)
        writer.commit(dataclasses.replace(writer.contents, stream="ab", batch=7))
    ran(capfd, plan_of(tmp_path, source, more='until = "2030-01-01T00:00:00Z"'))
    contents = open_case(case).contents
    assert (contents.stream, contents.batch) == ("ab", 7), "all domains are judged again"
    assert (case / CHECKPOINTS / "ab").is_dir()
    ran(capfd, plan_of(tmp_path, source))

    shutil.copytree(source / "domain=own", source / "domain=new")
    with log_of(source / "domain=healthy", "n1").open("ab") as stream:
        stream.write(b"2026-11-21T01:40:00+0000 1795225200.000000000 COMPLETE (t) -> it grew\n")
    code, alerts, said = ran(capfd, plan)
    assert {one["domain"] for one in alerts} == {"new"}
    assert f"2 domains judged, {len(DOMAINS) - 1} unchanged" in said
    whole = plan_of(tmp_path, source, "whole")
    ran(capfd, whole)
    assert open_case(case).contents.stream == "", "a checkpoint does not know what a command has read"
    assert stages_of(case) == stages_of(tmp_path / "whole"), "in steps as at once"

    for query in ("fleet", "slowest-alignments", "flapping-fellows", "shrunk-sets", "two-masters"):
        assert query in named_queries()
        rows = asked(capfd, case, query)
        assert rows or query in {"two-masters", "flapping-fellows", "shrunk-sets"}, query
    fleet = asked(capfd, case, "fleet")
    assert main(["top", "--case", str(case), "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["data"]["rows"] == fleet
    assert {one["domain"] for one in fleet} == {*DOMAINS, "new"}
    assert all(one["verdict"] for one in fleet if one["domain"] == "healthy")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("target = 5\nsources = ['x']", "target"),
        ("target = 'x'\nsources = []", "sources"),
        ("target = 'x'\nsources = ['x']\nengine = \"sparc\\u001b[1m\"", "engine"),
        ("target = 'x'\nsources = ['x']\npart_byte = 5", "part_byte"),
        ("target = 'x'\nsources = ['x']\npart_bytes = 5", "part_bytes"),
        ("target = 'x'\nsources = ['x']\nstages = ['facts']", "stages"),
        ("target = 'x'\nsources = ['x']\nsince = 'never'", "never"),
        ("target = 'x'\nsources = ['none there']", "none there"),
        ("target = 'nowhere://x/y'\nsources = ['x']", "nothing here can open nowhere://"),
        ("target = 'x'\nsources = ['nowhere://x/y']", "nothing here can open nowhere://"),
        ("target = [", "Invalid value"),
    ],
)
def test_a_plan_that_cannot_be_carried_out_says_where(
    text: str, said: str, tmp_path: pathlib.Path, samples: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "plan.toml").write_text(
        text.replace("['x']", f"[{json.dumps(str(samples / 'late-joiner'))}]")
    )
    code, alerts, told = ran(capfd, str(tmp_path / "plan.toml"))
    assert (code, alerts) == (2, [])
    assert said in told
    assert "\x1b" not in told
    assert "Traceback" not in told


def test_facts_lie_with_the_day_of_their_records(
    tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A service that counts from its start may run for years: that is no date."""
    (tmp_path / "logs" / "n1").mkdir(parents=True)
    lines = b"100000.000000000 INIT (t) -> Configuration: x\n200000.000000000 COMPLETE (t) -> x\n"
    (tmp_path / "logs" / "n1" / "durability.log").write_bytes(lines)
    code, alerts, _ = ran(capfd, plan_of(tmp_path, tmp_path / "logs"))
    assert (code, alerts) == (0, [])
    days = "select day from records union select day from facts union select day from verdicts"
    assert asked(capfd, tmp_path / "case", days) == [{"day": "none"}]
    assert asked(capfd, tmp_path / "case", "select count(*) > 0 as n from facts") == [{"n": True}]


def test_what_a_killed_attempt_left_is_written_again(tmp_path: pathlib.Path) -> None:
    rows = pa.table({"number": [1, 2, 3]})
    place = tmp_path / write_rows(tmp_path, "stories", rows)
    whole = place.read_bytes()
    place.write_bytes(whole[:20])
    assert tmp_path / write_rows(tmp_path, "stories", rows) == place
    assert place.read_bytes() == whole


def test_parts_grow_with_the_files_and_can_be_set() -> None:
    sizes = [part_bytes(size) for size in (1, 1 << 30, 10 << 40, 1 << 60)]
    assert sizes == sorted(sizes)
    assert (sizes[0], sizes[-1]) == (64 << 20, 1 << 30)
    assert (10 << 40) / sizes[2] <= 10_000 * 1.05
    assert part_bytes(1 << 60, 1 << 20) == 1 << 20


@pytest.mark.timeout(400)
def test_spark_carries_out_what_this_machine_carries_out(
    java_classes: str, logs: pathlib.Path, tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    del java_classes
    code, alerts, _ = ran(capfd, plan_of(tmp_path, logs))
    plan = plan_of(tmp_path, logs, "spark", f'engine = "spark"\npart_bytes = 100_000\n{SPARK}')
    done = subprocess.run(
        [sys.executable, "-m", "ospltool.cli.app", "pipeline", "run", plan],
        env={**os.environ, LOG_VARIABLE: str(tmp_path / "spark.log")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert [json.loads(line)["data"] for line in done.stdout.splitlines()] == alerts
    assert len(done.stderr.splitlines()) <= 3, "Spark's own lines are in its log"
    assert "JDK_JAVA_OPTIONS" in (tmp_path / "spark.log").read_text()
    assert stages_of(tmp_path / "spark") == stages_of(tmp_path / "case")
    again = ran(capfd, plan_of(tmp_path, logs, "spark"))
    assert "0 domains judged" in again[2], "the other engine goes on where one ended"
