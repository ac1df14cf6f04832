"""While an analysis runs, a line on the terminal shows that it is moving."""

from __future__ import annotations

import contextlib
import io
import pathlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("duckdb", reason="SQL needs the extra `sql`")

from ospltool.analytics.duck import DuckEngine
from ospltool.forensics import attachments, investigation
from ospltool.output import progress
from ospltool.trace.case import loading, local_load
from ospltool.trace.reading import sources

PATIENCE_S = 60.0


class Terminal(io.StringIO):
    """A terminal that tells when a word is written to it."""

    def __init__(self, word: str) -> None:
        super().__init__()
        self._word = word
        self.has_it = threading.Event()

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        count = super().write(text)
        if self._word in self.getvalue():
            self.has_it.set()
        return count


def waiting(terminal: Terminal, do: Callable[..., Any]) -> Callable[..., Any]:
    """Let a step last until its word is on the terminal."""

    def step(*args: Any, **kwargs: Any) -> Any:
        assert terminal.has_it.wait(PATIENCE_S), terminal.getvalue()
        return do(*args, **kwargs)

    return step


@contextlib.contextmanager
def on(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stderr", terminal)
        patched.setattr(progress, "DELAY_S", 0.05)
        patched.setenv("TERM", "xterm")
        yield


@pytest.mark.parametrize(
    ("word", "place", "name"),
    [
        ("looking at files", sources, "sniff"),
        ("looking at files", attachments, "what_is"),
        ("loading", local_load, "read_bundle"),
        ("reading the case", DuckEngine, "columns"),
        ("drawing conclusions", investigation, "stories"),
    ],
)
def test_each_long_step_of_an_analysis_shows_a_line(
    word: str,
    place: Any,
    name: str,
    samples: pathlib.Path,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from ospltool.cli.app import main

    case = tmp_path / "case"
    traces = str(samples / "traces" / "late-joiner")
    if word in {"reading the case", "drawing conclusions"}:
        loading.load(sources.find_sources([traces]).sources, case)
        command = ["trace", "anomalies", str(case)]
    else:
        command = ["trace", "load", traces, "-o", str(case)]
    terminal = Terminal(word)
    with on(terminal, monkeypatch), monkeypatch.context() as patched:
        patched.setattr(place, name, waiting(terminal, getattr(place, name)))
        main(command)
    assert terminal.has_it.is_set()
