"""The commands of pages, on nodes and services of their own: they end as the page shows."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.integration.conftest import own_domain
from tests.integration.programs import ROOT

pytestmark = [pytest.mark.dds, pytest.mark.timeout(400)]

PATIENCE_S = 60.0
DATA = "/tmp/ospltool-demo"
FINDS = ("trace anomalies", "report")
"""Commands that may exit with 1: a busy machine has late heartbeats."""


def steps(page: str | Path) -> Iterator[tuple[str, list[str]]]:
    """Each command of a page, below the checkout, with the output that it shows."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL):
        for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *shown = step.splitlines()
            yield command, shown


def fits(shown: str, output: str) -> bool:
    """Whether an output has a line of the page; domain, time and what `...` stands for may differ."""
    wanted = re.sub(r"^domain \d+: OK", "domain *: OK*", shown).replace("operational; ", "operational*; ")
    wanted = re.sub(r"(\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d", "*", wanted).replace("...", "*")
    return re.search(re.escape(wanted).replace(r"\*", ".*"), output) is not None


def run(command: str, environ: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", command],
        cwd=ROOT,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def environ(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of a reader of the page; all nodes are stopped at the end."""
    made = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "NO_COLOR": "1",
        "CYCLONEDDS_URI": f"file://{ROOT}/samples/three-nodes/cyclonedds.xml",
        "OSPLTOOL_RUNDIR": str(tmp_path / "run"),
        "OSPLTOOL_DEMO_DIR": str(tmp_path / "demo"),
        "OSPLTOOL_DEMO_DOMAIN": str(own_domain()[0]),
    }
    yield made
    run("ospltool stop --all", made)


def test_the_commands_of_the_tutorial_end_as_it_shows(environ: dict[str, str], tmp_path: Path) -> None:
    listed = ""
    for command, shown in steps("docs/tutorial.md"):
        if command.startswith((". ", "export ")):
            continue
        line = command.replace(DATA, environ["OSPLTOOL_DEMO_DIR"]).replace(
            "report.html", f"{tmp_path}/r.html"
        )
        if line.startswith("python samples/"):
            line += f" --domain {environ['OSPLTOOL_DEMO_DOMAIN']} --timeout 60"
        if "PID" in line:
            line = line.replace(
                "PID", next(row.split()[4] for row in listed.splitlines() if row[:3] == "n1 ")
            )
        ended = run(line, environ)
        until = time.monotonic() + PATIENCE_S
        while not all(fits(each, ended.stdout) for each in shown) and time.monotonic() < until:
            ended = run(line, environ)
        assert [each for each in shown if not fits(each, ended.stdout)] == [], (line, ended)
        assert ended.returncode == 0 or (ended.returncode == 1 and any(f in line for f in FINDS)), (
            line,
            ended,
        )
        if line == "ospltool list":
            listed = ended.stdout


ALONE = ("unshare", "--map-root-user", "--net", "bash", "-m", "-e", "-c")
"""A session with a loopback interface and domains of its own, as on a machine where nothing runs."""
READ = {"instances": 1000, "samples": 1000}


def session(page: str) -> list[str]:
    """The commands of the first block of a page, which end with `kill`."""
    first, last = itertools.tee(command for command, _ in steps(page))
    size = next(at for at, command in enumerate(first, 1) if command.startswith("kill %"))
    return list(itertools.islice(last, size))


def late(commands: list[str]) -> list[str]:
    """The same, with the second service started once the writer has ended."""
    setting, first, second, writer, *rest = commands
    return [setting, first, writer.replace("--nodes 2", "--nodes 1"), second, *rest]


@pytest.mark.netns
@pytest.mark.parametrize(
    ("commands", "results"),
    [
        (session("docs/redundant-persistence.md"), [READ]),
        (late(session("docs/redundant-persistence.md")), [READ]),
        (session("docs/durable-subscriptions.md"), [{"taken": 1000, "repeated": 0}]),
    ],
    ids=["a lost replica", "a lost replica, the other comes late", "a durable subscription"],
)
def test_persistence_services_lose_nothing_as_their_pages_show(
    environ: dict[str, str], tmp_path: Path, commands: list[str], results: list[dict[str, int]]
) -> None:
    (tmp_path / "samples").symlink_to(ROOT / "samples")
    ends = ["trap 'kill -9 $(jobs -p) || true' EXIT", "ip link set lo up", *commands, "wait"]
    done = subprocess.run(
        [*ALONE, "\n".join(ends)],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert done.returncode == 0, done
    assert [{key: one[key] for key in wanted} for one, wanted in zip(found, results, strict=True)] == results
