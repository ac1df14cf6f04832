"""Forked processes are processes as others are."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.integration import forks
from tests.integration.network import network_of

pytestmark = pytest.mark.dds

PROGRAM = "tests.integration.forks_program"


class Child:
    """The program, with pipes."""

    def __init__(self, *arguments: str, prefix: Sequence[str] = (), **variables: str) -> None:
        stdin, self.to_stdin = os.pipe()
        self.from_stdout, stdout = os.pipe()
        command = [sys.executable, "-m", PROGRAM, *arguments]
        self.process = forks.begin(command, {**os.environ, **variables}, (stdin, stdout, 2), prefix)
        os.close(stdin)
        os.close(stdout)

    def said(self, code: int = 0) -> dict[str, Any]:
        """Let it end with a code; what it said of itself."""
        os.write(self.to_stdin, f"{code}\n".encode())
        os.close(self.to_stdin)
        with os.fdopen(self.from_stdout) as told:
            said: dict[str, Any] = json.load(told)
        return said


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forks, "IMPORTS", {PROGRAM: ("cyclonedds.domain",)})


def test_a_forked_program_has_its_arguments_variables_streams_and_exit_code() -> None:
    child = Child("one", "two", OSPL_LOGPATH="/there")
    assert isinstance(child.process, forks.Forked)
    assert child.process.poll() is None
    said = child.said(7)
    assert (said["arguments"], said["variable"], said["name"]) == (["one", "two"], "/there", "__main__")
    assert said["pid"] == child.process.pid
    assert said["threads"] == 1
    assert (child.process.wait(30), child.process.poll(), child.process.returncode) == (7, 7, 7)


def test_a_forked_program_that_is_killed_says_by_what_and_the_next_one_is_another() -> None:
    one, other = Child(), Child()
    with pytest.raises(subprocess.TimeoutExpired):
        one.process.wait(0.01)
    one.process.kill()
    assert one.process.wait(30) == -signal.SIGKILL
    one.process.kill()  # it has ended: nothing happens
    assert other.process.poll() is None
    assert other.said()["pid"] not in (one.process.pid, os.getpid())
    assert other.process.wait(30) == 0
    os.close(one.to_stdin)
    os.close(one.from_stdout)


@pytest.mark.parametrize(
    ("variables", "is_forked"),
    [
        ({"CYCLONEDDS_URI": "<x/>", "PYTHONPATH": str(forks.ROOT)}, True),
        ({"OSPLTOOL_DDSC": "/nowhere.so"}, False),
        ({"PYTHONPATH": f"{forks.ROOT}:{forks.ROOT}/docs"}, False),
    ],
    ids=str,
)
def test_variables_that_matter_to_imports_are_not_for_a_fork(
    variables: Mapping[str, str], *, is_forked: bool
) -> None:
    child = Child(**variables)
    assert isinstance(child.process, forks.Forked) == is_forked
    child.said()
    assert child.process.wait(30) == 0


@pytest.mark.netns
def test_a_forked_program_sees_the_network_of_its_namespace_only() -> None:
    network = network_of(("a",))
    try:
        child = Child(prefix=network.on("a"))
        assert isinstance(child.process, forks.Forked)
        there, here = set(child.said()["interfaces"]), {name for _, name in socket.if_nameindex()}
        assert child.process.wait(30) == 0
    finally:
        network.close()
    assert "e0" in there, "that of a host"
    assert here - there, "the bridge between hosts"


def test_participants_of_forks_have_guids_of_their_own() -> None:
    """What Cyclone DDS draws by chance is drawn after the fork."""
    children = [Child("participant") for _ in range(4)]
    guids = {child.said()["guid"][:16] for child in children}
    assert [child.process.wait(30) for child in children] == [0] * 4
    assert len(guids) == 4
