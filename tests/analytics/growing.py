"""Traces that grow, and the command that follows them into a case."""

from __future__ import annotations

import contextlib
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow.parquet as pq

from ospltool.analytics.case import CaseError, open_case
from ospltool.analytics.contract import Table
from ospltool.analytics.duck import DuckEngine
from ospltool.trace.case.loading import load
from ospltool.trace.case.reading_back import WantedRecords, records_of
from ospltool.trace.reading.sources import find_sources

PATIENCE_S = 240.0
COMMAND = ("ospltool.cli.app", "trace", "load", "--follow")
BASE_S = 1_795_223_310


def content_of(case: pathlib.Path) -> tuple[list[Any], list[dict[str, Any]]]:
    """All records in their order, and what was found in each file."""
    opened = open_case(case)
    with contextlib.closing(DuckEngine(opened)) as engine:
        records = [one for some in records_of(opened, engine, WantedRecords()) for one in some]
    sources = [row for row in pq.read_table(opened.files(Table.SOURCES)).to_pylist() if row["records"]]
    return records, sources


def check_is_loaded(case: pathlib.Path, logs: pathlib.Path) -> None:
    """The case is what `load` makes of the files as they are."""
    with tempfile.TemporaryDirectory() as name:
        expected = pathlib.Path(name, "case")
        load(find_sources([str(logs)]).sources, expected)
        assert content_of(case) == content_of(expected)


class Writer:
    """Writes a trace as a node does, in pieces that end anywhere, and rotates it."""

    def __init__(self, path: pathlib.Path, seed: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._random = random.Random(seed)
        self._number = 0
        self._rest = b""

    def _line(self) -> bytes:
        self._number += 1
        seconds = BASE_S + self._number // 7
        text = self._random.choice(
            [
                "Adding conflict 3 to the conflict resolver queue",
                "Group found: gr\u00f6\u00dfer.T1 (PERSISTENT)",
                "two\nlines -> of text",
                f"no such message {self._number}",
            ]
        )
        end = self._random.choice(["\n", "\n", "\n", ""])
        return f"{seconds}.{self._number % 3:09} COMPLETE (t{self._number % 2}) -> {text}{end}".encode()

    def write(self, lines: int, cut: int) -> None:
        """Append lines; the last bytes wait for the next time."""
        data = self._rest + b"".join(self._line() for _ in range(lines))
        held = min(cut, len(data))
        self._rest = data[len(data) - held :]
        with self.path.open("ab") as stream:
            stream.write(data[: len(data) - held])

    def rotate(self, kept: int = 2) -> None:
        """Rename the file and its former ones; the oldest is deleted."""
        for number in range(kept - 1, -1, -1):
            old = self.path.with_name(f"{self.path.name}.{number}") if number else self.path
            if old.exists():
                old.replace(self.path.with_name(f"{self.path.name}.{number + 1}"))

    def truncate(self) -> None:
        """Begin again in the same file."""
        self.path.write_bytes(b"")
        self.write(2, 0)

    def remove(self) -> None:
        """Delete the file."""
        self.path.unlink(missing_ok=True)


class Command:
    """`ospltool trace load --follow`, with what it says."""

    def __init__(self, logs: pathlib.Path, case: pathlib.Path, *options: str) -> None:
        root = pathlib.Path(__file__).parents[2]
        self._said = case.with_name("said.txt")
        with self._said.open("wb") as stream:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *COMMAND, str(logs), "-o", str(case), *options],
                env={**os.environ, "PYTHONPATH": str(root)},
                stdout=stream,
                stderr=stream,
                start_new_session=True,  # as in a terminal, where Ctrl-C reaches all of its processes
            )

    @property
    def said(self) -> str:
        return self._said.read_text()

    def wait_for(self, condition: Callable[[], bool]) -> None:
        until = time.monotonic() + PATIENCE_S
        while not condition():
            assert self.process.poll() is None, self.said
            assert time.monotonic() < until, self.said
            time.sleep(0.002)

    def end(self) -> int:
        """Press Ctrl-C."""
        os.killpg(self.process.pid, signal.SIGINT)
        return self.process.wait(PATIENCE_S)

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def following(logs: pathlib.Path, case: pathlib.Path, *options: str) -> Iterator[Command]:
    """The command, which has begun; it is killed if it does not end before."""
    command = Command(logs, case, *options)
    try:
        command.wait_for(lambda: "following until Ctrl-C" in command.said)
        yield command
    finally:
        command.kill()


def writes_a_part(case: pathlib.Path) -> bool:
    """Whether there are files of records that the case does not name: they were just written, or replaced."""
    try:
        named = {path.name for path in open_case(case).files(Table.RECORDS)}
        return any(path.name not in named for path in (case / "records").rglob("*.parquet"))
    except (CaseError, FileNotFoundError):
        return False  # its first version is not there yet, or a file has just gone


def killed_in_a_look(logs: pathlib.Path, case: pathlib.Path, *options: str) -> list[Writer]:
    """Kill the command while it writes a part of a case; return the writers of its two files.

    The files grow in the middle of lines, appear and are rotated before, and one grows afterwards.
    """
    writers = [Writer(logs / node / "durability.log", 3) for node in ("n1", "n2")]
    writers[0].write(300, 7)
    with following(logs, case, *options) as command:
        writers[0].write(200, 30)
        writers[1].write(500, 20)
        writers[0].rotate()
        writers[0].write(100, 3)
        command.wait_for(lambda: writes_a_part(case))
    assert command.process.returncode == -signal.SIGKILL, "in the middle of a look"
    writers[0].write(50, 8)
    return writers
