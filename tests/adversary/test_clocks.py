"""A clock that says a time which no sample can have ends no node, before its start or while it runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.integration.configurations import Settings
from tests.integration.hanging import hooked
from tests.integration.lab import Lab

pytestmark = pytest.mark.dds

YEARS: Final = "85"
"""So far is a clock wrong: Cyclone DDS writes no time after 2106."""
BEFORE: Final = "-60"
"""Before 1970."""

_WRONG: Final = """
import os, time
right, right_ns = time.time, time.time_ns
def years():
    try:
        with open(os.path.join(os.environ["HOOKED"], "years")) as file:
            return int(file.read() or 0)
    except FileNotFoundError:
        return 0
time.time = lambda: right() + years() * 31_557_600.0
time.time_ns = lambda: right_ns() + years() * 31_557_600 * 10**9
"""
"""The wall clock is wrong by as many years as a file says, while it is there."""


def test_a_node_waits_for_a_right_clock_and_goes_on_when_it_is_wrong_again(lab: Lab, tmp_path: Path) -> None:
    hook = tmp_path / "hooked"
    hook.mkdir()
    environ, file = hooked(hook, _WRONG, "HOOKED"), hook / "years"
    file.write_text(YEARS, encoding="ascii")
    lab.configure("n1", Settings(discovery_s=0.2))
    lab.start("n1", environ=environ)
    lab.seen.wait_for("it says so", lambda: "the clock of this machine says" in lab.information("n1"))
    assert lab.trace("n1", "lifecycle.clock-wrong")
    lab.check()
    file.unlink()
    lab.seen.wait_for("it joins by itself", lambda: lab.seen.are_complete("n1"))
    file.write_text(YEARS, encoding="ascii")
    lab.write({"count": 10, "time": 1_000})
    lab.seen.wait_for("it goes on", lambda: lab.seen.stored("n1") == 10)
    reader = lab.reader()
    reader.wait(10)
    file.unlink()
    lab.write({"first": 10, "count": 10, "time": 2_000})
    lab.reader().wait(20)
    assert lab.stop("n1") == [0]
    assert "Traceback" not in lab.output("n1")
    # Nor does it end a supervisor.
    file.write_text(BEFORE, encoding="ascii")
    path = str(lab.home("n1") / "ospl.xml")
    with (lab.home("n1") / "output.log").open("ab") as output:
        supervisor = subprocess.Popen(
            [sys.executable, "-m", "ospltool.cli.app", "start", "-f", path],
            env={**lab.environ, **environ, "OSPL_LOGPATH": str(lab.home("n1"))},
            stdout=output,
            stderr=output,
        )
    try:
        lab.seen.wait_for("it says so", lambda: "this machine says 19" in lab.information("n1"))
        assert supervisor.poll() is None
        file.unlink()
        lab.seen.wait_for("it joins by itself", lambda: lab.seen.are_complete("n1"))
    finally:
        supervisor.terminate()
        code = supervisor.wait(30)
    assert code == 0
    assert "Traceback" not in lab.output("n1")
