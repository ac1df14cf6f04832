"""A tap that moves while a writer is held up: the steps one by one, with readers that do as they are told."""

from __future__ import annotations

import types
from typing import Any

import pytest

from engine.capture import tap as moving
from engine.capture.tap import BESIDE_S, LISTEN_S, QUIET_S, REMEMBER_S, Tap
from engine.dataset.captured import CapturedRun
from engine.dataset.groups import DurabilityKind
from engine.dataset.sample import DATA, Sample, captured_sample

WRITER = b"w" * 16


class Reader:
    """A reader in memory: what is put into it can be drained."""

    fill = 0.0
    rejected = 0
    topic = types.SimpleNamespace(name="Topic")

    def __init__(self, durability: DurabilityKind, *, hears: bool) -> None:
        self.qos = types.SimpleNamespace(durability=durability)
        self._hears = hears
        self._queue: list[Sample] = []

    def __len__(self) -> int:
        return len(self._queue)

    def put(self, *numbers: int) -> None:
        if self._hears:
            self._queue += [captured_sample(number, WRITER, DATA, b"key", b"payload") for number in numbers]

    def drain(self, limit: int) -> list[Sample]:
        taken, self._queue = self._queue[:limit], self._queue[limit:]
        return taken

    def drain_runs(self, limit: int) -> tuple[int, list[Sample | CapturedRun]]:
        taken = self.drain(limit)
        return len(taken), [*taken]

    def matched_writers(self) -> dict[bytes, bytes]:
        return {WRITER: b"p" * 16}

    def listen(self) -> None:
        self._hears = True

    def end(self) -> None:
        self._hears = False

    def wake(self) -> None: ...

    def close(self) -> None: ...


class Play:
    """A tap that has been asked for more, its readers in the order of making, and the time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 100.0
        monkeypatch.setattr(moving, "time", types.SimpleNamespace(monotonic=lambda: self.now_s))
        self.readers: list[Reader] = []
        self.tap = Tap(self._make, DurabilityKind.VOLATILE)
        self.tap.request(DurabilityKind.PERSISTENT)

    def _make(self, durability: DurabilityKind, *, hears: bool) -> Any:
        self.readers.append(Reader(durability, hears=hears))
        return self.readers[-1]

    def is_moved_after(self, *pauses_s: float) -> bool:
        """Whether the last of some turns ends it; those before must not."""
        for pause_s in pauses_s[:-1]:
            assert not self.is_moved_after(pause_s)
        self.now_s += pauses_s[-1]
        return self.tap.turn() is not None


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Play:
    return Play(monkeypatch)


@pytest.mark.parametrize("way", ["drain", "drain_runs"])
def test_a_writer_that_the_second_reader_holds_up_is_waited_for(play: Play, way: str) -> None:
    tap, readers = play.tap, play.readers

    def drained() -> list[int]:
        taken = tap.drain(100) if way == "drain" else tap.drain_runs(100)[1]
        return [record.source_time_ns for record in taken if isinstance(record, Sample)]

    assert not play.is_moved_after(0.0)  # the second one is made
    readers[0].put(1, 2, 3)
    found = drained()
    assert not play.is_moved_after(BESIDE_S, REMEMBER_S)
    assert not play.is_moved_after(LISTEN_S), "it has given something to the first one less than QUIET_S ago"
    readers[1].put(2, 3, 4)  # the second one gets what it lacks, and then both the next one
    readers[0].put(4)
    found += drained()
    assert play.is_moved_after(0.0)
    readers[1].put(5)
    for _ in range(2):
        found += drained()
    assert found == [1, 2, 3, 4, 5]


def test_a_writer_that_is_silent_for_long_holds_nothing_up(play: Play) -> None:
    assert play.is_moved_after(0.0, BESIDE_S, REMEMBER_S, max(LISTEN_S, QUIET_S))


def test_what_one_of_the_two_readers_refused_comes_once(play: Play) -> None:
    """It is offered to both again: the one that had it has it twice."""
    tap, readers = play.tap, play.readers
    assert not play.is_moved_after(0.0, BESIDE_S, REMEMBER_S)
    found: list[int] = []
    for first, second in (((1, 1, 2, 3), (1, 2, 2)), ((3, 4, 4), (3, 4, 5, 5, 6, 6))):
        readers[0].put(*first)
        readers[1].put(*second)
        found += [record.source_time_ns for record in tap.drain(3)]
    play.now_s += LISTEN_S + QUIET_S
    while tap.turn() is None:
        found += [record.source_time_ns for record in tap.drain(100)]
    readers[1].put(6, 7)
    for _ in range(4):
        found += [record.source_time_ns for record in tap.drain(100)]
    assert found == [1, 2, 3, 4, 5, 6, 7]


def test_what_only_the_second_reader_got_before_the_first_one_ended_is_kept(play: Play) -> None:
    """Also when the queue of the first one is empty by then."""
    tap, readers = play.tap, play.readers
    assert not play.is_moved_after(0.0, BESIDE_S, REMEMBER_S)
    for reader in readers:
        reader.put(1)
    found = [record.source_time_ns for record in tap.drain(100)]
    readers[1].put(2)
    assert play.is_moved_after(max(LISTEN_S, QUIET_S))
    readers[1].put(3)
    for _ in range(2):
        found += [record.source_time_ns for record in tap.drain(100)]
    assert found == [1, 2, 3]
