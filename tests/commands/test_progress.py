"""Progress and tables on a terminal: terminal-safe; without a terminal, plain."""

from __future__ import annotations

import io
import sys
import time

import pytest

from ospltool.output import progress, streams, text


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "DELAY_S", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")


def test_a_terminal_shows_the_samples_that_were_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress.shown("verifying \x1b]0;evil\x07[red]s"):
        assert list(progress.counted(range(2500))) == list(range(2500))
        deadline = time.monotonic() + 30
        while "2,500 samples" not in terminal.getvalue() and time.monotonic() < deadline:
            time.sleep(0.05)
    said = terminal.getvalue()
    assert r"verifying \x1b]0;evil\x07[red]s" in said
    assert "2,500 samples" in said
    assert said.rstrip().endswith("\x1b[2K"), "the line is removed at the end"


def test_bytes_are_shown_with_their_total() -> None:
    terminal = Terminal()
    shown = progress.ProgressLine("loading", terminal, in_bytes=True)
    shown(3 << 20, 12 << 20)
    shown.close()
    assert "3 of 12 MiB" in terminal.getvalue()
    assert "25%" in terminal.getvalue()


@pytest.mark.parametrize("terminal", ["none", "dumb"])
def test_what_is_no_terminal_shows_nothing(terminal: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal() if terminal == "dumb" else io.StringIO()
    monkeypatch.setenv("TERM", terminal)
    monkeypatch.setattr(sys, "stderr", stream)
    assert list(progress.awaited((progress.counted(range(3)) for _ in range(1)), "x"))
    shown = progress.ProgressLine("loading", stream, in_bytes=True)
    shown(1, 2)
    shown.close()
    assert stream.getvalue() == ""


def test_short_work_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "DELAY_S", 60.0)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress.shown("x"):
        progress.advance(1)
    assert terminal.getvalue() == ""


def test_a_terminal_gets_tables_that_fit_and_other_readers_plain_ones(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    header, rows = ("NAME", "VALUE"), [("a\x1b[31m", "word " * 30), ("[bold]b", 1)]
    streams.put_table(header, rows)
    assert capsys.readouterr().out == text.table(header, rows)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    streams.put_table(header, rows)
    shown = terminal.getvalue()
    assert r"a\x1b[31m" in shown
    assert "[bold]b" in shown
    assert "\x1b[31m" not in shown
    assert all(len(line) <= 100 for line in shown.splitlines()[1:])
    assert shown.count("word") == 30
