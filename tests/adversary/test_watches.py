"""Nothing that a stranger writes ends a watch, a recording or a command, or makes it look up a name."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from ospltool.live.recording import Recording
from tests.adversary.strangers import NO_ADDRESSES, Attacker
from tests.integration.clinic import Clinic, watched
from tests.integration.configurations import Settings
from tests.integration.hanging import hooked
from tests.integration.lab import Lab
from tests.integration.programs import ROOT

pytestmark = pytest.mark.dds

_ALONE: Final = Settings(discovery_s=0.2)
RECORDED_S: Final = 4
COPIED: Final = 200
"""Messages of a node that a stranger repeats in its own name, damaged."""
_NOTES_NAMES: Final = """
import ipaddress, os, pathlib, sys
def look(event, arguments):
    if event == "socket.connect" and isinstance(arguments[1], tuple):
        host = arguments[1][0]
    elif event in ("socket.getaddrinfo", "socket.gethostbyname"):
        host = arguments[0]
    else:
        return
    try:
        ipaddress.ip_address(host)
    except ValueError:
        with open(os.path.join(os.environ["HOOKED"], "names"), "a") as file:
            file.write(ascii(host) + chr(10))
sys.addaudithook(look)
"""
"""Notes every name that a process looks up."""


_FAILS: Final = """
from engine.dds import interfaces
def fail(links):
    raise RuntimeError("a fault of ours")
interfaces.broken_links = fail
"""


class Watches:
    """The commands that watch a domain, each a process of its own."""

    def __init__(self, lab: Lab, directory: Path, hook: str) -> None:
        self._target = ("--domain", str(lab.domain))
        self.recording = directory / "night.rec"
        state = {"XDG_STATE_HOME": str(directory / "state")}
        directory.mkdir()
        self._environ = {**lab.environ, **state, **hooked(directory, hook, "HOOKED")}
        self.names = directory / "names"
        self._started: dict[str, subprocess.Popen[str]] = {}

    def start(self, verb: str, *options: str) -> None:
        command = [sys.executable, "-m", "ospltool.cli.app", verb, *self._target, *options]
        self._started[verb] = subprocess.Popen(
            command, cwd=ROOT, env=self._environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def start_recording(self) -> None:
        self.start("record", "--for", f"{RECORDED_S}s", "--output", str(self.recording))

    def end(self, verb: str) -> tuple[int, str, str]:
        """Wait for its end; returns its exit code, and what it wrote."""
        process = self._started.pop(verb)
        out, errors = process.communicate(timeout=60)
        return process.returncode, out, errors

    def recorded_s(self) -> float:
        recording = Recording(self.recording)
        try:
            return (recording.end_ns - recording.begin_ns) / 1e9
        finally:
            recording.close()


def test_no_stranger_ends_a_watch_and_one_that_fails_by_itself_says_so(lab: Lab, tmp_path: Path) -> None:
    lab.start_complete("n1", settings=_ALONE)
    attacker = Attacker(lab)
    assert attacker.attack("false addresses") == len(NO_ADDRESSES)
    check_attacked(lab, Watches(lab, tmp_path / "attacked", _NOTES_NAMES))
    check_failed(Watches(lab, tmp_path / "failing", _FAILS))
    lab.check()


def check_attacked(lab: Lab, watches: Watches) -> None:
    """What a stranger wrote is counted, and the node is shown as it is."""
    watches.start("health", "--json")
    watches.start("top", "--json")
    watches.start("metrics")
    watches.start_recording()
    code, out, errors = watches.end("health")
    (shown,) = json.loads(out)["data"]
    assert (code, errors) == (0, "")
    assert "1 of 1 node complete" in shown["text"]
    assert [one["code"] for one in shown["incidents"]] == ["DUL-MESSAGES-LOST"]
    code, out, errors = watches.end("top")
    document = json.loads(out)["data"]
    assert (code, errors) == (0, "")
    assert [one["name"] for one in document["nodes"]] == ["n1"]
    assert document["messages_left_out"] == len(NO_ADDRESSES)
    code, out, errors = watches.end("metrics")
    assert (code, errors) == (0, "")
    assert f'ospltool_node_up{{domain="{lab.domain}",node="n1"}} 1.0' in out
    assert f'ospltool_watch_failed{{domain="{lab.domain}"}} 0.0' in out
    code, _, errors = watches.end("record")
    assert (code, "Traceback" in errors) == (0, False)
    assert f"{len(NO_ADDRESSES)} messages left out" in errors
    assert watches.recorded_s() > RECORDED_S / 2
    assert not watches.names.exists(), watches.names.read_text(encoding="utf-8")


def test_no_stranger_takes_away_what_is_told_of_nodes(lab: Lab, tmp_path: Path) -> None:
    names = ("n1", "n2")
    lab.start_complete(*names, settings=Settings(discovery_s=0.5))
    nodes = [shown.id for name in names if (shown := lab.seen.node(name))]
    attacker = Attacker(lab)
    assert attacker.attack("deletions", nodes=2) == 2  # this is refused, and told for ten minutes
    expected = {("DUL-DELETION-REFUSED", name) for name in names}
    with watched(Clinic(lab, names, bare=True)) as clinic:

        def is_told() -> bool:
            return expected <= {(one.code, one.who) for one in clinic.open}

        clinic.wait("it is told", is_told, 30.0)
        attacker.attack("hiding", nodes=nodes, event="delete.refused", count=300)
        attacker.attack("copies", victim=nodes[0], count=COPIED, seed=1, timeout_s=120)
        watches = Watches(lab, tmp_path / "fresh", "")
        watches.start("health", "--json")
        (shown,) = json.loads(watches.end("health")[1])["data"]
        assert expected <= {(one["code"], one["who"]) for one in shown["incidents"]}, (
            "a new watch knows it, too"
        )
        clinic.wait("it is still told", is_told, 10.0)
        attacker.end()
        clinic.wait("it is still told", is_told, 10.0)
    lab.check()


def check_failed(watches: Watches) -> None:
    """A fault of the watch is no loss of a node, and no success."""
    watches.start("health", "--json")
    watches.start("top", "--json")
    watches.start_recording()
    code, out, _ = watches.end("health")
    (shown,) = json.loads(out)["data"]
    assert (code, shown["verdict"], shown["incidents"]) == (70, "failed", [])
    assert "this watch has failed: RuntimeError('a fault of ours')" in shown["text"]
    code, out, errors = watches.end("top")
    assert (code, json.loads(out)["data"]["health"]["verdict"]) == (70, "failed")
    assert "a fault of ours" in errors
    code, _, errors = watches.end("record")
    assert code == 1
    assert "this watch failed" in errors
