"""What all commands do alike: units, exit codes, usage errors, help, and output that goes nowhere."""

from __future__ import annotations

import errno
import os
import pathlib
import re
import subprocess
import sys

import pytest

import engine
from ospltool.cli import known
from ospltool.cli.exits import CommandError, Exit
from ospltool.cli.units import duration_s
from tests.commands.shell import Shell


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
