"""A node with a million instances: its restart, a late joiner of all, and what a joining node costs others.

Live traffic goes on while the second node joins, and the first one is asked all the time.
"""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks import stage as stages
from benchmarks.programs import Program
from benchmarks.rows import Bar, Is, Row
from engine.store.store_directory import DATABASE

if TYPE_CHECKING:
    from ospltool.demo.acts import Stage

AREA: Final = "million"
HOLDER: Final = "n1"
JOINER: Final = "n2"
COUNT: Final = 1_000_000
SIZE: Final = 100
LIVE_RATE: Final = 1_000
"""Samples a second of the live traffic, on instances that exist."""
QUIET_S: Final = 4.0
KEPT: Final = Bar(Is.AT_LEAST, 0.98, of_ratio=True)
_READ: Final = "SELECT source_time_ns, writer, sequence, digest, status, key, payload FROM sample"


def run(repeat: int) -> list[Row]:
    """Each repetition with new nodes; at most three, because each takes more than a minute."""
    runs = [_measure() for _ in range(min(repeat, 3))]
    column = {what: tuple(each[what] for each in runs) for what in runs[0]}

    def row(what: str, unit: str, bar: Bar | None = None) -> Row:
        return Row(AREA, what, unit, column[what], bar=bar)

    bare = row("the rows read with SQLite alone, processor time", "s")
    quiet = row("live traffic alone", "samples/s")
    quiet_late = row("live traffic alone, latency p99", "ms")
    return [
        bare,
        row("restart, until complete", "s", Bar(Is.AT_MOST, 2.0)).against(bare),
        row("restart, processor time", "s").against(bare),
        row("restart after SIGKILL, until complete", "s", Bar(Is.AT_MOST, 4.0)).against(bare),
        row("late joiner of all", "s", Bar(Is.AT_MOST, 10.0)),
        quiet,
        row("live traffic while a node joins", "samples/s").against(
            quiet, Bar(Is.AT_LEAST, 0.98, of_ratio=True)
        ),
        quiet_late,
        row("live traffic while a node joins, latency p99", "ms"),
        row("live traffic while a node joins, added latency p99", "ms", Bar(Is.AT_MOST, 5.0)),
        row("longest wait for an answer, nothing else going on", "ms"),
        row("longest wait for an answer while a node joins", "ms", Bar(Is.AT_MOST, 20.0)),
    ]


def _measure() -> dict[str, float]:
    with stages.stage() as stage:
        stages.start_and_wait(stage, HOLDER)
        stages.fill(stage, HOLDER, COUNT, SIZE)
        found = {"late joiner of all": _late_joiner(stage)}
        stage.end(HOLDER)
        found["the rows read with SQLite alone, processor time"] = _bare_s(stage)
        found["restart, until complete"] = _restart_s(stage)
        found["restart, processor time"] = stages.processor_s(stage.pid(HOLDER))
        stage.kill(HOLDER)
        found["restart after SIGKILL, until complete"] = _restart_s(stage)
        return found | _join(stage)


def _late_joiner(stage: Stage) -> float:
    options = {"domain": stage.domain_id, "count": COUNT, "durability": "persistent"}
    joiner = Program("join", options, stages.environ())
    joiner.answer()
    answer = joiner.answer()
    joiner.end()
    if answer["got"] != COUNT:
        raise RuntimeError(f"the late joiner got {answer['got']} samples")
    return float(answer["last"])


def _bare_s(stage: Stage) -> float:
    """Processor time of reading all rows, with nothing done with them."""
    (path,) = Path(stage.directory, HOLDER).rglob(DATABASE)
    began = time.process_time()
    connection = sqlite3.connect(path)
    cursor = connection.execute(_READ)
    while cursor.fetchmany(1024):
        pass
    connection.close()
    return time.process_time() - began


def _restart_s(stage: Stage) -> float:
    began_ns = stages.start_and_wait(stage, HOLDER)
    return (stages.first_time_ns(stages.trace(stage, HOLDER), "Durability service up") - began_ns) / 1e9


def _join(stage: Stage) -> dict[str, float]:
    options = {"domain": stage.domain_id, "size": SIZE, "count": 1 << 40, "instances": 1_000}
    reader = Program("measure", options, stages.environ())
    reader.answer()
    asker = Program("ask", options, stages.environ())
    asker.answer()
    publisher = Program("publish", {**options, "rate": LIVE_RATE, "step": 10}, stages.environ())
    try:
        told = []
        for phase in ("settling", "quiet", "joining"):
            if phase == "joining":
                stages.start_and_wait(stage, JOINER)
            else:
                time.sleep(QUIET_S)
            reader.go()
            asker.go()
            told.append((reader.answer(), asker.answer()))
    finally:
        publisher.stop()
        asker.end()
        reader.end()
    (quiet, alone), (joining, asked) = told[1:]
    return {
        "live traffic alone": quiet["rate"],
        "live traffic alone, latency p99": quiet["p99_ms"],
        "live traffic while a node joins": joining["rate"],
        "live traffic while a node joins, latency p99": joining["p99_ms"],
        "live traffic while a node joins, added latency p99": joining["p99_ms"] - quiet["p99_ms"],
        "longest wait for an answer, nothing else going on": 1e3 * alone["longest"],
        "longest wait for an answer while a node joins": 1e3 * asked["longest"],
    }
