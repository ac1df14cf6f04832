"""Large samples: captured, on disk, aligned and delivered in megabytes a second, and what memory they take.

A node captures samples of one size, of as many instances; a second node with an empty store joins and gets
them; the writer ends, and a late reader gets them from the first node. A tap that only drains is the baseline
of capture and of delivery: it is what Cyclone DDS itself can do on this machine at this moment. That of the
disk is SQLite alone, that of alignment a socket on loopback, with the same bytes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sqlite3
import time
from typing import TYPE_CHECKING, Final

from benchmarks import bare
from benchmarks import stage as stages
from benchmarks.programs import Program
from benchmarks.rows import Bar, Is, Row
from engine.store.store_directory import DATABASE

if TYPE_CHECKING:
    from ospltool.demo.acts import Stage

AREA: Final = "large"
HOLDER: Final = "n1"
JOINER: Final = "n2"
BASE_MB: Final = 150
"""Memory of a node beside its set and what is in flight."""
_COMPLETE: Final = (
    "SELECT sum(sample_count) FROM sample_group JOIN set_version USING (version) WHERE state = 'complete'"
)
_LOOK_S: Final = 0.005
IN_FLIGHT: Final = 3
"""Samples in flight that a node may have in memory beside its set."""


@dataclasses.dataclass(frozen=True, slots=True)
class Load:
    """Samples of `size` megabytes, one of each of `count` instances."""

    size: int
    count: int
    rate: Bar | None = None
    aligned: Bar | None = None

    @property
    def bytes(self) -> int:
        """All payloads."""
        return self.size * self.count * 1_000_000

    @property
    def memory(self) -> Bar:
        """The most memory of a node that has the set."""
        return Bar(Is.AT_MOST, self.size * self.count + IN_FLIGHT * self.size + BASE_MB)


FAST: Final = Bar(Is.AT_LEAST, 200)
LOADS: Final = (Load(1, 512, FAST, FAST), Load(16, 32, FAST, Bar(Is.AT_LEAST, 400)), Load(100, 4))
DRAINED: Final = "a tap that only drains"
STORED: Final = "SQLite alone, insert"
CARRIED: Final = "a socket on loopback alone"
AGAINST: Final = {
    "captured": DRAINED,
    "captured and on disk": STORED,
    "aligned": CARRIED,
    "delivered": DRAINED,
}


def run(repeat: int) -> list[Row]:
    """For each size: rates in megabytes a second, and peaks of memory."""
    rows: list[Row] = []
    for load in LOADS:
        runs = [{**_bare(load), **_measure(load)} for _ in range(min(repeat, 3))]
        measured = {what: _row(load, what, tuple(run[what] for run in runs)) for what in runs[0]}
        for what, baseline in AGAINST.items():
            measured[what] = measured[what].against(measured[baseline])
        rows += measured.values()
    return rows


def _row(load: Load, what: str, values: tuple[float, ...]) -> Row:
    label = f"{load.count} samples of {load.size} MB, {what}"
    if what.startswith("peak"):
        return Row(AREA, label, "MB", values, bar=load.memory)
    bar = load.aligned if what == "aligned" else load.rate if what in AGAINST else None
    return Row(AREA, label, "MB/s", values, bar=bar)


def _bare(load: Load) -> dict[str, float]:
    return {
        DRAINED: _drained_rate(load),
        STORED: bare.insert_rate(load.count, load.size * 1_000_000) * load.size,
        CARRIED: bare.loopback_rate(load.bytes) / 1e6,
    }


def _options(stage: Stage, load: Load) -> dict[str, int]:
    size = load.size * 1_000_000
    return {"domain": stage.domain_id, "size": size, "count": load.count, "instances": load.count}


def _drained_rate(load: Load) -> float:
    with stages.stage() as stage:
        consumer = Program("drain", {"domain": stage.domain_id, "count": load.count}, stages.environ())
        consumer.answer()
        publisher = Program("publish", _options(stage, load), stages.environ())
        seconds: float = publisher.answer()["seconds"]
        consumer.answer()
        publisher.end()
        consumer.end()
        return load.bytes / seconds / 1e6


def _measure(load: Load) -> dict[str, float]:
    with stages.stage() as stage:
        stages.start_and_wait(stage, HOLDER)
        publisher = Program("publish", _options(stage, load), stages.environ())
        published = publisher.answer()
        publisher.end()
        on_disk_ns = _stored_ns(stage, HOLDER, load)
        holder_mb = stages.peak_mb(stage.pid(HOLDER))
        joiner = Program(
            "join",
            {"domain": stage.domain_id, "count": load.count, "durability": "persistent"},
            stages.environ(),
        )
        joiner.answer()
        delivered = joiner.answer()
        joiner.end()
        stages.start_and_wait(stage, JOINER)
        stages.wait_complete(stage, HOLDER, JOINER)
        _stored_ns(stage, JOINER, load)
        lines = stages.trace(stage, JOINER)
        asked_ns = stages.first_time_ns(lines, "Write samplerequest")
        aligned_ns = stages.first_time_ns(lines, "Durability service up")
        return {
            "captured": load.bytes / published["seconds"] / 1e6,
            "captured and on disk": load.bytes * 1e3 / (on_disk_ns - published["began_ns"]),
            "aligned": load.bytes * 1e3 / (aligned_ns - asked_ns),
            "delivered": load.bytes / (delivered["last"] - delivered["setup"]) / 1e6,
            "peak memory of the node that captures": holder_mb,
            "peak memory of the node that delivers and aligns": stages.peak_mb(stage.pid(HOLDER)),
            "peak memory of the joining node": stages.peak_mb(stage.pid(JOINER)),
        }


def _stored_ns(stage: Stage, name: str, load: Load) -> int:
    """Wall clock at which the node's file first shows everything to another process.

    The node's snapshot, which shows it too, comes up to a quarter of a second later.
    """
    (file,) = (stage.directory / name).rglob(DATABASE)
    until_s = time.monotonic() + stages.PATIENCE_S
    with contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
        while connection.execute(_COMPLETE).fetchone() != (load.count,):
            if time.monotonic() > until_s:
                raise TimeoutError(f"{name}: {load.count} samples of {load.size} MB are not on disk")
            time.sleep(_LOOK_S)
        return time.time_ns()
