"""A tap that must request more than it did, while processes write to it as fast as they can."""

from __future__ import annotations

import collections
import functools
import itertools
import operator
import threading
from collections.abc import Sequence

import pytest

from engine.capture import tap as moving
from engine.capture.tap import Tap
from engine.dataset.captured import CapturedRun
from engine.dataset.groups import DurabilityKind
from engine.dataset.sample import DATA
from engine.dds.capture_reader import CaptureReader
from engine.dds.participant import NodeParticipant
from engine.dds.topics import Topic
from engine.dds.waiting import Signal
from tests.integration.dds import sample_types
from tests.integration.dds.processes import Arena, wait_until

pytestmark = pytest.mark.dds

WRITERS = 2
MORE = 2000


def faults(numbers: list[int]) -> list[tuple[int, int, int]]:
    """Where a number does not follow the one before it: the place, that one, and this one."""
    pairs = enumerate(itertools.pairwise([-1, *numbers]))
    return [(place, before, number) for place, (before, number) in pairs if number != before + 1][:10]


@pytest.mark.parametrize(
    "arena", [60.0], indirect=True, ids=["long lease"]
)  # it is full for seconds under load
def test_each_writer_s_samples_come_once_and_in_order_while_the_tap_moves(
    arena: Arena, participant: NodeParticipant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice, so that the one that took a place gives it up, too."""
    monkeypatch.setattr(moving, "BESIDE_S", 0.3)
    topic = Topic.of_class(participant, "Plain", sample_types.Plain)
    signal = Signal(participant)

    def make(durability: DurabilityKind, *, hears: bool) -> CaptureReader:
        return CaptureReader(
            participant,
            topic,
            capacity_bytes=16 << 20,
            durability=durability,
            signal=signal,
            hears=hears,
        )

    tap = Tap(make, DurabilityKind.VOLATILE)
    writers = [arena.start("raw_writer", durability=DurabilityKind.PERSISTENT) for _ in range(WRITERS)]
    numbers: collections.defaultdict[bytes, list[int]] = collections.defaultdict(list)

    def drain(limit: int = 20_000) -> None:
        _, taken = tap.drain_runs(limit)
        for record in [*taken, *tap.drain(limit)]:
            for one in record.samples() if isinstance(record, CapturedRun) else (record,):
                if one.status & DATA:
                    numbers[one.writer].append(int.from_bytes(one.payload[4:8], "little"))

    def has_moved() -> bool:
        drain()
        return tap.turn() is not None

    def has(least: Sequence[int]) -> bool:
        drain()
        return all(map(operator.ge, sorted(map(len, numbers.values())), sorted(least)))

    wait_until(lambda: has([1] * WRITERS) and len(numbers) == WRITERS, signal.wait)
    for durability in (DurabilityKind.TRANSIENT, DurabilityKind.PERSISTENT):
        assert tap.request(durability)
        assert not tap.request(durability)
        wait_until(has_moved, lambda _: signal.wait(0.02))
        assert not tap.is_moving
        so_far = [len(each) + MORE for each in numbers.values()]
        wait_until(functools.partial(has, so_far), signal.wait)
    ends = [threading.Thread(target=each.end) for each in writers]  # which takes as long as it is drained
    for end in ends:
        end.start()
    wait_until(lambda: has([]) and not any(end.is_alive() for end in ends), lambda _: signal.wait(0.02))
    written = [each.expect(lambda line: line.get("written"))["written"] for each in writers]
    wait_until(lambda: has(written) and not len(tap), signal.wait)
    assert [fault for each in numbers.values() for fault in faults(each)] == []
    assert sorted(map(len, numbers.values())) == sorted(written)
    assert tap.qos.durability is DurabilityKind.PERSISTENT
    tap.close()
