"""Trace files that give way to new ones, and disks that are full."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.tracing.sinks import FileSink, Rotation, open_sink


def written(directory: Path, rotation: Rotation | None, count: int = 10) -> dict[str, list[str]]:
    """The lines of all files after so many lines of ten bytes were written."""
    sink = FileSink(directory / "trace.log", rotation=rotation)
    for number in range(count):
        sink.write(f"line {number:04}")
    sink.close()
    return {path.name: path.read_text().splitlines() for path in sorted(directory.iterdir())}


def lines(*numbers: int) -> list[str]:
    return [f"line {number:04}" for number in numbers]


def test_without_a_rotation_the_file_grows(tmp_path: Path) -> None:
    assert written(tmp_path, None) == {"trace.log": lines(*range(10))}


@pytest.mark.parametrize(
    ("rotation", "expected"),
    [
        (
            Rotation(30, 2),
            {"trace.log": lines(9), "trace.log.1": lines(6, 7, 8), "trace.log.2": lines(3, 4, 5)},
        ),
        (Rotation(45, 1), {"trace.log": lines(8, 9), "trace.log.1": lines(4, 5, 6, 7)}),
        (Rotation(50, 0), {"trace.log": lines(*range(5, 10))}),
        (Rotation(1, 1), {"trace.log": lines(9), "trace.log.1": lines(8)}),
        (Rotation(1_000, 5), {"trace.log": lines(*range(10))}),
    ],
    ids=["two", "whole lines only", "none is kept", "smaller than a line", "not yet"],
)
def test_a_file_that_is_large_enough_gives_way(
    tmp_path: Path, rotation: Rotation, expected: dict[str, list[str]]
) -> None:
    assert written(tmp_path, rotation) == expected


def test_what_a_former_run_wrote_counts(tmp_path: Path) -> None:
    for _ in range(2):
        found = written(tmp_path, Rotation(100, 3), count=6)
    assert found == {"trace.log": lines(4, 5), "trace.log.1": lines(*range(6), *range(4))}


def test_no_line_is_lost_where_files_cannot_be_renamed(tmp_path: Path) -> None:
    (tmp_path / "trace.log.1" / "a directory").mkdir(parents=True)
    sink = FileSink(tmp_path / "trace.log", rotation=Rotation(30, 1))
    for number in range(10):
        sink.write(f"line {number:04}")
    assert (tmp_path / "trace.log").read_text().splitlines() == lines(*range(10))


def test_a_device_is_never_renamed(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    sink = open_sink(str(pipe), tmp_path, rotation=Rotation(1, 1))
    for number in range(3):
        sink.write(f"{number}")
    assert os.read(reader, 100) == b"0\n1\n2\n"
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]
    os.close(reader)
    sink.close()


def test_a_file_that_the_full_disk_has_no_room_for_is_made_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", is_full)
        sink = FileSink(tmp_path / "trace.log")
        with pytest.raises(OSError, match="space"):
            sink.write("lost")
    sink.write("kept")
    assert (tmp_path / "trace.log").read_text() == "kept\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [("64M:5", Rotation(64 << 20, 5)), ("1000", Rotation(1_000, 1)), ("2k:0", Rotation(2_048, 0))],
)
def test_what_can_be_asked_for(text: str, expected: Rotation) -> None:
    assert Rotation.parse(text) == expected


@pytest.mark.parametrize("text", ["", "0", "M", "5:", "-1", "1:1001", "1:2:3", "1T", "1 M", "٣"])
def test_everything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="SIZE:FILES"):
        Rotation.parse(text)
