from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from engine.dds.capture_reader import CaptureReader
from engine.dds.discovery import Discovery, EndpointSeen
from engine.dds.participant import NodeParticipant
from engine.dds.qos import EndpointQos
from engine.dds.topics import Topic
from engine.dds.waiting import Pump, Signal
from engine.dds.writer import RawWriter
from tests.integration.dds import sample_types
from tests.integration.dds.sample_types import sample_of

pytestmark = pytest.mark.dds

SAMPLE = b"\0\1\0\0" + bytes(16)


class Sink:
    """Keeps batches, and lets a test wait for them."""

    def __init__(self) -> None:
        self.batches: list[tuple[str, Any]] = []
        self.arrived = threading.Condition()

    def __call__(self, name: str, batch: Sequence[Any]) -> None:
        with self.arrived:
            self.batches += [(name, one) for one in batch]
            self.arrived.notify_all()

    def count(self, name: str) -> int:
        return sum(source == name for source, _ in self.batches)

    def wait_for(self, name: str, count: int) -> None:
        with self.arrived:
            assert self.arrived.wait_for(lambda: self.count(name) >= count, 10)


@pytest.fixture
def topic(participant: NodeParticipant) -> Topic:
    return Topic.of_class(participant, "Plain", sample_types.Plain)


@pytest.fixture
def writer(participant: NodeParticipant, topic: Topic) -> Iterator[RawWriter]:
    made = RawWriter(participant, topic, EndpointQos(history_depth=0, autodispose=False))
    yield made
    made.close()


def test_batches_of_all_sources_come_with_their_names(
    participant: NodeParticipant, topic: Topic, writer: RawWriter
) -> None:
    sink = Sink()
    pump = Pump(participant, sink)
    discovery = Discovery(participant, pump.signal)
    tap = CaptureReader(participant, topic, signal=pump.signal)
    pump.add("discovery", discovery.take)
    pump.add("tap", tap.drain)
    pump.start()
    for number in range(100):
        writer.write(SAMPLE, number)
    sink.wait_for("tap", 100)
    assert [one.source_time_ns for name, one in sink.batches if name == "tap"] == list(range(100))
    sink.wait_for("discovery", 3)
    seen = {one.guid for _, one in sink.batches if isinstance(one, EndpointSeen)}
    assert seen == {writer.guid, tap.guid}
    pump.remove("tap")
    writer.write(SAMPLE, 100)
    pump.stop()
    assert sink.count("tap") == 100


def test_data_wakes_the_pump_without_delay(
    participant: NodeParticipant, topic: Topic, writer: RawWriter
) -> None:
    async def measure() -> float:
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[Any] = asyncio.Queue()
        pump = Pump(participant, lambda _, batch: loop.call_soon_threadsafe(queue.put_nowait, batch))
        tap = CaptureReader(participant, topic, signal=pump.signal)
        pump.add("tap", tap.drain)
        pump.start()
        delays = []
        for _ in range(200):
            started = time.perf_counter()
            writer.write(SAMPLE, 1)
            await asyncio.wait_for(queue.get(), 20)
            delays.append(time.perf_counter() - started)
        pump.stop()
        tap.close()
        return sorted(delays)[100]

    assert asyncio.run(measure()) < 0.01


class Listener:
    """A tap with a bell, the pump that hears it, and another source, which counts how often it is asked."""

    def __init__(self, participant: NodeParticipant, topic: Topic, **tap: Any) -> None:
        self.sink, self.asked = Sink(), 0
        self.pump = Pump(participant, self.sink)
        self.bell = self.pump.signal.bell()
        self.tap = CaptureReader(participant, topic, signal=self.bell, **tap)
        self.pump.add("bell", lambda: [1] if self.bell.acknowledge() else [], has_bell=True)
        self.pump.add("other", self._ask)
        self.pump.start()

    def _ask(self) -> list[int]:
        self.asked += 1
        return [self.asked]

    def drain(self) -> int:
        """Take what came since the bell rang, until it can ring again."""
        count = 0
        while not self.bell.arm(lambda: bool(len(self.tap))):
            self.bell.forget()
            count += len(self.tap.drain())
        return count


def test_a_bell_rings_once_until_it_is_armed_and_wakes_nothing_else(
    participant: NodeParticipant, topic: Topic, writer: RawWriter
) -> None:
    made = Listener(participant, topic)
    made.sink.wait_for("other", 1)
    before = made.asked
    for number in range(1, 51):
        for _ in range(3):
            writer.write(SAMPLE, number)
        made.sink.wait_for("bell", number)
        for _ in range(3):
            writer.write(SAMPLE, number)
            made.tap.drain()
            writer.write(SAMPLE, number)
        made.drain()
        assert made.bell.is_armed
    made.pump.stop()
    assert made.sink.count("bell") == 50
    assert made.asked - before < 10, "the pump asks all sources once a second, and when another one has news"


def test_a_bell_that_forgets_what_is_looked_at_next_can_be_armed_at_once(
    participant: NodeParticipant, topic: Topic, writer: RawWriter
) -> None:
    made = Listener(participant, topic)
    for number in range(1, 21):
        writer.write(SAMPLE, number)
        made.sink.wait_for("bell", number)  # fails if a sample was forgotten with the one before
        made.bell.forget()
        assert len(made.tap.drain()) == 1
        assert made.bell.arm(lambda: bool(len(made.tap)))
    made.bell.forget()  # nothing while it is armed
    writer.write(SAMPLE, 21)
    made.sink.wait_for("bell", 21)
    made.bell.forget()
    writer.write(SAMPLE, 22)
    assert not made.bell.arm(lambda: bool(len(made.tap))), "two samples wait"
    made.pump.stop()


def test_nothing_that_comes_while_a_bell_is_armed_is_forgotten(
    participant: NodeParticipant, topic: Topic, writer: RawWriter
) -> None:
    made, count, taken, rung = Listener(participant, topic), 5_000, 0, 0

    def write_all() -> None:
        for number in range(count):
            writer.write(SAMPLE, number)

    thread = threading.Thread(target=write_all)
    thread.start()
    while taken < count:
        rung += 1
        made.sink.wait_for("bell", rung)  # fails if something is there and the bell is silent
        taken += made.drain()
    thread.join()
    made.pump.stop()
    assert taken == count


def test_a_silent_bell_rings_whenever_a_tap_is_half_full_of_large_samples(
    participant: NodeParticipant,
) -> None:
    topic = Topic.of_class(participant, "Bytes", sample_types.Bytes)
    qos = EndpointQos(history_depth=0, autodispose=False, representations=(2,))
    made = Listener(participant, topic, capacity_bytes=1 << 18)
    writer, sample = RawWriter(participant, topic, qos), sample_of(1, bytes(40_000))
    writer.write(sample, 0)
    made.sink.wait_for("bell", 1)
    for times in range(2, 5):
        assert len(made.tap.drain())
        while made.tap.fill < 0.5:
            assert made.sink.count("bell") == times - 1
            writer.write(sample, times)
        made.sink.wait_for("bell", times)
    writer.write(sample, 5)  # nobody has looked, so it is not said again
    made.pump.stop()
    assert not made.bell.is_armed
    assert made.sink.count("bell") == 4


def test_a_sink_that_blocks_pushes_back_to_the_writer(participant: NodeParticipant, topic: Topic) -> None:
    gate = threading.Event()
    got: list[Any] = []

    def sink(_: str, batch: Sequence[Any]) -> None:
        got.extend(batch)
        gate.wait(10)

    pump = Pump(participant, sink)
    tap = CaptureReader(participant, topic, limit=10, signal=pump.signal)
    pump.add("tap", tap.drain)
    pump.start()
    writer = RawWriter(participant, topic, EndpointQos(history_depth=0, blocking_ns=10_000_000_000))

    def write_all() -> None:
        for number in range(200):
            writer.write(SAMPLE, number)

    thread = threading.Thread(target=write_all)
    thread.start()
    thread.join(0.3)
    assert thread.is_alive()
    assert len(got) <= 11
    gate.set()
    thread.join(10)
    writer.close()
    pump.stop()
    assert [one.source_time_ns for one in got if one.payload == SAMPLE][:200] == list(range(200))[: len(got)]


def test_stopping_a_pump_whose_sink_hangs_is_reported(
    participant: NodeParticipant, topic: Topic, writer: RawWriter
) -> None:
    gate = threading.Event()
    entered = threading.Event()

    def hang(_: str, __: Sequence[Any]) -> None:
        entered.set()
        gate.wait(10)

    pump = Pump(participant, hang)
    tap = CaptureReader(participant, topic, signal=pump.signal)
    pump.add("tap", tap.drain)
    pump.start()
    writer.write(SAMPLE, 1)
    assert entered.wait(20)
    with pytest.raises(RuntimeError, match="held by its sink"):
        pump.stop(0.1)
    gate.set()
    pump.stop()


def test_a_failing_source_stops_the_pump_and_is_told_at_the_end(
    participant: NodeParticipant, caplog: pytest.LogCaptureFixture
) -> None:
    failed = threading.Event()

    def fail() -> list[Any]:
        failed.set()
        raise ValueError("broken")

    pump = Pump(participant, lambda _, __: None)
    pump.add("bad", fail)
    with caplog.at_level(logging.CRITICAL, "engine.dds.waiting"):
        pump.start()
        assert failed.wait(20)
        with pytest.raises(RuntimeError, match="had failed") as told:
            pump.stop()
    assert isinstance(told.value.__cause__, ValueError)


def test_a_signal_that_is_set_before_the_wait_is_not_lost(participant: NodeParticipant) -> None:
    with Signal(participant) as signal:
        assert not signal.wait(0)
        signal.set()
        signal.set()
        assert signal.wait(0)
        assert not signal.wait(0.01)


def test_closing_a_signal_ends_a_wait(participant: NodeParticipant) -> None:
    signal = Signal(participant)
    thread = threading.Thread(target=signal.wait)
    thread.start()
    signal.close()
    thread.join(20)
    assert not thread.is_alive()
