"""The small curves of the overview cover a minute, however often a node speaks."""

from __future__ import annotations

import pytest

from ospltool.live.series import NodeSeries
from ospltool.views.overview import CELL_NS, CURVE
from tests import fake
from tests.fake import SECOND_NS

BEGIN_NS = 1_000 * CELL_NS
"""The begin of a part of time."""


def heard(seconds: float, every_s: float, per_s: float) -> NodeSeries:
    """A node that tells what it has stored: nothing for half the time, then `per_s` a second."""
    series = NodeSeries()
    for number in range(round(seconds / every_s) + 1):
        since_s = number * every_s
        stored = round(max(0.0, since_s - seconds / 2) * per_s)
        snapshot = fake.snapshot(1, counters={"captured": number, "stored": stored})
        series.add(snapshot, BEGIN_NS + round(since_s * SECOND_NS))
    return series


@pytest.mark.parametrize("every_s", [0.25, 0.5, 1.0, 2.5])
def test_a_curve_covers_a_minute_however_often_a_node_speaks(every_s: float) -> None:
    assert CELL_NS * CURVE == 60 * SECOND_NS
    means = heard(60, every_s, 100.0).means("stored", CELL_NS, CURVE)
    assert means == [0.0] * (CURVE // 2) + [100.0] * (CURVE // 2)


def test_a_curve_of_less_than_a_minute_is_shorter() -> None:
    assert heard(20, 1, 100.0).means("stored", CELL_NS, CURVE) == [0.0, 0.0, 100.0, 100.0]
    assert heard(2, 1, 100.0).means("stored", CELL_NS, CURVE) == [50.0]
    assert heard(0, 1, 100.0).means("stored", CELL_NS, CURVE) == []
    assert NodeSeries().means("stored", CELL_NS, CURVE) == []


def test_a_finished_part_keeps_its_mean() -> None:
    series = heard(30, 1, 100.0)
    before = series.means("stored", CELL_NS, CURVE)
    series.add(fake.snapshot(1, counters={"captured": 99, "stored": 99_999}), BEGIN_NS + 31 * SECOND_NS)
    assert series.means("stored", CELL_NS, CURVE)[: len(before) - 1] == before[:-1]


def test_a_node_that_pauses_has_a_mean_for_every_part() -> None:
    series = NodeSeries()
    for second, stored in ((0, 0), (5, 50), (45, 2050), (50, 2050)):
        snapshot = fake.snapshot(1, counters={"captured": second, "stored": stored})
        series.add(snapshot, BEGIN_NS + second * SECOND_NS)
    assert series.means("stored", CELL_NS, CURVE) == [10.0, *[50.0] * 8, 0.0]


def test_the_silence_of_a_node_rises_and_stays_in_view() -> None:
    series = heard(20, 1, 0.0)
    now_ns = BEGIN_NS + 20 * SECOND_NS
    assert set(series.silences_s(CELL_NS, CURVE, now_ns)) == {1.0}
    rising = series.silences_s(CELL_NS, CURVE, now_ns + 20 * SECOND_NS)
    assert rising == [1.0, 1.0, 1.0, 1.0, 5.0, 10.0, 15.0, 20.0, 20.0]
    late = series.silences_s(CELL_NS, CURVE, now_ns + 600 * SECOND_NS)
    assert late == [550.0 + 5 * part for part in range(CURVE - 1)] + [600.0]
