"""Heartbeats while the node's thread is idle, busy, or hung."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator

import pytest

from engine.dds.activity import Work
from engine.dds.errors import DdsError, DdsTimeout
from engine.node.pulse import LATE, PublishSchedule, Pulse

PERIOD_S = 0.02
SOON_S = 20.0
MANY_PERIODS_S = 10 * PERIOD_S


class Sent:
    """What went out; `problem` is raised instead, once."""

    def __init__(self) -> None:
        self.queue: queue.Queue[bytes] = queue.Queue()
        self.problem: DdsError | None = None

    def __call__(self, heartbeat: bytes) -> None:
        problem, self.problem = self.problem, None
        if problem is not None:
            raise problem
        self.queue.put(heartbeat)

    def next(self) -> bytes:
        return self.queue.get(timeout=SOON_S)

    def is_silent(self) -> bool:
        """Whether nothing goes out for many periods."""
        try:
            self.queue.get(timeout=MANY_PERIODS_S)
        except queue.Empty:
            return True
        return False


def await_that(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + SOON_S
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.001)


@pytest.fixture
def sent() -> Sent:
    return Sent()


@pytest.fixture
def work() -> Work:
    return Work()


@pytest.fixture
def pulse(sent: Sent, work: Work) -> Iterator[Pulse]:
    made = Pulse(sent, work, Work(), PERIOD_S)
    yield made
    made.close(SOON_S)


def test_heartbeat_goes_out_once_while_the_thread_waits_for_news(pulse: Pulse, sent: Sent) -> None:
    pulse.beat(b"one")
    assert sent.next() == b"one"
    assert sent.is_silent()
    pulse.beat(b"two")
    assert sent.next() == b"two"


def test_last_heartbeat_goes_out_again_while_the_thread_is_busy(pulse: Pulse, sent: Sent, work: Work) -> None:
    with work:
        pulse.beat(b"one")
        assert [sent.next() for _ in range(5)] == [b"one"] * 5
        pulse.beat(b"two")
        while sent.next() != b"two":
            pass
        assert sent.next() == b"two"
    assert pulse.repeated >= 5


def test_thread_that_is_busy_for_too_long_is_taken_for_hung(sent: Sent, work: Work) -> None:
    pulse = Pulse(sent, work, Work(), PERIOD_S, patience_s=-1.0)
    with work:
        pulse.beat(b"one")
        assert sent.next() == b"one"
        assert sent.is_silent()
    pulse.close(SOON_S)


def test_fellow_that_does_not_keep_up_costs_one_heartbeat(pulse: Pulse, sent: Sent) -> None:
    sent.problem = DdsTimeout(-10, "write")
    pulse.beat(b"one")
    await_that(lambda: sent.problem is None)
    pulse.beat(b"two")
    assert sent.next() == b"two"
    assert pulse.fault is None


def test_what_ends_the_thread_is_told(pulse: Pulse, sent: Sent) -> None:
    sent.problem = DdsError(-1, "write")
    pulse.beat(b"one")
    await_that(lambda: pulse.fault is not None)


def test_last_heartbeat_is_sent_before_the_end(sent: Sent, work: Work) -> None:
    pulse = Pulse(sent, work, Work(), PERIOD_S)
    pulse.beat(b"good-bye")
    pulse.close(SOON_S)
    assert sent.queue.get_nowait() == b"good-bye"


def test_what_is_done_with_the_heartbeats_waits_for_the_next_one_unless_it_is_late() -> None:
    times = PublishSchedule(0.25, 1.0)
    assert times.is_due(0.3, 0), "the first time needs no heartbeat"
    times.done(0.3, 0)
    assert not times.is_due(0.9, 0)
    assert times.is_due(1.0, 1), "the phase of the heartbeats is taken over"
    times.done(1.0, 1)
    assert not times.is_due(1.1, 2), "two heartbeats in quick succession"
    assert times.is_due(1.25, 2)
    times.done(2.0, 2)
    assert times.due_s == 2.0 + LATE
    assert times.is_due(times.due_s, 2), "without heartbeats"
