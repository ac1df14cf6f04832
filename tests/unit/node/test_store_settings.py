"""How fast the store's thread writes, and when it gives space back (Persistent/Store… settings)."""

from __future__ import annotations

import contextlib
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

from engine.dataset.dataset import DataSet
from engine.dataset.sample_rows import SampleRows
from engine.dds.activity import ThreadActivities
from engine.node.disk import Disk, WriteSchedule
from engine.node.intake import CaptureDrain
from engine.store.interface import GroupChange
from engine.store.store_directory import DATABASE
from tests.unit.node.test_capture import Taps
from tests.unit.store.making import description, samples

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SPACE = "space"
GROUP = description(depth=0)
PATIENCE_S = 60.0
PAYLOAD = 2_000


class Written:
    """A store directory with its thread, and what was written into it."""

    def __init__(self, directory: Path, pace: WriteSchedule) -> None:
        self._news = threading.Event()
        self.file = directory / DATABASE
        self.disk = Disk(directory, "n1", self._news.set, ThreadActivities(), pace)
        self.disk.start()
        self.wait_for(lambda: self.disk.found() is not None)

    def wait_for(self, wanted: Any) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not wanted():
            assert time.monotonic() < deadline
            self._news.wait(1.0)
            self._news.clear()

    def set_of(self, count: int) -> None:
        """Make a set of so many samples the complete one, and wait until it is on disk."""
        data = DataSet()
        group = data.open_described(GROUP)
        rows = SampleRows.coerce(samples(0, count, PAYLOAD))
        group.extend(rows)
        self.disk.store_queue.write_set(SPACE, [(GROUP, rows)], data.summary(), "lineage")
        self.flush()

    def append(self, start: int, end: int) -> None:
        """Live changes, each handed over for itself."""
        for sample in samples(start, end):
            self.disk.store_queue.append(SPACE, [GroupChange(GROUP, sample)])
            self.flush()

    def flush(self) -> None:
        self.disk.wake()
        self.wait_for(lambda: self.disk.store_queue.is_idle)

    def bytes(self) -> int:
        """Of the file and its log."""
        return sum(path.stat().st_size for path in self.file.parent.glob(f"{self.file.name}*"))


@contextlib.contextmanager
def written(directory: Path, **pace: float) -> Iterator[Written]:
    made = Written(directory, WriteSchedule(**pace))  # type: ignore[arg-type]  # whole numbers where they are wanted
    try:
        yield made
    finally:
        made.disk.close(PATIENCE_S)


@pytest.mark.parametrize(("interval", "shrinks"), [(10, True), (0, False)])
def test_free_space_is_given_back_after_the_optimize_interval(
    tmp_path: Path, interval: int, *, shrinks: bool
) -> None:
    with written(tmp_path, optimize_interval=interval) as made:
        made.set_of(5_000)
        made.set_of(1)  # the former set is swept with the writes that follow
        full = made.bytes()
        assert full > 5_000 * PAYLOAD
        made.append(6_000, 6_040)
        made.wait_for(lambda: not shrinks or made.bytes() < full / 4)
        if not shrinks:
            assert made.bytes() >= full


def test_store_sleeps_between_two_sessions(tmp_path: Path) -> None:
    with written(tmp_path / "rests", session_s=0.001, sleep_s=0.2) as made:
        made.set_of(1)
        began_s = time.monotonic()
        for number in range(4):
            made.append(10 + number, 11 + number)
            time.sleep(0.002)  # longer than a session
        assert time.monotonic() - began_s >= 2 * 0.2


def test_store_does_not_sleep_while_the_node_ends(tmp_path: Path) -> None:
    began_s = time.monotonic()
    with written(tmp_path, session_s=0.001, sleep_s=PATIENCE_S) as made:
        made.disk.store_queue.append(SPACE, [])
        made.disk.store_queue.mark(SPACE, {"key": "value"})
        made.disk.wake()
    assert time.monotonic() - began_s < PATIENCE_S / 2


@pytest.mark.parametrize(
    ("size", "waiting", "megabytes", "room"),
    [
        (100, 0, 0, 100),
        (100, 60, 100, 40),
        (100, 100, 0, None),
        (0, 60, 0, 20_000),
        (100, 1, 200, None),
    ],
)
def test_no_more_is_captured_than_the_queue_of_the_store_has_room_for(
    size: int, waiting: int, megabytes: int, room: int | None
) -> None:
    asked: list[int] = []

    def drain_runs(limit: int) -> tuple[int, list[object]]:
        asked.append(limit)
        return 0, []

    tracer = SimpleNamespace(event=lambda *_, **__: None)
    shared = SimpleNamespace(is_behind=False, tracer=tracer)
    runtime: Any = SimpleNamespace(
        shared=shared,
        late_joiners=SimpleNamespace(tails=()),
        has_waiting=False,
        settle_captured=lambda _: None,
    )
    keeping: Any = SimpleNamespace(unregistered=lambda taken: None, heard=lambda taken: None)
    taps: Any = Taps([mock.Mock(fill=0.0, drain_runs=drain_runs)])
    store_queue: Any = SimpleNamespace(queued_changes=waiting, queued_bytes=megabytes << 20, problem="")
    clock: Any = SimpleNamespace(monotonic=lambda: 0.0, wall_ns=lambda: 0)
    neighbourhood: Any = SimpleNamespace(routes={})
    bell: Any = SimpleNamespace(is_armed=True, forget=lambda: None)
    CaptureDrain(
        taps, neighbourhood, runtime, store_queue, None, keeping, keeping, clock, max_waiting=size, bell=bell
    ).drain()
    assert asked == ([] if room is None else [room])
    assert shared.is_behind == (room is None)
