"""start, stop, status, list, env and info, with a stand-in for the node (fake_node.py)."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

import engine
from engine.supervisor.rundir import RunDirectory, RunDirectoryError, location
from engine.supervisor.status import status_of
from ospltool.cli import app, known, targets
from ospltool.cli.exits import CommandError, Exit
from ospltool.cli.units import duration_s
from ospltool.live.recording import Caption, encode_line

if TYPE_CHECKING:
    from collections.abc import Iterator

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
        monkeypatch.delenv("OSPL_URI", raising=False)
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


@pytest.fixture
def shell(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Shell]:
    made = Shell(tmp_path, monkeypatch, capfd)
    yield made
    made.clean_up()


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


def test_a_uri_a_link_a_name_and_the_environment_mean_the_same_node(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = shell.write("n")
    link = shell.root / "link.xml"
    link.symlink_to(path)
    assert shell.run("start", f"file://{path}")[0] == 0
    shell.wait_until("is operational", path)
    for given in (path, link, "n.xml", f"file://{path}", "n"):
        assert shell.run("status", given)[:2] == (0, 'ospltool system with domain name "n" is operational\n')
    monkeypatch.setenv("OSPL_URI", f"file://{path}")
    assert shell.run("status")[1] == 'ospltool system with domain name "n" is operational\n'
    assert shell.run("stop")[0] == 0


def test_the_role_can_be_replaced(shell: Shell) -> None:
    path = shell.write()
    (node,) = shell.data("start", path, "--role", "other")
    assert node["role"] == "other"


def test_a_second_start_is_recoverable(shell: Shell) -> None:
    path = shell.write()
    shell.run("start", path)
    code, _, err = shell.run("start", path)
    assert code == 1
    assert "already running" in err
    assert shell.run("status", path)[0] == 0


@pytest.mark.parametrize(("mode", "expected"), [("crash", 1), ("bad-configuration", 2)])
def test_a_node_that_fails_makes_the_start_fail(shell: Shell, mode: str, expected: int) -> None:
    path = shell.write()
    shell.use(mode)
    code, _, err = shell.run("start", path)
    assert code == expected
    assert "has died: the node ended unexpectedly" in err
    if mode == "crash":
        assert "  about to crash\n" in err

    code, out, _ = shell.run("status", path)
    assert code == 1
    assert out.startswith('ospltool system with domain name "a" has died')
    assert "died" in shell.run("list")[1]

    shell.use("run")
    assert shell.run("start", path)[0] == 0


def test_a_start_has_its_time(shell: Shell) -> None:
    path = shell.write()
    shell.use("slow")
    code, _, err = shell.run("start", path, "--timeout", "600ms")
    assert code == 1
    assert "does not run yet" in err
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


def test_without_a_configuration_a_command_says_how_to_give_one(shell: Shell) -> None:
    code, _, err = shell.run("start")
    assert code == 2
    assert "OSPL_URI" in err
    assert shell.run("stop")[0] == 2


def test_control_characters_of_a_configuration_do_not_reach_the_terminal(shell: Shell) -> None:
    path = shell.write("evil&#155;2J")
    shell.run("start", path)
    for arguments in (("status",), ("list",), ("info", path), ("stop", path)):
        code, out, err = shell.run(*arguments)
        assert code == 0
        assert "\x9b" not in out + err
        assert "\\x9b2J" in out + err


def test_nothing_is_printed_for_a_node_that_is_not_known(shell: Shell) -> None:
    path = shell.write()
    assert shell.run("status", path)[:2] == (1, "")
    assert shell.run("status")[:2] == (1, "")
    assert shell.run("list")[:2] == (0, "DOMAIN NAME  CONDITION  STATE  ROLE  PID  CONFIGURATION\n")
    assert shell.data("list") == []
    assert shell.run("stop", path)[0] == 2


def test_a_fleet_is_started_and_stopped_as_one(shell: Shell) -> None:
    shared = shell.write("shared")
    (shell.root / "fleet.toml").write_text(
        f'[[node]]\nname = "one"\nfile = "{shared.name}"\n'
        f'[[node]]\nname = "two"\nfile = "{shared.name}"\nrole = "second"\nenv = {{ DOMAIN_ID = "12" }}\n'
    )
    assert [node["domain_id"] for node in shell.data("start", "fleet.toml")] == [11, 12]
    assert {node["role"] for node in shell.data("status", "fleet.toml")} == {"configured", "second"}

    code, _, err = shell.run("stop", "shared")
    assert code == 2
    assert "several nodes" in err
    assert shell.run("stop", "fleet.toml")[0] == 0
    assert shell.data("list") == []
    assert len(shell.data("list", "--all")) == 2


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


def test_all_nodes_are_stopped_side_by_side(shell: Shell) -> None:
    shell.use("takes-time")
    for name in "abc":
        shell.run("start", shell.write(name))
    assert {each["outcome"] for each in shell.data("stop", "--all")} == {"stopped"}
    assert shell.run("stop", "--all") == (0, "", "")


def test_a_stop_that_takes_too_long_is_recoverable(shell: Shell) -> None:
    shell.use("stubborn")
    path = shell.write(terminate=1)
    shell.run("start", path)
    code, _, err = shell.run("stop", path, "--timeout", "0s")
    assert code == 1
    assert "still stopping" in err
    assert shell.run("stop", path)[0] == 0


def test_a_node_is_found_when_its_file_is_gone(shell: Shell) -> None:
    path = shell.write()
    shell.run("start", path)
    path.unlink()
    assert shell.run("status", path)[0] == 0
    assert shell.run("stop", path)[0] == 0


def test_a_run_directory_that_others_can_enter_is_refused(shell: Shell) -> None:
    shell.runs.mkdir()
    shell.runs.chmod(0o755)
    code, _, err = shell.run("list")
    assert code == 2
    assert "others may enter it" in err
    shell.runs.rmdir()
    shell.runs.symlink_to(shell.root)
    assert shell.run("list")[0] == 2


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"OSPLTOOL_RUNDIR": "/r", "XDG_RUNTIME_DIR": "/x"}, "/r"),
        ({"XDG_RUNTIME_DIR": "/x"}, "/x/ospltool"),
        ({}, f"/tmp/ospltool-{os.geteuid()}"),
    ],
)
def test_the_run_directory_follows_the_environment(environ: dict[str, str], expected: str) -> None:
    assert str(location(environ)) == expected


def test_env_shows_values_and_where_they_come_from(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OSPL_LOGPATH", "/var/log\x1b")
    path = shell.write()

    def row(variable: str) -> dict[str, str]:
        return next(each for each in shell.data("env", path) if each["variable"] == variable)

    assert row("OSPL_LOGPATH")["origin"] == "environment"
    assert row("OSPL_INFOFILE")["value"] == "ospl-info.log"
    assert row("DOMAIN_ID")["origin"] == f"{path}:4:9, ${{DOMAIN_ID:-11}}"
    assert row("DOMAIN_ID")["value"] == "11"
    monkeypatch.setenv("DOMAIN_ID", "5")
    assert (row("DOMAIN_ID")["origin"], row("DOMAIN_ID")["value"]) == ("environment", "5")

    code, out, _ = shell.run("env", path)
    assert code == 0
    assert "/var/log\\x1b" in out
    assert shell.run("env", "/no/such.xml")[0] == 2


def test_info_shows_versions_and_every_setting_with_its_origin(shell: Shell) -> None:
    path = shell.write()
    data = shell.data("info", path, "--role", "other")
    assert data["versions"]["typer"]
    assert data["configuration"]["role"] == "other"
    origins = {each["path"]: each["origin"] for each in data["configuration"]["settings"]}
    assert origins["//OpenSplice/Domain/Name"].startswith(f"{path}:3:")
    assert origins["//OpenSplice/Domain/ServiceTerminatePeriod"].startswith(f"{path}:7:")
    assert "default" in origins.values()
    code, out, _ = shell.run("info", path)
    assert code == 0
    assert "//OpenSplice/Domain/Name" in out
    assert "configuration" not in shell.data("info")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("500ms", 0.5), ("2s", 2), ("5m", 300), ("1.5h", 5400), ("7", 7), ("1d", 86400), (" 20 ns ", 2e-8)],
)
def test_durations_have_units(text: str, expected: float) -> None:
    assert duration_s(text) == pytest.approx(expected)


@pytest.mark.parametrize("text", ["", "5x", "-1s", "1e3", "five", "1s2", "٣s "])
def test_other_durations_are_refused_as_usage(shell: Shell, text: str) -> None:
    code, _, err = shell.run("stop", "--all", "--timeout", text)
    if text == "٣s ":
        assert code == 0  # a digit is a digit
    else:
        assert code == 2
        assert "is no duration" in err or "No such option" in err


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (CommandError("no\x1b way", Exit.UNREACHABLE), 3),
        (KeyboardInterrupt(), 130),
        (RuntimeError("ours"), 70),
        (SystemExit(3), 3),
    ],
)
def test_every_end_has_its_exit_code(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, raised: BaseException, expected: int
) -> None:
    def fail(_: object) -> None:
        raise raised

    monkeypatch.setattr(known, "known_nodes", fail)
    code, out, err = shell.run("list")
    assert (code, out) == (expected, "")
    assert "\x1b" not in err
    assert ("fault of ospltool" in err) == (expected == 70)


def test_usage_errors_have_code_2_and_go_to_standard_error(shell: Shell) -> None:
    for arguments in (["bogus"], ["list", "--bogus"], ["--bogus"]):
        code, out, err = shell.run(*arguments)
        assert (code, out) == (2, "")
        assert "Try 'ospltool" in err


def test_no_arguments_show_the_help(shell: Shell) -> None:
    assert shell.run() == shell.run("--help") == shell.run("-h")
    code, out, _ = shell.run()
    assert code == 0
    assert re.search(r"\bstatus +Show how a node is\.", out)


def test_a_reader_that_goes_away_is_no_error_of_ours(shell: Shell) -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "ospltool.cli.app", "env"],
            stdout=write,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(pathlib.Path(engine.__path__[0]).parent)},
            check=False,
        )
    finally:
        os.close(write)
    assert (ended.returncode, ended.stderr) == (141, b"")


def test_a_full_disk_for_the_output_is_an_error(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("ospltool.output.streams.put", fail)
    code, _, err = shell.run("env")
    assert code == 70
    assert "No space left" in err


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


def test_the_console_needs_a_terminal(shell: Shell) -> None:
    code, out, err = shell.run("top")
    assert (code, out) == (2, "")
    assert "needs a terminal" in err


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ospltool.cli.top.has_terminal", lambda: True)


@pytest.mark.usefixtures("terminal")
def test_the_console_plays_recordings_and_refuses_other_files(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[Any] = []

    def show(feed: Any, **options: Any) -> int:
        shown.append((feed.title, feed.mode, options))
        feed.close()
        return 0

    monkeypatch.setattr("tui.app.run_console", show)
    item = Caption("began")
    (shell.root / "night.jsonl").write_bytes(encode_line(1, item))
    assert shell.run("top", "--replay", "night.jsonl", "--ascii", "--theme", "ops-mono")[0] == 0
    options = {
        "title": "ospltool",
        "theme": "ops-mono",
        "ascii_only": True,
        "traces": (),
        "operator": None,
    }
    assert shown == [("recording night.jsonl", "recorded", options)]

    (shell.root / "other.txt").write_text("no recording")
    for name in ("other.txt", "missing.jsonl"):
        code, _, err = shell.run("top", "--replay", name)
        assert code == 2
        assert name in err
        assert "Traceback" not in err


@pytest.mark.dds
@pytest.mark.usefixtures("terminal")
def test_the_console_watches_the_domain_of_a_configuration_or_the_one_given(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    titles: list[str] = []

    def show(feed: Any, **_: Any) -> int:
        titles.append(feed.title)
        feed.close()
        return 0

    monkeypatch.setattr("tui.app.run_console", show)
    monkeypatch.setenv("DOMAIN_ID", "212")
    path = shell.write()
    assert shell.run("top", path)[0] == 0
    assert shell.run("top", path, "--domain", "213")[0] == 0
    assert titles == ["domain 212", "domain 213"]
    monkeypatch.setenv("CYCLONEDDS_URI", "<CycloneDDS><General><Wrong/></General></CycloneDDS>")
    code, _, err = shell.run("top", "--domain", "214")
    assert code == 3
    assert "domain 214 can not be opened" in err
