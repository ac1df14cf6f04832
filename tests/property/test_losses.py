"""Lost while captured is only what a wrong clock hides, or a way that is slower by seconds."""

from __future__ import annotations

import pytest

from engine.dataset.sample import DATA, Sample, captured_sample
from tests.property.samples import GROUPS
from tests.property.test_capture_batches import Run

NOW_NS = 1_800_000_000_000_000_000
SECOND_NS = 1_000_000_000
ONE, OTHER = b"A" * 16, b"B" * 16


def write(writer: bytes, age_s: float, key: bytes = b"k") -> Sample:
    return captured_sample(NOW_NS - round(age_s * SECOND_NS), writer, DATA, key, b"x")


@pytest.mark.parametrize(
    ("clock_s", "ages_s", "lost"),
    [
        pytest.param(0.0, [(OTHER, 0.01), (ONE, 0.02)], 0, id="two writers at the same time"),
        pytest.param(-0.4, [(OTHER, 0.01), (ONE, 0.41)], 0, id="a clock that is a little behind"),
        pytest.param(-60.0, [(OTHER, 0.01), (ONE, 60.0)], 1, id="a clock that is far behind"),
        pytest.param(-60.0, [(ONE, 59.0), (ONE, 60.0)], 0, id="replaced by its own writer"),
        pytest.param(-60.0, [(ONE, 60.0)], 0, id="kept"),
        pytest.param(0.0, [(OTHER, -60.0), (ONE, 0.0)], 1, id="behind a sample of the future"),
        pytest.param(None, [(OTHER, 0.01), (ONE, 60.0)], 0, id="of the past of a writer that is new here"),
    ],
)
def test_a_sample_that_is_too_old_is_lost_only_if_a_clock_is_wrong(
    clock_s: float | None, ages_s: list[tuple[bytes, float]], lost: int
) -> None:
    run = Run(1, wall_ns=NOW_NS)
    run.capture([write(OTHER, 0.0, b"known")])
    if clock_s is not None:
        run.capture([write(ONE, -clock_s, b"other")])
    for writer, age_s in ages_s:
        run.capture([write(writer, age_s)])
    assert run.runtime.spaces["all"].working.groups[GROUPS[0]].lost == lost


@pytest.mark.parametrize(("clock_s", "lost"), [(0.0, 0), (-60.0, 1)], ids=["right", "behind"])
def test_what_is_older_than_a_deletion_is_lost_only_if_a_clock_is_wrong(clock_s: float, lost: int) -> None:
    run = Run(0, wall_ns=NOW_NS)
    run.capture([write(ONE, -clock_s)])
    part = run.runtime.spaces["all"].working.groups[GROUPS[0]]
    part.raise_floor(NOW_NS - SECOND_NS // 10)
    run.capture([write(ONE, -clock_s + 0.2)])
    assert part.lost == lost


@pytest.mark.parametrize("stopped_s", [5.0, 60.0])
def test_what_waited_while_this_node_was_stopped_is_not_lost(stopped_s: float) -> None:
    """Two writers wrote one instance all the time; the last heartbeat is as old as the stop."""
    run = Run(1, wall_ns=NOW_NS)
    run.capture([write(OTHER, 0.0), write(ONE, 0.0, b"other")])
    run.clock.now_s += stopped_s
    run.capture([write(OTHER, -stopped_s), write(ONE, 0.01 - stopped_s)])
    assert run.runtime.counters["too_old"] == 1
    assert run.runtime.spaces["all"].working.groups[GROUPS[0]].lost == 0
