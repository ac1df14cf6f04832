"""Following files through everything that happens to logs."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ospltool.trace.reading.follow import IDLE_S, POLL_S, FileNotice, GrowingFiles
from ospltool.trace.reading.record import TraceRecord
from ospltool.trace.reading.sources import SourceError, TraceFile, sniff

PATIENCE_S = 20.0


def line(number: int, text: str = "") -> str:
    return f"1795223310.{number:09d} COMPLETE (t) -> {text or f'line {number}'}\n"


class Watch:
    """Growing files that are polled until something has come in."""

    def __init__(self, path: pathlib.Path, start: int | None = None, needle: bytes | None = None) -> None:
        source = sniff(path, "n1") if path.exists() else TraceFile(path, "n1")
        self.growing = GrowingFiles([source], None if start is None else {source.file: start}, needle)
        self.texts: list[str] = []
        self.notices: list[str] = []
        self.records: list[TraceRecord] = []

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        never = threading.Event()
        while not condition():
            assert time.monotonic() < deadline, (self.texts, self.notices)
            for one in self.growing.poll():
                if isinstance(one, FileNotice):
                    self.notices.append(str(one))
                else:
                    self.records.append(one)
                    self.texts.append(one.text)
            never.wait(POLL_S)

    def until_text(self, text: str) -> None:
        self.until(lambda: text in self.texts)


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "durability.log"
    path.write_text(line(1), encoding="utf-8")
    return path


@pytest.fixture
def watch(path: pathlib.Path) -> Iterator[Watch]:
    watch = Watch(path)
    yield watch
    watch.growing.close()


def append(path: pathlib.Path, text: str) -> None:
    with path.open("a", encoding="utf-8") as stream:
        stream.write(text)


def test_what_is_added_comes_in(path: pathlib.Path, watch: Watch) -> None:
    append(path, line(2) + line(3))
    watch.until_text("line 3")
    assert watch.texts == ["line 2", "line 3"]
    assert [record.offset for record in watch.records] == [len(line(1)), len(line(1)) * 2]


def test_a_record_is_whole_whatever_pieces_it_is_written_in(path: pathlib.Path, watch: Watch) -> None:
    for piece in (line(2)[:10], line(2)[10:30], line(2)[30:], line(3)[:-1]):
        append(path, piece)
        watch.growing.poll()
    append(path, "\n" + line(4))
    watch.until_text("line 4")
    assert "line 4" in watch.texts


def test_the_last_record_comes_after_a_short_silence(path: pathlib.Path, watch: Watch) -> None:
    begun = time.monotonic()
    append(path, line(2, "no line end")[:-1])
    watch.until_text("no line end")
    assert time.monotonic() - begun >= IDLE_S


def test_lines_of_one_record_stay_together(path: pathlib.Path, watch: Watch) -> None:
    append(path, line(2, "Current:\nsamplesStored=1") + line(3))
    watch.until_text("line 3")
    assert watch.texts[0] == "Current:\nsamplesStored=1"


def test_rotation_by_renaming_loses_nothing(path: pathlib.Path, watch: Watch) -> None:
    append(path, line(2))
    path.rename(path.with_suffix(".log.1"))
    append(path.with_suffix(".log.1"), line(3))  # the writer still has the old file open
    path.write_text(line(4) + line(5), encoding="utf-8")
    watch.until_text("line 5")
    assert watch.texts == ["line 2", "line 3", "line 4", "line 5"]
    assert any("was rotated" in notice for notice in watch.notices)


def test_rotation_between_two_looks_loses_nothing(
    path: pathlib.Path, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer writes once more after the file was read and before it is found to be rotated."""
    original = GrowingFiles._look_for_another

    def rotated_now(growing: GrowingFiles, file: Any) -> Iterator[TraceRecord | FileNotice]:
        if not path.with_suffix(".log.1").exists():
            append(path, line(3))
            path.rename(path.with_suffix(".log.1"))
            path.write_text(line(4) + line(5), encoding="utf-8")
        return original(growing, file)

    append(path, line(2))
    monkeypatch.setattr(GrowingFiles, "_look_for_another", rotated_now)
    watch.until_text("line 5")
    assert watch.texts == ["line 2", "line 3", "line 4", "line 5"]


def test_truncation_is_noticed(path: pathlib.Path, watch: Watch) -> None:
    append(path, line(2) + line(3))
    watch.until_text("line 3")
    path.write_text(line(4), encoding="utf-8")
    watch.until_text("line 4")
    assert watch.texts == ["line 2", "line 3", "line 4"]
    assert any("was truncated" in notice for notice in watch.notices)


def test_truncation_is_noticed_even_when_the_file_has_grown_beyond_where_it_was(
    path: pathlib.Path, watch: Watch
) -> None:
    """As logrotate's copytruncate does it, with a busy writer."""
    append(path, line(2))
    watch.until_text("line 2")
    path.write_text("".join(line(number) for number in range(10, 20)), encoding="utf-8")
    watch.until_text("line 19")
    assert watch.texts == ["line 2", *(f"line {number}" for number in range(10, 20))]
    assert any("was truncated" in notice for notice in watch.notices)


def test_a_file_that_goes_and_comes_back_is_read_again(path: pathlib.Path, watch: Watch) -> None:
    append(path, line(2))
    watch.until_text("line 2")
    path.unlink()
    watch.until(lambda: any("disappeared" in notice for notice in watch.notices))
    path.write_text(line(3), encoding="utf-8")
    watch.until_text("line 3")
    assert watch.texts == ["line 2", "line 3"]
    assert sum("disappeared" in notice for notice in watch.notices) == 1


def test_a_file_that_is_not_there_yet_is_waited_for(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "later.log"
    watch = Watch(path)
    watch.growing.poll()
    path.write_text("COMPLETE (t) -> without timestamps\nCOMPLETE (t) -> second\n", encoding="utf-8")
    watch.until_text("second")
    assert watch.texts == ["without timestamps", "second"]
    watch.growing.close()


def test_only_wanted_records_are_parsed(path: pathlib.Path) -> None:
    watch = Watch(path, needle=b"line 3")
    append(path, line(2) + line(3) + line(4) + line(33) + line(5))
    watch.until_text("line 33")
    assert watch.texts == ["line 3", "line 33"]
    watch.growing.close()


def test_logs_are_followed_too(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "ospl-info.log"
    report = (
        "=" * 88
        + "\nReport      : INFO\nDescription : hello {}\nInternals   : 6///c/f.c/1/0/1795223310.000000001/0\n"
    )
    path.write_text(report.format(1), encoding="utf-8")
    watch = Watch(path)
    append(path, report.format(2) + report.format(3))
    watch.until_text("hello 3")
    assert watch.texts == ["hello 2", "hello 3"]
    watch.growing.close()


def test_a_compressed_file_is_not_followed(tmp_path: pathlib.Path) -> None:
    with pytest.raises(SourceError, match="compressed"):
        GrowingFiles([TraceFile(tmp_path / "durability.log.gz", "n1")])


def test_many_lines_come_in_whole_and_in_order(path: pathlib.Path, watch: Watch) -> None:
    count = 20_000
    with path.open("a", encoding="utf-8", buffering=1 << 14) as stream:
        for number in range(count):
            stream.write(line(number))
            if number % 700 == 0:
                watch.until(lambda: True)
                for one in watch.growing.poll():
                    watch.texts.append(getattr(one, "text", str(one)))
    watch.until(lambda: len(watch.texts) >= count)
    assert watch.texts == [f"line {number}" for number in range(count)]


def test_the_command_shows_the_last_lines_and_then_what_comes(path: pathlib.Path) -> None:
    append(path, "".join(line(number) for number in range(2, 30)))
    command = [
        sys.executable,
        "-m",
        "ospltool.cli.app",
        "trace",
        str(path),
        "-f",
        "-n",
        "2",
        "--format",
        "template={text}",
    ]
    root = pathlib.Path(__file__).parents[2]
    environ = {**os.environ, "PYTHONPATH": str(root), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ) as tail:
        try:
            assert tail.stdout is not None
            first = [tail.stdout.readline().strip() for _ in range(3)]
            append(path, line(40) + line(41))
            then = [tail.stdout.readline().strip() for _ in range(2)]
        finally:
            tail.terminate()
    assert first == ["line 27", "line 28", "line 29"]  # the last one as soon as it is known to be whole
    assert then == ["line 40", "line 41"]
