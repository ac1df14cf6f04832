"""A node joins one that holds much: what each phase takes, and how fast samples come over."""

from __future__ import annotations

from typing import Final

from benchmarks import stage as stages
from benchmarks.rows import Row

AREA: Final = "align"
COUNTS: Final = (10_000, 100_000)
SIZE: Final = 100
HOLDER: Final = "n1"
JOINER: Final = "n2"


def run(repeat: int) -> list[Row]:
    """For each number of samples: phases, totals and rates."""
    rows: list[Row] = []
    for count in COUNTS:
        runs = [_measure(count) for _ in range(repeat)]
        label = f"{count:,} samples"
        for phase in runs[0]:
            values = tuple(run[phase] for run in runs)
            rows.append(Row(AREA, f"{label}, {phase}", "s", values))
        rates = tuple(count / run["alignment itself"] for run in runs)
        rows.append(Row(AREA, f"{label}, rate of the alignment itself", "samples/s", rates))
    return rows


def _measure(count: int) -> dict[str, float]:
    with stages.stage() as stage:
        stages.start_and_wait(stage, HOLDER)
        stages.fill(stage, HOLDER, count, SIZE)
        began_ns = stages.start_and_wait(stage, JOINER)
        stages.wait_complete(stage, HOLDER, JOINER)
        stage.wait_for("it is on disk", lambda: stage.stored(JOINER) == count, stages.PATIENCE_S)
        stored_ns = stage.snapshots()[JOINER].time_ns
        lines = stages.trace(stage, JOINER)
        requested = stages.first_time_ns(lines, "Write samplerequest")
        complete = stages.first_time_ns(lines, "Durability service up")
        return {
            "until the set is asked for": (requested - began_ns) / 1e9,
            "alignment itself": (complete - requested) / 1e9,
            "until complete": (complete - began_ns) / 1e9,
            "until on disk": (stored_ns - began_ns) / 1e9,
        }
