"""The examples at the end of each page of help, run as printed, in one directory and in their order.

Beside them run commands that print JSON, until each kind of document has been compared with its schema.
"""

from __future__ import annotations

import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
from typing import Final

import pytest

from docs.json_schemas import KINDS
from ospltool.cli import app
from ospltool.cli.options import examples
from tests.json_documents import documents, faults

pytestmark = [pytest.mark.dds, pytest.mark.timeout(400)]

ROOT: Final = pathlib.Path(__file__).parents[2]
WORKER: Final = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
ELSEWHERE: Final = {"demo": "a test of the demonstration runs it"}
NEVER_ENDING: Final = {"persistence run"}
"""Commands that run until they are interrupted; they go on until all examples have run."""
FINDINGS: Final = {0, 1}


FLEET: Final = "samples/three-nodes/fleet.toml"
TRACE: Final = "samples/traces/late-joiner"
N1: Final = "samples/stores/after-merge/n1"
JSON: Final = {
    "init": ["init made --json"],
    "check": [
        f"check {FLEET} --show info --json",
        "check samples/three-nodes/n1.xml --show info --format jsonl",
        f"check {FLEET} --show info --statistics --json",
        f"check --matrix {FLEET} --json",
        f"check --effective {FLEET} --json",
    ],
    "start": [f"start {FLEET} --json", "start --show-config --json"],
    "status": ["status n1 --json"],
    "logs": ["logs n1 --json"],
    "show": [
        *(f"show {what} {FLEET} --format json" for what in ("", "nodes", "fellows", "name-spaces")),
        *(f"show {what} {FLEET} --format jsonl" for what in ("masters", "events")),
        f"show fellows n1 {FLEET} --format jsonl",
        f"show name-spaces {FLEET} --sort samples --columns master --format json",
        *(
            f"show {what} {FLEET} --format json"
            for what in ("alignment", "incidents", "writers", "readers", "topics", "applications")
        ),
    ],
    "health mute": [f"health mute DUL-NODE-GONE:n3 1h {FLEET} --json"],
    "health unmute": [f"health unmute DUL-NODE-GONE:n3 {FLEET} --json"],
    "record": ["record -o json.rec --for 1s --json"],
    "doctor": ["doctor samples/three-nodes/n1.xml --for 2s --json"],
    "cat": [
        f"cat Observation {FLEET} --node n1 --stored",
        f"show groups {FLEET} --format jsonl",
        f"top {FLEET} --json",
    ],
    "history wait": ["history wait Observation samples/three-nodes/n1.xml --json"],
    "history state": ["history state '*' samples/three-nodes/n1.xml --json"],
    "history delete": [
        "history delete Observation ships samples/three-nodes/n1.xml --dry-run --json",
        "history delete Observation ships samples/three-nodes/n1.xml --until=-10m --yes --json",
    ],
    "restart": ["restart n3 --json"],
    "stop": ["stop --all --json"],
    "env": ["env samples/three-nodes/n1.xml --json"],
    "explain": [
        "explain --json",
        "explain DUR201 --json",
        "explain DUL-NODE-GONE --json",
        "explain //OpenSplice/DurabilityService/NameSpaces/Policy --json",
        "explain //CycloneDDS/Domain/General/Interfaces --json",
        "explain samples/three-nodes/n1.xml --json",
    ],
    "persistence rehearse": ["persistence rehearse samples/redundant-persistence/subscriptions.xml --json"],
    "trace view": [
        f"trace {TRACE} --level INFO --json",
        "trace samples/traces/master-livelock --lines 20 --format jsonl",
        f"trace {TRACE} --count --json",
        f"trace {TRACE} --hist 1s --json",
        f"trace {TRACE} --templates --json",
    ],
    "trace conversation": [f"trace conversation partA.T1 {TRACE} --json"],
    "trace anomalies": ["trace anomalies samples/traces/master-livelock --json"],
    "trace explain": ["trace explain d_admin:1053 --json", "trace explain clock-jump --json"],
    "trace load": [f"trace load {TRACE} -o case --json"],
    "sql": ["sql case masters --json", "sql case masters --format jsonl", "sql case --list --json"],
    "pipeline run": ["pipeline run livelock.toml", "pipeline run livelock.toml --json"],
    "report": ["report samples/traces/master-livelock --json"],
    "store backups": ["store backups samples/stores/after-restart/n1 --json"],
    "store ls": [f"store ls {N1} --json"],
    "store export": [f"store export {N1} -o second --json"],
    "store restore": [f"store replace {N1} store --json"],
    "store diff": [
        f"store diff {N1} copy --format json --fields",
        f"store diff {N1} demo/n1/store --format jsonl --fields",
    ],
    "simulate": ["simulate --seed 7 --minutes 1 --json"],
}
"""Commands that run after the examples of one: together they print every kind of document."""
SERVICE: Final = "samples/redundant-persistence/service.xml"
ENDLESS_JSON: Final = {"persistence run": f"persistence run {SERVICE} --name c --domain 12 --store c --json"}
NOT_HERE: Final = {
    "demo": ELSEWHERE["demo"],
    **dict.fromkeys(("node", "endpoints"), "only --watch prints it, which never ends"),
}
"""Kinds that no command above prints, and why."""


def test_every_example_runs_as_it_is_printed(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "samples").symlink_to(ROOT / "samples")
    (tmp_path / "plan.toml").write_text('sources = ["samples/traces/late-joiner"]\ntarget = "judged"\n')
    (tmp_path / "livelock.toml").write_text('sources = ["samples/traces/master-livelock"]\ntarget = "bad"\n')
    monkeypatch.chdir(tmp_path)
    for name, value in {
        "OSPLTOOL_DOMAIN": str(160 + WORKER % 4),
        "OSPLTOOL_DEMO_DOMAIN": str(164 + WORKER % 4),
        "OSPLTOOL_DEMO_DIR": str(tmp_path / "demo"),
        "OSPLTOOL_RUNDIR": str(tmp_path / "run"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "PYTHONPATH": str(ROOT),
    }.items():
        monkeypatch.setenv(name, value)
    for name, seconds in {"LISTEN_S": 2.0, "MOST_S": 3.0, "OVER_S": 0.0}.items():
        monkeypatch.setattr(f"ospltool.cli.domains.{name}", seconds)
    for name in ("OSPL_URI", "CYCLONEDDS_URI"):
        monkeypatch.delenv(name, raising=False)
    running: list[subprocess.Popen[str]] = []
    failed: list[object] = []
    printed: dict[str, list[str]] = {}
    try:
        for name, lines in examples().items():
            if name == "cat":
                publish(os.environ["OSPLTOOL_DEMO_DOMAIN"])
            if name in NEVER_ENDING:
                running += [begun(line) for line in (*lines, f"ospltool {ENDLESS_JSON[name]}")]
                continue
            more = [f"ospltool {line}" for line in JSON.get(name, ())]
            for line in (*lines, *more) if name not in ELSEWHERE else ():
                code = app.main(shlex.split(line)[1:])
                out, err = capfd.readouterr()
                if code not in FINDINGS or "Traceback" in err:
                    failed.append((line, code, err))
                elif line in more or " --json" in line:
                    printed[line] = [out]
    finally:
        for one in running:
            one.send_signal(signal.SIGINT)
            printed.setdefault("persistence run", []).append(one.communicate(timeout=30)[0])
        assert {one.returncode for one in running} <= {0}
        app.main(["stop", "--all"])
    assert not failed, "\n".join(map(str, failed))
    check_json({**printed, "n1.jsonl": [(tmp_path / "n1.jsonl").read_text("utf-8")]})


def check_json(printed: dict[str, list[str]]) -> None:
    """Every document is as its published schema says, and there is one of each kind."""
    found = [(line, each) for line, texts in printed.items() for text in texts for each in documents(text)]
    assert [(line, faults(each)) for line, each in found if faults(each)] == []
    assert {each["kind"] for _, each in found} == KINDS.keys() - NOT_HERE.keys()


def begun(line: str) -> subprocess.Popen[str]:
    """A command that runs, and has said so."""
    command = [sys.executable, "-m", "ospltool.cli.app", *shlex.split(line)[1:]]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    # On a busy machine, a report of a late thread may come before.
    assert any(re.search(r" runs in domain \d+$", said) for said in process.stderr)
    return process


def publish(domain: str) -> None:
    """Write what the examples read."""
    program = ROOT / "samples" / "publisher.py"
    options = ("--count", "10", "--nodes", "3", "--domain", domain)
    environ = {**os.environ, "CYCLONEDDS_URI": f"file://{ROOT}/samples/three-nodes/cyclonedds.xml"}
    subprocess.run([sys.executable, program, *options], env=environ, check=True, timeout=60)
