"""init: files that pass the check, and that never take the place of others."""

from __future__ import annotations

import os
import pathlib
import pty
import subprocess
import sys
import tomllib

import pytest

from tests.commands.shell import Shell

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _lasting(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store below /tmp would be a finding."""
    monkeypatch.setenv("XDG_STATE_HOME", "/var/lib/nobody")


@pytest.mark.parametrize(
    ("words", "files"),
    [
        (["--node", "n1"], ["n1.xml"]),
        (["--node", "n1", "--node", "n2", "--domain", "7"], ["n1.xml", "n2.xml", "fleet.toml"]),
        (["new/place", "--node", "n", "--partition", "ship*", "--partition", "<&>"], ["new/place/n.xml"]),
    ],
)
def test_what_is_written_passes_the_check_and_starts(
    shell: Shell, words: list[str], files: list[str]
) -> None:
    assert shell.data("init", *words) == {"files": files}
    code, out, err = shell.run("check", files[-1])
    assert (code, out) == (0, ""), err
    started = shell.data("start", files[-1])
    assert [f"{one['domain_name']}.xml" for one in started] == [
        pathlib.Path(file).name for file in files if file.endswith(".xml")
    ]
    assert {one["domain_id"] for one in started} == {7 if "7" in words else 0}
    if "<&>" in words:
        assert "<Partition>&lt;&amp;&gt;</Partition>" in (shell.root / files[0]).read_text()
    before = {file: (shell.root / file).read_text() for file in files}
    if len(files) > 1:
        (shell.root / "n1.xml").unlink()
        assert len(tomllib.loads(before["fleet.toml"])["node"]) == 2
    code, _, err = shell.run("init", *words)
    assert (code, "the file exists, and is not overwritten" in err) == (2, True)
    left = {file: (shell.root / file).read_text() for file in files if (shell.root / file).exists()}
    assert left.items() <= before.items()
    assert len(left) == len(files) - (len(files) > 1), "all or nothing is written"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--node", "../n1"], "cannot name a node"),
        (["--node", "n\x1b"], "cannot name a node"),
        (["--node", "n1", "--node", "N1"], "two nodes are named"),
        (["--partition", "${HOME}"], "cannot be a partition"),
        (["--partition", ""], "cannot be a partition"),
        (["/dev/null"], "/dev/null: File exists"),
    ],
)
def test_what_cannot_be_written_is_refused(shell: Shell, words: list[str], said: str) -> None:
    code, _, err = shell.run("init", *words)
    assert (code, said in err, "\x1b" in err) == (2, True, False), err
    assert not list(shell.root.glob("*.xml"))


def test_a_terminal_is_asked_until_the_answers_are_good(shell: Shell) -> None:
    ours, theirs = pty.openpty()
    os.write(ours, b"n1, n 2\nn1, n2\nseven\n7\n\n")
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "ospltool.cli.app", "init"]
    subprocess.run(command, stdin=theirs, stderr=theirs, env=environ, check=True, timeout=60)
    os.close(theirs)
    said = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert said.count("Names of the nodes [") == 2
    assert "'n 2' cannot name a node" in said
    assert "'seven' is not a domain: write a number from 0 to 230" in said
    assert said.count("Partitions to keep") == 1
    assert sorted(path.name for path in shell.root.glob("n*.xml")) == ["n1.xml", "n2.xml"]
    assert "<Id>7</Id>" in (shell.root / "n2.xml").read_text()
