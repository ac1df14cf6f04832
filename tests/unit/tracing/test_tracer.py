from __future__ import annotations

import errno
import itertools
import os
import threading
from typing import TYPE_CHECKING

import pytest

from engine.tracing.catalogue import UnknownEventError, catalogue
from engine.tracing.levels import Level
from engine.tracing.record import EventFieldsError, EventRecord, TextFormat, Timestamps, json_format
from engine.tracing.sinks import DescriptorSink, open_sink
from engine.tracing.tracer import LINES_A_MINUTE, Output, Tracer
from tests.trace_lines import read_line

if TYPE_CHECKING:
    import pathlib


class Lines:
    """A sink in memory whose disk can be full."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self.full = False
        self.closed = False

    def write(self, line: str) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "no space")
        self.written.append(line)

    def close(self) -> None:
        self.closed = True


def plain(sink: Lines, verbosity: Level = Level.FINEST) -> Output:
    return Output(sink, verbosity, TextFormat(Timestamps.OFF))


def ticking() -> Tracer:
    return Tracer(itertools.count(1).__next__)


def trace_one_of_each_level(tracer: Tracer) -> None:
    for event_id in (
        "fellow.heartbeat",
        "group.complete",
        "align.equal",
        "lifecycle.configuration",
        "lifecycle.operational",
        "align.slow",
        "store.corrupt",
    ):
        tracer.event(event_id, **dict.fromkeys(catalogue()[event_id].fields, "x"))


@pytest.mark.parametrize("verbosity", list(Level))
def test_an_output_gets_its_level_and_above(verbosity: Level) -> None:
    sink = Lines()
    tracer = Tracer(lambda: 0, [plain(sink, verbosity)])
    trace_one_of_each_level(tracer)
    assert len(sink.written) == Level.NONE - verbosity


def test_several_outputs_have_each_its_own_level_and_format() -> None:
    text, lines = Lines(), Lines()
    tracer = Tracer(lambda: 0, [plain(text, Level.SEVERE), Output(lines, Level.WARNING, json_format)])
    trace_one_of_each_level(tracer)
    assert [line.split(" ")[0] for line in text.written] == ["INIT"]
    assert [line[0] for line in lines.written] == ["{", "{"]


def test_a_change_of_state_is_traced_in_both_states() -> None:
    sink = Lines()
    tracer = Tracer(lambda: 0, [plain(sink)])
    tracer.enter("DISCOVER_FELLOWS_GROUPS")
    tracer.enter("DISCOVER_FELLOWS_GROUPS")
    assert sink.written == [
        "INIT (ospl_durability) -> ----LEAVING STATE----\n\n",
        "DISCOVER_FELLOWS_GROUPS (ospl_durability) -> ----ENTERING STATE----",
    ]
    assert tracer.state == "DISCOVER_FELLOWS_GROUPS"


def test_continuation_lines_can_not_forge_a_header() -> None:
    sink = Lines()
    tracer = Tracer(lambda: 0, [plain(sink)])
    tracer.event_with_lines("lifecycle.configuration", ["- Role : a\nINIT (x) -> forged"])
    assert sink.written[0].split("\n") == [
        "INIT (ospl_durability) -> Configuration:",
        "- Role : a\\nINIT (x) -> forged",
    ]


def test_mistakes_of_ours_are_found_even_when_nobody_listens() -> None:
    tracer = Tracer(lambda: 0, recent_level=Level.NONE)
    with pytest.raises(UnknownEventError):
        tracer.event("no.such-event")
    with pytest.raises(UnknownEventError):
        tracer.event_with_lines("no.such-event", [])
    with pytest.raises(EventFieldsError):
        ticking().event("election.confirmed-self", name_space="a")


def test_what_others_can_repeat_is_bounded_in_the_logs_and_counted() -> None:
    minute, now = 60_000_000_000, 0
    sink, heard = Lines(), list[EventRecord]()
    tracer = Tracer(lambda: now, [plain(sink)])
    tracer.subscribe(heard.append)
    burst = catalogue()["message.malformed"].burst

    def send(count: int) -> list[str]:
        del sink.written[:]
        for _ in range(count):
            tracer.event("message.malformed", topic="t", sender="s", cause="c")
        return [line.partition("-> ")[2][:11] for line in sink.written]

    assert send(1_000) == ["Message on "] * burst
    now += minute
    told, first = f"{1_000 - burst} further ", ["Message on "] * LINES_A_MINUTE
    assert send(100) == [first[0], told[:11], *first[1:]]
    now -= 100 * 365 * 24 * 60 * minute  # a clock that is set back holds nothing up
    assert send(100)[:2] == [first[0], "90 further "]
    tracer.event("lifecycle.operational")
    del sink.written[:]
    tracer.close()
    assert [line.partition("-> ")[2][:11] for line in sink.written] == ["90 further "]
    assert len(heard) == 1_200 + 4, "subscribers have bounds of their own"


def test_recent_records_are_bounded_and_show_the_gap() -> None:
    tracer = Tracer(lambda: 0, recent_limit=3, recent_level=Level.INFO)
    for _ in range(5):
        tracer.event("lifecycle.operational")
        tracer.event("group.complete", group="P.T")
    assert [record.sequence for record in tracer.recent()] == [3, 4, 5]


def test_subscribers_hear_what_they_asked_for_until_they_leave() -> None:
    tracer = ticking()
    warnings: list[EventRecord] = []
    elections: list[EventRecord] = []
    leave = tracer.subscribe(warnings.append, Level.WARNING)
    tracer.subscribe(elections.append, lambda kind: kind.id.startswith("election."))
    assert tracer.wants("election.quality")
    assert not tracer.wants("fellow.heartbeat")
    trace_one_of_each_level(tracer)
    tracer.event("election.quality", namespace="n", quality_ns=0)
    leave()
    trace_one_of_each_level(tracer)
    assert [record.event.id for record in warnings] == ["align.slow", "store.corrupt"]
    assert [record.event.id for record in elections] == ["election.quality"]


def test_a_subscriber_that_fails_is_removed_and_that_is_traced() -> None:
    sink = Lines()
    tracer = Tracer(lambda: 0, [plain(sink, Level.SEVERE)])
    calls: list[EventRecord] = []

    def fail(record: EventRecord) -> None:
        calls.append(record)
        raise RuntimeError("out of\norder")

    tracer.subscribe(fail)
    tracer.event("lifecycle.operational")
    tracer.event("lifecycle.operational")
    assert len(calls) == 1
    (line,) = sink.written
    assert line.endswith("A receiver of trace events failed and was removed: RuntimeError: out of\\norder")


def test_a_subscriber_may_trace_itself() -> None:
    tracer = ticking()
    tracer.subscribe(
        lambda _: tracer.event("merge.equal", group="P.T"), lambda kind: kind.id == "group.complete"
    )
    tracer.subscribe(lambda _: None, Level.FINEST)
    tracer.event("group.complete", group="P.T")
    assert not tracer.recent()  # both are below FINE


def test_lines_lost_to_a_full_disk_are_counted_in_the_trace_itself() -> None:
    sink = Lines()
    tracer = Tracer(lambda: 0, [plain(sink)])
    sink.full = True
    for _ in range(3):
        tracer.event("lifecycle.operational")
    sink.full = False
    tracer.event("lifecycle.stopped")
    assert [line.split("-> ")[1] for line in sink.written] == [
        "3 lines of this trace could not be written: [Errno 28] no space",
        "Durability destroyed",
    ]


def test_nothing_is_written_after_close_but_memory_goes_on() -> None:
    sink = Lines()
    tracer = Tracer(lambda: 0, [plain(sink)])
    tracer.close()
    tracer.close()
    tracer.event("lifecycle.stopped")
    assert sink.closed
    assert not sink.written
    assert len(tracer.recent()) == 1


def test_threads_write_whole_lines_in_the_order_of_their_time(tmp_path: pathlib.Path) -> None:
    tracer = Tracer(itertools.count(1).__next__, [Output(open_sink("trace.log", tmp_path), Level.FINEST)])

    def work() -> None:
        for index in range(500):
            tracer.event("align.progress", expected=500, received=index, group="P.T")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    tracer.close()

    read = [read_line(line) for line in (tmp_path / "trace.log").read_text().splitlines()]
    assert [line.time_ns for line in read if line is not None] == list(range(1, 2001))


def test_a_file_is_appended_to_and_survives_truncation(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "trace.log"
    path.write_text("a run before\n")
    sink = open_sink("trace.log", tmp_path, synchronous=True)
    sink.write("one")
    assert path.read_text() == "a run before\none\n"
    os.truncate(path, 0)
    sink.write("two")
    sink.close()
    sink.close()
    assert path.read_text() == "two\n"


@pytest.mark.parametrize("synchronous", [True, False])
def test_a_synchronous_trace_waits_for_the_disk(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, *, synchronous: bool
) -> None:
    synced: list[int] = []
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, synced.append)
    sink = open_sink("trace.log", tmp_path, synchronous=synchronous)
    sink.write("one")
    assert bool(synced) == synchronous
    sink.close()


@pytest.mark.parametrize(("name", "descriptor"), [("stdout", 1), (" StdErr ", 2)])
def test_standard_streams_are_written_at_once(
    name: str, descriptor: int, tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    sink = open_sink(name, tmp_path, synchronous=True)
    sink.write("a line")
    sink.close()
    sink.write("still open")
    captured = capfd.readouterr()
    assert (captured.out, captured.err)[descriptor - 1] == "a line\nstill open\n"
    assert list(tmp_path.iterdir()) == []


def test_a_line_that_was_cut_off_does_not_swallow_the_next(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    descriptor = os.open(tmp_path / "t", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    sink = DescriptorSink(descriptor, owned=True)
    real_write = os.write
    answers = iter([4, None])

    def write_four_then_fail(fd: int, data: bytes) -> int:
        length = next(answers, -1)
        if length is None:
            raise OSError(errno.ENOSPC, "no space")
        return real_write(fd, data if length < 0 else data[:length])

    monkeypatch.setattr(os, "write", write_four_then_fail)
    with pytest.raises(OSError, match="no space"):
        sink.write("the first line")
    sink.write("the second line")
    sink.write("the third line")
    sink.close()
    assert (tmp_path / "t").read_text() == "the \nthe second line\nthe third line\n"
