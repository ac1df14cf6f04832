"""Capture waits for the disk, and says so."""

from __future__ import annotations

import math
import types
from typing import Any
from unittest import mock

import pytest

from engine.node.intake import BUSY, CALM, CALM_S, GATHER_S, LONE_S, MAX_BACKLOG, ROOMY, TICK_S, CaptureDrain
from engine.runtime.capture import WAIT_S
from engine.tracing.tracer import Tracer


class Clock:
    """Time that passes when it is told to."""

    now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def wall_ns(self) -> int:
        return int(self.now_s * 1e9)


def test_writers_that_are_held_back_are_said_once_with_how_long_it_took() -> None:
    tracer, clock = Tracer(lambda: 0), Clock()
    shared = types.SimpleNamespace(tracer=tracer, is_behind=False)
    runtime: Any = types.SimpleNamespace(
        shared=shared, late_joiners=types.SimpleNamespace(tails={}), settle_captured=lambda _: None
    )
    persistence: Any = types.SimpleNamespace(queued_changes=MAX_BACKLOG + 1, queued_bytes=0, problem="")
    nobody: Any = types.SimpleNamespace(routes={})
    taps: Any = []
    bell: Any = types.SimpleNamespace(is_armed=True, forget=lambda: None)
    capture = CaptureDrain(taps, nobody, runtime, persistence, None, nobody, nobody, clock, bell=bell)
    for _ in range(3):
        capture.drain()
        clock.now_s += 1.0
    persistence.queued_changes = 0
    capture.drain()
    capture.drain()
    told = [(record.event.id, *record.fields.values()) for record in tracer.recent()]
    assert told == [("capture.back-pressure", MAX_BACKLOG + 1), ("capture.relieved", 3_000_000_000)]


class Taps(list[Any]):
    """One tap with one sample at each look."""

    is_moving = False
    patience_s = 3600.0
    further = frozenset[Any]()

    def has_news(self) -> bool:
        return False


def draining(
    clock: Clock, armed: list[float], count: int, fill: float, tails: object, queue: Any = None
) -> CaptureDrain:
    """A drain of one tap with `count` samples at each look; it notes in `armed` when it arms the bell."""
    shared = types.SimpleNamespace(tracer=Tracer(lambda: 0), is_behind=False)
    serving = types.SimpleNamespace(tails=tails)
    runtime: Any = types.SimpleNamespace(
        shared=shared,
        late_joiners=serving,
        has_waiting=False,
        capture=lambda *_, **__: [],
        settle_captured=lambda _: None,
    )
    persistence: Any = queue or types.SimpleNamespace(queued_changes=0, queued_bytes=0, problem="")
    others: Any = types.SimpleNamespace(routes={}, unregistered=lambda _: None, heard=lambda _: None)
    taps: Any = Taps([mock.Mock(fill=fill, drain_runs=lambda _: (count, [None] * count))])
    bell: Any = types.SimpleNamespace(
        is_armed=False, forget=lambda: None, arm=lambda _: armed.append(clock.now_s)
    )
    return CaptureDrain(taps, others, runtime, persistence, None, others, others, clock, bell=bell)


def test_a_lone_sample_lets_the_bell_ring_for_the_next_and_others_are_waited_for() -> None:
    clock, armed = Clock(), list[float]()
    capture = draining(clock, armed, count=1, fill=0.0, tails={})
    for now_s in (0.0, LONE_S / 2, LONE_S, 3 * LONE_S):
        clock.now_s = now_s
        capture.drain()
    assert armed == [0.0, 3 * LONE_S]


@pytest.mark.parametrize(
    ("count", "fill", "tails", "wanted_s"),
    [
        pytest.param(1, 0.0, {}, CALM_S, id="few samples"),
        pytest.param(BUSY, 0.0, {}, GATHER_S, id="many samples"),
        pytest.param(1, 1.01 * CALM, {}, GATHER_S, id="large samples"),
        pytest.param(1, 2 * ROOMY, {}, GATHER_S / 2, id="larger samples"),
        pytest.param(1, 0.0, {"a reader": "waits"}, GATHER_S, id="somebody follows"),
    ],
)
def test_taps_are_left_alone_for_longer_while_few_samples_come(
    count: int, fill: float, tails: object, wanted_s: float
) -> None:
    clock = Clock()
    capture = draining(clock, [], count, fill, tails)
    capture.drain()
    assert capture.patience_s(clock.now_s) == pytest.approx(wanted_s)
    capture.urged()
    assert capture.patience_s(clock.now_s) == 0.0


def test_a_node_whose_taps_wait_for_the_disk_does_not_look_at_them_all_the_time() -> None:
    """It took a whole core, and the interpreter from the thread that writes: the disk stayed behind."""
    clock, queue = Clock(), types.SimpleNamespace(queued_changes=0, queued_bytes=0, problem="")
    capture = draining(clock, [], count=1, fill=2 * ROOMY, tails={}, queue=queue)
    capture.drain()
    queue.queued_changes = MAX_BACKLOG
    clock.now_s += GATHER_S
    capture.drain()
    assert capture.patience_s(clock.now_s) == TICK_S
    queue.problem = "no space left"  # what the disk refuses is captured all the same
    capture.drain()
    assert capture.patience_s(clock.now_s) == pytest.approx(GATHER_S / 2)


class Late:
    """A runtime that notes which samples may wait, and for how long; `has_waiting` says whether some do."""

    def __init__(self) -> None:
        self.shared = types.SimpleNamespace(tracer=Tracer(lambda: 0), is_behind=False)
        self.late_joiners = types.SimpleNamespace(tails={})
        self.has_waiting = False
        self.told: list[object] = []

    def capture(self, _records: object, _routes: object, *, waits: bool) -> list[object]:
        self.told.append(waits)
        return []

    def settle_captured(self, waiting_s: float) -> None:
        self.told.append(waiting_s)


@pytest.mark.parametrize(
    ("fill", "has_waiting", "tails", "count", "wanted"),
    [
        pytest.param(ROOMY, False, {}, 1, [True, WAIT_S], id="a busy tap"),
        pytest.param(0.0, True, {}, 1, [True, WAIT_S], id="samples of it wait already"),
        pytest.param(0.9 * ROOMY, False, {}, 1, [False, WAIT_S], id="a tap with few samples"),
        pytest.param(0.0, True, {}, 0, [-math.inf], id="nothing came"),
        pytest.param(1.0, True, {"a reader": "waits"}, 1, [False, -math.inf], id="somebody follows"),
    ],
)
def test_samples_wait_for_newer_ones_only_while_their_tap_is_busy(
    fill: float, has_waiting: bool, tails: dict[str, str], count: int, wanted: list[object]
) -> None:
    clock, armed, runtime = Clock(), list[float](), Late()
    capture = draining(clock, armed, count, fill, tails)
    runtime.late_joiners.tails, runtime.has_waiting = tails, has_waiting
    capture._runtime = runtime  # type: ignore[assignment]  # the part of it that a drain uses
    capture.turn()
    assert runtime.told == wanted
    assert armed == ([] if has_waiting else [0.0] * count), "the bell does not ring for those that wait"
    runtime.told.clear()
    capture.drain()
    assert runtime.told == [False] * count + [-math.inf], "a look out of turn takes everything"
    clock.now_s += 1.0
    capture.found_nothing(clock.now_s)
    assert (clock.now_s in armed) is not has_waiting
