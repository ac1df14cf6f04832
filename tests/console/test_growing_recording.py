"""A recording that is replayed while a recorder still writes it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from ospltool.live.feed import NoticeKind
from ospltool.live.record_file import RecordingFault
from ospltool.live.recorder import Recorder, RecordingLimits, parts_of
from ospltool.live.recording_files import header_of
from ospltool.live.replay import QUIET_NS, ReplayFeed
from tests.console.test_replay import Clock, Reader, S, at, updates
from tests.fake import START_NS


class Written:
    """A recording of `updates` that grows as far as it is told, with a reader that follows it."""

    def __init__(self, path: Path, seconds: int, limits: RecordingLimits | None = None) -> None:
        self.path = path
        self.clock = Clock()
        self._told = updates(400)
        self._recorder = Recorder(path, source="domain 7", made_by="test", limits=limits)
        self.write_to(seconds)
        self.reader = Reader(ReplayFeed(path, clock=self.clock, follow=True))

    def write_to(self, seconds: int) -> None:
        """Record everything before this second."""
        while self._told and self._told[0][0] < at(seconds):
            now_ns, update = self._told.pop(0)
            self._recorder.write(update, now_ns)

    def close(self) -> None:
        self.reader.feed.close()
        self._recorder.close()


@pytest.fixture
def written(tmp_path: Path) -> Iterator[Callable[..., Written]]:
    made: list[Written] = []

    def make(seconds: int, limits: RecordingLimits | None = None) -> Written:
        made.append(Written(tmp_path / "r.jsonl", seconds, limits))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_the_end_moves_on_and_who_is_there_goes_on_live(written: Callable[..., Written]) -> None:
    growing = written(100)
    reader, feed = growing.reader, growing.reader.feed
    feed.seek(feed.end_ns)
    reader.poll()
    assert (reader.count, feed.end_ns) == (99, at(99))
    for second in range(100, 200):
        growing.write_to(second + 1)
        growing.clock.forward(1)
        reader.poll()
        assert (reader.count, feed.now_ns(), feed.timeline.end_ns) == (second, at(second), at(second))
    assert not reader.model.dropped
    assert reader.kinds.count(NoticeKind.END) == 1  # before it was seen to grow
    assert not reader.model.ended_ns


def test_one_winds_back_and_forth_while_it_grows(written: Callable[..., Written]) -> None:
    growing = written(100)
    reader, feed = growing.reader, growing.reader.feed
    for last, wanted in ((150, 20), (200, 149), (260, 61), (300, 299), (350, 0)):
        growing.write_to(last)
        reader.poll()
        feed.seek(at(wanted))
        reader.poll()
        assert (reader.count, feed.now_ns(), feed.end_ns) == (wanted, at(wanted), at(last - 1))
    feed.pause(paused=True)
    growing.write_to(360)
    growing.clock.forward(50)
    reader.poll()
    assert (reader.count, feed.now_ns(), feed.end_ns) == (0, START_NS, at(359))
    assert feed.step(1)
    reader.poll()
    assert reader.count == 5
    feed.seek(feed.end_ns)
    assert feed.step(-1)
    reader.poll()
    assert reader.count == 355
    assert NoticeKind.FAULT not in reader.kinds


def test_an_end_is_told_when_nothing_follows_and_taken_back_when_it_does(
    written: Callable[..., Written],
) -> None:
    growing = written(10)
    reader = growing.reader
    growing.write_to(20)
    growing.clock.forward(30)
    reader.poll()
    assert (reader.count, reader.kinds) == (19, [])
    growing.clock.now_ns += QUIET_NS
    reader.poll()
    assert reader.kinds == [NoticeKind.END]
    assert reader.model.ended_ns == at(19)
    growing.write_to(21)
    growing.clock.forward(0.25)
    reader.poll()
    assert (reader.count, reader.model.ended_ns) == (20, 0)
    assert reader.kinds == [NoticeKind.END]


@pytest.fixture
def content(tmp_path: Path) -> bytes:
    """A recording of 70 seconds."""
    path = tmp_path / "whole.jsonl"
    recorder = Recorder(path, source="domain 7", made_by="test")
    for now_ns, update in updates(70):
        recorder.write(update, now_ns)
    recorder.close()
    return path.read_bytes()


def grown(path: Path, pieces: Iterable[bytes]) -> Reader:
    """Follow a file that grows from nothing by these pieces, one a second."""
    clock = Clock()
    path.write_bytes(b"")
    reader = Reader(ReplayFeed(path, clock=clock, follow=True))
    reader.kinds.clear()
    with path.open("ab", buffering=0) as file:
        for piece in pieces:
            file.write(piece)
            clock.forward(1)
            reader.poll()
    reader.feed.close()
    return reader


def test_a_last_line_that_is_not_whole_waits_for_its_rest(tmp_path: Path, content: bytes) -> None:
    pieces = [content[begin : begin + 333] for begin in range(0, len(content), 333)]
    reader = grown(tmp_path / "r.jsonl", pieces)
    assert reader.count == 69
    assert [event.number for event in reader.model.events] == list(range(5, 70, 10))
    assert reader.kinds == []
    assert reader.feed.begin_ns == START_NS


def test_the_line_of_a_key_that_was_cut_is_told_and_the_rest_is_read(tmp_path: Path, content: bytes) -> None:
    """As after a disk that was full within a line."""
    lines = content.splitlines(keepends=True)
    torn = [b'{"format_version":1,"kind":"key","hea\n']
    reader = grown(tmp_path / "r.jsonl", [*lines[:30], *torn, *lines[30:]])
    assert reader.count == 69
    assert reader.kinds.count(NoticeKind.FAULT) == reader.model.dropped == 1


@pytest.mark.parametrize("at_once", [1, 120])
def test_new_files_are_followed_and_removed_ones_are_not_held(
    written: Callable[..., Written], at_once: int
) -> None:
    growing = written(30, RecordingLimits(max_file_bytes=20_000, max_files=4))
    reader, feed = growing.reader, growing.reader.feed
    feed.seek(feed.end_ns)
    reader.poll()
    for second in range(30, 390, at_once):
        growing.write_to(second + at_once)
        growing.clock.forward(at_once)
        reader.poll()
        assert reader.count == second + at_once - 1
        assert len(_held(growing.path)) <= 4
    assert not reader.model.dropped
    assert NoticeKind.FAULT not in reader.kinds
    assert feed.begin_ns == ReplayFeed(growing.path, paused=True).begin_ns > START_NS
    feed.seek(START_NS)
    reader.poll()
    assert feed.now_ns() == feed.begin_ns
    assert reader.count == (feed.begin_ns - START_NS) // S
    assert len(parts_of(growing.path)) == 4


def _held(path: Path) -> set[str]:
    """The files of a recording that this process has mapped, by their inode."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return {line.split()[4] for line in lines if str(path) in line}


def test_the_recorded_system_is_read_from_the_file(written: Callable[..., Written], tmp_path: Path) -> None:
    header = header_of(written(1).path)
    assert header is not None
    assert header.source == "domain 7"
    (tmp_path / "empty").write_bytes(b"")
    assert header_of(tmp_path / "empty") is None
    with pytest.raises(RecordingFault, match="No such file"):
        header_of(tmp_path / "none")
