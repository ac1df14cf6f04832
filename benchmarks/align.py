"""A node joins one that holds much: what each phase takes, how fast samples come over, and what it costs.

First with an empty store, then once more with the set that it stored, of which nothing has changed. Beside
each stand what a socket on loopback carries and what SQLite alone stores, of the same bytes.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from benchmarks import bare
from benchmarks import stage as stages
from benchmarks.rows import Bar, Is, Row

if TYPE_CHECKING:
    from ospltool.demo.acts import Stage
    from tests.trace_lines import Line

AREA: Final = "align"
HOLDER: Final = "n1"
JOINER: Final = "n2"
PHASES: Final = {
    "start": "Configuration:",
    "store and discovery": "Discovery ended",
    "election": "Write samplerequest",
    "transfer": "Durability service up",
    "stored": "persistent store actions",
}
"""The end of each phase, in words of the trace."""


@dataclasses.dataclass(frozen=True, slots=True)
class Load:
    """Sets of this many samples of this size; large ones are repeated less often."""

    count: int
    repeat: int
    bars: dict[str, Bar] = dataclasses.field(default_factory=dict)
    size: int = 100


ON_DISK: Final = "empty store, until on disk"
RATE: Final = "aligned and on disk"
CARRIED: Final = "a socket on loopback alone"
STORED: Final = "SQLite alone, insert"
JOINER_MB: Final = "peak memory of the joining node"
HOLDER_MB: Final = "peak memory of the other node"
WRITTEN: Final = "unchanged, samples written to the store"
LOADS: Final = (
    Load(10_000, 5),
    Load(100_000, 5, {ON_DISK: Bar(Is.AT_MOST, 1.8), WRITTEN: Bar(Is.AT_MOST, 0)}),
    Load(100_000, 3, {RATE: Bar(Is.AT_LEAST, 200_000)}, size=1_000),
    Load(
        1_000_000,
        1,
        {
            RATE: Bar(Is.AT_LEAST, 500_000),
            WRITTEN: Bar(Is.AT_MOST, 0),
            JOINER_MB: Bar(Is.AT_MOST, 312),  # 1.5 times the set, and 150 MB
            HOLDER_MB: Bar(Is.AT_MOST, 312),
        },
    ),
)


def run(repeat: int) -> list[Row]:
    """For each number of samples: phases, totals and rates."""
    rows: list[Row] = []
    for load in LOADS:
        runs = [
            {**_bare(load.count, load.size), **_measure(load.count, load.size)}
            for _ in range(min(repeat, load.repeat))
        ]
        measured = {
            what: Row(
                AREA,
                f"{load.count:,} samples of {load.size} B, {what}",
                unit,
                tuple(run[what][1] for run in runs),
                bar=load.bars.get(what),
            )
            for what, (unit, _) in runs[0].items()
        }
        measured[RATE] = measured[RATE].against(measured[STORED])
        rows += measured.values()
    return rows


def _bare(count: int, size: int) -> dict[str, tuple[str, float]]:
    carried = bare.loopback_rate(count * size) / size
    return {CARRIED: ("samples/s", carried), STORED: ("samples/s", bare.insert_rate(count, size))}


def _measure(count: int, size: int) -> dict[str, tuple[str, float]]:
    with stages.stage() as stage:
        stages.start_and_wait(stage, HOLDER)
        stages.fill(stage, HOLDER, count, size)
        busy_s = stages.processor_s(stage.pid(HOLDER))
        ends = _join(stage, count)
        asked, stored = ends["election"], ends["stored"]
        result = {
            **{f"empty store, phase {phase}": ("s", took) for phase, took in _durations(ends).items()},
            "empty store, until complete": ("s", ends["transfer"]),
            ON_DISK: ("s", stored),
            RATE: ("samples/s", count / (stored - asked)),
            "processor time of the joining node": ("s", stages.processor_s(stage.pid(JOINER))),
            "processor time of the other node": ("s", stages.processor_s(stage.pid(HOLDER)) - busy_s),
            JOINER_MB: ("MB", stages.peak_mb(stage.pid(JOINER))),
            HOLDER_MB: ("MB", stages.peak_mb(stage.pid(HOLDER))),
        }
        stage.end(JOINER)
        ends = _join(stage, count)
        written = [_written(line) for line in stages.trace(stage, JOINER) if "store actions" in line.text]
        return result | {
            "unchanged, until the set is asked for": ("s", ends["election"]),
            "unchanged, until complete": ("s", ends["transfer"]),
            WRITTEN: ("samples", float(sum(written))),
        }


def _durations(ends: dict[str, float]) -> dict[str, float]:
    before = [0.0, *ends.values()]
    return {phase: end - begin for (phase, end), begin in zip(ends.items(), before, strict=False)}


def _join(stage: Stage, count: int) -> dict[str, float]:
    """Seconds from the start of the process to the end of each phase."""
    began_ns = stages.start_and_wait(stage, JOINER)
    stages.wait_complete(stage, HOLDER, JOINER)
    stage.wait_for("it is on disk", lambda: stage.stored(JOINER) == count, stages.PATIENCE_S)
    lines = stages.trace(stage, JOINER)
    return {phase: (stages.first_time_ns(lines, words) - began_ns) / 1e9 for phase, words in PHASES.items()}


def _written(line: Line) -> int:
    """From "Current: performed N persistent store actions in ..."."""
    return int(line.text.split("performed ")[1].split()[0])
