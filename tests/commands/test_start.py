"""start, with a stand-in for the node (fake_node.py)."""

from __future__ import annotations

import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time

import pytest

from engine.supervisor.node_status import status_of
from engine.supervisor.rundir import RunDirectory
from ospltool.cli import targets
from tests.commands.shell import CONFIGURATION, Shell


def test_a_node_lives_from_start_to_stop(shell: Shell) -> None:
    path = shell.write("harbour")
    code, out, err = shell.run("start", path)
    assert (code, out) == (0, "")
    assert 'ospltool system with domain name "harbour" is ' in err

    shell.wait_until("is operational", path)
    (node,) = shell.data("status", path)
    assert (node["domain_name"], node["domain_id"], node["role"]) == ("harbour", 11, "configured")
    assert shell.run("status", path)[:2] == (0, 'ospltool system with domain name "harbour" is operational\n')

    code, out, err = shell.run("stop", path)
    assert (code, out) == (0, "")
    assert err == f"ospltool: harbour ({path}) stopped\n"
    assert (shell.root / "ended").read_text() == "in order"
    assert shell.run("status", path)[0] == 1
    path = shell.write("b&#10;ospltool: c", file="b.xml")
    assert 'name "b\\nospltool: c" is ' in shell.run("start", path)[2], "no line of its own"
    assert shell.run("stop", path)[0] == 0


def test_ctrl_c_says_what_goes_on_and_what_was_not_started(shell: Shell) -> None:
    shell.write("a")
    shell.write("b")
    nodes = "".join(f'[[node]]\nname = "{name}"\nfile = "{name}.xml"\n' for name in ("a", "b"))
    (shell.root / "fleet.toml").write_text(nodes)
    shell.use("slow")

    def interrupt() -> None:
        while not any(directory.record() for directory in RunDirectory(shell.runs).nodes()):
            time.sleep(0.01)  # the supervisor is another process
        signal.raise_signal(signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    code, _, err = shell.run("start", "fleet.toml")
    thread.join()
    assert code == 130
    assert "a (a) is still starting in the background; `ospltool status a` shows how it is" in err
    assert "interrupted; not started: b\n" in err
    assert [node["domain_name"] for node in shell.data("list")] == ["a"]


def test_the_role_can_be_replaced(shell: Shell) -> None:
    path = shell.write()
    (node,) = shell.data("start", path, "--role", "other")
    assert node["role"] == "other"


@pytest.mark.parametrize(
    ("first", "second"),
    [("a.xml", "a.xml"), ("a.xml", "fleet.toml"), ("fleet.toml", "a.xml"), ("a.xml", "named.toml")],
)
@pytest.mark.parametrize("has_store", [False, True])
def test_a_second_start_is_recoverable(shell: Shell, first: str, second: str, has_store: bool) -> None:
    path = shell.write()
    if has_store:
        keep = f"<Persistent><StoreDirectory>{shell.root}/store</StoreDirectory></Persistent>"
        path.write_text(re.sub("(<DurabilityService[^>/]*>)", rf"\1{keep}", path.read_text()))
    for fleet, name in (("fleet", "a"), ("named", "harbour")):
        (shell.root / f"{fleet}.toml").write_text(f'[[node]]\nname = "{name}"\nfile = "a.xml"\n')
    assert shell.run("start", first)[0] == 0
    if "named.toml" in (first, second) and not has_store:
        return  # another node, which has nothing but its file in common with the first
    code, _, err = shell.run("start", second)
    assert (code, "already running" in err) == (1, True)
    assert shell.run("start", "--foreground", second)[0] == 1
    assert len(shell.data("list", "--all")) == 1
    assert shell.run("status", path)[0] == 0


@pytest.mark.parametrize(("mode", "expected"), [("crash", 1), ("bad-configuration", 2)])
def test_a_node_that_fails_makes_the_start_fail(shell: Shell, mode: str, expected: int) -> None:
    path = shell.write()
    shell.use(mode)
    code, _, err = shell.run("start", path)
    assert code == expected
    assert (
        "has died: the node ended unexpectedly" if mode == "crash" else "has died: the node cannot run"
    ) in err
    assert ("  about to crash\n" in err) == (mode == "crash")

    code, out, _ = shell.run("status", path)
    assert code == 1
    assert out.startswith('ospltool system with domain name "a" has died')
    assert "died" in shell.run("list")[1]

    shell.use("run")
    assert shell.run("start", path)[0] == 0


def test_a_start_has_its_time(shell: Shell) -> None:
    path = shell.write("b&#10;ospltool: c")
    shell.use("slow")
    code, _, err = shell.run("start", path, "--timeout", "600ms")
    assert code == 1
    assert "is still starting" in err
    assert len(err.splitlines()) == 1, "a name begins no line of its own"
    shell.wait_until("is starting", path)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("<OpenSplice>", "a.xml:1:13: "),
        ("<Wrong/>", "a.xml:1:2: "),
        (CONFIGURATION.format(name="a", action="perhaps", terminate=5), "a.xml:10:22: "),
    ],
)
def test_a_wrong_configuration_is_shown_with_its_place(shell: Shell, text: str, place: str) -> None:
    path = shell.root / "a.xml"
    path.write_text(text)
    for command in ("start", "info"):
        code, out, err = shell.run(command, path)
        assert (code, out) == (2, "")
        assert place in err
        assert "Traceback" not in err


def test_every_problem_of_a_configuration_is_shown(shell: Shell) -> None:
    text = CONFIGURATION.format(name="a", action="perhaps", terminate=999)
    (shell.root / "a.xml").write_text(text)
    _, _, err = shell.run("start", "a.xml")
    assert "a.xml:7:" in err
    assert "a.xml:10:" in err


def test_a_file_that_is_not_there_is_an_error_not_a_traceback(shell: Shell) -> None:
    for given in ("/no/such.xml", "http://host/a.xml", "missing.toml"):
        code, _, err = shell.run("start", given)
        assert code == 2
        assert given.rpartition("/")[2] in err
        assert "Traceback" not in err


def test_without_a_configuration_the_default_one_is_started(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OSPLTOOL_DOMAIN", "161")
    code, _, err = shell.run("start")
    assert (code, f"of domain 161, store {shell.root}/state/ospltool/store; " in err) == (0, True)
    assert [one["configuration"] for one in shell.data("list")] == [targets.DEFAULT]
    assert shell.run("stop")[0] == 0
    assert shell.run("start", "--show-config")[1] == pathlib.Path(targets.DEFAULT).read_text()


def test_one_node_of_a_fleet_can_be_chosen(shell: Shell) -> None:
    (shell.root / "fleet.toml").write_text(
        "".join(f'[[node]]\nname = "{name}"\nfile = "{shell.write(name).name}"\n' for name in "ab")
    )
    assert [node["domain_name"] for node in shell.data("start", "fleet.toml", "--node", "b")] == ["b"]
    code, _, err = shell.run("start", "fleet.toml", "--node", "c")
    assert code == 2
    assert "it has a, b" in err
    assert shell.run("start", "a.xml", "--node", "a")[0] == 2
    assert shell.run("start", "-f", "fleet.toml")[0] == 2


def test_the_record_of_a_node_is_complete(shell: Shell) -> None:
    path = shell.write("n", terminate=3)
    shell.run("start", path)
    (directory,) = RunDirectory(shell.runs).nodes()
    status = status_of(directory)
    assert status is not None
    assert (status.record.uri, status.record.configuration) == (str(path), str(path))
    assert status.record.terminate_period_s == 3


def test_a_node_whose_supervisor_died_must_end_before_it_starts_again(shell: Shell) -> None:
    path = shell.write()
    shell.use("orphan")
    shell.run("start", path)
    (directory,) = RunDirectory(shell.runs).nodes()
    record = directory.record()
    assert record is not None
    record.supervisor.send(signal.SIGKILL)
    assert record.supervisor.wait(20)

    code, _, err = shell.run("start", path)
    assert code == 1
    assert "the node is ending" in err
    assert shell.run("stop", path)[0] == 0
    shell.use("run")
    assert shell.run("start", path)[0] == 0


def test_a_run_directory_without_room_is_recoverable(shell: Shell) -> None:
    path = shell.write()
    shell.runs.mkdir(mode=0o700)
    (shell.runs / targets.one_target(str(path), os.environ).key).write_text("in the way")
    for arguments in (("start", path), ("start", "-f", path)):
        code, _, err = shell.run(*arguments)
        assert code == 1
        assert "Traceback" not in err
        assert "File exists" in err


def test_a_restart_keeps_directory_role_and_place_in_the_fleet(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = shell.write()
    fleet = shell.root / "fleet.toml"
    fleet.write_text('[[node]]\nname = "n1"\nfile = "a.xml"\n[[node]]\nname = "n2"\nfile = "a.xml"\n')
    keep = "<Persistent><StoreDirectory>store</StoreDirectory></Persistent>"
    path.write_text(re.sub("(<DurabilityService[^>/]*>)", rf"\1{keep}", path.read_text()))
    shell.run("start", fleet.name, "--node", "n2", "--role", "other")
    (before,) = shell.data("list")
    (shell.root / "elsewhere").mkdir()
    monkeypatch.chdir(shell.root / "elsewhere")

    good = path.read_text()
    path.write_text("<OpenSplice>")
    code, _, err = shell.run("restart", "a")
    assert (code, f"{path}:1:" in err) == (2, True)
    assert shell.data("list") == [before], "a wrong configuration stops nothing"

    path.write_text(good)
    for given in (["a"], [str(fleet), "--node", "n2"], [str(path)]):
        (after,) = shell.data("restart", *given)
        same = ("domain_name", "role", "store", "directory", "condition")
        assert [after[name] for name in same] == [before[name] for name in same]
        assert after["supervisor_pid"] != before["supervisor_pid"]
    assert len(shell.data("list", "--all")) == 1
    assert shell.run("restart", "a")[0] == 0, "one that has ended is started"
    for given in (["b"], [str(fleet), "--node", "n1"], []):
        code, _, err = shell.run("restart", *given)
        assert (code, "is known here" in err) == (2, True)

    assert shell.run("stop", "a")[0] == 0
    other = shell.root / "b.xml"
    other.write_text(good.replace("store", "store-b"))
    assert shell.run("start", other)[0] == 0
    (after,) = shell.data("restart", "a")
    assert after["configuration"] == str(other), "the one that runs is meant, not an older one of its name"


REPORT = """{rule}
Report      : ERROR
Date        : 2026-11-21T01:03:20+0000
Description : {text}
Node        : host
Process     : ospltool <1>
Thread      : main 1
Internals   : 0///DurabilityService/x/0/1795223000.000000000/0
"""


def test_logs_are_shown_wherever_they_lie_also_those_that_come_later(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = shell.write()
    assert shell.run("logs") == (1, "", "ospltool: no node is known here\n")
    assert shell.run("logs", "b")[0] == 2
    monkeypatch.setenv("OSPL_LOGPATH", "logs")
    shell.run("start", path)
    monkeypatch.setenv("OSPL_LOGPATH", "elsewhere")
    assert shell.run("logs", "a") == (1, "", "ospltool: a: no log was written yet\n")

    command = (sys.executable, "-m", "ospltool.cli.app", "logs", "a", "--follow")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        (shell.root / "logs").mkdir()
        (shell.root / "logs" / "ospl-error.log").write_text(REPORT.format(rule="=" * 88, text="no \x07 room"))
        line = following.stdout.readline()
        following.send_signal(signal.SIGINT)
        _, said = following.communicate()  # while it is open: a closed one ends the command with SIGPIPE
        assert line.endswith("no \\x07 room\n")
        assert said
    assert following.returncode == 130
    code, out, _ = shell.run("logs", path, "--level", "ERROR", "--grep", "room")
    assert (code, out.count("no \\x07 room")) == (0, 1)
    assert shell.run("logs", "a", "--grep", "other")[:2] == (0, "")
