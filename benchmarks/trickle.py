"""What a node needs for samples that come one by one: processor time and bytes written to its disk for each.

An application that reports a state now and then is the normal case, not one that writes as fast as it can.
Each sample is flushed to the network by itself; nobody asks for a confirmation. What an idle node needs in
the same time is measured first and taken off. Nodes are watched as by a console, which costs the same then.
The baseline is a program that does nothing but write each sample in a transaction of its own.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks import bare
from benchmarks import stage as stages
from benchmarks.programs import Program
from benchmarks.rows import Bar, Is, Row

if TYPE_CHECKING:
    from ospltool.demo.acts import Stage

AREA: Final = "trickle"
NODE: Final = "n1"
SECONDS: Final = 8.0
INSTANCES: Final = 100
SIZE: Final = 100
BARS_MS: Final = {10: 0.3, 100: 0.15, 250: 0.1, 1_000: 0.05}
"""Samples a second, and the most processor time for each in ms."""
MOST_BYTES: Final = {250: 2_000}


def run(repeat: int) -> list[Row]:
    """Each rate in each repetition, on a node of its own."""
    idle: list[float] = []
    used: dict[int, list[float]] = {rate: [] for rate in BARS_MS}
    written: dict[int, list[float]] = {rate: [] for rate in BARS_MS}
    alone: dict[int, list[float]] = {rate: [] for rate in BARS_MS}
    for _ in range(repeat):
        for rate in BARS_MS:
            alone[rate].append(bare.transaction_ms(rate, SECONDS))
        with stages.stage() as stage:
            stages.start_and_wait(stage, NODE)
            _trickle(stage, 100, 1.0)  # the first sample of a topic costs more than the others
            share = _idle(stage.pid(NODE))
            idle.append(100 * share)
            for rate in BARS_MS:
                busy_s, written_bytes, elapsed_s = _trickle(stage, rate, SECONDS)
                count = round(rate * SECONDS)
                used[rate].append(max(0.0, busy_s - share * elapsed_s) / count * 1e3)
                written[rate].append(written_bytes / count)
    rows = [Row(AREA, "idle node", "% of a core", tuple(idle), bar=Bar(Is.AT_MOST, 0.3))]
    for rate, most_ms in BARS_MS.items():
        name = f"processor time of a sample at {rate:,} samples/s"
        one = Row(
            AREA, f"SQLite alone, a transaction for each at {rate:,} samples/s", "ms", tuple(alone[rate])
        )
        rows += [one, Row(AREA, name, "ms", tuple(used[rate]), bar=Bar(Is.AT_MOST, most_ms)).against(one)]
        most = MOST_BYTES.get(rate)
        bar = Bar(Is.AT_MOST, most) if most else None
        rows.append(
            Row(
                AREA,
                f"written to disk for a sample at {rate:,} samples/s",
                "B",
                tuple(written[rate]),
                bar=bar,
            )
        )
    return rows


def _idle(pid: int) -> float:
    """Share of a core that a node needs while nothing is written."""
    began_s, used_s = time.monotonic(), stages.processor_s(pid)
    time.sleep(SECONDS)
    return (stages.processor_s(pid) - used_s) / (time.monotonic() - began_s)


def _trickle(stage: Stage, rate: int, seconds: float) -> tuple[float, int, float]:
    """Processor time and bytes written of the node, and the time it took, for `rate` samples a second."""
    options = {
        "domain": stage.domain_id,
        "size": SIZE,
        "count": round(rate * seconds),
        "instances": INSTANCES,
        "rate": rate,
        "step": 1,
    }
    pid = stage.pid(NODE)
    before_s, before, began_s = stages.processor_s(pid), _written(pid), time.monotonic()
    publisher = Program("publish", options, stages.environ())
    publisher.answer()
    used_s, written_bytes, elapsed_s = (
        stages.processor_s(pid) - before_s,
        _written(pid) - before,
        time.monotonic() - began_s,
    )
    publisher.end()
    stage.wait_for(
        "all are on disk", lambda: not stage.snapshots()[NODE].counters["queued"], stages.PATIENCE_S
    )
    return used_s, written_bytes, elapsed_s


def _written(pid: int) -> int:
    """Bytes that a process has caused to be written to a disk: proc(5)."""
    lines = Path(f"/proc/{pid}/io").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("write_bytes"))
