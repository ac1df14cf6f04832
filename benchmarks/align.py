"""A node joins one that holds much: what each phase takes, how fast samples come over, what memory it takes.

First with an empty store, then once more with the set that it stored, of which nothing has changed.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks import stage as stages
from benchmarks.rows import Bar, Is, Row

if TYPE_CHECKING:
    from engine.tracing.formats import Line
    from ospltool.demo.stage import Stage

AREA: Final = "align"
SIZE: Final = 100
HOLDER: Final = "n1"
JOINER: Final = "n2"


@dataclasses.dataclass(frozen=True, slots=True)
class Load:
    """So many samples; of the large loads, fewer repetitions."""

    count: int
    repeat: int
    bars: dict[str, Bar] = dataclasses.field(default_factory=dict)


ON_DISK: Final = "empty store, until on disk"
RATE: Final = "aligned and on disk"
WRITTEN: Final = "unchanged, samples written to the store"
LOADS: Final = (
    Load(10_000, 5),
    Load(100_000, 5, {ON_DISK: Bar(Is.AT_MOST, 1.8), WRITTEN: Bar(Is.AT_MOST, 0)}),
    Load(1_000_000, 1, {RATE: Bar(Is.AT_LEAST, 200_000), WRITTEN: Bar(Is.AT_MOST, 0)}),
)


def run(repeat: int) -> list[Row]:
    """For each number of samples: phases, totals and rates."""
    rows: list[Row] = []
    for load in LOADS:
        runs = [_measure(load.count) for _ in range(min(repeat, load.repeat))]
        for what, (unit, _) in runs[0].items():
            values = tuple(run[what][1] for run in runs)
            label = f"{load.count:,} samples, {what}"
            rows.append(Row(AREA, label, unit, values, bar=load.bars.get(what)))
    return rows


def _measure(count: int) -> dict[str, tuple[str, float]]:
    with stages.stage() as stage:
        stages.start_and_wait(stage, HOLDER)
        stages.fill(stage, HOLDER, count, SIZE)
        first = _join(stage, count)
        asked, complete, stored = first
        result = {
            "empty store, until the set is asked for": ("s", asked),
            "empty store, alignment itself": ("s", complete - asked),
            "empty store, until complete": ("s", complete),
            ON_DISK: ("s", stored),
            RATE: ("samples/s", count / (stored - asked)),
            "peak memory of the joining node": ("MB", _peak_mb(stage, JOINER)),
            "peak memory of the other node": ("MB", _peak_mb(stage, HOLDER)),
        }
        stage.end(JOINER)
        asked, complete, _ = _join(stage, count)
        written = [_written(line) for line in stages.trace(stage, JOINER) if "store actions" in line.text]
        return result | {
            "unchanged, until the set is asked for": ("s", asked),
            "unchanged, until complete": ("s", complete),
            WRITTEN: ("samples", float(sum(written))),
        }


def _join(stage: Stage, count: int) -> tuple[float, float, float]:
    """Seconds from the start of the process until the set was asked for, complete, and on the disk."""
    began_ns = stages.start_and_wait(stage, JOINER)
    stages.wait_complete(stage, HOLDER, JOINER)
    stage.wait_for("it is on disk", lambda: stage.stored(JOINER) == count, stages.PATIENCE_S)
    lines = stages.trace(stage, JOINER)
    words = ("Write samplerequest", "Durability service up", "persistent store actions")
    asked, complete, stored = ((stages.first_time_ns(lines, each) - began_ns) / 1e9 for each in words)
    return asked, complete, stored


def _written(line: Line) -> int:
    """From "Current: performed N persistent store actions in ..."."""
    return int(line.text.split("performed ")[1].split()[0])


def _peak_mb(stage: Stage, name: str) -> float:
    text = Path(f"/proc/{stage.pid(name)}/status").read_text(encoding="utf-8")
    (line,) = (line for line in text.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1000
