"""From the start of 3, 10 and 30 processes to complete nodes, with nothing to align.

The baseline is the same number of interpreters that do nothing, started at once.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from typing import TYPE_CHECKING, Final

from benchmarks import bare
from benchmarks import stage as stages
from benchmarks.rows import Bar, Is, Row
from ospltool.demo.acts import NODES

if TYPE_CHECKING:
    from ospltool.demo.acts import Stage

AREA: Final = "start"
PHASES: Final = {
    "process and imports": "Configuration:",
    "store opened and verified": "ENTERING STATE",
    "fellows found and compared": "Discovery ended",
    "master, injection, alignment": "Durability service up",
}
"""The end of each phase, in words of the trace."""
REAL_SERVICE: Final = "the real OpenSplice service needs 7.1 to 8.0 s for it, nearly all of it fixed sleeping"


FLEETS: Final = {10: None, 30: Bar(Is.AT_MOST, 8.0)}
"""More nodes than processors: what is measured is mostly the start of the interpreters."""


def run(repeat: int) -> list[Row]:
    """One node, first starts and later starts of three, each with fresh processes; then fleets."""
    rows = [*_one(repeat), *_three(repeat)]
    for count in FLEETS:
        names = [f"n{number}" for number in range(1, count + 1)]
        runs = []
        for _ in range(min(repeat, 3)):
            with stages.stage() as stage:
                runs.append(_start(stage, *names))
        rows += _beside(
            _bare_fleet(count, len(runs)), _rows(f"first start of {count}", runs, FLEETS[count], "")
        )
    return rows


def _bare_fleet(count: int, times: int) -> Row:
    values = tuple(bare.interpreters_s(count) for _ in range(times))
    return Row(AREA, f"{count} interpreters that do nothing", "s", values)


def _beside(baseline: Row, rows: list[Row]) -> list[Row]:
    """The rows behind their baseline, against which the first one, the whole, is held."""
    whole, *phases = rows
    return [baseline, whole.against(baseline), *phases]


def _one(repeat: int) -> list[Row]:
    """What a node needs until it is complete, beside an interpreter that does nothing."""
    needs: list[tuple[float, float]] = []
    for _ in range(repeat):
        with stages.stage() as stage:
            stages.start_and_wait(stage, NODES[0])
            needs.append((stages.processor_s(pid := stage.pid(NODES[0])), stages.peak_mb(pid)))
    bare = Row(AREA, "an interpreter that does nothing, processor time", "s", tuple(_bare_s() for _ in needs))
    node = Row(AREA, "one node until it is complete, processor time", "s", tuple(s for s, _ in needs))
    memory = tuple(megabytes for _, megabytes in needs)
    return [
        bare,
        node.against(bare, Bar(Is.AT_MOST, 0.5)),
        Row(AREA, "one idle node, memory", "MB", memory, bar=Bar(Is.AT_MOST, 30.0)),
    ]


def _bare_s() -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", ""], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _three(repeat: int) -> list[Row]:
    first: list[dict[str, float]] = []
    later: list[dict[str, float]] = []
    for _ in range(repeat):
        with stages.stage() as stage:
            first.append(_start(stage, *NODES))
            stage.close()
            later.append(_start(stage, *NODES))
    return [
        *_rows("first start", first, Bar(Is.AT_MOST, 2.0), "InitialDiscoveryPeriod is 0.5 s"),
        *_beside(
            _bare_fleet(len(NODES), repeat),
            _rows("start with known fellows", later, Bar(Is.AT_MOST, 0.6), REAL_SERVICE),
        ),
    ]


def _start(stage: Stage, *names: str) -> dict[str, float]:
    """Seconds until the last node is complete, and how long its phases took."""
    began_ns = stages.start_and_wait(stage, *names)
    ends = {name: _phase_ends(stage, name, began_ns) for name in names}
    last = max(ends.values(), key=lambda phases: max(phases.values()))
    result = {"until all are complete": max(last.values())}
    before = 0.0
    for phase, end in last.items():
        result[phase] = end - before
        before = end
    return result


def _phase_ends(stage: Stage, name: str, began_ns: int) -> dict[str, float]:
    lines = stages.trace(stage, name)
    return {phase: (stages.first_time_ns(lines, words) - began_ns) / 1e9 for phase, words in PHASES.items()}


def _rows(what: str, runs: list[dict[str, float]], bar: Bar | None, remark: str) -> list[Row]:
    return [
        Row(
            AREA,
            f"{what}, {phase}",
            "s",
            tuple(one[phase] for one in runs),
            bar=bar if not number else None,
            remark="" if number else remark,
        )
        for number, phase in enumerate(runs[0])
    ]
