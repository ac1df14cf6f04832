"""Commands, run as from a shell, with a stand-in for the node (fake_node.py)."""

from __future__ import annotations

import contextlib
import json
import pathlib
import signal
import sys
import time
from typing import Any

import pytest

from engine.supervisor.rundir import RunDirectory, RunDirectoryError
from ospltool.cli import app

FAKE_NODE = str(pathlib.Path(__file__).with_name("fake_node.py"))
CONFIGURATION = """<OpenSplice>
  <Domain>
    <Name>{name}</Name>
    <Id>${{DOMAIN_ID:-11}}</Id>
    <Role>configured</Role>
    <Lease><ExpiryTime update_factor="0.2">5.0</ExpiryTime></Lease>
    <ServiceTerminatePeriod>{terminate}</ServiceTerminatePeriod>
    <Service name="durability">
      <Command>durability</Command>
      <FailureAction>{action}</FailureAction>
    </Service>
  </Domain>
  <DurabilityService name="durability">
    <Network><Alignment/><WaitForAttachment><ServiceName>ddsi2</ServiceName></WaitForAttachment></Network>
    <NameSpaces>
      <NameSpace name="all"><Partition>*</Partition></NameSpace>
      <Policy nameSpace="*" durability="Durable" aligner="True" alignee="Initial"/>
    </NameSpaces>
  </DurabilityService>
</OpenSplice>
"""


class Shell:
    """Runs commands in a directory and a run directory of its own, and cleans up what they started."""

    def __init__(
        self, root: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
    ) -> None:
        self.root = root
        self.runs = root / "run"
        self._capfd = capfd
        self._monkeypatch = monkeypatch
        monkeypatch.chdir(root)
        monkeypatch.setenv("OSPLTOOL_RUNDIR", str(self.runs))
        monkeypatch.setenv("XDG_STATE_HOME", str(root / "state"))
        monkeypatch.delenv("OSPL_URI", raising=False)
        monkeypatch.setattr("ospltool.cli.show.node_text", lambda _, look: (look(), ""))  # it tells nothing
        self.use("run")

    def use(self, mode: str) -> None:
        """Let nodes that are started from now on behave in this way."""
        self._monkeypatch.setattr(
            "ospltool.cli.start.node_command", lambda _: (sys.executable, FAKE_NODE, mode)
        )

    def write(
        self, name: str = "a", *, file: str = "", action: str = "kill", terminate: float = 5
    ) -> pathlib.Path:
        path = self.root / (file or f"{name}.xml")
        path.write_text(CONFIGURATION.format(name=name, action=action, terminate=terminate))
        return path

    def run(self, *arguments: object) -> tuple[int, str, str]:
        """Exit code, standard output and standard error of a command."""
        self._capfd.readouterr()
        code = app.main([str(each) for each in arguments])
        captured = self._capfd.readouterr()
        return code, captured.out, captured.err

    def wait_until(self, words: str, given: object) -> None:
        """Until the status of what is given is told in these words."""
        deadline = time.monotonic() + 20
        while words not in self.run("status", given)[1]:
            assert time.monotonic() < deadline
            time.sleep(0.02)  # the node, another process, goes through its states

    def data(self, *arguments: object) -> Any:
        """What a command says as JSON."""
        _, out, _ = self.run(*arguments, "--json")
        found = json.loads(out)
        assert found["format_version"] == 1
        assert found["kind"] == arguments[0]
        return found["data"]

    def clean_up(self) -> None:
        with contextlib.suppress(RunDirectoryError):
            for directory in RunDirectory(self.runs).nodes():
                record = directory.record()
                for process in (record.supervisor, record.node) if record is not None else ():
                    if process is not None:
                        process.send(signal.SIGKILL)
                        process.wait(5)
