from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from engine.runtime import monitor, past
from engine.runtime.past import IN_ORDER, MAX_CALM, MAX_GRAVE, Past
from engine.tracing.levels import Level
from engine.tracing.tracer import Tracer
from tests import fake

S = 1_000_000_000


class Process:
    """One process after the other on the same file, by a clock that the test turns."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.now_ns = 100 * S
        self.past: Past

    def begin(self) -> monitor.Run | None:
        self.now_ns += S
        self.past = Past(self.path, lambda: self.now_ns, pid=7, version="1.0")
        self.tracer = Tracer(lambda: self.now_ns)
        self.tracer.subscribe(self.past.event)
        return self.past.open()

    def event(self, name: str, **fields: object) -> None:
        self.now_ns += S
        self.tracer.event(name, **fields)

    def end(self, how: str = IN_ORDER) -> None:
        self.now_ns += S
        self.past.end(how)
        self.past.close()

    def vanish(self) -> None:
        """As with SIGKILL: what was traced is written, and nothing of an end."""
        self.past.close()

    def texts(self) -> list[str]:
        return [event.text for event in self.past.shown("id", "n1").events]


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    made = Process(tmp_path / past.FILE)
    yield made
    made.past.close()


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_events_of_info_and_above_survive_a_restart_with_their_times(process: Process) -> None:
    process.begin()
    process.event("lifecycle.operational")
    process.event("fellow.disconnected", fellow="n2", reason="its heartbeat is overdue")
    process.event("trace.lost", count=3, cause="disk full")
    process.event("lifecycle.leaving-state")
    before = process.past.shown("id", "n1").events
    assert [event.level for event in before] == ["INFO", "INFO", "WARNING", "INFO"]
    assert [event.time_ns for event in before] == [102 * S, 103 * S, 104 * S, 105 * S]
    assert {(event.node, event.node_name) for event in before} == {("id", "n1")}
    process.vanish()
    process.begin()
    assert process.past.shown("id", "n1").events == before


def test_what_is_below_info_is_not_kept(process: Process) -> None:
    process.begin()
    fine = next(
        kind for kind in process.tracer._catalogue.values() if kind.level < Level.INFO and not kind.fields
    )
    process.event(fine.id)
    assert process.texts() == []


def test_runs_tell_how_each_ended(process: Process) -> None:
    assert process.begin() is None
    process.end()
    before = process.begin()
    assert before == monitor.Run(101 * S, 7, "1.0", 102 * S, IN_ORDER)
    process.event("lifecycle.operational")
    process.vanish()
    before = process.begin()
    assert before == monitor.Run(103 * S, 7, "1.0", 104 * S, past.UNKNOWN_END)
    process.end("the disk is gone")
    process.begin()
    runs = process.past.shown("id", "n1").runs
    assert [run.end for run in runs] == [IN_ORDER, past.UNKNOWN_END, "the disk is gone", ""]
    assert runs[-1].ended_ns == 0


def test_masterships_are_kept_once_each(process: Process) -> None:
    process.begin()
    space = fake.name_space("Orders", 1)
    shown = fake.snapshot(
        1, msgspec.structs.replace(space, confirmed=True, epoch="1/a", master_since_ns=5 * S)
    )
    process.past.masters(shown)
    process.past.masters(shown)
    other = msgspec.structs.replace(shown.name_spaces[0], epoch="2/b", master_since_ns=9 * S)
    process.past.masters(msgspec.structs.replace(shown, name_spaces=(other,)))
    process.vanish()
    process.begin()
    kept = process.past.shown("id", "n1").masterships
    assert [(one.since_ns, one.epoch) for one in kept] == [(5 * S, "1/a"), (9 * S, "2/b")]


def test_a_flood_of_small_news_does_not_push_out_what_is_grave(process: Process) -> None:
    process.begin()
    process.event("trace.lost", count=1, cause="first")
    for number in range(MAX_CALM + 50):
        process.event("lifecycle.other-library", path=str(number))
    assert len(process.texts()) == MAX_CALM + 1
    assert "first" in process.texts()[0]
    for number in range(2 * MAX_GRAVE):  # as a stranger provokes them
        process.event("message.malformed", topic="d_status", sender=str(number), cause="more")
    assert len(process.texts()) == MAX_CALM + MAX_GRAVE
    assert "first" in process.texts()[0]
    for number in range(MAX_GRAVE):
        process.event("trace.lost", count=number, cause="more")
    assert not any("first" in text for text in process.texts())


def test_the_file_stays_small(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past, "MAX_FILE_BYTES", 150_000)
    process.begin()
    assert process.path
    for number in range(2_000):
        process.event("fellow.disconnected", fellow=str(number), reason="x" * 1_000)
    shown = process.past.shown("id", "n1")
    process.vanish()
    most = (MAX_CALM + 2) * (past.MAX_TEXT + 300)
    assert process.path.stat().st_size < 150_000 + most
    assert len(monitor.encode(shown)) < most
    process.begin()
    assert process.texts() == [event.text for event in shown.events]
    assert process.path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "junk",
    [
        b"",
        b"\x00\xff junk\n",
        b'{"version":9,"kind":"run","data":{}}\n',
        b'{"version":1,"kind":"event","data":{"node":3}}\n',
        b'[]\n"x"\n{"version":1}\n' + b"[" * 100_000 + b"\n",
        b'{"version":1,"kind":"event","da',
    ],
)
def test_lines_that_cannot_be_read_are_passed_over(process: Process, junk: bytes) -> None:
    process.begin()
    process.event("lifecycle.operational")
    process.vanish()
    assert process.path
    process.path.write_bytes(junk + b"\n" + process.path.read_bytes() + junk)
    process.begin()
    assert len(process.texts()) == 1


def test_a_full_disk_costs_nobody_time_and_what_it_refused_is_written_when_there_is_room(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past, "RETRY_S", 0.05)
    process.begin()
    wait_until(lambda: bool(process.path and process.path.exists()))
    attempts = []

    def refuse(*_: object) -> None:
        attempts.append(1)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(past._Writer, "_append", refuse)
        patch.setattr(past._Writer, "_replace", refuse)
        process.event("lifecycle.operational")
        wait_until(lambda: len(attempts) > 1)
        process.event("lifecycle.leaving-state")
    assert process.path
    wait_until(lambda: process.path is not None and process.path.read_bytes().count(b"event") > 1)
    process.vanish()
    process.begin()
    assert len(process.texts()) == 2


def test_a_disk_that_hangs_does_not_hold_up_the_end(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past, "CLOSE_S", 0.1)
    release = os.pipe()
    monkeypatch.setattr(past._Writer, "_replace", lambda _: os.read(release[0], 1))
    process.begin()
    process.event("lifecycle.operational")
    process.end()  # the disk hangs until the next line
    os.write(release[1], b"x")


def test_without_a_store_the_past_lives_as_long_as_the_process() -> None:
    process = Process(None)
    process.begin()
    process.event("lifecycle.operational")
    assert len(process.texts()) == 1
    process.end()
