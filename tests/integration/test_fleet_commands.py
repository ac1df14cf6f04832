"""The commands, with nodes that hold data. What the commands print is tested with the commands."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.configurations import Settings
from tests.integration.lab import Lab
from tests.integration.programs import ROOT

pytestmark = pytest.mark.dds


class Commands:
    """`ospltool` on a fleet of three."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self.names = lab.configure_three(Settings(failure_action="restart"))
        self.fleet = lab.directory / "fleet.toml"
        self.fleet.write_text(
            "\n".join(f'[[node]]\nname = "{name}"\nfile = "{name}/ospl.xml"' for name in self.names)
        )

    def run(self, *arguments: str) -> tuple[int, Any]:
        done = subprocess.run(
            [sys.executable, "-m", "ospltool.cli.app", *arguments, "--json"],
            cwd=ROOT,
            env=self._lab.environ,
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
        )
        return done.returncode, json.loads(done.stdout)["data"] if done.stdout else done.stderr

    def nodes(self) -> dict[str, dict[str, Any]]:
        _, nodes = self.run("list", "--all")
        return {node["domain_name"]: node for node in nodes}


@pytest.fixture
def commands(lab: Lab) -> Iterator[Commands]:
    made = Commands(lab)
    yield made
    made.run("stop", "--all", "--timeout", "20s")


def test_a_fleet_is_started_watched_restarted_and_stopped_without_losing_anything(
    lab: Lab, commands: Commands
) -> None:
    names = commands.names
    assert commands.run("start", str(commands.fleet))[0] == 0
    lab.seen.wait_for("all complete", lambda: lab.seen.are_complete(*names))
    lab.write({"count": 100, "time": 1_000})
    lab.seen.wait_for("it is stored", lambda: all(lab.seen.stored(name) == 100 for name in names))
    before = commands.nodes()
    assert {node["condition"] for node in before.values()} == {"operational"}
    assert {commands.run("status", str(lab.home(name) / "ospl.xml"))[0] for name in names} == {0}

    os.kill(before["n3"]["node_pid"], signal.SIGKILL)

    def is_back() -> bool:
        shown = lab.seen.node("n3")
        return shown is not None and shown.pid != before["n3"]["node_pid"] and lab.seen.are_complete(*names)

    lab.seen.wait_for("n3 is restarted and equal to the others", is_back)
    lab.write({"first": 100, "count": 100, "time": 2_000})
    lab.seen.wait_for("it is stored", lambda: all(lab.seen.stored(name) == 200 for name in names))
    after = commands.nodes()
    assert {name: node["restarts"] for name, node in after.items()} == {"n1": 0, "n2": 0, "n3": 1}

    assert commands.run("stop", str(commands.fleet))[0] == 0
    assert {node["condition"] for node in commands.nodes().values()} == {"stopped"}
    for name in names:
        assert sum(map(len, lab.on_disk(name).values())) == 200
