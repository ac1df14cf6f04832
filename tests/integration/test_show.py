"""`ospltool show` beside three real nodes: right to the second by their traces."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from engine.tracing.catalogue import catalogue
from tests.integration.lab import Lab
from tests.integration.programs import ROOT
from tests.trace_lines import read_line

pytestmark = pytest.mark.dds

SAMPLES = 100_000
SECOND_NS = 1_000_000_000
LEADS = "election.confirmed-self"
WORKS = "lifecycle.operational"


class Shown:
    """What the command prints of the nodes of a lab, with a fleet file if it has names."""

    def __init__(self, lab: Lab, names: tuple[str, ...] = ()) -> None:
        self._lab = lab
        self._fleet = lab.directory / "fleet.toml"
        self._target = (str(self._fleet),) if names else ("--domain", str(lab.domain))
        nodes = (f'[[node]]\nname = "{name}"\nfile = "{name}/ospl.xml"\n' for name in names)
        self._fleet.write_text("".join(nodes), encoding="utf-8")

    def _command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "ospltool.cli.app", "show", *words, *self._target]

    @property
    def _environ(self) -> dict[str, str]:
        return {**self._lab.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80"}

    def _data(self, *words: str, codes: tuple[int, ...] = (0,)) -> Any:
        done = subprocess.run(
            self._command(*words, "--format", "json"),
            env=self._environ, capture_output=True, text=True, timeout=90, check=False,
        )  # fmt: skip
        assert done.returncode in codes, (done.stdout, done.stderr)
        return json.loads(done.stdout)["data"]

    def rows(self, what: str, *words: str, codes: tuple[int, ...] = (0,)) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._data(what, *words, codes=codes)
        return found

    def text(self, *words: str, codes: tuple[int, ...]) -> str:
        """What is printed for a person, with what goes to standard error."""
        done = subprocess.run(
            self._command(*words), env=self._environ, capture_output=True, text=True, timeout=90, check=False
        )
        assert done.returncode in codes, (done.stdout, done.stderr)
        return done.stdout + done.stderr

    def everything(self, *codes: int) -> dict[str, Any]:
        """The whole page, whose verdict counts what its rows say."""
        found: dict[str, Any] = self._data(codes=codes)
        whole = [row for row in found["nodes"] if row["state"] == "COMPLETE" and not row["incomplete"]]
        assert f"{len(whole)} of {len(found['nodes'])} nodes complete" in found["text"], found
        return found

    @contextlib.contextmanager
    def waiting(self) -> Iterator[subprocess.Popen[str]]:
        """`show alignment --wait`, which has printed its first page."""
        command = self._command("alignment", "--wait", "--timeout", "80s")
        with subprocess.Popen(command, env=self._environ, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            process.stdout.readline()
            yield process


def times(lab: Lab, name: str, event: str) -> list[int]:
    """When a node did something, by its trace."""
    text = (lab.home(name) / "trace.log").read_text(encoding="utf-8")
    start = catalogue()[event].text.partition("{")[0]
    lines = (read_line(line) for line in text.splitlines() if start in line)
    found = [(line, catalogue().match(line.text)) for line in lines if line]
    return [line.time_ns or 0 for line, matched in found if matched and matched[0].id == event]


def check_master(shown: Shown, lab: Lab, name: str, followers: list[str], *codes: int) -> None:
    """One node leads, with these followers and a reason, since its trace says so."""
    (row,) = shown.rows("masters", codes=codes)
    assert (row["name_space"], row["master"], sorted(row["followers"])) == ("stock", name, followers)
    assert row["why"]
    assert abs(row["since_ns"] - times(lab, name, LEADS)[-1]) < SECOND_NS


def test_start_alignment_split_and_merge_are_shown_as_the_traces_have_them(lab: Lab) -> None:
    names = lab.start_three()
    shown = Shown(lab, names)
    check_master(shown, lab, "n1", ["n2", "n3"], 0)
    rows = {row["node"]: row for row in shown.rows("nodes")}
    assert {name: rows[name]["state"] for name in names} == dict.fromkeys(names, "COMPLETE")
    assert [rows[name]["pid"] for name in names] == [lab.pid(name) for name in names]
    assert all(10e6 < rows[name]["memory_bytes"] < 1e9 for name in names)

    lab.write({"count": SAMPLES, "time": 1_000}, readers=3)
    lab.seen.wait_for("all have it", lambda: {lab.seen.stored(name) for name in names} == {SAMPLES})
    lab.stop("n3")
    shutil.rmtree(lab.home("n3") / "store")
    with shown.waiting() as process:
        assert process.poll() is None, "an expected node is not there"
        lab.start("n3")
        assert process.wait(80) == 0
    assert len(times(lab, "n3", WORKS)) == 2, "it ended when n3 was complete, and not before"
    (space,) = shown.rows("name-spaces")
    assert (space["samples"], space["complete"], space["copies"], space["lacking"]) == (
        SAMPLES,
        "3 of 3",
        3,
        [],
    )
    told = {one["sentence"]: one["time_ns"] for one in shown.rows("events", "n3")}
    assert told["n3 became complete"] == pytest.approx(times(lab, "n3", WORKS)[-1], abs=SECOND_NS)

    lab.process("n1").send_signal(signal.SIGSTOP)
    lab.seen.wait_for("n2 leads n3", lambda: {lab.seen.master(name) for name in ("n2", "n3")} == {"n2"})
    lab.seen.wait_for("both are complete", lambda: lab.seen.are_complete("n2", "n3"))
    check_master(shown, lab, "n2", ["n3"], 2)
    states = {row["node"]: row["state"] for row in shown.rows("nodes", codes=(2,))}
    assert states == {"n1": "gone", "n2": "COMPLETE", "n3": "COMPLETE"}
    lab.process("n1").send_signal(signal.SIGCONT)
    lab.seen.wait_for("n1 leads again", lambda: {lab.seen.master(name) for name in names} == {"n1"})
    lab.seen.wait_for("all are complete", lambda: lab.seen.are_complete(*names))
    check_master(shown, lab, "n1", ["n2", "n3"], 0, 1)  # it may judge before n1 has told all of itself
    check_killed(lab)


def check_killed(lab: Lab) -> None:
    """After `kill -9` of a master one reads that, without a fleet file, and before its fellows notice it."""
    shown = Shown(lab)
    rows = shown.rows("nodes", codes=(0, 1))  # n1 has just stood still
    assert [row["fellows"] for row in rows] == ["2 of 2"] * 3
    lab.kill("n1")
    killed_ns = time.time_ns()
    check_lost(shown.everything(1, 2), killed_ns)
    lab.seen.wait_for("n2 leads n3", lambda: {lab.seen.master(name) for name in ("n2", "n3")} == {"n2"})
    after = shown.everything(2)
    check_lost(after, killed_ns)
    assert [(one["code"], one["who"]) for one in after["incidents"]] == [("DUL-NODE-GONE", "n1")]
    assert [row["master"] for row in after["masters"]] == ["n2"]
    assert [row["state"] for row in shown.rows("nodes", "n1", codes=(2,))] == ["gone"]
    assert "n1: gone" in shown.text("alignment", codes=(2,))
    assert "○ n1: gone" in shown.text("alignment", "--wait", "--timeout", "1s", codes=(1,))


def check_lost(shown: dict[str, Any], killed_ns: int) -> None:
    rows = {row["node"]: row for row in shown["nodes"]}
    assert shown["verdict"] != "ok"
    assert "2 of 3 nodes complete" in shown["text"]
    assert rows["n1"]["state"] in ("not heard yet", "silent", "gone")
    assert rows["n1"]["heard_ns"] == pytest.approx(killed_ns, abs=SECOND_NS) or rows["n1"]["state"] == "gone"
    for row in shown["masters"]:
        assert (row["master"] == "n1") == (row["presence"] not in ("", "heard"))
