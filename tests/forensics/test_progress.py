"""While an analysis runs, a line on the terminal shows that it is moving."""

from __future__ import annotations

import contextlib
import io
import os
import pathlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

pytest.importorskip("duckdb", reason="SQL needs the extra `sql`")

from ospltool.analytics.duck import DuckEngine
from ospltool.cli.store import looking
from ospltool.forensics import attachments, evidence, investigation, page
from ospltool.output import progress
from ospltool.stores import opening
from ospltool.trace.case import loading, local_load, reading_back
from ospltool.trace.reading import sources
from ospltool.trace.views import conversation, timeline
from ospltool.trace.views.conversation import Conversation

PATIENCE_S = 60.0


class Terminal(io.TextIOWrapper):
    """A pseudo-terminal that tells when a word is written to it."""

    def __init__(self, word: str) -> None:
        self._controller, terminal = os.openpty()
        super().__init__(io.FileIO(terminal, "w"), "utf-8", write_through=True)
        self._word = word.encode()
        self.seen = b""
        self.has_it = threading.Event()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # the end of what was written
            while data := os.read(self._controller, 4096):
                self.seen += data
                if self._word in self.seen:
                    self.has_it.set()

    def end(self) -> bytes:
        """Close it, and return all that was written."""
        self.close()
        self._reader.join(PATIENCE_S)
        os.close(self._controller)
        return self.seen


def waiting(terminal: Terminal, do: Callable[..., Any]) -> Callable[..., Any]:
    """Let a step last until its word is on the terminal."""

    def step(*args: Any, **kwargs: Any) -> Any:
        assert terminal.has_it.wait(PATIENCE_S), terminal.seen
        return do(*args, **kwargs)

    return step


@contextlib.contextmanager
def on(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stderr", terminal)
        patched.setattr(progress, "DELAY_S", 0.05)
        patched.setenv("TERM", "xterm")
        yield


TRACES: Final = ("trace", "load", "TRACES", "-o", "NEW")
ANOMALIES: Final = ("trace", "anomalies", "CASE")
CONVERSATION: Final = ("trace", "conversation", "partA.T1", "CASE")
REPORT: Final = ("report", "CASE", "-o", "NEW")


@pytest.fixture(scope="module")
def case(samples: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    target = tmp_path_factory.mktemp("shown") / "case"
    loading.load(sources.find_sources([str(samples / "traces" / "late-joiner")]).sources, target)
    return target


@pytest.mark.parametrize(
    ("command", "word", "place", "name"),
    [
        (TRACES, "looking at files", sources, "sniff"),
        (TRACES, "looking at files", attachments, "what_is"),
        (TRACES, "loading", local_load, "read_bundle"),
        (ANOMALIES, "opening the evidence", evidence, "is_case"),
        (ANOMALIES, "reading the case", reading_back, "rows_in_order"),
        (ANOMALIES, "drawing conclusions", investigation, "stories"),
        (CONVERSATION, "reading the case", reading_back, "rows_in_order"),
        (CONVERSATION, "drawing the alignments", Conversation, "arrows"),
        ((*CONVERSATION, "--json"), "drawing the alignments", conversation, "as_value"),
        (("trace", "timeline", "CASE"), "adding up the times", timeline, "timeline"),
        (("sql", "CASE", "select 7"), "querying", DuckEngine, "query"),
        (REPORT, "checking the configurations", investigation, "configured"),
        (REPORT, "drawing the report", page, "page"),
        (("store", "verify", "STORE"), "opening", opening, "open_reader"),
        (("store", "ls", "STORE"), "reading", looking, "instances"),
        (("store", "show", "STORE"), "reading", looking, "shown"),
    ],
)
def test_each_long_step_shows_a_line(
    command: tuple[str, ...],
    word: str,
    place: Any,
    name: str,
    samples: pathlib.Path,
    case: pathlib.Path,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from ospltool.cli.app import main

    names = {
        "TRACES": samples / "traces" / "late-joiner",
        "STORE": samples / "stores" / "after-merge" / "n1",
        "CASE": case,
        "NEW": tmp_path / "new",
    }
    terminal = Terminal(word)
    try:
        with on(terminal, monkeypatch), monkeypatch.context() as patched:
            patched.setattr(place, name, waiting(terminal, getattr(place, name)))
            code = main([str(names.get(each, each)) for each in command])
    finally:
        seen = terminal.end()
    assert code in {None, 0, 1}, seen
    assert word.encode() in seen
    assert b"\x1b[2K" in seen, "the line is removed"
