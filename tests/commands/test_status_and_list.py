"""status and list: which nodes there are, and how one is named; the node is a stand-in (fake_node.py)."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from engine.supervisor.node_status import NodeStatus
from engine.supervisor.rundir import location
from ospltool.cli.app import main
from tests.commands.shell import Shell


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


def test_nodes_of_one_name_are_told_apart_by_their_configurations(shell: Shell) -> None:
    first = shell.write("n")
    second = first.with_name("other.xml")
    second.write_bytes(first.read_bytes())
    shell.run("start", first)
    assert shell.run("stop", first)[0] == 0
    shell.run("start", second)
    shell.wait_until("is operational", second)
    code, out, _ = shell.run("status", "n")
    assert code == 1
    assert f'{first}: ospltool system with domain name "n" is not running' in out
    assert f'{second}: ospltool system with domain name "n" is operational\n' in out
    assert shell.run("stop", second)[0] == 0


def test_a_node_that_ends_while_its_status_is_made_is_not_shown_as_it_was(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its sentence was of before two seconds of listening, and what it tells of itself of after them."""
    path = shell.write("n")
    shell.run("start", path)
    shell.wait_until("is operational", path)

    def listened(_: NodeStatus, look: Callable[[], list[NodeStatus]]) -> tuple[list[NodeStatus], str]:
        assert main(["stop", str(path)]) == 0
        return look(), ""

    monkeypatch.setattr("ospltool.cli.show.node_text", listened)
    code, out, _ = shell.run("status", path)
    assert (code, out) == (1, 'ospltool system with domain name "n" is not running: stopped by SIGTERM\n')


STORE = "<Persistent><StoreDirectory>/tmp/of-n</StoreDirectory></Persistent></DurabilityService>"


def test_a_node_that_died_is_listed_although_another_one_has_its_store(shell: Shell) -> None:
    """Two configurations name one store by mistake: the second node does not start, and must not vanish."""
    for name in ("n", "m"):
        path = shell.write(name)
        path.write_text(path.read_text().replace("</DurabilityService>", STORE))
        assert shell.run("start", path)[0] == 0
        shell.wait_until("is operational", path)
    dead = next(one for one in shell.data("list") if one["domain_name"] == "m")
    for pid in (dead["supervisor_pid"], dead["node_pid"]):
        os.kill(pid, signal.SIGKILL)
    shell.wait_until("has died", path)
    assert {one["domain_name"]: one["condition"] for one in shell.data("list")} == {
        "m": "died",
        "n": "operational",
    }
    assert shell.run("stop", "n")[0] == 0


def test_a_node_that_died_is_forgotten_once_it_runs_again(shell: Shell) -> None:
    path = shell.write("n")
    path.write_text(path.read_text().replace("</DurabilityService>", STORE))
    fleet = shell.root / "fleet.toml"
    fleet.write_text(f'[[node]]\nname = "n"\nfile = "{path.name}"\n')
    assert shell.run("start", fleet)[0] == 0
    shell.wait_until("is operational", path)
    (node,) = shell.data("list")
    for pid in (node["supervisor_pid"], node["node_pid"]):
        os.kill(pid, signal.SIGKILL)
    shell.wait_until("has died", fleet)

    assert shell.run("start", path)[0] == 0
    shell.wait_until("is operational", path)
    for given in (path, fleet, "n"):
        assert shell.run("status", given)[:2] == (0, 'ospltool system with domain name "n" is operational\n')
    assert [one["condition"] for one in shell.data("list")] == ["operational"]
    assert shell.run("stop", fleet)[0] == 0


@pytest.mark.parametrize("has_file", [True, False])
def test_a_node_of_the_fleet_that_was_never_started_here_has_a_line(shell: Shell, has_file: bool) -> None:
    """It may have another host, whose files are not here, so the exit code is that of the others."""
    path = shell.write("n")
    fleet = shell.root / "fleet.toml"
    other = shell.write("m").name if has_file else "on-its-host.xml"
    fleet.write_text(f'[[node]]\nname = "n"\nfile = "{path.name}"\n[[node]]\nname = "m"\nfile = "{other}"\n')
    line = (
        'ospltool system with domain name "m" is not among the nodes that this user started here; '
        "if it has another host, ask there"
    )
    line += f", or run `ospltool health {fleet}`" if has_file else ""  # it would be refused
    assert line + "\n" in shell.run("status", fleet)[1]
    assert shell.run("start", path)[0] == 0
    shell.wait_until("is operational", path)
    code, out, _ = shell.run("status", fleet)
    assert (code, out.splitlines()) == (0, ['ospltool system with domain name "n" is operational', line])
    assert shell.run("stop", path)[0] == 0


def test_nothing_is_printed_for_a_node_that_is_not_known(shell: Shell) -> None:
    path = shell.write()
    assert shell.run("status", path)[:2] == (1, "")
    assert shell.run("status")[:2] == (1, "")
    assert shell.run("list")[:2] == (
        0,
        "DOMAIN NAME  CONDITION  STATE  ROLE  PID  CONFIGURATION  DOMAIN  STATUS\n",
    )
    assert shell.data("list") == []
    assert shell.run("stop", path)[0] == 2


def test_control_characters_of_a_configuration_do_not_reach_the_terminal(shell: Shell) -> None:
    path = shell.write("evil&#155;2J")
    shell.run("start", path)
    for arguments in (("status",), ("list",), ("info", path), ("stop", path)):
        code, out, err = shell.run(*arguments)
        assert code == 0
        assert "\x9b" not in out + err
        assert "\\x9b2J" in out + err


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
