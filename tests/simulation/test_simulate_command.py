"""`ospltool simulate`."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from ospltool.cli.app import main

ROOT = pathlib.Path(__file__).resolve().parents[2]
FLEET = str(ROOT / "samples" / "three-nodes" / "fleet.toml")

Captured = pytest.CaptureFixture[str]


def test_a_run_shows_its_log_and_ends_clean(capfd: Captured) -> None:
    assert main(["simulate", "--seed", "3"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[0].startswith("#   virtual s")
    assert lines[-2].endswith("all checkers agree")
    assert lines[-1].startswith("seed 3: clean; ")


def test_a_deployment_is_simulated_with_its_own_nodes(capfd: Captured) -> None:
    assert main(["simulate", FLEET, "--seed", "2", "--faults", "crash,partition", "--minutes", "0.5"]) == 0
    out = capfd.readouterr().out
    assert "nodes (n1 n2 n3)" in out
    assert "is killed" in out or "parts:" in out


def test_the_number_of_nodes_can_be_given(capfd: Captured) -> None:
    assert main(["simulate", "--nodes", "7", "--faults", "crash", "--minutes", "0.5", "--seed", "5"]) == 0
    assert "nodes (n1 n2 n3 n4 n5 n6 n7)" in capfd.readouterr().out


def test_many_runs_are_summed_up(capfd: Captured) -> None:
    assert main(["simulate", "--runs", "2", "--jobs", "2", "--json"]) == 0
    document = json.loads(capfd.readouterr().out)
    runs = document["data"]["runs"]
    assert [run["seed"] for run in runs] == [1, 2]
    assert all(run["violation"] == "" for run in runs)
    assert main(["simulate", "--runs", "2", "--jobs", "1"]) == 0
    assert "2 seeds, 2 clean, 0 not" in capfd.readouterr().out


LIVELOCK = """
<OpenSplice>
  <Domain><Name>alone</Name><Id>0</Id><Role>r</Role>
    <Service name="durability"><Command>durability</Command></Service></Domain>
  <DurabilityService name="durability">
    <Persistent><StoreDirectory>/tmp/never</StoreDirectory></Persistent>
    <NameSpaces>
      <NameSpace name="ns"><Partition>*</Partition></NameSpace>
      <Policy nameSpace="*" durability="Durable" aligner="False" alignee="Initial"/>
    </NameSpaces>
  </DurabilityService>
</OpenSplice>
"""


def test_a_system_without_a_possible_master_breaks_a_rule(tmp_path: pathlib.Path, capfd: Captured) -> None:
    path = tmp_path / "alone.xml"
    path.write_text(LIVELOCK, encoding="utf-8")
    assert main(["simulate", str(path), "--faults", "none", "--minutes", "0.1", "--quiet"]) == 1
    out = capfd.readouterr().out
    assert "quiet: after" in out
    assert f"ospltool simulate {path} --seed 1 --faults none --minutes 0.1" in out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--faults", "earthquake"], "no such fault: earthquake"),
        (["nowhere.toml"], "nowhere.toml"),
        ([FLEET, "--nodes", "3"], "--nodes cannot be used with a deployment"),
    ],
)
def test_wrong_usage_is_refused(arguments: list[str], text: str, capfd: Captured) -> None:
    assert main(["simulate", *arguments]) == 2
    assert text in capfd.readouterr().err


def test_ctrl_c_ends_a_campaign_and_its_workers_at_once_and_without_a_traceback() -> None:
    command = "import sys; from ospltool.cli import main; sys.exit(main())"
    campaign = ("simulate", "--runs", "400", "--jobs", "2", "--minutes", "60")
    process = subprocess.Popen(
        [sys.executable, "-c", command, *campaign],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        process_group=0,  # as a shell does, so that Ctrl-C reaches the workers, too
    )
    workers: set[int] = set()
    deadline = time.monotonic() + 60
    while len(workers) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)  # they are other processes
        listed = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        workers = {int(pid) for pid in listed if _seconds(int(pid)) > 1}  # past their imports
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, b"")
    assert out.startswith(b"0 seeds, 0 clean, 0 not; ")
    assert not any(pathlib.Path(f"/proc/{pid}").exists() for pid in workers)


def _seconds(pid: int) -> float:
    """The processor time of a process."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
