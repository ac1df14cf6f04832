"""Forked programs are processes as others are."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys

import pytest

from tests.integration.forks import fork, is_usual
from tests.integration.network import network_of

pytestmark = pytest.mark.dds

MODULE = "tests.integration.forks_program"


def test_a_forked_program_has_its_arguments_variables_input_output_and_exit_code() -> None:
    process = fork(MODULE, ["one", "two"], {**os.environ, "OSPL_FORKED": "yes"})
    process.stdin.write("7\n")
    process.stdin.close()
    assert process.stdout.read().splitlines()[:3] == ["one two", "yes", "__main__"]
    assert process.wait(30) == 7
    process.stdout.close()


def test_a_forked_program_that_is_killed_says_by_what_and_the_next_one_is_another() -> None:
    processes = [fork(MODULE, ["x"], os.environ) for _ in range(2)]
    assert processes[0].poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        processes[0].wait(0.01)
    processes[0].kill()
    assert processes[0].wait(30) == -signal.SIGKILL
    assert processes[1].poll() is None
    processes[1].stdin.write("0\n")
    processes[1].stdin.flush()
    assert processes[1].wait(30) == 0
    assert len({os.getpid(), *(one.pid for one in processes)}) == 3
    for one in processes:
        one.stdin.close()
        one.stdout.close()


@pytest.mark.netns
def test_a_forked_program_sees_the_network_of_its_namespace_only() -> None:
    network = network_of(("a",))
    try:
        process = fork(MODULE, ["x"], os.environ, network.on("a")[-1:])
        process.stdin.write("0\n")
        process.stdin.close()
        *_, interfaces = process.stdout.read().splitlines()
        assert process.wait(30) == 0
        process.stdout.close()
    finally:
        network.close()
    there = set(json.loads(interfaces))
    assert "lo" in there
    assert there != {name for _, name in socket.if_nameindex()}


def test_variables_that_python_reads_at_its_start_are_not_for_a_fork() -> None:
    assert is_usual({**os.environ, "CYCLONEDDS_URI": "<x/>", "OSPL_LOGPATH": "/"})
    assert not is_usual({**os.environ, "PYTHONPATH": sys.prefix})
    assert not is_usual({**os.environ, "LD_PRELOAD": "x.so"})
