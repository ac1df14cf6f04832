"""A recording that is replayed while a recorder still writes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ospltool.live.feed import NoticeKind
from ospltool.live.recorder import Recorder, RecordingLimits
from ospltool.live.recording import RecordingFault, header_of
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


@pytest.mark.parametrize("at_once", [1, 120])
def test_what_is_removed_meanwhile_is_not_missed(written: Callable[..., Written], at_once: int) -> None:
    growing = written(30, RecordingLimits(max_bytes=100_000))
    reader, feed = growing.reader, growing.reader.feed
    feed.seek(feed.end_ns)
    reader.poll()
    for second in range(30, 390, at_once):
        growing.write_to(second + at_once)
        growing.clock.forward(at_once)
        reader.poll()
        assert reader.count == second + at_once - 1
    assert not reader.model.dropped
    assert NoticeKind.FAULT not in reader.kinds
    assert feed.begin_ns == ReplayFeed(growing.path, paused=True).begin_ns > START_NS
    feed.seek(START_NS)
    reader.poll()
    assert feed.now_ns() == feed.begin_ns
    assert reader.count == (feed.begin_ns - START_NS) // S


def test_who_reads_does_not_hold_up_the_recorder_and_it_may_end_and_come_back(
    written: Callable[..., Written],
) -> None:
    growing = written(30)
    reader, feed = growing.reader, growing.reader.feed
    feed.seek(feed.end_ns)
    reader.poll()
    growing._recorder.close()
    growing._recorder = Recorder(growing.path, source="domain 7", made_by="test")
    growing.write_to(90)
    growing.clock.forward(60)
    reader.poll()
    assert (reader.count, growing._recorder.problem) == (89, "")


def test_the_recorded_system_is_read_from_the_file(written: Callable[..., Written], tmp_path: Path) -> None:
    header = header_of(written(1).path)
    assert header is not None
    assert header.source == "domain 7"
    (tmp_path / "empty").write_bytes(b"")
    with pytest.raises(RecordingFault, match="the file is empty"):
        header_of(tmp_path / "empty")
    with pytest.raises(RecordingFault, match="No such file"):
        header_of(tmp_path / "none")
