"""The examples at the end of each page of help, run as printed, in one directory and in their order."""

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

from ospltool.cli import app
from ospltool.cli.options import examples

pytestmark = [pytest.mark.dds, pytest.mark.timeout(400)]

ROOT: Final = pathlib.Path(__file__).parents[2]
WORKER: Final = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
ELSEWHERE: Final = {"demo": "a test of the demonstration runs it"}
NEVER_ENDING: Final = {"persistence run"}
"""Commands that run until they are interrupted; they go on until all examples have run."""
FINDINGS: Final = {0, 1}


def test_every_example_runs_as_it_is_printed(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "samples").symlink_to(ROOT / "samples")
    (tmp_path / "plan.toml").write_text('sources = ["samples/traces/late-joiner"]\ntarget = "judged"\n')
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
    failed = []
    try:
        for name, lines in examples().items():
            for line in lines if name not in ELSEWHERE else ():
                if name in NEVER_ENDING:
                    running.append(begun(line))
                    continue
                if name == "cat" and line == lines[0]:
                    publish(os.environ["OSPLTOOL_DEMO_DOMAIN"])
                code = app.main(shlex.split(line)[1:])
                _, err = capfd.readouterr()
                if code not in FINDINGS or "Traceback" in err:
                    failed.append((line, code, err))
    finally:
        for one in running:
            one.send_signal(signal.SIGINT)
            one.communicate(timeout=30)
        assert {one.returncode for one in running} <= {0}
        app.main(["stop", "--all"])
    assert failed == []


def begun(line: str) -> subprocess.Popen[str]:
    """A command that runs, and has said so."""
    command = [sys.executable, "-m", "ospltool.cli.app", *shlex.split(line)[1:]]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert re.search(r" runs in domain \d+$", process.stderr.readline())
    return process


def publish(domain: str) -> None:
    """Write what the examples read."""
    program = ROOT / "samples" / "publisher.py"
    options = ("--count", "10", "--nodes", "3", "--domain", domain)
    environ = {**os.environ, "CYCLONEDDS_URI": f"file://{ROOT}/samples/three-nodes/cyclonedds.xml"}
    subprocess.run([sys.executable, program, *options], env=environ, check=True, timeout=60)
