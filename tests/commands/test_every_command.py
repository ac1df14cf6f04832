"""What all commands do alike: units, exit codes, usage errors, help, and output that goes nowhere."""

from __future__ import annotations

import errno
import os
import pathlib
import re
import shlex
import subprocess
import sys

import pytest

import engine
from engine.config.schema import engine_schema
from engine.config.values import MEANINGS
from ospltool.cli import started_nodes
from ospltool.cli.app import GOES_ON, VERBS
from ospltool.cli.exits import CommandError, Exit
from ospltool.cli.options import duration_s, examples
from ospltool.output import streams
from ospltool.views.pages import PAGES
from tests.commands.shell import Shell

ROOT = pathlib.Path(engine.__path__[0]).parent
TRACES = ROOT / "samples" / "traces" / "late-joiner"


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
        assert "is not a duration" in err or "No such option" in err


def chained(error: Exception, cause: BaseException) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (CommandError("no\x1b way", Exit.UNREACHABLE), 3),
        (KeyboardInterrupt(), 130),
        (RuntimeError("ours"), 70),
        (chained(RuntimeError("in the import of a class"), KeyboardInterrupt()), 130),
        (SystemExit(3), 3),
    ],
)
def test_every_end_has_its_exit_code(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, raised: BaseException, expected: int
) -> None:
    def fail(_: object) -> None:
        raise raised

    monkeypatch.setattr(started_nodes, "known_nodes", fail)
    code, out, err = shell.run("list")
    assert (code, out) == (expected, "")
    assert "\x1b" not in err
    assert ("bug in ospltool" in err) == (expected == 70)


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("masters", "'show masters'"),
        ("fellows", "'show fellows'"),
        ("peers", "'show fellows'"),
        ("nodes", "'show nodes'"),
        ("topics", "'show topics'"),
        ("partitions", "'show groups'"),
        ("name-space", "'show name-spaces'"),
        ("ps", "list"),
        ("validate", "check"),
        ("anomalies", "'trace anomalies'"),
        ("statu", "status"),
    ],
)
def test_a_wrong_command_suggests_the_one_that_is_meant(shell: Shell, wrong: str, meant: str) -> None:
    code, _, err = shell.run(wrong)
    assert code == 2
    assert err.endswith(f"No such command '{wrong}'; did you mean {meant}?\n")


def test_an_interrupted_watch_says_that_nodes_go_on(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ospltool.cli.domains.watched", interrupt)
    assert shell.run("health") == (130, "", "ospltool: interrupted; nodes go on running\n")
    monkeypatch.setattr("ospltool.cli.app.build", interrupt)
    assert shell.run() == (130, "", "")
    assert GOES_ON.keys() <= {*VERBS, *examples()}


def test_every_meaning_is_a_command_a_table_or_a_setting() -> None:
    paths = {re.split("[/@]", each)[-1] for each in engine_schema().paths()}
    known = {*VERBS, *examples(), *(f"show {page}" for page in PAGES), *paths}
    assert {word for word, meaning in MEANINGS.items() if meaning not in known} == set()
    elsewhere = {word for word, meaning in MEANINGS.items() if meaning not in paths}
    assert elsewhere & {*VERBS, *PAGES} == set(), "a command or table means itself"


def test_usage_errors_have_code_2_and_go_to_standard_error(shell: Shell) -> None:
    for arguments in (["bogus"], ["list", "--bogus"], ["--bogus"]):
        code, out, err = shell.run(*arguments)
        assert (code, out) == (2, "")
        assert "Try 'ospltool" in err


def test_no_arguments_show_the_help(shell: Shell) -> None:
    assert shell.run() == shell.run("--help") == shell.run("-h")
    code, out, _ = shell.run()
    assert code == 0
    assert re.search(r"\bstatus +Show the state of a node\.", out)


def run_with(
    stdout: int, arguments: list[str], stderr: int = subprocess.PIPE
) -> subprocess.CompletedProcess[bytes]:
    """A command of a process of its own, since the last flush is the interpreter's."""
    return subprocess.run(
        [sys.executable, "-m", "ospltool.cli.app", *arguments],
        stdout=stdout,
        stderr=stderr,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )


@pytest.mark.parametrize("arguments", [["env"], ["--help"], ["trace", str(TRACES), "--format", "raw"]])
def test_a_reader_that_goes_away_is_no_error_of_ours(arguments: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        ended = run_with(write, arguments)
    finally:
        os.close(write)
    assert (ended.returncode, ended.stderr) == (141, b"")


@pytest.mark.parametrize("arguments", [["list"], ["--help"]])
@pytest.mark.parametrize(("closed", "code"), [("<&-", 0), ("2>&-", 0), (">&-", 74), ("<&- >&- 2>&-", 74)])
def test_a_closed_stream_is_no_fault_of_ours(arguments: list[str], closed: str, code: int) -> None:
    command = shlex.join((sys.executable, "-m", "ospltool.cli.app", *arguments))
    ended = subprocess.run(
        ["sh", "-c", f"{command} {closed}"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=False,
    )
    said = b"ospltool: the output cannot be written: standard output is closed\n"
    assert (ended.returncode, ended.stderr) == (code, said if closed == ">&-" else b"")


@pytest.mark.parametrize(
    "arguments", [["env"], ["--help"], ["env", "--help"], ["trace", str(TRACES), "--format", "raw"]]
)
def test_a_full_disk_for_the_output_is_a_plain_error(arguments: list[str]) -> None:
    with pathlib.Path("/dev/full").open("wb") as full:
        ended = run_with(full.fileno(), arguments)
    assert ended.stderr == b"ospltool: the output cannot be written: No space left on device\n"
    assert ended.returncode == streams.EXIT_NOT_WRITTEN


def test_a_full_disk_for_the_narration_does_not_change_the_exit_code(tmp_path: pathlib.Path) -> None:
    with pathlib.Path("/dev/full").open("wb") as full:
        ended = run_with(subprocess.PIPE, ["check", str(tmp_path / "none.xml")], stderr=full.fileno())
    assert ended.returncode == Exit.USAGE


@pytest.mark.parametrize(
    ("number", "code"), [(errno.ENOSPC, 74), (errno.EDQUOT, 74), (errno.EFBIG, 74), (errno.ENOENT, 70)]
)
def test_a_file_that_cannot_be_written_is_an_error(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, number: int, code: int
) -> None:
    def fail(_: object) -> None:
        raise OSError(number, os.strerror(number), "some/file")

    monkeypatch.setattr(started_nodes, "known_nodes", fail)
    monkeypatch.setattr(streams, "_silence", lambda _: None)
    ended, _, err = shell.run("list")
    assert ended == code
    assert ("written: some/file: " in err) == (code == 74)
    assert ("bug in ospltool" in err) == (code == 70)
