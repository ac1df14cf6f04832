"""From the start of three processes to three complete nodes, with nothing to align."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from benchmarks import stage as stages
from benchmarks.rows import Bar, Is, Row
from ospltool.demo.stage import NODES

if TYPE_CHECKING:
    from ospltool.demo.stage import Stage

AREA: Final = "start"
PHASES: Final = {
    "process and imports": "Configuration:",
    "store opened and verified": "ENTERING STATE",
    "fellows found and compared": "Discovery ended",
    "master, injection, alignment": "Durability service up",
}
"""The end of each phase, in words of the trace."""
REAL_SERVICE: Final = "the real OpenSplice service needs 7.1 to 8.0 s for it, nearly all of it fixed sleeping"


def run(repeat: int) -> list[Row]:
    """First starts and later starts, each with fresh processes."""
    first: list[dict[str, float]] = []
    later: list[dict[str, float]] = []
    for _ in range(repeat):
        with stages.stage() as stage:
            first.append(_start(stage))
            stage.close()
            later.append(_start(stage))
    return [
        *_rows("first start", first, Bar(Is.AT_MOST, 2.0), "InitialDiscoveryPeriod is 0.5 s"),
        *_rows("start with known fellows", later, Bar(Is.AT_MOST, 1.5), REAL_SERVICE),
    ]


def _start(stage: Stage) -> dict[str, float]:
    """Seconds until the last of the three is complete, and how long its phases took."""
    began_ns = stages.start_and_wait(stage, *NODES)
    ends = {name: _phase_ends(stage, name, began_ns) for name in NODES}
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


def _rows(what: str, runs: list[dict[str, float]], bar: Bar, remark: str) -> list[Row]:
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
