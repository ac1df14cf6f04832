"""stop, with a stand-in for the node (fake_node.py)."""

from __future__ import annotations

from tests.commands.shell import Shell


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


def test_a_fleet_never_stops_nodes_of_the_same_names_from_other_files(shell: Shell) -> None:
    """A copy of a fleet that was never started, beside the one that runs."""
    path = shell.write("n")
    assert shell.run("start", path)[0] == 0
    copy = shell.root / "copy"
    copy.mkdir()
    (copy / path.name).write_text(path.read_text())
    fleet = copy / "fleet.toml"
    fleet.write_text(f'[[node]]\nname = "n"\nfile = "{path.name}"\n')
    assert shell.run("stop", fleet)[0] == 2
    assert shell.run("status", path)[0] == 0
    assert shell.run("stop", path)[0] == 0


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
